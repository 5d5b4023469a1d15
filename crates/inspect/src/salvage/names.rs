//! Who is whose in a tree that may have gaps: which names lead somewhere, and what has none.

use std::collections::{BTreeSet, HashMap, HashSet};

use persimmon_format::inode::{FIRST_INO, Inode, ROOT};
use persimmon_format::{Ino, KeyKind};

const DIRECTORY: u8 = 4;
const REGULAR: u8 = 8;
const SYMLINK: u8 = 10;
const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Directories on the way to the root.
const DEPTH_MAX: usize = 100_000;

/// What is known of an inode number.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// The number.
    pub ino: Ino,
    /// Its attributes are there.
    pub has_inode: bool,
    /// As in a directory entry; guessed from its items if its attributes are lost.
    pub file_type: u8,
    /// The tree has anything of it; else there is data alone.
    pub(crate) in_tree: bool,
    parent: u64,
    /// Names that it says it has.
    links: u32,
}

/// A directory entry, without its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub child: u64,
    pub directory: u64,
    pub item: u64,
    pub file_type: u8,
    /// The name is a possible one.
    pub good: bool,
}

/// All inode numbers and names of a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    /// Ascending.
    nodes: Vec<Node>,
    pub entries: Vec<Entry>,
    pub orphans: Vec<u64>,
}

impl Nodes {
    pub(crate) fn inode(&mut self, ino: Ino, inode: &Inode) {
        self.nodes.push(Node {
            ino,
            has_inode: true,
            file_type: inode.file_type(),
            in_tree: true,
            parent: inode.parent.0,
            links: inode.nlink,
        });
    }

