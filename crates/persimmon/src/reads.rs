//! Reads that do not hold up who asks for them: submitted, and looked at later.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use persimmon_sync::{Condvar, Mutex};

use crate::file::OpenFile;
use crate::{Error, Result};

/// Threads that read. Enough for a drive to see several reads at once; they are started with the first read.
const READERS: usize = 4;
/// Reads that may wait. One more is done by who submits it: a bound, and what slows a caller down that asks for more
/// than is done.
const WAITING_MAX: usize = 256;

/// Readers that were started by this process.
static STARTED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Which of them this thread is; 0: none. Nothing has to be done for it when a thread ends, so that it can be asked also then: who closes
    /// a volume in a handler of `atexit` has no `thread::current()` any more.
    static READER: Cell<u64> = const { Cell::new(0) };
}

/// One submitted read.
struct Slot {
    state: Mutex<ReadState>,
    changed: Condvar,
}

enum ReadState {
    /// With the file, so that giving the read up lets go of it at once.
    Waiting(Arc<OpenFile>),
    Running,
    Done(Result<Vec<u8>>),
    /// Taken, or not wanted any more.
    Gone,
}

struct Task {
    slot: Arc<Slot>,
    offset: u64,
    len: usize,
}

impl Task {
    /// Reads, unless nobody wants it any more. Answers in any case, also where it panics: nobody waits for ever, and the thread
    /// goes on.
    fn run(self) {
        let Task { slot, offset, len } = self;
        let mut state = slot.state.lock();
        let file = match std::mem::replace(&mut *state, ReadState::Running) {
            ReadState::Waiting(file) => file,
            gone => {
                *state = gone;
                return;
            }
        };
        drop(state);
        // The file goes before the answer comes: who has it may close the volume, and open it again.
        let read = catch_unwind(AssertUnwindSafe(move || {
            let content = file.read_up_to(len, offset);
            drop(file);
            content
        }));
        let answer = read.unwrap_or_else(|_| {
            tracing::error!("a read panicked");
            Err(Error::ReadLost)
        });
        *slot.state.lock() = ReadState::Done(answer);
        slot.changed.notify_all();
    }
}

/// A read under way: see [`crate::File::submit_read`]. Dropped, it is given up: one that has not begun is never done, one that has is
/// waited for, so that nothing uses the file once this has gone.
#[must_use]
pub struct PendingRead {
    slot: Arc<Slot>,
}

impl PendingRead {
    /// Whether [`PendingRead::wait`] would return at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        !is_under_way(&mut self.slot.state.lock())
    }

    /// The bytes read, fewer than asked for only at the end of the file.
    ///
    /// # Errors
    /// Those of [`crate::File::read_at`].
    pub fn wait(self) -> Result<Vec<u8>> {
        let state = self.slot.state.lock();
        let mut state = self.slot.changed.wait_while(state, is_under_way);
        match std::mem::replace(&mut *state, ReadState::Gone) {
            ReadState::Done(answer) => answer,
            // Nothing but this call and a drop take the answer.
            ReadState::Waiting(_) | ReadState::Running | ReadState::Gone => Err(Error::ReadLost),
        }
    }
}

fn is_under_way(state: &mut ReadState) -> bool {
    matches!(state, ReadState::Waiting(_) | ReadState::Running)
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        let state = self.slot.state.lock();
        let runs = |state: &mut ReadState| matches!(state, ReadState::Running);
        let mut state = self.slot.changed.wait_while(state, runs);
        let left = std::mem::replace(&mut *state, ReadState::Gone);
        // A file that it still has may be the last handle to the volume, which then closes: that takes a while.
        drop(state);
        drop(left);
    }
}

/// The threads, and what waits for them.
#[derive(Default)]
pub(crate) struct Readers {
    queue: Arc<Queue>,
    threads: Mutex<Vec<(u64, JoinHandle<()>)>>,
}

#[derive(Default)]
struct Queue {
    tasks: Mutex<Tasks>,
    changed: Condvar,
}

#[derive(Default)]
struct Tasks {
    waiting: VecDeque<Task>,
    ended: bool,
}

impl Readers {
    pub(crate) fn submit(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> Result<PendingRead> {
        self.start().map_err(Error::Thread)?;
        let slot = Arc::new(Slot {
            state: Mutex::new(ReadState::Waiting(Arc::clone(file))),
            changed: Condvar::new(),
        });
        let task = Task {
            slot: Arc::clone(&slot),
            offset,
            len,
        };
        let mut tasks = self.queue.tasks.lock();
        if tasks.waiting.len() < WAITING_MAX {
            tasks.waiting.push_back(task);
            drop(tasks);
            self.queue.changed.notify_one();
        } else {
            drop(tasks);
            task.run();
        }
        Ok(PendingRead { slot })
    }

    fn start(&self) -> io::Result<()> {
        let mut threads = self.threads.lock();
        while threads.len() < READERS {
            let queue = Arc::clone(&self.queue);
            let number = STARTED.fetch_add(1, Ordering::Relaxed) + 1;
            let thread = thread::Builder::new().name("reads".into());
            let thread = thread.spawn(move || {
                READER.set(number);
                queue.serve();
            })?;
            threads.push((number, thread));
        }
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.tasks.lock().ended = true;
        self.queue.changed.notify_all();
        // The last handle to a filesystem may be a read's: then its own thread is here.
        let own = READER.get();
        let threads = std::mem::take(&mut *self.threads.lock());
        for (_, thread) in threads.into_iter().filter(|(number, _)| *number != own) {
            // What panics in a read is caught there.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn serve(&self) {
        loop {
            let tasks = self.tasks.lock();
            let mut tasks = self
                .changed
                .wait_while(tasks, |tasks| tasks.waiting.is_empty() && !tasks.ended);
            let Some(task) = tasks.waiting.pop_front() else {
                return;
            };
            drop(tasks);
            task.run();
        }
    }
}
