//! Reading a backup. Nothing in it is believed before it is checked: it may be cut, damaged, or made to do harm. A name
//! is only ever one in the directory that was entered last, so no path leads out of where it is restored to.

use std::io::{self, Read};
use std::ops::Range;

use persimmon::Timestamp;
use persimmon::internal::format::shown::shown;
use tar::{EntryType, Header};
use xxhash_rust::xxh3::Xxh3;

use super::{
    BEGIN, BLOCK, END, NAMED_XATTR, RANGES_MAX, RECORDS_MAX, SOCKET, SPARSE_NAME, SPARSE_SIZE,
    XATTR,
};
use super::{header_of_records, padding, pax};
use crate::fs::tree::{Content, Copied, Copier, CopyError, Entry, Kind, Meta, PIECE};

/// Largest file, bytes.
const SIZE_MAX: u64 = i64::MAX as u64;

fn cut() -> CopyError {
    CopyError::ends(
        "the backup is cut off: it ends before its end mark; `tar --extract` may still unpack what is there",
    )
}

fn damaged(what: &str) -> CopyError {
    CopyError::ends(format!("the backup is damaged: {what}"))
}

/// Takes what a backup holds to a copier. Who answers without an error has had all of it, and its checksum is right.
///
/// # Errors
/// What ends the copy. What fails alone is in the tally.
pub fn read(source: &mut dyn Read, copier: &mut Copier<'_>) -> Copied<()> {
    let mut input = Input {
        source,
        hash: Xxh3::new(),
    };
    let mut reader = Reader {
        way: Vec::new(),
        skipped: None,
        entries: 0,
    };
    begin(&mut input)?;
    loop {
        let before = input.hash.clone();
        let header = input.header()?;
        match header.entry_type() {
            EntryType::XGlobalHeader => {
                let records = input.records(&header)?;
                // The checksum does not count its own header.
                let due = header_of_records(EntryType::XGlobalHeader, records.len() as u64);
                if header.as_bytes() != due.as_bytes() {
                    return Err(damaged("the header of its end mark"));
                }
                end(&mut input, &records, reader.entries, before.digest128())?;
                break;
            }
            EntryType::XHeader => {
                let records = input.records(&header)?;
                let header = input.header()?;
                reader.entry(&mut input, &header, &records, copier)?;
            }
            _ => return Err(damaged("an entry has no extended header")),
        }
    }
    reader.leave_all(copier)
}

fn begin(input: &mut Input<'_>) -> Copied<()> {
    let foreign = || {
        CopyError::ends(
            "is no backup made by `persimmon fs backup`; unpack other archives with tar in a mounted volume",
        )
    };
    let mut block = [0; BLOCK];
    let is_there = input.fill_unless_ended(&mut block)?;
    let header = Header::from_byte_slice(&block).clone();
    if !is_there || !is_sound(&header) || header.entry_type() != EntryType::XGlobalHeader {
        return Err(foreign());
    }
    let records = input.records(&header)?;
    match pax::parse(&records).as_deref() {
        Some([(b"comment", text)]) if *text == BEGIN.as_bytes() => Ok(()),
        Some([(b"comment", text)]) if text.starts_with(b"persimmon backup ") => Err(
            CopyError::ends("the backup is of a later version of Persimmon; restore it with that"),
        ),
        _ => Err(foreign()),
    }
}

/// Checks the end mark, and that nothing but the end of the archive is behind it.
fn end(input: &mut Input<'_>, records: &[u8], entries: u64, checksum: u128) -> Copied<()> {
    let text = match pax::parse(records).as_deref() {
        Some([(b"comment", text)]) => text.to_vec(),
        _ => return Err(damaged("a comment that means nothing")),
    };
    if text != format!("{END} {entries} {checksum:032x}").into_bytes() {
        return Err(damaged("its checksum is not that of its content"));
    }
    let mut zeros = [0; 2 * BLOCK];
    input.fill(&mut zeros)?;
    if zeros.iter().all(|byte| *byte == 0) {
        Ok(())
    } else {
        Err(damaged("something is behind its end mark"))
    }
}

