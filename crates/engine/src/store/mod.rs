//! What every job of the engine works on: the gate to the device, zones, log and metadata, and the ways to look at the metadata and to
//! change it.
//!
//! Nothing here waits for room. Whoever changes the metadata keeps the bounds first ([`History`](crate::reclaim::History)).

use persimmon_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use persimmon_sync::{
    Alarm, Arc, Mutex, MutexGuard, ShardedReadGuard, ShardedRwLock, ShardedWriteGuard, Watch,
};

use persimmon_format::record::Op;
use persimmon_format::zone_header::{COMPRESSED_LOG, VolumeIdentity};
use persimmon_format::{Compression, Ino, Lsn, SubvolumeId, VolumeKey};

mod activity;
mod change_counts;
mod dictionary;
mod frames;
mod held_bases;
mod on_device;
mod page_faults;
mod standing;
mod summaries;
mod tuned;
mod walk;

use crate::error::{Error, PANICKED, Result};
use crate::faults::{Fault, fault};
use crate::in_flight::InFlight;
use crate::invariant::{self, invariant, invariant_holds, why_stopped};
use crate::log::Log;
use crate::log::writer::LogInit;
use crate::media::Media;
use crate::meta::{Meta, Transaction, View, apply, changes};
use crate::options::Options;
use crate::zones::Zones;
use crate::zones::locked::must_hold_none;

pub use activity::{Activity, Sleeper};
pub(crate) use change_counts::{ChangeCounts, Changes};
use dictionary::Dictionaries;
pub(crate) use held_bases::{HeldBase, HeldBases};
pub(crate) use on_device::{OnDevice, changed_properties};
pub(crate) use page_faults::PageFaults;
pub use standing::Standing;
pub(crate) use tuned::Tuned;
pub(crate) use walk::Walked;

/// Pages that an operation changes where owners are counted: its own, and those of a user, a group and a project.
const PAGES_OF_COUNTED: usize = 4;

/// See the module.
pub(crate) struct Store {
    pub(crate) media: Media,
    pub(crate) key: VolumeKey,
    pub(crate) identity: VolumeIdentity,
    pub(crate) options: Options,
    pub(crate) reserve_basis_points: u32,
    meta: ShardedRwLock<Meta>,
    /// Looks at the tree for which no page is evicted.
    looks_that_pin_pages: AtomicUsize,
    pub(crate) zones: Zones,
    pub(crate) log: Log,
    pub(crate) changes: ChangeCounts,
    dictionaries: Dictionaries,
    /// What deltas are being made to.
    pub(crate) bases: HeldBases,
    on_device: Mutex<OnDevice>,
    pub(crate) activity: Activity,
    /// Something was changed since the last whole checkpoint's cut that no record tells of.
    pub(crate) unlogged: AtomicBool,
    /// How often that was. What such a change refers to may be on its way to the medium still.
    pub(crate) unlogged_changes: AtomicU64,
    pub(crate) tuned: Tuned,
    standing: Arc<Standing>,
}

/// What a store is made of: what is read from a device, or what a new volume begins with.
pub(crate) struct Parts {
    pub(crate) media: Media,
    pub(crate) identity: VolumeIdentity,
    pub(crate) options: Options,
    pub(crate) meta: Meta,
    pub(crate) zones: Zones,
    pub(crate) start: LogInit,
    pub(crate) on_device: OnDevice,
    pub(crate) reserve_basis_points: u32,
}

/// How [`Store::try_change`] ended.
pub(crate) enum Changed<R> {
    /// The change is in the history, in this record.
    Done(R, Lsn),
    /// Nothing was changed: the inode numbers that it would give out are in the history with this record, which is to be durable first.
    NeedsNumbers(Lsn),
}

/// See [`Store::in_midst`].
pub(crate) struct InMidst<'s> {
    zones: &'s Zones,
    log: &'s Log,
    alarm: &'s Alarm,
    watch: Watch<'s>,
}

