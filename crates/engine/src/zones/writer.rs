//! The writer of one open zone. Whoever checked it out is alone in writing to the zone; nothing
//! is locked meanwhile.

use std::sync::Arc;

use persimmon_sync::Alarm;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut, Command, DeviceError, Pending, ZoneId};
use persimmon_format::extent::Extent;
use persimmon_format::packed::{CompressedFrame, PackUnits, Packed};
use persimmon_format::summary::{PackedEntry, SummaryBuilder, SummaryEntry};
use persimmon_format::{Addr, DeviceId, Ino, VolumeKey, checksum};

use super::Stream;
use super::lifetime::{Life, Lives};
use super::trace::Filled;
use crate::in_flight::{InFlight, Writes};
use crate::invariant::{invariant_holds, invariant_sub};
use crate::media::{Media, appended, wait_all};
use crate::statistics::Class;

/// What a command costs a zone beside its blocks, in blocks, more or less.
const COMMAND_LOAD: u32 = 3;

/// A run of file data on its way to the device: at most
/// [`persimmon_format::extent::FRAME_BLOCKS_MAX`] blocks of one file, or packed extents.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) ino: Ino,
    pub(crate) file_block: u64,
    pub(crate) data: Buffer,
    /// CRC-32C of each block; none of packed extents.
    pub(crate) crcs: Vec<u32>,
    /// Compressed frames, at most [`persimmon_format::summary::PACKED_ENTRIES_MIN`], in order; none of whole
    /// blocks.
    pub(crate) packed: Vec<PackedFrame>,
    pub(crate) life: Life,
    /// Where cleaning moves whole blocks from.
    pub(crate) from: Option<MovedFrom>,
}

/// What a file has of blocks that cleaning moves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MovedFrom {
    /// The same blocks from this one on.
    Frame(Addr),
    /// Blocks of a compressed frame, which move as they are when decompressed.
    Packed(Packed),
}

impl MovedFrom {
    /// What is left of it behind its first blocks.
    fn behind(self, blocks: u32) -> MovedFrom {
        match self {
            MovedFrom::Frame(addr) => MovedFrom::Frame(addr.offset(blocks)),
            MovedFrom::Packed(packed) => MovedFrom::Packed(packed.part(blocks.into(), u64::MAX)),
        }
    }

    /// The extent that blocks with these checksums are in the file now.
    fn extent(self, crcs: &[u32]) -> Extent {
        match self {
            MovedFrom::Frame(addr) => Extent::Frame {
                addr,
                crcs: crcs.to_vec(),
            },
            MovedFrom::Packed(packed) => Extent::Packed(packed.part(0, crcs.len() as u64)),
        }
    }
}

/// A compressed frame in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedFrame {
    pub(crate) ino: Ino,
    pub(crate) file_block: u64,
    /// First byte in the run.
    pub(crate) at: u32,
    pub(crate) frame: CompressedFrame,
    /// What the file has now of what cleaning moves.
    pub(crate) from: Option<Packed>,
}

impl PackedFrame {
    /// All of it as an extent when the run lies at `addr`.
    pub(crate) fn placed(&self, addr: Addr) -> Packed {
        Packed::at(addr, self.at as usize, self.frame)
    }

    fn entry(&self, run: u32) -> PackedEntry {
        let packed = self.placed(Addr::new(DeviceId(0), ZoneId(0), run));
        PackedEntry {
            zone_block: packed.addr.block(),
            unit: packed.unit,
            frame: self.frame,
            ino: self.ino.plain(),
            file_block: self.file_block,
        }
    }

    /// One past the last block of the run that it needs.
    fn end_block(&self) -> u32 {
        (self.at + self.frame.len).div_ceil(BLOCK_SIZE as u32)
    }
}

impl Run {
    /// Whole blocks of a file.
    pub(crate) fn of(ino: Ino, file_block: u64, data: Buffer, life: Life) -> Run {
        let crcs = data
            .chunks_exact(BLOCK_SIZE)
            .map(checksum::data_block)
            .collect();
        Run {
            ino,
            file_block,
            data,
            crcs,
            packed: Vec::new(),
            life,
            from: None,
        }
    }

