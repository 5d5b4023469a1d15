//! Cleaning: valid blocks of a victim move elsewhere, so that the next checkpoint can reset it.
//!
//! Data zones: summaries say whose the blocks are, the tree whether they still are; survivors go
//! to zones of their own, sorted by file and offset. Moves are journaled as what users write is:
//! checkpoints that free zones need not write the pages that changed. Until then the old copy
//! stands. A victim is done when its valid count is zero; what summaries miss is found in the tree.
//! Metadata zones: the pages in it are marked dirty, and the next checkpoint writes them
//! elsewhere.

mod demand;

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

use persimmon_device::{BLOCK_SIZE, ZoneId};
use persimmon_format::extent::Extent;
use persimmon_format::record::Op;
use persimmon_format::summary::Summary;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::{Addr, DeviceId, Ino, Key, KeyKind};

use crate::Volume;
use crate::data::{Loose, Way};
use crate::error::{Error, Result};
use crate::meta::{Intent, Transaction, extents};
use crate::statistics::{Class, add};
use crate::zones::table::ZoneStatus;
use crate::zones::trace::{VictimReason, ZoneEvent};
use crate::zones::{Choice, Life, Part, Run, Stream};

pub use demand::{CleanState, CleanStep};

/// Blocks moved at once.
const MOVE_BLOCKS: u64 = 1024;
/// Blocks searched for a summary at once.
const SEARCH_BLOCKS: u32 = 64;
/// Zones of the pool, however few they are as a share: what is written at once is no less on small
/// volumes, and where free zones run out some are cleaned that would have become empty by themselves.
const POOL_ZONES: u32 = 8;
/// As far as they are no more than this part of the zones that nothing live would need: what is kept free
/// is not there for garbage.
const POOL_SPARE_SHARE_MAX: u32 = 8;
/// Rounds without a zone gained before the volume counts as full.
const ROUNDS_MAX: usize = 64;
/// The same where nobody is refused if no zone is gained, so that it is tried at every change.
const ROUNDS_MAX_SHRINK: usize = 4;

/// Valid blocks of a victim: a frame, and the file block it is at.
struct Survivor {
    ino: Ino,
    block: u64,
    frame: Extent,
}

impl Volume {
    /// Cleans in the foreground until new data can have a zone.
    pub(crate) fn make_room(&self) -> Result<()> {
        let _turn = self.cleaning_turn.take();
        self.clean_above(Part::Data, || self.data_floor(), ROUNDS_MAX)
    }

    /// Checkpoints take zones below the floor, for they must not fail. What they took is won back
    /// here, before there are more changes for the next one; metadata alone could fill the volume
    /// with old pages otherwise. [`Error::NoSpace`] if that does not succeed.
    pub(crate) fn keep_floor(&self, intent: Intent) -> Result<()> {
        if self.metadata_is_short() {
            let rounds_max = match intent {
                Intent::Grow => ROUNDS_MAX,
                Intent::Shrink => ROUNDS_MAX_SHRINK,
            };
            let _turn = self.cleaning_turn.take();
            self.win_metadata_zones(rounds_max)?;
        }
        Ok(())
    }

    fn metadata_is_short(&self) -> bool {
        self.zones.free_zones(Part::Metadata) < self.changes_floor()
    }

    /// Cleans until a checkpoint has the zones it may need. The caller has the turn.
    fn win_metadata_zones(&self, rounds_max: usize) -> Result<()> {
        self.clean_above(Part::Metadata, || self.changes_floor() - 1, rounds_max)
    }

    /// The same on two devices, before file data is moved: the pages that change are written by
    /// checkpoints, for which moving it wins nothing.
    fn keep_metadata_zones(&self) -> Result<()> {
        match self.zones.budget.layout.is_split() && self.metadata_is_short() {
            true => self.win_metadata_zones(ROUNDS_MAX),
            false => Ok(()),
        }
    }

