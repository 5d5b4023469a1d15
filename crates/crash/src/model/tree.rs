//! The model's files and directories at one moment of the history.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use persimmon_format::quota::{Owner, OwnerKind};

use super::Errno;
use super::content::FileContent;
use super::counting::{Counting, Quota};
use super::grace::Account;

/// A file, directory or other node of the model. Above its low 48 bits stands the subvolume that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The root directory.
pub const ROOT: NodeId = NodeId(0);

const NUMBER_BITS: u32 = 48;
const NUMBERS: u64 = (1 << NUMBER_BITS) - 1;

impl NodeId {
    /// The root directory of the subvolume that it is in.
    pub(crate) fn root(self) -> NodeId {
        NodeId(self.0 & !NUMBERS)
    }

    /// The same node in the subvolume of a root directory.
    fn below(self, root: NodeId) -> NodeId {
        NodeId(root.0 | self.0 & NUMBERS)
    }
}

/// A snapshot of the model.
#[derive(Clone)]
pub enum Snapshot {
    /// It stays as it was.
    ReadOnly(Arc<Tree>),
    /// It is changed like the tree that has it: this is its root directory there.
    Writable(NodeId),
}

/// What a node is.
#[derive(Clone)]
pub enum Body {
    /// A directory: names and what they lead to.
    Directory {
        /// Names.
        entries: BTreeMap<String, NodeId>,
        /// The directory above; the root is above itself.
        parent: NodeId,
    },
    /// A regular file.
    File(FileContent),
    /// A symbolic link.
    Symlink(String),
    /// A FIFO.
    Fifo,
}

/// A node with its attributes.
#[derive(Clone)]
pub struct Node {
    /// What it is.
    pub body: Body,
    /// Permission bits.
    pub mode: u32,
    /// Names that lead here; for directories with `.` and the `..` of each directory below.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project; 0 is none.
    pub project: u32,
    /// The project that it may have yet: of a tree that is given another one some have it first.
    pub(super) project_before: Option<u32>,
    /// Modification times it may have after a crash, in nanoseconds; the last is what programs
    /// see now.
    pub mtimes: Vec<u64>,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

impl Node {
    fn new(body: Body, mode: u32, now: u64) -> Node {
        let links = match body {
            Body::Directory { .. } => 2,
            _ => 1,
        };
        Node {
            body,
            mode,
            links,
            uid: 0,
            gid: 0,
            project: 0,
            project_before: None,
            mtimes: vec![now],
            xattrs: BTreeMap::new(),
        }
    }

    /// The content, if it is a regular file.
    #[must_use]
    pub fn content(&self) -> Option<&FileContent> {
        match &self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// Whether it is there only because it is open.
    pub(crate) fn is_nameless(&self) -> bool {
        self.links == 0
    }

    /// Those that it counts for.
    pub(crate) fn owners(&self) -> impl Iterator<Item = Owner> {
        owners(self.uid, self.gid, self.project)
    }

    /// Everything done to this node so far is in the history.
    pub fn commit(&mut self) {
        if let Some(last) = self.mtimes.last() {
            self.mtimes = vec![*last];
        }
        if let Body::File(content) = &mut self.body {
            content.commit();
        }
    }
}

/// Those that something counts for.
pub(crate) fn owners(uid: u32, gid: u32, project: u32) -> impl Iterator<Item = Owner> {
    let ids = OwnerKind::ALL.into_iter().zip([uid, gid, project]);
    ids.map(|(kind, id)| Owner { kind, id })
        .filter(|owner| owner.kind != OwnerKind::Project || owner.id != 0)
}

/// All nodes. Copies share what they do not change.
#[derive(Clone)]
pub struct Tree {
    nodes: BTreeMap<NodeId, Arc<Node>>,
    next: u64,
    /// The number of the next subvolume.
    next_subvolume: u64,
    snapshots: BTreeMap<String, Snapshot>,
    /// Those who are limited.
    accounts: BTreeMap<Owner, Account>,
    quota: Quota,
}

impl Tree {
    /// A root directory and nothing else.
    #[must_use]
    pub fn new(root_mode: u32, now: u64) -> Tree {
        let body = Body::Directory {
            entries: BTreeMap::new(),
            parent: ROOT,
        };
        Tree {
            nodes: BTreeMap::from([(ROOT, Arc::new(Node::new(body, root_mode, now)))]),
            next: 1,
            next_subvolume: 1,
            snapshots: BTreeMap::new(),
            accounts: BTreeMap::new(),
            quota: Quota::default(),
        }
    }

