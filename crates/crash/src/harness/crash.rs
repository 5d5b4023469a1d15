//! One crash state: recovered, compared, crashed again, worked with.

use std::collections::BTreeSet;
use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use rand::Rng;

use super::case::{self, Phase};
use super::plan::{FAILING_IN_RECOVERY, fault};
use super::run::{Run, Source, compare_exactly};
use super::system::{Subject, System};
use crate::model::{Model, Observed, Tree};
use crate::stripes;
use persimmon_sim::device::{Exhaustive, Fault, PowerCut, Sampled, SimDevice, Snapshot};

/// Power cuts in a row.
const DEPTH_MAX: u32 = 3;
/// Percent of the states in whose recovery a zone fails, where the plan has zones fail.
const ZONE_FAILS_PERCENT: u32 = 40;
/// Operations after a recovery.
const GO_ON_OPS: usize = 12;
/// Of so many of their commands about one is a moment of crash.
const GO_ON_CRASH_ONE_IN: u32 = 6;

/// What a power cut left.
struct Left {
    device: Arc<SimDevice>,
    cut: PowerCut,
    /// Seed of the choices, or which of all it is.
    choice: u64,
    /// One of all that can be left.
    of_all: bool,
}

impl Left {
    fn sampled(snapshot: &Snapshot, choice: u64) -> Left {
        let (device, cut) = snapshot.cut(&mut Sampled::new(choice));
        Left {
            device: Arc::new(device),
            cut,
            choice,
            of_all: false,
        }
    }
}

