//! A victim on its way to being empty. Each step looks at a bounded part of it, or moves a bounded
//! number of blocks, so that ahead of need nobody waits for a whole zone, and memory does not grow with zones.

use std::ops::Bound;

use persimmon_device::ZoneId;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::PackUnits;
use persimmon_format::summary::Summary;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::{Addr, DeviceId, Ino, Key, KeyKind, PageId};

use super::Cleaner;
use super::folding::Folding;
use super::moving::{LiveExtent, Loaded};
use crate::error::{Error, Result};
use crate::invariant::invariant;
use crate::meta::extents::{self, Whereabouts};
use crate::meta::mapping;
use crate::store::PageFaults;
use crate::store::Walked;
use crate::zones::table::ZoneStatus;
use crate::zones::trace::ZoneEvent;

/// Frames that are found before the first of them is moved, more or less: they are moved in the order of
/// files and offsets. Of most zones that is all there are.
pub(crate) const FOUND_MAX: usize = 16_384;
/// Blocks read before the first of them is moved, more or less: what lies together is read together.
const LOADED_BLOCKS_MAX: u64 = 1024;
/// Frames looked up in one step.
const LOOKED_MAX: usize = 2048;
/// Pages of a metadata zone marked dirty in one step.
const MARKED_AT_ONCE: usize = 64;

/// What of a victim nobody has looked at yet.
enum Ahead {
    /// The last summary below this block, and those before it.
    Below(u32),
    /// The summary at this block, and those before it.
    At(u32),
    /// What summaries miss: the tree, from this bound on.
    Tree(Bound<Key>),
    /// Pages of a metadata zone.
    Pages(Vec<PageId>),
    Nothing,
}

/// A victim, and how far it was emptied.
pub(crate) struct CleaningCursor {
    victim: ZoneStatus,
    /// Only some extents of it are to be moved: if none of them is there any more, that tells nothing of the others.
    is_part: bool,
    ahead: Ahead,
    /// What was found and is to be moved, the next one last.
    found: Vec<LiveExtent>,
    /// What was read of it, the next one last.
    loaded: Vec<Loaded>,
}

impl CleaningCursor {
    pub(crate) fn victim(&self) -> &ZoneStatus {
        &self.victim
    }

    /// Whether the next step moves blocks: it adds to the journal, and makes pages dirty.
    pub(crate) fn is_to_move(&self) -> bool {
        !self.loaded.is_empty()
    }

    /// Whether the next step marks pages dirty.
    pub(crate) fn is_to_mark(&self) -> bool {
        self.loaded.is_empty() && self.found.is_empty() && matches!(self.ahead, Ahead::Pages(_))
    }

    /// Whether a step of it costs what it moves: no pages are marked, no tree is searched.
    pub(crate) fn is_plain(&self) -> bool {
        let is_long = matches!(self.ahead, Ahead::Pages(_) | Ahead::Tree(_));
        !is_long || !self.found.is_empty() || !self.loaded.is_empty()
    }
}

impl Cleaner {
    pub(crate) fn begin_cursor(&self, victim: &ZoneStatus) -> CleaningCursor {
        let ahead = match victim.entry.role {
            Role::Metadata => {
                // As many pages as one checkpoint may take; a zone with more is chosen again.
                let mut pages = self.store.move_metadata_from(victim.zone);
                pages.truncate(self.pages_moved_max());
                Ahead::Pages(pages)
            }
            _ => {
                self.set_cost(victim);
                Ahead::Below(victim.entry.write_pointer)
            }
        };
        CleaningCursor {
            victim: *victim,
            is_part: false,
            ahead,
            found: Vec::new(),
            loaded: Vec::new(),
        }
    }

