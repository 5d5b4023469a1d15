//! The items of one inode that a subvolume shows: attributes, entries, extents.

use persimmon_format::delta::is_delta;
use persimmon_format::extent::Extent;
use persimmon_format::inode::Inode;
use persimmon_format::name::{self, DirEntry, PROBE_ITEMS};
use persimmon_format::packed::FrameTally;
use persimmon_format::xattr::{Piece, Pieces, Xattr, XattrValue, piece_key, slot_of};
use persimmon_format::zone_header::LONG_XATTRS;
use persimmon_format::{BLOCK_SIZE, Ino, Key, shown};

use std::collections::{HashMap, HashSet};

use super::files::{Context, check_mode, item};
use super::links::EntryRow;
use crate::finding::{
    ENTRY_HASH, ENTRY_NAME, ENTRY_TWICE, EXTENT_PAST_END, INODE_ITEMS, ITEM_VALUE, TRUNCATION_SIZE,
    XATTR_HASH, XATTR_PIECE_UNNAMED, XATTR_PIECES, XATTR_TWICE,
};

/// Said of values in pieces without the feature.
const NO_LONG_XATTRS: &str = "the volume has no long values of attributes";

/// An inode while its items go by.
pub(crate) struct Current {
    pub ino: Ino,
    pub seen: bool,
    pub inode: Option<Inode>,
    pub symlink_len: Option<u64>,
    /// Bytes of the names of its attributes, each with the zero byte that ends it in a list.
    pub xattr_names: u32,
    /// Slots that attributes have the pieces of their values in, and the key behind the last piece of each.
    slots: HashMap<u64, Key>,
    pub entries: u64,
    pub sectors: u64,
    /// Those of its attributes, which count where the volume has the feature.
    pub xattr_sectors: u64,
    extents: u64,
    tally: FrameTally,
    pub data_end: u64,
    pub has_deltas: bool,
    /// The last named item.
    last_named: Option<Key>,
    /// Names since the last gap that no search crosses, to find a name that is there twice.
    near_names: HashSet<Vec<u8>>,
}

impl Current {
    pub(crate) fn new(ino: Ino) -> Current {
        Current {
            ino,
            seen: false,
            inode: None,
            symlink_len: None,
            xattr_names: 0,
            slots: HashMap::new(),
            entries: 0,
            sectors: 0,
            xattr_sectors: 0,
            extents: 0,
            tally: FrameTally::default(),
            data_end: 0,
            has_deltas: false,
            last_named: None,
            near_names: HashSet::new(),
        }
    }

    pub(crate) fn xattr(&mut self, context: &mut Context<'_, '_>, key: &Key, value: &[u8]) {
        if let Some(slot) = slot_of(key) {
            return self.piece(context, key, slot, value);
        }
        context.counts.xattrs += 1;
        let attribute = match Xattr::decode(value) {
            Ok(attribute) => attribute,
            Err(error) => {
                context.findings.add(&ITEM_VALUE, item(key), error);
                context.plan.delete(*key);
                return;
            }
        };
        let filed = name::first_item(&context.inspector.key, attribute.name);
        let text = shown(attribute.name);
        if self.is_twice(key, attribute.name) {
            context.findings.add(&XATTR_TWICE, item(key), text);
            context.plan.delete(*key);
        } else {
            if !name::may_have(filed, key.item) {
                context.findings.add(&XATTR_HASH, item(key), text);
                context.plan.refile(context.state, *key, filed, value);
            }
            if let XattrValue::Pieces(pieces) = attribute.value {
                self.value_in_pieces(context, key, (&text, pieces));
            }
        }
        self.xattr_names = self
            .xattr_names
            .saturating_add(Xattr::listed_len(attribute.name));
        self.xattr_sectors = self.xattr_sectors.saturating_add(attribute.sectors());
    }

    /// An attribute whose value is in pieces, which come later.
    fn value_in_pieces(
        &mut self,
        context: &mut Context<'_, '_>,
        key: &Key,
        (name, pieces): (&dyn std::fmt::Display, Pieces),
    ) {
        let slot = pieces.slot();
        if !has_long_xattrs(context) {
            context.findings.add(&ITEM_VALUE, item(key), NO_LONG_XATTRS);
            return;
        }
        let joined = context.state.joined(&context.scope, key.ino, pieces);
        let wrong = match joined {
            Ok(_) if self.slots.contains_key(&slot) => "another one has its pieces".to_owned(),
            Ok(_) => {
                let last = (pieces.count() - 1) as u8;
                self.slots.insert(slot, piece_key(key.ino, slot, last));
                return;
            }
            Err(error) => error.to_string(),
        };
        if !context.lost {
            let detail = format!("{name}: {wrong}");
            context.findings.add(&XATTR_PIECES, item(key), detail);
            context.plan.delete(*key);
        }
    }

