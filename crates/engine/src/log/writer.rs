//! Appending to the log: records are buffered in the order of their LSNs; whoever needs them
//! written becomes the leader and writes what is there for all who wait (group commit).

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut, DeviceError, Pending, ZoneId};
use persimmon_format::footer::LogPosition;
use persimmon_format::log::{BODY_LEN, Body, LogBlock, LogState, RECORD_HEADER_LEN};
use persimmon_format::record::Op;
use persimmon_format::{Addr, DeviceId, Lsn, VolumeKey};

use crate::error::{Error, Result};
use crate::media::{Media, wait_all};
use crate::statistics::{Class, add};
use crate::turn::Turn;
use crate::zones::Zones;
use crate::zones::table::LogZone;

/// Blocks sent to the device in one command.
const COMMAND_BLOCKS: usize = 256;
/// Log zones tried one after the other when writing to them fails.
const ZONES_TRIED: usize = 3;

/// Data that a record refers to and that was sent to the device together with it.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    commands: Mutex<Vec<Pending>>,
    failed: OnceLock<DeviceError>,
    turn: Turn,
}

impl InFlight {
    /// Adds commands under way.
    pub(crate) fn add(&self, commands: Vec<Pending>) {
        self.commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(commands);
    }

    /// Whether one of the commands is known to have failed; does not wait.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Waits for all commands added so far. Whoever asks gets the same answer.
    pub(crate) fn settle(&self) -> Result<(), DeviceError> {
        let _turn = self.turn.take();
        let commands =
            std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner));
        if let Err(error) = wait_all(commands) {
            let _ = self.failed.set(error);
        }
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

/// Where the next log block goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) zone: LogZone,
    pub(crate) next_block: u32,
}

impl Head {
    pub(crate) fn sequence(&self) -> u64 {
        self.zone
            .first_log_sequence
            .wrapping_add(u64::from(self.next_block))
            .wrapping_sub(1)
    }

    fn room(&self) -> u32 {
        self.zone.capacity.saturating_sub(self.next_block)
    }

    fn position(&self) -> LogPosition {
        LogPosition {
            sequence: self.sequence(),
            addr: Addr::new(DeviceId(0), self.zone.zone, self.next_block),
        }
    }
}

struct Inner {
    /// Framed records not yet taken by a leader, with the size of each.
    records: Vec<u8>,
    sizes: Vec<u32>,
    data: Vec<Arc<InFlight>>,
    next_lsn: Lsn,
    written: Lsn,
    durable: Lsn,
    /// A leader is at work; it alone moves the head.
    busy: bool,
    head: Option<Head>,
    chain: VecDeque<LogZone>,
    state: LogState,
    /// The durable LSN that the log on the device knows of.
    told: Lsn,
    /// First block that a recovery would have to read.
    replay_sequence: u64,
    /// Flights whose data failed after their record was written, and whose owners have not yet
    /// mapped them elsewhere.
    failed_flights: usize,
    /// Records up to this LSN are acknowledged only by a checkpoint.
    tainted: Option<Lsn>,
    broken: Option<Error>,
}

/// The log of a volume.
pub(crate) struct Log {
    key: VolumeKey,
    inner: Mutex<Inner>,
    wake: Condvar,
}

/// What recovery found, or mkfs begins with.
pub(crate) struct LogStart {
    pub(crate) state: LogState,
    pub(crate) next_lsn: Lsn,
    pub(crate) head: Option<Head>,
    pub(crate) chain: Vec<LogZone>,
    pub(crate) replay_sequence: u64,
    /// The durable LSN that the log on the device knows of.
    pub(crate) told: Lsn,
}

/// A batch of records on its way.
struct Batch {
    records: Vec<u8>,
    sizes: Vec<u32>,
    data: Vec<Arc<InFlight>>,
    first_lsn: Lsn,
    last_lsn: Lsn,
    state: LogState,
}

