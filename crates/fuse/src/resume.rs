//! A mount whose daemon may die, or be replaced: what is handed on to the next one, and how that goes on with it.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use persimmon_vfs::{Ino, Result as VfsResult, SubvolumeId, Vfs};
use tracing::{debug, error, info};

use crate::adapter::{Adapter, reopen_flags};
use crate::answer::Door;
use crate::capabilities::Agreed;
use crate::latency::Latencies;
use crate::ledger::{Ledger, OpenFile, Replayed};
use crate::live::Live;
use crate::lost::Lost;
use crate::options::MountOptions;
use crate::session::{Hears, Mount, MountError, Place};
use crate::transport::{self, Connected, Connection};
use crate::write_back::WriteBack;

/// What is known of a mount: agreed with the kernel, which shakes hands once, or found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// SETXATTR has a longer fixed part.
    pub setxattr_ext: bool,
    /// `major:minor` of the filesystem.
    pub mount: Option<String>,
    /// The daemon hears of `umount`.
    pub umount: bool,
    /// The daemon hears of `sync` and `syncfs`.
    pub syncfs: bool,
    /// The subvolume whose root is the root of the mount. It may have got another name than it was mounted by.
    pub subvolume: SubvolumeId,
}

/// What outlives a daemon, in the keeping of its supervisor.
#[derive(Debug)]
pub struct Handover {
    /// Descriptors of the connection. The kernel has noted for each which requests it was read from, and gives those up when it is closed
    /// by all.
    pub devices: Vec<OwnedFd>,
    /// The ledger's memory.
    pub ledger: OwnedFd,
    /// The socket of who wants pages written back.
    pub asks: OwnedFd,
    /// That of the process that has it done ([`crate::write_back::run`]), which the supervisor starts.
    pub writes_back: Option<OwnedFd>,
    /// The file that aborts the connection when it is written to. Not every user has one.
    pub abort: Option<OwnedFd>,
    /// Those of the device's locks: nobody else opens it while there is no daemon.
    pub locks: Vec<OwnedFd>,
    /// What is known.
    pub facts: Facts,
}

impl Handover {
    pub(crate) fn begin(
        device: BorrowedFd<'_>,
        ledger: &Ledger,
        agreed: Agreed,
        threads: usize,
    ) -> io::Result<(WriteBack, Option<Handover>)> {
        if !agreed.resend {
            return Err(io::Error::other(
                "this kernel (before Linux 6.9) does not send requests again; mount without -o supervise",
            ));
        }
        let (asks, writes_back) = UnixStream::pair()?;
        let asks = OwnedFd::from(asks);
        let handover = Handover {
            devices: transport::descriptors(device, threads.max(1))?,
            ledger: ledger.memory()?,
            asks: asks.try_clone()?,
            writes_back: Some(writes_back.into()),
            abort: None,
            locks: Vec::new(),
            facts: Facts {
                setxattr_ext: agreed.setxattr_ext,
                ..Facts::default()
            },
        };
        Ok((WriteBack::by(asks), Some(handover)))
    }

    /// The descriptors, for this process.
    pub(crate) fn devices(&self) -> io::Result<Vec<OwnedFd>> {
        self.devices.iter().map(OwnedFd::try_clone).collect()
    }

    pub(crate) fn abort_by(&mut self, file: std::fs::File) -> io::Result<()> {
        self.abort = Some(file.into());
        Ok(())
    }
}

/// Has the ledger told of all that it need not keep any more, and a thread make room in it, if there is one.
pub(crate) fn keep_room(door: &Door) -> io::Result<()> {
    let Some(ledger) = door.ledger.clone() else {
        return Ok(());
    };
    door.vfs.keep_by(Arc::clone(&ledger) as _);
    let door = door.clone();
    // No flush: it is for who comes after this process, not after the power.
    let sync = move || door.run("record", Vfs::record_all).is_ok();
    let thread = thread::Builder::new().name("ledger".into());
    thread.spawn(move || ledger.serve(sync)).map(drop)
}

fn refused(dir: PathBuf, error: impl Into<io::Error>) -> MountError {
    MountError::Refused {
        path: dir,
        error: error.into(),
        remedy: "",
    }
}

