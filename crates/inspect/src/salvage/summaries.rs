//! Data that only summaries know: whose it was when it was written. Which of several versions of
//! a block is the newest they cannot tell for certain: the zone that was taken into use last, and
//! in it the last block, is taken for it.
//!
//! They also tell where a block is that cleaning moved after the checkpoint: its place in the tree may be
//! gone, for checkpoints of the zones alone let zones go that only the journal says are not needed.
//!
//! A block that files share was written for one of them, and its summary names that one until cleaning moves the block. So a block of a
//! file is looked for in the store of shared blocks where the file has it there. If the store has lost it, it is taken for the file
//! alone that it was written for: another one may have written its own before it shared this one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use persimmon_format::delta::is_delta;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::CompressedFrame;
use persimmon_format::summary::Summary;
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, Ino, Key, ZoneId};

use super::Rebuilt;
use super::content::Content;
use super::forest::Instead;
use crate::summaries::DataZone;
use crate::volume::Inspector;

/// A block of a file that the tree does not know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayBlock {
    /// It as an extent: a frame of one block, or a packed extent of one.
    pub extent: Extent,
    /// It was written after the checkpoint; else it belongs into what the tree has lost.
    pub later: bool,
    /// Sequence of the zone, block in it, byte in that.
    newness: (u64, u32, usize),
}

/// A block of a file as a summary tells it.
struct Written {
    ino: Ino,
    block: u64,
    extent: Extent,
}

fn start_of(extent: &Extent) -> usize {
    match extent {
        Extent::Packed(packed) => packed.start(),
        _ => 0,
    }
}

/// What summaries tell and the tree does not, by file and block.
#[derive(Default)]
pub(crate) struct Found {
    /// Blocks that the tree should know of.
    pub strays: BTreeMap<(Ino, u64), StrayBlock>,
    /// Where blocks are that are not any more where the tree says.
    pub moved: BTreeMap<(Ino, u64), Extent>,
}

