//! Finding the superblock of an image: at the start, at the end, and, when asked to search, anywhere.
//! Where no copy is left, the shape of the image is found by the headers of its zones.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use persimmon_format::container::{
    COPIES, ContainerError, ContainerGeometry, DATA_ALIGN_BYTES, SECOND_COPY, Superblock,
    ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN, has_magic,
};
use persimmon_format::zone_header::{PROPERTIES, ZoneHeader};
use persimmon_format::{BLOCK_SIZE, container};

use super::host::Host;

type Block = [u8; BLOCK_SIZE];

/// An image as it was found.
pub(super) struct FoundImage {
    pub(super) superblock: Superblock,
    /// Copies that are not good, or not as new.
    pub(super) bad_copies: Vec<u32>,
    /// No copy was left.
    pub(super) by_zones: bool,
}

/// Why there is no image to be opened.
pub(super) enum Unusable {
    /// It cannot be read.
    Io(io::Error),
    /// Nothing of an image was found where it was looked for.
    NotAContainer,
    /// There is one, but it is damaged, or of another release.
    Bad(ContainerError),
}

/// Finds the image in the `length` bytes of a host. `search`: all over it, if need be.
pub(super) fn find(host: &dyn Host, length: u64, search: bool) -> Result<FoundImage, Unusable> {
    let first = read_copy(host, 0, length)?;
    // Making an image begins with this copy, and the others may be those of the one before: a search is for that.
    let unfinished = first.as_ref().ok().filter(|found| !found.complete).cloned();
    let begun = |superblock| FoundImage {
        superblock,
        bad_copies: Vec::new(),
        by_zones: false,
    };
    let first = match unfinished.clone() {
        Some(unfinished) if !search => return Ok(begun(unfinished)),
        Some(_) => Err(ContainerError::NotAContainer),
        None => first,
    };
    let second = read_copy(host, SECOND_COPY, length)?;
    for copy in [&first, &second] {
        if let Err(error) = copy
            && is_of_other_release(error)
        {
            return Err(Unusable::Bad(error.clone()));
        }
    }
    let at_start = match (&first, &second) {
        (Ok(first), Ok(second)) if second.is_of_same(first) => {
            Some(newer(first.clone(), second.clone()))
        }
        (Ok(found), _) | (Err(_), Ok(found)) => Some(found.clone()),
        (Err(_), Err(_)) => None,
    };
    if let Some(found) = at_start.filter(|found| found.complete) {
        let last = copy_at(host, end_of(&found), length)?;
        let last = last.filter(|last| last.complete && last.is_of_same(&found));
        let superblock = match &last {
            Some(last) => newer(found, last.clone()),
            None => found,
        };
        let good = |copy: Option<&Superblock>| copy == Some(&superblock);
        let copies = [
            good(first.as_ref().ok()),
            good(second.as_ref().ok()),
            good(last.as_ref()),
        ];
        let bad_copies = (0..).zip(copies).filter(|(_, good)| !good);
        return Ok(FoundImage {
            bad_copies: bad_copies.map(|(copy, _)| copy).collect(),
            superblock,
            by_zones: false,
        });
    }
    let near_end = search_in(host, near_end(length), length)?;
    if let Some(found) = best_near_end(host, near_end.copies, length)? {
        return Ok(found);
    }
    if search {
        let places = (0..length).step_by(DATA_ALIGN_BYTES as usize);
        let searched = search_in(host, places, length)?;
        let by_zones = by_zones(searched.headers.iter());
        let found = best_anywhere(searched.copies, searched.headers.iter())?;
        let by_zones = by_zones.map(|superblock| FoundImage {
            superblock,
            bad_copies: (0..COPIES).collect(),
            by_zones: true,
        });
        if let Some(found) = found.or(by_zones) {
            return Ok(found);
        }
    }
    if let Some(unfinished) = unfinished {
        return Ok(begun(unfinished));
    }
    Err([first, second]
        .into_iter()
        .filter_map(Result::err)
        .find(|error| *error != ContainerError::NotAContainer)
        .map_or(Unusable::NotAContainer, Unusable::Bad))
}

/// What of earlier images lies at the end of so many bytes, where it might be taken for a copy of one that
/// is made now.
pub(super) fn stale_copies(host: &dyn Host, length: u64) -> io::Result<Vec<u64>> {
    let mut places: Vec<u64> = near_end(length).collect();
    let mut block = [0; BLOCK_SIZE];
    for copy in [0, SECOND_COPY] {
        if is_inside(copy, length) {
            host.read_at(&mut block, copy)?;
            places.extend(Superblock::decode(&block).ok().map(|found| end_of(&found)));
        }
    }
    places.retain(|place| is_inside(*place, length));
    let mut stale = Vec::new();
    for place in places {
        host.read_at(&mut block, place)?;
        if has_magic(&block) {
            stale.push(place);
        }
    }
    Ok(stale)
}

/// Whether an error says that the image is whole, and another release can read it.
fn is_of_other_release(error: &ContainerError) -> bool {
    matches!(
        error,
        ContainerError::Newer { .. }
            | ContainerError::Older { .. }
            | ContainerError::UnknownFeatures { .. }
    )
}

