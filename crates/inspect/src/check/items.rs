//! The items of one inode: attributes, entries, extents.

use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, SHARED};
use persimmon_format::name::{self, DirEntry, PROBE_ITEMS, Xattr};
use persimmon_format::packed::{self, FrameTally, PACK_UNIT, Packed};
use persimmon_format::table::Role;
use persimmon_format::zone_header::FRAMES;
use persimmon_format::{Addr, BLOCK_SIZE, Ino, Key, shown};

use std::collections::HashSet;

use super::files::{Context, NO_SHARED_BLOCKS, check_mode, item};
use super::links::EntryRow;
use crate::finding::{
    DATA, ENTRY_HASH, ENTRY_NAME, ENTRY_TWICE, EXTENT_OVERLAP, EXTENT_PAST_END, EXTENT_PLACE,
    EXTENT_SHARED, INODE_ITEMS, ITEM_VALUE, XATTR_HASH, XATTR_TWICE,
};
use crate::replay::first_bad_block;

/// An inode while its items go by.
pub(crate) struct Current {
    pub ino: Ino,
    pub seen: bool,
    pub inode: Option<Inode>,
    pub symlink_len: Option<u64>,
    /// Bytes of the names of its attributes, each with the zero byte that ends it in a list.
    pub xattr_names: u32,
    pub entries: u64,
    pub sectors: u64,
    extents: u64,
    next_block: u64,
    tally: FrameTally,
    frames: Vec<SeenFrame>,
    pub data_end: u64,
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
            entries: 0,
            sectors: 0,
            extents: 0,
            next_block: 0,
            tally: FrameTally::default(),
            frames: Vec::new(),
            data_end: 0,
            last_named: None,
            near_names: HashSet::new(),
        }
    }

    pub(crate) fn xattr(&mut self, context: &mut Context<'_, '_>, key: &Key, value: &[u8]) {
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
        } else if !name::may_have(filed, key.item) {
            context.findings.add(&XATTR_HASH, item(key), text);
            context.plan.refile(context.state, *key, filed, value);
        }
        self.xattr_names = self
            .xattr_names
            .saturating_add(Xattr::listed_len(attribute.name));
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

    pub(crate) fn extent(&mut self, context: &mut Context<'_, '_>, key: &Key, value: &[u8]) {
        let extent = match Extent::decode(value) {
            Ok(extent) => extent,
            Err(error) => {
                context.findings.add(&ITEM_VALUE, item(key), error);
                return;
            }
        };
        self.extents += 1;
        self.sectors = self
            .sectors
            .saturating_add(self.tally.extent(key.ino, key.item, &extent).sectors);
        context.counts.extents += 1;
        let place = format!("inode {}, block {}", key.ino, key.item);
        if key.item < self.next_block {
            context.findings.add(&EXTENT_OVERLAP, &place, "");
        }
        self.next_block = key.item.saturating_add(extent.blocks());
        if key.ino == SHARED {
            context.sharing.extent(key.item, &extent, context.findings);
        }
        match &extent {
            Extent::Reserved { blocks } => context.counts.reserved_blocks += u64::from(*blocks),
            Extent::Inline(_) | Extent::Compressed(_) => {
                context.counts.inline_blocks += 1;
                self.data_end = self.next_block;
                if let Extent::Compressed(bytes) = &extent
                    && packed::decompress(bytes).is_none()
                {
                    let detail = "compressed content is malformed";
                    context.findings.add(&ITEM_VALUE, item(key), detail);
                }
            }
            Extent::Packed(packed) => {
                let blocks = u64::from(packed.blocks);
                context.counts.data_blocks += blocks;
                context.counts.packed_blocks += blocks;
                self.data_end = self.next_block;
                if context.inspector.media.is_offline(packed.addr.zone()) {
                    lose(context, key, blocks, packed.addr);
                    return;
                }
                self.packed_extent(context, key, packed, &place);
            }
            Extent::Frame { addr, crcs } => {
                context.counts.data_blocks += crcs.len() as u64;
                self.data_end = self.next_block;
                if context.inspector.media.is_offline(addr.zone()) {
                    lose(context, key, crcs.len() as u64, *addr);
                    return;
                }
                frame(context, key, *addr, crcs, &place);
            }
            Extent::Shared { at, blocks } => {
                self.data_end = self.next_block;
                if !context.has_shared_blocks() {
                    context
                        .findings
                        .add(&ITEM_VALUE, item(key), NO_SHARED_BLOCKS);
                }
                if key.ino != SHARED {
                    context.shared_extent(key, *at, (*blocks).into());
                }
            }
        }
    }

    fn packed_extent(
        &mut self,
        context: &mut Context<'_, '_>,
        key: &Key,
        packed: &Packed,
        place: &str,
    ) {
        let Some((start, end)) = packed.frame_at(key.item) else {
            let detail = format!("{} blocks of its frame are before it", packed.skip);
            context.findings.add(&ITEM_VALUE, item(key), detail);
            return;
        };
        if !packed.is_short() && context.inspector.identity.incompatible & FRAMES == 0 {
            let detail = "the volume has no compressed frames of several blocks";
            context.findings.add(&ITEM_VALUE, item(key), detail);
        }
        let addr = packed.addr;
        if !is_possible(context, addr, packed.span().into(), place) {
            return;
        }
        self.frames.retain(|seen| seen.end > key.item);
        let known = self.frames.iter_mut();
        let mut same = known.filter(|seen| seen.start == start && seen.whole == packed.whole());
        if let Some(seen) = same.next() {
            let taken = seen.take(packed);
            if taken > 0 {
                let detail = format!("{taken} blocks of the frame at {addr}");
                context.findings.add(&EXTENT_SHARED, place, detail);
            }
        } else {
            let taken = context.owners.claim_frame(packed);
            if taken > 0 {
                let detail = format!("{} bytes at {addr}", taken * PACK_UNIT as u64);
                context.findings.add(&EXTENT_SHARED, place, detail);
            }
            let mut seen = SeenFrame {
                start,
                end,
                whole: packed.whole(),
                blocks: 0,
            };
            seen.take(packed);
            self.frames.push(seen);
        }
        if context.options.data {
            let blocks = context.inspector.media.read(addr, packed.span());
            if blocks.is_ok_and(|blocks| packed.content(&blocks).is_some()) {
                context.counts.data_blocks_verified += u64::from(packed.blocks);
            } else {
                context
                    .findings
                    .add(&DATA, place, format_args!("the one at {addr}"));
                if key.ino == SHARED {
                    let blocks = packed.blocks.into();
                    context.sharing.damage(key.item, blocks, addr);
                }
            }
            (context.progress)(context.counts.data_blocks_verified);
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
        let truncating = context.truncations.binary_search(&self.ino.0).is_ok();
        if inode.is_file() && self.data_end > blocks && !truncating {
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

/// A frame of which a file has something: other parts of it may come.
struct SeenFrame {
    /// File block that it begins with.
    start: u64,
    /// File block behind it.
    end: u64,
    whole: Packed,
    /// A bit for each block of it that the file has.
    blocks: u32,
}

impl SeenFrame {
    /// Takes the blocks of a part; tells how many of them were taken before.
    fn take(&mut self, part: &Packed) -> u32 {
        let end = u32::from(part.skip) + u32::from(part.blocks);
        let blocks = (u32::from(part.skip)..end)
            .map(|at| 1u32.checked_shl(at).unwrap_or(0))
            .fold(0, |all, one| all | one);
        let taken = (self.blocks & blocks).count_ones();
        self.blocks |= blocks;
        taken
    }
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

/// Whether file data can be there; told if not.
fn is_possible(context: &mut Context<'_, '_>, addr: Addr, blocks: u64, place: &str) -> bool {
    let inspector = context.inspector;
    let data = inspector
        .header(addr.zone())
        .is_none_or(|header| header.role == Role::Data);
    let possible = addr.block() != 0 && data && inspector.media.is_written(addr, blocks);
    if !possible {
        let detail = format!("{addr}, {blocks} blocks");
        context.findings.add(&EXTENT_PLACE, place, detail);
    }
    possible
}

/// Blocks of an extent are lost with their zone.
fn lose(context: &mut Context<'_, '_>, key: &Key, blocks: u64, addr: Addr) {
    if key.ino == SHARED {
        // Told with the files that have them.
        context.sharing.lose(key.item, blocks, addr.zone());
    } else {
        context.losses.add(key, blocks, addr.zone());
    }
}

fn frame(context: &mut Context<'_, '_>, key: &Key, addr: Addr, crcs: &[u32], place: &str) {
    let blocks = crcs.len() as u64;
    let inspector = context.inspector;
    if !is_possible(context, addr, blocks, place) {
        return;
    }
    let taken = context.owners.claim(addr, blocks);
    if taken > 0 {
        let detail = format!("{taken} blocks at {addr}");
        context.findings.add(&EXTENT_SHARED, place, detail);
    }
    if context.options.data {
        let mut done = 0;
        while let Some(rest) = crcs.get(done..).filter(|rest| !rest.is_empty()) {
            let bad = first_bad_block(&inspector.media, addr.offset(done as u32), rest);
            let Some(bad) = bad else { break };
            context
                .findings
                .add(&DATA, place, format_args!("the one at {bad}"));
            let at = bad.block() - addr.block();
            if key.ino == SHARED {
                let block = key.item.saturating_add(at.into());
                context.sharing.damage(block, 1, bad);
            }
            done = at as usize + 1;
        }
        context.counts.data_blocks_verified += blocks;
        (context.progress)(context.counts.data_blocks_verified);
    }
}
