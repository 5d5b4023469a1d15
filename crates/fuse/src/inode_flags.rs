//! The flags of `chattr` and `lsattr`. Linux sends them to a FUSE filesystem as the ioctls that programs use, in 32 bits, after it has opened
//! the file or directory itself. Before it sets flags it asks for `struct fsxattr`, in which there is the project that `chattr -p` and
//! `lsattr -p` are about, and the flags that both ways have.

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

/// `FS_XFLAG_IMMUTABLE`, `FS_XFLAG_APPEND` and `FS_XFLAG_NODUMP`.
const IMMUTABLE: u32 = 0x8;
const APPEND: u32 = 0x10;
const NO_DUMP: u32 = 0x80;

/// The flags of an inode as `struct fsxattr` has them.
pub(crate) fn extended_flags(flags: InodeFlags) -> u32 {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    flag(flags.inherits_project, INHERITS)
        | flag(flags.immutable, IMMUTABLE)
        | flag(flags.append_only, APPEND)
        | flag(flags.no_dump, NO_DUMP)
}

/// What an inode has of it.
pub(crate) fn extended(project: u32, flags: u32) -> Extended {
    let mut extended = [0; 28];
    let fields = [flags, 0, 0, project];
    for (field, place) in fields.iter().zip(extended.chunks_exact_mut(4)) {
        place.copy_from_slice(&protocol::flags(*field));
    }
    extended
}

/// The project that an inode is to have, and what is to be done with its flags: those of them that are there are set, the others are not.
pub(crate) fn parse_extended(input: &[u8]) -> Result<(u32, u32), Errno> {
    let mut fields = Fields(input);
    let (flags, hint, _) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (project, other_hint) = (fields.u32()?, fields.u32()?);
    match (
        flags & !(INHERITS | IMMUTABLE | APPEND | NO_DUMP),
        hint,
        other_hint,
    ) {
        (0, 0, 0) => Ok((project, flags)),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

/// The flags of an inode that is to have these of `struct fsxattr`. Whether its project is passed on is as it is.
pub(crate) fn with_extended(flags: InodeFlags, told: u32) -> InodeFlags {
    InodeFlags {
        immutable: told & IMMUTABLE != 0,
        append_only: told & APPEND != 0,
        no_dump: told & NO_DUMP != 0,
        ..flags
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
    fn a_project_and_flags_come_back_and_nothing_else_is_taken() {
        let all = InodeFlags {
            append_only: true,
            immutable: true,
            no_dump: true,
            inherits_project: true,
            ..InodeFlags::default()
        };
        // <linux/fs.h>.
        assert_eq!(extended_flags(all), 0x298);
        assert_eq!(extended_flags(InodeFlags::default()), 0);
        for flags in [0, INHERITS, extended_flags(all)] {
            for project in [0, 7, u32::MAX] {
                assert_eq!(
                    parse_extended(&extended(project, flags)),
                    Ok((project, flags))
                );
            }
        }
        let none = InodeFlags {
            inherits_project: true,
            ..InodeFlags::default()
        };
        assert_eq!(with_extended(none, 0x298), all);
        assert_eq!(with_extended(all, INHERITS), none);
        let mut other = extended(7, INHERITS);
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
