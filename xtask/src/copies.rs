//! `cargo xtask copies`: directories copied to Persimmon and to btrfs on a loop device, compressed and not: how fast,
//! and what they take there.
//!
//! Images lie in memory, and what is copied is in the page cache, so that processor time decides. Rounds change the
//! order; the median counts. What is taken is what the filesystem itself says is used, before and after, metadata
//! included.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::figures::median;
use crate::volume::{self, Kind, Noise, Volume, output};
use crate::{setup, shell, vm};

/// What to copy.
#[derive(Args)]
pub struct Options {
    /// Rounds, of which the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where the images go: three times what is copied
    #[arg(long, default_value = "/dev/shm")]
    work: PathBuf,
    /// What is copied [default: the sources of all crates that Persimmon is built of, and 128 MiB of logs]
    dirs: Vec<PathBuf>,
    /// Install and build nothing
    #[arg(long)]
    no_setup: bool,
}

/// A filesystem and how it is mounted.
struct Way {
    name: &'static str,
    kind: Kind,
    options: &'static [&'static str],
}

const WAYS: [Way; 6] = [
    way("persimmon none", Kind::Persimmon, &["compression=none"]),
    way("btrfs none", Kind::Btrfs, &[]),
    way("persimmon lz4", Kind::Persimmon, &["compression=lz4"]),
    way("btrfs lzo", Kind::Btrfs, &["compress=lzo"]),
    way("persimmon zstd:3", Kind::Persimmon, &["compression=zstd:3"]),
    way("btrfs zstd:3", Kind::Btrfs, &["compress=zstd:3"]),
];

const fn way(name: &'static str, kind: Kind, options: &'static [&'static str]) -> Way {
    Way {
        name,
        kind,
        options,
    }
}

const LOGS_BYTES: u64 = 128 << 20;
const LOGS: u64 = 16;

/// What copying came to.
#[derive(Clone, Copy)]
struct Copied {
    write_s: f64,
    read_s: f64,
    taken: u64,
}

/// Copies and prints a table for each directory, as root; true.
pub fn run(options: &Options) -> Result<bool> {
    volume::watch_for_interrupts()?;
    ensure!(
        rustix::process::geteuid().is_root(),
        "mounting loop devices is for root: sudo -E cargo xtask copies"
    );
    if !options.no_setup {
        setup::packages()?;
        setup::install(&[("btrfs-progs", "btrfs, to compare with")])?;
        vm::build()?;
    }
    let temporary = tempfile::Builder::new()
        .prefix("persimmon-copies-")
        .tempdir_in(options.work.canonicalize()?)?;
    let dirs = if options.dirs.is_empty() {
        vec![sources()?, logs(temporary.path())?]
    } else {
        options.dirs.clone()
    };
    for dir in &dirs {
        let bytes = bytes_in(dir)?;
        println!("{}, {:.0} MiB:\n", dir.display(), mib(bytes));
        println!("| filesystem | copying, MB/s | reading, MB/s | taken, MiB | ratio |");
        println!("|---|---|---|---|---|");
        let mut all: Vec<Vec<Copied>> = WAYS.iter().map(|_| Vec::new()).collect();
        for round in 0..options.rounds {
            let mut order: Vec<usize> = (0..WAYS.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let copied = copy(&WAYS[index], dir, temporary.path(), bytes);
                all[index].push(copied.context(WAYS[index].name)?);
            }
        }
        for (way, copies) in WAYS.iter().zip(&all) {
            let rate = |seconds: &dyn Fn(&Copied) -> f64| {
                bytes as f64 / 1e6 / median(copies.iter().map(seconds))
            };
            let taken = median(copies.iter().map(|copied| copied.taken as f64));
            println!(
                "| {} | {:.0} | {:.0} | {:.1} | {:.3} |",
                way.name,
                rate(&|copied| copied.write_s),
                rate(&|copied| copied.read_s),
                taken / f64::from(1 << 20),
                taken / bytes as f64
            );
        }
        println!();
    }
    Ok(true)
}

fn copy(way: &Way, dir: &Path, work: &Path, bytes: u64) -> Result<Copied> {
    volume::go_on()?;
    let size = (bytes * 3).max(1 << 30).next_multiple_of(1 << 20);
    let volume = Volume::create(way.kind, &volume::persimmon()?, work, "copies", size, &[])?;
    volume.mount_with(way.options)?;
    let before = used(&volume.dir)?;
    let start = Instant::now();
    output(shell::command(&["cp", "-r"]).arg(dir).arg(&volume.dir))?;
    output(shell::command(&["sync", "-f"]).arg(&volume.dir))?;
    let write_s = start.elapsed().as_secs_f64();
    volume.unmount()?;
    volume.mount_with(way.options)?;
    let taken = used(&volume.dir)?.saturating_sub(before);
    let start = Instant::now();
    let read = format!("tar -C {} -cf - . | cat >/dev/null", volume.dir.display());
    output(&mut shell::command(&["sh", "-c", &read]))?;
    let read_s = start.elapsed().as_secs_f64();
    volume.unmount()?;
    std::fs::remove_file(&volume.image)?;
    Ok(Copied {
        write_s,
        read_s,
        taken,
    })
}

fn used(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok((stat.f_blocks - stat.f_bfree) * stat.f_frsize)
}

fn bytes_in(dir: &Path) -> Result<u64> {
    let said = output(shell::command(&["du", "--apparent-size", "-sb"]).arg(dir))?;
    let bytes = said.split_whitespace().next().context("du said nothing")?;
    Ok(bytes.parse()?)
}

/// The sources of what Persimmon is built of.
fn sources() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let dir = home.context("neither CARGO_HOME nor HOME is set")?;
    Ok(dir.join("registry/src"))
}

/// Logs of a web server as they could be, the same each time.
fn logs(work: &Path) -> Result<PathBuf> {
    const METHODS: [&str; 4] = ["GET", "GET", "GET", "POST"];
    const PATHS: [&str; 8] = [
        "/",
        "/index.html",
        "/api/v2/orders",
        "/api/v2/customers",
        "/static/site.css",
        "/static/app.js",
        "/search",
        "/images/logo.svg",
    ];
    const AGENTS: [&str; 4] = [
        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0 Safari/537.36",
        "curl/8.11.0",
        "kube-probe/1.31",
    ];
    let dir = work.join("logs");
    std::fs::create_dir(&dir)?;
    let mut noise = Noise(11);
    let mut pick = |words: &[&'static str]| words[noise.below(words.len() as u64) as usize];
    let mut dice = Noise(12);
    for log in 0..LOGS {
        let mut out = BufWriter::new(File::create(dir.join(format!("access.log.{log}")))?);
        let (mut written, mut second) = (0, log * 86_400);
        while written < LOGS_BYTES / LOGS {
            second += dice.below(2);
            let (day, hour) = (1 + second / 86_400, second / 3600 % 24);
            let line = format!(
                "10.{}.{}.{} - - [{day:02}/Nov/2026:{hour:02}:{:02}:{:02} +0000] \"{} {}?id={} HTTP/1.1\" {} {} \"-\" \"{}\"\n",
                dice.below(4),
                dice.below(16),
                dice.below(256),
                second / 60 % 60,
                second % 60,
                pick(&METHODS),
                pick(&PATHS),
                dice.below(100_000),
                if dice.below(20) == 0 { 404 } else { 200 },
                dice.below(60_000),
                pick(&AGENTS),
            );
            out.write_all(line.as_bytes())?;
            written += line.len() as u64;
        }
        out.flush()?;
    }
    Ok(dir)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
