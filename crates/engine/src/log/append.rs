//! Log blocks to the device: framing a batch of records, the parts of a footer, rolling over to
//! the next zone, going on elsewhere when a zone fails.

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut, DeviceError};
use persimmon_format::footer::LogPosition;
use persimmon_format::log::{BODY_LEN, Body, LogBlock, LogState};
use persimmon_format::{Addr, DeviceId, Lsn, VolumeKey};
use persimmon_sync::Alarm;

use crate::error::{Error, Result};
use crate::in_flight::InFlight;
use crate::invariant::{invariant, invariant_holds, invariant_sub};
use crate::media::{Media, wait_all};
use crate::statistics::{Class, add};
use crate::zones::log_zones::LogZone;
use crate::zones::{Tries, Zones};

use super::cut::{Slice, cut_blocks, spared_blocks};

/// Blocks sent to the device in one command.
const COMMAND_BLOCKS: usize = 256;

/// Where the next log block goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogHead {
    pub(crate) zone: LogZone,
    pub(crate) next_block: u32,
}

impl LogHead {
    pub(crate) fn sequence(&self) -> u64 {
        self.zone
            .first_log_sequence
            .wrapping_add(u64::from(self.next_block))
            .wrapping_sub(1)
    }

    pub(super) fn room(&self) -> u32 {
        self.zone.capacity.saturating_sub(self.next_block)
    }

    pub(super) fn position(&self) -> LogPosition {
        LogPosition {
            sequence: self.sequence(),
            addr: Addr::new(DeviceId(0), self.zone.zone, self.next_block),
        }
    }
}

/// A batch of records on its way.
pub(super) struct Batch {
    pub(super) records: Vec<u8>,
    pub(super) sizes: Vec<u32>,
    /// Data sent together with the records, in their order.
    pub(super) data: Vec<(Lsn, Arc<InFlight>)>,
    pub(super) first_lsn: Lsn,
    pub(super) last_lsn: Lsn,
    pub(super) state: LogState,
    /// The blocks that its records go into, once somebody has begun to write them.
    pub(super) slices: Option<Vec<Slice>>,
    /// Blocks of it that are in the log already.
    pub(super) done: usize,
}

/// Records in the log that are complete when this data has arrived.
pub(super) struct Incomplete {
    pub(super) last_lsn: Lsn,
    /// Nothing for records that have no data and follow none.
    pub(super) data: Option<Arc<InFlight>>,
}

impl Batch {
    /// The first record that does not begin in the blocks that are in the log already, unless there is none: a block that is written
    /// before the rest says that records go on with it.
    pub(super) fn next_lsn(&self) -> Option<Lsn> {
        match &self.slices {
            Some(slices) => slices.get(self.done).map(|slice| slice.first_lsn),
            None => Some(self.first_lsn).filter(|_| !self.sizes.is_empty()),
        }
    }

    /// At most so many blocks will hold the records that are not in the log yet.
    pub(super) fn blocks_left(&self, alarm: &Alarm) -> u64 {
        let slices = self.slices.as_deref().unwrap_or_default();
        let written = slices.iter().take(self.done).next_back();
        let written = written.map_or(0, |slice| slice.range.end);
        let mut left = self.records.len();
        invariant_sub!(alarm, left, written, "bytes of records to be written");
        left.div_ceil(BODY_LEN) as u64
    }

    /// Blocks that it would have taken in addition, had its records not been compressed.
    pub(super) fn spared_blocks(&self) -> u64 {
        self.slices.as_deref().map_or(0, spared_blocks)
    }

    /// Its records in the log: each piece of data with the records from its own up to the next
    /// that has data.
    pub(super) fn incomplete(self) -> Vec<Incomplete> {
        let mut all = Vec::with_capacity(self.data.len() + 1);
        let (mut from, mut data) = (self.first_lsn, None);
        for (lsn, next) in self.data {
            if from < lsn {
                all.push(Incomplete {
                    // It is after another one.
                    last_lsn: Lsn(lsn.0 - 1),
                    data,
                });
            }
            (from, data) = (lsn, Some(next));
        }
        all.push(Incomplete {
            last_lsn: self.last_lsn,
            data,
        });
        all
    }
}

/// One leader's work.
pub(super) struct Appender<'a> {
    pub(super) key: &'a VolumeKey,
    pub(super) media: &'a Media,
    pub(super) zones: &'a Zones,
    /// Records that take more than one block are compressed.
    pub(super) compresses: bool,
    pub(super) head: Option<LogHead>,
    /// Number of the first block of a log that has no zone yet.
    pub(super) first: u64,
    /// Zones taken into the chain meanwhile.
    pub(super) opened: Vec<LogZone>,
}