/// Reads the summaries of all data zones.
pub(crate) fn read(
    rebuilt: &Rebuilt<'_>,
    content: &Content<'_, '_>,
    log_lost: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Found {
    let inspector = &rebuilt.inspector;
    let Found {
        mut strays,
        mut moved,
    } = Found::default();
    let total = inspector.zones.len() as u64;
    for (zone, _) in inspector.media.zones() {
        progress(zone.0.into(), total);
        let Some(header) = inspector.header(zone) else {
            continue;
        };
        if header.role != Role::Data {
            continue;
        }
        let cut = blocks_at_cut(inspector, zone, header.sequence);
        let of_zone = DataZone {
            inspector,
            zone,
            sequence: header.sequence,
        };
        each(of_zone, &mut |entry| {
            let Written { ino, block, extent } = entry;
            let place = extent.addr().map_or(0, Addr::block);
            let later = log_lost && place >= cut;
            let in_tree = content.place_of(ino, block);
            let is_in_lost = |(ino, block)| {
                let mut lost = rebuilt.lost.holding(Key::extent(ino, block));
                lost.any(|lost| !matches!(lost.instead, Instead::Older(_)))
            };
            let is_lost = is_in_lost((ino, block)) || is_in_lost(in_tree);
            if !(log_lost || is_lost) {
                return;
            }
            let known = known(content, in_tree);
            if let Some(known) = &known
                && is_same(known, &extent)
            {
                if log_lost
                    && *known != extent
                    && !moved.contains_key(&in_tree)
                    && !stands(content, block, known)
                    && stands(content, block, &extent)
                {
                    moved.insert(in_tree, extent);
                }
                return;
            }
            // Of what was written after the checkpoint other content counts; of a lost range, whatever
            // the tree has.
            if !later && (known.is_some() || !is_lost) {
                return;
            }
            // Of the store only what files name is of use, and what was shared after the checkpoint none does.
            if ino == SHARED && (known.is_some() || !is_lost) {
                return;
            }
            let stray = StrayBlock {
                newness: (header.sequence, place, start_of(&extent)),
                extent,
                later: later && !is_lost,
            };
            match strays.entry((ino, block)) {
                Entry::Vacant(slot) => {
                    slot.insert(stray);
                }
                Entry::Occupied(mut slot) if slot.get().newness < stray.newness => {
                    slot.insert(stray);
                }
                Entry::Occupied(_) => {}
            }
        });
    }
    Found { strays, moved }
}

/// A block as the tree has it, if it does.
fn known(content: &Content<'_, '_>, (ino, block): (Ino, u64)) -> Option<Extent> {
    let (first, value) = content.extent_at(ino, block)?;
    let extent = Extent::decode(&value).ok()?;
    let at = block.saturating_sub(first);
    if at >= extent.blocks() {
        return None;
    }
    match extent {
        Extent::Frame { addr, crcs } => Some(Extent::Frame {
            addr: addr.offset(at as u32),
            crcs: vec![*crcs.get(at as usize)?],
        }),
        other => Some(other.part(at, 1)),
    }
}

/// Whether a block of the tree and one that was written have the same content.
fn is_same(known: &Extent, written: &Extent) -> bool {
    match (known, written) {
        (Extent::Frame { crcs, .. }, Extent::Frame { crcs: crc, .. }) => crcs == crc,
        (Extent::Packed(known), Extent::Packed(packed)) => {
            (known.frame, known.skip) == (packed.frame, packed.skip)
        }
        (Extent::Compressed(known), Extent::Packed(packed)) => {
            packed.frame == CompressedFrame::of_block(known)
        }
        _ => false,
    }
}

/// Whether a block is where its extent says.
fn stands(content: &Content<'_, '_>, block: u64, extent: &Extent) -> bool {
    match extent {
        delta if is_delta(block) => content.delta_bytes(delta).is_some(),
        Extent::Frame { addr, crcs } => content.read(*addr, crcs).iter().all(Option::is_some),
        Extent::Packed(packed) => content.read_packed(packed).is_some(),
        // In the tree itself.
        _ => true,
    }
}

/// Blocks of a zone that were written when the checkpoint was cut.
fn blocks_at_cut(inspector: &Inspector<'_>, zone: ZoneId, sequence: u64) -> u32 {
    let checkpoint = inspector.checkpoint.as_ref();
    let entry = checkpoint.and_then(|c| c.zit.get(zone.0 as usize));
    match entry {
        Some(entry) if entry.role == Role::Data && entry.is_of_use(sequence) => entry.write_pointer,
        // Without the table nothing tells; then nothing is taken for new.
        _ if checkpoint.is_none_or(|c| c.zit_lost) => u32::MAX,
        // The checkpoint knows the zone in another use: this is an earlier life of it, which a reset left where it was.
        _ if checkpoint.is_some_and(|c| sequence < c.footer.next_zone_sequence) => u32::MAX,
        _ => 0,
    }
}

/// Hands on each block in each intact summary of a zone, the last summary first.
fn each(zone: DataZone<'_, '_>, visit: &mut dyn FnMut(Written)) {
    let mut end = zone.inspector.media.written(zone.zone);
    let mut named = None;
    while end > 1 {
        // The one that was named is looked at next; is it damaged, what is before that.
        let next = named.and_then(|at| Some((at, zone.summary(at).ok()?)));
        let Some((at, summary)) = next.or_else(|| zone.last_below(end, &mut |_, _| {})) else {
            return;
        };
        blocks_of(&summary, zone.zone, visit);
        if summary.previous == 0 {
            return;
        }
        named = Some(summary.previous).filter(|previous| *previous < at);
        end = summary.previous.min(at);
    }
}

fn blocks_of(summary: &Summary, zone: ZoneId, visit: &mut dyn FnMut(Written)) {
    for entry in &summary.entries {
        for (at, crc) in (0..).zip(&entry.crcs) {
            visit(Written {
                ino: entry.ino,
                block: entry.file_block.saturating_add(u64::from(at)),
                extent: Extent::Frame {
                    addr: Addr::new(DeviceId(0), zone, entry.zone_block + at),
                    crcs: vec![*crc],
                },
            });
        }
    }
    for entry in &summary.packed {
        let whole = entry.packed(zone);
        for at in 0..u64::from(whole.blocks) {
            visit(Written {
                ino: entry.ino,
                block: entry.file_block.saturating_add(at),
                extent: Extent::Packed(whole.part(at, 1)),
            });
        }
    }
}