fn is_sound(header: &Header) -> bool {
    let bytes = header.as_bytes();
    // The checksum counts as blanks in itself.
    let sum: u32 = bytes
        .iter()
        .enumerate()
        .map(|(at, byte)| match at {
            148..156 => u32::from(b' '),
            _ => u32::from(*byte),
        })
        .sum();
    header.as_ustar().is_some() && header.cksum().is_ok_and(|told| told == sum)
}

struct Input<'a> {
    source: &'a mut dyn Read,
    hash: Xxh3,
}

impl Input<'_> {
    /// Reads some bytes: none at the end.
    fn some(&mut self, buffer: &mut [u8]) -> Copied<usize> {
        loop {
            match self.source.read(buffer) {
                Ok(len) => {
                    self.hash.update(buffer.get(..len).unwrap_or_default());
                    return Ok(len);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(CopyError::ends(format!("reading the backup: {error}"))),
            }
        }
    }

    /// Tells whether there was enough.
    fn fill_unless_ended(&mut self, mut buffer: &mut [u8]) -> Copied<bool> {
        while !buffer.is_empty() {
            let len = self.some(buffer)?;
            if len == 0 {
                return Ok(false);
            }
            buffer = buffer.get_mut(len..).unwrap_or_default();
        }
        Ok(true)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Copied<()> {
        if self.fill_unless_ended(buffer)? {
            Ok(())
        } else {
            Err(cut())
        }
    }

    fn skip(&mut self, mut len: u64) -> Copied<()> {
        let mut buffer = vec![0; len.min(PIECE as u64) as usize];
        while len > 0 {
            let want = len.min(PIECE as u64) as usize;
            self.fill(buffer.get_mut(..want).unwrap_or_default())?;
            len -= want as u64;
        }
        Ok(())
    }

    fn header(&mut self) -> Copied<Header> {
        let mut block = [0; BLOCK];
        self.fill(&mut block)?;
        if block.iter().all(|byte| *byte == 0) {
            return Err(cut());
        }
        let header = Header::from_byte_slice(&block).clone();
        if is_sound(&header) {
            Ok(header)
        } else {
            Err(damaged("a header has a wrong checksum"))
        }
    }

    /// The content of an extended header.
    fn records(&mut self, header: &Header) -> Copied<Vec<u8>> {
        let size = header.size().unwrap_or(u64::MAX);
        if size > RECORDS_MAX {
            return Err(damaged("an extended header is too long"));
        }
        let mut records = vec![0; size as usize];
        self.fill(&mut records)?;
        let mut rest = [0; BLOCK];
        let rest = rest.get_mut(..padding(size)).unwrap_or_default();
        self.fill(rest)?;
        if rest.iter().all(|byte| *byte == 0) {
            Ok(records)
        } else {
            Err(damaged("something is behind an extended header"))
        }
    }
}

struct Reader {
    /// The directories on the way down.
    way: Vec<Entry>,
    /// A directory that could not be made: what is below it goes with it.
    skipped: Option<Vec<u8>>,
    entries: u64,
}

impl Reader {
    fn entry(
        &mut self,
        input: &mut Input<'_>,
        header: &Header,
        records: &[u8],
        copier: &mut Copier<'_>,
    ) -> Copied<()> {
        let records = pax::parse(records).ok_or_else(|| damaged("an extended header"))?;
        let (entry, is_sparse) = decode(header, &records)?;
        let stored = header.size().map_err(|_| damaged("a size"))?;
        let mut content = Stored {
            ranges: Vec::new(),
            at: 0,
            left: stored,
            input,
        };
        match (&entry.kind, is_sparse) {
            (Kind::File { size }, true) => content.map(*size)?,
            (Kind::File { .. }, false) => content.ranges.push(0..stored),
            (_, false) if stored == 0 => {}
            _ => return Err(damaged("content of what has none")),
        }
        content.ranges.reverse();
        self.entries += 1;
        self.pass(entry, &mut content, copier)?;
        // What a file that failed has left, too.
        let left = content.left;
        input.skip(left + padding(stored) as u64)
    }

    fn pass(
        &mut self,
        entry: Entry,
        content: &mut Stored<'_, '_>,
        copier: &mut Copier<'_>,
    ) -> Copied<()> {
        if let Some(skipped) = &self.skipped
            && entry.path.starts_with(skipped)
            && entry.path.get(skipped.len()) == Some(&b'/')
        {
            return Ok(());
        }
        let is_top = entry.path.is_empty();
        if is_top != (self.entries == 1) {
            return Err(damaged("it does not begin with its top directory"));
        }
        if !is_top {
            self.leave_for(&entry.path, copier)?;
        }
        if entry.kind != Kind::Directory {
            copier.put(&entry, content)?;
        } else if copier.enter(&entry)? {
            self.way.push(entry);
        } else {
            self.skipped = Some(entry.path);
        }
        Ok(())
    }

    /// Leaves directories until the one is left that holds the path.
    fn leave_for(&mut self, path: &[u8], copier: &mut Copier<'_>) -> Copied<()> {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let above = path.get(..end).unwrap_or_default();
        while let Some(last) = self.way.last() {
            if last.path == above {
                return Ok(());
            }
            if let Some(left) = self.way.pop() {
                copier.leave(&left)?;
            }
        }
        Err(damaged(&format!(
            "{} comes without its directory",
            shown(path)
        )))
    }

    fn leave_all(&mut self, copier: &mut Copier<'_>) -> Copied<()> {
        while let Some(left) = self.way.pop() {
            copier.leave(&left)?;
        }
        Ok(())
    }
}

/// The content of a file in the archive.
struct Stored<'a, 'b> {
    /// Where it has data, the next range last.
    ranges: Vec<Range<u64>>,
    /// Everything before was read.
    at: u64,
    /// Bytes of the entry not read yet.
    left: u64,
    input: &'a mut Input<'b>,
}

impl Stored<'_, '_> {
    /// Reads the map of a sparse file, and checks it.
    fn map(&mut self, size: u64) -> Copied<()> {
        let wrong = || damaged("the map of a sparse file");
        let mut text = Vec::new();
        let (mut lines, mut wanted) = (0, 1);
        while lines < wanted {
            let mut block = [0; BLOCK];
            self.left = self.left.checked_sub(BLOCK as u64).ok_or_else(wrong)?;
            self.input.fill(&mut block)?;
            lines += block.iter().filter(|byte| **byte == b'\n').count();
            text.extend_from_slice(&block);
            if wanted == 1 && lines > 0 {
                let count = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let count = pax::number(count).filter(|count| *count <= RANGES_MAX as u64 + 1);
                wanted = 1 + 2 * count.ok_or_else(wrong)? as usize;
            }
            // Twenty digits and the end of the line for each number.
            if text.len() > wanted * 21 + BLOCK {
                return Err(wrong());
            }
        }
        let numbers = text.split(|byte| *byte == b'\n').take(wanted).skip(1);
        let numbers: Option<Vec<u64>> = numbers.map(pax::number).collect();
        let numbers = numbers.ok_or_else(wrong)?;
        let (mut end_before, mut data) = (0, 0u64);
        for pair in numbers.chunks_exact(2) {
            let &[start, len] = pair else {
                return Err(wrong());
            };
            let end = start.checked_add(len).filter(|end| *end <= size);
            let end = end.filter(|_| start >= end_before).ok_or_else(wrong)?;
            end_before = end;
            data += len;
            if len > 0 {
                self.ranges.push(start..end);
            }
        }
        if data == self.left {
            Ok(())
        } else {
            Err(wrong())
        }
    }
}

impl Content for Stored<'_, '_> {
    fn next_data(&mut self, at: u64) -> Copied<Option<Range<u64>>> {
        while let Some(range) = self.ranges.last() {
            if range.end > at {
                return Ok(Some(range.start.max(at)..range.end));
            }
            self.ranges.pop();
        }
        Ok(None)
    }

    /// A pipe can be read in its own order alone, which is that of everybody who copies.
    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> Copied<usize> {
        if at < self.at {
            return Err(CopyError::ends("a backup can be read once only"));
        }
        let want = self.left.min(buffer.len() as u64) as usize;
        let len = match buffer.get_mut(..want) {
            Some(buffer) if want > 0 => self.input.some(buffer)?,
            _ => return Ok(0),
        };
        if len == 0 {
            return Err(cut());
        }
        self.left -= len as u64;
        self.at = at + len as u64;
        Ok(len)
    }
}

/// A path in the archive, which must stay in it.
fn checked(path: &[u8]) -> Copied<Vec<u8>> {
    let is_name =
        |name: &[u8]| !name.is_empty() && name != b"." && name != b".." && !name.contains(&0);
    if path.split(|byte| *byte == b'/').all(is_name) {
        Ok(path.to_vec())
    } else {
        Err(damaged(&format!(
            "the path {} leads out of it; somebody may have made it to do harm",
            shown(path)
        )))
    }
}

/// What an entry is, and whether it is sparse.
fn decode(header: &Header, records: &[(&[u8], &[u8])]) -> Copied<(Entry, bool)> {
    let mut meta = Meta {
        mode: header.mode().map_err(|_| damaged("a mode"))? & 0o7777,
        uid: narrow(header.uid())?,
        gid: narrow(header.gid())?,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        xattrs: Vec::new(),
    };
    let (mut path, mut target, mut sparse, mut is_socket) = (None, None, None, false);
    let time = |value| pax::parse_time(value).ok_or_else(|| damaged("a time"));
    for (key, value) in records {
        match *key {
            b"path" => path = path.or(Some(*value)),
            b"linkpath" => target = Some(*value),
            b"mtime" => meta.mtime = time(value)?,
            b"atime" => meta.atime = time(value)?,
            key if key == SPARSE_NAME.as_bytes() => path = Some(*value),
            key if key == SPARSE_SIZE.as_bytes() => {
                let size = pax::number(value).filter(|size| *size <= SIZE_MAX);
                sparse = Some(size.ok_or_else(|| damaged("a size"))?);
            }
            key if key == SOCKET.as_bytes() => is_socket = true,
            key if key == NAMED_XATTR.as_bytes() => {
                let mut parts = value.splitn(2, |byte| *byte == 0);
                let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
                    return Err(damaged("an attribute"));
                };
                meta.xattrs.push((name.to_vec(), value.to_vec()));
            }
            // The size of another, which the headers of Persimmon do not need.
            b"size" => return Err(damaged("another tool has changed it")),
            key => {
                if let Some(name) = key.strip_prefix(XATTR.as_bytes()) {
                    meta.xattrs.push((name.to_vec(), value.to_vec()));
                }
            }
        }
    }
    let path = path.ok_or_else(|| damaged("an entry has no path"))?;
    let target = || target.ok_or_else(|| damaged("a link has no target"));
    let device = |number: io::Result<Option<u32>>| {
        let number = number.ok().flatten();
        number.ok_or_else(|| damaged("a device number"))
    };
    let rdev = || -> Copied<u32> {
        let (major, minor) = (
            device(header.device_major())?,
            device(header.device_minor())?,
        );
        narrow(Ok(rustix::fs::makedev(major, minor)))
    };
    let kind = match header.entry_type() {
        EntryType::Directory => Kind::Directory,
        EntryType::Regular => Kind::File {
            size: sparse.map_or_else(|| header.size().map_err(|_| damaged("a size")), Ok)?,
        },
        EntryType::Symlink => Kind::Symlink(target()?.to_vec()),
        EntryType::Link => Kind::HardLink(checked(target()?)?),
        EntryType::Fifo if is_socket => Kind::Socket,
        EntryType::Fifo => Kind::Fifo,
        EntryType::Char => Kind::CharDevice(rdev()?),
        EntryType::Block => Kind::BlockDevice(rdev()?),
        _ => return Err(damaged("an entry of no known type")),
    };
    let path = match (&kind, path) {
        (Kind::Directory, b"./") => Vec::new(),
        (Kind::Directory, path) => checked(path.strip_suffix(b"/").unwrap_or(path))?,
        (_, path) => checked(path)?,
    };
    let entry = Entry { path, kind, meta };
    Ok((entry, sparse.is_some()))
}

fn narrow(number: io::Result<u64>) -> Copied<u32> {
    let number = number.ok().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| damaged("a number of an owner or a device"))
}
