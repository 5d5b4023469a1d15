//! Which zone is taken into use next, and which writer serves a stream.

use persimmon_device::ZoneId;
use persimmon_format::packed::PackUnits;
use persimmon_format::summary::SummaryBuilder;
use persimmon_format::table::Role;

use super::budget::Budget;
use super::entries::ZoneEntry;
use super::layout::DeviceKind;
use super::lifetime::Lives;
use super::locked::Locked;
use super::stream::Stream;
use super::table::{NoWriter, Shortage, Table, Zones};
use super::trace::{Filled, ZoneEvent};
use super::writer::ZoneWriter;
use crate::invariant::{invariant_holds, invariant_or_damage, invariant_sub, why_stopped};
use crate::pairs::Pairs;

/// Classes that live about as long are no further apart.
const SIMILAR_CLASSES: u8 = 1;

/// How many free zones somebody who takes one leaves to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserve {
    /// So many of all; or it takes none, and has what is open.
    pub(crate) zones: Option<u32>,
    /// So many of those that the log can take, if it takes one of them.
    pub(crate) log_candidates: u32,
}

impl Reserve {
    /// Of the log, which leaves nothing to anybody.
    pub(super) const NONE: Reserve = Reserve {
        zones: Some(0),
        log_candidates: 0,
    };
}

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

impl Zones {
    /// A parked writer of any zone for file data, also of one for moved blocks.
    pub(crate) fn checkout_any_data(&self) -> Option<ZoneWriter> {
        self.lock().take_any_data()
    }

    /// Whether a stream of new data leaves the zone being filled to cleaning.
    pub(crate) fn leaves_to_cleaning(&self, stream: Stream, reserve: Reserve) -> bool {
        let table = self.lock();
        table.is_left_to_cleaning(stream.role(), reserve.zones, &self.budget)
    }

    /// A writer, and whether its zone was opened for it and has no header yet. Zones work in parallel: one that has nothing to do is
    /// taken first, and where all are busy another is opened while there are plenty.
    pub(super) fn take_or_open(
        &self,
        wanted: Stream,
        reserve: Reserve,
        shortage: Shortage,
    ) -> Result<(ZoneWriter, bool), NoWriter> {
        let stream = self.budget.shared(wanted);
        let by_cleaning = wanted.is_moved() && !stream.is_moved();
        let role = stream.role();
        let left_alone = reserve.zones;
        // So many have to be free for one to be opened, if one may be at all.
        let needed = left_alone.map(|zones| zones.saturating_add(self.budget.copies_of(role)));
        let mut table = self.lock();
        loop {
            if shortage == Shortage::Tell
                && table.is_left_to_cleaning(role, left_alone, &self.budget)
            {
                return Err(NoWriter::NeedRoom);
            }
            let free = table.free_for(role, &self.budget);
            let is_short = needed.is_some_and(|needed| free < needed);
            let allowed = if is_short && role == Role::Data && !by_cleaning {
                Allowed::Users
            } else {
                Allowed::All
            };
            let least = table.least_load(stream, allowed);
            if least == Some(0)
                && let Some(writer) = table.take_parked(stream, allowed)
            {
                return Ok((writer, false));
            }
            let beyond = match least {
                Some(_) => self.budget.data_slots as u32,
                None => 0,
            };
            let may_open = table.may_open(stream, &self.budget);
            if may_open
                && needed.is_some_and(|needed| free >= needed.saturating_add(beyond))
                && let Some(mut opened) = self.open_free(&mut table, stream, reserve)
            {
                opened.by_cleaning = by_cleaning && self.budget.moved_apart;
                return Ok((opened, true));
            }
            let taken = match table.take_parked(stream, allowed) {
                Some(writer) => Some(writer),
                None if may_open => {
                    self.take_for_want_of_zone(&mut table, stream, shortage, allowed)?
                }
                None => table.take_for_want_of_slot(stream),
            };
            match taken {
                Some(writer) => return Ok((writer, false)),
                None => table = self.wait_for_writer(table)?,
            }
        }
    }

