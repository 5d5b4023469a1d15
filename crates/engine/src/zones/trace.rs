//! What happened to zones lately: who wrote to which, and why a victim was chosen. A ring of events of
//! bounded size, numbered: who reads too seldom is told how many they missed.

use persimmon_sync::Mutex;
use std::collections::VecDeque;

use persimmon_device::ZoneId;
use persimmon_format::Ino;
use persimmon_format::table::Role;

use super::Zones;
use super::victims::VictimPolicy;

/// Events that are kept: half a MiB of them.
const EVENTS_MAX: usize = 8192;

/// Something that happened to a zone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ZoneEvent {
    /// It was taken into use.
    Opened {
        /// The zone.
        zone: ZoneId,
        /// For what.
        role: Role,
        /// Lifetime class of what goes into it, as in the zone table.
        lifetime: u8,
        /// Zones that were left free.
        free_zones: u32,
    },
    /// Blocks were written to it, summaries included.
    Written {
        /// The zone.
        zone: ZoneId,
        /// What for.
        role: Role,
        /// Lifetime class of the zone.
        lifetime: u8,
        /// The first block.
        block: u32,
        /// How many.
        blocks: u32,
        /// Files whose data it is, of neighbours in the zone those that differ. None where it is
        /// not data.
        files: u32,
        /// The first of them.
        ino: Option<Ino>,
    },
    /// It is being cleaned.
    Victim {
        /// The zone.
        zone: ZoneId,
        /// What is in it.
        role: Role,
        /// Its lifetime class.
        lifetime: u8,
        /// Why this one.
        why: VictimReason,
        /// Somebody waits for room.
        awaited: bool,
        /// Blocks that must be moved.
        valid_blocks: u32,
        /// Blocks that it holds when full.
        capacity_blocks: u32,
        /// Blocks written to the volume since users wrote what is in it, on average.
        age_blocks: u64,
        /// Blocks thought to be written to the volume from one write of a block in it to the next.
        interval_blocks: u64,
        /// Zones that were free.
        free_zones: u32,
        /// Zones that the next checkpoint frees.
        reclaimable_zones: u32,
    },
    /// It was cleaned.
    Cleaned {
        /// The zone.
        zone: ZoneId,
        /// Blocks that were moved out of it, or died meanwhile. Of metadata none are, before the
        /// next checkpoint.
        blocks: u32,
        /// Blocks that are still valid.
        valid_blocks: u32,
    },
    /// It was reset, and is free.
    Reset {
        /// The zone.
        zone: ZoneId,
    },
}

impl ZoneEvent {
    /// Takes the next event in, if it is about writing on where this one ended, for the same file.
    fn goes_on(&mut self, next: &ZoneEvent) -> bool {
        let ZoneEvent::Written {
            zone,
            block,
            blocks,
            files: 0..=1,
            ino,
            ..
        } = self
        else {
            return false;
        };
        match next {
            ZoneEvent::Written {
                zone: next_zone,
                block: next_block,
                blocks: more,
                files: 0..=1,
                ino: next_ino,
                ..
            } if next_zone == zone
                && next_ino == ino
                && block.checked_add(*blocks) == Some(*next_block) =>
            {
                *blocks = blocks.saturating_add(*more);
                true
            }
            _ => false,
        }
    }
}

/// Why a zone was chosen to be cleaned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimReason {
    /// It, or its copy, has failed.
    Failing,
    /// Best score: by garbage, what must be moved, and how long that will stay.
    Score,
    /// Most garbage: room is needed now.
    Garbage,
    /// Metadata with most garbage: no zone is left for moved blocks, and it needs none.
    Metadata,
}

impl From<VictimPolicy> for VictimReason {
    fn from(choice: VictimPolicy) -> VictimReason {
        match choice {
            VictimPolicy::Score => VictimReason::Score,
            VictimPolicy::Garbage => VictimReason::Garbage,
            VictimPolicy::Metadata => VictimReason::Metadata,
        }
    }
}

/// Events from a number on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traced {
    /// Number of the first.
    pub first: u64,
    /// They have consecutive numbers.
    pub events: Vec<ZoneEvent>,
    /// Events between what was asked for and the first: they are kept no longer.
    pub dropped: u64,
}

impl Traced {
    /// The number to ask for next.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<ZoneEvent>,
    /// Events that are kept no longer.
    gone: u64,
    /// Events up to this number have been read, and change no more.
    read: u64,
}

/// The events. A lock that is held while nothing else is taken.
#[derive(Debug, Default)]
pub(crate) struct Trace(Mutex<Ring>);

