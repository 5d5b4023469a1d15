//! Runs the mount tests: by default all of them, on Persimmon.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use persimmon_mount_tests::check::{Check, Outcome, Runner};
use persimmon_mount_tests::scenario::{self, TestBed};
use persimmon_mount_tests::volume::Kind;
use persimmon_mount_tests::workplace::Workplace;
use persimmon_mount_tests::{command, posix, programs};

#[derive(Parser)]
#[command(about = "Tests of a mounted filesystem")]
struct Args {
    /// The filesystem to test
    #[arg(long, value_enum, default_value_t = On::Persimmon)]
    on: On,
    /// The persimmon binary
    #[arg(long, default_value = "target/release/persimmon")]
    persimmon: PathBuf,
    /// Where this run gets a directory for images and mount points: a few gigabytes, reachable by
    /// every user
    #[arg(long, default_value = "/var/tmp/persimmon-mount-tests")]
    work: PathBuf,
    /// A drive for Persimmon, in the place of images: its checks only, for scenarios make volumes of
    /// their own. What is on it is lost
    #[arg(long)]
    device: Option<PathBuf>,
    /// On a slow machine: how many times longer each check may take
    #[arg(long, default_value_t = 1)]
    patience: u64,
    /// Rounds of `durable::what_sync_syncfs_and_umount_acknowledged_is_there`, seeds of `model::`
    #[arg(long)]
    rounds: Option<u32>,
    /// The first seed of `model::`
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only list the names
    #[arg(long)]
    list: bool,
    /// Run only what has one of these in its name
    filters: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    Persimmon,
    Ext4,
}

fn main() -> ExitCode {
    // A second process for tests of locks between processes.
    if let Some(code) = posix::lock::probe(std::env::args_os().collect()) {
        return code;
    }
    if std::env::var_os("RUST_LIB_BACKTRACE").is_none() {
        // Errors then carry their place; the variable is read before main can set it.
        if let Ok(me) = std::env::current_exe() {
            let mut command = Command::new(me);
            command.args(std::env::args_os().skip(1));
            eprintln!("{}", command.env("RUST_LIB_BACKTRACE", "1").exec());
            return ExitCode::FAILURE;
        }
    }
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    command::be_patient(args.patience);
    let selected = |name: &str| {
        args.filters.is_empty() || args.filters.iter().any(|filter| name.contains(filter))
    };
    let kind = match args.on {
        On::Persimmon => Kind::Persimmon,
        On::Ext4 => Kind::Ext4,
    };
    let groups: Vec<(&str, Vec<Check>)> =
        [("posix", posix::checks()), ("programs", programs::checks())]
            .map(|(group, checks)| {
                let checks = checks.into_iter().filter(|check| selected(check.name));
                let patient = checks.map(|check| Check {
                    limit_seconds: check.limit_seconds.saturating_mul(args.patience),
                    ..check
                });
                (group, patient.collect())
            })
            .into();
    let mut scenarios = scenario::all();
    scenarios.retain(|scenario| selected(scenario.name) && args.device.is_none());
    if args.list {
        for check in groups.iter().flat_map(|(_, checks)| checks) {
            println!("{}", check.name);
        }
        for scenario in &scenarios {
            println!("{}", scenario.name);
        }
        return Ok(true);
    }
    if !rustix::process::geteuid().is_root() {
        bail!("these tests mount filesystems and change users: run them as root");
    }
    let workplace = Workplace::new(&args.work)?;
    let bed = TestBed {
        kind,
        persimmon: match kind {
            Kind::Persimmon => args
                .persimmon
                .canonicalize()
                .with_context(|| format!("finding {}", args.persimmon.display()))?,
            Kind::Ext4 => args.persimmon.clone(),
        },
        work: workplace.dir().to_owned(),
        rounds: args.rounds,
        seed: args.seed,
    };
    let mut runner = Runner::default();
    for (group, checks) in groups {
        on_volume(&bed, args.device.as_deref(), &mut runner, group, &checks)?;
    }
    for scenario in scenarios {
        if scenario.only_persimmon && kind != Kind::Persimmon {
            println!("only for Persimmon: {}", scenario.name);
            continue;
        }
        runner.scenario(scenario, &bed);
    }
    if !runner.failures.is_empty() {
        println!("failed: {}", runner.failures.join(" "));
    }
    println!(
        "{} passed, {} failed",
        runner.count.passed, runner.count.failed
    );
    if runner.failures.is_empty() {
        workplace.remove()?;
    } else {
        println!(
            "what is left stays in {} until the next run",
            workplace.dir().display()
        );
    }
    Ok(runner.count.failed == 0)
}

/// Runs checks one by one on a fresh volume; then it must unmount and check clean.
fn on_volume(
    bed: &TestBed,
    device: Option<&Path>,
    runner: &mut Runner,
    group: &str,
    checks: &[Check],
) -> Result<()> {
    if checks.is_empty() {
        return Ok(());
    }
    println!("-- {group}: {} checks", checks.len());
    let mut volume = match device {
        Some(device) => bed.volume_on(group, device)?,
        None => bed.volume(group, 6 << 30, &[])?,
    };
    volume.mount(&["dev", "suid"])?;
    rustix::fs::chmod(&volume.dir, rustix::fs::Mode::from_raw_mode(0o755))?;
    let mut hangs = false;
    for check in checks {
        if hangs {
            runner.not_run(check.name, "the mount hangs");
            continue;
        }
        let deviates = posix::deviates(check.name, bed.kind);
        hangs = runner.check(*check, &volume.dir, &bed.work, deviates) == Outcome::Hangs;
    }
    if hangs {
        volume.detach()?;
        runner.not_run(&format!("{group}::unmount"), "the mount hangs");
        return Ok(());
    }
    let unmounted = runner.step(&format!("{group}::unmount"), || volume.unmount());
    if unmounted == Outcome::Passed {
        runner.step(&format!("{group}::fsck"), || volume.fsck());
    }
    volume.destroy()
}
