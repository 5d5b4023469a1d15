//! A database at three quarters of a volume, overwritten five times: what the device was sent for each byte that RocksDB wrote,
//! and how many blocks cleaning moved.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::plugin::{Plugin, output, uri};
use super::verdict;

const VALUE_BYTES: u64 = 4000;
const KEY_BYTES: u64 = 16;
/// Share of the volume that the database takes.
const FILL: f64 = 0.75;
const OVERWRITES: u64 = 5;
/// What RocksDB keeps beside the live entries while it compacts, as a share of them.
const SPACE_AMPLIFICATION: f64 = 1.12;

/// What is asked for: bytes the device is sent for each that RocksDB writes, and of them the share that cleaning moves, percent.
const DEVICE_MAX: f64 = 1.05;
const MOVED_MAX: f64 = 3.0;

/// All modes of flush: writing through costs a block of the journal for each write. True where all are as asked for.
pub fn run(plugin: &Plugin, scratch: &Path, bytes: u64) -> Result<bool> {
    println!(
        "| flush | database / volume | RocksDB wrote | device / RocksDB | blocks moved / written | stalls |"
    );
    println!("|---|---|---|---|---|---|");
    let mut met = true;
    for mode in ["kernel", "memory", "through"] {
        met &= one(plugin, scratch, bytes, mode).with_context(|| format!("flush={mode}"))?;
    }
    Ok(met)
}

fn one(plugin: &Plugin, scratch: &Path, bytes: u64, mode: &str) -> Result<bool> {
    let image = plugin.make_volume(scratch, &format!("{mode}.img"), bytes)?;
    let space = plugin.tool("info").arg(&image).arg("--json").output()?;
    let info: serde_json::Value = serde_json::from_slice(&space.stdout)?;
    let total = info["total_bytes"].as_u64().unwrap_or(bytes);
    let entries = (total as f64 * FILL / SPACE_AMPLIFICATION) as u64 / (VALUE_BYTES + KEY_BYTES);
    let run = |benchmarks: &[&str], writes: u64| -> Result<Written> {
        let statistics = scratch.join(format!("{mode}.statistics"));
        let options = format!("flush={mode}&statistics={}", statistics.display());
        let mut bench = plugin.program("db_bench");
        bench.args([
            "--statistics",
            "--compression_type=none",
            "--db=/db",
            "--seed=1",
        ]);
        bench
            .arg(format!("--num={entries}"))
            .arg(format!("--writes={writes}"));
        bench.arg(format!("--value_size={VALUE_BYTES}"));
        bench.arg(format!("--key_size={KEY_BYTES}"));
        // A small database has small files, as a large one has large ones, and few that wait to be compacted.
        bench.args([
            "--write_buffer_size=4194304",
            "--target_file_size_base=4194304",
        ]);
        bench.args([
            "--max_bytes_for_level_base=16777216",
            "--max_background_jobs=2",
        ]);
        bench.args([
            "--level0_slowdown_writes_trigger=5",
            "--level0_stop_writes_trigger=8",
        ]);
        bench.args([
            "--level_compaction_dynamic_level_bytes",
            "--max_compaction_bytes=16777216",
        ]);
        bench.arg("--soft_pending_compaction_bytes_limit=16777216");
        bench.arg("--hard_pending_compaction_bytes_limit=33554432");
        bench.arg(format!("--fs_uri={}", uri(&image, &options)));
        Written::read(&output(bench.args(benchmarks))?, &statistics)
    };
    let filled = run(&["--benchmarks=fillseq"], entries)?;
    let overwrite = ["--benchmarks=overwrite,verifychecksum", "--use_existing_db"];
    let overwritten = run(&overwrite, entries * OVERWRITES)?;
    let sum = |count: fn(&Written) -> u64| count(&filled) + count(&overwritten);
    let (rocksdb, device) = (sum(|run| run.rocksdb), sum(|run| run.device));
    let for_each = device as f64 / rocksdb as f64;
    let moved = 100.0 * sum(|run| run.moved) as f64 / device as f64;
    println!(
        "| {mode} | {:.2} | {:.2} GB | {for_each:.3} (at most {DEVICE_MAX}: {}) | {moved:.2} % (at most {MOVED_MAX} %: {}) | {} |",
        (entries * (VALUE_BYTES + KEY_BYTES)) as f64 / total as f64,
        rocksdb as f64 / 1e9,
        verdict(for_each <= DEVICE_MAX),
        verdict(moved <= MOVED_MAX),
        sum(|run| run.stalls),
    );
    plugin.fsck(&image)?;
    fs::remove_file(&image)?;
    Ok(for_each <= DEVICE_MAX && moved <= MOVED_MAX)
}

/// What one run of db_bench wrote, in bytes.
struct Written {
    /// By RocksDB: logs, flushes and compactions.
    rocksdb: u64,
    /// To the device, everything counted.
    device: u64,
    /// By cleaning.
    moved: u64,
    /// Operations that waited for a checkpoint or for cleaning.
    stalls: u64,
}

impl Written {
    fn read(said: &str, statistics: &Path) -> Result<Written> {
        let tickers = ["wal.bytes", "flush.write.bytes", "compact.write.bytes"];
        let counted = tickers.iter().map(|ticker| counted(said, ticker));
        let volume = counters(statistics)?;
        Ok(Written {
            rocksdb: counted.sum::<Result<u64>>()?,
            device: volume["device_bytes"],
            moved: volume["blocks_moved"] * 4096,
            stalls: volume["stalls"],
        })
    }
}

/// The last value that RocksDB printed of a counter.
pub fn counted(said: &str, ticker: &str) -> Result<u64> {
    let begin = format!("rocksdb.{ticker} COUNT : ");
    let line = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(&begin));
    Ok(line
        .with_context(|| format!("no {begin}"))?
        .trim()
        .parse()?)
}

pub fn counters(path: &Path) -> Result<BTreeMap<String, u64>> {
    let mut counters = BTreeMap::new();
    for line in fs::read_to_string(path)?.lines() {
        let (name, value) = line.split_once(' ').context("a counter without a value")?;
        counters.insert(name.to_owned(), value.parse()?);
    }
    ensure!(counters.contains_key("device_bytes"), "no counters");
    Ok(counters)
}
