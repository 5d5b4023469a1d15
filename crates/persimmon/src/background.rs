//! The threads that do a volume's background work in production. The engine has none of its own:
//! it offers steps, which these call, and the simulator calls in tests.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use persimmon_sync::{Condvar, Mutex, MutexGuard};

use persimmon_device::DeviceError;
use persimmon_engine::{Error, Progress, Task, Threshold, Unit, Volume};
use persimmon_format::shown;
use persimmon_vfs::{Ino, OnError, Vfs};
use tracing::{error, info, warn};

use crate::kept::Keeper;

/// How often to look for work. When a bound is hit in between, the operation that hits it does
/// the step itself.
const TICK: Duration = Duration::from_millis(50);

/// How long a thread that finds no work goes on looking while nothing happens on the volume. Then it sleeps until something does: an idle
/// volume wakes no processor.
const AWAKE: Duration = Duration::from_secs(2);

/// Looks that must have found nothing before: the first one after something happened may only note what it sees.
const IDLE_LOOKS: u32 = 3;

/// How long to wait before a step that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How often to look whether a zone was found to have failed.
const FAILURES_TICK: Duration = Duration::from_secs(1);

/// How often the device is asked about all zones.
const EXAMINE_INTERVAL: Duration = Duration::from_secs(60);

/// Lost ranges logged at most.
const LOSSES_TOLD_MAX: usize = 1000;

/// How often access times that are only in memory are written.
const ACCESS_TIMES_INTERVAL: Duration = Duration::from_secs(300);

/// How long what was written stays volatile at most, while nobody asks for it to be durable. Can be
/// changed at any time.
#[derive(Debug)]
pub struct CommitInterval(AtomicU64);

impl CommitInterval {
    /// Its place among the thresholds of a volume.
    pub const THRESHOLD: Threshold = Threshold {
        key: "commit_interval_seconds",
        unit: Unit::Seconds,
        least: 1,
        most: 3600,
        what: "time until what was written is durable without being asked",
    };

    /// This long, in whole milliseconds.
    #[must_use]
    pub fn new(interval: Duration) -> CommitInterval {
        let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        CommitInterval(AtomicU64::new(millis))
    }

    /// As it is now.
    #[must_use]
    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    /// From now on this long.
    pub fn set(&self, interval: Duration) {
        let CommitInterval(millis) = CommitInterval::new(interval);
        self.0.store(millis.into_inner(), Ordering::Relaxed);
    }
}

/// Background work of one volume; ends with [`Background::stop`].
pub struct Background {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// Tells the threads to end, without making them wait out their tick.
#[derive(Default)]
struct Stop {
    signals: Mutex<Signals>,
    changed: Condvar,
    /// The same for the thread that writes back, and [`Signals::write_back_is_due`].
    due: Condvar,
}

#[derive(Default)]
struct Signals {
    stopped: bool,
    /// Zones taken for file data so far.
    zones_taken: u64,
    /// Somebody wants staged data written, though it need not be yet.
    write_back_asked: bool,
    /// So much is staged that it is time to write some of it.
    write_back_is_due: bool,
}

impl Stop {
    fn lock(&self) -> MutexGuard<'_, Signals> {
        self.signals.lock()
    }

    fn is_set(&self) -> bool {
        self.lock().stopped
    }

    /// Where the thread that writes back waits, or the others do.
    fn changed(&self, writes_back: bool) -> &Condvar {
        match writes_back {
            true => &self.due,
            false => &self.changed,
        }
    }

    /// Has all threads look at the signals.
    fn notify_all(&self) {
        self.changed.notify_all();
        self.due.notify_all();
    }

    /// Waits; true when it is time to end.
    fn wait(&self, timeout: Duration) -> bool {
        let waits = |signals: &mut Signals| !signals.stopped;
        let signals = self.changed.wait_timeout_while(self.lock(), timeout, waits);
        signals.stopped
    }

    fn take_write_back_asked(&self) -> bool {
        std::mem::take(&mut self.lock().write_back_asked)
    }

    fn zone_taken(&self) {
        self.lock().zones_taken += 1;
        self.changed.notify_all();
    }

    fn write_back_due(&self) {
        self.lock().write_back_is_due = true;
        self.due.notify_all();
    }

    fn set(&self) {
        self.lock().stopped = true;
        self.notify_all();
    }

    /// Something happened on the volume while somebody slept.
    fn wake(&self) {
        // A sleeper that has looked already waits by now, and hears this.
        drop(self.lock());
        self.notify_all();
    }
}

