//! One run: threads, moments, and what is left of each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use persimmon_sync::host::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::client::Shared;
use super::moment::{Moment, Watched, compare};
use super::plan::Plan;
use super::workers::{Came, work};
use crate::filesystem::{self, Filesystem, Mounted};
use crate::harness::{Subject, System, compare_exactly};
use crate::model::{Model, Observed};
use crate::workload::Op;
use persimmon_sim::device::{Sampled, SimDevice};

/// Where those work whose results nobody knows beforehand.
const SHARED: &str = "/shared";

/// What runs covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that returned.
    pub ops: u64,
    /// Moments at which the power was cut.
    pub moments: u64,
    /// Crash states recovered from.
    pub states: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.ops += other.ops;
        self.moments += other.moments;
        self.states += other.states;
    }
}

/// Runs the plan of a seed.
///
/// Errors: what is wrong.
pub fn run(plan: &Plan) -> Result<Tally, String> {
    let result = Arc::new(Mutex::new(None));
    let (plan_of_it, result_of_it) = (plan.clone(), Arc::clone(&result));
    let all = move || {
        let came = attempt(&plan_of_it);
        *result_of_it.lock() = Some(came);
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(interleave)]
        super::schedule::scheduled(plan.seed, all);
        #[cfg(not(interleave))]
        all();
    }));
    let came = result.lock().take();
    match (ended, came) {
        (Ok(()), Some(came)) => came,
        (Err(panic), _) => Err(crate::harness::panic_message(panic.as_ref())),
        (Ok(()), None) => Err("it did not end".to_owned()),
    }
}

fn attempt(plan: &Plan) -> Result<Tally, String> {
    let sim = Arc::new(SimDevice::new(plan.config.clone()));
    Filesystem.format(&sim, plan.copies)?;
    let homes: Vec<String> = (0..plan.mixes.len())
        .map(|number| format!("/client-{number}"))
        .collect();
    let models = make_homes(&sim, &homes)?;
    let mut run = ThreadsRun {
        plan,
        rng: ChaCha8Rng::seed_from_u64(plan.seed ^ 0x4d4f_4d45_4e54),
        clients: models.iter().map(|m| Arc::new(Shared::new(m))).collect(),
        homes,
        sim,
        tally: Tally::default(),
    };
    let moments = run.work(models)?;
    for shared in &run.clients {
        run.tally.ops += shared.ended.load(Ordering::SeqCst) as u64;
    }
    for moment in &moments {
        run.tally.moments += 1;
        for _ in 0..plan.states_per_moment {
            run.crash(moment)?;
        }
    }
    Ok(run.tally)
}

/// Makes a directory for each, and one for all, durable. Answers what is in those of each.
fn make_homes(sim: &Arc<SimDevice>, homes: &[String]) -> Result<Vec<Model>, String> {
    let mut mounted = Filesystem.mount(sim)?;
    for home in homes.iter().map(String::as_str).chain([SHARED]) {
        let path = home.to_owned();
        let made = mounted.apply(&Op::Mkdir { path, mode: 0o755 }, 0);
        made.map_err(|refusal| refusal.message)?;
    }
    let found = observe(&mounted, homes)?;
    mounted.close()?;
    Ok(found.iter().map(|f| Model::new(f.to_tree())).collect())
}

fn observe(mounted: &Mounted, homes: &[String]) -> Result<Vec<Observed>, String> {
    let all = homes.iter().map(|home| mounted.within(home)?.observe());
    all.collect()
}

/// A run under way.
struct ThreadsRun<'a> {
    plan: &'a Plan,
    rng: ChaCha8Rng,
    sim: Arc<SimDevice>,
    homes: Vec<String>,
    clients: Vec<Arc<Shared>>,
    tally: Tally,
}

impl ThreadsRun<'_> {
    /// Lets everybody work, and compares what there is then. Answers the moments of it.
    fn work(&mut self, models: Vec<Model>) -> Result<Vec<Moment>, String> {
        let watched = Arc::new(Watched::new(
            &self.sim,
            &self.clients,
            ChaCha8Rng::seed_from_u64(self.rng.random()),
            self.plan.moment_one_in,
            self.plan.moments_max,
        ));
        let mounted = filesystem::mount_on(&self.sim, Arc::clone(&watched) as _)?;
        for fault in &self.plan.faults {
            self.sim.inject(fault.clone());
        }
        let shared = mounted.within(SHARED)?;
        let clients = (self.clients.iter().cloned())
            .zip(models)
            .zip(self.homes.iter().map(|home| mounted.within(home)));
        let clients = clients.map(|((shared, model), home)| Ok((shared, model, home?)));
        let clients: Result<Vec<_>, String> = clients.collect();
        let models = work(self.plan, &self.sim, clients?, &shared);
        if let Some(bug) = mounted.volume().standing().bug() {
            return Err(bug.to_string());
        }
        let mut moments = watched.take();
        let models = models?;
        if self.sim.has_failed() {
            moments.push(watched.now());
            return Ok(moments);
        }
        // What has not failed until now does not any more.
        self.sim.heal();
        self.end(mounted, &models)?;
        Ok(moments)
    }

    /// Unmounts and mounts again.
    fn end(&self, mut mounted: Mounted, models: &[Came]) -> Result<(), String> {
        let found = mounted.observe()?;
        mounted.close()?;
        let ended = |why: String| format!("after the end: {why}");
        Filesystem.check(&self.sim).map_err(ended)?;
        let mut mounted = Filesystem.mount(&self.sim).map_err(ended)?;
        let again = mounted.observe().map_err(ended)?;
        compare_exactly(&again, &found.to_tree()).map_err(ended)?;
        for (came, found) in models.iter().zip(observe(&mounted, &self.homes)?) {
            if let Came::Through(model) = came {
                compare_exactly(&found, model.now()).map_err(ended)?;
            }
        }
        Ok(())
    }

    /// Recovers from one of the states that a power cut may leave, and compares.
    fn crash(&mut self, moment: &Moment) -> Result<(), String> {
        self.tally.states += 1;
        let choice = self.rng.random();
        let left = Arc::new(moment.snapshot.persisted(&mut Sampled::new(choice)));
        let check = self.rng.random_range(0..100) < self.plan.check_percent;
        self.recover(moment, &left, check).map_err(|why| {
            let device = &moment.snapshot;
            let mut told = format!("power cut, state {choice}: {why}\n  device: {device}");
            let clients = self.clients.iter().zip(&moment.clients);
            for (client, (shared, (ended, begun))) in clients.enumerate() {
                told.push_str(&format!(
                    "\n  client {client}, {ended} returned, {begun} begun:"
                ));
                told.push_str(&shared.history().told(*ended, *begun));
            }
            told
        })
    }

    fn recover(&self, moment: &Moment, left: &Arc<SimDevice>, check: bool) -> Result<(), String> {
        let mounted = Filesystem.mount(left);
        let mut mounted = mounted.map_err(|why| format!("mounting: {why}"))?;
        let found = observe(&mounted, &self.homes)?;
        compare(&found, &self.clients, &moment.clients)?;
        if check {
            // All of it can be read.
            mounted.observe()?;
            mounted.close()?;
            Filesystem.check(left)?;
        }
        Ok(())
    }
}
