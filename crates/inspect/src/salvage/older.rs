//! What an older version of a lost leaf says of something that changed since: it is there, and it is not the present.
//!
//! What the tree has in a range that an older leaf stands in for is as of an earlier checkpoint, and what lies in other leaves may be newer.
//! Where the two contradict each other the newer counts, and what would discard something does so only as far as the newer agrees.

use std::ops::ControlFlow;
use std::rc::Rc;

use persimmon_format::delta::is_delta;
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::inode::{Inode, SIZE_MAX};
use persimmon_format::{BLOCK_SIZE, Ino, Key, KeyKind, VersionId};

use super::content::Content;
use super::forest::{Instead, LostRange, LostRanges};
use crate::state::{At, Scope, State};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The earlier checkpoint as of which a place of the tree is there, if it is.
fn older_at(lost: &LostRanges, key: &Key) -> Option<u64> {
    lost.holding(*key).find_map(|lost| match lost.instead {
        Instead::Older(checkpoint) => Some(checkpoint),
        Instead::Nothing | Instead::Leaves(_) => None,
    })
}

/// Cuts extents as of an earlier checkpoint to the blocks that no newer one covers: one may reach over newer ones, for its leaf was split
/// since, and what it covers was written anew. This comes before the journal, which knows nothing of such: what is left of an extent that it
/// cuts would take the place of a newer one. Extents of all versions at one place have the same blocks, and are cut alike.
pub(super) fn cut_older(state: &mut State<'_, '_>, lost: &LostRanges) {
    for range in lost.iter() {
        if let Instead::Older(since) = range.instead {
            for cut in cuts(state, lost, range, since) {
                state.cut_item(&cut.key, (cut.from, cut.to));
            }
        }
    }
}

/// An extent of which the blocks `from..to` are left.
struct Cut {
    key: Key,
    from: u64,
    to: u64,
}

/// The extents of a range that are to be cut, when those of all ranges before it are.
fn cuts(state: &State<'_, '_>, lost: &LostRanges, range: &LostRange, since: u64) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut ino = range.low.ino;
    // Where the extents end that begin before those at the place at hand, and the place with its own end.
    let mut before = end_before(state, &range.low);
    let mut here = (range.low.item, before);
    let _ = state.scan(range.low, &mut |key, value| {
        if !range.holds(&key) {
            return ControlFlow::Break(());
        }
        if key.kind != KeyKind::EXTENT || is_delta(key.item) {
            return ControlFlow::Continue(());
        }
        let Ok(blocks) = Extent::peek_blocks(value) else {
            return ControlFlow::Continue(());
        };
        if key.ino != ino {
            ino = key.ino;
            before = 0;
            here = (key.item, 0);
        } else if key.item != here.0 {
            before = before.max(here.1);
            here = (key.item, before);
        }
        let end = key.item.saturating_add(blocks);
        let from = key.item.max(before);
        let to = newer_from(state, lost, range, (&key, since), end).unwrap_or(end);
        here.1 = here.1.max(to);
        if (from, to) != (key.item, end) {
            cuts.push(Cut { key, from, to });
        }
        ControlFlow::Continue(())
    });
    cuts
}

/// The block behind the last extent that begins before a key; 0 if there is none of the inode.
fn end_before(state: &State<'_, '_>, low: &Key) -> u64 {
    let is_of_blocks = low.kind == KeyKind::EXTENT && !is_delta(low.item);
    let Some(last) = low.item.checked_sub(1).filter(|_| is_of_blocks) else {
        return 0;
    };
    let found = state.floor(&Key::extent(low.ino, last).at(VersionId(u32::MAX)));
    let found = found.filter(|(key, _)| (key.ino, key.kind) == (low.ino, KeyKind::EXTENT));
    found.map_or(0, |(key, value)| {
        let blocks = Extent::peek_blocks(&value).unwrap_or(0);
        key.item.saturating_add(blocks)
    })
}

