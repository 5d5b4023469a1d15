//! Tests of drives through the kernel. They run in the guest of `cargo xtask vm`, and destroy what
//! is on the drives they are given.

mod appends;
mod databases;
mod events;
mod failing;
mod kept;
mod load;
mod torn;
mod work;
mod zonefs;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use persimmon_device::image::ImageGeometry;
use persimmon_device::{
    CreateOptions, DeviceError, Drive, OpenOptions, Stripes, ZbdDevice, ZonedDevice, conformance,
};

#[derive(Parser)]
#[command(about = "Tests of drives, for the guest of `cargo xtask vm`")]
struct Args {
    #[command(subcommand)]
    test: Test,
}

#[derive(Subcommand)]
enum Test {
    /// The conformance suite of the device trait
    Conformance { drive: PathBuf },
    /// A volume compared with a plain model of a filesystem, by random operations
    Model {
        drive: PathBuf,
        #[arg(default_value_t = 1)]
        seed: u64,
    },
    /// Zone appends, many at a time
    Appends { drive: PathBuf },
    /// Make a zonefs on a drive, which is emptied
    ZonefsMake { drive: PathBuf },
    /// Reads of a zone that is being finished, and use by a user who may read and write the files but
    /// not the drive
    Zonefs { uri: PathBuf },
    /// Nobody else gets a drive that is in use
    Exclusive { drive: PathBuf },
    /// Zones of a null_blk that turn read-only and offline, and sectors that fail
    Zones {
        drive: PathBuf,
        /// Its directory in configfs
        settings: PathBuf,
    },
    /// Zones of a volume in use that turn read-only and offline, on a null_blk
    Failing {
        drive: PathBuf,
        /// Its directory in configfs
        settings: PathBuf,
    },
    /// Zones that a volume with parity of data loses while it is in use, on a null_blk
    LosingZones {
        drive: PathBuf,
        /// Its directory in configfs
        settings: PathBuf,
    },
    /// A drive that is pulled: removed from its bus
    Pulled { drive: PathBuf },
    /// A block of which only some sectors were written
    Torn { drive: PathBuf },
    /// Write and sync in a directory without end, and say what was acknowledged
    Load {
        dir: PathBuf,
        round: u32,
        /// By what it is
        #[arg(long, value_enum, default_value_t = load::By::Fsync)]
        by: load::By,
    },
    /// Write to a directory for a while and sync nothing; says what is acknowledged once it is unmounted
    LoadOnce { dir: PathBuf, round: u32 },
    /// Look for what was acknowledged, which standard input tells
    Verify { dir: PathBuf },
    /// What was flushed to a file whose flushes are kept, when its writer is killed, on a volume
    Kept {
        drive: PathBuf,
        /// Another name of it, for who looks afterwards
        #[arg(long)]
        then: Option<PathBuf>,
        /// Be the writer
        #[arg(long)]
        write: bool,
    },
    /// A workload on any filesystem
    #[command(subcommand)]
    Work(work::Work),
}

fn main() -> ExitCode {
    match run(&Args::parse().test) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(test: &Test) -> Result<()> {
    match test {
        Test::Conformance { drive } => conforms(drive),
        Test::Model { drive, seed } => model(drive, *seed),
        Test::Appends { drive } => appends::run(drive),
        Test::ZonefsMake { drive } => zonefs::make(drive),
        Test::Zonefs { uri } => zonefs::run(uri),
        Test::Exclusive { drive } => exclusive(drive),
        Test::Zones { drive, settings } => events::zones(drive, settings),
        Test::Failing { drive, settings } => failing::run(drive, settings),
        Test::LosingZones { drive, settings } => failing::with_parity(drive, settings),
        Test::Pulled { drive } => events::pulled(drive),
        Test::Torn { drive } => torn::run(drive),
        Test::Load { dir, round, by } => load::run(dir, *round, *by),
        Test::LoadOnce { dir, round } => load::once(dir, *round),
        Test::Verify { dir } => load::verify(dir),
        Test::Kept {
            drive, write: true, ..
        } => kept::write(drive),
        Test::Kept { drive, then, .. } => kept::run(drive, then.as_deref().unwrap_or(drive)),
        Test::Work(work) => work::run(work),
    }
}

fn emptying() -> CreateOptions {
    CreateOptions {
        force: true,
        ..CreateOptions::default()
    }
}

/// The drive with all its zones empty.
fn fresh(path: &Path) -> Drive {
    fresh_in(path, None)
}

/// The same, to be used in stripe sets.
#[allow(clippy::panic)]
fn fresh_in(path: &Path, stripes: Option<Stripes>) -> Drive {
    // Of an image: zoned drives have the shape they have.
    let shape = ImageGeometry {
        zone_count: 24,
        zone_blocks: 256,
        capacity_blocks: 192,
        max_open: Some(6),
        max_active: Some(8),
    };
    let options = CreateOptions {
        stripes,
        ..emptying()
    };
    Drive::create(path, &shape, &options).unwrap_or_else(|error| panic!("{error}"))
}

#[allow(clippy::panic)]
fn fresh_zbd(path: &Path) -> ZbdDevice {
    ZbdDevice::create(path, &emptying()).unwrap_or_else(|error| panic!("{error}"))
}

/// The drive, whatever a test has left on it.
#[allow(clippy::panic)]
fn open(path: &Path) -> Drive {
    let options = OpenOptions {
        whatever_it_holds: true,
        ..OpenOptions::default()
    };
    Drive::open(path, &options).unwrap_or_else(|error| panic!("{error}"))
}

fn conforms(path: &Path) -> Result<()> {
    let cases = conformance::check_one(
        || fresh(path),
        |device| {
            drop(device);
            open(path)
        },
    );
    println!("{}: {cases} cases", path.display());
    Ok(())
}

fn model(path: &Path, seed: u64) -> Result<()> {
    let device = fresh(path);
    let zones = device.report(0..device.geometry().zone_count)?;
    drop(device);
    let bytes: u64 = zones
        .iter()
        .map(|zone| u64::from(zone.capacity) << 12)
        .sum();
    let ops = 600;
    let tally = persimmon_crash::filesystem::model_test(|| open(path), seed, ops, bytes / 4)
        .map_err(anyhow::Error::msg)?;
    println!("{}: {tally:?}", path.display());
    Ok(())
}

fn exclusive(path: &Path) -> Result<()> {
    let at_once = |read_only| OpenOptions {
        read_only,
        wait_for_lock: std::time::Duration::ZERO,
        ..OpenOptions::default()
    };
    let is_busy = |opened| matches!(opened, Err(DeviceError::Busy { .. }));
    let writer = fresh(path);
    ensure!(
        is_busy(Drive::open(path, &at_once(false))),
        "a second writer got it"
    );
    ensure!(
        is_busy(Drive::open(path, &at_once(true))),
        "a reader got it beside a writer"
    );
    drop(writer);
    let reader = Drive::open(path, &at_once(true))?;
    let another = Drive::open(path, &at_once(true))?;
    ensure!(
        is_busy(Drive::open(path, &at_once(false))),
        "a writer got it beside readers"
    );
    drop((reader, another));
    Drive::open(path, &at_once(false))?;
    Ok(())
}
