//! Repair in place: the metadata of a volume is written anew, from what is left of it; data stays
//! where it is. What has no name afterwards, or a wrong count, the ordinary repair puts right.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_device::ZonedDevice;
use persimmon_engine::{Options, Rebuild, RebuildStart};
use persimmon_format::delta::{block_at, is_delta, place_of};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::inode::{
    FLAG_DELTAS, FLAG_PREALLOCATED, FLAG_XATTRS, Inode, ROOT, SHARED, SIZE_MAX, Timestamp,
};
use persimmon_format::packed::Packed;
use persimmon_format::quota::{Counting, QuotaState};
use persimmon_format::{Addr, BLOCK_SIZE, Ino, Key, KeyKind, VersionId};
use persimmon_inspect::claims::Claims;
use persimmon_inspect::salvage::{Content, Item, Placement, Rebuilt, StrayBlock};
use persimmon_inspect::shared::present_parts;

use crate::loss::{CHANGES_LOST, Loss, Lost, blocks_found};
use crate::store::Store;
use crate::{Doing, Error, Result};

mod missing;
mod versions;

use missing::Missing;
use versions::Here;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Writes the metadata of the volume on `device` anew, as `from`, read off the same device, has
/// it. Tells what is lost; that there is nothing else that is lost, only a check of the data can
/// tell. `options` bound its memory. Until it has succeeded the volume stays what it was.
///
/// # Errors
/// The device fails, or has too few free zones for new metadata. The volume has snapshots, and some of what tells them apart is lost.
pub fn mend(
    from: &Rebuilt<'_>,
    device: Arc<dyn ZonedDevice>,
    (now, options): (Timestamp, Options),
    on_loss: &mut dyn FnMut(&Loss),
    progress: &mut dyn FnMut(Doing, u64, u64),
) -> Result<()> {
    let content = from.content(&mut |stage, done, total| {
        progress(Doing::Reading(stage), done, total);
    })?;
    let is_versioned = content.is_versioned();
    if is_versioned && !content.knows_versions() {
        return Err(Error::Snapshots);
    }
    let numbers = from.numbers();
    let start = RebuildStart {
        identity: numbers.identity,
        checkpoint: numbers.checkpoint,
        last_lsn: numbers.last_lsn,
        epoch: numbers.epoch,
        log_sequence: numbers.log_sequence,
        footer: numbers.footer,
        zit: numbers.zit,
        next_ino: numbers.next_ino,
        changes_lost: numbers.changes_lost,
        next_zone_sequence: numbers.next_zone_sequence,
        write_clock: numbers.write_clock,
        reserve_basis_points: numbers.reserve_basis_points,
    };
    let geometry = device.geometry().clone();
    let rebuild = Rebuild::begin(device, start, options).map_err(Error::New)?;
    let mut mend = Mend {
        content: &content,
        placement: content.placement(),
        rebuild: &rebuild,
        owned: Owned {
            claims: Claims::new(geometry.zone_count as usize, geometry.zone_blocks),
            frames: HashMap::new(),
        },
        store: Store::default(),
        with_dictionary: HashSet::new(),
        now,
        here: Here::default(),
        is_versioned,
        missing: Missing::default(),
        on_loss,
    };
    for gap in content.gaps().collect::<Vec<_>>() {
        mend.lose(Vec::new(), Ino(0), Lost::Metadata, (0, 0), gap);
    }
    if is_versioned {
        mend.find_inodes();
    }
    mend.claim_trusted();
    mend.items(progress)?;
    if is_versioned {
        mend.leave_newer();
    } else {
        // What stands in for a lost item is put at a place where each version shows another: where there are several, nothing does.
        mend.strays()?;
        mend.newer()?;
    }
    mend.tell_missing();
    mend.counts()?;
    mend.tell_dangling();
    rebuild.finish().map_err(Error::New)
}

/// All items: of all versions, where there are several.
fn scan(
    content: &Content<'_, '_>,
    is_versioned: bool,
    visit: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
) {
    match is_versioned {
        true => content.scan_stored(visit),
        false => content.scan(visit),
    }
}

