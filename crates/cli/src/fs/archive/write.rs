//! Writing a backup.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;

use tar::{EntryType, Header};
use xxhash_rust::xxh3::Xxh3;

use super::{
    BEGIN, BLOCK, END, NAMED_XATTR, RANGES_MAX, RECORDS_MAX, SOCKET, SPARSE_NAME, SPARSE_SIZE,
    XATTR,
};
use super::{header_of_records, padding, pax, set_name};
use crate::fs::tree::{Content, Copied, CopyError, Entry, Kind, PIECE, Sink, each_piece};

/// Whatever is written, with the checksum of it.
struct Output {
    file: File,
    /// Not written yet.
    buffer: Vec<u8>,
    flushed: u64,
    hash: Xxh3,
}

impl Output {
    fn put(&mut self, bytes: &[u8]) -> Copied<()> {
        self.hash.update(bytes);
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Copied<()> {
        self.file.write_all(&self.buffer).map_err(unwritten)?;
        self.flushed += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.flushed + self.buffer.len() as u64
    }

    /// Takes back what was written behind `len`, where the checksum was `hash`.
    fn cut(&mut self, len: u64, hash: Xxh3) -> Copied<()> {
        match len.checked_sub(self.flushed) {
            Some(kept) => self.buffer.truncate(kept as usize),
            None => {
                self.buffer.clear();
                self.file.set_len(len).map_err(unwritten)?;
                self.file.seek(SeekFrom::Start(len)).map_err(unwritten)?;
                self.flushed = len;
            }
        }
        self.hash = hash;
        Ok(())
    }
}

/// The backup takes no more, so it ends.
fn unwritten(error: io::Error) -> CopyError {
    CopyError::ends(format!("writing the backup: {error}"))
}

/// A backup that is being written.
pub struct Archive {
    output: Output,
    entries: u64,
    seekable: bool,
}

impl Archive {
    /// Begins one: in an empty file that is `seekable`, or in whatever takes it.
    pub fn begin(file: File, seekable: bool) -> Copied<Archive> {
        let mut archive = Archive {
            output: Output {
                file,
                buffer: Vec::new(),
                flushed: 0,
                hash: Xxh3::new(),
            },
            entries: 0,
            seekable,
        };
        archive.comment(BEGIN)?;
        Ok(archive)
    }

    /// Ends it, and makes it durable where it is a file.
    pub fn end(mut self) -> Copied<()> {
        if self.entries == 0 {
            return Err(CopyError::ends("there is nothing to back up"));
        }
        let checksum = self.output.hash.digest128();
        self.comment(&format!("{END} {} {checksum:032x}", self.entries))?;
        self.output.put(&[0; 2 * BLOCK])?;
        self.output.flush()?;
        if self.seekable {
            self.output.file.sync_all().map_err(unwritten)
        } else {
            Ok(())
        }
    }

    /// A comment that is part of no file.
    fn comment(&mut self, text: &str) -> Copied<()> {
        let mut records = Vec::new();
        pax::put(&mut records, b"comment", text.as_bytes());
        self.records(EntryType::XGlobalHeader, &records)
    }

    fn records(&mut self, kind: EntryType, records: &[u8]) -> Copied<()> {
        let len = records.len() as u64;
        if len > RECORDS_MAX {
            return Err(CopyError::one("its path and attributes are too long"));
        }
        let header = header_of_records(kind, len);
        self.output.put(header.as_bytes())?;
        self.output.put(records)?;
        self.output.put(&[0; BLOCK][..padding(len)])
    }

    /// The headers of an entry with `size` bytes behind them; `records` are told beside the usual ones.
    fn headers(&mut self, entry: &Entry, size: u64, mut records: Vec<u8>) -> Copied<()> {
        let meta = &entry.meta;
        let mut path = entry.path.clone();
        if entry.kind == Kind::Directory {
            if path.is_empty() {
                path.push(b'.');
            }
            path.push(b'/');
        }
        let target: &[u8] = match &entry.kind {
            Kind::Symlink(target) | Kind::HardLink(target) => target,
            _ => b"",
        };
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        if !is_text(&path) || !is_text(target) {
            // For those that would convert them.
            pax::put(&mut records, b"hdrcharset", b"BINARY");
        }
        pax::put(&mut records, b"path", &path);
        if !target.is_empty() {
            pax::put(&mut records, b"linkpath", target);
        }
        pax::put(&mut records, b"mtime", pax::time(meta.mtime).as_bytes());
        pax::put(&mut records, b"atime", pax::time(meta.atime).as_bytes());
        for (name, value) in &meta.xattrs {
            if name.contains(&b'=') {
                // The key of a record ends at the first one.
                let both = [name.as_slice(), &[0], value].concat();
                pax::put(&mut records, NAMED_XATTR.as_bytes(), &both);
                continue;
            }
            let key = [XATTR.as_bytes(), name].concat();
            pax::put(&mut records, &key, value);
        }
        let (kind, rdev) = match &entry.kind {
            Kind::Directory => (EntryType::Directory, None),
            Kind::File { .. } => (EntryType::Regular, None),
            Kind::Symlink(_) => (EntryType::Symlink, None),
            Kind::HardLink(_) => (EntryType::Link, None),
            Kind::Fifo => (EntryType::Fifo, None),
            Kind::Socket => {
                pax::put(&mut records, SOCKET.as_bytes(), b"1");
                (EntryType::Fifo, None)
            }
            Kind::CharDevice(rdev) => (EntryType::Char, Some(*rdev)),
            Kind::BlockDevice(rdev) => (EntryType::Block, Some(*rdev)),
        };
        let mut header = Header::new_ustar();
        set_name(&mut header, &path);
        header.set_entry_type(kind);
        header.set_mode(meta.mode);
        header.set_uid(meta.uid.into());
        header.set_gid(meta.gid.into());
        header.set_mtime(meta.mtime.seconds.try_into().unwrap_or_default());
        header.set_size(size);
        if let Some(rdev) = rdev {
            let rdev = rdev.into();
            header
                .set_device_major(rustix::fs::major(rdev))
                .and_then(|()| header.set_device_minor(rustix::fs::minor(rdev)))?;
        }
        header.set_cksum();
        self.records(EntryType::XHeader, &records)?;
        self.output.put(header.as_bytes())?;
        self.entries += 1;
        Ok(())
    }

