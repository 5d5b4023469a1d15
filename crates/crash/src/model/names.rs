//! What operations on names and attributes do to the model.

use std::collections::BTreeMap;

use super::content::FileContent;
use super::tree::{Body, Node, NodeId, Tree};
use super::{Errno, Model};
use crate::workload::{Op, Rename, bytes_of};

impl Model {
    pub(super) fn apply_to_names(&mut self, op: &Op, now: u64) -> Result<(), Errno> {
        match op {
            Op::Create { path, mode } => {
                self.make(path, Body::File(FileContent::default()), *mode, now)
            }
            Op::Fifo { path, mode } => self.make(path, Body::Fifo, *mode, now),
            Op::Symlink { path, target } => {
                self.make(path, Body::Symlink(target.clone()), 0o777, now)
            }
            Op::Mkdir { path, mode } => self.make_directory(path, *mode, now),
            Op::Link { from, to } => self.link(from, to, now),
            Op::Unlink { path } => self.unlink(path, now),
            Op::Rmdir { path } => self.remove_directory(path, now),
            Op::Rename { from, to, mode } => self.rename(from, to, *mode, now),
            _ => self.apply_to_attributes(op),
        }
    }

    fn apply_to_attributes(&mut self, op: &Op) -> Result<(), Errno> {
        match op {
            Op::Chmod { path, mode } => self.set(path, |node| node.mode = *mode),
            Op::Chown { path, uid } => self.set(path, |node| node.uid = *uid),
            Op::Chgrp { path, gid } => self.set(path, |node| node.gid = *gid),
            Op::SetProject { path, project } => self.set_project(path, *project),
            Op::SetProjectBelow { path, project } => self.set_project_below(path, *project),
            Op::SetMtime { path, mtime } => self.set(path, |node| node.mtimes = vec![*mtime]),
            Op::SetXattr {
                path,
                name,
                length,
                fill,
            } => self.set(path, |node| {
                let value = bytes_of(*fill, *length as usize);
                node.xattrs.insert(name.clone(), value);
            }),
            Op::RemoveXattr { path, name } => {
                let id = self.now().lookup(path)?;
                let known = self
                    .now()
                    .node(id)
                    .is_some_and(|n| n.xattrs.contains_key(name));
                if !known {
                    return Err(libc::ENODATA);
                }
                self.set(path, |node| {
                    node.xattrs.remove(name);
                })
            }
            _ => Err(libc::ENOSYS),
        }
    }

    fn set(&mut self, path: &str, set: impl FnOnce(&mut Node)) -> Result<(), Errno> {
        let id = self.now().lookup(path)?;
        self.enter(|tree| tree.change(id, set));
        Ok(())
    }

    fn set_project(&mut self, path: &str, project: u32) -> Result<(), Errno> {
        self.now().lookup(path)?;
        self.check_has_projects()?;
        self.set(path, |node| node.project = project)
    }

    /// First what the path leads to, then all below it, some at a time and in an order that goes by the hashes of names.
    fn set_project_below(&mut self, path: &str, project: u32) -> Result<(), Errno> {
        self.set_project(path, project)?;
        let top = self.now().lookup(path)?;
        let mut below: Vec<NodeId> = self.now().walk_below(top, "").into_values().collect();
        below.retain(|id| *id != top);
        self.enter(|tree| {
            for id in &below {
                tree.change(*id, |node| {
                    node.project_before = Some(node.project).filter(|before| *before != project);
                    node.project = project;
                });
            }
        });
        self.enter(|tree| {
            for id in &below {
                tree.change(*id, |node| node.project_before = None);
            }
        });
        Ok(())
    }

