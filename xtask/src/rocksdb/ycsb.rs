//! The core workloads of YCSB, A to F, through the plugin and through mounts, beside ext4, XFS and f2fs on loop devices: in each round all
//! of them one after the other, each in a new volume; the median of the ratios of a round counts.

use std::path::Path;

use anyhow::{Context, Result};

use super::places::{BLOCK_BYTES, Device, Figures, Place, Way};
use super::plugin::Plugin;
use super::speed::print_head;
use crate::figures::median;
use crate::setup;
use crate::volume::Kind;

/// What is measured, and how much of it.
pub struct Plan {
    pub rounds: u32,
    pub records: u64,
    /// Of each workload; a tenth of them where they are scans.
    pub operations: u64,
    pub threads: u32,
}

/// One filesystem that is measured.
struct Subject {
    name: &'static str,
    way: Way,
    room: Room,
}

/// How large a volume is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Nothing has to be cleaned.
    Wide,
    /// The database with what it needs to compact fills it: zones are used again all the time, and cleaned.
    Tight,
}

/// Two tables a zone: zones are larger than files on a drive, too, and do not become empty by themselves.
const ZONE: &[&str] = &["--zone-size", "8M"];
const WIDE_BYTES: u64 = 8 << 30;
/// What RocksDB keeps beside the records however many they are: logs, which have space of their own, memory that is written, and tables that
/// wait to be compacted.
const TIGHT_BESIDE_BYTES: u64 = 128 << 20;
/// Bytes of the volume for each of the records.
const TIGHT_FACTOR: u64 = 2;
/// A record with its key in a table.
const RECORD_BYTES: u64 = 1032;

const SUBJECTS: &[Subject] = &[
    Subject {
        name: "plugin",
        way: Way::Plugin("flush=kernel"),
        room: Room::Wide,
    },
    Subject {
        name: "plugin, small",
        way: Way::Plugin("flush=kernel"),
        room: Room::Tight,
    },
    Subject {
        name: "mount",
        way: Way::Mount(Kind::Persimmon, &[]),
        room: Room::Wide,
    },
    Subject {
        name: "writeback_cache",
        way: Way::Mount(Kind::Persimmon, &["writeback_cache"]),
        room: Room::Wide,
    },
    Subject {
        name: "ext4",
        way: Way::Mount(Kind::Ext4, &[]),
        room: Room::Wide,
    },
    Subject {
        name: "xfs",
        way: Way::Mount(Kind::Xfs, &[]),
        room: Room::Wide,
    },
    Subject {
        name: "f2fs",
        way: Way::Mount(Kind::F2fs, &[]),
        room: Room::Wide,
    },
];

/// In the order that YCSB recommends, but that the database is not made anew before E: D's inserts stay. `overwrite` brings all records
/// into the order in which a store that has been used for a while has them.
const WORKLOADS: &[&str] = &["load", "overwrite", "A", "B", "C", "F", "D", "E"];

/// What one workload did.
struct YcsbRun {
    all: Figures,
    /// Reads, or scans where there are none.
    reads: Option<Figures>,
    written: u64,
    device: Device,
}

/// By workload.
type Runs = Vec<YcsbRun>;

/// Measures, and prints tables.
pub fn run(plugin: &Plugin, scratch: &Path, plan: &Plan) -> Result<()> {
    plugin.build_bench("ycsb")?;
    let mut subjects = Vec::new();
    for subject in SUBJECTS {
        if subject.way.is_there()? {
            setup::install(subject.way.packages())?;
            subjects.push(subject);
        }
    }
    // By subject, by round.
    let mut all: Vec<Vec<Runs>> = subjects.iter().map(|_| Vec::new()).collect();
    for round in 0..plan.rounds as usize {
        // Who comes first changes: what one leaves to the host's writers slows the next one down.
        for turn in 0..subjects.len() {
            let number = (turn + round) % subjects.len();
            let subject = subjects[number];
            eprintln!("round {} of {}: {}", round + 1, plan.rounds, subject.name);
            let runs = measure(plugin, scratch, subject, plan).context(subject.name)?;
            all[number].push(runs);
        }
        // After each: a round takes minutes, and who stops early has what there is.
        print(&subjects, &all);
    }
    Ok(())
}

fn measure(plugin: &Plugin, scratch: &Path, subject: &Subject, plan: &Plan) -> Result<Runs> {
    let bytes = match subject.room {
        Room::Wide => WIDE_BYTES,
        Room::Tight => {
            let bytes = TIGHT_FACTOR * plan.records * RECORD_BYTES + TIGHT_BESIDE_BYTES;
            bytes >> 20 << 20
        }
    };
    let place = Place::create(plugin, scratch, "ycsb", subject.way, bytes, ZONE)?;
    let mut records = plan.records;
    let mut runs = Runs::new();
    for workload in WORKLOADS {
        let operations = match *workload {
            "load" => records,
            "overwrite" => 2 * records,
            "E" => plan.operations / 10,
            _ => plan.operations,
        };
        // An eighth of the records fits into memory.
        let cache = plan.records * RECORD_BYTES / 8;
        let words = [
            format!("workload={workload}"),
            format!("records={records}"),
            format!("operations={operations}"),
            format!("threads={}", plan.threads),
            format!("cache={cache}"),
        ];
        let ran = place
            .run("ycsb", &words)
            .with_context(|| format!("workload {workload}"))?;
        records = ran.number("records")?;
        let all = ran.figures("all")?.context("no operations")?;
        runs.push(YcsbRun {
            all,
            reads: ran.figures("read")?.or(ran.figures("scan")?),
            written: ran.number("written_bytes")?,
            device: ran.device,
        });
    }
    place.remove()?;
    Ok(runs)
}

