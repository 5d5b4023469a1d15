//! Checkpoints. The cut takes microseconds under the metadata lock; everything cut is then
//! written while work goes on: pages, changed chunks of the two tables, and, when all that and
//! all data up to the cut is durable, the footer. Only then are zones reset (`zones/resets.rs`), those
//! alone that the cut had found with nothing valid in them (I3).

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use persimmon_device::{Buffer, BufferMut, ZoneId};
use persimmon_format::envelope::{self, BLOCK_PAYLOAD, HEADER_LEN, Kind};
use persimmon_format::footer::Footer;
use persimmon_format::table::{MatEntry, ZitEntry};
use persimmon_format::zone_header::COMPACT;
use persimmon_format::{Addr, Lsn, PageId};

mod changes;

use crate::Volume;
use crate::error::Result;
use crate::faults::{Fault, fault};
use crate::log;
use crate::media::wait_all;
use crate::meta::{Meta, Page, store};
use crate::statistics::{Class, add};
use crate::zones::table::{NoWriter, Shortage};
use crate::zones::{self, Part, Stream, Tries, ZoneWriter, Zones};
use changes::Changes;

/// Blocks of pages written before waiting for them.
const BATCH_BLOCKS: usize = 256;

/// A whole checkpoint costs little where this many times its blocks were written since the one before.
const CHEAP_SHARE: u64 = 128;

/// What checkpoints remember from one to the next.
pub(crate) struct CheckpointState {
    /// Number of the last checkpoint that was begun.
    pub(crate) number: u64,
    /// The ZIT as its chunks on the device have it.
    pub(crate) written_zit: Vec<ZitEntry>,
    /// Where each ZIT chunk is; [`Addr::ZERO`] for one never written.
    pub(crate) zit_chunks: Vec<Addr>,
    /// Pages that cleaning asked to be moved.
    pub(crate) cold: HashSet<PageId>,
    /// Metadata zones that the next whole checkpoint moves pages out of.
    pub(crate) leaving: HashSet<ZoneId>,
    /// Blocks written in all at the cut of the last whole checkpoint, or at the mount.
    pub(crate) write_clock: u64,
    /// The last durable footer; none while pages are written for the next, and if that failed.
    pub(crate) footer: Option<Footer>,
}

impl CheckpointState {
    /// After the checkpoint of this footer, whose chunks have this ZIT.
    pub(crate) fn of(footer: &Footer, written_zit: Vec<ZitEntry>) -> CheckpointState {
        CheckpointState {
            number: footer.checkpoint,
            written_zit,
            zit_chunks: footer.zit.clone(),
            cold: HashSet::new(),
            leaving: HashSet::new(),
            write_clock: footer.write_clock,
            footer: Some(footer.clone()),
        }
    }
}

/// What a cut found.
struct Snapshot {
    pages: Vec<(PageId, Arc<Page>)>,
    freed: Vec<PageId>,
    /// Some of them have changes that are in no record.
    unlogged: bool,
    /// Blocks of journal that it ends.
    journal_blocks: u64,
    log: log::Cut,
    zones: zones::Cut,
    root: PageId,
    page_limit: u64,
    next_ino: u64,
    inodes: u64,
    reserved_blocks: u64,
}

/// How writing a checkpoint ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Durable,
    /// Data of a record before the cut failed: once it is mapped elsewhere there is to be a new
    /// cut.
    Superseding,
}

/// Which journals a checkpoint of the zones alone may let stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journal {
    /// Those that may still go on.
    WithinBounds,
    /// All: a whole checkpoint, which would end it, has found no room.
    OfAnyLength,
}

/// Valid counts, kept in the live table and in the one this checkpoint writes.
struct Counts<'a> {
    live: &'a Zones,
    cut: &'a mut [ZitEntry],
}

