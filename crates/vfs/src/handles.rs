//! Open files and directories.

use persimmon_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use persimmon_sync::{Arc, CachePadded, RwLock};

use persimmon_format::SubvolumeId;
use persimmon_format::inode::Inode;

use crate::lifetimes::LifetimeHint;
use crate::nodes::Node;
use crate::protection::check_open;
use crate::{Error, FileKind, Handle, Ino, LockOwner, OpenFlags, Result, Vfs, is_snapshots};

const SHARDS: usize = 32;

/// What a handle stands for.
#[derive(Debug)]
pub(crate) struct Open {
    /// Given when it enters the table.
    handle: Handle,
    pub(crate) ino: Ino,
    pub(crate) node: Arc<Node>,
    pub(crate) flags: OpenFlags,
    pub(crate) directory: bool,
    pub(crate) hint: LifetimeHint,
    /// The snapshot that it is in was deleted.
    void: AtomicBool,
}

impl Open {
    fn of_file(ino: Ino, node: Arc<Node>, flags: OpenFlags) -> Open {
        Open {
            handle: Handle::NONE,
            ino,
            node,
            flags,
            directory: false,
            hint: LifetimeHint::default(),
            void: AtomicBool::new(false),
        }
    }
}

#[derive(Debug, Default)]
struct Shard {
    slots: Vec<Option<Arc<Open>>>,
    free: Vec<usize>,
}

/// The table of handles. A handle is its place, slot * SHARDS + shard + 1, and above that how many were opened before: so no two are ever the
/// same, and what comes late for one does nothing to another that has its place by then.
#[derive(Debug)]
pub(crate) struct Handles {
    shards: [CachePadded<RwLock<Shard>>; SHARDS],
    count: AtomicUsize,
    opened: AtomicU64,
    max: usize,
}

impl Handle {
    /// Bits of the place. The others are of the count, which would take years to be full.
    const PLACE_BITS: u32 = 26;

    fn new(place: usize, opened: u64) -> Option<Handle> {
        let place = u64::try_from(place).ok()?;
        (place >> Handle::PLACE_BITS == 0).then_some(Handle(opened << Handle::PLACE_BITS | place))
    }

    /// Its place among all that are open. Another has it once this one is released; from 1 on.
    #[must_use]
    pub fn place(self) -> usize {
        (self.0 & ((1 << Handle::PLACE_BITS) - 1)) as usize
    }

    /// How many were opened before it.
    fn opened(self) -> u64 {
        self.0 >> Handle::PLACE_BITS
    }
}

impl Handles {
    pub(crate) fn new(max: usize) -> Handles {
        Handles {
            shards: std::array::from_fn(|_| CachePadded::default()),
            count: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            max,
        }
    }

