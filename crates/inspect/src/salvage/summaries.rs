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
use super::liveness::{Fate, Named, Owned};
use super::replayed::Replayed;
use crate::summaries::DataZone;
use crate::volume::Inspector;

/// A block of a file that the tree does not know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayBlock {
    /// It as an extent: a frame of one block, or a packed extent of one.
    pub extent: Extent,
    /// It was written after the checkpoint, or after the earlier one as of which the tree has its place, and whether it is the file's still
    /// nothing tells; else it belongs into what the tree has lost.
    pub later: bool,
    newness: Newness,
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

/// Sequence of the zone, block in it, byte in that.
type Newness = (u64, u32, usize);

/// What summaries tell and the tree does not, by file and block.
#[derive(Default)]
pub(crate) struct Found {
    /// Blocks that the tree should know of.
    pub strays: BTreeMap<(Ino, u64), StrayBlock>,
    /// Where blocks are that are not any more where the tree says.
    pub moved: BTreeMap<(Ino, u64), Extent>,
    /// Blocks that were written after the earlier checkpoint as of which the tree has their place.
    pub newer: BTreeMap<(Ino, u64), StrayBlock>,
    /// What became of such blocks, by zone.
    pub fates: Vec<Fate>,
    /// The newest places, other than the tree says, that what it has of a block as of an earlier checkpoint was written to.
    known: BTreeMap<(Ino, u64), Newness>,
}

/// What else tells of blocks than their summaries.
pub(super) struct Beside<'a> {
    /// Changes are lost.
    pub log_lost: bool,
    /// Where the journal changed files.
    pub replayed: &'a Replayed,
    /// What intact leaves have; nothing where there are versions.
    pub owned: Option<&'a Owned>,
}

/// A zone of which the summaries are read.
#[derive(Clone, Copy)]
struct Reading {
    zone: ZoneId,
    sequence: u64,
    /// Blocks that were written when the checkpoint was cut.
    cut: u32,
}

