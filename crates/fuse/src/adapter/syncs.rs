//! `sync` and `syncfs`: everything is made durable, on a thread that serves no requests.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use persimmon_vfs::Vfs;

use crate::answer::Door;
use crate::transport::Later;
use crate::workers::Workers;

/// Syncs of everything. Those who ask while one is under way share the next one.
pub struct Everything {
    door: Door,
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
    pub fn start(door: Door) -> io::Result<Everything> {
        Ok(Everything {
            door,
            worker: Workers::start("syncfs", 1)?,
            waiting: Arc::default(),
            heard: Arc::default(),
        })
    }

    /// Set by the first who asks.
    pub fn heard(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.heard)
    }

    /// Answers once everything is durable that was done before this call.
    pub fn sync(&self, asker: Box<dyn Later>) {
        self.heard.store(true, Ordering::Release);
        let mut waiting = lock(&self.waiting);
        waiting.askers.push(asker);
        if std::mem::replace(&mut waiting.is_told, true) {
            return;
        }
        drop(waiting);
        let (door, waiting) = (self.door.clone(), Arc::clone(&self.waiting));
        self.worker.run(move || {
            while let Some(askers) = next(&waiting) {
                let synced = door.run("syncfs", Vfs::sync);
                for asker in askers {
                    asker.answer(synced.map(|()| Vec::new()));
                }
            }
        });
    }
}

/// Those who have asked by now; `None`, and the worker is to be told anew, if nobody has.
fn next(waiting: &Mutex<Waiting>) -> Option<Vec<Box<dyn Later>>> {
    let mut waiting = lock(waiting);
    waiting.is_told = !waiting.askers.is_empty();
    waiting.is_told.then(|| std::mem::take(&mut waiting.askers))
}

fn lock(waiting: &Mutex<Waiting>) -> std::sync::MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