impl Appender<'_> {
    /// Writes a batch, or what is left of it. After an error that passes it can be gone on with.
    pub(super) fn write_batch(&mut self, batch: &mut Batch) -> Result<()> {
        if batch.sizes.is_empty() {
            return Ok(());
        }
        let slices = &*batch.slices.get_or_insert_with(|| {
            cut_blocks(
                &batch.records,
                &batch.sizes,
                batch.first_lsn,
                self.compresses,
            )
        });
        let end = slices.last().map_or(0, |slice| slice.range.end);
        invariant!(
            self.media.alarm,
            end == batch.records.len(),
            "{end} bytes of records are cut into blocks, of {}",
            batch.records.len()
        );
        invariant!(
            self.media.alarm,
            batch.done < slices.len(),
            "{} blocks of a batch of {} are in the log",
            batch.done,
            slices.len()
        );
        let mut left = slices.get(batch.done..).unwrap_or_default();
        let result = self.write_journal(&mut left, &batch.records, batch.state);
        invariant!(
            self.media.alarm,
            left.len() + batch.done <= slices.len(),
            "{} blocks are left to write of {}",
            left.len(),
            slices.len()
        );
        batch.done = slices.len() - left.len();
        result?;
        invariant!(
            self.media.alarm,
            batch.done == slices.len(),
            "{} blocks of a batch are in the log, of {}",
            batch.done,
            slices.len()
        );
        add(&self.media.counters.commits, 1);
        add(&self.media.counters.records, batch.sizes.len() as u64);
        Ok(())
    }

    /// Writes journal blocks, rolling over to new zones as they fill up. After an error `slices` is
    /// what is left.
    pub(super) fn write_journal(
        &mut self,
        slices: &mut &[Slice],
        bytes: &[u8],
        state: LogState,
    ) -> Result<()> {
        let mut tries = Tries::default();
        while !slices.is_empty() {
            let head = self.head_with_room(1)?;
            let (now, later) = slices.split_at(slices.len().min(head.room() as usize));
            self.before_writing(head, now.len())?;
            let bodies = now.iter().map(|slice| slice.body(bytes));
            match self.write_blocks(head, bodies, state, Class::Journal) {
                Ok(()) => {
                    self.zones.note_failing(None);
                    *slices = later;
                }
                Err(error) => self.abandon(head, error, &mut tries)?,
            }
        }
        Ok(())
    }

    pub(super) fn write_footer(
        &mut self,
        bytes: &[u8],
        state: LogState,
        next_lsn: Lsn,
    ) -> Result<Addr> {
        let parts: Vec<&[u8]> = bytes.chunks(BODY_LEN).collect();
        let does_not_fit = || Error::Geometry("a checkpoint footer does not fit a zone".into());
        let count = u16::try_from(parts.len()).map_err(|_| does_not_fit())?;
        let mut tries = Tries::default();
        loop {
            let mut head = self.head_with_room(1)?;
            if (head.room() as usize) < parts.len() {
                // The parts of a footer are neighbours.
                self.fill_zone(state, next_lsn)?;
                head = self.head_with_room(1)?;
                if (head.room() as usize) < parts.len() {
                    return Err(does_not_fit());
                }
            }
            let bodies = parts.iter().enumerate().map(|(part, bytes)| Body::Footer {
                part: part as u16,
                parts: count,
                bytes,
            });
            invariant!(
                self.media.alarm,
                parts.len() <= head.room() as usize,
                "a footer of {} blocks where there is room for {}",
                parts.len(),
                head.room()
            );
            let addr = head.position().addr;
            self.before_writing(head, parts.len())?;
            match self.write_blocks(head, bodies, state, Class::Checkpoint) {
                Ok(()) => return Ok(addr),
                Err(error) => self.abandon(head, error, &mut tries)?,
            }
        }
    }

    /// Fills what is left of the zone with empty blocks.
    pub(super) fn fill_zone(&mut self, state: LogState, next_lsn: Lsn) -> Result<()> {
        let room = self.head.map_or(0, |head| head.room());
        let filler: Vec<Slice> = (0..room).map(|_| Slice::empty(next_lsn)).collect();
        self.write_journal(&mut &filler[..], &[], state)
    }

    fn before_writing(&self, head: LogHead, blocks: usize) -> Result<()> {
        if blocks >= head.room() as usize {
            self.zones.end_log_zone(self.media)
        } else {
            Ok(())
        }
    }

    fn write_blocks<'b>(
        &mut self,
        mut head: LogHead,
        bodies: impl Iterator<Item = Body<'b>>,
        state: LogState,
        class: Class,
    ) -> Result<(), DeviceError> {
        let blocks: Vec<_> = bodies
            .enumerate()
            .map(|(i, body)| LogBlock {
                sequence: head.sequence().wrapping_add(i as u64),
                state,
                body,
            })
            .collect();
        let mut pending = Vec::new();
        for group in blocks.chunks(COMMAND_BLOCKS) {
            let buffer = self.encode(group, &head.zone);
            let count = buffer.blocks();
            pending.extend(
                self.media
                    .write(class, head.zone.zone, head.next_block, vec![buffer]),
            );
            head.next_block += count;
        }
        wait_all(pending)?;
        invariant_holds!(
            self.media.alarm,
            head.next_block <= head.zone.capacity,
            "the log is in zone {} of {} blocks up to {}",
            head.zone.zone,
            head.zone.capacity,
            head.next_block
        );
        self.zones
            .note_log_zone(head.zone.extent(), head.next_block, head.room() > 0);
        self.head = Some(head);
        Ok(())
    }

    fn encode(&self, blocks: &[LogBlock<'_>], zone: &LogZone) -> Buffer {
        let mut buffer = BufferMut::zeroed(blocks.len());
        for (block, out) in blocks.iter().zip(buffer.chunks_exact_mut(BLOCK_SIZE)) {
            block.encode_into(out, self.key, zone.sequence);
        }
        buffer.freeze()
    }

    /// A zone failed: what was to be written goes to a new one, which takes over its numbers.
    fn abandon(&mut self, head: LogHead, error: DeviceError, tries: &mut Tries) -> Result<()> {
        let zone = head.zone.zone;
        tracing::warn!(zone = zone.0, %error, "log zone failed, going on in another");
        self.zones
            .note_log_zone(head.zone.extent(), head.next_block, false);
        self.zones.end(self.media, zone);
        tries.failed(self.zones, zone, error.into())?;
        self.roll(head.sequence())
    }

    fn head_with_room(&mut self, blocks: u32) -> Result<LogHead> {
        match self.head {
            Some(head) if head.room() >= blocks => Ok(head),
            head => {
                self.roll(head.map_or(self.first, |h| h.sequence()))?;
                self.head.ok_or_else(|| self.zones.no_zone())
            }
        }
    }

    fn roll(&mut self, first_log_sequence: u64) -> Result<()> {
        let opened = self.zones.open_log_zone(self.media, first_log_sequence)?;
        let zone = opened.ok_or_else(|| self.zones.no_zone())?;
        invariant!(
            self.media.alarm,
            zone.first_log_sequence == first_log_sequence
                && self.head.is_none_or(|head| head.zone.zone != zone.zone),
            "the log goes on in zone {} with block {}, after block {first_log_sequence}",
            zone.zone,
            zone.first_log_sequence
        );
        self.opened.push(zone);
        self.head = Some(LogHead {
            zone,
            next_block: 1,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(sizes: &[u32], data: &[u64]) -> Batch {
        Batch {
            records: Vec::new(),
            sizes: sizes.to_vec(),
            data: data.iter().map(|lsn| (Lsn(*lsn), Arc::default())).collect(),
            first_lsn: Lsn(5),
            last_lsn: Lsn(9),
            state: LogState {
                epoch: 1,
                opening: 0,
                resume_after: Lsn(0),
                durable: Lsn(0),
                footer: Addr::ZERO,
            },
            slices: None,
            done: 0,
        }
    }

    /// It said the first record of the batch, whatever of it was there: where a record ended with the last block, recovery took the next
    /// block for the end of the log.
    #[test]
    fn a_block_within_a_batch_says_which_record_comes_next() {
        let body = BODY_LEN as u32;
        let mut batch = batch(&[10, body - 10, body, 7], &[]);
        assert_eq!(batch.next_lsn(), Some(Lsn(5)));
        let records = vec![0; 2 * BODY_LEN + 7];
        batch.slices = Some(cut_blocks(&records, &batch.sizes, Lsn(5), false));
        let mut next = |done| {
            batch.done = done;
            batch.next_lsn()
        };
        let found: Vec<_> = (0..4).map(&mut next).collect();
        assert_eq!(found, [Some(Lsn(5)), Some(Lsn(7)), Some(Lsn(8)), None]);
    }

    #[test]
    fn records_settle_with_the_data_before_them() {
        let completed = |data: &[u64]| -> Vec<(u64, bool)> {
            let incomplete = batch(&[], data).incomplete().into_iter();
            incomplete
                .map(|u| (u.last_lsn.0, u.data.is_some()))
                .collect()
        };
        assert_eq!(completed(&[]), [(9, false)]);
        assert_eq!(completed(&[5, 6, 9]), [(5, true), (8, true), (9, true)]);
        assert_eq!(completed(&[7]), [(6, false), (9, true)]);
    }
}
