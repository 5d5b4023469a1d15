//! A tail: a file in memory with the end of a file of a volume.
//!
//! A header, a mark that says how much of the content counts, and the content in one piece. All numbers are little endian. Content whose
//! checksum is not the mark's counts for nothing: it is of an earlier beginning.
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | `PERSKEPT` |
//! | 8..12 | version, 4 |
//! | 12..16 | generation: how often the tail began |
//! | 16..32 | boot |
//! | 32..48 | UUID of the volume |
//! | 48..64 | device and inode of the image, or number of the device and 0 |
//! | 64..72 | inode number in the volume |
//! | 72..80 | base: offset in the file where the content begins |
//! | 80..84 | number of the opening of the volume that made it |
//! | 84..92 | LSN: records up to it are in the volume's log when the first mark of the tail is written |
//! | 92..96 | CRC-32C of all before |
//! | 96..100 | mark: bytes of content that count |
//! | 100..104 | mark: CRC-32C that goes on from that of the header over those bytes |
//! | 104.. | content |
//!
//! The file is mapped. What is appended is copied to its place at once; a flush stores the mark, eight bytes that are never seen torn.
//! Neither is a call of the kernel.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use persimmon_device::MappedFile;
use persimmon_format::{Lsn, checksum};
use persimmon_vfs::Ino;

use super::{Owner, Point};

/// Bytes that a tail may take, header and records: what a file costs in memory, and how far apart the flushes to the device are.
pub(super) const CAPACITY: usize = 1 << 20;
/// Bytes that it takes at first: most files that are flushed are small, and only logs go on.
const FIRST_CAPACITY: usize = 64 << 10;
const MAGIC: &[u8; 8] = b"PERSKEPT";
const VERSION: u32 = 4;
const HEADER_LEN: usize = 96;
const MARK_AT: usize = HEADER_LEN;
const CONTENT_AT: usize = MARK_AT + size_of::<u64>();
/// Flushes between two looks whether somebody has removed it: a look at each would cost more than the flush.
const LOOK_EVERY: u32 = 1024;

/// Where a tail begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The file.
    pub(super) ino: Ino,
    /// Offset in it.
    pub(super) base: u64,
    /// In the history of the volume.
    pub(super) point: Point,
}

/// The name of its file. Numbers of files grow, and with them the names' lengths: sorted by length first, older files come first.
fn name(start: &Start) -> String {
    format!("{:x}-{:08x}", start.ino.0, start.point.opening)
}

/// There is no room in a tail for what was appended.
#[derive(Debug)]
pub(super) struct Full;

/// A place where a tail ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    len: usize,
    checksum: u32,
}

/// A tail that grows. Its content lies in one piece behind the header; a flush says how much of it counts.
pub(super) struct Tail {
    memory: MappedFile,
    path: PathBuf,
    owner: Owner,
    start: Start,
    generation: u32,
    /// Bytes of content, and their checksum, which goes on from that of the header.
    len: usize,
    checksum: u32,
    /// Of those, the bytes that count.
    flushed: usize,
    flushes: u32,
    was_full: bool,
}

