//! Data that only summaries know: whose it was when it was written. Which of several versions of
//! a block is the newest they cannot tell for certain: the zone that was taken into use last, and
//! in it the last block, is taken for it.

use std::collections::BTreeMap;

use persimmon_format::extent::Extent;
use persimmon_format::summary::{Summary, SummaryEntry};
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, Ino, Key, ZoneId};

use super::Rebuilt;
use super::content::Content;
use super::forest::{Instead, LostRange};
use crate::volume::Inspector;

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 64;

/// A block of a file that the tree does not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrayBlock {
    /// Where it is.
    pub addr: Addr,
    /// CRC-32C of its content.
    pub crc: u32,
    /// It was written after the checkpoint; else it belongs into what the tree has lost.
    pub later: bool,
    zone_sequence: u64,
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
            for (at, crc) in (0..).zip(&entry.crcs) {
                let block = entry.file_block.saturating_add(u64::from(at));
                let place = entry.zone_block + at;
                let later = log_lost && place >= cut;
                let key = Key::extent(entry.ino, block);
                let is_lost = lost.iter().any(|lost| lost.holds(&key));
                if !(later || is_lost) {
                    continue;
                }
                if is_known(content, entry.ino, block, *crc, later) {
                    continue;
                }
                let stray = StrayBlock {
                    addr: Addr::new(DeviceId(0), zone, place),
                    crc: *crc,
                    later: later && !is_lost,
                    zone_sequence: header.sequence,
                };
                let slot = found.entry((entry.ino, block)).or_insert(stray);
                let newness = |s: &StrayBlock| (s.zone_sequence, s.addr.block());
                if newness(slot) < newness(&stray) {
                    *slot = stray;
                }
            }
        });
    }
    found
}

/// Whether the tree has the block. Of what was written after the checkpoint other content counts;
/// of a lost range, whatever is there.
fn is_known(content: &Content<'_, '_>, ino: Ino, block: u64, crc: u32, later: bool) -> bool {
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
    match extent {
        Extent::Frame { crcs, .. } if later => crcs.get(at as usize) == Some(&crc),
        _ => !later,
    }
}

/// Blocks of a zone that were written when the checkpoint was cut.
fn blocks_at_cut(inspector: &Inspector<'_>, zone: ZoneId, sequence: u64) -> u32 {
    let checkpoint = inspector.checkpoint.as_ref();
    let entry = checkpoint.and_then(|c| c.zit.get(zone.0 as usize));
    match entry {
        Some(entry) if entry.role == Role::Data && entry.sequence == sequence => {
            entry.write_pointer
        }
        // Without the table nothing tells; then nothing is taken for new.
        _ if checkpoint.is_none_or(|c| c.zit_lost) => u32::MAX,
        _ => 0,
    }
}

/// Hands on each entry of each intact summary of a zone, the last summary first.
fn each(
    inspector: &Inspector<'_>,
    zone: ZoneId,
    sequence: u64,
    visit: &mut dyn FnMut(&SummaryEntry),
) {
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
                summary.entries.iter().for_each(&mut *visit);
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
