//! A tail: a file in memory with the end of a file of a volume.
//!
//! A header, and records behind it, each with the bytes of one flush. All numbers are little endian. What is torn, or left of an
//! earlier beginning, has no right checksum, and ends the tail.
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | `PERSKEPT` |
//! | 8..12 | version, 1 |
//! | 12..16 | generation: how often the tail began |
//! | 16..32 | boot |
//! | 32..48 | UUID of the volume |
//! | 48..64 | device and inode of the image, or number of the device and 0 |
//! | 64..72 | inode number in the volume |
//! | 72..80 | base: offset in the file where the first record begins |
//! | 80..84 | CRC-32C of all before, with which those of the records begin |
//!
//! | bytes | record |
//! |---|---|
//! | 0..4 | bytes behind this |
//! | 4..12 | offset in the file |
//! | 12..16 | CRC-32C of the header's, of the two before, and of the bytes |

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use persimmon_vfs::Ino;

use super::Owner;

/// Bytes that a tail may take, header and records: what a file costs in memory, and how far apart the flushes to the device are.
pub(super) const CAPACITY: usize = 1 << 20;
const MAGIC: &[u8; 8] = b"PERSKEPT";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 84;
const RECORD_HEADER_LEN: usize = 16;
/// Records between two looks whether somebody has removed it: a look at each would cost as much as the record.
const LOOK_EVERY: u32 = 64;

/// Why nothing was added to a tail.
#[derive(Debug, thiserror::Error)]
pub(super) enum TailError {
    #[error("it is full")]
    Full,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A tail that grows.
pub(super) struct Tail {
    file: File,
    path: PathBuf,
    owner: Owner,
    ino: Ino,
    generation: u32,
    /// Of the header.
    checksum: u32,
    /// Where the next record goes.
    at: usize,
    base: u64,
    /// Of the file.
    end: u64,
    records: u32,
    /// A record is put together here.
    record: Vec<u8>,
}

impl Tail {
    /// Makes that of a file, all of which up to `base` is in the hands of the device.
    pub(super) fn create(dir: &Path, owner: &Owner, ino: Ino, base: u64) -> io::Result<Tail> {
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
        let path = dir.join(format!("{:x}", ino.0));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        let mut tail = Tail {
            file,
            path,
            owner: *owner,
            ino,
            generation: 0,
            checksum: 0,
            at: HEADER_LEN,
            base,
            end: base,
            records: 0,
            record: Vec::new(),
        };
        match tail.begin_anew(base) {
            Ok(()) => Ok(tail),
            Err(error) => {
                tail.remove();
                Err(error)
            }
        }
    }

    /// Begins again at `base`: what it held is in the hands of the device. Killed in between, a torn header holds nothing.
    pub(super) fn begin_anew(&mut self, base: u64) -> io::Result<()> {
        self.generation = self.generation.wrapping_add(1);
        let header = header(&self.owner, self.ino, self.generation, base);
        self.file.write_all_at(&header, 0)?;
        self.checksum = crc32c::crc32c(header.get(..HEADER_LEN - 4).unwrap_or_default());
        self.at = HEADER_LEN;
        (self.base, self.end) = (base, base);
        match self.is_there() {
            true => Ok(()),
            false => Err(removed()),
        }
    }

    /// What is behind the last record.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// There is no record.
    pub(super) fn is_empty(&self) -> bool {
        self.end == self.base
    }

    /// Nobody has removed it, as `systemd-logind` does with all that a user has in `/dev/shm` when they log out.
    pub(super) fn is_there(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.nlink() == 1)
    }

