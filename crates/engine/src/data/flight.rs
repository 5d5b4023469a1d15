//! Flights: staged data of many files on its way to the device, sorted by file and offset, in
//! large commands, over several open zones.
//!
//! Background flights append, wait, and are journaled when the data is there. A flight for fsync
//! writes at known addresses and journals at the same moment; both complete together.

use persimmon_sync::{Arc, MutexGuard};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::extent::Extent;
use persimmon_format::inode::FLAG_PREALLOCATED;
use persimmon_format::record::{Op, Touch};
use persimmon_format::{Ino, Lifetime, Lsn, checksum};

use super::files::File;
use super::growth::Growth;
use super::placing::{Places, Placing};
use super::staged::{Staged, Times};
use crate::Volume;
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::in_flight::InFlight;
use crate::invariant::{invariant, invariant_holds};
use crate::meta::{Intent, Transaction};
use crate::options::FsyncOrder;
use crate::statistics::add;
use crate::zones::{Life, Run, Stream};

/// Blocks of one background flight, more or less (8 MiB).
const FLIGHT_BLOCKS: u64 = 2048;
/// Most blocks whose record is sent beside them while others sync, too (128 KiB). Whoever syncs waits for the data of all records before
/// its own, so the record of a large sync is held back until its data is there: it comes a tenth later at most, and
/// nobody waits for more than its own data and that of small syncs.
const BESIDE_BLOCKS_MAX: u64 = 32;
/// Largest file that is kept in the tree.
const INLINE_BYTES_MAX: u64 = 2048;
/// Extents looked at to tell the lifetime of blocks that overwrite them.
const OLD_MAX: usize = 32;

/// How a flight goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// In the background: journaled when the data has arrived.
    Background,
    /// For fsync: journaled at the same moment if it has no more blocks than that, else when the data has arrived; and made durable.
    Sync { beside_max: u64 },
    /// For fsync: journaled when the data has arrived, and made durable.
    SyncInOrder,
    /// For who wants it to outlive the process: journaled when the data has arrived, and in the hands of the device.
    Recorded,
    /// As in the background, in the place of a flight for fsync whose data failed. Checkpoints
    /// wait for it, so it waits for none.
    Superseding,
}

impl Mode {
    /// Whether somebody waits for it, and it may be small: then its record carries content.
    fn is_small(self) -> bool {
        matches!(self, Mode::Sync { .. } | Mode::SyncInOrder | Mode::Recorded)
    }

    /// Whether the record of so many blocks may be sent before they have arrived.
    fn may_go_beside(self, blocks: u64) -> bool {
        matches!(self, Mode::Sync { beside_max } if blocks <= beside_max)
    }
}

/// A file in a flight.
pub(super) struct Passenger {
    pub(super) ino: Ino,
    file: Arc<File>,
    /// Size when the flight took off.
    pub(super) size: u64,
    committed_size: u64,
    growth: Growth,
    times: Option<Times>,
    /// Lifetime that was told with what flies; else the inode's counts.
    hint: Option<Lifetime>,
    pub(super) blocks: u64,
    pub(super) flying: Vec<(u64, Buffer)>,
}

/// A flight whose blocks are where the tree says they are.
struct Landed {
    /// Whether it is durable, if it was to be. It is in the history either way: the next sync of
    /// anything asks again.
    durable: Result<()>,
}

/// What becomes of one piece of a passenger.
pub(super) struct Landing {
    pub(super) ino: Ino,
    pub(super) block: u64,
    /// One past its last file block.
    pub(super) end: u64,
    pub(super) op: Op,
}

impl Landing {
    pub(super) fn map(ino: Ino, block: u64, extent: Extent) -> Landing {
        Landing {
            ino,
            block,
            end: block + extent.blocks(),
            op: Op::Map { ino, block, extent },
        }
    }
}

impl Volume {
    /// Flies some of what is staged to the device. False if there was nothing to fly.
    pub(crate) fn write_back(&self) -> Result<bool> {
        match self.fly_queued()? {
            0 => Ok(self.pack_ahead()),
            _ => Ok(true),
        }
    }

