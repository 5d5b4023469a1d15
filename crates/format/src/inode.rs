//! Inodes.

use crate::codec::{Put, Reader};
use crate::{Compression, Ino, Lifetime, Result};

/// The root directory's inode number.
pub const ROOT: Ino = Ino(1);
/// The store of shared blocks: it has extents as a file has, and no inode. Each of its blocks is one that files have by an extent
/// that names it.
pub const SHARED: Ino = Ino(2);
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

    /// The change time of what had this one and changes `now`: it always grows, whatever clocks do, since who watches
    /// changes by it (NFS) must not miss one.
    #[must_use]
    pub fn next(self, now: Timestamp) -> Timestamp {
        let later = match self.nanoseconds {
            ..999_999_999 => Timestamp {
                seconds: self.seconds,
                nanoseconds: self.nanoseconds + 1,
            },
            _ => Timestamp {
                seconds: self.seconds.saturating_add(1),
                nanoseconds: 0,
            },
        };
        later.max(now)
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_i64(self.seconds);
        out.put_u32(self.nanoseconds);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Timestamp> {
        let seconds = r.i64()?;
        Timestamp::with_seconds(seconds, r)
    }

    /// As in a redo record: seconds (varint, sign in the lowest bit), nanoseconds (u32).
    pub(crate) fn put_short(self, out: &mut Vec<u8>) {
        out.put_varint((self.seconds << 1 ^ self.seconds >> 63) as u64);
        out.put_u32(self.nanoseconds);
    }

    pub(crate) fn read_short(r: &mut Reader<'_>) -> Result<Timestamp> {
        let seconds = r.varint()?;
        let seconds = (seconds >> 1) as i64 ^ -((seconds & 1) as i64);
        Timestamp::with_seconds(seconds, r)
    }

    fn with_seconds(seconds: i64, r: &mut Reader<'_>) -> Result<Timestamp> {
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

/// An inode. Stored in [`Inode::LEN`] bytes in the order of the fields; the project follows if there is one.
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
    /// Hints: [`FLAG_XATTRS`], [`FLAG_PREALLOCATED`], [`FLAG_DELTAS`]; and what users set: [`FLAG_APPEND_ONLY`], [`FLAG_IMMUTABLE`],
    /// [`FLAG_NO_DUMP`]. Other bits are 0.
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
    /// Write lifetime hint, see [`crate::Lifetime::stored`].
    pub lifetime: u8,
    /// How what is written to it is compressed, or to what is made in it; see [`crate::Compression::stored`].
    pub compression: u8,
    /// Bytes of the names of its extended attributes, each with the zero byte that ends it in a list. So setting one need
    /// not look at all others to keep them within [`crate::name::XATTR_NAMES_MAX`].
    pub xattr_names: u32,
    /// Project whose space it takes; 0 is none. What is made in a directory has that of the directory.
    pub project: u32,
}

const _: () = assert!(Inode::LEN == 104);

/// Set once the inode got an extended attribute, and left set: without it nobody needs to look for
/// one (access control lists at every create, file capabilities at every write).
pub const FLAG_XATTRS: u32 = 1;

/// Set once space was set aside for blocks of the file, and left set: what is written to them takes whole blocks, so that the
/// space stays theirs.
pub const FLAG_PREALLOCATED: u32 = 2;

/// Set once a block of the file was written as a delta, and left set: without it nobody needs to look for deltas.
pub const FLAG_DELTAS: u32 = 4;

/// A user set it (`chattr +a`): a file is written at its end alone, a directory loses no names.
pub const FLAG_APPEND_ONLY: u32 = 8;

/// A user set it (`chattr +i`): nothing of it changes.
pub const FLAG_IMMUTABLE: u32 = 16;

/// A user set it (`chattr +d`): backups are to leave it out. Nothing here heeds it.
pub const FLAG_NO_DUMP: u32 = 32;

/// Those that users set.
pub const FLAGS_OF_USERS: u32 = FLAG_APPEND_ONLY | FLAG_IMMUTABLE | FLAG_NO_DUMP;

/// Bit of the mask of an inode in a record.
const COMPRESSION_TOLD: u8 = 8;
/// Another one.
const PROJECT_TOLD: u8 = 16;

/// Largest size, bytes: what an `off_t` holds.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// The bits of `st_mode` that hold the file type.
pub const TYPE_MASK: u32 = 0o170_000;

impl Inode {
    /// Bytes of an encoded inode without a project.
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

    /// The lifetime hint of its content, if there is one.
    #[must_use]
    pub fn lifetime_hint(&self) -> Option<Lifetime> {
        Lifetime::from_stored(self.lifetime)
    }

    /// How it is to be compressed, if that was told.
    #[must_use]
    pub fn compression(&self) -> Option<Compression> {
        Compression::from_stored(self.compression)
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
        out.put(&[self.lifetime, self.compression, 0, 0]);
        out.put_u32(self.xattr_names);
        if self.project != 0 {
            out.put_u32(self.project);
        }
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Inode> {
        let mut r = Reader::new(bytes, "inode");
        let mut inode = Inode {
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
            compression: r.u8()?,
            xattr_names: 0,
            project: 0,
        };
        if inode.size > SIZE_MAX {
            return Err(r.bad("size", inode.size));
        }
        r.bytes(2)?;
        inode.xattr_names = r.u32()?;
        if !r.is_empty() {
            inode.project = r.u32()?;
            if inode.project == 0 {
                return Err(r.bad("project", 0));
            }
        }
        r.end()?;
        Ok(inode)
    }

    /// Appends it as in a redo record, where most fields are small or repeat each other: mode, uid,
    /// gid, nlink, size, sectors, rdev, flags, parent, lifetime, xattr_names (varints), mask (u8: 1, 2, 4 set
    /// where mtime, ctime, btime equal the time before them, 8 where a compression was told, 16 where there is a project), compression (u8), if told, project (varint), if there is one, atime, and of the others those that
    /// do not (seconds as varint with the sign in the lowest bit, nanoseconds as u32).
    pub(crate) fn put_short(&self, out: &mut Vec<u8>) {
        for field in [
            self.mode.into(),
            self.uid.into(),
            self.gid.into(),
            self.nlink.into(),
            self.size,
            self.sectors,
            self.rdev.into(),
            self.flags.into(),
            self.parent.0,
            self.lifetime.into(),
            self.xattr_names.into(),
        ] {
            out.put_varint(field);
        }
        let times = [self.atime, self.mtime, self.ctime, self.btime];
        let mask: u8 = times
            .windows(2)
            .enumerate()
            .map(|(at, pair)| u8::from(pair[0] == pair[1]) << at)
            .sum();
        let told = |is_told: bool, bit: u8| if is_told { bit } else { 0 };
        out.put_u8(
            mask | told(self.compression != 0, COMPRESSION_TOLD)
                | told(self.project != 0, PROJECT_TOLD),
        );
        if self.compression != 0 {
            out.put_u8(self.compression);
        }
        if self.project != 0 {
            out.put_varint(self.project.into());
        }
        self.atime.put_short(out);
        for pair in times.windows(2).filter(|pair| pair[0] != pair[1]) {
            pair[1].put_short(out);
        }
    }

    pub(crate) fn read_short(r: &mut Reader<'_>) -> Result<Inode> {
        let mut inode = Inode {
            mode: r.varint_u32("mode")?,
            uid: r.varint_u32("uid")?,
            gid: r.varint_u32("gid")?,
            nlink: r.varint_u32("nlink")?,
            size: r.varint()?,
            sectors: r.varint()?,
            rdev: r.varint_u32("rdev")?,
            flags: r.varint_u32("flags")?,
            parent: Ino(r.varint()?),
            ..Inode::default()
        };
        if inode.size > SIZE_MAX {
            return Err(r.bad("size", inode.size));
        }
        let lifetime = r.varint()?;
        inode.lifetime = u8::try_from(lifetime).map_err(|_| r.bad("lifetime", lifetime))?;
        inode.xattr_names = r.varint_u32("xattr_names")?;
        let mask = r.u8()?;
        if mask >= 2 * PROJECT_TOLD {
            return Err(r.bad("mask", mask.into()));
        }
        if mask & COMPRESSION_TOLD != 0 {
            inode.compression = r.u8()?;
            if inode.compression == 0 {
                return Err(r.bad("compression", 0));
            }
        }
        if mask & PROJECT_TOLD != 0 {
            inode.project = r.varint_u32("project")?;
            if inode.project == 0 {
                return Err(r.bad("project", 0));
            }
        }
        inode.atime = Timestamp::read_short(r)?;
        let mut before = inode.atime;
        let times = [&mut inode.mtime, &mut inode.ctime, &mut inode.btime];
        for (at, time) in times.into_iter().enumerate() {
            if mask & 1 << at == 0 {
                before = Timestamp::read_short(r)?;
            }
            *time = before;
        }
        Ok(inode)
    }
}
