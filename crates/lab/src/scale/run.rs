//! A run: fill, mount, change, unmount, mount, change, crash, mount.

use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Progress, RecoveryReport, Task, Volume};
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::report::Before;
use super::volume::{self, Subject};
use super::{Cost, Meter, Plan, Report};
use crate::chores::background;
use crate::measure::MeasureError;
use persimmon_sim::device::pattern;

/// Looks whether something is to be done, for the mean.
const LOOKS: u32 = 1000;
/// Blocks read back.
const VERIFIED: u32 = 100;

/// Runs a plan.
///
/// # Errors
/// The volume cannot be made or fails, or a block is not what was written.
pub fn run(
    plan: &Plan,
    meter: &dyn Meter,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report, MeasureError> {
    let seconds = meter.worked();
    let mut subject = volume::fill(plan, progress)?;
    let filling = Cost {
        worked_ms: meter.worked().saturating_sub(seconds).as_secs_f64() * 1000.0,
        ..Cost::default()
    };
    let (volume, mount, told) = open(&subject, plan, meter)?;
    let space = volume.space();
    let zones = volume.zones();
    let metadata = zones.iter().filter(|z| z.entry.role == Role::Metadata);
    let metadata_blocks: u64 = metadata.map(|z| u64::from(z.entry.valid)).sum();
    drop(zones);
    let looked = meter.worked();
    for _ in 0..LOOKS {
        for task in [Task::CleanIfDue, Task::FreeIfDue, Task::Reset] {
            if volume.step(task)? != Progress::Idle {
                let why = "there was something to clean on a volume just filled";
                return Err(MeasureError::Plan(why.to_owned()));
            }
        }
    }
    let looked = meter.worked().saturating_sub(looked).as_secs_f64() * 1e6 / f64::from(LOOKS);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    verify(&subject, &volume, &mut rng)?;
    let before = Before::of(&subject.device, meter);
    change(&mut subject, &volume, plan, &mut rng)?;
    let changing = before.cost(&subject.device, meter);
    let before = Before::of(&subject.device, meter);
    volume.close()?;
    let unmount = before.cost(&subject.device, meter);
    drop(volume);
    let (volume, mount_again, _) = open(&subject, plan, meter)?;
    change(&mut subject, &volume, plan, &mut rng)?;
    drop(volume);
    let (volume, mount_after_crash, recovered) = open(&subject, plan, meter)?;
    verify(&subject, &volume, &mut rng)?;
    Ok(Report {
        device_bytes: u64::from(plan.zones) * u64::from(plan.zone_capacity) * BLOCK_SIZE as u64,
        zones: plan.zones,
        total_bytes: space.total_bytes,
        used_bytes: space.total_bytes.saturating_sub(space.available_bytes),
        files: subject.files.len() as u64,
        metadata_bytes: metadata_blocks * BLOCK_SIZE as u64,
        mat_chunks: told.mat_chunks,
        zit_chunks: told.zit_chunks,
        filling,
        mount,
        idle_look_us: looked,
        changes: plan.changes,
        changing,
        unmount,
        mount_again,
        mount_after_crash,
        records_replayed: recovered.records_replayed,
        blocks_verified: 2 * VERIFIED,
    })
}

fn open(
    subject: &Subject,
    plan: &Plan,
    meter: &dyn Meter,
) -> Result<(Volume, Cost, RecoveryReport), MeasureError> {
    let before = Before::of(&subject.device, meter);
    persimmon_engine::invariant::panic_on_bugs();
    let opened = Volume::open(Arc::clone(&subject.device) as _, plan.options.clone());
    let (volume, told) = opened?;
    Ok((volume, before.cost(&subject.device, meter), told))
}

/// Any block of the first half of a file: the other half is overwritten.
fn verify(subject: &Subject, volume: &Volume, rng: &mut ChaCha8Rng) -> Result<(), MeasureError> {
    for _ in 0..VERIFIED {
        let file = rng.random_range(0..subject.files.len());
        let block = rng.random_range(0..(subject.file_blocks / 2).max(1));
        let mut read = vec![0; BLOCK_SIZE];
        volume.read(subject.files[file], block * BLOCK_SIZE as u64, &mut read)?;
        if read[..] != subject.content(file, block)[..] {
            let why = format!("block {block} of file {file} is not what was written");
            return Err(MeasureError::Plan(why));
        }
    }
    Ok(())
}

/// Overwrites blocks of the second halves of files.
fn change(
    subject: &mut Subject,
    volume: &Volume,
    plan: &Plan,
    rng: &mut ChaCha8Rng,
) -> Result<(), MeasureError> {
    let mut bytes = vec![0; BLOCK_SIZE];
    for _ in 0..plan.changes {
        let ino = subject.files[rng.random_range(0..subject.files.len())];
        let block = rng.random_range(subject.file_blocks / 2..subject.file_blocks);
        pattern::fill(&mut bytes, rng.random());
        volume.write(ino, block * BLOCK_SIZE as u64, &bytes, Timestamp::default())?;
        volume.sync_file(ino)?;
        background(volume)?;
    }
    Ok(())
}