    /// Flies files together that were written one after the other, a large one alone; answers how many blocks flew,
    /// and one for each file.
    pub(super) fn fly_queued(&self) -> Result<u64> {
        let mut passengers = Vec::new();
        let mut blocks = 0;
        // Everything queued now is looked at once at most.
        for _ in 0..self.files.queued() {
            if blocks >= FLIGHT_BLOCKS {
                break;
            }
            let Some(ino) = self.files.dequeue() else {
                break;
            };
            let Some(file) = self.files.get(ino) else {
                continue;
            };
            let staged = file.lock();
            if staged.busy {
                drop(staged);
                self.files.enqueue(ino);
            } else if !passengers.is_empty() && staged.dirty_blocks() > FLIGHT_BLOCKS {
                // Small ones would be in the air as long.
                drop(staged);
                self.files.enqueue(ino);
                break;
            } else if let Some(passenger) = board(ino, &file, staged) {
                blocks += passenger.blocks;
                passengers.push(passenger);
            }
        }
        let flown = blocks + passengers.len() as u64;
        if !passengers.is_empty() {
            let inos: Vec<Ino> = passengers.iter().map(|p| p.ino).collect();
            match self.fly(passengers, Mode::Background) {
                // That one flies no more, the others do next time.
                Err(Error::ItemDamaged { ino, .. }) if inos.contains(&ino) => {}
                other => other?,
            }
        }
        Ok(flown)
    }

    /// Staged data of a file enters the history. Nothing is made durable.
    pub fn commit_file(&self, ino: Ino) -> Result<()> {
        self.fly_file(ino, Mode::Background).map(|_| ())
    }

    /// Makes a file durable, with everything that happened before.
    pub fn sync_file(&self, ino: Ino) -> Result<()> {
        let beside_max = match self.files.note_sync(Some(ino)) {
            true => u64::MAX,
            false => BESIDE_BLOCKS_MAX,
        };
        let mode = match self.options.fsync {
            _ if fault(Fault::UnsafeClassic) => Mode::SyncInOrder,
            FsyncOrder::WritePointer => Mode::Sync { beside_max },
            FsyncOrder::Strict => Mode::SyncInOrder,
        };
        match self.fly_file(ino, mode)? {
            Some(()) => {
                self.pack_ahead();
                Ok(())
            }
            None if fault(Fault::CleanFileNotSynced) => Ok(()),
            None => self.commit(self.log.last_lsn()),
        }
    }

    /// Has a file outlive the death of this process, with everything that happened before: it is in the hands of the device,
    /// or of the host's kernel, but may be in a cache that the power empties.
    pub fn record_file(&self, ino: Ino) -> Result<()> {
        match self.fly_file(ino, Mode::Recorded)? {
            Some(()) => {
                self.pack_ahead();
                Ok(())
            }
            None => self.record(self.log.last_lsn()),
        }
    }

    /// Makes everything durable. Where some file finds no room, or fails, the others do all the same. As long as there is
    /// a file of which something was given up because its items are damaged, not everything is: that is
    /// [`Error::ItemDamaged`], if nothing worse is wrong.
    pub fn sync(&self) -> Result<()> {
        // What is staged now, in flights that many share; what is written meanwhile is not waited for.
        let mut left = self.space.staged_blocks();
        while left > 0 {
            match self.fly_queued() {
                // Those that cannot fly are told of below.
                Ok(0) | Err(_) => break,
                Ok(flown) => left = left.saturating_sub(flown),
            }
        }
        let mut flown = Ok(());
        for ino in self.files.all() {
            let one = self.fly_file(ino, Mode::Background);
            flown = worse(flown, one.map(|_| ()));
            // Whoever held it when its last flight landed may have left it behind.
            self.files.forget_if_clean(ino);
        }
        let synced = self.sync_metadata();
        worse(flown, synced)
    }

    /// Flies a file, after the flight it may be on. `None` if nothing was left to fly.
    fn fly_file(&self, ino: Ino, mode: Mode) -> Result<Option<()>> {
        let Some(file) = self.files.get(ino) else {
            return Ok(None);
        };
        // Waiting and boarding are one hold of the lock: nobody else takes the data off meanwhile,
        // so that nothing to fly means that all of it is in the history.
        let waits = |staged: &Staged| staged.busy && !fault(Fault::FlightNotWaitedFor);
        let staged = file.wait_while(file.lock(), waits);
        if let Some(damage) = &staged.damage {
            return Err(damage.clone());
        }
        if staged.is_clean() || staged.busy {
            return Ok(None);
        }
        self.check_writable()?;
        let Some(passenger) = board(ino, &file, staged) else {
            return Ok(None);
        };
        self.fly(vec![passenger], mode).map(Some)
    }

