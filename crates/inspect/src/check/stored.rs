//! What is stored: the extents of all versions and of the store of shared blocks, and what they have on the device. Each is looked at
//! once, however many subvolumes show it.

use persimmon_device::Buffer;
use persimmon_format::delta::{self, block_at, is_delta};
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{self, PACK_UNIT, Packed};
use persimmon_format::table::Role;
use persimmon_format::zone_header::FRAMES;
use persimmon_format::{Addr, Ino, Key, VersionId};

use super::deltas;
use super::files::{Context, NO_SHARED_BLOCKS, item};
use super::versions::{Layers, NO_SNAPSHOTS, layer};
use crate::finding::{
    DATA, EXTENT_OVERLAP, EXTENT_PLACE, EXTENT_SHARED, ITEM_VALUE, VERSION_OVERLAP, WHITEOUT,
};
use crate::replay::bad_blocks;

/// An inode while the items of all versions of it go by.
pub(crate) struct Stored {
    pub ino: Ino,
    pub layers: Layers,
    /// Where the last extents begin and end, and whose they are.
    last: Option<(u64, u64, Vec<VersionId>)>,
    frames: Vec<SeenFrame>,
    /// Frames with dictionaries of which more extents may come: the file block that each ends before, and whose it is.
    named: Vec<(u64, VersionId, Packed)>,
    /// The last extent: who looks at it next need not decode it again.
    decoded: Option<(Key, Extent)>,
}

impl Stored {
    pub(crate) fn new(ino: Ino) -> Stored {
        Stored {
            ino,
            layers: Layers::new(ino),
            last: None,
            frames: Vec::new(),
            named: Vec::new(),
            decoded: None,
        }
    }

    /// The extent under a key, if that is the one which was decoded last.
    pub(crate) fn take_decoded(&mut self, key: &Key) -> Option<Extent> {
        let (known, extent) = self.decoded.take()?;
        (known == *key).then_some(extent)
    }

    pub(crate) fn extent(&mut self, context: &mut Context<'_, '_>, key: &Key, value: &[u8]) {
        let extent = match Extent::decode(value) {
            Ok(extent) => extent,
            Err(error) => {
                context.findings.add(&ITEM_VALUE, item(key), error);
                return;
            }
        };
        let place = format!("inode {}, block {}", key.ino, block_at(key.item));
        if is_delta(key.item) {
            deltas::stored(context, key, &extent);
        }
        self.check_overlap(context, key, &extent, &place);
        if key.ino == SHARED {
            context.sharing.extent(key.item, &extent, context.findings);
        }
        if let Extent::Packed(packed) = &extent
            && let Some(range) = extent.names()
            && key.ino != SHARED
        {
            let is_first = self.names_first(key, packed);
            context.dictionary(key, packed.blocks.into(), range, is_first);
        }
        if !matches!(extent, Extent::Hole { .. }) {
            context.counts.extents += 1;
        }
        match &extent {
            Extent::Reserved { blocks } => context.counts.reserved_blocks += u64::from(*blocks),
            Extent::Inline(_) | Extent::Compressed(_) => {
                context.counts.inline_blocks += 1;
                let is_sound = match &extent {
                    Extent::Compressed(bytes) if is_delta(key.item) => delta::is_sound(bytes),
                    Extent::Compressed(bytes) => packed::decompress(bytes).is_some(),
                    _ => true,
                };
                if !is_sound {
                    let detail = "compressed content is malformed";
                    context.findings.add(&ITEM_VALUE, item(key), detail);
                }
            }
            Extent::Packed(packed) => {
                let blocks = u64::from(packed.blocks);
                context.counts.data_blocks += blocks;
                context.counts.packed_blocks += blocks;
                match context.inspector.media.is_offline(packed.addr.zone()) {
                    true => lose(context, key, blocks, packed.addr),
                    false => self.packed_extent(context, key, packed, &place),
                }
            }
            Extent::Frame { addr, crcs } => {
                context.counts.data_blocks += crcs.len() as u64;
                match context.inspector.media.is_offline(addr.zone()) {
                    true => lose(context, key, crcs.len() as u64, *addr),
                    false => frame(context, key, *addr, crcs, &place),
                }
            }
            Extent::Shared { frame, .. } => {
                if !context.has_shared_blocks() {
                    context
                        .findings
                        .add(&ITEM_VALUE, item(key), NO_SHARED_BLOCKS);
                }
                if frame.is_some() && !context.has_shared_frames() {
                    let detail = "the volume has no shared frames";
                    context.findings.add(&ITEM_VALUE, item(key), detail);
                }
                if key.ino != SHARED {
                    context.shared_extent(key, &extent);
                }
            }
            Extent::Hole { .. } if !context.table.has_feature => {
                context.findings.add(&ITEM_VALUE, item(key), NO_SNAPSHOTS);
            }
            // Else that is told with the other items of the inode.
            Extent::Hole { .. } if context.table.is_plain && key.ino != SHARED => {
                context.findings.add(&WHITEOUT, layer(key), "");
            }
            Extent::Hole { .. } => {}
        }
        self.decoded = Some((*key, extent));
    }

