//! Limits of quota: what may be refused because an owner takes too much, and what has to be.
//!
//! How many inodes somebody has is known exactly. What their files take lies between two bounds: a block that was written, or preallocated, and
//! not truncated since takes a block at most, or some more where blocks are compressed; one whose content does not compress takes a block.

use std::collections::BTreeSet;

use persimmon_format::quota::{Limit, Owner, SECTOR};
use persimmon_format::xattr;

use super::content::FileContent;
use super::grace::seconds;
use super::tree::{Node, NodeId, Tree, owners};
use super::{Model, ROOT};
use crate::workload::{Allocate, Op, compresses};

pub(super) const BLOCK: u64 = persimmon_device::BLOCK_SIZE as u64;
/// Blocks that a block may take where content is compressed: it may lie in a frame of which all else was overwritten, and have a delta.
const COMPRESSED_BLOCKS_MAX: u64 = 3;
/// Distances at which content that compresses repeats itself ([`crate::workload::bytes_of`]), and how many of a block's bytes may do so by
/// chance.
const PERIODS: [usize; 2] = [8, 1024];
const REPEATED_BYTES_MAX: usize = 200;

/// What an operation takes more of what somebody may be limited in.
#[derive(Default)]
pub(super) struct Demand {
    pub(super) owners: Vec<Owner>,
    pub(super) inodes: u64,
    /// Blocks, at least and at most.
    pub(super) blocks: (u64, u64),
    /// Bytes that extended attributes count as.
    pub(super) attributes: u64,
    /// Nothing is known of the file that it is for.
    pub(super) is_unknown: bool,
}

impl Demand {
    pub(super) fn takes_no_space(&self) -> bool {
        self.blocks.1 == 0 && self.attributes == 0 && !self.is_unknown
    }
}

/// What somebody takes.
pub(super) struct Taken<'a> {
    tree: &'a Tree,
    owner: Owner,
    pub(super) inodes: u64,
    /// Blocks at most, without what compression costs; `None`: nobody knows.
    pub(super) most: Option<u64>,
    /// Bytes that extended attributes count as.
    pub(super) attributes: u64,
}

impl Taken<'_> {
    pub(super) fn of(tree: &Tree, owner: Owner) -> Taken<'_> {
        let contents = files_of(tree, owner).filter_map(Node::content);
        let blocks = contents.map(|content| {
            let all = content.touched().len() as u64;
            content.is_all_known().then_some(all)
        });
        Taken {
            tree,
            owner,
            inodes: tree.inodes_of(owner),
            most: blocks.sum(),
            attributes: files_of(tree, owner).map(attribute_bytes).sum(),
        }
    }

    /// Bytes at least, where each block takes one.
    pub(super) fn least(&self) -> u64 {
        let contents = files_of(self.tree, self.owner).filter_map(Node::content);
        contents.map(incompressible_blocks).sum::<u64>() * BLOCK + self.attributes
    }

    /// Whether more bytes may be taken than these.
    pub(super) fn may_exceed(&self, bytes: u64, is_whole: bool) -> bool {
        let most = self.most.map(|most| most * blocks_max(is_whole) * BLOCK);
        most.is_none_or(|most| most + self.attributes > bytes)
    }

    /// Bytes that count at most, those that are staged as well as what they replace.
    pub(super) fn estimate(&self, most: u64, is_whole: bool) -> u64 {
        most * (blocks_max(is_whole) + 1) * BLOCK + self.attributes
    }
}

/// Blocks that a block takes at most.
fn blocks_max(is_whole: bool) -> u64 {
    match is_whole {
        true => 1,
        false => COMPRESSED_BLOCKS_MAX,
    }
}

impl Model {
    /// Whether a limit may be the reason to refuse an operation, or to do a part of it only.
    #[must_use]
    pub fn may_exceed(&self, op: &Op, now: u64) -> bool {
        let Some(demand) = self.demand(op).filter(|_| self.enforces_limits()) else {
            return false;
        };
        let mut owners = demand.owners.iter();
        owners.any(|owner| self.may_exceed_of(*owner, &demand, seconds(now)))
    }

