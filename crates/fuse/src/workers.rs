//! A few threads for operations that wait long, so that those that answer the kernel stay free.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Jobs that may wait for a thread.
const WAITING_MAX: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

/// The threads, and the queue before them.
pub struct Workers {
    /// Gone once the threads are to end.
    sender: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system does not give them.
    pub fn start(name: &str, count: usize) -> io::Result<Workers> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        let mut workers = Workers {
            sender: Some(sender),
            threads: Vec::new(),
        };
        for number in 0..count {
            let receiver = Arc::clone(&receiver);
            let thread = thread::Builder::new()
                .name(format!("{name}-{number}"))
                .spawn(move || {
                    while let Some(job) = next(&receiver) {
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
        if let Err(job) = self.send(Box::new(job)) {
            job();
        }
    }

    /// Has `job` run by one of the threads, never by the caller. False, and it is dropped, where too many wait.
    #[must_use]
    pub fn try_run(&self, job: impl FnOnce() + Send + 'static) -> bool {
        self.send(Box::new(job)).is_ok()
    }

    fn send(&self, job: Job) -> Result<(), Job> {
        match &self.sender {
            Some(sender) => sender.try_send(job).map_err(|refused| match refused {
                TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
            }),
            None => Err(job),
        }
    }

    /// Lets the threads finish what waits, and waits for them.
    pub fn end(&mut self) {
        self.sender = None;
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

/// Waits for a job. `None` once there will be no more.
fn next(receiver: &Mutex<Receiver<Job>>) -> Option<Job> {
    let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
    receiver.recv().ok()
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
}
