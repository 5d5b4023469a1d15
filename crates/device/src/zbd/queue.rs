//! Commands on their way: admitted, held back while another write to their zone is under way,
//! sent, and answered.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::error::{self, Attempt};
use super::kernel;
use super::ring::{Done, Ring, TRANSFERS_MAX, Transfer};
use crate::zones::ZoneMachine;
use crate::{
    BLOCK_SIZE, Buffer, BufferMut, Command, Completer, Completion, DeviceError, Geometry, Pending,
    Result, ZoneId,
};

/// Commands admitted at the same time. One more waits.
const COMMANDS_MAX: usize = TRANSFERS_MAX - 1;

/// What the threads that send and the one that collects have in common.
pub(super) struct Shared {
    pub geometry: Geometry,
    pub ring: Ring<Job>,
    /// The number, on the drive, of what is zone 0 here.
    pub first_zone: u32,
    pub read_only: bool,
    state: Mutex<State>,
    /// A command was answered, or a zone has nothing under way any more.
    changed: Condvar,
}

/// What the drive does, and what it is to do next.
pub(super) struct State {
    pub(super) machine: ZoneMachine,
    /// Zones with something under way or waiting.
    pub(super) queues: HashMap<ZoneId, Queue>,
    /// How often something was begun in each zone: whether a report is older than that.
    pub(super) begun: Vec<u32>,
    /// Commands admitted and not yet answered.
    commands: usize,
}

/// What waits for a zone, or is under way in it.
#[derive(Default)]
pub(super) struct Queue {
    /// A write or a zone management command.
    is_busy: bool,
    waiting: VecDeque<Write>,
}

/// A write that waits for its turn.
struct Write {
    /// Where it must start; `None` for an append.
    block: Option<u32>,
    data: Vec<Buffer>,
    completer: Completer,
}

/// What is to be done when a transfer completes.
pub(super) enum Job {
    Read {
        zone: ZoneId,
        block: u32,
        completer: Completer,
    },
    /// Writes sent as one.
    Write {
        zone: ZoneId,
        block: u32,
        blocks: u32,
        answers: Vec<Answer>,
    },
    Flush(Completer),
    /// The device is closed.
    Stop,
}

/// Who waits for a part of a write.
pub(super) struct Answer {
    completer: Completer,
    /// Where the part begins, of an append.
    appended: Option<u32>,
}

/// Something to be told with the lock released.
type Answered = (Completer, Result<Completion>);

impl Shared {
    pub(super) fn new(
        geometry: Geometry,
        machine: ZoneMachine,
        ring: Ring<Job>,
        first_zone: u32,
        read_only: bool,
    ) -> Shared {
        Shared {
            ring,
            first_zone,
            read_only,
            state: Mutex::new(State {
                machine,
                queues: HashMap::new(),
                begun: vec![0; geometry.zone_count as usize],
                commands: 0,
            }),
            geometry,
            changed: Condvar::new(),
        }
    }

    /// Starts a read.
    pub(super) fn read(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<Pending> {
        transfer_size(blocks, self.geometry.max_transfer_blocks)?;
        {
            let mut state = self.room();
            let limit = state.machine.readable(zone)?;
            let end = block.saturating_add(blocks);
            if end > limit {
                return Err(DeviceError::ReadPastEnd {
                    zone,
                    block,
                    end,
                    limit,
                });
            }
            state.commands += 1;
        }
        let (completer, pending) = Pending::channel();
        let buffer = BufferMut::unspecified(blocks as usize);
        let job = Job::Read {
            zone,
            block,
            completer,
        };
        self.send(Transfer::Read(buffer, self.offset(zone, block)), job);
        Ok(pending)
    }

    /// Starts a write, or lets it wait for those before it.
    pub(super) fn write(
        &self,
        zone: ZoneId,
        block: Option<u32>,
        data: Vec<Buffer>,
    ) -> Result<Pending> {
        self.check_writable()?;
        transfer_size(
            Command::data_blocks(&data),
            self.geometry.max_transfer_blocks,
        )?;
        let (completer, pending) = Pending::channel();
        {
            let mut state = self.room();
            state.machine.capacity(zone)?;
            state.commands += 1;
            let queue = state.queues.entry(zone).or_default();
            queue.waiting.push_back(Write {
                block,
                data,
                completer,
            });
        }
        self.advance(zone);
        Ok(pending)
    }

    /// Starts a flush.
    pub(super) fn flush(&self) -> Pending {
        let (completer, pending) = Pending::channel();
        self.room().commands += 1;
        self.send(Transfer::Flush, Job::Flush(completer));
        pending
    }

    /// Does what completed transfers ask for, until the device is closed.
    pub(super) fn collect(&self) {
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

    /// Waits until nothing is under way, and ends [`Shared::collect`].
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        while state.commands > 0 {
            state = self.wait(state);
        }
        drop(state);
        self.send(Transfer::Nothing, Job::Stop);
    }

    fn complete(&self, done: Done<Job>) {
        let Done {
            job,
            buffer,
            result,
        } = done;
        match job {
            Job::Read {
                zone,
                block,
                completer,
            } => {
                let buffer = buffer.unwrap_or_else(|| BufferMut::zeroed(0));
                let result = result.and_then(|bytes| whole(bytes, buffer.len()));
                let attempt = Attempt {
                    operation: "read",
                    zone,
                    block,
                };
                let answer = match result {
                    Ok(()) => Ok(Completion::Read(buffer.freeze())),
                    Err(error) => {
                        // A write may be under way in the zone.
                        let zone_now = self.report_one(zone);
                        Err(self.failed(attempt, zone_now, &error))
                    }
                };
                self.answer(vec![(completer, answer)]);
            }
            Job::Write {
                zone,
                block,
                blocks,
                answers,
            } => {
                let result = result.and_then(|bytes| whole(bytes, blocks as usize * BLOCK_SIZE));
                let attempt = Attempt {
                    operation: "write",
                    zone,
                    block,
                };
                let result = match result {
                    Ok(()) => self.lock().machine.end_write(zone, blocks),
                    Err(error) => Err(self.failed(attempt, self.examine(zone), &error)),
                };
                // The zone goes on before anybody hears of it.
                self.finished(zone);
                let answered = answers.into_iter().map(|answer| {
                    let done = answer
                        .appended
                        .map_or(Completion::Done, Completion::Appended);
                    (answer.completer, result.clone().map(|()| done))
                });
                self.answer(answered.collect());
            }
            Job::Flush(completer) => {
                let answer = match result {
                    Ok(_) => Ok(Completion::Done),
                    Err(error) if error::is_gone(&error) || self.is_gone() => {
                        Err(DeviceError::Gone)
                    }
                    Err(error) => Err(DeviceError::Flush {
                        message: error::explain(&error),
                    }),
                };
                self.answer(vec![(completer, answer)]);
            }
            Job::Stop => {}
        }
    }

    /// What was under way in a zone is over: what waits for it is sent.
    pub(super) fn finished(&self, zone: ZoneId) {
        if let Some(queue) = self.lock().queues.get_mut(&zone) {
            queue.is_busy = false;
        }
        self.advance(zone);
    }

    /// Sends the next write to a zone, unless something is under way in it.
    fn advance(&self, zone: ZoneId) {
        let mut refused = Vec::new();
        let blocks_max = self.geometry.max_transfer_blocks;
        let next = self.lock().next_write(zone, blocks_max, &mut refused);
        if let Some((block, data, job)) = next {
            self.send(Transfer::Write(data, self.offset(zone, block)), job);
        }
        self.changed.notify_all();
        self.answer(refused);
    }

    fn send(&self, transfer: Transfer, job: Job) {
        if let Err(job) = self.ring.start(transfer, job) {
            // Never: fewer commands are admitted than fit.
            let done = Done {
                job,
                buffer: None,
                result: Err(std::io::ErrorKind::ResourceBusy.into()),
            };
            self.complete(done);
        }
    }

    fn answer(&self, answered: Vec<Answered>) {
        if answered.is_empty() {
            return;
        }
        self.lock().commands -= answered.len();
        self.changed.notify_all();
        for (completer, result) in answered {
            completer.complete(result);
        }
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(DeviceError::ReadOnly),
            false => Ok(()),
        }
    }

