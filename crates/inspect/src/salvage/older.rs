//! What an older version of a lost leaf says of something that changed since: it is there, and it is not the present.
//!
//! What the tree has in a range that an older leaf stands in for is as of an earlier checkpoint, and what lies in other leaves may be newer.
//! Where the two contradict each other the newer counts, and what would discard something does so only as far as the newer agrees.

use std::ops::ControlFlow;
use std::rc::Rc;

use persimmon_format::delta::is_delta;
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::inode::{Inode, SIZE_MAX};
use persimmon_format::{BLOCK_SIZE, Ino, Key, KeyKind};

use super::content::Content;
use super::forest::{Instead, LostRange};
use crate::state::{At, Scope};

const BLOCK: u64 = BLOCK_SIZE as u64;

impl Content<'_, '_> {
    /// The earlier checkpoint as of which a place of the tree is there, if it is. What the journal changed there is newer.
    pub(crate) fn older(&self, key: &Key) -> Option<u64> {
        self.lost_at(key).find_map(|lost| match lost.instead {
            Instead::Older(checkpoint) => Some(checkpoint),
            Instead::Nothing | Instead::Leaves(_) => None,
        })
    }

    /// Whether an item that is put and deleted as a whole may be one that was deleted since: it is as of an earlier checkpoint, and the journal
    /// did not put it.
    #[must_use]
    pub fn may_be_stale(&self, key: &Key) -> bool {
        self.older(key).is_some() && !self.state().is_changed(key)
    }

    /// Of an extent with this key the blocks that no newer one covers, from the first to behind the last; the extent before it ends at block
    /// `before`. One as of an earlier checkpoint may reach over newer ones: its leaf was split since, and what it covers was written anew.
    #[must_use]
    pub fn not_newer(&self, key: &Key, extent: &Extent, before: u64) -> (u64, u64) {
        let end = key.item.saturating_add(extent.blocks());
        if is_delta(key.item) || self.older(key).is_none() {
            return (key.item, end);
        }
        (
            key.item.max(before),
            self.newer_from(key, end).unwrap_or(end),
        )
    }

    /// Where the first newer extent begins that an older one with this key reaches into, which ends at block `end`.
    fn newer_from(&self, key: &Key, end: u64) -> Option<u64> {
        let is_older = |lost: &&LostRange| matches!(lost.instead, Instead::Older(_));
        let since = self.older(key)?;
        // What is in the same leaf does not contradict it.
        let high = self.lost_at(key).find(is_older)?.high?;
        if (high.ino, high.kind) != (key.ino, KeyKind::EXTENT) || high.item >= end {
            return None;
        }
        let from = Key::extent(key.ino, high.item.max(key.item.saturating_add(1)));
        let mut found = None;
        let _ = self.state().scan(from, &mut |other, _| {
            if (other.ino, other.kind) != (key.ino, KeyKind::EXTENT) || other.item >= end {
                return ControlFlow::Break(());
            }
            if self.older(&other).is_some_and(|other| other <= since) {
                return ControlFlow::Continue(());
            }
            found = Some(other.item);
            ControlFlow::Break(())
        });
        found
    }

    /// The size in bytes of an inode that is stored under this key. One as of an earlier checkpoint does not know of what was written since
    /// past its end: the extents do.
    #[must_use]
    pub fn size_of(&self, key: &Key, inode: &Inode) -> u64 {
        let scope = match self.is_versioned() {
            true => self.state().versions().scope(key.version),
            false => self.scope(),
        };
        self.size_in(scope, key, inode)
    }

    /// The same of an inode as it is shown.
    #[must_use]
    pub fn size_shown(&self, ino: Ino, inode: &Inode) -> u64 {
        let scope = self.scope();
        match self.state().shown(&scope, &Key::inode(ino)) {
            Some((number, _)) => self.size_in(scope, &Key::inode(ino).at(number), inode),
            None => inode.size,
        }
    }

    fn size_in(&self, scope: Rc<Scope>, key: &Key, inode: &Inode) -> u64 {
        let Some(since) = self.older(key).filter(|_| inode.is_file()) else {
            return inode.size;
        };
        // A truncation that is under way frees what lies behind its blocks.
        let kept = self.kept_by_truncation(&scope, key.ino);
        let at = At {
            ino: key.ino,
            scope,
        };
        let is_newer = |key: &Key| self.older(key).is_none_or(|extent| extent > since);
        let end = self.end_of_data(&at, &is_newer).min(kept).min(SIZE_MAX);
        // In the last block it is the inode that knows.
        match end.div_ceil(BLOCK) > inode.size.div_ceil(BLOCK) {
            true => end,
            false => inode.size,
        }
    }

    /// Bytes of a file that a truncation leaves which was under way at last: all, if none was.
    fn kept_by_truncation(&self, scope: &Scope, ino: Ino) -> u64 {
        let record = Key::truncation(ino);
        let Some((number, value)) = self.state().shown(scope, &record) else {
            return u64::MAX;
        };
        match value.first_chunk() {
            Some(keep) if !self.may_be_stale(&record.at(number)) => {
                u64::from_le_bytes(*keep).saturating_mul(BLOCK)
            }
            _ => u64::MAX,
        }
    }

    /// Where data ends that a file has by extents that count, in bytes: what is set aside is none.
    fn end_of_data(&self, at: &At, counts: &dyn Fn(&Key) -> bool) -> u64 {
        let mut behind = FILE_BLOCKS_END;
        while let Some(last) = behind.checked_sub(1)
            && let Some((key, value)) = self.floor_in(at, KeyKind::EXTENT, last)
        {
            if let Ok(extent) = Extent::decode(&value)
                && !matches!(extent, Extent::Reserved { .. } | Extent::Hole { .. })
                && counts(&key)
            {
                return end_in_bytes(key.item, &extent);
            }
            behind = key.item;
        }
        0
    }

    /// The size in bytes of a file that lost its inode: where its last extent ends.
    #[must_use]
    pub fn end_of_extents(&self, ino: Ino) -> u64 {
        let last = self.extent_before(Key::extent(ino, FILE_BLOCKS_END - 1));
        let last = last.and_then(|(first, value)| Some((first, Extent::decode(&value).ok()?)));
        last.map_or(0, |(first, extent)| end_in_bytes(first, &extent))
    }

    /// Blocks that a truncation leaves whose record may be one of the past, with this key and value: of a file as it is now none of its blocks goes.
    /// Nothing where the file is not known.
    #[must_use]
    pub fn kept_at_least(&self, record: &Key, keep: u64) -> Option<u64> {
        let ino = Ino(record.item);
        let scope = match self.is_versioned() {
            true => self.state().versions().scope(record.version),
            false => self.scope(),
        };
        let (number, value) = self.state().shown(&scope, &Key::inode(ino))?;
        let inode = Inode::decode(&value).ok()?;
        let size = self.size_in(scope, &Key::inode(ino).at(number), &inode);
        Some(keep.max(size.div_ceil(BLOCK)))
    }
}

/// Where an extent that begins with a block ends, in bytes.
fn end_in_bytes(first: u64, extent: &Extent) -> u64 {
    match extent {
        Extent::Inline(bytes) => first
            .saturating_mul(BLOCK)
            .saturating_add(bytes.len() as u64),
        other => first.saturating_add(other.blocks()).saturating_mul(BLOCK),
    }
}
