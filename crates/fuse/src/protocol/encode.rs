//! Bodies of answers.

use std::time::Duration;

use bytemuck::bytes_of;
use persimmon_vfs::{Attr, Entry, FileKind, StatFs};

use super::ANSWER_HEADER_LEN;

const ATTRIBUTES_LEN: usize = 88;
/// Bytes of an inode's number, generation and attributes.
const ENTRY_LEN: usize = 40 + ATTRIBUTES_LEN;
const OPENED_LEN: usize = 16;
/// Bytes of `struct fuse_statx_out`: 32, and a `struct fuse_statx`.
const STATX_LEN: usize = 32 + 256;
const DIRENT_LEN: usize = 24;

/// How long the kernel may remember names and attributes: nobody but the daemon changes the
/// volume, and it does so at the kernel's word.
const REMEMBER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Bytes of a known length, filled with one number after the other; the rest stays zero.
struct Filled<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Filled<N> {
    fn new() -> Filled<N> {
        Filled {
            bytes: [0; N],
            len: 0,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Filled<N> {
        // Lengths are known when this is compiled; the tests would find one that is wrong.
        if let Some(to) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            to.copy_from_slice(bytes);
        }
        self.len += bytes.len();
        self
    }

    fn u32(&mut self, number: u32) -> &mut Filled<N> {
        self.bytes(bytes_of(&number))
    }

    fn u64(&mut self, number: u64) -> &mut Filled<N> {
        self.bytes(bytes_of(&number))
    }
}

fn plain(attr: &Attr) -> [u8; ATTRIBUTES_LEN] {
    let mut filled = Filled::new();
    filled.u64(attr.ino.0).u64(attr.size).u64(attr.blocks);
    let times = [attr.atime, attr.mtime, attr.ctime];
    for time in times {
        filled.bytes(bytes_of(&time.seconds));
    }
    for time in times {
        filled.u32(time.nanoseconds);
    }
    filled.u32(attr.mode).u32(attr.nlink);
    filled.u32(attr.uid).u32(attr.gid).u32(attr.rdev);
    filled.u32(attr.blksize);
    filled.bytes
}

/// Seconds that the kernel may remember attributes for: none where it would not hear that they change.
fn remembered(attr: &Attr) -> u64 {
    if attr.is_staged {
        0
    } else {
        REMEMBER.as_secs()
    }
}

/// The attributes of an inode.
pub fn attributes(attr: &Attr) -> [u8; 16 + ATTRIBUTES_LEN] {
    let mut filled = Filled::new();
    filled.u64(remembered(attr)).u64(0).bytes(&plain(attr));
    filled.bytes
}

/// The attributes of an inode with the time of its birth (`struct fuse_statx_out`).
pub fn statx(attr: &Attr) -> [u8; STATX_LEN] {
    /// STATX_BASIC_STATS and STATX_BTIME.
    const KNOWN: u32 = 0x7ff | 0x800;
    /// STATX_ATTR_COMPRESSED, IMMUTABLE, APPEND and NODUMP, which have the numbers of the flags. Linux 6.18 does not pass them on.
    const ATTRIBUTES: u32 = 0x4 | 0x10 | 0x20 | 0x40;
    let flags = attr.flags.to_linux() & ATTRIBUTES;
    let mut filled = Filled::new();
    filled.u64(remembered(attr)).u32(0).u32(0).u64(0).u64(0);
    filled.u32(KNOWN).u32(attr.blksize).u64(u64::from(flags));
    filled.u32(attr.nlink).u32(attr.uid).u32(attr.gid);
    // The mode has 16 bits, and as many are spare.
    filled.bytes(bytes_of(&(attr.mode as u16))).bytes(&[0; 2]);
    filled
        .u64(attr.ino.0)
        .u64(attr.size)
        .u64(attr.blocks)
        .u64(u64::from(ATTRIBUTES));
    for time in [attr.atime, attr.btime, attr.ctime, attr.mtime] {
        filled.bytes(bytes_of(&time.seconds));
        filled.u32(time.nanoseconds).u32(0);
    }
    // As the kernel's new_decode_dev takes a number apart.
    let rdev = attr.rdev;
    filled.u32((rdev & 0xf_ff00) >> 8);
    filled.u32(rdev & 0xff | rdev >> 12 & 0xf_ff00);
    filled.bytes
}

/// What a name leads to.
pub fn entry(attr: &Attr) -> [u8; ENTRY_LEN] {
    let mut filled = Filled::new();
    filled.u64(attr.ino.0).u64(attr.generation);
    filled.u64(REMEMBER.as_secs()).u64(remembered(attr));
    filled.u64(0).bytes(&plain(attr));
    filled.bytes
}

/// A name that does not exist: inode number 0. The kernel is to remember it, unless others than itself may make it.
pub fn negative(is_remembered: bool) -> [u8; ENTRY_LEN] {
    let seconds = if is_remembered { REMEMBER.as_secs() } else { 0 };
    let mut filled = Filled::new();
    filled.u64(0).u64(0);
    filled.u64(seconds).u64(seconds);
    filled.bytes
}

/// An open file.
pub fn opened(handle: u64, flags: u32) -> [u8; OPENED_LEN] {
    let mut filled = Filled::new();
    filled.u64(handle).u32(flags);
    filled.bytes
}

/// A file that was made and opened.
pub fn created(attr: &Attr, handle: u64, flags: u32) -> [u8; ENTRY_LEN + OPENED_LEN] {
    let mut filled = Filled::new();
    filled.bytes(&entry(attr)).bytes(&opened(handle, flags));
    filled.bytes
}

/// A length: bytes written, bytes of an attribute.
pub fn length(bytes: u32) -> [u8; 8] {
    let mut filled = Filled::new();
    filled.u32(bytes);
    filled.bytes
}

/// A number of 64 bits: an offset in a file.
pub fn offset(bytes: u64) -> [u8; 8] {
    let mut filled = Filled::new();
    filled.u64(bytes);
    filled.bytes
}

/// A number of 32 bits: the flags of an inode.
pub fn flags(flags: u32) -> [u8; 4] {
    let mut filled = Filled::new();
    filled.u32(flags);
    filled.bytes
}

/// Space and inodes.
pub fn space(space: &StatFs) -> [u8; 80] {
    let mut filled = Filled::new();
    filled.u64(space.blocks).u64(space.blocks_free);
    filled.u64(space.blocks_available);
    filled.u64(space.files).u64(space.files_free);
    filled.u32(space.block_size).u32(space.name_len_max);
    filled.u32(space.block_size);
    filled.bytes
}

/// The result of an ioctl that the daemon has done; its output follows.
pub fn ioctl_done() -> [u8; 16] {
    [0; 16]
}

/// Tells the kernel, unasked, that what it remembers of the attributes of an inode is not true any
/// more. `ENOENT` if it does not refer to it.
pub fn forget_attributes(node: u64) -> [u8; ANSWER_HEADER_LEN + 24] {
    // Before the start of the file: its content stays in the cache.
    forget(node, -1)
}

/// Has the kernel write back what is dirty of the content of an inode, as requests to this process, and forget it all.
/// Whoever sends this waits until these are answered.
pub fn write_back(node: u64) -> [u8; ANSWER_HEADER_LEN + 24] {
    forget(node, 0)
}

/// From `offset` to the end.
fn forget(node: u64, offset: i64) -> [u8; ANSWER_HEADER_LEN + 24] {
    const NOTIFY_INVAL_INODE: u32 = 2;
    let mut filled = Filled::new();
    filled.u32((ANSWER_HEADER_LEN + 24) as u32);
    filled.u32(NOTIFY_INVAL_INODE).u64(0);
    filled.u64(node).bytes(bytes_of(&offset)).u64(0);
    filled.bytes
}

/// Has the kernel forget what it remembers of a name in a directory.
pub fn forget_name(directory: u64, name: &[u8]) -> Vec<u8> {
    const NOTIFY_INVAL_ENTRY: u32 = 3;
    // Ended by a zero byte, which the length does not count.
    let len = ANSWER_HEADER_LEN + 16 + name.len() + 1;
    let mut filled = Filled::<{ ANSWER_HEADER_LEN + 16 }>::new();
    filled.u32(len as u32);
    filled.u32(NOTIFY_INVAL_ENTRY).u64(0);
    filled.u64(directory).u32(name.len() as u32).u32(0);
    [filled.bytes.as_slice(), name, &[0]].concat()
}

/// Has the kernel send again what was not answered (since Linux 6.9).
pub fn resend() -> [u8; ANSWER_HEADER_LEN] {
    const NOTIFY_RESEND: u32 = 7;
    let mut filled = Filled::new();
    filled.u32(ANSWER_HEADER_LEN as u32);
    filled.u32(NOTIFY_RESEND).u64(0);
    filled.bytes
}

/// A listing that fills up.
pub struct Entries<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Entries<'a> {
    /// An empty one.
    pub fn new(room: &'a mut [u8]) -> Entries<'a> {
        Entries { room, len: 0 }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds a name. False, and nothing was added, where there is no room.
    pub fn add(&mut self, entry: &Entry<'_>) -> bool {
        self.push(&[], entry)
    }

    /// Adds a name with what it leads to. Without that the kernel takes the name alone, and looks
    /// it up when it has to: inode number 0, which here does not mean that there is none.
    pub fn add_plus(&mut self, entry: &Entry<'_>, attr: Option<&Attr>) -> bool {
        self.push(&attr.map_or([0; ENTRY_LEN], self::entry), entry)
    }

    fn push(&mut self, inode: &[u8], entry: &Entry<'_>) -> bool {
        let mut fixed = Filled::<DIRENT_LEN>::new();
        fixed.u64(entry.ino.0).u64(entry.cookie);
        fixed.u32(entry.name.len() as u32).u32(kind(entry.kind));
        let unpadded = inode.len() + DIRENT_LEN + entry.name.len();
        let len = unpadded.next_multiple_of(8);
        let Some(room) = self.room.get_mut(self.len..self.len + len) else {
            return false;
        };
        let parts = inode.iter().chain(&fixed.bytes).chain(entry.name);
        let parts = parts.chain(std::iter::repeat_n(&0, len - unpadded));
        room.iter_mut()
            .zip(parts)
            .for_each(|(to, from)| *to = *from);
        self.len += len;
        true
    }
}

/// As in `dirent.h`.
fn kind(kind: FileKind) -> u32 {
    let kind = match kind {
        FileKind::Fifo => libc::DT_FIFO,
        FileKind::CharDevice => libc::DT_CHR,
        FileKind::Directory => libc::DT_DIR,
        FileKind::BlockDevice => libc::DT_BLK,
        FileKind::Regular => libc::DT_REG,
        FileKind::Symlink => libc::DT_LNK,
        FileKind::Socket => libc::DT_SOCK,
    };
    u32::from(kind)
}

#[cfg(test)]
mod tests {
    use persimmon_vfs::{Ino, InodeFlags, Timestamp};

    use super::*;

    fn attr() -> Attr {
        let time = |seconds| Timestamp {
            seconds,
            nanoseconds: 800_000_000,
        };
        Attr {
            ino: Ino(11),
            generation: 12,
            mode: 0o100_640,
            nlink: 13,
            uid: 14,
            gid: 15,
            rdev: 16,
            size: 17,
            blocks: 18,
            blksize: 19,
            atime: time(-2),
            mtime: time(20),
            ctime: time(21),
            btime: time(22),
            is_staged: false,
            flags: InodeFlags::default(),
        }
    }

    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        bytemuck::pod_read_unaligned(&bytes[at..at + 4])
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        bytemuck::pod_read_unaligned(&bytes[at..at + 8])
    }

    /// Offsets by `struct fuse_attr`, `fuse_attr_out`, `fuse_entry_out` and `fuse_open_out`.
    #[test]
    fn attributes_are_where_the_kernel_looks_for_them() {
        let plain = plain(&attr());
        let numbers = [0, 8, 16].map(|at| u64_at(&plain, at));
        assert_eq!(numbers, [11, 17, 18]);
        // Before 1970 the nanoseconds count forwards from the second.
        assert_eq!(u64_at(&plain, 24).cast_signed(), -2);
        assert_eq!(u64_at(&plain, 40), 21);
        assert_eq!(u32_at(&plain, 48), 800_000_000);
        let numbers = [60, 64, 68, 72, 76, 80, 84].map(|at| u32_at(&plain, at));
        assert_eq!(numbers, [0o100_640, 13, 14, 15, 16, 19, 0]);

        let staged = Attr {
            is_staged: true,
            ..attr()
        };
        assert_eq!(u64_at(&attributes(&staged), 0), 0);
        let whole = attributes(&attr());
        assert_eq!(u64_at(&whole, 0), REMEMBER.as_secs());
        assert_eq!(whole[16..], plain);

        let created = created(&attr(), 30, 31);
        assert_eq!((u64_at(&created, 0), u64_at(&created, 8)), (11, 12));
        assert_eq!(u64_at(&created, 24), REMEMBER.as_secs());
        assert_eq!(created[40..128], plain);
        assert_eq!((u64_at(&created, 128), u32_at(&created, 136)), (30, 31));
        assert_eq!(u64_at(&negative(true), 0), 0);
        assert_eq!(u64_at(&negative(true), 16), REMEMBER.as_secs());
    }

    /// Offsets by `struct fuse_statx_out` and `fuse_statx`.
    #[test]
    fn flags_are_attributes_of_statx() {
        let all = InodeFlags::from_linux(0x74).unwrap();
        for (flags, due) in [(all, 0x74), (InodeFlags::default(), 0)] {
            let statx = statx(&Attr { flags, ..attr() });
            assert_eq!(u64_at(&statx, 32 + 8), due);
            assert_eq!(u64_at(&statx, 32 + 56), 0x74);
            assert_eq!((u64_at(&statx, 32 + 32), u32_at(&statx, 32 + 16)), (11, 13));
        }
    }

    #[test]
    fn listings_are_padded_and_bounded() {
        let name = Entry {
            ino: Ino(5),
            kind: FileKind::Directory,
            cookie: 6,
            name: b"name",
        };
        let mut room = [1; 64];
        let mut entries = Entries::new(&mut room);
        assert!(entries.add(&name) && entries.add(&name));
        assert_eq!(entries.len(), 64);
        assert!(!entries.add(&name));
        let numbers = [0, 8].map(|at| u64_at(&room, at));
        assert_eq!(numbers, [5, 6]);
        let numbers = [16, 20].map(|at| u32_at(&room, at));
        assert_eq!(numbers, [4, libc::DT_DIR.into()]);
        assert_eq!(room[24..32], *b"name\0\0\0\0");

        let mut room = [1; 2 * (ENTRY_LEN + 32)];
        let mut entries = Entries::new(&mut room);
        assert!(entries.add_plus(&name, Some(&attr())));
        assert_eq!(entries.len(), ENTRY_LEN + 32);
        // Nothing is known but the name.
        assert!(entries.add_plus(&name, None));
        assert!(!entries.add_plus(&name, None));
        let (known, unknown) = room.split_at(ENTRY_LEN + 32);
        assert_eq!((u64_at(known, 0), u64_at(known, ENTRY_LEN)), (11, 5));
        assert_eq!(unknown[..ENTRY_LEN], [0; ENTRY_LEN]);
        assert_eq!(unknown[ENTRY_LEN..], known[ENTRY_LEN..]);
    }
}
