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

/// Of so many commands one makes the zone it is for the slow one, where there is such a thing; and if there is one
/// already, of so many times as many.
const SLOW_ONE_IN: u32 = 16;
const SLOW_STAYS: u32 = 16;

/// Commands submitted and not carried out, and answers not asked for yet.
#[derive(Default)]
pub(crate) struct Queue {
    in_flight: Vec<InFlight>,
    answers: BTreeMap<u64, Result<Answer>>,
    next_id: u64,
    /// What is sent to it waits.
    slow: Option<ZoneId>,
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

    /// Whether something was sent to the slow zone and waits.
    pub fn slow_waits(&self) -> bool {
        let waits = |entry: &InFlight| changed_zone(&entry.command) == self.slow;
        self.slow.is_some() && self.in_flight.iter().any(waits)
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

    /// Commands that may take effect next: all but writes behind another write to their zone, and those for the slow
    /// zone if that is to wait.
    fn runnable(&self, slow_waits: bool) -> Vec<u64> {
        let mut written: BTreeSet<ZoneId> = BTreeSet::new();
        let slow = self.slow.filter(|_| slow_waits);
        self.in_flight
            .iter()
            .filter(|entry| slow.is_none() || changed_zone(&entry.command) != slow)
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
        if self.config.slow_zones
            && let Some(zone) = changed_zone(&command)
        {
            let stays = self.queue.slow.map_or(1, |_| SLOW_STAYS);
            if self.rng.random_ratio(1, SLOW_ONE_IN * stays) {
                self.queue.slow = Some(zone);
            }
        }
        let id = self.queue.push(command, self.executed);
        while self.queue.in_flight.len() > DEPTH_MAX || self.rng.random_range(0..4) == 0 {
            if self.is_cut() || !self.run_any(true) {
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
            if self.is_cut() || !(self.run_any(true) || self.run_any(false)) {
                return gone();
            }
        }
    }

    /// Nobody will ask for the answer.
    pub fn forget(&mut self, id: u64) {
        self.queue.forget(id);
    }

    /// Carries out one command of those in flight; false when there is none.
    fn run_any(&mut self, slow_waits: bool) -> bool {
        let runnable = self.queue.runnable(slow_waits);
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

/// The zone in which a command changes something.
fn changed_zone(command: &Command) -> Option<ZoneId> {
    match command {
        Command::Write { zone, .. }
        | Command::Append { zone, .. }
        | Command::Reset { zone, .. }
        | Command::Finish { zone } => Some(*zone),
        _ => None,
    }
}
