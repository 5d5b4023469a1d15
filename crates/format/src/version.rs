//! Subvolumes and versions: how one tree holds a filesystem as it is now, and as it was when snapshots of it were taken.
//!
//! Each item has the number of a **version**. Versions are a tree; what a version shows is what it and its ancestors have, and of
//! several items at one place the one of the nearest ancestor. A **subvolume** is a filesystem that one can look at: the main one, or a
//! snapshot. It shows one version, and what it writes becomes items of that one. Taking a snapshot leaves the version of the subvolume to
//! the snapshot, and gives the subvolume a new one below it.

use crate::codec::{Put, Reader};
use crate::inode::Timestamp;
use crate::{KeyKind, Result, SubvolumeId, VersionId};

/// Longest name of a snapshot, bytes.
pub const SNAPSHOT_NAME_MAX: usize = 255;
/// Ranges of numbers that a version may have taken over.
pub const ABSORBED_RANGES_MAX: usize = 256;
/// Ranges in which a version tells where it changed an inode.
pub const CHANGED_RANGES_MAX: usize = 8;

/// The value of an item, not an extent, which says that nothing is here, whatever ancestors have.
pub const WHITEOUT: [u8; 1] = [0];

/// The value of a key of kind [`KeyKind::SUBVOLUME`], whose item is the subvolume's number. Bytes: version 0..4, flags 4 (1 read-only),
/// origin 5..7, time 7..19, name 19...
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// What it shows.
    pub version: VersionId,
    /// Nothing in it is ever changed.
    pub is_read_only: bool,
    /// Of which subvolume it is a snapshot.
    pub origin: SubvolumeId,
    /// When it was made.
    pub created: Timestamp,
    /// Its name; the main subvolume has none.
    pub name: Vec<u8>,
}

impl Subvolume {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(19 + self.name.len());
        out.put_u32(self.version.0);
        out.put_u8(self.is_read_only.into());
        out.put_u16(self.origin.0);
        self.created.put(&mut out);
        out.put(&self.name);
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Subvolume> {
        let mut r = Reader::new(bytes, "subvolume");
        let version = VersionId(r.u32()?);
        let flags = r.u8()?;
        if flags > 1 {
            return Err(r.bad("flags", flags.into()));
        }
        let origin = SubvolumeId(r.u16()?);
        let created = Timestamp::read(&mut r)?;
        let name = r.bytes(r.remaining())?;
        if name.len() > SNAPSHOT_NAME_MAX {
            return Err(r.bad("length of the name", name.len() as u64));
        }
        if !name.is_empty() && !is_snapshot_name(name) {
            return Err(r.bad("name", name.len() as u64));
        }
        Ok(Subvolume {
            version,
            is_read_only: flags & 1 != 0,
            origin,
            created,
            name: name.to_vec(),
        })
    }
}

/// Whether a snapshot may be named so: as a file may.
#[must_use]
pub fn is_snapshot_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..")
        && name.len() <= SNAPSHOT_NAME_MAX
        && !name.contains(&0)
        && !name.contains(&b'/')
}

/// Numbers from the first to the last, both included.
pub type NumberRange = (u32, u32);

/// The value of a key of kind [`KeyKind::VERSION`], whose item is the version's number. Bytes: flags 0 (1 there is a parent, 2 discarded, 4
/// unsettled), parent 1..5 (0 if there is none), first inode 5..13, then each range of absorbed numbers, ascending: first, last (u32).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The version below which it is.
    pub parent: Option<VersionId>,
    /// Nothing shows it any more, and its items are being removed.
    pub is_discarded: bool,
    /// It absorbed a version, and there may still be several items of it at one place.
    pub is_unsettled: bool,
    /// Inodes with numbers from here on were made in it, or later.
    pub first_ino: u64,
    /// Versions that nothing shows any more and that had this one alone below them: their items are its own.
    pub absorbed: Vec<NumberRange>,
}

const HAS_PARENT: u8 = 1;
const DISCARDED: u8 = 2;
const UNSETTLED: u8 = 4;