    /// Opens one of the zones that are free, if there is one for this stream.
    fn open_free(&self, table: &mut Table, stream: Stream, reserve: Reserve) -> Option<ZoneWriter> {
        let zones = self.choose_free(table, stream.role(), reserve)?;
        let summary = SummaryBuilder::default();
        let opened = table.open(zones, stream, &self.budget, &self.pairs, summary);
        self.trace.push(ZoneEvent::Opened {
            zone: opened.zone,
            role: stream.role(),
            lifetime: stream.lifetime(),
            free_zones: table.counts.free.total(),
        });
        Some(opened)
    }

    /// A writer for a stream that has a slot and no zone, and too few are free; none if it is worth waiting for one.
    fn take_for_want_of_zone(
        &self,
        table: &mut Table,
        stream: Stream,
        shortage: Shortage,
        allowed: Allowed,
    ) -> Result<Option<ZoneWriter>, NoWriter> {
        // Somebody has one, and will give it back.
        if table.out.get(&stream).copied().unwrap_or(0) > 0 {
            return Ok(None);
        }
        let apart_max = match shortage {
            Shortage::Share => u8::MAX,
            Shortage::Tell => SIMILAR_CLASSES,
        };
        if let Some(writer) = table.take_similar(stream, apart_max, allowed) {
            return Ok(Some(writer));
        }
        // What is live in a victim has its place in any zone.
        if self.budget.large.is_some()
            && shortage == Shortage::Share
            && let Some(writer) = table.take_open(stream.role())
        {
            return Ok(Some(writer));
        }
        if shortage == Shortage::Tell || !table.someone_writes(stream.role()) {
            Err(NoWriter::NeedRoom)
        } else {
            Ok(None)
        }
    }

    /// Waits until somebody gives back a writer. Who panicked with one does not.
    pub(super) fn wait_for_writer<'t>(&self, table: Locked<'t>) -> Result<Locked<'t>, NoWriter> {
        if self.alarm.is_raised() {
            Err(NoWriter::Failed(why_stopped(&self.alarm)))
        } else {
            Ok(table.wait(&self.returned))
        }
    }

    /// Has all look again who wait for a writer.
    pub(crate) fn wake_all(&self) {
        drop(self.lock());
        self.returned.notify_all();
    }

    /// Whether file data can have one of the zones that are free: the last ones may be there for the log alone.
    pub(crate) fn may_take_for_data(&self, reserve: Reserve) -> bool {
        let table = self.indexed();
        let chosen = table.choose_one(Role::Data, reserve, &self.budget, None);
        chosen.is_some()
    }

    /// Whether nothing refers to a free zone that is to be written to.
    fn is_unreferenced(&self, zone: ZoneId) -> bool {
        let valid = self.valid(zone);
        invariant_or_damage!(
            self.alarm,
            valid == PackUnits::ZERO,
            "zone {zone} is free, and has {valid:?} valid in it"
        ) && invariant_holds!(
            self.alarm,
            !self.pins.is_filled(zone),
            "zone {zone} is free, and data is on its way into it"
        )
    }

    /// The free zone whose turn it is, or, for what has two copies, the two. Data and metadata leave the
    /// last candidates to the log.
    pub(super) fn choose_free(
        &self,
        table: &mut Table,
        role: Role,
        reserve: Reserve,
    ) -> Option<(ZoneId, Option<ZoneId>)> {
        self.update_index(table);
        let one = table.choose_one(role, reserve, &self.budget, None)?;
        if !self.is_unreferenced(one) {
            return None;
        }
        if self.budget.copies_of(role) == 1 {
            return Some((one, None));
        }
        let other = table.choose_one(role, reserve, &self.budget, Some(one))?;
        if !self.is_unreferenced(other) {
            return None;
        }
        invariant_holds!(
            self.alarm,
            one != other,
            "zone {one} is to be its own partner"
        );
        Some((one.min(other), Some(one.max(other))))
    }
}

impl Table {
    /// Whether new data leaves the zone being filled to cleaning, with which it shares it: the last that was free was taken
    /// to empty a victim, and where new data fills that up, nothing can be emptied any more.
    pub(super) fn is_left_to_cleaning(
        &self,
        role: Role,
        left_alone: Option<u32>,
        budget: &Budget,
    ) -> bool {
        // Whoever may take no zone at all has what is open: its space is there also where the host is full.
        role == Role::Data
            && left_alone.is_some_and(|zones| self.free_for(role, budget) < zones)
            && budget.layout.is_split()
            && !budget.moved_apart
    }

