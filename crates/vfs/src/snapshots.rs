//! Snapshots: taken, listed, renamed and deleted as names in a directory that is nowhere stored.
//!
//! Inodes of a snapshot have its number above their own ([`Ino::subvolume`]), so all that goes by an inode works in them as it does in the
//! main subvolume, and a file in a snapshot is not taken for the one that it is a snapshot of. The directory is found by its name in the
//! root, but the root does not list it: whoever walks all files is not to walk all snapshots too.

use persimmon_sync::Mutex;

use persimmon_format::inode::{Inode, TYPE_MASK};
use persimmon_format::zone_header;

use crate::directories::DOT_DOT;
use crate::named::{Target, check_name, find_entry, is_dot};
use crate::{
    Entry, Error, FileKind, GENERATION, Ino, Listing, ROOT, RenameMode, Result, Snapshot,
    SubvolumeId, Timestamp, Vfs,
};

/// The directory that lists the snapshots. No inode has this number: no subvolume has that part of it.
pub const SNAPSHOTS: Ino = Ino((SubvolumeId::NONE.0 as u64) << Ino::BITS | ROOT.0);

/// Its name in the root of the main subvolume. If there is a file with this name, that one is found.
pub const SNAPSHOTS_NAME: &[u8] = b".snapshots";

/// What may be read in the directory of snapshots may be read in the root. Who owns the root may take snapshots, and delete them.
const READABLE: u32 = 0o555;
const CHANGED_BY_OWNER: u32 = 0o200;

/// When the directory of snapshots changed last. The volume says when each was taken, but not when one was deleted.
#[derive(Debug, Default)]
pub(crate) struct SnapshotChanges(Mutex<Option<Timestamp>>);

impl Target {
    pub(crate) const SNAPSHOTS: Target = Target {
        ino: SNAPSHOTS,
        file_type: (libc::S_IFDIR >> 12) as u8,
    };
}

