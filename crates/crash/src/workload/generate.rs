//! Random operations that fit what is there.

mod owners;
mod quotas;

use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::op::{Allocate, Durability, Op, Rename, Step};
use crate::model::{Body, Model, ROOT, Snapshot, Tree};

/// Slots for files kept open.
const SLOTS: u8 = 3;
/// Names in a directory; few, so that they meet.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "a-name-longer-than-the-others.txt"];
/// Bytes of an extended attribute of which a page of the tree holds four.
const BULKY_BYTES: u32 = 3900;
/// Bytes of attributes, of which some are in pieces of the tree: up to one item, just more, in two that are full and in two and a bit,
/// and as many as there can be.
const LONG_XATTR_BYTES: [u32; 9] = [
    5,
    1000,
    BULKY_BYTES,
    BULKY_BYTES + 1,
    8000,
    8001,
    20_000,
    45_000,
    65_536,
];
const BLOCK: u64 = persimmon_device::BLOCK_SIZE as u64;

/// What a workload is mostly made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Some of everything.
    Even,
    /// Names come and go; little data.
    Names,
    /// Writes, truncates, holes.
    Data,
    /// Small synchronous writes, as of a mail server or a database's log.
    Synchronous,
    /// Overwrites, so that zones fill and have to be cleaned.
    Churn,
    /// Large writes, so that a small volume runs full.
    Full,
    /// Large attributes: records of a block and more, pages that fill and empty.
    Bulky,
}

impl Mix {
    /// Those for volumes of any size.
    pub const ALL: [Mix; 6] = [
        Mix::Even,
        Mix::Names,
        Mix::Data,
        Mix::Synchronous,
        Mix::Churn,
        Mix::Bulky,
    ];

    /// How often each group of operations comes: names, attributes, data, durability, background.
    fn weights(self) -> [u32; 5] {
        match self {
            Mix::Even => [30, 10, 30, 12, 18],
            Mix::Names => [65, 10, 8, 7, 10],
            Mix::Data => [8, 2, 65, 8, 17],
            Mix::Synchronous => [15, 2, 45, 30, 8],
            Mix::Churn => [5, 1, 60, 4, 30],
            Mix::Full => [10, 1, 70, 4, 15],
            Mix::Bulky => [25, 55, 5, 5, 10],
        }
    }
}

/// Contents that are written again and again, and blocks of one at most.
const REPEATED_FILLS: u64 = 4;
const REPEATED_BLOCKS_MAX: u32 = 30;
/// Of 100 operations those that change the snapshots of a volume in which these can be written to.
const VERSION_OPS_PERCENT: u32 = 14;
/// And of the others those that are in a writable snapshot, if there is one.
const WITHIN_PERCENT: u32 = 45;
/// Of 100 copies there those that are from another subvolume.
const FROM_OTHER_PERCENT: u32 = 40;
/// Of 100 operations those that limit somebody, where that is done.
const LIMIT_OPS_PERCENT: u32 = 6;
/// And of the others those on groups, projects, soft limits and what is open in snapshots.
const OWNER_OPS_PERCENT: u32 = 30;
/// And of the others those on quota itself, and on whole trees of a project.
const QUOTA_OPS_PERCENT: u32 = 16;
/// Users that are limited: those that files are given to.
const LIMITED_USERS: u32 = 3;
/// Blocks that one may take more when a limit is set.
const MORE_BLOCKS_MAX: u64 = 60;
/// Of 100 operations on content those that edit a few bytes, where that is done.
const EDITS_PERCENT: u32 = 60;
/// Bytes of one.
const EDIT_BYTES_MAX: u32 = 200;
/// Snapshots that there are at a time.
const SNAPSHOTS_MAX: usize = 4;

/// A source of operations.
pub struct Generator {
    rng: ChaCha8Rng,
    mix: Mix,
    /// Bytes of file data at most, all files together.
    bytes_max: u64,
    /// Operations that come first, the last of them first.
    first: Vec<Op>,
    /// Names of extended attributes.
    xattr_names: u32,
    /// Their values may be as long as values can be.
    long_xattrs: bool,
    /// Many copies are of whole blocks.
    clones: bool,
    /// Snapshots are taken and deleted.
    snapshots: bool,
    /// Snapshots are written to, get other names, and are gone back to.
    writable_snapshots: bool,
    /// Users are limited in what they may take.
    limits: bool,
    /// What the paths of the next operation begin with: nothing, or the name of a writable snapshot and a colon.
    within: String,
    /// Ranges are taken out of files and put in.
    shifts: bool,
    /// Content is often what was written before.
    repeats: bool,
    /// Most writes are of a few bytes of a file, and synced; zones are emptied at random.
    edits: bool,
    /// Groups and projects are limited too, and files in snapshots stay open.
    owners: bool,
    /// Quota is turned off and on, grace times change, and whole trees get a project.
    quotas: bool,
    fill: u64,
}