/// Goes on with a mount that a daemon has left: `vfs` was just recovered, and nobody uses it. `orphans` are its inodes without a name,
/// none of which was freed.
///
/// # Errors
/// What was handed over is of another program; or the volume does not take what was written to it. Another may try again.
pub fn resume(
    vfs: Arc<Vfs>,
    live: Arc<dyn Live>,
    latencies: Arc<Latencies>,
    handover: Handover,
    orphans: Vec<Ino>,
    dir: PathBuf,
    options: &MountOptions,
) -> Result<Mount, MountError> {
    let failed = |error: io::Error| refused(dir.clone(), error);
    let facts = handover.facts;
    let volume = vfs.volume().identity().uuid;
    let ledger = Ledger::open(handover.ledger, volume).map_err(failed)?;
    vfs.adopt(&orphans);
    let mut files = reopen(&vfs, &ledger);
    let lost = Arc::<Lost>::default();
    if !options.read_only {
        let replayed = replay(&vfs, &ledger, &mut files);
        let replayed = replayed.and_then(|replayed| vfs.record_all().map(|()| replayed));
        let replayed = replayed.map_err(|error| failed(io::Error::other(error)))?;
        ledger.forget_writes();
        if !replayed.lost.is_empty() {
            error!(
                "{}: what was written to {} files is lost, of which their next fsync tells",
                dir.display(),
                replayed.lost.len()
            );
        }
        let count = replayed.lost.len() as u64;
        latencies.lost_files.store(count, Ordering::Relaxed);
        info!(
            "{}: goes on with {} open files; {} writes that were answered are done again ({} bytes)",
            dir.display(),
            files.len(),
            replayed.writes,
            replayed.bytes
        );
        lost.begin(replayed.lost, &files);
    }
    let panicked = Arc::new(AtomicBool::new(false));
    let (sender, events) = sync_channel(4);
    let door = Door {
        vfs: Arc::clone(&vfs),
        latencies,
        panicked: Arc::clone(&panicked),
        ledger: Some(Arc::clone(&ledger)),
        lost,
    };
    keep_room(&door).map_err(MountError::Thread)?;
    let adapter = Adapter::new(door, live, options, sender.clone());
    let mut adapter = adapter.map_err(MountError::Thread)?;
    adapter.reopened(&files);
    let freezer = adapter.freezer();
    let agreed = Agreed {
        rings: false,
        setxattr_ext: facts.setxattr_ext,
        resend: true,
    };
    let connected = Connected(sender.clone());
    let write_back = WriteBack::by(handover.asks);
    let mut devices = handover.devices;
    let Some(device) = devices.first().map(OwnedFd::try_clone) else {
        return Err(failed(io::Error::other("no descriptor was handed over")));
    };
    let device = device.map_err(failed)?;
    let connection = Connection::new(
        device.as_fd(),
        adapter.shared(),
        agreed,
        write_back,
        connected,
    );
    let connection = connection.map_err(failed)?;
    // Before anybody reads: what is read then, and not answered yet, would come a second time.
    transport::resend(device.as_fd()).map_err(failed)?;
    transport::serve_device(&connection, std::mem::take(&mut devices)).map_err(failed)?;
    drop(connection);
    let unopened = unopened(orphans, &files);
    free_forgotten(vfs, device, unopened).map_err(MountError::Thread)?;
    let hears = Hears {
        umount: facts.umount,
        syncfs: facts.syncfs,
    };
    let place = Place::known(dir, facts.mount);
    Ok(Mount::resumed(
        place,
        (sender, events),
        panicked,
        hears,
        ledger,
        freezer,
    ))
}

/// Opens again what was open, before anybody opens a file.
pub(crate) fn reopen(vfs: &Vfs, ledger: &Ledger) -> Vec<OpenFile> {
    let mut files = ledger.files();
    let open: Vec<_> = { files.iter() }
        .map(|file| (file.handle, file.ino, reopen_flags(file)))
        .collect();
    let gone = vfs.reopen(&open, ledger.newest_handle());
    let gone: HashSet<Ino> = gone.into_iter().collect();
    // Made and opened by a request that was not answered, whose record the device did not get: it is sent again.
    for file in files.extract_if(.., |file| gone.contains(&file.ino)) {
        debug!("{} was opened, and nobody heard of it", file.ino);
        ledger.released(file.handle);
    }
    files
}

/// Does again what was written by the daemon before, and marks in the ledger those of its open files to which something of that is lost: this
/// daemon may die before they are told.
pub(crate) fn replay(vfs: &Vfs, ledger: &Ledger, files: &mut [OpenFile]) -> VfsResult<Replayed> {
    let replayed = ledger.replay(vfs)?;
    for file in files
        .iter_mut()
        .filter(|file| replayed.lost.contains(&file.ino))
    {
        file.lost = true;
        ledger.note_lost(file.handle, true);
    }
    Ok(replayed)
}

/// Those that are not open.
fn unopened(mut orphans: Vec<Ino>, files: &[OpenFile]) -> Vec<Ino> {
    let open: HashSet<Ino> = files.iter().map(|file| file.ino).collect();
    orphans.retain(|ino| !open.contains(ino));
    orphans
}

/// Frees what has no name and is not open, unless the kernel refers to it: the daemon before may have heard that it does not any more. On a thread
/// of its own, for the kernel may be about to let go of some, and wait for answers before.
fn free_forgotten(vfs: Arc<Vfs>, device: OwnedFd, orphans: Vec<Ino>) -> io::Result<()> {
    if orphans.is_empty() {
        return Ok(());
    }
    let free = move || {
        let mut forgotten = orphans;
        forgotten.retain(|ino| !transport::knows(device.as_fd(), ino.0));
        vfs.forget_all(&forgotten);
    };
    let thread = thread::Builder::new().name("orphans".into());
    thread.spawn(free).map(drop)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use persimmon_vfs::Handle;

    use super::*;

    /// Each orphan was compared with each open file: a mount with many of both took minutes to go on.
    #[test]
    fn many_orphans_and_many_open_files_take_no_time() {
        const COUNT: u64 = 300_000;
        let open = |number: u64| OpenFile {
            handle: Handle(number),
            ino: Ino(2 * number),
            flags: 0,
            kills: 0,
            uid: 0,
            gid: 0,
            request: number,
            lost: false,
        };
        let files: Vec<OpenFile> = (0..COUNT).map(open).collect();
        let begun = Instant::now();
        let left = unopened((0..COUNT).map(Ino).collect(), &files);
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(left.len() as u64, COUNT / 2);
        assert!(left.iter().all(|ino| ino.0 % 2 == 1));
    }
}
