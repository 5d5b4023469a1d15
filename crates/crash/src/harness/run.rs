//! One run: a workload, compared step by step, with crash states made along the way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::case::{Case, Failure, Fault, Phase};
use super::plan::{Origin, Plan};
use super::statistics::Statistics;
use super::system::{Refusal, Subject, System};
use crate::model::{Model, Observed, Tree};
use crate::workload::{Generator, Op};
use persimmon_sim::device::{SimDevice, Snapshot};

/// Time between two operations.
const TICK_NANOSECONDS: u64 = 1_000_000;
const NANOSECONDS: u64 = 1_000_000_000;

/// What became of an operation.
enum Outcome<S> {
    Succeeded(S),
    Refused(S),
    /// An injected fault came through.
    Broken,
}

/// Where the operations come from.
pub(super) enum Source<'a> {
    Generated(Box<Generator>, usize),
    Listed(&'a [Op]),
}

/// Runs the operations of a case, or as many new ones as its plan says if it has none.
pub fn replay<S: System>(system: &S, case: &Case) -> Result<Statistics, Box<Failure>> {
    let mut run = Run {
        system,
        plan: &case.plan,
        rng: ChaCha8Rng::seed_from_u64(case.plan.crash_seed),
        statistics: Statistics::default(),
        done: Vec::new(),
        trail: Vec::new(),
        now: TICK_NANOSECONDS,
        crashes_in_recovery: 0,
        rotten: false,
        numbers_given: 0,
    };
    run.statistics
        .count_device(&case.plan.config, case.plan.copies);
    let source = if case.ops.is_empty() {
        let plan = &case.plan;
        Source::Generated(
            Box::new(plan.generator(plan.seed).populated(plan.populated_files)),
            plan.ops,
        )
    } else {
        Source::Listed(&case.ops)
    };
    let result = catch_unwind(AssertUnwindSafe(|| run.run(source)))
        .unwrap_or_else(|panic| Err((Phase::Panic, panic_message(panic.as_ref()))));
    match case.plan.origin {
        Origin::Seed(_) => run.statistics.runs += 1,
        _ => {
            run.statistics.sequences += 1;
            run.statistics.sequence_states = run.statistics.states;
        }
    }
    match result {
        Ok(()) => Ok(run.statistics),
        Err((phase, message)) => Err(Box::new(Failure {
            phase,
            message,
            case: Case {
                plan: case.plan.clone(),
                ops: run.done,
            },
            trail: run.trail,
            statistics: run.statistics,
        })),
    }
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// A run under way.
pub(super) struct Run<'a, S: System> {
    pub system: &'a S,
    pub plan: &'a Plan,
    pub rng: ChaCha8Rng,
    pub statistics: Statistics,
    /// Operations of the workload so far.
    done: Vec<Op>,
    /// What happened on the way from the workload to this moment.
    pub trail: Vec<String>,
    pub now: u64,
    /// Power cuts in a row that hit a recovery.
    pub crashes_in_recovery: u32,
    /// One of two copies of a block is damaged.
    pub rotten: bool,
    /// Inode numbers below this were given out before the moment of crash, or the unmount.
    pub numbers_given: u64,
}