impl Generator {
    /// A source that keeps the files below `bytes_max` bytes together.
    #[must_use]
    pub fn new(seed: u64, mix: Mix, bytes_max: u64) -> Generator {
        Generator {
            rng: ChaCha8Rng::seed_from_u64(seed),
            mix,
            bytes_max,
            first: Vec::new(),
            xattr_names: 3,
            long_xattrs: false,
            clones: false,
            snapshots: false,
            writable_snapshots: false,
            limits: false,
            within: String::new(),
            shifts: false,
            repeats: false,
            edits: false,
            owners: false,
            quotas: false,
            fill: seed << 20,
        }
    }

    /// Files get up to so many extended attributes.
    #[must_use]
    pub fn xattrs(mut self, names: u32) -> Generator {
        self.xattr_names = names.max(1);
        self
    }

    /// Values of extended attributes may be as long as they can be.
    #[must_use]
    pub fn long_xattrs(mut self, long_xattrs: bool) -> Generator {
        self.long_xattrs = long_xattrs;
        self
    }

    /// Many copies are of whole blocks, which both files have then.
    #[must_use]
    pub fn clones(mut self, clones: bool) -> Generator {
        self.clones = clones;
        self
    }

    /// Snapshots are taken and deleted.
    #[must_use]
    pub fn snapshots(mut self, snapshots: bool) -> Generator {
        self.snapshots = snapshots;
        self
    }

    /// Snapshots are taken of snapshots too, written to, renamed, and gone back to.
    #[must_use]
    pub fn writable_snapshots(mut self, writable_snapshots: bool) -> Generator {
        self.writable_snapshots = writable_snapshots;
        self
    }

    /// Users are limited in what they may take.
    #[must_use]
    pub fn limits(mut self, limits: bool) -> Generator {
        self.limits = limits;
        self
    }

    /// Ranges are taken out of files and put in.
    #[must_use]
    pub fn shifts(mut self, shifts: bool) -> Generator {
        self.shifts = shifts;
        self
    }

    /// Most writes are of whole blocks and of one of few contents.
    #[must_use]
    pub fn repeats(mut self, repeats: bool) -> Generator {
        self.repeats = repeats;
        self
    }

    /// Most writes are of a few bytes of a file, and synced; zones are emptied at random.
    #[must_use]
    pub fn edits(mut self, edits: bool) -> Generator {
        self.edits = edits;
        self
    }

    /// Groups and projects are limited too, limits are soft as well, and files in snapshots stay open.
    #[must_use]
    pub fn owners(mut self, owners: bool) -> Generator {
        self.owners = owners;
        self
    }

    /// Quota is turned off and on, grace times change, and whole trees get a project.
    #[must_use]
    pub fn quotas(mut self, quotas: bool) -> Generator {
        self.quotas = quotas;
        self
    }

    /// First makes so many files that have all the extended attributes there are, each so large
    /// that a page of the tree holds four.
    #[must_use]
    pub fn populated(mut self, files: u32) -> Generator {
        for file in (0..files).rev() {
            let path = format!("/populated-{file}");
            for name in 0..self.xattr_names {
                let fill = self.next_fill();
                self.first.push(Op::SetXattr {
                    path: path.clone(),
                    name: format!("user.{name}"),
                    length: BULKY_BYTES,
                    fill,
                });
            }
            self.first.push(Op::Create { path, mode: 0o644 });
        }
        self
    }

