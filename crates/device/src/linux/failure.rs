//! What the kernel or the drive says is wrong, as errors of the device.

use std::fmt;
use std::io;

use rustix::io::Errno;

use super::status::Status;
use crate::{DeviceError, ZoneId, ZoneState};

/// Why something was not done.
#[derive(Debug)]
pub enum Failure {
    /// The kernel's error number.
    Os(io::Error),
    /// The drive's own word, where it reaches us.
    Nvme(Status),
}

/// What a command was to do, for its error.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub operation: &'static str,
    pub zone: ZoneId,
    pub block: u32,
}

/// What is known of the zone and the device that a command failed on.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    pub max_open: u32,
    pub max_active: u32,
    /// Where the zone's write pointer is now.
    pub write_pointer: u32,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Os(error)
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Failure {
        Failure::Os(error.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Os(error) => f.write_str(&explain(error)),
            Failure::Nvme(status) => write!(f, "{status}"),
        }
    }
}

impl Failure {
    /// Whether the device is not there any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.errno(), Some(Errno::NODEV | Errno::NXIO))
    }

    /// Whether it may be of one zone alone: neither is the device gone, nor does this process lack what it needs.
    pub fn is_of_zone(&self) -> bool {
        let is_of_process = matches!(
            self.errno(),
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR)
        );
        !self.is_gone() && !is_of_process
    }

    /// Whether it is the file that cannot be used, and another might.
    pub fn is_refused(&self) -> bool {
        matches!(self.errno(), Some(Errno::PERM | Errno::ACCESS))
    }

    /// Whether one open zone less would have helped.
    pub fn is_too_many_open(&self) -> bool {
        match self {
            Failure::Os(_) => self.errno() == Some(Errno::TOOMANYREFS),
            Failure::Nvme(status) => *status == Status::TOO_MANY_OPEN,
        }
    }

    /// Whether the kernel may have failed a command without asking the drive. Since Linux 6.10 the
    /// block layer has write pointers of its own, and asks the drive for one only after it refused a
    /// write; commands that went past it, as the back end nvme sends them, make them wrong.
    pub fn is_of_block_layer(&self) -> bool {
        self.errno() == Some(Errno::IO)
    }

    /// The error of a command that failed so.
    pub fn device_error(&self, attempt: Attempt, known: Circumstances) -> DeviceError {
        let zone = attempt.zone;
        let bad_state = |state| DeviceError::BadState {
            zone,
            state,
            operation: attempt.operation,
        };
        let too_many_active = DeviceError::TooManyActive {
            zone,
            limit: known.max_active,
        };
        let too_many_open = DeviceError::TooManyOpen {
            zone,
            limit: known.max_open,
        };
        match self {
            Failure::Os(_) => match self.errno() {
                Some(Errno::NODEV | Errno::NXIO) => return DeviceError::Gone,
                Some(Errno::OVERFLOW) => return too_many_active,
                Some(Errno::TOOMANYREFS) => return too_many_open,
                _ => {}
            },
            Failure::Nvme(status) => match *status {
                Status::TOO_MANY_ACTIVE => return too_many_active,
                Status::TOO_MANY_OPEN => return too_many_open,
                Status::ZONE_FULL => return bad_state(ZoneState::Full),
                Status::ZONE_READ_ONLY => return bad_state(ZoneState::ReadOnly),
                Status::ZONE_OFFLINE => return bad_state(ZoneState::Offline),
                Status::ZONE_INVALID_WRITE => {
                    return DeviceError::NotAtWritePointer {
                        zone,
                        block: attempt.block,
                        write_pointer: known.write_pointer,
                    };
                }
                _ => {}
            },
        }
        DeviceError::Io {
            operation: attempt.operation,
            zone,
            block: attempt.block,
            message: self.to_string(),
        }
    }

    fn errno(&self) -> Option<Errno> {
        match self {
            Failure::Os(error) => Errno::from_io_error(error),
            Failure::Nvme(_) => None,
        }
    }
}

/// What the block layer means by an error number, where that is not what it says elsewhere.
fn explain(error: &io::Error) -> String {
    let meaning = match Errno::from_io_error(error) {
        Some(Errno::TIMEDOUT) => "the command timed out",
        Some(Errno::NODATA) => "the medium failed",
        Some(Errno::ILSEQ) => "the data's protection failed",
        Some(Errno::REMOTEIO) => "the target failed",
        Some(Errno::NOLINK) => "the transport failed",
        Some(Errno::IO) => "the drive or its driver failed",
        _ => return error.to_string(),
    };
    format!("{meaning} ({error})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(failure: impl Into<Failure>) -> DeviceError {
        let attempt = Attempt {
            operation: "write",
            zone: ZoneId(7),
            block: 3,
        };
        let known = Circumstances {
            max_open: 6,
            max_active: 14,
            write_pointer: 5,
        };
        failure.into().device_error(attempt, known)
    }

    #[test]
    fn numbers_become_typed_errors() {
        assert!(matches!(error_of(Errno::NODEV), DeviceError::Gone));
        assert!(matches!(error_of(Errno::NXIO), DeviceError::Gone));
        let active = error_of(Errno::OVERFLOW);
        assert!(matches!(
            active,
            DeviceError::TooManyActive { limit: 14, .. }
        ));
        let open = error_of(Errno::TOOMANYREFS);
        assert!(matches!(open, DeviceError::TooManyOpen { limit: 6, .. }));
        for (errno, words) in [(Errno::TIMEDOUT, "timed out"), (Errno::IO, "drive")] {
            let said = error_of(errno).to_string();
            assert!(
                said.contains(words) && said.contains("zone 7 at block 3"),
                "{said}"
            );
        }
    }

    #[test]
    fn so_do_what_drives_say() {
        let of = |status| error_of(Failure::Nvme(status));
        let full = of(Status::ZONE_FULL);
        assert!(matches!(
            full,
            DeviceError::BadState {
                state: ZoneState::Full,
                ..
            }
        ));
        let elsewhere = of(Status::ZONE_INVALID_WRITE);
        assert!(matches!(
            elsewhere,
            DeviceError::NotAtWritePointer {
                block: 3,
                write_pointer: 5,
                ..
            }
        ));
        let open = of(Status::TOO_MANY_OPEN);
        assert!(matches!(open, DeviceError::TooManyOpen { limit: 6, .. }));
        let said = of(Status::of_completion(0x4281)).to_string();
        assert!(said.contains("unrecovered read error"), "{said}");
    }
}