impl Version {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(13 + 8 * self.absorbed.len());
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        out.put_u8(
            flag(self.parent.is_some(), HAS_PARENT)
                | flag(self.is_discarded, DISCARDED)
                | flag(self.is_unsettled, UNSETTLED),
        );
        out.put_u32(self.parent.map_or(0, |parent| parent.0));
        out.put_u64(self.first_ino);
        for (first, last) in &self.absorbed {
            out.put_u32(*first);
            out.put_u32(*last);
        }
        out
    }

    /// As read, under this number. A parent is older, and so is what was absorbed.
    pub fn decode(number: VersionId, bytes: &[u8]) -> Result<Version> {
        let mut r = Reader::new(bytes, "version");
        let flags = r.u8()?;
        if flags > (HAS_PARENT | DISCARDED | UNSETTLED) {
            return Err(r.bad("flags", flags.into()));
        }
        let parent = r.u32()?;
        let parent = (flags & HAS_PARENT != 0).then_some(VersionId(parent));
        if let Some(parent) = parent.filter(|parent| *parent >= number) {
            return Err(r.bad("parent", parent.0.into()));
        }
        let first_ino = r.u64()?;
        let count = r.remaining() / 8;
        if count > ABSORBED_RANGES_MAX {
            return Err(r.bad("ranges", count as u64));
        }
        let mut absorbed: Vec<NumberRange> = Vec::with_capacity(count);
        for _ in 0..count {
            let (first, last) = (r.u32()?, r.u32()?);
            let behind = absorbed.last().is_none_or(|(_, before)| *before < first);
            if !behind || first > last || last >= number.0 {
                return Err(r.bad("absorbed version", first.into()));
            }
            absorbed.push((first, last));
        }
        r.end()?;
        Ok(Version {
            parent,
            is_discarded: flags & DISCARDED != 0,
            is_unsettled: flags & UNSETTLED != 0,
            first_ino,
            absorbed,
        })
    }
}

/// A part of an inode's items: those of one kind, from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedRange {
    /// Their kind.
    pub kind: KeyKind,
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

/// The value of a key of kind [`KeyKind::CHANGES`]: where a version may have items of an inode that is older, beside the inode itself. Bytes:
/// each range, in the order of the tree: kind (u8), first and last item (u64).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    ranges: Vec<ChangedRange>,
}

impl Changes {
    /// The ranges, in the order of the tree; they do not overlap.
    #[must_use]
    pub fn ranges(&self) -> &[ChangedRange] {
        &self.ranges
    }

    /// Whether all of a range is in it.
    #[must_use]
    pub fn covers(&self, range: ChangedRange) -> bool {
        range.kind == KeyKind::INODE
            || self.ranges.iter().any(|known| {
                known.kind == range.kind && known.first <= range.first && range.last <= known.last
            })
    }

    /// Adds a range. Where they become too many, those of one kind that are nearest to each other become one.
    pub fn add(&mut self, range: ChangedRange) {
        if self.covers(range) {
            return;
        }
        self.ranges.push(range);
        self.ranges.sort_by_key(|range| (range.kind, range.first));
        let mut joined: Vec<ChangedRange> = Vec::with_capacity(self.ranges.len());
        for range in self.ranges.drain(..) {
            match joined.last_mut() {
                Some(before)
                    if before.kind == range.kind
                        && range.first <= before.last.saturating_add(1) =>
                {
                    before.last = before.last.max(range.last);
                }
                _ => joined.push(range),
            }
        }
        while joined.len() > CHANGED_RANGES_MAX {
            let gaps = joined.windows(2).enumerate().filter_map(|(at, pair)| {
                let gap = pair[1].first.saturating_sub(pair[0].last);
                (pair[0].kind == pair[1].kind).then_some((gap, at))
            });
            let Some((_, at)) = gaps.min() else { break };
            joined[at].last = joined[at + 1].last;
            joined.remove(at + 1);
        }
        self.ranges = joined;
    }

    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(17 * self.ranges.len());
        for range in &self.ranges {
            out.put_u8(range.kind.0);
            out.put_u64(range.first);
            out.put_u64(range.last);
        }
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Changes> {
        let mut r = Reader::new(bytes, "changes");
        let mut ranges: Vec<ChangedRange> = Vec::new();
        while !r.is_empty() {
            let (kind, first, last) = (KeyKind(r.u8()?), r.u64()?, r.u64()?);
            let behind = ranges
                .last()
                .is_none_or(|before| (before.kind, before.last) < (kind, first));
            if !behind || first > last {
                return Err(r.bad("range", first));
            }
            if !(KeyKind::XATTR..=KeyKind::TRUNCATION).contains(&kind) {
                return Err(r.bad("kind", kind.0.into()));
            }
            if ranges.len() == CHANGED_RANGES_MAX {
                return Err(r.bad("ranges", ranges.len() as u64));
            }
            ranges.push(ChangedRange { kind, first, last });
        }
        Ok(Changes { ranges })
    }
}
