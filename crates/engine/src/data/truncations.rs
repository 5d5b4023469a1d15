//! Truncations that take more than one record: the first says what stays, the others punch the rest
//! piece by piece. A crash in between leaves the rest mapped beyond the file's end, where nobody
//! sees it until the file grows. So the next mount need not finish: it finds what is open, a
//! background step finishes it, and whoever is about to change such a file earlier does so first.

use persimmon_sync::atomic::{AtomicBool, Ordering};
use persimmon_sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;

use persimmon_format::extent::FILE_BLOCKS_END;
use persimmon_format::{Ino, Key, KeyKind};

use super::files::{Change, File};
use crate::Volume;
use crate::error::{Error, Result};
use crate::meta::Intent;

/// What earlier mounts began and did not finish: the file, and the blocks of it that stay.
#[derive(Default)]
pub(crate) struct Truncations {
    open: Mutex<BTreeMap<Ino, u64>>,
    /// None is open, which is what nearly every change of a file finds.
    none: AtomicBool,
}

impl Truncations {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Ino, u64>> {
        self.open.lock()
    }

    fn get(&self, ino: Ino) -> Option<u64> {
        if self.none.load(Ordering::Acquire) {
            return None;
        }
        self.lock().get(&ino).copied()
    }

    fn first(&self) -> Option<Ino> {
        self.lock().first_key_value().map(|(ino, _)| *ino)
    }

    fn replace(&self, open: BTreeMap<Ino, u64>) {
        let mut held = self.lock();
        self.none.store(open.is_empty(), Ordering::Release);
        *held = open;
    }

    fn remove(&self, ino: Ino) {
        let mut held = self.lock();
        held.remove(&ino);
        self.none.store(held.is_empty(), Ordering::Release);
    }
}

impl Volume {
    /// Finds the truncations that a crash interrupted.
    pub(crate) fn find_truncations(&self) -> Result<()> {
        let mut open = BTreeMap::new();
        let first = Key::new(Key::GLOBAL, KeyKind::TRUNCATION, 0);
        let end = Key::new(Key::GLOBAL, KeyKind::SHARED_EXTENT, 0);
        let truncation = |key: Key, value: &[u8]| {
            let keep = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
            Some((Ino(key.item), keep.unwrap_or(u64::MAX)))
        };
        self.walk(first..end, truncation, |(ino, keep)| {
            open.insert(ino, keep);
        })?;
        self.truncations.replace(open);
        Ok(())
    }

    /// Finishes one of them, if there is any.
    pub(crate) fn finish_a_truncation(&self) -> Result<bool> {
        let Some(ino) = self.truncations.first() else {
            return Ok(false);
        };
        let file = self.files.get_or_create(ino);
        let finished = self.settle_truncation(ino, &file);
        self.files.forget_if_clean_of(ino, file);
        finished.map(|()| true)
    }

    /// Before a file changes: nothing is mapped beyond its end by an interrupted truncation.
    pub(super) fn settle_truncation(&self, ino: Ino, file: &File) -> Result<()> {
        if self.truncations.get(ino).is_none() {
            return Ok(());
        }
        let change = Change::begin(file);
        let (_grounded, staged) = change.ground();
        drop(staged);
        // Somebody else may have done it while this one waited.
        if let Some(keep) = self.truncations.get(ino) {
            self.finish_truncation(ino, keep)?;
            self.truncations.remove(ino);
        }
        Ok(())
    }

    /// Goes on with a truncation that one record could not finish.
    pub(super) fn finish_truncation(&self, ino: Ino, keep: u64) -> Result<()> {
        while self.update::<_, Error>(Intent::Shrink, |tx| {
            let more = self.punch_some(tx, ino, keep, FILE_BLOCKS_END)?;
            if !more {
                tx.delete(Key::truncation(ino));
            }
            Ok(more)
        })? {}
        Ok(())
    }
}