impl Tail {
    /// Makes that of a file, all of which up to `base` is in the hands of the device.
    pub(super) fn create(dir: &Path, owner: &Owner, start: &Start) -> io::Result<Tail> {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Another user may have made it. Once it is ours, nobody else can: what is above it is sticky.
        if !is_private(dir, rustix::process::geteuid().as_raw())? {
            return Err(io::Error::other(format!(
                "{} is somebody else's",
                dir.display()
            )));
        }
        let path = dir.join(name(start));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        match Self::begin(file, &path, owner, start) {
            Ok(tail) => Ok(tail),
            Err(error) => {
                // Empty, it holds nothing that an opening could bring in.
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn begin(file: File, path: &Path, owner: &Owner, start: &Start) -> io::Result<Tail> {
        let mut tail = Tail {
            memory: MappedFile::new(file, FIRST_CAPACITY)?,
            path: path.to_owned(),
            owner: *owner,
            start: *start,
            generation: 0,
            len: 0,
            checksum: 0,
            flushed: 0,
            flushes: 0,
            was_full: false,
        };
        tail.begin_anew(start.base, start.point)?;
        Ok(tail)
    }

    /// Begins again at `base`: what it held is in the hands of the device. Killed in between, a torn header holds nothing.
    pub(super) fn begin_anew(&mut self, base: u64, point: Point) -> io::Result<()> {
        if std::mem::take(&mut self.was_full) && self.memory.len() < CAPACITY {
            self.memory.grow(CAPACITY)?;
        }
        self.generation = self.generation.wrapping_add(1);
        (self.start.base, self.start.point) = (base, point);
        let header = header(&self.owner, &self.start, self.generation);
        // The mark goes first: what it says of the content is of the old header.
        self.memory.store(MARK_AT, mark(0, 0))?;
        self.memory.write(0, &header)?;
        let header = header.get(..HEADER_LEN - 4).unwrap_or_default();
        self.checksum = crc32c::crc32c(header);
        (self.len, self.flushed) = (0, 0);
        if self.is_there() {
            Ok(())
        } else {
            Err(removed())
        }
    }

    /// Nothing was flushed.
    pub(super) fn is_empty(&self) -> bool {
        self.flushed == 0
    }

    /// Nobody has removed it, as `systemd-logind` does with all that a user has in `/dev/shm` when they log out.
    #[cold]
    fn is_there(&self) -> bool {
        let found = rustix::fs::fstat(self.memory.file());
        found.is_ok_and(|found| found.st_nlink == 1)
    }

    /// Takes what was appended to the file. It counts once it was flushed.
    ///
    /// # Errors
    /// [`Full`], also of all that comes after, until it begins anew.
    #[inline]
    pub(super) fn push(&mut self, data: &[u8]) -> Result<(), Full> {
        if self.was_full || self.memory.write(CONTENT_AT + self.len, data).is_err() {
            self.was_full = true;
            return Err(Full);
        }
        self.len += data.len();
        self.checksum = crc32c::crc32c_append(self.checksum, data);
        Ok(())
    }

    /// Where the next bytes go.
    pub(super) fn end(&self) -> End {
        End {
            len: self.len,
            checksum: self.checksum,
        }
    }

    /// What it has taken since it ended there.
    ///
    /// # Errors
    /// Where it is not what was pushed: another process of the same user has written to the tail.
    pub(super) fn since(&self, before: &End) -> io::Result<Vec<u8>> {
        let count = self.len.checked_sub(before.len);
        let count = count.ok_or(io::ErrorKind::UnexpectedEof)?;
        let bytes = self.memory.read(CONTENT_AT + before.len, count)?;
        if checksum::crc_of_more(before.checksum, &bytes) != self.checksum {
            return Err(io::Error::other("somebody has written to it"));
        }
        Ok(bytes)
    }

    /// What it has taken outlives the process.
    #[inline]
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.flushed == self.len {
            return Ok(());
        }
        let len = u32::try_from(self.len).map_err(io::Error::other)?;
        self.flushes = self.flushes.wrapping_add(1);
        self.memory.store(MARK_AT, mark(len, self.checksum))?;
        if self.flushes.is_multiple_of(LOOK_EVERY) && !self.is_there() {
            return Err(removed());
        }
        self.flushed = self.len;
        Ok(())
    }

    /// Removes it: what it held is in the hands of the device.
    pub(super) fn remove(mut self) {
        let Err(error) = fs::remove_file(&self.path) else {
            return;
        };
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        // One that stays must not be brought in later.
        if let Err(error) = self.memory.write(0, &[0; HEADER_LEN]) {
            tracing::error!(path = %self.path.display(), %error, "a tail can be neither removed nor emptied");
        }
    }
}

fn removed() -> io::Error {
    io::Error::other("somebody has removed it")
}

/// Whether a directory is a user's, and nobody else can write to it.
pub(super) fn is_private(dir: &Path, user: u32) -> io::Result<bool> {
    let found = fs::symlink_metadata(dir)?;
    Ok(found.is_dir() && found.uid() == user && found.mode() & 0o022 == 0)
}

fn header(owner: &Owner, start: &Start, generation: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_LEN);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&generation.to_le_bytes());
    header.extend_from_slice(&owner.boot);
    header.extend_from_slice(&owner.volume);
    for number in [owner.device, owner.inode, start.ino.0, start.base] {
        header.extend_from_slice(&number.to_le_bytes());
    }
    header.extend_from_slice(&start.point.opening.to_le_bytes());
    header.extend_from_slice(&start.point.lsn.0.to_le_bytes());
    let checksum = crc32c::crc32c(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    header
}

/// What a tail says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing that counts: torn when it began, of another boot, or no tail at all.
    Nothing(&'static str),
    /// It is of another version of the library.
    OtherVersion(u32),
    /// The end of a file.
    End { start: Start, content: Vec<u8> },
}

/// Takes a tail apart.
pub(super) fn parse(bytes: &[u8], owner: &Owner) -> Found {
    let mut rest = bytes;
    if take(&mut rest).as_ref() != Some(MAGIC) {
        return Found::Nothing("it is no tail");
    }
    match take(&mut rest).map(u32::from_le_bytes) {
        Some(VERSION) => {}
        Some(other) => return Found::OtherVersion(other),
        None => return Found::Nothing("its header is cut off"),
    }
    let parts = (|| {
        let generation = u32::from_le_bytes(take(&mut rest)?);
        let (boot, volume) = (take(&mut rest)?, take(&mut rest)?);
        let mut number = || Some(u64::from_le_bytes(take(&mut rest)?));
        let (device, inode) = (number()?, number()?);
        let (ino, base) = (Ino(number()?), number()?);
        let point = Point {
            opening: u32::from_le_bytes(take(&mut rest)?),
            lsn: Lsn(u64::from_le_bytes(take(&mut rest)?)),
        };
        let start = Start { ino, base, point };
        let said = Owner {
            boot,
            volume,
            device,
            inode,
        };
        let checksum: [u8; 4] = take(&mut rest)?;
        Some((said, start, generation, checksum))
    })();
    let Some((said, start, generation, checksum)) = parts else {
        return Found::Nothing("its header is cut off");
    };
    let whole = header(&said, &start, generation);
    let checksum = u32::from_le_bytes(checksum);
    if crc32c::crc32c(whole.get(..HEADER_LEN - 4).unwrap_or_default()) != checksum {
        return Found::Nothing("its header is torn");
    }
    if said != *owner {
        return Found::Nothing("it is of another boot or device");
    }
    let content = content(bytes, checksum).unwrap_or_default().to_vec();
    Found::End { start, content }
}

/// What of the content counts.
fn content(bytes: &[u8], header_checksum: u32) -> Option<&[u8]> {
    let mut rest = bytes.get(MARK_AT..)?;
    let len = u32::from_le_bytes(take(&mut rest)?);
    let checksum = u32::from_le_bytes(take(&mut rest)?);
    let content = rest.get(..usize::try_from(len).ok()?)?;
    (crc32c::crc32c_append(header_checksum, content) == checksum).then_some(content)
}

/// What is stored to have bytes of content count.
fn mark(len: u32, checksum: u32) -> u64 {
    u64::from(checksum) << 32 | u64::from(len)
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests from top to bottom")]

    use super::*;

    const OWNER: Owner = Owner {
        boot: [1; 16],
        volume: [2; 16],
        device: 3,
        inode: 4,
    };

    fn start(base: u64) -> Start {
        let point = Point {
            opening: 6,
            lsn: Lsn(7),
        };
        let ino = Ino(5);
        Start { ino, base, point }
    }

    /// The bytes of a tail, and what they say.
    fn made() -> (Vec<u8>, Vec<u8>) {
        let above = tempfile::tempdir().unwrap();
        let mut tail = Tail::create(&above.path().join("tails"), &OWNER, &start(600)).unwrap();
        let append = |tail: &mut Tail, data: &[u8]| {
            tail.push(data).unwrap();
            tail.flush().unwrap();
        };
        // Longer than what begins anew over it.
        append(&mut tail, &[9; 700]);
        tail.begin_anew(1000, start(0).point).unwrap();
        tail.push(b"on").unwrap();
        append(&mut tail, b"e");
        append(&mut tail, b"");
        append(&mut tail, &[7; 100]);
        tail.push(b"never flushed").unwrap();
        let mut bytes = fs::read(&tail.path).unwrap();
        assert_eq!(bytes.len(), FIRST_CAPACITY);
        bytes.truncate(CONTENT_AT + tail.len);
        tail.remove();
        (bytes, [b"one".as_slice(), &[7; 100]].concat())
    }

    #[test]
    fn it_says_what_was_appended_since_it_began() {
        let (bytes, content) = made();
        let start = start(1000);
        assert_eq!(parse(&bytes, &OWNER), Found::End { start, content });
        let of_other_boot = Owner {
            boot: [8; 16],
            ..OWNER
        };
        let found = parse(&bytes, &of_other_boot);
        assert_eq!(found, Found::Nothing("it is of another boot or device"));
    }

    /// Whatever is wrong with it, what it says is the beginning of what was appended.
    #[test]
    fn cut_off_or_with_bits_flipped_it_says_less() {
        let (bytes, content) = made();
        let check = |bytes: &[u8]| match parse(bytes, &OWNER) {
            Found::End {
                start: found_start,
                content: found,
            } => {
                assert_eq!(found_start, start(1000));
                assert!(content.starts_with(&found));
            }
            Found::Nothing(_) | Found::OtherVersion(_) => {}
        };
        for len in 0..bytes.len() {
            check(&bytes[..len]);
        }
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            check(&bytes);
        }
    }

    /// It takes more memory once it was full, and nothing in between.
    #[test]
    fn a_full_one_begins_anew_with_more_room() {
        let above = tempfile::tempdir().unwrap();
        let mut tail = Tail::create(&above.path().join("tails"), &OWNER, &start(0)).unwrap();
        let piece = vec![3; FIRST_CAPACITY / 2];
        tail.push(&piece).unwrap();
        tail.flush().unwrap();
        assert!(tail.push(&piece).is_err());
        assert!(tail.push(b"small").is_err(), "after what it lacks");
        let pieces = |tail: &Tail| match parse(&fs::read(&tail.path).unwrap(), &OWNER) {
            Found::End { start, content } => (start.base, content.len() / piece.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!(pieces(&tail), (0, 1));
        tail.begin_anew(100, start(0).point).unwrap();
        assert_eq!(pieces(&tail), (100, 0));
        for _ in 0..CAPACITY / piece.len() - 1 {
            tail.push(&piece).unwrap();
            tail.flush().unwrap();
        }
        assert!(tail.push(&piece).is_err());
        assert_eq!(pieces(&tail), (100, CAPACITY / piece.len() - 1));
        tail.remove();
    }
}
