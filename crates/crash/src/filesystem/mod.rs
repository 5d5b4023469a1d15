//! Persimmon itself under the harness: engine and vfs without threads, the clock of the workload,
//! and the inspector.

mod failing;
mod growing;
mod mounted;
mod observe;
mod on_drive;

pub use failing::{failing_zones_test, lost_zones_test};
pub use growing::Growing;
pub use mounted::Mounted;
pub use on_drive::{Tally, Target, model_test, model_test_of};

use std::collections::HashMap;
use std::sync::Arc;

use persimmon_device::{Geometry, Stripes, ZoneId, ZoneInfo, ZonedDevice, striped};
use persimmon_engine::invariant::panic_on_bugs;
use persimmon_engine::{
    Barrier, Dedup, Deltas, FormatOptions, FsyncOrder, Quotas, RecoveryReport, Volume,
};
use persimmon_format::quota::OwnerKind;
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{Compression, SubvolumeId};
use persimmon_inspect::finding::{
    DATA_LOST, DATA_SUMMARY, PAGE_COPY, Rule, ZONE_COPY, ZONE_READ_ONLY, ZONE_ROWS, ZONE_STATE,
};
use persimmon_inspect::{CheckOptions, Finding, Severity};
use persimmon_sync::host::Mutex;
use persimmon_sync::thread::{self, ThreadId};
use persimmon_vfs::{AccessTimes, Clock, Timestamp, Vfs};

use crate::harness::{
    EDITS, LIMITS_FROM, NEAR, OWNERS_FROM, QUOTAS_FROM, REPEATING, Refusal, System,
};
use crate::model::GRACES;
use crate::stripes;
use persimmon_sim::device::{SimConfig, SimDevice};

/// Makes, mounts and checks Persimmon volumes.
pub struct Filesystem;

impl System for Filesystem {
    type Subject = Mounted;

    fn format(&self, device: &Arc<SimDevice>, copies: u32) -> Result<(), String> {
        let seed = device.config().seed;
        let quota = counts_owners(seed) && !gets_quota_later(seed);
        format_volume(stripes::on(device, true)?, copies, quota)?;
        match has_soft_limits(seed) && quota {
            true => set_graces(stripes::on(device, true)?, options(device.config())),
            false => Ok(()),
        }
    }

    fn outlives_zones(&self) -> bool {
        true
    }

    fn mirrored(&self, device: &SimDevice) -> Vec<(ZoneId, u32)> {
        let header = |zone: ZoneId| {
            let block = device.read(zone, 0, 1).ok()?;
            ZoneHeader::decode(&block).ok()
        };
        let zones = device.report(0..device.geometry().zone_count);
        if let Some(stripes) = stripes::of_seed(device.config().seed) {
            return in_all_zones(device.geometry(), stripes, &zones.unwrap_or_default());
        }
        let mut mirrored = Vec::new();
        for (zone, info) in (0..).map(ZoneId).zip(zones.unwrap_or_default()) {
            if let Some(here) = header(zone)
                && let Some(there) = here.partner.and_then(header)
                && there.partner == Some(zone)
                && there.sequence == here.sequence
            {
                mirrored.push((zone, info.write_pointer));
            }
        }
        mirrored
    }

    fn mount(&self, device: &Arc<SimDevice>) -> Result<Mounted, String> {
        let config = device.config();
        let mut mounted = mount_volume(
            stripes::on(device, true)?,
            options(config),
            has_limits(config.seed),
        )?;
        if has_limits(config.seed) && !counts_later(config.seed) {
            // After a roll-back. Until all is counted nobody is limited.
            let counted = Quotas::of(&mounted.volume()).count();
            counted.map_err(|error| format!("counting what users take: {error}"))?;
        }
        mounted.is_whole = stores_whole_blocks(config.seed);
        mounted.has_limits = has_limits(config.seed);
        let graces = Quotas::of(&mounted.volume()).state().graces;
        let may_change = run_of(config.seed) >= QUOTAS_FROM;
        if has_soft_limits(config.seed) && !may_change && graces != GRACES {
            return Err(format!("grace times are {graces:?}, should be {GRACES:?}"));
        }
        Ok(match packs_near(config.seed) {
            true => mounted.packing_near(),
            false => mounted,
        })
    }

