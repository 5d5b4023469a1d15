//! The threads of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use persimmon_engine::{Error, Task, Volume};
use persimmon_sync::thread::{self, JoinHandle};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::client::{Client, Shared};
use super::disturber::Disturber;
use super::plan::Plan;
use crate::filesystem::Mounted;
use crate::harness::has_long_xattrs;
use crate::model::{Model, Tree};
use crate::workload::{Generator, Mix};
use persimmon_sim::device::SimDevice;

/// What is done in the background. Most find nothing to do most of the time.
const CHORES: [Task; 11] = [
    Task::WriteBackIfDue,
    Task::WriteBack,
    Task::Commit,
    Task::CheckpointIfDue,
    Task::Checkpoint,
    Task::Clean,
    Task::CleanIfDue,
    Task::FreeIfDue,
    Task::FreeZones,
    Task::Reset,
    Task::GiveBackIfIdle,
];
/// Between two chores of a thread.
const PAUSE: Duration = Duration::from_micros(100);

/// Seeds of generators, whose content goes by them, are that far from each other.
const SEEDS: u64 = 16;

/// How far a client came.
pub(super) enum Came {
    /// To the end: what it sees is this.
    Through(Model),
    /// To an operation of which a part may be there.
    Broken,
}

type Worker<T> = JoinHandle<Result<T, String>>;

/// Lets all threads work until the clients are through.
///
/// Errors: what is wrong.
pub(super) fn work(
    plan: &Plan,
    device: &Arc<SimDevice>,
    clients: Vec<(Arc<Shared>, Model, Mounted)>,
    shared: &Mounted,
) -> Result<Vec<Came>, String> {
    let at_work = Arc::new(AtomicUsize::new(clients.len()));
    let stamps = Arc::new(AtomicU64::new(1));
    let synced = Arc::new(AtomicU64::new(0));
    let generator = |number: usize, mix: Mix| {
        let seed = plan.seed.wrapping_mul(SEEDS).wrapping_add(number as u64);
        Generator::new(seed, mix, plan.bytes_max)
            .xattrs(plan.xattr_names)
            .long_xattrs(has_long_xattrs(plan.seed))
    };
    let disturbers = (0..plan.disturbers).map(|_| shared.within("/"));
    let disturbers: Vec<Mounted> = disturbers.collect::<Result<_, String>>()?;
    let working = clients.into_iter().zip(&plan.mixes).enumerate();
    let working = working.map(|(number, ((shared, model, mounted), mix))| {
        let mut client = Client {
            mounted,
            device: Arc::clone(device) as _,
            model,
            generator: generator(number, *mix),
            ops: plan.ops,
            shared,
            stamps: Arc::clone(&stamps),
            synced: Arc::clone(&synced),
            last_ended: 0,
        };
        let leaving = Leaving(Arc::clone(&at_work));
        thread::spawn(move || {
            let _leaving = leaving;
            let worked = client.work();
            if worked.map_err(|why| format!("client {number}: {why}"))? {
                Ok(Came::Through(client.model))
            } else {
                Ok(Came::Broken)
            }
        })
    });
    let working: Vec<Worker<Came>> = working.collect();
    let mut beside: Vec<Worker<()>> = Vec::new();
    for (number, mounted) in disturbers.into_iter().enumerate() {
        let mut disturber = Disturber {
            mounted,
            device: Arc::clone(device),
            model: Model::new(Tree::new(0o755, 0)),
            generator: generator(plan.mixes.len() + number, Mix::Even),
            ops: plan.ops,
        };
        beside.push(thread::spawn(move || {
            let worked = disturber.work();
            worked.map_err(|why| format!("disturber {number}: {why}"))
        }));
    }
    for number in 0..plan.chores {
        let (volume, device) = (shared.volume(), Arc::clone(device));
        let at_work = Arc::clone(&at_work);
        let rng = ChaCha8Rng::seed_from_u64(plan.seed ^ (number as u64 + 1) << 48);
        beside.push(thread::spawn(move || {
            chores(&volume, &device, &at_work, rng)
        }));
    }
    let ended = |panic: Box<dyn std::any::Any + Send>| {
        let what = crate::harness::panic_message(panic.as_ref());
        format!("a thread panicked: {what}")
    };
    let came: Vec<_> = working.into_iter().map(JoinHandle::join).collect();
    for thread in beside {
        thread.join().map_err(ended)??;
    }
    came.into_iter().map(|came| came.map_err(ended)?).collect()
}

/// Does what is due as long as a client is at work.
fn chores(
    volume: &Volume,
    device: &SimDevice,
    at_work: &AtomicUsize,
    mut rng: ChaCha8Rng,
) -> Result<(), String> {
    while at_work.load(Ordering::SeqCst) > 0 {
        let task = CHORES[rng.random_range(0..CHORES.len())];
        match volume.step(task) {
            Ok(_) | Err(Error::NoSpace) => thread::sleep(PAUSE),
            Err(_) if device.has_failed() => return Ok(()),
            Err(error) => return Err(format!("{task:?}: {error}")),
        }
    }
    Ok(())
}

/// One client less is at work when this goes, whatever became of it.
struct Leaving(Arc<AtomicUsize>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
