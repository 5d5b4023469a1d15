//! The oracle: a plain filesystem with its history, and what of it a crash may leave (invariant
//! I4).
//!
//! The history is a list of trees: one after each operation that enters it at once, from the last
//! one known to be durable to the present. A buffered write changes the last tree only: there its
//! blocks may have any of their values since the last sync. So a tree of the list stands for all
//! states that a crash may leave whose history ends between its operation and the next.

mod apply;
mod content;
mod counting;
mod grace;
mod names;
mod observe;
mod quota;
mod slots;
mod tree;

pub use content::{FileContent, block_hash};
pub use counting::{Counting, Quota};
pub use grace::{Account, FoundAccount, GRACES, Limits};
pub use observe::{Kind, Observed, ObservedNode};
pub use slots::Slot;
pub(crate) use tree::owners;
pub use tree::{Body, Node, NodeId, ROOT, Snapshot, Tree};

use std::collections::BTreeMap;
use std::sync::Arc;

/// An error number of the host.
pub type Errno = i32;

/// The filesystem as it has to be.
#[derive(Clone)]
pub struct Model {
    /// Oldest state a crash may leave first; never empty.
    history: Vec<Arc<Tree>>,
    /// Number of the first of these, of all there were.
    first: u64,
    slots: BTreeMap<u8, slots::OpenFile>,
    /// Each block of a file takes a block: nothing is compressed.
    is_whole: bool,
}

impl Model {
    /// A filesystem that is durable as it is.
    #[must_use]
    pub fn new(tree: Tree) -> Model {
        Model {
            history: vec![Arc::new(tree)],
            first: 0,
            slots: BTreeMap::new(),
            is_whole: false,
        }
    }

    /// The same where each block of a file takes a block, if so.
    #[must_use]
    pub fn of_whole_blocks(self, is_whole: bool) -> Model {
        Model { is_whole, ..self }
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

    /// Takes over the modification time of a file after an operation of which POSIX leaves open
    /// whether it sets it.
    pub fn adopt_mtime(&mut self, path: &str, mtime: u64) {
        if let Ok(id) = self.now().lookup(path) {
            self.buffer(|tree| tree.change(id, |node| node.mtimes.push(mtime)));
        }
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