impl Log {
    pub(crate) fn new(key: VolumeKey, start: LogStart) -> Log {
        let done = Lsn(start.next_lsn.0 - 1);
        Log {
            key,
            inner: Mutex::new(Inner {
                records: Vec::new(),
                sizes: Vec::new(),
                data: Vec::new(),
                next_lsn: start.next_lsn,
                written: done,
                durable: done,
                busy: false,
                head: start.head,
                chain: start.chain.into(),
                state: start.state,
                told: start.told,
                replay_sequence: start.replay_sequence,
                failed_flights: 0,
                tainted: None,
                broken: None,
            }),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Buffers a record; called under the metadata lock, so that LSNs follow the order of the
    /// changes.
    pub(crate) fn append(&self, ops: &[Op], data: Option<Arc<InFlight>>) -> Lsn {
        let mut inner = self.lock();
        let start = inner.records.len();
        inner.records.extend_from_slice(&[0; RECORD_HEADER_LEN]);
        for op in ops {
            op.encode(&mut inner.records);
        }
        let size = inner.records.len() - start;
        let len = (size - RECORD_HEADER_LEN) as u32;
        inner.records[start..start + RECORD_HEADER_LEN].copy_from_slice(&len.to_le_bytes());
        inner.sizes.push(size as u32);
        inner.data.extend(data);
        let lsn = inner.next_lsn;
        inner.next_lsn = lsn.next();
        lsn
    }

    /// LSN of the last record.
    pub(crate) fn last_lsn(&self) -> Lsn {
        Lsn(self.lock().next_lsn.0 - 1)
    }

    /// Bytes waiting for a leader.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.lock().records.len()
    }

    /// Blocks that a recovery would have to read, those still buffered included.
    pub(crate) fn blocks_to_replay(&self) -> u64 {
        let inner = self.lock();
        let written = inner
            .head
            .map_or(0, |h| h.sequence().saturating_sub(inner.replay_sequence));
        written + inner.records.len().div_ceil(BODY_LEN) as u64
    }

    /// The last LSN, and the first block that can hold a later record. Called under the metadata
    /// lock by a checkpoint's cut.
    pub(crate) fn cut(&self) -> (Lsn, LogPosition) {
        let inner = self.lock();
        let start = LogPosition {
            sequence: inner.replay_sequence,
            addr: Addr::ZERO,
        };
        (
            Lsn(inner.next_lsn.0 - 1),
            inner.head.map_or(start, |h| h.position()),
        )
    }

    /// Writes all records up to `target`, together with their data, and makes them durable if
    /// asked to.
    ///
    /// Where data has failed, everybody waits until a checkpoint has left its record behind, but
    /// the owner of that data (`own`), who has to see to it and is told at once.
    pub(crate) fn commit(
        &self,
        media: &Media,
        zones: &Zones,
        target: Lsn,
        durable: bool,
        own: Option<&InFlight>,
    ) -> Result<()> {
        let mut inner = self.lock();
        loop {
            if let Some(error) = &inner.broken {
                return Err(error.clone());
            }
            let reached = if durable {
                inner.durable
            } else {
                inner.written
            };
            if reached >= target {
                return Ok(());
            }
            if durable && inner.tainted.is_some() && inner.written >= target {
                if let Some(own) = own
                    && own.has_failed()
                {
                    drop(inner);
                    return Ok(own.settle()?);
                }
                inner = self.wait(inner);
                continue;
            }
            if inner.busy {
                inner = self.wait(inner);
                continue;
            }
            let batch = inner.take_batch();
            let head = inner.head;
            inner.busy = true;
            drop(inner);
            let mut run = Run {
                log: self,
                media,
                zones,
                head,
                opened: Vec::new(),
            };
            let result = run.write_batch(&batch);
            let data = batch
                .data
                .iter()
                .map(|d| d.settle().is_err())
                .filter(|e| *e)
                .count();
            let result = result.and_then(|()| {
                if durable && data == 0 {
                    media.flush()
                } else {
                    Ok(())
                }
            });
            let (head, opened) = (run.head, run.opened);
            inner = self.lock();
            inner.busy = false;
            inner.head = head;
            inner.chain.extend(opened);
            inner.failed_flights += data;
            if data > 0 {
                inner.tainted = Some(batch.last_lsn);
            }
            match result {
                Ok(()) => {
                    inner.written = batch.last_lsn;
                    if !batch.sizes.is_empty() {
                        inner.told = batch.state.durable;
                    }
                    if durable && inner.tainted.is_none() {
                        inner.durable = batch.last_lsn;
                        inner.state.durable = batch.last_lsn;
                    }
                }
                Err(error) => inner.broken = Some(error),
            }
            self.wake.notify_all();
        }
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.wake
            .wait(inner)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of a failed flight has mapped its data elsewhere, or (with an error) could not.
    pub(crate) fn flight_superseded(&self, result: Result<()>) {
        let mut inner = self.lock();
        inner.failed_flights = inner.failed_flights.saturating_sub(1);
        if let Err(error) = result {
            inner.broken.get_or_insert(error);
        }
        self.wake.notify_all();
    }

    /// Whether a checkpoint would make an extent durable whose data is not there.
    pub(crate) fn has_failed_flights(&self) -> bool {
        self.lock().failed_flights > 0
    }

    /// Waits until the owners of failed flights have mapped their data elsewhere.
    pub(crate) fn wait_for_superseding(&self) -> Result<()> {
        let mut inner = self.lock();
        while inner.failed_flights > 0 && inner.broken.is_none() {
            inner = self.wait(inner);
        }
        inner.broken.clone().map_or(Ok(()), Err)
    }

    /// The zone that the log goes on in.
    pub(crate) fn head_zone(&self) -> Option<ZoneId> {
        self.lock().head.map(|head| head.zone.zone)
    }

    /// Writes a footer, makes it durable, and returns the log zones that nobody needs any more.
    pub(crate) fn write_footer(
        &self,
        media: &Media,
        zones: &Zones,
        bytes: &[u8],
        cut: Lsn,
        replay_sequence: u64,
    ) -> Result<Vec<LogZone>> {
        let mut inner = self.lock();
        while inner.busy {
            inner = self.wait(inner);
        }
        if let Some(error) = &inner.broken {
            return Err(error.clone());
        }
        inner.busy = true;
        let (head, state, next_lsn) = (inner.head, inner.state, Lsn(inner.written.0 + 1));
        drop(inner);
        let mut run = Run {
            log: self,
            media,
            zones,
            head,
            opened: Vec::new(),
        };
        let result = run
            .write_footer(bytes, state, next_lsn)
            .and_then(|a| media.flush().map(|()| a));
        let (head, opened) = (run.head, run.opened);
        let mut inner = self.lock();
        inner.busy = false;
        inner.head = head;
        inner.chain.extend(opened);
        let result = match result {
            Ok(addr) => {
                inner.state.footer = addr;
                inner.replay_sequence = replay_sequence;
                inner.durable = inner.durable.max(cut);
                inner.state.durable = inner.durable;
                if inner.tainted.is_some_and(|lsn| lsn <= cut) {
                    inner.tainted = None;
                }
                Ok(inner.take_unneeded())
            }
            Err(error) => {
                inner.broken = Some(error.clone());
                Err(error)
            }
        };
        self.wake.notify_all();
        result
    }

    /// Tells the log on the device how far it is durable, by an empty block. From then on damage
    /// to what was acknowledged cannot pass for writes that a crash cut off.
    pub(crate) fn tell_durable(&self, media: &Media, zones: &Zones) -> Result<()> {
        let mut inner = self.lock();
        while inner.busy {
            inner = self.wait(inner);
        }
        if let Some(error) = &inner.broken {
            return Err(error.clone());
        }
        if inner.told >= inner.durable {
            return Ok(());
        }
        inner.busy = true;
        let (head, state, next_lsn) = (inner.head, inner.state, inner.written.next());
        drop(inner);
        let mut run = Run {
            log: self,
            media,
            zones,
            head,
            opened: Vec::new(),
        };
        let result = run.write_journal(&[(next_lsn, 0, 0..0)], &[], state);
        let result = result.and_then(|()| media.flush());
        let (head, opened) = (run.head, run.opened);
        let mut inner = self.lock();
        inner.busy = false;
        inner.head = head;
        inner.chain.extend(opened);
        match &result {
            Ok(()) => inner.told = state.durable,
            Err(error) => inner.broken = Some(error.clone()),
        }
        self.wake.notify_all();
        result
    }

    /// Begins a new epoch: writes a block that voids every record of earlier epochs after
    /// `resume_after`, in a fresh zone where the old one cannot be gone on with.
    pub(crate) fn begin_epoch(&self, media: &Media, zones: &Zones) -> Result<()> {
        let (head, state, next_lsn) = {
            let inner = self.lock();
            (inner.head, inner.state, inner.next_lsn)
        };
        let mut run = Run {
            log: self,
            media,
            zones,
            head,
            opened: Vec::new(),
        };
        let body = [(next_lsn, 0, 0..0)];
        let result = run.write_journal(&body, &[], state);
        let (head, opened) = (run.head, run.opened);
        let mut inner = self.lock();
        inner.head = head;
        inner.chain.extend(opened);
        result?;
        drop(inner);
        media.flush()
    }
}

impl Inner {
    fn take_batch(&mut self) -> Batch {
        let sizes = std::mem::take(&mut self.sizes);
        let last_lsn = Lsn(self.next_lsn.0 - 1);
        Batch {
            records: std::mem::take(&mut self.records),
            data: std::mem::take(&mut self.data),
            first_lsn: Lsn(self.next_lsn.0 - sizes.len() as u64),
            last_lsn,
            sizes,
            state: self.state,
        }
    }

    /// Zones of the chain before the one that replay starts in.
    fn take_unneeded(&mut self) -> Vec<LogZone> {
        let mut unneeded = Vec::new();
        while let Some(next) = self.chain.get(1)
            && next.first_log_sequence <= self.replay_sequence
        {
            unneeded.extend(self.chain.pop_front());
        }
        unneeded
    }
}

/// What goes into one journal block: first LSN, lead, and which of the batch's bytes.
type Slice = (Lsn, u16, std::ops::Range<usize>);

/// One leader's work.
struct Run<'a> {
    log: &'a Log,
    media: &'a Media,
    zones: &'a Zones,
    head: Option<Head>,
    /// Zones taken into the chain meanwhile.
    opened: Vec<LogZone>,
}

impl Run<'_> {
    fn write_batch(&mut self, batch: &Batch) -> Result<()> {
        if batch.sizes.is_empty() {
            return Ok(());
        }
        add(&self.media.counters.commits, 1);
        add(&self.media.counters.records, batch.sizes.len() as u64);
        self.write_journal(
            &cut_blocks(&batch.sizes, batch.first_lsn),
            &batch.records,
            batch.state,
        )
    }

