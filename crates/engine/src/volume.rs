//! A volume: the parts wired together, views and transactions, and the background steps.

use persimmon_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use persimmon_sync::{
    Alarm, Arc, Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, Watch,
};
use std::collections::HashMap;

use persimmon_device::{ZoneId, ZoneInfo, ZonedDevice};
use persimmon_format::record::Op;
use persimmon_format::table::Role;
use persimmon_format::zone_header::VolumeIdentity;
use persimmon_format::{Ino, Key, KeyKind, Lsn, VolumeKey};

use crate::activity::Activity;
use crate::checkpoint::CheckpointState;
use crate::cleaning::{CleaningCursor, CleaningDebt};
use crate::data::{Compressibility, Files, ReadCache, Space, Tails, Truncations};
use crate::error::{Error, PANICKED, Result};
use crate::fair_lock::FairLock;
use crate::faults::{Fault, fault};
use crate::in_flight::InFlight;
use crate::invariant::{self, invariant, invariant_holds, why_stopped};
use crate::log::Log;
use crate::log::writer::LogInit;
use crate::media::Media;
use crate::meta::{Intent, Meta, Transaction, View, apply};
use crate::options::{CleaningOptions, FormatOptions, Options};
use crate::page_faults::PageFaults;
use crate::recovery::{self, RecoveryReport};
use crate::statistics::{Statistics, add};
use crate::tuning::Tuned;
use crate::zones::locked::must_hold_none;
use crate::zones::table::ZoneStatus;
use crate::zones::trace::Traced;
use crate::zones::{Keeping, Zones};

/// Records buffered before somebody writes them without being asked, bytes.
const BUFFERED_BYTES_MAX: usize = 1 << 20;

/// A journal this short is left to the next mount to replay.
const SHORT_JOURNAL_BLOCKS: u64 = 16;
/// The same by the pages it changed.
const SHORT_JOURNAL_PAGES: usize = 16;

/// A mounted volume. Shared between threads; has none of its own and no clock: background work is
/// [`Volume::step`].
pub struct Volume {
    pub(crate) media: Media,
    pub(crate) key: VolumeKey,
    pub(crate) identity: VolumeIdentity,
    pub(crate) options: Options,
    pub(crate) reserve_basis_points: u32,
    meta: RwLock<Meta>,
    /// Looks at the tree for which no page is evicted.
    pub(crate) looks_that_pin_pages: AtomicUsize,
    pub(crate) zones: Zones,
    pub(crate) log: Log,
    pub(crate) files: Files,
    pub(crate) space: Space,
    pub(crate) truncations: Truncations,
    pub(crate) tails: Tails,
    pub(crate) read_cache: Option<ReadCache>,
    pub(crate) compressibility: Compressibility,
    pub(crate) checkpoint_state: Mutex<CheckpointState>,
    pub(crate) checkpoint_lock: FairLock,
    pub(crate) cleaning_lock: FairLock,
    /// Victims under way, at most one of a device. The holder of the cleaning lock goes on with them.
    pub(crate) cleaning_cursors: Mutex<Vec<CleaningCursor>>,
    pub(crate) cleaning_debt: CleaningDebt,
    /// Called when a zone was taken for file data.
    zone_taken: OnceLock<Box<dyn Fn() + Send + Sync>>,
    pub(crate) activity: Activity,
    /// Something was changed since the last whole checkpoint's cut that no record tells of.
    pub(crate) unlogged: AtomicBool,
    pub(crate) packing_lock: FairLock,
    /// Packing found no room: it is not tried again before the next checkpoint.
    pub(crate) packing_failed: AtomicBool,
    cleaning_options: RwLock<CleaningOptions>,
    pub(crate) tuned: Tuned,
    /// Zones whose cleaning moved nothing, by the sequence of their use: not tried again.
    pub(crate) unproductive: Mutex<HashMap<ZoneId, u64>>,
    /// Damage was found while changing something: nothing more is written.
    broken: AtomicBool,
}

