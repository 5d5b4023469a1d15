//! Appending to the log: records are buffered in the order of their LSNs; whoever needs them
//! written becomes the leader and writes what is there for all who wait (group commit).
//!
//! A commit has three steps, each taken by whoever needs it first: the leader sends the records; the
//! data sent together with them arrives; the device is flushed. The next batch is sent while the
//! data of earlier ones is still under way, and while the device is flushed. But records complete in
//! their order, so that nothing is acknowledged above data that is missing.

use persimmon_sync::{Alarm, Arc, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use persimmon_device::ZoneId;
use persimmon_format::footer::LogPosition;
use persimmon_format::log::{BODY_LEN, LogState, RECORD_HEADER_LEN};
use persimmon_format::record::{Op, mapped_anew};
use persimmon_format::{Addr, Lsn, VolumeKey};

use crate::error::{Error, PANICKED, Result};
use crate::faults::{Fault, fault, instead, last_jumps_queue, panic_if, unless};
use crate::in_flight::InFlight;
use crate::invariant::{invariant, invariant_holds, invariant_sub};
use crate::media::Media;
use crate::zones::Zones;
use crate::zones::log_zones::LogZone;

use super::append::{Appender, Batch, Incomplete, LogHead};

mod empty;
mod failures;

use failures::Postponed;

struct Inner {
    /// Framed records not yet taken by a leader, with the size of each.
    records: Vec<u8>,
    sizes: Vec<u32>,
    data: Vec<(Lsn, Arc<InFlight>)>,
    /// The last record that was appended together with data in flight.
    last_with_data: Lsn,
    /// A batch that a leader could not write, or not all of it, because there was no room: it goes
    /// before all others when there is.
    unsent: Option<Batch>,
    /// Blocks that the batch takes which the leader writes now, before the head is behind it.
    sending_blocks: u64,
    next_lsn: Lsn,
    /// Records up to here are in the log.
    sent: Lsn,
    /// Records in the log whose data may still be under way, in order: from `written` to `sent`.
    incomplete: VecDeque<Incomplete>,
    /// Records up to here are in the log, and their data has arrived or is known to have failed.
    written: Lsn,
    durable: Lsn,
    /// A leader is at work; it alone moves the head.
    busy: bool,
    /// Somebody flushes the device, for all who wait.
    flushing: bool,
    head: Option<LogHead>,
    chain: VecDeque<LogZone>,
    state: LogState,
    /// The durable LSN that the log on the device knows of.
    durable_on_device: Lsn,
    /// The opening that the log on the device knows of, as far as was asked for.
    opening_on_device: u32,
    /// First block that a recovery would have to read.
    replay_sequence: u64,
    /// Blocks that the records took less from there to the head, being compressed.
    spared_blocks: u64,
    /// The first intact block. Blocks before it need not be intact: a crash cut some of them off.
    first_intact: u64,
    /// Batches whose data failed after their record was written, and whose owners have not yet
    /// mapped them elsewhere.
    failed_batches: usize,
    /// Number of batches that ever failed.
    failures: u64,
    /// The last record whose data did not arrive.
    last_failure: Lsn,
    /// Records up to this LSN are acknowledged only by a checkpoint.
    failed_upto: Option<Lsn>,
    /// What failed data needs could not be done, and waits to be tried again.
    postponed: Option<Postponed>,
    broken: Option<Error>,
}

/// The log of a volume.
pub(crate) struct Log {
    key: VolumeKey,
    /// Records that take more than one block are compressed.
    compresses: bool,
    inner: Mutex<Inner>,
    alarm: Alarm,
    wake: Condvar,
}

/// The log at a checkpoint's cut.
pub(crate) struct LogCut {
    /// The last record that the checkpoint holds.
    pub(crate) lsn: Lsn,
    /// The first block that can hold a later one.
    pub(crate) replay: LogPosition,
    /// Blocks that the records before took less, being compressed, from where a recovery would begin now.
    spared_blocks: u64,
    /// Data of an earlier record has failed, and is not in the history yet.
    failing: bool,
    failures: u64,
    /// The last record whose data did not arrive.
    pub(crate) last_failure: Lsn,
    /// No block that a recovery would have to read is known to be bad.
    pub(crate) is_sound: bool,
}

/// How far records and their data are to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// They outlive the process.
    Recorded,
    /// They outlive the power.
    Durable,
}