    /// Blocks of files that it holds.
    pub(crate) fn file_blocks(&self) -> u64 {
        let packed = self
            .packed
            .iter()
            .map(|frame| u64::from(frame.frame.blocks));
        self.crcs.len() as u64 + packed.sum::<u64>()
    }

    /// The most blocks from its beginning on, up to `most`, that can be cut off: a compressed frame is not cut in two.
    pub(crate) fn cut_at_most(&self, most: u32) -> u32 {
        if self.packed.is_empty() {
            return most;
        }
        let ends = self.packed.iter().map(PackedFrame::end_block);
        ends.take_while(|end| *end <= most).last().unwrap_or(0)
    }

    /// What is behind its first compressed frame, cut off, if there is more.
    pub(crate) fn split_first(&mut self) -> Option<Run> {
        let end = self.packed.first()?.end_block();
        (self.packed.len() > 1).then(|| self.split_off(end))
    }

    /// Cuts it after `blocks` blocks, where that is possible ([`Run::cut_at_most`]). Compressed frames move up to the beginning of the
    /// rest.
    pub(crate) fn split_off(&mut self, blocks: u32) -> Run {
        let at = blocks as usize;
        let kept = self
            .packed
            .partition_point(|frame| frame.end_block() <= blocks);
        let mut packed = self.packed.split_off(kept);
        let data = match packed.first().map(|first| first.at) {
            None => self.data.slice(at..self.data.blocks() as usize),
            Some(first) => {
                packed.iter_mut().for_each(|frame| frame.at -= first);
                let bytes = self.data.get(first as usize..).unwrap_or_default();
                let end = packed.last().map_or(0, PackedFrame::end_block);
                let mut data = BufferMut::zeroed(end as usize);
                let len = bytes.len().min(data.len());
                if let (Some(to), Some(from)) = (data.get_mut(..len), bytes.get(..len)) {
                    to.copy_from_slice(from);
                }
                data.freeze()
            }
        };
        let rest = Run {
            ino: self.ino,
            file_block: self.file_block + u64::from(blocks),
            data,
            crcs: self.crcs.split_off(at.min(self.crcs.len())),
            packed,
            life: self.life,
            from: self.from.map(|from| from.behind(blocks)),
        };
        self.data = self.data.slice(0..at);
        rest
    }

    /// Space between and behind its compressed frames.
    fn padding(&self, alarm: &Alarm) -> PackUnits {
        if self.packed.is_empty() {
            return PackUnits::ZERO;
        }
        let frames = self.packed.iter().map(|frame| frame.frame.pack_units());
        let (all, frames) = (
            PackUnits::of_blocks(self.data.blocks().into()),
            frames.sum(),
        );
        invariant_holds!(
            alarm,
            frames <= all,
            "compressed frames of {frames:?} in a run of {all:?}"
        );
        all.saturating_sub(frames)
    }

    /// The files whose data it is.
    fn owners(&self) -> impl Iterator<Item = Ino> {
        let whole = (!self.crcs.is_empty()).then_some(self.ino);
        let packed = self.packed.iter().map(|frame| frame.ino);
        whole.into_iter().chain(packed)
    }

    /// Whether a summary has room for the first `blocks` blocks.
    fn fits(&self, summary: &SummaryBuilder, blocks: u32, zone_block: u32) -> bool {
        let inside = |frame: &&PackedFrame| frame.end_block() <= blocks;
        let packed = self.packed.iter().filter(inside);
        let whole = blocks.min(self.crcs.len() as u32) as usize;
        summary.fits(whole) && summary.fits_packed(packed.map(|frame| frame.entry(zone_block)))
    }

