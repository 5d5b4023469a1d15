//! What a client did, and when; and what a power cut at a moment of it may leave.

use std::sync::Arc;

use crate::model::Tree;

/// Operations of each client in a message.
const OPS_TOLD: usize = 12;

/// A state of a client's model and its number in the client's history.
pub(crate) type Numbered = (u64, Arc<Tree>);

/// An operation that returned.
pub(crate) struct Done {
    pub what: String,
    /// Drawn when it began and when it had returned, from one counter for all clients.
    pub began: u64,
    pub ended: u64,
    /// It was carried out as a whole; of one that found no room a part may be there, or nothing.
    pub whole: bool,
    /// It acknowledged all that came before it.
    pub acknowledged: bool,
    /// What a crash could leave while it went on.
    pub during: Vec<Numbered>,
    /// What a crash can leave since.
    pub after: Vec<Numbered>,
}

impl Done {
    /// What it was and when, alone.
    pub fn stamps(&self) -> Done {
        Done {
            what: self.what.clone(),
            during: Vec::new(),
            after: Vec::new(),
            ..*self
        }
    }
}

/// All that one client did.
pub(crate) struct History {
    /// What there was when it began.
    pub start: Vec<Numbered>,
    pub done: Vec<Done>,
}

impl History {
    pub fn new(start: Vec<Numbered>) -> History {
        History {
            start,
            done: Vec::new(),
        }
    }

    /// What a crash may leave between the return of its first `ended` operations and the beginning of the one
    /// behind its first `begun`: sorted by number.
    pub fn admissible(&self, ended: usize, begun: usize) -> Vec<Numbered> {
        let mut states = self.after(ended).to_vec();
        for done in self.done.iter().take(begun).skip(ended) {
            states.extend(done.during.iter().chain(&done.after).cloned());
        }
        states.sort_by_key(|(number, _)| *number);
        states.dedup_by(|a, b| a.0 == b.0 && Arc::ptr_eq(&a.1, &b.1));
        states
    }

    /// The operations before a moment, for a message.
    pub fn told(&self, ended: usize, begun: usize) -> String {
        let mut told = String::new();
        let first = ended.saturating_sub(OPS_TOLD);
        for (at, done) in self.done.iter().enumerate().take(begun).skip(first) {
            let newest = done.during.last().map_or(0, |(number, _)| *number);
            let (began, ended) = (done.began, done.ended);
            told.push_str(&format!(
                "\n    {at:3} [{began}..{ended}] -> {newest}: {}",
                done.what
            ));
        }
        told
    }

    fn after(&self, ended: usize) -> &[Numbered] {
        let last = ended.checked_sub(1).and_then(|last| self.done.get(last));
        last.map_or(&self.start, |done| &done.after)
    }

    fn newest_before(&self, at: usize) -> u64 {
        self.after(at).last().map_or(0, |(number, _)| *number)
    }

    /// The operation that a state came with; none if it was there before.
    pub fn entered_by(&self, number: u64) -> Option<&Done> {
        let is_in = |(at, done): &(usize, &Done)| {
            let newest = done.during.last().map_or(0, |(number, _)| *number);
            self.newest_before(*at) < number && number <= newest
        };
        let found = self.done.iter().enumerate().find(is_in);
        found.map(|(_, done)| done)
    }

    /// The last state whose operation had returned before `stamp` was drawn.
    pub fn newest_at(&self, stamp: u64) -> (u64, Option<&Done>) {
        let returned = self
            .done
            .iter()
            .take_while(|done| done.whole && done.ended < stamp);
        let newest = self.newest_before(returned.count());
        (newest, self.entered_by(newest))
    }
}
