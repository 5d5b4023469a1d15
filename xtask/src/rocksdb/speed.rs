//! Speed of db_bench through the plugin and through a mount, beside ext4 and XFS on loop devices over the same storage: in each round
//! all of them one after the other, each in a new volume; the median of the ratios of a round counts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::plugin::{Plugin, output, uri};
use super::verdict;
use crate::figures::median;
use crate::setup;
use crate::volume::{Kind, Volume};

const VOLUME_BYTES: u64 = 4 << 30;
/// Entries that are written one by one with a sync each. db_bench draws their keys from a thousandth of `--num`.
const SYNCS: u64 = 1500;
/// What is measured, and what the issue of speed asks for beside the better of the two others.
const WORKLOADS: &[(&str, f64)] = &[
    ("fillsync", 1.5),
    ("fillseq", 1.0),
    ("fillrandom", 1.0),
    ("overwrite", 1.0),
    ("readwhilewriting", 1.0),
    ("readrandom", 1.0),
    ("multireadrandom", 1.2),
];

/// A filesystem that is measured.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    /// The plugin, by the mode of flush.
    Plugin(&'static str),
    Mount(Kind),
}

const SUBJECTS: &[Subject] = &[
    Subject::Plugin("kernel"),
    Subject::Plugin("through"),
    Subject::Plugin("memory"),
    Subject::Mount(Kind::Ext4),
    Subject::Mount(Kind::Xfs),
    Subject::Mount(Kind::Persimmon),
];

impl Subject {
    fn name(self) -> String {
        match self {
            Subject::Plugin(mode) => format!("flush={mode}"),
            Subject::Mount(Kind::Persimmon) => "mount".to_owned(),
            Subject::Mount(kind) => kind.name().to_owned(),
        }
    }
}

/// Operations a second by workload.
type Speeds = BTreeMap<String, f64>;

/// Measures, and prints two tables. True where the plugin is as fast as asked for, in both modes beside both others.
pub fn run(plugin: &Plugin, scratch: &Path, rounds: u32, entries: u64) -> Result<bool> {
    setup::install(&[("e2fsprogs", "ext4"), ("xfsprogs", "XFS")])?;
    let mut all: Vec<BTreeMap<Subject, Speeds>> = Vec::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        let mut speeds = BTreeMap::new();
        for subject in SUBJECTS {
            let measured = measure(plugin, scratch, *subject, entries);
            speeds.insert(*subject, measured.with_context(|| subject.name())?);
        }
        all.push(speeds);
    }
    print_medians(&all);
    Ok(print_ratios(&all))
}

fn measure(plugin: &Plugin, scratch: &Path, subject: Subject, entries: u64) -> Result<Speeds> {
    match subject {
        Subject::Plugin(mode) => {
            let image = plugin.make_volume(scratch, "plugin.img", VOLUME_BYTES)?;
            let at = format!("--fs_uri={}", uri(&image, &format!("flush={mode}")));
            let bench = || {
                let mut bench = plugin.program("db_bench");
                bench.args([at.as_str(), "--db=/db"]);
                bench
            };
            let speeds = benches(bench, entries);
            fs::remove_file(&image)?;
            speeds
        }
        Subject::Mount(kind) => {
            let name = subject.name();
            let volume =
                Volume::create(kind, plugin.persimmon(), scratch, &name, VOLUME_BYTES, &[])?;
            volume.mount()?;
            let bench = || {
                let mut bench = Command::new(plugin.path_of("db_bench"));
                bench.arg(format!("--db={}/db", volume.dir.display()));
                bench
            };
            let speeds = benches(bench, entries);
            volume.unmount()?;
            fs::remove_file(&volume.image)?;
            speeds
        }
    }
}

fn benches(bench: impl Fn() -> Command, entries: u64) -> Result<Speeds> {
    let mut speeds = Speeds::new();
    let common = |mut bench: Command| {
        bench.args(["--compression_type=none", "--seed=1", "--threads=1"]);
        bench.arg(format!("--num={entries}"));
        bench
    };
    let mut syncs = bench();
    syncs.args(["--benchmarks=fillsync", "--compression_type=none"]);
    syncs.arg(format!("--num={}", SYNCS * 1000));
    syncs.arg(format!("--writes={SYNCS}"));
    read_speeds(&output(&mut syncs)?, &mut speeds);
    let mut writes = common(bench());
    // What the faster writer has left to compact is not what the reader is measured by.
    writes.args(["--benchmarks=fillseq,fillrandom,overwrite,waitforcompaction,readwhilewriting"]);
    writes.arg(format!("--reads={}", entries / 3));
    read_speeds(&output(&mut writes)?, &mut speeds);
    let mut reads = common(bench());
    reads.args([
        "--benchmarks=readrandom,multireadrandom",
        "--use_existing_db",
    ]);
    reads.args([
        "--use_direct_reads",
        "--multiread_batched",
        "--batch_size=32",
    ]);
    reads.arg(format!("--reads={}", entries / 3));
    read_speeds(&output(&mut reads)?, &mut speeds);
    for (workload, _) in WORKLOADS {
        speeds
            .get(*workload)
            .with_context(|| format!("no result of {workload}"))?;
    }
    Ok(speeds)
}

/// Lines such as `fillseq      :       1.9 micros/op 520000 ops/sec ...`.
fn read_speeds(said: &str, speeds: &mut Speeds) {
    for line in said.lines() {
        let Some((name, rest)) = line.split_once(" : ").or_else(|| line.split_once(':')) else {
            continue;
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "ops/sec");
        let number = at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok());
        if let Some(number) = number {
            speeds.insert(name.trim().to_owned(), number);
        }
    }
}

fn print_medians(all: &[BTreeMap<Subject, Speeds>]) {
    println!("Operations a second, medians of {} rounds:", all.len());
    print_head("workload", SUBJECTS.iter().map(|subject| subject.name()));
    for (workload, _) in WORKLOADS {
        print!("| {workload} |");
        for subject in SUBJECTS {
            let values = all.iter().map(|round| round[subject][*workload]);
            print!(" {:.0} |", median(values));
        }
        println!();
    }
}

fn print_ratios(all: &[BTreeMap<Subject, Speeds>]) -> bool {
    let mut all_met = true;
    println!("Ratios, medians of {} rounds:", all.len());
    let peers = [Subject::Mount(Kind::Ext4), Subject::Mount(Kind::Xfs)];
    let ours = SUBJECTS.iter().filter(|subject| !peers.contains(subject));
    let pairs: Vec<(Subject, Subject)> = ours
        .flat_map(|one| peers.iter().map(move |peer| (*one, *peer)))
        .collect();
    let names = pairs
        .iter()
        .map(|(one, peer)| format!("{} / {}", one.name(), peer.name()));
    print_head("workload", names.chain(["asked for".to_owned()]));
    for (workload, bar) in WORKLOADS {
        print!("| {workload} |");
        for (one, peer) in &pairs {
            let values = all
                .iter()
                .map(|round| round[one][*workload] / round[peer][*workload]);
            let ratio = median(values);
            let met = ratio >= *bar;
            print!(" {ratio:.2} ({}) |", verdict(met));
            // A mount pays for the kernel's way there and back; it is measured, and nothing is asked of it here.
            all_met &= met || !matches!(one, Subject::Plugin(_));
        }
        println!(" {bar:.1} |");
    }
    all_met
}

pub(super) fn print_head(first: &str, names: impl Iterator<Item = String>) {
    let names: Vec<String> = names.collect();
    println!("| {first} | {} |", names.join(" | "));
    println!("|---{}|", "|---".repeat(names.len()));
}
