//! fsync: all who wait share one sync of their files.
//!
//! On a fast device the thread that took a request syncs, for all who wait: to hand it over, and the answer back, takes longer
//! than the device does. One thread at a time does so, so that others go on taking requests; who comes meanwhile waits for the
//! next sync. On a slow device a few threads of their own sync, each for all who wait by then: those that serve the kernel stay
//! free.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::{io, mem};

use persimmon_sync::Mutex;
use persimmon_vfs::{Handle, Ino};

use crate::answer::Door;
use crate::protocol::{Call, Errno, opcode};
use crate::transport::{Later, Transport};
use crate::workers::Workers;

/// Threads that wait for a slow device: one sends while others wait.
const THREADS: usize = 4;
/// A device is fast while a sync takes less than this on average, nanoseconds: not much more than a write that is not synced.
const FAST_MAX: u64 = 100_000;
/// What one sync counts for at most, so that one of which something got in the way does not make a fast device slow.
const COUNTED_MAX: u64 = 3 * FAST_MAX;

/// Where callers of fsync wait.
pub struct Fsyncs {
    shared: Arc<Shared>,
    workers: Workers,
}

struct Shared {
    door: Door,
    waiting: Mutex<Waiting>,
    /// How long a sync takes, nanoseconds: an average of the last few.
    took: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    asked: Vec<Asked>,
    /// A thread that serves the kernel syncs.
    is_served: bool,
    /// Threads for slow devices at work, which look here again before they end.
    jobs: usize,
}

struct Asked {
    node: Ino,
    /// `None`: a directory, which has no handles here.
    file: Option<Handle>,
    later: Box<dyn Later>,
}

impl Fsyncs {
    pub fn start(door: Door) -> io::Result<Fsyncs> {
        Ok(Fsyncs {
            shared: Arc::new(Shared {
                door,
                waiting: Mutex::default(),
                // Not known: nobody is to wait for the first.
                took: AtomicU64::new(COUNTED_MAX),
            }),
            workers: Workers::start("sync", THREADS)?,
        })
    }

    /// Takes a request. Whether it is fdatasync, which it says too, makes no difference. [`Fsyncs::serve`] has it answered.
    ///
    /// # Errors
    /// It is not as it should be.
    pub fn ask(&self, call: &Call<'_>, transport: &dyn Transport) -> Result<(), Errno> {
        let handle = Handle(call.fields().u64()?);
        let asked = Asked {
            node: Ino(call.header.node),
            file: (call.header.opcode != opcode::FSYNCDIR).then_some(handle),
            later: transport.later(),
        };
        self.shared.waiting.lock().asked.push(asked);
        Ok(())
    }

    /// Syncs for all who wait, or has it done. True if there are others by now who wait for the caller.
    pub fn serve(&self) -> bool {
        let mut waiting = self.shared.waiting.lock();
        if waiting.asked.is_empty() || waiting.is_served {
            return false;
        }
        // While the mount is frozen a sync may have to wait for the thaw, which this thread may be the one to hear of.
        let is_quick = self.shared.took.load(Ordering::Relaxed) < FAST_MAX;
        if is_quick && !self.shared.door.vfs.is_frozen() {
            waiting.is_served = true;
            let asked = mem::take(&mut waiting.asked);
            drop(waiting);
            self.shared.sync(asked);
            let mut waiting = self.shared.waiting.lock();
            waiting.is_served = false;
            return !waiting.asked.is_empty();
        }
        // Of those at work, the first that ends takes who waits.
        if waiting.jobs < THREADS {
            waiting.jobs += 1;
            drop(waiting);
            let shared = Arc::clone(&self.shared);
            self.workers.run_elsewhere(move || shared.sync_all());
        }
        false
    }
}

impl Shared {
    fn sync_all(&self) {
        while let Some(asked) = self.next() {
            self.sync(asked);
        }
    }

    /// Those who wait by now; `None`, and the thread ends, if nobody does.
    fn next(&self) -> Option<Vec<Asked>> {
        let mut waiting = self.waiting.lock();
        if waiting.asked.is_empty() {
            waiting.jobs -= 1;
            return None;
        }
        Some(mem::take(&mut waiting.asked))
    }

    fn sync(&self, asked: Vec<Asked>) {
        let begun = Instant::now();
        let (directories, files): (Vec<Asked>, Vec<Asked>) =
            asked.into_iter().partition(|asked| asked.file.is_none());
        let opened: Vec<(Ino, Handle)> = { files.iter() }
            .filter_map(|asked| Some((asked.node, asked.file?)))
            .collect();
        let before = self.door.position();
        let synced = self.door.run("fsync", |vfs| Ok(vfs.fsync_all(&opened)));
        let mut of_files = match synced {
            Ok(each) => each
                .into_iter()
                .map(|result| self.door.run("fsync", |_| result))
                .collect(),
            Err(error) => vec![Err(error); files.len()],
        };
        let synced = opened.iter().zip(&mut of_files);
        for ((ino, handle), result) in synced.filter(|(_, result)| result.is_ok()) {
            self.door.note_durable(*ino, before);
            *result = self.door.tell_lost(*ino, *handle);
        }
        // With the files their history is durable, mostly.
        let sync = |asked: &Asked| {
            let synced = |vfs: &persimmon_vfs::Vfs| vfs.fsyncdir(asked.node, Handle::NONE);
            self.door.run("fsyncdir", synced)
        };
        let of_directories: Vec<Result<(), Errno>> = directories.iter().map(sync).collect();
        let took = begun.elapsed();
        self.note(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let all = files.into_iter().zip(of_files);
        for (asked, result) in all.chain(directories.into_iter().zip(of_directories)) {
            self.door.latencies.fsync.record(took);
            asked.later.answer(result.map(|()| Vec::new()));
        }
    }

    fn note(&self, took: u64) {
        let before = self.took.load(Ordering::Relaxed);
        // What another thread notes at the same time may be lost: it is an average.
        let after = (3 * before + took.min(COUNTED_MAX)) / 4;
        self.took.store(after, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
