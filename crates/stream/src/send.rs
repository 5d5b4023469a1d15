//! The sender: tells what a snapshot has, or what it has other than its base, in stages. Each stage goes through the inodes by their numbers,
//! so a cursor of three numbers says where it is.

use std::collections::HashSet;
use std::io::Write;

use crate::STATE_DIRECTORY;
use crate::error::SendError;
use crate::frames::FrameWriter;
use crate::record::{PLAIN_MAX, Record};
use crate::source::{Candidate, Entry, PieceContent, Side, Source, SourceError};
use crate::wire::{Cursor, Identity, Kind, Origin, Position, ROOT, Stage};

/// A stream can go on after at most so many records, or bytes.
const MARK_RECORDS: u64 = 1024;
const MARK_BYTES: u64 = 1 << 20;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Records, those before a resumption among them.
    pub records: u64,
    /// Bytes of file content, those before a resumption among them.
    pub content_bytes: u64,
    /// Bytes of the stream, this time.
    pub stream_bytes: u64,
}

/// How to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct SendOptions<'a> {
    /// Where to go on.
    pub resume: Option<&'a (Origin, Position)>,
    /// Compressed frames are decompressed.
    pub plain: bool,
}

/// Writes the stream of a snapshot. `progress` is told of what was sent from time to time.
///
/// # Errors
/// Then the stream has no end record, so that no receiver takes it for whole.
pub fn send<S: Source>(
    source: &mut S,
    out: impl Write,
    options: &SendOptions<'_>,
    mut progress: impl FnMut(&Sent),
) -> Result<Sent, SendError> {
    let origin = source.origin().clone();
    let resume = match options.resume {
        None => None,
        Some((of, position)) if of.is_same(&origin) => Some(position),
        Some(_) => return Err(SendError::OtherToken),
    };
    source.check()?;
    let hidden = hidden(source)?;
    let frames = FrameWriter::new(out, &origin, resume).map_err(SendError::Write)?;
    let mut sender = Sender {
        source,
        frames,
        hidden,
        is_plain: options.plain,
        is_incremental: origin.base.is_some(),
        marked: Marked::default(),
        progress: &mut progress,
    };
    sender.run(resume)?;
    let stream_bytes = sender.frames.bytes();
    sender.source.check()?;
    let (_, position) = sender.frames.end().map_err(SendError::Write)?;
    Ok(Sent {
        records: position.sequence,
        content_bytes: position.content_bytes,
        stream_bytes,
    })
}

/// The snapshot with this name among those that there are, which must be read-only.
pub fn find<'a>(
    all: impl IntoIterator<Item = (&'a Identity, bool)>,
    name: &[u8],
) -> Result<Identity, SourceError> {
    let shown = || persimmon_format::shown(name).to_string();
    let mut all = all.into_iter();
    match all.find(|(identity, _)| identity.name == name) {
        None => Err(SourceError::NoSnapshot(shown())),
        Some((_, false)) => Err(SourceError::Writable(shown())),
        Some((identity, true)) => Ok(identity.clone()),
    }
}

/// Inodes of what a receiver keeps in the root of what it received: they are not sent on.
fn hidden<S: Source>(source: &mut S) -> Result<HashSet<u64>, SendError> {
    let mut hidden = HashSet::new();
    let sides: &[Side] = match source.origin().base {
        Some(_) => &[Side::Base, Side::Snapshot],
        None => &[Side::Snapshot],
    };
    for side in sides {
        let Some((top, true)) = source.lookup(*side, ROOT, STATE_DIRECTORY)? else {
            continue;
        };
        let mut left = vec![top];
        while let Some(dir) = left.pop() {
            hidden.insert(dir);
            let mut from = Some(0);
            while let Some(at) = from {
                let batch = source.list(*side, dir, at)?;
                for (ino, is_directory) in batch.items {
                    match is_directory {
                        true => left.push(ino),
                        false => {
                            hidden.insert(ino);
                        }
                    }
                }
                from = batch.next;
            }
        }
    }
    Ok(hidden)
}

