//! Commands on their way: admitted, held back while another write to their zone is under way,
//! sent, and answered.

use std::collections::{HashMap, VecDeque};

use persimmon_sync::{Condvar, Mutex, MutexGuard};

use super::appends::{Appends, Depth};
use super::failure::{Attempt, Failure};
use super::ready::LeftOut;
use super::ring::{Done, Ring, TRANSFERS_MAX, Transfer};
use super::{Action, Place, Port};
use crate::zones::ZoneMachine;
use crate::{
    Buffer, BufferMut, Command, Completer, Completion, DeviceError, Geometry, Pending, Result,
    ZoneId,
};

/// Commands admitted at the same time. One more waits.
const COMMANDS_MAX: usize = TRANSFERS_MAX - 1;
/// How often a flush that was refused is sent another way.
const FLUSH_TRIES: u32 = 4;

/// What the threads that send and the one that collects have in common.
pub struct Shared<P: Port> {
    pub port: P,
    pub geometry: Geometry,
    pub ring: Ring<P::Wire, Job<P>>,
    /// Zones that nothing is written to, whatever the drive says of them.
    pub left_out: LeftOut,
    pub read_only: bool,
    state: Mutex<QueueState<P>>,
    /// A command was answered, or a zone has nothing under way any more.
    changed: Condvar,
    /// There is something to be done to a zone, or nothing will be any more.
    pub managers: Condvar,
}

/// What the drive does, and what it is to do next.
pub struct QueueState<P: Port> {
    pub machine: ZoneMachine,
    /// Zones with something under way or waiting.
    pub queues: HashMap<ZoneId, Queue<P>>,
    /// How often something was begun in each zone: whether a report is older than that.
    pub begun: Vec<u32>,
    /// How many appends were under way together.
    depth: Depth,
    /// Commands admitted and not yet answered.
    pub commands: usize,
    /// What waits for a thread. As much as there is room for commands.
    pub to_manage: VecDeque<Managed>,
    /// The device is closed.
    pub is_stopped: bool,
    /// One of its threads panicked: nothing more is taken.
    pub has_panicked: bool,
}

/// What is to be done to a zone that has been kept free for it.
pub struct Managed {
    pub zone: ZoneId,
    pub action: Action,
    /// What does it.
    pub really: Action,
    pub completer: Completer,
}

/// What waits for a zone, or is under way in it.
pub struct Queue<P: Port> {
    /// A write or a zone management command is under way.
    is_busy: bool,
    /// Those that the drive places.
    appends: Appends,
    /// Reads that are held back while something is done to the zone.
    held_back: Option<Vec<Read>>,
    waiting: VecDeque<Write<P>>,
}

/// A read that is admitted.
struct Read {
    block: u32,
    blocks: u32,
    completer: Completer,
}

/// Who carries a read out.
enum By {
    Ring,
    /// The calling thread, where the wire can do that.
    Caller,
}

/// A write that waits for its turn.
struct Write<P: Port> {
    /// Where it must start; `None` for an append.
    block: Option<u32>,
    data: Vec<Buffer>,
    completer: Completer,
    hold: P::Hold,
}

/// What is to be done when a transfer completes.
pub enum Job<P: Port> {
    Read {
        zone: ZoneId,
        block: u32,
        completer: Completer,
    },
    Write(SentWrite<P>),
    /// An append that the drive places.
    Append {
        zone: ZoneId,
        blocks: u32,
        answer: Answer<P>,
    },
    Flush {
        completer: Completer,
        /// How often it is sent again at most.
        tries_left: u32,
    },
    /// The device is closed.
    Stop,
}

/// Writes sent as one.
pub struct SentWrite<P: Port> {
    zone: ZoneId,
    block: u32,
    blocks: u32,
    answers: Vec<Answer<P>>,
    /// For the second time.
    is_again: bool,
}

/// Who waits for a part of a write.
pub struct Answer<P: Port> {
    completer: Completer,
    /// Where the part begins, of an append.
    appended: Option<u32>,
    hold: P::Hold,
}

/// Something to be told with the lock released.
pub type Answered = (Completer, Result<Completion>);

/// What is to be sent to a zone.
type Sent<P> = (Transfer<Place<P>>, Job<P>);

impl<P: Port> Queue<P> {
    /// Who waits in it, and with what.
    pub(super) fn into_waiting(self) -> (Vec<Completer>, Vec<P::Hold>) {
        let reads = self.held_back.into_iter().flatten();
        let mut completers: Vec<Completer> = reads.map(|read| read.completer).collect();
        let mut holds = Vec::new();
        for write in self.waiting {
            completers.push(write.completer);
            holds.push(write.hold);
        }
        (completers, holds)
    }
}

