//! What a supervisor and its daemon tell each other: messages of JSON, with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use persimmon::vfs::SubvolumeId;
use persimmon_fuse::{Facts, Handover};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::{Deserialize, Serialize};

/// Descriptors in one message at most, as the kernel has it.
const DESCRIPTORS_MAX: usize = 253;
/// Bytes of a message.
const BYTES_MAX: usize = 64 << 10;

/// A message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From a daemon: the volume is mounted. With all that the next one will need.
    Mounted(Kept),
    /// To it: that is kept.
    Kept,
    /// To a daemon that goes on: with what the one before has left.
    Resume {
        /// What there is.
        kept: Kept,
        /// Why it is not the program that was asked for.
        note: Option<String>,
        /// Which was asked for, if it is that one and new.
        program: Option<PathBuf>,
    },
    /// From it: the kernel is answered again.
    Serving,
    /// From a daemon: another program is to go on.
    Replace {
        /// Its path.
        program: PathBuf,
    },
}

/// What is handed over, but for the descriptors. They come in this order: ledger, asks, writes back, abort, locks, devices.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Kept {
    setxattr_ext: bool,
    mount: Option<String>,
    umount: bool,
    syncfs: bool,
    /// Number of the subvolume.
    #[serde(default)]
    subvolume: u16,
    has_writes_back: bool,
    has_abort: bool,
    locks: usize,
}

/// A handover as it is sent.
pub fn pack(handover: &Handover) -> (Kept, Vec<BorrowedFd<'_>>) {
    let kept = Kept {
        setxattr_ext: handover.facts.setxattr_ext,
        mount: handover.facts.mount.clone(),
        umount: handover.facts.umount,
        syncfs: handover.facts.syncfs,
        subvolume: handover.facts.subvolume.0,
        has_writes_back: handover.writes_back.is_some(),
        has_abort: handover.abort.is_some(),
        locks: handover.locks.len(),
    };
    let fixed = [Some(&handover.ledger), Some(&handover.asks)];
    let optional = [handover.writes_back.as_ref(), handover.abort.as_ref()];
    let all = fixed.into_iter().chain(optional).flatten();
    let all = all.chain(&handover.locks).chain(&handover.devices);
    let all = all.map(AsFd::as_fd);
    (kept, all.collect())
}

/// As it was received.
///
/// # Errors
/// Descriptors are missing.
pub fn unpack(kept: Kept, descriptors: Vec<OwnedFd>) -> Result<Handover> {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().context("a descriptor is missing");
    let (ledger, asks) = (next()?, next()?);
    let writes_back = kept.has_writes_back.then(&mut next).transpose()?;
    let abort = kept.has_abort.then(&mut next).transpose()?;
    let locks: Result<Vec<OwnedFd>> = (0..kept.locks).map(|_| next()).collect();
    Ok(Handover {
        ledger,
        asks,
        writes_back,
        abort,
        locks: locks?,
        devices: descriptors.collect(),
        facts: Facts {
            setxattr_ext: kept.setxattr_ext,
            mount: kept.mount,
            umount: kept.umount,
            syncfs: kept.syncfs,
            subvolume: SubvolumeId(kept.subvolume),
        },
    })
}

/// One end.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Both ends.
    ///
    /// # Errors
    /// The system gives none.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (here, there) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel(here), there))
    }

    /// The end that a daemon has for its standard input.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn of_daemon() -> io::Result<Channel> {
        Ok(Channel(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    /// Nobody is at the other end.
    pub fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            bail!("{} descriptors are too many", descriptors.len());
        }
        let parts = [IoSlice::new(&bytes)];
        sendmsg(&self.0, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next message; `None` once nobody is at the other end.
    ///
    /// # Errors
    /// It is none.
    pub fn receive(&self) -> Result<Option<(Message, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(&self.0, &mut parts, &mut ancillary, flags) {
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            received => received?,
        };
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let cut_off = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        if received.flags.intersects(cut_off) {
            bail!("a message was too long");
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        let text = bytes.get(..received.bytes).unwrap_or_default();
        Ok(Some((serde_json::from_slice(text)?, descriptors)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_handover_comes_through_with_its_descriptors() {
        let (here, there) = Channel::pair().unwrap();
        let file = || OwnedFd::from(File::open("/dev/null").unwrap());
        let handover = Handover {
            devices: vec![file(), file(), file()],
            ledger: file(),
            asks: file(),
            writes_back: None,
            abort: Some(file()),
            locks: vec![file(), file()],
            facts: Facts {
                setxattr_ext: true,
                mount: Some("0:7".into()),
                umount: true,
                syncfs: false,
                subvolume: SubvolumeId(7),
            },
        };
        let (kept, descriptors) = pack(&handover);
        here.send(&Message::Mounted(kept), &descriptors).unwrap();
        let (message, descriptors) = Channel(there).receive().unwrap().unwrap();
        let Message::Mounted(kept) = message else {
            panic!("{message:?}");
        };
        let received = unpack(kept.clone(), descriptors).unwrap();
        assert_eq!(received.facts, handover.facts);
        assert_eq!((received.locks.len(), received.devices.len()), (2, 3));
        assert!(received.writes_back.is_none() && received.abort.is_some());
        assert!(unpack(kept, vec![file()]).is_err());
    }

    #[test]
    fn who_is_alone_hears_so() {
        let (here, there) = Channel::pair().unwrap();
        drop(there);
        assert!(here.receive().unwrap().is_none());
        assert!(here.send(&Message::Kept, &[]).is_err());
    }
}