/// What was sent since a stream could go on.
#[derive(Default)]
struct Marked {
    records: u64,
    bytes: u64,
}

struct Sender<'s, S, W> {
    source: &'s mut S,
    frames: FrameWriter<W>,
    hidden: HashSet<u64>,
    is_plain: bool,
    is_incremental: bool,
    marked: Marked,
    progress: &'s mut dyn FnMut(&Sent),
}

/// Entries of a directory, one after the other.
struct Entries {
    side: Side,
    dir: u64,
    batch: std::vec::IntoIter<Entry>,
    next: Option<u64>,
    head: Option<Entry>,
}

impl Entries {
    fn new(side: Side, dir: u64, from: Option<u64>) -> Entries {
        Entries {
            side,
            dir,
            batch: Vec::new().into_iter(),
            next: from,
            head: None,
        }
    }

    fn peek<S: Source>(&mut self, source: &mut S) -> Result<Option<&Entry>, SourceError> {
        while self.head.is_none() {
            self.head = self.batch.next();
            if self.head.is_none() {
                let Some(from) = self.next else { break };
                let batch = source.entries(self.side, self.dir, from)?;
                self.batch = batch.items.into_iter();
                self.next = batch.next;
            }
        }
        Ok(self.head.as_ref())
    }
}

/// An entry on one side, and perhaps that in its place on the other.
struct Pair {
    base: Option<Entry>,
    snapshot: Option<Entry>,
}

impl Pair {
    fn item(&self) -> u64 {
        let entry = self.base.as_ref().or(self.snapshot.as_ref());
        entry.map_or(0, |entry| entry.item)
    }

    fn is_same(&self) -> bool {
        match (&self.base, &self.snapshot) {
            (Some(base), Some(snapshot)) => {
                (base.ino, &base.name) == (snapshot.ino, &snapshot.name)
            }
            _ => false,
        }
    }
}

