//! The model's files and directories at one moment of the history.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Errno;
use super::content::FileContent;

/// A file, directory or other node of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// The root directory.
pub const ROOT: NodeId = NodeId(0);

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

/// All nodes. Copies share what they do not change.
#[derive(Clone)]
pub struct Tree {
    nodes: BTreeMap<NodeId, Arc<Node>>,
    next: u64,
    snapshots: BTreeMap<String, Arc<Tree>>,
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
            snapshots: BTreeMap::new(),
        }
    }

    /// The snapshots, by name.
    #[must_use]
    pub fn snapshots(&self) -> &BTreeMap<String, Arc<Tree>> {
        &self.snapshots
    }

    /// A snapshot of this tree is taken: everything done so far is in the history.
    pub(crate) fn take_snapshot(&mut self, name: &str) {
        self.commit_all();
        let taken = Tree {
            snapshots: BTreeMap::new(),
            ..self.clone()
        };
        self.add_snapshot(name, taken);
    }

    pub(crate) fn add_snapshot(&mut self, name: &str, tree: Tree) {
        self.snapshots.insert(name.to_owned(), Arc::new(tree));
    }

    pub(crate) fn delete_snapshot(&mut self, name: &str) {
        self.snapshots.remove(name);
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
        for node in self.nodes.values_mut() {
            let open = node.mtimes.len() > 1 || node.content().is_some();
            if open {
                Arc::make_mut(node).commit();
            }
        }
    }

    pub(crate) fn add(&mut self, body: Body, mode: u32, now: u64) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        self.nodes.insert(id, Arc::new(Node::new(body, mode, now)));
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
            _ => ROOT,
        }
    }

    pub(crate) fn is_directory(&self, id: NodeId) -> bool {
        self.entries(id).is_some()
    }

    /// What a path from the root leads to. Symbolic links are not followed.
    pub fn lookup(&self, path: &str) -> Result<NodeId, Errno> {
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let entries = self.entries(at).ok_or(libc::ENOTDIR)?;
            at = *entries.get(name).ok_or(libc::ENOENT)?;
        }
        Ok(at)
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
        let mut paths = BTreeMap::from([("/".to_owned(), ROOT)]);
        let mut directories = vec![(String::new(), ROOT)];
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
