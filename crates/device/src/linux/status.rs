//! Status codes of NVMe commands, as the base, NVM and ZNS specifications number them.

use std::fmt;

/// Status code type and status code: why a drive did not carry out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(u16);

/// Type and code of a completion's status; what is above says whether to try again.
const CODE_BITS: u16 = 0x7ff;

impl Status {
    pub const ZONE_FULL: Status = Status(0x1b9);
    pub const ZONE_READ_ONLY: Status = Status(0x1ba);
    pub const ZONE_OFFLINE: Status = Status(0x1bb);
    pub const ZONE_INVALID_WRITE: Status = Status(0x1bc);
    pub const TOO_MANY_ACTIVE: Status = Status(0x1bd);
    pub const TOO_MANY_OPEN: Status = Status(0x1be);

    /// Of the status field of a completion, without its phase.
    pub fn of_completion(field: u16) -> Status {
        Status(field & CODE_BITS)
    }

    fn meaning(self) -> &'static str {
        match self.0 {
            0x001 => "the drive does not know the command",
            0x002 => "the drive does not accept a field of the command",
            0x004 => "data transfer error",
            0x005 => "the drive lost power",
            0x006 => "internal error of the drive",
            0x007 | 0x008 => "the command was aborted",
            0x00b => "no such namespace",
            0x020 => "the namespace is write protected",
            0x080 => "past the end of the namespace",
            0x081 => "the capacity is exceeded",
            0x082 => "the namespace is not ready",
            0x083 => "reservation conflict",
            0x084 => "the namespace is being formatted",
            0x1b8 => "the command crosses the end of a zone",
            0x1b9 => "the zone is full",
            0x1ba => "the zone is read-only",
            0x1bb => "the zone is offline",
            0x1bc => "the write is not at the zone's write pointer",
            0x1bd => "too many active zones",
            0x1be => "too many open zones",
            0x1bf => "the zone cannot go from its state to that one",
            0x280 => "write fault",
            0x281 => "unrecovered read error",
            0x282..=0x284 => "the data's protection failed",
            0x286 => "access denied",
            0x287 => "the block was never written",
            0x300..=0x3ff => "the path to the drive failed",
            _ => match self.0 >> 8 {
                0x1 => "the drive refused the command",
                0x2 => "the medium failed",
                _ => "the drive failed",
            },
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (NVMe status {:#05x})", self.meaning(), self.0)
    }
}
