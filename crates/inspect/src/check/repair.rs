//! What would put items and names right, as operations for the engine: nothing here writes.
//!
//! A plan mends what can be decided; what one mending brings to light (a file without a name that
//! is put into `lost+found` has a wrong link count there) the next check finds. So repairing is
//! checking and carrying out, again and again, until a plan is empty.

use std::collections::{BTreeMap, HashSet};

use persimmon_format::inode::{Inode, ROOT, SHARED};
use persimmon_format::name::{self, DirEntry, PROBE_ITEMS};
use persimmon_format::record::Op;
use persimmon_format::{Ino, Key, KeyKind, VersionId, ZoneId};

use crate::state::State;
use crate::volume::Inspector;

/// Operations of one plan; more wait for the next check.
const OPS_MAX: usize = 20_000;
const LOST_AND_FOUND: &[u8] = b"lost+found";
const DIRECTORY: u32 = 0o040_700;
const FILE: u32 = 0o100_600;

/// What a repair has to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Items to put and to delete, in order.
    pub ops: Vec<Op>,
    /// The counts of the checkpoint are to be made again from the tree.
    pub recount: bool,
    /// Zones to move everything out of, so that their next use gives them a good header.
    pub zones: Vec<ZoneId>,
    /// More is wrong than this puts right, the counts of shared blocks perhaps: nothing may be freed before a later plan has put right
    /// all, for what is freed with a count that is too low is taken from other files.
    pub partial: bool,
}

impl Repairs {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && !self.recount && self.zones.is_empty()
    }
}

/// A plan while the check goes on.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    repairs: Repairs,
    /// There are several versions. What is planned is done to what the main subvolume shows. No extent of a file is put or deleted: others
    /// may have one at the same place, and each shows another.
    pub is_versioned: bool,
    /// Keys that operations put.
    keys: HashSet<Key>,
    /// Keys that operations delete.
    deleted: HashSet<Key>,
    /// Corrections of inodes, joined so that one does not undo another.
    inodes: BTreeMap<Ino, Corrections>,
    /// Entries whose type is to be another.
    types: Vec<(Key, u8)>,
    /// Inodes to put into `lost+found`, with their types.
    strays: Vec<(Ino, u8)>,
}

/// Fields of an inode to correct.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Corrections {
    pub nlink: Option<u32>,
    pub size: Option<u64>,
    pub sectors: Option<u64>,
    pub parent: Option<Ino>,
    pub xattr_names: Option<u32>,
    pub flags: Option<u32>,
}

impl Corrections {
    /// Sets a flag of the inode, beside those that are set already.
    pub(crate) fn set_flag(&mut self, inode: &Inode, flag: u32) {
        self.flags = Some(self.flags.unwrap_or(inode.flags) | flag);
    }
}

impl Plan {
    pub(crate) fn put(&mut self, key: Key, value: Vec<u8>) {
        let key = key.at(VersionId(0));
        if !self.is_refused(&key) && self.takes_more(self.repairs.ops.len()) {
            self.keys.insert(key);
            self.repairs.ops.push(Op::Put { key, value });
        }
    }

    pub(crate) fn delete(&mut self, key: Key) {
        let key = key.at(VersionId(0));
        if !self.is_refused(&key) && self.takes_more(self.repairs.ops.len()) {
            self.deleted.insert(key);
            self.repairs.ops.push(Op::Delete { key });
        }
    }

    pub(crate) fn set_entry_type(&mut self, key: Key, file_type: u8) {
        if self.takes_more(self.types.len()) {
            self.types.push((key, file_type));
        }
    }

    pub(crate) fn recount(&mut self) {
        self.repairs.recount = true;
    }

    pub(crate) fn empty_zone(&mut self, zone: ZoneId) {
        self.repairs.zones.push(zone);
    }

    fn is_refused(&self, key: &Key) -> bool {
        self.is_versioned && key.kind == KeyKind::EXTENT && key.ino != SHARED
    }

    /// Whether there is room beside so many; if not, the plan is a part of what is to be done.
    fn takes_more(&mut self, there_are: usize) -> bool {
        self.repairs.partial |= there_are >= OPS_MAX;
        there_are < OPS_MAX
    }

    pub(crate) fn correct(&mut self, ino: Ino, change: impl FnOnce(&mut Corrections)) {
        if self.takes_more(self.inodes.len()) {
            change(self.inodes.entry(ino).or_default());
        }
    }

    pub(crate) fn stray(&mut self, ino: Ino, file_type: u8) {
        if self.takes_more(self.strays.len()) {
            self.strays.push((ino, file_type));
        }
    }

