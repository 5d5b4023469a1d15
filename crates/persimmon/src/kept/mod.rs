//! What was flushed to a file outlives this process without a block of the journal for each flush: the flushed bytes are kept in a file
//! in memory that is the kernel's ([`tail`]), and the next opening of the volume brings them in ([`replay`]).
//!
//! The promise rests on two rules. A *tail* holds the end of a file, from `base` on. It begins when everything before
//! `base` is in the hands of the device, it grows only with what is appended to the file, and it is removed only
//! once the device has what it holds. Every other change of the file removes it first, in this way.
//!
//! What is appended to a file with a tail goes to the tail alone at first ([`state`]): everybody who looks at the file goes through the
//! keeper, which has the volume take it before.
//!
//! A tail belongs to one point in the volume's history: to the opening that made it, whose number the log on the device has before the
//! tail begins, and to the records that were in the log then. An opening brings in the tails of the last opening that wrote to the volume, and no others; then
//! it writes under a number of its own. So the file has not changed since, and no copy of the volume that is older, or went on in
//! another way, takes the tail for its own.

pub(crate) mod replay;
mod state;
mod tail;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs};

use persimmon_sync::{CachePadded, Mutex, MutexGuard, RwLock, RwLockReadGuard};

use persimmon_device::DeviceIdentity;
use persimmon_engine::RecoveryReport;
use persimmon_format::Lsn;
use persimmon_vfs::{Handle, Ino, Result as VfsResult, Vfs, Written};

pub(crate) use state::Kept;
use state::{RETRY_AFTER, State};
use tail::{Start, Tail};

/// Where tails are, unless [`DIRECTORY_VARIABLE`] names another directory.
const DIRECTORY: &str = "/dev/shm";
const DIRECTORY_VARIABLE: &str = "PERSIMMON_KEPT_DIR";
/// The kernel's number of this boot, which a tail does not outlive.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Groups of files, by their numbers.
const GROUPS: usize = 64;
/// Between two tries to give the device the tail of a file that is closed.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What a tail belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    boot: [u8; 16],
    volume: [u8; 16],
    device: u64,
    inode: u64,
}

/// A point in the history of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The opening.
    opening: u32,
    /// The last record that was in the log.
    lsn: Lsn,
}

impl Point {
    /// Whether it lies in a history that was recovered, and no later opening has written.
    fn is_in_last_opening(self, recovery: &RecoveryReport) -> bool {
        self.opening == recovery.opening && self.lsn <= recovery.last
    }
}

/// A number for an opening; no tail has that of a volume whose openings have none.
pub(crate) fn draw_opening() -> u32 {
    uuid::Uuid::new_v4().as_fields().0.max(1)
}

/// Where the tails of a volume are.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    owner: Owner,
    above: PathBuf,
    /// Users whose processes may have left tails that count: this one; the owner of the device, since the volume is theirs to change; root.
    users: [u32; 3],
}

impl Place {
    /// That of a volume on a device; `None` where nothing can be kept.
    pub(crate) fn of(volume: [u8; 16], device: Option<DeviceIdentity>) -> Option<Place> {
        let device = device?;
        let boot = fs::read_to_string(BOOT_ID).ok()?;
        let boot = uuid::Uuid::try_parse(boot.trim()).ok()?;
        let above = env::var_os(DIRECTORY_VARIABLE).unwrap_or_else(|| DIRECTORY.into());
        Some(Place {
            owner: Owner {
                boot: boot.into_bytes(),
                volume,
                device: device.device,
                inode: device.inode,
            },
            above: above.into(),
            users: [rustix::process::geteuid().as_raw(), device.owner, 0],
        })
    }

    /// The directory of the tails that processes of a user make.
    fn directory(&self, user: u32) -> PathBuf {
        let volume = uuid::Uuid::from_bytes(self.owner.volume);
        let (device, inode) = (self.owner.device, self.owner.inode);
        self.above
            .join(format!("persimmon-{volume}-{device:x}-{inode:x}-{user}"))
    }

    /// Each once.
    fn all_users(&self) -> Vec<u32> {
        let mut users = self.users.to_vec();
        users.sort_unstable();
        users.dedup();
        users
    }

    fn own(&self) -> PathBuf {
        self.directory(self.users[0])
    }
}

/// The files of a volume with tails.
pub(crate) struct Keeper {
    place: Option<Place>,
    /// Of the volume, by this process.
    opening: u32,
    /// Files with flushed data that this opening, for reading, does not see.
    unseen: usize,
    /// Some file has had one.
    is_used: AtomicBool,
    /// Held shared by who empties a file in a way that is right as long as none has had one, and alone when the first gets one.
    first: RwLock<()>,
    /// The volume is being closed: nothing goes to tails any more.
    is_closing: AtomicBool,
    groups: [CachePadded<Group>; GROUPS],
    files: Mutex<HashMap<Ino, Opened>>,
}