impl Drop for InMidst<'_> {
    fn drop(&mut self) {
        if self.watch.look() {
            self.log.give_up(&Error::ReadOnly { why: PANICKED });
            self.zones.wake_all();
        } else if self.alarm.is_raised() {
            // Nothing reaches the device any more: nobody is to wait for it.
            self.log.give_up(&why_stopped(self.alarm));
            self.zones.wake_all();
        }
    }
}

impl Store {
    pub(crate) fn new(mut parts: Parts) -> Store {
        parts.meta.watch(&parts.media.alarm);
        let key = parts.identity.key();
        let alarm = parts.media.alarm.clone();
        let tuned = Tuned::new(&parts.options);
        let standing = Standing::new(parts.options.read_only, alarm.clone());
        let compresses_log = parts.identity.incompatible & COMPRESSED_LOG != 0
            && parts.options.compression != Compression::None;
        Store {
            log: Log::new(key.clone(), parts.start, compresses_log, &alarm),
            key,
            media: parts.media,
            identity: parts.identity,
            options: parts.options,
            reserve_basis_points: parts.reserve_basis_points,
            meta: ShardedRwLock::watched(parts.meta, &alarm),
            looks_that_pin_pages: AtomicUsize::new(0),
            zones: parts.zones,
            changes: ChangeCounts::default(),
            dictionaries: Dictionaries::default(),
            bases: HeldBases::new(&alarm),
            on_device: Mutex::watched(parts.on_device, &alarm),
            activity: Activity::default(),
            unlogged: AtomicBool::new(false),
            unlogged_changes: AtomicU64::new(0),
            tuned,
            standing: Arc::new(standing),
        }
    }