/// What a look for work has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Work,
    /// The volume takes no more changes.
    End,
}

/// When a thread looks for work again.
struct Looks<'a> {
    volume: &'a Volume,
    stop: &'a Stop,
    /// It looks for data to write back, and not for what follows from zones that are taken.
    writes_back: bool,
    /// What had happened on the volume when it was looked at last.
    activity: u64,
    zones_taken: u64,
    idle_since: Instant,
    idle_looks: u32,
}

impl<'a> Looks<'a> {
    fn new(volume: &'a Volume, stop: &'a Stop) -> Looks<'a> {
        Looks {
            volume,
            stop,
            writes_back: false,
            activity: volume.activity().count(),
            zones_taken: 0,
            idle_since: Instant::now(),
            idle_looks: 0,
        }
    }

    /// The same of the thread that writes back.
    fn of_write_back(volume: &'a Volume, stop: &'a Stop) -> Looks<'a> {
        Looks {
            writes_back: true,
            ..Looks::new(volume, stop)
        }
    }

    /// Waits until the next look is due: for `tick`, or until a zone is taken, or so much is staged that it is time to write; or, when there was nothing to do for some time, until
    /// something happens. True when it is time to end.
    fn wait(&mut self, tick: Duration, found: Found) -> bool {
        if found == Found::End {
            return true;
        }
        let activity = self.volume.activity().count();
        if found == Found::Nothing && activity == self.activity {
            self.idle_looks = self.idle_looks.saturating_add(1);
        } else {
            (self.idle_since, self.idle_looks) = (Instant::now(), 0);
        }
        let (seen, writes_back) = (self.zones_taken, self.writes_back);
        let changed = self.stop.changed(writes_back);
        let mut signals = if self.idle_looks >= IDLE_LOOKS && self.idle_since.elapsed() >= AWAKE {
            let _sleeper = self.volume.activity().sleeper();
            let signals = self.stop.lock();
            let signals = changed.wait_while(signals, |signals| {
                !signals.stopped && self.volume.activity().count() == activity
            });
            // Work may show a little later than what it comes of.
            (self.idle_since, self.idle_looks) = (Instant::now(), 0);
            signals
        } else {
            let news = |s: &Signals| match writes_back {
                true => s.write_back_is_due,
                false => s.zones_taken != seen,
            };
            let waits = |s: &mut Signals| !s.stopped && !news(s);
            changed.wait_timeout_while(self.stop.lock(), tick, waits)
        };
        if writes_back {
            signals.write_back_is_due = false;
        }
        self.zones_taken = signals.zones_taken;
        let is_over = signals.stopped;
        drop(signals);
        // Before the look: what happens meanwhile is for the next one.
        self.activity = self.volume.activity().count();
        is_over
    }
}

