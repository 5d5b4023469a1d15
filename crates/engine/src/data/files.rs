//! The files that have something staged, and the order in which they got it; whose turn it is to
//! change one.

use persimmon_sync::atomic::{AtomicU64, Ordering};
use persimmon_sync::{Alarm, Arc, Condvar, Mutex, MutexGuard, Watch};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_format::{Ino, SubvolumeId};

use super::FileData;
use super::staged::Staged;
use crate::error::{Error, Result};
use crate::invariant::invariant_holds;
use crate::meta::View;
use crate::space::BLOCK_SECTORS;
use crate::store::Store;

const SHARDS: usize = 16;
/// Staged ranges that are looked up where somebody asks what a file takes; and extents of each. What is behind them is not counted
/// before it is written.
const STAGED_RANGES_MAX: usize = 32;
const EXTENTS_MAX: usize = 32;

/// A file with something staged.
pub(crate) struct File {
    staged: Mutex<Staged>,
    changed: Condvar,
}

impl File {
    pub(super) fn new(alarm: &Alarm) -> File {
        File {
            staged: Mutex::watched(Staged::watched(alarm), alarm),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Staged> {
        self.staged.lock()
    }

    /// Waits while `condition` holds.
    pub(crate) fn wait_while<'a>(
        &self,
        staged: MutexGuard<'a, Staged>,
        condition: impl Fn(&Staged) -> bool,
    ) -> MutexGuard<'a, Staged> {
        self.changed.wait_while(staged, |staged| condition(staged))
    }

    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// The lock for who changes the file in one hold of it, or for whose change of several steps
    /// this is one: while somebody else's goes on it waits.
    pub(super) fn lock_to_change(&self, own: Option<&Change<'_>>) -> MutexGuard<'_, Staged> {
        self.wait_while(self.lock(), |staged| own.is_none() && staged.changing)
    }
}

/// A change of a file in several steps, between which the lock is given back: nobody else changes
/// size or content of the file before it is dropped. Staged data is still written back.
pub(super) struct Change<'a>(&'a File, Watch<'a>);

impl<'a> Change<'a> {
    pub(super) fn begin(file: &'a File) -> Change<'a> {
        file.lock_to_change(None).changing = true;
        Change(file, file.staged.watch())
    }

    /// The same for who must not wait: nobody else changes the file, and `may` agrees to what is staged.
    pub(super) fn try_begin(
        file: &'a File,
        may: impl FnOnce(&mut Staged) -> bool,
    ) -> Option<Change<'a>> {
        let mut staged = file.lock();
        if staged.changing || !may(&mut staged) {
            return None;
        }
        staged.changing = true;
        drop(staged);
        Some(Change(file, file.staged.watch()))
    }

    /// The file's size, which is loaded. It stays.
    pub(super) fn size(&self) -> u64 {
        self.0.lock().loaded_size()
    }

    /// Waits for the batch that the file is in. No other batch takes the file until the returned guard is dropped.
    pub(super) fn exclude_write_back(&self) -> (WriteBackExcluded<'_>, MutexGuard<'_, Staged>) {
        let mut staged = self.0.wait_while(self.0.lock(), |staged| staged.busy);
        invariant_holds!(
            staged.alarm(),
            staged.changing && staged.frozen.is_empty(),
            "write-back of a file is excluded with {} runs frozen",
            staged.frozen.len()
        );
        staged.busy = true;
        (WriteBackExcluded(self.0, self.0.staged.watch()), staged)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.1.look();
        let mut staged = self.0.lock();
        invariant_holds!(staged.alarm(), staged.changing, "a change ends twice");
        staged.changing = false;
        drop(staged);
        self.0.notify();
    }
}

/// A file that is being changed and that no batch may take: its staged data and its items in the
/// tree can be changed one after the other.
pub(super) struct WriteBackExcluded<'a>(&'a File, Watch<'a>);

impl Drop for WriteBackExcluded<'_> {
    fn drop(&mut self) {
        self.1.look();
        let mut staged = self.0.lock();
        invariant_holds!(
            staged.alarm(),
            staged.busy,
            "write-back of a file is allowed again twice"
        );
        staged.busy = false;
        drop(staged);
        self.0.notify();
    }
}