fn newer(one: Superblock, other: Superblock) -> Superblock {
    if other.generation > one.generation {
        other
    } else {
        one
    }
}

/// Where copy 2 is of a container that is like this.
fn end_of(superblock: &Superblock) -> u64 {
    let layout = superblock.layout();
    layout.map_or(u64::MAX, |layout| layout.end)
}

fn is_inside(place: u64, length: u64) -> bool {
    let end = place.checked_add(BLOCK_SIZE as u64);
    end.is_some_and(|end| end <= length)
}

fn read_block(host: &dyn Host, place: u64, length: u64) -> Result<Option<Block>, Unusable> {
    if !is_inside(place, length) {
        return Ok(None);
    }
    let mut block = [0; BLOCK_SIZE];
    host.read_at(&mut block, place).map_err(Unusable::Io)?;
    Ok(Some(block))
}

fn read_copy(
    host: &dyn Host,
    place: u64,
    length: u64,
) -> Result<Result<Superblock, ContainerError>, Unusable> {
    let block = read_block(host, place, length)?;
    Ok(block.map_or(Err(ContainerError::NotAContainer), |block| {
        Superblock::decode(&block)
    }))
}

/// The superblock whose last copy is at `place`, if a good one is there.
fn copy_at(host: &dyn Host, place: u64, length: u64) -> Result<Option<Superblock>, Unusable> {
    let found = read_copy(host, place, length)?.ok();
    Ok(found.filter(|found| end_of(found) == place))
}

/// Where copy 2 may be of a container that ends where its device ends, the last first. A zone has 1 MiB at
/// least, so what follows copy 2 is no more than this part of the device.
fn near_end(length: u64) -> impl Iterator<Item = u64> {
    let cells = length / DATA_ALIGN_BYTES * container::CELL_BYTES as u64;
    // Both tables, if it has grown.
    let behind = (2 * cells + container::TAIL_BYTES).div_ceil(DATA_ALIGN_BYTES) + 2;
    let last = length / DATA_ALIGN_BYTES;
    (last.saturating_sub(behind)..=last)
        .rev()
        .map(|index| index * DATA_ALIGN_BYTES)
}

/// What a search has come upon.
#[derive(Default)]
struct Searched {
    /// Last copies of superblocks, as they were found.
    copies: Vec<Superblock>,
    /// Zone headers, and where they are.
    headers: Vec<(u64, ZoneHeader)>,
}

fn search_in(
    host: &dyn Host,
    places: impl Iterator<Item = u64>,
    length: u64,
) -> Result<Searched, Unusable> {
    let mut searched = Searched::default();
    for place in places {
        let Some(block) = read_block(host, place, length)? else {
            continue;
        };
        if let Ok(found) = Superblock::decode(&block)
            && found.complete
            && end_of(&found) == place
        {
            searched.copies.push(found);
        } else if let Ok(header) = ZoneHeader::decode(&block) {
            searched.headers.push((place, header));
        }
    }
    Ok(searched)
}

/// Copies whose zones are looked at where several were found: whoever writes to an image can put one into every MiB, and
/// each may claim all zones. Of images that were made and used in earnest there is one, and one or two of before.
const COPIES_LOOKED_AT: usize = 4;

/// The superblock that most zones bear out: it may be what is left of an earlier image, or the content of a file. `zones_of`
/// tells how many do.
fn best_copy(
    copies: Vec<Superblock>,
    mut zones_of: impl FnMut(&Superblock) -> Result<usize, Unusable>,
) -> Result<Option<FoundImage>, Unusable> {
    let mut best: Option<(usize, Superblock)> = None;
    let only = copies.len() == 1;
    for copy in copies {
        let zones = zones_of(&copy)?;
        let better = best
            .as_ref()
            .is_none_or(|(most, known)| (zones, copy.generation) > (*most, known.generation));
        // One that was made and not used yet has no zones.
        if better && (zones > 0 || only) {
            best = Some((zones, copy));
        }
    }
    Ok(best.map(|(_, superblock)| FoundImage {
        superblock,
        bad_copies: vec![0, 1],
        by_zones: false,
    }))
}

/// The same of copies found near the end, by the first blocks of their zones: of the last copies in the image, as nothing is behind
/// the one that counts but its table.
fn best_near_end(
    host: &dyn Host,
    mut copies: Vec<Superblock>,
    length: u64,
) -> Result<Option<FoundImage>, Unusable> {
    copies.truncate(COPIES_LOOKED_AT);
    best_copy(copies, |copy| {
        let Ok(layout) = copy.layout() else {
            return Ok(0);
        };
        let mut zones = 0;
        for place in (layout.data..layout.end).step_by(layout.zone_stride as usize) {
            let block = read_block(host, place, length)?;
            let header = block.and_then(|block| ZoneHeader::decode(&block).ok());
            zones += usize::from(header.is_some_and(|header| header.volume.uuid == copy.volume));
        }
        Ok(zones)
    })
}