/// Where the first newer extent begins that one of a range reaches into, which ends at block `end`. Of a range that is lost, and nothing stands in
/// for it, summaries know what is newest.
fn newer_from(
    state: &State<'_, '_>,
    lost: &LostRanges,
    range: &LostRange,
    (key, since): (&Key, u64),
    end: u64,
) -> Option<u64> {
    // What is in the same leaf does not contradict it.
    let high = range.high?;
    if (high.ino, high.kind) != (key.ino, KeyKind::EXTENT) || high.item >= end {
        return None;
    }
    let first = high.item.max(key.item.saturating_add(1));
    let is_unknown =
        |lost: &&LostRange| matches!(lost.instead, Instead::Nothing | Instead::Leaves(0));
    let mut behind = lost.between(high, Key::extent(key.ino, end));
    let unknown = behind.find(is_unknown);
    let unknown = unknown.map(|lost| lost.low.item.max(first));
    let mut newer = None;
    let _ = state.scan(Key::extent(key.ino, first), &mut |other, _| {
        if (other.ino, other.kind) != (key.ino, KeyKind::EXTENT) || other.item >= end {
            return ControlFlow::Break(());
        }
        if older_at(lost, &other).is_some_and(|other| other <= since) {
            return ControlFlow::Continue(());
        }
        newer = Some(other.item);
        ControlFlow::Break(())
    });
    unknown.into_iter().chain(newer).min()
}

impl Content<'_, '_> {
    /// The earlier checkpoint as of which a place of the tree is there, if it is. What the journal changed there is newer.
    pub(crate) fn older(&self, key: &Key) -> Option<u64> {
        older_at(self.lost(), key)
    }

    /// Whether an item that is put and deleted as a whole may be one that was deleted since: it is as of an earlier checkpoint, and the journal
    /// did not put it.
    #[must_use]
    pub fn may_be_stale(&self, key: &Key) -> bool {
        self.older(key).is_some() && !self.state().is_changed(key)
    }

    /// The size in bytes of an inode that is stored under this key. One as of an earlier checkpoint does not know of what was written since
    /// past its end: the extents do.
    #[must_use]
    pub fn size_of(&self, key: &Key, inode: &Inode) -> u64 {
        self.size_in(self.scope_of(key), key, inode, !self.is_versioned())
    }

    /// The same of an inode as it is shown.
    #[must_use]
    pub fn size_shown(&self, ino: Ino, inode: &Inode) -> u64 {
        let scope = self.scope();
        match self.state().shown(&scope, &Key::inode(ino)) {
            Some((number, _)) => self.size_in(scope, &Key::inode(ino).at(number), inode, true),
            None => inode.size,
        }
    }

    /// The same, also by blocks that only summaries know, if they are put: these do not tell whose a block is of several versions.
    fn size_in(&self, scope: Rc<Scope>, key: &Key, inode: &Inode, has_strays: bool) -> u64 {
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
        let end = match has_strays {
            true => self.end_of_strays(key.ino),
            false => 0,
        };
        let end = end.max(self.end_of_data(&at, &is_newer));
        let end = end.min(kept).min(SIZE_MAX);
        // In the last block it is the inode that knows.
        match end.div_ceil(BLOCK) > inode.size.div_ceil(BLOCK) {
            true => end,
            false => inode.size,
        }
    }

    /// Where the last block of a file ends that only summaries know and that belongs into what the tree has lost, in bytes.
    fn end_of_strays(&self, ino: Ino) -> u64 {
        let all = (ino, 0)..=(ino, FILE_BLOCKS_END - 1);
        let mut strays = self.stray_blocks().range(all).rev();
        let last = strays.find(|(_, stray)| !stray.later);
        last.map_or(0, |((_, block), _)| {
            block.saturating_add(1).saturating_mul(BLOCK)
        })
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
        let scope = self.scope_of(record);
        let (number, value) = self.state().shown(&scope, &Key::inode(ino))?;
        let inode = Inode::decode(&value).ok()?;
        let key = Key::inode(ino).at(number);
        let size = self.size_in(scope, &key, &inode, !self.is_versioned());
        Some(keep.max(size.div_ceil(BLOCK)))
    }

    /// Whether the inode of a record with this key, that says that it has no name and waits to be freed, may have got one since: the record may be
    /// one of the past, and the inode does not tell, for it is as old or lost. Who believes the record frees the content of a file that was in use.
    #[must_use]
    pub fn may_be_named_since(&self, record: &Key) -> bool {
        let key = Key::inode(Ino(record.item));
        let inode = || self.state().shown(&self.scope_of(record), &key);
        self.may_be_stale(record)
            && inode().is_none_or(|(number, _)| self.older(&key.at(number)).is_some())
    }

    /// What is shown where an item is stored under this key.
    fn scope_of(&self, key: &Key) -> Rc<Scope> {
        match self.is_versioned() {
            true => self.state().versions().scope(key.version),
            false => self.scope(),
        }
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
