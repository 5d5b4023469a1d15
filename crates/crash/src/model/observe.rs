//! A tree read back from a filesystem, and its comparison with the model's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use persimmon_format::quota::Owner;

use super::content::{FileContent, block_hash};
use super::counting::Quota;
use super::grace::FoundAccount;
use super::tree::{Body, NodeId, ROOT, Snapshot, Tree};

/// States that a message compares with.
const NEAREST_SHOWN: usize = 3;
/// Differences that it tells of each.
const DIFFERENCES_SHOWN: usize = 8;

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
    /// Group.
    pub gid: u32,
    /// Project.
    pub project: u32,
    /// Modification time in nanoseconds.
    pub mtime: u64,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
    /// Blocks of a file that are lost with zones that are offline.
    pub lost: BTreeSet<u64>,
}

/// Everything found, by path; the root is `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// By path.
    pub nodes: BTreeMap<String, ObservedNode>,
    /// What was found in each snapshot.
    pub snapshots: BTreeMap<String, Observed>,
    /// Those who are limited.
    pub accounts: BTreeMap<Owner, FoundAccount>,
    /// What is counted, and grace times.
    pub quota: Quota,
    /// It is a snapshot that can be written to.
    pub is_writable: bool,
}

/// Content hashes of the files of an [`Observed`], computed once for many comparisons.
struct Hashes<'a> {
    files: BTreeMap<&'a str, BTreeMap<u64, u64>>,
    snapshots: BTreeMap<&'a str, Hashes<'a>>,
}

impl Observed {
    /// A state of the model as a filesystem would show it that lost nothing.
    #[must_use]
    pub fn of(tree: &Tree) -> Observed {
        let snapshots = tree.snapshots().iter();
        let snapshots = snapshots.filter_map(|(name, snapshot)| {
            let (inside, root) = tree.snapshot(name)?;
            let is_writable = matches!(snapshot, Snapshot::Writable(_));
            let inside = Observed {
                is_writable,
                ..Observed::below(inside, root)
            };
            Some((name.clone(), inside))
        });
        Observed {
            snapshots: snapshots.collect(),
            accounts: { tree.accounts().iter() }
                .map(|(owner, account)| (*owner, account.found()))
                .collect(),
            quota: *tree.quota(),
            ..Observed::below(tree, ROOT)
        }
    }

    /// As above, in a subvolume.
    fn below(tree: &Tree, root: NodeId) -> Observed {
        let nodes = tree
            .walk_below(root, "")
            .into_iter()
            .filter_map(|(path, id)| {
                let node = tree.node(id)?;
                let kind = match &node.body {
                    Body::Directory { .. } => Kind::Directory,
                    Body::Symlink(target) => Kind::Symlink(target.clone()),
                    Body::Fifo => Kind::Fifo,
                    Body::File(content) => Kind::File {
                        size: content.size(),
                        blocks: content.blocks_now().collect(),
                    },
                };
                let node = ObservedNode {
                    ino: id.0,
                    kind,
                    mode: node.mode,
                    links: node.links,
                    uid: node.uid,
                    gid: node.gid,
                    project: node.project,
                    mtime: node.mtimes.last().copied().unwrap_or_default(),
                    xattrs: node.xattrs.clone(),
                    lost: BTreeSet::new(),
                };
                Some((path, node))
            });
        Observed {
            nodes: nodes.collect(),
            ..Observed::default()
        }
    }

    /// Which of these states it is: the newest that fits. Otherwise what is wrong with the one
    /// that comes nearest.
    pub fn find_in(&self, states: &[Arc<Tree>]) -> Result<usize, String> {
        let hashes = self.hashes();
        let newest = (0..states.len())
            .rev()
            .find(|at| self.fits(&hashes, states.get(*at)));
        newest.ok_or_else(|| self.nearest(&hashes, states))
    }

    /// Which of these states it may be: the oldest and the newest that fit.
    pub fn range_in(&self, states: &[Arc<Tree>]) -> Result<(usize, usize), String> {
        let hashes = self.hashes();
        let mut fitting = (0..states.len()).filter(|at| self.fits(&hashes, states.get(*at)));
        let oldest = fitting
            .next()
            .ok_or_else(|| self.nearest(&hashes, states))?;
        Ok((oldest, fitting.next_back().unwrap_or(oldest)))
    }

    fn fits(&self, hashes: &Hashes<'_>, tree: Option<&Arc<Tree>>) -> bool {
        tree.is_some_and(|tree| self.compare(tree, hashes, 1).is_empty())
    }

    /// What is wrong with those that come nearest.
    fn nearest(&self, hashes: &Hashes<'_>, states: &[Arc<Tree>]) -> String {
        let mut compared: Vec<(usize, Vec<String>)> = states
            .iter()
            .map(|tree| self.compare(tree, hashes, usize::MAX))
            .enumerate()
            .collect();
        compared.sort_by_key(|(_, differences)| differences.len());
        let mut message = format!("none of {} admissible states", states.len());
        for (at, differences) in compared.iter().take(NEAREST_SHOWN) {
            message.push_str(&format!("\n  differs from number {at} by:"));
            for difference in differences.iter().take(DIFFERENCES_SHOWN) {
                message.push_str(&format!("\n    {difference}"));
            }
        }
        message
    }