fn print(subjects: &[&Subject], all: &[Vec<Runs>]) {
    let rounds = all.first().map_or(0, Vec::len);
    let names = || subjects.iter().map(|subject| subject.name.to_owned());
    println!("Operations a second, medians of {rounds} rounds:");
    print_head("workload", names());
    print_rows(all, |run| {
        format!("{:.0}", median(run.iter().map(|run| run.all.per_second)))
    });
    for (what, figure) in [
        ("p99", (|reads| reads.p99) as fn(Figures) -> f64),
        ("p99.9", |reads| reads.p999),
    ] {
        println!("\nReads (E: scans), {what}, us, medians of {rounds} rounds:");
        print_head("workload", names());
        print_rows(all, |runs| {
            let reads = runs
                .iter()
                .filter_map(|run| run.reads.map(figure))
                .collect::<Vec<f64>>();
            if reads.is_empty() {
                "-".to_owned()
            } else {
                format!("{:.0}", median(reads))
            }
        });
    }
    print_ratios(subjects, all);
    println!(
        "\nBytes the device was sent for each that RocksDB wrote / of them moved by cleaning, %; in all rounds:"
    );
    print_head("workload", names());
    print_rows(all, amplification);
    print!("| all |");
    for rounds in all {
        print!(
            " {} |",
            amplification(&rounds.iter().flatten().collect::<Vec<&YcsbRun>>())
        );
    }
    println!(
        "\n\nBlocks moved by cleaning, zones it emptied, operations that waited; in all rounds and workloads:"
    );
    for (subject, rounds) in subjects.iter().zip(all) {
        let runs = rounds.iter().flatten();
        let device = runs.map(|run| run.device).reduce(|sum, one| sum.and(&one));
        let device = device.unwrap_or_default();
        let cleaned = device
            .cleaned
            .map_or("not told".to_owned(), |cleaned| cleaned.to_string());
        if subject.way.is_ours() {
            println!(
                "{}: {}, {cleaned}, {}",
                subject.name, device.moved, device.stalls
            );
        }
    }
}

/// A row for each workload, a cell for each subject: of its runs of that workload, one a round.
fn print_rows(all: &[Vec<Runs>], cell: impl Fn(&[&YcsbRun]) -> String) {
    for (number, workload) in WORKLOADS.iter().enumerate() {
        print!("| {workload} |");
        for rounds in all {
            let runs: Vec<&YcsbRun> = rounds.iter().filter_map(|runs| runs.get(number)).collect();
            print!(" {} |", cell(&runs));
        }
        println!();
    }
}

/// Below this a ratio says nothing: what the run before left in memory comes on top.
const WRITTEN_MIN: u64 = 16 << 20;

fn amplification(runs: &[&YcsbRun]) -> String {
    let written: u64 = runs.iter().map(|run| run.written).sum();
    let device: u64 = runs.iter().map(|run| run.device.bytes).sum();
    let moved: u64 = runs.iter().map(|run| run.device.moved * BLOCK_BYTES).sum();
    if written < WRITTEN_MIN {
        return "-".to_owned();
    }
    let share = 100.0 * moved as f64 / device.max(1) as f64;
    format!("{:.3} / {share:.2}", device as f64 / written as f64)
}

/// Ours beside each other one, more is better for speed, less for times.
fn print_ratios(subjects: &[&Subject], all: &[Vec<Runs>]) {
    let ours = |number: &usize| subjects[*number].way.is_ours();
    let (ours, peers): (Vec<usize>, Vec<usize>) = (0..subjects.len()).partition(ours);
    let pairs: Vec<(usize, usize)> = ours
        .iter()
        .flat_map(|one| peers.iter().map(move |peer| (*one, *peer)))
        .collect();
    println!(
        "\nRatios of operations a second / p99 / p99.9 of reads, medians of the ratios of a round:"
    );
    let name = |(one, peer): &(usize, usize)| {
        format!("{} / {}", subjects[*one].name, subjects[*peer].name)
    };
    print_head("workload", pairs.iter().map(name));
    for (number, workload) in WORKLOADS.iter().enumerate() {
        print!("| {workload} |");
        for (one, peer) in &pairs {
            let rounds = || all[*one].iter().zip(&all[*peer]);
            let runs = || rounds().map(|(one, peer)| (&one[number], &peer[number]));
            let speed = median(runs().map(|(one, peer)| one.all.per_second / peer.all.per_second));
            let times = |figure: fn(Figures) -> f64| -> String {
                let ratio = |(one, peer): (&YcsbRun, &YcsbRun)| {
                    Some(figure(one.reads?) / figure(peer.reads?))
                };
                let ratios: Vec<f64> = runs().filter_map(ratio).collect();
                if ratios.is_empty() {
                    "-".to_owned()
                } else {
                    format!("{:.2}", median(ratios))
                }
            };
            print!(
                " {speed:.2} / {} / {} |",
                times(|reads| reads.p99),
                times(|reads| reads.p999)
            );
        }
        println!();
    }
}
