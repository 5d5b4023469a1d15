//! A tree read back from a filesystem, and its comparison with the model's.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::content::{FileContent, block_hash};
use super::tree::{Body, NodeId, Tree};

/// What was found under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file with its blocks, zeros left out.
    File {
        /// Bytes.
        size: u64,
        /// Content by number.
        blocks: BTreeMap<u64, Vec<u8>>,
    },
    /// A symbolic link and its target.
    Symlink(String),
    /// A FIFO.
    Fifo,
    /// Something the model knows nothing of.
    Other,
}

/// A node as found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNode {
    /// Inode number: the same under two paths for two names of one file.
    pub ino: u64,
    /// What it is.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Link count.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Modification time in nanoseconds.
    pub mtime: u64,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Everything found, by path; the root is `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// By path.
    pub nodes: BTreeMap<String, ObservedNode>,
}

/// Content hashes of the files of an [`Observed`], computed once for many comparisons.
struct Hashes<'a>(BTreeMap<&'a str, BTreeMap<u64, u64>>);

impl Observed {
    /// Which of these states it is: the newest that fits. Otherwise what is wrong with the one
    /// that comes nearest.
    pub fn find_in(&self, states: &[Arc<Tree>]) -> Result<usize, String> {
        let hashes = self.hashes();
        for (at, tree) in states.iter().enumerate().rev() {
            if self.compare(tree, &hashes, 1).is_empty() {
                return Ok(at);
            }
        }
        let nearest = states
            .iter()
            .enumerate()
            .map(|(at, tree)| (at, self.compare(tree, &hashes, usize::MAX)))
            .min_by_key(|(_, differences)| differences.len());
        let Some((at, differences)) = nearest else {
            return Err("no state is admissible".to_owned());
        };
        Err(format!(
            "none of {} admissible states; the nearest is number {at}, but:\n  {}",
            states.len(),
            differences.join("\n  ")
        ))
    }

    fn hashes(&self) -> Hashes<'_> {
        Hashes(
            self.nodes
                .iter()
                .filter_map(|(path, node)| match &node.kind {
                    Kind::File { blocks, .. } => Some((
                        path.as_str(),
                        blocks.iter().map(|(n, b)| (*n, block_hash(b))).collect(),
                    )),
                    _ => None,
                })
                .collect(),
        )
    }

    /// What differs from a state of the model, at most `limit` things.
    fn compare(&self, tree: &Tree, hashes: &Hashes<'_>, limit: usize) -> Vec<String> {
        let mut differences = Vec::new();
        let expected = tree.walk();
        for path in expected.keys().filter(|p| !self.nodes.contains_key(*p)) {
            differences.push(format!("{path} is missing"));
        }
        for path in self.nodes.keys().filter(|p| !expected.contains_key(*p)) {
            differences.push(format!("{path} should not be there"));
        }
        let mut inos: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut ids: BTreeMap<u64, NodeId> = BTreeMap::new();
        for (path, found) in &self.nodes {
            if differences.len() >= limit {
                break;
            }
            let Some(id) = expected.get(path) else {
                continue;
            };
            if *inos.entry(*id).or_insert(found.ino) != found.ino
                || *ids.entry(found.ino).or_insert(*id) != *id
            {
                differences.push(format!("{path} is a name of another file"));
            }
            if let Some(node) = tree.node(*id) {
                let blocks = hashes.0.get(path.as_str());
                compare_node(path, node, found, blocks, &mut differences);
            }
        }
        differences
    }

    /// A tree that is durable as it was found.
    #[must_use]
    pub fn to_tree(&self) -> Tree {
        let root_mode = self.nodes.get("/").map_or(0o755, |root| root.mode);
        let mut tree = Tree::new(root_mode, 0);
        let mut ids: BTreeMap<u64, NodeId> = BTreeMap::new();
        for (path, found) in &self.nodes {
            let id = if path == "/" {
                super::ROOT
            } else {
                let Ok((parent, name)) = tree.parent_of(path) else {
                    continue;
                };
                let id = *ids
                    .entry(found.ino)
                    .or_insert_with(|| tree.add(found.body(parent), found.mode, 0));
                tree.enter(parent, name, id, 0);
                id
            };
            tree.change(id, |node| {
                node.mode = found.mode;
                node.uid = found.uid;
                node.links = found.links;
                node.xattrs = found.xattrs.clone();
            });
        }
        // Entering names has changed the times of directories.
        for (path, id) in tree.walk() {
            if let Some(found) = self.nodes.get(&path) {
                tree.change(id, |node| node.mtimes = vec![found.mtime]);
            }
        }
        tree
    }
}

impl ObservedNode {
    fn body(&self, parent: NodeId) -> Body {
        match &self.kind {
            Kind::Directory => Body::Directory {
                entries: BTreeMap::new(),
                parent,
            },
            Kind::File { size, blocks } => Body::File(FileContent::found(
                *size,
                blocks
                    .iter()
                    .map(|(number, bytes)| (*number, bytes.as_slice())),
            )),
            Kind::Symlink(target) => Body::Symlink(target.clone()),
            Kind::Fifo | Kind::Other => Body::Fifo,
        }
    }
}

fn compare_node(
    path: &str,
    node: &super::tree::Node,
    found: &ObservedNode,
    blocks: Option<&BTreeMap<u64, u64>>,
    differences: &mut Vec<String>,
) {
    let mut differs = |what: &str, is: String, should: String| {
        differences.push(format!("{path}: {what} is {is}, should be {should}"));
    };
    if found.mode != node.mode {
        differs(
            "mode",
            format!("{:o}", found.mode),
            format!("{:o}", node.mode),
        );
    }
    if found.links != node.links {
        differs(
            "link count",
            found.links.to_string(),
            node.links.to_string(),
        );
    }
    if found.uid != node.uid {
        differs("owner", found.uid.to_string(), node.uid.to_string());
    }
    if !node.mtimes.contains(&found.mtime) {
        let should = format!("one of {:?}", node.mtimes);
        differs("mtime", found.mtime.to_string(), should);
    }
    if found.xattrs != node.xattrs {
        let names = |xattrs: &BTreeMap<String, Vec<u8>>| {
            let sizes: Vec<_> = xattrs.iter().map(|(name, v)| (name, v.len())).collect();
            format!("{sizes:?}")
        };
        differs("xattrs", names(&found.xattrs), names(&node.xattrs));
    }
    match (&node.body, &found.kind) {
        (Body::Directory { .. }, Kind::Directory) | (Body::Fifo, Kind::Fifo) => {}
        (Body::Symlink(target), Kind::Symlink(is)) if is == target => {}
        (Body::File(content), Kind::File { size, .. }) => {
            let none = BTreeMap::new();
            if let Err(why) = content.admits(*size, blocks.unwrap_or(&none)) {
                differences.push(format!("{path} ({size} bytes): {why}"));
            }
        }
        (Body::Symlink(target), is) => differs("it", format!("{is:?}"), target.clone()),
        (_, is) => differs("kind", format!("{is:?}"), "another".to_owned()),
    }
}