impl<P: Port> Job<P> {
    /// Who waits for it.
    pub(super) fn into_completers(self) -> Vec<Completer> {
        match self {
            Job::Read { completer, .. } | Job::Flush { completer, .. } => vec![completer],
            Job::Write(sent) => sent.answers.into_iter().map(|a| a.completer).collect(),
            Job::Append { answer, .. } => vec![answer.completer],
            Job::Stop => Vec::new(),
        }
    }
}

impl<P: Port> Default for Queue<P> {
    fn default() -> Queue<P> {
        Queue {
            is_busy: false,
            appends: Appends::default(),
            held_back: None,
            waiting: VecDeque::new(),
        }
    }
}

impl<P: Port> Shared<P> {
    pub fn new(
        port: P,
        geometry: Geometry,
        machine: ZoneMachine,
        ring: Ring<P::Wire, Job<P>>,
        left_out: LeftOut,
        read_only: bool,
    ) -> Shared<P> {
        Shared {
            port,
            ring,
            left_out,
            read_only,
            state: Mutex::new(QueueState {
                machine,
                queues: HashMap::new(),
                begun: vec![0; geometry.zone_count as usize],
                depth: Depth::default(),
                commands: 0,
                to_manage: VecDeque::new(),
                is_stopped: false,
                has_panicked: false,
            }),
            geometry,
            changed: Condvar::new(),
            managers: Condvar::new(),
        }
    }

