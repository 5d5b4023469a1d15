//! What each operation does to the model.

use super::content::FileContent;
use super::tree::{Body, NodeId, Tree};
use super::{Errno, Model};
use crate::workload::{Allocate, Durability, Op, Step, bytes_of};

impl Model {
    /// Lets an operation have its effect, or answers the error that it has to end with. What the
    /// operation makes durable is for [`Model::acknowledge`]: until it returned nothing is.
    pub fn apply(&mut self, op: &Op, now: u64) -> Result<(), Errno> {
        let begins = self.graces_of_new(op, now);
        self.begin_graces(op, true, now);
        self.carry_out(op, now)?;
        self.buffer(|tree| {
            for (owner, account) in begins {
                tree.set_account(owner, account);
            }
        });
        self.end_graces(op.may_free());
        Ok(())
    }

    fn carry_out(&mut self, op: &Op, now: u64) -> Result<(), Errno> {
        match op {
            Op::Open {
                slot,
                path,
                truncate,
            } => self.open(*slot, path, *truncate, now),
            Op::OpenRead { slot, path } => self.open_to_read(*slot, path),
            Op::ReadOpen { slot } => self.read_in(*slot).map(drop),
            Op::Close { slot } => self.close(*slot),
            Op::WriteOpen {
                slot,
                offset,
                length,
                fill,
            } => {
                let id = self.written_in(*slot)?;
                self.write(id, *offset, &bytes_of(*fill, *length as usize), now);
                Ok(())
            }
            Op::Write {
                path,
                offset,
                length,
                fill,
                ..
            } => {
                let id = self.file(path)?;
                self.write(id, *offset, &bytes_of(*fill, *length as usize), now);
                Ok(())
            }
            Op::Truncate { path, size } => {
                let id = self.file(path)?;
                self.truncate(id, *size, now);
                Ok(())
            }
            Op::Allocate {
                path,
                offset,
                length,
                what,
            } => self.allocate(path, *offset, *length, *what, now),
            Op::Copy {
                from,
                to,
                from_offset,
                to_offset,
                length,
            } => {
                let target = self.file(to)?;
                let source = self.now().find(from)?;
                let content = source.content().ok_or(match source.body {
                    Body::Directory { .. } => libc::EISDIR,
                    _ => libc::EINVAL,
                })?;
                let data = content.read(*from_offset, *length as usize);
                self.write(target, *to_offset, &data, now);
                Ok(())
            }
            Op::Fsync { path, .. } | Op::Read { path } => self.file(path).map(drop),
            Op::FsyncDir { path } => {
                let id = self.now().lookup(path)?;
                if self.now().is_directory(id) {
                    Ok(())
                } else {
                    Err(libc::ENOTDIR)
                }
            }
            Op::Limit { owner, limits } => self.limit(*owner, *limits, now),
            Op::SetGrace { kind, grace } => self.set_grace(*kind, *grace),
            Op::QuotaOn { anew } => {
                self.turn_quota_on(*anew);
                Ok(())
            }
            Op::QuotaOff => self.turn_quota_off(),
            Op::Remount => self.close_all(),
            Op::Snapshot { .. }
            | Op::DeleteSnapshot { .. }
            | Op::RenameSnapshot { .. }
            | Op::RollBack { .. } => self.apply_to_snapshots(op),
            Op::Sync | Op::Step(_) | Op::Wait { .. } => Ok(()),
            _ => self.apply_to_names(op, now),
        }
    }

    fn apply_to_snapshots(&mut self, op: &Op) -> Result<(), Errno> {
        let vacant = |model: &Model, name: &str| match model.now().snapshots().contains_key(name) {
            true => Err(libc::EEXIST),
            false => Ok(()),
        };
        let there = |model: &Model, name: &str| match model.now().snapshots().contains_key(name) {
            true => Ok(()),
            false => Err(libc::ENOENT),
        };
        match op {
            Op::Snapshot {
                name,
                of,
                is_writable,
            } => {
                of.iter().try_for_each(|of| there(self, of))?;
                vacant(self, name)?;
                self.enter(|tree| tree.take_snapshot(name, of.as_deref(), *is_writable));
            }
            Op::DeleteSnapshot { name } => {
                there(self, name)?;
                self.void_slots(name)?;
                self.enter(|tree| tree.delete_snapshot(name));
            }
            Op::RenameSnapshot { from, to } => {
                there(self, from)?;
                if from != to {
                    vacant(self, to)?;
                    self.enter(|tree| tree.rename_snapshot(from, to));
                    self.rename_slots(from, to);
                }
            }
            Op::RollBack { to, keep } => {
                self.close_all()?;
                // What the closed files took is freed before the roll-back.
                self.end_graces(true);
                there(self, to)?;
                keep.iter().try_for_each(|keep| vacant(self, keep))?;
                self.enter(|tree| {
                    // The volume is unmounted before.
                    tree.commit_all();
                    tree.roll_back(to, keep.as_deref());
                });
            }
            _ => return Err(libc::ENOSYS),
        }
        Ok(())
    }