impl Trace {
    pub(crate) fn push(&self, event: ZoneEvent) {
        let mut ring = self.0.lock();
        let is_news = ring.gone + ring.events.len() as u64 > ring.read;
        if is_news
            && ring
                .events
                .back_mut()
                .is_some_and(|last| last.goes_on(&event))
        {
            return;
        }
        if ring.events.len() == EVENTS_MAX {
            ring.events.pop_front();
            ring.gone += 1;
        }
        ring.events.push_back(event);
    }

    /// Events from number `from` on, at most so many.
    pub(crate) fn read(&self, from: u64, events_max: usize) -> Traced {
        let mut ring = self.0.lock();
        let end = ring.gone + ring.events.len() as u64;
        let first = from.clamp(ring.gone, end);
        let skip = (first - ring.gone) as usize;
        let events = ring.events.iter().skip(skip).take(events_max);
        let traced = Traced {
            first,
            events: events.copied().collect(),
            dropped: first.saturating_sub(from),
        };
        ring.read = ring.read.max(traced.next());
        traced
    }
}

/// The files whose data went into a zone since it was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filled {
    files: u32,
    first: Option<Ino>,
    last: Option<Ino>,
}

impl Filled {
    pub(super) fn by(&mut self, ino: Ino) {
        if self.last != Some(ino) {
            self.files = self.files.saturating_add(1);
            self.first = self.first.or(Some(ino));
            self.last = Some(ino);
        }
    }

    /// What was written to a zone from a block on, by these.
    pub(super) fn event(
        &self,
        zone: ZoneId,
        (role, lifetime): (Role, u8),
        (block, blocks): (u32, u32),
    ) -> ZoneEvent {
        ZoneEvent::Written {
            zone,
            role,
            lifetime,
            block,
            blocks,
            files: self.files,
            ino: self.first,
        }
    }
}

impl Zones {
    /// Tells that a zone is cleaned.
    pub(crate) fn tell_victim(&self, zone: ZoneId, why: VictimReason, awaited: bool) {
        let (valid_blocks, reclaimable_zones) =
            (self.valid_blocks(zone), self.all_reclaimable_zones());
        let event = {
            let table = self.lock();
            let Some(entry) = table.entries.get(zone) else {
                return;
            };
            ZoneEvent::Victim {
                zone,
                role: entry.role,
                lifetime: entry.lifetime,
                why,
                awaited,
                valid_blocks,
                capacity_blocks: entry.capacity,
                age_blocks: table.counts.write_clock.saturating_sub(entry.life.born),
                interval_blocks: entry.life.interval.blocks() as u64,
                free_zones: table.counts.free.total(),
                reclaimable_zones,
            }
        };
        self.trace.push(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reset(zone: u32) -> ZoneEvent {
        ZoneEvent::Reset { zone: ZoneId(zone) }
    }

    #[test]
    fn events_are_read_in_pieces_and_missed_ones_counted() {
        let trace = Trace::default();
        assert_eq!(trace.read(0, 10), Traced::default());
        (0..5).for_each(|zone| trace.push(reset(zone)));
        let read = trace.read(1, 2);
        assert_eq!((read.next(), read.dropped), (3, 0));
        assert_eq!(read.events, [reset(1), reset(2)]);
        assert_eq!(trace.read(5, 10).next(), 5);
        // What does not exist yet: from the next one on.
        assert_eq!(trace.read(100, 10).next(), 5);
        for zone in 5..EVENTS_MAX as u32 + 7 {
            trace.push(reset(zone));
        }
        let read = trace.read(3, usize::MAX);
        assert_eq!((read.first, read.dropped), (7, 4));
        assert_eq!(read.events.len(), EVENTS_MAX);
        assert_eq!(read.events.first(), Some(&reset(7)));
        assert_eq!(trace.read(read.next(), 1).events, []);
    }

    #[test]
    fn writing_on_is_one_event_until_it_was_read() {
        let trace = Trace::default();
        let write = |zone, block, ino| {
            let mut filled = Filled::default();
            filled.by(Ino(ino));
            trace.push(filled.event(ZoneId(zone), (Role::Data, 0), (block, 10)));
        };
        let read = |from| {
            let traced = trace.read(from, 10);
            let blocks = |event: &ZoneEvent| match event {
                ZoneEvent::Written { blocks, .. } => *blocks,
                _ => 0,
            };
            traced.events.iter().map(blocks).collect::<Vec<_>>()
        };
        write(1, 1, 5);
        write(1, 11, 5);
        write(1, 21, 6);
        write(2, 31, 6);
        write(2, 51, 6);
        assert_eq!(read(0), [20, 10, 10, 10]);
        write(2, 61, 6);
        assert_eq!(read(3), [10, 10]);
    }

    #[test]
    fn files_are_counted_as_they_follow_each_other() {
        let mut filled = Filled::default();
        for ino in [3, 3, 4, 3] {
            filled.by(Ino(ino));
        }
        assert_eq!((filled.files, filled.first), (3, Some(Ino(3))));
    }
}