    fn fly(&self, mut passengers: Vec<Passenger>, mode: Mode) -> Result<()> {
        passengers.sort_by_key(|p| p.ino);
        invariant_holds!(
            self.media.alarm,
            passengers
                .iter()
                .zip(passengers.iter().skip(1))
                .all(|(one, next)| one.ino < next.ino),
            "a file is twice in one flight"
        );
        let blocks: u64 = passengers.iter().map(|p| p.blocks).sum();
        let flown = catch_unwind(AssertUnwindSafe(|| {
            let _midst = self.in_midst();
            self.fly_and_land(&passengers, mode)
        }));
        let result = flown.unwrap_or_else(|panic| {
            // Nobody may wait for it for ever, nor take it for written.
            for passenger in &passengers {
                let mut staged = passenger.file.lock();
                self.turn_back(passenger, &mut staged);
                staged.busy = false;
                drop(staged);
                passenger.file.notify();
            }
            resume_unwind(panic)
        });
        for passenger in &passengers {
            let mut staged = passenger.file.lock();
            invariant_holds!(
                self.media.alarm,
                staged.busy,
                "inode {} is not in flight any more",
                passenger.ino
            );
            match &result {
                Ok(_) => {
                    let flying = staged.staged_blocks() - staged.dirty_blocks();
                    invariant_holds!(
                        self.media.alarm,
                        flying == passenger.blocks,
                        "{flying} blocks of inode {} land, and {} took off",
                        passenger.ino,
                        passenger.blocks
                    );
                    self.space.release(passenger.blocks);
                    staged.land();
                }
                Err(error @ Error::ItemDamaged { ino, .. }) if *ino == passenger.ino => {
                    tracing::error!(%error, "what was written to a damaged file is given up");
                    self.space.release(staged.turn_back());
                    self.space.release(staged.give_up(error));
                    self.files.note_cut(&mut staged);
                }
                Err(_) => self.turn_back(passenger, &mut staged),
            }
            staged.busy = false;
            drop(staged);
            passenger.file.notify();
        }
        let inos: Vec<Ino> = passengers.iter().map(|p| p.ino).collect();
        drop(passengers);
        for ino in inos {
            self.files.forget_if_clean(ino);
        }
        let landed = result?;
        add(&self.media.counters.user_bytes, blocks * BLOCK_SIZE as u64);
        landed.durable
    }

    /// What flew is to fly again.
    fn turn_back(&self, passenger: &Passenger, staged: &mut Staged) {
        let overwritten = staged.turn_back();
        invariant_holds!(
            self.media.alarm,
            overwritten <= passenger.blocks,
            "{overwritten} blocks of inode {} were overwritten in flight, of {}",
            passenger.ino,
            passenger.blocks
        );
        self.space.release(overwritten);
        if !std::mem::replace(&mut staged.queued, true) {
            self.files.enqueue(passenger.ino);
        }
    }