impl Vfs {
    /// The snapshots, by number.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.volume.snapshots().list()
    }

    /// The snapshot with this name.
    pub fn snapshot_named(&self, name: &[u8]) -> Result<Snapshot> {
        let mut all = self.snapshots().into_iter();
        all.find(|snapshot| snapshot.name == name)
            .ok_or(Error::NotFound)
    }

    /// Takes a snapshot of the main subvolume: all that was done before is in it. Its root is [`ROOT`] in the subvolume that is answered.
    ///
    /// # Errors
    /// `EEXIST`: there is one with this name. `EOPNOTSUPP`: the volume was made by a Persimmon without snapshots. `ENOSPC`: there are too
    /// many.
    pub fn take_snapshot(&self, name: &[u8], is_read_only: bool) -> Result<SubvolumeId> {
        check_name(name)?;
        if is_dot(name) {
            return Err(Error::Exists);
        }
        self.writable()?;
        self.flush_access_times()?;
        let now = self.now();
        let taken = self
            .volume
            .snapshots()
            .take(SubvolumeId::MAIN, name, is_read_only, now);
        let id = self.watch(taken)?;
        self.snapshots.note(now);
        Ok(id)
    }

    /// Deletes a snapshot with all that is in it. What it alone held is freed in the background.
    ///
    /// # Errors
    /// `ENOENT`: there is none with this name. `EBUSY`: a file in it is open for writing. Handles that are open for reading are void
    /// afterwards (`ESTALE`).
    pub fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let id = self.snapshot_named(name)?.id;
        self.writable()?;
        if self.handles.is_written(id) {
            return Err(Error::SnapshotInUse);
        }
        self.watch(self.volume.snapshots().delete(id))?;
        // Its number may be given to another one: nothing of it may be taken for that one's.
        self.handles.invalidate(id);
        self.nodes.forget_subvolume(id);
        self.access_times.forget_subvolume(id);
        self.snapshots.note(self.now());
        Ok(())
    }

    /// Gives a snapshot another name, which no other has.
    pub fn rename_snapshot(&self, name: &[u8], new_name: &[u8], mode: RenameMode) -> Result<()> {
        check_name(name)?;
        check_name(new_name)?;
        let id = self.snapshot_named(name)?.id;
        if mode == RenameMode::Exchange {
            return Err(Error::Invalid("an exchange of snapshots"));
        }
        self.writable()?;
        self.watch(self.volume.snapshots().rename(id, new_name))?;
        self.snapshots.note(self.now());
        Ok(())
    }

    /// Whether a name means the directory of snapshots, unless there is a file with it.
    pub(crate) fn is_snapshots_name(&self, parent: Ino, name: &[u8]) -> bool {
        parent == ROOT
            && name == SNAPSHOTS_NAME
            && self.volume.identity().incompatible & zone_header::SNAPSHOTS != 0
    }

    /// Refuses a name that means the directory of snapshots: it stays where it is. In a snapshot too: the main files may go back to that.
    pub(crate) fn check_apart_from_snapshots(&self, parent: Ino, name: &[u8]) -> Result<()> {
        if !self.is_snapshots_name(parent.plain(), name) {
            return Ok(());
        }
        match self.view(|view| Ok(find_entry(view, parent, name)?.present()))? {
            Some(_) => Ok(()),
            None => Err(Error::NotPermitted),
        }
    }

    /// The directory of snapshots, as it would be stored.
    pub(crate) fn inode_of_snapshots(&self) -> Result<Inode> {
        let root = self.inode(ROOT)?;
        let all = self.snapshots();
        let taken = all.iter().map(|snapshot| snapshot.created).max();
        let changed = taken.max(self.snapshots.last()).unwrap_or(root.btime);
        let count = all.len() as u32;
        Ok(Inode {
            mode: libc::S_IFDIR | root.mode & !TYPE_MASK & READABLE | CHANGED_BY_OWNER,
            uid: root.uid,
            gid: root.gid,
            nlink: count.saturating_add(2),
            size: count.into(),
            atime: changed,
            mtime: changed,
            ctime: changed,
            btime: root.btime,
            parent: ROOT,
            ..Inode::default()
        })
    }

    /// Tells the snapshots after a cookie.
    pub(crate) fn list_snapshots(
        &self,
        cookie: u64,
        mut each: impl FnMut(&Entry<'_>) -> Result<Listing>,
    ) -> Result<()> {
        for snapshot in self.snapshots() {
            // Numbers begin with 1.
            let own = DOT_DOT + u64::from(snapshot.id.0);
            if own <= cookie {
                continue;
            }
            let entry = Entry {
                ino: ROOT.of(snapshot.id),
                kind: FileKind::Directory,
                cookie: own,
                name: &snapshot.name,
            };
            if each(&entry)? == Listing::Full {
                break;
            }
        }
        Ok(())
    }

    /// Whether there is the subvolume of an inode.
    pub(crate) fn has_subvolume(&self, ino: Ino) -> bool {
        let id = ino.subvolume();
        id == SubvolumeId::MAIN || self.volume.snapshots().get(id).is_some()
    }

    /// The generation of an inode. Numbers of snapshots are used again, but not at the same time: kernels, and clients of a server, must
    /// not take a file for one of a snapshot that was deleted. They keep 32 bits of it.
    pub(crate) fn generation(&self, ino: Ino) -> u64 {
        let id = ino.subvolume();
        if id == SubvolumeId::MAIN {
            return GENERATION;
        }
        self.volume
            .snapshots()
            .get(id)
            .map_or(GENERATION, |snapshot| {
                let Timestamp {
                    seconds,
                    nanoseconds,
                } = snapshot.created;
                u64::from(seconds as u32 ^ nanoseconds.rotate_left(2))
            })
    }
}

impl SnapshotChanges {
    fn note(&self, now: Timestamp) {
        let mut last = self.0.lock();
        *last = Some(last.map_or(now, |last| last.next(now)));
    }

    fn last(&self) -> Option<Timestamp> {
        *self.0.lock()
    }
}
