//! What is run on a database in the guest, and what it says that it did.

use std::fmt;

use anyhow::{Context, Result};

use super::places::Place;
use crate::rocksdb::places::{Device, Ran};
use crate::vm::counters::Counters;

const KEY_BYTES: u64 = 16;
const VALUE_BYTES: u64 = 1000;
/// Of the capacity, taken by the live entries.
const FILL_PERCENT: u64 = 40;
/// Each takes a write and a flush of the drive at least.
const SYNCS: u64 = 500;
/// Keys of fillsync: db_bench takes a thousandth of the number that it is told for them, and none of that for its writes.
const KEYS_DIVISOR: u64 = 1000;

/// A small database has small files, as a large one has large ones: two files of a table in a zone, memory for a few.
const SHAPE: &str = "--compression_type=none --seed=1 --threads=1 --write_buffer_size=4194304 --target_file_size_base=2097152 \
    --max_bytes_for_level_base=16777216 --max_background_jobs=2 --level0_slowdown_writes_trigger=5 --level0_stop_writes_trigger=8 \
    --level_compaction_dynamic_level_bytes --max_compaction_bytes=16777216 --soft_pending_compaction_bytes_limit=16777216 \
    --hard_pending_compaction_bytes_limit=33554432 --cache_size=8388608";

/// One run of a program.
pub struct Workload {
    pub name: &'static str,
    /// On a new volume; otherwise it goes on with the database that the one before left.
    pub is_new: bool,
    program: Program,
}

/// What is run: a line here and in [`Workload::command`], its file in `Plugin::for_guest`.
enum Program {
    /// db_bench, with these arguments.
    Bench(String),
    /// The driver of YCSB: the name of the workload there, and how many operations.
    Ycsb(&'static str, u64),
}

const YCSB_OPERATIONS: u64 = 20_000;
/// Each reads up to a hundred records.
const YCSB_SCANS: u64 = YCSB_OPERATIONS / 10;
/// D and E are last, for their inserts stay.
const YCSB: &[(&str, &str, u64)] = &[
    ("YCSB A", "A", YCSB_OPERATIONS),
    ("YCSB B", "B", YCSB_OPERATIONS),
    ("YCSB C", "C", YCSB_OPERATIONS),
    ("YCSB F", "F", YCSB_OPERATIONS),
    ("YCSB D", "D", YCSB_OPERATIONS),
    ("YCSB E", "E", YCSB_SCANS),
];

/// All of them, for drives of so many MiB.
pub fn all(size_mib: u64) -> Vec<Workload> {
    let entries = entries(size_mib);
    let workload = |name, is_new, arguments: String| Workload {
        name,
        is_new,
        program: Program::Bench(format!("--benchmarks={name} {arguments}")),
    };
    let again = format!("--num={entries} --use_existing_db");
    // Past every cache but RocksDB's own.
    let read = format!("{again} --use_direct_reads --reads={}", entries / 10);
    let mut all = vec![
        workload(
            "fillsync",
            true,
            format!("--num={} --writes={SYNCS}", SYNCS * KEYS_DIVISOR),
        ),
        workload("fillseq", true, format!("--num={entries}")),
        workload("fillrandom", true, format!("--num={entries}")),
        workload(
            "overwrite",
            false,
            format!("{again} --writes={}", 2 * entries),
        ),
        workload("readrandom", false, read.clone()),
        workload("readwhilewriting", false, read),
    ];
    let ycsb = |name, is_new, workload, operations| Workload {
        name,
        is_new,
        program: Program::Ycsb(workload, operations),
    };
    // Half as many: its driver's RocksDB has the shape of a larger one, and takes more room while it compacts.
    all.push(ycsb("YCSB load", true, "load", entries / 2));
    let further = YCSB.iter();
    all.extend(
        further.map(|(name, workload, operations)| ycsb(name, false, workload, *operations)),
    );
    all
}

/// Entries of a database for drives of so many MiB.
pub fn entries(size_mib: u64) -> u64 {
    (size_mib << 20) * FILL_PERCENT / 100 / (KEY_BYTES + VALUE_BYTES)
}

impl Workload {
    /// For the guest's shell, on a database of so many records. Prints what [`Workload::figures`] reads.
    pub fn command(&self, place: &Place, records: u64) -> String {
        match &self.program {
            Program::Bench(arguments) => bench(place, arguments),
            Program::Ycsb(workload, operations) => {
                let records = if self.is_new { *operations } else { records };
                let (uri, directory) = place.database();
                let uri = uri.map_or(String::new(), |uri| format!("fs_uri={uri}"));
                // An eighth of the records fits into memory.
                let cache = records * VALUE_BYTES / 8;
                format!(
                    "{} workload={workload} db={directory} {uri} records={records} operations={operations} threads=1 cache={cache} 2>&1",
                    place.program("ycsb")
                )
            }
        }
    }

