//! The plugin on zonefs beside the plugin on the block device of a zoned drive: two drives of the same shape in one guest, the same load
//! in turns.

use anyhow::{Context, Result};

use super::places::{PLUGIN, PLUGIN_ZONEFS, Place};
use super::workloads::{Figures, bench, entries};
use super::{LIMIT, Setting, boot, machine, set_up};
use crate::figures::median;
use crate::rocksdb::plugin::Plugin;
use crate::rocksdb::speed::print_head;
use crate::rocksdb::verdict;
use crate::vm::counters::Counters;

/// What is asked for: time on one over time on the other, either way.
const TIME_MAX: f64 = 1.13;

/// One run in one place.
struct ZonefsRun {
    figures: Figures,
    /// Of the whole process, opening and closing the volume included.
    seconds: f64,
}

/// Runs the loads and prints a table; whether the times are as close as asked for.
pub fn run(plugin: &Plugin, setting: &Setting, rounds: u32) -> Result<bool> {
    set_up()?;
    let mut drives = PLUGIN.drives(setting.size_mib, setting.zone_mib)?;
    drives.extend(drives.clone());
    let mut guest = boot(&machine(plugin, setting, drives)?)?;
    let entries = entries(setting.size_mib);
    // The first does the same in each run: no compaction, whose choices depend on time, and one table after the other.
    let loads = [
        (
            "fillseq",
            format!("--benchmarks=fillseq --num={entries} --disable_auto_compactions"),
            true,
        ),
        (
            "fillrandom, overwrite",
            format!("--benchmarks=fillrandom,overwrite --num={entries}"),
            true,
        ),
        (
            "readrandom",
            format!(
                "--benchmarks=readrandom --num={entries} --use_existing_db --use_direct_reads --reads={}",
                entries / 10
            ),
            false,
        ),
    ];
    for place in [&PLUGIN, &PLUGIN_ZONEFS] {
        guest.check(&place.once(), LIMIT)?;
    }
    // By load, then round: on the block device, and on zonefs.
    let mut runs: Vec<Vec<[ZonefsRun; 2]>> = loads.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        for (number, (name, arguments, is_new)) in loads.iter().enumerate() {
            let mut one = |place: &Place| -> Result<ZonefsRun> {
                if *is_new {
                    guest.check(&place.make()?, LIMIT)?;
                }
                let before = Counters::read(&mut guest)?;
                let timed = format!(
                    "read begin rest </proc/uptime; ({}) || exit 1; read end rest </proc/uptime; echo took $begin $end",
                    bench(place, arguments)
                );
                let said = guest.check(&timed, LIMIT)?;
                let sent = Counters::read(&mut guest)?.since(before);
                let run = ZonefsRun {
                    figures: Figures::read(&said, sent)?,
                    seconds: seconds(&said)?,
                };
                eprintln!(
                    "round {} of {rounds}: {name}, {}: {:.2} s, {}",
                    round + 1,
                    place.name,
                    run.seconds,
                    run.figures
                );
                Ok(run)
            };
            // Who comes first changes.
            runs[number].push(if round % 2 == 0 {
                let zbd = one(&PLUGIN)?;
                [zbd, one(&PLUGIN_ZONEFS)?]
            } else {
                let zonefs = one(&PLUGIN_ZONEFS)?;
                [one(&PLUGIN)?, zonefs]
            });
        }
    }
    println!(
        "Medians of {rounds} rounds, {} MiB of drive each, zones of {} MiB:\n",
        setting.size_mib, setting.zone_mib
    );
    let names = loads.iter().map(|(name, ..)| *name);
    Ok(print(names.zip(&runs)))
}

/// Of each load, by round: on the block device, and on zonefs. Whether the times are as close as asked for.
fn print<'a>(loads: impl Iterator<Item = (&'static str, &'a Vec<[ZonefsRun; 2]>)>) -> bool {
    let heads = [
        "s, block device",
        "s, zonefs",
        "zonefs / block device",
        "MB sent, block device",
        "MB sent, zonefs",
    ];
    let further = ["sent / RocksDB's, block device", "the same, zonefs"];
    print_head(
        "load",
        heads.iter().chain(&further).map(|head| (*head).to_owned()),
    );
    let mut all_met = true;
    for (name, rounds) in loads {
        let of = |figure: &dyn Fn(&[ZonefsRun; 2]) -> f64| median(rounds.iter().map(figure));
        let ratio = of(&|[zbd, zonefs]| zonefs.seconds / zbd.seconds);
        let met = (1.0 / TIME_MAX..=TIME_MAX).contains(&ratio);
        all_met &= met;
        let amplification = |run: &ZonefsRun| run.figures.amplification().unwrap_or(f64::NAN);
        println!(
            "| {name} | {:.2} | {:.2} | {ratio:.3} (within 13 %: {}) | {:.3} | {:.3} | {:.4} | {:.4} |",
            of(&|[zbd, _]| zbd.seconds),
            of(&|[_, zonefs]| zonefs.seconds),
            verdict(met),
            of(&|[zbd, _]| zbd.figures.sent.bytes as f64 / 1e6),
            of(&|[_, zonefs]| zonefs.figures.sent.bytes as f64 / 1e6),
            of(&|[zbd, _]| amplification(zbd)),
            of(&|[_, zonefs]| amplification(zonefs)),
        );
    }
    all_met
}

fn seconds(said: &str) -> Result<f64> {
    let took = said.lines().find_map(|line| line.strip_prefix("took "));
    let (begin, end) = took
        .and_then(|took| took.split_once(' '))
        .context("no time")?;
    Ok(end.parse::<f64>()? - begin.parse::<f64>()?)
}
