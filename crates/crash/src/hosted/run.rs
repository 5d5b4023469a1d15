//! One run: clients at work, a crash, what is left used on; again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_sync::thread;
use rand::Rng;

use super::host::LossyHost;
use super::plan::Plan;
use super::recover::{Crashes, InUse, check, format, mount, observe, rng_of, watched};
use super::watch::Moment;
use crate::filesystem::Mounted;
use crate::harness::{Failures, Subject, compare_exactly};
use crate::model::{Model, Observed};
use crate::threads::client::{Client, Shared};
use crate::workload::{Generator, Op};
use persimmon_sim::medium::Medium;

/// Calls to the host after which the power goes in a round that is cut, at most.
const CUT_CALLS_MAX: u64 = 600;
/// Seeds of generators, whose content goes by them, are that far from each other.
const SEEDS: u64 = 64;

/// What runs covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations that returned.
    pub ops: u64,
    /// Crashes that were gone on from.
    pub rounds: u64,
    /// Moments at which the power was cut.
    pub moments: u64,
    /// Crash states recovered from.
    pub states: u64,
    /// Recoveries that were cut themselves.
    pub recovery_cuts: u64,
    /// States that the inspector looked at.
    pub checks: u64,
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.ops += other.ops;
        self.rounds += other.rounds;
        self.moments += other.moments;
        self.states += other.states;
        self.recovery_cuts += other.recovery_cuts;
        self.checks += other.checks;
    }
}

/// Why a run failed.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong.
    pub why: String,
    /// The image as it was before the mount that showed it; empty where it was not a mount.
    pub image: Vec<u8>,
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure {
            why,
            image: Vec::new(),
        }
    }
}

/// Runs a plan.
///
/// # Errors
/// What is wrong.
pub fn run(plan: &Plan) -> Result<Tally, Failure> {
    run_from(plan, || ())
}

/// The same; `made` is called once there is a volume, before anything is done with it: mistakes begin there.
///
/// # Errors
/// What is wrong.
pub fn run_from(plan: &Plan, made: impl FnOnce()) -> Result<Tally, Failure> {
    let homes: Vec<String> = (0..plan.mixes.len())
        .map(|number| format!("/client-{number}"))
        .collect();
    let mut tally = Tally::default();
    let (mut medium, mut found) = begin(&plan.without_mistake(), &homes)?;
    made();
    for round in 0..plan.rounds {
        (medium, found) =
            one_round(plan, &homes, round, (medium, &found), &mut tally).map_err(|failure| {
                Failure {
                    why: format!("round {round}: {}", failure.why),
                    ..failure
                }
            })?;
        tally.rounds += 1;
    }
    Ok(tally)
}

/// Makes a volume with a directory for each client, durable.
fn begin(plan: &Plan, homes: &[String]) -> Result<(Medium, Vec<Observed>), String> {
    let host = LossyHost::new(format(plan)?, plan.host, None);
    let InUse {
        filesystem,
        mut mounted,
        host,
    } = mount(plan, &host)?;
    for path in homes {
        let path = path.clone();
        let made = mounted.apply(&Op::Mkdir { path, mode: 0o755 }, 0);
        made.map_err(|refusal| refusal.message)?;
    }
    let found = observe(&mounted, homes)?;
    drop(mounted);
    filesystem.close().map_err(|error| error.to_string())?;
    Ok((host.medium(), found))
}

