//! Snapshots: taking and deleting them changes the table of versions alone, in one record. What deleted ones alone held is removed later,
//! a record at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use persimmon_format::inode::{SHARED, Timestamp};
use persimmon_format::log::RECORD_LEN_MAX;
use persimmon_format::page::PAGE_SIZE;
use persimmon_format::quota::{Counting, QuotaState};
use persimmon_format::record::Op;
use persimmon_format::version::{Changes, Subvolume, Version, is_snapshot_name};
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId, VersionId};
use persimmon_sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::history::History;
use crate::meta::settle::{self, Place};
use crate::meta::versions::Edit;
use crate::meta::{Intent, Meta, Transaction, changes};
use crate::store::{Store, Walked};

mod space;

/// Items of all kinds that are under an inode.
const ALL_ITEMS: (Place, Place) = ((KeyKind::INODE, 0), (KeyKind::REFERENCES, 0));
/// Entries of what a version changed that are looked at in one hold of the metadata lock.
const ENTRIES_MAX: usize = 1024;
/// Looks that begin anew because snapshots come and go.
const LOOKS_MAX: u32 = 16;

/// Bytes of a page that is no less than half full.
const PAGE_BYTES_MIN: usize = PAGE_SIZE / 2;
/// Bytes of a subvolume beside its name, in the table or in a record: 19, a key, and its place in the page.
const SUBVOLUME_BYTES: usize = 48;

type Subvolumes = BTreeMap<SubvolumeId, Subvolume>;

/// See the module.
pub(crate) struct Snapshots {
    store: Arc<Store>,
    history: Arc<History>,
    settling: Mutex<Option<Settling>>,
    /// The number given to a snapshot last, or the largest in use when the volume was opened. Kernels and open handles may still name what
    /// was in one that was deleted, so its number is not given to the next one.
    last_given: Mutex<Option<SubvolumeId>>,
}

/// How far a version is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settling {
    number: VersionId,
    /// As it was when this began: if it changed, all begins anew.
    version: Version,
    stage: Stage,
}

impl Settling {
    fn is_current(&self, meta: &Meta) -> bool {
        meta.versions.version(self.number).as_ref() == Some(&self.version)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Of the inodes that it is known to have changed, behind this entry.
    Changed(Bound<Key>),
    /// Of those that were made in it, from this one on.
    Made(Ino),
    Over,
}

impl Snapshots {
    pub(crate) fn new(store: &Arc<Store>, history: &Arc<History>) -> Snapshots {
        Snapshots {
            store: Arc::clone(store),
            history: Arc::clone(history),
            settling: Mutex::new(None),
            last_given: Mutex::new(None),
        }
    }

    /// All but the main subvolume.
    pub(crate) fn list(&self) -> Vec<(SubvolumeId, Subvolume)> {
        let meta = self.store.meta();
        let all = meta.versions.subvolumes().iter();
        let snapshots = all.filter(|(id, _)| **id != SubvolumeId::MAIN);
        snapshots.map(|(id, s)| (*id, s.clone())).collect()
    }

    /// One of them.
    pub(crate) fn get(&self, id: SubvolumeId) -> Option<Subvolume> {
        let meta = self.store.meta();
        let found = meta.versions.subvolumes().get(&id);
        found.filter(|_| id != SubvolumeId::MAIN).cloned()
    }

    fn check_feature(&self) -> Result<()> {
        match self.store.has_snapshots() {
            true => Ok(()),
            false => Err(Error::NoSnapshots),
        }
    }