    /// What is counted, and for how long soft limits may be exceeded.
    #[must_use]
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    pub(crate) fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
    }

    /// Those who are limited.
    #[must_use]
    pub fn accounts(&self) -> &BTreeMap<Owner, Account> {
        &self.accounts
    }

    /// Who is limited in nothing is as if they had never been.
    pub(crate) fn set_account(&mut self, owner: Owner, account: Account) {
        match account.is_unlimited() {
            true => self.accounts.remove(&owner),
            false => self.accounts.insert(owner, account),
        };
    }

    /// All nodes of the main subvolume.
    pub(crate) fn main_nodes(&self) -> impl Iterator<Item = &Node> {
        let nodes = self.nodes.range(ROOT..=NodeId(NUMBERS));
        nodes.map(|(_, node)| &**node)
    }

    /// The snapshots, by name.
    #[must_use]
    pub fn snapshots(&self) -> &BTreeMap<String, Snapshot> {
        &self.snapshots
    }

    /// The tree that has the nodes of a snapshot, and its root directory there.
    #[must_use]
    pub fn snapshot(&self, name: &str) -> Option<(&Tree, NodeId)> {
        Some(match self.snapshots.get(name)? {
            Snapshot::ReadOnly(tree) => (tree, ROOT),
            Snapshot::Writable(root) => (self, *root),
        })
    }

    /// A snapshot of a subvolume is taken, of the main one or of another snapshot: everything done there so far is in the history.
    pub(crate) fn take_snapshot(&mut self, name: &str, of: Option<&str>, is_writable: bool) {
        let root = match of.map(|of| self.snapshots.get(of)) {
            Some(Some(Snapshot::ReadOnly(tree))) => {
                let tree = Arc::clone(tree);
                return match is_writable {
                    true => self.graft(name, &tree),
                    false => self.insert_snapshot(name, Snapshot::ReadOnly(tree)),
                };
            }
            Some(Some(Snapshot::Writable(root))) => *root,
            Some(None) => return,
            None => ROOT,
        };
        self.commit_below(root);
        let taken = self.alone(root);
        match is_writable {
            true => self.graft(name, &taken),
            false => self.insert_snapshot(name, Snapshot::ReadOnly(Arc::new(taken))),
        }
    }

    fn insert_snapshot(&mut self, name: &str, snapshot: Snapshot) {
        self.snapshots.insert(name.to_owned(), snapshot);
    }

    /// Adds a snapshot that is as a tree.
    pub(crate) fn add_snapshot(&mut self, name: &str, tree: Tree, is_writable: bool) {
        match is_writable {
            true => self.graft(name, &tree),
            false => self.insert_snapshot(name, Snapshot::ReadOnly(Arc::new(tree))),
        }
    }

    /// Adds a writable snapshot with the main nodes of a tree.
    fn graft(&mut self, name: &str, tree: &Tree) {
        let root = NodeId(self.next_subvolume << NUMBER_BITS);
        self.next_subvolume += 1;
        self.next = self.next.max(tree.next);
        self.nodes.extend(tree.copies(ROOT, root));
        self.insert_snapshot(name, Snapshot::Writable(root));
    }

