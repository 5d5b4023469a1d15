//! Commands to the daemon of a live mount: an ioctl on any directory of it, which root and the
//! user who runs the daemon may use. This is the transport, versioned; what is asked and answered
//! is JSON that the kernel and this crate do not look into.
//!
//! A message has [`MESSAGE_BYTES`] bytes, in both directions: version 0..2 (u16), status 2..4
//! (u16; 0 in requests and where all went well, 1 where the text is an error), length of the text
//! 4..8 (u32), text, all little endian. A daemon that does not know the version, or the request,
//! says so in an answer of status 1.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno as SystemErrno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::live::{Answered, Asked, Live};
use crate::protocol::Errno;

/// Bytes of a message; the size field of an ioctl has 14 bits.
pub const MESSAGE_BYTES: usize = 12 << 10;
/// Version of the messages.
pub const VERSION: u16 = 1;
const HEADER_BYTES: usize = 8;
/// Longest text.
pub const TEXT_BYTES_MAX: usize = MESSAGE_BYTES - HEADER_BYTES;
pub(crate) const COMMAND: Opcode = opcode::read_write::<[u8; MESSAGE_BYTES]>(b'P', 0x70);

const DONE: u16 = 0;
const REFUSED: u16 = 1;

/// Why a command got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No mount of Persimmon, or one of a program that is too old.
    #[error("no daemon answers there")]
    NotMounted,
    /// Only root and the user who runs the daemon may.
    #[error("only root and the user who mounted it may do that")]
    NotPermitted,
    /// The daemon says why not.
    #[error("{0}")]
    Refused(String),
    /// The question does not fit, or the answer makes no sense.
    #[error("the daemon speaks another version")]
    Protocol,
    /// The system said no.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn message(status: u16, text: &[u8]) -> Option<Vec<u8>> {
    let mut message = Vec::with_capacity(MESSAGE_BYTES);
    message.extend_from_slice(&VERSION.to_le_bytes());
    message.extend_from_slice(&status.to_le_bytes());
    message.extend_from_slice(&u32::try_from(text.len()).ok()?.to_le_bytes());
    message.extend_from_slice(text);
    (message.len() <= MESSAGE_BYTES).then_some(message)
}

/// Status and text.
fn parse(message: &[u8]) -> Option<(u16, &[u8])> {
    let (header, text) = message.split_first_chunk::<HEADER_BYTES>()?;
    let [v0, v1, s0, s1, length @ ..] = *header;
    let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
    (u16::from_le_bytes([v0, v1]) == VERSION)
        .then(|| Some((u16::from_le_bytes([s0, s1]), text.get(..length)?)))?
}

/// Asks the daemon behind `dir`. Blocks until it has answered.
///
/// # Errors
/// See [`ControlError`].
#[allow(unsafe_code)]
pub fn call(dir: &Path, text: &[u8]) -> Result<Vec<u8>, ControlError> {
    let directory = File::open(dir)?;
    let request = message(DONE, text).ok_or(ControlError::Protocol)?;
    let mut buffer = Box::new([0u8; MESSAGE_BYTES]);
    let (head, _) = buffer.split_at_mut(request.len());
    head.copy_from_slice(&request);
    // SAFETY: the opcode's size is that of the buffer, from which the kernel reads and into which it
    // writes no more than that; other filesystems refuse a command they do not know.
    let result = unsafe { ioctl(&directory, Updater::<COMMAND, _>::new(&mut *buffer)) };
    result.map_err(|error| match error {
        SystemErrno::NOTTY | SystemErrno::INVAL | SystemErrno::NOSYS | SystemErrno::OPNOTSUPP => {
            ControlError::NotMounted
        }
        SystemErrno::PERM | SystemErrno::ACCESS => ControlError::NotPermitted,
        error => ControlError::System(error.into()),
    })?;
    match parse(buffer.as_slice()) {
        Some((DONE, text)) => Ok(text.to_vec()),
        Some((_, text)) => {
            let text = String::from_utf8(text.to_vec());
            Err(text.map_or(ControlError::Protocol, ControlError::Refused))
        }
        None => Err(ControlError::Protocol),
    }
}

/// Whether the user `uid` may give commands.
pub(crate) fn may(uid: u32) -> Result<(), Errno> {
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(Errno(libc::EPERM));
    }
    Ok(())
}

/// Whether anybody may send this message.
pub(crate) fn is_for_anybody(live: &dyn Live, input: &[u8]) -> bool {
    matches!(parse(input), Some((DONE, text)) if live.is_for_anybody(text))
}

/// The daemon's side: the answer to a message, with what else came of it.
pub(crate) fn answer(live: &dyn Live, input: &[u8], asked: Asked) -> Answered {
    let result = match parse(input) {
        Some((DONE, text)) => live.control(text, asked),
        _ => Err(format!("this daemon speaks version {VERSION}")),
    };
    let (status, answered) = match result {
        Ok(answered) => (DONE, answered),
        Err(error) => (REFUSED, Answered::from(error.into_bytes())),
    };
    let text = message(status, &answered.text);
    let text = text.or_else(|| message(REFUSED, b"the answer is too long"));
    Answered {
        text: text.unwrap_or_default(),
        ..answered
    }
}

#[cfg(test)]
mod tests {
    use super::{DONE, MESSAGE_BYTES, REFUSED, TEXT_BYTES_MAX, message, parse};

    #[test]
    fn messages_come_through_and_others_do_not() {
        let sent = message(REFUSED, b"why").unwrap();
        assert_eq!(parse(&sent), Some((REFUSED, &b"why"[..])));
        let longest = message(DONE, &[7; TEXT_BYTES_MAX]).unwrap();
        assert_eq!(longest.len(), MESSAGE_BYTES);
        assert_eq!(message(DONE, &[7; TEXT_BYTES_MAX + 1]), None);
        assert_eq!(parse(&sent[..10]), None);
        assert_eq!(parse(&[9; 20]), None);
        assert_eq!(parse(b"short"), None);
    }
}
