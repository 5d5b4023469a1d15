//! Zeros ahead of the write pointer, for writes that are flushed one by one.
//!
//! A filesystem that finds space for a block writes its own journal at the fdatasync that makes the block durable: that
//! takes about twice as long as an fdatasync of a block that had its space and was written before. So where small writes
//! to a zone are each followed by a flush, the next blocks of the zone are written with one of them, as zeros. Nothing reads
//! behind the write pointer, where holes are zeros too.

use std::io;

use super::ImageDevice;
use super::host::is_full;
use crate::{BLOCK_SIZE, Buffer, Command, ZoneId};

/// Blocks of a write that is small: one that may wait for a flush of its own.
const SMALL_BLOCKS: u32 = 16;
/// Flushes between small writes of a zone, before anything is written ahead.
const FLUSHES_MIN: u32 = 4;
/// Blocks that are written ahead at a time, at least and at most: in between as many as flushed writes brought the zone.
const STEP_MIN: u32 = 16;
pub(super) const STEP_MAX: u32 = 256;

/// The small writes to one zone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// The host has blocks below this one, whatever is in them.
    until: u32,
    /// Flushes that had succeeded at the last write.
    flushes: u64,
    /// Small writes since the last large one that had a flush before them, and their blocks.
    writes: u32,
    blocks: u32,
}

impl Ahead {
    /// Notes a write of `blocks` at `start`, made after the image was flushed `flushes` times, to a zone of `zone_blocks`. Answers up to
    /// which block the zone is to be written with it; `None` if no zeros go with it.
    fn note(&mut self, start: u32, blocks: u32, flushes: u64, zone_blocks: u32) -> Option<u32> {
        if flushes > std::mem::replace(&mut self.flushes, flushes) {
            self.writes = self.writes.saturating_add(1);
            self.blocks = self.blocks.saturating_add(blocks);
        }
        let end = start + blocks;
        if self.writes <= FLUSHES_MIN || end <= self.until {
            return None;
        }
        self.until = (end + self.blocks.clamp(STEP_MIN, STEP_MAX)).min(zone_blocks);
        (self.until > end).then_some(self.until)
    }
}

/// The zone, of those that share a lock, that was written last in small pieces. On images of more than a thousand zones a second such
/// zone with the same lock takes its place, and flushes of either take as long as without zeros: one record for each lock bounds them all.
#[derive(Debug, Default)]
pub(super) struct LastSmall(Option<(ZoneId, Ahead)>);

impl LastSmall {
    /// Forgets a zone.
    pub(super) fn forget(&mut self, zone: ZoneId) {
        self.0.take_if(|(last, _)| *last == zone);
    }

    /// What is known of a zone, from now on.
    fn of(&mut self, zone: ZoneId) -> &mut Ahead {
        self.0.take_if(|(last, _)| *last != zone);
        let (_, ahead) = self.0.get_or_insert((zone, Ahead::default()));
        ahead
    }
}

impl ImageDevice {
    /// Writes blocks that were checked, and perhaps zeros behind them.
    pub(super) fn write_ahead(
        &self,
        small: &mut LastSmall,
        zone: ZoneId,
        start: u32,
        data: &[Buffer],
    ) -> io::Result<()> {
        let offset = self.offset(zone, start);
        let Some(zeros) = self.zeros_behind(small, zone, start, Command::data_blocks(data)) else {
            return self.host.write_at(data, offset);
        };
        let with_zeros: Vec<Buffer> = data.iter().cloned().chain([zeros]).collect();
        match self.host.write_at(&with_zeros, offset) {
            Err(error) if is_full(&error) => self.host.write_at(data, offset),
            result => result,
        }
    }

    fn zeros_behind(
        &self,
        small: &mut LastSmall,
        zone: ZoneId,
        start: u32,
        blocks: u32,
    ) -> Option<Buffer> {
        let zeros = self.zeros.as_ref()?;
        if blocks > SMALL_BLOCKS {
            small.forget(zone);
            return None;
        }
        let flushes = self.gate.flushes();
        let of_zone = small.of(zone);
        // Behind the blocks that a zone can hold the next zone begins, however large zones are in their numbering.
        let place_blocks = (self.layout.zone_stride / BLOCK_SIZE as u64) as u32;
        let until = of_zone.note(start, blocks, flushes, place_blocks)?;
        // A zone that kept its space when it was reset was written before.
        let is_there =
            self.host.written_until(self.offset(zone, start)) >= self.offset(zone, until);
        (!is_there).then(|| zeros.slice(0..(until - start - blocks) as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The writes that bring zeros, and up to which block: one-block writes to a zone of 1,000 blocks, each with the number of flushes before it.
    fn steps(flushes: impl Iterator<Item = u64>) -> Vec<(u32, u32)> {
        let mut ahead = Ahead::default();
        let writes = flushes
            .enumerate()
            .map(|(at, flushes)| (at as u32, flushes));
        let noted = writes.map(|(at, flushes)| (at, ahead.note(at, 1, flushes, 1000)));
        noted.filter_map(|(at, until)| Some((at, until?))).collect()
    }

    #[test]
    fn zeros_are_as_many_as_what_was_flushed_one_by_one() {
        let expected = [
            (5, 22),
            (22, 45),
            (45, 91),
            (91, 183),
            (183, 367),
            (367, 624),
            (624, 881),
            (881, 1000),
        ];
        let found = steps(1..1001);
        assert_eq!(found.len(), expected.len());
        for ((at, until), (expected_at, expected_until)) in found.into_iter().zip(expected) {
            assert!(at.abs_diff(expected_at) <= 8, "{at} {expected_at}");
            assert!(
                until.abs_diff(expected_until) <= 16,
                "{until} {expected_until}"
            );
        }
    }

    #[test]
    fn writes_without_a_flush_in_between_bring_none() {
        assert_eq!(steps(std::iter::repeat_n(1, 1000)), []);
    }

    /// There was a record for each zone that was ever written in small pieces.
    #[test]
    fn one_zone_of_those_with_one_lock_is_remembered() {
        let mut small = LastSmall::default();
        small.of(ZoneId(1)).until = 10;
        assert_eq!(small.of(ZoneId(1)).until, 10);
        small.forget(ZoneId(2));
        assert_eq!(small.of(ZoneId(1)).until, 10);
        assert_eq!(small.of(ZoneId(2)).until, 0);
        assert_eq!(small.of(ZoneId(1)).until, 0);
        small.forget(ZoneId(1));
        assert!(small.0.is_none());
    }
}