/// A map by inode number that is looked into for each read and write: its hash is quick.
pub type InoMap<V> = HashMap<Ino, V, foldhash::fast::RandomState>;

type Shard = Mutex<InoMap<Arc<File>>>;

/// The order in which files got something staged. A file has one place in it at most, and none once it is forgotten: it is as long as the
/// table of files at most, however often they are written and synced.
#[derive(Default)]
struct Queue {
    next: u64,
    order: BTreeMap<u64, Ino>,
    places: InoMap<u64>,
}

impl Queue {
    fn push(&mut self, ino: Ino) {
        if let Entry::Vacant(place) = self.places.entry(ino) {
            place.insert(self.next);
            self.order.insert(self.next, ino);
            self.next += 1;
        }
    }

    fn pop(&mut self) -> Option<Ino> {
        let (_, ino) = self.order.pop_first()?;
        self.places.remove(&ino);
        Some(ino)
    }

    fn remove(&mut self, ino: Ino) {
        if let Some(place) = self.places.remove(&ino) {
            self.order.remove(&place);
        }
    }
}

/// All of them.
pub(crate) struct Files {
    alarm: Alarm,
    shards: [Shard; SHARDS],
    dirty: Mutex<Queue>,
    /// Times that any file became shorter.
    cuts: AtomicU64,
    store: Arc<Store>,
    /// Whose sync began last; 0 for one of no file.
    last_synced: AtomicU64,
}

impl Files {
    pub(super) fn new(store: &Arc<Store>) -> Files {
        Files {
            alarm: store.media.alarm.clone(),
            store: Arc::clone(store),
            shards: Default::default(),
            dirty: Mutex::default(),
            cuts: AtomicU64::new(0),
            last_synced: AtomicU64::new(0),
        }
    }

    /// A sync begins, of a file or of what has no data: whether the one before it was of the same file. Then nobody else seems to
    /// sync anything. A hint: what is durable when does not depend on it.
    pub(crate) fn note_sync(&self, ino: Option<Ino>) -> bool {
        let now = ino.map_or(0, |ino| ino.0);
        let before = self.last_synced.swap(now, Ordering::Relaxed);
        ino.is_some() && before == now
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, InoMap<Arc<File>>> {
        let shard = &self.shards[ino.0 as usize % SHARDS];
        shard.lock()
    }

    pub(super) fn get(&self, ino: Ino) -> Option<Arc<File>> {
        self.shard(ino).get(&ino).cloned()
    }

    pub(crate) fn get_or_create(&self, ino: Ino) -> Arc<File> {
        let create = || {
            self.store.changes.note(ino);
            Arc::new(File::new(&self.alarm))
        };
        Arc::clone(self.shard(ino).entry(ino).or_insert_with(create))
    }

    /// Forgets a file with nothing staged, unless somebody else is using it.
    pub(crate) fn forget_if_clean(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        let is_clean = |f: &Arc<File>| Arc::strong_count(f) == 1 && f.lock().is_clean();
        if shard.get(&ino).is_some_and(is_clean)
            && let Some(file) = shard.remove(&ino)
        {
            // A size that a reader found in the table may be gone with it.
            self.store.changes.note(ino);
            let staged = file.lock();
            if staged.queued {
                self.queue().remove(ino);
            }
            invariant_holds!(
                self.alarm,
                staged.staged_blocks() == 0 && !staged.changing,
                "inode {ino} is forgotten with {} staged blocks",
                staged.staged_blocks()
            );
        }
    }

    /// The same, for the holder of a reference.
    pub(crate) fn forget_if_clean_of(&self, ino: Ino, file: Arc<File>) {
        drop(file);
        self.forget_if_clean(ino);
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self
            .shards
            .iter()
            .flat_map(|s| s.lock().keys().copied().collect::<Vec<_>>())
            .collect();
        all.sort_unstable();
        all
    }

    /// The file ends at `size` from now on, to whoever reads it. What is beyond is still to be
    /// dropped, in staging and the tree, before anybody else changes the file.
    pub(super) fn cut(&self, file: &File, size: u64) {
        let mut staged = file.lock();
        staged.size = Some(size);
        self.note_cut(&mut staged);
    }

    /// The file became shorter.
    pub(super) fn note_cut(&self, staged: &mut Staged) {
        staged.cuts += 1;
        self.cuts.fetch_add(1, Ordering::AcqRel);
    }

    /// To be asked before the size of a file is looked at, and after the last look for its blocks.
    pub(super) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Acquire)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.dirty.lock()
    }

    pub(crate) fn enqueue(&self, ino: Ino) {
        self.queue().push(ino);
    }

    /// Files in the queue of those with something staged.
    pub(crate) fn queued(&self) -> usize {
        self.queue().order.len()
    }

    pub(crate) fn dequeue(&self) -> Option<Ino> {
        self.queue().pop()
    }
}