    /// Adds the run to the summary of the zone in which it lies at `zone_block`.
    fn summarise(&self, summary: &mut SummaryBuilder, zone_block: u32) {
        if !self.crcs.is_empty() {
            summary.push(&SummaryEntry {
                zone_block,
                ino: self.ino.plain(),
                file_block: self.file_block,
                crcs: self.crcs.clone(),
            });
        }
        for frame in &self.packed {
            summary.push_packed(&frame.entry(zone_block));
        }
    }
}

/// Runs that are sent together.
struct Batch {
    runs: Vec<Run>,
    /// There are more, and the summary has no room for them.
    summary_is_full: bool,
    /// There are more, and the zone has no room for the next one.
    ends_zone: bool,
}

/// A run and where it lies.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) run: Run,
    pub(crate) addr: Addr,
}

impl Placed {
    /// What it is in the tree: files, their blocks, extents.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (Ino, u64, Extent)> {
        let run = &self.run;
        let whole = (!run.crcs.is_empty()).then(|| {
            let (addr, crcs) = (self.addr, run.crcs.clone());
            (run.ino, run.file_block, Extent::Frame { addr, crcs })
        });
        let packed = run.packed.iter().map(|frame| {
            let packed = frame.placed(self.addr);
            (frame.ino, frame.file_block, Extent::Packed(packed))
        });
        whole.into_iter().chain(packed)
    }

    /// What cleaning moved here: files, their blocks, the extents that they have and those that they are to have.
    pub(crate) fn moves(&self) -> impl Iterator<Item = (Ino, u64, Extent, Extent)> {
        let run = &self.run;
        let whole = run.from.map(|from| from.extent(&run.crcs));
        let packed = run.packed.iter().filter_map(|frame| frame.from);
        let from = whole.into_iter().chain(packed.map(Extent::Packed));
        let to = self.extents();
        to.zip(from)
            .map(|((ino, block, to), from)| (ino, block, from, to))
    }
}

/// An open zone.
#[derive(Debug)]
pub(crate) struct ZoneWriter {
    pub(crate) zone: ZoneId,
    pub(crate) stream: Stream,
    pub(crate) sequence: u64,
    pub(crate) write_pointer: u32,
    pub(crate) capacity: u32,
    /// What is sent ends at a whole row of so many blocks: the zone is a stripe set.
    pub(crate) row_blocks: u32,
    pub(crate) summary: SummaryBuilder,
    pub(crate) last_summary: u32,
    /// The next summary tells where cleaning moved something to.
    pub(crate) has_moved: bool,
    /// Cleaning opened the zone, perhaps out of its reserve, for blocks that live as long as users' in that stream.
    pub(crate) by_cleaning: bool,
    /// Takes no more: a write failed, or the zone is to be finished.
    pub(crate) is_ending: bool,
    /// Writes to the zone that may be under way or have failed, and the blocks of each.
    pub(crate) queue: Vec<(Arc<Writes>, u32)>,
    /// Of what is in the zone.
    pub(crate) lives: Lives,
    /// What cleaning has left between compressed frames since it was checked out.
    pub(crate) padding: PackUnits,
    /// Whose data was written to it since it was checked out.
    pub(crate) filled: Filled,
    pub(super) alarm: Alarm,
}

impl ZoneWriter {
    /// Blocks of data that still fit; the last row is reserved for the last summary.
    pub(crate) fn room(&self) -> u32 {
        if self.is_ending {
            0
        } else {
            invariant_holds!(
                self.alarm,
                self.write_pointer <= self.capacity,
                "zone {} of {} blocks is written up to {}",
                self.zone,
                self.capacity,
                self.write_pointer
            );
            // One is for the summary, with what fills its row.
            self.capacity
                .saturating_sub(self.write_pointer)
                .saturating_sub(self.row_blocks)
        }
    }

    /// Nothing fits any more.
    pub(crate) fn is_full(&self) -> bool {
        self.is_ending || self.write_pointer >= self.capacity
    }

    /// What the zone has to do before it can begin with something new, in blocks or so.
    pub(super) fn load(&self) -> u32 {
        let waiting = self
            .queue
            .iter()
            .filter(|(writes, _)| writes.is_under_way());
        waiting
            .map(|(_, blocks)| blocks.saturating_add(COMMAND_LOAD))
            .sum()
    }