    /// Adds a record, by one write.
    pub(super) fn append(&mut self, data: &[u8]) -> Result<(), TailError> {
        let len = RECORD_HEADER_LEN + data.len();
        let bytes = u32::try_from(data.len()).map_err(|_| TailError::Full)?;
        if self.at + len > CAPACITY {
            return Err(TailError::Full);
        }
        self.record.clear();
        self.record.extend_from_slice(&bytes.to_le_bytes());
        self.record.extend_from_slice(&self.end.to_le_bytes());
        let checksum = crc32c::crc32c_append(self.checksum, &self.record);
        let checksum = crc32c::crc32c_append(checksum, data);
        self.record.extend_from_slice(&checksum.to_le_bytes());
        self.record.extend_from_slice(data);
        self.file.write_all_at(&self.record, self.at as u64)?;
        self.records = self.records.wrapping_add(1);
        if self.records.is_multiple_of(LOOK_EVERY) && !self.is_there() {
            return Err(removed().into());
        }
        self.at += len;
        self.end += u64::from(bytes);
        Ok(())
    }

    /// Removes it: what it held is in the hands of the device.
    pub(super) fn remove(self) {
        let Err(error) = fs::remove_file(&self.path) else {
            return;
        };
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        // One that stays must not be brought in later.
        if let Err(error) = self.file.write_all_at(&[0; HEADER_LEN], 0) {
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

fn header(owner: &Owner, ino: Ino, generation: u32, base: u64) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_LEN);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&generation.to_le_bytes());
    header.extend_from_slice(&owner.boot);
    header.extend_from_slice(&owner.volume);
    for number in [owner.device, owner.inode, ino.0, base] {
        header.extend_from_slice(&number.to_le_bytes());
    }
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
    End {
        ino: Ino,
        base: u64,
        content: Vec<u8>,
    },
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
        let said = Owner {
            boot,
            volume,
            device,
            inode,
        };
        let checksum: [u8; 4] = take(&mut rest)?;
        Some((said, ino, generation, base, checksum))
    })();
    let Some((said, ino, generation, base, checksum)) = parts else {
        return Found::Nothing("its header is cut off");
    };
    let whole = header(&said, ino, generation, base);
    let checksum = u32::from_le_bytes(checksum);
    if crc32c::crc32c(whole.get(..HEADER_LEN - 4).unwrap_or_default()) != checksum {
        return Found::Nothing("its header is torn");
    }
    if said != *owner {
        return Found::Nothing("it is of another boot or device");
    }
    let mut content = Vec::new();
    while let Some(more) = record(
        &mut rest,
        checksum,
        base.saturating_add(content.len() as u64),
    ) {
        content.extend_from_slice(more);
    }
    Found::End { ino, base, content }
}

/// The bytes of the next record, if it is right.
fn record<'a>(rest: &mut &'a [u8], checksum: u32, offset: u64) -> Option<&'a [u8]> {
    let head = rest.get(..RECORD_HEADER_LEN - 4)?;
    let len: [u8; 4] = take(rest)?;
    let said: [u8; 8] = take(rest)?;
    let right: [u8; 4] = take(rest)?;
    let data = rest.get(..usize::try_from(u32::from_le_bytes(len)).ok()?)?;
    let found = crc32c::crc32c_append(crc32c::crc32c_append(checksum, head), data);
    if u64::from_le_bytes(said) != offset || found != u32::from_le_bytes(right) {
        return None;
    }
    *rest = rest.get(data.len()..)?;
    Some(data)
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

    /// The bytes of a tail, and what they say.
    fn made() -> (Vec<u8>, Vec<u8>) {
        let above = tempfile::tempdir().unwrap();
        let mut tail = Tail::create(&above.path().join("tails"), &OWNER, Ino(5), 600).unwrap();
        // Longer than what begins anew over it.
        tail.append(&[9; 700]).unwrap();
        tail.begin_anew(1000).unwrap();
        let records: [&[u8]; 3] = [b"one", b"", &[7; 100]];
        for record in records {
            tail.append(record).unwrap();
        }
        assert_eq!(tail.end(), 1103);
        let bytes = fs::read(&tail.path).unwrap();
        tail.remove();
        (bytes, records.concat())
    }

    #[test]
    fn it_says_what_was_appended_since_it_began() {
        let (bytes, content) = made();
        let (ino, base) = (Ino(5), 1000);
        assert_eq!(parse(&bytes, &OWNER), Found::End { ino, base, content });
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
                ino,
                base,
                content: found,
            } => {
                assert_eq!((ino, base), (Ino(5), 1000));
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
}
