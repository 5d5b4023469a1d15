//! The RocksDB plugin: built against the RocksDB that is installed, or one that was built from source, and RocksDB's own programs
//! run through it.

mod checks;
mod guest;
mod kills;
mod mounts;
mod oltp;
mod places;
mod plugin;
mod refusals;
mod speed;
mod sustained;
mod tails;
mod ycsb;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use plugin::Plugin;

/// What the command is to do.
#[derive(Args)]
pub struct Options {
    /// What to run; without any: everything that only passes or fails (the first eight)
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
    /// Kills of the step `kills`
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// Rounds of the steps `speed`, `ycsb`, `tails` and `oltp`, of which the median counts
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
    /// Fail the steps `sustained`, `speed` and `tails` where what they measure is not what is asked for, instead of only saying so
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
    /// A writer that is killed again and again
    Kills,
    /// RocksDB's own test of environments (only with --built)
    Env,
    /// A volume that is three quarters full is overwritten: bytes written and blocks moved
    Sustained,
    /// Speed beside ext4 and XFS on loop devices
    Speed,
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
];

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
            Step::Methods => checks::methods(&plugin, scratch, &mut tally),
            Step::Benches => checks::benches(&plugin, scratch, &mut tally),
            Step::Tools => checks::tools(&plugin, scratch, &mut tally),
            Step::Refusals => refusals::all(&plugin, scratch, &mut tally),
            Step::Mounts => mounts::all(&plugin, scratch, &mut tally),
            Step::Full => checks::full(&plugin, scratch, &mut tally),
            Step::Pulled => checks::pulled(&plugin, scratch, &mut tally),
            Step::Kills => kills::all(&plugin, scratch, options.kills, &mut tally),
            Step::Env => checks::env(&plugin, scratch, &mut tally),
            Step::Sustained => tally.check("sustained overwriting", || {
                let met = sustained::run(&plugin, scratch, options.volume)?;
                judge(met, options.bars)
            }),
            Step::Speed => tally.check("speed", || {
                let met = speed::run(&plugin, scratch, options.rounds, options.entries)?;
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
