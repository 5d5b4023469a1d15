//! A few threads for operations that wait long, so that those that answer the kernel stay free.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use persimmon_sync::{Condvar, Mutex, MutexGuard};

/// Jobs that may wait for a thread.
const WAITING_MAX: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The threads, and the queue before them.
pub struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// No more jobs are taken.
    ended: bool,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system does not give them.
    pub fn start(name: &str, count: usize) -> io::Result<Workers> {
        let mut workers = Workers {
            queue: Arc::default(),
            threads: Vec::new(),
        };
        for number in 0..count {
            let queue = Arc::clone(&workers.queue);
            let thread = thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || {
                    while let Some(job) = queue.next() {
                        job()
                    }
                })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Has `job` run: by one of the threads, or at once where all have much to do. Jobs do not
    /// panic.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        if let Err(job) = self.put(Box::new(job), WAITING_MAX) {
            job();
        }
    }

    /// Has `job` run by one of the threads, never by the caller. False, and it is dropped, where too many wait.
    #[must_use]
    pub fn try_run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.put(Box::new(job), WAITING_MAX).is_ok()
    }

    /// Has `job` run by one of the threads, never by the caller: for jobs that wait for what the caller serves. As many
    /// wait as callers in the kernel do.
    pub fn run_elsewhere(&self, job: impl FnOnce() + Send + 'static) {
        if let Err(job) = self.put(Box::new(job), usize::MAX) {
            job();
        }
    }

    /// The job comes back where too many wait, or the threads have ended.
    fn put(&self, job: Job, waiting_max: usize) -> Result<(), Job> {
        let mut waiting = self.queue.lock();
        if waiting.ended || waiting.jobs.len() >= waiting_max {
            return Err(job);
        }
        waiting.jobs.push_back(job);
        drop(waiting);
        self.queue.changed.notify_one();
        Ok(())
    }

    /// Lets the threads finish what waits, and waits for them.
    pub fn end(&mut self) {
        self.queue.lock().ended = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }

    /// Waits for a job. `None` once there will be no more.
    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.ended {
                return None;
            }
            let woken = self.changed.wait(waiting);
            waiting = woken;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_job_runs_once_though_there_are_more_than_wait() {
        let done = Arc::new(AtomicUsize::new(0));
        let mut workers = Workers::start("test", 3).unwrap();
        for _ in 0..10 * WAITING_MAX {
            let done = Arc::clone(&done);
            workers.run(move || {
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        workers.end();
        assert_eq!(done.load(Ordering::Relaxed), 10 * WAITING_MAX);
        workers.run(|| {});
    }

    #[test]
    fn what_must_not_be_run_by_the_caller_waits() {
        let caller = thread::current().id();
        let done = Arc::new(AtomicUsize::new(0));
        let mut workers = Workers::start("test", 1).unwrap();
        for _ in 0..10 * WAITING_MAX {
            let done = Arc::clone(&done);
            workers.run_elsewhere(move || {
                assert_ne!(thread::current().id(), caller);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        workers.end();
        assert_eq!(done.load(Ordering::Relaxed), 10 * WAITING_MAX);
    }
}
