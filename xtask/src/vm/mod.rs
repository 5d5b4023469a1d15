//! `cargo xtask vm`: a small Linux guest with zoned drives, in QEMU without hardware help.
//!
//! The guest is a kernel of Debian's and an initramfs of our making: busybox, the kernel's modules
//! for zoned drives, and the built programs. It is kept in `target/vm`.

mod archive;
mod checks;
pub mod counters;
pub mod drive;
pub mod guest;
pub mod host_root;
pub mod kernel;
mod power;
mod real_programs;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{setup, shell, volume};

pub use checks::run as checks;
use drive::Drive;
use guest::{Clock, Guest, Machine};
use kernel::Kernel;

/// Which machine, and what to run in it.
#[derive(Args)]
pub struct Options {
    /// Kernel of the guest: `6.1` (no zone write plugging), `6.12` (with it) or `sid` (the newest)
    #[arg(long, default_value = "6.12", value_parser = Kernel::parse)]
    kernel: Kernel,
    /// A drive, again for another: `nvme`, `null`, `scsi` (zoned) or `disk`, then what is to differ from
    /// `:size=256M,zone=4M,capacity=3M,open=14,active=14,block=4K,conventional=0`. NVMe namespaces,
    /// disks among them, are `/dev/ns1` and on (past the block layer `/dev/generic1` and on), null_blk `/dev/nullb0` and on, SCSI `/dev/sda` and on
    #[arg(long, value_parser = Drive::parse, default_value = "nvme")]
    drive: Vec<Drive>,
    /// Memory of the guest, MiB
    #[arg(long, default_value_t = 768)]
    memory_mib: u32,
    /// Processors of the guest
    #[arg(long, default_value_t = 2)]
    cpus: u32,
    /// Seconds the command may take
    #[arg(long, default_value_t = 600)]
    limit_s: u64,
    /// A further program to put into the guest's /bin
    #[arg(long)]
    program: Vec<PathBuf>,
    /// Install and build nothing
    #[arg(long)]
    no_setup: bool,
    /// Run the short set of checks of `cargo xtask test`, or those with one of these in their name
    #[arg(long, num_args = 0.., conflicts_with = "command")]
    checks: Option<Vec<String>>,
    /// Cut the power while synced work goes on, and look for what was acknowledged: so many times, counted by volume
    #[arg(long, value_name = "ROUNDS", conflicts_with_all = ["command", "checks"])]
    power_cuts: Option<u32>,
    /// A device that is worked on meanwhile, again for another: `/dev/generic1` is the same drive past the block layer.
    /// Each takes a `--drive`
    #[arg(long, default_value = "/dev/ns1")]
    power_cut_device: Vec<String>,
    /// Run the mount tests of real programs, those of this machine, or the tests with one of these in
    /// their name, on the first drive: through zbd, nvme and zonefs. Wants `--memory-mib 4096` and a drive
    /// of a few gigabytes
    #[arg(long, num_args = 0.., conflicts_with_all = ["command", "checks", "power_cuts"])]
    real_programs: Option<Vec<String>>,
    /// Only by this one: `/dev/ns1`, `/dev/generic1` or `zonefs:/tmp/zonefs`
    #[arg(long)]
    by: Option<String>,
    /// What to run in the guest, by its shell
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

/// Builds all that tests run, with what only they use.
pub const BUILD_OF_TESTS: &[&str] = &[
    "cargo",
    "build",
    "--workspace",
    "--bins",
    "--tests",
    "--quiet",
];

/// Programs that every guest has: those built by [`build`].
const PROGRAMS: &[&str] = &["persimmon", "drive-tests"];

/// Builds what is missing and runs the command; ends with its exit code.
pub fn run(options: &Options) -> Result<bool> {
    volume::watch_for_interrupts()?;
    if !options.no_setup {
        setup::packages()?;
        match options.checks {
            Some(_) => build_for_checks()?,
            None => build()?,
        }
    }
    if let Some(filters) = &options.checks {
        let (passed, failed) = checks(filters)?;
        println!("{passed} passed, {} failed", failed.len());
        return Ok(failed.is_empty());
    }
    let mut machine = Machine {
        kernel: options.kernel,
        drives: options.drive.clone(),
        memory_mib: options.memory_mib,
        cpus: options.cpus,
        programs: programs()?,
        clock: Clock::Host,
        sees_host: options.real_programs.is_some(),
        life_limit: match options.real_programs {
            Some(_) => real_programs::LIFE_LIMIT,
            None => guest::LIFE_LIMIT,
        },
    };
    machine.programs.extend(options.program.iter().cloned());
    if let Some(rounds) = options.power_cuts {
        return power::run(&machine, &options.power_cut_device, rounds).map(|()| true);
    }
    if let Some(filters) = &options.real_programs {
        return real_programs::run(&machine, options.by.as_deref(), filters);
    }
    if options.command.is_empty() {
        bail!("tell what to run in the guest, for example: cargo xtask vm -- persimmon devices");
    }
    let mut guest = Guest::boot(&machine)?;
    eprintln!("booted in {:.1} s", guest.boot_time().as_secs_f64());
    let limit = Duration::from_secs(options.limit_s);
    let code = guest.run(&options.command.join(" "), limit, &mut |line| {
        println!("{line}");
    })?;
    drop(guest);
    if code != 0 {
        // The guest's exit code is this program's.
        std::process::exit(code);
    }
    Ok(true)
}

/// Builds what runs in the guest.
pub fn build() -> Result<()> {
    eprintln!("building what runs in the guest");
    shell::check(&mut shell::command(&[
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--package",
        "persimmon-cli",
        "--package",
        "persimmon-drive-tests",
    ]))
}

/// Builds what the checks run in the guest: what the tests on a mount run, too.
fn build_for_checks() -> Result<()> {
    eprintln!("building what the checks run in the guest");
    shell::check(&mut shell::command(BUILD_OF_TESTS))
}

/// Those that every guest has, as built.
pub fn programs() -> Result<Vec<PathBuf>> {
    found(volume::built)
}

/// The same, with assertions. They take a sixth more of the processor, and less than a build of their own would.
fn programs_of_tests() -> Result<Vec<PathBuf>> {
    found(volume::built_for_tests)
}

fn found(built: fn(&str) -> Result<PathBuf>) -> Result<Vec<PathBuf>> {
    let found = PROGRAMS.iter().map(|name| built(name));
    found
        .map(|found| found.context("build it first: leave out --no-setup"))
        .collect()
}