/// Reads the summaries of all data zones.
pub(super) fn read(
    rebuilt: &Rebuilt<'_>,
    content: &Content<'_, '_>,
    beside: &Beside<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Found {
    let inspector = &rebuilt.inspector;
    let mut found = Found {
        fates: vec![Fate::Unknown; inspector.zones.len()],
        ..Found::default()
    };
    let total = inspector.zones.len() as u64;
    let checkpoint = inspector.checkpoint.as_ref();
    let is_store_lost = { rebuilt.lost.iter() }.any(|lost| lost.holds_any_of(SHARED));
    let may_be_shared = is_store_lost
        && (beside.replayed.shares()
            || checkpoint.is_none_or(|checkpoint| checkpoint.footer.shared_end > 0));
    for (zone, _) in inspector.media.zones() {
        progress(zone.0.into(), total);
        let Some(header) = inspector.header(zone) else {
            continue;
        };
        if header.role != Role::Data {
            continue;
        }
        let of_zone = DataZone {
            inspector,
            zone,
            sequence: header.sequence,
        };
        let reading = Reading {
            zone,
            sequence: header.sequence,
            cut: blocks_at_cut(inspector, zone, header.sequence),
        };
        let mut named = Named::new(may_be_shared);
        let all_to = each(of_zone, &mut |written| {
            let in_tree = content.place_of(written.ino, written.block);
            if let Some(owned) = beside.owned
                && reading.newness(&written).1 < reading.cut
                && !owned.has(&written.extent)
                && (may_be_shared || is_in_lost(rebuilt, &written, in_tree))
            {
                let (_, place, start) = reading.newness(&written);
                let of = (written.ino, written.block);
                named.add((place, start), &written.extent, of);
            }
            found.take((rebuilt, content, beside), reading, (written, in_tree));
        });
        if let Some(owned) = beside.owned
            && all_to.is_some_and(|last| last.saturating_add(1) >= reading.cut)
            && let Some(fate) = found.fates.get_mut(zone.0 as usize)
        {
            *fate = owned.fate(inspector, (zone, header.sequence), &named);
        }
    }
    let moved = std::mem::take(&mut found.known);
    // What the tree has of a block may have been written to a later place: cleaning moved it.
    found.newer.retain(|at, stray| {
        let moved = moved.get(at).copied();
        let known = moved.max(newness_in_tree(rebuilt, content, *at));
        known.is_none_or(|known| known < stray.newness)
    });
    found
}

/// Where the tree has a block as of an earlier checkpoint, if its zone is still in the same use.
fn newness_in_tree(
    rebuilt: &Rebuilt<'_>,
    content: &Content<'_, '_>,
    (ino, block): (Ino, u64),
) -> Option<Newness> {
    let since = content.older(&Key::extent(ino, block))?;
    let extent = known(content, content.place_of(ino, block))?;
    let addr = extent.addr()?;
    let header = rebuilt.inspector.header(addr.zone())?;
    let is_there = addr.block() < rebuilt.then.end(since, addr.zone());
    is_there.then_some((header.sequence, addr.block(), start_of(&extent)))
}

/// Whether the place of a block is lost, or as of an earlier checkpoint.
fn is_in_lost(rebuilt: &Rebuilt<'_>, written: &Written, in_tree: (Ino, u64)) -> bool {
    let is_lost = |(ino, block)| {
        let mut lost = rebuilt.lost.holding(Key::extent(ino, block));
        lost.next().is_some()
    };
    is_lost((written.ino, written.block)) || is_lost(in_tree)
}

impl Reading {
    fn newness(&self, written: &Written) -> Newness {
        let place = written.extent.addr().map_or(0, Addr::block);
        (self.sequence, place, start_of(&written.extent))
    }
}

impl Found {
    /// A block that was written.
    fn take(
        &mut self,
        (rebuilt, content, beside): (&Rebuilt<'_>, &Content<'_, '_>, &Beside<'_>),
        reading: Reading,
        (written, in_tree): (Written, (Ino, u64)),
    ) {
        let newness = reading.newness(&written);
        let Written { ino, block, extent } = written;
        let (log_lost, place) = (beside.log_lost, newness.1);
        let later = log_lost && place >= reading.cut;
        let is_in_lost = |(ino, block)| {
            let mut lost = rebuilt.lost.holding(Key::extent(ino, block));
            lost.any(|lost| !matches!(lost.instead, Instead::Older(_)))
        };
        let since = content.older(&Key::extent(ino, block));
        let of_store = Key::extent(in_tree.0, in_tree.1);
        let is_in_older_store = in_tree.0 == SHARED && content.older(&of_store).is_some();
        let is_lost = is_in_lost((ino, block)) || is_in_lost(in_tree);
        if !(log_lost || is_lost || since.is_some() || is_in_older_store) {
            return;
        }
        let known = known(content, in_tree);
        if let Some(known) = &known
            && is_same(known, &extent)
        {
            if since.is_some() && place < reading.cut && *known != extent {
                let newest = self.known.entry((ino, block)).or_insert(newness);
                *newest = newness.max(*newest);
            }
            if (log_lost || since.is_some() || is_in_older_store)
                && *known != extent
                && !self.moved.contains_key(&in_tree)
                && !stands(content, block, known)
                && stands(content, block, &extent)
            {
                self.moved.insert(in_tree, extent);
            }
            return;
        }
        // A number in the store is given out once: what has it is the block, and a file that names it needs it.
        let is_lost = is_lost || is_in_older_store && known.is_none();
        if let Some(since) = since
            && !later
            && !(is_lost && known.is_none())
        {
            let is_newer = place >= rebuilt.then.end(since, reading.zone) && place < reading.cut;
            if ino != SHARED && is_newer && !beside.replayed.has(ino, block) {
                let stray = StrayBlock {
                    newness,
                    extent,
                    later: true,
                };
                put_newest(&mut self.newer, (ino, block), stray);
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
            newness,
            extent,
            later: later && !is_lost,
        };
        put_newest(&mut self.strays, (ino, block), stray);
    }
}

/// Puts a block, if there is no newer one.
pub(super) fn put_newest(
    blocks: &mut BTreeMap<(Ino, u64), StrayBlock>,
    at: (Ino, u64),
    stray: StrayBlock,
) {
    match blocks.entry(at) {
        Entry::Vacant(slot) => {
            slot.insert(stray);
        }
        Entry::Occupied(mut slot) if slot.get().newness < stray.newness => {
            slot.insert(stray);
        }
        Entry::Occupied(_) => {}
    }
}

/// A block as the tree has it, if it does.
pub(super) fn known(content: &Content<'_, '_>, (ino, block): (Ino, u64)) -> Option<Extent> {
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

/// Hands on each block in each intact summary of a zone, the last summary first. Returns the place of the last one, if there was none
/// before it that could not be read: all before that place was handed on then.
fn each(zone: DataZone<'_, '_>, visit: &mut dyn FnMut(Written)) -> Option<u32> {
    let mut end = zone.inspector.media.written(zone.zone);
    let (mut named, mut last, mut is_whole) = (None, None, true);
    while end > 1 {
        // The one that was named is looked at next; is it damaged, what is before that.
        let next = named.and_then(|at| Some((at, zone.summary(at).ok()?)));
        is_whole &= last.is_none() || next.is_some();
        let (at, summary) = next.or_else(|| zone.last_below(end, &mut |_, _| {}))?;
        last = last.or(Some(at));
        blocks_of(&summary, zone.zone, visit);
        if summary.previous == 0 {
            return last.filter(|_| is_whole);
        }
        named = Some(summary.previous).filter(|previous| *previous < at);
        end = summary.previous.min(at);
    }
    None
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