/// The initial state of the log: what recovery found, or what mkfs begins with.
pub(crate) struct LogInit {
    pub(crate) state: LogState,
    pub(crate) next_lsn: Lsn,
    pub(crate) head: Option<LogHead>,
    pub(crate) chain: Vec<LogZone>,
    pub(crate) replay_sequence: u64,
    /// Blocks that the records from there on took less, being compressed.
    pub(crate) spared_blocks: u64,
    /// The durable LSN that the log on the device knows of.
    pub(crate) durable_on_device: Lsn,
    /// Blocks from the replay position on are not all intact.
    pub(crate) has_bad_blocks: bool,
}

impl Log {
    /// `compresses`: records that take more than one block are compressed.
    pub(crate) fn new(key: VolumeKey, start: LogInit, compresses: bool, alarm: &Alarm) -> Log {
        let done = Lsn(start.next_lsn.0.saturating_sub(1));
        Log {
            key,
            compresses,
            inner: Mutex::watched(
                Inner {
                    records: Vec::new(),
                    sizes: Vec::new(),
                    data: Vec::new(),
                    last_with_data: Lsn(0),
                    unsent: None,
                    sending_blocks: 0,
                    next_lsn: start.next_lsn,
                    sent: done,
                    incomplete: VecDeque::new(),
                    written: done,
                    durable: done,
                    busy: false,
                    flushing: false,
                    head: start.head,
                    chain: start.chain.into(),
                    state: start.state,
                    durable_on_device: start.durable_on_device,
                    opening_on_device: start.state.opening,
                    replay_sequence: start.replay_sequence,
                    spared_blocks: start.spared_blocks,
                    first_intact: match start.head.filter(|_| start.has_bad_blocks) {
                        Some(head) => head.sequence(),
                        None => 0,
                    },
                    failed_batches: 0,
                    failures: 0,
                    last_failure: Lsn(0),
                    failed_upto: None,
                    postponed: None,
                    broken: None,
                },
                alarm,
            ),
            alarm: alarm.clone(),
            wake: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Buffers a record; called under the metadata lock, so that LSNs follow the order of the
    /// changes.
    pub(crate) fn append(&self, ops: &[Op], data: Option<Arc<InFlight>>) -> Lsn {
        invariant_holds!(
            self.alarm,
            data.is_none() || brings_all(ops),
            "a record comes with data, and maps what a recovery takes for older than the record"
        );
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
        let lsn = inner.next_lsn;
        if let Some(data) = data {
            inner.data.push((lsn, data));
            inner.last_with_data = lsn;
        }
        inner.next_lsn = lsn.next();
        invariant_holds!(
            self.alarm,
            inner.sent < lsn && size as u64 <= u64::from(u32::MAX),
            "record {lsn} of {size} bytes is appended, and {} are in the log",
            inner.sent
        );
        lsn
    }

    /// Everything up to this LSN is durable.
    pub(crate) fn durable(&self) -> Lsn {
        self.lock().durable
    }

    /// LSN of the last record.
    pub(crate) fn last_lsn(&self) -> Lsn {
        self.lock().last_lsn()
    }

    /// Bytes waiting for a leader.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.lock().records.len()
    }

    /// Bytes that more records may have without taking another block.
    pub(crate) fn room_in_block(&self) -> usize {
        BODY_LEN - self.lock().records.len() % BODY_LEN
    }

    /// Blocks that a recovery would have to replay, those on their way and still buffered included. Compressed ones count as if they were not: what they hold
    /// takes as long.
    pub(crate) fn blocks_to_replay(&self) -> u64 {
        let inner = self.lock();
        inner.blocks_to_read(&self.alarm) + inner.spared_blocks
    }

    /// Blocks that a recovery would have to read, those on their way and still buffered included.
    pub(crate) fn blocks_to_read(&self) -> u64 {
        self.lock().blocks_to_read(&self.alarm)
    }

    /// The log as a checkpoint's cut finds it; called under the metadata lock.
    pub(crate) fn cut(&self) -> LogCut {
        let inner = self.lock();
        let (sent, written, last) = (inner.sent, inner.written, inner.last_lsn());
        invariant_holds!(
            self.alarm,
            written <= sent && sent <= last,
            "records up to {written} are written, of those sent up to {sent} and made up to {last}"
        );
        invariant_holds!(
            self.alarm,
            inner.durable <= last && inner.durable_on_device <= inner.durable.max(sent),
            "records up to {} are durable, up to {} on the device, made up to {last}",
            inner.durable,
            inner.durable_on_device
        );
        invariant_holds!(
            self.alarm,
            inner.sizes.len() as u64 <= last.0 - sent.0,
            "{} records are buffered, and those up to {sent} are sent of those up to {last}",
            inner.sizes.len()
        );
        let start = LogPosition {
            sequence: inner.replay_sequence,
            addr: Addr::ZERO,
        };
        LogCut {
            lsn: inner.last_lsn(),
            replay: inner.head.map_or(start, |h| h.position()),
            spared_blocks: inner.spared_blocks,
            failing: inner.failed_batches > 0,
            failures: inner.failures,
            last_failure: inner.last_failure,
            is_sound: inner.first_intact <= inner.replay_sequence,
        }
    }

    /// Writes all records up to `target`, together with their data.
    pub(crate) fn write(&self, media: &Media, zones: &Zones, target: Lsn) -> Result<()> {
        let mut inner = self.lock();
        loop {
            inner.check()?;
            if inner.written >= target {
                return Ok(());
            }
            inner = self.write_some(inner, media, zones, target)?;
        }
    }

    /// The same, and makes them durable.
    ///
    /// Where data has failed, everybody waits until a checkpoint has left its record behind, but
    /// the owner of that data (`own`), who has to rewrite it and gets an answer at once.
    pub(crate) fn commit(
        &self,
        media: &Media,
        zones: &Zones,
        target: Lsn,
        own: Option<&InFlight>,
    ) -> Result<()> {
        self.write_as_far_as(Reach::Durable, media, zones, target, own)
    }

    /// Writes all records up to `target` with their data, and has them outlive the process.
    ///
    /// After data that has failed a recovery would end before all later records. So everybody waits here, too, until a
    /// checkpoint has left that record behind.
    pub(crate) fn record(&self, media: &Media, zones: &Zones, target: Lsn) -> Result<()> {
        self.write_as_far_as(Reach::Recorded, media, zones, target, None)
    }

    fn write_as_far_as(
        &self,
        reach: Reach,
        media: &Media,
        zones: &Zones,
        target: Lsn,
        own: Option<&InFlight>,
    ) -> Result<()> {
        let mut inner = self.lock();
        loop {
            inner.check()?;
            if inner.durable >= target {
                return Ok(());
            }
            inner = if inner.written < target {
                self.write_some(inner, media, zones, target)?
            } else if inner.failed_upto.is_some() {
                if let Some(own) = own.filter(|own| own.has_failed()) {
                    drop(inner);
                    return Ok(own.complete()?);
                }
                inner.check_postponed()?;
                self.wait(inner)
            } else {
                match reach {
                    Reach::Durable => self.flush(inner, media)?,
                    Reach::Recorded => {
                        drop(inner);
                        return media.record().inspect_err(|error| {
                            // As after a flush that failed: what had completed may be lost, unless it can be tried again.
                            self.lock().fail(error);
                            self.wake.notify_all();
                        });
                    }
                }
            };
        }
    }

    /// Goes on with writing records up to `target`, not all of which are written.
    fn write_some<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
        media: &Media,
        zones: &Zones,
        target: Lsn,
    ) -> Result<MutexGuard<'a, Inner>> {
        if inner.sent < target {
            self.send(inner, media, zones)
        } else {
            Ok(self.complete(inner))
        }
    }

    /// Writes what is buffered to the log, or waits for who is at it.
    fn send<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        media: &Media,
        zones: &Zones,
    ) -> Result<MutexGuard<'a, Inner>> {
        if inner.busy {
            return Ok(self.wait(inner));
        }
        let mut batch = inner.take_batch();
        let bytes: usize = batch.sizes.iter().map(|size| *size as usize).sum();
        invariant!(
            self.alarm,
            bytes == batch.records.len(),
            "{} records of {bytes} bytes are {} bytes",
            batch.sizes.len(),
            batch.records.len()
        );
        let is_inside = |lsn: &Lsn| (batch.first_lsn..=batch.last_lsn).contains(lsn);
        invariant!(
            self.alarm,
            batch.data.iter().all(|(lsn, _)| is_inside(lsn)),
            "data is sent with records {} to {}, and is of another",
            batch.first_lsn,
            batch.last_lsn
        );
        inner.sending_blocks = batch.blocks_left(&self.alarm);
        let (mut inner, result) = self.lead(inner, media, zones, |run| {
            panic_if(Fault::PanicInLog);
            run.write_batch(&mut batch)
        });
        inner.sending_blocks = 0;
        match result {
            Ok(()) => {
                invariant!(
                    self.alarm,
                    batch.first_lsn == inner.sent.next() || batch.sizes.is_empty(),
                    "records from {} on are sent after {}",
                    batch.first_lsn,
                    inner.sent
                );
                invariant!(
                    self.alarm,
                    batch.last_lsn >= inner.sent && batch.last_lsn < inner.next_lsn,
                    "records up to {} are sent, of those up to {}",
                    batch.last_lsn,
                    inner.next_lsn
                );
                invariant!(
                    self.alarm,
                    batch.state.durable <= batch.last_lsn,
                    "the log on the device calls {} durable, and has records up to {}",
                    batch.state.durable,
                    batch.last_lsn
                );
                inner.sent = batch.last_lsn;
                inner.spared_blocks += batch.spared_blocks();
                inner.durable_on_device = batch.state.durable;
                inner.incomplete.extend(batch.incomplete());
            }
            Err(error) if error.passes() => {
                inner.unsent = Some(batch);
                return Err(error);
            }
            Err(error) => inner.broken = Some(error),
        }
        Ok(inner)
    }

    /// Waits for the data of the first record that has not completed. Several may do so at once; one
    /// of them keeps the books.
    fn complete<'a>(&'a self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        let Some(first) = inner.incomplete.front() else {
            inner.written = inner.sent;
            return inner;
        };
        let (last_lsn, data) = (first.last_lsn, first.data.clone());
        let mut failed = None;
        if let Some(data) = data {
            drop(inner);
            failed = data.complete().is_err().then_some(data);
            inner = self.lock();
        }
        if inner.written >= last_lsn {
            return inner;
        }
        let completed = inner.incomplete.pop_front();
        let is_it = completed.is_some_and(|completed| completed.last_lsn == last_lsn);
        invariant_holds!(
            self.alarm,
            is_it && last_lsn <= inner.sent,
            "records up to {last_lsn} have completed out of their order, of those sent up to {}",
            inner.sent
        );
        inner.written = last_lsn;
        if let Some(data) = failed {
            inner.failures += 1;
            inner.last_failure = last_lsn;
            // Its owner may have been here first: the record itself found no room in the log at once.
            inner.failed_batches += usize::from(!data.arrives_second());
            inner.failed_upto = Some(last_lsn).filter(|_| !fault(Fault::FailedDataAcknowledged));
        }
        self.wake.notify_all();
        inner
    }

    /// Flushes the device, where it has a cache, for everything written so far, none of which is
    /// known to have failed. If another thread flushes, waits for that one.
    fn flush<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        media: &Media,
    ) -> Result<MutexGuard<'a, Inner>> {
        if inner.flushing && !fault(Fault::FlushNotWaitedFor) {
            return Ok(self.wait(inner));
        }
        let mut written = inner.written;
        if media.flushes() && !inner.flushing && !fault(Fault::AcknowledgedUnflushed) {
            inner.flushing = true;
            drop(inner);
            let result = self.unlocked(|| media.flush());
            inner = self.lock();
            inner.flushing = false;
            written = instead(Fault::FlushTakesMore, inner.written, written);
            if let Err(error) = result {
                self.wake.notify_all();
                inner.fail(&error);
                return Err(error);
            }
        }
        invariant!(
            self.alarm,
            written <= inner.written && inner.written <= inner.sent,
            "records up to {written} were flushed, of those written up to {} and sent up to {}",
            inner.written,
            inner.sent
        );
        inner.durable = inner.durable.max(written);
        inner.state.durable = inner.durable;
        self.wake.notify_all();
        Ok(inner)
    }

    /// Becomes the leader, which must not exist yet, for a piece of work on the device from the
    /// head on; the lock is open meanwhile.
    fn lead<'a, R>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        media: &Media,
        zones: &Zones,
        work: impl FnOnce(&mut Appender<'_>) -> R,
    ) -> (MutexGuard<'a, Inner>, R) {
        invariant_holds!(self.alarm, !inner.busy, "the log has two leaders");
        inner.busy = true;
        let mut run = Appender {
            key: &self.key,
            media,
            zones,
            compresses: self.compresses,
            head: inner.head,
            first: inner.replay_sequence,
            opened: Vec::new(),
        };
        drop(inner);
        let result = self.unlocked(|| work(&mut run));
        let mut inner = self.lock();
        invariant_holds!(self.alarm, inner.busy, "the log's leader was not alone");
        let (before, after) = (inner.head, run.head);
        let (before, after) = (before.map(|h| h.sequence()), after.map(|h| h.sequence()));
        invariant_holds!(
            self.alarm,
            after >= before,
            "the log's head went from block {before:?} back to {after:?}"
        );
        inner.busy = false;
        inner.head = run.head;
        inner.chain.extend(run.opened);
        self.wake.notify_all();
        (inner, result)
    }

    /// Runs what one thread does for all that wait, with the lock open. If it panics, all of them get an error.
    fn unlocked<R>(&self, work: impl FnOnce() -> R) -> R {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.alarm.raise();
            let mut inner = self.lock();
            inner
                .broken
                .get_or_insert(Error::ReadOnly { why: PANICKED });
            (inner.busy, inner.flushing) = (false, false);
            self.wake.notify_all();
            drop(inner);
            resume_unwind(panic)
        })
    }

    /// Waits until there is no leader; an error if the log cannot be gone on with.
    fn wait_for_leader(&self) -> Result<MutexGuard<'_, Inner>> {
        let mut inner = self.lock();
        while inner.busy {
            inner = self.wait(inner);
        }
        inner.check()?;
        Ok(inner)
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.wake.wait(inner)
    }

    /// The part of the log that a recovery would read: its first block, its zones, and the block
    /// after the last that is written. What recovery found damaged in it, and left out, is not
    /// part of it.
    pub(crate) fn live(&self) -> (u64, Vec<LogZone>, u64) {
        let inner = self.lock();
        let from = inner.replay_sequence.max(inner.first_intact);
        let to = inner.head.map_or(from, |head| head.sequence());
        (from, inner.chain.iter().copied().collect(), to)
    }

    /// The zone that the log goes on in, if there is room.
    pub(crate) fn zone_with_room(&self) -> Option<ZoneId> {
        let inner = self.lock();
        let head = inner.head.filter(|head| head.room() > 0)?;
        Some(head.zone.zone)
    }

    /// Writes a footer, makes it durable, and returns the log zones that nobody needs any more. `from`: where a recovery begins from then
    /// on, if not where it did.
    pub(crate) fn write_footer(
        &self,
        media: &Media,
        zones: &Zones,
        bytes: &[u8],
        cut: Lsn,
        from: Option<&LogCut>,
    ) -> Result<Vec<LogZone>> {
        let inner = self.wait_for_leader()?;
        let (state, next_lsn) = (inner.state, inner.next_to_send());
        let (mut inner, result) = self.lead(inner, media, zones, |run| {
            let addr = run.write_footer(bytes, state, next_lsn)?;
            unless(Fault::FooterUnflushed, || media.flush())?;
            Ok(addr)
        });
        let addr = result.inspect_err(|error| inner.fail(error))?;
        let (replay_sequence, spared_before) = match from {
            Some(cut) => (cut.replay.sequence, cut.spared_blocks),
            None => (inner.replay_sequence, 0),
        };
        invariant!(
            self.alarm,
            replay_sequence >= inner.replay_sequence
                && inner
                    .head
                    .is_some_and(|head| replay_sequence <= head.sequence()),
            "replay is to begin at log block {replay_sequence}, and began at {}",
            inner.replay_sequence
        );
        invariant!(
            self.alarm,
            cut <= inner.written || fault(Fault::CutTooHigh) || fault(Fault::CountedTooHigh),
            "a footer holds records up to {cut}, and {} are written",
            inner.written
        );
        inner.state.footer = addr;
        inner.replay_sequence = replay_sequence;
        invariant_sub!(
            self.alarm,
            inner.spared_blocks,
            spared_before,
            "blocks that compressed records took less"
        );
        inner.durable = inner.durable.max(cut);
        inner.state.durable = inner.durable;
        inner.leave_failures_behind(cut);
        let unneeded = inner.take_unneeded();
        let head = inner.head.map(|head| head.zone.zone);
        invariant!(
            self.alarm,
            unneeded.iter().all(|zone| Some(zone.zone) != head),
            "the log goes on in zone {head:?}, which it leaves"
        );
        Ok(unneeded)
    }
}