    fn may_exceed_of(&self, owner: Owner, demand: &Demand, now: i64) -> bool {
        let tree = self.now();
        let account = tree.account(owner);
        if account.is_unlimited() {
            return false;
        }
        let limits = account.limits();
        let taken = Taken::of(tree, owner);
        let is_over = account.inodes_ends().may_be_over(now);
        if exceeds_inodes(limits.inodes, &taken, demand, is_over) {
            return true;
        }
        if limits.bytes.is_none() || demand.takes_no_space() {
            return false;
        }
        // A grace time of no seconds ends as it begins: what is done in several steps may be refused in its midst.
        let grace = tree.quota().grace(owner.kind);
        let ends_at_once = grace.bytes == 0 && self.may_begin(owner, demand);
        let (Some(most), false) = (taken.most, demand.is_unknown) else {
            return limits.bytes.hard > 0 || account.bytes_ends().may_be_over(now) || ends_at_once;
        };
        let blocks = (most + demand.blocks.1) * blocks_max(self.is_whole);
        let then = blocks * BLOCK + taken.attributes + demand.attributes;
        if limits.bytes.hard > 0 && then > limits.bytes.hard {
            return true;
        }
        // Where blocks are compressed what is written first may take more than was asked for.
        let used = match self.is_whole {
            true => most * BLOCK + taken.attributes,
            false => then,
        };
        let soft = limits.bytes.soft;
        ends_at_once || soft > 0 && used > soft && account.bytes_ends().may_be_over(now)
    }

    /// Whether an operation, if it is possible at all, cannot be done as a whole because of a limit.
    #[must_use]
    pub fn must_exceed(&self, op: &Op, now: u64) -> bool {
        let Some(demand) = self.demand(op).filter(|_| self.enforces_limits()) else {
            return false;
        };
        let mut owners = demand.owners.iter();
        owners.any(|owner| self.must_exceed_of(*owner, &demand, seconds(now)))
    }

    fn must_exceed_of(&self, owner: Owner, demand: &Demand, now: i64) -> bool {
        let tree = self.now();
        let account = tree.account(owner);
        if account.is_unlimited() {
            return false;
        }
        let limits = account.limits();
        let taken = Taken::of(tree, owner);
        let is_over = account.inodes_ends().is_over(now);
        if exceeds_inodes(limits.inodes, &taken, demand, is_over) {
            return true;
        }
        let is_unsure = demand.is_unknown || !self.is_whole;
        let more = demand.blocks.0 * BLOCK + demand.attributes;
        if limits.bytes.is_none() || more == 0 || is_unsure {
            return false;
        }
        let least = taken.least();
        let (soft, hard) = (limits.bytes.soft, limits.bytes.hard);
        hard > 0 && least + more > hard
            || soft > 0 && least > soft && account.bytes_ends().is_over(now)
    }

    /// What is made has the group and the project of a directory where that passes them on.
    fn owners_in(&self, directory: NodeId) -> Option<Vec<Owner>> {
        let node = self.now().node(directory)?;
        let gid = match node.mode & libc::S_ISGID {
            0 => 0,
            _ => node.gid,
        };
        Some(owners(0, gid, node.project).collect())
    }

    /// The owners that something gets, of those that it does not have.
    fn given_away(&self, path: &str, owners: impl Fn(&Node) -> Vec<Owner>) -> Option<Demand> {
        let id = self.now().lookup(path).ok()?;
        let node = self.now().node(id)?;
        let mut new = owners(node);
        new.retain(|owner| node.owners().all(|had| had != *owner));
        if id.root() != ROOT || new.is_empty() {
            return None;
        }
        let content = node.content();
        Some(Demand {
            owners: new,
            inodes: 1,
            blocks: (0, content.map_or(0, |c| c.touched().len() as u64)),
            attributes: attribute_bytes(node),
            is_unknown: content.is_some_and(|c| !c.is_all_known()),
        })
    }