    /// To move extents of a zone, each with its file and block, and nothing else of it but the frames that they are parts of.
    pub(crate) fn cursor_of(
        &self,
        victim: &ZoneStatus,
        extents: impl Iterator<Item = (Ino, u64, Extent)>,
    ) -> CleaningCursor {
        CleaningCursor {
            victim: *victim,
            is_part: true,
            ahead: Ahead::Nothing,
            found: live_extents(extents).collect(),
            loaded: Vec::new(),
        }
    }

    /// A step: looks at a part of the victim, reads a part of what was found, or moves blocks, not many more
    /// than `blocks_max`. False when there is nothing more to do. After an error the victim is to be chosen anew.
    pub(crate) fn advance(&self, cursor: &mut CleaningCursor, blocks_max: u64) -> Result<bool> {
        let zone = cursor.victim.zone;
        // Pinned, it is not reset and written again while its blocks are looked for and moved.
        let _pin = self.store.zones.pin(zone);
        let sequence = cursor.victim.entry.sequence;
        let same = |e: &ZitEntry| e.sequence == sequence && e.valid > 0;
        let goes_on = self.store.zones.entry(zone).is_some_and(|e| same(&e));
        if goes_on && !cursor.loaded.is_empty() {
            return self.move_some(cursor, blocks_max).map(|()| true);
        }
        if goes_on && !cursor.found.is_empty() {
            return self.load_some(cursor).map(|()| true);
        }
        if goes_on && self.look_ahead(cursor)? {
            return Ok(true);
        }
        self.end_cursor(cursor);
        Ok(false)
    }

    fn end_cursor(&self, cursor: &CleaningCursor) {
        let victim = &cursor.victim;
        let (zone, valid) = (victim.zone, self.store.zones.valid(victim.zone));
        let entry = self.store.zones.entry(zone);
        let is_same = entry.is_some_and(|entry| entry.sequence == victim.entry.sequence);
        let may_move = !cursor.is_part && victim.entry.role != Role::Metadata;
        if is_same && may_move && valid >= victim.entry.pack_units() {
            tracing::warn!(zone = zone.0, units = valid.0, "cleaning moved nothing");
            self.note_unproductive(zone, victim.entry.sequence);
        }
        let valid_blocks = self.store.zones.valid_blocks(zone);
        self.store.zones.trace.push(ZoneEvent::Cleaned {
            zone,
            blocks: victim.entry.valid.saturating_sub(valid_blocks),
            valid_blocks,
        });
    }

    /// Reads the next that was found, as far as it is still there.
    fn load_some(&self, cursor: &mut CleaningCursor) -> Result<()> {
        let (mut live, mut blocks, mut looked) = (Vec::new(), 0, 0);
        let folding = self.folding();
        for extent in cursor.found.iter().rev() {
            if blocks >= LOADED_BLOCKS_MAX || looked >= LOOKED_MAX {
                break;
            }
            looked += 1;
            let before = live.len();
            self.find_live(extent, folding, &mut live)?;
            blocks += live
                .iter()
                .skip(before)
                .map(LiveExtent::blocks)
                .sum::<u64>();
        }
        invariant!(
            self.store.media.alarm,
            looked <= cursor.found.len(),
            "{looked} of {} were looked at",
            cursor.found.len()
        );
        cursor.found.truncate(cursor.found.len() - looked);
        // Of a frame parts may be left, and others lie between them.
        live.sort_by_key(|extent| (extent.ino, extent.block));
        // Each part of a compressed frame leads to all of it.
        live.dedup_by(|one, other| {
            (one.ino, one.block, &one.frame) == (other.ino, other.block, &other.frame)
        });
        cursor.loaded = self.read_live(live);
        self.fold(&mut cursor.loaded);
        // Pieces of blocks together: each group of them that is moved ends with a block that is not full.
        cursor.loaded.sort_by_key(Loaded::is_piece);
        cursor.loaded.reverse();
        Ok(())
    }

