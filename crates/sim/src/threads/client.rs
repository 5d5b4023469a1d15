//! One of the clients: operations on its directory, compared with its model.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::history::{Done, History};
use crate::device::SimDevice;
use crate::filesystem::Mounted;
use crate::harness::{Subject, compare_exactly};
use crate::model::{Errno, Model};
use crate::workload::{Durability, Generator, Op, Step};

/// Time from one stamp to the next.
const TICK_NANOSECONDS: u64 = 1_000_000;

/// How far a client is, for others to see.
pub(super) struct Shared {
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
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Client {
    pub mounted: Mounted,
    pub device: Arc<SimDevice>,
    pub model: Model,
    pub generator: Generator,
    pub ops: usize,
    pub shared: Arc<Shared>,
    /// Where all of them draw stamps.
    pub stamps: Arc<AtomicU64>,
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
        match self.compare() {
            Err(_) if self.device.has_failed() => Ok(false),
            compared => compared.map(|()| true),
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        compare_exactly(&self.mounted.observe()?, self.model.now())
    }

    /// Answers whether it goes on.
    fn step(&mut self) -> Result<bool, String> {
        let op = loop {
            // The others go on.
            match self.generator.next_op(&self.model) {
                Op::Remount => {}
                op => break op,
            }
        };
        self.shared.begun.fetch_add(1, Ordering::SeqCst);
        let began = self.stamps.fetch_add(1, Ordering::SeqCst);
        let outcome = self.one(&op, began * TICK_NANOSECONDS);
        let outcome = outcome.map_err(|why| format!("{op}: {why}"))?;
        let ended = self.stamps.fetch_add(1, Ordering::SeqCst);
        let during = self.model.numbered();
        let mut acknowledged = false;
        if let Outcome::Succeeded(op) = &outcome {
            acknowledged = acknowledges(op);
            self.model.acknowledge(op);
        }
        self.shared.history().done.push(Done {
            what: op.to_string(),
            began,
            ended,
            whole: !matches!(outcome, Outcome::Broken),
            acknowledged,
            during,
            after: self.model.numbered(),
        });
        self.shared.ended.fetch_add(1, Ordering::SeqCst);
        Ok(!matches!(outcome, Outcome::Broken))
    }

    fn one(&mut self, op: &Op, now: u64) -> Result<Outcome, String> {
        let is = match op {
            Op::Read { path } => {
                return match self.read(path) {
                    Err(_) if self.device.has_failed() || self.device.has_offline_zones() => {
                        Ok(Outcome::Broken)
                    }
                    read => read.map(|()| Outcome::Succeeded(op.clone())),
                };
            }
            _ => self.mounted.apply(op, now),
        };
        let op = match &is {
            Ok(Some(part)) => op.shortened(*part),
            _ => op.clone(),
        };
        if let Err(refusal) = &is
            && refusal.errno == libc::ENOSPC
        {
            return match op {
                Op::Unlink { .. } | Op::Rmdir { .. } => Err("no room to remove a name".to_owned()),
                Op::Write { .. } | Op::WriteOpen { .. } | Op::Copy { .. } | Op::Allocate { .. } => {
                    let _ = self.model.apply(&op, now);
                    Ok(Outcome::Broken)
                }
                _ => Ok(Outcome::Refused),
            };
        }
        let should = self.model.apply(&op, now);
        if let Err(refusal) = &is
            && is_of_fault(&self.device, refusal.errno)
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

    fn read(&mut self, path: &str) -> Result<(), String> {
        let Ok(node) = self.model.now().lookup(path) else {
            return Ok(());
        };
        let found = self.mounted.observe_one(path)?;
        found.fits(self.model.now(), node)
    }
}

/// Whether an error comes of what fails on the device.
pub(super) fn is_of_fault(device: &SimDevice, errno: Errno) -> bool {
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
