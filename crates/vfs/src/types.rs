//! Arguments and answers of the operations.

use std::sync::Arc;

use persimmon_format::inode::{Inode, TYPE_MASK, Timestamp};
use persimmon_format::{BLOCK_SIZE, Ino};

use crate::{Author, Error, Result};

/// Generation of every inode that is not in a snapshot: constant, since inode numbers are never used twice.
pub const GENERATION: u64 = 1;

/// Longest target of a symbolic link, bytes.
pub const SYMLINK_MAX: usize = 4095;
/// Names one inode can have.
pub const LINKS_MAX: u32 = i32::MAX as u32;
/// Largest size of a file, bytes.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;

/// Who asks.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process; only named in messages.
    pub pid: u32,
    /// File mode creation mask. Applied here, unless a default access control list takes its
    /// place; so the mode of a new file comes unmasked.
    pub umask: u32,
    /// Supplementary groups. `None`: not known, decisions on group membership were the door's.
    pub groups: Option<Arc<[u32]>>,
    /// Setting the access control list of a file takes setgid from it, whatever is known here of
    /// users and groups: what a door's kernel has found.
    pub loses_setgid: bool,
}

impl Caller {
    /// The superuser, with an empty mask.
    #[must_use]
    pub fn root() -> Caller {
        Caller::default()
    }

    /// Stands above permissions.
    #[must_use]
    pub fn is_privileged(&self) -> bool {
        self.uid == 0
    }

    /// Is a member of `gid`, as far as known.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid
            || self
                .groups
                .as_ref()
                .is_none_or(|groups| groups.contains(&gid))
    }
}

/// Attributes of an inode, as `stat` tells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// [`GENERATION`], but another number in each snapshot: the number of one that was deleted may be used again.
    pub generation: u64,
    /// File type and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Bytes; for a directory the number of its entries, for a link the length of its target.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred size of I/O, bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
    /// Something of it waits to be written: `blocks` will change without anything being done to it.
    pub is_staged: bool,
    /// What `chattr` sets of a file or directory.
    pub flags: InodeFlags,
}

impl Attr {
    /// From an inode.
    #[must_use]
    pub fn new(ino: Ino, inode: &Inode) -> Attr {
        Attr {
            ino,
            generation: GENERATION,
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: inode.sectors,
            blksize: BLOCK_SIZE as u32,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
            is_staged: false,
            flags: InodeFlags::of(inode),
        }
    }

