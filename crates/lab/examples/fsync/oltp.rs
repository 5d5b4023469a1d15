//! Transactions of a relational database, as InnoDB makes them: each changes some pages in memory and commits by a sync of
//! the redo log, which one client does for all that wait; a page cleaner writes changed pages of 16 KiB back to four tables, a batch to the
//! doublewrite area first, each step synced. The log is overwritten in a ring, by whole blocks, or appended to, by bytes.
//!
//! In one variant the pages are in the buffer pool, in the other each page that is changed is read from the device first. Who is
//! too far ahead of the page cleaner waits for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use persimmon_engine::FsyncOrder;
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use persimmon_sim::time::{Client, VirtualClock};
use persimmon_sync::{Condvar, Mutex, MutexGuard};

use crate::setup::{BLOCK, Noise, Outcome, Sample, Setup, Timed, verdict};

const TABLES: u64 = 4;
/// Of a table: 64 MiB.
const TABLE_PAGES: u64 = 4096;
const PAGE: usize = 16 << 10;
const PAGE_BLOCKS: u64 = (PAGE / BLOCK) as u64;
/// Of the ring: 32 MiB.
const RING_BLOCKS: u64 = 8192;
/// Pages that the page cleaner writes at once: a doublewrite area of 1 MiB.
const BATCH: usize = 64;
/// Changed pages from which on clients wait for the page cleaner.
const CHANGED_MAX: usize = 1024;
const TRANSACTIONS: u64 = 16_000;
/// What one changes, and what it adds to the log.
const PAGES_EACH: u64 = 3;
const REDO_BYTES: u64 = 2000;
/// What computing costs a transaction.
const THINKS: Duration = Duration::from_micros(100);
/// Until somebody who waits for the page cleaner, or it for changed pages, looks again.
const LOOKS: Duration = Duration::from_micros(100);
const BAR: f64 = 1.1;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Redo {
    Ring,
    Appended,
}

pub fn measure(threads: &[u64], seed: u64) -> Outcome<u32> {
    println!(
        "## OLTP: {TABLES} tables of 64 MiB, {PAGES_EACH} pages and {REDO_BYTES} bytes of redo log a transaction\n"
    );
    println!(
        "| threads | PLP | pages | redo log | wp transactions/s | strict | wp / strict | bar | holds | transactions per log \
         sync, wp | strict | device blocks per transaction, wp | strict |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut missed = 0;
    for (plp, cached) in [(true, true), (true, false), (false, true)] {
        for redo in [Redo::Ring, Redo::Appended] {
            for &threads in threads {
                let run = |order| run(Setup::new(plp, order), threads, cached, redo, seed);
                let (wp, wp_syncs) = run(FsyncOrder::WritePointer)?;
                let (strict, strict_syncs) = run(FsyncOrder::Strict)?;
                let ratio = strict.time.as_secs_f64() / wp.time.as_secs_f64();
                let (holds, no) = verdict(ratio >= BAR);
                missed += no;
                let speed = |sample: &Sample| TRANSACTIONS as f64 / sample.time.as_secs_f64();
                let blocks =
                    |sample: &Sample| sample.counters.written_blocks() as f64 / TRANSACTIONS as f64;
                println!(
                    "| {threads} | {} | {} | {} | {:.0} | {:.0} | {ratio:.3} | {BAR} | {holds} | {:.2} | {:.2} | {:.2} | {:.2} |",
                    if plp { "yes" } else { "no" },
                    if cached { "cached" } else { "device" },
                    if redo == Redo::Ring {
                        "ring"
                    } else {
                        "appended"
                    },
                    speed(&wp),
                    speed(&strict),
                    TRANSACTIONS as f64 / wp_syncs as f64,
                    TRANSACTIONS as f64 / strict_syncs as f64,
                    blocks(&wp),
                    blocks(&strict),
                );
            }
        }
    }
    println!();
    Ok(missed)
}

/// What was measured, and how often the redo log was synced.
fn run(setup: Setup, threads: u64, cached: bool, redo: Redo, seed: u64) -> Outcome<(Sample, u64)> {
    let timed = setup.volume()?;
    let mut noise = Noise::new(seed);
    let blocks = TABLE_PAGES * PAGE_BLOCKS;
    let mut tables = Vec::new();
    for _ in 0..TABLES {
        let table = timed.file(blocks, &mut noise)?;
        timed.age_by(table, blocks, PAGE_BLOCKS, &mut noise)?;
        tables.push(table);
    }
    let database = Database {
        clock: timed.clock()?,
        doublewrite: timed.file(BATCH as u64 * PAGE_BLOCKS, &mut noise)?,
        log: timed.file(if redo == Redo::Ring { RING_BLOCKS } else { 1 }, &mut noise)?,
        timed: &timed,
        tables,
        redo,
        state: Mutex::new(State::default()),
        written: Condvar::new(),
        at_work: AtomicUsize::new(threads as usize),
    };
    let database = &database;
    let mut clients: Vec<Client<'_, Outcome<()>>> = Vec::new();
    for thread in 0..threads {
        let mut noise = Noise::new(seed + 1 + thread);
        clients.push(Box::new(move || {
            let share = TRANSACTIONS / threads;
            let done = (0..share).try_for_each(|_| database.transaction(cached, &mut noise));
            database.at_work.fetch_sub(1, Ordering::Relaxed);
            done
        }));
    }
    let mut noise = Noise::new(seed + 1 + threads);
    clients.push(Box::new(move || database.write_back(&mut noise)));
    let sample = timed.run(clients)?;
    Ok((sample, database.lock().log_syncs))
}

struct Database<'a> {
    timed: &'a Timed,
    clock: &'a VirtualClock,
    tables: Vec<Ino>,
    doublewrite: Ino,
    log: Ino,
    redo: Redo,
    state: Mutex<State>,
    /// The log was synced.
    written: Condvar,
    at_work: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Pages that were changed since they were written, by table and number.
    changed: BTreeSet<(usize, u64)>,
    /// Bytes of redo log that there are, and those that are durable.
    log_end: u64,
    durable: u64,
    /// Somebody writes the log.
    led: bool,
    log_syncs: u64,
}