    /// Whether writes may be under way that somebody waits for.
    pub(super) fn is_under_way(&self) -> bool {
        self.queue.iter().any(|(writes, _)| writes.is_under_way())
    }

    /// Whether a write to the zone is known to have failed, whoever sent it; does not wait.
    pub(crate) fn has_failed_writes(&self) -> bool {
        self.queue.iter().any(|(writes, _)| writes.has_failed())
    }

    /// Waits for the writes under way, whoever sent them.
    pub(crate) fn complete(&mut self) -> Result<(), DeviceError> {
        let mut result = Ok(());
        for (writes, _) in std::mem::take(&mut self.queue) {
            result = result.and(writes.complete());
        }
        self.is_ending |= result.is_err();
        result
    }

    fn addr(&self, block: u32) -> Addr {
        Addr::new(DeviceId(0), self.zone, block)
    }

    /// Takes runs off the back of `runs` (which is in reverse order), as many as fit the zone and one summary block, and
    /// sends them: by zone append, completed on return, or, with `in_flight`, by writes at the
    /// write pointer that are added to it. A zone is never used both ways at once. On an error
    /// nothing of this call is placed, the runs are back in `runs`, and the zone takes no more unless
    /// it was an append for which the host has no room.
    pub(crate) fn place(
        &mut self,
        media: &Media,
        key: &VolumeKey,
        class: Class,
        runs: &mut Vec<Run>,
        in_flight: Option<&Arc<InFlight>>,
    ) -> Result<Vec<Placed>, DeviceError> {
        let start = self.write_pointer;
        let mut pending = Vec::new();
        let blocks_max = media.geometry().max_append_blocks;
        let appends = in_flight.is_none() && media.geometry().takes_appends();
        let Batch {
            runs: batch,
            summary_is_full,
            ends_zone,
        } = self.take_batch(runs, blocks_max, !appends);
        let took_some = !batch.is_empty();
        let places = match in_flight {
            // A zone taken up again may have room for nothing but its summary.
            _ if batch.is_empty() => Ok(Vec::new()),
            Some(_) => Ok(self.send_writes(media, class, &batch, &mut pending)),
            None if appends => self.send_appends(media, class, &batch),
            None => {
                let places = self.send_writes(media, class, &batch, &mut pending);
                wait_all(std::mem::take(&mut pending)).map(|()| places)
            }
        };
        let places = match places {
            Ok(places) => places,
            Err(error) => {
                // Of an append a host that is full wrote nothing, and will when it has room. What is sent to a place may be there in part, or
                // in some zones of a set: only the device knows up to where.
                self.is_ending = !(appends && matches!(error, DeviceError::HostFull));
                runs.extend(batch.into_iter().rev());
                return Err(error);
            }
        };
        invariant_holds!(
            self.alarm,
            places.len() == batch.len(),
            "{} of {} runs have a place in zone {}",
            places.len(),
            batch.len(),
            self.zone
        );
        let mut placed = Vec::with_capacity(batch.len());
        for (run, block) in batch.into_iter().zip(places) {
            invariant_holds!(
                self.alarm,
                block >= start && block + run.data.blocks() <= self.write_pointer,
                "{} blocks at {block} of zone {}, which was written from {start} to {}",
                run.data.blocks(),
                self.zone,
                self.write_pointer
            );
            invariant_holds!(
                self.alarm,
                run.crcs.is_empty() || run.crcs.len() == run.data.blocks() as usize,
                "{} checksums of {} blocks",
                run.crcs.len(),
                run.data.blocks()
            );
            run.summarise(&mut self.summary, block);
            if class == Class::CleanedData {
                self.has_moved = true;
                self.padding += run.padding(&self.alarm);
            }
            self.lives.add(run.life, run.data.blocks().into());
            run.owners().for_each(|ino| self.filled.by(ino));
            placed.push(Placed {
                addr: self.addr(block),
                run,
            });
        }
        // Where appends go is planned for the worst: what they took may have left room all the same.
        let has_room_again = took_some && !ends_zone && self.summary.fits(1);
        let mut full = (summary_is_full || ends_zone) && !has_room_again;
        while !self.is_full() && (self.room() == 0 || std::mem::take(&mut full)) {
            match in_flight {
                Some(_) => self.write_summary(media, key, &mut pending),
                None => self.complete_summary(media, key),
            }
        }
        self.is_ending |= ends_zone;
        if let Some(in_flight) = in_flight {
            let writes = Writes::new(pending);
            in_flight.add(Arc::clone(&writes));
            self.queue.push((writes, self.write_pointer - start));
            // Another zone may take its slot from here on, and the device counts this one until
            // its last write is there. And nobody looks at its writer again: whether all of it is
            // there has to be known now. Whether it failed, its owner asks again.
            if self.is_full() {
                let _ = self.complete();
            }
        }
        Ok(placed)
    }