    /// The operation returned: what it promises is durable.
    pub fn acknowledge(&mut self, op: &Op) {
        match op {
            Op::Fsync { path, .. } => {
                if let Ok(id) = self.now().lookup(path) {
                    self.buffer(|tree| tree.change(id, super::tree::Node::commit));
                }
            }
            Op::Write {
                path,
                offset,
                length,
                durability: Durability::DataSync | Durability::Sync,
                ..
            } => {
                if let Ok(id) = self.now().lookup(path) {
                    self.buffer(|tree| {
                        tree.change_content(id, |content| {
                            content.commit_range(*offset, u64::from(*length));
                        });
                    });
                }
            }
            Op::Sync | Op::Remount | Op::RollBack { .. } => self.buffer(Tree::commit_all),
            Op::FsyncDir { .. } | Op::Step(Step::Checkpoint) => {}
            _ => return,
        }
        self.everything_so_far_is_durable();
    }

    pub(super) fn file(&self, path: &str) -> Result<NodeId, Errno> {
        let id = self.now().lookup(path)?;
        match self.now().node(id).map(|node| &node.body) {
            Some(Body::File(_)) => Ok(id),
            Some(Body::Directory { .. }) => Err(libc::EISDIR),
            _ => Err(libc::EINVAL),
        }
    }

    fn write(&mut self, id: NodeId, offset: u64, data: &[u8], now: u64) {
        if data.is_empty() {
            return;
        }
        self.buffer(|tree| {
            tree.change_content(id, |content| content.write(offset, data));
            tree.change(id, |node| node.mtimes.push(now));
        });
    }

    pub(super) fn truncate(&mut self, id: NodeId, size: u64, now: u64) {
        self.enter(|tree| {
            tree.change_content(id, |content| content.truncate(size));
            tree.change(id, |node| node.mtimes = vec![now]);
        });
    }

    fn allocate(
        &mut self,
        path: &str,
        offset: u64,
        length: u64,
        what: Allocate,
        now: u64,
    ) -> Result<(), Errno> {
        let id = self.file(path)?;
        if matches!(what, Allocate::Collapse | Allocate::Insert) {
            return self.shift(id, offset, length, what == Allocate::Collapse, now);
        }
        if matches!(what, Allocate::Punch | Allocate::Zero) {
            // The edges are buffered writes, before the whole blocks enter the history.
            self.buffer(|tree| {
                tree.change_content(id, |content| content.zero_edges(offset, length));
                tree.change(id, |node| node.mtimes.push(now));
            });
            self.enter(|tree| {
                tree.change_content(id, |content| content.punch(offset, length));
                tree.change(id, |node| node.mtimes.push(now));
            });
        }
        if what != Allocate::Punch {
            self.enter(|tree| {
                if what != Allocate::ReserveKeepSize {
                    tree.change_content(id, |content| content.extend(offset + length));
                }
                tree.change_content(id, |content| content.touch(offset, length));
                tree.change(id, |node| node.mtimes.push(now));
            });
        }
        Ok(())
    }

    /// Takes a range out of a file or puts one in, after all that was written to it.
    fn shift(
        &mut self,
        id: NodeId,
        offset: u64,
        length: u64,
        collapses: bool,
        now: u64,
    ) -> Result<(), Errno> {
        let node = self.now().node(id);
        let size = node
            .and_then(|node| node.content())
            .map_or(0, FileContent::size);
        let is_before_end = match collapses {
            true => offset + length < size,
            false => offset < size,
        };
        if !is_before_end || length == 0 {
            return Err(libc::EINVAL);
        }
        self.enter(|tree| {
            tree.change_content(id, |content| {
                content.commit();
                content.shift(offset, length, collapses);
            });
            tree.change(id, |node| node.mtimes = vec![now]);
        });
        Ok(())
    }
}
