//! Snapshots: taken, listed, renamed and deleted as names in a directory that is nowhere stored.
//!
//! Inodes of a snapshot have its number above their own ([`Ino::subvolume`]), so all that goes by an inode works in them as it does in the
//! main subvolume, and a file in a snapshot is not taken for the one that it is a snapshot of. Each subvolume has such a directory. It is
//! found by its name in the root of the subvolume, but the root does not list it: whoever walks all files is not to walk all snapshots too.
//!
//! That of the main subvolume lists all snapshots, those of others the snapshots that were taken of them: a path that goes from one to the
//! next ends, for no snapshot was taken, at however many removes, of itself.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_sync::Mutex;

use persimmon_format::inode::Inode;
use persimmon_format::zone_header;

use crate::directories::DOT_DOT;
use crate::named::{Target, check_name, find_entry, is_dot};
use crate::namespace::parent_in;
use crate::{
    Attr, Entry, Error, FileKind, GENERATION, Ino, Listing, ROOT, RenameMode, Result, Snapshot,
    SubvolumeId, Timestamp, Vfs,
};

/// The directory that lists all snapshots. No inode has this number: no subvolume has that part of it.
pub const SNAPSHOTS: Ino = Ino((SubvolumeId::NONE.0 as u64) << Ino::BITS | ROOT.0);

/// Without a subvolume, the directory of snapshots of another one than the main: it goes, and its handles and nodes are void, with the
/// subvolume. No inode has this number: recovery refuses a volume that has nearly all of them given out.
const OF_SNAPSHOT: Ino = Ino(Ino::END - 1);

/// The name of these directories in the root of their subvolume. If there is a file with this name, that one is found.
pub const SNAPSHOTS_NAME: &[u8] = b".snapshots";

/// What may be read in the main directory of snapshots may be read in the root. Who owns the root may take snapshots, and delete them; in
/// the directories of other subvolumes root alone may.
const READABLE: u32 = 0o555;
const CHANGED_BY_OWNER: u32 = 0o200;

/// The directory of the snapshots of a subvolume.
#[must_use]
pub fn snapshots_of(id: SubvolumeId) -> Ino {
    match id {
        SubvolumeId::MAIN => SNAPSHOTS,
        id => OF_SNAPSHOT.of(id),
    }
}

/// Whether an inode is a directory of snapshots. Each has one number: that of the main subvolume has no other one.
#[must_use]
pub fn is_snapshots(ino: Ino) -> bool {
    let is_of_snapshot = !matches!(ino.subvolume(), SubvolumeId::MAIN | SubvolumeId::NONE);
    ino == SNAPSHOTS || ino.plain() == OF_SNAPSHOT && is_of_snapshot
}

/// The subvolume whose directory of snapshots that is.
fn owner_of(directory: Ino) -> SubvolumeId {
    match directory {
        SNAPSHOTS => SubvolumeId::MAIN,
        directory => directory.subvolume(),
    }
}

/// When a directory of snapshots changed last. The volume says when each was taken, but not when one was deleted.
#[derive(Debug, Default)]
pub(crate) struct SnapshotChanges(Mutex<Option<Timestamp>>);

impl Target {
    /// The directory of snapshots of the subvolume that a root is the root of.
    pub(crate) fn snapshots_of(root: Ino) -> Target {
        Target {
            ino: snapshots_of(root.subvolume()),
            file_type: (libc::S_IFDIR >> 12) as u8,
        }
    }
}