    /// What is on the device as of the last checkpoint, and what the next one is to do besides.
    pub(crate) fn on_device(&self) -> MutexGuard<'_, OnDevice> {
        self.on_device.lock()
    }

    pub(crate) fn meta(&self) -> ShardedReadGuard<'_, Meta> {
        must_hold_none(&self.media.alarm);
        self.meta.read()
    }

    pub(crate) fn meta_mut(&self) -> ShardedWriteGuard<'_, Meta> {
        must_hold_none(&self.media.alarm);
        self.meta.write()
    }

    /// As long as this lives the thread is in the midst of something of several steps that others go on from: if it panics,
    /// nobody does.
    pub(crate) fn in_midst(&self) -> InMidst<'_> {
        InMidst {
            zones: &self.zones,
            log: &self.log,
            alarm: &self.media.alarm,
            watch: self.media.alarm.watch(),
        }
    }

    /// Whether changes are refused, because it was opened so or because damage was found.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.standing.is_read_only()
    }

    /// The bug that was found, or the damage to counts, for which nothing more is written.
    #[must_use]
    pub(crate) fn bug(&self) -> Option<Error> {
        self.standing.bug()
    }

    /// Whether it takes changes, to be kept and asked.
    pub(crate) fn standing(&self) -> &Arc<Standing> {
        &self.standing
    }

    /// Takes no changes from now on.
    pub(crate) fn make_read_only(&self) {
        self.standing.make_read_only();
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() {
            Err(self.why_read_only())
        } else {
            Ok(())
        }
    }

    /// Whether the volume takes changes, and the subvolume of this inode.
    pub(crate) fn check_changeable(&self, ino: Ino) -> Result<()> {
        self.check_writable()?;
        if ino.subvolume() != SubvolumeId::MAIN
            && self.meta().versions.scope(ino.subvolume())?.is_read_only
        {
            return Err(Error::ReadOnlySnapshot);
        }
        Ok(())
    }

    #[cold]
    fn why_read_only(&self) -> Error {
        if self.options.read_only {
            return Error::ReadOnly {
                why: "it was opened read-only",
            };
        }
        if self.media.alarm.is_raised() {
            return why_stopped(&self.media.alarm);
        }
        Error::ReadOnly {
            why: "an earlier error; see the log, unmount and check",
        }
    }

    /// Reads the metadata. The closure may run several times: a page that it misses is fetched
    /// and it begins again.
    pub(crate) fn view<R, E: From<Error>>(
        &self,
        mut f: impl FnMut(&View<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut page_faults = PageFaults::of(self);
        loop {
            let (result, missing) = {
                let meta = self.meta();
                let view = View::new(&meta, &self.key);
                let result = f(&view);
                (result, view.missing())
            };
            match (result, missing) {
                (Err(_), Some(page)) => page_faults.fetch(page)?,
                (result, _) => return result,
            }
        }
    }

    /// Changes the metadata: one transaction, one redo record, which may be sent beside its data. It gives out no inode numbers. Nothing
    /// bounds the journal or the pages that it makes dirty.
    pub(crate) fn change<R, E: From<Error>>(
        &self,
        data: Option<Arc<InFlight>>,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Lsn), E> {
        match self.try_change(data, f)? {
            Changed::Done(result, lsn) => Ok((result, lsn)),
            Changed::NeedsNumbers(record) => {
                let what = format!(
                    "a change that waits for nothing gives out inode numbers of a lot in record {record}"
                );
                Err(invariant::broken(&self.media.alarm, file!(), line!(), what).into())
            }
        }
    }

    /// [`Store::change`] of a transaction that may give out inode numbers. Where a lot of them has to be durable first, it is in the log,
    /// and the caller tries again once it is durable.
    pub(crate) fn try_change<R, E: From<Error>>(
        &self,
        data: Option<Arc<InFlight>>,
        mut f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<Changed<R>, E> {
        let mut page_faults = PageFaults::of(self);
        loop {
            let missing = {
                let mut meta = self.meta_mut();
                // Who had the lock before may have left a change half done.
                self.check_writable()?;
                let mut tx = Transaction::new(&meta, &self.key);
                let result = f(&mut tx);
                let below = tx.next_ino();
                invariant!(
                    self.media.alarm,
                    below >= meta.numbers.next(),
                    "a change gives out inode numbers below {below}, and those below {} are given out",
                    meta.numbers.next()
                );
                let (mut ops, missing) = tx.into_parts();
                match (result, missing) {
                    (Err(_), Some(page)) => page,
                    (Err(error), None) => return Err(error),
                    (Ok(_), _) if !self.may_give_numbers(&mut meta, below, &mut ops) => {
                        let record = self.take_numbers(&mut meta, below)?;
                        return Ok(Changed::NeedsNumbers(record));
                    }
                    (Ok(result), _) => match self.complete(&mut meta, &mut ops) {
                        Ok(()) if ops.is_empty() => {
                            return Ok(Changed::Done(result, self.log.last_lsn()));
                        }
                        Ok(()) => {
                            let lsn = self.append_record(&mut meta, &ops, data);
                            return Ok(Changed::Done(result, lsn));
                        }
                        Err(Error::PageMissing(page)) => page,
                        Err(error) => return Err(error.into()),
                    },
                }
            };
            page_faults.fetch(missing)?;
        }
    }

    /// Whether a transaction may give out inode numbers below this one. It takes the next lot of them if that
    /// is due.
    fn may_give_numbers(&self, meta: &mut Meta, below: u64, ops: &mut Vec<Op>) -> bool {
        if below <= meta.numbers.next() {
            return true;
        }
        let may = meta.numbers.may_give(below, self.log.durable());
        invariant_holds!(
            self.media.alarm,
            !may || below <= meta.numbers.recorded() || fault(Fault::LotNotWaitedFor),
            "inode numbers below {below} are given out, of a lot that ends at {}",
            meta.numbers.recorded()
        );
        if may && let Some(end) = meta.numbers.lot_due(below) {
            ops.push(Op::Lot { end });
        }
        may
    }

    /// The record of the newest lot of inode numbers, which is taken now if need be.
    fn take_numbers(&self, meta: &mut Meta, below: u64) -> Result<Lsn> {
        if let Some(end) = meta.numbers.lot_due(below) {
            let lot = [Op::Lot { end }];
            self.apply(meta, &lot)?;
            self.append_record(meta, &lot, None);
        }
        Ok(meta.numbers.record())
    }

    /// Appends a record that was applied.
    fn append_record(&self, meta: &mut Meta, ops: &[Op], data: Option<Arc<InFlight>>) -> Lsn {
        let lsn = self.log.append(ops, data);
        invariant_holds!(
            self.media.alarm,
            lsn > meta.last_record,
            "record {lsn} follows record {}",
            meta.last_record
        );
        meta.last_record = lsn;
        if let Some(Op::Lot { .. }) = ops.last() {
            meta.numbers.lot_is_logged(lsn);
        }
        self.activity.note();
        lsn
    }

    /// Clean pages kept in memory.
    pub(crate) fn cached_pages_max(&self) -> usize {
        let bytes_max = self.tuned.cache_bytes_max.load(Ordering::Relaxed);
        bytes_max / persimmon_format::page::PAGE_SIZE
    }

    /// Operations that one transaction should have at most, where there is a choice. The pages of
    /// all of them must be in memory together, each may need several, and what is clean of them
    /// must fit the cache: else they would be fetched and evicted in turn for ever. And they make
    /// that many pages dirty before the next look at the bounds.
    #[must_use]
    pub(crate) fn transaction_ops_max(&self) -> usize {
        let ops_max = self.moves_max();
        match self.tuned.counts_owners.load(Ordering::Relaxed) {
            true => (ops_max / PAGES_OF_COUNTED).max(1),
            false => ops_max,
        }
    }

    /// Extents that cleaning moves in one group at most. Counting owners does not lower it, as few moves change what an owner takes. With small
    /// zones a lower limit would move packed extents one by one, each into a block of its own, and cleaning would win nothing.
    pub(crate) fn moves_max(&self) -> usize {
        self.zones.budget.ops_max(self.cached_pages_max())
    }

    /// Changes the tree without a record: packing, damaged blocks that cleaning moves, metadata written anew. Zones are freed by
    /// whole checkpoints alone until the next of those.
    pub(crate) fn apply_unlogged<R>(
        &self,
        mut ensure: impl FnMut(&Meta) -> Result<()>,
        mut f: impl FnMut(&mut Meta) -> Result<R>,
    ) -> Result<R> {
        self.check_writable()?;
        let mut page_faults = PageFaults::of(self);
        loop {
            let missing = {
                let mut meta = self.meta_mut();
                self.check_writable()?;
                match ensure(&meta) {
                    Ok(()) => {
                        self.unlogged.store(true, Ordering::Relaxed);
                        self.unlogged_changes.fetch_add(1, Ordering::Relaxed);
                        let result = f(&mut meta);
                        if result.is_err() || meta.cache.fault().is_some() {
                            self.make_read_only();
                        }
                        return result;
                    }
                    Err(Error::PageMissing(page)) => page,
                    Err(error) => return Err(error),
                }
            };
            page_faults.fetch(missing)?;
        }
    }

    /// Applies operations, with what is to be told of them.
    fn complete(&self, meta: &mut Meta, ops: &mut Vec<Op>) -> Result<()> {
        let told = changes::told(meta, ops)?;
        ops.splice(0..0, told);
        let mut subvolumes = ops.iter().filter_map(Op::ino).map(Ino::subvolume);
        if subvolumes.any(|subvolume| meta.versions.is_read_only(subvolume)) {
            return Err(Error::ReadOnlySnapshot);
        }
        self.apply(meta, ops)
    }

    fn apply(&self, meta: &mut Meta, ops: &[Op]) -> Result<()> {
        apply::ensure(meta, ops)?;
        for ino in ops.iter().filter_map(Op::ino) {
            self.changes.note(ino);
        }
        apply::apply(meta, &self.zones, ops).inspect_err(|error| {
            tracing::error!(%error, "metadata is damaged, no more changes are made");
            self.make_read_only();
        })?;
        // It is found where no error can be answered.
        self.bug().map_or(Ok(()), Err)
    }
}
