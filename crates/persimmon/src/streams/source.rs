//! A snapshot of a volume as a source of a stream.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_engine::{Snapshot, StoredContent};
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::name::DirEntry;
use persimmon_format::version::Changes;
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId};
use persimmon_stream::{
    Attributes, Batch, Candidate, Content, Entry, Identity, Kind, Origin, Piece, PieceContent,
    Side, Source, SourceError, Time, Xattrs, find,
};
use persimmon_vfs::{Caller, Error, Vfs};

type Result<T> = std::result::Result<T, SourceError>;

/// Inodes or entries in one answer.
const BATCH: usize = 256;
/// Items looked at for one answer, found or not.
const LOOKED_AT: usize = 32 << 10;
/// Pieces in one answer.
const PIECES: usize = 256;

/// An entry as it is stored: item, inode, type, name.
type Stored = (u64, Ino, u8, Vec<u8>);

/// One of two snapshots.
struct End {
    id: SubvolumeId,
    taken: Timestamp,
}

/// A snapshot, and perhaps another one that the receiver has.
pub struct VolumeSource {
    vfs: Arc<Vfs>,
    origin: Origin,
    snapshot: End,
    base: Option<End>,
    /// What may differ between the two.
    changed: BTreeMap<Ino, Changes>,
}

fn identity(snapshot: &Snapshot) -> Identity {
    Identity {
        id: snapshot.id.0,
        taken: time(snapshot.created),
        name: snapshot.name.clone(),
    }
}