    /// The next operation on a filesystem that looks like `model` now. Most succeed.
    pub fn next_op(&mut self, model: &Model) -> Op {
        if let Some(op) = self.first.pop() {
            return op;
        }
        let weights = self.mix.weights();
        let mut roll = self.rng.random_range(0..weights.iter().sum());
        let mut group = 0;
        for weight in weights {
            if roll < weight {
                break;
            }
            roll -= weight;
            group += 1;
        }
        let tree = model.now();
        if self.limits && self.chance(LIMIT_OPS_PERCENT) {
            return self.limit_op(tree);
        }
        if self.writable_snapshots {
            if self.chance(VERSION_OPS_PERCENT) {
                return self.version_op(tree);
            }
            self.go_within(tree);
            if self.owners && self.chance(OWNER_OPS_PERCENT) {
                return self.owner_op(model);
            }
            if self.quotas && self.chance(QUOTA_OPS_PERCENT) {
                return self.quota_op(tree);
            }
        } else if self.snapshots && self.chance(8) {
            return self.snapshot_op(tree);
        }
        match group {
            0 => self.name_op(tree),
            1 => self.attribute_op(tree),
            2 => self.data_op(model),
            3 => self.durability_op(tree),
            _ => self.background_op(),
        }
    }

    fn snapshot_op(&mut self, tree: &Tree) -> Op {
        let names: Vec<&String> = tree.snapshots().keys().collect();
        match self.rng.random_range(0..10) {
            0..4 if names.len() < SNAPSHOTS_MAX => {
                let name = format!("s{}", self.next_fill());
                Op::Snapshot {
                    name,
                    of: None,
                    is_writable: false,
                }
            }
            4..6 if !names.is_empty() => {
                let name = names.choose(&mut self.rng).map(|name| (*name).clone());
                let name = name.unwrap_or_default();
                Op::DeleteSnapshot { name }
            }
            _ => Op::Step(Step::Settle),
        }
    }

    /// A change of the snapshots of a volume in which they can be written to.
    fn version_op(&mut self, tree: &Tree) -> Op {
        let new = format!("s{}", self.next_fill());
        let there: Vec<String> = tree.snapshots().keys().cloned().collect();
        let has_room = there.len() < SNAPSHOTS_MAX;
        let roll = self.rng.random_range(0..20);
        let Some(one) = there.choose(&mut self.rng).cloned() else {
            return match roll {
                0..12 => Op::Snapshot {
                    name: new,
                    of: None,
                    is_writable: self.chance(60),
                },
                _ => Op::Step(Step::Settle),
            };
        };
        match roll {
            0..6 if has_room => Op::Snapshot {
                name: new,
                of: Some(one).filter(|_| self.chance(40)),
                is_writable: self.chance(60),
            },
            6..9 => Op::DeleteSnapshot { name: one },
            9..11 => Op::RenameSnapshot {
                from: one,
                to: match self.chance(80) {
                    true => new,
                    false => there.choose(&mut self.rng).cloned().unwrap_or(new),
                },
            },
            11..13 => Op::RollBack {
                to: one,
                keep: Some(new).filter(|_| has_room && self.chance(50)),
            },
            _ => Op::Step(Step::Settle),
        }
    }

