//! SIGKILL to the daemon under concurrent synced writers: what was acknowledged is there afterwards.

mod workers;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::posix::expect::Noise;
use crate::scenario::{Ground, Scenario};
use crate::volume::Kind;
use workers::Worker;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "kill::fifty_rounds_lose_nothing_acknowledged",
        run: fifty_rounds_lose_nothing_acknowledged,
        limit_seconds: 400,
        only_persimmon: false,
    },
    Scenario {
        name: "kill::a_volume_full_of_dead_zones_survives",
        run: a_volume_full_of_dead_zones_survives,
        limit_seconds: 200,
        only_persimmon: false,
    },
];

fn fifty_rounds_lose_nothing_acknowledged(ground: &Ground) -> Result<()> {
    rounds(ground, "kill", 2 << 30, 50, &[])
}

/// So small a volume that cleaning runs while the daemon is killed.
fn a_volume_full_of_dead_zones_survives(ground: &Ground) -> Result<()> {
    rounds(ground, "kill-small", 160 << 20, 15, &["--zone-size", "2M"])
}

fn rounds(ground: &Ground, name: &str, bytes: u64, rounds: u32, mkfs: &[&str]) -> Result<()> {
    let mut volume = ground.volume(name, bytes, mkfs)?;
    let mut workers = workers::all();
    let mut dice = Noise(42);
    for round in 0..rounds {
        volume.mount_foreground(&[])?;
        verify(&mut workers, &volume.dir).with_context(|| format!("after kill {round}"))?;
        let killed = AtomicBool::new(false);
        let dir = volume.dir.clone();
        std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    let (dir, killed) = (&dir, &killed);
                    scope.spawn(move || work(worker.as_mut(), dir, killed))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100 + dice.below(300)));
            killed.store(true, Ordering::SeqCst);
            let mut results = Vec::new();
            if volume.kind == Kind::Ext4 {
                // There is no daemon: the workers stop by themselves.
                results.extend(threads.into_iter().map(|thread| thread.join()));
                volume.kill()?;
            } else {
                volume.kill()?;
                results.extend(threads.into_iter().map(|thread| thread.join()));
            }
            for result in results {
                result.map_err(|_| anyhow!("a worker panicked"))??;
            }
            anyhow::Ok(())
        })
        .with_context(|| format!("in round {round}"))?;
        volume
            .fsck()
            .with_context(|| format!("fsck after kill {round}"))?;
    }
    volume.mount(&[])?;
    verify(&mut workers, &volume.dir).context("after the last kill")?;
    drop(workers); // One holds a file open.
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn verify(workers: &mut [Box<dyn Worker>], dir: &Path) -> Result<()> {
    for worker in workers {
        let name = worker.name();
        std::fs::create_dir_all(dir.join(name))?;
        worker
            .verify(&dir.join(name))
            .with_context(|| format!("worker {name}"))?;
    }
    Ok(())
}

/// Steps until the daemon is killed. An error before that is one of the filesystem.
fn work(worker: &mut dyn Worker, dir: &Path, killed: &AtomicBool) -> Result<()> {
    let name = worker.name();
    while !killed.load(Ordering::SeqCst) {
        if let Err(error) = worker.step(&dir.join(name)) {
            if killed.load(Ordering::SeqCst) {
                return Ok(());
            }
            bail!("worker {name} while the daemon was alive: {error:#}");
        }
    }
    Ok(())
}