    fn roll_back(
        &self,
        device: &Arc<SimDevice>,
        to: &str,
        keep: Option<&str>,
        now: u64,
    ) -> Result<(), Refusal> {
        let below = stripes::on(device, true).map_err(|message| Refusal {
            errno: libc::EIO,
            message,
        })?;
        let rolled_back = roll_back(below, options(device.config()), to, keep, now);
        rolled_back.map_err(|error| Refusal::from(&error))
    }

    fn check(&self, device: &Arc<SimDevice>) -> Result<(), String> {
        // Nothing but Persimmon, power cuts and failing zones has been at the device.
        inspect(&*stripes::on(device, false)?, &excuses(device))
    }
}

/// Mounts what is on `config`'s device through another that stands before it.
pub(crate) fn mount_on(
    sim: &Arc<SimDevice>,
    device: Arc<dyn ZonedDevice>,
) -> Result<Mounted, String> {
    mount_volume(device, options(sim.config()), false)
}

/// The zones of each stripe set with the blocks that all of them have: what is behind those in one zone alone has no copy yet. The
/// zones of the label, too.
fn in_all_zones(geometry: &Geometry, stripes: Stripes, zones: &[ZoneInfo]) -> Vec<(ZoneId, u32)> {
    let mut written: Vec<u32> = zones.iter().map(|zone| zone.write_pointer).collect();
    for set in (0..).map_while(|set| striped::zones_of(geometry, stripes, ZoneId(set))) {
        let set = set.start as usize..set.end as usize;
        if let Some(of_set) = written.get_mut(set) {
            let least = of_set.iter().copied().min().unwrap_or_default();
            of_set.fill(least);
        }
    }
    let written = (0..).map(ZoneId).zip(written);
    written.filter(|(_, blocks)| *blocks > 0).collect()
}

/// The seed of a run. Above these bits is how the volume is mounted.
fn run_of(seed: u64) -> u64 {
    seed & ((1 << 56) - 1)
}

/// Whether the volume of a seed has quota.
fn counts_owners(seed: u64) -> bool {
    (300_000_000..1_000_000_000).contains(&run_of(seed)) || has_limits(seed)
}

/// Whether users are limited.
fn has_limits(seed: u64) -> bool {
    run_of(seed) >= LIMITS_FROM
}

/// Whether blocks of the volume of a seed take a block each: of half of those with limits, so that these are known exactly.
fn stores_whole_blocks(seed: u64) -> bool {
    has_limits(seed) && seed.is_multiple_of(2) && !has_edits(seed)
}

/// Whether most writes are small edits, so that there are deltas.
fn has_edits(seed: u64) -> bool {
    EDITS.contains(&run_of(seed))
}

/// Whether there are soft limits, so that grace times are such as pass.
fn has_soft_limits(seed: u64) -> bool {
    run_of(seed) >= OWNERS_FROM
}

/// Whether the volume of a seed has no quota until that is turned on.
fn gets_quota_later(seed: u64) -> bool {
    run_of(seed) >= QUOTAS_FROM && seed % 16 < 3
}

/// Whether a mount does not wait until all is counted.
fn counts_later(seed: u64) -> bool {
    run_of(seed) >= QUOTAS_FROM && seed % 5 < 2
}

/// Whether the volume of a seed deduplicates what is written: most of those whose content repeats.
fn deduplicates(seed: u64) -> bool {
    REPEATING.contains(&run_of(seed)) && !seed.is_multiple_of(8)
}

/// Whether near duplicates are packed on the volume of a seed.
fn packs_near(seed: u64) -> bool {
    NEAR.contains(&run_of(seed))
}

fn format_volume(device: Arc<dyn ZonedDevice>, copies: u32, quota: bool) -> Result<(), String> {
    let options = FormatOptions {
        uuid: *b"simulated volume",
        secret: [0x5a; 32],
        copies,
        quota,
        ..FormatOptions::default()
    };
    panic_on_bugs();
    Volume::format(device, &options).map_err(|error| error.to_string())
}