    /// Blocks that still fit into open zones of file data that nobody writes to now.
    pub(super) fn unwritten_blocks(&self) -> u64 {
        let parked = self.parked.iter().filter(|w| w.stream.role() == Role::Data);
        parked.map(|w| u64::from(w.room())).sum()
    }

    /// A writer of a stream comes back.
    pub(super) fn writer_is_back(&mut self, stream: Stream) {
        let out = self.out.entry(stream).or_default();
        invariant_sub!(self.alarm, *out, 1, "writers checked out");
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
        invariant_holds!(
            self.alarm,
            self.entries
                .get(writer.zone)
                .is_some_and(|entry| entry.is_open() && entry.sequence == writer.sequence),
            "a writer of zone {} of sequence {} waits, and the zone is {:?}",
            writer.zone,
            writer.sequence,
            self.entries.get(writer.zone)
        );
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

    /// The same for a stream that has no slot of its own: there may be no other zone at all. When there is a slot, the stream gets it.
    fn take_for_want_of_slot(&mut self, stream: Stream) -> Option<ZoneWriter> {
        let writer = self.take_similar(stream, u8::MAX, Allowed::All)?;
        self.wanting.insert(stream);
        Some(writer)
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

    /// Whether the budget has a slot for one more zone of this stream. Data and moved blocks share
    /// theirs; each keeps one. Zones that are being filled hold room that nobody can use, so on small
    /// volumes classes share them. A stream has a second zone only while no other wants its first.
    pub(super) fn may_open(&self, stream: Stream, budget: &Budget) -> bool {
        let has_none = self.open_count(|s| s == stream) == 0;
        if stream.role() != Role::Data {
            return has_none;
        }
        let is_moved = Stream::is_moved;
        let moved = self.open_count(is_moved);
        let data = self.open_count(|s| s.role() == Role::Data && !is_moved(s));
        let of_moved = usize::from(budget.moved_apart);
        let slots = budget.data_slots + of_moved;
        let (own, slots_own) = if is_moved(stream) {
            (moved, of_moved.max(slots.saturating_sub(data.max(1))))
        } else {
            (data, slots.saturating_sub(moved.max(of_moved)))
        };
        if own >= slots_own {
            return false;
        }
        let open = data + moved;
        if has_none {
            let separate_max = match stream {
                Stream::Hinted(_) => budget.hinted_zones_max,
                _ => budget.separate_zones_max,
            };
            return own == 0 || open < separate_max;
        }
        let others = self.wanting.iter().filter(|s| **s != stream).count();
        open + others < slots
    }

    /// The free zone whose turn it is, but for one that is `taken` already. The reserve says here only what is left to the log of the
    /// zones that it can take.
    fn choose_one(
        &self,
        role: Role,
        reserve: Reserve,
        budget: &Budget,
        taken: Option<ZoneId>,
    ) -> Option<ZoneId> {
        let (layout, device) = (&budget.layout, DeviceKind::of(role));
        let is_left = |zone: &ZoneId| {
            let entry = self.entries.get(*zone);
            taken != Some(*zone) && entry.is_some_and(ZoneEntry::is_free)
        };
        let is_there = |zone: &ZoneId| is_left(zone) && layout.contains(device, *zone);
        let mut candidates = self.victim_index.free_candidates().filter(is_there);
        if role == Role::Log {
            return candidates.next();
        }
        if let Some(other) = self.victim_index.free_others(device, layout).find(is_left) {
            return Some(other);
        }
        let first = candidates.next()?;
        let spared = candidates.count() >= reserve.log_candidates as usize;
        // What the budget keeps free is candidates then, whatever others take.
        (spared || layout.only_log_candidates(device)).then_some(first)
    }

    /// Takes free zones into use for a stream.
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
            // One has its header.
            let blocks = capacity.saturating_sub(1);
            self.counts.metadata_blocks_left = blocks;
            if let Some(under_way) = &mut self.counts.under_way {
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
            row_blocks: budget.row_blocks_of(stream.role()),
            summary,
            last_summary: 0,
            has_moved: false,
            by_cleaning: false,
            is_ending: false,
            queue: Vec::new(),
            lives: Lives::default(),
            padding: PackUnits::ZERO,
            filled: Filled::default(),
            alarm: self.alarm.clone(),
        }
    }
}