    /// The same, once nothing waits to be written.
    #[must_use]
    pub fn written(self) -> Attr {
        Attr {
            is_staged: false,
            ..self
        }
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

impl FileKind {
    /// From the type bits of `st_mode`. Bits that mean nothing count as a regular file.
    #[must_use]
    pub fn from_mode(mode: u32) -> FileKind {
        match mode & TYPE_MASK {
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => FileKind::Regular,
        }
    }

    /// From the four bits a directory entry keeps.
    #[must_use]
    pub fn from_entry(file_type: u8) -> FileKind {
        FileKind::from_mode(u32::from(file_type) << 12)
    }

    /// The type bits of `st_mode`.
    #[must_use]
    pub fn mode(self) -> u32 {
        match self {
            FileKind::Regular => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
            FileKind::CharDevice => libc::S_IFCHR,
            FileKind::BlockDevice => libc::S_IFBLK,
        }
    }
}

/// A new value for a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one as it is (`UTIME_OMIT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (the type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size, bytes: truncates or extends.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time; only a kernel that caches writes sets it.
    pub ctime: Option<Timestamp>,
    /// Who changes size or owner: setuid and setgid may go.
    pub author: Author,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end. A door whose kernel computes the offset of appends (FUSE)
    /// leaves it off.
    pub append: bool,
    /// The door does that itself, where [`OpenFlags::append`] is off: an append-only file can be opened.
    pub door_appends: bool,
    /// Empty the file.
    pub truncate: bool,
    /// Every write is durable with all attributes before it returns (`O_SYNC`).
    pub sync: bool,
    /// Every write is durable before it returns (`O_DSYNC`).
    pub data_sync: bool,
    /// Every write is in the hands of the device or of the host's kernel before it returns: it outlives the death of this
    /// process, not the power.
    pub write_through: bool,
    /// Reads go to the device, past what the volume keeps of those before, and what is written is stored in whole blocks, not compressed
    /// (`O_DIRECT`).
    pub direct: bool,
    /// `O_EXCL`: create fails on an existing name; a temporary file cannot be linked.
    pub exclusive: bool,
    /// `O_NOATIME`.
    pub no_atime: bool,
    /// Who truncates at open: setuid and setgid may go.
    pub author: Author,
    /// Limits of quota count for what is written through it.
    pub is_limited: bool,
}

impl OpenFlags {
    /// From the flags of `open(2)`.
    #[must_use]
    pub fn from_linux(flags: i32) -> OpenFlags {
        let mode = flags & libc::O_ACCMODE;
        let sync = flags & libc::O_SYNC == libc::O_SYNC;
        OpenFlags {
            read: mode != libc::O_WRONLY,
            write: mode != libc::O_RDONLY,
            append: flags & libc::O_APPEND != 0,
            door_appends: false,
            truncate: flags & libc::O_TRUNC != 0,
            sync,
            data_sync: !sync && flags & libc::O_DSYNC != 0,
            write_through: false,
            direct: flags & libc::O_DIRECT != 0,
            exclusive: flags & libc::O_EXCL != 0,
            no_atime: flags & libc::O_NOATIME != 0,
            author: Author::Privileged,
            is_limited: false,
        }
    }
}

/// How one write differs from what its handle says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// Who writes: setuid and setgid may go.
    pub author: Author,
    /// Durable before it returns, whatever the handle says.
    pub data_sync: bool,
    /// The time that the file gets of it; `None`: what the clock says.
    pub time: Option<Timestamp>,
    /// Where a quota has room for a part of it only, it is refused. Else that part is written, as POSIX has it.
    pub whole: bool,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes: fewer than asked for where room ran out half way.
    pub len: usize,
    /// Offset past them.
    pub end: u64,
    /// It took setuid, setgid or capabilities from the file.
    pub privileges_went: bool,
}

/// An open file or directory. No two that were ever open have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

impl Handle {
    /// No handle: the operation goes by inode number alone.
    pub const NONE: Handle = Handle(0);
}

/// What `rename` does about an existing target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    #[default]
    Replace,
    /// Answers `EEXIST`.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

impl RenameMode {
    /// From the flags of `renameat2(2)`, and whether a whiteout is left ([`crate::Vfs::rename_leaving_whiteout`]).
    pub fn from_linux(flags: u32) -> Result<(RenameMode, bool)> {
        let leaves_whiteout = flags & libc::RENAME_WHITEOUT != 0;
        let mode = match flags & !libc::RENAME_WHITEOUT {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Error::Invalid("rename flags")),
        };
        Ok((mode, leaves_whiteout))
    }
}

/// What `fallocate` does with its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Sets space aside for what is not written.
    Reserve {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Makes a hole.
    Punch,
    /// Makes it read as zeros, with space set aside.
    Zero {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Takes it out: what is behind follows what is before.
    Collapse,
    /// Puts a hole in: what is there moves behind it.
    Insert,
}

impl Allocate {
    /// From the mode of `fallocate(2)`. Unshare is not offered: `EOPNOTSUPP`. Collapse and insert go with nothing else.
    pub fn from_linux(mode: i32) -> Result<Allocate> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Ok(Allocate::Reserve { keep_size }),
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Ok(Allocate::Punch),
            libc::FALLOC_FL_ZERO_RANGE => Ok(Allocate::Zero { keep_size }),
            libc::FALLOC_FL_COLLAPSE_RANGE if !keep_size => Ok(Allocate::Collapse),
            libc::FALLOC_FL_INSERT_RANGE if !keep_size => Ok(Allocate::Insert),
            _ => Err(Error::NotSupported),
        }
    }
}

/// Where `lseek` goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// The next data at or after the offset (`SEEK_DATA`).
    Data,
    /// The next hole at or after the offset (`SEEK_HOLE`); the end of the file is one.
    Hole,
}

