//! The flags of `chattr` and `lsattr`. Linux sends them to a FUSE filesystem as the ioctls that programs use, in 32 bits, after it has opened
//! the file or directory itself. Before it sets flags it asks for `struct fsxattr`, in which there is the project that `chattr -p` and
//! `lsattr -p` are about, and nothing else.

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

/// `struct fsxattr`: flags (u32), a hint for extents (u32), extents (u32), project (u32), another hint (u32), 8 bytes of padding.
pub(crate) type Extended = [u8; 28];

/// `FS_XFLAG_PROJINHERIT`: what is made in the directory has its project. Here it always has.
const INHERITS: u32 = 0x200;

/// What an inode has of it.
pub(crate) fn extended(project: u32, is_directory: bool) -> Extended {
    let inherits = is_directory && project != 0;
    let mut extended = [0; 28];
    let fields = [if inherits { INHERITS } else { 0 }, 0, 0, project];
    for (field, place) in fields.iter().zip(extended.chunks_exact_mut(4)) {
        place.copy_from_slice(&protocol::flags(*field));
    }
    extended
}

/// The project that an inode is to have. Anything else that is not as it is, is refused.
pub(crate) fn parse_extended(input: &[u8]) -> Result<u32, Errno> {
    let mut fields = Fields(input);
    let (flags, hint, _) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (project, other_hint) = (fields.u32()?, fields.u32()?);
    match (flags & !INHERITS, hint, other_hint) {
        (0, 0, 0) => Ok(project),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

/// All the flags that are to be set, for [`InodeFlags::from_linux`].
pub(crate) fn parse(input: &[u8]) -> Result<u32, Errno> {
    Fields(input).u32()
}

pub(crate) fn encode(flags: InodeFlags) -> [u8; 4] {
    protocol::flags(flags.to_linux())
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
    fn a_project_comes_back_and_nothing_else_is_taken() {
        for project in [0, 7, u32::MAX] {
            assert_eq!(parse_extended(&extended(project, true)), Ok(project));
        }
        assert_eq!(extended(0, true), [0; 28]);
        assert_eq!(extended(7, false)[..4], [0; 4]);
        let mut other = extended(7, true);
        other[0] = 1;
        assert_eq!(parse_extended(&other), Err(Errno(libc::EOPNOTSUPP)));
        assert_eq!(parse_extended(&[0; 8]), Err(MALFORMED));
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
