//! Commands in flight, and the order in which they take effect.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_device::{Command, Result, ZoneId};
use rand::Rng;

use super::gone;
use super::state::{Answer, State};

/// Commands in flight at most; more, and some take effect at submission.
const DEPTH_MAX: usize = 64;

struct InFlight {
    id: u64,
    /// Number of the last command that had completed when this one was submitted.
    mark: u64,
    command: Command,
    /// Somebody can still ask for the answer.
    wanted: bool,
}

/// Commands submitted and not carried out, and answers not asked for yet.
#[derive(Default)]
pub(crate) struct Queue {
    in_flight: Vec<InFlight>,
    answers: BTreeMap<u64, Result<Answer>>,
    next_id: u64,
}

impl Queue {
    pub fn push(&mut self, command: Command, mark: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.in_flight.push(InFlight {
            id,
            mark,
            command,
            wanted: true,
        });
        id
    }

    /// The commands in flight that a power cut leaves open, in order of submission.
    pub fn commands(&self) -> impl Iterator<Item = &Command> {
        self.in_flight
            .iter()
            .map(|entry| &entry.command)
            .filter(|command| !matches!(command, Command::Read { .. }))
    }

    pub fn get(&self, id: u64) -> Option<(Command, u64)> {
        let entry = self.in_flight.iter().find(|entry| entry.id == id)?;
        Some((entry.command.clone(), entry.mark))
    }

    pub fn answer(&mut self, id: u64, answer: Result<Answer>) {
        if let Some(at) = self.in_flight.iter().position(|entry| entry.id == id) {
            let entry = self.in_flight.remove(at);
            if entry.wanted {
                self.answers.insert(id, answer);
            }
        }
    }

    fn forget(&mut self, id: u64) {
        self.answers.remove(&id);
        if let Some(entry) = self.in_flight.iter_mut().find(|entry| entry.id == id) {
            entry.wanted = false;
        }
    }

    /// Commands that may take effect next: all but writes behind another write to their zone.
    fn runnable(&self) -> Vec<u64> {
        let mut written: BTreeSet<ZoneId> = BTreeSet::new();
        self.in_flight
            .iter()
            .filter(|entry| match &entry.command {
                Command::Write { zone, .. } => written.insert(*zone),
                _ => true,
            })
            .map(|entry| entry.id)
            .collect()
    }
}

impl State {
    /// Queues a command; others may take effect meanwhile.
    pub fn enqueue(&mut self, command: Command) -> Result<u64> {
        if self.is_cut() {
            return gone();
        }
        let id = self.queue.push(command, self.executed);
        while self.queue.in_flight.len() > DEPTH_MAX || self.rng.random_range(0..4) == 0 {
            if self.is_cut() || !self.run_any() {
                break;
            }
        }
        Ok(id)
    }

    /// Carries out commands until `id` has its answer.
    pub fn run_until(&mut self, id: u64) -> Result<Answer> {
        loop {
            if let Some(answer) = self.queue.answers.remove(&id) {
                return answer;
            }
            if self.is_cut() || !self.run_any() {
                return gone();
            }
        }
    }

    /// Nobody will ask for the answer.
    pub fn forget(&mut self, id: u64) {
        self.queue.forget(id);
    }

    /// Carries out one command of those in flight; false when there is none.
    fn run_any(&mut self) -> bool {
        let runnable = self.queue.runnable();
        if runnable.is_empty() {
            return false;
        }
        let pick = self.rng.random_range(0..runnable.len());
        if let Some(id) = runnable.get(pick) {
            self.run_queued(*id);
        }
        true
    }
}
