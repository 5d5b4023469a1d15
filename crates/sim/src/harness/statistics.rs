//! What a campaign has covered.

use std::collections::BTreeMap;

/// Counts over one run or many.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Workloads run.
    pub runs: u64,
    /// Crash states recovered and compared.
    pub states: u64,
    /// Of these, states in which something unacknowledged was lost.
    pub shortened: u64,
    /// Of these, states that crashed while recovering from another crash.
    pub recovery_crashes: u64,
    /// States that were worked with after recovery.
    pub continued: u64,
    /// Workloads that an injected fault or want of space ended.
    pub broken: u64,
    /// Inspector runs.
    pub checks: u64,
    /// Operations that succeeded, by name.
    pub ops: BTreeMap<&'static str, u64>,
    /// Operations that were refused as they have to be.
    pub refused: u64,
    /// Operations refused for want of space.
    pub no_space: u64,
}

impl Statistics {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Statistics) {
        self.runs += other.runs;
        self.states += other.states;
        self.shortened += other.shortened;
        self.recovery_crashes += other.recovery_crashes;
        self.continued += other.continued;
        self.broken += other.broken;
        self.checks += other.checks;
        self.refused += other.refused;
        self.no_space += other.no_space;
        for (op, count) in &other.ops {
            *self.ops.entry(op).or_default() += count;
        }
    }
}

impl std::fmt::Display for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} runs ({} ended by errors), {} crash states ({} shortened, {} crashed in recovery, {} worked with \
             afterwards), {} inspections",
            self.runs,
            self.broken,
            self.states,
            self.shortened,
            self.recovery_crashes,
            self.continued,
            self.checks
        )?;
        write!(f, "operations:")?;
        for (op, count) in &self.ops {
            write!(f, " {op} {count}")?;
        }
        write!(f, "; refused {}, no space {}", self.refused, self.no_space)
    }
}
