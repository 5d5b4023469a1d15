//! Open zones: their writers, as long as nobody has them.

use persimmon_device::ZoneId;
use persimmon_format::packed::PackUnits;
use persimmon_format::summary::SummaryBuilder;

use super::entries::State;
use super::lifetime::Lives;
use super::stream::Stream;
use super::table::Zones;
use super::trace::Filled;
use super::writer::ZoneWriter;
use crate::invariant::invariant_holds;

impl Zones {
    /// All parked writers of file data that have a summary to write and are one `of` these: the caller writes
    /// it and parks them again.
    pub(crate) fn take_unsummarised(&self, of: impl Fn(&ZoneWriter) -> bool) -> Vec<ZoneWriter> {
        self.take_all(|w| of(w) && !w.summary.is_empty())
    }

    /// Takes all parked writers that are so.
    pub(super) fn take_all(&self, wanted: impl Fn(&ZoneWriter) -> bool) -> Vec<ZoneWriter> {
        let mut table = self.lock();
        let (take, keep): (Vec<_>, Vec<_>) = std::mem::take(&mut table.parked)
            .into_iter()
            .partition(wanted);
        table.parked = keep;
        for writer in &take {
            *table.out.entry(writer.stream).or_default() += 1;
        }
        take
    }

    /// Takes back a writer; one that can write no more is dropped.
    pub(super) fn park(&self, mut writer: ZoneWriter) {
        let mut table = self.lock();
        let stream = writer.stream;
        let has_failed = |zone: ZoneId| {
            let entry = table.entries.get(zone);
            entry.is_some_and(|entry| entry.failure.is_some())
        };
        let goes_on = !writer.is_full() && !self.pairs.both(writer.zone).any(has_failed);
        table.writer_is_back(stream);
        invariant_holds!(
            self.alarm,
            goes_on || !writer.is_full() || !writer.is_under_way(),
            "zone {} is full, and something is on its way to it",
            writer.zone
        );
        invariant_holds!(
            self.alarm,
            writer.write_pointer <= writer.capacity,
            "zone {} of {} blocks is written up to {}",
            writer.zone,
            writer.capacity,
            writer.write_pointer
        );
        invariant_holds!(
            self.alarm,
            table.parked.iter().all(|parked| parked.zone != writer.zone),
            "zone {} has two writers",
            writer.zone
        );
        let clock = table.counts.write_clock;
        if let Some(entry) = table.entries.get(writer.zone) {
            let place = entry.write_pointer;
            let written = writer.write_pointer.saturating_sub(place);
            let filled = std::mem::take(&mut writer.filled);
            if written > 0 {
                let kind = (entry.role, entry.lifetime);
                let event = filled.event(writer.zone, kind, (place, written));
                self.trace.push(event);
            }
        }
        for zone in self.pairs.both(writer.zone) {
            if let Some(entry) = table.entries.get_mut(zone) {
                invariant_holds!(
                    self.alarm,
                    entry.is_open() && !entry.is_in_reset(),
                    "zone {zone} was written to, and is {entry:?}"
                );
                invariant_holds!(
                    self.alarm,
                    entry.sequence == writer.sequence && entry.role == stream.role(),
                    "zone {zone} was written to as {:?} of sequence {}, and is {entry:?}",
                    stream.role(),
                    writer.sequence
                );
                invariant_holds!(
                    self.alarm,
                    writer.write_pointer >= entry.write_pointer || writer.is_ending,
                    "the write pointer of zone {zone} went from {} back to {}",
                    entry.write_pointer,
                    writer.write_pointer
                );
                let written = writer.write_pointer.saturating_sub(entry.write_pointer);
                entry.write_pointer = writer.write_pointer;
                entry.last_write = clock.saturating_add(written.into());
                self.padding.add(zone, writer.padding);
                if let Some(life) = writer.lives.mean() {
                    entry.life = life;
                    self.lives.set(zone, life);
                }
                if !goes_on {
                    entry.close();
                }
                table.counts.write_clock = clock.saturating_add(written.into());
            }
        }
        writer.padding = PackUnits::ZERO;
        if stream == Stream::Metadata {
            // It is not longer than the zone: see above.
            let left = writer.capacity.saturating_sub(writer.write_pointer);
            table.counts.metadata_blocks_left = left;
            if !goes_on {
                table.forget_begun(stream);
            }
        }
        if goes_on {
            table.parked.push(writer);
        }
        self.look_at_deaths(&mut table);
        drop(table);
        self.returned.notify_all();
    }

    /// Makes a zone found partly written at mount writable again, as far as the budget goes.
    /// Answers false where there is no slot for it; the caller finishes the zone then.
    pub(crate) fn resume(&self, zone: ZoneId, write_pointer: u32, last_summary: u32) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.entries.get(zone).copied() else {
            return false;
        };
        let Some(stream) = Stream::of(entry.role, entry.lifetime) else {
            return false;
        };
        let stream = self.budget.shared(stream);
        let mut lives = Lives::default();
        lives.add(entry.life, write_pointer.into());
        let partner = self.pairs.partner(zone);
        let partner = partner.and_then(|zone| table.entries.get(zone));
        let capacity = partner.map_or(u32::MAX, |e| e.capacity).min(entry.capacity);
        if !table.may_open(stream, &self.budget) || write_pointer >= capacity {
            return false;
        }
        invariant_holds!(
            self.alarm,
            table.parked.iter().all(|writer| writer.zone != zone),
            "zone {zone} is gone on with twice"
        );
        for zone in self.pairs.both(zone) {
            if let Some(entry) = table.entries.get_mut(zone) {
                invariant_holds!(
                    self.alarm,
                    !entry.is_open() && !entry.is_in_reset(),
                    "zone {zone} is gone on with, and is {entry:?}"
                );
                entry.state = State::Open;
                entry.write_pointer = write_pointer;
            }
        }
        if stream == Stream::Metadata {
            table.counts.metadata_blocks_left = capacity - write_pointer;
        }
        table.parked.push(ZoneWriter {
            zone,
            stream,
            sequence: entry.sequence,
            write_pointer,
            capacity,
            row_blocks: self.budget.row_blocks_of(stream.role()),
            summary: SummaryBuilder::default(),
            last_summary,
            has_moved: false,
            by_cleaning: false,
            is_ending: false,
            queue: Vec::new(),
            lives,
            padding: PackUnits::ZERO,
            filled: Filled::default(),
            alarm: self.alarm.clone(),
        });
        true
    }
}
