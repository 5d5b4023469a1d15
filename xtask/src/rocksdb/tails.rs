//! How long reads take while a writer goes on at a set rate: in a small volume that is cleaned all the time against a large one where there
//! is nothing to clean. Both hold the same database, and take turns.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::places::{BLOCK_BYTES, Device, Figures, Place, Way};
use super::plugin::Plugin;
use super::speed::print_head;
use super::verdict;
use crate::figures::median;
use crate::volume::Kind;

/// Longest p99.9 of reads while blocks are moved, beside the same where none are.
const RATIO_MAX: f64 = 1.5;

/// Zones hold several tables, as on a drive, whose zones are large: they do not become empty by themselves, and there is something to move.
const ZONE: &[&str] = &["--zone-size", "16M"];
const SMALL_BYTES: u64 = 1 << 30;
const LARGE_BYTES: u64 = 16 << 30;
/// Of 4,000 bytes each: 0.7 of what the small volume can hold.
const ENTRIES: u64 = 135_000;
/// At random, before anything is measured.
const OVERWRITES: u64 = 200_000;
/// What the writer is held to, bytes a second: less than it could write, so that it writes as much in both volumes.
const RATE: u64 = 3 << 20;
/// Of one run.
const SECONDS: u64 = 20;
/// Moving so many blocks a run is cleaning; the issue is what they do to reads.
const MOVED_MIN: u64 = 4096;

const WAYS: &[(&str, Way)] = &[
    ("plugin", Way::Plugin("flush=kernel")),
    ("mount", Way::Mount(Kind::Persimmon, &[])),
];

/// One run of a volume.
struct TailsRun {
    reads: Figures,
    writes: Figures,
    written: u64,
    device: Device,
}

/// Measures, and prints a table. True where reads of the plugin keep to what is asked for.
pub fn run(plugin: &Plugin, scratch: &Path, rounds: u32) -> Result<bool> {
    plugin.build_bench("tails")?;
    let mut met = true;
    let columns = [
        "way",
        "volume",
        "reads/s",
        "p99, us",
        "p99.9, us",
        "of rounds",
        "writes/s",
        "p99.9 of writes, us",
        "device / RocksDB",
        "blocks moved",
        "waited",
    ];
    print_head(
        columns[0],
        columns[1..].iter().map(|column| (*column).to_owned()),
    );
    for (name, way) in WAYS {
        let ratio = one(plugin, scratch, name, *way, rounds).context(*name)?;
        met &= ratio <= RATIO_MAX || !matches!(way, Way::Plugin(_));
    }
    Ok(met)
}

fn one(plugin: &Plugin, scratch: &Path, name: &str, way: Way, rounds: u32) -> Result<f64> {
    let entries = format!("entries={ENTRIES}");
    let mut volumes = Vec::new();
    for (room, bytes) in [("large", LARGE_BYTES), ("small", SMALL_BYTES)] {
        let place = Place::create(plugin, scratch, room, way, bytes, ZONE)?;
        let overwrites = format!("overwrites={OVERWRITES}");
        place
            .run("tails", &[entries.clone(), overwrites])
            .context(room)?;
        volumes.push((place, Vec::new()));
    }
    for round in 0..rounds {
        eprintln!("round {} of {rounds}: {name}", round + 1);
        for (place, runs) in &mut volumes {
            let words = [
                entries.clone(),
                format!("seconds={SECONDS}"),
                format!("rate={RATE}"),
            ];
            let ran = place.run("tails", &words)?;
            runs.push(TailsRun {
                reads: ran.figures("read")?.context("no reads")?,
                writes: ran.figures("write")?.context("no writes")?,
                written: ran.number("written_bytes")?,
                device: ran.device,
            });
        }
    }
    let mut measured = Vec::new();
    for ((place, runs), room) in volumes.into_iter().zip(["large", "small"]) {
        place.remove()?;
        print_row(name, room, &runs);
        measured.push(runs);
    }
    let [without, with] = measured.as_slice() else {
        anyhow::bail!("two volumes are measured");
    };
    let moved = |runs: &[TailsRun]| runs.iter().map(|run| run.device.moved).sum::<u64>();
    ensure!(
        moved(with) >= u64::from(rounds) * MOVED_MIN,
        "cleaning moved no more than {} blocks of the small volume",
        moved(with)
    );
    let ratios = |figure: fn(Figures) -> f64| -> Vec<f64> {
        let pairs = with.iter().zip(without);
        pairs
            .map(|(with, without)| figure(with.reads) / figure(without.reads))
            .collect()
    };
    let ratio = median(ratios(|reads| reads.p999));
    println!(
        "{name}: p99.9 of reads with cleaning / without: {ratio:.2} of rounds {} (at most {RATIO_MAX}: {}); p99: {:.2}",
        range(ratios(|reads| reads.p999), 2),
        verdict(ratio <= RATIO_MAX),
        median(ratios(|reads| reads.p99)),
    );
    Ok(ratio)
}

fn print_row(name: &str, room: &str, runs: &[TailsRun]) {
    let of = |figure: fn(&TailsRun) -> f64| -> Vec<f64> { runs.iter().map(figure).collect() };
    let sum = |count: fn(&TailsRun) -> u64| -> u64 { runs.iter().map(count).sum() };
    println!(
        "| {name} | {room} | {:.0} | {:.0} | {:.0} | {} | {:.0} | {:.0} | {:.3} | {} ({:.1} % of what was sent) | {} |",
        median(of(|run| run.reads.per_second)),
        median(of(|run| run.reads.p99)),
        median(of(|run| run.reads.p999)),
        range(of(|run| run.reads.p999), 0),
        median(of(|run| run.writes.per_second)),
        median(of(|run| run.writes.p999)),
        sum(|run| run.device.bytes) as f64 / sum(|run| run.written) as f64,
        sum(|run| run.device.moved),
        100.0 * (sum(|run| run.device.moved) * BLOCK_BYTES) as f64
            / sum(|run| run.device.bytes) as f64,
        sum(|run| run.device.stalls),
    );
}

/// Least and most of some values.
fn range(values: Vec<f64>, digits: usize) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    format!("{least:.digits$} - {most:.digits$}")
}
