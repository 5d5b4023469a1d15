//! A zone of the log as a scan finds it, in one copy or two.

use persimmon_device::{ZoneId, ZoneState};

use crate::zones::log_zones::LogZone;

/// One zone of the device that holds a log zone's blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogCopy {
    pub(crate) zone: ZoneId,
    /// Blocks that can be read.
    pub(crate) write_pointer: u32,
    pub(super) state: ZoneState,
    /// Its header is damaged; its blocks told what it is.
    pub(super) headless: bool,
}

/// A log zone as found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundZone {
    pub(crate) zone: LogZone,
    /// The zone that addresses name; of a pair it may be gone.
    pub(super) named: ZoneId,
    /// Blocks that can be read, and count.
    pub(crate) write_pointer: u32,
    /// The zones that hold it, one or two.
    pub(super) copies: [Option<LogCopy>; 2],
}

impl FoundZone {
    pub(super) fn new(
        copy: LogCopy,
        partner: Option<ZoneId>,
        sequence: u64,
        first: u64,
        capacity: u32,
    ) -> Self {
        FoundZone {
            zone: LogZone {
                zone: copy.zone,
                sequence,
                first_log_sequence: first,
                capacity,
            },
            named: partner.map_or(copy.zone, |partner| copy.zone.min(partner)),
            write_pointer: copy.write_pointer,
            copies: [Some(copy), None],
        }
    }

    /// Adds the other zone of a pair.
    pub(super) fn join(&mut self, other: &FoundZone) {
        self.zone.zone = self.zone.zone.min(other.zone.zone);
        self.zone.capacity = self.zone.capacity.min(other.zone.capacity);
        self.named = self.named.min(other.named);
        self.write_pointer = self.write_pointer.max(other.write_pointer);
        self.copies[1] = other.copies[0];
    }

    /// The number of the block behind its last one.
    pub(super) fn end(&self) -> u64 {
        self.sequence_at(self.write_pointer)
    }

    /// The number of the block at this place.
    pub(super) fn sequence_at(&self, at: u32) -> u64 {
        let blocks = u64::from(at).saturating_sub(1);
        self.zone.first_log_sequence.saturating_add(blocks)
    }

    /// Where the block with this number is, or would be; at most where writing ended.
    pub(super) fn place(&self, sequence: u64) -> u32 {
        let blocks = sequence.saturating_sub(self.zone.first_log_sequence);
        let place = blocks.saturating_add(1);
        place.min(u64::from(self.write_pointer)) as u32
    }

    /// What it has from this number on does not count.
    pub(super) fn end_at(&mut self, sequence: u64) {
        self.write_pointer = self.place(sequence);
    }

    /// The zones that hold it.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &LogCopy> {
        self.copies.iter().flatten()
    }

    /// The header of one is damaged; its blocks told what it is.
    pub(crate) fn headless(&self) -> bool {
        self.copies().any(|copy| copy.headless)
    }

    /// Whether it has so many copies, and none holds less than another.
    pub(crate) fn is_whole(&self, copies: u32) -> bool {
        let mut ends = self.copies().map(|copy| copy.write_pointer);
        let first = ends.next();
        ends.all(|end| Some(end) == first) && self.copies().count() == copies as usize
    }

    /// Whether it was begun where `newest` ends, or before, and takes writes still.
    pub(super) fn is_begun_behind(&self, newest: &FoundZone) -> bool {
        self.zone.sequence > newest.zone.sequence
            && self.zone.first_log_sequence <= newest.end()
            && self.copies().all(|copy| copy.state.is_writable())
    }

    /// Whether it can be written to where it ends.
    pub(crate) fn is_writable(&self, copies: u32) -> bool {
        self.is_whole(copies) && self.copies().all(|copy| copy.state.is_writable())
    }
}
