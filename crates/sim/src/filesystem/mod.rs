//! Persimmon itself under the harness: engine and vfs without threads, the clock of the workload,
//! and the inspector.

mod mounted;
mod observe;

pub use mounted::Mounted;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_device::ZonedDevice;
use persimmon_engine::{FormatOptions, RecoveryReport, Volume};
use persimmon_inspect::finding::{DATA_LOST, ZONE_STATE};
use persimmon_inspect::{CheckOptions, Finding, Severity};
use persimmon_vfs::{AccessTimes, Clock, Timestamp, Vfs};

use crate::device::SimDevice;
use crate::harness::System;

/// Makes, mounts and checks Persimmon volumes.
pub struct Filesystem;

impl System for Filesystem {
    type Subject = Mounted;

    fn format(&self, device: &Arc<SimDevice>, copies: u32) -> Result<(), String> {
        let options = FormatOptions {
            uuid: *b"simulated volume",
            secret: [0x5a; 32],
            copies,
            ..FormatOptions::default()
        };
        let device: Arc<dyn ZonedDevice> = Arc::clone(device) as _;
        Volume::format(device, &options).map_err(|error| error.to_string())
    }

    fn outlives_zones(&self) -> bool {
        true
    }

    fn mount(&self, device: &Arc<SimDevice>) -> Result<Mounted, String> {
        let options = options(device.config().seed);
        let (volume, report) = Volume::open(Arc::clone(device) as _, options)
            .map_err(|error| format!("{error} ({error:?})"))?;
        let volume = Arc::new(volume);
        let orphans = volume.orphans().map_err(|error| error.to_string())?;
        let clock = Arc::new(WorkloadClock::default());
        let options = persimmon_vfs::Options {
            access_times: AccessTimes::Never,
            ..persimmon_vfs::Options::default()
        };
        let vfs = Vfs::new(Arc::clone(&volume), Arc::clone(&clock) as _, options);
        let reclaimed = vfs.reclaim_orphans(&orphans);
        reclaimed.map_err(|error| format!("reclaiming unlinked files: {error}"))?;
        let paths = recovery_paths(&report, orphans.len());
        Ok(Mounted::new(vfs, clock, paths))
    }

    fn check(&self, device: &Arc<SimDevice>) -> Result<(), String> {
        let options = CheckOptions {
            data: true,
            findings_max: 1000,
        };
        let report = persimmon_inspect::check(device.as_ref(), &options, &mut |_| {})
            .map_err(|error| error.to_string())?;
        // What a zone that is offline held of files is lost, and to be told.
        let excused: &[u16] = match device.has_offline_zones() {
            true => &[ZONE_STATE.number, DATA_LOST.number],
            false => &[],
        };
        let is_wrong = |f: &&Finding| f.severity == Severity::Error && !excused.contains(&f.number);
        let wrong = report.findings.iter().filter(is_wrong);
        let findings: Vec<String> = wrong.take(20).map(ToString::to_string).collect();
        if findings.is_empty() {
            return Ok(());
        }
        Err(findings.join("\n  "))
    }
}

/// What recovery met, in words for a table.
fn recovery_paths(report: &RecoveryReport, orphans: usize) -> Vec<&'static str> {
    let replayed = match report.records_replayed {
        0 => "0 records replayed",
        1 => "1 record replayed",
        2..=9 => "2 to 9 records replayed",
        10..=99 => "10 to 99 records replayed",
        _ => "100 records replayed or more",
    };
    let met = [
        (report.clean, "clean end"),
        (report.tail_cut, "tail cut"),
        (report.new_epoch, "epoch voided"),
        (report.older_footer, "older footer taken"),
        (report.log_blocks_bad > 0, "bad log blocks"),
        (report.headers_rescued > 0, "log header rescued"),
        (report.zones_reset > 0, "stale zones reset"),
        (report.copies_uneven, "copies uneven"),
        (report.zones_failed > 0, "failed zones in use"),
        (orphans > 0, "unlinked files reclaimed"),
    ];
    let met = met.into_iter().filter_map(|(is, path)| is.then_some(path));
    met.chain([replayed]).collect()
}

/// Bounds so small that they are reached: how small goes by the seed.
fn options(seed: u64) -> persimmon_engine::Options {
    let small = |of: u64| 1usize << (seed / of % 4);
    persimmon_engine::Options {
        cache_bytes_max: (64 << 10) * small(1),
        staging_bytes_max: (128 << 10) * small(4),
        journal_bytes_max: (128 << 10) * small(16) as u64,
        dirty_pages_max: 16 * small(64),
        ..persimmon_engine::Options::default()
    }
}

/// Stands still between operations.
#[derive(Default)]
struct WorkloadClock(AtomicU64);

impl WorkloadClock {
    fn set(&self, nanoseconds: u64) {
        self.0.store(nanoseconds, Ordering::Relaxed);
    }
}

impl Clock for WorkloadClock {
    fn now(&self) -> Timestamp {
        timestamp(self.0.load(Ordering::Relaxed))
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

fn timestamp(nanoseconds: u64) -> Timestamp {
    Timestamp {
        seconds: (nanoseconds / NANOSECONDS) as i64,
        nanoseconds: (nanoseconds % NANOSECONDS) as u32,
    }
}

fn nanoseconds(time: Timestamp) -> u64 {
    time.seconds as u64 * NANOSECONDS + u64::from(time.nanoseconds)
}