    /// What an operation asks for; nothing if no limit counts for it.
    pub(super) fn demand(&self, op: &Op) -> Option<Demand> {
        let of_file = |id: NodeId, offset: u64, length: u64| {
            let node = self.now().node(id)?;
            let content = node.content()?;
            if id.root() != ROOT || length == 0 {
                return None;
            }
            let range = offset / BLOCK..(offset + length).div_ceil(BLOCK);
            let all = range.end - range.start;
            let there = content.touched().range(range).count() as u64;
            Some(Demand {
                owners: node.owners().collect(),
                inodes: 0,
                blocks: (all - there, all),
                attributes: 0,
                is_unknown: !content.is_all_known(),
            })
        };
        // Synced blocks that compress are packed, also of a file that is not compressed.
        let written = |demand: Demand, fill: u64| {
            let (least, most) = demand.blocks;
            let least = if compresses(fill) { 0 } else { least };
            Some(Demand {
                blocks: (least, most),
                ..demand
            })
        };
        let named = |path: &str| self.now().lookup(path).ok();
        match op {
            Op::Create { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Fifo { path, .. }
            | Op::Symlink { path, .. } => {
                let (parent, _) = self.now().parent_of(path).ok()?;
                let owners = self.owners_in(parent)?;
                (parent.root() == ROOT).then_some(Demand {
                    owners,
                    inodes: 1,
                    ..Demand::default()
                })
            }
            Op::SetXattr {
                path, name, length, ..
            } => {
                let id = named(path)?;
                let node = self.now().node(id)?;
                let before = node
                    .xattrs
                    .get(name)
                    .map_or(0, |v| attribute_size(name, v.len()));
                let after = attribute_size(name, *length as usize);
                (id.root() == ROOT).then_some(Demand {
                    owners: node.owners().collect(),
                    attributes: after.saturating_sub(before),
                    ..Demand::default()
                })
            }
            Op::Chown { path, uid } => {
                self.given_away(path, |node| owners(*uid, node.gid, node.project).collect())
            }
            Op::Chgrp { path, gid } => {
                self.given_away(path, |node| owners(node.uid, *gid, node.project).collect())
            }
            Op::Write {
                path,
                offset,
                length,
                fill,
                ..
            } => written(of_file(named(path)?, *offset, u64::from(*length))?, *fill),
            Op::WriteOpen {
                slot,
                offset,
                length,
                fill,
                ..
            } => written(
                of_file(self.open_in(*slot)?, *offset, u64::from(*length))?,
                *fill,
            ),
            Op::Copy {
                from,
                to,
                from_offset,
                to_offset,
                length,
            } => {
                let source = self.now().find(from).ok()?.content()?;
                let length = (*length).min(source.size().saturating_sub(*from_offset));
                // Holes of the source take nothing.
                let demand = of_file(named(to)?, *to_offset, length)?;
                Some(Demand {
                    blocks: (0, demand.blocks.1),
                    ..demand
                })
            }
            Op::Allocate {
                path,
                offset,
                length,
                what: Allocate::Reserve | Allocate::ReserveKeepSize | Allocate::Zero,
            } => of_file(named(path)?, *offset, *length),
            _ => None,
        }
    }
}

/// Bytes that an extended attribute counts as.
fn attribute_size(name: &str, value_len: usize) -> u64 {
    xattr::sectors(name.as_bytes(), value_len) * SECTOR
}

fn attribute_bytes(node: &Node) -> u64 {
    let xattrs = node.xattrs.iter();
    xattrs
        .map(|(name, value)| attribute_size(name, value.len()))
        .sum()
}

/// How many inodes somebody has is known exactly. `is_over`: their soft limit is a hard one, if it is exceeded.
fn exceeds_inodes(limit: Limit, taken: &Taken<'_>, demand: &Demand, is_over: bool) -> bool {
    let exceeds_hard = limit.hard > 0 && taken.inodes + demand.inodes > limit.hard;
    let exceeds_soft = limit.soft > 0 && taken.inodes > limit.soft && is_over;
    demand.inodes > 0 && (exceeds_hard || exceeds_soft)
}

/// What counts for somebody: all that the main subvolume has of theirs, with a name or only open.
fn files_of(tree: &Tree, owner: Owner) -> impl Iterator<Item = &Node> {
    let nodes = tree.main_nodes();
    nodes.filter(move |node| node.owners().any(|own| own == owner))
}

/// Blocks that are stored as they are.
fn incompressible_blocks(content: &FileContent) -> u64 {
    let blocks = content.blocks_now();
    blocks.filter(|(_, bytes)| is_incompressible(bytes)).count() as u64
}

fn is_incompressible(block: &[u8]) -> bool {
    let repeats = |period: usize| {
        let later = block.iter().skip(period);
        block.iter().zip(later).filter(|(a, b)| a == b).count()
    };
    block.len() as u64 == BLOCK
        && PERIODS
            .into_iter()
            .all(|p| repeats(p) <= REPEATED_BYTES_MAX)
}

/// Blocks of a file that something may be allocated for.
#[derive(Clone, Default)]
pub(crate) struct Touched {
    blocks: BTreeSet<u64>,
    /// The file was found so: what else is allocated is not known.
    is_unknown: bool,
}

impl Touched {
    pub(super) fn unknown() -> Touched {
        Touched {
            is_unknown: true,
            ..Touched::default()
        }
    }