    /// Writes journal blocks, rolling over to new zones as they fill up.
    fn write_journal(&mut self, mut slices: &[Slice], bytes: &[u8], state: LogState) -> Result<()> {
        let mut failures = 0;
        while !slices.is_empty() {
            let head = self.head_with_room(1)?;
            let (now, later) = slices.split_at(slices.len().min(head.room() as usize));
            let bodies = now.iter().map(|(first_lsn, lead, range)| Body::Journal {
                first_lsn: *first_lsn,
                lead: *lead,
                bytes: &bytes[range.clone()],
            });
            match self.write_blocks(head, bodies, state, Class::Journal) {
                Ok(()) => slices = later,
                Err(error) => self.abandon(head, error, &mut failures)?,
            }
        }
        Ok(())
    }

    fn write_footer(&mut self, bytes: &[u8], state: LogState, next_lsn: Lsn) -> Result<Addr> {
        let parts: Vec<&[u8]> = bytes.chunks(BODY_LEN).collect();
        let mut failures = 0;
        loop {
            let mut head = self.head_with_room(1)?;
            if (head.room() as usize) < parts.len() {
                // The parts of a footer are neighbours: fill up this zone with empty blocks.
                let filler: Vec<Slice> = (0..head.room()).map(|_| (next_lsn, 0, 0..0)).collect();
                self.write_journal(&filler, &[], state)?;
                head = self.head_with_room(1)?;
                if (head.room() as usize) < parts.len() {
                    return Err(Error::Geometry(
                        "a checkpoint footer does not fit a zone".into(),
                    ));
                }
            }
            let bodies = parts.iter().enumerate().map(|(part, bytes)| Body::Footer {
                part: part as u16,
                parts: parts.len() as u16,
                bytes,
            });
            let addr = head.position().addr;
            match self.write_blocks(head, bodies, state, Class::Checkpoint) {
                Ok(()) => return Ok(addr),
                Err(error) => self.abandon(head, error, &mut failures)?,
            }
        }
    }

