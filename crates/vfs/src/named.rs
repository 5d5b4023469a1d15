//! Finding what is stored by name: directory entries and extended attributes. Both lie at the hash of the
//! name or close behind it, see [`persimmon_format::name`].

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use persimmon_engine::View;
use persimmon_format::name::{DirEntry, PROBE_ITEMS, first_item, may_have};
use persimmon_format::xattr::{Joined, Pieces, Xattr, XattrValue, sectors, slot_keys};
use persimmon_format::{FormatError, Ino, Key, KeyKind};
use persimmon_sync::Mutex;

use crate::{Error, FileKind, NAME_MAX, Result};

/// Items that listings have left out: told once each.
#[derive(Debug, Default)]
pub(crate) struct Skipped(Mutex<BTreeSet<(Ino, KeyKind, u64)>>);

/// So many items are reported, each once. Further ones are not.
const REPORTED_MAX: usize = 1000;

impl Skipped {
    /// An item that is no name, or cannot be decoded, is left out of a listing.
    pub(crate) fn tell(&self, key: &Key, why: &dyn std::fmt::Display) {
        let mut reported = self.0.lock();
        if reported.len() < REPORTED_MAX && reported.insert((key.ino, key.kind, key.item)) {
            drop(reported);
            tracing::error!(ino = key.ino.0, item = key.item, %why, "damage in an item, which is left out; run `persimmon fsck`");
        }
    }
}

/// What a search by name found.
pub(crate) enum Found<T> {
    /// The name is there.
    Present {
        /// Item of its key.
        item: u64,
        /// What was stored.
        value: T,
    },
    /// It is not there; this is the item it would have, if there is one left.
    Absent {
        /// Item of its key.
        free: Option<u64>,
    },
}

impl<T> Found<T> {
    pub(crate) fn present(self) -> Option<(u64, T)> {
        match self {
            Found::Present { item, value } => Some((item, value)),
            Found::Absent { .. } => None,
        }
    }
}

/// One seek, and a look at the items that the name may have: of names whose hashes do not collide
/// there is one at most. What was removed in between ends no search. `read` answers the stored value if it is the
/// one looked for.
fn find<T>(
    view: &View<'_>,
    ino: Ino,
    kind: KeyKind,
    name: &[u8],
    mut read: impl FnMut(&[u8]) -> Result<Option<T>, FormatError>,
) -> Result<Found<T>> {
    let first = first_item(view.key(), name);
    let mut free = first;
    let mut found = None;
    let behind = Key::new(ino, kind, first.saturating_add(PROBE_ITEMS));
    view.scan(Key::new(ino, kind, first)..behind, |key, bytes| {
        // One that cannot be decoded is not what is looked for, but it takes its place.
        found = read(bytes).unwrap_or(None).map(|value| (key.item, value));
        if found.is_some() {
            return Ok(ControlFlow::Break(()));
        }
        if key.item == free {
            free += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(match found {
        Some((item, value)) => Found::Present { item, value },
        None => Found::Absent {
            free: may_have(first, free).then_some(free),
        },
    })
}

/// Where a directory entry leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) ino: Ino,
    pub(crate) file_type: u8,
}

impl Target {
    /// What an entry of `dir` leads to, and its name. The only way from an entry to an inode: an entry has a number without a
    /// subvolume, since all subvolumes share it, and leads into the subvolume that its directory is looked at in.
    pub(crate) fn decode(dir: Ino, bytes: &[u8]) -> Result<(DirEntry<'_>, Target), FormatError> {
        let entry = DirEntry::decode(bytes)?;
        let target = Target {
            ino: entry.ino.of(dir.subvolume()),
            file_type: entry.file_type,
        };
        Ok((entry, target))
    }

    /// The entry that leads to it, under a name.
    pub(crate) fn encode(self, name: &[u8]) -> Vec<u8> {
        let entry = DirEntry {
            ino: self.ino.plain(),
            file_type: self.file_type,
            name,
        };
        entry.encode()
    }

    pub(crate) fn is_dir(self) -> bool {
        FileKind::from_entry(self.file_type) == FileKind::Directory
    }

    pub(crate) fn is_file(self) -> bool {
        FileKind::from_entry(self.file_type) == FileKind::Regular
    }
}

/// Looks up `name` in a directory.
pub(crate) fn find_entry(view: &View<'_>, dir: Ino, name: &[u8]) -> Result<Found<Target>> {
    find(view, dir, KeyKind::DIR_ENTRY, name, |bytes| {
        let (entry, target) = Target::decode(dir, bytes)?;
        Ok((entry.name == name).then_some(target))
    })
}

/// What the item of an extended attribute has of its value.
pub(crate) enum StoredValue {
    /// All of it.
    Inline(Vec<u8>),
    /// Where the pieces of it are.
    Pieces(Pieces),
}

impl StoredValue {
    /// Its pieces, if it has some.
    pub(crate) fn pieces(&self) -> Option<Pieces> {
        match self {
            StoredValue::Inline(_) => None,
            StoredValue::Pieces(pieces) => Some(*pieces),
        }
    }

    /// Bytes of the value.
    fn len(&self) -> usize {
        match self {
            StoredValue::Inline(value) => value.len(),
            StoredValue::Pieces(pieces) => pieces.value_len(),
        }
    }

    /// What it takes of its inode's sectors, under a name.
    pub(crate) fn sectors(&self, name: &[u8]) -> u64 {
        sectors(name, self.len())
    }

    /// The value. What is put of it by the same transaction is not seen.
    pub(crate) fn read(self, view: &View<'_>, ino: Ino) -> Result<Vec<u8>> {
        let pieces = match self {
            StoredValue::Inline(value) => return Ok(value),
            StoredValue::Pieces(pieces) => pieces,
        };
        let mut joined = Joined::new(pieces);
        view.scan(slot_keys(ino, pieces.slot()), |key, bytes| {
            // What comes after a damaged one does not matter any more.
            Ok(match joined.item(&key, bytes) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            })
        })?;
        Ok(joined.finish()?)
    }
}

/// Looks up an extended attribute.
pub(crate) fn find_xattr(view: &View<'_>, ino: Ino, name: &[u8]) -> Result<Found<StoredValue>> {
    find(view, ino, KeyKind::XATTR, name, |bytes| {
        let xattr = Xattr::decode(bytes)?;
        Ok((xattr.name == name).then(|| match xattr.value {
            XattrValue::Inline(value) => StoredValue::Inline(value.to_vec()),
            XattrValue::Pieces(pieces) => StoredValue::Pieces(pieces),
        }))
    })
}

/// The value of an extended attribute.
pub(crate) fn xattr_value(view: &View<'_>, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
    let found = find_xattr(view, ino, name)?.present();
    found.map(|(_, stored)| stored.read(view, ino)).transpose()
}

/// Refuses names that are no name, or too long.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() {
        return Err(Error::NotFound);
    }
    if name.iter().any(|byte| *byte == b'/' || *byte == 0) {
        return Err(Error::Invalid("name with a slash or a zero byte"));
    }
    Ok(())
}

/// `.` and `..`, which every directory has and no key holds.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