impl<S: System> Run<'_, S> {
    /// Makes crash states of the moments within one operation: all there are, each once, where the
    /// plan says so and they are few, otherwise so many of each.
    pub fn crash_all(
        &mut self,
        moments: &[Snapshot],
        states_per_crash: u32,
        states: &[Arc<Tree>],
    ) -> Result<(), case::Fault> {
        let mut had = BTreeSet::new();
        for snapshot in moments {
            if self.plan.exhaustive_max == 0 {
                for _ in 0..states_per_crash {
                    self.crash(snapshot, states, 0)?;
                }
                continue;
            }
            for left in self.all_left_by(snapshot) {
                if had.insert(left.device.image_hash()) {
                    self.crash_to(snapshot, left, states, 0)?;
                }
            }
        }
        Ok(())
    }

    /// Everything that a moment of crash can leave, or some of it if it is more than the plan wants.
    fn all_left_by(&mut self, snapshot: &Snapshot) -> Vec<Left> {
        let mut choices = Exhaustive::new();
        let mut all = Vec::new();
        while all.len() < self.plan.exhaustive_max {
            let (device, cut) = snapshot.cut(&mut choices);
            all.push(Left {
                device: Arc::new(device),
                cut,
                choice: all.len() as u64,
                of_all: true,
            });
            if !choices.next_run() {
                return all;
            }
        }
        (0..self.plan.states_per_crash)
            .map(|_| Left::sampled(snapshot, self.rng.random()))
            .collect()
    }

    /// Makes a crash state of a snapshot and compares what is recovered with `states`.
    pub fn crash(
        &mut self,
        snapshot: &Snapshot,
        states: &[Arc<Tree>],
        depth: u32,
    ) -> Result<(), case::Fault> {
        let left = Left::sampled(snapshot, self.rng.random());
        self.crash_to(snapshot, left, states, depth)
    }

    fn crash_to(
        &mut self,
        snapshot: &Snapshot,
        left: Left,
        states: &[Arc<Tree>],
        depth: u32,
    ) -> Result<(), case::Fault> {
        if self.statistics.states >= self.plan.states_max {
            return Ok(());
        }
        let (way, was_rotten) = (self.trail.len(), self.rotten);
        let numbers_given = self.numbers_given;
        let what = match left {
            Left { of_all: true, .. } => format!("possibility {}", left.choice),
            Left { choice, .. } => format!("what {choice:#x} chooses"),
        };
        self.trail
            .push(format!("power cut, leaving {what} of {snapshot}"));
        self.statistics.states += 1;
        self.statistics.images.insert(left.device.image_hash());
        self.statistics.count_cut(left.cut);
        left.device.reseed(left.choice);
        // One failed zone is enough: of a pair the other must not fail too.
        let mut zone_fails = None;
        if let Some(kind) = self.plan.zone_failure
            && self.system.outlives_zones()
            && left.device.failed_zones() == 0
            && self.chance(ZONE_FAILS_PERCENT)
        {
            zone_fails = Some(self.plan.zone_failing_in_recovery(kind, &mut self.rng));
        }
        self.recover(&left.device, zone_fails, states, depth)?;
        self.trail.truncate(way);
        self.rotten = was_rotten;
        self.numbers_given = numbers_given;
        Ok(())
    }

    fn recover(
        &mut self,
        device: &Arc<SimDevice>,
        zone_fails: Option<Fault>,
        states: &[Arc<Tree>],
        depth: u32,
    ) -> Result<(), case::Fault> {
        // What is damaged may stay: the inspector would tell.
        let mut checked = self.chance(self.plan.check_percent) && !self.rotten;
        if checked {
            self.inspect(device)?;
        }
        if self.plan.failing_percent > 0 && self.chance(self.plan.failing_percent) {
            self.fail_in_recovery(device)?;
        }
        let config = device.config();
        let ends_are_known = config.geometry.write_pointer_is_proof && !config.tears_blocks;
        let has_copies =
            self.plan.copies > 1 || (stripes::of_seed(self.plan.seed).is_some() && ends_are_known);
        if has_copies && self.plan.rotten_percent > 0 {
            self.let_rot(device);
            checked &= !self.rotten;
        }
        if let Some(fault) = zone_fails {
            self.trail.push(format!("in recovery: {fault:?}"));
            device.inject(fault);
        }
        let again = depth < DEPTH_MAX && self.chance(self.plan.again_percent);
        device.record_snapshots(if again { 3 } else { 0 });
        let mut subject = self.mount(device, Phase::Recovery)?;
        device.record_snapshots(0);
        for option in subject.options() {
            self.statistics.options.one(option);
        }
        for path in subject.recovery_paths() {
            self.statistics.recoveries.one(path);
        }
        let found = observe(&mut subject)?;
        match found.find_in(states) {
            Ok(at) => {
                self.trail
                    .push(format!("recovered to state {at} of {}", states.len()));
                self.statistics.shortened += u64::from(at + 1 < states.len());
            }
            Err(why) => return Err((Phase::Comparison, why)),
        }
        if again {
            self.crash_in_recovery(device, states, depth)?;
        }
        if checked {
            self.inspect(&Arc::new(device.snapshot().intact()))?;
        }
        if depth < DEPTH_MAX && self.chance(self.plan.go_on_percent) {
            return self.go_on(device, subject, &found, depth);
        }
        Ok(())
    }

    /// Damages a block of which there is another copy, unless one is damaged already, or a zone
    /// fails: nobody is to notice.
    fn let_rot(&mut self, device: &SimDevice) {
        if self.rotten || self.plan.zone_failure.is_some() || !self.chance(self.plan.rotten_percent)
        {
            return;
        }
        let mirrored = self.system.mirrored(device);
        if mirrored.is_empty() {
            return;
        }
        let (zone, written) = mirrored[self.rng.random_range(0..mirrored.len())];
        // The last blocks are those that recovery reads.
        let from = if self.rng.random_ratio(1, 2) {
            written.saturating_sub(8)
        } else {
            0
        };
        let block = self.rng.random_range(from..written);
        let byte = self.rng.random_range(0..BLOCK_SIZE);
        self.rotten = device.corrupt(zone, block, byte, 1 << self.rng.random_range(0..8));
        self.trail
            .push(format!("byte {byte} of block {zone}:{block} is damaged"));
        self.statistics.recoveries.one("one of two copies damaged");
    }

    /// Recovers on a device on which a command fails, and gives up: whatever came of it, the next
    /// recovery, all being well again, comes to a state that the crash may leave.
    fn fail_in_recovery(&mut self, device: &Arc<SimDevice>) -> Result<(), case::Fault> {
        let failure = fault(&mut self.rng, &FAILING_IN_RECOVERY);
        self.trail
            .push(format!("recovery on a device with {failure:?}"));
        device.inject(failure.clone());
        let mounted = self.mount(device, Phase::Recovery);
        let came = match (device.has_failed(), &mounted) {
            (false, Ok(_)) => "did not come",
            (false, Err(_)) => return mounted.map(drop),
            (true, Ok(_)) => "was overcome",
            (true, Err(_)) => "ended it",
        };
        let target = format!("{:?}", failure.target).to_lowercase();
        let path = format!("failing {target} in recovery {came}");
        self.statistics.recoveries.one(path);
        drop(mounted);
        device.heal();
        Ok(())
    }

    /// Cuts the power at a moment of the recovery. Nobody has seen yet what it came to, so the next
    /// one may come to another state, as long as it is one that the first crash may leave.
    fn crash_in_recovery(
        &mut self,
        device: &Arc<SimDevice>,
        states: &[Arc<Tree>],
        depth: u32,
    ) -> Result<(), case::Fault> {
        let snapshots = device.take_snapshots();
        if snapshots.is_empty() {
            return Ok(());
        }
        let pick = self.rng.random_range(0..snapshots.len());
        if let Some(snapshot) = snapshots.get(pick) {
            self.statistics.recovery_crashes += 1;
            self.crashes_in_recovery += 1;
            let in_a_row = match self.crashes_in_recovery {
                1 => "crash in recovery",
                2 => "crash in recovery from a crash in recovery",
                _ => "crash in recovery, three in a row or more",
            };
            self.statistics.recoveries.one(in_a_row);
            let crashed = self.crash(snapshot, states, depth + 1);
            self.crashes_in_recovery -= 1;
            crashed.map_err(|(phase, why)| (phase, format!("after a crash in recovery: {why}")))?;
        }
        Ok(())
    }

    /// Works with what was recovered, and compares again: as it is, after another crash, after a
    /// clean unmount.
    fn go_on(
        &mut self,
        device: &Arc<SimDevice>,
        subject: S::Subject,
        found: &Observed,
        depth: u32,
    ) -> Result<(), case::Fault> {
        self.statistics.continued += 1;
        let before = std::mem::take(&mut self.crashes_in_recovery);
        let worked = self.work_on(device, subject, found, depth);
        self.crashes_in_recovery = before;
        worked.map_err(|(phase, why)| (phase, format!("after a recovery: {why}")))
    }

    fn work_on(
        &mut self,
        device: &Arc<SimDevice>,
        subject: S::Subject,
        found: &Observed,
        depth: u32,
    ) -> Result<(), case::Fault> {
        let is_whole = subject.stores_whole_blocks();
        let mut model = Model::new(found.to_tree()).of_whole_blocks(is_whole);
        let generator = self.plan.generator(self.rng.random());
        let source = Source::Generated(Box::new(generator), GO_ON_OPS);
        device.record_snapshots(if depth + 1 < DEPTH_MAX {
            GO_ON_CRASH_ONE_IN
        } else {
            0
        });
        let worked = self.work(device, subject, &mut model, source, depth + 1)?;
        let Some(mut subject) = worked else {
            return Ok(());
        };
        device.record_snapshots(0);
        drop(device.take_snapshots());
        self.compare_live(&mut subject, &model)?;
        self.numbers_given = subject.next_number();
        self.crash(&device.snapshot(), &model.admissible(), depth + 1)?;
        subject.close().map_err(|why| (Phase::Live, why))?;
        let mut subject = self.mount(device, Phase::Live)?;
        let found = observe(&mut subject)?;
        compare_exactly(&found, model.now()).map_err(|why| (Phase::Live, why))
    }
}

fn observe(subject: &mut impl Subject) -> Result<Observed, case::Fault> {
    subject
        .observe()
        .map_err(|error| (Phase::Recovery, format!("reading: {error}")))
}