impl<S: Source, W: Write> Sender<'_, S, W> {
    fn run(&mut self, resume: Option<&Position>) -> Result<(), SendError> {
        let resumed = resume.map(|position| position.cursor);
        for stage in Stage::ALL {
            let start = match resumed {
                Some(cursor) if cursor.stage > stage => continue,
                Some(cursor) if cursor.stage == stage => cursor,
                _ => {
                    let start = Cursor {
                        stage,
                        ino: 0,
                        at: 0,
                    };
                    self.mark(start, true)?;
                    start
                }
            };
            self.stage(start)?;
        }
        Ok(())
    }

    fn stage(&mut self, start: Cursor) -> Result<(), SendError> {
        let stage = start.stage;
        if !self.is_incremental && stage <= Stage::RemoveDirectories {
            return Ok(());
        }
        let only_directories = stage != Stage::Files;
        let mut from = Some(start.ino);
        while let Some(ino) = from {
            let batch = self.source.inodes(ino, only_directories)?;
            for candidate in batch.items {
                let ino = candidate.ino;
                if self.hidden.contains(&ino) {
                    continue;
                }
                let at = if ino == start.ino { start.at } else { 0 };
                self.candidate(stage, &candidate, at)?;
                self.mark_if_due(Cursor {
                    stage,
                    ino: ino + 1,
                    at: 0,
                })?;
            }
            from = batch.next;
        }
        Ok(())
    }

    fn candidate(&mut self, stage: Stage, candidate: &Candidate, at: u64) -> Result<(), SendError> {
        let ino = candidate.ino;
        let attributes = candidate.snapshot.or(candidate.base);
        let is_directory =
            attributes.map(|known| Kind::of_mode(known.mode)) == Some(Some(Kind::Directory));
        match stage {
            Stage::Files if !is_directory => self.file(candidate, at),
            _ if !is_directory => Ok(()),
            Stage::Remove if candidate.base.is_some() => self.each_entry(stage, candidate, at),
            Stage::RemoveDirectories if candidate.snapshot.is_none() => {
                self.write(&Record::RemoveDirectory { ino })
            }
            Stage::MakeDirectories if candidate.base.is_none() && ino != ROOT => {
                self.write(&Record::MakeDirectory { ino })
            }
            Stage::DirectoryNames | Stage::FileNames if candidate.snapshot.is_some() => {
                self.each_entry(stage, candidate, at)
            }
            Stage::Directories if candidate.snapshot.is_some() => self.attributes(candidate),
            _ => Ok(()),
        }
    }

    /// Tells how the entries of a directory differ, as far as a stage has to do with them.
    fn each_entry(
        &mut self,
        stage: Stage,
        candidate: &Candidate,
        at: u64,
    ) -> Result<(), SendError> {
        let dir = candidate.ino;
        let mut base = Entries::new(Side::Base, dir, candidate.base.map(|_| at));
        let mut snapshot = Entries::new(Side::Snapshot, dir, candidate.snapshot.map(|_| at));
        loop {
            let items = [
                base.peek(self.source)?.map(|entry| entry.item),
                snapshot.peek(self.source)?.map(|entry| entry.item),
            ];
            let Some(item) = items.into_iter().flatten().min() else {
                return Ok(());
            };
            let pair = Pair {
                base: base.head.take_if(|entry| entry.item == item),
                snapshot: snapshot.head.take_if(|entry| entry.item == item),
            };
            let next = pair.item().saturating_add(1);
            if !pair.is_same() {
                self.entry(stage, dir, pair)?;
            }
            self.mark_if_due(Cursor {
                stage,
                ino: dir,
                at: next,
            })?;
        }
    }

    fn entry(&mut self, stage: Stage, dir: u64, pair: Pair) -> Result<(), SendError> {
        if let (Stage::Remove, Some(entry)) = (stage, &pair.base)
            && !self.hidden.contains(&entry.ino)
        {
            self.write(&Record::Remove {
                dir,
                ino: entry.ino,
                is_gone: entry.is_alone,
                name: entry.name.clone(),
            })?;
        }
        let wanted = match stage {
            Stage::DirectoryNames => true,
            Stage::FileNames => false,
            _ => return Ok(()),
        };
        if let Some(entry) = pair.snapshot
            && (entry.kind == Kind::Directory) == wanted
            && !self.hidden.contains(&entry.ino)
        {
            self.write(&Record::Name {
                dir,
                ino: entry.ino,
                kind: entry.kind,
                rdev: entry.rdev,
                name: entry.name,
                target: entry.target,
            })?;
        }
        Ok(())
    }

    /// Tells content and attributes of what is no directory.
    fn file(&mut self, candidate: &Candidate, at: u64) -> Result<(), SendError> {
        let Some(attributes) = candidate.snapshot else {
            return Ok(());
        };
        let ino = candidate.ino;
        if Kind::of_mode(attributes.mode) == Some(Kind::Regular) {
            // Begun before the stream was cut.
            let mut has_changed = at > 0;
            let mut from = Some(at);
            while let Some(block) = from {
                let content = self.source.content(ino, block)?;
                for piece in content.items {
                    // A new file is a hole.
                    if piece.content == PieceContent::Hole && candidate.base.is_none() {
                        continue;
                    }
                    has_changed = true;
                    self.piece(ino, piece.block, piece.blocks, piece.content)?;
                    let at = piece.block + piece.blocks;
                    let stage = Stage::Files;
                    self.mark_if_due(Cursor { stage, ino, at })?;
                }
                from = content.next;
            }
            let size = attributes.size;
            if has_changed || candidate.base.map_or(0, |base| base.size) != size {
                self.write(&Record::Size { ino, size })?;
            } else if candidate.base == candidate.snapshot && !self.differ_xattrs(ino)? {
                return Ok(());
            }
        } else if candidate.base == candidate.snapshot && !self.differ_xattrs(ino)? {
            return Ok(());
        }
        self.attributes(candidate)
    }

    fn differ_xattrs(&mut self, ino: u64) -> Result<bool, SendError> {
        let base = self.source.xattrs(Side::Base, ino)?;
        Ok(base != self.source.xattrs(Side::Snapshot, ino)?)
    }

    fn piece(
        &mut self,
        ino: u64,
        block: u64,
        blocks: u64,
        content: PieceContent,
    ) -> Result<(), SendError> {
        match content {
            PieceContent::Hole => self.write(&Record::Hole { ino, block, blocks }),
            PieceContent::Plain(bytes) => self.plain(ino, block, &bytes),
            PieceContent::Frame {
                codec,
                frame_blocks,
                skip,
                bytes,
            } => {
                if self.is_plain {
                    let whole = codec.decompress(&bytes, frame_blocks.into(), &[]);
                    let from = usize::from(skip) * persimmon_format::BLOCK_SIZE;
                    let len = blocks as usize * persimmon_format::BLOCK_SIZE;
                    let part = whole
                        .as_deref()
                        .and_then(|whole| whole.get(from..from + len));
                    let part = part.ok_or_else(|| {
                        SourceError::Volume(format!("inode {ino}: block {block} is damaged"))
                    })?;
                    return self.plain(ino, block, part);
                }
                self.write(&Record::Frame {
                    ino,
                    block,
                    codec,
                    frame_blocks,
                    skip,
                    blocks: blocks as u8,
                    bytes,
                })
            }
        }
    }

    fn plain(&mut self, ino: u64, block: u64, bytes: &[u8]) -> Result<(), SendError> {
        let blocks = (PLAIN_MAX / persimmon_format::BLOCK_SIZE) as u64;
        for (number, bytes) in (0..).zip(bytes.chunks(PLAIN_MAX)) {
            self.write(&Record::Plain {
                ino,
                block: block + number * blocks,
                bytes: bytes.to_vec(),
            })?;
        }
        Ok(())
    }

    /// Tells owner, extended attributes, permissions and times: all of them, since each changes others where they are set.
    fn attributes(&mut self, candidate: &Candidate) -> Result<(), SendError> {
        let ino = candidate.ino;
        let Some(attributes) = candidate.snapshot else {
            return Ok(());
        };
        let (uid, gid) = (attributes.uid, attributes.gid);
        self.write(&Record::Owner { ino, uid, gid })?;
        let before = match candidate.base {
            Some(_) => self.source.xattrs(Side::Base, ino)?,
            None => Vec::new(),
        };
        let now = self.source.xattrs(Side::Snapshot, ino)?;
        for (name, _) in before {
            if !now.iter().any(|(kept, _)| *kept == name) {
                self.write(&Record::RemoveXattr { ino, name })?;
            }
        }
        for (name, value) in now {
            self.write(&Record::SetXattr { ino, name, value })?;
        }
        self.write(&Record::Permissions {
            ino,
            mode: attributes.mode & 0o7777,
            atime: attributes.atime,
            mtime: attributes.mtime,
        })
    }

    fn write(&mut self, record: &Record) -> Result<(), SendError> {
        let before = self.frames.bytes();
        self.frames.write(record).map_err(SendError::Write)?;
        self.marked.records += 1;
        self.marked.bytes += self.frames.bytes() - before;
        Ok(())
    }

    fn mark_if_due(&mut self, cursor: Cursor) -> Result<(), SendError> {
        if self.marked.records >= MARK_RECORDS || self.marked.bytes >= MARK_BYTES {
            self.mark(cursor, false)?;
        }
        Ok(())
    }

    fn mark(&mut self, cursor: Cursor, is_barrier: bool) -> Result<(), SendError> {
        self.source.check()?;
        self.write(&Record::Mark { is_barrier, cursor })?;
        self.marked = Marked::default();
        let position = self.frames.position();
        (self.progress)(&Sent {
            records: position.sequence,
            content_bytes: position.content_bytes,
            stream_bytes: self.frames.bytes(),
        });
        Ok(())
    }
}