    fn hashes(&self) -> Hashes<'_> {
        let files = self
            .nodes
            .iter()
            .filter_map(|(path, node)| match &node.kind {
                Kind::File { blocks, .. } => Some((
                    path.as_str(),
                    blocks.iter().map(|(n, b)| (*n, block_hash(b))).collect(),
                )),
                _ => None,
            });
        let snapshots = self.snapshots.iter();
        let snapshots = snapshots.map(|(name, found)| (name.as_str(), found.hashes()));
        Hashes {
            files: files.collect(),
            snapshots: snapshots.collect(),
        }
    }

    /// What differs from a state of the model, at most `limit` things.
    fn compare(&self, tree: &Tree, hashes: &Hashes<'_>, limit: usize) -> Vec<String> {
        let mut differences = self.compare_below((tree, ROOT), hashes, limit);
        differences.extend(self.compare_accounts(tree));
        let known = tree.snapshots();
        for name in known.keys().filter(|n| !self.snapshots.contains_key(*n)) {
            differences.push(format!("snapshot {name} is missing"));
        }
        for (name, found) in &self.snapshots {
            if differences.len() >= limit {
                break;
            }
            let (Some(inside), Some(hashes)) =
                (tree.snapshot(name), hashes.snapshots.get(name.as_str()))
            else {
                differences.push(format!("snapshot {name} should not be there"));
                continue;
            };
            let is_writable = matches!(known.get(name), Some(Snapshot::Writable(_)));
            if found.is_writable != is_writable {
                differences.push(format!("snapshot {name} should be writable: {is_writable}"));
            }
            let inside = found.compare_below(inside, hashes, limit).into_iter();
            differences.extend(inside.map(|what| format!("in snapshot {name}: {what}")));
        }
        differences
    }

    fn compare_accounts(&self, tree: &Tree) -> Vec<String> {
        let mut differences = Vec::new();
        if !tree.quota().admits(&self.quota) {
            let (is, should) = (self.quota, tree.quota());
            differences.push(format!("quota is {is:?}, should be {should:?}"));
        }
        for owner in tree.accounts().keys() {
            if !self.accounts.contains_key(owner) {
                differences.push(format!("the limits of {owner:?} are missing"));
            }
        }
        for (owner, found) in &self.accounts {
            match tree.accounts().get(owner) {
                None => differences.push(format!("{owner:?} should not be limited: {found:?}")),
                Some(account) if !account.admits(found) => {
                    differences.push(format!("{owner:?} has {found:?}, should be {account:?}"));
                }
                Some(_) => {}
            }
        }
        differences
    }

    /// As above, in the subvolume with this root directory.
    fn compare_below(
        &self,
        (tree, root): (&Tree, NodeId),
        hashes: &Hashes<'_>,
        limit: usize,
    ) -> Vec<String> {
        let mut differences = Vec::new();
        let expected = tree.walk_below(root, "");
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
                let blocks = hashes.files.get(path.as_str());
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
                ROOT
            } else {
                let Ok((parent, name)) = tree.parent_of(path) else {
                    continue;
                };
                let id = *ids
                    .entry(found.ino)
                    .or_insert_with(|| tree.add(parent, found.body(parent), found.mode, 0));
                tree.enter(parent, name, id, 0);
                id
            };
            tree.change(id, |node| {
                node.mode = found.mode;
                node.uid = found.uid;
                node.gid = found.gid;
                node.project = found.project;
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
        tree.set_quota(self.quota);
        for (owner, found) in &self.accounts {
            tree.set_account(*owner, found.account());
        }
        for (name, found) in &self.snapshots {
            tree.add_snapshot(name, found.to_tree(), found.is_writable);
        }
        tree
    }
}

impl ObservedNode {
    /// Whether this is a node of the model as programs see it now, inode numbers apart. Answers what differs.
    pub fn fits(&self, tree: &Tree, id: NodeId) -> Result<(), String> {
        let Some(node) = tree.node(id) else {
            return Err("it should not be there".to_owned());
        };
        let mut exact = node.clone();
        exact.commit();
        let blocks = match &self.kind {
            Kind::File { blocks, .. } => {
                Some(blocks.iter().map(|(n, b)| (*n, block_hash(b))).collect())
            }
            _ => None,
        };
        let mut differences = Vec::new();
        compare_node("it", &exact, self, blocks.as_ref(), &mut differences);
        if differences.is_empty() {
            Ok(())
        } else {
            Err(differences.join("; "))
        }
    }

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
    if found.gid != node.gid {
        differs("group", found.gid.to_string(), node.gid.to_string());
    }
    if found.project != node.project && Some(found.project) != node.project_before {
        differs(
            "project",
            found.project.to_string(),
            node.project.to_string(),
        );
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
            if let Err(why) = content.admits_without(&found.lost, *size, blocks.unwrap_or(&none)) {
                differences.push(format!("{path} ({size} bytes): {why}"));
            }
        }
        (Body::Symlink(target), is) => differs("it", format!("{is:?}"), target.clone()),
        (_, is) => differs("kind", format!("{is:?}"), "another".to_owned()),
    }
}
