//! Which thread goes on where they meet.

use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Of the stack of each thread.
const STACK_BYTES: usize = 1 << 20;
/// A run that takes more steps than this does not end.
const STEPS_MAX: usize = 30_000_000;
/// Each so many steps on the average another thread is held up, where they are.
const HELD_UP_STEPS: [u32; 3] = [100, 500, 2_000];

/// Runs `f`, and the threads that it starts, in an order that goes by the seed.
pub(super) fn scheduled(seed: u64, f: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    Runner::new(Bursts::new(seed), config).run(f);
}

/// Threads go on for a while each, long or short by the seed; and now and then one of them is not let on as long as
/// another can go on, so that much happens between two of its steps.
struct Bursts {
    rng: ChaCha8Rng,
    /// One in so many meetings is a change of threads.
    change_one_in: u32,
    hold_one_in: Option<u32>,
    held_up: Option<TaskId>,
    begun: bool,
}

impl Bursts {
    fn new(seed: u64) -> Bursts {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5343_4845_4455_4c45);
        Bursts {
            change_one_in: [1, 3, 10, 40][rng.random_range(0..4)],
            hold_one_in: HELD_UP_STEPS.get(rng.random_range(0..5)).copied(),
            rng,
            held_up: None,
            begun: false,
        }
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        (!std::mem::replace(&mut self.begun, true)).then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let ids: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        if let Some(one_in) = self.hold_one_in
            && self.rng.random_ratio(1, one_in)
        {
            self.held_up = Some(ids[self.rng.random_range(0..ids.len())]);
        }
        if let Some(current) = current
            && !is_yielding
            && ids.contains(&current)
            && !self.rng.random_ratio(1, self.change_one_in)
        {
            return Some(current);
        }
        let free: Vec<TaskId> = ids
            .iter()
            .copied()
            .filter(|id| Some(*id) != self.held_up)
            .collect();
        let among = if free.is_empty() { &ids } else { &free };
        Some(among[self.rng.random_range(0..among.len())])
    }

    fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }
}
