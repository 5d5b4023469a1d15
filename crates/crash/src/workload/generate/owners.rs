//! Operations on volumes with groups, projects, soft limits, and files in snapshots that stay open.

use persimmon_format::quota::{Limit, Owner, OwnerKind};
use rand::Rng;
use rand::seq::{IndexedRandom, IteratorRandom};

use super::{BLOCK, Generator, LIMITED_USERS, MORE_BLOCKS_MAX, SLOTS, size_of};
use crate::model::{Body, Limits, Model, Slot, Snapshot, Tree};
use crate::workload::Op;

/// Projects that there are: 0 is none.
pub(super) const PROJECTS: u32 = 3;
/// Seconds that pass: within the tolerance of some grace times, within others, past all of one kind, and past all.
const WAITS: [u32; 5] = [1, 3, 35, 70, 250];

impl Generator {
    /// What the other families do not have.
    pub(super) fn owner_op(&mut self, model: &Model) -> Op {
        let tree = model.now();
        match self.rng.random_range(0..100) {
            0..16 => Op::Chgrp {
                path: self.file_or_directory(tree),
                gid: self.rng.random_range(0..LIMITED_USERS),
            },
            16..34 => Op::SetProject {
                path: self.file_or_directory(tree),
                project: self.rng.random_range(0..PROJECTS),
            },
            34..50 => self.owner_limit_op(tree),
            50..59 => Op::Wait {
                seconds: WAITS.choose(&mut self.rng).copied().unwrap_or(1),
            },
            59..65 => Op::Chmod {
                path: self.directory(tree),
                mode: 0o2755,
            },
            _ => self.slot_op(model),
        }
    }

    /// A file or a directory, where the next operation is.
    pub(super) fn file_or_directory(&mut self, tree: &Tree) -> String {
        let plain = |body: &Body| matches!(body, Body::File(_) | Body::Directory { .. });
        let path = self.existing(tree, plain);
        let found = tree.lookup(&path).ok().and_then(|id| tree.node(id));
        match found.is_some_and(|node| !plain(&node.body)) {
            true => format!("{}/", self.within),
            false => path,
        }
    }

    /// A directory there: of a file it would be another bit, which giving that away takes.
    pub(super) fn directory(&mut self, tree: &Tree) -> String {
        let paths = self.paths_of(tree, |body| matches!(body, Body::Directory { .. }));
        let path = paths.choose(&mut self.rng).cloned();
        path.unwrap_or_else(|| "/".to_owned())
    }

    /// Limits a user, mostly to little more than what they have.
    pub(super) fn limit_op(&mut self, tree: &Tree) -> Op {
        let owner = Owner {
            kind: OwnerKind::User,
            id: self.rng.random_range(0..LIMITED_USERS),
        };
        let hard = |hard| Limit { soft: 0, hard };
        let more = self.rng.random_range(0..MORE_BLOCKS_MAX) * BLOCK;
        let limits = Limits {
            bytes: hard(match self.rng.random_range(0..5) {
                0..2 => 0,
                2 => more + self.rng.random_range(1..BLOCK),
                _ => tree.blocks_of(owner) * BLOCK + more,
            }),
            inodes: hard(match self.rng.random_range(0..3) {
                0 => 0,
                _ => tree.inodes_of(owner) + self.rng.random_range(0..6),
            }),
        };
        Op::Limit { owner, limits }
    }

    /// Limits somebody, mostly to little more than what they have, or to a little less.
    fn owner_limit_op(&mut self, tree: &Tree) -> Op {
        let kind = OwnerKind::ALL.choose(&mut self.rng).copied();
        let kind = kind.unwrap_or(OwnerKind::User);
        let id = match kind {
            OwnerKind::Project => self.rng.random_range(1..PROJECTS),
            _ => self.rng.random_range(0..LIMITED_USERS),
        };
        let owner = Owner { kind, id };
        let bytes = tree.blocks_of(owner) * BLOCK;
        let inodes = tree.inodes_of(owner);
        let limits = Limits {
            bytes: self.limit_near(bytes, MORE_BLOCKS_MAX, BLOCK),
            inodes: self.limit_near(inodes, 6, 1),
        };
        Op::Limit { owner, limits }
    }

    fn limit_near(&mut self, taken: u64, more_max: u64, unit: u64) -> Limit {
        let more = self.rng.random_range(0..more_max) * unit;
        let less = self.rng.random_range(0..4) * unit;
        let hard = taken + more + self.rng.random_range(0..more_max) * unit;
        Limit {
            soft: match self.rng.random_range(0..5) {
                0..2 => 0,
                2 => taken.saturating_sub(less),
                3 => taken + less,
                _ => taken + more,
            },
            hard: match self.rng.random_range(0..5) {
                0..3 => 0,
                3 => hard,
                _ => hard * 2,
            },
        }
    }

    /// Opens a file, mostly one in a snapshot, or works with one that is open, or deletes the snapshot that it is in.
    fn slot_op(&mut self, model: &Model) -> Op {
        let slot = self.rng.random_range(0..SLOTS);
        let snapshot = model.snapshot_of(slot).map(str::to_owned);
        if let Some(name) = snapshot.filter(|_| self.chance(25)) {
            return match self.chance(75) {
                true => Op::DeleteSnapshot { name },
                false => Op::RenameSnapshot {
                    from: name,
                    to: format!("s{}", self.next_fill()),
                },
            };
        }
        match model.slot(slot) {
            None => self.open_op(model.now(), slot),
            Some(_) if self.chance(25) => Op::Close { slot },
            Some(Slot::Read | Slot::Void) if self.chance(85) => Op::ReadOpen { slot },
            // What cannot be written to is tried, too.
            Some(_) => Op::WriteOpen {
                slot,
                offset: self.offset(self.open_size(model, slot)),
                length: self.length(),
                fill: self.next_fill(),
            },
        }
    }

    fn open_size(&self, model: &Model, slot: u8) -> u64 {
        let node = model.open_in(slot).and_then(|id| model.now().node(id));
        node.and_then(|node| node.content()).map_or(0, |c| c.size())
    }

    fn open_op(&mut self, tree: &Tree, slot: u8) -> Op {
        let name = tree.snapshots().keys().choose(&mut self.rng);
        let name = name.filter(|_| self.chance(80)).cloned();
        let found = match &name {
            Some(name) => tree.snapshot(name),
            None => Some((tree, crate::model::ROOT)),
        };
        let before = name
            .as_ref()
            .map_or(String::new(), |name| format!("{name}:"));
        let paths = found.map(|(inside, root)| {
            let paths = inside.walk_below(root, &before).into_iter();
            let files = paths.filter(|(_, id)| {
                let node = inside.node(*id);
                node.is_some_and(|node| node.content().is_some())
            });
            files.map(|(path, _)| path).collect::<Vec<String>>()
        });
        let Some(path) = paths.and_then(|paths| paths.choose(&mut self.rng).cloned()) else {
            let path = self.any_path(tree);
            return Op::Create { path, mode: 0o644 };
        };
        let known = name.and_then(|name| tree.snapshots().get(&name));
        let writes = !matches!(known, Some(Snapshot::ReadOnly(_))) && self.chance(50);
        match writes && size_of(tree, &path) < u64::from(u32::MAX) {
            true => Op::Open {
                slot,
                path,
                truncate: self.chance(30),
            },
            false => Op::OpenRead { slot, path },
        }
    }
}