    /// The directory and the name for something new.
    fn vacancy<'a>(&self, path: &'a str) -> Result<(NodeId, &'a str), Errno> {
        let (parent, name) = self.now().parent_of(path)?;
        match self.now().lookup(path) {
            Ok(_) => Err(libc::EEXIST),
            Err(_) => Ok((parent, name)),
        }
    }

    fn make(&mut self, path: &str, body: Body, mode: u32, now: u64) -> Result<(), Errno> {
        let (parent, name) = self.vacancy(path)?;
        self.enter(|tree| {
            let id = tree.add(parent, body, mode, now);
            tree.enter(parent, name, id, now);
        });
        Ok(())
    }

    fn make_directory(&mut self, path: &str, mode: u32, now: u64) -> Result<(), Errno> {
        let (parent, name) = self.vacancy(path)?;
        let body = Body::Directory {
            entries: BTreeMap::new(),
            parent,
        };
        self.enter(|tree| {
            let id = tree.add(parent, body, mode, now);
            tree.enter(parent, name, id, now);
            tree.change(parent, |node| node.links += 1);
        });
        Ok(())
    }

    fn link(&mut self, from: &str, to: &str, now: u64) -> Result<(), Errno> {
        let id = self.now().lookup(from)?;
        let (parent, name) = self.vacancy(to)?;
        if id.root() != parent.root() {
            return Err(libc::EXDEV);
        }
        if self.now().is_directory(id) {
            return Err(libc::EPERM);
        }
        check_same_project(self.now(), parent, id)?;
        self.enter(|tree| {
            tree.change(id, |node| node.links += 1);
            tree.enter(parent, name, id, now);
        });
        Ok(())
    }

    fn unlink(&mut self, path: &str, now: u64) -> Result<(), Errno> {
        let (parent, name) = self.now().parent_of(path)?;
        let id = self.now().lookup(path)?;
        if self.now().is_directory(id) {
            return Err(libc::EISDIR);
        }
        let opened = self.is_open(id);
        self.enter(|tree| {
            tree.leave(parent, name, now);
            drop_link(tree, id, opened);
        });
        Ok(())
    }

    fn remove_directory(&mut self, path: &str, now: u64) -> Result<(), Errno> {
        let (parent, name) = self.now().parent_of(path)?;
        let id = self.now().lookup(path)?;
        let entries = self.now().entries(id).ok_or(libc::ENOTDIR)?;
        if !entries.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.enter(|tree| {
            tree.leave(parent, name, now);
            tree.change(parent, |node| node.links -= 1);
            tree.remove(id);
        });
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, mode: Rename, now: u64) -> Result<(), Errno> {
        let tree = self.now();
        let (from_parent, from_name) = tree.parent_of(from)?;
        let (to_parent, to_name) = tree.parent_of(to)?;
        let id = tree.lookup(from)?;
        if from_parent.root() != to_parent.root() {
            return Err(libc::EXDEV);
        }
        let moves = from_parent != to_parent;
        if moves {
            check_same_project(tree, to_parent, id)?;
        }
        let replaced = tree.lookup(to).ok();
        match (mode, replaced) {
            (Rename::NoReplace, Some(_)) => return Err(libc::EEXIST),
            (Rename::Exchange, None) => return Err(libc::ENOENT),
            _ => {}
        }
        if is_above(tree, id, to_parent) {
            return Err(libc::EINVAL);
        }
        if let Some(replaced) = replaced {
            if is_above(tree, replaced, from_parent) {
                return Err(match mode {
                    Rename::Exchange => libc::EINVAL,
                    _ => libc::ENOTEMPTY,
                });
            }
            if replaced == id {
                return Ok(());
            }
            if mode == Rename::Exchange {
                if moves {
                    check_same_project(tree, from_parent, replaced)?;
                }
                self.enter(|tree| {
                    place(tree, replaced, (from_parent, from_name), to_parent, now);
                    place(tree, id, (to_parent, to_name), from_parent, now);
                });
                return Ok(());
            }
            match (tree.is_directory(id), tree.entries(replaced)) {
                (true, None) => return Err(libc::ENOTDIR),
                (false, Some(_)) => return Err(libc::EISDIR),
                (true, Some(entries)) if !entries.is_empty() => return Err(libc::ENOTEMPTY),
                _ => {}
            }
        }
        let opened = replaced.is_some_and(|replaced| self.is_open(replaced));
        self.enter(|tree| {
            if let Some(replaced) = replaced {
                // The data of a file that takes the place of another is in the history first.
                tree.change_content(id, FileContent::commit);
                tree.leave(to_parent, to_name, now);
                if tree.is_directory(replaced) {
                    tree.change(to_parent, |node| node.links -= 1);
                    tree.remove(replaced);
                } else {
                    drop_link(tree, replaced, opened);
                }
            }
            tree.leave(from_parent, from_name, now);
            place(tree, id, (to_parent, to_name), from_parent, now);
        });
        Ok(())
    }
}

/// A project keeps to its tree: into a directory that has one nothing comes that has another.
fn check_same_project(tree: &Tree, directory: NodeId, id: NodeId) -> Result<(), Errno> {
    let project = |id| tree.node(id).map_or(0, |node| node.project);
    match project(directory) {
        0 => Ok(()),
        own if own == project(id) => Ok(()),
        _ => Err(libc::EXDEV),
    }
}

/// One name less leads to a node; without names and handles it is gone.
fn drop_link(tree: &mut Tree, id: NodeId, opened: bool) {
    tree.change(id, |node| node.links -= 1);
    if !opened && tree.node(id).is_some_and(|node| node.links == 0) {
        tree.remove(id);
    }
}

/// Puts a node that was in `from` at another place.
fn place(tree: &mut Tree, id: NodeId, to: (NodeId, &str), from: NodeId, now: u64) {
    tree.enter(to.0, to.1, id, now);
    tree.change(from, |node| node.mtimes = vec![now]);
    if tree.is_directory(id) {
        tree.change(id, |node| {
            if let Body::Directory { parent, .. } = &mut node.body {
                *parent = to.0;
            }
        });
        tree.change(from, |node| node.links -= 1);
        tree.change(to.0, |node| node.links += 1);
    }
}

/// Whether `above` is `below` or one of the directories above it.
fn is_above(tree: &Tree, above: NodeId, below: NodeId) -> bool {
    let mut at = below;
    loop {
        if at == above {
            return true;
        }
        if at == at.root() {
            return false;
        }
        at = tree.parent(at);
    }
}