impl<S: System> Run<'_, S> {
    fn run(&mut self, source: Source<'_>) -> Result<(), Fault> {
        let device = Arc::new(SimDevice::new(self.plan.config.clone()));
        let formatted = self.system.format(&device, self.plan.copies);
        formatted.map_err(|error| (Phase::Format, error))?;
        let mut subject = self.mount(&device, Phase::Format)?;
        let found = subject.observe().map_err(|error| (Phase::Format, error))?;
        let is_whole = subject.stores_whole_blocks();
        let mut model = Model::new(found.to_tree()).of_whole_blocks(is_whole);
        if self.plan.zone_failure.is_none() || self.system.outlives_zones() {
            for fault in &self.plan.faults {
                device.inject(fault.clone());
            }
        }
        let worked = self.work(&device, subject, &mut model, source, 0)?;
        device.record_snapshots(0);
        drop(device.take_snapshots());
        for fault in &self.plan.faults {
            self.statistics.count_fault(fault, device.has_come(fault));
        }
        if let Some(subject) = &worked {
            self.numbers_given = subject.next_number();
        }
        self.crash_all(&[device.snapshot()], 1, &model.admissible())?;
        let mut subject = match worked {
            Some(subject) if !device.has_failed() => subject,
            _ => {
                self.statistics.broken += 1;
                return Ok(());
            }
        };
        device.heal();
        self.compare_live(&mut subject, &model)?;
        if !self.chance(self.plan.unmount_percent) {
            return Ok(());
        }
        subject.close().map_err(live)?;
        self.inspect(&device)?;
        let mut subject = self.mount(&device, Phase::Live)?;
        model.acknowledge(&Op::Sync);
        self.compare_live(&mut subject, &model)
    }

    /// Carries out operations, after `depth` power cuts. Crash states are made along the way. An
    /// injected fault may end it: then there is no subject any more.
    pub fn work(
        &mut self,
        device: &Arc<SimDevice>,
        mut subject: S::Subject,
        model: &mut Model,
        mut source: Source<'_>,
        depth: u32,
    ) -> Result<Option<S::Subject>, Fault> {
        loop {
            let op = match &mut source {
                Source::Generated(_, 0) => return Ok(Some(subject)),
                Source::Generated(generator, left) => {
                    *left -= 1;
                    generator.next_op(model)
                }
                Source::Listed(ops) => match ops.split_first() {
                    None => return Ok(Some(subject)),
                    Some((op, rest)) => {
                        *ops = rest;
                        op.clone()
                    }
                },
            };
            if depth == 0 {
                let calm = self.done.len() < self.plan.calm_ops;
                device.record_snapshots(if calm { 0 } else { self.plan.crash_one_in });
                self.done.push(op.clone());
            } else {
                self.trail.push(op.to_string());
            }
            self.now += TICK_NANOSECONDS;
            self.numbers_given = subject.next_number();
            let failed = |device: &SimDevice| device.has_failed() || device.failed_zones() > 0;
            let was_well = !self.plan.faults.is_empty() && depth == 0 && !failed(device);
            let (outcome, op) = self.one(device, subject, model, op)?;
            if was_well && failed(device) {
                self.statistics.failing_ops.one(op.name());
            }
            let snapshots = device.take_snapshots();
            if depth == 0 {
                let moments = self.some_of(snapshots, self.plan.crashes_per_op_max);
                let states = self.plan.states_per_crash;
                self.crash_all(&moments, states, &model.admissible())?;
            } else if let [moment] = self.some_of(snapshots, 1).as_slice() {
                self.crash(moment, &model.admissible(), depth)?;
            }
            subject = match outcome {
                Outcome::Succeeded(subject) => {
                    model.acknowledge(&op);
                    subject
                }
                Outcome::Refused(subject) => subject,
                Outcome::Broken => return Ok(None),
            };
        }
    }

    /// No more than so many of the moments at which to crash.
    fn some_of(&mut self, mut snapshots: Vec<Snapshot>, moments_max: usize) -> Vec<Snapshot> {
        while snapshots.len() > moments_max {
            snapshots.swap_remove(self.rng.random_range(0..snapshots.len()));
        }
        snapshots
    }

    /// One operation on the subject and on the model. Answers what of it was carried out.
    fn one(
        &mut self,
        device: &Arc<SimDevice>,
        mut subject: S::Subject,
        model: &mut Model,
        op: Op,
    ) -> Result<(Outcome<S::Subject>, Op), Fault> {
        let is = match &op {
            Op::Remount | Op::RollBack { .. } => {
                let closed = subject.close().map_err(live);
                let rolled_back = closed.map(|()| self.roll_back(device, &op));
                let mounted = rolled_back
                    .and_then(|rolled_back| Ok((rolled_back, self.mount(device, Phase::Live)?)));
                match mounted {
                    Ok((rolled_back, mounted)) => {
                        subject = mounted;
                        rolled_back.map(|()| None)
                    }
                    Err(_) if device.has_failed() => {
                        let _ = model.apply(&op, self.now);
                        return Ok((Outcome::Broken, op));
                    }
                    Err(fault) => return Err(fault),
                }
            }
            Op::Wait { seconds } => {
                self.now += u64::from(*seconds) * NANOSECONDS;
                Ok(None)
            }
            Op::ReadOpen { slot } => match subject.observe_open(*slot) {
                Ok(found) => {
                    if let Ok((tree, node)) = model.read_in(*slot) {
                        let compared = found.fits(tree, node);
                        compared.map_err(|why| live(format!("{op}: {why}")))?;
                    }
                    Ok(None)
                }
                Err(refusal) => Err(refusal),
            },
            Op::Read { path } => {
                return match self.compare_file(&mut subject, model, path) {
                    Err(_) if device.has_failed() => Ok((Outcome::Broken, op)),
                    compared => compared.map(|()| (Outcome::Succeeded(subject), op)),
                };
            }
            _ => subject.apply(&op, self.now),
        };
        let (is, op) = match is {
            Ok(Some(part)) => {
                if subject.was_cut_by_quota() {
                    self.is_over_limit(device, model, &op)?;
                } else {
                    self.statistics.no_space += 1;
                }
                // All of it was asked for.
                model.asked(&op, self.now);
                (Ok(()), op.shortened(part))
            }
            Ok(None) if model.must_exceed(&op, self.now) => {
                // What cannot be done for another reason is no matter of limits.
                let mut after = model.clone();
                match after.apply(&op, self.now) {
                    Ok(()) => return Err(live(format!("{op}: more than there may be by a limit"))),
                    Err(_) => (Ok(()), op),
                }
            }
            Ok(None) => (Ok(()), op),
            Err(refusal) => (Err(refusal), op),
        };
        let outcome = self.judge(device, subject, model, &op, is)?;
        Ok((outcome, op))
    }

    /// A limit was the reason to refuse an operation, or a part of it: it has to be exceeded.
    fn is_over_limit(&mut self, device: &SimDevice, model: &Model, op: &Op) -> Result<(), Fault> {
        self.statistics.ops.one("refused by a limit");
        let may = model.may_exceed(op, self.now);
        // Where commands fail what is staged may stay so, and counts as more than it takes.
        match may || device.has_failed() {
            true => Ok(()),
            false => Err(live(format!(
                "{op}: refused by a limit that is not reached"
            ))),
        }
    }

    fn roll_back(&self, device: &Arc<SimDevice>, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::RollBack { to, keep } => {
                self.system.roll_back(device, to, keep.as_deref(), self.now)
            }
            _ => Ok(()),
        }
    }

    /// Compares what an operation came to with the model, and lets it have its effect there.
    fn judge(
        &mut self,
        device: &Arc<SimDevice>,
        mut subject: S::Subject,
        model: &mut Model,
        op: &Op,
        is: Result<(), Refusal>,
    ) -> Result<Outcome<S::Subject>, Fault> {
        match is.as_ref().map_err(|refusal| refusal.errno) {
            Err(libc::EDQUOT) => {
                self.is_over_limit(device, model, op)?;
                model.asked(op, self.now);
                return Ok(Outcome::Refused(subject));
            }
            Err(libc::ENOSPC) => {
                self.statistics.no_space += 1;
                model.asked(op, self.now);
                return match op {
                    Op::Unlink { .. } | Op::Rmdir { .. } => {
                        Err(live(format!("{op}: no space left to remove a name")))
                    }
                    Op::Write { path, .. }
                        if self.compare_file(&mut subject, model, path).is_ok() =>
                    {
                        Ok(Outcome::Refused(subject))
                    }
                    // A part of it is there, or may be.
                    Op::Write { .. }
                    | Op::WriteOpen { .. }
                    | Op::Copy { .. }
                    | Op::Allocate { .. } => {
                        let _ = model.apply(op, self.now);
                        Ok(Outcome::Broken)
                    }
                    Op::RollBack { .. } => {
                        let _ = model.apply(&Op::Remount, self.now);
                        model.acknowledge(&Op::Remount);
                        Ok(Outcome::Refused(subject))
                    }
                    _ => Ok(Outcome::Refused(subject)),
                };
            }
            // What is lost with a zone cannot be read, and so not be changed in part.
            Err(libc::EIO) if device.has_offline_zones() => {
                let _ = model.apply(op, self.now);
                return Ok(Outcome::Broken);
            }
            Err(libc::EIO | libc::EROFS) if device.has_failed() => {
                // It may have had its effect, or a part of it that a crash may leave as well.
                let _ = model.apply(op, self.now);
                return Ok(Outcome::Broken);
            }
            _ => {}
        }
        let should = model.apply(op, self.now);
        match (&is, should) {
            (Ok(()), Ok(())) => {
                self.statistics.ops.one(op.name());
                match op {
                    Op::Remount | Op::RollBack { .. } => {
                        match self.compare_live(&mut subject, model) {
                            Err(_) if device.has_failed() => return Ok(Outcome::Broken),
                            compared => compared?,
                        }
                    }
                    Op::Allocate { path, .. } => match subject.observe_one(path) {
                        Ok(found) => model.adopt_mtime(path, found.mtime),
                        Err(_) if device.has_failed() => return Ok(Outcome::Broken),
                        Err(why) => return Err(live(why)),
                    },
                    _ => {}
                }
                match adopt_accounts(&mut subject, model) {
                    Err(_) if device.has_failed() => return Ok(Outcome::Broken),
                    adopted => adopted.map_err(|why| live(format!("after {op}: {why}")))?,
                }
                Ok(Outcome::Succeeded(subject))
            }
            // A rename or a link can be wrong in several ways at once.
            (Err(is), Err(should))
                if is.errno == should || matches!(op, Op::Rename { .. } | Op::Link { .. }) =>
            {
                self.statistics.refused += 1;
                Ok(Outcome::Refused(subject))
            }
            _ => {
                let message = format!("{op} answered {is:?}, should have {should:?}");
                Err((Phase::Live, message))
            }
        }
    }

    pub fn mount(&self, device: &Arc<SimDevice>, phase: Phase) -> Result<S::Subject, Fault> {
        let mounted = self.system.mount(device);
        let subject = mounted.map_err(|error| (phase, format!("mounting: {error}")))?;
        let (next, given) = (subject.next_number(), self.numbers_given);
        if next < given {
            let why = format!("inode numbers go on at {next}, those below {given} were given out");
            return Err((phase, why));
        }
        Ok(subject)
    }

    /// Lets the inspector look at a volume that is not mounted.
    pub fn inspect(&mut self, device: &Arc<SimDevice>) -> Result<(), Fault> {
        self.statistics.checks += 1;
        let checked = self.system.check(device);
        checked.map_err(|findings| (Phase::Inspection, findings))
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// What programs see is what the model says.
    pub fn compare_live(&self, subject: &mut S::Subject, model: &Model) -> Result<(), Fault> {
        let found = subject.observe().map_err(live)?;
        compare_exactly(&found, model.now()).map_err(live)
    }

    fn compare_file(
        &self,
        subject: &mut S::Subject,
        model: &Model,
        path: &str,
    ) -> Result<(), Fault> {
        let Some(node) = model.now().lookup(path).ok() else {
            return Ok(());
        };
        let found = subject.observe_one(path).map_err(live)?;
        let compared = found.fits(model.now(), node);
        compared.map_err(|why| live(format!("reading {path}: {why}")))
    }
}

/// Takes over whether all is counted, and what is stored of those who are limited, where the model leaves open what that is.
fn adopt_accounts(subject: &mut impl Subject, model: &mut Model) -> Result<(), String> {
    if model.counts() {
        model.adopt_counting(subject.counting());
    }
    for owner in model.uncertain() {
        if let Some(found) = subject.account(owner)? {
            model.adopt_account(owner, &found)?;
        }
    }
    Ok(())
}

fn live(message: String) -> Fault {
    (Phase::Live, message)
}

/// Compares with the present of a state, nothing being open.
///
/// Errors: what differs.
pub fn compare_exactly(found: &Observed, tree: &Tree) -> Result<(), String> {
    let mut exact = tree.clone();
    exact.commit_all();
    found.find_in(&[Arc::new(exact)]).map(drop)
}