fn time(time: Timestamp) -> Time {
    Time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

impl End {
    fn new(identity: &Identity) -> End {
        End {
            id: SubvolumeId(identity.id),
            taken: Timestamp {
                seconds: identity.taken.seconds,
                nanoseconds: identity.taken.nanoseconds,
            },
        }
    }
}

/// What a receiver sees of an inode; none without a name.
fn attributes(inode: &Inode) -> Option<Attributes> {
    (inode.nlink > 0).then_some(Attributes {
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        rdev: inode.rdev,
        size: if inode.is_file() { inode.size } else { 0 },
        atime: time(inode.atime),
        mtime: time(inode.mtime),
    })
}

impl VolumeSource {
    /// The snapshot with a name, and what it has other than one with the name `from`.
    pub fn new(vfs: Arc<Vfs>, name: &[u8], from: Option<&[u8]>) -> Result<VolumeSource> {
        let all: Vec<(Identity, bool)> = vfs
            .snapshots()
            .iter()
            .map(|snapshot| (identity(snapshot), snapshot.is_read_only))
            .collect();
        let named = |name: &[u8]| find(all.iter().map(|(one, flag)| (one, *flag)), name);
        let origin = Origin {
            volume: vfs.volume().identity().uuid,
            snapshot: named(name)?,
            base: from.map(named).transpose()?,
        };
        VolumeSource::of(vfs, origin)
    }

    /// These snapshots, whatever they are called now.
    pub fn of(vfs: Arc<Vfs>, origin: Origin) -> Result<VolumeSource> {
        if origin
            .base
            .as_ref()
            .is_some_and(|base| base.is_same(&origin.snapshot))
        {
            return Err(SourceError::SameSnapshot);
        }
        let mut source = VolumeSource {
            snapshot: End::new(&origin.snapshot),
            base: origin.base.as_ref().map(End::new),
            vfs,
            origin,
            changed: BTreeMap::new(),
        };
        source.check_there()?;
        if let Some(base) = &source.base {
            let snapshots = source.vfs.volume().snapshots();
            let changed = snapshots.changed_parts(base.id, source.snapshot.id);
            source.changed = source.watch(changed)?;
            source.check_there()?;
        }
        Ok(source)
    }

    fn check_there(&self) -> Result<()> {
        let is_there = |end: &End| {
            let found = self.vfs.volume().snapshots().get(end.id);
            found.is_some_and(|found| found.created == end.taken && found.is_read_only)
        };
        let mut ends = self.base.iter().chain([&self.snapshot]);
        match self.vfs.volume().identity().uuid == self.origin.volume && ends.all(is_there) {
            true => Ok(()),
            false => Err(SourceError::Gone),
        }
    }

    /// An error, unless it comes from a snapshot that is gone.
    fn watch<T, E: Display>(&self, result: std::result::Result<T, E>) -> Result<T> {
        result.map_err(|error| match self.check_there() {
            Ok(()) => SourceError::Volume(error.to_string()),
            Err(gone) => gone,
        })
    }

    /// An inode on one side, if there is that side.
    fn on(&self, side: Side, ino: u64) -> Option<Ino> {
        let end = match side {
            Side::Base => self.base.as_ref()?,
            Side::Snapshot => &self.snapshot,
        };
        Some(Ino(ino).of(end.id))
    }

    fn attributes(&self, side: Side, ino: u64) -> Result<Option<Attributes>> {
        let Some(ino) = self.on(side, ino) else {
            return Ok(None);
        };
        let volume = self.vfs.volume();
        let inode = volume.view::<_, persimmon_engine::Error>(|view| view.inode(ino));
        Ok(self.watch(inode)?.as_ref().and_then(attributes))
    }

    fn candidate(&self, ino: u64) -> Result<Candidate> {
        Ok(Candidate {
            ino,
            base: self.attributes(Side::Base, ino)?,
            snapshot: self.attributes(Side::Snapshot, ino)?,
        })
    }

    /// Items of a kind, first and last, that may differ, from one on.
    fn ranges(&self, ino: u64, kind: KeyKind, from: u64) -> Result<Vec<(u64, u64)>> {
        let one = self.candidate(ino)?;
        if one.base.is_none() || one.snapshot.is_none() {
            return Ok(vec![(from, u64::MAX)]);
        }
        let changed = self.changed.get(&Ino(ino));
        let ranges = changed.map_or(&[][..], Changes::ranges).iter();
        let ranges = ranges.filter(|range| range.kind == kind && range.last >= from);
        Ok(ranges
            .map(|range| (range.first.max(from), range.last))
            .collect())
    }

    /// Stored entries of a directory in a range of items, at most so many.
    fn stored_entries(
        &self,
        dir: Ino,
        (first, last): (u64, u64),
        max: usize,
    ) -> Result<Vec<Stored>> {
        let start = Key::new(dir, KeyKind::DIR_ENTRY, first);
        let end = Key::new(dir, KeyKind::DIR_ENTRY, last);
        let mut found = Vec::new();
        let mut damage = None;
        let pick = |key: Key, value: &[u8]| {
            Some(match DirEntry::decode(value) {
                Ok(entry) if entry.has_possible_name() => {
                    Ok((key.item, entry.ino, entry.file_type, entry.name.to_vec()))
                }
                Ok(_) => Err("a name that no file can have".to_owned()),
                Err(error) => Err(error.to_string()),
            })
        };
        let walked = self.vfs.volume().walk_while(start..=end, pick, |entry| {
            if found.len() == max {
                return ControlFlow::Break(());
            }
            match entry {
                Ok(entry) => {
                    found.push(entry);
                    ControlFlow::Continue(())
                }
                Err(error) => {
                    damage = Some(format!(
                        "damage in directory {}: {error}; run `persimmon fsck`",
                        dir.plain()
                    ));
                    ControlFlow::Break(())
                }
            }
        });
        self.watch(walked)?;
        match damage {
            Some(damage) => Err(SourceError::Volume(damage)),
            None => Ok(found),
        }
    }

    fn target(&self, ino: Ino) -> Result<Vec<u8>> {
        let key = Key::new(ino, KeyKind::SYMLINK, 0);
        let view = self
            .vfs
            .volume()
            .view::<_, persimmon_engine::Error>(|view| Ok(view.get(&key)?.map(<[u8]>::to_vec)));
        self.watch(view)?.ok_or_else(|| {
            SourceError::Volume(format!(
                "symbolic link {} has no target; run `persimmon fsck`",
                ino.plain()
            ))
        })
    }

    /// What is told of an entry.
    fn entry(&self, side: Side, (item, ino, file_type, name): Stored) -> Result<Entry> {
        let kind = Kind::of_mode(u32::from(file_type) << 12).ok_or_else(|| {
            SourceError::Volume(format!(
                "inode {ino} has no type in its directory; run `persimmon fsck`"
            ))
        })?;
        let other = match side {
            Side::Base => Side::Snapshot,
            Side::Snapshot => Side::Base,
        };
        let mut entry = Entry {
            item,
            ino: ino.plain().0,
            kind,
            is_alone: self.attributes(other, ino.plain().0)?.is_none(),
            rdev: 0,
            name,
            target: Vec::new(),
        };
        if side == Side::Snapshot {
            match kind {
                Kind::Symlink => {
                    let link = self.on(side, entry.ino);
                    entry.target = link
                        .map(|link| self.target(link))
                        .transpose()?
                        .unwrap_or_default();
                }
                Kind::CharDevice | Kind::BlockDevice => {
                    let attributes = self.attributes(side, entry.ino)?;
                    entry.rdev = attributes.map_or(0, |known| known.rdev);
                }
                _ => {}
            }
        }
        Ok(entry)
    }

    /// Inodes that the snapshot has, from a number on.
    fn all_inodes(&self, from: u64, only_directories: bool) -> Result<Batch<Candidate>> {
        let first = Ino(from).of(self.snapshot.id);
        let end = Ino(Ino(0).of(self.snapshot.id).0 + Ino::END);
        let (mut items, mut next) = (Vec::new(), None);
        let mut looked_at = 0usize;
        let mut damage = None;
        let pick = |key: Key, value: &[u8]| {
            looked_at += 1;
            let is_long = looked_at.is_multiple_of(LOOKED_AT);
            let inode = (key.kind == KeyKind::INODE).then(|| Inode::decode(value));
            (is_long || inode.is_some()).then(|| (key.ino.plain().0, inode, is_long))
        };
        let range = Key::inode(first)..Key::new(end, KeyKind(0), 0);
        let walked = self
            .vfs
            .volume()
            .walk_while(range, pick, |(ino, inode, is_long)| {
                match inode {
                    Some(Ok(inode)) if inode.is_dir() || !only_directories => {
                        if let Some(snapshot) = attributes(&inode) {
                            items.push(Candidate {
                                ino,
                                base: None,
                                snapshot: Some(snapshot),
                            });
                        }
                    }
                    Some(Err(error)) => {
                        damage = Some(format!(
                            "damage in inode {ino}: {error}; run `persimmon fsck`"
                        ));
                        return ControlFlow::Break(());
                    }
                    _ => {}
                }
                if items.len() >= BATCH || is_long {
                    next = Some(ino + 1);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
        self.watch(walked)?;
        match damage {
            Some(damage) => Err(SourceError::Volume(damage)),
            None => Ok(Batch { items, next }),
        }
    }

    /// Inodes that may differ, from a number on.
    fn changed_inodes(&self, from: u64, only_directories: bool) -> Result<Batch<Candidate>> {
        let mut batch = Batch {
            items: Vec::new(),
            next: None,
        };
        for (count, ino) in self
            .changed
            .range(Ino(from)..)
            .map(|(ino, _)| ino.0)
            .enumerate()
        {
            if count == LOOKED_AT || batch.items.len() == BATCH {
                batch.next = Some(ino);
                break;
            }
            let candidate = self.candidate(ino)?;
            let is_directory =
                |known: &Attributes| Kind::of_mode(known.mode) == Some(Kind::Directory);
            let known = candidate.snapshot.as_ref().or(candidate.base.as_ref());
            if known.is_some_and(|known| !only_directories || is_directory(known)) {
                batch.items.push(candidate);
            }
        }
        Ok(batch)
    }
}

impl Source for VolumeSource {
    fn origin(&self) -> &Origin {
        &self.origin
    }

    fn check(&mut self) -> Result<()> {
        self.check_there()
    }

    fn inodes(&mut self, from: u64, only_directories: bool) -> Result<Batch<Candidate>> {
        match self.base {
            Some(_) => self.changed_inodes(from, only_directories),
            None => self.all_inodes(from, only_directories),
        }
    }

    fn entries(&mut self, side: Side, dir: u64, from: u64) -> Result<Batch<Entry>> {
        let mut batch = Batch {
            items: Vec::new(),
            next: None,
        };
        let Some(on_side) = self.on(side, dir) else {
            return Ok(batch);
        };
        for (first, last) in self.ranges(dir, KeyKind::DIR_ENTRY, from)? {
            let left = BATCH - batch.items.len();
            if left == 0 {
                batch.next = Some(first);
                break;
            }
            let found = self.stored_entries(on_side, (first, last), left)?;
            let is_full = found.len() == left;
            for entry in found {
                batch.items.push(self.entry(side, entry)?);
            }
            if is_full {
                let item = batch.items.last().map_or(last, |entry| entry.item);
                batch.next = item.checked_add(1);
                break;
            }
        }
        Ok(batch)
    }

    fn lookup(&mut self, side: Side, dir: u64, name: &[u8]) -> Result<Option<(u64, bool)>> {
        let Some(dir) = self.on(side, dir) else {
            return Ok(None);
        };
        match self.vfs.lookup(dir, name) {
            Ok(found) => {
                let is_directory = found.kind() == persimmon_vfs::FileKind::Directory;
                Ok(Some((found.ino.plain().0, is_directory)))
            }
            Err(Error::NotFound) => Ok(None),
            Err(error) => self.watch(Err(error)),
        }
    }

    fn list(&mut self, side: Side, dir: u64, from: u64) -> Result<Batch<(u64, bool)>> {
        let Some(dir) = self.on(side, dir) else {
            return Ok(Batch {
                items: Vec::new(),
                next: None,
            });
        };
        let found = self.stored_entries(dir, (from, u64::MAX), BATCH)?;
        let last = found.last().filter(|_| found.len() == BATCH);
        let next = last.and_then(|(item, ..)| item.checked_add(1));
        let is_directory = |file_type: u8| u32::from(file_type) << 12 == libc::S_IFDIR;
        let items = found
            .iter()
            .map(|(_, ino, file_type, _)| (ino.plain().0, is_directory(*file_type)))
            .collect();
        Ok(Batch { items, next })
    }

    fn xattrs(&mut self, side: Side, ino: u64) -> Result<Xattrs> {
        let Some(ino) = self.on(side, ino) else {
            return Ok(Vec::new());
        };
        let names = self.watch(self.vfs.listxattr(&Caller::root(), ino))?;
        let mut found = Vec::new();
        for name in names
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty())
        {
            match self.vfs.getxattr(ino, name) {
                Ok(value) => found.push((name.to_vec(), value)),
                Err(Error::NoAttribute) => {}
                Err(error) => return self.watch(Err(error)),
            }
        }
        found.sort();
        Ok(found)
    }

    fn content(&mut self, ino: u64, from: u64) -> Result<Content> {
        let one = self.candidate(ino)?;
        let base = self.base.as_ref().map(|base| base.id);
        let base = base.filter(|_| one.base.is_some());
        let mut content = Content {
            items: Vec::new(),
            next: None,
        };
        for (first, last) in self.ranges(ino, KeyKind::EXTENT, from)? {
            if content.items.len() >= PIECES {
                content.next = Some(first);
                break;
            }
            let blocks = (first, last.saturating_add(1));
            let ino = Ino(ino).of(self.snapshot.id);
            let look = self.vfs.volume().snapshots().stored(base, ino, blocks);
            let look = self.watch(look)?;
            content
                .items
                .extend(look.pieces.into_iter().map(|piece| Piece {
                    block: piece.block,
                    blocks: piece.blocks,
                    content: match piece.content {
                        StoredContent::Hole => PieceContent::Hole,
                        StoredContent::Plain(bytes) => PieceContent::Plain(bytes),
                        StoredContent::Frame { frame, skip, bytes } => PieceContent::Frame {
                            codec: frame.codec,
                            frame_blocks: frame.blocks,
                            skip,
                            bytes,
                        },
                    },
                }));
            // A range that is not at its end may have brought much.
            if look.next.is_some() {
                content.next = look.next;
                break;
            }
        }
        Ok(content)
    }
}
