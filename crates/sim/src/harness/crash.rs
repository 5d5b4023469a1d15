//! One crash state: recovered, compared, crashed again, worked with.

use std::sync::Arc;

use rand::Rng;

use super::run::{Fault, Phase, Run, Source, compare_exactly};
use super::system::{Subject, System};
use crate::device::{Sampled, SimDevice, Snapshot};
use crate::model::{Model, Observed, Tree};
use crate::workload::Generator;

/// Power cuts in a row.
const DEPTH_MAX: u32 = 3;
/// Operations after a recovery.
const GO_ON_OPS: usize = 12;
/// Of so many of their commands about one is a moment of crash.
const GO_ON_CRASH_ONE_IN: u32 = 6;

impl<S: System> Run<'_, S> {
    /// Makes a crash state of a snapshot and compares what is recovered with `states`.
    pub fn crash(
        &mut self,
        snapshot: &Snapshot,
        states: &[Arc<Tree>],
        depth: u32,
    ) -> Result<(), Fault> {
        let way = self.trail.len();
        self.crash_once(snapshot, states, depth)?;
        self.trail.truncate(way);
        Ok(())
    }

    fn crash_once(
        &mut self,
        snapshot: &Snapshot,
        states: &[Arc<Tree>],
        depth: u32,
    ) -> Result<(), Fault> {
        self.statistics.states += 1;
        let choice: u64 = self.rng.random();
        self.trail.push(format!(
            "power cut, leaving what {choice:#x} chooses of {snapshot}"
        ));
        let device = Arc::new(snapshot.persisted(&mut Sampled::new(choice)));
        device.reseed(choice);
        let checked = self.chance(self.plan.check_percent);
        if checked {
            self.inspect(&device)?;
        }
        let again = depth < DEPTH_MAX && self.chance(self.plan.again_percent);
        device.record_snapshots(if again { 3 } else { 0 });
        let mut subject = self.mount(&device, Phase::Recovery)?;
        device.record_snapshots(0);
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
            self.crash_in_recovery(&device, states, depth)?;
        }
        if checked {
            self.inspect(&Arc::new(device.snapshot().intact()))?;
        }
        if depth < DEPTH_MAX && self.chance(self.plan.go_on_percent) {
            return self.go_on(&device, subject, &found, depth);
        }
        Ok(())
    }

    /// Cuts the power at a moment of the recovery. Nobody has seen yet what it came to, so the next
    /// one may come to another state, as long as it is one that the first crash may leave.
    fn crash_in_recovery(
        &mut self,
        device: &Arc<SimDevice>,
        states: &[Arc<Tree>],
        depth: u32,
    ) -> Result<(), Fault> {
        let snapshots = device.take_snapshots();
        if snapshots.is_empty() {
            return Ok(());
        }
        let pick = self.rng.random_range(0..snapshots.len());
        if let Some(snapshot) = snapshots.get(pick) {
            self.statistics.recovery_crashes += 1;
            let crashed = self.crash(snapshot, states, depth + 1);
            crashed.map_err(|(phase, why)| (phase, format!("after a crash in recovery: {why}")))?;
        }
        Ok(())
    }

    /// Works with what was recovered, and compares again: as it is, after another crash, after a
    /// clean unmount.
    fn go_on(
        &mut self,
        device: &Arc<SimDevice>,
        mut subject: S::Subject,
        found: &Observed,
        depth: u32,
    ) -> Result<(), Fault> {
        self.statistics.continued += 1;
        let mut model = Model::new(found.to_tree());
        let generator = Generator::new(self.rng.random(), self.plan.mix, self.plan.bytes_max);
        let source = Source::Generated(Box::new(generator), GO_ON_OPS);
        let after = |(phase, why)| (phase, format!("after a recovery: {why}"));
        device.record_snapshots(if depth + 1 < DEPTH_MAX {
            GO_ON_CRASH_ONE_IN
        } else {
            0
        });
        let Some(worked) = self
            .work(device, subject, &mut model, source, depth + 1)
            .map_err(after)?
        else {
            return Ok(());
        };
        device.record_snapshots(0);
        drop(device.take_snapshots());
        subject = worked;
        self.compare_live(&mut subject, &model).map_err(after)?;
        self.crash(&device.snapshot(), &model.admissible(), depth + 1)
            .map_err(after)?;
        let closed = subject.close();
        closed.map_err(|why| after((Phase::Live, why)))?;
        let mut subject = self.mount(device, Phase::Live).map_err(after)?;
        let found = observe(&mut subject)?;
        compare_exactly(&found, model.now()).map_err(|why| after((Phase::Live, why)))
    }
}

fn observe(subject: &mut impl Subject) -> Result<Observed, Fault> {
    subject
        .observe()
        .map_err(|error| (Phase::Recovery, format!("reading: {error}")))
}
