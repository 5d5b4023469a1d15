//! What a second thread adds, on a simulated device in memory: operations a second of one thread and of two at the same time, each
//! with files of its own. Rounds take turns; the median of their ratios counts. Prints a table. An argument chooses rows by their names.

use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use persimmon::{File, Filesystem, OpenOptions, Options};
use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: usize = 5;
const FILE_BLOCKS: u64 = 1024;
/// Two such files and more.
const READ_CACHE_BYTES: usize = 64 << 20;
const BLOCK: u64 = 4096;
const NAMES: u64 = 1000;

/// What a thread does so many times with its file.
struct Work {
    name: &'static str,
    times: u64,
    once: fn(&Filesystem, &File, usize, u64) -> Outcome<()>,
}

const WORKS: [Work; 4] = [
    Work {
        name: "cached 4 KiB reads",
        times: 400_000,
        once: |_, file, thread, n| {
            let mut block = [0; BLOCK as usize];
            let at = scattered(thread, n) % FILE_BLOCKS * BLOCK;
            file.read_at(&mut block, at)?;
            Ok(())
        },
    },
    Work {
        name: "getattr",
        times: 2_000_000,
        once: |_, file, _, _| {
            file.metadata()?;
            Ok(())
        },
    },
    Work {
        name: "lookup",
        times: 400_000,
        once: |filesystem, _, thread, n| {
            let name = format!("/{thread}/{}", scattered(thread, n) % NAMES);
            filesystem.metadata(&name)?;
            Ok(())
        },
    },
    Work {
        name: "synced appends of 100 bytes",
        times: 30_000,
        once: |_, file, _, n| {
            file.write_at(&[7; 100], FILE_BLOCKS * BLOCK + n * 100)?;
            file.sync_data()?;
            Ok(())
        },
    },
];

/// Numbers in no order (splitmix64).
fn scattered(thread: usize, n: u64) -> u64 {
    let mixed = n
        .wrapping_add((thread as u64) << 32)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
}

fn main() -> Outcome<()> {
    println!("|what|one thread, /s|two, /s|ratio|");
    println!("|---|---|---|---|");
    let wanted = std::env::args().nth(1).unwrap_or_default();
    for work in WORKS.iter().filter(|work| work.name.contains(&wanted)) {
        let (mut alone, mut together, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (one, two) = (rate(work, 1)?, rate(work, 2)?);
            alone.push(one);
            together.push(two);
            ratios.push(two / one);
        }
        println!(
            "|{}|{:.0}|{:.0}|{:.2}|",
            work.name,
            median(alone),
            median(together),
            median(ratios)
        );
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Operations a second of so many threads, on a new volume.
fn rate(work: &Work, threads: usize) -> Outcome<f64> {
    let device = Arc::new(SimDevice::new(SimConfig::new(256, 4096).fast()));
    Volume::format(device.clone(), &FormatOptions::default())?;
    let mut options = Options::default();
    options.engine.read_cache_bytes_max = READ_CACHE_BYTES;
    let filesystem = Filesystem::open_on(device, &options)?;
    let mut files = Vec::new();
    for thread in 0..threads {
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = filesystem.open_file(format!("/file {thread}"), &options)?;
        let mut block = [0; BLOCK as usize];
        for n in 0..FILE_BLOCKS {
            for (at, word) in (0..).zip(block.chunks_exact_mut(8)) {
                word.copy_from_slice(&scattered(thread, n << 9 | at).to_le_bytes());
            }
            file.write_at(&block, n * BLOCK)?;
        }
        file.sync_all()?;
        for n in 0..FILE_BLOCKS {
            file.read_at(&mut block, n * BLOCK)?;
        }
        filesystem.create_dir(format!("/{thread}"))?;
        for name in 0..NAMES {
            filesystem.write(format!("/{thread}/{name}"), b"x")?;
        }
        files.push(file);
    }
    filesystem.sync()?;
    let barrier = Barrier::new(threads);
    let run = |thread: usize, file: &File| -> Outcome<f64> {
        barrier.wait();
        let start = Instant::now();
        for n in 0..work.times {
            (work.once)(&filesystem, file, thread, n)?;
        }
        Ok(work.times as f64 / start.elapsed().as_secs_f64())
    };
    let rates = std::thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> = (0..threads)
            .zip(&files)
            .map(|(thread, file)| scope.spawn(move || run(thread, file)))
            .collect();
        let ended = started.into_iter().map(|thread| match thread.join() {
            Ok(rate) => rate,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<Outcome<Vec<f64>>>()
    })?;
    drop(files);
    filesystem.close()?;
    Ok(rates.iter().sum())
}