fn mount_volume(
    device: Arc<dyn ZonedDevice>,
    options: persimmon_engine::Options,
    limits: bool,
) -> Result<Mounted, String> {
    panic_on_bugs();
    let names = option_names(&options);
    let (volume, report) =
        Volume::open(device, options).map_err(|error| format!("{error} ({error:?})"))?;
    if report.log_zones_undecodable > 0 {
        return Err("what a power cut left of a zone is taken for a lost end of the log".into());
    }
    let volume = Arc::new(volume);
    let orphans = volume.orphans().map_err(|error| error.to_string())?;
    let clock = Arc::new(WorkloadClock::default());
    let options = persimmon_vfs::Options {
        access_times: AccessTimes::Never,
        limits_everybody: limits,
        ..persimmon_vfs::Options::default()
    };
    let vfs = Vfs::new(Arc::clone(&volume), Arc::clone(&clock) as _, options);
    let reclaimed = vfs.reclaim_orphans(&orphans);
    reclaimed.map_err(|error| format!("reclaiming unlinked files: {error}"))?;
    let paths = recovery_paths(&report, orphans.len());
    Ok(Mounted::new(Arc::new(vfs), clock, names, paths))
}

/// Has soft limits of a new volume become hard ones soon.
fn set_graces(
    device: Arc<dyn ZonedDevice>,
    options: persimmon_engine::Options,
) -> Result<(), String> {
    let set = || {
        let (volume, _) = Volume::open(device, options)?;
        for (kind, grace) in OwnerKind::ALL.into_iter().zip(GRACES) {
            Quotas::of(&volume).set_grace(kind, grace)?;
        }
        volume.sync()?;
        volume.close()
    };
    let set: persimmon_engine::Result<()> = set();
    set.map_err(|error| format!("setting grace times: {error}"))
}

/// Has a volume that nobody uses be as a snapshot is.
fn roll_back(
    device: Arc<dyn ZonedDevice>,
    options: persimmon_engine::Options,
    to: &str,
    keep: Option<&str>,
    now: u64,
) -> persimmon_vfs::Result<()> {
    let (volume, _) = Volume::open(device, options)?;
    let id = snapshot_named(&volume, to)?;
    let keep = keep.map(str::as_bytes);
    volume.snapshots().roll_back(id, keep, timestamp(now))?;
    volume.sync()?;
    Ok(volume.close()?)
}

/// The number of a snapshot.
fn snapshot_named(volume: &Volume, name: &str) -> persimmon_vfs::Result<SubvolumeId> {
    let mut snapshots = volume.snapshots().list().into_iter();
    let found = snapshots.find(|snapshot| snapshot.name == name.as_bytes());
    found
        .map(|found| found.id)
        .ok_or(persimmon_vfs::Error::NotFound)
}

/// Looks through a volume that is not mounted. What is found besides `excused` is the error.
pub(crate) fn inspect(device: &dyn ZonedDevice, excused: &[&'static Rule]) -> Result<(), String> {
    let options = CheckOptions {
        data: true,
        findings_max: 1000,
        ..CheckOptions::default()
    };
    let report = persimmon_inspect::check(device, &options, &mut |_| {})
        .map_err(|error| error.to_string())?;
    let is_wrong = |f: &&Finding| {
        f.severity >= Severity::Warning && !excused.iter().any(|rule| rule.number == f.number)
    };
    let wrong = report.findings.iter().filter(is_wrong);
    let findings: Vec<String> = wrong.take(20).map(ToString::to_string).collect();
    if findings.is_empty() {
        return Ok(());
    }
    Err(findings.join("\n  "))
}

/// What the inspector may find.
fn excuses(device: &SimDevice) -> Vec<&'static Rule> {
    // A failing write, or a power cut where write pointers prove nothing, can leave a pair that the
    // log was about to go on in with one of its two headers.
    let mut excused = vec![&ZONE_COPY];
    let config = device.config();
    let geometry = &config.geometry;
    if !geometry.write_pointer_is_proof || geometry.conventional_zones > 0 || config.tears_blocks {
        // A power cut can tear a summary, which is a hint.
        excused.push(&DATA_SUMMARY);
    }
    if stripes::of_seed(config.seed).is_some() {
        // A crash can leave a block in one zone of a set alone: it is written anew after the next mount.
        excused.extend([&PAGE_COPY, &ZONE_ROWS, &DATA_SUMMARY]);
    }
    if device.failed_zones() > 0 {
        excused.extend([&ZONE_READ_ONLY, &PAGE_COPY]);
    }
    if SimDevice::has_offline_zones(device) {
        // What it held of files is lost, and to be told.
        excused.extend([&ZONE_STATE, &DATA_LOST, &DATA_SUMMARY]);
    }
    excused
}

