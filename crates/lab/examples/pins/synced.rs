//! What is sent to the device for small synced writes and small files, and what a mount reads.

use persimmon_engine::{Deltas, FsyncOrder};
use persimmon_lab::fsync::{
    Appends, Changes, Mounted, Overwrites, Sample, Setup, SmallFiles, Used,
};

use crate::point::{Outcome, Point, Run};

/// Of the file that is overwritten: 256 MiB.
const FILE_BLOCKS: u64 = 65_536;
const BLOCK: usize = 4096;

pub fn runs() -> Vec<Run> {
    vec![
        overwrites("overwrite-4k", BLOCK, true),
        overwrites("overwrite-4k-compressible", BLOCK / 4, true),
        overwrites("overwrite-4k-flushes", BLOCK, false),
        changes("change-100", Deltas::Always, false),
        changes("change-100-in-memory", Deltas::InMemory, false),
        changes("change-100-read-before", Deltas::InMemory, true),
        appends(),
        small_files("file-2k", 2000, false),
        small_files("file-2k-synced", 2000, true),
        small_files("file-empty", 0, false),
        small_files("file-16k-synced", 16_000, true),
        mounts("clean", 0, true),
        mounts("crash", 4000, false),
    ]
}

/// What each of so many took of the device.
fn each(name: &str, what: &str, count: u64, sample: &Sample) -> [Point; 2] {
    let counters = &sample.counters;
    let kib = counters.written_blocks() as f64 * BLOCK as f64 / 1024.0;
    let point = |unit: &str, total: f64| {
        let (name, unit) = (format!("{unit}.{name}"), format!("{unit}/{what}"));
        Point::cost(&name, &unit, total / count as f64)
    };
    [
        point("KiB", kib),
        point("commands", counters.changes() as f64),
    ]
}

fn setup(plp: bool) -> Setup {
    Setup::new(plp, FsyncOrder::WritePointer)
}

fn overwrites(name: &'static str, random_bytes: usize, plp: bool) -> Run {
    Run::new(name, 5, move |seed| -> Outcome<Vec<Point>> {
        let overwrites = Overwrites {
            file_blocks: FILE_BLOCKS,
            blocks: 1,
            random_bytes,
            fsyncs: 30_000,
            seed,
        };
        let sample = overwrites.run(setup(plp))?;
        Ok(each(name, "fsync", overwrites.fsyncs, &sample).into())
    })
}

fn changes(name: &'static str, deltas: Deltas, reads: bool) -> Run {
    Run::new(name, 5, move |seed| -> Outcome<Vec<Point>> {
        let changes = Changes {
            file_blocks: FILE_BLOCKS,
            bytes: 100,
            reads,
            fsyncs: 30_000,
            seed,
        };
        let setup = Setup {
            deltas,
            ..setup(true)
        };
        let sample = changes.run(setup)?;
        Ok(each(name, "fsync", changes.fsyncs, &sample).into())
    })
}

fn appends() -> Run {
    let name = "append-100";
    Run::new(name, 5, move |seed| {
        let appends = Appends {
            clients: 1,
            bytes: 100,
            fsyncs: 30_000,
            seed,
        };
        let sample = appends.run(setup(true))?;
        Ok(each(name, "fsync", appends.fsyncs, &sample).into())
    })
}

fn small_files(name: &'static str, bytes: usize, synced: bool) -> Run {
    Run::new(name, 5, move |seed| {
        let files = SmallFiles {
            files: 20_000,
            bytes,
            synced,
            seed,
        };
        let sample = files.run(setup(true))?;
        let [bytes, commands] = each(name, "file", files.files, &sample);
        // Of files that are not synced dozens share a command.
        Ok(if synced {
            vec![bytes, commands]
        } else {
            vec![bytes]
        })
    })
}

fn mounts(name: &'static str, fsyncs: u64, closed: bool) -> Run {
    Run::new(name, 5, move |seed| {
        let used = Used {
            file_blocks: FILE_BLOCKS,
            fsyncs,
            closed,
            seed,
        };
        let mounted = Mounted::on(&used.device(setup(true))?, setup(true).options())?;
        let counters = &mounted.counters;
        let kib = counters.read_blocks as f64 * BLOCK as f64 / 1024.0;
        Ok(vec![
            Point::cost(&format!("mount-reads.{name}"), "KiB", kib),
            Point::cost(
                &format!("mount-commands.{name}"),
                "commands",
                counters.commands() as f64,
            ),
        ])
    })
}
