//! Inodes.

use crate::codec::{Put, Reader};
use crate::{Ino, Result};

/// The root directory's inode number.
pub const ROOT: Ino = Ino(1);
/// The first inode number handed out.
pub const FIRST_INO: u64 = 16;

/// Seconds and nanoseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

impl Timestamp {
    const LEN: usize = 12;

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_i64(self.seconds);
        out.put_u32(self.nanoseconds);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Timestamp> {
        let seconds = r.i64()?;
        let nanoseconds = r.u32()?;
        if nanoseconds >= 1_000_000_000 {
            return Err(r.bad("nanoseconds", nanoseconds.into()));
        }
        Ok(Timestamp {
            seconds,
            nanoseconds,
        })
    }
}

/// An inode. Stored in [`Inode::LEN`] bytes in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// `st_mode`: file type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names it has; for a directory 2 and one more for each directory in it.
    pub nlink: u32,
    /// Bytes, at most [`SIZE_MAX`]; for a directory the number of its entries.
    pub size: u64,
    /// Space it takes in units of 512 bytes, as `st_blocks`.
    pub sectors: u64,
    /// Device number of a device node, as `st_rdev`.
    pub rdev: u32,
    /// Hints: [`FLAG_XATTRS`]. Other bits are 0.
    pub flags: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Directories: the inode of `..`. Others: 0.
    pub parent: Ino,
    /// Write lifetime hint (none, short, medium, long, extreme as 0..=4).
    pub lifetime: u8,
}

const _: () = assert!(Inode::LEN == 104);

/// Set once the inode got an extended attribute, and left set: without it nobody needs to look for
/// one (access control lists at every create, file capabilities at every write).
pub const FLAG_XATTRS: u32 = 1;

/// Largest size, bytes: what an `off_t` holds.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// The bits of `st_mode` that hold the file type.
pub const TYPE_MASK: u32 = 0o170_000;

impl Inode {
    /// Bytes of an encoded inode.
    pub const LEN: usize = 4 * 4 + 2 * 8 + 2 * 4 + 4 * Timestamp::LEN + 8 + 8;

    /// File type as in [`crate::name::DirEntry::file_type`].
    #[must_use]
    pub fn file_type(&self) -> u8 {
        ((self.mode & TYPE_MASK) >> 12) as u8
    }

    /// A regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.mode & TYPE_MASK == 0o100_000
    }

    /// A directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.mode & TYPE_MASK == 0o040_000
    }

    /// A symbolic link.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.mode & TYPE_MASK == 0o120_000
    }

    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Inode::LEN);
        out.put_u32(self.mode);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_u32(self.nlink);
        out.put_u64(self.size);
        out.put_u64(self.sectors);
        out.put_u32(self.rdev);
        out.put_u32(self.flags);
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            time.put(&mut out);
        }
        out.put_u64(self.parent.0);
        out.put(&[self.lifetime, 0, 0, 0, 0, 0, 0, 0]);
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Inode> {
        let mut r = Reader::new(bytes, "inode");
        let inode = Inode {
            mode: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            nlink: r.u32()?,
            size: r.u64()?,
            sectors: r.u64()?,
            rdev: r.u32()?,
            flags: r.u32()?,
            atime: Timestamp::read(&mut r)?,
            mtime: Timestamp::read(&mut r)?,
            ctime: Timestamp::read(&mut r)?,
            btime: Timestamp::read(&mut r)?,
            parent: Ino(r.u64()?),
            lifetime: r.u8()?,
        };
        if inode.size > SIZE_MAX {
            return Err(r.bad("size", inode.size));
        }
        r.bytes(7)?;
        r.end()?;
        Ok(inode)
    }
}