impl Vfs {
    /// The snapshots, by number.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.volume.snapshots().list()
    }

    /// The snapshot with this name.
    pub fn snapshot_named(&self, name: &[u8]) -> Result<Snapshot> {
        let found = self.volume.snapshots().named(name);
        found.ok_or(Error::NotFound)
    }

    /// The subvolume whose root is the root here.
    #[must_use]
    pub fn subvolume(&self) -> SubvolumeId {
        self.options().subvolume
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> Ino {
        ROOT.of(self.subvolume())
    }

    /// Takes a snapshot of the subvolume whose root is the root here: see [`Vfs::take_snapshot_of`].
    pub fn take_snapshot(&self, name: &[u8], is_read_only: bool) -> Result<SubvolumeId> {
        self.take_snapshot_of(self.subvolume(), name, is_read_only)
    }

    /// Takes a snapshot of a subvolume, the main one or a snapshot: all that was done in it before is in the new one. Its root is [`ROOT`] in
    /// the subvolume that is answered.
    ///
    /// # Errors
    /// `EEXIST`: there is one with this name. `EOPNOTSUPP`: the volume was made by a Persimmon without snapshots. `ENOSPC`: there are too
    /// many. `ESTALE`: there is no such subvolume.
    pub fn take_snapshot_of(
        &self,
        of: SubvolumeId,
        name: &[u8],
        is_read_only: bool,
    ) -> Result<SubvolumeId> {
        check_name(name)?;
        if is_dot(name) {
            return Err(Error::Exists);
        }
        self.writable()?;
        self.flush_access_times()?;
        self.keep_for_snapshot();
        let now = self.now();
        let taken = self.volume.snapshots().take(of, name, is_read_only, now);
        let id = self.watch(taken)?;
        self.snapshots.note(now);
        Ok(id)
    }

    /// Deletes a snapshot with all that is in it. What it alone held is freed in the background. Snapshots of it stay, as snapshots of what
    /// it was one of.
    ///
    /// # Errors
    /// `ENOENT`: there is none with this name. `EBUSY`: a file in it is open for writing, or its root is the root here, or too many
    /// snapshots were taken of it. Handles that are open for reading are void afterwards (`ESTALE`).
    pub fn delete_snapshot(&self, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let id = self.snapshot_named(name)?.id;
        self.writable()?;
        if id == self.subvolume() {
            return Err(Error::SubvolumeMounted);
        }
        if self.handles.is_written(id) {
            return Err(Error::SnapshotInUse);
        }
        let deleted = self.watch(self.volume.snapshots().delete(id));
        deleted.map_err(not_found_if_gone)?;
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
        let renamed = self.watch(self.volume.snapshots().rename(id, new_name));
        renamed.map_err(not_found_if_gone)?;
        self.snapshots.note(self.now());
        Ok(())
    }

    /// A snapshot that a directory of snapshots lists.
    pub(crate) fn listed_snapshot(&self, directory: Ino, name: &[u8]) -> Result<Snapshot> {
        let found = self.snapshot_named(name)?;
        match is_listed(owner_of(directory), &found) {
            true => Ok(found),
            false => Err(Error::NotFound),
        }
    }

    fn listed_snapshots(&self, directory: Ino) -> Vec<Snapshot> {
        let owner = owner_of(directory);
        let mut all = self.snapshots();
        all.retain(|snapshot| is_listed(owner, snapshot));
        all
    }

    /// Takes a snapshot by making a name in a directory of snapshots.
    pub(crate) fn make_snapshot(&self, directory: Ino, name: &[u8]) -> Result<Attr> {
        let id = self.take_snapshot_of(owner_of(directory), name, true)?;
        self.getattr(ROOT.of(id))
    }

    /// Deletes a snapshot by removing its name from a directory of snapshots.
    pub(crate) fn remove_snapshot(&self, directory: Ino, name: &[u8]) -> Result<()> {
        check_name(name)?;
        self.listed_snapshot(directory, name)?;
        self.delete_snapshot(name)
    }

    /// The directories of snapshots that paths from the root lead to: in which a snapshot may appear or be missed when one is taken, renamed
    /// or deleted.
    #[must_use]
    pub fn snapshot_directories(&self) -> BTreeSet<Ino> {
        let all = self.volume.snapshots().taken();
        let root = self.subvolume();
        let mut owners = BTreeSet::from([root]);
        if root == SubvolumeId::MAIN {
            owners.extend(all.into_iter().map(|(_, origin, _)| origin));
        } else {
            let mut snapshots: BTreeMap<SubvolumeId, Vec<SubvolumeId>> = BTreeMap::new();
            for (id, origin, _) in all {
                snapshots.entry(origin).or_default().push(id);
            }
            let mut left = vec![root];
            while let Some(owner) = left.pop() {
                let taken = snapshots.remove(&owner).unwrap_or_default();
                owners.extend(taken.iter().filter(|id| snapshots.contains_key(*id)));
                left.extend(taken);
            }
        }
        owners.into_iter().map(snapshots_of).collect()
    }

    /// Whether paths from the root lead to an inode: it is in the subvolume whose root that is, or in one that was taken, at however many
    /// removes, of that.
    #[must_use]
    pub fn is_below_root(&self, ino: Ino) -> bool {
        let root = self.subvolume();
        if root == SubvolumeId::MAIN {
            return true;
        }
        let mut at = owner_of(ino);
        // No more steps than there can be subvolumes, unless a damaged table has them go round.
        for _ in 0..=SubvolumeId::NONE.0 {
            if at == root {
                return true;
            }
            match self.volume.snapshots().get(at) {
                Some(snapshot) => at = snapshot.origin,
                None => return false,
            }
        }
        false
    }

    /// The directory above one. Above the root of a snapshot is a directory that lists it; above the root here is itself.
    pub(crate) fn parent_of(&self, ino: Ino, dir: &Inode) -> Ino {
        if is_snapshots(ino) {
            ROOT.of(owner_of(ino))
        } else if ino == self.root() {
            ino
        } else if ino.plain() == ROOT {
            let origin = match self.subvolume() {
                // Its directory lists all.
                SubvolumeId::MAIN => None,
                _ => self.volume.snapshots().get(ino.subvolume()),
            };
            origin.map_or(SNAPSHOTS, |snapshot| snapshots_of(snapshot.origin))
        } else {
            parent_in(ino, dir)
        }
    }

    /// Whether a name means a directory of snapshots, unless there is a file with it.
    pub(crate) fn is_snapshots_name(&self, parent: Ino, name: &[u8]) -> bool {
        parent.plain() == ROOT
            && !is_snapshots(parent)
            && name == SNAPSHOTS_NAME
            && self.volume.identity().incompatible & zone_header::SNAPSHOTS != 0
    }

    /// Refuses a name that means a directory of snapshots: it stays where it is.
    pub(crate) fn check_apart_from_snapshots(&self, parent: Ino, name: &[u8]) -> Result<()> {
        if !self.is_snapshots_name(parent, name) {
            return Ok(());
        }
        match self.view(|view| Ok(find_entry(view, parent, name)?.present()))? {
            Some(_) => Ok(()),
            None => Err(Error::NotPermitted),
        }
    }

    /// A directory of snapshots, as it would be stored.
    pub(crate) fn inode_of_snapshots(&self, directory: Ino) -> Result<Inode> {
        let root = self.inode(ROOT.of(owner_of(directory)))?;
        let owner = owner_of(directory);
        let mut all = self.volume.snapshots().taken();
        all.retain(|(_, origin, _)| owner == SubvolumeId::MAIN || *origin == owner);
        let taken = all.iter().map(|(_, _, created)| *created).max();
        let changed = taken.max(self.snapshots.last()).unwrap_or(root.btime);
        let count = all.len() as u32;
        // Who owns the root of a snapshot may not delete what others had taken of it, and work in: names lead to mounts. Who comes here has come
        // through that root.
        let (permissions, uid) = match owner_of(directory) {
            SubvolumeId::MAIN => (root.mode & READABLE, root.uid),
            _ => (READABLE, 0),
        };
        Ok(Inode {
            mode: libc::S_IFDIR | permissions | CHANGED_BY_OWNER,
            uid,
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
        directory: Ino,
        cookie: u64,
        mut each: impl FnMut(&Entry<'_>) -> Result<Listing>,
    ) -> Result<()> {
        for snapshot in self.listed_snapshots(directory) {
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

/// A snapshot was named, and somebody else has deleted it meanwhile.
fn not_found_if_gone(error: Error) -> Error {
    match error {
        Error::Stale => Error::NotFound,
        error => error,
    }
}

/// Whether a snapshot is listed by the directory of snapshots of a subvolume.
fn is_listed(owner: SubvolumeId, snapshot: &Snapshot) -> bool {
    owner == SubvolumeId::MAIN || snapshot.origin == owner
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
