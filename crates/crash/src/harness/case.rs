//! What is run, and what is told of it when it fails.

use super::plan::{Origin, Plan};
use super::statistics::Statistics;
use crate::workload::{Op, Sequences};

/// Where a run went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Making the volume.
    Format,
    /// An operation answered wrongly, or what it left is wrong, without any crash.
    Live,
    /// Mounting after a power cut.
    Recovery,
    /// What was recovered is no state that a crash may leave.
    Comparison,
    /// The inspector complains.
    Inspection,
    /// Something panicked.
    Panic,
}

/// What went wrong, and how to see it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Where.
    pub phase: Phase,
    /// What.
    pub message: String,
    /// The run.
    pub case: Case,
    /// What happened after the last operation of the run.
    pub trail: Vec<String>,
    /// What the run had covered until then.
    pub statistics: Statistics,
}

/// A plan with its operations.
#[derive(Clone, Debug)]
pub struct Case {
    /// Device and crashes.
    pub plan: Plan,
    /// Operations carried out; none if the plan's seed makes them.
    pub ops: Vec<Op>,
}

impl Case {
    /// Operations of a sampled sequence.
    const SAMPLE_OPS: usize = 3;

    /// What an origin stands for; there is no such sequence otherwise.
    #[must_use]
    pub fn new(origin: Origin, sequences: &Sequences) -> Option<Case> {
        let sequence = match origin {
            Origin::Seed(seed) => {
                return Some(Case {
                    plan: Plan::new(seed),
                    ops: Vec::new(),
                });
            }
            Origin::Sequence(number) => sequences.get(number)?,
            Origin::Sample(seed) => sequences.sample(Case::SAMPLE_OPS, seed),
        };
        let mut ops = sequence.setup.ops();
        ops.extend_from_slice(&sequence.ops);
        Some(Case {
            plan: Plan::of_sequence(origin, &sequence),
            ops,
        })
    }
}

impl std::error::Error for Failure {}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plan = &self.case.plan;
        writeln!(f, "{}: {:?}: {}", plan.origin, self.phase, self.message)?;
        writeln!(f, "device: {:?}", plan.config)?;
        for fault in &plan.faults {
            writeln!(f, "{fault:?}")?;
        }
        writeln!(f, "{} operations:", self.case.ops.len())?;
        for (at, op) in self.case.ops.iter().enumerate() {
            writeln!(f, "{at:4}  {op}")?;
        }
        for event in &self.trail {
            writeln!(f, "      {event}")?;
        }
        Ok(())
    }
}

/// What went wrong, without the circumstances.
pub(super) type Fault = (Phase, String);
