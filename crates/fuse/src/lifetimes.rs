//! Lifetimes of open files by ioctl, since `fcntl(F_SET_RW_HINT)` does not reach a FUSE filesystem.
//! The value is the kernel's for that call, in 64 bits: 0 not set, 1 none, 2 short, 3 medium, 4 long,
//! 5 extreme. It counts for what is written through this open file from then on.

use std::os::fd::AsFd;

use persimmon_vfs::Lifetime;
use rustix::io;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

use crate::protocol::{self, Errno, Fields, MALFORMED};

/// Tells the lifetime: `_IOW('P', 0x71, uint64_t)`.
pub const SET: Opcode = opcode::write::<u64>(b'P', 0x71);
/// Asks for it, or, where none was told of the open file, for the file's: `_IOR('P', 0x72, uint64_t)`.
pub const GET: Opcode = opcode::read::<u64>(b'P', 0x72);

/// Tells how long what is written through `file` will live; `None` takes that back.
///
/// # Errors
/// `EBADF`: not open for writing. `ENOTTY`: not on a mount of Persimmon.
#[allow(unsafe_code)]
pub fn set(file: impl AsFd, told: Option<Lifetime>) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as the opcode says, those of a u64.
    unsafe { ioctl(file, Setter::<SET, u64>::new(number(told))) }
}

/// What was told of `file`, or else of the file it opened.
///
/// # Errors
/// `ENOTTY`: not on a mount of Persimmon.
#[allow(unsafe_code)]
pub fn get(file: impl AsFd) -> io::Result<Option<Lifetime>> {
    // SAFETY: the kernel writes as many bytes as the opcode says, those of a u64.
    let number = unsafe { ioctl(file, Getter::<GET, u64>::new()) }?;
    Ok(Lifetime::from_number(number))
}

fn number(told: Option<Lifetime>) -> u64 {
    told.map_or(0, |told| told.number().into())
}

/// The daemon's side: what a program tells.
pub(crate) fn parse(input: &[u8]) -> Result<Option<Lifetime>, Errno> {
    match Fields(input).u64()? {
        0 => Ok(None),
        number => Lifetime::from_number(number).map(Some).ok_or(MALFORMED),
    }
}

/// What it hears.
pub(crate) fn encode(told: Option<Lifetime>) -> [u8; 8] {
    protocol::offset(number(told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_kernels() {
        // _IOW and _IOR of <asm-generic/ioctl.h>, which C programs use.
        assert_eq!(SET, 0x4008_5071);
        assert_eq!(GET, 0x8008_5072);
        assert_eq!(parse(&encode(None)), Ok(None));
        assert_eq!(parse(&protocol::offset(4)), Ok(Some(Lifetime::Long)));
        for told in Lifetime::all() {
            assert_eq!(parse(&encode(Some(told))), Ok(Some(told)));
        }
        assert_eq!(parse(&protocol::offset(6)), Err(MALFORMED));
        assert_eq!(parse(&[0; 7]), Err(MALFORMED));
    }
}
