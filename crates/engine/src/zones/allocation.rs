//! Which zone is taken into use next, and which writer serves a stream.

use persimmon_device::ZoneId;
use persimmon_format::summary::SummaryBuilder;
use persimmon_format::table::Role;

use super::budget::{Budget, LOG_CANDIDATES};
use super::table::{Entry, Stream, Table};
use super::writer::ZoneWriter;

impl Table {
    /// Zones that the log may take before a checkpoint gives some back.
    pub(super) fn log_growth(&self, budget: &Budget) -> u32 {
        budget.log_zones_max.saturating_sub(self.log_zones)
    }

    pub(super) fn take_parked(&mut self, stream: Stream) -> Option<ZoneWriter> {
        let at = self.parked.iter().position(|w| w.stream == stream)?;
        let writer = self.parked.swap_remove(at);
        *self.out.entry(writer.stream).or_default() += 1;
        Some(writer)
    }

    /// A writer of another stream of the same role, when there is no slot for one more.
    pub(super) fn take_similar(&mut self, stream: Stream) -> Option<ZoneWriter> {
        let similar = |w: &ZoneWriter| match stream {
            Stream::Data(_) => matches!(w.stream, Stream::Data(_)),
            Stream::Survivors => w.stream.role() == Role::Data,
            _ => w.stream.role() == stream.role(),
        };
        let at = self.parked.iter().position(similar)?;
        let writer = self.parked.swap_remove(at);
        *self.out.entry(writer.stream).or_default() += 1;
        Some(writer)
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

    /// Whether the budget has a slot for one more zone of this stream.
    pub(super) fn may_open(&self, stream: Stream, budget: &Budget) -> bool {
        match stream {
            Stream::Data(_) => {
                self.open_count(|s| matches!(s, Stream::Data(_))) < budget.data_slots
            }
            other => self.open_count(|s| s == other) < 1,
        }
    }

    /// The free zone reset least. Data and metadata leave the last candidates to the log.
    pub(super) fn choose_free(
        &self,
        conventional: u32,
        role: Role,
        budget: &Budget,
    ) -> Option<ZoneId> {
        let candidates = conventional..conventional.saturating_add(LOG_CANDIDATES);
        let is_candidate = |i: &usize| candidates.contains(&(*i as u32));
        let free = || {
            let free = |e: &Entry| e.role == Role::Free && !e.used && e.capacity > 0;
            self.entries
                .iter()
                .enumerate()
                .filter(move |(_, e)| free(e))
        };
        let least = |zones: &mut dyn Iterator<Item = (usize, &Entry)>| {
            zones
                .min_by_key(|(_, e)| e.resets)
                .map(|(i, _)| ZoneId(i as u32))
        };
        if role == Role::Log {
            return least(&mut free().filter(|(i, _)| is_candidate(i)));
        }
        let candidates_left = free().filter(|(i, _)| is_candidate(i)).count();
        let spared = candidates_left > self.log_growth(budget) as usize + 1;
        let only_candidates = self.entries.len() <= LOG_CANDIDATES as usize;
        least(&mut free().filter(|(i, _)| !is_candidate(i)))
            .or_else(|| least(&mut free().filter(|_| spared || only_candidates)))
    }

    pub(super) fn claim(&mut self, zone: ZoneId, role: Role, lifetime: u8) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence = self.next_sequence.saturating_add(1);
        self.free -= 1;
        self.log_zones += u32::from(role == Role::Log);
        let clock = self.write_clock;
        let entry = &mut self.entries[zone.0 as usize];
        entry.role = role;
        entry.lifetime = lifetime;
        entry.sequence = sequence;
        entry.write_pointer = 1;
        entry.last_write = clock;
        entry.used = true;
        sequence
    }

    pub(super) fn open(&mut self, zone: ZoneId, stream: Stream) -> ZoneWriter {
        let sequence = self.claim(zone, stream.role(), stream.lifetime());
        let entry = &mut self.entries[zone.0 as usize];
        entry.open = true;
        let capacity = entry.capacity;
        *self.out.entry(stream).or_default() += 1;
        ZoneWriter {
            zone,
            stream,
            sequence,
            write_pointer: 1,
            capacity,
            summary: SummaryBuilder::default(),
            last_summary: 0,
            failed: false,
            writes: None,
        }
    }
}
