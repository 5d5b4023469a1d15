//! The oracle: a plain filesystem with its history, and what of it a crash may leave (invariant
//! I4).
//!
//! The history is a list of trees: one after each operation that enters it at once, from the last
//! one known to be durable to the present. A buffered write changes the last tree only: there its
//! blocks may have any of their values since the last sync. So a tree of the list stands for all
//! states that a crash may leave whose history ends between its operation and the next.

mod apply;
mod content;
mod names;
mod observe;
mod quota;
mod tree;

pub use content::{FileContent, block_hash};
pub use observe::{Kind, Observed, ObservedNode};
pub use quota::Limits;
pub use tree::{Body, Node, NodeId, ROOT, Snapshot, Tree};

use std::collections::BTreeMap;
use std::sync::Arc;

/// An error number of the host.
pub type Errno = i32;

#[derive(Clone, Copy)]
struct OpenFile {
    node: NodeId,
    /// Opened with `O_TRUNC`: closing it commits.
    truncate: bool,
}

/// The filesystem as it has to be.
#[derive(Clone)]
pub struct Model {
    /// Oldest state a crash may leave first; never empty.
    history: Vec<Arc<Tree>>,
    /// Number of the first of these, of all there were.
    first: u64,
    slots: BTreeMap<u8, OpenFile>,
}

impl Model {
    /// A filesystem that is durable as it is.
    #[must_use]
    pub fn new(tree: Tree) -> Model {
        Model {
            history: vec![Arc::new(tree)],
            first: 0,
            slots: BTreeMap::new(),
        }
    }

    /// The tree as programs see it now.
    #[must_use]
    #[expect(
        clippy::missing_panics_doc,
        clippy::expect_used,
        reason = "never empty"
    )]
    pub fn now(&self) -> &Tree {
        self.history.last().expect("the history is never empty")
    }

    /// Every state a crash may leave at this moment, oldest first.
    #[must_use]
    pub fn admissible(&self) -> Vec<Arc<Tree>> {
        self.history.clone()
    }

    /// The same, each with its number in the whole history.
    #[must_use]
    pub fn numbered(&self) -> Vec<(u64, Arc<Tree>)> {
        (self.first..).zip(self.admissible()).collect()
    }

    /// What is open in a slot.
    #[must_use]
    pub fn open_in(&self, slot: u8) -> Option<NodeId> {
        self.slots.get(&slot).map(|open| open.node)
    }

    /// Takes over the modification time of a file after an operation of which POSIX leaves open
    /// whether it sets it.
    pub fn adopt_mtime(&mut self, path: &str, mtime: u64) {
        if let Ok(id) = self.now().lookup(path) {
            self.buffer(|tree| tree.change(id, |node| node.mtimes.push(mtime)));
        }
    }

    fn is_open(&self, id: NodeId) -> bool {
        self.slots.values().any(|open| open.node == id)
    }

    /// A change that enters the history at once.
    fn enter(&mut self, change: impl FnOnce(&mut Tree)) {
        let mut tree = self.now().clone();
        change(&mut tree);
        self.history.push(Arc::new(tree));
    }

    /// A change that enters the history at some later time.
    fn buffer(&mut self, change: impl FnOnce(&mut Tree)) {
        if let Some(tree) = self.history.last_mut() {
            change(Arc::make_mut(tree));
        }
    }

    fn everything_so_far_is_durable(&mut self) {
        let durable = self.history.len() - 1;
        self.history.drain(..durable);
        self.first += durable as u64;
    }
}

#[cfg(test)]
mod content_tests;
#[cfg(test)]
mod tests;
