//! A measurement from its beginning to its end.

use std::time::Duration;

use super::course::{Course, Looks};
use super::drive::Drive;
use super::report::{Report, Spread, Usage, Written};
use super::{MeasureError, Plan, timed};
use crate::load::{Load, Popularity};
use crate::placement::uniform_bound;

/// Written before the fill is made exact, in volumes of live data: by then zones of metadata and
/// of the log are as many as they will be.
const SETTLE_VOLUMES: f64 = 0.5;
/// First fill as a share of the one asked for.
const FIRST_FILL: f64 = 0.9;
/// Looks at the zones in each part of the writing, of which what is measured is one.
const LOOKS: u64 = 64;
/// Blocks written between two calls of the caller's `progress`.
const PROGRESS_BYTES: u64 = 16 << 20;

/// Carries out a plan. `progress` is told what share of the bytes to write was written.
///
/// # Errors
/// When the volume is too small for the fill, or breaks.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(f64)) -> Result<Report, MeasureError> {
    if !(0.05..=0.99).contains(&plan.fill) {
        return Err(MeasureError::Plan(
            "the fill is between 0.05 and 0.99".into(),
        ));
    }
    let mut drive = Drive::new(plan)?;
    let capacity = drive.usage().capacity;
    let target = (capacity * plan.fill * FIRST_FILL) as u64;
    drive.fill(plan, target)?;
    let volumes = plan.warm_up_volumes + plan.volumes;
    let total = volumes * capacity * plan.fill * 4096.0;
    let mut looks = Looks::default();
    let mut warm_up = Writing {
        plan,
        total,
        looks: &mut looks,
    };
    let settle = SETTLE_VOLUMES.min(plan.warm_up_volumes);
    let settled = warm_up.write(&mut drive, settle * target as f64, progress)?;
    let target = (settled.capacity * plan.fill) as u64;
    drive.fill(plan, target)?;
    let left = plan.warm_up_volumes - settle;
    warm_up.write(&mut drive, left * target as f64, progress)?;

    let before = drive.volume.statistics();
    let written_before = drive.written_blocks;
    let mut latencies = timed::Measured::default();
    let usage = match &plan.pace {
        None => warm_up.write(&mut drive, plan.volumes * target as f64, progress)?,
        Some(pace) => {
            looks = Looks::default();
            latencies = timed::run(&drive, plan, pace, &mut looks)?;
            looks.usage()
        }
    };
    let statistics = drive.volume.statistics().since(&before);
    let fill = usage.live / usage.capacity;
    let written = (drive.written_blocks - written_before) as f64 * 4096.0;
    let raw = f64::from(plan.zones) * f64::from(plan.zone_blocks);
    let timed = plan.pace.is_some();
    let resets = drive.device.zone_resets();
    let course = Course {
        looks: looks.into_vec(),
        timed,
        measured_from_bytes: before.user_bytes,
        volume_bytes: target * 4096,
        zones: drive.volume.zones(),
        resets: resets.clone(),
        reads: latencies.reads.clone().curve(),
        writes: latencies.writes.clone().curve(),
        syncs: latencies.syncs.clone().curve(),
    };
    Ok(Report {
        load: plan.load.to_string(),
        zones: plan.zones,
        zone_blocks: plan.zone_blocks,
        fill,
        fill_raw: usage.live / raw,
        write_amplification: statistics.write_amplification(),
        uniform_bound: (plan.load == Load::Overwrite(Popularity::Uniform))
            .then(|| uniform_bound(fill)),
        user_bytes: statistics.user_bytes,
        absorbed: (!timed && written > 0.0)
            .then(|| (1.0 - statistics.user_bytes as f64 / written).max(0.0)),
        written: Written::new(&statistics),
        cleaning_foreground: statistics.cleaning_foreground,
        cleaning_background: statistics.cleaning_background,
        blocks_moved: statistics.blocks_moved,
        stalls: statistics.stalls,
        checkpoints: statistics.checkpoints,
        zone_checkpoints: statistics.zone_checkpoints,
        usage,
        resets: Spread::of(&resets),
        reads: timed.then(|| latencies.reads.percentiles()),
        writes: timed.then(|| latencies.writes.percentiles()),
        syncs: timed.then(|| latencies.syncs.percentiles()),
        course,
    })
}

struct Writing<'a> {
    plan: &'a Plan,
    /// Bytes written by the whole plan.
    total: f64,
    looks: &'a mut Looks,
}

impl Writing<'_> {
    /// Carries out operations until so many blocks were flushed. Answers what the zones were used for
    /// meanwhile.
    fn write(
        &mut self,
        drive: &mut Drive,
        blocks: f64,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Usage, MeasureError> {
        let begin = drive.volume.statistics().user_bytes;
        let end = begin + (blocks * 4096.0) as u64;
        let look_bytes = ((end - begin) / LOOKS).max(1);
        let (mut looks, mut usage) = (0, Usage::default());
        let (mut next_look, mut next_progress) = (begin, begin);
        loop {
            let now = drive.volume.statistics().user_bytes;
            if now >= next_look || now >= end {
                looks += 1;
                let look = drive.look(Duration::ZERO);
                usage.add(&look.usage);
                self.looks.add(|| look);
                next_look = now + look_bytes;
            }
            if now >= next_progress {
                progress((now as f64 / self.total).min(1.0));
                next_progress = now + PROGRESS_BYTES;
            }
            if now >= end {
                return Ok(usage.over(looks));
            }
            // Counting is not free: not after each block.
            let operations = match self.plan.load {
                Load::Overwrite(_) => 64,
                Load::Files(_) | Load::Pieces | Load::Replay(_) => 1,
            };
            for _ in 0..operations {
                drive.operate()?;
            }
        }
    }
}
