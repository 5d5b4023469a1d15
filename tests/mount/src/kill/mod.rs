//! SIGKILL to the daemon under concurrent synced writers: what was acknowledged is there afterwards.

mod workers;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::posix::expect::Noise;
use crate::scenario::{Scenario, TestBed};
use crate::volume::Kind;
use workers::Worker;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "kill::two_hundred_rounds_lose_nothing_acknowledged",
        run: two_hundred_rounds_lose_nothing_acknowledged,
        limit_seconds: 1500,
        only_persimmon: false,
    },
    Scenario {
        name: "kill::a_volume_full_of_reclaimable_zones_survives",
        run: a_volume_full_of_reclaimable_zones_survives,
        limit_seconds: 200,
        only_persimmon: false,
    },
];

fn two_hundred_rounds_lose_nothing_acknowledged(bed: &TestBed) -> Result<()> {
    rounds(bed, "kill", 2 << 30, 200, &[])
}

/// So small a volume that cleaning runs while the daemon is killed.
fn a_volume_full_of_reclaimable_zones_survives(bed: &TestBed) -> Result<()> {
    rounds(bed, "kill-small", 96 << 20, 40, &["--zone-size", "2M"])
}

/// Mount options of a round: mostly none.
fn options(kind: Kind, round: u32) -> &'static [&'static str] {
    match (kind, round % 8) {
        (Kind::Persimmon, 2) => &["fsync=strict"],
        (Kind::Persimmon, 4) => &["writeback_cache"],
        (Kind::Persimmon, 6) => &["barrier=on"],
        _ => &[],
    }
}

fn rounds(bed: &TestBed, name: &str, bytes: u64, rounds: u32, mkfs: &[&str]) -> Result<()> {
    let mut volume = bed.volume(name, bytes, mkfs)?;
    let mut workers = workers::all();
    let mut steps = vec![0; workers.len()];
    let mut dice = Noise(42);
    for round in 0..rounds {
        volume.mount_foreground(options(volume.kind, round))?;
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
            std::thread::sleep(Duration::from_millis(40 + dice.below(120)));
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
            for (result, steps) in results.into_iter().zip(&mut steps) {
                *steps += result.map_err(|_| anyhow!("a worker panicked"))??;
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
    let mut told = Vec::new();
    for (worker, steps) in workers.iter().zip(steps) {
        ensure!(steps > 0, "{} never got anything done", worker.name());
        told.push(format!("{} {steps}", worker.name()));
    }
    println!("      {rounds} kills; steps: {}", told.join(", "));
    workers.iter_mut().for_each(|worker| worker.let_go());
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// Lets all workers at once see what is left.
fn verify(workers: &mut [Box<dyn Worker>], dir: &Path) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let name = worker.name();
                let dir = dir.join(name);
                let verify = move || {
                    std::fs::create_dir_all(&dir)?;
                    worker.verify(&dir)
                };
                (name, scope.spawn(verify))
            })
            .collect();
        for (name, thread) in threads {
            let verified = thread.join().map_err(|_| anyhow!("it panicked"));
            verified
                .and_then(|verified| verified)
                .with_context(|| format!("worker {name}"))?;
        }
        Ok(())
    })
}

/// Steps until the daemon is killed, and how many. An error before that is one of the filesystem.
fn work(worker: &mut dyn Worker, dir: &Path, killed: &AtomicBool) -> Result<u64> {
    let name = worker.name();
    let mut steps = 0;
    while !killed.load(Ordering::SeqCst) {
        if let Err(error) = worker.step(&dir.join(name)) {
            if killed.load(Ordering::SeqCst) {
                break;
            }
            bail!("worker {name} while the daemon was alive: {error:#}");
        }
        steps += 1;
    }
    worker.let_go();
    Ok(steps)
}