    fn fly_and_land(&self, passengers: &[Passenger], mut mode: Mode) -> Result<Landed> {
        let mut landings = Vec::new();
        let mut runs: BTreeMap<Stream, Vec<Run>> = BTreeMap::new();
        for passenger in passengers {
            let inode = self.view::<_, Error>(|view| view.inode(passenger.ino))?;
            let inode = inode.unwrap_or_default();
            // What has space set aside would lose it if it came to lie in the tree.
            let may_lie_in_tree = inode.flags & FLAG_PREALLOCATED == 0;
            let may_ride = may_lie_in_tree && mode.is_small();
            let tail = match may_ride {
                true => self.riding_tail(passenger)?,
                false => None,
            };
            if tail.is_none()
                && may_lie_in_tree
                && let Some(inline) = inline(passenger)
                && !self.is_preallocated(passenger.ino, 0)?
            {
                landings.push(inline);
                continue;
            }
            let blocks = match may_ride {
                true => self.riding_blocks(passenger, tail.as_ref())?,
                false => None,
            };
            let riding = tail.as_ref().map(|tail| tail.block);
            landings.extend(tail);
            if let Some(blocks) = blocks {
                landings.extend(blocks);
                continue;
            }
            let told = passenger.hint.or_else(|| inode.told_lifetime());
            let told = told.and_then(Lifetime::class);
            for (block, data) in &passenger.flying {
                let rides = riding == Some(block + u64::from(data.blocks()) - 1);
                let flies = data.blocks() as usize - usize::from(rides);
                if flies > 0 {
                    let ino = passenger.ino;
                    let (stream, life) = match told {
                        Some(class) => self.zones.hinted(class),
                        None => self.inferred_stream(ino, *block, flies as u64, mode)?,
                    };
                    let run = run(ino, *block, data.slice(0..flies), life);
                    runs.entry(stream).or_default().push(run);
                }
            }
        }
        let is_sync = matches!(mode, Mode::Sync { .. });
        if is_sync && fault(Fault::SizeBeforeData) {
            let ops_max = self.transaction_ops_max();
            let lsn = self.journal(passengers, Vec::new(), None, (mode, ops_max))?;
            self.commit(lsn)?;
        }
        let mut places = Places::default();
        let mut in_flight = is_sync.then(Arc::<InFlight>::default);
        let sent = runs.values().flatten().map(|r| u64::from(r.data.blocks()));
        let may_go_beside = mode.may_go_beside(sent.sum());
        let placing = match mode {
            Mode::Superseding => Placing::Superseding,
            _ => Placing::OfUsers(in_flight.as_ref()),
        };
        for (stream, runs) in runs {
            let (all, before) = (blocks_of(&runs), placed_blocks(&places));
            self.place(stream, placing, runs, &mut places)?;
            let placed = placed_blocks(&places) - before;
            invariant!(
                self.media.alarm,
                placed == all,
                "{placed} blocks of {all} were sent to the device"
            );
        }
        landings.extend(places.placed.drain(..).map(|p| {
            let (addr, crcs) = (p.addr, p.run.crcs);
            Landing::map(p.run.ino, p.run.file_block, Extent::Frame { addr, crcs })
        }));
        landings.sort_by_key(|l| (l.ino, l.block));
        let flown: u64 = passengers.iter().map(|passenger| passenger.blocks).sum();
        let mapped: u64 = landings.iter().map(|l| l.end - l.block).sum();
        invariant!(
            self.media.alarm,
            mapped == flown,
            "{mapped} blocks of {flown} in flight have a place"
        );
        let mut pairs = landings.iter().zip(landings.iter().skip(1));
        invariant!(
            self.media.alarm,
            pairs.all(|(one, next)| (one.ino, one.end) <= (next.ino, next.block)),
            "a block in flight has two places"
        );
        self.keep_tails(passengers, &landings);
        if self.options.fsync == FsyncOrder::Strict
            && mode == Mode::SyncInOrder
            && !fault(Fault::UnsafeClassic)
        {
            self.media.flush()?;
        }
        // Between two records of a flight a checkpoint may have to be waited for, and checkpoints
        // wait until data that failed is written elsewhere: by this very flight. So only the one
        // record of a flight is sent before its data has arrived. Of a large one it is not where others
        // would have to wait for that data. (All of it is on its way to several zones at once either way.)
        let ops_max = self.transaction_ops_max();
        let goes_beside = may_go_beside && landings.len() <= ops_max;
        if let Some(data) = in_flight.take_if(|_| !goes_beside) {
            if let Err(failed) = data.settle() {
                tracing::warn!(%failed, "data to sync did not arrive, writing it elsewhere");
                self.zones.note_failing(Some(&failed.clone().into()));
                self.zones.leave_failed(&self.media);
                drop(places);
                return self.fly_and_land(passengers, Mode::SyncInOrder);
            }
            mode = Mode::SyncInOrder;
        }
        let lsn = self.journal(passengers, landings, in_flight.as_ref(), (mode, ops_max))?;
        let Some(in_flight) = in_flight else {
            let durable = match mode {
                Mode::SyncInOrder => self.commit(lsn),
                Mode::Recorded => self.record(lsn),
                _ => Ok(()),
            };
            return Ok(Landed { durable });
        };
        let own = Some(&*in_flight);
        let result = self.log.commit(&self.media, &self.zones, lsn, own);
        match in_flight.settle() {
            Ok(()) => {
                let durable = result.and_then(|()| self.secure_log());
                Ok(Landed { durable })
            }
            Err(failed) => {
                tracing::warn!(%failed, "synced data did not arrive, writing it elsewhere");
                self.zones.note_failing(Some(&failed.clone().into()));
                self.zones.leave_failed(&self.media);
                drop(places);
                self.supersede(passengers, &in_flight)
            }
        }
    }

    /// Whether a block has space set aside: in volumes of before files were marked for that.
    fn is_preallocated(&self, ino: Ino, block: u64) -> Result<bool> {
        if self.meta().reserved_blocks == 0 {
            return Ok(false);
        }
        let pieces = self.view::<_, Error>(|view| view.extents(ino, block, block + 1, 1))?;
        let mut pieces = pieces.iter();
        Ok(pieces.any(|piece| matches!(piece.extent, Extent::Reserved { .. })))
    }