impl Background {
    /// Starts the work: freeing `orphans`, which lost their last name before this mount; writing
    /// staged data back, a commit every `commit`, checkpoints and cleaning ahead of need.
    /// A volume that is read-only has none of it. What is lost with zones that fail is logged.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        vfs: &Arc<Vfs>,
        commit: &Arc<CommitInterval>,
        keeper: &Arc<Keeper>,
        orphans: Vec<Ino>,
    ) -> io::Result<Background> {
        let mut background = Background {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        let asleep = Arc::downgrade(&background.stop);
        vfs.volume().activity().on_wake(move || {
            if let Some(stop) = asleep.upgrade() {
                stop.wake();
            }
        });
        let watch = Arc::clone(vfs);
        background.spawn("zones", vfs, move |stop| zone_loop(&watch, stop))?;
        if vfs.is_read_only() {
            return Ok(background);
        }
        let (idle, interval) = (Arc::clone(vfs), Arc::clone(commit));
        background.spawn("space", vfs, move |stop| {
            step_loop(&idle, stop, Task::GiveBackIfIdle, || interval.get());
        })?;
        let (write, commit, keeper) = (Arc::clone(vfs), Arc::clone(commit), Arc::clone(keeper));
        background.spawn("writeback", vfs, move |stop| {
            write_loop(&write, stop, &commit, &keeper);
        })?;
        let finish = Arc::clone(vfs);
        background.spawn("unfinished", vfs, move |stop| {
            if run(&finish, stop, Task::Truncate) == Found::End {
                return;
            }
            free_orphans(&finish, stop, &orphans);
            // What a passing error kept from being finished, at any time.
            step_loop(&finish, stop, Task::Truncate, || TICK);
        })?;
        let settle = Arc::clone(vfs);
        background.spawn("snapshots", vfs, move |stop| {
            step_loop(&settle, stop, Task::Settle, || TICK);
        })?;
        let count = Arc::clone(vfs);
        background.spawn("quota", vfs, move |stop| {
            step_loop(&count, stop, Task::Count, || TICK);
        })?;
        let keep = Arc::clone(vfs);
        background.spawn("checkpoint", vfs, move |stop| {
            step_loop(&keep, stop, Task::CheckpointIfDue, || TICK);
        })?;
        let taken = Arc::downgrade(&background.stop);
        vfs.volume().on_zone_taken(move || {
            if let Some(stop) = taken.upgrade() {
                stop.zone_taken();
            }
        });
        let due = Arc::downgrade(&background.stop);
        vfs.volume().activity().on_write_back_due(move || {
            if let Some(stop) = due.upgrade() {
                stop.write_back_due();
            }
        });
        let tasks = [
            ("cleaning", Task::CleanIfDue),
            ("freeing", Task::FreeIfDue),
            ("resets", Task::Reset),
        ];
        for (name, task) in tasks {
            let volume = Arc::clone(vfs);
            background.spawn(name, vfs, move |stop| {
                step_loop(&volume, stop, task, || TICK);
            })?;
        }
        Ok(background)
    }

    /// Has what is staged written back soon. Does not wait for it.
    pub(crate) fn ask_for_write_back(&self) {
        self.stop.lock().write_back_asked = true;
    }

    /// Ends the work and waits for the steps under way.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.set();
        for thread in self.threads.drain(..) {
            // Panics are caught inside.
            let _ = thread.join();
        }
    }

    fn spawn(
        &mut self,
        name: &'static str,
        vfs: &Arc<Vfs>,
        work: impl FnOnce(&Stop) + Send + 'static,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let volume = Arc::clone(vfs.volume());
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| work(&stop))).is_err() {
                // Memory may hold half a step, which must not reach the device.
                error!("{name} panicked; the volume takes no more changes");
                volume.make_read_only();
            }
        };
        self.threads
            .push(thread::Builder::new().name(name.into()).spawn(run)?);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

fn write_loop(vfs: &Vfs, stop: &Stop, commit: &CommitInterval, keeper: &Keeper) {
    let volume = vfs.volume();
    let mut looks = Looks::of_write_back(volume, stop);
    let mut committed = Instant::now();
    let mut access_times = Instant::now();
    let mut found = Found::Work;
    // What had happened when the last commit began, if it left nothing.
    let mut settled = None;
    // Until nothing is staged any more, all of it is written back.
    let mut is_asked = false;
    // When access times were written last because nothing else was left.
    let mut tried = None;
    loop {
        let is_settled = settled == Some(volume.activity().count());
        // Between two pieces of write-back it is seen to what has its time: a steady writer must not
        // keep the commit waiting.
        let tick = if found == Found::Work {
            Duration::ZERO
        } else {
            TICK
        };
        if found == Found::Nothing && !is_settled {
            found = Found::Work;
        }
        if looks.wait(tick, found) {
            return;
        }
        is_asked |= stop.take_write_back_asked();
        let task = if is_asked {
            Task::WriteBack
        } else {
            Task::WriteBackIfDue
        };
        let step = volume.step(task);
        is_asked &= matches!(step, Ok(Progress::Worked));
        found = match step {
            Ok(Progress::Idle) => Found::Nothing,
            Ok(Progress::Worked) => Found::Work,
            Err(error) if survives(vfs, stop, task, &error) => Found::Nothing,
            Err(_) => return,
        };
        let is_settled = settled == Some(volume.activity().count());
        if is_settled {
            // The interval begins with the first change.
            committed = Instant::now();
        }
        // With nothing else left to write, access times need not wait. Those that cannot be written are tried once.
        let is_last = is_settled && tried != settled && vfs.has_access_times();
        if is_last {
            tried = settled;
        }
        if is_last || access_times.elapsed() >= ACCESS_TIMES_INTERVAL {
            access_times = Instant::now();
            if let Err(error) = vfs.flush_access_times() {
                warn!("writing access times: {error}");
            }
        }
        if committed.elapsed() >= commit.get() {
            let activity = volume.activity().count();
            let filled = keeper.fill_in_all(vfs);
            if let Err(error) = &filled {
                warn!("what was appended to a file cannot be committed: {error}");
            }
            let left = run(vfs, stop, Task::Commit);
            if left == Found::End {
                return;
            }
            committed = Instant::now();
            let is_settled = filled.is_ok() && left == Found::Nothing && volume.is_settled();
            settled = is_settled.then_some(activity);
        }
    }
}