    fn write_blocks<'b>(
        &mut self,
        mut head: Head,
        bodies: impl Iterator<Item = Body<'b>>,
        state: LogState,
        class: Class,
    ) -> Result<(), DeviceError> {
        let blocks: Vec<_> = bodies
            .enumerate()
            .map(|(i, body)| LogBlock {
                sequence: head.sequence() + i as u64,
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
        self.zones
            .note_log_zone(head.zone.zone, head.next_block, head.room() > 0);
        self.head = Some(head);
        Ok(())
    }

    fn encode(&self, blocks: &[LogBlock<'_>], zone: &LogZone) -> Buffer {
        let mut buffer = BufferMut::zeroed(blocks.len());
        for (block, out) in blocks.iter().zip(buffer.chunks_exact_mut(BLOCK_SIZE)) {
            block.encode_into(out, &self.log.key, zone.sequence);
        }
        buffer.freeze()
    }

    /// A zone failed: what was to be written goes to a new one, which takes over its numbers.
    fn abandon(&mut self, head: Head, error: DeviceError, failures: &mut usize) -> Result<()> {
        tracing::warn!(zone = head.zone.zone.0, %error, "log zone failed, going on in another");
        *failures += 1;
        if *failures >= ZONES_TRIED {
            return Err(error.into());
        }
        // Its slot is needed; a zone that cannot even be finished is dead to the device too.
        let _ = self.media.finish(head.zone.zone);
        self.zones
            .note_log_zone(head.zone.zone, head.next_block, false);
        self.roll(head.sequence())
    }

    fn head_with_room(&mut self, blocks: u32) -> Result<Head> {
        match self.head {
            Some(head) if head.room() >= blocks => Ok(head),
            head => {
                self.roll(head.map_or(1, |h| h.sequence()))?;
                self.head.ok_or(Error::NoSpace)
            }
        }
    }

    fn roll(&mut self, first_log_sequence: u64) -> Result<()> {
        let mut failures = 0;
        loop {
            match self.zones.open_log_zone(self.media, first_log_sequence) {
                Ok(Some(zone)) => {
                    self.opened.push(zone);
                    self.head = Some(Head {
                        zone,
                        next_block: 1,
                    });
                    return Ok(());
                }
                Ok(None) => return Err(Error::NoSpace),
                Err(error) => {
                    failures += 1;
                    if failures >= ZONES_TRIED {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Cuts framed records of these sizes into block bodies.
fn cut_blocks(sizes: &[u32], first_lsn: Lsn) -> Vec<Slice> {
    let total: usize = sizes.iter().map(|s| *s as usize).sum();
    let mut slices = Vec::with_capacity(total.div_ceil(BODY_LEN));
    let mut records = sizes.iter().map(|s| *s as usize);
    let mut lsn = first_lsn;
    let mut next_start = 0;
    for start in (0..total).step_by(BODY_LEN) {
        let end = (start + BODY_LEN).min(total);
        let lead = next_start.min(end) - start;
        slices.push((lsn, lead as u16, start..end));
        while next_start < end {
            next_start += records.next().unwrap_or(total);
            lsn = lsn.next();
        }
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_cut_into_blocks() {
        let body = BODY_LEN as u32;
        let slices = cut_blocks(&[10, body, 5], Lsn(7));
        assert_eq!(
            slices,
            vec![
                (Lsn(7), 0, 0..BODY_LEN),
                (Lsn(9), 10, BODY_LEN..BODY_LEN + 15),
            ]
        );
        // A record longer than two blocks: no record starts in the second.
        let slices = cut_blocks(&[2 * body + 1, 4], Lsn(1));
        assert_eq!(
            slices,
            vec![
                (Lsn(1), 0, 0..BODY_LEN),
                (Lsn(2), body as u16, BODY_LEN..2 * BODY_LEN),
                (Lsn(2), 1, 2 * BODY_LEN..2 * BODY_LEN + 5),
            ]
        );
    }
}