    /// The stream for blocks of a file that nothing was told of: by what they overwrite.
    fn inferred_stream(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        mode: Mode,
    ) -> Result<(Stream, Life)> {
        let end = block + blocks;
        let old = match mode {
            Mode::Superseding => Vec::new(),
            _ => self.view::<_, Error>(|view| view.extents(ino, block, end, OLD_MAX))?,
        };
        let old = old.iter().filter_map(|piece| {
            let (addr, _) = piece.extent.on_device()?;
            let there = piece.end().min(end) - piece.block.max(block);
            Some((addr.zone(), there))
        });
        Ok(self.zones.infer(old))
    }

    /// Remembers the blocks that the files end in, for who appends to them.
    fn keep_tails(&self, passengers: &[Passenger], landings: &[Landing]) {
        for passenger in passengers {
            let Some((block, content)) = tail(passenger) else {
                continue;
            };
            let last = landings
                .iter()
                .rfind(|l| l.ino == passenger.ino && (l.block..l.end).contains(&block));
            if let Some(Landing {
                op, block: start, ..
            }) = last
                && let Op::Map {
                    extent: Extent::Frame { addr, .. },
                    ..
                } = op
            {
                let addr = addr.offset((block - start) as u32);
                self.tails.keep(passenger.ino, addr, content);
            }
        }
    }

    /// Data failed after its record was written: write it elsewhere, and acknowledge with a
    /// checkpoint, which leaves the bad record behind.
    fn supersede(&self, passengers: &[Passenger], failed: &InFlight) -> Result<Landed> {
        let result = self.fly_and_land(passengers, Mode::Superseding);
        if result.is_err() {
            self.make_read_only();
        }
        let outcome = result.as_ref().map(|_| ()).map_err(Clone::clone);
        self.log.flight_superseded(failed, outcome);
        let mut landed = result?;
        if !fault(Fault::FailedDataAcknowledged) {
            // All others who want to be acknowledged wait for this one.
            landed.durable = self
                .checkpoint()
                .inspect_err(|error| self.log.give_up(error));
        }
        Ok(landed)
    }

    /// Journals landings, in records of at most `ops_max` operations and one more. Each record carries the size that its own
    /// blocks cause: a file's is touched in the record of its last landing, and in each one that
    /// ends half way through the file. What is in the history then each file knows at once: a later record may fail.
    fn journal(
        &self,
        passengers: &[Passenger],
        landings: Vec<Landing>,
        in_flight: Option<&Arc<InFlight>>,
        (mode, ops_max): (Mode, usize),
    ) -> Result<Lsn> {
        let mut in_flight = in_flight;
        let mut lsn = self.log.last_lsn();
        let mut landings = landings.into_iter().peekable();
        let mut touched = passengers.iter().peekable();
        while landings.peek().is_some() || touched.peek().is_some() {
            let mut ops = Vec::new();
            let mut sizes: Vec<(&Passenger, u64)> = Vec::new();
            let mut last: Option<(Ino, u64)> = None;
            while ops.len() < ops_max {
                let next = landings.peek().map(|landing| landing.ino);
                let is_done = |p: &&Passenger| next.is_none_or(|next| p.ino < next);
                if let Some(passenger) = touched.next_if(is_done) {
                    sizes.push((passenger, passenger.size));
                    ops.push(touch(passenger.ino, passenger.size, passenger.times));
                } else if let Some(landing) = landings.next() {
                    last = Some((landing.ino, landing.end));
                    ops.push(landing.op);
                } else {
                    break;
                }
            }
            if let (Some((ino, end)), Some(passenger)) = (last, touched.peek())
                && passenger.ino == ino
            {
                let goes_on = landings.peek().is_some_and(|landing| landing.ino == ino);
                let size = match goes_on {
                    true => passenger
                        .growth
                        .size_at(end * BLOCK_SIZE as u64, passenger.committed_size),
                    false => passenger.size,
                };
                sizes.push((passenger, size));
                ops.push(touch(ino, size, passenger.times));
                if !goes_on {
                    touched.next();
                }
            }
            invariant!(
                self.media.alarm,
                !ops.is_empty() && (in_flight.is_none() || landings.peek().is_none()),
                "data is on its way for one record of several, with {} changes",
                ops.len()
            );
            let data = in_flight.take().map(Arc::clone);
            let data = data.filter(|_| !fault(Fault::FlushedBeforeData));
            let fill = |tx: &mut Transaction<'_>| {
                for op in &ops {
                    let op = with_latest_change(tx, op)?;
                    tx.push(op);
                }
                Ok::<_, Error>(())
            };
            let before = lsn;
            (_, lsn) = match mode {
                Mode::Superseding => self.update_unbounded(data, fill)?,
                _ => self.update_with(Intent::Shrink, data, fill)?,
            };
            invariant!(
                self.media.alarm,
                lsn > before,
                "record {lsn} follows record {before} of one flight"
            );
            for (passenger, size) in sizes {
                passenger.file.lock().committed_size = size;
            }
        }
        Ok(lsn)
    }
}

