//! Clients in virtual time, and the background work that goes on beside them as on a mount.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Error, Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use persimmon_sync::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::course::Looks;
use super::drive::Drive;
use super::{Latencies, Look, MeasureError, Pace, Plan};
use crate::load::{Load, Scatter};
use persimmon_sim::VirtualClock;
use persimmon_sim::device::pattern;
use persimmon_sim::time::{self, Player, Turn};

/// How often a mount looks for work; for cleaning ahead and freeing it looks when a zone is taken.
const TICK: Duration = Duration::from_millis(50);
const CLEANING_TICK: Duration = Duration::from_millis(1);
/// Patterns of clients, apart from those of the warm-up.
const PATTERNS: u64 = 1 << 48;

/// What the clients measured.
#[derive(Default)]
pub(super) struct Measured {
    pub reads: Latencies,
    pub writes: Latencies,
    pub syncs: Latencies,
}

struct Work<'a> {
    volume: &'a Volume,
    clock: &'a VirtualClock,
    ino: Ino,
    blocks: u64,
    pace: Pace,
}

/// Lets the clients do their rounds; looks are taken as often as a mount may clean.
pub(super) fn run(
    drive: &Drive,
    plan: &Plan,
    pace: &Pace,
    looks: &mut Looks,
) -> Result<Measured, MeasureError> {
    let (Some((ino, blocks)), Load::Overwrite(popularity)) = (drive.file(), &plan.load) else {
        let why = "latencies are measured with loads that overwrite one file";
        return Err(MeasureError::Plan(why.into()));
    };
    let Some(clock) = drive.device.clock() else {
        return Err(MeasureError::Plan("the drive has no clock".into()));
    };
    let work = &Work {
        volume: &drive.volume,
        clock,
        ino,
        blocks,
        pace: *pace,
    };
    let scatter = &Scatter::new(*popularity, blocks, plan.clustered);
    let clients = 0..u64::from(pace.clients);
    let clients = clients
        .map(|client| Client::new(plan.seed, client))
        .collect();
    let begin = clock.now();
    let look = move || drive.look(clock.now().saturating_sub(begin));
    looks.add(look);
    let all = if pace.threads {
        work.in_threads(clients, scatter, looks, look)
    } else {
        work.in_turns(clients, scatter, looks, look)
    }?;
    looks.end(look());
    Ok(all)
}

/// What goes on beside the clients, and how often a mount looks for it.
const BESIDE: [(Task, Duration); 4] = [
    (Task::CheckpointIfDue, TICK),
    (Task::CleanIfDue, CLEANING_TICK),
    (Task::FreeIfDue, CLEANING_TICK),
    (Task::Reset, CLEANING_TICK),
];

/// What one of the clients remembers.
struct Client {
    rng: ChaCha8Rng,
    bytes: Vec<u8>,
    next_pattern: u64,
    rounds: u64,
    measured: Measured,
}

impl Client {
    fn new(seed: u64, client: u64) -> Client {
        Client {
            rng: ChaCha8Rng::seed_from_u64(seed ^ (client + 1) << 32),
            bytes: vec![0; BLOCK_SIZE],
            next_pattern: PATTERNS * (client + 1),
            rounds: 0,
            measured: Measured::default(),
        }
    }
}

impl Measured {
    fn merge(&mut self, other: Measured) {
        self.reads.merge(other.reads);
        self.writes.merge(other.writes);
        self.syncs.merge(other.syncs);
    }
}

impl Work<'_> {
    fn in_threads(
        &self,
        clients: Vec<Client>,
        scatter: &Scatter,
        looks: &mut Looks,
        look: impl Fn() -> Look + Copy + Send,
    ) -> Result<Measured, MeasureError> {
        let (at_work, looks) = (&AtomicUsize::new(clients.len()), &Mutex::new(looks));
        let mut threads: Vec<time::Client<'_, Result<Measured, MeasureError>>> = Vec::new();
        for mut client in clients {
            threads.push(Box::new(move || {
                let rounds = 0..self.pace.rounds;
                let done = rounds.into_iter().try_for_each(|_| {
                    self.round(&mut client, scatter)?;
                    self.clock.sleep(self.pace.think);
                    Ok::<_, Error>(())
                });
                at_work.fetch_sub(1, Ordering::Relaxed);
                done?;
                Ok(client.measured)
            }));
        }
        for (task, tick) in BESIDE {
            threads.push(Box::new(move || {
                while at_work.load(Ordering::Relaxed) > 0 {
                    self.clock.sleep(tick);
                    self.background(task)?;
                    if task == Task::CleanIfDue {
                        let mut looks = looks.lock();
                        looks.add(look);
                    }
                }
                Ok(Measured::default())
            }));
        }
        let mut all = Measured::default();
        for measured in self.clock.run(threads)? {
            all.merge(measured?);
        }
        Ok(all)
    }

    fn in_turns(
        &self,
        mut clients: Vec<Client>,
        scatter: &Scatter,
        looks: &mut Looks,
        look: impl Fn() -> Look + Copy,
    ) -> Result<Measured, MeasureError> {
        let mut players: Vec<Player<'_, MeasureError>> = Vec::new();
        for client in &mut clients {
            players.push(Box::new(move || {
                self.round(client, scatter)?;
                client.rounds += 1;
                Ok(if client.rounds < self.pace.rounds {
                    Turn::Again(self.pace.think)
                } else {
                    Turn::Over
                })
            }));
        }
        let looks = &RefCell::new(looks);
        let beside = BESIDE.map(|(task, tick)| -> Player<'_, MeasureError> {
            Box::new(move || {
                self.background(task)?;
                if task == Task::CleanIfDue {
                    looks.borrow_mut().add(look);
                }
                Ok(Turn::Again(tick))
            })
        });
        self.clock.play(players, beside.into())?;
        let mut all = Measured::default();
        for client in clients {
            all.merge(client.measured);
        }
        Ok(all)
    }

    /// Overwrites a block, syncs, and reads a block.
    fn round(&self, client: &mut Client, scatter: &Scatter) -> Result<(), Error> {
        let Client {
            rng,
            bytes,
            measured,
            ..
        } = client;
        pattern::fill(bytes, client.next_pattern);
        client.next_pattern += 1;
        let offset = scatter.draw(rng) * BLOCK_SIZE as u64;
        let now = Timestamp::default();
        self.time(&mut measured.writes, || {
            self.volume.write(self.ino, offset, bytes, now)
        })?;
        self.time(&mut measured.syncs, || self.volume.sync_file(self.ino))?;
        let offset = rng.random_range(0..self.blocks) * BLOCK_SIZE as u64;
        self.time(&mut measured.reads, || {
            self.volume.read(self.ino, offset, bytes)
        })?;
        Ok(())
    }

    fn time<T>(
        &self,
        latencies: &mut Latencies,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let begin = self.clock.now();
        let result = work()?;
        latencies.add(self.clock.now().saturating_sub(begin));
        Ok(result)
    }

    /// Until nothing is left to do.
    fn background(&self, task: Task) -> Result<(), Error> {
        loop {
            match self.volume.step(task) {
                Ok(Progress::Worked) => {}
                Ok(Progress::Idle) | Err(Error::NoSpace) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