    /// Chooses where the next operation is: in the main subvolume, or in a writable snapshot.
    fn go_within(&mut self, tree: &Tree) {
        let writable = tree.snapshots().iter();
        let writable = writable.filter(|(_, one)| matches!(one, Snapshot::Writable(_)));
        let writable: Vec<&String> = writable.map(|(name, _)| name).collect();
        self.within = match writable.choose(&mut self.rng) {
            Some(name) if self.chance(WITHIN_PERCENT) => format!("{name}:"),
            _ => String::new(),
        };
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn next_fill(&mut self) -> u64 {
        self.fill += 1;
        self.fill
    }

    /// A path below some directory, whether there is something or not.
    fn any_path(&mut self, tree: &Tree) -> String {
        let mut directories = self.paths_of(tree, |body| matches!(body, Body::Directory { .. }));
        directories.retain(|path| path.matches('/').count() <= 2);
        let directory = directories.choose(&mut self.rng).cloned();
        let directory = directory.unwrap_or_default();
        // The root directory alone ends so.
        let directory = directory.trim_end_matches('/');
        let name = NAMES.choose(&mut self.rng).copied().unwrap_or("a");
        format!("{directory}/{name}")
    }

    fn existing(&mut self, tree: &Tree, wanted: fn(&Body) -> bool) -> String {
        let mut paths = self.paths_of(tree, wanted);
        paths.retain(|path| !path.ends_with('/'));
        match paths.choose(&mut self.rng) {
            Some(path) if !self.rng.random_ratio(1, 30) => path.clone(),
            _ => self.any_path(tree),
        }
    }

    fn file(&mut self, tree: &Tree) -> Option<String> {
        self.paths_of(tree, |body| matches!(body, Body::File(_)))
            .choose(&mut self.rng)
            .cloned()
    }

    fn mode(&mut self) -> u32 {
        [0o600, 0o644, 0o640, 0o755, 0o700]
            .choose(&mut self.rng)
            .copied()
            .unwrap_or(0o644)
    }

    fn name_op(&mut self, tree: &Tree) -> Op {
        let anything = |_: &Body| true;
        match self.rng.random_range(0..100) {
            0..28 => Op::Create {
                path: self.any_path(tree),
                mode: self.mode(),
            },
            28..38 => Op::Mkdir {
                path: self.any_path(tree),
                mode: self.mode(),
            },
            38..43 => Op::Symlink {
                path: self.any_path(tree),
                target: "x".repeat(self.rng.random_range(1..200)),
            },
            43..45 => Op::Fifo {
                path: self.any_path(tree),
                mode: self.mode(),
            },
            45..54 => Op::Link {
                from: self.existing(tree, |body| !matches!(body, Body::Directory { .. })),
                to: self.any_path(tree),
            },
            54..69 => Op::Unlink {
                path: self.existing(tree, |body| !matches!(body, Body::Directory { .. })),
            },
            69..75 => Op::Rmdir {
                path: self.existing(tree, |body| matches!(body, Body::Directory { .. })),
            },
            _ => Op::Rename {
                from: self.existing(tree, anything),
                to: if self.chance(60) {
                    self.existing(tree, anything)
                } else {
                    self.any_path(tree)
                },
                mode: match self.rng.random_range(0..10) {
                    0 => Rename::NoReplace,
                    1 => Rename::Exchange,
                    _ => Rename::Replace,
                },
            },
        }
    }

    fn attribute_op(&mut self, tree: &Tree) -> Op {
        let plain = |body: &Body| matches!(body, Body::File(_) | Body::Directory { .. });
        let mut path = self.existing(tree, plain);
        let found = tree.lookup(&path).ok().and_then(|id| tree.node(id));
        if found.is_some_and(|node| !plain(&node.body)) {
            path = format!("{}/", self.within);
        }
        let name = format!("user.{}", self.rng.random_range(0..self.xattr_names));
        let lengths: &[u32] = match self.mix {
            _ if self.long_xattrs => &LONG_XATTR_BYTES,
            Mix::Bulky => &[100, 1000, 2500, BULKY_BYTES],
            _ => &[0, 5, 100, 1000],
        };
        let roll = match self.mix {
            Mix::Bulky => self.rng.random_range(2..10),
            _ => self.rng.random_range(0..6),
        };
        match roll {
            0 => Op::Chmod {
                path,
                mode: self.mode(),
            },
            1 => Op::Chown {
                path,
                uid: self.rng.random_range(0..3),
            },
            2 => Op::SetMtime {
                path,
                mtime: self.rng.random_range(0..u64::from(u32::MAX)),
            },
            3 | 8 | 9 => Op::RemoveXattr { path, name },
            _ => Op::SetXattr {
                path,
                name,
                length: lengths.choose(&mut self.rng).copied().unwrap_or(5),
                fill: self.next_fill(),
            },
        }
    }

    fn data_op(&mut self, model: &Model) -> Op {
        let tree = model.now();
        let Some(path) = self.file(tree) else {
            return Op::Create {
                path: self.any_path(tree),
                mode: 0o644,
            };
        };
        let size = size_of(tree, &path);
        if bytes_in(tree) > self.bytes_max {
            return match self.rng.random_range(0..3) {
                0 => Op::Unlink { path },
                _ => Op::Truncate {
                    size: self.rng.random_range(0..=size / 2),
                    path,
                },
            };
        }
        if self.edits && size > 0 && self.chance(EDITS_PERCENT) {
            return self.edit(path, size);
        }
        let slot = self.rng.random_range(0..SLOTS);
        match self.rng.random_range(0..100) {
            0..8 if self.within.is_empty() => match model.open_in(slot) {
                Some(_) if self.chance(50) => Op::Close { slot },
                Some(_) => Op::WriteOpen {
                    slot,
                    offset: self.offset(size),
                    length: self.length(),
                    fill: self.next_fill(),
                },
                None if model.slot(slot).is_some() => Op::ReadOpen { slot },
                None => Op::Open {
                    slot,
                    path,
                    truncate: self.chance(40),
                },
            },
            8..20 => self.truncate(path, size),
            20..30 => self.allocate(path, size),
            30..34 => self.copy(tree, path, size),
            34..40 => Op::Read { path },
            _ => {
                let (offset, length) = (self.offset(size), self.length());
                let (offset, length, fill) = self.content(offset, length);
                Op::Write {
                    path,
                    offset,
                    length,
                    fill,
                    durability: match (self.mix, self.rng.random_range(0..10)) {
                        (Mix::Synchronous, 0..3) | (_, 0) => Durability::DataSync,
                        (Mix::Synchronous, 3..5) | (_, 1) => Durability::Sync,
                        _ => Durability::Buffered,
                    },
                }
            }
        }
    }

    fn edit(&mut self, path: String, size: u64) -> Op {
        Op::Write {
            path,
            offset: self.rng.random_range(0..size),
            length: self.rng.random_range(1..=EDIT_BYTES_MAX),
            fill: self.next_fill(),
            durability: match self.chance(50) {
                true => Durability::DataSync,
                false => Durability::Sync,
            },
        }
    }

    /// What is written, and where: something new, or whole blocks of what was written before.
    fn content(&mut self, offset: u64, length: u32) -> (u64, u32, u64) {
        if !self.repeats || self.chance(30) {
            return (offset, length, self.next_fill());
        }
        let blocks = self.rng.random_range(1..=REPEATED_BLOCKS_MAX);
        let fill = self.rng.random_range(1..=REPEATED_FILLS);
        (offset - offset % BLOCK, blocks * BLOCK as u32, fill)
    }

    fn truncate(&mut self, path: String, size: u64) -> Op {
        Op::Truncate {
            size: match self.rng.random_range(0..4) {
                0 => 0,
                1 => self.offset(size),
                2 => self.rng.random_range(0..=size),
                _ => self.rng.random_range(0..=size).next_multiple_of(BLOCK),
            },
            path,
        }
    }

    /// Takes a range out, mostly one that is there, or puts one in.
    fn shift(&mut self, path: String, size: u64) -> Op {
        let blocks = (size / BLOCK).max(1);
        let (at, by) = (
            self.rng.random_range(0..=blocks),
            self.rng.random_range(1..=blocks.min(12)),
        );
        Op::Allocate {
            path,
            offset: at * BLOCK,
            length: by * BLOCK,
            what: match self.chance(60) {
                true => Allocate::Collapse,
                false => Allocate::Insert,
            },
        }
    }

    fn allocate(&mut self, path: String, size: u64) -> Op {
        if self.shifts && self.chance(60) {
            return self.shift(path, size);
        }
        let offset = self.offset(size);
        let mut length = u64::from(self.length());
        if self.chance(50) {
            length = length.next_multiple_of(BLOCK);
        }
        Op::Allocate {
            path,
            offset: if self.chance(50) {
                offset - offset % BLOCK
            } else {
                offset
            },
            length,
            what: match self.rng.random_range(0..6) {
                0 => Allocate::Reserve,
                1 => Allocate::ReserveKeepSize,
                2 => Allocate::Zero,
                _ => Allocate::Punch,
            },
        }
    }

    fn copy(&mut self, tree: &Tree, to: String, size: u64) -> Op {
        let from = self.file(tree).unwrap_or_else(|| to.clone());
        let from = self.other_file(tree).unwrap_or(from);
        let from_size = size_of(tree, &from);
        let length = u64::from(self.length());
        let from_offset = self.rng.random_range(0..=from_size);
        let mut to_offset = self.offset(size);
        let is_same = same_file(tree, &from, &to);
        if self.clones && to_offset & 1 == 0 {
            // Whole blocks, which both files have then.
            let (from_offset, length) = (
                from_offset / BLOCK * BLOCK,
                4 * length / BLOCK * BLOCK + BLOCK,
            );
            let to_offset = to_offset / BLOCK * BLOCK;
            return Op::Copy {
                from,
                to,
                from_offset,
                to_offset: if is_same {
                    to_offset.max(from_offset + length)
                } else {
                    to_offset
                },
                length,
            };
        }
        if is_same {
            to_offset = to_offset.max(from_offset + length);
        }
        Op::Copy {
            from,
            to,
            from_offset,
            to_offset,
            length,
        }
    }

    /// Some copies are from a file of another subvolume, which may be a read-only snapshot.
    fn other_file(&mut self, tree: &Tree) -> Option<String> {
        if !self.writable_snapshots || !self.chance(FROM_OTHER_PERCENT) {
            return None;
        }
        let name = tree.snapshots().keys().choose(&mut self.rng)?;
        let (inside, root) = tree.snapshot(name)?;
        let paths = inside.walk_below(root, &format!("{name}:"));
        let files = paths.into_iter().filter(|(_, id)| {
            let node = inside.node(*id);
            node.is_some_and(|node| node.content().is_some())
        });
        files.map(|(path, _)| path).choose(&mut self.rng)
    }

    /// Where to write in a file of `size` bytes: often at its end, at block boundaries, in places
    /// written before; rarely far away.
    fn offset(&mut self, size: u64) -> u64 {
        match self.rng.random_range(0..40) {
            0..12 => size,
            12..18 => 0,
            18..26 => self.rng.random_range(0..=size),
            26..32 => self.rng.random_range(0..=size) / BLOCK * BLOCK,
            32..36 => (self.rng.random_range(1..8) * BLOCK + self.rng.random_range(0..3)) - 1,
            36..39 => size + self.rng.random_range(0..5 * BLOCK),
            _ => 1 << self.rng.random_range(20..40),
        }
    }

    fn length(&mut self) -> u32 {
        match (self.mix, self.rng.random_range(0..20)) {
            (Mix::Full, 0..14) => self.rng.random_range(30_000..250_000),
            (Mix::Churn, 0..10) => self.rng.random_range(4096..60_000),
            (_, 0..8) => self.rng.random_range(1..200),
            (_, 8..12) => 4096,
            (_, 12..15) => 4096 * self.rng.random_range(1..8),
            (_, 15..19) => self.rng.random_range(1..20_000),
            _ => self.rng.random_range(1..150_000),
        }
    }

    fn durability_op(&mut self, tree: &Tree) -> Op {
        match self.rng.random_range(0..10) {
            0..6 => match self.file(tree) {
                Some(path) => Op::Fsync {
                    path,
                    data_only: self.chance(40),
                },
                None => Op::Sync,
            },
            6..8 => Op::FsyncDir {
                path: self
                    .paths_of(tree, |body| matches!(body, Body::Directory { .. }))
                    .choose(&mut self.rng)
                    .cloned()
                    .unwrap_or_else(|| "/".to_owned()),
            },
            8 => Op::Sync,
            _ => Op::Step(Step::Commit),
        }
    }

    /// Paths of what is wanted where the operation is.
    fn paths_of(&self, tree: &Tree, wanted: impl Fn(&Body) -> bool) -> Vec<String> {
        let root = tree.lookup(&self.within).unwrap_or(ROOT);
        tree.walk_below(root, &self.within)
            .into_iter()
            .filter(|(_, id)| tree.node(*id).is_some_and(|node| wanted(&node.body)))
            .map(|(path, _)| path)
            .collect()
    }

    fn background_op(&mut self) -> Op {
        if self.edits && self.chance(50) {
            return Op::Step(Step::Empty(self.rng.random()));
        }
        match self.rng.random_range(0..20) {
            0..7 => Op::Step(Step::WriteBack),
            7..9 => Op::Step(Step::Commit),
            9..13 => Op::Step(Step::Checkpoint),
            13..19 => Op::Step(Step::Clean),
            _ => Op::Remount,
        }
    }
}

fn size_of(tree: &Tree, path: &str) -> u64 {
    let node = tree.find(path).ok();
    node.and_then(|node| node.content()).map_or(0, |c| c.size())
}

fn same_file(tree: &Tree, one: &str, other: &str) -> bool {
    tree.lookup(one).unwrap_or(ROOT) == tree.lookup(other).unwrap_or(ROOT)
}

/// Bytes of all files together, each counted once and none for more than it can hold blocks of; those of writable snapshots count as if
/// these had nothing in common.
fn bytes_in(tree: &Tree) -> u64 {
    let mut files: Vec<_> = tree.walk().into_values().collect();
    for snapshot in tree.snapshots().values() {
        if let Snapshot::Writable(root) = snapshot {
            files.extend(tree.walk_below(*root, "").into_values());
        }
    }
    files.sort_unstable();
    files.dedup();
    files
        .into_iter()
        .filter_map(|id| tree.node(id)?.content())
        .map(|content| content.bytes_held())
        .sum()
}