impl FileData {
    /// Begins a change of a loaded file in several steps, unless something came up since it was loaded.
    pub(super) fn begin_change<'a>(&self, ino: Ino, file: &'a File) -> Result<Change<'a>> {
        let change = Change::begin(file);
        self.check_changeable(ino, &file.lock())?;
        Ok(change)
    }

    /// Whether a file may be changed: its staging can be written, and nothing of it is left mapped beyond its end.
    pub(super) fn check_changeable(&self, ino: Ino, staged: &Staged) -> Result<()> {
        if let Some(damage) = &staged.damage {
            return Err(damage.clone());
        }
        self.check_open(ino)?;
        self.truncations.check(ino)
    }

    /// Nothing is staged of a subvolume that comes, goes or is gone.
    fn check_open(&self, ino: Ino) -> Result<()> {
        let subvolume = ino.subvolume();
        if subvolume != SubvolumeId::MAIN && self.closed.lock().contains(&subvolume) {
            return Err(Error::NoSuchSnapshot);
        }
        Ok(())
    }

    /// The staging of a regular file that is about to change, its size loaded.
    pub(super) fn load(&self, ino: Ino) -> Result<Arc<File>> {
        let file = self.files.get_or_create(ino);
        // Last what its subvolume inherited: that is known once a new one is open.
        let loaded = self
            .load_size(ino, &file)
            .and_then(|()| self.check_open(ino))
            .and_then(|()| self.complete_truncation(ino, &file));
        match loaded {
            Ok(()) => Ok(file),
            Err(error) => {
                self.files.forget_if_clean_of(ino, file);
                Err(error)
            }
        }
    }

    fn load_size(&self, ino: Ino, file: &File) -> Result<()> {
        {
            let staged = file.lock();
            if let Some(damage) = &staged.damage {
                return Err(damage.clone());
            }
            if staged.size.is_some() {
                return Ok(());
            }
        }
        // The file is in the table before its inode is read: whoever changes the size from now
        // on does so through it, and then `size` is set when we look again.
        let inode: Option<Inode> = self.store.view(|view| view.inode(ino))?;
        let Some(inode) = inode.filter(Inode::is_file) else {
            return Err(Error::NotFound(ino));
        };
        let mut staged = file.lock();
        staged.last_ctime = staged.last_ctime.max(inode.ctime);
        if staged.owners.is_none() {
            self.set_owners(&mut staged, ino, &inode);
        }
        if staged.size.is_none() {
            staged.size = Some(inode.size);
            staged.committed_size = inode.size;
        }
        Ok(())
    }

    /// An inode as a reader sees it: with what is staged of it.
    pub fn attr(&self, ino: Ino) -> Result<Option<Inode>> {
        let found = self.attr_and_staging(ino)?;
        Ok(found.map(|(inode, _)| inode))
    }

    /// The same, and whether something of it waits to be written, or is being written: the space it takes will change then without
    /// anything being done to it. What is written in between is not taken for staged, and that is the safe side.
    pub fn attr_and_staging(&self, ino: Ino) -> Result<Option<(Inode, bool)>> {
        let Some(file) = self.files.get(ino) else {
            let inode = self.store.view::<_, Error>(|view| view.inode(ino))?;
            return Ok(inode.map(|inode| (inode, false)));
        };
        // Staging is looked at first: what leaves it later is in the tree by then.
        let (size, times, ranges, blocks, is_staged) = {
            let staged = file.lock();
            (
                staged.size,
                staged.times.or(staged.frozen_times),
                staged.staged_ranges(STAGED_RANGES_MAX),
                staged.staged_blocks(),
                !staged.is_clean(),
            )
        };
        let found = self.store.view::<_, Error>(|view| {
            let Some(inode) = view.inode(ino)? else {
                return Ok(None);
            };
            // Of a file that has nothing yet all of it is new.
            let new = match inode.sectors {
                0 => blocks,
                _ => unmapped(view, ino, &ranges)?,
            };
            Ok(Some((inode, new)))
        })?;
        let Some((mut inode, new)) = found else {
            return Ok(None);
        };
        inode.size = size.unwrap_or(inode.size);
        if let Some(times) = times {
            inode.mtime = times.mtime;
            inode.ctime = times.ctime.max(inode.ctime);
        }
        {
            let mut staged = file.lock();
            staged.last_ctime = staged.last_ctime.max(inode.ctime);
        }
        // A file with something in it is not to look like one hole, nor as shorter than it will be.
        inode.sectors = inode.sectors.saturating_add(new * BLOCK_SECTORS);
        Ok(Some((inode, is_staged)))
    }

    /// Changes an inode with its times. `change` is told when it was last written, where that is not
    /// in the tree, and is to put it there, or something else: what is staged has no times after it.
    pub fn change_times<R, E>(
        &self,
        ino: Ino,
        change: impl FnOnce(Option<Timestamp>) -> Result<R, E>,
    ) -> Result<R, E> {
        // What is first staged from now on comes after this, with later times.
        let Some(file) = self.files.get(ino) else {
            return change(None);
        };
        let own = Change::begin(&file);
        let (excluded, staged) = own.exclude_write_back();
        let written = staged.times.map(|times| times.mtime);
        drop(staged);
        let changed = change(written);
        if changed.is_ok() {
            file.lock().times = None;
        }
        drop(excluded);
        drop(own);
        self.files.forget_if_clean_of(ino, file);
        changed
    }
}

