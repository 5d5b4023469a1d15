//! Snapshots: taking them, and what there is of them.

use std::collections::BTreeMap;

use persimmon_format::inode::Timestamp;
use persimmon_format::version::{Changes, Subvolume};
use persimmon_format::{Ino, Key, SubvolumeId};

use super::Volume;
use crate::data::StoredLook;
use crate::engine::Engine;
use crate::error::Result;

/// A snapshot of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number: inodes in it are named with it ([`Ino::of`]).
    pub id: SubvolumeId,
    /// Its name.
    pub name: Vec<u8>,
    /// Nothing in it can be changed.
    pub is_read_only: bool,
    /// Of which subvolume it was taken.
    pub origin: SubvolumeId,
    /// When.
    pub created: Timestamp,
}

impl Snapshot {
    fn new(id: SubvolumeId, stored: Subvolume) -> Snapshot {
        Snapshot {
            id,
            name: stored.name,
            is_read_only: stored.is_read_only,
            origin: stored.origin,
            created: stored.created,
        }
    }
}

/// Bytes on the device that snapshots hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldSpace {
    /// What is freed when one of them alone is deleted. Of those that are not told it is nothing.
    pub alone: BTreeMap<SubvolumeId, u64>,
    /// What is freed when all are deleted: more than the sum, where two of them hold the same.
    pub together: u64,
}

/// The snapshots of a volume.
#[derive(Clone, Copy)]
pub struct Snapshots<'a> {
    engine: &'a Engine,
}

impl Volume {
    /// Its snapshots.
    #[must_use]
    pub fn snapshots(&self) -> Snapshots<'_> {
        Snapshots {
            engine: &self.engine,
        }
    }
}

impl Snapshots<'_> {
    /// All of them, by their numbers. Reads nothing.
    #[must_use]
    pub fn list(&self) -> Vec<Snapshot> {
        let all = self.engine.snapshots.list().into_iter();
        all.map(|(id, snapshot)| Snapshot::new(id, snapshot))
            .collect()
    }

    /// A snapshot by its number.
    #[must_use]
    pub fn get(&self, id: SubvolumeId) -> Option<Snapshot> {
        let snapshot = self.engine.snapshots.get(id)?;
        Some(Snapshot::new(id, snapshot))
    }

    /// The snapshot with this name.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<Snapshot> {
        let (id, snapshot) = self.engine.snapshots.named(name)?;
        Some(Snapshot::new(id, snapshot))
    }

    /// Of each its number, of which subvolume it was taken, and when, by their numbers: [`Snapshots::list`] without their names.
    #[must_use]
    pub fn taken(&self) -> Vec<(SubvolumeId, SubvolumeId, Timestamp)> {
        self.engine.snapshots.taken()
    }

    /// Refuses where an inode cannot be changed: the volume takes no changes, or its snapshot does not, or there is no such snapshot.
    pub fn check_changeable(&self, ino: Ino) -> Result<()> {
        self.engine.store.check_changeable(ino)
    }

    /// Takes a snapshot of a subvolume, the main one or another snapshot: what was written to it before is in it. Takes as long as what is
    /// staged takes to be written, and then next to nothing, however large the volume is.
    ///
    /// # Errors
    /// [`Error::SnapshotExists`], [`Error::SnapshotName`], [`Error::TooManySnapshots`], [`Error::NoSnapshots`], [`Error::NoSuchSnapshot`].
    ///
    /// [`Error::SnapshotExists`]: crate::Error::SnapshotExists
    /// [`Error::SnapshotName`]: crate::Error::SnapshotName
    /// [`Error::TooManySnapshots`]: crate::Error::TooManySnapshots
    /// [`Error::NoSnapshots`]: crate::Error::NoSnapshots
    /// [`Error::NoSuchSnapshot`]: crate::Error::NoSuchSnapshot
    pub fn take(
        &self,
        of: SubvolumeId,
        name: &[u8],
        is_read_only: bool,
        now: Timestamp,
    ) -> Result<SubvolumeId> {
        self.engine.take_snapshot(of, name, is_read_only, now)
    }

    /// Deletes a snapshot. It is gone at once, and what it alone held is freed in the background ([`Task::Settle`](crate::Task::Settle)).
    /// Snapshots of it count as snapshots of what it was one of.
    ///
    /// # Errors
    /// [`Error::NoSuchSnapshot`]; [`Error::OriginOfTooMany`].
    ///
    /// [`Error::NoSuchSnapshot`]: crate::Error::NoSuchSnapshot
    /// [`Error::OriginOfTooMany`]: crate::Error::OriginOfTooMany
    pub fn delete(&self, id: SubvolumeId) -> Result<()> {
        self.engine.delete_snapshot(id)
    }

    /// Gives a snapshot another name.
    pub fn rename(&self, id: SubvolumeId, name: &[u8]) -> Result<()> {
        self.engine.snapshots.rename(id, name)
    }

    /// Has the main subvolume be as a snapshot is. What it was is deleted, or becomes a snapshot with the name `keep`. For a volume that was
    /// just opened: nobody may have looked at anything in it.
    pub fn roll_back(&self, to: SubvolumeId, keep: Option<&[u8]>, now: Timestamp) -> Result<()> {
        self.engine.roll_back(to, keep, now)
    }

    /// Inodes that may differ between two subvolumes, by their numbers, without a subvolume: each that does is among them.
    pub fn changes(&self, from: SubvolumeId, to: SubvolumeId) -> Result<Vec<Ino>> {
        self.engine.snapshots.changes_between(from, to)
    }

    /// The first of these behind one, at most so many: for who asks for some at a time. Fewer are the last.
    pub fn some_changes(
        &self,
        between: (SubvolumeId, SubvolumeId),
        after: Ino,
        max: usize,
    ) -> Result<Vec<Ino>> {
        self.engine.snapshots.some_changes(between, after, max)
    }

    /// All of them with what may differ of each, beside the inode itself; nothing is said of one that is in one of the two alone. Takes memory
    /// for each inode that changed.
    pub fn changed_parts(
        &self,
        from: SubvolumeId,
        to: SubvolumeId,
    ) -> Result<BTreeMap<Ino, Changes>> {
        self.engine.snapshots.changed_parts(from, to)
    }

    /// What a file has in the file blocks of a range as it is stored, a bounded piece of it: all its data, or what is not the same in
    /// another subvolume, by where it lies.
    pub fn stored(
        &self,
        base: Option<SubvolumeId>,
        ino: Ino,
        blocks: (u64, u64),
    ) -> Result<StoredLook> {
        self.engine.data.stored(base, ino, blocks)
    }

    /// Bytes on the device that are freed when this snapshot alone is deleted.
    pub fn space(&self, id: SubvolumeId) -> Result<u64> {
        Ok(self.engine.snapshots.space(id)?.bytes() as u64)
    }

    /// What each snapshot holds alone, and all of them together. Looks at each file that was changed since any of them was taken, once.
    pub fn held(&self) -> Result<HeldSpace> {
        let held = self.engine.snapshots.held()?;
        let alone = held.alone.into_iter();
        Ok(HeldSpace {
            alone: alone
                .map(|(id, units)| (id, units.bytes() as u64))
                .collect(),
            together: held.together.bytes() as u64,
        })
    }

    /// Looks at the items of all versions, under the keys that they have.
    pub fn walk_stored<T>(
        &self,
        pick: impl FnMut(Key, &[u8]) -> Option<T>,
        visit: impl FnMut(T),
    ) -> Result<()> {
        self.engine.store.walk_stored(pick, visit)
    }
}
