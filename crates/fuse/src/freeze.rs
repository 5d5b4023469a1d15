//! Freezing a mount, by ioctl: Linux passes `FIFREEZE` to no FUSE filesystem. Root and the user who runs the daemon may do that.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::io;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::protocol::{self, Errno, Fields};

/// `_IOWR('P', 0x74, struct { uint64_t what, number, milliseconds; })`: what is to be done, and what became of it.
pub(crate) const FREEZE: Opcode = opcode::read_write::<Message>(b'P', 0x74);

type Message = [u64; 3];

/// The longest that a freeze lasts without being prolonged.
pub const SECONDS_MAX: u64 = 3600;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// For so long, unless it is prolonged.
    Freeze(Duration),
    /// The freeze with this number lasts so long from now on.
    Prolong(u64, Duration),
    /// The freeze with this number, or any (0), ends.
    Thaw(u64),
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is frozen: the number of the freeze.
    Frozen(u64),
    /// It was frozen until now, for so long.
    Thawed(Duration),
    /// It is not frozen, or by another freeze.
    NotFrozen(Ended),
}

/// Why the last freeze has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// There was none, or somebody ended it.
    #[default]
    Asked,
    /// Its time was over.
    Time,
    /// More changes waited than the daemon can hold.
    Crowded,
}

impl Ended {
    const ALL: [Ended; 3] = [Ended::Asked, Ended::Time, Ended::Crowded];

    /// In words.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Ended::Asked => "it is not frozen",
            Ended::Time => "the freeze has ended, because its time was over",
            Ended::Crowded => "the freeze has ended, because too many changes waited",
        }
    }
}

/// Freezes the mount that `dir` is on. Returns once it is frozen.
///
/// # Errors
/// `EBUSY`: it is frozen, or does not come to rest. `ENOTTY`: no mount of Persimmon, or one of a daemon that is too old.
pub fn freeze(dir: &Path, time: Duration) -> std::io::Result<Answer> {
    ask(dir, [1, 0, milliseconds(time)])
}

/// Has the freeze with this number last so long from now on.
///
/// # Errors
/// See [`freeze`].
pub fn prolong(dir: &Path, number: u64, time: Duration) -> std::io::Result<Answer> {
    ask(dir, [2, number, milliseconds(time)])
}

/// Ends the freeze with this number, or any where it is 0.
///
/// # Errors
/// See [`freeze`].
pub fn thaw(dir: &Path, number: u64) -> std::io::Result<Answer> {
    ask(dir, [3, number, 0])
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[allow(unsafe_code)]
fn ask(dir: &Path, message: Message) -> std::io::Result<Answer> {
    let file = File::open(dir)?;
    let mut message = message;
    // SAFETY: the kernel reads and writes as many bytes as the opcode says, those of the message.
    unsafe { ioctl(&file, Updater::<FREEZE, Message>::new(&mut message)) }?;
    answered(message).ok_or(io::Errno::PROTO.into())
}

fn answered([what, number, milliseconds]: Message) -> Option<Answer> {
    match what {
        1 => Some(Answer::Frozen(number)),
        2 => Some(Answer::Thawed(Duration::from_millis(milliseconds))),
        3 => {
            let ended = Ended::ALL.get(usize::try_from(number).ok()?)?;
            Some(Answer::NotFrozen(*ended))
        }
        _ => None,
    }
}

/// The daemon's side: what is asked for.
pub(crate) fn parse(input: &[u8]) -> Result<Asked, Errno> {
    let mut fields = Fields(input);
    let (what, number, time) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let time = Duration::from_millis(time.min(SECONDS_MAX * 1000));
    match what {
        1 if !time.is_zero() => Ok(Asked::Freeze(time)),
        2 => Ok(Asked::Prolong(number, time)),
        3 => Ok(Asked::Thaw(number)),
        _ => Err(protocol::MALFORMED),
    }
}

/// And the answer.
pub(crate) fn encode(answer: Answer) -> Vec<u8> {
    let message = match answer {
        Answer::Frozen(number) => [1, number, 0],
        Answer::Thawed(time) => [2, 0, milliseconds(time)],
        Answer::NotFrozen(ended) => {
            let place = Ended::ALL.iter().position(|of| *of == ended);
            [3, place.unwrap_or(0) as u64, 0]
        }
    };
    message.into_iter().flat_map(protocol::offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8]) -> Message {
        let mut fields = Fields(bytes);
        [0; 3].map(|_: u64| fields.u64().unwrap())
    }

    #[test]
    fn messages_come_through_and_others_do_not() {
        let second = Duration::from_secs(1);
        for answer in [
            Answer::Frozen(7),
            Answer::Thawed(second),
            Answer::NotFrozen(Ended::Asked),
            Answer::NotFrozen(Ended::Time),
            Answer::NotFrozen(Ended::Crowded),
        ] {
            assert_eq!(answered(words(&encode(answer))), Some(answer));
        }
        assert_eq!(answered([3, 3, 0]), None);
        let sent = |message: Message| {
            let bytes: Vec<u8> = message.into_iter().flat_map(protocol::offset).collect();
            parse(&bytes)
        };
        assert_eq!(sent([1, 0, 1000]), Ok(Asked::Freeze(second)));
        assert_eq!(sent([2, 7, 1000]), Ok(Asked::Prolong(7, second)));
        assert_eq!(sent([3, 7, 0]), Ok(Asked::Thaw(7)));
        let most = Duration::from_secs(SECONDS_MAX);
        assert_eq!(sent([1, 0, u64::MAX]), Ok(Asked::Freeze(most)));
        for wrong in [[0, 0, 1], [1, 0, 0], [4, 0, 0]] {
            assert_eq!(sent(wrong), Err(protocol::MALFORMED));
        }
    }
}
