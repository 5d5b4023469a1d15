//! A database at three quarters of a volume, overwritten five times: what the device was sent for each byte that RocksDB wrote,
//! and how many blocks cleaning moved.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::plugin::{Plugin, output, uri};

const VALUE_BYTES: u64 = 4000;
const KEY_BYTES: u64 = 16;
/// Share of the volume that the database takes.
const FILL: f64 = 0.75;
const OVERWRITES: u64 = 5;
/// What RocksDB keeps beside the live entries while it compacts, as a share of them.
const SPACE_AMPLIFICATION: f64 = 1.12;

/// Both modes of flush: writing through costs a block of the journal for each write.
pub fn run(plugin: &Plugin, scratch: &Path, bytes: u64) -> Result<()> {
    println!(
        "| flush | database / volume | RocksDB wrote | device / RocksDB | blocks moved / written | stalls |"
    );
    println!("|---|---|---|---|---|---|");
    for mode in ["memory", "through"] {
        one(plugin, scratch, bytes, mode).with_context(|| format!("flush={mode}"))?;
    }
    Ok(())
}

fn one(plugin: &Plugin, scratch: &Path, bytes: u64, mode: &str) -> Result<()> {
    let image = plugin.make_volume(scratch, &format!("{mode}.img"), bytes)?;
    let space = plugin.tool("info").arg(&image).arg("--json").output()?;
    let info: serde_json::Value = serde_json::from_slice(&space.stdout)?;
    let total = info["total_bytes"].as_u64().unwrap_or(bytes);
    let entries = (total as f64 * FILL / SPACE_AMPLIFICATION) as u64 / (VALUE_BYTES + KEY_BYTES);
    let statistics = scratch.join(format!("{mode}.statistics"));
    let options = format!("flush={mode}&statistics={}", statistics.display());
    let mut bench = plugin.program("db_bench");
    bench.args([
        "--benchmarks=fillseq,overwrite,verifychecksum",
        "--statistics",
    ]);
    bench.args(["--compression_type=none", "--db=/db", "--seed=1"]);
    bench.args([
        format!("--num={entries}"),
        format!("--writes={}", entries * OVERWRITES),
    ]);
    bench.args([
        format!("--value_size={VALUE_BYTES}"),
        format!("--key_size={KEY_BYTES}"),
    ]);
    // A small database has small files, as a large one has large ones.
    bench.args([
        "--write_buffer_size=8388608",
        "--target_file_size_base=8388608",
    ]);
    bench.args([
        "--max_bytes_for_level_base=33554432",
        "--max_background_jobs=2",
    ]);
    bench.arg("--level_compaction_dynamic_level_bytes");
    bench.arg(format!("--fs_uri={}", uri(&image, &options)));
    let said = output(&mut bench)?;
    fs::write(scratch.with_extension("sustained.said"), &said)?;
    let wrote: u64 = ["wal.bytes", "flush.write.bytes", "compact.write.bytes"]
        .iter()
        .map(|ticker| counted(&said, ticker))
        .sum::<Result<u64>>()?;
    let stats = counters(&statistics)?;
    let moved = stats["blocks_moved"] * 4096;
    println!(
        "| {mode} | {:.2} | {:.2} GB | {:.3} | {:.2} % | {} |",
        entries as f64 * (VALUE_BYTES + KEY_BYTES) as f64 / total as f64,
        wrote as f64 / 1e9,
        stats["device_bytes"] as f64 / wrote as f64,
        100.0 * moved as f64 / stats["device_bytes"] as f64,
        stats["stalls"],
    );
    plugin.fsck(&image)?;
    fs::remove_file(&image)?;
    Ok(())
}

/// The last value that RocksDB printed of a counter.
fn counted(said: &str, ticker: &str) -> Result<u64> {
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

fn counters(path: &Path) -> Result<BTreeMap<String, u64>> {
    let mut counters = BTreeMap::new();
    for line in fs::read_to_string(path)?.lines() {
        let (name, value) = line.split_once(' ').context("a counter without a value")?;
        counters.insert(name.to_owned(), value.parse()?);
    }
    ensure!(counters.contains_key("device_bytes"), "no counters");
    Ok(counters)
}
