//! Which zone is taken into use next, and which writer serves a stream.

use persimmon_device::ZoneId;
use persimmon_format::packed::Grains;
use persimmon_format::summary::SummaryBuilder;
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;

use super::budget::{Begun, Budget, JOURNAL_BLOCKS_MIN, Pages};
use super::entries::Entry;
use super::layout::Part;
use super::lifetime::Lives;
use super::locked::Locked;
use super::stream::Stream;
use super::table::{NoWriter, Shortage, Table, UnderWay, WritingPages, Zones};
use super::trace::{Filled, ZoneEvent};
use super::writer::ZoneWriter;
use crate::pairs::Pairs;

/// Classes that live about as long are no further apart.
const SIMILAR_CLASSES: u8 = 1;

/// Which open zones may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// All.
    All,
    /// Not those that cleaning opened: users would fill what it needs to go on, while no other zone is free for it.
    Users,
}

impl Allowed {
    fn takes(self, writer: &ZoneWriter) -> bool {
        self == Allowed::All || !writer.by_cleaning
    }
}

/// The journal is to get as long as this part of what is always kept for it, at least.
const JOURNAL_SHARE_LEAST: u64 = 4;

impl Zones {
    /// Free zones for metadata to be kept, with a tree of these pages: those of the
    /// budget, and those that the log may still grow into before the next checkpoint. What one under way has taken
    /// is what they were kept for.
    pub(crate) fn changes_floor(&self, tree: Pages) -> u32 {
        let table = self.lock();
        table.changes_floor(tree, table.journal_blocks, &self.budget)
    }

    /// The same where the journal gets no longer than zones were won for: those that it is to get beyond that nobody
    /// waits for.
    pub(crate) fn held_changes_floor(&self, tree: Pages) -> u32 {
        let table = self.lock();
        table.changes_floor(tree, table.journal_blocks_held, &self.budget)
    }

    /// Of [`Zones::held_changes_floor`], what a checkpoint under way has taken.
    pub(crate) fn taken_by_checkpoint(&self) -> u32 {
        self.lock().under_way.unwrap_or_default().zones
    }

    /// Free zones for metadata left alone by cleaning, with these changed pages.
    pub(crate) fn survivors_floor(&self, changed: Pages) -> u32 {
        let table = self.lock();
        if table.lends_last {
            return self.budget.spare_zones().saturating_sub(2);
        }
        let growth = table.log_growth(table.journal_blocks_held, &self.budget);
        // The log takes one zone after the other, and waits for those that are being reset: they are as good as
        // free for it, but for the next one. If they never come its journal ends earlier.
        let coming = self.budget.layout.get(&table.in_reset, Part::Metadata);
        let growth = growth
            .saturating_sub(coming)
            .max(growth.min(self.budget.copies));
        self.budget.survivors_floor(changed, table.begun()) + growth
    }