/// See [`Volume::in_midst`].
pub(crate) struct InMidst<'v> {
    zones: &'v Zones,
    log: &'v Log,
    alarm: &'v Alarm,
    watch: Watch<'v>,
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

/// What [`Volume::assemble`] needs.
pub(crate) struct Parts {
    pub(crate) media: Media,
    pub(crate) identity: VolumeIdentity,
    pub(crate) options: Options,
    pub(crate) meta: Meta,
    pub(crate) zones: Zones,
    pub(crate) start: LogInit,
    pub(crate) checkpoint: CheckpointState,
    pub(crate) reserve_basis_points: u32,
}

/// Background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Write some of the staged file data.
    WriteBack,
    /// The same if half of what may be staged is: what is overwritten or removed before need not be written.
    WriteBackIfDue,
    /// Write all staged file data and make everything durable: the periodic commit.
    Commit,
    /// Write a checkpoint if the journal or the dirty pages are three quarters of the way to their bounds,
    /// or what [`Options::checkpoint_due_percent`] says.
    CheckpointIfDue,
    /// Write a checkpoint.
    Checkpoint,
    /// Clean ahead, a part of a victim, if free zones run low.
    CleanIfDue,
    /// Free the zones in which nothing is valid, if free zones run low. Beside cleaning, and does not wait for
    /// their resets.
    FreeIfDue,
    /// Wait for a reset under way, and send more.
    Reset,
    /// Give the space of a free zone back to the host, if it keeps some, or free the zones in which nothing is valid,
    /// whose space is the host's too, if no zone was taken since it was last seen to.
    GiveBackIfIdle,
    /// Clean one victim.
    Clean,
    /// Free the zones in which nothing is valid, by a checkpoint of the zones alone if that can be.
    FreeZones,
    /// Finish a truncation that a crash interrupted.
    Truncate,
    /// Ask the device which zones have failed, and make the log independent of those that have.
    Examine,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something; there may be more.
    Worked,
    /// There was nothing to do.
    Idle,
}

impl Volume {
    /// Makes a volume on the whole device. Everything on it is lost.
    pub fn format(device: Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<()> {
        crate::mkfs::format(device, options)
    }

    /// Opens the volume on a device, recovering what is needed.
    pub fn open(
        device: Arc<dyn ZonedDevice>,
        options: Options,
    ) -> Result<(Volume, RecoveryReport)> {
        recovery::open(device, options)
    }

    pub(crate) fn assemble(mut parts: Parts) -> Volume {
        parts.meta.watch(&parts.media.alarm);
        let key = parts.identity.key();
        let alarm = parts.media.alarm.clone();
        let space = Space::new(parts.options.staging_bytes_max, &parts.zones.budget, &alarm);
        let cleaning_options = RwLock::new(parts.options.cleaning);
        let tuned = Tuned::new(&parts.options);
        Volume {
            log: Log::new(key.clone(), parts.start, &alarm),
            key,
            media: parts.media,
            identity: parts.identity,
            reserve_basis_points: parts.reserve_basis_points,
            meta: RwLock::watched(parts.meta, &alarm),
            looks_that_pin_pages: AtomicUsize::new(0),
            zones: parts.zones,
            files: Files::new(&alarm),
            space,
            truncations: Truncations::default(),
            tails: Tails::new(parts.options.tails_bytes_max, &alarm),
            read_cache: ReadCache::new(parts.options.read_cache_bytes_max),
            compressibility: Compressibility::default(),
            options: parts.options,
            checkpoint_state: Mutex::watched(parts.checkpoint, &alarm),
            checkpoint_lock: FairLock::default(),
            cleaning_lock: FairLock::default(),
            cleaning_cursors: Mutex::watched(Vec::new(), &alarm),
            cleaning_debt: CleaningDebt::default(),
            zone_taken: OnceLock::new(),
            activity: Activity::default(),
            unlogged: AtomicBool::new(false),
            packing_lock: FairLock::default(),
            packing_failed: AtomicBool::new(false),
            cleaning_options,
            tuned,
            unproductive: Mutex::default(),
            broken: AtomicBool::new(false),
        }
    }

    pub(crate) fn meta(&self) -> RwLockReadGuard<'_, Meta> {
        must_hold_none(&self.media.alarm);
        self.meta.read()
    }