/// Whether a recovery asks of all that a record maps whether it has arrived.
fn brings_all(ops: &[Op]) -> bool {
    let mapped = ops
        .iter()
        .filter(|op| matches!(op, Op::Map { .. } | Op::Move { .. }));
    mapped.count() == mapped_anew(ops).count()
}

impl Inner {
    fn blocks_to_read(&self, alarm: &Alarm) -> u64 {
        let (head, replay) = (self.head.map(|head| head.sequence()), self.replay_sequence);
        invariant_holds!(
            alarm,
            head.is_none_or(|head| head >= replay),
            "the log is to be replayed from block {replay} on, and ends before block {head:?}"
        );
        let written = head.map_or(0, |head| head.saturating_sub(replay));
        let unsent = self
            .unsent
            .as_ref()
            .map_or(0, |batch| batch.blocks_left(alarm));
        let buffered = self.records.len().div_ceil(BODY_LEN) as u64;
        written + self.sending_blocks + unsent + buffered
    }

    fn last_lsn(&self) -> Lsn {
        Lsn(self.next_lsn.0.saturating_sub(1))
    }

    /// The record that the log on the device goes on with.
    fn next_to_send(&self) -> Lsn {
        let unsent = self.unsent.as_ref();
        let of_batch = unsent.and_then(Batch::next_lsn);
        of_batch.unwrap_or(self.sent.next())
    }

    /// An error if the log cannot be gone on with.
    fn check(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Nothing more can be acknowledged after an error, unless it passes.
    fn fail(&mut self, error: &Error) {
        if !error.passes() {
            self.broken.get_or_insert_with(|| error.clone());
        }
    }

    fn take_batch(&mut self) -> Batch {
        if let Some(unsent) = self.unsent.take() {
            // The footer may have moved since.
            let state = self.state;
            return Batch { state, ..unsent };
        }
        last_jumps_queue(&mut self.records, &mut self.sizes);
        let sizes = std::mem::take(&mut self.sizes);
        let last_lsn = self.last_lsn();
        let mut state = self.state;
        state.durable = instead(Fault::DurableLsnTooHigh, last_lsn, state.durable);
        Batch {
            records: std::mem::take(&mut self.records),
            data: std::mem::take(&mut self.data),
            // Each record has one: there are as many.
            first_lsn: Lsn(self.next_lsn.0 - sizes.len() as u64),
            last_lsn,
            sizes,
            state,
            slices: None,
            done: 0,
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