    /// An item of an inode; they come in the order of the tree.
    pub(crate) fn item(&mut self, ino: Ino, kind: KeyKind) {
        let file_type = match kind {
            KeyKind::DIR_ENTRY => DIRECTORY,
            KeyKind::SYMLINK => SYMLINK,
            _ => REGULAR,
        };
        match self.nodes.last_mut() {
            Some(node) if node.ino == ino => {
                if !node.has_inode && file_type != REGULAR {
                    node.file_type = file_type;
                }
            }
            _ => self.nodes.push(Node {
                ino,
                has_inode: false,
                file_type,
                in_tree: true,
                parent: 0,
                links: 0,
            }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn find(&self, ino: Ino) -> Option<&Node> {
        let index = self
            .nodes
            .binary_search_by_key(&ino, |node| node.ino)
            .ok()?;
        self.nodes.get(index)
    }

    /// Unlinked inodes that wait to be freed. A record of one that has links is stale, as a check would say: it was made before the inode got
    /// its name.
    fn orphans(&self) -> HashSet<u64> {
        let waits = |ino: u64| match self.find(Ino(ino)) {
            Some(node) if node.has_inode => node.links == 0,
            _ => !self.entries.iter().any(|entry| entry.child == ino),
        };
        let orphans = self.orphans.iter().copied();
        orphans.filter(|ino| waits(*ino)).collect()
    }

    /// Adds files of which there is data alone. What lost its attributes has the type that its
    /// name tells.
    pub(crate) fn add_without_inode(&mut self, inos: BTreeSet<Ino>) {
        let unknown: Vec<Ino> = inos
            .into_iter()
            .filter(|ino| self.find(*ino).is_none())
            .collect();
        self.nodes.extend(unknown.into_iter().map(|ino| Node {
            ino,
            has_inode: false,
            file_type: REGULAR,
            in_tree: false,
            parent: 0,
            links: 0,
        }));
        self.nodes.sort_unstable_by_key(|node| node.ino);
        for entry in &self.entries {
            let index = self.nodes.binary_search_by_key(&entry.child, |n| n.ino.0);
            if let Some(node) = index.ok().and_then(|index| self.nodes.get_mut(index))
                && !node.has_inode
            {
                node.file_type = entry.file_type;
            }
        }
    }
}

/// Where everything goes in the copy.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    /// Names that are kept, by what they lead to.
    kept: HashMap<u64, Vec<Entry>>,
    keep: HashSet<(u64, u64)>,
    /// Names that lead to nothing of which anything is left: directory, item, number.
    dangling: Vec<(Ino, u64, Ino)>,
    strays: Vec<Ino>,
    orphans: HashSet<u64>,
    directories: HashMap<u64, NameCounts>,
    newer: Vec<Ino>,
    shelter: Ino,
    makes_shelter: bool,
    next: Ino,
}

#[derive(Clone, Copy, Debug, Default)]
struct NameCounts {
    entries: u64,
    subdirectories: u32,
}

impl Placement {
    pub(crate) fn new(
        nodes: &Nodes,
        newer: BTreeSet<Ino>,
        name: &dyn Fn(&Entry) -> Option<Vec<u8>>,
    ) -> Placement {
        let mut placement = Placement {
            orphans: nodes.orphans(),
            ..Placement::default()
        };
        placement.choose_names(nodes);
        placement.cut_loops(nodes);
        let named = |p: &Placement, ino: Ino| ino == ROOT || p.kept.contains_key(&ino.0);
        placement.strays = nodes
            .nodes
            .iter()
            .filter(|node| !named(&placement, node.ino) && !placement.is_orphan(node.ino))
            .map(|node| node.ino)
            .collect();
        let shelter = placement.kept.values().flatten().find(|entry| {
            entry.directory == ROOT.0
                && entry.file_type == DIRECTORY
                && name(entry).is_some_and(|name| name == LOST_AND_FOUND)
        });
        let next = nodes
            .nodes
            .last()
            .map_or(0, |node| node.ino.0.saturating_add(1));
        let next = next.max(FIRST_INO);
        placement.newer = newer
            .into_iter()
            .filter(|ino| nodes.find(*ino).is_some_and(|node| node.has_inode))
            .filter(|ino| !placement.is_orphan(*ino))
            .collect();
        let needed = !placement.strays.is_empty() || !placement.newer.is_empty();
        placement.makes_shelter = shelter.is_none() && needed;
        placement.shelter = Ino(shelter.map_or(next, |entry| entry.child));
        placement.next = Ino(next.saturating_add(1));
        placement.count(nodes);
        placement
    }

    /// Of the names of what exists those are kept that lie in directories; of a directory one.
    fn choose_names(&mut self, nodes: &Nodes) {
        let mut by_child: HashMap<u64, Vec<Entry>> = HashMap::new();
        for entry in &nodes.entries {
            if nodes.find(Ino(entry.child)).is_none() {
                self.dangling
                    .push((Ino(entry.directory), entry.item, Ino(entry.child)));
                continue;
            }
            let directory = nodes.find(Ino(entry.directory));
            let holds = directory.is_some_and(|node| node.file_type == DIRECTORY);
            if entry.good && holds && !self.is_orphan(Ino(entry.child)) {
                by_child.entry(entry.child).or_default().push(*entry);
            }
        }
        for (child, mut entries) in by_child {
            let Some(node) = nodes.find(Ino(child)) else {
                continue;
            };
            if node.file_type == DIRECTORY {
                let right = entries.iter().position(|e| e.directory == node.parent);
                entries.swap(0, right.unwrap_or(0));
                entries.truncate(usize::from(child != ROOT.0));
            }
            if !entries.is_empty() {
                self.kept.insert(child, entries);
            }
        }
    }

    /// A directory from which no way leads to the root loses its name.
    fn cut_loops(&mut self, nodes: &Nodes) {
        let mut safe: HashSet<u64> = HashSet::from([ROOT.0]);
        let directories = nodes.nodes.iter().filter(|n| n.file_type == DIRECTORY);
        for node in directories {
            let mut way = Vec::new();
            let mut seen = HashSet::new();
            let mut at = node.ino.0;
            while !safe.contains(&at) {
                if !seen.insert(at) {
                    self.kept.remove(&at);
                    break;
                }
                way.push(at);
                match self.kept.get(&at).and_then(|entries| entries.first()) {
                    Some(entry) => at = entry.directory,
                    None => break,
                }
            }
            safe.extend(way);
        }
    }

    fn count(&mut self, nodes: &Nodes) {
        let mut add = |directory: u64, is_directory: bool| {
            let counts = self.directories.entry(directory).or_default();
            counts.entries += 1;
            counts.subdirectories += u32::from(is_directory);
        };
        let is_directory = |ino: Ino| {
            nodes
                .find(ino)
                .is_some_and(|node| node.file_type == DIRECTORY)
        };
        for entry in self.kept.values().flatten() {
            add(entry.directory, is_directory(Ino(entry.child)));
        }
        for ino in &self.strays {
            add(self.shelter.0, is_directory(*ino));
        }
        for _ in &self.newer {
            add(self.shelter.0, false);
        }
        if self.makes_shelter {
            add(ROOT.0, true);
        }
        let kept = self.kept.values().flatten();
        self.keep = kept.map(|entry| (entry.directory, entry.item)).collect();
    }

    /// Whether an entry of a directory is copied.
    #[must_use]
    pub fn keeps(&self, directory: Ino, item: u64) -> bool {
        self.keep.contains(&(directory.0, item))
    }

    /// Entries that lead to what is lost: directory, item and inode number.
    #[must_use]
    pub fn dangling(&self) -> &[(Ino, u64, Ino)] {
        &self.dangling
    }

    /// What has no name, and goes to `lost+found`, in ascending order.
    #[must_use]
    pub fn strays(&self) -> &[Ino] {
        &self.strays
    }

    /// Unlinked, and only waiting to be freed.
    #[must_use]
    pub fn is_orphan(&self, ino: Ino) -> bool {
        self.orphans.contains(&ino.0)
    }

    /// The inode of `lost+found`: one that is there, or a new number.
    #[must_use]
    pub fn shelter(&self) -> Ino {
        self.shelter
    }

    /// Whether `lost+found` is to be made.
    #[must_use]
    pub fn makes_shelter(&self) -> bool {
        self.makes_shelter
    }

    /// The entries that a directory has, and those of them that are directories.
    #[must_use]
    pub fn directory(&self, ino: Ino) -> (u64, u32) {
        let counts = self.directories.get(&ino.0).copied().unwrap_or_default();
        (counts.entries, counts.subdirectories)
    }

    /// The directory of something's first name.
    #[must_use]
    pub fn parent(&self, ino: Ino) -> Ino {
        if ino == ROOT {
            return ROOT;
        }
        if ino == self.shelter && self.makes_shelter {
            return ROOT;
        }
        let first = self.kept.get(&ino.0).and_then(|entries| entries.first());
        first.map_or(self.shelter, |entry| Ino(entry.directory))
    }

    /// Names that something has.
    #[must_use]
    pub fn names(&self, ino: Ino) -> u32 {
        let kept = self.kept.get(&ino.0).map_or(0, Vec::len);
        u32::try_from(kept).unwrap_or(u32::MAX).max(1)
    }

    /// Files that the tree knows, and of which there are blocks written after the checkpoint: each
    /// with the number of a new file for those, which goes to `lost+found`.
    pub fn newer(&self) -> impl Iterator<Item = (Ino, Ino)> {
        self.newer.iter().copied().zip((self.next.0..).map(Ino))
    }

    /// The path of something.
    pub(crate) fn path(&self, ino: Ino, name: &dyn Fn(&Entry) -> Option<Vec<u8>>) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = ino;
        while at != ROOT && parts.len() < DEPTH_MAX {
            match self.kept.get(&at.0).and_then(|entries| entries.first()) {
                Some(entry) => {
                    parts.push(name(entry).unwrap_or_else(|| b"?".to_vec()));
                    at = Ino(entry.directory);
                }
                None => {
                    if at != self.shelter {
                        parts.push(format!("#{at}").into_bytes());
                    }
                    parts.push(LOST_AND_FOUND.to_vec());
                    break;
                }
            }
        }
        let mut path = Vec::new();
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        path
    }
}
