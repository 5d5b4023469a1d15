//! Clients in virtual time, and the background work that goes on beside them as on a mount.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Error, Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::course::Looks;
use super::drive::Drive;
use super::{Latencies, MeasureError, Pace, Plan};
use crate::VirtualClock;
use crate::device::pattern;
use crate::load::{Load, Scatter};
use crate::time::Client;

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
    let at_work = &AtomicUsize::new(pace.clients as usize);
    let mut clients: Vec<Client<'_, Result<Measured, MeasureError>>> = Vec::new();
    for client in 0..u64::from(pace.clients) {
        let seed = plan.seed ^ (client + 1) << 32;
        clients.push(Box::new(move || {
            let measured = work.client(scatter, client, seed);
            at_work.fetch_sub(1, Ordering::Relaxed);
            Ok(measured?)
        }));
    }
    let begin = clock.now();
    let look = move || drive.look(clock.now().saturating_sub(begin));
    looks.add(look);
    let shared = &Mutex::new(&mut *looks);
    let tasks = [
        (Task::CheckpointIfDue, TICK),
        (Task::CleanIfDue, CLEANING_TICK),
        (Task::FreeIfDue, CLEANING_TICK),
        (Task::Reset, CLEANING_TICK),
    ];
    for (task, tick) in tasks {
        clients.push(Box::new(move || {
            while at_work.load(Ordering::Relaxed) > 0 {
                clock.sleep(tick);
                work.background(task)?;
                if task == Task::CleanIfDue {
                    let mut looks = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    looks.add(look);
                }
            }
            Ok(Measured::default())
        }));
    }
    let mut all = Measured::default();
    for measured in clock.run(clients)? {
        let measured = measured?;
        all.reads.merge(measured.reads);
        all.writes.merge(measured.writes);
        all.syncs.merge(measured.syncs);
    }
    looks.end(look());
    Ok(all)
}

impl Work<'_> {
    fn client(&self, scatter: &Scatter, client: u64, seed: u64) -> Result<Measured, Error> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bytes = vec![0; BLOCK_SIZE];
        let mut measured = Measured::default();
        for round in 0..self.pace.rounds {
            pattern::fill(&mut bytes, PATTERNS * (client + 1) + round);
            let offset = scatter.draw(&mut rng) * BLOCK_SIZE as u64;
            let now = Timestamp::default();
            self.time(&mut measured.writes, || {
                self.volume.write(self.ino, offset, &bytes, now)
            })?;
            self.time(&mut measured.syncs, || self.volume.sync_file(self.ino))?;
            let offset = rng.random_range(0..self.blocks) * BLOCK_SIZE as u64;
            self.time(&mut measured.reads, || {
                self.volume.read(self.ino, offset, &mut bytes)
            })?;
            self.clock.sleep(self.pace.think);
        }
        Ok(measured)
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