/// Files whose numbers end alike.
struct Group {
    /// Those with tails among them. Where there is none, who looks at a file looks no further.
    count: AtomicUsize,
    /// Held shared over every change of a file but by appending through its tail, and alone when a file becomes one with a tail or ceases to
    /// be one. A change that found none is over before there is one: it went on beside the tail once, and what was appended to that took
    /// its place.
    changes: RwLock<()>,
}

impl Group {
    const fn new() -> Group {
        Group {
            count: AtomicUsize::new(0),
            changes: RwLock::new(()),
        }
    }
}

/// A file with a tail, and how many handles were opened to have one.
struct Opened {
    kept: Arc<Kept>,
    handles: usize,
}

impl Keeper {
    pub(crate) fn new(place: Option<Place>, opening: u32) -> Keeper {
        Keeper {
            place,
            opening,
            unseen: 0,
            is_used: AtomicBool::new(false),
            first: RwLock::new(()),
            is_closing: AtomicBool::new(false),
            groups: [const { CachePadded::new(Group::new()) }; GROUPS],
            files: Mutex::default(),
        }
    }

    /// Of a volume that is opened for reading.
    pub(crate) fn for_reading(unseen: usize) -> Keeper {
        let mut keeper = Keeper::new(None, 0);
        keeper.unseen = unseen;
        keeper
    }

    pub(crate) fn unseen(&self) -> usize {
        self.unseen
    }

    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// Keeps files from having tails, as long as none has had one.
    pub(crate) fn while_unused(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let unused = self.first.read();
        (!self.is_used()).then_some(unused)
    }

    fn group(&self, ino: Ino) -> &Group {
        let [first, ..] = &self.groups;
        self.groups.get(ino.0 as usize % GROUPS).unwrap_or(first)
    }

    /// For a handle that is opened to have a tail.
    pub(crate) fn open(&self, vfs: &Vfs, ino: Ino) -> Arc<Kept> {
        if !self.is_used() {
            let _first = self.first.write();
            self.is_used.store(true, Ordering::Release);
        }
        let group = self.group(ino);
        let _unchanged = group.changes.write();
        let mut files = self.files.lock();
        let opened = files.entry(ino).or_insert_with(|| {
            group.count.fetch_add(1, Ordering::Release);
            Opened {
                kept: Arc::new(Kept::new(ino, vfs.volume().standing())),
                handles: 0,
            }
        });
        opened.handles += 1;
        Arc::clone(&opened.kept)
    }

    /// For each of them that is closed. What was flushed is in the hands of the device then; where it cannot be, its tail stays.
    pub(crate) fn close(&self, vfs: &Vfs, kept: &Kept) {
        if let Err(error) = self.without_tail(vfs, kept) {
            let mut state = kept.lock();
            state.keep_pending();
            state.tried = Some(Instant::now());
            tracing::warn!(ino = kept.ino.0, %error, "what was flushed stays in memory until the device takes it");
        }
        {
            let mut files = self.files.lock();
            let handles = files.get(&kept.ino).map_or(0, |opened| opened.handles);
            assert!(handles > 0, "a file is closed more often than opened");
            if let Some(opened) = files.get_mut(&kept.ino) {
                opened.handles = handles - 1;
            }
        }
        self.forget_if_over(kept);
    }

    /// Forgets a file that nobody has open and that has no tail. Others stay: who looks at them is to see all, and who changes them removes
    /// the tail first.
    fn forget_if_over(&self, kept: &Kept) {
        let group = self.group(kept.ino);
        let _unchanged = group.changes.write();
        let mut files = self.files.lock();
        if is_closed(&files, kept) && kept.lock().tail.is_none() {
            files.remove(&kept.ino);
            group.count.fetch_sub(1, Ordering::Release);
        }
    }

    /// A file that some handle was opened to that has tails.
    fn find(&self, ino: Ino) -> Option<Arc<Kept>> {
        if self.group(ino).count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let files = self.files.lock();
        files.get(&ino).map(|opened| Arc::clone(&opened.kept))
    }

    /// Before somebody looks at a file: the volume has all that was appended to it.
    pub(crate) fn fill_in(&self, vfs: &Vfs, ino: Ino) -> VfsResult<()> {
        match self.find(ino) {
            Some(kept) => kept.lock().fill_in(vfs, ino),
            None => Ok(()),
        }
    }

    /// Before somebody reads all of a file before `end`.
    pub(crate) fn fill_in_before(&self, vfs: &Vfs, ino: Ino, end: u64) -> VfsResult<()> {
        match self.find(ino) {
            Some(kept) => kept.lock().fill_in_before(vfs, ino, end),
            None => Ok(()),
        }
    }