    /// A piece of a value. What it has was looked at with the attribute that it belongs to.
    fn piece(&mut self, context: &mut Context<'_, '_>, key: &Key, slot: u64, value: &[u8]) {
        if !has_long_xattrs(context) {
            context.findings.add(&ITEM_VALUE, item(key), NO_LONG_XATTRS);
            return;
        }
        let last = self.slots.get(&slot);
        if last.is_some_and(|last| key.item <= last.item) || context.lost {
            return;
        }
        let detail = match Piece::decode(key, value) {
            Ok(piece) => format!("{} bytes", piece.bytes.len()),
            Err(error) => error.to_string(),
        };
        context
            .findings
            .add(&XATTR_PIECE_UNNAMED, item(key), detail);
        context.plan.delete(*key);
    }

    pub(crate) fn entry(&mut self, context: &mut Context<'_, '_>, key: &Key, value: &[u8]) {
        self.entries += 1;
        context.counts.entries += 1;
        let entry = match DirEntry::decode(value) {
            Ok(entry) => entry,
            Err(error) => {
                context.findings.add(&ITEM_VALUE, item(key), error);
                context.plan.delete(*key);
                return;
            }
        };
        let place = format!("directory {}", key.ino);
        let name = entry.name;
        let text = format!("\"{}\"", shown(name));
        let filed = name::first_item(&context.inspector.key, name);
        let twice = self.is_twice(key, name);
        if !entry.has_possible_name() {
            context.findings.add(&ENTRY_NAME, &place, &text);
            rename(context, key, &entry);
        } else if twice {
            context.findings.add(&ENTRY_TWICE, &place, &text);
            rename(context, key, &entry);
        } else if !name::may_have(filed, key.item) {
            context.findings.add(&ENTRY_HASH, &place, &text);
            context.plan.refile(context.state, *key, filed, value);
        }
        context.names.entries.push(EntryRow {
            child: entry.ino.0,
            directory: key.ino.0,
            item: key.item,
            file_type: entry.file_type,
        });
    }

    fn is_twice(&mut self, key: &Key, name: &[u8]) -> bool {
        // Two items of one name that are further apart are not both where it may be: that is told.
        let is_near = self.last_named.is_some_and(|last| {
            last.kind == key.kind && key.item.saturating_sub(last.item) < PROBE_ITEMS
        });
        if !is_near {
            self.near_names.clear();
        }
        self.last_named = Some(*key);
        !self.near_names.insert(name.to_vec())
    }

    /// Takes an extent that is shown.
    pub(crate) fn extent(&mut self, key: &Key, extent: &Extent) {
        self.extents += 1;
        self.sectors = self
            .sectors
            .saturating_add(self.tally.extent(key.ino, key.item, extent).sectors);
        if is_delta(key.item) {
            self.has_deltas |= !matches!(extent, Extent::Hole { .. });
        } else if !matches!(extent, Extent::Reserved { .. } | Extent::Hole { .. }) {
            self.data_end = key.item.saturating_add(extent.blocks());
        }
    }

    /// Whether the items suit the inode.
    pub(crate) fn check_items(&self, context: &mut Context<'_, '_>, inode: &Inode, place: &str) {
        check_mode(inode, place, context.findings);
        let wrong = [
            (self.entries > 0 && !inode.is_dir(), "directory entries"),
            (self.extents > 0 && !inode.is_file(), "extents"),
            (
                self.symlink_len.is_some() && !inode.is_symlink(),
                "a target",
            ),
        ];
        for (_, what) in wrong.into_iter().filter(|(wrong, _)| *wrong) {
            context.findings.add(&INODE_ITEMS, place, what);
        }
        let blocks = inode.size.div_ceil(BLOCK_SIZE as u64);
        let truncation = context
            .truncations
            .binary_search_by_key(&self.ino.0, |(ino, _)| *ino);
        let kept = truncation.ok().and_then(|at| context.truncations.get(at));
        if let Some((_, kept)) = kept.copied()
            && inode.is_file()
            && kept < blocks
        {
            let detail = format!("blocks from {kept} on, its size is {}", inode.size);
            context.findings.add(&TRUNCATION_SIZE, place, detail);
            let value = blocks.to_le_bytes().to_vec();
            context.plan.put(Key::truncation(self.ino), value);
        }
        if inode.is_file() && self.data_end > blocks && truncation.is_err() {
            let detail = format!(
                "its size is {}, it has block {}",
                inode.size,
                self.data_end - 1
            );
            context.findings.add(&EXTENT_PAST_END, place, detail);
            let value = blocks.to_le_bytes().to_vec();
            context.plan.put(Key::truncation(self.ino), value);
        }
    }
}

fn has_long_xattrs(context: &Context<'_, '_>) -> bool {
    context.inspector.identity.incompatible & LONG_XATTRS != 0
}

/// Plans another name for an entry that cannot keep its own.
fn rename(context: &mut Context<'_, '_>, key: &Key, entry: &DirEntry<'_>) {
    let name = format!("#{}-{:x}", entry.ino, key.item);
    let (inspector, state) = (context.inspector, context.state);
    let (ino, file_type) = (entry.ino, entry.file_type);
    context
        .plan
        .add_entry(inspector, state, key.ino, name.as_bytes(), ino, file_type);
    context.plan.delete(*key);
}