    /// A whole checkpoint is being written from now on.
    pub(crate) fn begin_pages(&self) -> WritingPages<'_> {
        let mut table = self.lock();
        let blocks = table.metadata_blocks_left;
        table.under_way = Some(UnderWay { zones: 0, blocks });
        WritingPages(self)
    }

    /// Whether so few zones are left, once some are put `aside`, that a journal has to end which is longer than what is always kept
    /// for it.
    pub(crate) fn are_short_for_journal(&self, changed: Pages, aside: u32) -> bool {
        let table = self.lock();
        let (begun, begun_log) = (table.begun(), table.log_blocks_left);
        let (all, log) = self.budget.journal_floor(changed, begun, begun_log);
        let candidates = self.budget.layout.log_candidates();
        // Who needs a zone for the log or a checkpoint waits for those on their way.
        let comes = |entry: &Entry| entry.is_free() || entry.in_reset;
        let free = |zone: u32| table.entries.get(ZoneId(zone)).is_some_and(comes);
        let of_part = |zones| self.budget.layout.get(zones, Part::Metadata);
        of_part(&table.free_zones) + of_part(&table.in_reset) <= all.saturating_add(aside)
            || candidates.filter(|zone| free(*zone)).count() <= log as usize
    }

    /// Blocks that the journal is to get as long as, as long as free zones are not short.
    pub(crate) fn journal_blocks(&self) -> u64 {
        self.lock().journal_blocks
    }

    /// No more than so many from now on, within the bounds: that is where a journal had to end.
    pub(crate) fn shorten_journal(&self, blocks: u64) {
        self.set_journal_blocks(blocks.min(self.journal_blocks()));
    }

    /// So many from now on, within the bounds: also less than is always kept for it, where so much is not worth it.
    pub(crate) fn set_journal_blocks(&self, blocks: u64) {
        let (least, most) = (
            (self.budget.journal_blocks_kept / JOURNAL_SHARE_LEAST).max(JOURNAL_BLOCKS_MIN),
            self.budget.journal_blocks_max,
        );
        let mut table = self.lock();
        table.journal_blocks = blocks.clamp(least, most);
        table.journal_blocks_held = table.journal_blocks_held.min(table.journal_blocks);
    }

    /// Zones were won for all of the journal.
    pub(crate) fn hold_journal_blocks(&self) {
        let mut table = self.lock();
        table.journal_blocks_held = table.journal_blocks;
    }

    /// A writer of any zone for file data, survivors' too, if one is parked.
    pub(crate) fn checkout_any_data(&self) -> Option<ZoneWriter> {
        self.lock().take_any_data()
    }

    /// Whether a stream of new data leaves the zone being filled to cleaning.
    pub(crate) fn leaves_to_cleaning(&self, stream: Stream, floor: u32) -> bool {
        let table = self.lock();
        table.is_left_to_cleaning(stream.role(), floor, &self.budget)
    }

    /// A writer, and whether its zone was opened for it and has no header yet.
    pub(super) fn take_or_open(
        &self,
        wanted: Stream,
        floor: u32,
        shortage: Shortage,
    ) -> Result<(ZoneWriter, bool), NoWriter> {
        let stream = self.budget.shared(wanted);
        let by_cleaning = matches!(wanted, Stream::Survivors(_)) && stream != wanted;
        let role = stream.role();
        let needed = floor.saturating_add(self.budget.copies_of(role));
        let mut table = self.lock();
        loop {
            if shortage == Shortage::Tell && table.is_left_to_cleaning(role, floor, &self.budget) {
                return Err(NoWriter::NeedRoom);
            }
            let are_short = table.free_for(role, &self.budget) < needed && floor != u32::MAX;
            let allowed = match are_short && role == Role::Data && !by_cleaning {
                true => Allowed::Users,
                false => Allowed::All,
            };
            let least = table.least_load(stream, allowed);
            if least == Some(0)
                && let Some(writer) = table.take_parked(stream, allowed)
            {
                return Ok((writer, false));
            }
            let plenty = match least {
                Some(_) => self.budget.data_slots as u32,
                None => 0,
            };
            let may_open = table.may_open(stream, &self.budget);
            if may_open
                && table.free_for(role, &self.budget) >= needed.saturating_add(plenty)
                && let Some(zones) = self.choose_free(&mut table, role, floor)
            {
                let summary = SummaryBuilder::new(self.identity.incompatible);
                let mut opened = table.open(zones, stream, &self.budget, &self.pairs, summary);
                opened.by_cleaning = by_cleaning && self.budget.survivors_apart;
                self.trace.push(ZoneEvent::Opened {
                    zone: opened.zone,
                    role,
                    lifetime: stream.lifetime(),
                    free_zones: table.free_zones.total(),
                });
                return Ok((opened, true));
            }
            if let Some(writer) = table.take_parked(stream, allowed) {
                return Ok((writer, false));
            }
            if may_open {
                if table.out.get(&stream).copied().unwrap_or(0) == 0 {
                    let apart_max = match shortage {
                        Shortage::Share => u8::MAX,
                        Shortage::Tell => SIMILAR_CLASSES,
                    };
                    if let Some(writer) = table.take_similar(stream, apart_max, allowed) {
                        return Ok((writer, false));
                    }
                    // What is live in a victim has its place in any zone.
                    if self.budget.large.is_some()
                        && shortage == Shortage::Share
                        && let Some(writer) = table.take_open(role)
                    {
                        return Ok((writer, false));
                    }
                    if shortage == Shortage::Tell || !table.someone_writes(role) {
                        return Err(NoWriter::NeedRoom);
                    }
                }
            // It has no slot of its own: there may be no other zone at all.
            } else if let Some(writer) = table.take_similar(stream, u8::MAX, Allowed::All) {
                table.wanting.insert(stream);
                return Ok((writer, false));
            }
            table = self.wait_for_writer(table);
        }
    }

    /// Waits until somebody gives back a writer.
    pub(super) fn wait_for_writer<'t>(&self, table: Locked<'t>) -> Locked<'t> {
        table.wait(&self.returned)
    }

    /// Whether file data can have one of the zones that are free: the last ones may be there for the log alone.
    pub(crate) fn may_take_for_data(&self) -> bool {
        let table = self.ranked();
        table
            .choose_one((Role::Data, u32::MAX), &self.budget, None)
            .is_some()
    }

    /// Zones that are free for a part.
    pub(crate) fn free_zones(&self, part: Part) -> u32 {
        self.budget.layout.get(&self.lock().free_zones, part)
    }

    /// Blocks that free zones of a part have, and those that are written to.
    pub(crate) fn free_blocks(&self, part: Part) -> u64 {
        let table = self.lock();
        let zones = u64::from(self.budget.layout.get(&table.free_zones, part));
        let free = zones * self.budget.zone_blocks(part);
        let begun = u64::from(table.metadata_blocks_left);
        match part {
            _ if !self.budget.layout.is_split() => free + begun + table.unwritten_blocks(),
            Part::Metadata => free + begun,
            Part::Data => free + table.unwritten_blocks(),
        }
    }

    /// Free zones in all.
    pub(crate) fn all_free_zones(&self) -> u32 {
        self.lock().free_zones.total()
    }

    /// Zones that are free but for what is in them: they can be used when they are reset.
    pub(crate) fn nobodys(&self) -> Vec<ZoneId> {
        let table = self.lock();
        let zones = table.entries.iter();
        zones
            .filter(|(_, e)| e.role == Role::Free && e.used && e.failure.is_none())
            .map(|(zone, _)| zone)
            .collect()
    }

    /// Data zones with something in them whose sequence is not known: their headers could not be read
    /// when records told that they are in use.
    pub(crate) fn unknown(&self) -> Vec<ZoneId> {
        let table = self.lock();
        let zones = table.entries.iter();
        let unknown = zones.filter(|(_, e)| e.role == Role::Data && e.sequence == 0);
        unknown
            .map(|(zone, _)| zone)
            .filter(|zone| self.valid.of(*zone) > Grains::ZERO)
            .collect()
    }

    /// The free zone whose turn it is, or, for what has two copies, the two. Data and metadata leave the
    /// last candidates to the log.
    pub(super) fn choose_free(
        &self,
        table: &mut Table,
        role: Role,
        floor: u32,
    ) -> Option<(ZoneId, Option<ZoneId>)> {
        self.rank(table);
        let one = table.choose_one((role, floor), &self.budget, None)?;
        if self.budget.copies_of(role) == 1 {
            return Some((one, None));
        }
        let other = table.choose_one((role, floor), &self.budget, Some(one))?;
        Some((one.min(other), Some(one.max(other))))
    }

    /// The header of such a zone was read after all.
    pub(crate) fn know(&self, header: &ZoneHeader) {
        let mut table = self.lock();
        table.next_sequence = table.next_sequence.max(header.sequence.saturating_add(1));
        if let Some(entry) = table.entries.get_mut(header.zone) {
            entry.sequence = header.sequence;
            entry.lifetime = header.lifetime;
        }
    }
}