/// How a volume was mounted, for a table.
fn option_names(options: &persimmon_engine::Options) -> Vec<&'static str> {
    let fsync = match options.fsync {
        FsyncOrder::WritePointer => "fsync=wp",
        FsyncOrder::Strict => "fsync=strict",
    };
    let barrier = match options.barrier {
        Barrier::Auto => "barrier=auto",
        Barrier::On => "barrier=on",
        Barrier::Off => "barrier=off",
    };
    let dedup = match options.dedup {
        Dedup::None => "dedup=none",
        Dedup::Write => "dedup=write",
    };
    vec![fsync, barrier, dedup]
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
        (report.footer_blocks > 1, "footer of several blocks"),
        (report.mat_chunks > 1, "several chunks of the MAT"),
        (report.zit_chunks > 1, "several chunks of the ZIT"),
        (orphans > 0, "unlinked files reclaimed"),
    ];
    let met = met.into_iter().filter_map(|(is, path)| is.then_some(path));
    met.chain([replayed]).collect()
}

/// Which seeds make deltas: chosen so that those which found something before there were any are what they were.
const DELTAS_OF_SEED: u64 = 0xad79_da88_7d75_a363;

/// Bounds so small that they are reached, and the order of an fsync: they go by the seed.
fn options(config: &SimConfig) -> persimmon_engine::Options {
    let seed = config.seed;
    let small = |of: u64| 1usize << (seed / of % 4);
    let roll = seed >> 56;
    persimmon_engine::Options {
        fsync: match roll % 4 {
            3 => FsyncOrder::Strict,
            _ => FsyncOrder::WritePointer,
        },
        // Without flushes a volatile cache keeps nothing that was promised.
        barrier: match roll / 4 % 4 {
            2 => Barrier::On,
            3 if !config.geometry.volatile_cache => Barrier::Off,
            _ => Barrier::Auto,
        },
        cache_bytes_max: (64 << 10) * small(1),
        staging_bytes_max: (128 << 10) * small(4),
        journal_bytes_max: (128 << 10) * small(16) as u64,
        dirty_pages_max: 16 * small(64),
        compression: match seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62 {
            _ if stores_whole_blocks(seed) => Compression::None,
            0 => Compression::None,
            3 => Compression::Zstd(1),
            _ => Compression::Lz4,
        },
        deltas: match seed.wrapping_mul(DELTAS_OF_SEED) >> 61 {
            _ if stores_whole_blocks(seed) => Deltas::None,
            _ if has_edits(seed) => Deltas::Always,
            0..2 => Deltas::Always,
            2 => Deltas::InMemory,
            _ => Deltas::None,
        },
        dedup: match deduplicates(seed) {
            true => Dedup::Write,
            false => Dedup::None,
        },
        frame_cache_bytes_max: (64 << 10) * small(256),
        read_cache_bytes_max: match (seed >> 40) % 3 {
            0 => 0,
            some => (16 << 10) << (4 * some),
        },
        ..persimmon_engine::Options::default()
    }
}

/// Stands still between operations. Each thread has its own time, which is that of its operation.
#[derive(Default)]
pub(crate) struct WorkloadClock(Mutex<HashMap<ThreadId, u64>>);

impl WorkloadClock {
    fn set(&self, nanoseconds: u64) {
        let id = thread::current().id();
        let mut times = self.0.lock();
        times.insert(id, nanoseconds);
    }
}

impl Clock for WorkloadClock {
    fn now(&self) -> Timestamp {
        let id = thread::current().id();
        let times = self.0.lock();
        timestamp(times.get(&id).copied().unwrap_or_default())
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