    /// A tree of one subvolume alone.
    fn alone(&self, root: NodeId) -> Tree {
        Tree {
            nodes: self.copies(root, ROOT).collect(),
            next: self.next,
            next_subvolume: 1,
            snapshots: BTreeMap::new(),
            accounts: BTreeMap::new(),
            quota: Quota::default(),
        }
    }

    /// The nodes of a subvolume as those of another one.
    fn copies(&self, from: NodeId, to: NodeId) -> impl Iterator<Item = (NodeId, Arc<Node>)> {
        let nodes = self.nodes.range(from..=NodeId(from.0 | NUMBERS));
        nodes.map(move |(id, node)| {
            let mut node = Arc::clone(node);
            if from != to && matches!(node.body, Body::Directory { .. }) {
                let node = Arc::make_mut(&mut node);
                if let Body::Directory { entries, parent } = &mut node.body {
                    entries.values_mut().for_each(|id| *id = id.below(to));
                    *parent = parent.below(to);
                }
            }
            (id.below(to), node)
        })
    }

    pub(crate) fn delete_snapshot(&mut self, name: &str) {
        if let Some(Snapshot::Writable(root)) = self.snapshots.remove(name) {
            self.nodes.retain(|id, _| id.root() != root);
        }
    }

    pub(crate) fn rename_snapshot(&mut self, from: &str, to: &str) {
        if let Some(snapshot) = self.snapshots.remove(from) {
            self.insert_snapshot(to, snapshot);
        }
    }

    /// The main subvolume becomes as a snapshot is; what it was becomes a snapshot, if that gets a name.
    pub(crate) fn roll_back(&mut self, to: &str, keep: Option<&str>) {
        let target = self.snapshot(to).map(|(tree, root)| tree.alone(root));
        let Some(target) = target else { return };
        if self.quota.counting != Counting::Off {
            self.quota.counting = Counting::Begun;
        }
        if let Some(name) = keep {
            self.take_snapshot(name, None, false);
        }
        self.nodes.retain(|id, _| id.root() != ROOT);
        self.next = self.next.max(target.next);
        // What was only open when the snapshot was taken is open no more.
        let stays = |node: &Node| node.links > 0 || node.content().is_none();
        let nodes = target.nodes.into_iter();
        self.nodes.extend(nodes.filter(|(_, node)| stays(node)));
    }

    /// A node, named or only held open.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id).map(Arc::as_ref)
    }