    pub(crate) fn meta_mut(&self) -> RwLockWriteGuard<'_, Meta> {
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

    /// Who the volume is.
    #[must_use]
    pub fn identity(&self) -> &VolumeIdentity {
        &self.identity
    }

    /// The volume's key.
    #[must_use]
    pub fn key(&self) -> &VolumeKey {
        &self.key
    }

    /// Whether changes are refused, because it was opened so or because damage was found.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.check_writable().is_err()
    }

    /// The bug that was found, or the damage to counts, for which nothing more is written.
    #[must_use]
    pub fn bug(&self) -> Option<Error> {
        invariant::found(&self.media.alarm)
    }

    /// Takes no changes from now on.
    pub fn make_read_only(&self) {
        self.broken.store(true, Ordering::Release);
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.options.read_only {
            return Err(Error::ReadOnly {
                why: "it was opened read-only",
            });
        }
        if self.media.alarm.is_raised() {
            return Err(why_stopped(&self.media.alarm));
        }
        if self.broken.load(Ordering::Acquire) {
            return Err(Error::ReadOnly {
                why: "an earlier error; see the log, unmount and check",
            });
        }
        Ok(())
    }

    /// Reads the metadata. The closure may run several times: a page that it misses is fetched
    /// and it begins again.
    pub fn view<R, E: From<Error>>(
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

    /// Changes the metadata: one transaction, one redo record. The closure may run several times.
    pub fn update<R, E: From<Error>>(
        &self,
        intent: Intent,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.update_with(intent, None, f).map(|(result, _)| result)
    }

    /// [`Volume::update`] of a record whose data is still under way. Returns its LSN too.
    pub(crate) fn update_with<R, E: From<Error>>(
        &self,
        intent: Intent,
        data: Option<Arc<InFlight>>,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Lsn), E> {
        self.check_writable()?;
        self.keep_bounds()?;
        match self.restore_low_watermark(intent) {
            Err(error) if intent == Intent::Shrink && error.passes() => {}
            other => other?,
        }
        let is_full = || !self.has_metadata_room();
        if intent == Intent::Grow && is_full() {
            self.flush_reservations()?;
            if is_full() {
                return Err(self.zones.no_space().into());
            }
        }
        self.update_unbounded(data, f)
    }

    /// A transaction that must not wait for a checkpoint, since checkpoints wait for it: unless it makes inodes,
    /// which none of those does.
    pub(crate) fn update_unbounded<R, E: From<Error>>(
        &self,
        data: Option<Arc<InFlight>>,
        mut f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Lsn), E> {
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
                        drop(meta);
                        self.wait_for_numbers(below)?;
                        continue;
                    }
                    (Ok(result), _) => match self.apply(&mut meta, &ops) {
                        Ok(()) if ops.is_empty() => return Ok((result, self.log.last_lsn())),
                        Ok(()) => return Ok((result, self.append_record(&mut meta, &ops, data))),
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

    /// Waits until a lot of inode numbers is durable, taking one if need be.
    fn wait_for_numbers(&self, below: u64) -> Result<()> {
        let record = {
            let mut meta = self.meta_mut();
            if let Some(end) = meta.numbers.lot_due(below) {
                let lot = [Op::Lot { end }];
                self.apply(&mut meta, &lot)?;
                self.append_record(&mut meta, &lot, None);
            }
            meta.numbers.record()
        };
        if fault(Fault::LotNotWaitedFor) {
            return Ok(());
        }
        self.commit(record)
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
    pub fn transaction_ops_max(&self) -> usize {
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
                        self.unlogged
                            .store(!fault(Fault::UnloggedForgotten), Ordering::Relaxed);
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

    fn apply(&self, meta: &mut Meta, ops: &[Op]) -> Result<()> {
        apply::ensure(meta, ops)?;
        for ino in ops.iter().filter_map(Op::ino) {
            self.files.note_change(ino);
        }
        apply::apply(meta, &self.zones, ops).inspect_err(|error| {
            tracing::error!(%error, "metadata is damaged, no more changes are made");
            self.make_read_only();
        })?;
        // It is found where no error can be answered.
        self.bug().map_or(Ok(()), Err)
    }

    /// Pages changed since what is durable, and those that a recovery would change besides.
    fn pages_to_bound(&self) -> usize {
        let meta = self.meta();
        meta.cache.changed() + meta.journal_inline.replayed_pages()
    }

    /// Waits for a checkpoint where journal or changed pages have reached their bounds, and writes
    /// records that have piled up. What a checkpoint under way has not written yet counts: until
    /// it is durable a recovery would have to change those pages too.
    pub(crate) fn keep_bounds(&self) -> Result<()> {
        if self.log.buffered_bytes() > BUFFERED_BYTES_MAX {
            self.log
                .write(&self.media, &self.zones, self.log.last_lsn())?;
        }
        let full = || self.pages_are_many() || self.journal_is_full();
        if full() {
            add(&self.media.counters.stalls, 1);
            self.zones.shorten_journal(self.log.blocks_to_replay());
            self.checkpoint_if(full)?;
        }
        Ok(())
    }

    /// Whether as many pages are changed as may be. Where zones are short those are as many as there is room for on a full
    /// volume.
    fn pages_are_many(&self) -> bool {
        let (pages, budget) = (self.pages_to_bound(), &self.zones.budget);
        pages >= budget.dirty_pages_max
            || pages >= budget.dirty_pages_reserved && self.are_short_for_pages()
    }

    /// Whether zones are short for a checkpoint of more pages than there is always room for. Before the next look at it
    /// data may take as many as fit what is staged.
    fn are_short_for_pages(&self) -> bool {
        let aside = self.zones_for_staged();
        let changed = self.changed_pages();
        self.zones.are_short_for_journal(changed, aside)
    }

    /// Whether the journal is as long as it may get. Where zones are short that is as long as there is room for on
    /// a full volume.
    pub(crate) fn journal_is_full(&self) -> bool {
        let blocks = self.log.blocks_to_replay();
        blocks >= self.zones.budget.journal_blocks_max
            || blocks >= self.journal_blocks_when_short() && self.are_short_for_journal()
    }

    /// Blocks of journal for which there is room however short zones are.
    fn journal_blocks_when_short(&self) -> u64 {
        let reserved = self.zones.budget.journal_blocks_reserved;
        reserved.min(self.zones.journal_blocks())
    }

    fn are_short_for_journal(&self) -> bool {
        self.zones.are_short_for_journal(self.changed_pages(), 0)
    }

    /// Whether the journal has got as long as it is to get.
    fn journal_is_long(&self) -> bool {
        self.log.blocks_to_replay() >= self.zones.journal_blocks()
    }

    /// Waits for a checkpoint where changed pages have reached their bound.
    pub(crate) fn keep_dirty_bound(&self) -> Result<()> {
        if self.pages_are_many() {
            self.checkpoint_if(|| self.pages_are_many())
        } else {
            Ok(())
        }
    }

    /// Whether a checkpoint should be written ahead.
    fn checkpoint_is_due(&self) -> bool {
        let budget = &self.zones.budget;
        let percent = self.tuned.checkpoint_due_percent.load(Ordering::Relaxed);
        let pages = self.pages_to_bound() * 100;
        pages >= budget.dirty_pages_max * percent as usize
            || pages >= budget.dirty_pages_reserved * percent as usize && self.are_short_for_pages()
            || self.log.blocks_to_replay() * 100 >= budget.journal_blocks_max * u64::from(percent)
            || self.journal_is_long()
            || self.log.blocks_to_replay() * 100
                >= self.journal_blocks_when_short() * u64::from(percent)
                && self.are_short_for_journal()
    }

    /// Has `call` told whenever a zone was taken for file data, so that there may be something to clean:
    /// long before the next look at it is due where much is written. It is called by whoever writes, and
    /// is not to wait. Only the first one given is called.
    pub fn on_zone_taken(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.zone_taken.set(Box::new(call));
    }

    pub(crate) fn tell_zone_taken(&self) {
        if let Some(call) = self.zone_taken.get() {
            call();
        }
    }

    /// Does a piece of background work.
    pub fn step(&self, task: Task) -> Result<Progress> {
        let progress = self.do_step(task);
        // One step may leave work for another.
        if task != Task::Commit && matches!(progress, Ok(Progress::Worked)) {
            self.activity.note();
        }
        progress
    }

    fn do_step(&self, task: Task) -> Result<Progress> {
        self.check_writable()?;
        let done = |worked| {
            if worked {
                Progress::Worked
            } else {
                Progress::Idle
            }
        };
        match task {
            Task::WriteBackIfDue if !self.write_back_is_due() => Ok(done(self.pack_ahead())),
            Task::WriteBack | Task::WriteBackIfDue => self.write_back().map(done),
            Task::Commit => match self.sync() {
                // Whoever asks for it is told; the log told of it when it was given up.
                Ok(()) | Err(Error::ItemDamaged { .. }) => Ok(Progress::Worked),
                Err(error) => Err(error),
            },
            Task::CheckpointIfDue if !self.checkpoint_is_due() => Ok(Progress::Idle),
            Task::CheckpointIfDue | Task::Checkpoint => {
                self.checkpoint().map(|()| Progress::Worked)
            }
            Task::CleanIfDue => self.clean_ahead().map(done),
            Task::FreeIfDue => self.free_ahead().map(done),
            Task::Reset => {
                let seen = self.zones.resets_ended();
                Ok(done(self.zones.complete_a_reset(&self.media, seen)))
            }
            Task::GiveBackIfIdle if !self.zones.none_taken_since_asked() => Ok(Progress::Idle),
            Task::GiveBackIfIdle => {
                let gave = |keeping| self.zones.give_a_zones_space_back(&self.media, keeping);
                Ok(done(gave(Keeping::Suspected) || self.free_for_idle_host()?))
            }
            Task::Clean => self.clean_one().map(done),
            Task::FreeZones if self.zones.all_reclaimable_zones() == 0 => Ok(Progress::Idle),
            Task::FreeZones => self.checkpoint_zones().map(|()| Progress::Worked),
            Task::Truncate => self.finish_a_truncation().map(done),
            Task::Examine => {
                self.note_failures(|| self.zones.examine_all(&self.media));
                self.secure_log().map(|()| Progress::Idle)
            }
        }
    }

    /// Writes everything and makes it durable. The volume stays usable.
    pub fn close(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        let synced = match self.sync() {
            // All else is durable.
            Err(error @ Error::ItemDamaged { .. }) => Err(error),
            other => Ok(other.inspect_err(|_| {
                self.zones.give_space_back(&self.media, Keeping::Known);
            })?),
        };
        // A next mount reads little then, however many files there are.
        if self.log.blocks_to_replay() > SHORT_JOURNAL_BLOCKS
            || self.meta().cache.dirty() > SHORT_JOURNAL_PAGES
        {
            self.checkpoint()?;
        }
        self.zones.complete_resets(&self.media);
        self.zones.give_space_back(&self.media, Keeping::Known);
        self.log.tell_durable(&self.media, &self.zones)?;
        self.media.flush_in_the_end()?;
        synced
    }

    /// Makes all transactions so far durable; staged file data is not forced.
    pub fn sync_metadata(&self) -> Result<()> {
        self.files.note_sync(None);
        self.commit(self.log.last_lsn())
    }

    /// Makes the history up to a record durable.
    pub(crate) fn commit(&self, lsn: Lsn) -> Result<()> {
        self.log.commit(&self.media, &self.zones, lsn, None)?;
        self.secure_log()
    }

    /// Has the history up to a record outlive the process.
    pub(crate) fn record(&self, lsn: Lsn) -> Result<()> {
        self.log.record(&self.media, &self.zones, lsn)?;
        self.secure_log()
    }

    /// Where a zone of the log has failed, what is in it may be lost, and later records cannot be
    /// replayed without it: a checkpoint makes them needless. Before that nothing more is
    /// acknowledged.
    pub(crate) fn secure_log(&self) -> Result<()> {
        if self.zones.log_is_failing() {
            self.checkpoint_if(|| self.zones.log_is_failing())?;
        }
        Ok(())
    }

    /// The number of the next inode. None had it before.
    #[must_use]
    pub fn next_ino(&self) -> Ino {
        Ino(self.meta().numbers.next())
    }

    /// Inodes without a name, left by a crash or still open.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        let first = Key::new(Key::GLOBAL, KeyKind::ORPHAN, 0);
        let end = Key::new(Key::GLOBAL, KeyKind::TRUNCATION, 0);
        let mut orphans = Vec::new();
        let orphan = |key: Key, _: &[u8]| Some(Ino(key.item));
        self.walk(first..end, orphan, |ino| orphans.push(ino))?;
        Ok(orphans)
    }

    /// Counters since the volume was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            staged_bytes_peak: self.space.staged_blocks_peak()
                * persimmon_device::BLOCK_SIZE as u64,
            ..self.media.counters.snapshot()
        }
    }

    /// Zones that have failed or are retired.
    #[must_use]
    pub fn failed_zones(&self) -> u32 {
        self.zones.failed_zones()
    }

    /// All zones.
    #[must_use]
    pub fn zones(&self) -> Vec<ZoneStatus> {
        self.zones.status()
    }

    /// So many zones at most, from this number on; looks at no others.
    #[must_use]
    pub fn zones_from(&self, from: usize, zones_max: usize) -> Vec<ZoneStatus> {
        self.zones.status_from(from, zones_max)
    }

    /// What happened to zones lately, from event number `from` on, at most so many.
    #[must_use]
    pub fn trace(&self, from: u64, events_max: usize) -> Traced {
        self.zones.trace.read(from, events_max)
    }

    /// Thresholds of cleaning, as they are now.
    #[must_use]
    pub fn cleaning_options(&self) -> CleaningOptions {
        *self.cleaning_options.read()
    }

    /// Changes them, for what is cleaned from now on.
    pub fn set_cleaning_options(&self, options: CleaningOptions) {
        *self.cleaning_options.write() = options;
        self.activity.note();
    }

    /// Metadata pages in memory, and how many of them are dirty.
    #[must_use]
    pub fn cached_pages(&self) -> (usize, usize) {
        let meta = self.meta();
        (meta.cache.resident(), meta.cache.dirty())
    }

    /// Goes on writing to a zone found partly written at mount, if its space can be set aside.
    pub(crate) fn resume_zone(&self, zone: ZoneId, info: &ZoneInfo) -> bool {
        if self.media.open(zone).is_err() {
            return false;
        }
        let holds_data = self
            .zones
            .entry(zone)
            .is_some_and(|entry| entry.role == Role::Data);
        let last_summary = if holds_data {
            self.last_summary(zone, info.write_pointer)
        } else {
            None
        };
        let last_summary = last_summary.map_or(0, |(at, _)| at);
        self.zones.resume(zone, info.write_pointer, last_summary)
    }
}