    /// Changes the table.
    fn edit<R>(
        &self,
        intent: Intent,
        change: impl Fn(&mut Edit, &Transaction<'_>) -> Result<R>,
    ) -> Result<R> {
        self.check_feature()?;
        let result = self.history.update(intent, |tx| {
            let mut edit = tx.find(|meta| Ok(meta.versions.edit()))?;
            let result = change(&mut edit, tx)?;
            edit.tidy();
            put_differences(tx, &edit)?;
            let quota = tx.find(|meta| Ok(meta.quota))?;
            if edit.main_differs && quota.counting != Counting::Off {
                tx.put(QuotaState::KEY, quota.anew().encode());
            }
            Ok(result)
        });
        self.store.activity.note();
        result
    }

    /// Takes a snapshot that gets the number that [`Snapshots::next_id`] told.
    pub(crate) fn take(
        &self,
        id: SubvolumeId,
        of: SubvolumeId,
        (name, is_read_only): (&[u8], bool),
        now: Timestamp,
    ) -> Result<()> {
        self.check_feature()?;
        self.history.update::<_, Error>(Intent::Grow, |tx| {
            let snapshot = Subvolume {
                // The origin's.
                version: VersionId(0),
                is_read_only,
                origin: of,
                created: now,
                name: name.to_vec(),
            };
            let first_ino = tx.next_ino();
            let items = tx.find(|meta| {
                check_name(meta.versions.subvolumes(), name)?;
                meta.versions.with_snapshot(id, snapshot.clone(), first_ino)
            })?;
            items
                .into_iter()
                .for_each(|(key, value)| tx.put(key, value));
            Ok(())
        })?;
        self.store.activity.note();
        *self.last_given.lock() = Some(id);
        Ok(())
    }

    pub(crate) fn delete(&self, id: SubvolumeId) -> Result<()> {
        // Also if it is the first thing that happens, its number is not the next one's.
        let largest = self.list().last().map_or(SubvolumeId::MAIN, |(id, _)| *id);
        self.last_given.lock().get_or_insert(largest);
        self.edit(Intent::Shrink, |edit, _| self.take_out(edit, id))
    }

    /// Whether a snapshot can be deleted: what is given up for that is gone, even if it then stays.
    pub(crate) fn check_deletable(&self, id: SubvolumeId) -> Result<()> {
        let mut edit = self.store.meta().versions.edit();
        self.take_out(&mut edit, id)
    }

    /// Takes a snapshot out of the table; what was taken of it is of its origin then.
    fn take_out(&self, edit: &mut Edit, id: SubvolumeId) -> Result<()> {
        // However small the cache is, the page of the deleted one changes anyway.
        let pages_max = (self.store.transaction_ops_max() / 2).max(1);
        let known = edit.subvolumes.get(&id).filter(|_| id != SubvolumeId::MAIN);
        let origin = known.ok_or(Error::NoSuchSnapshot)?.origin;
        edit.subvolumes.remove(&id);
        let table_bytes = edit.subvolumes.values().map(item_bytes).sum::<usize>();
        // What has its number later is not to be taken for what they were taken of. One record changes all of them, or none.
        let (mut count, mut bytes) = (0, 0);
        for snapshot in edit.subvolumes.values_mut().filter(|of| of.origin == id) {
            snapshot.origin = origin;
            count += 1;
            bytes += item_bytes(snapshot);
        }
        let pages = count.min(table_bytes.div_ceil(PAGE_BYTES_MIN));
        match pages > pages_max || bytes > RECORD_LEN_MAX / 2 {
            true => Err(Error::OriginOfTooMany(count)),
            false => Ok(()),
        }
    }

    pub(crate) fn rename(&self, id: SubvolumeId, name: &[u8]) -> Result<()> {
        self.edit(Intent::Shrink, |edit, _| {
            let known = edit.subvolumes.get(&id).filter(|_| id != SubvolumeId::MAIN);
            if known.ok_or(Error::NoSuchSnapshot)?.name == name {
                return Ok(());
            }
            check_name(&edit.subvolumes, name)?;
            if let Some(snapshot) = edit.subvolumes.get_mut(&id) {
                snapshot.name = name.to_vec();
            }
            Ok(())
        })
    }

    pub(crate) fn roll_back(
        &self,
        to: SubvolumeId,
        keep: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<()> {
        let intent = keep.map_or(Intent::Shrink, |_| Intent::Grow);
        self.edit(intent, |edit, tx| {
            let snapshot = edit.subvolumes.get(&to).filter(|_| to != SubvolumeId::MAIN);
            let (target, is_read_only) = snapshot
                .map(|snapshot| (snapshot.version, snapshot.is_read_only))
                .ok_or(Error::NoSuchSnapshot)?;
            let first_ino = tx.next_ino();
            if let (Some(name), Some(main)) = (keep, edit.subvolumes.get(&SubvolumeId::MAIN)) {
                let kept = Subvolume {
                    version: main.version,
                    is_read_only: true,
                    origin: SubvolumeId::MAIN,
                    created: now,
                    name: name.to_vec(),
                };
                check_name(&edit.subvolumes, name)?;
                let id = free_id(&edit.subvolumes, None)?;
                edit.subvolumes.insert(id, kept);
            }
            let next = edit.add_below(target, first_ino)?;
            show(edit, SubvolumeId::MAIN, next)?;
            // What owners take is what the main subvolume shows.
            edit.main_differs = true;
            if !is_read_only {
                let next = edit.add_below(target, first_ino)?;
                show(edit, to, next)?;
            }
            Ok(())
        })
    }

    /// Removes some of what deleted snapshots alone held. False if nothing is left.
    ///
    /// The table may change at any time, when another snapshot is deleted: what is settled then is no version any more, or owns more. So
    /// each look and each record asks first whether it is what it was ([`Settling::is_current`]).
    pub(crate) fn settle_some(&self) -> Result<bool> {
        let edition = self.edition();
        let Some(settling) = self.settling() else {
            return Ok(false);
        };
        let next = match settling.stage {
            Stage::Changed(from) => self.settle_changed(&settling, from),
            Stage::Made(from) => self.settle_made(&settling, from),
            Stage::Over => {
                self.end(&settling)?;
                *self.settling.lock() = None;
                return Ok(true);
            }
        };
        let next = match next {
            // The version was absorbed in the midst of a look: the next call begins with another.
            Err(Error::Inconsistent(_)) if self.edition() != edition => return Ok(true),
            next => next?,
        };
        *self.settling.lock() = Some(Settling {
            stage: next,
            ..settling
        });
        Ok(true)
    }

    fn edition(&self) -> u64 {
        self.store.meta().versions.edition()
    }

    /// Looks at a table of versions that stays as it is meanwhile: begins anew where it was changed.
    fn of_one_table<R>(&self, look: impl Fn() -> Result<R>) -> Result<R> {
        for _ in 0..LOOKS_MAX {
            let edition = self.edition();
            let found = look();
            if self.edition() == edition {
                return found;
            }
        }
        look()
    }

    /// The number that the next snapshot gets. Only who takes it one at a time may ask.
    pub(crate) fn next_id(&self) -> Result<SubvolumeId> {
        let last = *self.last_given.lock();
        free_id(self.store.meta().versions.subvolumes(), last)
    }

    /// What is settled, from where it was left, or anew.
    fn settling(&self) -> Option<Settling> {
        let before = self.settling.lock().clone();
        let meta = self.store.meta();
        let (number, version) = meta.versions.unsettled()?;
        let same = before.filter(|s| s.number == number && s.version == *version);
        same.or_else(|| {
            Some(Settling {
                number,
                version: version.clone(),
                stage: Stage::Changed(Bound::Unbounded),
            })
        })
    }

    /// The first entry of what a version, and those that it absorbed, are known to have changed.
    fn next_entry(&self, number: VersionId, from: Bound<Key>) -> Result<Option<Key>> {
        Ok(self.next_changes(number, from)?.map(|(entry, _)| entry))
    }

    /// The same with what is known there.
    fn next_changes(&self, number: VersionId, from: Bound<Key>) -> Result<Option<(Key, Changes)>> {
        self.store.view(|view| {
            let owned = view.find(|meta| {
                let at = meta.versions.at_version(Key::GLOBAL, number)?;
                Ok(at.scope.owned().to_vec())
            })?;
            for (first, last) in owned {
                let start = Key::changes(VersionId(first), Ino(0));
                let end = Key::changes(VersionId(last), Ino(u64::MAX));
                let from = match from {
                    Bound::Excluded(key) if key >= start => Bound::Excluded(key),
                    _ => Bound::Included(start),
                };
                let mut found = None;
                view.scan_stored((from, Bound::Included(end)), |key, _| {
                    found = (key <= end).then_some(key);
                    Ok(ControlFlow::Break(()))
                })?;
                if let Some(entry) = found {
                    let known = view.find(|meta| changes::known(meta, &entry))?;
                    return Ok(Some((entry, known)));
                }
            }
            Ok(None)
        })
    }

    /// Settles one inode that a version changed.
    fn settle_changed(&self, settling: &Settling, from_entry: Bound<Key>) -> Result<Stage> {
        let Settling {
            number, version, ..
        } = settling;
        let Some(entry) = self.next_entry(*number, from_entry)? else {
            return Ok(if version.is_discarded {
                Stage::Made(Ino(version.first_ino))
            } else {
                Stage::Over
            });
        };
        let ino = Ino(entry.item);
        // Only a damaged tree has others.
        let is_inode = ino == ino.plain() && ino != SHARED;
        let parts = self.store.view::<_, Error>(|view| {
            view.find(|meta| {
                if !settling.is_current(meta) || !is_inode {
                    return Ok(Vec::new());
                }
                let at = meta.versions.at_version(ino, *number)?;
                let is_gone = version.is_discarded || !meta.is_there(&at)?;
                let changes = changes::known(meta, &entry)?;
                let inode = ((KeyKind::INODE, 0), (KeyKind::INODE, 1));
                let ranges = changes.ranges().iter().map(|range| {
                    let end = range.last.checked_add(1);
                    let end = end.map_or((KeyKind(range.kind.0 + 1), 0), |end| (range.kind, end));
                    ((range.kind, range.first), end)
                });
                Ok(match is_gone {
                    true => vec![ALL_ITEMS],
                    false => [inode].into_iter().chain(ranges).collect(),
                })
            })
        })?;
        for (from, to) in parts {
            if !self.settle_inode(settling, ino, from, to)? {
                return Ok(Stage::Changed(from_entry));
            }
        }
        // What the version itself is known to have changed has all of it from now on, unless nobody asks for it any more.
        let is_kept = version.parent.is_some() && ino.0 < version.first_ino;
        let own = Key::changes(*number, ino);
        if !is_kept || entry != own {
            self.history.update::<_, Error>(Intent::Shrink, |tx| {
                if !tx.find(|meta| Ok(settling.is_current(meta)))? {
                    return Ok(());
                }
                if is_kept && tx.find(|meta| Ok(meta.get(&entry)?.is_some()))? {
                    let (mut all, old) = tx.find(|meta| {
                        Ok((changes::known(meta, &own)?, changes::known(meta, &entry)?))
                    })?;
                    old.ranges().iter().for_each(|range| all.add(*range));
                    tx.put(own, all.encode());
                }
                tx.delete(entry);
                Ok(())
            })?;
        }
        Ok(Stage::Changed(Bound::Excluded(entry)))
    }

    /// Settles an inode that was made in a discarded version.
    fn settle_made(&self, settling: &Settling, from: Ino) -> Result<Stage> {
        let next = self.next_owned(settling.number, from)?;
        let Some(ino) = next.filter(|_| !fault(Fault::MadeNotSettled)) else {
            return Ok(Stage::Over);
        };
        let is_settled = self.settle_inode(settling, ino, ALL_ITEMS.0, ALL_ITEMS.1)?;
        Ok(Stage::Made(if is_settled { Ino(ino.0 + 1) } else { ino }))
    }

    /// The first inode, from one on, of which a version owns anything.
    fn next_owned(&self, number: VersionId, from: Ino) -> Result<Option<Ino>> {
        let at = self.store.meta().versions.at_version(from, number)?;
        let mut from = Bound::Included(Key::new(from, KeyKind(0), 0));
        let end = Key::new(Ino(Ino::END), KeyKind(0), 0);
        loop {
            let (found, last) = self.store.look(Walked::Stored, from, &(..end), |key, _| {
                let owned = at.scope.owns(key.version) && !key.is_unversioned();
                owned.then_some(key.ino)
            })?;
            if let Some(ino) = found.first() {
                return Ok(Some(*ino));
            }
            match last {
                Some(key) => from = Bound::Excluded(key),
                None => return Ok(None),
            }
        }
    }

    /// Settles items of an inode, as many in a record as one should have. False if the version is not what it was.
    fn settle_inode(&self, settling: &Settling, ino: Ino, from: Place, to: Place) -> Result<bool> {
        let mut from = from;
        loop {
            let next = self.history.update::<_, Error>(Intent::Shrink, |tx| {
                if !tx.find(|meta| Ok(settling.is_current(meta)))? {
                    return Ok(None);
                }
                let found = tx.find(|meta| settle::find(meta, settling.number, ino, from, to))?;
                if let Some(settle) = found.settle {
                    tx.push(Op::Settle(settle));
                }
                Ok(Some(found.next))
            })?;
            match next {
                Some(Some(next)) => from = next,
                Some(None) => return Ok(true),
                None => return Ok(false),
            }
        }
    }

    /// A version is settled, or gone.
    fn end(&self, settling: &Settling) -> Result<()> {
        self.history.update(Intent::Shrink, |tx| {
            let mut edit = tx.find(|meta| Ok(meta.versions.edit()))?;
            // It may have absorbed another one meanwhile.
            if edit.versions.get(&settling.number) != Some(&settling.version) {
                return Ok(());
            }
            if settling.version.is_discarded {
                edit.versions.remove(&settling.number);
            } else if let Some(version) = edit.versions.get_mut(&settling.number) {
                version.is_unsettled = false;
            }
            put_differences(tx, &edit)
        })
    }

    /// The first inodes behind one that may differ between two subvolumes, by number, at most so many.
    pub(crate) fn some_changes(
        &self,
        (from, to): (SubvolumeId, SubvolumeId),
        after: Ino,
        max: usize,
    ) -> Result<Vec<Ino>> {
        self.of_one_table(|| {
            let mut inos = BTreeSet::new();
            for number in self.versions_apart(from, to)? {
                inos.extend(self.some_entries(number, after, max)?);
                self.some_made(number, after, max, |ino| {
                    inos.insert(ino);
                })?;
            }
            Ok(inos.into_iter().take(max).collect())
        })
    }

    /// The versions in which two subvolumes differ, in the order and as often as they are to be looked at. What is settled meanwhile goes from
    /// one key to another, once: two looks see it at one of them.
    fn versions_apart(&self, from: SubvolumeId, to: SubvolumeId) -> Result<Vec<VersionId>> {
        let meta = self.store.meta();
        let mut apart = meta.versions.apart(from, to)?;
        if meta.versions.unsettled().is_some() {
            apart.extend_from_within(..);
        }
        Ok(apart)
    }

    /// The first inodes behind one that a version, and each of those that it absorbed, is known to have changed, at most so many of each.
    fn some_entries(&self, number: VersionId, after: Ino, max: usize) -> Result<Vec<Ino>> {
        let owned = self.store.view::<_, Error>(|view| {
            view.find(|meta| {
                let at = meta.versions.at_version(Key::GLOBAL, number)?;
                Ok(at.scope.owned().to_vec())
            })
        })?;
        let first_behind = Ino(after.0.saturating_add(1));
        let mut inos = Vec::new();
        for (first, last) in owned {
            let end = Key::changes(VersionId(last), Ino(u64::MAX));
            let mut next = Some((Key::changes(VersionId(first), first_behind), 0));
            while let Some((start, before)) = next {
                let most = (max - before).min(ENTRIES_MAX);
                let (found, behind) = self.store.view::<_, Error>(|view| {
                    let (mut found, mut behind) = (Vec::new(), None);
                    let range = (Bound::Included(start), Bound::Included(end));
                    view.scan_stored(range, |key, _| {
                        if key > end {
                            return Ok(ControlFlow::Break(()));
                        }
                        if key.ino != start.ino || found.len() == most {
                            behind = Some(key);
                            return Ok(ControlFlow::Break(()));
                        }
                        found.push(Ino(key.item));
                        Ok(ControlFlow::Continue(()))
                    })?;
                    Ok((found, behind))
                })?;
                let count = before + found.len();
                inos.extend(found);
                next = behind.map(|key| match key.ino == start.ino {
                    true if count < max => (key, count),
                    // The next version that has any is found from here.
                    true => (
                        Key::new(Ino(start.ino.0 + 1), KeyKind::CHANGES, first_behind.0),
                        0,
                    ),
                    false => (Key::new(key.ino, KeyKind::CHANGES, first_behind.0), 0),
                });
                next = next.filter(|(key, _)| *key <= end);
            }
        }
        Ok(inos)
    }

    /// Inodes that may differ between two subvolumes, by number.
    pub(crate) fn changes_between(&self, from: SubvolumeId, to: SubvolumeId) -> Result<Vec<Ino>> {
        self.of_one_table(|| self.changes_in_table(from, to))
    }

    fn changes_in_table(&self, from: SubvolumeId, to: SubvolumeId) -> Result<Vec<Ino>> {
        Ok(self.parts_in_table(from, to)?.into_keys().collect())
    }

    /// The same with what may differ of each.
    pub(crate) fn changed_parts(
        &self,
        from: SubvolumeId,
        to: SubvolumeId,
    ) -> Result<BTreeMap<Ino, Changes>> {
        self.of_one_table(|| self.parts_in_table(from, to))
    }

    fn parts_in_table(&self, from: SubvolumeId, to: SubvolumeId) -> Result<BTreeMap<Ino, Changes>> {
        let mut parts: BTreeMap<Ino, Changes> = BTreeMap::new();
        for number in self.versions_apart(from, to)? {
            let mut from = Bound::Unbounded;
            while let Some((entry, known)) = self.next_changes(number, from)? {
                if entry.item != 0 {
                    let all = parts.entry(Ino(entry.item)).or_default();
                    let ranges = known.ranges().iter();
                    ranges
                        .flat_map(|range| changes::of_blocks(*range))
                        .for_each(|range| all.add(range));
                }
                from = Bound::Excluded(entry);
            }
            self.each_made(number, |ino| {
                parts.entry(ino).or_default();
            })?;
        }
        Ok(parts)
    }

    /// Inodes that were made in a version.
    fn each_made(&self, number: VersionId, visit: impl FnMut(Ino)) -> Result<()> {
        self.some_made(number, Ino(0), usize::MAX, visit)
    }

    /// The first of them behind one, so many and a few more.
    fn some_made(
        &self,
        number: VersionId,
        after: Ino,
        max: usize,
        mut visit: impl FnMut(Ino),
    ) -> Result<()> {
        let at = self.store.meta().versions.at_version(Key::GLOBAL, number)?;
        let first = at.scope.first_ino.max(after.0.saturating_add(1));
        let mut from = Bound::Included(Key::inode(Ino(first)));
        let end = Key::new(Ino(Ino::END), KeyKind(0), 0);
        let mut left = max;
        loop {
            let (found, last) = self.store.look(Walked::Stored, from, &(..end), |key, _| {
                let made = key.kind == KeyKind::INODE && at.scope.owns(key.version);
                made.then_some(key.ino)
            })?;
            left = left.saturating_sub(found.len());
            found.into_iter().for_each(&mut visit);
            match last {
                Some(key) if left > 0 => from = Bound::Excluded(key),
                _ => return Ok(()),
            }
        }
    }
}

fn show(edit: &mut Edit, id: SubvolumeId, version: VersionId) -> Result<()> {
    let subvolume = edit.subvolumes.get_mut(&id).ok_or(Error::NoSuchSnapshot)?;
    subvolume.version = version;
    Ok(())
}

/// A number for a snapshot: the first free one behind the one that was given last, and from the beginning again behind the largest. Earlier
/// builds left snapshots with an origin that is gone: nothing gets its number.
fn free_id(all: &Subvolumes, last: Option<SubvolumeId>) -> Result<SubvolumeId> {
    let largest = all.keys().next_back().map_or(0, |id| id.0);
    let last = last.map_or(largest, |last| last.0);
    let origins: BTreeSet<SubvolumeId> = all.values().map(|of| of.origin).collect();
    let mut ids = (last + 1..SubvolumeId::NONE.0).chain(1..=last);
    ids.find(|id| !all.contains_key(&SubvolumeId(*id)) && !origins.contains(&SubvolumeId(*id)))
        .map(SubvolumeId)
        .ok_or_else(|| Error::TooManySnapshots(all.len() - 1))
}

fn check_name(all: &Subvolumes, name: &[u8]) -> Result<()> {
    if !is_snapshot_name(name) {
        return Err(Error::SnapshotName);
    }
    if all.values().any(|other| other.name == name) {
        return Err(Error::SnapshotExists);
    }
    Ok(())
}

/// Bytes that a subvolume takes at most.
fn item_bytes(subvolume: &Subvolume) -> usize {
    SUBVOLUME_BYTES + subvolume.name.len()
}

/// Puts what an edited table has other than the one that is there.
fn put_differences(tx: &mut Transaction<'_>, edit: &Edit) -> Result<()> {
    for (key, value) in tx.find(|meta| Ok(meta.versions.differences(edit)))? {
        match value {
            Some(value) => tx.put(key, value),
            None => tx.delete(key),
        }
    }
    Ok(())
}
