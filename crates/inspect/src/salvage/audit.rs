//! A page table that was put together again, held against the zone table: an entry that should
//! lead to a page that is lost, and leads to an older version of it, counts in a zone in which the
//! zone table does not count it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::{Addr, DeviceId, PageId, ZoneId};

use super::forest::{Forest, Instead, LostRange};
use super::scan::Scan;
use super::tables::Mat;

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
        let certain = mat.certain.get(id / MatEntry::PER_CHUNK) == Some(&true);
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

/// Whether a page table that was put together again may name older pages without [`audit`] noticing: a damaged page and an older one in the same zone
/// count the same.
pub(crate) fn may_hide_older(mat: &Mat, zones: &[ZitEntry], zit: &[Addr], scan: &Scan) -> bool {
    let chunks: HashSet<&Addr> = mat.chunks.iter().chain(zit).collect();
    let is_live = |zone: ZoneId| {
        let zone = zones.get(zone.0 as usize);
        zone.is_some_and(|zone| zone.role == Role::Metadata && zone.valid > 0)
    };
    let mut last: BTreeMap<ZoneId, u32> = BTreeMap::new();
    for (zone, blocks) in scan.unknown.iter().filter(|(zone, _)| is_live(*zone)) {
        let mut backwards = blocks.clone().rev();
        let is_chunk = |block| chunks.contains(&Addr::new(DeviceId(0), *zone, block));
        if let Some(block) = backwards.find(|block| !is_chunk(*block)) {
            last.insert(*zone, block);
        }
    }
    let entries = mat.entries.chunks(MatEntry::PER_CHUNK).zip(&mat.certain);
    let entries = entries.filter(|(_, certain)| !**certain);
    let mut entries = entries.flat_map(|(entries, _)| entries);
    entries.any(|entry| {
        let behind = last.get(&entry.addr.zone()).filter(|_| entry.is_used());
        behind.is_some_and(|block| *block > entry.addr.block() || last.len() > 1)
    })
}