    /// Runs for one batch, popped off the back of `runs` (which is in reverse order). They go `in_order` behind each other, or
    /// anywhere.
    fn take_batch(&mut self, runs: &mut Vec<Run>, run_blocks_max: u32, in_order: bool) -> Batch {
        let mut room = self.room();
        let mut batch: Vec<Run> = Vec::new();
        let mut planned = self.summary.clone();
        let mut next = self.write_pointer;
        let mut place = |blocks: u32| {
            if in_order {
                next += blocks;
                next - blocks
            } else {
                self.capacity
            }
        };
        while let Some(mut run) = runs.pop() {
            if room == 0 {
                runs.push(run);
                break;
            }
            let mut take = run.cut_at_most(run.data.blocks().min(room).min(run_blocks_max));
            if take == 0 {
                invariant_holds!(
                    self.alarm,
                    run.packed
                        .first()
                        .is_some_and(|frame| frame.end_block() <= run_blocks_max),
                    "a compressed frame is longer than {run_blocks_max} blocks, which is an append to zone {}",
                    self.zone
                );
                // The next compressed frame is longer than the zone has room: the rest of the zone is left.
                runs.push(run);
                return Batch {
                    runs: batch,
                    summary_is_full: false,
                    ends_zone: true,
                };
            }
            while !run.fits(&planned, take, place(0)) {
                // Compressed frames wait for the next summary.
                if take == 1 || !run.packed.is_empty() {
                    runs.push(run);
                    return Batch {
                        runs: batch,
                        summary_is_full: true,
                        ends_zone: false,
                    };
                }
                take = take.div_ceil(2);
            }
            if take < run.data.blocks() {
                runs.push(run.split_off(take));
            }
            invariant_sub!(self.alarm, room, take, "blocks of room in a zone");
            run.summarise(&mut planned, place(take));
            if !in_order {
                planned.forget_place();
            }
            batch.push(run);
        }
        Batch {
            runs: batch,
            summary_is_full: !planned.fits(1),
            ends_zone: false,
        }
    }

    fn send_writes(
        &mut self,
        media: &Media,
        class: Class,
        batch: &[Run],
        pending: &mut Vec<Pending>,
    ) -> Vec<u32> {
        if batch.is_empty() {
            return Vec::new();
        }
        let start = self.write_pointer;
        let blocks: u32 = batch.iter().map(|run| run.data.blocks()).sum();
        invariant_holds!(
            self.alarm,
            blocks <= self.room(),
            "{blocks} blocks to zone {} with room for {}",
            self.zone,
            self.room()
        );
        let mut next = start;
        let places = batch
            .iter()
            .map(|run| {
                let place = next;
                next += run.data.blocks();
                place
            })
            .collect();
        let data = batch.iter().map(|run| run.data.clone()).collect();
        self.send(media, class, data, pending);
        places
    }