    /// Before somebody looks at all files. The first failure is told, after all were tried.
    pub(crate) fn fill_in_all(&self, vfs: &Vfs) -> VfsResult<()> {
        if !self.is_used() {
            return Ok(());
        }
        let all = self
            .files
            .lock()
            .values()
            .map(|opened| Arc::clone(&opened.kept))
            .collect::<Vec<_>>();
        let mut result = Ok(());
        for kept in all {
            result = result.and(self.filled_in(vfs, &kept));
        }
        result
    }

    fn filled_in(&self, vfs: &Vfs, kept: &Kept) -> VfsResult<()> {
        let is_due = {
            let mut state = kept.lock();
            let had_pending = state.has_pending();
            state.fill_in(vfs, kept.ino)?;
            let is_over = |tried: Instant| tried.elapsed() >= RETRY_INTERVAL;
            had_pending || state.tried.is_some_and(is_over)
        };
        // The device could not have it when the file was closed.
        if is_due && is_closed(&self.files.lock(), kept) {
            match self.without_tail(vfs, kept).map(drop) {
                Ok(()) => self.forget_if_over(kept),
                // The volume has all of it: who looks at the file sees that.
                Err(error) => {
                    kept.lock().tried = Some(Instant::now());
                    tracing::debug!(ino = kept.ino.0, %error, "what was flushed stays in memory");
                }
            }
        }
        Ok(())
    }

    /// Changes a file in any way but by appending through its tail.
    pub(crate) fn changing<T>(
        &self,
        vfs: &Vfs,
        ino: Ino,
        change: impl FnOnce() -> VfsResult<T>,
    ) -> VfsResult<T> {
        let _changes = self.group(ino).changes.read();
        let Some(kept) = self.find(ino) else {
            return change();
        };
        let _state = self.without_tail(vfs, &kept)?;
        change()
    }

