//! Compressing on all cores.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use persimmon_engine::Parallel;

/// Jobs from which on other threads help. A frame of 128 KiB takes some 200 us, and starting a thread some 30.
const JOBS_MIN: usize = 4;

/// Threads of one batch at most: others may compress at the same time.
const THREADS_MAX: usize = 8;

/// Runs jobs on as many threads as there are cores. They are started for the jobs and end with them, so that an idle volume has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllCores;

impl Parallel for AllCores {
    fn run(&self, jobs: usize, job: &(dyn Fn(usize) + Sync)) {
        let threads = if jobs < JOBS_MIN {
            1
        } else {
            thread::available_parallelism()
                .map_or(1, usize::from)
                .min(THREADS_MAX)
        };
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(number) =
                Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < jobs)
            {
                job(number);
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads.min(jobs) {
                // Where no thread can be started this one does it all.
                let _ = thread::Builder::new()
                    .name("compress".into())
                    .spawn_scoped(scope, work);
            }
            work();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once() {
        for jobs in [0, 1, 3, 4, 1000] {
            let done: Vec<AtomicUsize> = (0..jobs).map(|_| AtomicUsize::new(0)).collect();
            AllCores.run(jobs, &|job| {
                done[job].fetch_add(1, Ordering::Relaxed);
            });
            assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1));
        }
    }
}