impl Counts<'_> {
    fn add(&mut self, addr: Addr, blocks: u16) {
        self.live.add_metadata(addr, blocks.into());
        if let Some(entry) = self.cut.get_mut(addr.zone().0 as usize) {
            entry.valid = entry.valid.saturating_add(blocks.into());
        }
    }

    fn sub(&mut self, addr: Addr, blocks: u16) {
        self.live.sub_metadata(addr, blocks.into());
        if let Some(entry) = self.cut.get_mut(addr.zone().0 as usize) {
            entry.valid = entry.valid.saturating_sub(blocks.into());
        }
    }

    /// A chunk or page moved from `old` (if it was anywhere) to `new`.
    fn moved(&mut self, old: MatEntry, new: MatEntry) {
        if old.is_used() {
            self.sub(old.addr, old.blocks);
        }
        if new.is_used() {
            self.add(new.addr, new.blocks);
        }
    }
}

fn chunk_at(addr: Addr) -> MatEntry {
    MatEntry {
        addr,
        blocks: u16::from(addr != Addr::ZERO),
    }
}

impl Volume {
    pub(crate) fn checkpoint_state(&self) -> MutexGuard<'_, CheckpointState> {
        self.checkpoint_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.checkpoint_if(|| true)
    }

    /// Writes a checkpoint if `wanted` still holds when it is this thread's turn. Others have it while zones are
    /// reset.
    pub(crate) fn checkpoint_if(&self, wanted: impl Fn() -> bool) -> Result<()> {
        let written = self.checkpoint_in_turn(wanted);
        self.zones.start_resets(&self.media);
        written
    }

    fn checkpoint_in_turn(&self, wanted: impl Fn() -> bool) -> Result<()> {
        // Free zones after those were freed that it needed: what pages took that found no room comes back each time.
        let mut won = 0;
        loop {
            self.check_writable()?;
            self.log.wait_for_superseding()?;
            let _turn = self.checkpoint_turn.take();
            if !wanted() {
                return Ok(());
            }
            // Where its pages find no room, those of the zones alone are the way out: they need all changes in the journal.
            if self.zones.free_zones(Part::Metadata) > self.metadata_survivors_floor() {
                self.pack_before_cut();
            }
            if self.zones.log_is_to_leave(self.changed_pages()) {
                let least = self.zones.log_blocks_least();
                self.log.fill_zone(&self.media, &self.zones, least)?;
            }
            self.settle_summaries(|_| true);
            self.zones.examine(&self.media);
            let mut snapshot = self.cut()?;
            let under_way = self.zones.begin_pages();
            let result = self.write_checkpoint(&mut snapshot);
            drop(under_way);
            if !matches!(result, Ok(Written::Durable)) {
                let mut meta = self.meta_mut();
                if snapshot.unlogged {
                    self.unlogged.store(true, Ordering::Relaxed);
                }
                meta.riding.undo_cut();
                meta.cache.redirty(
                    snapshot.pages.iter().map(|(id, _)| *id),
                    std::mem::take(&mut snapshot.freed),
                );
            }
            match result {
                Ok(Written::Durable) => return Ok(()),
                Ok(Written::Superseding) => {}
                Err(error) if error.passes() && self.free_for_pages(&mut won) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Frees what is dead though the pages of a checkpoint have just found no room. False if that wins nothing, or no more
    /// than were `won` before and did not do. The caller has the turn.
    fn free_for_pages(&self, won: &mut u32) -> bool {
        let free = || self.zones.free_zones(Part::Metadata);
        let before = free().max(*won);
        if self.zones.dead_zones(Part::Metadata) == 0 {
            return false;
        }
        match self.write_zone_checkpoint(Journal::OfAnyLength) {
            // Rare enough to keep the turn while zones are reset.
            Ok(_) => {
                self.zones.settle_resets(&self.media);
                *won = free();
                *won > before
            }
            Err(error) => {
                tracing::warn!(%error, "zones could not be freed for a checkpoint");
                false
            }
        }
    }

    /// Writes the summaries of open data zones that are `wanted`, and nobody writes to now, so that none is lost with a crash.
    fn settle_summaries(&self, wanted: impl Fn(&ZoneWriter) -> bool) {
        for mut writer in self.zones.take_unsummarised(wanted) {
            writer.settle_summary(&self.media, &self.key);
            self.zones.give_back(&self.media, writer);
        }
    }

    fn cut(&self) -> Result<Snapshot> {
        let mut meta = self.meta_mut();
        // A change that was found damaged half way must not become durable.
        self.check_writable()?;
        meta.riding.cut();
        Ok(Snapshot {
            unlogged: self.unlogged.swap(false, Ordering::Relaxed),
            journal_blocks: self.log.blocks_to_replay(),
            pages: meta.cache.take_dirty(),
            freed: meta.cache.take_freed(),
            log: self.log.cut(),
            zones: self.zones.cut(),
            root: meta.root,
            page_limit: meta.cache.id_limit(),
            next_ino: meta.next_ino,
            inodes: meta.inodes,
            reserved_blocks: meta.reserved_blocks,
        })
    }

    fn write_checkpoint(&self, snapshot: &mut Snapshot) -> Result<Written> {
        // Records up to the cut need not be durable themselves, but their data must be complete.
        self.log
            .commit(&self.media, &self.zones, snapshot.log.lsn, false, None)?;
        if self.log.has_failures(&snapshot.log) {
            return Ok(Written::Superseding);
        }
        let number = self.next_checkpoint();
        let cold = {
            let mut state = self.checkpoint_state();
            state.leaving.clear();
            std::mem::take(&mut state.cold)
        };
        let mut written = BTreeSet::new();

        let (cold_pages, pages): (Vec<_>, Vec<_>) =
            snapshot.pages.iter().partition(|(id, _)| cold.contains(id));
        let mut places = self.write_pages(&pages, number, Stream::Metadata, &mut written)?;
        places.extend(self.write_pages(&cold_pages, number, Stream::ColdMetadata, &mut written)?);

        let mut counts = Counts {
            live: &self.zones,
            cut: &mut snapshot.zones.entries,
        };
        // From here on the MAT in memory is not what the last footer leads to. Had the pages found no room,
        // it still would be: a checkpoint of the zones alone can free those that they filled.
        self.checkpoint_state().footer = None;
        {
            let mut meta = self.meta_mut();
            for id in snapshot.freed.drain(..) {
                if fault(Fault::FreedPageKept) {
                    continue;
                }
                let old = meta.mat.set(id, MatEntry::NONE);
                counts.moved(old, MatEntry::NONE);
            }
            for (id, entry) in &places {
                let old = meta.mat.set(*id, *entry);
                counts.moved(old, *entry);
            }
            meta.cache.finish_writing(places.iter().map(|(id, _)| *id));
        }
        snapshot.pages.clear();

        self.write_mat(number, &mut counts, &mut written)?;
        self.write_zit(number, &mut counts, &mut written)?;
        if fault(Fault::ResetBeforeCheckpoint) {
            self.let_go_unused(&std::mem::take(&mut snapshot.zones.resets));
            self.zones.settle_resets(&self.media);
        }
        if !fault(Fault::FooterBeforePages) {
            self.media.flush()?;
        }
        let footer = self.footer(number, snapshot, &written);
        let unneeded = self.log.write_footer(
            &self.media,
            &self.zones,
            &footer.encode(),
            footer.cut,
            footer.replay.sequence,
        )?;
        self.meta_mut().riding.forget_cut();
        let blocks = places
            .iter()
            .map(|(_, entry)| u64::from(entry.blocks))
            .sum();
        self.weigh_journal(snapshot.journal_blocks, blocks, footer.write_clock);
        self.checkpoint_state().footer = Some(footer);
        add(&self.media.counters.checkpoints, 1);
        self.zones
            .let_go(&self.media, unneeded.iter().map(|zone| zone.zone));
        self.let_go_unused(&snapshot.zones.resets);
        self.meta_mut().cache.evict(self.cached_pages_max());
        Ok(Written::Durable)
    }

    /// Decides how long the next journal is to get, after one of so many blocks was ended by a checkpoint that wrote
    /// so many blocks of pages. Zones
    /// that the log does not take are worth more to cleaning, but each checkpoint writes pages anew: so the
    /// journal grows until that costs little of all that is written. Where each sync takes a block of the journal it
    /// gets long, where its blocks are full it stays short.
    fn weigh_journal(&self, journal_blocks: u64, page_blocks: u64, write_clock: u64) {
        let before = std::mem::replace(&mut self.checkpoint_state().write_clock, write_clock);
        let (wanted, written) = (
            self.zones.journal_blocks(),
            write_clock.saturating_sub(before),
        );
        // A journal this much longer would have gone with as much written as makes it cheap.
        let cheap = journal_blocks.saturating_mul(page_blocks * CHEAP_SHARE) / written.max(1);
        // One that was asked for very early tells nothing, one that was asked for early only whether a shorter one would do.
        let tells = match journal_blocks {
            blocks if blocks < wanted / 8 => false,
            blocks if blocks < wanted / 2 => cheap < blocks,
            _ => true,
        };
        if tells {
            let blocks = cheap.clamp(wanted / 4, wanted.saturating_mul(2));
            self.zones.set_journal_blocks(blocks);
        }
    }

    /// One that fails keeps its number: what it wrote is not taken for the next one's.
    fn next_checkpoint(&self) -> u64 {
        let mut state = self.checkpoint_state();
        state.number += 1;
        state.number
    }

    /// Frees the zones in which nothing is valid: by a checkpoint of the zones alone, if that can be.
    ///
    /// It says of the tree what the last whole checkpoint said, and of the zones what there is now;
    /// between both lies the journal, whose records are durable and which has every change
    /// of the tree. So its cut is as good as any, and costs some chunks of the ZIT and a footer.
    pub(crate) fn checkpoint_zones(&self) -> Result<()> {
        self.check_writable()?;
        self.log.wait_for_superseding()?;
        {
            let turn = self.checkpoint_turn.take();
            let written = self.write_zone_checkpoint(Journal::WithinBounds);
            drop(turn);
            self.zones.start_resets(&self.media);
            if written? {
                return Ok(());
            }
        }
        self.checkpoint()
    }

    /// False if it has to be a whole one: the journal since the last one does not have it all, not
    /// all of it can be replayed, or it is as long as it may get.
    fn write_zone_checkpoint(&self, journal: Journal) -> Result<bool> {
        // The zones that go are named by the tree on the device. Were the journal lost that knows better,
        // summaries would still tell where cleaning moved most of what was in them.
        self.settle_summaries(|writer| writer.has_moved);
        self.zones.examine(&self.media);
        let Some(before) = self.checkpoint_state().footer.clone() else {
            return Ok(false);
        };
        let (log, mut zones) = {
            let _meta = self.meta_mut();
            self.check_writable()?;
            if self.unlogged.load(Ordering::Relaxed) {
                return Ok(false);
            }
            (self.log.cut(), self.zones.cut())
        };
        let is_too_long = journal == Journal::WithinBounds && self.journal_is_full();
        if is_too_long || !log.is_sound || log.last_failure > before.cut {
            return Ok(false);
        }
        self.log
            .commit(&self.media, &self.zones, log.lsn, false, None)?;
        self.zones.examine(&self.media);
        if self.log.has_failures(&log) || self.zones.log_is_failing() {
            return Ok(false);
        }
        let number = self.next_checkpoint();
        let changes = match self.changes(&zones.entries, log.lsn > before.cut) {
            Some(changes) => changes,
            None => {
                let mut written = BTreeSet::new();
                let mut counts = Counts {
                    live: &self.zones,
                    cut: &mut zones.entries,
                };
                self.write_zit(number, &mut counts, &mut written)?;
                Changes {
                    overrides: self.overrides(&zones, &written),
                    counts: Vec::new(),
                }
            }
        };
        if fault(Fault::ResetBeforeZones) {
            self.let_go_unused(&std::mem::take(&mut zones.resets));
            self.zones.settle_resets(&self.media);
        }
        self.media.flush()?;
        let footer = Footer {
            checkpoint: number,
            counted: Lsn(log.lsn.0 + u64::from(fault(Fault::CountedTooHigh))),
            write_clock: zones.write_clock,
            next_zone_sequence: zones.next_sequence,
            zit: self.checkpoint_state().zit_chunks.clone(),
            overrides: changes.overrides,
            counts: changes.counts,
            ..before
        };
        // The part of the log that is needed begins where it did.
        let unneeded = self.log.write_footer(
            &self.media,
            &self.zones,
            &footer.encode(),
            footer.counted,
            footer.replay.sequence,
        )?;
        self.checkpoint_state().footer = Some(footer);
        add(&self.media.counters.zone_checkpoints, 1);
        self.zones
            .let_go(&self.media, unneeded.iter().map(|zone| zone.zone));
        self.zones.examine(&self.media);
        if self.zones.log_is_failing() {
            // Without the journal the footer leads to a tree that names what lies in these zones.
            return Ok(false);
        }
        self.let_go_unused(&zones.resets);
        Ok(true)
    }

    /// Has the zones reset that a cut found with nothing valid in them, as far as there is still nothing. The
    /// caller has the turn: so the next cut finds them on their way.
    fn let_go_unused(&self, zones: &[ZoneId]) {
        let unused = zones.iter().filter(|zone| self.zones.may_reset(**zone));
        self.zones.let_go(&self.media, unused.copied());
    }

    /// Resets a zone nobody needs, and its partner.
    pub(crate) fn reset_zone(&self, zone: ZoneId) {
        self.zones.let_go(&self.media, [zone]);
        self.zones.settle_resets(&self.media);
    }

    pub(crate) fn write_pages(
        &self,
        pages: &[&(PageId, Arc<Page>)],
        number: u64,
        stream: Stream,
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<Vec<(PageId, MatEntry)>> {
        let class = match stream {
            Stream::ColdMetadata => Class::CleanedMetadata,
            _ => Class::Metadata,
        };
        let mut places = Vec::with_capacity(pages.len());
        for group in pages.chunks(BATCH_BLOCKS / 2) {
            let sealed: Vec<Buffer> = group
                .iter()
                .map(|(_, page)| store::seal(page, &self.identity, &self.key, number))
                .collect();
            let addrs = self.write_metadata(stream, class, &sealed, written)?;
            for (((id, _), addr), buffer) in group.iter().zip(addrs).zip(&sealed) {
                places.push((
                    *id,
                    MatEntry {
                        addr,
                        blocks: buffer.blocks() as u16,
                    },
                ));
            }
        }
        Ok(places)
    }

    /// A writer for metadata, for which so many zones are left alone. Cold pages have a zone of their own while there are plenty.
    fn metadata_writer(&self, stream: Stream, floor: u32) -> Result<ZoneWriter> {
        let budget = &self.zones.budget;
        if stream == Stream::ColdMetadata
            && let Ok(writer) =
                self.zones
                    .checkout(&self.media, stream, budget.data_floor_max, Shortage::Share)
        {
            return Ok(writer);
        }
        loop {
            let seen = self.zones.resets_ended();
            let writer = self
                .zones
                .checkout(&self.media, Stream::Metadata, floor, Shortage::Share);
            match writer {
                Ok(writer) => return Ok(writer),
                Err(NoWriter::NeedRoom) if self.zones.settle_a_reset(&self.media, seen) => {}
                Err(NoWriter::NeedRoom) => return Err(self.zones.no_zone()),
                Err(NoWriter::Failed(error)) => return Err(error),
            }
        }
    }

    /// Writes sealed blocks to metadata zones and waits for them. Returns where each went.
    fn write_metadata(
        &self,
        stream: Stream,
        class: Class,
        sealed: &[Buffer],
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<Vec<Addr>> {
        let budget = &self.zones.budget;
        let floor = match class {
            Class::Checkpoint => budget.chunks_floor(),
            _ => budget.pages_floor(),
        };
        let mut addrs = Vec::with_capacity(sealed.len());
        let mut tries = Tries::default();
        while let Some(next) = sealed.get(addrs.len()) {
            let seen = self.zones.resets_ended();
            let mut writer = self.metadata_writer(stream, floor)?;
            // Chunks go where pages go that are not cold.
            let kept = match class != Class::Checkpoint && writer.stream == Stream::Metadata {
                true => self.blocks_for_chunks(),
                false => 0,
            };
            let room = writer.capacity - writer.write_pointer;
            if kept > 0 && next.blocks() + kept > room {
                self.zones.give_back(&self.media, writer);
                if self.zones.settle_a_reset(&self.media, seen) {
                    continue;
                }
                return Err(self.zones.no_zone());
            }
            if next.blocks() > room {
                // Too little is left for a page: end the zone.
                writer.failed = true;
                self.zones.give_back(&self.media, writer);
                continue;
            }
            let mut data = Vec::new();
            let mut blocks = 0;
            for buffer in &sealed[addrs.len()..] {
                if blocks + buffer.blocks() + kept > room {
                    break;
                }
                blocks += buffer.blocks();
                data.push(buffer.clone());
            }
            let sizes: Vec<u32> = data.iter().map(Buffer::blocks).collect();
            let mut pending = Vec::new();
            let mut addr = writer.write_blocks(&self.media, class, data, &mut pending);
            let result = wait_all(pending);
            written.insert(writer.zone);
            writer.failed = result.is_err();
            let zone = writer.zone;
            self.zones.give_back(&self.media, writer);
            match result {
                Ok(()) => {
                    tries.succeeded();
                    for size in sizes {
                        addrs.push(addr);
                        addr = addr.offset(size);
                    }
                }
                Err(error) => {
                    tracing::warn!(zone = zone.0, %error, "metadata zone failed");
                    tries.failed(&self.zones, zone, error.into())?;
                }
            }
        }
        Ok(addrs)
    }

    /// Blocks that pages leave to the chunks that follow them: where zones are large no zone is kept for those, and a
    /// checkpoint whose pages are written must not fail, for then those of the zones alone would too.
    fn blocks_for_chunks(&self) -> u32 {
        let budget = &self.zones.budget;
        if budget.large.is_none() || self.zones.free_zones(Part::Metadata) > 0 {
            return 0;
        }
        let of_pages = self.meta().mat.chunks().len();
        let of_zones = self.checkpoint_state().zit_chunks.len();
        ((of_pages + of_zones) as u64).min(budget.zone_blocks / 4) as u32
    }

    fn seal_chunk(&self, kind: Kind, chunk: usize, number: u64, payload: &[u8]) -> Buffer {
        debug_assert!(payload.len() <= BLOCK_PAYLOAD);
        let mut block = BufferMut::zeroed(1);
        block[HEADER_LEN..HEADER_LEN + payload.len()].copy_from_slice(payload);
        envelope::seal(
            &mut block,
            &self.key,
            kind,
            chunk as u64,
            number,
            payload.len(),
        );
        block.freeze()
    }

    fn write_mat(
        &self,
        number: u64,
        counts: &mut Counts<'_>,
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<()> {
        let (chunks, sealed): (Vec<usize>, Vec<Buffer>) = {
            let meta = self.meta();
            let encode = |chunk| {
                let payload = meta.mat.encode_chunk(chunk);
                (
                    chunk,
                    self.seal_chunk(Kind::MatChunk, chunk, number, &payload),
                )
            };
            meta.mat.changed_chunks().into_iter().map(encode).unzip()
        };
        let addrs = self.write_metadata(Stream::Metadata, Class::Checkpoint, &sealed, written)?;
        let mut meta = self.meta_mut();
        for (chunk, addr) in chunks.into_iter().zip(addrs) {
            let old = meta.mat.moved_chunk(chunk, addr);
            counts.moved(chunk_at(old), chunk_at(addr));
        }
        Ok(())
    }

    /// Writes the changed chunks of the ZIT. A chunk that moves changes the count of the zone it
    /// leaves, which may change another chunk: those are found first. The counts of the zones
    /// written into go to the footer.
    fn write_zit(
        &self,
        number: u64,
        counts: &mut Counts<'_>,
        written: &mut BTreeSet<ZoneId>,
    ) -> Result<()> {
        let mut state = self.checkpoint_state();
        let per_chunk = ZitEntry::PER_CHUNK;
        let mut dirty = BTreeSet::new();
        loop {
            let found: Vec<usize> = (0..state.zit_chunks.len())
                .filter(|chunk| {
                    let range =
                        chunk * per_chunk..((chunk + 1) * per_chunk).min(state.written_zit.len());
                    !dirty.contains(chunk)
                        && (state.zit_chunks[*chunk] == Addr::ZERO
                            || counts.cut[range.clone()] != state.written_zit[range])
                })
                .collect();
            if found.is_empty() {
                break;
            }
            for chunk in found {
                dirty.insert(chunk);
                counts.moved(chunk_at(state.zit_chunks[chunk]), MatEntry::NONE);
                state.zit_chunks[chunk] = Addr::ZERO;
            }
        }
        let encoded: Vec<ZitEntry> = counts.cut.to_vec();
        drop(state);
        let sealed: Vec<Buffer> = dirty
            .iter()
            .map(|chunk| {
                let mut payload = Vec::with_capacity(BLOCK_PAYLOAD);
                for entry in encoded.iter().skip(chunk * per_chunk).take(per_chunk) {
                    entry.encode(&mut payload);
                }
                self.seal_chunk(Kind::ZitChunk, *chunk, number, &payload)
            })
            .collect();
        let addrs = self.write_metadata(Stream::Metadata, Class::Checkpoint, &sealed, written)?;
        let mut state = self.checkpoint_state();
        for (chunk, addr) in dirty.into_iter().zip(addrs) {
            counts.moved(MatEntry::NONE, chunk_at(addr));
            state.zit_chunks[chunk] = addr;
        }
        state.written_zit = encoded;
        Ok(())
    }

    fn footer(&self, number: u64, snapshot: &Snapshot, written: &BTreeSet<ZoneId>) -> Footer {
        let geometry = self.media.geometry();
        Footer {
            checkpoint: number,
            cut: Lsn(snapshot.log.lsn.0 + u64::from(fault(Fault::CutTooHigh))),
            counted: Lsn(snapshot.log.lsn.0 + u64::from(fault(Fault::CutTooHigh))),
            replay: snapshot.log.replay,
            root: snapshot.root,
            page_limit: snapshot.page_limit,
            next_ino: snapshot.next_ino,
            inodes: snapshot.inodes,
            reserved_blocks: snapshot.reserved_blocks,
            write_clock: snapshot.zones.write_clock,
            next_zone_sequence: snapshot.zones.next_sequence,
            reserve_basis_points: self.reserve_basis_points,
            max_open: geometry.max_open.unwrap_or(0),
            max_active: geometry.max_active.unwrap_or(0),
            mat: self.meta().mat.chunks().to_vec(),
            zit: self.checkpoint_state().zit_chunks.clone(),
            overrides: self.overrides(&snapshot.zones, written),
            counts: Vec::new(),
        }
    }

    /// What the next footer tells of zones in place of chunks, if it is one that has a place for it. None where chunks are to be
    /// written.
    fn changes(&self, now: &[ZitEntry], past_cut: bool) -> Option<Changes> {
        let state = self.checkpoint_state();
        let are_all_written = state.zit_chunks.iter().all(|addr| *addr != Addr::ZERO);
        if !past_cut || !are_all_written || self.identity.incompatible & COMPACT == 0 {
            return None;
        }
        Changes::between(&state.written_zit, now, self.zones.budget.zone_blocks)
    }

    /// The entries of the zones that a checkpoint wrote into.
    fn overrides(&self, zones: &zones::Cut, written: &BTreeSet<ZoneId>) -> Vec<(ZoneId, ZitEntry)> {
        let written = written.iter();
        written
            .flat_map(|zone| self.media.pairs.both(*zone))
            .filter_map(|zone| {
                let now = self.zones.entry(zone)?;
                let valid = zones.entries.get(zone.0 as usize)?.valid;
                Some((zone, ZitEntry { valid, ..now }))
            })
            .collect()
    }

    /// Asks the next checkpoint to move what lies in a metadata zone: pages, and chunks of the
    /// tables. Returns the pages that must be in memory first.
    pub(crate) fn move_metadata_from(&self, zone: ZoneId) -> Vec<PageId> {
        let mut state = self.checkpoint_state();
        for chunk in 0..state.zit_chunks.len() {
            if state.zit_chunks[chunk].zone() == zone && state.zit_chunks[chunk] != Addr::ZERO {
                // An entry that differs makes the chunk be written again.
                let first = chunk * ZitEntry::PER_CHUNK;
                if let Some(entry) = state.written_zit.get_mut(first) {
                    entry.resets = entry.resets.wrapping_sub(1);
                }
            }
        }
        drop(state);
        let mut meta = self.meta_mut();
        let Meta { mat, .. } = &mut *meta;
        for chunk in 0..mat.chunks().len() {
            let addr = mat.chunks()[chunk];
            if addr != Addr::ZERO && addr.zone() == zone {
                mat.touch_chunk(chunk);
            }
        }
        mat.pages_at(|addr| addr.zone() == zone)
    }
}