    fn offset(&self, zone: ZoneId, block: u32) -> u64 {
        self.sector(zone) * kernel::SECTOR_BYTES + u64::from(block) * BLOCK_SIZE as u64
    }

    pub(super) fn sector(&self, zone: ZoneId) -> u64 {
        kernel::zone_sector(zone, self.geometry.zone_blocks, self.first_zone)
    }

    /// The state, once there is room for one more command.
    fn room(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.commands >= COMMANDS_MAX {
            state = self.wait(state);
        }
        state
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Something begins in a zone in which nothing is under way.
    pub(super) fn begin(&mut self, zone: ZoneId) {
        self.queues.entry(zone).or_default().is_busy = true;
        if let Some(begun) = self.begun.get_mut(zone.0 as usize) {
            *begun = begun.wrapping_add(1);
        }
    }

    /// The next write to a zone, if nothing is under way in it: as many of those that wait as
    /// follow each other and fit. Those that are not possible go to `refused`.
    fn next_write(
        &mut self,
        zone: ZoneId,
        blocks_max: u32,
        refused: &mut Vec<Answered>,
    ) -> Option<(u32, Vec<Buffer>, Job)> {
        let queue = self.queues.get_mut(&zone)?;
        if queue.is_busy {
            return None;
        }
        while let Some(Write {
            block,
            mut data,
            completer,
        }) = queue.waiting.pop_front()
        {
            let mut blocks = Command::data_blocks(&data);
            let start = match self.machine.begin_write(zone, block, blocks) {
                Ok(start) => start,
                Err(error) => {
                    refused.push((completer, Err(error)));
                    continue;
                }
            };
            let answer = |completer, block: Option<u32>, at| Answer {
                completer,
                appended: block.is_none().then_some(at),
            };
            let mut answers = vec![answer(completer, block, start)];
            let capacity = self.machine.capacity(zone).unwrap_or(0);
            let room = blocks_max.min(capacity.saturating_sub(start));
            while let Some(next) = queue.waiting.front() {
                let at = start + blocks;
                let more = Command::data_blocks(&next.data);
                if next.block.is_some_and(|block| block != at) || more > room - blocks {
                    break;
                }
                let Some(next) = queue.waiting.pop_front() else {
                    break;
                };
                data.extend(next.data);
                blocks += more;
                answers.push(answer(next.completer, next.block, at));
            }
            self.begin(zone);
            let job = Job::Write {
                zone,
                block: start,
                blocks,
                answers,
            };
            return Some((start, data, job));
        }
        self.queues.remove(&zone);
        None
    }
}

fn transfer_size(blocks: u32, limit: u32) -> Result<()> {
    match blocks {
        0 => Err(DeviceError::TransferSize { blocks, limit }),
        _ if blocks > limit => Err(DeviceError::TransferSize { blocks, limit }),
        _ => Ok(()),
    }
}

/// Devices move all of a transfer, or fail.
fn whole(bytes: usize, wanted: usize) -> std::io::Result<()> {
    if bytes == wanted {
        return Ok(());
    }
    Err(std::io::Error::other(format!(
        "{bytes} of {wanted} bytes were transferred"
    )))
}