impl State {
    /// The next changed pages from one on, no longer among the changed ones; none while they are few.
    fn take_batch(&mut self, from: (usize, u64)) -> Vec<(usize, u64)> {
        if self.changed.len() < BATCH {
            return Vec::new();
        }
        let (behind, before) = (self.changed.range(from..), self.changed.range(..from));
        let batch: Vec<(usize, u64)> = behind.chain(before).take(BATCH).copied().collect();
        for page in &batch {
            self.changed.remove(page);
        }
        batch
    }
}

impl Database<'_> {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn transaction(&self, cached: bool, noise: &mut Noise) -> Outcome<()> {
        while self.lock().changed.len() > CHANGED_MAX {
            self.clock.sleep(LOOKS);
        }
        self.clock.sleep(THINKS);
        let pages: Vec<(usize, u64)> = (0..PAGES_EACH)
            .map(|_| (noise.below(TABLES) as usize, noise.below(TABLE_PAGES)))
            .collect();
        if !cached {
            for (table, page) in &pages {
                let mut content = vec![0; PAGE];
                let offset = page * PAGE as u64;
                self.timed
                    .volume
                    .read(self.tables[*table], offset, &mut content)?;
            }
        }
        let end = {
            let mut state = self.lock();
            state.changed.extend(pages);
            state.log_end += REDO_BYTES;
            state.log_end
        };
        self.commit(end, noise)
    }

    /// Returns once the log is durable up to `end`: by somebody else's sync, or by one's own for all that there is.
    fn commit(&self, end: u64, noise: &mut Noise) -> Outcome<()> {
        let mut state = self.lock();
        while state.durable < end {
            if state.led {
                state = self.written.wait(state);
                continue;
            }
            state.led = true;
            let (from, to) = (state.durable, state.log_end);
            drop(state);
            let synced = self.write_log(from, to, noise);
            state = self.lock();
            state.led = false;
            state.durable = to;
            state.log_syncs += 1;
            self.written.notify_all();
            synced?;
        }
        Ok(())
    }

    fn write_log(&self, from: u64, to: u64, noise: &mut Noise) -> Outcome<()> {
        if self.redo == Redo::Appended {
            self.write(self.log, from, (to - from) as usize, noise)?;
        } else {
            // The block that was begun is written again.
            for block in from / BLOCK as u64..to.div_ceil(BLOCK as u64) {
                self.write(self.log, block % RING_BLOCKS * BLOCK as u64, BLOCK, noise)?;
            }
        }
        Ok(self.timed.volume.sync_file(self.log)?)
    }

    /// The page cleaner.
    fn write_back(&self, noise: &mut Noise) -> Outcome<()> {
        // It goes round the pages, as it would by their place in the tables.
        let mut next = (0, 0);
        while self.at_work.load(Ordering::Relaxed) > 0 {
            let batch = self.lock().take_batch(next);
            next = batch
                .last()
                .map_or(next, |(table, page)| (*table, page + 1));
            if batch.is_empty() {
                self.clock.sleep(LOOKS);
                continue;
            }
            self.write(self.doublewrite, 0, batch.len() * PAGE, noise)?;
            self.timed.volume.sync_file(self.doublewrite)?;
            let mut touched = BTreeSet::new();
            for (table, page) in batch {
                self.write(self.tables[table], page * PAGE as u64, PAGE, noise)?;
                touched.insert(table);
            }
            for table in touched {
                self.timed.volume.sync_file(self.tables[table])?;
            }
        }
        Ok(())
    }

    fn write(&self, file: Ino, offset: u64, len: usize, noise: &mut Noise) -> Outcome<()> {
        let bytes = noise.bytes(len);
        self.timed
            .volume
            .write(file, offset, bytes, Timestamp::default())?;
        Ok(())
    }
}