impl Table {
    /// Free zones for a role.
    pub(super) fn free_for(&self, role: Role, budget: &Budget) -> u32 {
        budget.layout.get(&self.free_zones, Part::of(role))
    }

    /// The count of free zones that a zone belongs to.
    pub(super) fn free_zones_mut(&mut self, zone: ZoneId, budget: &Budget) -> &mut u32 {
        let layout = &budget.layout;
        layout.get_mut(&mut self.free_zones, layout.part_of(zone))
    }

    /// Zones that the log may take before a checkpoint gives some back, with a journal of so many blocks.
    fn log_growth(&self, blocks: u64, budget: &Budget) -> u32 {
        budget.log_growth(self.log_zones, self.log_blocks_left, blocks)
    }

    fn changes_floor(&self, tree: Pages, journal_blocks: u64, budget: &Budget) -> u32 {
        let floor = budget.changes_floor(tree) + self.log_growth(journal_blocks, budget);
        floor.saturating_sub(self.under_way.unwrap_or_default().zones)
    }

    /// Room in zones that is there for pages.
    fn begun(&self) -> Begun {
        Begun {
            left: self.metadata_blocks_left,
            had: self.under_way.map_or(0, |under_way| under_way.blocks),
        }
    }

    /// The zone of a stream takes no more.
    pub(super) fn forget_begun(&mut self, stream: Stream) {
        if stream == Stream::Metadata {
            let left = std::mem::take(&mut self.metadata_blocks_left);
            if let Some(under_way) = &mut self.under_way {
                under_way.blocks = under_way.blocks.saturating_sub(left);
            }
        }
    }

