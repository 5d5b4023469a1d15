//! `sync` and `syncfs`: everything is made durable, on a thread that serves no requests.
//!
//! What the kernel holds back comes first. Newer kernels (7.0) only set off that writing before they ask for the sync, so
//! they are asked for it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_sync::Mutex;

use persimmon_vfs::Vfs;

use super::pages::HeldBack;
use crate::answer::Door;
use crate::protocol::Errno;
use crate::transport::{Later, Transport};
use crate::workers::Workers;

/// Syncs of everything. Those who ask while one is under way share the next one.
pub struct Everything {
    door: Door,
    pages: Arc<HeldBack>,
    worker: Workers,
    waiting: Arc<Mutex<Waiting>>,
    heard: Arc<AtomicBool>,
}

/// Who waits for the next sync.
#[derive(Default)]
struct Waiting {
    askers: Vec<Box<dyn Later>>,
    /// The worker has been told, and looks here again before it ends: so it has one job at most.
    is_told: bool,
}

impl Everything {
    pub fn start(door: Door, pages: Arc<HeldBack>) -> io::Result<Everything> {
        Ok(Everything {
            door,
            pages,
            worker: Workers::start("syncfs", 1)?,
            waiting: Arc::default(),
            heard: Arc::default(),
        })
    }

    /// Set by the first who asks.
    pub fn heard(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.heard)
    }

    /// Answers once everything is durable that was done before this call, what the kernel holds back among it.
    ///
    /// # Errors
    /// `EAGAIN` where it has no place left for that: so many wait already.
    pub fn sync(&self, transport: &dyn Transport) -> Result<(), Errno> {
        self.heard.store(true, Ordering::Release);
        let asker = transport.later_with_pages().ok_or(Errno(libc::EAGAIN))?;
        let mut waiting = self.waiting.lock();
        waiting.askers.push(asker);
        if std::mem::replace(&mut waiting.is_told, true) {
            return Ok(());
        }
        drop(waiting);
        let (door, waiting) = (self.door.clone(), Arc::clone(&self.waiting));
        let pages = Arc::clone(&self.pages);
        self.worker.run_elsewhere(move || {
            while let Some(askers) = next(&waiting) {
                if let Some(asker) = askers.first() {
                    pages.all().iter().for_each(|ino| asker.write_back(ino.0));
                }
                let synced = door.run("syncfs", Vfs::sync);
                let synced = synced.and_then(|()| door.tell_any_lost());
                for asker in askers {
                    asker.answer(synced.map(|()| Vec::new()));
                }
            }
        });
        Ok(())
    }
}

/// Those who have asked by now; `None`, and the worker is to be told anew, if nobody has.
fn next(waiting: &Mutex<Waiting>) -> Option<Vec<Box<dyn Later>>> {
    let mut waiting = waiting.lock();
    waiting.is_told = !waiting.askers.is_empty();
    waiting.is_told.then(|| std::mem::take(&mut waiting.askers))
}