/// Lets the clients work on a medium, crashes at moments of that, and answers what one of the crashes left.
fn one_round(
    plan: &Plan,
    homes: &[String],
    round: usize,
    (medium, found): (Medium, &[Observed]),
    tally: &mut Tally,
) -> Result<(Medium, Vec<Observed>), Failure> {
    let mut rng = rng_of(plan, round);
    let models: Vec<Model> = found.iter().map(|f| Model::new(f.to_tree())).collect();
    let clients: Vec<Arc<Shared>> = models.iter().map(|m| Arc::new(Shared::new(m))).collect();
    let before = medium.bytes();
    let (host, watch) = watched(plan, medium, &clients, &mut rng);
    let unmountable = |why: String| Failure {
        why: format!("going on: {why}"),
        image: before.clone(),
    };
    let InUse {
        filesystem,
        mut mounted,
        host,
    } = mount(plan, &host).map_err(unmountable)?;
    let is_cut = rng.random_range(0..100) < plan.cut_percent;
    if is_cut {
        host.cut_after(rng.random_range(0..CUT_CALLS_MAX));
    }
    let models = work(plan, round, homes, &mounted, &host, (models, &clients));
    if let Some(bug) = mounted.volume().standing().bug() {
        return Err(bug.to_string().into());
    }
    let models = models?;
    let mut moments = watch.take();
    if !is_cut && rng.random_ratio(1, 2) {
        // A clean end.
        let found = mounted.observe()?;
        drop(mounted);
        filesystem.close().map_err(|error| error.to_string())?;
        moments.push(watch.now(&host));
        end(plan, homes, &host.medium(), &found, &models)?;
    } else {
        // Some crash while they work, some when all is quiet.
        drop(mounted);
        filesystem.abandon();
        moments.push(watch.now(&host));
    }
    let done = clients
        .iter()
        .map(|c| c.ended.load(Ordering::SeqCst) as u64);
    tally.ops += done.sum::<u64>();
    crash_all(plan, homes, &clients, &moments, rng, tally)
}

/// Crashes at all moments; the last state is gone on from.
fn crash_all(
    plan: &Plan,
    homes: &[String],
    clients: &[Arc<Shared>],
    moments: &[Moment],
    rng: rand_chacha::ChaCha8Rng,
    tally: &mut Tally,
) -> Result<(Medium, Vec<Observed>), Failure> {
    let mut crashes = Crashes {
        plan,
        homes,
        clients,
        rng,
        tally: *tally,
        calls: 8,
    };
    let mut last = None;
    for moment in moments {
        crashes.tally.moments += 1;
        for _ in 0..plan.states_per_moment {
            last = Some(crashes.crash(moment)?);
        }
    }
    *tally = crashes.tally;
    let left = last.ok_or_else(|| "no moment was kept".to_owned())?;
    Ok((left.medium, left.found))
}

/// Each client in a thread. Answers what those see that came to their end.
fn work(
    plan: &Plan,
    round: usize,
    homes: &[String],
    mounted: &Mounted,
    host: &Arc<LossyHost>,
    (models, clients): (Vec<Model>, &[Arc<Shared>]),
) -> Result<Vec<Option<Model>>, String> {
    let stamps = Arc::new(AtomicU64::new(1));
    let synced = Arc::new(AtomicU64::new(0));
    let mut working = Vec::new();
    for (number, ((model, shared), home)) in models.into_iter().zip(clients).zip(homes).enumerate()
    {
        let seed = (plan.seed * SEEDS + round as u64).wrapping_mul(SEEDS) + number as u64;
        let mix = plan.mixes.get(number).copied();
        let mix = mix.unwrap_or(crate::workload::Mix::Even);
        let mut client = Client {
            mounted: mounted.within(home)?,
            device: Arc::clone(host) as Arc<dyn Failures>,
            model,
            generator: Generator::new(seed, mix, plan.bytes_max),
            ops: plan.ops,
            shared: Arc::clone(shared),
            stamps: Arc::clone(&stamps),
            synced: Arc::clone(&synced),
            last_ended: 0,
        };
        working.push(thread::spawn(move || {
            let worked = client.work();
            let through = worked.map_err(|why| format!("client {number}: {why}"))?;
            Ok::<_, String>(through.then_some(client.model))
        }));
    }
    let came: Vec<_> = working.into_iter().map(thread::JoinHandle::join).collect();
    let came = came.into_iter();
    came.map(|came| came.map_err(|_| "a client panicked".to_owned())?)
        .collect()
}

/// After a clean end all is there.
fn end(
    plan: &Plan,
    homes: &[String],
    medium: &Medium,
    found: &Observed,
    models: &[Option<Model>],
) -> Result<(), Failure> {
    let ended = |why: String| Failure {
        why: format!("after a clean end: {why}"),
        image: medium.bytes(),
    };
    check(plan, medium).map_err(ended)?;
    let host = LossyHost::new(medium.clone(), plan.host, None);
    let mut again = mount(plan, &host).map_err(ended)?;
    compare_exactly(&again.mounted.observe().map_err(ended)?, &found.to_tree()).map_err(ended)?;
    let seen = observe(&again.mounted, homes).map_err(ended)?;
    for (model, seen) in models.iter().zip(&seen) {
        if let Some(model) = model {
            compare_exactly(seen, model.now()).map_err(ended)?;
        }
    }
    Ok(())
}