    /// Whether nothing is allocated for others.
    pub(super) fn is_all(&self) -> bool {
        !self.is_unknown
    }

    pub(super) fn add(&mut self, offset: u64, length: u64) {
        if length > 0 {
            let end = offset.saturating_add(length).div_ceil(BLOCK);
            self.blocks.extend(offset / BLOCK..end);
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        self.blocks.split_off(&size.div_ceil(BLOCK));
    }

    pub(super) fn shift(&mut self, (at, by): (u64, u64), collapses: bool) {
        let behind = self.blocks.split_off(&at).into_iter();
        match collapses {
            true => {
                let behind = behind.filter(|block| *block >= at + by);
                self.blocks.extend(behind.map(|block| block - by));
            }
            false => self.blocks.extend(behind.map(|block| block + by)),
        }
    }

    pub(super) fn blocks(&self) -> &BTreeSet<u64> {
        &self.blocks
    }
}

impl Tree {
    /// Blocks that somebody's files take at most, without what compression costs.
    pub(crate) fn blocks_of(&self, owner: Owner) -> u64 {
        let contents = files_of(self, owner).filter_map(Node::content);
        contents.map(|content| content.touched().len() as u64).sum()
    }

    /// Inodes that somebody has.
    pub(crate) fn inodes_of(&self, owner: Owner) -> u64 {
        files_of(self, owner).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use persimmon_format::quota::OwnerKind;

    use super::*;
    use crate::model::{Counting, GRACES, Limits, Quota};
    use crate::workload::{Durability, bytes_of};

    /// Bytes of this fill do not compress, those of a multiple of four do.
    const NOISE: u64 = 7;

    fn create(path: &str) -> Op {
        Op::Create {
            path: path.into(),
            mode: 0o644,
        }
    }

    fn write(path: &str, block: u64, blocks: u64, fill: u64) -> Op {
        Op::Write {
            path: path.into(),
            offset: block * BLOCK,
            length: (blocks * BLOCK) as u32,
            fill,
            durability: Durability::Buffered,
        }
    }

    fn user(id: u32) -> Owner {
        Owner {
            kind: OwnerKind::User,
            id,
        }
    }

    fn hard(hard: u64) -> Limit {
        Limit { soft: 0, hard }
    }

    fn limit(uid: u32, blocks: u64, inodes: u64) -> Op {
        Op::Limit {
            owner: user(uid),
            limits: Limits {
                bytes: hard(blocks * BLOCK),
                inodes: hard(inodes),
            },
        }
    }

    /// An empty tree of a volume with quota.
    fn counted() -> Tree {
        let mut tree = Tree::new(0o755, 0);
        tree.set_quota(Quota {
            has_projects: true,
            counting: Counting::All,
            graces: GRACES,
        });
        tree
    }

    fn model(ops: &[Op]) -> Model {
        let mut model = Model::new(counted()).of_whole_blocks(true);
        for op in ops {
            model.apply(op, 0).unwrap();
        }
        model
    }

    /// Whether it may, and has to, be refused.
    fn exceeds(model: &Model, op: &Op) -> (bool, bool) {
        (model.may_exceed(op, 0), model.must_exceed(op, 0))
    }

    #[test]
    fn inodes_are_counted_exactly() {
        let mut model = model(&[create("/a"), limit(0, 0, 3)]);
        assert_eq!(exceeds(&model, &create("/b")), (false, false));
        model.apply(&create("/b"), 0).unwrap();
        assert_eq!(exceeds(&model, &create("/c")), (true, true));
        // One that is open counts without a name.
        let open = Op::Open {
            slot: 0,
            path: "/b".into(),
            truncate: false,
        };
        model.apply(&open, 0).unwrap();
        model.apply(&Op::Unlink { path: "/b".into() }, 0).unwrap();
        assert_eq!(exceeds(&model, &create("/c")), (true, true));
        model.apply(&Op::Close { slot: 0 }, 0).unwrap();
        assert_eq!(exceeds(&model, &create("/c")), (false, false));
        let chown = |uid| Op::Chown {
            path: "/a".into(),
            uid,
        };
        model.apply(&limit(1, 0, 1), 0).unwrap();
        assert_eq!(exceeds(&model, &chown(1)), (false, false));
        model.apply(&chown(1), 0).unwrap();
        assert_eq!(exceeds(&model, &chown(1)), (false, false));
        assert_eq!(exceeds(&model, &chown(2)), (false, false));
    }

    #[test]
    fn blocks_lie_between_two_bounds() {
        let mut model = model(&[create("/a"), write("/a", 0, 4, NOISE), limit(0, 8, 0)]);
        assert_eq!(exceeds(&model, &write("/a", 4, 4, NOISE)), (false, false));
        assert_eq!(exceeds(&model, &write("/a", 4, 5, NOISE)), (true, true));
        // What is overwritten may be free before, or not.
        assert_eq!(exceeds(&model, &write("/a", 0, 4, NOISE)), (false, false));
        assert_eq!(exceeds(&model, &write("/a", 0, 8, NOISE)), (true, false));
        let compressible = write("/b", 0, 4, 4);
        model.apply(&create("/b"), 0).unwrap();
        model.apply(&compressible, 0).unwrap();
        assert_eq!(exceeds(&model, &write("/a", 4, 4, NOISE)), (true, false));
        // Who is not limited takes what they want.
        model.apply(&limit(0, 0, 0), 0).unwrap();
        assert_eq!(exceeds(&model, &write("/a", 4, 900, NOISE)), (false, false));
        assert!(model.now().accounts().is_empty());
    }

    #[test]
    fn snapshots_are_nobodys() {
        let taken = Op::Snapshot {
            name: "s".into(),
            of: None,
            is_writable: true,
        };
        let model = model(&[create("/a"), limit(0, 1, 1), taken]);
        assert_eq!(exceeds(&model, &create("s:/b")), (false, false));
        assert_eq!(exceeds(&model, &write("s:/a", 0, 9, NOISE)), (false, false));
        assert_eq!(exceeds(&model, &create("/b")), (true, true));
    }

    #[test]
    fn content_that_compresses_is_told_from_noise() {
        let block = |fill| bytes_of(fill, BLOCK as usize);
        for fill in 1..2000 {
            assert_eq!(is_incompressible(&block(fill)), fill & 2 != 0, "{fill}");
        }
    }
}
