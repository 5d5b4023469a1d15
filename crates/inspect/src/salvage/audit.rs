//! A page table that was put together again, held against the zone table: an entry that should
//! lead to a page that is lost, and leads to an older version of it, counts in a zone in which the
//! zone table does not count it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::{Addr, DeviceId, PageId, ZoneId};

use super::forest::{Forest, Instead, LostRange};
use super::scan::Scan;
use super::tables::{Mat, Origin};

/// Marks what may be older than it should be, and counts it as faults.
pub(crate) fn audit(
    forest: &mut Forest,
    mat: &Mat,
    zit: &[Option<ZitEntry>],
    zit_chunks: &[Addr],
    scan: &Scan,
    checkpoint: u64,
) {
    let mut counted = vec![0u64; zit.len()];
    let mut add = |addr: Addr, blocks: u64| {
        if let Some(count) = counted.get_mut(addr.zone().0 as usize) {
            *count += blocks;
        }
    };
    let reached = |id: usize| forest.reached.get(id).copied().unwrap_or(false);
    for (id, entry) in mat.entries.iter().enumerate() {
        if entry.is_used() && reached(id) {
            add(entry.addr, entry.blocks.into());
        }
    }
    let chunks = mat.chunks.iter().chain(zit_chunks);
    for addr in chunks.filter(|addr| **addr != Addr::ZERO) {
        add(*addr, 1);
    }
    // Of zones that the checkpoint wrote into itself the footer alone has the final count.
    let own = scan.zones_of(checkpoint);
    let mut suspect = BTreeSet::new();
    for (zone, (counted, entry)) in counted.iter().zip(zit).enumerate() {
        let zone = ZoneId(zone as u32);
        let Some(entry) = entry.filter(|_| !own.contains(&zone)) else {
            continue;
        };
        let valid = match entry.role {
            Role::Metadata => u64::from(entry.valid),
            _ => 0,
        };
        if *counted > valid {
            suspect.insert(zone);
            forest.faults += counted - valid;
        }
    }
    let moved: HashSet<PageId> = forest.moved.iter().map(|(id, _)| *id).collect();
    for leaf in &forest.leaves {
        let id = leaf.page.0 as usize;
        let certain = mat.origins.get(id / MatEntry::PER_CHUNK) == Some(&Origin::Own);
        let entry = mat
            .entries
            .get(id)
            .filter(|e| suspect.contains(&e.addr.zone()));
        if certain || moved.contains(&leaf.page) {
            continue;
        }
        if let Some(page) = entry.and_then(|entry| scan.page_at(leaf.page, *entry)) {
            forest.lost.push(LostRange {
                low: leaf.low,
                high: leaf.high,
                instead: Instead::Older(page.checkpoint),
            });
        }
    }
    forest.lost.sort_by_key(|lost| lost.low);
}

/// Whether a page table that was put together again may name older pages without [`audit`] noticing: a damaged page and an older one in the same
/// zone count the same, and in zones that are not `audited` nothing is counted.
pub(crate) fn may_hide_older(
    mat: &Mat,
    zones: &[ZitEntry],
    zit: &[Addr],
    scan: &Scan,
    audited: impl Fn(ZoneId) -> bool,
) -> bool {
    if scan.unknown.is_empty() {
        return false;
    }
    let is_live = |zone: ZoneId| {
        let entry = zones.get(zone.0 as usize);
        !audited(zone) || entry.is_some_and(|e| e.role == Role::Metadata && e.valid > 0)
    };
    // What is damaged where the tables say that something is, is missed there.
    let used = mat.entries.iter().filter(|entry| entry.is_used());
    let pages = used.flat_map(|entry| (0..entry.blocks.into()).map(|at| entry.addr.offset(at)));
    let chunks = mat.chunks.iter().chain(zit).copied();
    let known: HashSet<Addr> = pages.chain(chunks).collect();
    let (mut last, mut unknown) = (BTreeMap::new(), 0);
    for (zone, blocks) in scan.unknown.iter().filter(|(zone, _)| is_live(*zone)) {
        for block in blocks.clone() {
            if !known.contains(&Addr::new(DeviceId(0), *zone, block)) {
                last.insert(*zone, block);
                unknown += 1;
            }
        }
    }
    // Chunks that are lost, and nothing tells where they were, are among the damaged blocks.
    let by_chunk = || mat.entries.chunks(MatEntry::PER_CHUNK).zip(&mat.chunks);
    let is_somewhere = |(entries, addr): &(&[MatEntry], &Addr)| {
        **addr == Addr::ZERO && entries.iter().any(MatEntry::is_used)
    };
    let chunks_lost = by_chunk().filter(is_somewhere).count();
    let mut chunks = mat.entries.chunks(MatEntry::PER_CHUNK).zip(&mat.origins);
    chunks.any(|(entries, origin)| {
        let lost = match origin {
            Origin::Own => return false,
            // A newer one would have to be lost, too.
            Origin::Earlier => chunks_lost + 1,
            Origin::Lost => chunks_lost,
        };
        let hides = |entry: &MatEntry| {
            let zone = entry.addr.zone();
            let behind = last
                .get(&zone)
                .is_some_and(|block| *block > entry.addr.block());
            let elsewhere = last.len() > usize::from(last.contains_key(&zone));
            behind || elsewhere && (last.contains_key(&zone) || !audited(zone))
        };
        unknown > lost && entries.iter().any(|entry| entry.is_used() && hides(entry))
    })
}