    /// The volume is about to be closed: it gets what only tails have, and they get nothing more.
    pub(crate) fn closing(&self, vfs: &Vfs) -> VfsResult<()> {
        self.is_closing.store(true, Ordering::Release);
        let filled = self.fill_in_all(vfs);
        if filled.is_err() {
            for opened in self.files.lock().values() {
                opened.kept.lock().keep_pending();
            }
        }
        filled
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// The volume is closed: the device has everything.
    pub(crate) fn closed(&self) {
        for opened in self.files.lock().values() {
            opened.kept.lock().let_go();
        }
    }

    /// Writes through a handle to a file that has a tail: to its end whatever the offset if the handle `appends`.
    pub(crate) fn write(
        &self,
        vfs: &Vfs,
        kept: &Kept,
        (handle, appends): (Handle, bool),
        offset: u64,
        data: &[u8],
    ) -> VfsResult<Written> {
        let mut state = kept.lock();
        if state.is_continued(appends, offset)
            && !self.is_closing()
            && let Some(written) = state.append(vfs, (kept.ino, handle), data)
        {
            return Ok(written);
        }
        if state.has_pending() {
            // What others were given before goes before it, as if nothing had been pending.
            drop(state);
            if let Err(error) = self.fill_in_all(vfs) {
                tracing::debug!(%error, "what was appended to a file is not in the volume yet");
            }
            state = kept.lock();
        }
        // What is rewritten, or written behind a hole, is nothing that a tail can say.
        if state.tail.is_some() && !state.is_continued(appends, offset) {
            drop(state);
            state = self.without_tail(vfs, kept)?;
        }
        state.write(vfs, (kept.ino, handle), offset, data)
    }

    /// The same, and what was written to the file so far outlives this process then.
    pub(crate) fn write_flushed(
        &self,
        vfs: &Vfs,
        kept: &Kept,
        (handle, appends): (Handle, bool),
        offset: u64,
        data: &[u8],
    ) -> VfsResult<Written> {
        let written = self.write(vfs, kept, (handle, appends), offset, data)?;
        self.flush(vfs, handle, kept)?;
        Ok(written)
    }

    /// The same where it goes on with what is pending, as nearly every record of a log does: it costs little more than a copy. `None`
    /// where nothing was done; else whether what was written outlives this process.
    #[inline]
    pub(crate) fn append_flushed(
        &self,
        kept: &Kept,
        (handle, appends): (Handle, bool),
        offset: u64,
        data: &[u8],
    ) -> Option<bool> {
        let mut state = kept.lock();
        if !state.is_continued(appends, offset) || self.is_closing() || kept.is_read_only() {
            return None;
        }
        state.go_on(handle, data)?;
        Some(state.flush_tail(kept.ino))
    }

    /// What was written to the file so far outlives this process.
    pub(crate) fn flush(&self, vfs: &Vfs, handle: Handle, kept: &Kept) -> VfsResult<()> {
        {
            let mut state = kept.lock();
            // Nothing can be brought in by a volume that has stopped: the flush tells so.
            if vfs.is_read_only() {
                return vfs.flush_through(kept.ino, handle);
            }
            if !self.is_closing() && state.flush_tail(kept.ino) {
                return Ok(());
            }
        }
        let mut state = self.lock_in_order(vfs, kept);
        let state = &mut *state;
        state.fill_in(vfs, kept.ino)?;
        // Others may have the file open in other ways, and write while it is flushed.
        let before = vfs.getattr(kept.ino).map(|attr| attr.size);
        vfs.flush_through(kept.ino, handle)?;
        // All that the tail holds is in the hands of the device now, and so is all up to where it begins anew.
        match (state.retry_after, before) {
            (0, Ok(size)) => self.begin(vfs, kept.ino, state, size),
            (0, Err(_)) => state.let_go(),
            (left, _) => {
                state.let_go();
                state.retry_after = left - 1;
            }
        }
        Ok(())
    }

    /// Locks a file that has no tail then: the device has what it held.
    fn without_tail<'a>(&self, vfs: &Vfs, kept: &'a Kept) -> VfsResult<MutexGuard<'a, State>> {
        let mut state = kept.lock();
        // What goes on in the file from here on must not be there without what was flushed to others before.
        if state.holds() {
            drop(state);
            state = self.lock_in_order(vfs, kept);
        }
        state.remove_tail(vfs, kept.ino)?;
        Ok(state)
    }

    /// Locks a file that is to be handed to the device, once the device has all that was flushed to others so far. Tails do not outlive a
    /// loss of power: what is lost with it must be the end of one history, not the end of one log that another log goes on from.
    fn lock_in_order<'a>(&self, vfs: &Vfs, kept: &'a Kept) -> MutexGuard<'a, State> {
        let mut others = self
            .files
            .lock()
            .values()
            .filter(|opened| opened.kept.ino != kept.ino)
            .map(|opened| Arc::clone(&opened.kept))
            .collect::<Vec<_>>();
        others.sort_by_key(|other| other.ino.0);
        let (below, above) = others.split_at(others.partition_point(|other| other.ino < kept.ino));
        // All at once, in the order of their numbers, so that two files that do this never wait for each other. This file gets nothing
        // meanwhile that is younger than what the others hand over.
        let mut below = lock_all(below);
        let own = kept.lock();
        let mut above = lock_all(above);
        for (ino, state) in below.iter_mut().chain(&mut above) {
            // A sync of that file tells its caller. A file that cannot be written must not keep all others from being flushed.
            if let Err(error) = state.hand_over(vfs, *ino) {
                tracing::warn!(ino = ino.0, %error, "what was flushed to a file cannot be given to the device");
            }
        }
        own
    }

    /// Begins a tail where a file ends that is in the hands of the device up to there.
    fn begin(&self, vfs: &Vfs, ino: Ino, state: &mut State, base: u64) {
        let begun = (|| {
            let place = self.place.as_ref().filter(|_| !self.is_closing());
            let place = place.ok_or("no place for it")?;
            let now = vfs.getattr(ino).map_err(|error| error.to_string())?.size;
            if now != base {
                return Err("somebody else writes to the file".to_owned());
            }
            let volume = vfs.volume();
            // The next opening has to find this one's number, and the file as it is now.
            volume.tell_opening().map_err(|error| error.to_string())?;
            let recorded = volume.recorded().map_err(|error| error.to_string())?;
            let point = Point {
                opening: self.opening,
                lsn: recorded.ok_or("data could not be written")?,
            };
            match &mut state.tail {
                Some(tail) => tail
                    .begin_anew(base, point)
                    .map_err(|error| error.to_string())?,
                none => {
                    let start = Start { ino, base, point };
                    let made = Tail::create(&place.own(), &place.owner, &start);
                    *none = Some(made.map_err(|error| error.to_string())?);
                }
            }
            Ok::<(), String>(())
        })();
        match begun {
            Ok(()) => (state.end, state.is_behind) = (Some(base), false),
            Err(error) => {
                tracing::debug!(
                    ino = ino.0,
                    error,
                    "a tail cannot begin: flushes go to the device"
                );
                state.let_go();
                state.retry_after = RETRY_AFTER;
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(place) = self.place.as_ref().filter(|_| self.is_used()) {
            // While there are tails in it, it stays.
            let _ = fs::remove_dir(place.own());
        }
    }
}

fn is_closed(files: &HashMap<Ino, Opened>, kept: &Kept) -> bool {
    let opened = files.get(&kept.ino);
    // It may have been opened anew since.
    opened.is_some_and(|opened| opened.handles == 0 && std::ptr::eq(&*opened.kept, kept))
}

fn lock_all(files: &[Arc<Kept>]) -> Vec<(Ino, MutexGuard<'_, State>)> {
    let locked = files.iter().map(|file| (file.ino, file.lock()));
    locked.collect()
}