    /// A zone that was taken for this stream is free again.
    pub(super) fn untake(&mut self, stream: Stream, budget: &Budget) {
        if stream == Stream::Metadata
            && let Some(under_way) = &mut self.under_way
        {
            under_way.zones = under_way.zones.saturating_sub(budget.copies);
        }
    }

    /// Whether new data leaves the zone being filled to cleaning, with which it shares it: the last that was free was taken
    /// to empty a victim, and where new data fills that up, nothing can be emptied any more.
    pub(super) fn is_left_to_cleaning(&self, role: Role, floor: u32, budget: &Budget) -> bool {
        // Whoever may take no zone at all has what is open: its space is there also where the host is full.
        role == Role::Data
            && floor != u32::MAX
            && budget.layout.is_split()
            && !budget.survivors_apart
            && self.free_for(role, budget) < floor
    }

    /// Blocks that still fit into open zones of file data that nobody writes to now.
    pub(super) fn unwritten_blocks(&self) -> u64 {
        let parked = self.parked.iter().filter(|w| w.stream.role() == Role::Data);
        parked.map(|w| u64::from(w.room())).sum()
    }

    /// What the zone of this stream that has least to do has to do, of those that are `allowed`; none if no writer is parked.
    pub(super) fn least_load(&self, stream: Stream, allowed: Allowed) -> Option<u32> {
        let parked = self.parked.iter();
        let parked = parked.filter(|w| w.stream == stream && allowed.takes(w));
        parked.map(ZoneWriter::load).min()
    }

    /// The writer of the stream whose zone has least to do, of those that are `allowed`; of several the one parked first.
    pub(super) fn take_parked(&mut self, stream: Stream, allowed: Allowed) -> Option<ZoneWriter> {
        self.take(|w| w.stream == stream && allowed.takes(w))
    }

    pub(super) fn take(&mut self, wanted: impl Fn(&ZoneWriter) -> bool) -> Option<ZoneWriter> {
        let parked = self.parked.iter().enumerate().filter(|(_, w)| wanted(w));
        let (at, _) = parked.min_by_key(|(_, w)| w.load())?;
        let writer = self.parked.remove(at);
        *self.out.entry(writer.stream).or_default() += 1;
        Some(writer)
    }