/// What extents have.
struct Owned {
    claims: Claims,
    /// Who has parts of frames.
    frames: HashMap<Packed, FrameOwner>,
}

/// The file that has blocks of a compressed frame.
struct FrameOwner {
    ino: Ino,
    /// File block that the frame begins with.
    start: u64,
    /// A bit for each block of it that the file has.
    blocks: u32,
}

impl Owned {
    /// Takes a block; false if it is taken, or not on the device.
    fn take(&mut self, addr: Addr) -> bool {
        self.claims.is_on_device(addr) && self.claims.claim(addr, 1) == 0
    }

    /// Takes a packed extent at this block of a file, all of it or nothing. False if some of it is taken, or its frame is
    /// another file's or was written for other blocks, or is not on the device.
    fn take_packed(&mut self, (ino, block): (Ino, u64), packed: &Packed) -> bool {
        let Some((start, _)) = packed.frame_at(block) else {
            return false;
        };
        if packed.is_whole() {
            return self.take_frame(packed);
        }
        let bits = |count: u8| {
            u32::MAX
                .checked_shl(count.into())
                .map_or(u32::MAX, |rest| !rest)
        };
        let blocks = bits(packed.skip.saturating_add(packed.blocks)) & !bits(packed.skip);
        if let Some(owner) = self.frames.get_mut(&packed.whole()) {
            let takes = (owner.ino, owner.start) == (ino, start) && owner.blocks & blocks == 0;
            if takes {
                owner.blocks |= blocks;
            }
            return takes;
        }
        let takes = self.take_frame(packed);
        if takes {
            let owner = FrameOwner { ino, start, blocks };
            self.frames.insert(packed.whole(), owner);
        }
        takes
    }

    /// Takes all of a frame or nothing; false if some of it is taken, or not on the device.
    fn take_frame(&mut self, packed: &Packed) -> bool {
        self.claims.taken_of_frame(packed) == 0 && self.claims.claim_frame(packed) == 0
    }
}

struct Mend<'a, 'd> {
    content: &'a Content<'a, 'd>,
    placement: Placement,
    rebuild: &'a Rebuild,
    owned: Owned,
    /// What the store of shared blocks has.
    store: Store,
    /// Frames with dictionaries that were put: each names its own once.
    with_dictionary: HashSet<Packed>,
    now: Timestamp,
    /// What was put at the last place, where there are several versions.
    here: Here,
    is_versioned: bool,
    /// What files name of the store that it does not have.
    missing: Missing,
    on_loss: &'a mut dyn FnMut(&Loss),
}

impl Mend<'_, '_> {
    /// An extent may name blocks that are another's by now, or none: it is as of an earlier checkpoint, or may be, or changes are lost.
    fn is_doubtful(&self, key: &Key, addr: Addr) -> bool {
        if self.content.may_all_be_older() || self.content.may_be_gone(addr.zone()) {
            return true;
        }
        let next = Key {
            item: key.item.saturating_add(1),
            ..*key
        };
        self.content
            .damage(*key, next)
            .any(|part| part.older.is_some())
    }

