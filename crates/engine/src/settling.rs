//! Settling: removes what only deleted snapshots held, a record at a time. The background does so, and a caller that finds no room.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use persimmon_format::inode::SHARED;
use persimmon_format::record::Op;
use persimmon_format::version::{Changes, Version};
use persimmon_format::{Ino, Key, KeyKind, VersionId};
use persimmon_sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::history::History;
use crate::meta::settle::{self, Place};
use crate::meta::{Intent, Meta, changes};
use crate::store::{Store, Walked};

/// Items of all kinds that are under an inode.
const ALL_ITEMS: (Place, Place) = ((KeyKind::INODE, 0), (KeyKind::REFERENCES, 0));

/// Settles what is to be settled. Several threads may do so at the same time: each record asks first whether it is still to be done.
pub(crate) struct Settler {
    store: Arc<Store>,
    history: Arc<History>,
    settling: Mutex<Option<Settling>>,
    /// Versions of which something is damaged that would have to go, as they were when that was found. All else of them is gone; they stay in
    /// the table, and nothing gets their numbers.
    damaged: Mutex<BTreeMap<VersionId, Version>>,
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
    fn new(number: VersionId, version: &Version) -> Settling {
        Settling {
            number,
            version: version.clone(),
            stage: Stage::Changed(Bound::Unbounded),
        }
    }

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

/// What became of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// All of it that had to go is gone.
    All,
    /// Something is damaged. What is behind that stays, too.
    Damaged,
    /// The version is not what it was.
    Stale,
}

impl Settler {
    pub(crate) fn new(store: &Arc<Store>, history: &Arc<History>) -> Settler {
        Settler {
            store: Arc::clone(store),
            history: Arc::clone(history),
            settling: Mutex::new(None),
            damaged: Mutex::default(),
        }
    }

    /// Removes some of what deleted snapshots alone held. False if nothing is left.
    ///
    /// The table may change at any time, when another snapshot is deleted: what is settled then is no version any more, or owns more. So
    /// each look and each record asks first whether it is what it was ([`Settling::is_current`]).
    pub(crate) fn settle_some(&self) -> Result<bool> {
        let edition = self.store.meta().versions.edition();
        let Some(settling) = self.settling() else {
            return Ok(false);
        };
        let next = match settling.stage {
            Stage::Changed(from) => self.settle_changed(&settling, from),
            Stage::Made(from) => self.settle_made(&settling, from),
            Stage::Over => {
                if !self.is_damaged(&settling) {
                    self.end(&settling)?;
                }
                *self.settling.lock() = None;
                return Ok(true);
            }
        };
        let next = match next {
            // The version was absorbed in the midst of a look: the next call begins with another.
            Err(Error::Inconsistent(_)) if self.store.meta().versions.edition() != edition => {
                return Ok(true);
            }
            next => next?,
        };
        *self.settling.lock() = Some(Settling {
            stage: next,
            ..settling
        });
        Ok(true)
    }

    /// What is settled, from where it was left, or anew.
    fn settling(&self) -> Option<Settling> {
        let before = self.settling.lock().clone();
        let meta = self.store.meta();
        meta.versions.unsettled().find_map(|(number, version)| {
            let is_same = |s: &&Settling| s.number == number && s.version == *version;
            if let Some(same) = before.as_ref().filter(is_same) {
                return Some(same.clone());
            }
            let new = Settling::new(number, version);
            (!self.is_damaged(&new)).then_some(new)
        })
    }

    /// Whether something of a version was left, since it became what it is.
    fn is_damaged(&self, settling: &Settling) -> bool {
        self.damaged.lock().get(&settling.number) == Some(&settling.version)
    }

    /// Settles one inode that a version changed.
    fn settle_changed(&self, settling: &Settling, from_entry: Bound<Key>) -> Result<Stage> {
        let Settling {
            number, version, ..
        } = settling;
        let Some(entry) = next_entry(&self.store, *number, from_entry)? else {
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
        for items in parts {
            match self.settle_inode(settling, ino, items)? {
                Settled::All => {}
                Settled::Damaged => return Ok(Stage::Changed(Bound::Excluded(entry))),
                Settled::Stale => return Ok(Stage::Changed(from_entry)),
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
        let settled = self.settle_inode(settling, ino, ALL_ITEMS)?;
        Ok(Stage::Made(match settled {
            Settled::All | Settled::Damaged => Ino(ino.0 + 1),
            Settled::Stale => ino,
        }))
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

    /// Settles items of an inode, as many in a record as one should have. Damage in one keeps no other inode from being settled, nor the
    /// room of all other snapshots that were deleted from being freed.
    fn settle_inode(
        &self,
        settling: &Settling,
        ino: Ino,
        items: (Place, Place),
    ) -> Result<Settled> {
        match self.settle_items(settling, ino, items) {
            Err(error) if matches!(error, Error::ItemDamaged { ino: of, .. } if of == ino) => {
                tracing::error!(%ino, version = settling.number.0, %error, "what a deleted snapshot had of a damaged file stays");
                let mut damaged = self.damaged.lock();
                damaged.insert(settling.number, settling.version.clone());
                Ok(Settled::Damaged)
            }
            settled => settled,
        }
    }

    fn settle_items(
        &self,
        settling: &Settling,
        ino: Ino,
        (mut from, to): (Place, Place),
    ) -> Result<Settled> {
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
                Some(None) => return Ok(Settled::All),
                None => return Ok(Settled::Stale),
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
            tx.put_versions(&edit)
        })
    }
}

/// The first entry of what a version, and those that it absorbed, are known to have changed.
pub(crate) fn next_entry(
    store: &Store,
    number: VersionId,
    from: Bound<Key>,
) -> Result<Option<Key>> {
    Ok(next_changes(store, number, from)?.map(|(entry, _)| entry))
}

/// The same with what is known there.
pub(crate) fn next_changes(
    store: &Store,
    number: VersionId,
    from: Bound<Key>,
) -> Result<Option<(Key, Changes)>> {
    store.view(|view| {
        let owned = view.find(|meta| Ok(meta.versions.owned(number)))?;
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
