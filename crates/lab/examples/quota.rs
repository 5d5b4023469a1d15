//! What quota costs where it is on: instructions and bytes that the device is sent for each operation, beside the same without quota.
//! `cargo run -p persimmon-lab --release --example quota`. Valgrind counts the instructions: what a run of twice as many operations takes more.

use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{FormatOptions, NewLimits, Options, Quotas, Volume};
use persimmon_format::inode::Timestamp;
use persimmon_format::quota::{Owner, OwnerKind};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Clock, Ino, OpenFlags, ROOT, Vfs, WriteFlags};

/// Operations of the shorter run.
const COUNT: u64 = 4000;
/// Blocks of the file that is overwritten.
const BLOCKS: u64 = 2000;
const USER: u32 = 1001;
const GROUP: u32 = 2001;
const PROJECT: u32 = 7;

/// Measures what quota costs.
#[derive(Parser)]
struct Arguments {
    /// Carry out one run, which is what is counted
    #[arg(long, requires = "count")]
    operation: Option<Operation>,
    /// Operations of it
    #[arg(long)]
    count: Option<u64>,
    /// With quota, and limits of a user, a group and a project
    #[arg(long)]
    quota: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Operation {
    /// An empty file
    Create,
    /// 4 KiB more of a file, written back later
    Write,
    /// 4 KiB of a file, and fsync
    Fsync,
}

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let (Some(operation), Some(count)) = (arguments.operation, arguments.count) {
        println!("{}", run(operation, count, arguments.quota)?);
        return Ok(());
    }
    println!("| operation | instructions | with quota | | bytes sent | with quota | |");
    println!("|---|---|---|---|---|---|---|");
    for operation in [Operation::Create, Operation::Write, Operation::Fsync] {
        let (off, on) = (each(operation, false)?, each(operation, true)?);
        let more = |off: f64, on: f64| (on / off - 1.0) * 100.0;
        println!(
            "| {operation:?} | {:.0} | {:.0} | {:+.1} % | {:.0} | {:.0} | {:+.1} % |",
            off.0,
            on.0,
            more(off.0, on.0),
            off.1,
            on.1,
            more(off.1, on.1)
        );
    }
    Ok(())
}

/// Instructions and bytes of one operation.
fn each(operation: Operation, has_quota: bool) -> Result<(f64, f64)> {
    let (short, long) = (
        counted(operation, COUNT, has_quota)?,
        counted(operation, 2 * COUNT, has_quota)?,
    );
    let of_one = |short: u64, long: u64| (long as f64 - short as f64) / COUNT as f64;
    Ok((of_one(short.0, long.0), of_one(short.1, long.1)))
}

/// Runs this program under Valgrind: the instructions that it counts, and the bytes that the program prints.
fn counted(operation: Operation, count: u64, has_quota: bool) -> Result<(u64, u64)> {
    let own = std::env::current_exe()?;
    let name = operation.to_possible_value().context("a hidden one")?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--tool=cachegrind",
            "--cache-sim=no",
            "--cachegrind-out-file=/dev/null",
        ])
        .arg(own)
        .args([
            "--operation",
            name.get_name(),
            "--count",
            &count.to_string(),
        ]);
    if has_quota {
        command.arg("--quota");
    }
    let output = command.output().context("valgrind does not run")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{told}");
    let refs = told.lines().find_map(|line| line.split_once("refs:"));
    let (_, refs) = refs.context("valgrind told no instructions")?;
    let instructions = refs.trim().replace(',', "").parse()?;
    let bytes = String::from_utf8_lossy(&output.stdout).trim().parse()?;
    Ok((instructions, bytes))
}

/// Carries out operations of one user in a directory with a project. Returns the bytes that the device was sent.
fn run(operation: Operation, count: u64, has_quota: bool) -> Result<u64> {
    let device = Arc::new(SimDevice::new(SimConfig::new(256, 1024).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
    let (volume, _) = Volume::open(Arc::clone(&device) as _, Options::default())?;
    let vfs = Vfs::new(
        Arc::new(volume),
        Arc::new(Still),
        persimmon_vfs::Options::default(),
    );
    let dir = vfs.mkdir(&Caller::root(), ROOT, b"d", 0o777)?.ino;
    if has_quota {
        limit(&vfs, dir)?;
    }
    let user = Caller {
        uid: USER,
        gid: GROUP,
        ..Caller::root()
    };
    let flags = OpenFlags {
        write: true,
        is_limited: true,
        ..OpenFlags::default()
    };
    let (file, handle) = vfs.create(&user, dir, b"f", 0o644, flags)?;
    let put = |block: u64, byte: u8| -> Result<()> {
        let content = [byte; BLOCK_SIZE];
        let offset = block * BLOCK_SIZE as u64;
        vfs.write(file.ino, handle, offset, &content, WriteFlags::default())?;
        Ok(())
    };
    (0..BLOCKS).try_for_each(|block| put(block, 1))?;
    vfs.sync()?;
    let before = device.counters().written_blocks();
    for number in 0..count {
        match operation {
            Operation::Create => {
                let name = number.to_string();
                let (made, opened) = vfs.create(&user, dir, name.as_bytes(), 0o644, flags)?;
                vfs.release(made.ino, opened)?;
            }
            Operation::Write => put(BLOCKS + number, number as u8)?,
            // Blocks far from each other, in an order that repeats late.
            Operation::Fsync => {
                put(number * 7 % BLOCKS, number as u8)?;
                vfs.fsync(file.ino, handle)?;
            }
        }
    }
    vfs.sync()?;
    Ok((device.counters().written_blocks() - before) * BLOCK_SIZE as u64)
}

fn limit(vfs: &Vfs, dir: Ino) -> Result<()> {
    let quotas = Quotas::of(vfs.volume());
    quotas.turn_on(false)?;
    quotas.count()?;
    vfs.set_project(&Caller::root(), dir, PROJECT)?;
    let limits = NewLimits {
        bytes_hard: Some(1 << 30),
        inodes_hard: Some(1 << 20),
        ..NewLimits::default()
    };
    for (kind, id) in [
        (OwnerKind::User, USER),
        (OwnerKind::Group, GROUP),
        (OwnerKind::Project, PROJECT),
    ] {
        quotas.set(Owner { kind, id }, &limits, Timestamp::default())?;
    }
    Ok(())
}