    /// Moves the next that was read, not many more than `blocks_max` blocks. Each frame may dirty a page, and
    /// what is placed leaves room for the pages of one group (`space/reserves.rs`).
    fn move_some(&self, cursor: &mut CleaningCursor, blocks_max: u64) -> Result<()> {
        let frames_max = self.store.moves_max();
        let (mut group, mut units, mut weight) = (Vec::new(), PackUnits::ZERO, 0);
        while units < PackUnits::of_blocks(blocks_max) {
            weight += cursor.loaded.last().map_or(0, Loaded::weight);
            if weight > frames_max && !group.is_empty() {
                break;
            }
            let Some(next) = cursor.loaded.pop() else {
                break;
            };
            units += next.extent.pack_units();
            group.push(next);
        }
        let (stream, life) = self.store.zones.infer_moved(cursor.victim.zone);
        let valid = || self.store.zones.valid(cursor.victim.zone);
        let before = valid();
        self.unfold_changed(&mut group);
        let moved = self.move_group(&group, stream, life);
        let left = before.saturating_sub(valid());
        self.store.zones.note_moved(cursor.victim.zone, left);
        moved
    }

    /// Looks for what is to be moved. False if nothing is left to look at.
    fn look_ahead(&self, cursor: &mut CleaningCursor) -> Result<bool> {
        let zone = cursor.victim.zone;
        match std::mem::replace(&mut cursor.ahead, Ahead::Nothing) {
            Ahead::Nothing => return Ok(false),
            Ahead::Pages(pages) => cursor.ahead = self.mark_pages(zone, pages)?,
            Ahead::Tree(from) => {
                let last;
                (cursor.found, last) = self.search_tree(zone, from)?;
                cursor.ahead = last.map_or(Ahead::Nothing, |key| Ahead::Tree(Bound::Excluded(key)));
            }
            ahead @ (Ahead::Below(_) | Ahead::At(_)) => {
                cursor.ahead = self.read_summaries(zone, ahead, &mut cursor.found);
            }
        }
        cursor.found.sort_by_key(|s| (s.ino, s.block));
        cursor.found.reverse();
        Ok(true)
    }

    fn read_summaries(&self, zone: ZoneId, mut ahead: Ahead, found: &mut Vec<LiveExtent>) -> Ahead {
        while found.len() < FOUND_MAX {
            let next = match ahead {
                Ahead::Below(block) => self.store.last_summary(zone, block),
                Ahead::At(block) => self.store.summary_at(zone, block).map(|s| (block, s)),
                _ => None,
            };
            let Some((at, summary)) = next else {
                // Whoever fills the zone has its blocks in no tree yet.
                if self.store.zones.is_filled(zone) {
                    return Ahead::Nothing;
                }
                return Ahead::Tree(Bound::Unbounded);
            };
            let frames = summary.entries.iter().map(|entry| {
                let frame = Extent::Frame {
                    addr: Addr::new(DeviceId(0), zone, entry.zone_block),
                    crcs: entry.crcs.clone(),
                };
                (entry.ino, entry.file_block, frame)
            });
            let packed = summary.packed.iter();
            let packed = packed.map(|entry| {
                let frame = Extent::Packed(entry.packed(zone));
                (entry.ino, entry.file_block, frame)
            });
            found.extend(live_extents(frames.chain(packed)));
            ahead = match summary.previous {
                0 => Ahead::Below(first_block(&summary, at)),
                previous => Ahead::At(previous),
            };
        }
        ahead
    }

    /// The extents in a part of the tree that lie in a zone, and the last key of that part if there are more.
    fn search_tree(
        &self,
        zone: ZoneId,
        from: Bound<Key>,
    ) -> Result<(Vec<LiveExtent>, Option<Key>)> {
        self.store
            .look(Walked::Stored, from, &.., |key: Key, value: &[u8]| {
                if key.kind != KeyKind::EXTENT {
                    return None;
                }
                let extent = Extent::decode(value).ok()?;
                let in_zone = extent.addr().is_some_and(|addr| addr.zone() == zone);
                in_zone
                    .then(|| LiveExtent::around(key.ino, key.item, extent))
                    .flatten()
            })
    }

