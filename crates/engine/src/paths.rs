//! Names of files of which only the number is known: found by walking the directories, so only
//! for those who look at damage.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Range, RangeBounds};

use persimmon_format::inode::ROOT;
use persimmon_format::name::DirEntry;
use persimmon_format::{Ino, Key, KeyKind, SubvolumeId};

use crate::error::{Error, Result};
use crate::store::Store;

/// Deepest path that is told.
const DEPTH_MAX: usize = 4096;

/// All keys that a subvolume shows.
pub(crate) fn keys_of(subvolume: SubvolumeId) -> Range<Key> {
    let first = Key::GLOBAL.of(subvolume);
    Key::new(first, KeyKind(0), 0)..Key::new(Ino(first.0 + Ino::END), KeyKind(0), 0)
}

/// A path of each of these inodes, from the root; none for what has no name, or whose name
/// lies behind a damaged page. In a snapshot it begins with the name of that, in the directory of snapshots.
#[must_use]
pub(crate) fn paths(store: &Store, inos: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<u8>> {
    let mut of_each: BTreeMap<SubvolumeId, BTreeSet<Ino>> = BTreeMap::new();
    for ino in inos {
        of_each.entry(ino.subvolume()).or_default().insert(*ino);
    }
    let mut all = BTreeMap::new();
    for (subvolume, inos) in of_each {
        let prefix = match store.meta().versions.subvolumes().get(&subvolume) {
            Some(snapshot) if subvolume != SubvolumeId::MAIN => {
                [b"/.snapshots/", snapshot.name.as_slice()].concat()
            }
            _ => Vec::new(),
        };
        let found = paths_in(store, subvolume, &inos).into_iter();
        all.extend(found.map(|(ino, path)| (ino, [prefix.as_slice(), &path].concat())));
    }
    all
}

fn paths_in(store: &Store, subvolume: SubvolumeId, inos: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<u8>> {
    let root = ROOT.of(subvolume);
    // Of files nobody but the whole tree says in which directory they are.
    let mut names: HashMap<Ino, (Ino, Vec<u8>)> = HashMap::new();
    // What was found before a damaged page counts.
    let _ = find_names(store, keys_of(subvolume), inos, &mut names);
    // Directories know their parents: in each, those that are on the way are looked for together.
    let mut wanted: BTreeSet<Ino> = names.values().map(|(parent, _)| *parent).collect();
    for _ in 0..DEPTH_MAX {
        wanted.retain(|ino| *ino != root && !names.contains_key(ino));
        let mut within: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
        for ino in &wanted {
            if let Ok(Some(inode)) = store.view::<_, Error>(|view| view.inode(*ino)) {
                within
                    .entry(inode.parent.of(subvolume))
                    .or_default()
                    .insert(*ino);
            }
        }
        wanted.clear();
        for (parent, wanted_of) in within {
            let entries = Key::new(parent, KeyKind::DIR_ENTRY, 0);
            let end = Key::new(parent, KeyKind::EXTENT, 0);
            let _ = find_names(store, entries..end, &wanted_of, &mut names);
            wanted.insert(parent);
        }
        if wanted.is_empty() {
            break;
        }
    }
    let path = |ino: &Ino| {
        let mut parts = Vec::new();
        let mut at = *ino;
        while at != root {
            let (parent, name) = names.get(&at).filter(|_| parts.len() < DEPTH_MAX)?;
            parts.push(name);
            at = *parent;
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        Some((*ino, path))
    };
    inos.iter().filter_map(path).collect()
}

fn find_names(
    store: &Store,
    keys: impl RangeBounds<Key>,
    wanted: &BTreeSet<Ino>,
    names: &mut HashMap<Ino, (Ino, Vec<u8>)>,
) -> Result<()> {
    let named = |key: Key, value: &[u8]| {
        if key.kind != KeyKind::DIR_ENTRY {
            return None;
        }
        let entry = DirEntry::decode(value).ok()?;
        let ino = entry.ino.of(key.ino.subvolume());
        let name = || (ino, (key.ino, entry.name.to_vec()));
        wanted.contains(&ino).then(name)
    };
    store.walk(keys, named, |(ino, name)| {
        names.entry(ino).or_insert(name);
    })
}