    /// To change a node; nothing happens to one that does not exist.
    pub(crate) fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        if let Some(node) = self.nodes.get_mut(&id) {
            change(Arc::make_mut(node));
        }
    }

    pub(crate) fn change_content(&mut self, id: NodeId, change: impl FnOnce(&mut FileContent)) {
        self.change(id, |node| {
            if let Body::File(content) = &mut node.body {
                change(content);
            }
        });
    }

    /// Everything done to any node so far is in the history.
    pub fn commit_all(&mut self) {
        self.commit_in(ROOT..=NodeId(u64::MAX));
    }

    /// As above, in a subvolume.
    fn commit_below(&mut self, root: NodeId) {
        self.commit_in(root..=NodeId(root.0 | NUMBERS));
    }

    fn commit_in(&mut self, ids: RangeInclusive<NodeId>) {
        for (_, node) in self.nodes.range_mut(ids) {
            let open = node.mtimes.len() > 1 || node.content().is_some();
            if open {
                Arc::make_mut(node).commit();
            }
        }
    }

    /// A new node for a directory, which passes on its project and, if it is setgid, its group.
    pub(crate) fn add(&mut self, parent: NodeId, body: Body, mode: u32, now: u64) -> NodeId {
        let id = NodeId(self.next).below(parent.root());
        self.next += 1;
        let mut node = Node::new(body, mode, now);
        if let Some(parent) = self.node(parent) {
            node.project = parent.project;
            if parent.mode & libc::S_ISGID != 0 {
                node.gid = parent.gid;
                if matches!(node.body, Body::Directory { .. }) {
                    node.mode |= libc::S_ISGID;
                }
            }
        }
        self.nodes.insert(id, Arc::new(node));
        id
    }

    pub(crate) fn remove(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    /// The entries of a directory.
    #[must_use]
    pub fn entries(&self, id: NodeId) -> Option<&BTreeMap<String, NodeId>> {
        match &self.node(id)?.body {
            Body::Directory { entries, .. } => Some(entries),
            _ => None,
        }
    }

    pub(crate) fn parent(&self, id: NodeId) -> NodeId {
        match self.node(id).map(|node| &node.body) {
            Some(Body::Directory { parent, .. }) => *parent,
            _ => id.root(),
        }
    }

    pub(crate) fn is_directory(&self, id: NodeId) -> bool {
        self.entries(id).is_some()
    }

    /// What a path from the root leads to, or one from the root of a writable snapshot: these begin with its name and a colon. Symbolic
    /// links are not followed.
    pub fn lookup(&self, path: &str) -> Result<NodeId, Errno> {
        let (mut at, path) = match path.split_once(':') {
            None => (ROOT, path),
            Some((name, path)) => match self.snapshots.get(name) {
                Some(Snapshot::Writable(root)) => (*root, path),
                Some(Snapshot::ReadOnly(_)) => return Err(libc::EROFS),
                None => return Err(libc::ENOENT),
            },
        };
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let entries = self.entries(at).ok_or(libc::ENOTDIR)?;
            at = *entries.get(name).ok_or(libc::ENOENT)?;
        }
        Ok(at)
    }

    /// The node of a path that is read only, which can be in a read-only snapshot too.
    pub fn find(&self, path: &str) -> Result<&Node, Errno> {
        let (tree, path) = match path.split_once(':') {
            Some((name, rest)) => match self.snapshots.get(name) {
                Some(Snapshot::ReadOnly(tree)) => (&**tree, rest),
                _ => (self, path),
            },
            None => (self, path),
        };
        tree.node(tree.lookup(path)?).ok_or(libc::ENOENT)
    }

    /// The directory that holds the last name of a path, and that name.
    pub(crate) fn parent_of<'a>(&self, path: &'a str) -> Result<(NodeId, &'a str), Errno> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.lookup(directory)?;
        if !self.is_directory(parent) {
            return Err(libc::ENOTDIR);
        }
        Ok((parent, name))
    }

    pub(crate) fn enter(&mut self, directory: NodeId, name: &str, id: NodeId, now: u64) {
        self.change(directory, |node| {
            if let Body::Directory { entries, .. } = &mut node.body {
                entries.insert(name.to_owned(), id);
            }
            node.mtimes = vec![now];
        });
    }

    pub(crate) fn leave(&mut self, directory: NodeId, name: &str, now: u64) {
        self.change(directory, |node| {
            if let Body::Directory { entries, .. } = &mut node.body {
                entries.remove(name);
            }
            node.mtimes = vec![now];
        });
    }

    /// Every path with its node, the root as `/`, in order.
    #[must_use]
    pub fn walk(&self) -> BTreeMap<String, NodeId> {
        self.walk_below(ROOT, "")
    }

    /// As above, in the subvolume with this root directory, with a prefix before each path.
    #[must_use]
    pub fn walk_below(&self, root: NodeId, before: &str) -> BTreeMap<String, NodeId> {
        let mut paths = BTreeMap::from([(format!("{before}/"), root)]);
        let mut directories = vec![(before.to_owned(), root)];
        while let Some((prefix, id)) = directories.pop() {
            for (name, id) in self.entries(id).into_iter().flatten() {
                let path = format!("{prefix}/{name}");
                if self.is_directory(*id) {
                    directories.push((path.clone(), *id));
                }
                paths.insert(path, *id);
            }
        }
        paths
    }
}