    fn file(&mut self, entry: &Entry, size: u64, content: &mut dyn Content) -> Copied<()> {
        let ranges = ranges(content, size)?;
        let is_plain = match ranges.as_slice() {
            [] => size == 0,
            [only] => *only == (0..size),
            _ => false,
        };
        let data: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if is_plain {
            self.headers(entry, size, Vec::new())?;
        } else {
            let map = sparse_map(&ranges, size);
            let mut records = Vec::new();
            for (key, value) in [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")] {
                pax::put(&mut records, key.as_bytes(), value.as_bytes());
            }
            pax::put(&mut records, SPARSE_NAME.as_bytes(), &entry.path);
            pax::put(
                &mut records,
                SPARSE_SIZE.as_bytes(),
                size.to_string().as_bytes(),
            );
            self.headers(entry, map.len() as u64 + data, records)?;
            self.output.put(&map)?;
        }
        let mut ranges = Ranges {
            content,
            ranges: &ranges,
        };
        let written = each_piece(&mut ranges, |piece, _| self.output.put(piece))?;
        self.output.put(&[0; BLOCK][..padding(written)])
    }
}

/// Where the data of a file is.
fn ranges(content: &mut dyn Content, size: u64) -> Copied<Vec<Range<u64>>> {
    let mut found: Vec<Range<u64>> = Vec::new();
    let (mut at, mut hole_min) = (0, 1);
    while at < size
        && let Some(range) = content.next_data(at)?
    {
        if range.start >= size {
            break;
        }
        at = range.end;
        join(&mut found, range.start..range.end.min(size), hole_min);
        while found.len() > RANGES_MAX {
            hole_min *= 2;
            let all = std::mem::take(&mut found);
            all.into_iter()
                .for_each(|range| join(&mut found, range, hole_min));
        }
    }
    Ok(found)
}

/// Adds a range, to the one before it where the hole between is smaller than that.
fn join(ranges: &mut Vec<Range<u64>>, range: Range<u64>, hole_min: u64) {
    match ranges.last_mut() {
        Some(last) if range.start - last.end < hole_min => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// The map before the data of a sparse file: how many ranges, and the start and the length of each. A hole at the end
/// is told by an empty range behind it.
fn sparse_map(ranges: &[Range<u64>], size: u64) -> Vec<u8> {
    let has_hole_last = ranges.last().is_none_or(|last| last.end != size);
    let last = has_hole_last.then_some(size..size);
    let mut map = format!("{}\n", ranges.len() + usize::from(has_hole_last));
    for range in ranges.iter().chain(&last) {
        map.push_str(&format!("{}\n{}\n", range.start, range.end - range.start));
    }
    let mut map = map.into_bytes();
    map.resize(map.len() + padding(map.len() as u64), 0);
    map
}

/// Content with the ranges that were told.
struct Ranges<'a> {
    content: &'a mut dyn Content,
    ranges: &'a [Range<u64>],
}

impl Content for Ranges<'_> {
    fn next_data(&mut self, at: u64) -> Copied<Option<Range<u64>>> {
        while let Some((first, rest)) = self.ranges.split_first() {
            if first.end > at {
                return Ok(Some(first.start.max(at)..first.end));
            }
            self.ranges = rest;
        }
        Ok(None)
    }

    fn read_at(&mut self, buffer: &mut [u8], at: u64) -> Copied<usize> {
        self.content.read_at(buffer, at)
    }
}

impl Sink for Archive {
    fn enter(&mut self, entry: &Entry) -> Copied<()> {
        self.headers(entry, 0, Vec::new())
    }

    fn leave(&mut self, _: &Entry) -> Copied<Vec<String>> {
        Ok(Vec::new())
    }

    /// A file that cannot be read to its end is not in the backup. Of a pipe nothing can be taken back: there it is
    /// read once before.
    fn put(&mut self, entry: &Entry, content: &mut dyn Content) -> Copied<Vec<String>> {
        let Kind::File { size } = entry.kind else {
            self.headers(entry, 0, Vec::new())?;
            return Ok(Vec::new());
        };
        if !self.seekable {
            each_piece(content, |_, _| Ok(()))?;
        }
        let (len, hash, entries) = (self.output.len(), self.output.hash.clone(), self.entries);
        match self.file(entry, size, content) {
            Err(CopyError::One(message)) if self.seekable || self.output.len() == len => {
                self.output.cut(len, hash)?;
                self.entries = entries;
                Err(CopyError::One(message))
            }
            Err(CopyError::One(message)) => Err(CopyError::Ends(message)),
            written => written.map(|()| Vec::new()),
        }
    }
}