/// Asks the device now and then which zones have failed, and tells what of the files is lost.
fn zone_loop(vfs: &Vfs, stop: &Stop) {
    let volume = vfs.volume();
    let mut looks = Looks::new(volume, stop);
    let mut examined = Instant::now();
    let mut known = 0;
    let mut found = Found::Work;
    loop {
        let failed = volume.failed_zones();
        if std::mem::replace(&mut known, failed) < failed {
            tell_losses(volume);
        }
        if vfs.is_read_only() || looks.wait(FAILURES_TICK, found) {
            return;
        }
        found = Found::Nothing;
        if examined.elapsed() >= EXAMINE_INTERVAL {
            examined = Instant::now();
            found = run(vfs, stop, Task::Examine);
        }
    }
}

/// Logs which ranges of which files are lost with zones that are offline.
fn tell_losses(volume: &Volume) {
    let losses = match volume.losses(LOSSES_TOLD_MAX) {
        Ok(losses) => losses,
        Err(error) => {
            error!("what is lost with zones that failed cannot be told: {error}");
            return;
        }
    };
    for loss in &losses.ranges {
        let path = loss.path.as_deref().map(|path| shown(path).to_string());
        let name = path.unwrap_or_else(|| format!("inode {}", loss.ino));
        let end = loss.offset.saturating_add(loss.bytes);
        error!(
            "{name}: bytes {} to {end} are lost, zone {} is offline",
            loss.offset, loss.zone
        );
    }
    let told = losses.ranges.len() as u64;
    if losses.total > told {
        error!(
            "{} more ranges are lost; `persimmon fsck` tells all",
            losses.total - told
        );
    }
    if losses.incomplete {
        error!("metadata is lost too: there may be more files of which something is");
    }
}

/// What cannot be freed now stays on the list for the next mount.
fn free_orphans(vfs: &Vfs, stop: &Stop, orphans: &[Ino]) {
    for ino in orphans {
        if stop.is_set() {
            return;
        }
        if let Err(error) = vfs.reclaim_orphans(&[*ino]) {
            warn!("an unlinked file, inode {ino}, cannot be freed: {error}");
        }
    }
}

fn step_loop(vfs: &Vfs, stop: &Stop, task: Task, tick: impl Fn() -> Duration) {
    let mut looks = Looks::new(vfs.volume(), stop);
    let mut found = Found::Work;
    while !looks.wait(tick(), found) {
        found = run(vfs, stop, task);
    }
}

/// Runs a task until nothing is left to do.
fn run(vfs: &Vfs, stop: &Stop, task: Task) -> Found {
    let mut found = Found::Nothing;
    loop {
        let once = task == Task::Commit;
        match vfs.volume().step(task) {
            Ok(Progress::Worked) if !once && !stop.is_set() => found = Found::Work,
            Ok(_) => return found,
            Err(error) => return survived(vfs, stop, task, &error),
        }
    }
}

/// After an error there is something left to do, unless it is the end.
fn survived(vfs: &Vfs, stop: &Stop, task: Task, error: &Error) -> Found {
    if survives(vfs, stop, task, error) {
        Found::Work
    } else {
        Found::End
    }
}

/// Decides after an error whether to go on, later.
fn survives(vfs: &Vfs, stop: &Stop, task: impl fmt::Display, error: &Error) -> bool {
    match error {
        Error::ReadOnly { .. } => {
            info!("background work ends: {error}");
            return false;
        }
        // Passing states of affairs: somebody may free space, here or on the host.
        Error::NoSpace => {}
        Error::Device(DeviceError::HostFull) | Error::ResetsFail { .. } => {
            warn!("{task}: {error}")
        }
        // The damage is fenced in: who needs the item is told, and all others go on.
        Error::ItemDamaged { .. } => warn!("{task}: {error}"),
        _ => {
            error!("{task}: {error}");
            if vfs.options().on_error == OnError::ReadOnly {
                error!("the volume takes no more changes (errors=remount-ro)");
                vfs.volume().make_read_only();
                return false;
            }
        }
    }
    stop.wait(RETRY);
    true
}
