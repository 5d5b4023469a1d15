//! One of the clients: operations on its directory, compared with its model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use persimmon_sync::host::{Mutex, MutexGuard};

use super::history::{Done, History};
use crate::filesystem::Mounted;
use crate::harness::{Failures, Subject, compare_exactly};
use crate::model::{Errno, Model};
use crate::workload::{Durability, Generator, Op, Step};

/// Time from one stamp to the next.
const TICK_NANOSECONDS: u64 = 1_000_000;

/// How far a client is, for others to see.
pub(crate) struct Shared {
    history: Mutex<History>,
    /// Operations that have begun, and that have returned: these are in the history.
    pub begun: AtomicUsize,
    pub ended: AtomicUsize,
}

impl Shared {
    pub fn new(model: &Model) -> Shared {
        Shared {
            history: Mutex::new(History::new(model.numbered())),
            begun: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        }
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }
}

pub(crate) struct Client {
    pub mounted: Mounted,
    pub device: Arc<dyn Failures>,
    pub model: Model,
    pub generator: Generator,
    pub ops: usize,
    pub shared: Arc<Shared>,
    /// Where all of them draw stamps.
    pub stamps: Arc<AtomicU64>,
    /// When the last sync of any of them began that has returned.
    pub synced: Arc<AtomicU64>,
    /// When its last operation had returned.
    pub last_ended: u64,
}

/// What became of an operation.
enum Outcome {
    Succeeded(Op),
    Refused,
    /// A part of it may be there.
    Broken,
}

impl Client {
    /// Does what it has to do; then all it sees is what it did. Answers whether it came to the end, or to an operation
    /// of which a part may be there.
    ///
    /// Errors: what is wrong.
    pub fn work(&mut self) -> Result<bool, String> {
        for _ in 0..self.ops {
            if !self.step()? {
                return Ok(false);
            }
        }
        match self.mounted.observe() {
            Err(_) if self.device.has_failed() => Ok(false),
            found => compare_exactly(&found?, self.model.now()).map(|()| true),
        }
    }

    /// Answers whether it goes on.
    fn step(&mut self) -> Result<bool, String> {
        // Another's sync that began since then took along all there was.
        let synced = self.synced.load(Ordering::SeqCst);
        if synced > self.last_ended {
            self.begin();
            let what = "synced by another".to_owned();
            self.end(synced, Some(Op::Sync), what, true);
        }
        let op = loop {
            // The others go on.
            match self.generator.next_op(&self.model) {
                Op::Remount => {}
                op => break op,
            }
        };
        let began = self.begin();
        let outcome = self.one(&op, began * TICK_NANOSECONDS);
        let what = op.to_string();
        match outcome.map_err(|why| format!("{what}: {why}"))? {
            Outcome::Succeeded(op) => {
                if op == Op::Sync {
                    self.synced.fetch_max(began, Ordering::SeqCst);
                }
                self.end(began, Some(op), what, true);
            }
            Outcome::Refused => self.end(began, None, what, true),
            Outcome::Broken => {
                self.end(began, None, what, false);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin(&self) -> u64 {
        self.shared.begun.fetch_add(1, Ordering::SeqCst);
        self.stamps.fetch_add(1, Ordering::SeqCst)
    }

    /// An operation returned; `done` is what of it was carried out. The model has seen it.
    fn end(&mut self, began: u64, done: Option<Op>, what: String, whole: bool) {
        let ended = self.stamps.fetch_add(1, Ordering::SeqCst);
        let during = self.model.numbered();
        if let Some(op) = &done {
            self.model.acknowledge(op);
        }
        self.shared.history().done.push(Done {
            what,
            began,
            ended,
            whole,
            acknowledged: done.as_ref().is_some_and(acknowledges),
            during,
            after: self.model.numbered(),
        });
        self.last_ended = ended;
        self.shared.ended.fetch_add(1, Ordering::SeqCst);
    }

    fn one(&mut self, op: &Op, now: u64) -> Result<Outcome, String> {
        let is = match op {
            Op::Read { path } => {
                return if self.read(path)? {
                    Ok(Outcome::Succeeded(op.clone()))
                } else {
                    Ok(Outcome::Broken)
                };
            }
            _ => self.mounted.apply(op, now),
        };
        let op = match &is {
            Ok(Some(part)) => op.shortened(*part),
            _ => op.clone(),
        };
        if is.is_err() && self.device.is_off() {
            let _ = self.model.apply(&op, now);
            return Ok(Outcome::Broken);
        }
        if let Err(refusal) = &is
            && refusal.errno == libc::ENOSPC
        {
            return match op {
                _ if !op.needs_room() => Err("no room for what needs none".to_owned()),
                Op::Write { .. } | Op::WriteOpen { .. } | Op::Copy { .. } | Op::Allocate { .. } => {
                    let _ = self.model.apply(&op, now);
                    Ok(Outcome::Broken)
                }
                _ => Ok(Outcome::Refused),
            };
        }
        let should = self.model.apply(&op, now);
        if let Err(refusal) = &is
            && is_of_fault(&*self.device, refusal.errno)
        {
            return Ok(Outcome::Broken);
        }
        match (is, should) {
            (Ok(_), Ok(())) => {
                if let Op::Allocate { path, .. } = &op {
                    match self.mounted.observe_one(path) {
                        Ok(found) => self.model.adopt_mtime(path, found.mtime),
                        Err(_) if self.device.has_failed() => return Ok(Outcome::Broken),
                        Err(why) => return Err(why),
                    }
                }
                Ok(Outcome::Succeeded(op))
            }
            // A rename or a link can be wrong in several ways at once.
            (Err(is), Err(should))
                if is.errno == should || matches!(op, Op::Rename { .. } | Op::Link { .. }) =>
            {
                Ok(Outcome::Refused)
            }
            (is, should) => Err(format!("answered {is:?}, should have {should:?}")),
        }
    }

    /// Compares a file. False where a failing device keeps it from being read.
    fn read(&mut self, path: &str) -> Result<bool, String> {
        let Ok(node) = self.model.now().lookup(path) else {
            return Ok(true);
        };
        match self.mounted.observe_one(path) {
            Err(_) if self.device.has_failed() => Ok(false),
            found => found?.fits(self.model.now(), node).map(|()| true),
        }
    }
}

/// Whether an error comes of what fails on the device.
pub(super) fn is_of_fault(device: &dyn Failures, errno: Errno) -> bool {
    match errno {
        // What is lost with a zone cannot be read, and so not be changed in part.
        libc::EIO => device.has_failed() || device.has_offline_zones(),
        libc::EROFS => device.has_failed(),
        _ => false,
    }
}

/// Whether all that came before it is durable when it returns.
fn acknowledges(op: &Op) -> bool {
    match op {
        Op::Write { durability, .. } => *durability != Durability::Buffered,
        Op::Fsync { .. } | Op::FsyncDir { .. } | Op::Sync | Op::Step(Step::Checkpoint) => true,
        _ => false,
    }
}
