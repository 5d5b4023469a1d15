//! What a daemon had answered and the one after it could not write again. Programs hear of it as Linux tells of pages that could not be written
//! (`errseq_t`): a sync tells it once by each open file. Where a file has none, or they are closed before they were told, those who open it
//! next are told.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_sync::Mutex;
use persimmon_vfs::{Handle, Ino};

use crate::ledger::OpenFile;

/// Files to which something is lost, until somebody has heard of it.
#[derive(Default)]
pub struct Lost {
    /// There is such a file: as a rule there is none.
    is_any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: HashMap<Ino, File>,
    /// A sync of everything is to tell.
    by_any: bool,
}

#[derive(Default)]
struct File {
    /// By which it is to be told.
    due: HashSet<Handle>,
    /// Somebody has heard of it: who opens the file from now on does not.
    is_told: bool,
}

impl Lost {
    /// Something was lost to these inodes, and is to be told by all open files that are marked.
    pub fn begin(&self, inodes: HashSet<Ino>, open: &[OpenFile]) {
        let mut state = self.state.lock();
        state.by_any = !inodes.is_empty();
        for ino in inodes {
            state.files.entry(ino).or_default();
        }
        // Also those that a daemon before this one has marked.
        for file in open.iter().filter(|file| file.lost) {
            let lost = state.files.entry(file.ino).or_default();
            lost.due.insert(file.handle);
        }
        let is_any = state.by_any || !state.files.is_empty();
        self.is_any.store(is_any, Ordering::Release);
    }

    /// A file was opened. True if it is to be told by this, too.
    pub fn opened(&self, ino: Ino, handle: Handle) -> bool {
        self.with(|state| {
            let file = state.files.get_mut(&ino).filter(|file| !file.is_told);
            file.is_some_and(|file| file.due.insert(handle))
        })
    }

    /// Whether something is to be told by an open file.
    pub fn is_due(&self, ino: Ino, handle: Handle) -> bool {
        self.with(|state| {
            let file = state.files.get(&ino);
            file.is_some_and(|file| file.due.contains(&handle))
        })
    }

    /// The same, and it is told now.
    pub fn tell(&self, ino: Ino, handle: Handle) -> bool {
        self.close(ino, handle, true)
    }

    /// A file was closed.
    pub fn released(&self, ino: Ino, handle: Handle) {
        self.close(ino, handle, false);
    }

    /// Whether a sync of everything is to tell something, which it does now.
    pub fn tell_any(&self) -> bool {
        self.with(|state| std::mem::take(&mut state.by_any))
    }

    fn close(&self, ino: Ino, handle: Handle, tells: bool) -> bool {
        self.with(|state| {
            let Some(file) = state.files.get_mut(&ino) else {
                return false;
            };
            let was_due = file.due.remove(&handle);
            file.is_told |= tells && was_due;
            if file.is_told && file.due.is_empty() {
                state.files.remove(&ino);
            }
            was_due
        })
    }

    fn with(&self, look: impl FnOnce(&mut State) -> bool) -> bool {
        if !self.is_any.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state.lock();
        let found = look(&mut state);
        if state.files.is_empty() && !state.by_any {
            self.is_any.store(false, Ordering::Release);
        }
        found
    }
}