    /// Files a named item under the key that its name asks for, if there is a free one.
    pub(crate) fn refile(&mut self, state: &State<'_, '_>, key: Key, first: u64, value: &[u8]) {
        if let Some(free) = self.free_key(state, key.ino, key.kind, first) {
            self.put(free, value.to_vec());
            self.delete(key);
        }
    }

    fn free_key(&self, state: &State<'_, '_>, ino: Ino, kind: KeyKind, first: u64) -> Option<Key> {
        (first..first.saturating_add(PROBE_ITEMS))
            .map(|item| Key::new(ino, kind, item))
            .find(|key| !self.keys.contains(key) && state.visible(key).is_none())
    }

    /// Gives items without an inode one that is an orphan, so that all are freed together.
    pub(crate) fn adopt_to_free(&mut self, ino: Ino, size: u64, sectors: u64) {
        let inode = Inode {
            mode: FILE,
            size,
            sectors,
            ..Inode::default()
        };
        self.put(Key::inode(ino), inode.encode());
        self.put(Key::orphan(ino), Vec::new());
    }

    /// The operations, corrections and strays included.
    pub(crate) fn finish(
        mut self,
        inspector: &Inspector<'_>,
        state: &State<'_, '_>,
        ino_limit: u64,
    ) -> Repairs {
        self.take_in_strays(inspector, state, ino_limit);
        for (key, file_type) in std::mem::take(&mut self.types) {
            // One that is filed or named anew keeps its wrong type until the next check.
            if self.deleted.contains(&key) {
                continue;
            }
            if let Some(value) = state.visible(&key)
                && let Ok(entry) = DirEntry::decode(&value)
            {
                self.put(key, DirEntry { file_type, ..entry }.encode());
            }
        }
        for (ino, corrections) in std::mem::take(&mut self.inodes) {
            let Some(mut inode) = state.inode(ino) else {
                continue;
            };
            inode.nlink = corrections.nlink.unwrap_or(inode.nlink);
            inode.size = corrections.size.unwrap_or(inode.size);
            inode.sectors = corrections.sectors.unwrap_or(inode.sectors);
            inode.parent = corrections.parent.unwrap_or(inode.parent);
            inode.xattr_names = corrections.xattr_names.unwrap_or(inode.xattr_names);
            inode.flags = corrections.flags.unwrap_or(inode.flags);
            self.put(Key::inode(ino), inode.encode());
        }
        self.repairs
    }

    fn take_in_strays(&mut self, inspector: &Inspector<'_>, state: &State<'_, '_>, ino_limit: u64) {
        if self.strays.is_empty() {
            return;
        }
        let shelter = match find_entry(inspector, state, ROOT, LOST_AND_FOUND) {
            Some(ino) => ino,
            None => self.make_shelter(inspector, state, ino_limit),
        };
        for (ino, file_type) in std::mem::take(&mut self.strays) {
            let name = format!("#{ino}");
            self.add_entry(inspector, state, shelter, name.as_bytes(), ino, file_type);
        }
    }

    fn make_shelter(
        &mut self,
        inspector: &Inspector<'_>,
        state: &State<'_, '_>,
        ino_limit: u64,
    ) -> Ino {
        let ino = Ino(ino_limit.max(inspector.lot_end()));
        let root = state.inode(ROOT).unwrap_or_default();
        let inode = Inode {
            mode: DIRECTORY,
            nlink: 2,
            parent: ROOT,
            atime: root.ctime,
            mtime: root.ctime,
            ctime: root.ctime,
            btime: root.ctime,
            ..Inode::default()
        };
        self.put(Key::inode(ino), inode.encode());
        self.add_entry(
            inspector,
            state,
            ROOT,
            LOST_AND_FOUND,
            ino,
            inode.file_type(),
        );
        ino
    }

    /// Adds an entry. The directory's size and link count are left to the next check.
    pub(crate) fn add_entry(
        &mut self,
        inspector: &Inspector<'_>,
        state: &State<'_, '_>,
        directory: Ino,
        name: &[u8],
        ino: Ino,
        file_type: u8,
    ) {
        let entry = DirEntry {
            ino,
            file_type,
            name,
        };
        let first = name::first_item(&inspector.key, name);
        if let Some(key) = self.free_key(state, directory, KeyKind::DIR_ENTRY, first) {
            self.put(key, entry.encode());
        }
    }
}

fn find_entry(
    inspector: &Inspector<'_>,
    state: &State<'_, '_>,
    directory: Ino,
    name: &[u8],
) -> Option<Ino> {
    let found = state.lookup(inspector, directory, name)?;
    state.inode(found)?.is_dir().then_some(found)
}
