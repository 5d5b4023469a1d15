//! Snapshots: taking and deleting them changes the table of versions alone, in one record. What deleted ones alone held is removed later
//! ([`settling`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use persimmon_format::inode::Timestamp;
use persimmon_format::log::RECORD_LEN_MAX;
use persimmon_format::page::PAGE_SIZE;
use persimmon_format::quota::{Counting, QuotaState};
use persimmon_format::version::{Changes, Subvolume, is_snapshot_name};
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId, VersionId};
use persimmon_sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::history::History;
use crate::meta::versions::Edit;
use crate::meta::{Intent, Transaction, changes};
use crate::settling;
use crate::store::{Store, Walked};

mod space;

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
    /// The number given to a snapshot last, or the largest in use when the volume was opened. Kernels and open handles may still name what
    /// was in one that was deleted, so its number is not given to the next one.
    last_given: Mutex<Option<SubvolumeId>>,
}

impl Snapshots {
    pub(crate) fn new(store: &Arc<Store>, history: &Arc<History>) -> Snapshots {
        Snapshots {
            store: Arc::clone(store),
            history: Arc::clone(history),
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

    /// The one with this name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<(SubvolumeId, Subvolume)> {
        let meta = self.store.meta();
        let mut all = meta.versions.subvolumes().iter();
        let found = all.find(|(id, of)| **id != SubvolumeId::MAIN && of.name == name);
        found.map(|(id, of)| (*id, of.clone()))
    }

    /// Number, origin and time of each, by their numbers.
    pub(crate) fn taken(&self) -> Vec<(SubvolumeId, SubvolumeId, Timestamp)> {
        let meta = self.store.meta();
        let all = meta.versions.subvolumes().iter();
        let snapshots = all.filter(|(id, _)| **id != SubvolumeId::MAIN);
        snapshots
            .map(|(id, of)| (*id, of.origin, of.created))
            .collect()
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
            tx.put_versions(&edit)?;
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
        let Store {
            log, media, zones, ..
        } = &*self.store;
        while !self.try_take(id, of, (name, is_read_only), now)? {
            log.wait_for_data(media, zones)?;
        }
        self.store.activity.note();
        *self.last_given.lock() = Some(id);
        Ok(())
    }

    /// Takes the snapshot unless data of a record may still fail; then it answers false. Failed data is rewritten elsewhere for its file alone: the
    /// snapshot would name the place where it never arrived.
    fn try_take(
        &self,
        id: SubvolumeId,
        of: SubvolumeId,
        (name, is_read_only): (&[u8], bool),
        now: Timestamp,
    ) -> Result<bool> {
        self.history.update::<_, Error>(Intent::Grow, |tx| {
            // No record is appended while this transaction runs.
            if self.store.log.has_data_under_way() {
                return Ok(false);
            }
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
            Ok(true)
        })
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
        if meta.versions.unsettled().next().is_some() {
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
            while let Some((entry, known)) = settling::next_changes(&self.store, number, from)? {
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