    /// Starts a read.
    pub fn read(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<Pending> {
        let (read, pending) = self.admit_read(zone, block, blocks)?;
        if let Some(read) = read {
            self.send_read(zone, read, By::Ring);
        }
        Ok(pending)
    }

    /// Reads, if it can be in the calling thread: to start a read and be woken when it has ended takes longer than a fast drive does.
    pub fn read_here(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<Completion> {
        let (read, pending) = self.admit_read(zone, block, blocks)?;
        if let Some(read) = read {
            self.send_read(zone, read, By::Caller);
        }
        pending.wait()
    }

    /// Admits a read, and gives it back unless it has to wait for what is done to its zone.
    fn admit_read(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<(Option<Read>, Pending)> {
        transfer_size(blocks, self.geometry.max_transfer_blocks)?;
        let (completer, pending) = Pending::channel();
        let read = Read {
            block,
            blocks,
            completer,
        };
        let mut state = self.room()?;
        state.check_read(zone, block, blocks)?;
        state.commands += 1;
        let queue = state.queues.get_mut(&zone);
        if let Some(held_back) = queue.and_then(|queue| queue.held_back.as_mut()) {
            held_back.push(read);
            return Ok((None, pending));
        }
        Ok((Some(read), pending))
    }

    fn send_read(&self, zone: ZoneId, read: Read, by: By) {
        let Read { block, blocks, .. } = read;
        let job = Job::Read {
            zone,
            block,
            completer: read.completer,
        };
        let place = match self.port.reading(zone, block) {
            Ok(place) => place,
            Err(failure) => return self.complete(failed_job(job, failure)),
        };
        let mut buffer = BufferMut::unspecified(blocks as usize);
        let read = match by {
            By::Caller => self.ring.read_here(&place, &mut buffer),
            By::Ring => None,
        };
        match read {
            Some(result) => self.complete(Done {
                job,
                buffer: Some(buffer),
                data: Vec::new(),
                result,
            }),
            None => self.send(Transfer::Read(place, buffer), job),
        }
    }

    /// Starts a write, or lets it wait for those before it.
    pub fn write(&self, zone: ZoneId, block: Option<u32>, data: Vec<Buffer>) -> Result<Pending> {
        self.check_writable()?;
        let blocks = Command::data_blocks(&data);
        let limit = match block {
            None => self.geometry.max_append_blocks,
            Some(_) => self.geometry.max_transfer_blocks,
        };
        transfer_size(blocks, limit)?;
        self.lock().machine.capacity(zone)?;
        let mut admit = || {
            let machine = &mut self.lock().machine;
            machine.begin_write(zone, block, blocks).map(drop)
        };
        let hold = match self.port.hold(zone, &mut admit)? {
            Ok(hold) => hold,
            Err(failure) => {
                let attempt = Attempt {
                    operation: "write",
                    zone,
                    block: block.unwrap_or(0),
                };
                return Err(self.failed(attempt, self.report_one(zone), &failure));
            }
        };
        let (completer, pending) = Pending::channel();
        {
            let mut state = self.room()?;
            state.commands += 1;
            let queue = state.queues.entry(zone).or_default();
            queue.waiting.push_back(Write {
                block,
                data,
                completer,
                hold,
            });
        }
        self.advance(zone);
        Ok(pending)
    }

    /// Starts a flush.
    pub fn flush(&self) -> Result<Pending> {
        let place = self.port.flushing().map_err(flush_error)?;
        let (completer, pending) = Pending::channel();
        self.room()?.commands += 1;
        let tries_left = FLUSH_TRIES;
        let job = Job::Flush {
            completer,
            tries_left,
        };
        self.send(Transfer::Flush(place), job);
        Ok(pending)
    }

    /// Does what completed transfers ask for, until the device is closed.
    pub(super) fn collect_until_stopped(&self) {
        let mut done = Vec::new();
        loop {
            self.ring.collect(&mut done);
            for done in done.drain(..) {
                if matches!(done.job, Job::Stop) {
                    return;
                }
                self.complete(done);
            }
        }
    }

    /// Waits until nothing is under way, and ends [`Shared::collect`] and [`Shared::manage_all`].
    pub fn stop(&self) {
        let mut state = self.lock();
        while state.commands > 0 && !state.has_panicked {
            state = self.wait(state);
        }
        state.is_stopped = true;
        drop(state);
        self.managers.notify_all();
        self.send(Transfer::Nothing, Job::Stop);
    }

    /// How many appends were under way together so far.
    pub fn append_depth(&self) -> Depth {
        self.lock().depth
    }

    fn complete(&self, done: Done<Job<P>>) {
        let Done {
            job,
            buffer,
            data,
            result,
        } = done;
        match job {
            Job::Read {
                zone,
                block,
                completer,
            } => {
                let answer = match result {
                    Ok(_) => {
                        let buffer = buffer.unwrap_or_else(|| BufferMut::zeroed(0));
                        Ok(Completion::Read(buffer.freeze()))
                    }
                    Err(failure) => {
                        let attempt = Attempt {
                            operation: "read",
                            zone,
                            block,
                        };
                        // A write may be under way in the zone.
                        let zone_now = self.report_one(zone);
                        Err(self.failed(attempt, zone_now, &failure))
                    }
                };
                self.answer(vec![(completer, answer)]);
            }
            Job::Write(sent) => self.written(sent, data, result),
            Job::Append {
                zone,
                blocks,
                answer,
            } => self.appended(zone, blocks, answer, result),
            Job::Flush {
                completer,
                tries_left,
            } => self.flushed(completer, tries_left, result.map(|_| ())),
            Job::Stop => {}
        }
    }

    fn flushed(&self, completer: Completer, tries_left: u32, result: Result<(), Failure>) {
        let answer = match result {
            Ok(()) => Ok(Completion::Done),
            Err(failure) if failure.is_gone() || self.is_gone() => Err(DeviceError::Gone),
            // What it went through may have failed meanwhile.
            Err(failure) if failure.is_refused() && tries_left > 0 => match self.port.flushing() {
                Ok(place) => {
                    let tries_left = tries_left - 1;
                    let job = Job::Flush {
                        completer,
                        tries_left,
                    };
                    return self.send(Transfer::Flush(place), job);
                }
                Err(failure) => Err(flush_error(failure)),
            },
            Err(failure) => Err(flush_error(failure)),
        };
        self.answer(vec![(completer, answer)]);
    }

    fn written(&self, sent: SentWrite<P>, data: Vec<Buffer>, result: Result<u64, Failure>) {
        let SentWrite { zone, block, .. } = sent;
        let result = match result {
            Ok(_) => self.lock().machine.end_write(zone, sent.blocks),
            Err(failure) => {
                let zone_now = self.examine(zone);
                let is_untouched = zone_now
                    .as_ref()
                    .is_ok_and(|now| now.write_pointer == block && now.state.is_writable());
                if is_untouched
                    && !sent.is_again
                    && failure.is_of_block_layer()
                    && let Some(first) = sent.answers.first()
                {
                    let place = self.port.writing(zone, block, &first.hold);
                    let again = SentWrite {
                        is_again: true,
                        ..sent
                    };
                    return self.send(Transfer::Write(place, data), Job::Write(again));
                }
                let attempt = Attempt {
                    operation: "write",
                    zone,
                    block,
                };
                Err(self.failed(attempt, zone_now, &failure))
            }
        };
        // The zone goes on before anybody hears of it.
        self.finished(zone);
        let answered = sent.answers.into_iter().map(|answer| {
            drop(answer.hold);
            let done = answer
                .appended
                .map_or(Completion::Done, Completion::Appended);
            (answer.completer, result.clone().map(|()| done))
        });
        self.answer(answered.collect());
    }

    /// `result`: what the drive says of where the append landed.
    fn appended(&self, zone: ZoneId, blocks: u32, answer: Answer<P>, result: Result<u64, Failure>) {
        let landed = match result {
            Ok(answer) => {
                let block = self.port.landed(zone, answer);
                let mut state = self.lock();
                state
                    .machine
                    .end_append(zone, block, blocks)
                    .map(|()| block)
            }
            Err(failure) => {
                let attempt = Attempt {
                    operation: "append",
                    zone,
                    block: 0,
                };
                // Others may be under way in the zone.
                Err(self.failed(attempt, self.report_one(zone), &failure))
            }
        };
        let must_look = {
            let mut state = self.lock();
            let state = &mut *state;
            state.queues.get_mut(&zone).is_some_and(|queue| {
                let last_of_failed = queue.appends.end(landed.as_ref().ok(), &mut state.depth);
                queue.is_busy |= last_of_failed;
                last_of_failed
            })
        };
        if must_look {
            // Where the write pointer is after a failure only the drive knows, when nothing is under
            // way any more. What it cannot answer now, the next append will meet.
            let _ = self.examine(zone);
            self.finished(zone);
        } else {
            self.advance(zone);
        }
        drop(answer.hold);
        self.answer(vec![(answer.completer, landed.map(Completion::Appended))]);
    }

    /// What was under way in a zone is over: what waits for it is sent.
    pub fn finished(&self, zone: ZoneId) {
        let mut held_back = None;
        if let Some(queue) = self.lock().queues.get_mut(&zone) {
            queue.is_busy = false;
            held_back = queue.held_back.take();
        }
        for read in held_back.into_iter().flatten() {
            self.send_read(zone, read, By::Ring);
        }
        self.advance(zone);
    }

    /// Sends what may be sent to a zone now.
    fn advance(&self, zone: ZoneId) {
        let mut refused = Vec::new();
        loop {
            // Sent under no lock: appends may change their order, and for writes there is one.
            let next = self
                .lock()
                .next(zone, &self.geometry, &self.port, &mut refused);
            let Some((transfer, job)) = next else {
                break;
            };
            self.send(transfer, job);
        }
        self.changed.notify_all();
        let refused = refused.into_iter().map(|(write, error): (Write<P>, _)| {
            drop(write.hold);
            (write.completer, Err(error))
        });
        self.answer(refused.collect());
    }

    fn send(&self, transfer: Transfer<Place<P>>, job: Job<P>) {
        if let Err(job) = self.ring.start(transfer, job) {
            // Never: fewer commands are admitted than fit.
            let busy = std::io::Error::from(std::io::ErrorKind::ResourceBusy);
            self.complete(failed_job(job, busy.into()));
        }
    }

    pub fn answer(&self, answered: Vec<Answered>) {
        if answered.is_empty() {
            return;
        }
        self.leave(answered.len());
        for (completer, result) in answered {
            completer.complete(result);
        }
    }

    pub fn check_writable(&self) -> Result<()> {
        if self.read_only {
            Err(DeviceError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// The state, once there is room for one more command.
    pub fn room(&self) -> Result<MutexGuard<'_, QueueState<P>>> {
        let mut state = self.lock();
        loop {
            state.check()?;
            if state.commands < COMMANDS_MAX {
                return Ok(state);
            }
            state = self.wait(state);
        }
    }

    /// Wakes all that wait.
    pub(super) fn wake_all(&self) {
        self.changed.notify_all();
        self.managers.notify_all();
    }

    pub fn wait<'a>(&self, state: MutexGuard<'a, QueueState<P>>) -> MutexGuard<'a, QueueState<P>> {
        self.changed.wait(state)
    }

    /// So many commands are under way no more.
    pub(super) fn leave(&self, commands: usize) {
        self.lock().commands -= commands;
        self.changed.notify_all();
    }

    pub fn lock(&self) -> MutexGuard<'_, QueueState<P>> {
        self.state.lock()
    }
}

impl<P: Port> QueueState<P> {
    /// An error where nothing can be taken any more.
    pub fn check(&self) -> Result<()> {
        if self.has_panicked {
            Err(DeviceError::Stopped)
        } else {
            Ok(())
        }
    }

    /// Whether reads of a zone wait for what is done to it.
    pub(super) fn holds_back_reads(&self, zone: ZoneId) -> bool {
        let queue = self.queues.get(&zone);
        queue.is_some_and(|queue| queue.held_back.is_some())
    }

    /// Something begins in a zone in which nothing is under way.
    pub fn begin(&mut self, zone: ZoneId) {
        self.queues.entry(zone).or_default().is_busy = true;
        self.touch(zone);
    }

    /// Reads of a zone wait until what has begun in it is over.
    pub fn hold_back_reads(&mut self, zone: ZoneId) {
        self.queues.entry(zone).or_default().held_back = Some(Vec::new());
    }

    fn touch(&mut self, zone: ZoneId) {
        if let Some(begun) = self.begun.get_mut(zone.0 as usize) {
            *begun = begun.wrapping_add(1);
        }
    }

    /// The next that may be sent to a zone. What is not possible goes to `refused`.
    fn next(
        &mut self,
        zone: ZoneId,
        geometry: &Geometry,
        port: &P,
        refused: &mut Vec<(Write<P>, DeviceError)>,
    ) -> Option<Sent<P>> {
        loop {
            let queue = self.queues.get_mut(&zone)?;
            if queue.is_busy {
                return None;
            }
            let Some(first) = queue.waiting.front() else {
                if queue.appends.under_way() == 0 {
                    self.queues.remove(&zone);
                }
                return None;
            };
            let is_placed = P::APPENDS && first.block.is_none();
            if !queue.appends.lets_begin(is_placed) {
                return None;
            }
            let write = queue.waiting.pop_front()?;
            let blocks = Command::data_blocks(&write.data);
            let begun = if is_placed {
                self.machine.begin_append(zone, blocks)
            } else {
                self.machine.begin_write(zone, write.block, blocks)
            };
            match begun {
                Err(error) => refused.push((write, error)),
                Ok(_) if is_placed => return self.append(zone, write, blocks, port),
                Ok(start) => return self.write(zone, write, start, geometry, port),
            }
        }
    }

    fn append(&mut self, zone: ZoneId, write: Write<P>, blocks: u32, port: &P) -> Option<Sent<P>> {
        self.queues.get_mut(&zone)?.appends.begin();
        self.touch(zone);
        let place = port.writing(zone, 0, &write.hold);
        let answer = Answer {
            completer: write.completer,
            appended: None,
            hold: write.hold,
        };
        let job = Job::Append {
            zone,
            blocks,
            answer,
        };
        Some((Transfer::Append(place, write.data), job))
    }

    /// As many of those that wait as follow the first and each other, and fit.
    fn write(
        &mut self,
        zone: ZoneId,
        first: Write<P>,
        start: u32,
        geometry: &Geometry,
        port: &P,
    ) -> Option<Sent<P>> {
        let answer = |block: Option<u32>, at, completer, hold| Answer {
            completer,
            appended: block.is_none().then_some(at),
            hold,
        };
        let capacity = self.machine.capacity(zone).unwrap_or(0);
        let room = geometry
            .max_transfer_blocks
            .min(capacity.saturating_sub(start));
        let place = port.writing(zone, start, &first.hold);
        let mut data = first.data;
        let mut blocks = Command::data_blocks(&data);
        let mut answers = vec![answer(first.block, start, first.completer, first.hold)];
        let queue = self.queues.get_mut(&zone)?;
        while let Some(next) = queue.waiting.front() {
            let at = start + blocks;
            let more = Command::data_blocks(&next.data);
            let follows = match next.block {
                Some(block) => block == at,
                None => !P::APPENDS,
            };
            if !follows || more > room.saturating_sub(blocks) {
                break;
            }
            let Some(next) = queue.waiting.pop_front() else {
                break;
            };
            data.extend(next.data);
            blocks += more;
            answers.push(answer(next.block, at, next.completer, next.hold));
        }
        self.begin(zone);
        let sent = SentWrite {
            zone,
            block: start,
            blocks,
            answers,
            is_again: false,
        };
        Some((Transfer::Write(place, data), Job::Write(sent)))
    }
}

fn failed_job<P: Port>(job: Job<P>, failure: Failure) -> Done<Job<P>> {
    Done {
        job,
        buffer: None,
        data: Vec::new(),
        result: Err(failure),
    }
}

fn flush_error(failure: Failure) -> DeviceError {
    if failure.is_gone() {
        return DeviceError::Gone;
    }
    DeviceError::Flush {
        message: failure.to_string(),
    }
}

fn transfer_size(blocks: u32, limit: u32) -> Result<()> {
    match blocks {
        0 => Err(DeviceError::TransferSize { blocks, limit }),
        _ if blocks > limit => Err(DeviceError::TransferSize { blocks, limit }),
        _ => Ok(()),
    }
}
