//! The flags of `chattr` and `lsattr`. Linux sends them to a FUSE filesystem as the ioctls that programs use, in 32 bits, after it has opened
//! the file or directory itself. Before it sets flags it asks for `struct fsxattr`, so that must be answered, although there is nothing in
//! it.

use persimmon_vfs::InodeFlags;
use rustix::ioctl::{Opcode, opcode};

use crate::protocol::{self, Errno, Fields};

/// `FS_IOC_GETFLAGS`.
pub(crate) const GET: Opcode = opcode::read::<libc::c_long>(b'f', 1);
/// `FS_IOC_SETFLAGS`.
pub(crate) const SET: Opcode = opcode::write::<libc::c_long>(b'f', 2);
/// `FS_IOC_FSGETXATTR`.
pub(crate) const GET_EXTENDED: Opcode = opcode::read::<Extended>(b'X', 31);
/// `FS_IOC_FSSETXATTR`.
pub(crate) const SET_EXTENDED: Opcode = opcode::write::<Extended>(b'X', 32);

/// `struct fsxattr`: other flags, hints for extents, and a project, of which nothing is offered here.
pub(crate) type Extended = [u8; 28];

/// What an inode has of it.
pub(crate) const NOTHING_EXTENDED: Extended = [0; 28];

/// All the flags that are to be set, for [`InodeFlags::from_linux`].
pub(crate) fn parse(input: &[u8]) -> Result<u32, Errno> {
    Fields(input).u32()
}

pub(crate) fn encode(flags: InodeFlags) -> [u8; 4] {
    protocol::flags(flags.to_linux())
}

/// Whether a `struct fsxattr` that is to be set is the one that an inode has.
pub(crate) fn is_nothing(input: &[u8]) -> bool {
    input == NOTHING_EXTENDED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MALFORMED;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn commands_are_the_kernels() {
        // <linux/fs.h>.
        assert_eq!(GET, 0x8008_6601);
        assert_eq!(SET, 0x4008_6602);
        assert_eq!(GET_EXTENDED, 0x801c_581f);
        assert_eq!(SET_EXTENDED, 0x401c_5820);
    }

    #[test]
    fn flags_come_back() {
        for bits in [0u32, 0x4, 0x400, 0x404] {
            let sent = protocol::flags(bits);
            assert_eq!(parse(&sent), Ok(bits));
            assert_eq!(encode(InodeFlags::from_linux(bits).unwrap()), sent);
        }
        assert_eq!(parse(&[0; 3]), Err(MALFORMED));
    }
}