    /// Sends blocks at the write pointer, and what fills their last row. Tells where they begin.
    fn send(
        &mut self,
        media: &Media,
        class: Class,
        mut data: Vec<Buffer>,
        pending: &mut Vec<Pending>,
    ) -> u32 {
        let place = self.write_pointer;
        let end = place + Command::data_blocks(&data);
        // The header is a row by itself.
        let missing = (end - 1).next_multiple_of(self.row_blocks) - (end - 1);
        if missing > 0 {
            data.push(BufferMut::zeroed(missing as usize).freeze());
        }
        self.write_pointer = end + missing;
        invariant_holds!(
            self.alarm,
            self.write_pointer <= self.capacity,
            "zone {} of {} blocks is written from {place} to {}",
            self.zone,
            self.capacity,
            self.write_pointer
        );
        pending.extend(media.write(class, self.zone, place, data));
        place
    }

    fn send_appends(
        &mut self,
        media: &Media,
        class: Class,
        batch: &[Run],
    ) -> Result<Vec<u32>, DeviceError> {
        let limit = media.geometry().max_append_blocks;
        let mut commands = Vec::new();
        let mut group: Vec<Buffer> = Vec::new();
        let mut sizes = Vec::new();
        let mut send = |group: &mut Vec<Buffer>, sizes: &mut Vec<u32>| {
            if !group.is_empty() {
                let pending = media.append(class, self.zone, std::mem::take(group));
                commands.push((pending, std::mem::take(sizes)));
            }
        };
        for run in batch {
            let blocks = run.data.blocks();
            if Command::data_blocks(&group) + blocks > limit {
                send(&mut group, &mut sizes);
            }
            group.push(run.data.clone());
            sizes.push(blocks);
        }
        send(&mut group, &mut sizes);
        let mut places = Vec::with_capacity(batch.len());
        let mut result = Ok(());
        for (pending, sizes) in commands {
            match appended(pending) {
                Ok(mut block) => {
                    for size in sizes {
                        places.push(block);
                        block += size;
                        self.write_pointer += size;
                    }
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result.map(|()| places)
    }

    /// Writes the pending summary; an empty one only to fill a zone up. Summaries are hints: one
    /// that cannot be written costs a search in the tree later, no more.
    pub(crate) fn write_summary(
        &mut self,
        media: &Media,
        key: &VolumeKey,
        pending: &mut Vec<Pending>,
    ) {
        if self.is_full() || (self.summary.is_empty() && self.room() > 0) {
            return;
        }
        let mut block = BufferMut::zeroed(1);
        let place = self.write_pointer;
        invariant_holds!(
            self.alarm,
            self.last_summary < place,
            "a summary of zone {} at {place}, after one at {}",
            self.zone,
            self.last_summary
        );
        self.summary
            .finish_into(&mut block, key, self.sequence, place, self.last_summary);
        self.last_summary = place;
        self.has_moved = false;
        self.send(media, Class::Summary, vec![block.freeze()], pending);
    }

    /// Makes sure that the zone can be written to in this way; else it is to be left, for an
    /// earlier write to it has failed. In write mode the device keeps the order of writes; before
    /// an append all must have arrived.
    pub(crate) fn is_ready(&mut self, appends: bool) -> bool {
        if appends {
            return self.complete().is_ok();
        }
        self.queue
            .retain(|(writes, _)| writes.is_under_way() || writes.has_failed());
        self.is_ending |= self.has_failed_writes();
        !self.is_ending
    }

    /// Writes the pending summary and waits for it.
    pub(crate) fn complete_summary(&mut self, media: &Media, key: &VolumeKey) {
        let mut pending = Vec::new();
        self.write_summary(media, key, &mut pending);
        self.is_ending |= wait_all(pending).is_err();
    }

    /// Sends sealed blocks of metadata at the write pointer; the caller made sure of room.
    pub(crate) fn write_blocks(
        &mut self,
        media: &Media,
        class: Class,
        data: Vec<Buffer>,
        pending: &mut Vec<Pending>,
    ) -> Addr {
        let place = self.send(media, class, data, pending);
        self.addr(place)
    }
}