/// Whether a new extended attribute may or must exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    #[default]
    Either,
    /// Must not exist (`XATTR_CREATE`).
    Create,
    /// Must exist (`XATTR_REPLACE`).
    Replace,
}

impl XattrMode {
    /// From the flags of `setxattr(2)`.
    pub fn from_linux(flags: i32) -> Result<XattrMode> {
        match flags {
            0 => Ok(XattrMode::Either),
            libc::XATTR_CREATE => Ok(XattrMode::Create),
            libc::XATTR_REPLACE => Ok(XattrMode::Replace),
            _ => Err(Error::Invalid("xattr flags")),
        }
    }
}

/// Flags of an inode, as `chattr` sets them and `lsattr` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InodeFlags {
    /// It was told a codec to compress with (`c`, `FS_COMPR_FL`).
    pub compress: bool,
    /// It was told not to be compressed (`m`, `FS_NOCOMP_FL`).
    pub no_compress: bool,
    /// What is made in the directory has its project (`P`, `FS_PROJINHERIT_FL`).
    pub inherits_project: bool,
    /// A file is written at its end alone, a directory loses no names (`a`, `FS_APPEND_FL`).
    pub append_only: bool,
    /// Nothing of it changes (`i`, `FS_IMMUTABLE_FL`).
    pub immutable: bool,
    /// Backups leave it out (`d`, `FS_NODUMP_FL`).
    pub no_dump: bool,
}

impl InodeFlags {
    const COMPRESS: u32 = 0x4;
    const NO_COMPRESS: u32 = 0x400;
    const INHERITS_PROJECT: u32 = 0x2000_0000;
    const IMMUTABLE: u32 = 0x10;
    const APPEND_ONLY: u32 = 0x20;
    const NO_DUMP: u32 = 0x40;

    /// From the flags of `FS_IOC_SETFLAGS`. No other is ever set, so that any other would be a change: `EOPNOTSUPP`.
    pub fn from_linux(flags: u32) -> Result<InodeFlags> {
        let known = InodeFlags {
            compress: flags & InodeFlags::COMPRESS != 0,
            no_compress: flags & InodeFlags::NO_COMPRESS != 0,
            inherits_project: flags & InodeFlags::INHERITS_PROJECT != 0,
            append_only: flags & InodeFlags::APPEND_ONLY != 0,
            immutable: flags & InodeFlags::IMMUTABLE != 0,
            no_dump: flags & InodeFlags::NO_DUMP != 0,
        };
        match known.to_linux() == flags {
            true => Ok(known),
            false => Err(Error::NotSupported),
        }
    }

    /// As `FS_IOC_GETFLAGS` tells them.
    #[must_use]
    pub fn to_linux(self) -> u32 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.compress, InodeFlags::COMPRESS)
            | flag(self.no_compress, InodeFlags::NO_COMPRESS)
            | flag(self.inherits_project, InodeFlags::INHERITS_PROJECT)
            | flag(self.append_only, InodeFlags::APPEND_ONLY)
            | flag(self.immutable, InodeFlags::IMMUTABLE)
            | flag(self.no_dump, InodeFlags::NO_DUMP)
    }
}

/// A directory entry as `readdir` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Inode it names.
    pub ino: Ino,
    /// Its type.
    pub kind: FileKind,
    /// Continue after it from here. Stable whatever is added and removed, over remounts too;
    /// below 2^63.
    pub cookie: u64,
    /// Its name.
    pub name: &'a [u8],
}

/// Whether a listing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The entry was taken; next.
    More,
    /// The entry did not fit and was not taken; stop.
    Full,
}

/// What `statfs` tells. Blocks are of 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks a user could fill on an empty volume.
    pub blocks: u64,
    /// Blocks free.
    pub blocks_free: u64,
    /// Blocks free to users.
    pub blocks_available: u64,
    /// Inodes there are and could still be.
    pub files: u64,
    /// Inodes that could still be.
    pub files_free: u64,
    /// Longest name, bytes.
    pub name_len_max: u32,
}
