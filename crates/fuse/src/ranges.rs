//! Modes of `fallocate` that the kernel does not pass to a FUSE filesystem, by ioctl: a range is taken out of a file
//! (`FALLOC_FL_COLLAPSE_RANGE`) or put in as a hole (`FALLOC_FL_INSERT_RANGE`). Whatever the kernel holds back of the file is written first,
//! and it forgets what it has cached of it.
//!
//! Not with `writeback_cache`: the kernel goes by its own size of a file then, whatever it is told (`fuse_change_attributes`), also after it was
//! told to forget what it knows. It would append to the old end, and read zeros up to it. Only a truncation makes it take another size, and would
//! take from the file what others append meanwhile.

use std::fs::File;
use std::io;

use persimmon_vfs::Allocate;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::protocol::{self, Errno, Fields};

/// Changes a range: `_IOW('P', 0x73, struct { uint64_t offset, length; uint32_t mode, reserved; })`. The mode is that of `fallocate`.
pub const CHANGE: Opcode = opcode::write::<Message>(b'P', 0x73);

type Message = [u8; 24];

/// Takes `length` bytes at `offset` out of a file on a mount, or puts them in.
///
/// # Errors
/// As `fallocate` has them. `ENOTTY`: not on a mount of Persimmon. `EOPNOTSUPP`: the mount has `writeback_cache`.
pub fn change(file: &File, offset: u64, length: u64, inserts: bool) -> io::Result<()> {
    let mode = if inserts {
        libc::FALLOC_FL_INSERT_RANGE
    } else {
        libc::FALLOC_FL_COLLAPSE_RANGE
    };
    file.sync_all()?;
    ask(file, offset, length, mode)?;
    // The kernel asks for the size only now, and appends to the end that it knows.
    file.metadata().map(drop)
}

#[allow(unsafe_code)]
fn ask(file: &File, offset: u64, length: u64, mode: i32) -> rustix::io::Result<()> {
    let mut message: Message = [0; 24];
    message[..8].copy_from_slice(&protocol::offset(offset));
    message[8..16].copy_from_slice(&protocol::offset(length));
    message[16..20].copy_from_slice(&protocol::flags(mode.cast_unsigned()));
    // SAFETY: the kernel reads as many bytes as the opcode says, those of the message.
    unsafe { ioctl(file, Setter::<CHANGE, Message>::new(message)) }
}

/// The daemon's side: offset, length, and what to do.
pub(crate) fn parse(input: &[u8]) -> Result<(u64, u64, Allocate), Errno> {
    let mut fields = Fields(input);
    let (offset, length) = (fields.u64()?, fields.u64()?);
    let (mode, reserved) = (fields.u32()?, fields.u32()?);
    match Allocate::from_linux(mode.cast_signed()) {
        Ok(what @ (Allocate::Collapse | Allocate::Insert)) if reserved == 0 => {
            Ok((offset, length, what))
        }
        _ => Err(protocol::MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_what_c_programs_use() {
        // _IOW of <asm-generic/ioctl.h>.
        assert_eq!(CHANGE, 0x4018_5073);
    }

    #[test]
    fn only_what_moves_is_taken() {
        let message = |mode: i32| {
            let mut message = [0; 24];
            message[8] = 1;
            message[16..20].copy_from_slice(&protocol::flags(mode.cast_unsigned()));
            message
        };
        let parsed = parse(&message(libc::FALLOC_FL_COLLAPSE_RANGE));
        assert_eq!(parsed, Ok((0, 1, Allocate::Collapse)));
        assert_eq!(parse(&message(0)), Err(protocol::MALFORMED));
        assert_eq!(parse(&[0; 23]), Err(protocol::MALFORMED));
    }
}
