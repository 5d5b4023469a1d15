//! What of the time that db_bench spends on processors is spent in the plugin and everything below it, the kernel included: stacks are
//! sampled, and a sample counts if any frame of its stack is in one of the two libraries.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::plugin::{Plugin, output, uri};
use super::speed::print_head;
use super::verdict;
use crate::figures::median;
use crate::setup;

/// Percent of all samples.
const SHARE_MAX: f64 = 5.0;
const VOLUME_BYTES: u64 = 4 << 30;
/// Enough for some ten seconds.
const ENTRIES: u64 = 1_000_000;
/// Samples a second of each thread. No multiple of what timers in programs go by.
const FREQUENCY: &str = "997";
/// Of the stack, with each sample: unwinding needs all up to the frames of the libraries.
const STACK: &str = "dwarf,16384";
/// Begins the names of both libraries.
const LIBRARY: &str = "/libpersimmon";

#[derive(Default)]
struct Samples {
    all: u64,
    below: u64,
    /// Without any frame of a program or library: it is not known whose they are.
    unknown: u64,
}

/// Measures, and prints a table. True where the share is as small as asked for.
pub fn run(plugin: &Plugin, scratch: &Path, rounds: u32) -> Result<bool> {
    setup::install(&[("linux-perf", "perf")])?;
    print_head(
        "round",
        ["samples", "in the plugin and below, %", "unknown, %"]
            .iter()
            .map(|name| (*name).to_owned()),
    );
    let mut shares = Vec::new();
    for round in 1..=rounds {
        let samples = sample(plugin, scratch)?;
        ensure!(samples.all > 0, "perf has taken no samples");
        let percent = |part: u64| 100.0 * part as f64 / samples.all as f64;
        let share = percent(samples.below);
        println!(
            "| {round} | {} | {share:.2} | {:.2} |",
            samples.all,
            percent(samples.unknown)
        );
        shares.push(share);
    }
    let share = median(shares);
    let met = share <= SHARE_MAX;
    println!(
        "Median: {share:.2} % of the process's, asked for: {SHARE_MAX:.0} % ({})",
        verdict(met)
    );
    Ok(met)
}

fn sample(plugin: &Plugin, scratch: &Path) -> Result<Samples> {
    let image = plugin.make_volume(scratch, "cpu.img", VOLUME_BYTES)?;
    let bench = plugin.program("db_bench");
    let data = scratch.join("perf.data");
    let mut record = Command::new("perf");
    record.args(["record", "-q", "-F", FREQUENCY, "--call-graph", STACK, "-o"]);
    record.arg(&data).arg("--").arg(bench.get_program());
    record.args(bench.get_args());
    record.arg(format!("--fs_uri={}", uri(&image, "flush=kernel")));
    record.args(["--db=/db", "--benchmarks=fillrandom", "--threads=1"]);
    record.args(["--compression_type=none", "--seed=1"]);
    record.arg(format!("--num={ENTRIES}"));
    output(&mut record)?;
    std::fs::remove_file(&image)?;
    let mut script = Command::new("perf")
        .args(["script", "-F", "comm,tid,ip,sym,dso", "--no-inline", "-i"])
        .arg(&data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("perf script")?;
    let lines = script.stdout.take().context("perf script says nothing")?;
    let samples = count(BufReader::new(lines).lines())?;
    ensure!(script.wait()?.success(), "perf script failed");
    Ok(samples)
}

/// Takes stacks apart: a line of a thread, a line for each frame, an empty line.
fn count(lines: impl Iterator<Item = std::io::Result<String>>) -> Result<Samples> {
    let mut samples = Samples::default();
    let (mut is_below, mut is_known, mut frames) = (false, false, 0);
    for line in lines {
        let line = line?;
        if line.is_empty() {
            if frames > 0 {
                samples.all += 1;
                samples.below += u64::from(is_below);
                samples.unknown += u64::from(!is_known);
            }
            (is_below, is_known, frames) = (false, false, 0);
        } else if line.starts_with(char::is_whitespace) {
            frames += 1;
            is_below |= line.contains(LIBRARY);
            is_known |= line.contains("(/");
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_where_a_frame_is_in_a_library_of_ours() {
        let stacks = "db_bench 7\n\
            \t ffff vfs_write ([kernel.kallsyms])\n\
            \t 7f01 persimmon_pwrite (/x/libpersimmon.so.0)\n\
            \t 5501 rocksdb::Put (/usr/lib/librocksdb.so.7)\n\
            \n\
            db_bench 7\n\
            \t 5501 rocksdb::Put (/usr/lib/librocksdb.so.7)\n\
            \n\
            writeback 9\n\
            \t ffff clear_page ([kernel.kallsyms])\n\
            \n";
        let lines = stacks.lines().map(|line| Ok(line.to_owned()));
        let samples = count(lines).unwrap_or_default();
        assert_eq!((samples.all, samples.below, samples.unknown), (3, 1, 1));
    }
}