    /// Has the next whole checkpoint write some pages elsewhere.
    fn mark_pages(&self, zone: ZoneId, mut pages: Vec<PageId>) -> Result<Ahead> {
        // Beyond the bound of dirty pages come no more than these before the next look at it.
        let at_once = (self.store.zones.budget.dirty_pages_reserved / 16).clamp(1, MARKED_AT_ONCE);
        for page in pages.drain(..pages.len().min(at_once)) {
            self.mark_page(zone, page)?;
        }
        Ok(if pages.is_empty() {
            Ahead::Nothing
        } else {
            Ahead::Pages(pages)
        })
    }

    /// Has the next whole checkpoint write a page elsewhere, if it still is in this zone.
    pub(crate) fn mark_page(&self, zone: ZoneId, page: PageId) -> Result<()> {
        PageFaults::of(&self.store).fetch(page)?;
        let mut meta = self.store.meta_mut();
        let still = meta.mat.get(page).is_some_and(|e| e.addr.zone() == zone);
        if still && meta.cache.mark_dirty(page).is_ok() {
            drop(meta);
            self.store.on_device().cold.insert(page);
        }
        Ok(())
    }

    /// What is still there of what was found, in its file or, where files share it, in the store of shared blocks.
    fn find_live(
        &self,
        extent: &LiveExtent,
        folding: Folding,
        out: &mut Vec<LiveExtent>,
    ) -> Result<()> {
        let LiveExtent {
            ino, block, frame, ..
        } = extent;
        for place in self.find_live_at((*ino, *block), frame, folding, out)? {
            self.find_live_at((SHARED, place), frame, Folding::Off, out)?;
        }
        Ok(())
    }

    /// The same at one place. Returns where in the store it may be.
    fn find_live_at(
        &self,
        (ino, block): (Ino, u64),
        frame: &Extent,
        folding: Folding,
        out: &mut Vec<LiveExtent>,
    ) -> Result<Vec<u64>> {
        let found = self.store.view::<_, Error>(|view| {
            let found = view.find(|meta| {
                let found = extents::whereabouts(meta, ino, block, frame)?;
                // A move needs what is beside them too.
                for mapped in &found.live {
                    mapping::ensure(meta, ino, mapped.block, mapped.end())?;
                }
                Ok(found)
            })?;
            if found.live.is_empty() {
                return Ok((found, false));
            }
            let inode = view.inode(ino)?;
            Ok((found, folding.looks_at(inode.as_ref())))
        });
        let (Whereabouts { live, places }, may_be_folded) = match found {
            // What of a damaged file is in the zone stays there, and is counted: the zone is not reset.
            Err(error @ Error::ItemDamaged { .. }) => {
                tracing::error!(%error, "blocks of a damaged file are not moved");
                return Ok(Vec::new());
            }
            found => found?,
        };
        if live.is_empty() {
            return Ok(places);
        }
        if matches!(frame, Extent::Packed(_)) {
            out.push(LiveExtent {
                ino,
                block,
                frame: frame.clone(),
                parts: live,
                deltas: Vec::new(),
            });
            return Ok(places);
        }
        if may_be_folded {
            self.with_deltas(ino, live, out);
        } else {
            out.extend(live.into_iter().map(|p| LiveExtent::of(ino, p)));
        }
        Ok(places)
    }
}

fn live_extents(
    extents: impl Iterator<Item = (Ino, u64, Extent)>,
) -> impl Iterator<Item = LiveExtent> {
    extents.filter_map(|(ino, block, extent)| LiveExtent::around(ino, block, extent))
}

/// The first block that a summary describes: where to search for the one before it.
fn first_block(summary: &Summary, at: u32) -> u32 {
    let frames = summary.entries.iter().map(|e| e.zone_block);
    let packed = summary.packed.iter().map(|e| e.zone_block);
    frames.chain(packed).min().unwrap_or(1).min(at)
}
