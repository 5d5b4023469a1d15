//! Truncations that take more than one record: the first says what stays, the others punch the rest
//! piece by piece. A crash in between leaves the rest mapped beyond the file's end, where nobody
//! sees it until the file grows. So the next mount need not finish: it finds what is open, a
//! background step finishes it, and whoever is about to change such a file earlier does so first.

use persimmon_sync::atomic::{AtomicBool, Ordering};
use persimmon_sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;

use persimmon_format::extent::FILE_BLOCKS_END;
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId};

use super::FileData;
use super::files::{Change, File};
use crate::error::{Error, Result};
use crate::invariant::{invariant, invariant_holds};
use crate::meta::Intent;

/// What was begun and not finished, by earlier mounts or because something came up: the files.
#[derive(Default)]
pub(crate) struct Truncations {
    open: Mutex<BTreeMap<Ino, Unfinished>>,
    /// None is open, which is what nearly every change of a file finds.
    none: AtomicBool,
}

/// A truncation that is not finished. Until it is nothing changes the file: it would grow over what is still mapped
/// beyond its end.
struct Unfinished {
    /// Blocks of the file that stay.
    keep: u64,
    /// Why it could not be finished when that was last tried. Where that does not pass no background step tries again;
    /// who is about to change the file does.
    failed: Option<Error>,
}

impl Truncations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, Unfinished>> {
        self.open.lock()
    }

    fn is_none(&self) -> bool {
        self.none.load(Ordering::Acquire)
    }

    fn get(&self, ino: Ino) -> Option<u64> {
        if self.is_none() {
            return None;
        }
        self.lock().get(&ino).map(|open| open.keep)
    }

    /// An error if one of this file could not be finished.
    pub(super) fn check(&self, ino: Ino) -> Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let open = self.lock();
        let failed = open.get(&ino).and_then(|open| open.failed.clone());
        failed.map_or(Ok(()), Err)
    }

    /// The first that may be finished by now.
    fn first(&self) -> Option<Ino> {
        let open = self.lock();
        // One that failed keeps none waiting that was not tried.
        let untried = open.iter().find(|(_, open)| open.failed.is_none());
        let again = || {
            open.iter()
                .find(|(_, open)| open.failed.as_ref().is_some_and(Error::passes))
        };
        untried.or_else(again).map(|(ino, _)| *ino)
    }

    fn note_failed(&self, ino: Ino, keep: u64, error: &Error) {
        let failed = Some(error.clone());
        let mut held = self.lock();
        held.insert(ino, Unfinished { keep, failed });
        self.none.store(false, Ordering::Release);
    }

    fn replace(&self, open: BTreeMap<Ino, Unfinished>) {
        let mut held = self.lock();
        self.none.store(open.is_empty(), Ordering::Release);
        *held = open;
    }

    fn add(&self, open: BTreeMap<Ino, Unfinished>) {
        let mut held = self.lock();
        held.extend(open);
        self.none.store(held.is_empty(), Ordering::Release);
    }

    /// A subvolume is gone.
    pub(super) fn remove_subvolume(&self, subvolume: SubvolumeId) {
        let mut held = self.lock();
        held.retain(|ino, _| ino.subvolume() != subvolume);
        self.none.store(held.is_empty(), Ordering::Release);
    }

    /// It is finished, or the file is gone.
    pub(super) fn remove(&self, ino: Ino) {
        if self.is_none() {
            return;
        }
        let mut held = self.lock();
        held.remove(&ino);
        self.none.store(held.is_empty(), Ordering::Release);
    }
}

impl FileData {
    /// Finds the truncations that a crash interrupted.
    pub(crate) fn find_truncations(&self) -> Result<()> {
        let subvolumes = self.store.meta().versions.writable();
        let mut open = BTreeMap::new();
        for subvolume in subvolumes {
            open.append(&mut self.truncations_in(subvolume)?);
        }
        self.truncations.replace(open);
        Ok(())
    }

    /// The same of a new snapshot, which has those that are under way in its origin.
    pub(crate) fn find_inherited_truncations(&self, subvolume: SubvolumeId) -> Result<()> {
        let inherited = self.truncations_in(subvolume)?;
        self.truncations.add(inherited);
        Ok(())
    }

    fn truncations_in(&self, subvolume: SubvolumeId) -> Result<BTreeMap<Ino, Unfinished>> {
        let mut open = BTreeMap::new();
        let truncation = |key: Key, value: &[u8]| {
            let keep = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            let ino = Ino(key.item).of(key.ino.subvolume());
            Some((ino, keep.unwrap_or(u64::MAX)))
        };
        let owner = Key::GLOBAL.of(subvolume);
        let first = Key::new(owner, KeyKind::TRUNCATION, 0);
        let end = Key::new(owner, KeyKind::REFERENCES, 0);
        self.store.walk(first..end, truncation, |(ino, keep)| {
            open.insert(ino, Unfinished { keep, failed: None });
        })?;
        Ok(open)
    }

    /// Finishes one of them, if there is any. One that meets damage in the file's items stays, and keeps no other from
    /// being finished: whoever is about to change the file is told.
    pub(crate) fn finish_a_truncation(&self) -> Result<bool> {
        let Some(ino) = self.truncations.first() else {
            return Ok(false);
        };
        let file = self.files.get_or_create(ino);
        let finished = self.complete_truncation(ino, &file);
        self.files.forget_if_clean_of(ino, file);
        match finished {
            Ok(()) | Err(Error::ItemDamaged { .. }) => Ok(true),
            Err(Error::NoSuchSnapshot) => {
                self.truncations.remove(ino);
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Before a file changes: nothing is mapped beyond its end by a truncation that was not finished.
    pub(super) fn complete_truncation(&self, ino: Ino, file: &File) -> Result<()> {
        if self.truncations.get(ino).is_none() {
            return Ok(());
        }
        let change = Change::begin(file);
        let (_excluded, staged) = change.exclude_write_back();
        drop(staged);
        // Somebody else may have done it while this one waited.
        if let Some(keep) = self.truncations.get(ino) {
            self.finish_truncation(ino, keep)?;
        }
        Ok(())
    }

    /// Goes on with a truncation that one record could not finish. Where that fails it is remembered, and no other file
    /// is touched by it: this one does not change before it is finished.
    pub(super) fn finish_truncation(&self, ino: Ino, keep: u64) -> Result<()> {
        let is_alone = self.files.get(ino).is_some_and(|file| file.lock().changing);
        invariant_holds!(
            self.store.media.alarm,
            is_alone,
            "a truncation of inode {ino} is finished while others may change it"
        );
        match self.punch_from(ino, keep) {
            Ok(()) => {
                self.truncations.remove(ino);
                invariant!(
                    self.store.media.alarm,
                    self.truncations.get(ino).is_none(),
                    "a truncation of inode {ino} is finished, and open"
                );
                Ok(())
            }
            Err(error) => {
                tracing::error!(ino = ino.0, %error, "a truncation could not be finished");
                self.truncations.note_failed(ino, keep, &error);
                // It is tried again in the background.
                self.store.activity.note();
                Err(error)
            }
        }
    }

    fn punch_from(&self, ino: Ino, keep: u64) -> Result<()> {
        let mut from = Some(keep);
        while let Some(start) = from {
            from = self.history.update::<_, Error>(Intent::Shrink, |tx| {
                let next = self.punch_some(tx, ino, start, FILE_BLOCKS_END)?;
                if next.is_none() {
                    tx.delete(Key::truncation(ino));
                }
                Ok(next)
            })?;
        }
        Ok(())
    }
}
