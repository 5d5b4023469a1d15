//! Files that are kept open. One in a snapshot stays open when that gets another name. Deleting a snapshot is refused while a file in it is
//! open for writing, and has what is open for reading stand for nothing.

use std::sync::Arc;

use super::content::FileContent;
use super::tree::{Body, Node, NodeId, Snapshot, Tree};
use super::{Errno, Model};

#[derive(Clone)]
pub(super) struct OpenFile {
    node: NodeId,
    /// What has the node, if that is a read-only snapshot.
    frozen: Option<Arc<Tree>>,
    /// The snapshot that it is in.
    snapshot: Option<String>,
    how: Slot,
    /// Opened with `O_TRUNC`: closing it commits.
    truncate: bool,
}

/// How something is open in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// To be written to.
    Write,
    /// To be read.
    Read,
    /// The snapshot that it was in was deleted.
    Void,
}

impl Model {
    /// What is open in a slot to be written to.
    #[must_use]
    pub fn open_in(&self, slot: u8) -> Option<NodeId> {
        let open = self.slots.get(&slot)?;
        (open.how == Slot::Write).then_some(open.node)
    }

    /// The same, or why it cannot be written to.
    pub(super) fn written_in(&self, slot: u8) -> Result<NodeId, Errno> {
        let open = self.slots.get(&slot).ok_or(libc::EBADF)?;
        match (open.how, &open.frozen) {
            (Slot::Write, _) => Ok(open.node),
            (Slot::Void, _) => Err(libc::ESTALE),
            (Slot::Read, Some(_)) => Err(libc::EROFS),
            (Slot::Read, None) => Err(libc::EBADF),
        }
    }

    /// How something is open in a slot.
    #[must_use]
    pub fn slot(&self, slot: u8) -> Option<Slot> {
        self.slots.get(&slot).map(|open| open.how)
    }

    /// The snapshot in which something is open in a slot.
    #[must_use]
    pub fn snapshot_of(&self, slot: u8) -> Option<&str> {
        let open = self.slots.get(&slot).filter(|open| open.how != Slot::Void);
        open?.snapshot.as_deref()
    }

    /// The file that is open in a slot to be read, with the tree that has it.
    ///
    /// # Errors
    /// `EBADF`: there is none. `ESTALE`: it went with its snapshot.
    pub fn read_in(&self, slot: u8) -> Result<(&Tree, NodeId), Errno> {
        let open = self.slots.get(&slot).ok_or(libc::EBADF)?;
        match open.how {
            Slot::Write => Err(libc::EBADF),
            Slot::Void => Err(libc::ESTALE),
            Slot::Read => Ok((open.frozen.as_deref().unwrap_or(self.now()), open.node)),
        }
    }

    pub(super) fn is_open(&self, id: NodeId) -> bool {
        let mut open = self.slots.values();
        open.any(|open| open.node == id && open.frozen.is_none() && open.how != Slot::Void)
    }

    pub(super) fn open(
        &mut self,
        slot: u8,
        path: &str,
        truncate: bool,
        now: u64,
    ) -> Result<(), Errno> {
        if self.slots.contains_key(&slot) {
            return Err(libc::EBADF);
        }
        let node = self.file(path)?;
        if truncate {
            self.truncate(node, 0, now);
        }
        let open = OpenFile {
            node,
            frozen: None,
            snapshot: snapshot_in(path),
            how: Slot::Write,
            truncate,
        };
        self.slots.insert(slot, open);
        Ok(())
    }

    pub(super) fn open_to_read(&mut self, slot: u8, path: &str) -> Result<(), Errno> {
        if self.slots.contains_key(&slot) {
            return Err(libc::EBADF);
        }
        let snapshot = snapshot_in(path);
        let found = snapshot
            .as_ref()
            .map(|name| self.now().snapshots().get(name));
        let frozen = match found {
            Some(Some(Snapshot::ReadOnly(tree))) => Some(Arc::clone(tree)),
            Some(None) => return Err(libc::ENOENT),
            Some(Some(Snapshot::Writable(_))) | None => None,
        };
        let within = frozen.as_ref().and(path.split_once(':'));
        let within = within.map_or(path, |(_, within)| within);
        let tree = frozen.as_deref().unwrap_or(self.now());
        let node = tree.lookup(within)?;
        match tree.node(node).map(|node| &node.body) {
            Some(Body::File(_)) => {}
            Some(Body::Directory { .. }) => return Err(libc::EISDIR),
            _ => return Err(libc::EINVAL),
        }
        let open = OpenFile {
            node,
            frozen,
            snapshot,
            how: Slot::Read,
            truncate: false,
        };
        self.slots.insert(slot, open);
        Ok(())
    }

    pub(super) fn close(&mut self, slot: u8) -> Result<(), Errno> {
        let open = self.slots.remove(&slot).ok_or(libc::EBADF)?;
        let node = open.node;
        if open.how == Slot::Void || open.frozen.is_some() {
            return Ok(());
        }
        if open.truncate {
            self.enter(|tree| tree.change_content(node, FileContent::commit));
        }
        let nameless = self.now().node(node).is_some_and(Node::is_nameless);
        if nameless && !self.is_open(node) {
            self.buffer(|tree| tree.remove(node));
        }
        Ok(())
    }

    /// Unlinked files are gone with their last handle.
    pub(super) fn close_all(&mut self) -> Result<(), Errno> {
        let slots: Vec<u8> = self.slots.keys().copied().collect();
        slots.into_iter().try_for_each(|slot| self.close(slot))
    }

    /// A snapshot is about to be deleted.
    pub(super) fn void_slots(&mut self, name: &str) -> Result<(), Errno> {
        let within = |open: &OpenFile| {
            open.how != Slot::Void && open.snapshot.as_ref().is_some_and(|own| own == name)
        };
        let mut open = self.slots.values();
        if open.any(|open| within(open) && open.how == Slot::Write) {
            return Err(libc::EBUSY);
        }
        for open in self.slots.values_mut().filter(|open| within(open)) {
            open.how = Slot::Void;
        }
        Ok(())
    }

    pub(super) fn rename_slots(&mut self, from: &str, to: &str) {
        let names = self
            .slots
            .values_mut()
            .filter_map(|open| open.snapshot.as_mut());
        names
            .filter(|name| *name == from)
            .for_each(|name| *name = to.to_owned());
    }
}

/// The name of the snapshot that a path is in.
fn snapshot_in(path: &str) -> Option<String> {
    path.split_once(':').map(|(name, _)| name.to_owned())
}