    /// A writer of another stream of the same role: of those whose classes are at most so far apart one
    /// whose blocks live about as long.
    pub(super) fn take_similar(
        &mut self,
        stream: Stream,
        apart_max: u8,
        allowed: Allowed,
    ) -> Option<ZoneWriter> {
        let may = |other: Stream| match stream {
            // Blocks that users wait for do not queue up behind those that are cleaned.
            Stream::Data(_) | Stream::Hinted(_) => {
                matches!(other, Stream::Data(_) | Stream::Hinted(_))
            }
            _ => other.role() == stream.role(),
        };
        let parked = self.parked.iter().filter(|w| allowed.takes(w));
        let nearest = parked
            .map(|w| w.stream)
            .filter(|other| may(*other) && other.class().abs_diff(stream.class()) <= apart_max)
            .min_by_key(|other| other.class().abs_diff(stream.class()))?;
        self.take(|w| w.stream == nearest && allowed.takes(w))
    }

    /// A writer of any zone for file data; of several the one with least to do.
    pub(super) fn take_any_data(&mut self) -> Option<ZoneWriter> {
        self.take(|w| w.stream.role() == Role::Data)
    }

    pub(super) fn someone_writes(&self, role: Role) -> bool {
        self.out.iter().any(|(s, n)| s.role() == role && *n > 0)
    }

    fn open_count(&self, counts: impl Fn(Stream) -> bool) -> usize {
        self.parked.iter().filter(|w| counts(w.stream)).count()
            + self
                .out
                .iter()
                .filter(|(s, _)| counts(**s))
                .map(|(_, n)| n)
                .sum::<usize>()
    }

    /// Whether the budget has a slot for one more zone of this stream. Data and survivors share
    /// theirs; each keeps one. Zones that are being filled hold room that nobody can use, so on small
    /// volumes classes share them. A stream has a second zone only while no other wants its first.
    pub(super) fn may_open(&self, stream: Stream, budget: &Budget) -> bool {
        if stream.role() != Role::Data {
            return self.open_count(|s| s == stream) < 1;
        }
        let is_survivors = |s| matches!(s, Stream::Survivors(_));
        let all = budget.data_slots + usize::from(budget.survivors_apart);
        let survivors = self.open_count(is_survivors);
        let data = self.open_count(|s| s.role() == Role::Data && !is_survivors(s));
        let least = usize::from(budget.survivors_apart);
        let has_slot = match is_survivors(stream) {
            true => survivors < least.max(all.saturating_sub(data.max(1))),
            false => data < all.saturating_sub(survivors.max(least)),
        };
        let others = self.wanting.iter().filter(|s| **s != stream).count();
        let only = match is_survivors(stream) {
            true => survivors == 0,
            false => data == 0,
        };
        let first = self.open_count(|s| s == stream) == 0;
        has_slot
            && match first {
                true => only || data + survivors < budget.separate_zones_max,
                false => data + survivors + others < all,
            }
    }

    fn choose_one(
        &self,
        (role, floor): (Role, u32),
        budget: &Budget,
        taken: Option<ZoneId>,
    ) -> Option<ZoneId> {
        let (layout, part) = (&budget.layout, Part::of(role));
        let is_left = |zone: &ZoneId| {
            let entry = self.entries.get(*zone);
            taken != Some(*zone) && entry.is_some_and(Entry::is_free)
        };
        let in_part = |zone: &ZoneId| is_left(zone) && layout.contains(part, *zone);
        let mut candidates = self.ranks.free_candidates().filter(in_part);
        if role == Role::Log {
            return candidates.next();
        }
        if let Some(other) = self.ranks.free_others(part, layout).find(is_left) {
            return Some(other);
        }
        let first = candidates.next()?;
        // No more than the floors keep for it: what they leave to others must be theirs to take.
        let journal_blocks = budget.journal_blocks_kept.min(self.journal_blocks);
        let growth = self.log_growth(journal_blocks, budget);
        // The chunks that end a checkpoint end the journal too.
        let is_chunk = role == Role::Metadata && floor <= budget.chunks_floor();
        let kept = match is_chunk && budget.large.is_none() {
            true => floor,
            false => growth + budget.copies,
        };
        let spared = candidates.count() >= kept as usize;
        // What the budget keeps free is candidates then, whatever others take.
        (spared || layout.only_log_candidates(part)).then_some(first)
    }

