//! RocksDB in the virtual machine, on emulated ZNS drives: through the plugin and through mounts of Persimmon and its peers, all on drives
//! of the same capacity, with what the block layer sent to them.
//!
//! This is a step of its own and no row of `cargo xtask peers`: rows there are commands of `drive-tests` in a mount, and count what
//! that wrote. Here the plugin needs no mount, and what counts as written is what RocksDB says. Drives, mkfs, mounts and counters are theirs.

mod places;
mod table;
mod workloads;
pub mod zonefs;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::plugin::Plugin;
use crate::vm::counters::Counters;
use crate::vm::drive::Drive;
use crate::vm::guest::{Clock, Guest, Machine};
use crate::vm::kernel::Kernel;
use crate::{setup, vm, volume};

use places::{PLACES, Place};
use table::Report;
use workloads::{Figures, Workload};

/// The guest, and what is run in it.
#[derive(Args)]
pub struct Setting {
    /// Capacity of the drives of each filesystem together, MiB (steps `guest` and `zonefs`)
    #[arg(long, default_value_t = 512)]
    size_mib: u64,
    /// Size of a zone, MiB (the same)
    #[arg(long, default_value_t = 4)]
    zone_mib: u64,
    /// The guest's time goes by its instructions, a nanosecond each: slower, but what the emulator is bad at takes no longer than anything
    /// else (the same)
    #[arg(long)]
    instructions: bool,
    /// Memory of the guest, MiB (the same)
    #[arg(long, default_value_t = 1536)]
    memory_mib: u32,
    /// MiB that the guest's page cache may hold of what is not yet written, for the step `guest`; as the kernel has it without
    #[arg(long)]
    dirty_mib: Option<u32>,
    /// Only these places in the step `guest`: plugin, plugin-zonefs, mount, f2fs, xfs, btrfs
    #[arg(long, num_args = 1..)]
    only: Vec<String>,
    /// Only workloads with one of these in their name in the step `guest`; those that go on with a database run with it
    #[arg(long, num_args = 1..)]
    workloads: Vec<String>,
    /// Write the figures of the step `guest` to this file too, as JSON, after each workload
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Other filesystems want the newest kernel.
const KERNEL: Kernel = Kernel::Sid;
const LIFE_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// For one command in the guest.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs all workloads in all places, round by round, and prints the table of medians; whether none failed through the plugin or the mount.
pub fn run(plugin: &Plugin, setting: &Setting, rounds: u32) -> Result<bool> {
    set_up()?;
    let chosen = |place: &&Place| {
        setting.only.is_empty() || setting.only.iter().any(|name| name == place.name)
    };
    let places: Vec<&Place> = PLACES.iter().filter(chosen).collect();
    ensure!(!places.is_empty(), "there is no place of these names");
    let workloads = workloads::all(setting.size_mib);
    let mut report = Report::new(setting.size_mib, setting.zone_mib, &places);
    for round in 0..rounds {
        for place in &places {
            eprintln!("round {} of {rounds}: {}", round + 1, place.name);
            let machine = machine(
                plugin,
                setting,
                place.drives(setting.size_mib, setting.zone_mib)?,
            )?;
            let mut guest = boot(&machine)?;
            if let Some(mib) = setting.dirty_mib {
                let bytes = u64::from(mib) << 20;
                guest.check(&format!("echo {bytes} >/proc/sys/vm/dirty_bytes"), LIMIT)?;
            }
            guest.check(&place.once(), LIMIT)?;
            report.kernel(guest.check("uname -r", LIMIT)?.trim());
            all_of(&mut guest, place, &workloads, setting, &mut report)?;
        }
    }
    print!("{}", report.table());
    Ok(!report.has_failed())
}

/// Builds what runs in the guest, apart from the plugin.
fn set_up() -> Result<()> {
    volume::watch_for_interrupts()?;
    setup::packages()?;
    vm::build()
}

fn machine(plugin: &Plugin, setting: &Setting, drives: Vec<Drive>) -> Result<Machine> {
    let mut programs = vm::programs()?;
    programs.extend(plugin.for_guest()?);
    Ok(Machine {
        kernel: KERNEL,
        drives,
        memory_mib: setting.memory_mib,
        cpus: 2,
        programs,
        clock: if setting.instructions {
            Clock::Instructions
        } else {
            Clock::Host
        },
        sees_host: false,
        life_limit: LIFE_LIMIT,
    })
}

fn boot(machine: &Machine) -> Result<Guest> {
    let mut guest = Guest::boot(machine)?;
    Counters::set_up(&mut guest)?;
    Ok(guest)
}

/// Takes the workloads in a new guest, one after the other. One that fails ends those that go on with its database.
fn all_of(
    guest: &mut Guest,
    place: &Place,
    workloads: &[Workload],
    setting: &Setting,
    report: &mut Report,
) -> Result<()> {
    let mut broken = false;
    let mut records = 0;
    for (number, workload) in workloads.iter().enumerate() {
        // Up to the next database, whether anything of this one is asked for.
        let with = workloads[number + 1..]
            .iter()
            .take_while(|next| !next.is_new);
        let mut with = std::iter::once(workload).chain(with);
        let asked = |workload: &Workload| {
            setting
                .workloads
                .iter()
                .any(|part| workload.name.contains(part.as_str()))
        };
        if !setting.workloads.is_empty() && !with.any(asked) {
            continue;
        }
        broken &= !workload.is_new;
        if broken {
            continue;
        }
        let figures = match measure(guest, place, workload, &mut records) {
            Err(error) if error.root_cause().is::<volume::Interrupted>() => return Err(error),
            figures => figures,
        };
        match &figures {
            Ok(figures) => eprintln!("{:14} {:18} {figures}", place.name, workload.name),
            Err(error) => {
                broken = true;
                eprintln!("{:14} {:18} FAILED: {error:#}", place.name, workload.name);
                // Whatever is still mounted, the next mkfs finds the drive free.
                let _ = guest.run(place.after()?, LIMIT, &mut |_| ());
            }
        }
        report.record(place, workload, figures);
        if let Some(path) = &setting.json {
            std::fs::write(path, serde_json::to_string_pretty(&report.json())?)?;
        }
    }
    Ok(())
}

/// One workload, mounted and unmounted for itself where there is a mount: what it wrote has reached the drive then.
fn measure(
    guest: &mut Guest,
    place: &Place,
    workload: &Workload,
    records: &mut u64,
) -> Result<Figures> {
    if workload.is_new {
        guest.check(&place.make()?, LIMIT)?;
    }
    let before = Counters::read(guest)?;
    guest.check(place.before()?, LIMIT)?;
    let said = guest.check(&workload.command(place, *records), LIMIT)?;
    guest.check(place.after()?, LIMIT)?;
    let sent = Counters::read(guest)?.since(before);
    let read = workload.figures(&said, sent);
    let (figures, there) = read.with_context(|| format!("it said {said}"))?;
    *records = there.unwrap_or(*records);
    Ok(figures)
}