fn blocks_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.data.blocks())).sum()
}

fn placed_blocks(places: &Places) -> u64 {
    let placed = places.placed.iter();
    placed.map(|p| u64::from(p.run.data.blocks())).sum()
}

/// What to answer of two results: damage in one file tells less than that all others are not durable either.
fn worse(one: Result<()>, other: Result<()>) -> Result<()> {
    match (one, other) {
        (Ok(()) | Err(Error::ItemDamaged { .. }), Err(error)) => Err(error),
        (one, _) => one,
    }
}

/// Takes a file's dirty data off, if there is any; it is not busy.
fn board(ino: Ino, file: &Arc<File>, mut staged: MutexGuard<'_, Staged>) -> Option<Passenger> {
    staged.queued = false;
    if staged.is_clean() || staged.damage.is_some() {
        return None;
    }
    let blocks = staged.take_off();
    let in_flight: u64 = staged
        .flying
        .values()
        .map(|run| u64::from(run.blocks()))
        .sum();
    invariant_holds!(
        staged.alarm(),
        in_flight == blocks,
        "{blocks} dirty blocks of inode {ino} take off, and {in_flight} are in flight"
    );
    staged.busy = true;
    let passenger = Passenger {
        ino,
        size: staged.size.unwrap_or(0),
        committed_size: staged.committed_size,
        growth: staged.flying_growth.clone(),
        times: staged.flying_times,
        hint: staged.hint,
        blocks,
        flying: staged
            .flying
            .iter()
            .map(|(block, data)| (*block, data.clone()))
            .collect(),
        file: Arc::clone(file),
    };
    Some(passenger)
}

fn run(ino: Ino, file_block: u64, data: Buffer, life: Life) -> Run {
    let crcs = data
        .chunks_exact(BLOCK_SIZE)
        .map(checksum::data_block)
        .collect();
    Run {
        ino,
        file_block,
        data,
        crcs,
        pieces: Vec::new(),
        life,
    }
}

/// A file small enough to live in the tree.
fn inline(passenger: &Passenger) -> Option<Landing> {
    let [(0, data)] = passenger.flying.as_slice() else {
        return None;
    };
    if passenger.size > INLINE_BYTES_MAX || data.blocks() != 1 {
        return None;
    }
    let used = data.get(..passenger.size as usize)?;
    let len = used.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let bytes = used.get(..len)?.to_vec();
    Some(Landing::map(passenger.ino, 0, Extent::Inline(bytes)))
}

/// The last block of a file, where the file ends inside it and it is in the flight: its content.
pub(super) fn tail(passenger: &Passenger) -> Option<(u64, &[u8])> {
    let block = passenger.size / BLOCK_SIZE as u64;
    let len = (passenger.size % BLOCK_SIZE as u64) as usize;
    let (start, data) = passenger.flying.last()?;
    let at = usize::try_from(block.checked_sub(*start)?).ok()?;
    if len == 0 || at + 1 != data.blocks() as usize {
        return None;
    }
    let content = data.get(at * BLOCK_SIZE..)?.get(..len)?;
    Some((block, content))
}

fn touch(ino: Ino, size: u64, times: Option<Times>) -> Op {
    let set = Touch {
        size: Some(size),
        mtime: times.map(|t| t.mtime),
        ctime: times.map(|t| t.ctime),
        ..Touch::default()
    };
    Op::Touch { ino, set }
}

/// The change time of a write is not taken over where something changed the inode since.
fn with_latest_change(tx: &Transaction<'_>, op: &Op) -> Result<Op> {
    let mut op = op.clone();
    if let Op::Touch { ino, set } = &mut op
        && let Some(inode) = tx.inode(*ino)?
    {
        set.ctime = set.ctime.max(Some(inode.ctime));
    }
    Ok(op)
}