    /// Extents of one version do not overlap; those of several cover the same blocks, or none in common.
    fn check_overlap(
        &mut self,
        context: &mut Context<'_, '_>,
        key: &Key,
        extent: &Extent,
        place: &str,
    ) {
        let end = key.item.saturating_add(extent.blocks());
        let findings = &mut context.findings;
        let mut here = Vec::new();
        if let Some((first, last, numbers)) = self.last.take() {
            let same = first == key.item;
            if same && last == end {
                here = numbers;
            } else if key.item < last && numbers.contains(&key.version) {
                findings.add(&EXTENT_OVERLAP, place, "");
            } else if key.item < last {
                let others: Vec<_> = numbers.iter().map(VersionId::to_string).collect();
                let detail = format!("versions {} and {}", others.join(", "), key.version);
                findings.add(&VERSION_OVERLAP, place, detail);
            }
        }
        here.push(key.version);
        self.last = Some((key.item, end, here));
    }

    /// Whether an extent is the first of its frame.
    fn names_first(&mut self, key: &Key, packed: &Packed) -> bool {
        self.named.retain(|(end, ..)| *end > key.item);
        let frame = (key.version, packed.whole());
        let is_known = |(_, version, whole): &(u64, VersionId, Packed)| (*version, *whole) == frame;
        let is_first = !self.named.iter().any(is_known);
        if is_first {
            let end = packed.frame_at(key.item).map_or(0, |(_, end)| end);
            self.named.push((end, key.version, packed.whole()));
        }
        is_first
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
            if seen.version != key.version {
                let detail = format!(
                    "versions {} and {} have parts of the frame at {addr}",
                    seen.version, key.version
                );
                context.findings.add(&EXTENT_SHARED, place, detail);
            } else if taken > 0 {
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
                version: key.version,
                blocks: 0,
            };
            seen.take(packed);
            self.frames.push(seen);
        }
        if context.reads(packed.addr) {
            verify_packed(context, key, packed, place);
        }
    }
}

fn verify_packed(context: &mut Context<'_, '_>, key: &Key, packed: &Packed, place: &str) {
    let addr = packed.addr;
    let dictionary = context.state.dictionary_of(packed);
    let is_sound = |blocks: &Buffer| {
        let is_sound = match (is_delta(key.item), &dictionary) {
            (true, _) => packed.verified(blocks).is_some_and(delta::is_sound),
            (false, Some(dictionary)) => packed.content(blocks, dictionary).is_some(),
            (false, None) => false,
        };
        is_sound.then_some(())
    };
    let media = &context.inspector.media;
    if media.read_packed(packed, is_sound).is_some() {
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
    context.tell_verified();
}

/// A frame of which a file has something: other parts of it may come.
struct SeenFrame {
    /// File block that it begins with.
    start: u64,
    /// File block behind it.
    end: u64,
    whole: Packed,
    /// Whose it is.
    version: VersionId,
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
    if context.reads(addr) {
        let all_bad: Vec<Addr> = bad_blocks(&inspector.media, addr, crcs).collect();
        context.counts.data_blocks_verified += blocks.saturating_sub(all_bad.len() as u64);
        for bad in all_bad {
            let block = key.item.saturating_add((bad.block() - addr.block()).into());
            let place = format_args!("inode {}, block {block}", key.ino);
            let detail = format_args!("the one at {bad}");
            context.findings.add(&DATA, place, detail);
            if key.ino == SHARED {
                context.sharing.damage(block, 1, bad);
            }
        }
        context.tell_verified();
    }
}
