//! The RocksDB plugin: built against the RocksDB that is installed, or one that was built from source, and RocksDB's own programs
//! run through it.

mod checks;
mod cpu;
mod guest;
mod kills;
mod mounts;
mod oltp;
mod places;
mod plugin;
mod power;
mod refusals;
mod source;
mod speed;
mod sustained;
mod tails;
mod ycsb;

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

pub use plugin::BESIDE;
use plugin::Plugin;

/// What the command is to do.
#[derive(Args)]
pub struct Options {
    /// What to run; without any: everything that only passes or fails (the first nine)
    steps: Vec<Step>,
    /// Only build the plugin, and say where it is
    #[arg(long)]
    build: bool,
    /// Build with debug assertions: slow, and what the test command runs
    #[arg(long)]
    debug: bool,
    /// Source of a RocksDB to use in the place of the one that is installed
    #[arg(long, requires = "built")]
    source: Option<PathBuf>,
    /// Where that was built by CMake: the shared library, db_bench, ldb, sst_dump, env_basic_test
    #[arg(long, requires = "source")]
    built: Option<PathBuf>,
    /// Kills of the step `kills`, of each writer
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// Power cuts of the step `power`, below each writer
    #[arg(long, default_value_t = 50)]
    cuts: u32,
    /// Rounds of the steps `speed`, `cpu`, `ycsb`, `tails` and `oltp`, of which the median counts
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Entries of the databases of the step `speed`
    #[arg(long, default_value_t = 300_000)]
    entries: u64,
    /// Records of the database of the step `ycsb`
    #[arg(long, default_value_t = 300_000)]
    records: u64,
    /// Operations of each workload of the step `ycsb`; a tenth of them are scans
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// Threads of the step `ycsb`
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Bytes of the volume of the step `sustained`
    #[arg(long, default_value_t = 1 << 30)]
    volume: u64,
    /// Fail the steps `sustained`, `speed`, `cpu` and `tails` where what they measure is not what is asked for, instead of only saying so
    #[arg(long)]
    bars: bool,
    #[command(flatten)]
    guest: guest::Setting,
}

/// A part of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// The methods of the file system, one by one
    Methods,
    /// All workloads of db_bench: buffered, direct, and with blob files
    Benches,
    /// Checkpoint, backup, restore, checks of consistency and of tables
    Tools,
    /// Bad URIs, and a plugin that cannot be used
    Refusals,
    /// The same volume mounted, and who is refused meanwhile
    Mounts,
    /// A full volume
    Full,
    /// A device that is pulled
    Pulled,
    /// Writers that are killed again and again: while they write, recover and close
    Kills,
    /// Power cuts below writers, on a simulated disk
    Power,
    /// RocksDB's own test of environments (only with --built)
    Env,
    /// RocksDB 10.4 from the source that a crate carries, built once: the methods, its test of environments, some kills
    Source,
    /// A volume that is three quarters full is overwritten: bytes written and blocks moved
    Sustained,
    /// Speed beside ext4 and XFS on loop devices
    Speed,
    /// Share of the plugin and everything below it in the processor time of db_bench
    Cpu,
    /// The workloads of YCSB, A to F, beside ext4, XFS and f2fs on loop devices
    Ycsb,
    /// Times of reads beside a writer, with and without cleaning
    Tails,
    /// Transactions of MariaDB through mounts, fsync=wp against strict, beside ext4 and XFS on loop devices
    Oltp,
    /// In the virtual machine on emulated ZNS drives, beside f2fs, XFS and btrfs: bytes sent, zone resets, speed, times of reads
    Guest,
    /// There, the plugin on zonefs beside the plugin on the block device
    Zonefs,
}

const DEFAULT: &[Step] = &[
    Step::Methods,
    Step::Benches,
    Step::Tools,
    Step::Refusals,
    Step::Mounts,
    Step::Full,
    Step::Pulled,
    Step::Kills,
    Step::Power,
];

/// Entries of the database that RocksDB's tools work on; the fewer are those of the test command.
const ENTRIES: u32 = 50_000;
const QUICK_ENTRIES: u32 = 10_000;
/// Kills of each writer in the test command.
const QUICK_KILLS: u32 = 2;