    /// From what it printed, and what the drives got; and how many records there are, where that is told.
    pub fn figures(&self, said: &str, sent: Counters) -> Result<(Figures, Option<u64>)> {
        if matches!(self.program, Program::Bench(_)) {
            return Ok((Figures::read(said, sent)?, None));
        }
        let ran = Ran::read(said, Device::default())?;
        let all = ran.figures("all")?.context("no operations")?;
        // Times are those of reads: of scans where there are no others, of all where there are none.
        let reads = ran.figures("read")?.or(ran.figures("scan")?).unwrap_or(all);
        let figures = Figures {
            operations_per_second: all.per_second,
            p99: reads.p99,
            p999: reads.p999,
            written: ran.number("written_bytes")?,
            sent,
        };
        Ok((figures, Some(ran.number("records")?)))
    }
}

/// A run of db_bench for the guest's shell.
pub fn bench(place: &Place, arguments: &str) -> String {
    let (uri, directory) = place.database();
    let uri = uri.map_or(String::new(), |uri| format!("--fs_uri={uri}"));
    let program = place.program("db_bench");
    // All that it says would take the emulated port longer than some workloads take.
    format!(
        "{program} {uri} --db={directory} {SHAPE} --key_size={KEY_BYTES} --value_size={VALUE_BYTES} --histogram --statistics \
         {arguments} >/tmp/said 2>/tmp/errors || {{ code=$?; tail -c 1000 /tmp/said; tail -c 1000 /tmp/errors; exit $code; }}; \
         grep -E 'ops/sec|^Percentiles|rocksdb.(wal|flush.write|compact.write).bytes COUNT' /tmp/said"
    )
}

/// What one run came to.
#[derive(Clone, Copy, Default)]
pub struct Figures {
    pub operations_per_second: f64,
    /// Of operations, or of reads alone where there are both, microseconds.
    pub p99: f64,
    pub p999: f64,
    /// By RocksDB: logs, flushes and compactions.
    pub written: u64,
    pub sent: Counters,
}

impl Figures {
    /// From what db_bench printed, and what the drives got.
    pub fn read(said: &str, sent: Counters) -> Result<Figures> {
        let speed = word_before(said, "ops/sec").context("no operations")?;
        let percentiles = |name| word_after(said, name).context("no percentiles");
        let tickers = ["wal.bytes", "flush.write.bytes", "compact.write.bytes"];
        let written = tickers.iter().map(|ticker| {
            let begin = format!("rocksdb.{ticker} COUNT : ");
            let line = said
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix(&begin));
            let count = line.with_context(|| format!("no {ticker}"))?;
            Ok(count.trim().parse::<u64>()?)
        });
        Ok(Figures {
            operations_per_second: speed,
            p99: percentiles("P99:")?,
            p999: percentiles("P99.9:")?,
            written: written.sum::<Result<u64>>()?,
            sent,
        })
    }

    /// Bytes the drives were sent for each that RocksDB wrote; `None` where it wrote next to nothing.
    pub fn amplification(&self) -> Option<f64> {
        (self.written >= 1 << 20).then(|| self.sent.bytes as f64 / self.written as f64)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:8.0} ops/s, p99 {:.0} us, p99.9 {:.0} us, RocksDB wrote {:.1} MB, {:.1} MB sent, {} resets",
            self.operations_per_second,
            self.p99,
            self.p999,
            self.written as f64 / 1e6,
            self.sent.bytes as f64 / 1e6,
            self.sent.resets
        )
    }
}

fn word_before(said: &str, word: &str) -> Option<f64> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let at = words.iter().position(|found| *found == word)?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

fn word_after(said: &str, word: &str) -> Option<f64> {
    let mut words = said.split_whitespace().skip_while(|found| *found != word);
    words.nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
readrandom   :       2.203 micros/op 447928 ops/sec 0.004 seconds 2000 operations;   49.6 MB/s (2000 of 2000 found)
Percentiles: P50: 0.97 P75: 1.64 P99: 5.43 P99.9: 170.00 P99.99: 707.00
rocksdb.wal.bytes COUNT : 3000000
rocksdb.flush.write.bytes COUNT : 2000000
rocksdb.compact.write.bytes COUNT : 1000000
";

    #[test]
    fn figures_are_read_from_what_db_bench_prints() {
        let sent = Counters {
            bytes: 9_000_000,
            resets: 3,
        };
        let figures = Figures::read(SAID, sent).unwrap();
        assert_eq!((figures.p99, figures.p999), (5.43, 170.0));
        assert_eq!(figures.operations_per_second, 447_928.0);
        assert_eq!(figures.written, 6_000_000);
        assert_eq!(figures.amplification(), Some(1.5));
        let said = "kind=read operations=9 ops_per_second=4.5 p50_us=1.0 p99_us=2.5 p999_us=7.0 longest_us=8.0\n\
            kind=all operations=19 ops_per_second=9.5 p50_us=1.0 p99_us=3.5 p999_us=8.0 longest_us=8.0\n\
            records=12 written_bytes=4096 stall_us=0\n";
        let (figures, records) = all(256).pop().unwrap().figures(said, sent).unwrap();
        assert_eq!((figures.operations_per_second, figures.p99), (9.5, 2.5));
        assert_eq!((figures.written, records), (4096, Some(12)));
        assert!(Figures::read("", sent).is_err());
        assert!(Figures::read(&SAID.replace("wal.bytes", "other"), sent).is_err());
    }
}
