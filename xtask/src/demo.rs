//! `cargo xtask demo`: what Persimmon does, shown on one page in under two minutes after the build.

mod counters;
mod kill;
mod overwrite;
mod programs;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::volume::{self, Kind, Volume};
use crate::{setup, shell};
use counters::Counters;

/// How to show it.
#[derive(Args)]
pub struct Options {
    /// Install nothing
    #[arg(long)]
    no_setup: bool,
    /// Where the images go, for a few minutes: three gigabytes
    #[arg(long, default_value = "/var/tmp")]
    work: PathBuf,
    /// Everything is built, and this is root: only show
    #[arg(long, hide = true)]
    built: bool,
}

/// Builds, then shows as root; true when every proof held.
pub fn run(options: &Options) -> Result<bool> {
    if options.built {
        volume::watch_for_interrupts()?;
        return show(&options.work).map(|()| true);
    }
    if !options.no_setup {
        setup::run()?;
    }
    build()?;
    let me = std::env::current_exe()?;
    let me = me.to_str().context("the path of this program is no text")?;
    let work = options.work.to_str().context("--work is no text")?;
    shell::succeeds(&mut shell::as_root(&[
        me, "demo", "--built", "--work", work,
    ]))
}

/// Builds the command as it is shipped.
pub fn build() -> Result<()> {
    eprintln!("building persimmon");
    shell::check(&mut shell::command(&[
        "cargo",
        "build",
        "--release",
        "--quiet",
        "--package",
        "persimmon-cli",
    ]))
}

/// The page, written line by line as things happen.
struct Page {
    start: Instant,
    steps: usize,
}

impl Page {
    /// Does one step and writes its line: what was done, what came of it, how long it took.
    fn step(&mut self, what: &str, body: impl FnOnce() -> Result<String>) -> Result<()> {
        let start = Instant::now();
        self.steps += 1;
        let result = volume::go_on().and_then(|()| body());
        let seconds = start.elapsed().as_secs_f64();
        let number = self.steps;
        match &result {
            Ok(outcome) => {
                let mut lines = outcome.lines();
                let first = lines.next().unwrap_or_default();
                println!("{number:>3}  {what:<22} {first:<78} {seconds:>5.1} s");
                for line in lines {
                    println!("{:28}{line}", "");
                }
            }
            Err(_) => println!("{number:>3}  {what:<22} {:<78} {seconds:>5.1} s", "FAILED"),
        }
        result
            .map(|_| ())
            .with_context(|| format!("step {number}, {what}"))
    }
}

fn show(work: &Path) -> Result<()> {
    let temporary = tempfile::Builder::new()
        .prefix("persimmon-demo-")
        .tempdir_in(work.canonicalize()?)?;
    let work = temporary.path();
    let persimmon = volume::persimmon()?;
    let mut page = Page {
        start: Instant::now(),
        steps: 0,
    };
    let mut counters = Counters::default();
    println!(
        "\nPersimmon: an append-only filesystem for zoned storage, mounted from image files\n"
    );

    let create = |name: &str, bytes, zone| {
        let mkfs = ["--zone-size", zone, "--label", name];
        Volume::create(Kind::Persimmon, &persimmon, work, name, bytes, &mkfs)
    };
    let start = Instant::now();
    let large = create("large", 2 << 30, "8M")?;
    let small = create("small", 384 << 20, "4M")?;
    page.step("mkfs, mount", || {
        large.mount()?;
        small.mount()?;
        let seconds = start.elapsed().as_secs_f64();
        Ok(format!(
            "2 GiB in zones of 8 MiB, 384 MiB in zones of 4 MiB: made and mounted in {seconds:.2} s"
        ))
    })?;
    programs::show(&mut page, &large, &mut counters)?;
    overwrite::show(&mut page, &small, &mut counters)?;
    kill::show(&mut page, &small, work, &mut counters)?;
    page.step("unmount, fsck --data", || {
        counters.add(&small)?;
        small.unmount()?;
        large.unmount()?;
        Ok(format!(
            "large: {}, small: {}",
            large.fsck()?,
            small.fsck()?
        ))
    })?;

    println!("\n{}", counters.text());
    for volume in [&large, &small] {
        println!("Zones of the {} volume:", name(volume));
        let mut command = volume.tool("zones");
        shell::check(command.arg("--picture").arg(&volume.image))?;
        println!();
    }
    println!(
        "Every proof held; {:.0} s in all, nothing left behind.",
        page.start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn name(volume: &Volume) -> String {
    let stem = volume.image.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}