/// Builds the plugin and runs the steps; true when all hold.
pub fn run(options: &Options) -> Result<bool> {
    let source = options.source.as_deref().zip(options.built.as_deref());
    let plugin = Plugin::build(!options.debug, source)?;
    println!("{}", plugin.folder.display());
    if options.build {
        return Ok(true);
    }
    let steps = if options.steps.is_empty() {
        DEFAULT
    } else {
        &options.steps
    };
    let mut tally = Tally::default();
    for step in steps {
        let scratch = tempfile::tempdir_in("/var/tmp")?;
        let scratch = scratch.path();
        match step {
            Step::Methods => {
                checks::makefile(&plugin, &mut tally);
                checks::methods(&plugin, scratch, &mut tally);
            }
            Step::Benches => checks::benches(&plugin, scratch, &mut tally),
            Step::Tools => checks::tools(&plugin, scratch, ENTRIES, &mut tally),
            Step::Refusals => {
                refusals::all(&plugin, scratch, &mut tally);
                refusals::built(&plugin, scratch, &mut tally);
            }
            Step::Mounts => mounts::all(&plugin, scratch, &mut tally),
            Step::Full => checks::full(&plugin, scratch, &mut tally),
            Step::Pulled => checks::pulled(&plugin, scratch, &mut tally),
            Step::Kills => kills::all(&plugin, scratch, options.kills, &mut tally),
            Step::Power => power::all(&plugin, scratch, options.cuts, &mut tally),
            Step::Env => checks::env(&plugin, scratch, &mut tally),
            Step::Source => newer(&plugin, !options.debug, scratch, &mut tally)?,
            Step::Sustained => tally.check("sustained overwriting", || {
                let met = sustained::run(&plugin, scratch, options.volume)?;
                judge(met, options.bars)
            }),
            Step::Speed => tally.check("speed", || {
                let met = speed::run(&plugin, scratch, options.rounds, options.entries)?;
                judge(met, options.bars)
            }),
            Step::Cpu => tally.check("processor time", || {
                let met = cpu::run(&plugin, scratch, options.rounds)?;
                judge(met, options.bars)
            }),
            Step::Ycsb => tally.check("YCSB", || {
                let plan = ycsb::Plan {
                    rounds: options.rounds,
                    records: options.records,
                    operations: options.operations,
                    threads: options.threads,
                };
                ycsb::run(&plugin, scratch, &plan)
            }),
            Step::Tails => tally.check("times of reads while cleaning", || {
                let met = tails::run(&plugin, scratch, options.rounds)?;
                judge(met, options.bars)
            }),
            Step::Oltp => tally.check("transactions", || {
                oltp::run(&plugin, scratch, options.rounds)
            }),
            Step::Guest => tally.check("in the guest", || {
                let done = guest::run(&plugin, &options.guest, options.rounds)?;
                ensure!(done, "not all workloads could be run");
                Ok(())
            }),
            Step::Zonefs => tally.check("zonefs in the guest", || {
                let met = guest::zonefs::run(&plugin, &options.guest, options.rounds)?;
                judge(met, options.bars)
            }),
        }
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    Ok(tally.failed == 0)
}

/// The plugin on a RocksDB that is built from source.
fn newer(installed: &Plugin, release: bool, scratch: &Path, tally: &mut Tally) -> Result<()> {
    let (source, built) = source::rocksdb()?;
    let plugin = Plugin::build(release, Some((&source, &built)))?;
    checks::methods(&plugin, scratch, tally);
    checks::env(&plugin, scratch, tally);
    checks::tools(&plugin, scratch, ENTRIES, tally);
    kills::all(&plugin, scratch, QUICK_KILLS, tally);
    source::all(&plugin, installed, &source, scratch, tally);
    Ok(())
}

/// The short set of the test command: how many checks hold, and how many do not.
pub fn quick() -> Result<(usize, usize)> {
    let plugin = Plugin::build(false, None)?;
    let mut tally = Tally::default();
    let scratch = tempfile::tempdir_in("/var/tmp")?;
    let scratch = scratch.path();
    checks::makefile(&plugin, &mut tally);
    checks::methods(&plugin, scratch, &mut tally);
    checks::tools(&plugin, scratch, QUICK_ENTRIES, &mut tally);
    refusals::all(&plugin, scratch, &mut tally);
    kills::all(&plugin, scratch, QUICK_KILLS, &mut tally);
    Ok((tally.passed, tally.failed))
}

/// What a measurement is beside what is asked for, in words.
fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "not met" }
}

/// Measured times and ratios fail nothing unless that is asked for: they depend on the machine and on who else uses it.
fn judge(met: bool, bars: bool) -> Result<()> {
    ensure!(met || !bars, "not all of what is asked for is met");
    Ok(())
}

/// How many checks hold, and how many do not.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
}

impl Tally {
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        match check() {
            Ok(()) => {
                self.passed += 1;
                println!("RocksDB: {name}: passed");
            }
            Err(error) => {
                self.failed += 1;
                println!("RocksDB: {name}: {error:#}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{judge, verdict};

    #[test]
    fn bars_fail_a_step_only_where_that_is_asked_for() {
        assert!(judge(false, false).is_ok() && judge(true, true).is_ok());
        assert!(judge(false, true).is_err());
        assert_eq!((verdict(true), verdict(false)), ("met", "not met"));
    }
}
