//! The kernel's error numbers as errors of the device.

use std::io;

use rustix::io::Errno;

use crate::{DeviceError, ZoneId};

/// What a command was to do, for its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub operation: &'static str,
    pub zone: ZoneId,
    pub block: u32,
}

/// Limits that the device may say are exceeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZoneLimits {
    pub max_open: u32,
    pub max_active: u32,
}

/// Whether the device is not there any more.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(errno(error), Some(Errno::NODEV | Errno::NXIO))
}

/// Whether one open zone less would have helped.
pub(super) fn is_too_many_open(error: &io::Error) -> bool {
    errno(error) == Some(Errno::TOOMANYREFS)
}

/// The error of a command that failed with this number.
pub(super) fn device_error(attempt: Attempt, limits: ZoneLimits, error: &io::Error) -> DeviceError {
    let zone = attempt.zone;
    match errno(error) {
        Some(Errno::NODEV | Errno::NXIO) => DeviceError::Gone,
        Some(Errno::OVERFLOW) => DeviceError::TooManyActive {
            zone,
            limit: limits.max_active,
        },
        Some(Errno::TOOMANYREFS) => DeviceError::TooManyOpen {
            zone,
            limit: limits.max_open,
        },
        _ => DeviceError::Io {
            operation: attempt.operation,
            zone,
            block: attempt.block,
            message: explain(error),
        },
    }
}

/// What the block layer means by an error number, where that is not what it says elsewhere.
pub(super) fn explain(error: &io::Error) -> String {
    let meaning = match errno(error) {
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

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_typed_errors() {
        let of = |errno: Errno| {
            let attempt = Attempt {
                operation: "write",
                zone: ZoneId(7),
                block: 3,
            };
            let limits = ZoneLimits {
                max_open: 6,
                max_active: 14,
            };
            device_error(attempt, limits, &errno.into())
        };
        assert!(matches!(of(Errno::NODEV), DeviceError::Gone));
        assert!(matches!(of(Errno::NXIO), DeviceError::Gone));
        let active = of(Errno::OVERFLOW);
        assert!(matches!(
            active,
            DeviceError::TooManyActive { limit: 14, .. }
        ));
        let open = of(Errno::TOOMANYREFS);
        assert!(matches!(open, DeviceError::TooManyOpen { limit: 6, .. }));
        for (errno, words) in [(Errno::TIMEDOUT, "timed out"), (Errno::IO, "drive")] {
            let said = of(errno).to_string();
            assert!(
                said.contains(words) && said.contains("zone 7 at block 3"),
                "{said}"
            );
        }
    }
}
