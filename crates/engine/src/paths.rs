//! Names of files of which only the number is known: found by walking the directories, so only
//! for those who look at damage.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use persimmon_format::inode::ROOT;
use persimmon_format::name::DirEntry;
use persimmon_format::{Ino, Key, KeyKind};

use crate::Volume;
use crate::error::Result;

/// Deepest path that is told.
const DEPTH_MAX: usize = 4096;

impl Volume {
    /// A path of each of these inodes, from the root; none for what has no name, or whose name
    /// lies behind a damaged page.
    #[must_use]
    pub fn paths(&self, inos: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<u8>> {
        // Each round finds the names of what the round before found to be a parent.
        let mut names: HashMap<Ino, (Ino, Vec<u8>)> = HashMap::new();
        let mut wanted = inos.clone();
        for _ in 0..DEPTH_MAX {
            wanted.retain(|ino| *ino != ROOT && !names.contains_key(ino));
            if wanted.is_empty() {
                break;
            }
            let before = names.len();
            // What was found before a damaged page counts.
            let _ = self.find_names(&wanted, &mut names);
            if names.len() == before {
                break;
            }
            wanted = names.values().map(|(parent, _)| *parent).collect();
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
        &self,
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
        self.walk(Key::new(ROOT, KeyKind(0), 0).., named, |(ino, name)| {
            names.entry(ino).or_insert(name);
        })
    }
}
