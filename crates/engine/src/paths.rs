//! Names of files of which only the number is known: found by walking the directories, so only
//! for those who look at damage.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeBounds;

use persimmon_format::inode::ROOT;
use persimmon_format::name::DirEntry;
use persimmon_format::{Ino, Key, KeyKind};

use crate::error::{Error, Result};
use crate::store::Store;

/// Deepest path that is told.
const DEPTH_MAX: usize = 4096;

/// A path of each of these inodes, from the root; none for what has no name, or whose name
/// lies behind a damaged page.
#[must_use]
pub(crate) fn paths(store: &Store, inos: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<u8>> {
    // Of files nobody but the whole tree says in which directory they are.
    let mut names: HashMap<Ino, (Ino, Vec<u8>)> = HashMap::new();
    let first = Key::new(ROOT, KeyKind(0), 0);
    // What was found before a damaged page counts.
    let _ = find_names(store, first.., inos, &mut names);
    // Directories know their parents: in each, those that are on the way are looked for together.
    let mut wanted: BTreeSet<Ino> = names.values().map(|(parent, _)| *parent).collect();
    for _ in 0..DEPTH_MAX {
        wanted.retain(|ino| *ino != ROOT && !names.contains_key(ino));
        let mut within: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
        for ino in &wanted {
            if let Ok(Some(inode)) = store.view::<_, Error>(|view| view.inode(*ino)) {
                within.entry(inode.parent).or_default().insert(*ino);
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
        while at != ROOT {
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
        let name = || (entry.ino, (key.ino, entry.name.to_vec()));
        wanted.contains(&entry.ino).then(name)
    };
    store.walk(keys, named, |(ino, name)| {
        names.entry(ino).or_insert(name);
    })
}
