//! Data that only summaries know: whose it was when it was written. Which of several versions of
//! a block is the newest they cannot tell for certain: the zone that was taken into use last, and
//! in it the last block, is taken for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use persimmon_format::extent::Extent;
use persimmon_format::summary::Summary;
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, Ino, Key, ZoneId, checksum};

use super::Rebuilt;
use super::content::Content;
use super::forest::{Instead, LostRange};
use crate::volume::Inspector;

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 64;

/// A block of a file that the tree does not know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayBlock {
    /// It as an extent: a frame of one block, or a packed piece.
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
        Extent::Packed(piece) => piece.start(),
        _ => 0,
    }
}

/// All blocks that the tree should know of, but does not.
pub(crate) fn read(
    rebuilt: &Rebuilt<'_>,
    content: &Content<'_, '_>,
    log_lost: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> BTreeMap<(Ino, u64), StrayBlock> {
    let inspector = &rebuilt.inspector;
    let lost: Vec<&LostRange> = rebuilt
        .lost
        .iter()
        .filter(|lost| !matches!(lost.instead, Instead::Older(_)))
        .collect();
    let mut found = BTreeMap::new();
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
        each(inspector, zone, header.sequence, &mut |entry| {
            let Written { ino, block, extent } = entry;
            let place = extent.on_device().map_or(0, |(addr, _)| addr.block());
            let later = log_lost && place >= cut;
            let key = Key::extent(ino, block);
            let is_lost = lost.iter().any(|lost| lost.holds(&key));
            if !(later || is_lost) || is_known(content, ino, block, &extent, later) {
                return;
            }
            let stray = StrayBlock {
                newness: (header.sequence, place, start_of(&extent)),
                extent,
                later: later && !is_lost,
            };
            match found.entry((ino, block)) {
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
    found
}

/// Whether the tree has the block. Of what was written after the checkpoint other content counts;
/// of a lost range, whatever is there.
fn is_known(
    content: &Content<'_, '_>,
    ino: Ino,
    block: u64,
    written: &Extent,
    later: bool,
) -> bool {
    let Some((first, value)) = content.extent_at(ino, block) else {
        return false;
    };
    let Ok(extent) = Extent::decode(&value) else {
        return false;
    };
    let at = block.saturating_sub(first);
    if at >= extent.blocks() {
        return false;
    }
    match (extent, written) {
        _ if !later => true,
        (Extent::Frame { crcs, .. }, Extent::Frame { crcs: crc, .. }) => {
            crcs.get(at as usize) == crc.first()
        }
        (Extent::Packed(known), Extent::Packed(piece)) => {
            (known.len, known.crc) == (piece.len, piece.crc)
        }
        (Extent::Compressed(known), Extent::Packed(piece)) => {
            piece.crc == checksum::data_block(&known)
        }
        _ => false,
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
        _ => 0,
    }
}

/// Hands on each block in each intact summary of a zone, the last summary first.
fn each(inspector: &Inspector<'_>, zone: ZoneId, sequence: u64, visit: &mut dyn FnMut(Written)) {
    let mut end = inspector.media.written(zone);
    while end > 1 {
        let start = end.saturating_sub(WINDOW_BLOCKS).max(1);
        let found = window(inspector, zone, start..end)
            .into_iter()
            .rev()
            .find_map(|(at, block)| {
                let summary = Summary::decode(&block?, &inspector.key, sequence, at).ok()?;
                Some((at, summary))
            });
        match found {
            Some((at, summary)) => {
                blocks_of(&summary, zone, visit);
                // The one before it is looked at next; is it damaged, what is before that.
                end = match summary.previous {
                    0 => return,
                    previous => (previous + 1).min(at),
                };
            }
            None => end = start,
        }
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
    for entry in &summary.pieces {
        visit(Written {
            ino: entry.ino,
            block: entry.file_block,
            extent: Extent::Packed(entry.piece(zone)),
        });
    }
}

type Block = Option<persimmon_device::Buffer>;

fn window(
    inspector: &Inspector<'_>,
    zone: ZoneId,
    range: std::ops::Range<u32>,
) -> Vec<(u32, Block)> {
    let addr = |block| Addr::new(DeviceId(0), zone, block);
    match inspector.media.read(addr(range.start), range.len() as u32) {
        Ok(buffer) => range
            .clone()
            .map(|at| {
                let index = (at - range.start) as usize;
                (at, Some(buffer.slice(index..index + 1)))
            })
            .collect(),
        Err(_) => range
            .map(|at| (at, inspector.media.read(addr(at), 1).ok()))
            .collect(),
    }
}