/// The same of copies found anywhere, by the zone headers that were found with them. Of each volume the newest copies are
/// looked at, and each header with those of its volume alone: as often as that at most.
pub(super) fn best_anywhere<'h>(
    mut copies: Vec<Superblock>,
    headers: impl Iterator<Item = &'h (u64, ZoneHeader)>,
) -> Result<Option<FoundImage>, Unusable> {
    copies.sort_by_key(|copy| (copy.volume, Reverse(copy.generation)));
    let mut of_volume = (None, 0);
    copies.retain(|copy| {
        let (uuid, kept) = of_volume;
        of_volume = if uuid == Some(copy.volume) {
            (uuid, kept + 1)
        } else {
            (Some(copy.volume), 1)
        };
        of_volume.1 <= COPIES_LOOKED_AT
    });
    let mut zones: BTreeMap<[u8; 16], Vec<u64>> = BTreeMap::new();
    for (place, header) in headers {
        zones.entry(header.volume.uuid).or_default().push(*place);
    }
    best_copy(copies, |copy| {
        let (Ok(layout), Some(places)) = (copy.layout(), zones.get(&copy.volume)) else {
            return Ok(0);
        };
        let begins_zone = |place: &u64| {
            let from_first = place.checked_sub(layout.data);
            *place < layout.end && from_first.is_some_and(|bytes| bytes % layout.zone_stride == 0)
        };
        Ok(places
            .iter()
            .copied()
            .filter(|place| begins_zone(place))
            .count())
    })
}

/// Two zones of a volume that are not the same, the first that were found.
struct Apart {
    first: (u64, u32),
    other: Option<(u64, u32)>,
}

/// The superblock of the image that zone headers make up: the volume and the layout that most of them agree
/// on. Of the limits of open and active zones nothing tells; of a capacity that is no whole number of
/// MiB only the MiB.
pub(super) fn by_zones<'h>(
    headers: impl Iterator<Item = &'h (u64, ZoneHeader)> + Clone,
) -> Option<Superblock> {
    let mut volumes: BTreeMap<[u8; 16], Apart> = BTreeMap::new();
    for (place, header) in headers.clone() {
        let this = (*place, header.zone.0);
        let apart = volumes.entry(header.volume.uuid).or_insert(Apart {
            first: this,
            other: None,
        });
        if apart.other.is_none() && apart.first.1 != this.1 {
            apart.other = Some(this);
        }
    }
    let mut votes: BTreeMap<([u8; 16], u32), (usize, Superblock)> = BTreeMap::new();
    for (place, header) in headers {
        let apart = volumes.get(&header.volume.uuid);
        let other = apart.and_then(|apart| {
            if apart.first.1 == header.zone.0 {
                apart.other
            } else {
                Some(apart.first)
            }
        });
        for superblock in shapes(other, *place, header) {
            let Some(superblock) = placed(superblock, *place, header) else {
                continue;
            };
            let key = (superblock.volume, superblock.geometry.capacity_blocks);
            let (count, voted) = votes.entry(key).or_insert((0, superblock.clone()));
            *count += 1;
            // Headers from before a volume grew tell of fewer zones.
            if voted.geometry.zone_count < superblock.geometry.zone_count {
                *voted = superblock;
            }
        }
    }
    let winner = votes.into_values().max_by_key(|(votes, _)| *votes);
    winner.map(|(_, superblock)| superblock)
}

/// An image in which this header is where its zone begins, if it is one. What has grown has its first zone where it
/// had it before.
fn placed(mut superblock: Superblock, place: u64, header: &ZoneHeader) -> Option<Superblock> {
    let layout = superblock.geometry.layout().ok()?;
    let from_first = u64::from(header.zone.0) * layout.zone_stride;
    if layout.data + from_first == place {
        return Some(superblock);
    }
    superblock.data = Some(place.checked_sub(from_first)?);
    let may_have_grown = header.volume.incompatible & PROPERTIES != 0;
    (may_have_grown && superblock.layout().is_ok()).then_some(superblock)
}

/// Images that a header at `place` may be of: with zones as far from each other as it is from `other`, the place and number of
/// another one, or as large as it says.
fn shapes(other: Option<(u64, u32)>, place: u64, header: &ZoneHeader) -> Vec<Superblock> {
    let volume = &header.volume;
    let apart = other.and_then(|(there, other)| {
        let zones = u64::from(other.abs_diff(header.zone.0));
        let stride = there.abs_diff(place).checked_div(zones)?;
        u32::try_from(stride / BLOCK_SIZE as u64).ok()
    });
    let mut strides = vec![volume.zone_blocks];
    strides.extend(apart.filter(|apart| *apart != volume.zone_blocks));
    strides
        .into_iter()
        .filter(|stride| (ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(stride))
        .map(|stride| Superblock {
            geometry: ContainerGeometry {
                zone_count: volume.zone_count,
                zone_blocks: volume.zone_blocks,
                capacity_blocks: stride.min(volume.zone_blocks),
                max_open: None,
                max_active: None,
            },
            generation: 1,
            uuid: volume.visible_uuid,
            volume: volume.uuid,
            data: None,
            label: volume.label.clone(),
            complete: true,
            table_seed: Superblock::seed_for(volume.uuid),
        })
        .collect()
}