    fn insert(&self, mut open: Open) -> Result<Handle> {
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyOpen);
        }
        let opened = self.opened.fetch_add(1, Ordering::Relaxed);
        let which = (opened % SHARDS as u64) as usize;
        let lock = &self.shards[which];
        let mut shard = lock.write();
        let slot = match shard.free.pop() {
            Some(slot) => slot,
            None => {
                shard.slots.push(None);
                shard.slots.len() - 1
            }
        };
        let handle = Handle::new(slot * SHARDS + which + 1, opened);
        let (Some(handle), Some(place)) = (handle, shard.slots.get_mut(slot)) else {
            shard.free.push(slot);
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyOpen);
        };
        open.handle = handle;
        *place = Some(Arc::new(open));
        Ok(handle)
    }

    /// One that was opened in the process before. [`Handles::go_on_after`] has to follow.
    pub(crate) fn insert_at(
        &self,
        handle: Handle,
        ino: Ino,
        node: Arc<Node>,
        flags: OpenFlags,
    ) -> Result<()> {
        let (lock, slot) = self.place(handle).ok_or(Error::BadHandle)?;
        if slot >= self.max {
            return Err(Error::BadHandle);
        }
        let mut shard = lock.write();
        if shard.slots.len() <= slot {
            shard.slots.resize(slot + 1, None);
        }
        let place = shard.slots.get_mut(slot).ok_or(Error::BadHandle)?;
        if place.is_some() {
            return Err(Error::BadHandle);
        }
        *place = Some(Arc::new(Open {
            handle,
            ..Open::of_file(ino, node, flags)
        }));
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Finds the slots between those that were taken by number, and gives no handle again of those that the process before gave, of which
    /// `newest` is the last.
    pub(crate) fn go_on_after(&self, newest: Handle) {
        let mut opened = newest.opened() + 1;
        for shard in &self.shards {
            let mut shard = shard.write();
            let slots = shard.slots.iter().enumerate();
            let free = slots.filter(|(_, open)| open.is_none());
            shard.free = free.map(|(slot, _)| slot).collect();
            let taken = shard.slots.iter().flatten();
            opened = taken.fold(opened, |opened, open| opened.max(open.handle.opened() + 1));
        }
        self.opened.fetch_max(opened, Ordering::Relaxed);
    }

    fn place(&self, handle: Handle) -> Option<(&RwLock<Shard>, usize)> {
        let number = handle.place().checked_sub(1)?;
        Some((self.shards.get(number % SHARDS)?, number / SHARDS))
    }

    fn get(&self, handle: Handle) -> Option<Arc<Open>> {
        let (lock, slot) = self.place(handle)?;
        let shard = lock.read();
        let open = shard.slots.get(slot)?.as_ref()?;
        (open.handle == handle).then(|| Arc::clone(open))
    }

    fn any(&self, id: SubvolumeId, mut is_wanted: impl FnMut(&Open) -> bool) -> bool {
        self.shards.iter().any(|shard| {
            let shard = shard.read();
            let mut open = shard.slots.iter().flatten();
            open.any(|open| open.ino.subvolume() == id && is_wanted(open))
        })
    }

    /// Whether a file of a subvolume is open for writing.
    pub(crate) fn is_written(&self, id: SubvolumeId) -> bool {
        self.any(id, |open| open.flags.write)
    }

    /// A snapshot was deleted: handles of what was in it stand for nothing any more.
    pub(crate) fn invalidate(&self, id: SubvolumeId) {
        self.any(id, |open| {
            open.void.store(true, Ordering::Release);
            false
        });
    }

    fn remove(&self, ino: Ino, handle: Handle) -> Option<Arc<Open>> {
        let (lock, slot) = self.place(handle)?;
        let mut shard = lock.write();
        let place = shard.slots.get_mut(slot)?;
        let open = place.as_ref()?;
        if open.ino != ino || open.handle != handle {
            return None;
        }
        let open = place.take();
        shard.free.push(slot);
        self.count.fetch_sub(1, Ordering::Relaxed);
        open
    }
}

/// Before the size of a file, or a range of it, is changed: only regular files have content.
pub(crate) fn check_has_content(inode: &Inode, change: &'static str) -> Result<()> {
    match FileKind::from_mode(inode.mode) {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::Invalid(change)),
    }
}

impl Vfs {
    /// Opens a regular file (`ELOOP` for a symbolic link, `ENXIO` for other kinds, which are the
    /// kernel's to open).
    pub fn open(&self, ino: Ino, flags: OpenFlags) -> Result<Handle> {
        if is_snapshots(ino) {
            return Err(Error::IsDirectory);
        }
        if flags.write || flags.truncate {
            self.changeable(ino)?;
        }
        let node = self.nodes.acquire(ino)?;
        self.open_acquired(ino, node, flags)
    }

    /// The rest of opening, once the inode is sure to stay.
    fn open_acquired(&self, ino: Ino, node: Arc<Node>, flags: OpenFlags) -> Result<Handle> {
        let opened = self.check_kind(ino, &flags).and_then(|()| {
            self.check_whole(ino)?;
            // The content goes only where nothing else can fail.
            let handle = self
                .handles
                .insert(Open::of_file(ino, Arc::clone(&node), flags))?;
            if flags.truncate
                && let Err(error) = self.truncate(ino, Some(&node), 0, flags.author)
            {
                self.handles.remove(ino, handle);
                return Err(error);
            }
            Ok(handle)
        });
        if opened.is_err() {
            self.release_node(ino);
        }
        opened
    }

    fn check_kind(&self, ino: Ino, flags: &OpenFlags) -> Result<()> {
        let inode = self.inode(ino)?;
        match FileKind::from_mode(inode.mode) {
            FileKind::Regular => check_open(&inode, flags),
            FileKind::Directory => Err(Error::IsDirectory),
            FileKind::Symlink => Err(Error::SymlinkLoop),
            _ => Err(Error::SpecialFile),
        }
    }