/// Blocks of these ranges at which a file has nothing in the tree: what is staged there will take space.
fn unmapped(view: &View<'_>, ino: Ino, ranges: &[(u64, u64)]) -> Result<u64> {
    let mut new = 0;
    for (first, end) in ranges {
        let extents = match view.extents(ino, *first, *end, EXTENTS_MAX) {
            // What it takes is the least that anybody wants to know of a damaged file.
            Err(Error::ItemDamaged { .. }) => break,
            extents => extents?,
        };
        let mut at = *first;
        for mapped in &extents {
            new += mapped.block.max(at) - at;
            at = at.max(mapped.end());
            if matches!(mapped.extent, Extent::Hole { .. }) {
                new += mapped.end().min(*end) - mapped.block.max(*first);
            }
        }
        if extents.len() < EXTENTS_MAX {
            new += at.max(*end) - at;
        }
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

    use persimmon_format::SubvolumeId;
    use persimmon_sim::SimConfig;

    use crate::engine::tests::{NOW, create, engine};
    use crate::error::Error;

    /// It was staged for a subvolume that is gone, and no batch with it could be written: the volume took no more changes.
    #[test]
    fn nothing_is_staged_of_a_snapshot_that_was_deleted_since_a_writer_found_it() {
        let engine = engine(SimConfig::new(64, 256).fast());
        let ino = create(&engine);
        let take = || engine.take_snapshot(SubvolumeId::MAIN, b"w", false, NOW);
        let id = take().unwrap();
        let file = engine.data.load(ino.of(id)).unwrap();
        let check = |id| engine.data.check_changeable(ino.of(id), &file.lock());
        check(id).unwrap();
        engine.delete_snapshot(id).unwrap();
        assert!(matches!(check(id), Err(Error::NoSuchSnapshot)));
        // Another one takes changes.
        let another = take().unwrap();
        check(another).unwrap();
        engine.delete_snapshot(another).unwrap();
    }
}