    fn claim_trusted(&mut self) {
        let content = self.content;
        scan(content, self.is_versioned, &mut |(key, value)| {
            if key.kind == KeyKind::EXTENT
                && let Ok(extent) = Extent::decode(value)
                && let Some(addr) = extent.addr()
                && !self.is_doubtful(&key, addr)
            {
                match extent {
                    Extent::Frame { addr, crcs } => {
                        for at in 0..crcs.len() as u32 {
                            self.owned.take(addr.offset(at));
                        }
                    }
                    Extent::Packed(packed) => {
                        self.owned.take_packed((key.ino, key.item), &packed);
                    }
                    _ => {}
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// All items of the tree, as they are.
    fn items(&mut self, progress: &mut dyn FnMut(Doing, u64, u64)) -> Result<()> {
        let content = self.content;
        let total = content.nodes_total();
        let (mut done, mut last) = (0, None);
        let mut store_done = false;
        let mut result = Ok(());
        scan(content, self.is_versioned, &mut |(key, value)| {
            if last.replace(key.ino) != Some(key.ino) {
                done += 1;
                progress(Doing::Copying, done.min(total), total);
                if key.ino > SHARED && !std::mem::replace(&mut store_done, true) {
                    result = self.finish_store();
                }
                let has_inode = key.ino != Key::GLOBAL && key.ino != SHARED;
                if result.is_ok() && has_inode {
                    result = match self.is_versioned {
                        true => self.make_lacking(&key),
                        false if key.kind != KeyKind::INODE => {
                            self.make_inode(key.ino, key.version)
                        }
                        false => Ok(()),
                    };
                }
            }
            if result.is_ok() {
                result = match self.is_versioned && key.ino != SHARED {
                    true => self.versioned(key, value),
                    false => self.item(key, value),
                };
            }
            match result {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        result?;
        if !store_done {
            self.finish_store()?;
        }
        if content.is_in_tree(ROOT) {
            return Ok(());
        }
        self.make_inode(ROOT, VersionId(0))
    }

    /// What only summaries know of the store of shared blocks. All that the tree has of it is there; files come next.
    fn finish_store(&mut self) -> Result<()> {
        self.store.settle();
        let content = self.content;
        let all = (SHARED, 0)..=(SHARED, FILE_BLOCKS_END - 1);
        for ((ino, block), stray) in content.stray_blocks().range(all) {
            let is_new = self.store.missing(*block, block + 1).next().is_some();
            if is_new && stray.extent.fits_at(*block) && self.take((*ino, *block), &stray.extent) {
                self.put(Key::extent(*ino, *block), &stray.extent.encode())?;
            }
        }
        self.store.settle();
        Ok(())
    }

    /// Of an extent that names shared blocks what the store has.
    fn shared(&mut self, key: Key, extent: &Extent) -> Result<()> {
        let (at, end) = extent.names().unwrap_or_default();
        let missing: Vec<(u64, u64)> = self.store.missing(at, end).collect();
        for (key, part) in present_parts(&key, extent, &missing) {
            self.put(key, &part.encode())?;
        }
        let in_file = |block: u64| key.item.saturating_add(block - at);
        for (from, to) in missing {
            self.missing.add(key.ino, (in_file(from), in_file(to)));
        }
        let in_store = (Key::extent(SHARED, at), Key::extent(SHARED, end));
        let older = self.content.damage(in_store.0, in_store.1);
        if let Some(checkpoint) = { older }.find_map(|part| part.older) {
            let path = self.path(key.ino);
            let detail = format!("as of checkpoint {checkpoint}");
            let range = (in_file(at), in_file(end));
            let range = (range.0.saturating_mul(BLOCK), range.1.saturating_mul(BLOCK));
            self.lose(path, key.ino, Lost::Older, range, detail);
        }
        Ok(())
    }

    fn item(&mut self, key: Key, value: &[u8]) -> Result<()> {
        if key.kind == KeyKind::EXTENT
            && let Ok(extent) = Extent::decode(value)
        {
            return self.extent(key, &extent);
        }
        // They are counted again: who freed a file with wrong ones would free what another one has.
        if (key.ino, key.kind) == (SHARED, KeyKind::REFERENCES) {
            return Ok(());
        }
        if (key.ino, key.kind) == (Key::GLOBAL, KeyKind::TRUNCATION)
            && self.content.may_be_stale(&key)
        {
            return self.stale_truncation(key, value);
        }
        // The check that follows gives a file without a name one in `lost+found`.
        if (key.ino, key.kind) == (Key::GLOBAL, KeyKind::ORPHAN)
            && self.content.may_be_named_since(&key)
        {
            return Ok(());
        }
        // Limits stay; what owners take is counted anew, by what is left.
        if key == QuotaState::KEY
            && let Ok(state) = QuotaState::decode(value)
            && state.counting != Counting::Off
        {
            return self.put(key, &state.anew().encode());
        }
        if key.kind == KeyKind::INODE
            && let Ok(mut inode) = Inode::decode(value)
        {
            inode.size = self.content.size_of(&key, &inode);
            self.tell_damage(key.ino, &inode);
            return self.put(key, &inode.encode());
        }
        self.put(key, value)
    }

    fn extent(&mut self, key: Key, extent: &Extent) -> Result<()> {
        if let Some(addr) = extent.addr()
            && self.is_doubtful(&key, addr)
        {
            return match extent {
                Extent::Frame { addr, crcs } => self.doubtful_frame(key, *addr, crcs),
                extent => self.doubtful_packed(key, extent),
            };
        }
        match extent {
            Extent::Packed(_) if !self.has_dictionary(extent) => {
                self.lose_blocks(key.ino, key.item, extent.blocks());
                Ok(())
            }
            Extent::Shared { .. } if key.ino != SHARED => self.shared(key, extent),
            _ => self.put(key, &extent.encode()),
        }
    }

    /// A truncation that may have ended since, and whose file may have been written anew: it frees nothing that the file has now.
    fn stale_truncation(&mut self, key: Key, value: &[u8]) -> Result<()> {
        let keep = value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        match keep.and_then(|keep| self.content.kept_at_least(&key, keep)) {
            Some(keep) => self.put(key, &keep.to_le_bytes()),
            None => Ok(()),
        }
    }

    /// What is lost of a file's extents or a directory's names.
    fn tell_damage(&mut self, ino: Ino, inode: &Inode) {
        // The inode itself may be as of an earlier checkpoint, and what was empty then need not have been so since.
        let from = Key::inode(ino);
        let (to, lost) = if inode.is_dir() {
            (Key::extent(ino, 0), Lost::Names)
        } else {
            let end = inode.size.div_ceil(BLOCK).max(1);
            (Key::extent(ino, end), Lost::Extents)
        };
        if inode.is_file() && inode.flags & FLAG_DELTAS != 0 {
            let end = inode.size.div_ceil(BLOCK);
            let places = [place_of(0), place_of(end)].map(|place| Key::extent(ino, place));
            let damage: Vec<_> = self.content.damage(places[0], places[1]).collect();
            for part in damage {
                let offset = |key: Key| block_at(key.item).saturating_mul(BLOCK).min(inode.size);
                let path = self.path(ino);
                let range = (offset(part.from), offset(part.to));
                self.lose(path, ino, Lost::Older, range, CHANGES_LOST.to_owned());
            }
        }
        let damage: Vec<_> = self.content.damage(from, to).collect();
        for part in damage {
            let range = match lost {
                Lost::Extents => {
                    let offset = |key: Key| key.item.saturating_mul(BLOCK).min(inode.size);
                    (offset(part.from), offset(part.to))
                }
                _ => (0, 0),
            };
            let (lost, detail) = match part.older {
                Some(checkpoint) => (Lost::Older, format!("as of checkpoint {checkpoint}")),
                None => (lost, String::new()),
            };
            let path = self.path(ino);
            self.lose(path, ino, lost, range, detail);
        }
    }

    /// Of a frame that may be another's by now those blocks that are still what they should be.
    fn doubtful_frame(&mut self, key: Key, addr: Addr, crcs: &[u32]) -> Result<()> {
        let content = self.content;
        let blocks = content.read(addr, crcs);
        for ((block, crc), at) in blocks.into_iter().zip(crcs).zip(0u32..) {
            let place = addr.offset(at);
            let item = key.item.saturating_add(at.into());
            let extent = Extent::Frame {
                addr: place,
                crcs: vec![*crc],
            };
            if block.is_some() && self.owned.take(place) {
                self.put(Key::extent(key.ino, item), &extent.encode())?;
            } else {
                self.lose_blocks(key.ino, item, 1);
            }
        }
        Ok(())
    }

    fn doubtful_packed(&mut self, key: Key, extent: &Extent) -> Result<()> {
        if self.take((key.ino, key.item), extent) {
            return self.put(key, &extent.encode());
        }
        self.lose_blocks(key.ino, block_at(key.item), extent.blocks());
        Ok(())
    }

    /// Takes one block of data, or blocks of a frame, for a block of a file, if it is intact and nobody's.
    fn take(&mut self, place: (Ino, u64), extent: &Extent) -> bool {
        let (ino, block) = place;
        let is_good = match is_delta(block) {
            true => self.content.with_delta(ino, block, extent).is_some(),
            false => self.stands(extent),
        };
        is_good
            && match extent {
                Extent::Frame { addr, .. } => self.owned.take(*addr),
                Extent::Packed(packed) => self.owned.take_packed(place, packed),
                _ => false,
            }
    }

    /// Whether one block of data, or blocks of a frame, are intact.
    fn stands(&self, extent: &Extent) -> bool {
        match extent {
            Extent::Frame { addr, crcs } => {
                let good = self.content.read(*addr, crcs);
                good.iter().any(Option::is_some)
            }
            Extent::Packed(packed) => {
                self.has_dictionary(extent) && self.content.read_packed(packed).is_some()
            }
            _ => false,
        }
    }

    /// Whether the store has what a frame names, if it has a dictionary.
    fn has_dictionary(&self, extent: &Extent) -> bool {
        let is_there = |(at, end)| self.store.missing(at, end).next().is_none();
        extent.names().is_none_or(is_there)
    }

    fn lose_blocks(&mut self, ino: Ino, block: u64, blocks: u64) {
        // Told with the files that have it.
        if ino == SHARED {
            return;
        }
        let range = (
            block.saturating_mul(BLOCK),
            block.saturating_add(blocks).saturating_mul(BLOCK),
        );
        let path = self.path(ino);
        self.lose(path, ino, Lost::Data, range, String::new());
    }

    fn put(&mut self, key: Key, value: &[u8]) -> Result<()> {
        if key.kind == KeyKind::EXTENT
            && let Ok(extent) = Extent::decode(value)
        {
            match extent {
                _ if key.ino == SHARED => self.store.add(key.item, &extent),
                Extent::Shared { at, blocks, .. } => self.store.name(at, blocks.into()),
                Extent::Packed(packed) => {
                    if let Some(dictionary) = packed.dictionary()
                        && self.with_dictionary.insert(packed.whole())
                    {
                        self.store.name(dictionary.at, dictionary.blocks.into());
                    }
                }
                _ => {}
            }
        }
        self.rebuild.put(key, value).map_err(Error::New)
    }

    /// An inode for what has lost its own, in the version whose item was found.
    fn make_inode(&mut self, ino: Ino, version: VersionId) -> Result<()> {
        let mode = self.content.mode_without_inode(ino);
        let mut size = 0;
        let blocks = self.content.stray_blocks();
        if let Some(((_, last), _)) = blocks.range((ino, 0)..=(ino, FILE_BLOCKS_END - 1)).last() {
            size = (last + 1) * BLOCK;
        }
        size = size.max(self.content.end_of_extents(ino));
        let inode = Inode {
            mode,
            size: if mode >> 12 == 8 {
                size.min(SIZE_MAX)
            } else {
                0
            },
            nlink: 1,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: self.now,
            // Only without a flag nobody looks for what it tells of.
            flags: FLAG_XATTRS | FLAG_PREALLOCATED | FLAG_DELTAS,
            ..Inode::default()
        };
        let path = self.path(ino);
        self.lose(path, ino, Lost::Attributes, (0, 0), String::new());
        self.put(Key::inode(ino).at(version), &inode.encode())
    }

    /// Blocks that the tree has lost, and files of which there is nothing else.
    fn strays(&mut self) -> Result<()> {
        let content = self.content;
        let (mut last, mut blocks) = (None, 0);
        let of_files = content.stray_blocks().iter();
        for ((ino, block), stray) in of_files.filter(|((ino, _), _)| *ino != SHARED) {
            if last.replace(*ino) != Some(*ino) {
                if !content.is_in_tree(*ino) {
                    self.make_inode(*ino, VersionId(0))?;
                }
                blocks = self.blocks_of(*ino);
            }
            let known = content.node(*ino).is_some_and(|node| node.has_inode);
            let inside = match is_delta(*block) {
                true => known && block_at(*block) < blocks,
                false => !known || *block < blocks,
            };
            if inside && !(known && stray.later) {
                self.take_block(*ino, *block, stray)?;
            }
        }
        Ok(())
    }

    /// How many extents name each of the shared blocks, now that all are there.
    fn counts(&mut self) -> Result<()> {
        for (block, references) in self.store.counts() {
            self.put(Key::references(block), &references.encode())?;
        }
        Ok(())
    }

    fn blocks_of(&self, ino: Ino) -> u64 {
        let inode = self.content.inode(ino);
        inode.map_or(0, |inode| {
            self.content.size_shown(ino, &inode).div_ceil(BLOCK)
        })
    }

    fn take_block(&mut self, ino: Ino, block: u64, stray: &StrayBlock) -> Result<()> {
        if !stray.extent.fits_at(block) {
            return Ok(());
        }
        let extent = if self.take((ino, block), &stray.extent) {
            stray.extent.clone()
        } else if let Some(shared) = self.store.find(&stray.extent)
            && self.stands(&stray.extent)
        {
            // It was written for the file, which shares it since.
            shared
        } else {
            return Ok(());
        };
        self.missing.found(ino, block);
        self.put(Key::extent(ino, block), &extent.encode())
    }

    /// Of what files name of the store that it does not have: what is there all the same was written for the file, but nothing tells that the
    /// file did not share other blocks there since.
    fn tell_missing(&mut self) {
        for part in std::mem::take(&mut self.missing).parts() {
            let (from, to) = part.blocks;
            let range = (from.saturating_mul(BLOCK), to.saturating_mul(BLOCK));
            let (lost, detail) = match part.is_found {
                true => (Lost::Extents, blocks_found(range)),
                false => (Lost::Data, String::new()),
            };
            let path = self.path(part.ino);
            self.lose(path, part.ino, lost, range, detail);
        }
    }

    /// Blocks that were written after the checkpoint: each file's in a file of its own.
    fn newer(&mut self) -> Result<()> {
        let content = self.content;
        let newer: Vec<(Ino, Ino)> = self.placement.newer().collect();
        for (of, ino) in newer {
            let blocks = content.stray_blocks().range((of, 0)..=(of, u64::MAX));
            let is_whole =
                |((_, block), stray): &(&(Ino, u64), &StrayBlock)| stray.later && !is_delta(*block);
            let later: Vec<_> = blocks.filter(is_whole).collect();
            let end = later.last().map_or(0, |((_, block), _)| block + 1);
            let inode = Inode {
                mode: 0o100_600,
                size: end * BLOCK,
                nlink: 1,
                atime: self.now,
                mtime: self.now,
                ctime: self.now,
                btime: self.now,
                ..Inode::default()
            };
            self.put(Key::inode(ino), &inode.encode())?;
            for ((_, block), stray) in later {
                self.take_block(ino, *block, stray)?;
            }
            let detail = format!("it is in lost+found/#{ino}");
            let path = self.path(of);
            self.lose(path, of, Lost::Newer, (0, 0), detail);
        }
        Ok(())
    }

    fn tell_dangling(&mut self) {
        // Of several versions they are told when they are found.
        let dangling = match self.is_versioned {
            true => Vec::new(),
            false => self.placement.dangling().to_vec(),
        };
        for (directory, item, ino) in dangling {
            let name = self.content.entry_name(directory, item).unwrap_or_default();
            let mut path = self.path(directory);
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            self.lose(path, ino, Lost::Everything, (0, 0), String::new());
        }
        for ino in self.placement.strays().to_vec() {
            let path = self.path(ino);
            self.lose(path, ino, Lost::Name, (0, 0), String::new());
        }
    }

    fn path(&self, ino: Ino) -> Vec<u8> {
        self.content.path(&self.placement, ino)
    }

    fn lose(&mut self, path: Vec<u8>, ino: Ino, lost: Lost, range: (u64, u64), detail: String) {
        (self.on_loss)(&Loss::new(path, ino, lost, range, detail));
    }
}
