//! One run: threads, moments, and what is left of each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use persimmon_engine::{Error, Task};
use persimmon_sync::thread::{self, JoinHandle};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::client::{Client, Shared};
use super::moment::{Moment, Watched, compare};
use super::plan::Plan;
use crate::device::{Sampled, SimDevice};
use crate::filesystem::{self, Filesystem, Mounted};
use crate::harness::{Subject, System, compare_exactly};
use crate::model::{Model, Observed};
use crate::workload::{Generator, Op};

/// What is done in the background. Most find nothing to do most of the time.
const CHORES: [Task; 9] = [
    Task::WriteBackIfDue,
    Task::WriteBack,
    Task::Commit,
    Task::CheckpointIfDue,
    Task::CleanIfDue,
    Task::FreeIfDue,
    Task::FreeZones,
    Task::Reset,
    Task::GiveBackIfIdle,
];
/// Between two chores of a thread.
const PAUSE: Duration = Duration::from_micros(100);

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
        *result_of_it.lock().unwrap_or_else(PoisonError::into_inner) = Some(came);
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(interleave)]
        super::schedule::scheduled(plan.seed, all);
        #[cfg(not(interleave))]
        all();
    }));
    let came = result.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (ended, came) {
        (Ok(()), Some(came)) => came,
        (Err(panic), _) => Err(crate::harness::panic_message(panic.as_ref())),
        (Ok(()), None) => Err("it did not end".to_owned()),
    }
}

fn attempt(plan: &Plan) -> Result<Tally, String> {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
    let sim = Arc::new(SimDevice::new(plan.config.clone()));
    Filesystem.format(&sim, plan.copies)?;
    let homes: Vec<String> = (0..plan.mixes.len())
        .map(|n| format!("/client-{n}"))
        .collect();
    let models = make_homes(&sim, &homes)?;
    let clients: Vec<Arc<Shared>> = models.iter().map(|m| Arc::new(Shared::new(m))).collect();
    let watched = Arc::new(Watched::new(
        &sim,
        &clients,
        ChaCha8Rng::seed_from_u64(rng.random()),
        plan.moment_one_in,
        plan.moments_max,
    ));
    let mounted = filesystem::mount_on(&sim, Arc::clone(&watched) as _)?;
    let worked = work(plan, &mounted, &homes, models, &clients);
    let moments = watched.take();
    let models = worked?;
    mounted.close()?;
    Filesystem.check(&sim)?;
    let mounted = Filesystem.mount(&sim)?;
    for (model, found) in models.iter().zip(observe(&mounted, &homes)?) {
        if let Some(model) = model {
            compare_exactly(&found, model.now()).map_err(|why| format!("mounted again: {why}"))?;
        }
    }
    let mut tally = Tally::default();
    for shared in &clients {
        tally.ops += shared.ended.load(Ordering::SeqCst) as u64;
    }
    for moment in &moments {
        tally.moments += 1;
        for _ in 0..plan.states_per_moment {
            tally.states += 1;
            let check = rng.random_range(0..100) < plan.check_percent;
            crash(moment, rng.random(), &homes, &clients, check)?;
        }
    }
    Ok(tally)
}

/// Makes a directory for each, durable. Answers what is in it.
fn make_homes(sim: &Arc<SimDevice>, homes: &[String]) -> Result<Vec<Model>, String> {
    let mut mounted = Filesystem.mount(sim)?;
    for home in homes {
        let path = home.clone();
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

/// Lets all threads work until the clients are through. Answers what each one's model came to, if nothing of
/// an operation of its own was left in part.
fn work(
    plan: &Plan,
    mounted: &Mounted,
    homes: &[String],
    models: Vec<Model>,
    clients: &[Arc<Shared>],
) -> Result<Vec<Option<Model>>, String> {
    let stamps = Arc::new(AtomicU64::new(1));
    let at_work = Arc::new(AtomicUsize::new(clients.len()));
    let mut threads: Vec<JoinHandle<Result<Option<Model>, String>>> = Vec::new();
    for (((model, home), shared), (number, mix)) in models
        .into_iter()
        .zip(homes)
        .zip(clients)
        .zip((0u64..).zip(&plan.mixes))
    {
        let seed = plan.seed.wrapping_mul(16).wrapping_add(number);
        let mut client = Client {
            mounted: mounted.within(home)?,
            model,
            generator: Generator::new(seed, *mix, plan.bytes_max),
            ops: plan.ops,
            shared: Arc::clone(shared),
            stamps: Arc::clone(&stamps),
        };
        let at_work = Leaving(Arc::clone(&at_work));
        threads.push(thread::spawn(move || {
            let _leaving = at_work;
            let worked = client.work();
            let whole = worked.map_err(|why| format!("client {number}: {why}"))?;
            Ok(whole.then_some(client.model))
        }));
    }
    let chores: Vec<_> = (0..plan.chores as u64)
        .map(|number| {
            let volume = mounted.volume();
            let at_work = Arc::clone(&at_work);
            let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ number << 48);
            thread::spawn(move || {
                while at_work.load(Ordering::SeqCst) > 0 {
                    let task = CHORES[rng.random_range(0..CHORES.len())];
                    match volume.step(task) {
                        Ok(_) | Err(Error::NoSpace) => thread::sleep(PAUSE),
                        Err(error) => return Err(format!("{task:?}: {error}")),
                    }
                }
                Ok(())
            })
        })
        .collect();
    let ended = |_| "a thread panicked".to_owned();
    let mut models = Vec::new();
    for thread in threads {
        models.push(thread.join().map_err(ended));
    }
    for chore in chores {
        chore.join().map_err(ended)??;
    }
    models.into_iter().map(|model| model?).collect()
}

/// One client less is at work when this goes, whatever became of it.
struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Recovers from one of the states that a power cut may leave, and compares.
fn crash(
    moment: &Moment,
    choice: u64,
    homes: &[String],
    clients: &[Arc<Shared>],
    check: bool,
) -> Result<(), String> {
    let left = Arc::new(moment.snapshot.persisted(&mut Sampled::new(choice)));
    let after = |why: String| {
        let mut told = format!(
            "power cut, state {choice}: {why}\n  device: {}",
            moment.snapshot
        );
        for (client, (shared, (ended, begun))) in clients.iter().zip(&moment.clients).enumerate() {
            told.push_str(&format!(
                "\n  client {client}, {ended} returned, {begun} begun:"
            ));
            told.push_str(&shared.history().told(*ended, *begun));
        }
        told
    };
    let mounted = Filesystem.mount(&left);
    let mounted = mounted.map_err(|why| after(format!("mounting: {why}")))?;
    let found = observe(&mounted, homes).map_err(after)?;
    compare(&found, clients, &moment.clients).map_err(after)?;
    if check {
        mounted.close().map_err(after)?;
        Filesystem.check(&left).map_err(after)?;
    }
    Ok(())
}