    /// Opens a regular file that was just made and that `node` keeps.
    pub(crate) fn open_new(&self, ino: Ino, node: Arc<Node>, flags: OpenFlags) -> Result<Handle> {
        let opened = self.handles.insert(Open::of_file(ino, node, flags));
        if opened.is_err() {
            self.release_node(ino);
        }
        opened
    }

    /// At every `close` of a descriptor: locks of `owner` are released; data of a file that was
    /// truncated through a descriptor enters the history. May be left out by a door that releases
    /// locks itself: [`Vfs::release`] does the rest.
    pub fn flush(&self, ino: Ino, handle: Handle, owner: LockOwner) -> Result<()> {
        self.release_locks(ino, owner);
        match self.opened(ino, handle)? {
            Some(open) => self.commit_truncated(&open),
            None => Ok(()),
        }
    }

    /// Whether [`Vfs::flush`] has more to do than to release locks, as far as is known when the file
    /// is opened: it was emptied, just now or before.
    #[must_use]
    pub fn needs_flush(&self, handle: Handle) -> bool {
        let open = self.handles.get(handle);
        open.is_some_and(|open| open.flags.write && open.node.truncated.load(Ordering::Relaxed))
    }

    /// At the last `close`: the handle is void. An unlinked file is reclaimed with its last handle.
    pub fn release(&self, ino: Ino, handle: Handle) -> Result<()> {
        if handle == Handle::NONE {
            return Ok(());
        }
        let open = self.handles.remove(ino, handle).ok_or(Error::BadHandle)?;
        if open.void.load(Ordering::Acquire) {
            return Ok(());
        }
        let result = self.commit_truncated(&open);
        self.release_node(ino);
        result
    }

    /// Opens a directory for reading.
    pub fn opendir(&self, ino: Ino) -> Result<Handle> {
        let node = self.nodes.acquire(ino)?;
        let opened = self.inode(ino).and_then(|inode| {
            if !inode.is_dir() {
                return Err(Error::NotDirectory);
            }
            let flags = OpenFlags {
                read: true,
                ..OpenFlags::default()
            };
            self.handles.insert(Open {
                directory: true,
                ..Open::of_file(ino, node, flags)
            })
        });
        if opened.is_err() {
            self.release_node(ino);
        }
        opened
    }

    /// Closes a directory.
    pub fn releasedir(&self, ino: Ino, handle: Handle) -> Result<()> {
        self.release(ino, handle)
    }

    /// What `handle` stands for; `None` without one. `EBADF` if it is not one of `ino`.
    pub(crate) fn opened(&self, ino: Ino, handle: Handle) -> Result<Option<Arc<Open>>> {
        if handle == Handle::NONE {
            return Ok(None);
        }
        match self.handles.get(handle) {
            Some(open) if open.ino == ino && open.void.load(Ordering::Acquire) => Err(Error::Stale),
            Some(open) if open.ino == ino => Ok(Some(open)),
            _ => Err(Error::BadHandle),
        }
    }

    /// The new content of a file that was emptied and written anew is in the history once it is
    /// closed: a crash that leaves anything later leaves it too. The mark stays while the file is open: another descriptor may still write.
    fn commit_truncated(&self, open: &Open) -> Result<()> {
        let due = open.flags.write && open.node.truncated.load(Ordering::Relaxed);
        if due && !self.is_read_only() {
            self.watch(self.volume.commit_file(open.ino))?;
            self.nodes.filled(open.ino);
        }
        Ok(())
    }

    /// Keeps an inode that is changed by its number alone from being freed meanwhile: without a kernel that holds
    /// it somebody may remove its last name. A handle keeps it by itself, until it is released: which nobody does
    /// while it is in use.
    pub(crate) fn pin_unopened(
        &self,
        ino: Ino,
        open: Option<&Arc<Open>>,
    ) -> Result<Option<Pin<'_>>> {
        if open.is_some() {
            return Ok(None);
        }
        self.nodes.pin(ino)?;
        Ok(Some(Pin { vfs: self, ino }))
    }

    pub(crate) fn release_node(&self, ino: Ino) {
        if self.nodes.release(ino) {
            self.reclaim(ino);
        }
    }
}

/// An inode that stays; without a name it is freed when this goes, if nothing else keeps it.
pub(crate) struct Pin<'a> {
    vfs: &'a Vfs,
    ino: Ino,
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        if self.vfs.nodes.unpin(self.ino) {
            self.vfs.reclaim(self.ino);
        }
    }
}