    /// Cleans until more zones of a part are free. The caller has the turn.
    fn clean_above(&self, part: Part, floor: impl Fn() -> u32, rounds_max: usize) -> Result<()> {
        let free_zones = || self.zones.free_zones(part);
        let dead_zones = || self.zones.dead_zones(part);
        let in_part = |z: &ZoneStatus| self.zones.budget.layout.contains(part, z.zone);
        let mut fruitless = 0;
        let mut best = free_zones();
        while free_zones() <= floor() {
            add(&self.media.counters.stalls, 1);
            let wanted = self.zones.spare_zones(part) / 32;
            let wanted = wanted.clamp(2, self.pool_zones(part).max(2));
            // Most garbage once what is worth most has not helped.
            let mut choice = match fruitless {
                0 => Choice::Worth,
                _ => Choice::Garbage,
            };
            let mut whole = fruitless > 0;
            let mut hopeless = dead_zones() == 0 && self.meta().cache.changed() == 0;
            while dead_zones() < wanted {
                // Nothing may be worth it, and somebody waits for room all the same.
                let choose = |choice| self.choose_victim_of(choice, in_part);
                let (mut victim, mut why) = (choose(choice), choice);
                if victim.is_none() && choice == Choice::Worth {
                    why = Choice::Garbage;
                    victim = choose(why);
                }
                let Some(victim) = victim else {
                    break;
                };
                hopeless = false;
                add(&self.media.counters.cleaning_foreground, 1);
                self.zones.tell_victim(victim.zone, why.into(), true);
                match self.clean(&victim) {
                    Ok(()) => {}
                    Err(Error::NoSpace) if victim.entry.role == Role::Metadata => break,
                    Err(Error::NoSpace) => {
                        choice = Choice::Metadata;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
                if victim.entry.role == Role::Metadata {
                    whole = true;
                    break;
                }
            }
            if hopeless {
                return Err(Error::NoSpace);
            }
            match whole || dead_zones() == 0 {
                true => self.checkpoint()?,
                false => self.checkpoint_zones()?,
            }
            if free_zones() <= floor() {
                self.zones.wait_for_readers();
            }
            let free = free_zones();
            fruitless = if free > best { 0 } else { fruitless + 1 };
            best = best.max(free);
            if fruitless > rounds_max {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    /// Zones kept free beyond the floor, or wholly dead: what is filled between two checkpoints.
    fn pool_zones(&self, part: Part) -> u32 {
        let options = self.cleaning_options();
        let spare = self.zones.spare_zones(part);
        let share = u64::from(spare) * u64::from(options.pool_basis_points) / 10_000;
        let at_least = match options.pool_basis_points {
            0 => 0,
            _ => POOL_ZONES.min(spare / POOL_SPARE_SHARE_MAX),
        };
        let pool = (share.min(u32::MAX.into()) as u32).max(at_least);
        pool.max(options.pool_zones_min.max(1))
    }

    /// Cleans one victim ahead of need, or frees what needs only a checkpoint. False if there was
    /// no reason to.
    ///
    /// As zones fill, others are emptied, one for one, and the checkpoint that frees them is
    /// written when nearly all that were free are filled: it costs as much as ever, however many
    /// zones it frees.
    pub(crate) fn clean_ahead(&self) -> Result<bool> {
        let movable = self.zones.survivors_floor(self.meta().cache.dirty());
        let are_free = |part| self.zones.free_zones(part);
        let may_move =
            are_free(Part::Metadata) > movable && are_free(Part::Data) > self.survivors_floor();
        if may_move && self.choose_failing().is_some() {
            return self.clean_one();
        }
        for part in self.zones.budget.layout.parts() {
            if self.clean_part_ahead(*part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn clean_part_ahead(&self, part: Part) -> Result<bool> {
        let pool = self.pool_zones(part);
        let (free, dead) = (self.zones.free_zones(part), self.zones.dead_zones(part));
        // Of metadata alone, what leaves with the next whole checkpoint is as good as dead.
        let (floor, leaving) = match part {
            Part::Data => (self.data_floor(), 0),
            Part::Metadata => {
                let leaving = self.checkpoint_state().leaving.len() as u32;
                (self.changes_floor(), leaving)
            }
        };
        if free + dead + leaving < floor + pool && self.clean_one_of(part)? {
            return Ok(true);
        }
        let are_few = free <= floor + pool / 4;
        match (dead > 0, leaving > 0) {
            (true, _) if are_few => self.checkpoint_zones()?,
            (false, true) if are_few => self.checkpoint()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Cleans a zone that has failed, or else the best victim. False if there is none.
    pub(crate) fn clean_one(&self) -> Result<bool> {
        let parts = self.zones.budget.layout.parts().iter();
        // Of two devices that which keeps the bulk comes first.
        for part in parts.rev() {
            if self.clean_one_of(*part)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The same of a part.
    fn clean_one_of(&self, part: Part) -> Result<bool> {
        let layout = &self.zones.budget.layout;
        let _turn = self.cleaning_turn.take();
        let failing = self.choose_failing();
        let why = match failing {
            Some(_) => VictimReason::Failing,
            None => VictimReason::Worth,
        };
        let has_failed = failing.is_some();
        let victim = failing.or_else(|| {
            let leaving = self.checkpoint_state().leaving.clone();
            let stays =
                |z: &ZoneStatus| layout.contains(part, z.zone) && !leaving.contains(&z.zone);
            self.choose_victim_of(Choice::Worth, stays)
        });
        let Some(victim) = victim else {
            return Ok(false);
        };
        add(&self.media.counters.cleaning_background, 1);
        self.zones.tell_victim(victim.zone, why, false);
        match self.clean(&victim) {
            // Its pages leave it with a whole checkpoint, which can wait: nobody does for the zone.
            Ok(()) if victim.entry.role == Role::Metadata && !has_failed => {
                self.checkpoint_state().leaving.insert(victim.zone);
                Ok(true)
            }
            Ok(()) if victim.entry.role == Role::Metadata => {
                self.checkpoint()?;
                Ok(true)
            }
            Ok(()) => Ok(true),
            Err(Error::NoSpace) if self.zones.dead_zones(part) > 0 => {
                let free = self.zones.free_zones(part);
                self.checkpoint_zones()?;
                Ok(self.zones.free_zones(part) > free)
            }
            Err(Error::NoSpace) => {
                self.checkpoint()?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// A zone that has failed, or of whose two copies one has, and that is not empty yet.
    fn choose_failing(&self) -> Option<ZoneStatus> {
        if self.zones.failed_zones() == 0 {
            return None;
        }
        let waits = |z: &&ZoneStatus| {
            z.must_be_emptied() && !self.zones.is_filled(z.zone) && !self.is_barren(z)
        };
        self.zones.status().iter().find(waits).copied()
    }

    fn choose_victim_of(
        &self,
        choice: Choice,
        wanted: impl Fn(&ZoneStatus) -> bool,
    ) -> Option<ZoneStatus> {
        let share_min = self.cleaning_options().metadata_garbage_percent;
        let may = |z: &ZoneStatus| wanted(z) && !self.zones.is_filled(z.zone) && !self.is_barren(z);
        self.zones.choose_victim(choice, share_min, may)
    }

    pub(crate) fn clean(&self, victim: &ZoneStatus) -> Result<()> {
        // Pinned, it is not reset and written again while its blocks are looked for and moved.
        let _pin = self.zones.pin(victim.zone);
        let same = |e: &ZitEntry| e.sequence == victim.entry.sequence && e.valid > 0;
        if !self.zones.entry(victim.zone).is_some_and(|e| same(&e)) {
            return Ok(());
        }
        let result = self.clean_by_role(victim);
        let valid_blocks = self.zones.valid(victim.zone);
        self.zones.trace.push(ZoneEvent::Cleaned {
            zone: victim.zone,
            blocks: victim.entry.valid.saturating_sub(valid_blocks),
            valid_blocks,
        });
        result
    }

    fn clean_by_role(&self, victim: &ZoneStatus) -> Result<()> {
        match victim.entry.role {
            Role::Metadata => self.clean_metadata(victim.zone),
            _ => {
                let result = self.clean_data(victim);
                let valid = self.zones.grains(victim.zone);
                if result.is_ok() && valid >= victim.entry.grains() {
                    tracing::warn!(zone = victim.zone.0, valid, "cleaning moved nothing");
                    self.barren().insert(victim.zone, victim.entry.sequence);
                }
                result
            }
        }
    }

    fn barren(&self) -> MutexGuard<'_, HashMap<ZoneId, u64>> {
        self.barren.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether cleaning a zone was tried in its present use, and moved nothing.
    fn is_barren(&self, zone: &ZoneStatus) -> bool {
        self.barren().get(&zone.zone) == Some(&zone.entry.sequence)
    }

    /// As many pages as one checkpoint may take; a zone with more is chosen again.
    fn clean_metadata(&self, zone: ZoneId) -> Result<()> {
        let pages_max = self.zones.budget.dirty_pages_max / 2;
        for page in self.move_metadata_from(zone).into_iter().take(pages_max) {
            self.keep_dirty_bound()?;
            self.fetch(page, &mut None)?;
            let mut meta = self.meta_mut();
            let still = meta.mat.get(page).is_some_and(|e| e.addr.zone() == zone);
            if still && meta.cache.mark_dirty(page).is_ok() {
                drop(meta);
                self.checkpoint_state().cold.insert(page);
            }
        }
        Ok(())
    }

    fn clean_data(&self, victim: &ZoneStatus) -> Result<()> {
        let mut survivors = Vec::new();
        let mut next = self.last_summary(victim.zone, victim.entry.write_pointer);
        while let Some((at, summary)) = next {
            for entry in &summary.entries {
                let frame = Extent::Frame {
                    addr: Addr::new(DeviceId(0), victim.zone, entry.zone_block),
                    crcs: entry.crcs.clone(),
                };
                self.find_live(entry.ino, entry.file_block, &frame, &mut survivors)?;
            }
            for entry in &summary.pieces {
                let piece = Extent::Packed(entry.piece(victim.zone));
                self.find_live(entry.ino, entry.file_block, &piece, &mut survivors)?;
            }
            next = match summary.previous {
                0 => self.last_summary(victim.zone, first_block(&summary, at)),
                previous => self
                    .summary_at(victim.zone, previous)
                    .map(|s| (previous, s)),
            };
        }
        self.move_survivors(victim.zone, survivors)?;
        if self.zones.valid(victim.zone) > 0 && !self.zones.is_filled(victim.zone) {
            tracing::debug!(
                zone = victim.zone.0,
                "summaries miss blocks, searching the tree"
            );
            let survivors = self.search_tree(victim.zone)?;
            self.move_survivors(victim.zone, survivors)?;
        }
        Ok(())
    }

    fn summary_at(&self, zone: ZoneId, at: u32) -> Option<Summary> {
        let sequence = self.zones.entry(zone)?.sequence;
        let block = self.media.read(Addr::new(DeviceId(0), zone, at), 1).ok()?;
        Summary::decode(&block, &self.key, sequence, at).ok()
    }

    /// The last summary below a block of a zone, and its place.
    pub(crate) fn last_summary(&self, zone: ZoneId, below: u32) -> Option<(u32, Summary)> {
        let sequence = self.zones.entry(zone)?.sequence;
        let mut end = below;
        while end > 1 {
            let start = end.saturating_sub(SEARCH_BLOCKS).max(1);
            if let Ok(bytes) = self
                .media
                .read(Addr::new(DeviceId(0), zone, start), end - start)
            {
                for (i, block) in bytes.chunks_exact(BLOCK_SIZE).enumerate().rev() {
                    let at = start + i as u32;
                    if let Ok(summary) = Summary::decode(block, &self.key, sequence, at) {
                        return Some((at, summary));
                    }
                }
            }
            end = start;
        }
        None
    }

    fn find_live(
        &self,
        ino: Ino,
        block: u64,
        frame: &Extent,
        out: &mut Vec<Survivor>,
    ) -> Result<()> {
        let live = self.view::<_, Error>(|view| {
            view.find(|meta| extents::still_there(meta, ino, block, frame))
        })?;
        out.extend(live.into_iter().map(|p| Survivor {
            ino,
            block: p.block,
            frame: p.extent,
        }));
        Ok(())
    }

    /// All extents that lie in a zone, found by walking the whole tree.
    fn search_tree(&self, zone: ZoneId) -> Result<Vec<Survivor>> {
        let mut found = Vec::new();
        let lies_there = |key: Key, value: &[u8]| {
            let frame = Extent::decode(value).ok()?;
            let in_zone = frame
                .on_device()
                .is_some_and(|(addr, _)| addr.zone() == zone);
            in_zone.then_some(Survivor {
                ino: key.ino,
                block: key.item,
                frame,
            })
        };
        let extents = |key: Key, value: &[u8]| match key.kind {
            KeyKind::EXTENT => lies_there(key, value),
            _ => None,
        };
        self.walk(.., extents, |survivor| found.push(survivor))?;
        Ok(found)
    }

    /// Moves frames, a bounded number of blocks at a time, and of frames: each may dirty a page, and
    /// what is placed leaves room for the pages of one group ([`Budget::survivors_floor`]).
    ///
    /// [`Budget::survivors_floor`]: crate::zones::Budget::survivors_floor
    fn move_survivors(&self, from: ZoneId, mut survivors: Vec<Survivor>) -> Result<()> {
        let (stream, life) = self.zones.infer_survivors(from);
        survivors.sort_by_key(|s| (s.ino, s.block));
        let frames_max = (self.zones.budget.dirty_pages_max / 8).clamp(4, 512);
        let mut survivors = survivors.into_iter().peekable();
        while survivors.peek().is_some() {
            let mut group = Vec::new();
            let mut blocks = 0;
            while blocks < MOVE_BLOCKS
                && group.len() < frames_max
                && let Some(survivor) = survivors.next()
            {
                blocks += survivor.frame.blocks();
                group.push(survivor);
            }
            self.keep_metadata_zones()?;
            self.move_group(&group, stream, life)?;
            self.move_pieces(&group, stream, life)?;
        }
        Ok(())
    }

    /// Packs the pieces of a group anew.
    fn move_pieces(&self, group: &[Survivor], stream: Stream, life: Life) -> Result<()> {
        let (mut loose, mut last) = (Vec::new(), None);
        for survivor in group {
            let Extent::Packed(piece) = survivor.frame else {
                continue;
            };
            let blocks = self.packed_blocks(&piece, &mut last);
            let Some(compressed) = blocks
                .as_deref()
                .ok()
                .and_then(|blocks| piece.bytes(blocks))
            else {
                tracing::error!(addr = %piece.addr, "a valid piece cannot be read, it stays");
                continue;
            };
            loose.push(Loose {
                ino: survivor.ino,
                block: survivor.block,
                from: survivor.frame.clone(),
                compressed: compressed.to_vec(),
            });
        }
        if loose.is_empty() {
            return Ok(());
        }
        self.keep_dirty_bound()?;
        let loose: Vec<&Loose> = loose.iter().collect();
        let moved = self.pack(stream, life, Class::CleanedData, &loose)?;
        add(&self.media.counters.blocks_moved, moved);
        Ok(())
    }

    fn move_group(&self, group: &[Survivor], stream: Stream, life: Life) -> Result<()> {
        let mut runs = Vec::with_capacity(group.len());
        for survivor in group {
            let Extent::Frame { addr, crcs } = &survivor.frame else {
                continue;
            };
            // A block that does not match its checksum moves with the checksum it should have:
            // reading it stays an error.
            let data = match self.media.read(*addr, crcs.len() as u32) {
                Ok(data) => data,
                Err(error) => {
                    tracing::error!(%addr, %error, "a valid block cannot be read, it stays");
                    continue;
                }
            };
            runs.push(Run {
                ino: survivor.ino,
                file_block: survivor.block,
                data,
                crcs: crcs.clone(),
                pieces: Vec::new(),
                life,
            });
        }
        runs.reverse();
        let (mut pins, mut placed) = (Vec::new(), Vec::new());
        // What found a place is moved, even if there was none for the rest.
        let result = self.place_all(
            stream,
            Class::CleanedData,
            runs,
            Way::default(),
            &mut pins,
            &mut placed,
        );
        // The group is sorted, and a placed run is a part of one survivor.
        let old = |ino: Ino, block: u64, len: u64| {
            let at = group
                .partition_point(|s| (s.ino, s.block) <= (ino, block))
                .checked_sub(1)?;
            let survivor = group.get(at)?;
            Some(survivor.frame.part(block - survivor.block, len))
        };
        for part in placed.chunks(self.transaction_ops_max()) {
            let moves: Vec<_> = part
                .iter()
                .filter_map(|p| {
                    let from = old(p.run.ino, p.run.file_block, p.run.crcs.len() as u64)?;
                    Some((p.run.ino, p.run.file_block, from, p.addr))
                })
                .collect();
            self.keep_bounds()?;
            let (moved, _) = self.update_unbounded(None, |tx| remap(tx, &moves))?;
            add(&self.media.counters.blocks_moved, moved);
        }
        result
    }
}

/// Maps frames to where they were moved, as far as the files still have them where they were. Returns
/// the blocks moved.
fn remap(tx: &mut Transaction<'_>, moves: &[(Ino, u64, Extent, Addr)]) -> Result<u64> {
    let mut moved = 0;
    for (ino, block, from, to) in moves {
        for live in tx.find(|meta| extents::still_there(meta, *ino, *block, from))? {
            let Extent::Frame { crcs, .. } = live.extent else {
                continue;
            };
            moved += crcs.len() as u64;
            let addr = to.offset((live.block - block) as u32);
            tx.push(Op::Map {
                ino: *ino,
                block: live.block,
                extent: Extent::Frame { addr, crcs },
            });
        }
    }
    Ok(moved)
}

/// The first block that a summary describes: where to search for the one before it.
fn first_block(summary: &Summary, at: u32) -> u32 {
    summary
        .entries
        .iter()
        .map(|e| e.zone_block)
        .chain(summary.pieces.iter().map(|e| e.zone_block))
        .min()
        .unwrap_or(1)
        .min(at)
}
