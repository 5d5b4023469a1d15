//! Access times: kept in memory, written into the history now and then, in batches.

use persimmon_sync::atomic::{AtomicUsize, Ordering};
use persimmon_sync::{Mutex, MutexGuard};

use persimmon_engine::{InoMap, Intent};
use persimmon_format::SubvolumeId;
use persimmon_format::inode::Inode;

use crate::handles::Open;
use crate::{AccessTimes, Attr, Handle, Ino, Result, Timestamp, Vfs};

/// Inodes changed in one transaction at most.
const BATCH: usize = 256;
/// With [`AccessTimes::Relative`] an access time is renewed when it is so old.
const RELATIVE_AGE_SECONDS: i64 = 24 * 60 * 60;

#[derive(Default)]
pub(crate) struct PendingAccessTimes {
    /// Entries, so that the usual look-up of an inode that has none takes no lock.
    count: AtomicUsize,
    times: Mutex<InoMap<Timestamp>>,
}

impl PendingAccessTimes {
    fn lock(&self) -> MutexGuard<'_, InoMap<Timestamp>> {
        self.times.lock()
    }

    pub(crate) fn get(&self, ino: Ino) -> Option<Timestamp> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.lock().get(&ino).copied()
    }

    /// Tells how many there are now.
    fn insert(&self, ino: Ino, time: Timestamp) -> usize {
        let mut times = self.lock();
        times.insert(ino, time);
        self.count.store(times.len(), Ordering::Release);
        times.len()
    }

    pub(crate) fn remove(&self, ino: Ino) {
        if self.count.load(Ordering::Acquire) != 0 {
            let mut times = self.lock();
            times.remove(&ino);
            self.count.store(times.len(), Ordering::Release);
        }
    }

    /// A snapshot was deleted.
    pub(crate) fn forget_subvolume(&self, id: SubvolumeId) {
        let mut times = self.lock();
        times.retain(|ino, _| ino.subvolume() != id);
        self.count.store(times.len(), Ordering::Release);
    }

    fn all(&self) -> Vec<(Ino, Timestamp)> {
        let mut all: Vec<_> = self.lock().iter().map(|(i, t)| (*i, *t)).collect();
        all.sort_unstable();
        all
    }

    /// Drops those that are as they were written; one may have been renewed meanwhile.
    fn written(&self, batch: &[(Ino, Timestamp)]) {
        let mut times = self.lock();
        for (ino, time) in batch {
            if times.get(ino) == Some(time) {
                times.remove(ino);
            }
        }
        self.count.store(times.len(), Ordering::Release);
    }
}

/// Whether a read at `now` changes the access time.
fn is_due(policy: AccessTimes, inode: &Inode, atime: Timestamp, now: Timestamp) -> bool {
    match policy {
        AccessTimes::Never => false,
        AccessTimes::Always => atime != now,
        AccessTimes::Relative => {
            atime <= inode.mtime
                || atime <= inode.ctime
                || now.seconds.saturating_sub(atime.seconds) >= RELATIVE_AGE_SECONDS
        }
    }
}

impl Vfs {
    /// Whether access times wait in memory.
    #[must_use]
    pub fn has_access_times(&self) -> bool {
        self.access_times.count.load(Ordering::Acquire) > 0
    }

    /// Writes access times kept in memory into the history; to be called now and then (every
    /// few minutes). [`Vfs::sync`] and [`Vfs::close`] do it too.
    pub fn flush_access_times(&self) -> Result<()> {
        // What waits in memory need not wait for a thaw.
        if self.is_read_only() || self.is_frozen() {
            return Ok(());
        }
        let all = self.access_times.all();
        let batch_max = BATCH.min(self.volume().transaction_ops_max());
        for batch in all.chunks(batch_max) {
            self.change(Intent::Shrink, |tx| {
                for (ino, time) in batch {
                    // Set to another value meanwhile: that one counts.
                    if self.access_times.get(*ino) != Some(*time) {
                        continue;
                    }
                    let inode = match tx.inode(*ino) {
                        // Deleted since, with all that was in it.
                        Err(persimmon_engine::Error::NoSuchSnapshot) => None,
                        inode => inode?,
                    };
                    if let Some(mut inode) = inode {
                        inode.atime = *time;
                        tx.put_inode(*ino, &inode);
                    }
                }
                Ok(())
            })?;
            self.access_times.written(batch);
        }
        Ok(())
    }

    /// Notes that a file was opened to be read, by a door whose kernel may have its content and would read without asking.
    /// Tells whether that changed the access time.
    pub fn opened_to_read(&self, ino: Ino, handle: Handle) -> Result<bool> {
        let open = self.opened(ino, handle)?;
        let before = self.access_times.get(ino);
        self.accessed(ino, open.as_deref());
        Ok(self.access_times.get(ino) != before)
    }

    /// Notes that the content was read. A failure to note it is not the reader's.
    pub(crate) fn accessed(&self, ino: Ino, open: Option<&Open>) {
        let policy = self.options().access_times;
        if policy == AccessTimes::Never || self.changeable(ino).is_err() {
            return;
        }
        if let Some(open) = open {
            let known =
                policy == AccessTimes::Relative && open.node.accessed.load(Ordering::Relaxed);
            if known || open.flags.no_atime {
                return;
            }
            if open.directory && !self.options().directory_access_times {
                return;
            }
        }
        let Ok(inode) = self.inode(ino) else { return };
        let now = self.now();
        let atime = self.access_times.get(ino).unwrap_or(inode.atime);
        let has_room = |vfs: &Vfs| {
            let count = vfs.access_times.count.load(Ordering::Relaxed);
            count < vfs.options().access_times_max || !vfs.is_frozen()
        };
        if is_due(policy, &inode, atime, now) && has_room(self) {
            let pending = self.access_times.insert(ino, now);
            self.volume().activity().note();
            if pending >= self.options().access_times_max
                && let Err(error) = self.flush_access_times()
            {
                tracing::debug!(%error, "access times stay in memory");
            }
        }
        if let Some(open) = open {
            open.node.accessed.store(true, Ordering::Relaxed);
        }
    }

    /// Attributes of `inode` with an access time that is only in memory yet.
    pub(crate) fn attr_of(&self, ino: Ino, inode: &Inode) -> Attr {
        let mut attr = Attr {
            generation: self.generation(ino),
            ..Attr::new(ino, inode)
        };
        if let Some(atime) = self.access_times.get(ino) {
            attr.atime = atime;
        }
        attr
    }
}