    /// Takes a free zone into use, with its partner if it is to have one. Returns its sequence and
    /// the blocks that fit.
    pub(super) fn claim(
        &mut self,
        (zone, partner): (ZoneId, Option<ZoneId>),
        role: Role,
        lifetime: u8,
        budget: &Budget,
        pairs: &Pairs,
    ) -> (u64, u32) {
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.saturating_add(1);
        let clock = self.write_clock;
        let mut capacity = u32::MAX;
        for zone in std::iter::once(zone).chain(partner) {
            *self.free_zones_mut(zone, budget) -= 1;
            self.log_zones += u32::from(role == Role::Log);
            let Some(entry) = self.entries.get_mut(zone) else {
                continue;
            };
            entry.role = role;
            entry.lifetime = lifetime;
            entry.sequence = sequence;
            entry.write_pointer = 1;
            entry.last_write = clock;
            entry.used = true;
            entry.open = true;
            entry.keeps_space = None;
            capacity = capacity.min(entry.capacity);
        }
        if let Some(partner) = partner {
            pairs.join(zone, partner);
        }
        (sequence, capacity)
    }

    /// A zone is to be reset; false if it is already, or there is no such zone.
    pub(super) fn begin_reset(&mut self, zone: ZoneId, budget: &Budget) -> bool {
        let entry = self.entries.get_mut(zone);
        let begins = entry.is_some_and(|entry| !std::mem::replace(&mut entry.in_reset, true));
        let layout = &budget.layout;
        *layout.get_mut(&mut self.in_reset, layout.part_of(zone)) += u32::from(begins);
        begins
    }

    /// The host keeps the space of a zone from now on.
    pub(super) fn keep_space(&mut self, zone: ZoneId) {
        self.resets_kept = self.resets_kept.saturating_add(1);
        let since = self.resets_kept;
        if let Some(entry) = self.entries.get_mut(zone) {
            entry.keeps_space = Some(since);
        }
    }

    /// Its reset is over.
    pub(super) fn end_reset(&mut self, zone: ZoneId, budget: &Budget) {
        let entry = self.entries.get_mut(zone);
        let ends = entry.is_some_and(|entry| std::mem::take(&mut entry.in_reset));
        let layout = &budget.layout;
        *layout.get_mut(&mut self.in_reset, layout.part_of(zone)) -= u32::from(ends);
    }

    /// A zone is free. Where it was claimed and nothing was written to it, it was not reset.
    pub(super) fn mark_free(&mut self, zone: ZoneId, budget: &Budget, was_reset: bool) {
        self.end_reset(zone, budget);
        let Some(entry) = self.entries.get_mut(zone) else {
            return;
        };
        let counted = entry.role == Role::Free && !entry.used;
        let was_log = entry.role == Role::Log;
        *entry = Entry {
            capacity: entry.capacity,
            resets: entry.resets.saturating_add(was_reset.into()),
            last_write: entry.last_write,
            keeps_space: entry.keeps_space,
            ..Entry::default()
        };
        *self.free_zones_mut(zone, budget) += u32::from(!counted);
        self.log_zones -= u32::from(was_log);
    }

    pub(super) fn open(
        &mut self,
        zones: (ZoneId, Option<ZoneId>),
        stream: Stream,
        budget: &Budget,
        pairs: &Pairs,
        summary: SummaryBuilder,
    ) -> ZoneWriter {
        let (role, lifetime) = (stream.role(), stream.lifetime());
        let (sequence, capacity) = self.claim(zones, role, lifetime, budget, pairs);
        if stream == Stream::Metadata {
            let blocks = capacity.saturating_sub(1);
            self.metadata_blocks_left = blocks;
            if let Some(under_way) = &mut self.under_way {
                under_way.zones += budget.copies;
                under_way.blocks += blocks;
            }
        }
        *self.out.entry(stream).or_default() += 1;
        self.wanting.remove(&stream);
        ZoneWriter {
            zone: zones.0,
            stream,
            sequence,
            write_pointer: 1,
            capacity,
            summary,
            last_summary: 0,
            has_moved: false,
            by_cleaning: false,
            is_ending: false,
            queue: Vec::new(),
            lives: Lives::default(),
            filled: Filled::default(),
        }
    }
}
