//! What a geometry allows: how many zones of each use may be active, how large journal and
//! checkpoints may become, how much users may store.

mod bounds;
mod pages;
mod steps;

use persimmon_device::{BLOCK_SIZE, Geometry, ZoneId, ZoneInfo};
use persimmon_format::Addr;
use persimmon_format::footer::FOOTER_BLOCKS_MAX;
use persimmon_format::log::BODY_LEN;
use persimmon_format::page::PAGE_BLOCKS_MAX;
use persimmon_format::table::{MatEntry, Role, ZitEntry};

use super::large::Large;
use super::layout::{DeviceKind, Layout, PerDevice};
use crate::error::{Error, Result};
use crate::options::Options;
use bounds::Bounds;
pub(super) use bounds::JOURNAL_BLOCKS_MIN;
pub(crate) use bounds::JOURNAL_BYTES_LIMIT;
use pages::PAGE_BLOCKS_USUAL;
pub(crate) use pages::{Pages, Written};
pub(super) use steps::JOURNAL_OVERSHOOT;

/// Blocks of the smallest zone.
const ZONE_BLOCKS_MIN: u32 = 16;
/// Zones kept active where the device sets no limit.
const ACTIVE_DEFAULT: u32 = 14;
/// Zones kept active at most,
const ACTIVE_MAX: u32 = 32;
/// and of those of data.
const DATA_SLOTS_MAX: u32 = 12;
/// Blocks that may be staged, however few the volume has.
pub(crate) const STAGED_BLOCKS_MIN: u64 = 64;
/// Of each 10,000 blocks of files, those reserved for the pages and summaries that they need beyond those they are written with
/// first, once all of them were overwritten one by one, in no order: measured, 82 of pages and 23 of summaries.
const SCATTERED: u64 = 125;
/// The same where pages lie on another device.
const SCATTERED_APART: u64 = 30;
/// Pages that the tree may still get beyond those of a full one, by overwriting, as a part of all.
const PAGES_SLACK_SHARE: u64 = 8;

/// Of all zones, those that may be in the middle of being filled before streams share them: what is left in them is room that
/// cleaning lacks.
const SEPARATE_SHARE: u64 = 32;
/// The same for lifetimes that users tell. They are few, and files that die apart cost more in one zone than the room that is
/// left in four: a database's on 64 zones had 27 % of what was sent moved, and 9 % with all else as it is now.
const HINTED_SHARE: u64 = 8;
/// With fewer zones moved blocks with a lifetime hint have none of their own. What has lived longer lives on longer: with 2,000 zones, 90 %
/// full, files of two lifetimes cost 1.42 together and 1.09 apart. But each zone that is not full is one that
/// cleaning lacks: a database's on 64 zones had 6 % moved apart, and 3 % together.
const FEW_ZONES: u64 = 128;

/// Of a zone in rows of several blocks, what is filled up at the ends of batches: cleaning moves some 256 blocks at a time.
const FILLED_UP_SHARE: u64 = 32;
/// Blocks of one write that are staged together, whatever is staged.
const WRITE_BLOCKS_MAX: u64 = 256;
/// Zones of the second device that new data leaves free: what cleaning moves needs one.
pub(crate) const DATA_RESERVE_APART: u32 = 1;

/// Capacity of the smallest zone, in blocks, of those for metadata and those for data; on one device
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneCapacities {
    /// For the log and metadata.
    pub metadata: u32,
    /// For file data.
    pub data: u32,
}

impl ZoneCapacities {
    /// Of a device; zones without any capacity, which are offline, do not count.
    #[must_use]
    pub fn of(geometry: &Geometry, report: &[ZoneInfo]) -> ZoneCapacities {
        let layout = Layout::of(geometry);
        let least = |device| {
            let zones = (0..).map(ZoneId).zip(report);
            zones
                .filter(|(zone, _)| layout.contains(device, *zone))
                .map(|(_, z)| z.capacity)
                .filter(|c| *c > 0)
                .min()
                .unwrap_or(0)
        };
        ZoneCapacities {
            metadata: least(DeviceKind::Metadata),
            data: least(DeviceKind::Data),
        }
    }

    /// The same for all zones.
    #[must_use]
    pub fn all(blocks: u32) -> ZoneCapacities {
        ZoneCapacities {
            metadata: blocks,
            data: blocks,
        }
    }
}

/// Limits derived from the geometry and the options.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// Which zones may be used for what.
    pub(crate) layout: Layout,
    /// Zones that hold each block of the log and of metadata.
    pub(crate) copies: u32,
    /// What is sent to a zone of data ends at a whole row of so many blocks.
    row_blocks: u32,
    /// Data zones written at the same time.
    pub(crate) data_slots: usize,
    /// Zones of data being filled, beyond which streams share what is open.
    pub(crate) separate_zones_max: usize,
    /// The same for lifetimes that users tell.
    pub(crate) hinted_zones_max: usize,
    /// Zones are so few that what cleaning moves out of zones with a lifetime hint goes back to such zones.
    pub(crate) has_few_zones: bool,
    /// Blocks that cleaning moved have a zone of their own.
    pub(crate) moved_apart: bool,
    /// Cold metadata has a zone of its own.
    pub(crate) cold_metadata_apart: bool,
    /// Journal blocks between two checkpoints: beyond this, changes wait.
    pub(crate) journal_blocks_max: u64,
    /// Journal blocks for which there is room even on a full volume.
    pub(crate) journal_blocks_reserved: u64,
    /// Dirty pages beyond which changes wait for a checkpoint.
    pub(crate) dirty_pages_max: usize,
    /// The same where zones are short: for a checkpoint of so many there is room even on a full volume.
    pub(crate) dirty_pages_reserved: usize,
    /// Free zones that only the log may take.
    pub(crate) log_reserve: u32,
    /// Blocks of table chunks that a checkpoint may write.
    pub(crate) chunk_blocks_max: u64,
    /// Pages with which the tree is full: a footer can list the places of some more.
    pub(crate) pages_max: u64,
    /// Blocks of a zone for metadata behind its header.
    pub(crate) metadata_zone_blocks: u64,
    /// Free zones left alone by new data at most: for the log, the largest checkpoint, and cleaning.
    pub(crate) data_reserve_max: u32,
    /// Blocks that users may fill, with data and, on one device, the metadata it needs.
    pub(crate) user_blocks: u64,
    /// Blocks of the reserved share beyond what the volume needs for itself: without them cleaning costs more, and nothing else.
    pub(crate) spare_blocks: u64,
    /// Of those, the blocks of a zone: what is left beside its header and summaries.
    pub(crate) data_zone_blocks: u64,
    /// On two devices, blocks that metadata may fill.
    pub(crate) metadata_blocks: u64,
    /// Of those, the blocks of a zone: without what is left where the next page does not fit.
    pub(crate) page_zone_blocks: u64,
    /// What is reserved where zones are large.
    pub(crate) large: Option<Large>,
    /// Zones of each device that the volume reserves for itself.
    reserved: PerDevice<u64>,
}

impl Budget {
    /// Derives the limits. A volume that has too few zones, by what is reserved now, can hold nothing new; what is
    /// in it can be read and removed.
    pub(crate) fn new(
        geometry: &Geometry,
        capacities: ZoneCapacities,
        reserve_basis_points: u32,
        copies: u32,
        options: &Options,
    ) -> Result<Budget> {
        check_zone_size(capacities)?;
        let slots = Slots::of(geometry, copies)?;
        let layout = Layout::of(geometry);
        let is_split = layout.is_split();
        // Those for metadata, which on one device are all.
        let zones = u64::from(layout.zone_count(DeviceKind::Metadata));
        let capacity = u64::from(capacities.metadata);
        // By the geometry and a constant, since what users may fill must not become less with how a volume is opened: the option
        // is for simulations of large zones by small ones.
        let is_large = !is_split
            && copies == 1
            && (capacity >= options.large_zone_blocks.into() || Large::is_for(zones, capacity));
        let bounds = Bounds::of(zones * capacity, is_large.then_some(capacity), options);
        let chunk_blocks_max = chunk_blocks_max(bounds.dirty_pages_max, geometry.zone_count);
        // The last transaction before a checkpoint may go past the bound by its own pages.
        let pages = bounds.dirty_pages_reserved as u64 * 5 / 4;
        let checkpoint_blocks = checkpoint_blocks(pages, chunk_blocks_max);

        let data_zones = u64::from(layout.zone_count(DeviceKind::Data));
        let row_blocks = geometry.row_blocks();
        let data_usable = data_usable(capacities.data, row_blocks);
        // A header, and what is left where the next page does not fit.
        let page_usable = capacity - (PAGE_BLOCKS_MAX as u64).min(capacity);
        let large = is_large.then(|| {
            Large::of(
                (zones, capacity, data_usable),
                (
                    bounds.journal_blocks_reserved,
                    bounds.dirty_pages_reserved as u64,
                ),
                checkpoint_blocks,
                layout.only_log_candidates(DeviceKind::Data),
            )
        });
        let reserves = ZoneReserves::of(
            capacity,
            copies,
            bounds.journal_blocks_reserved,
            checkpoint_blocks,
        );
        let (reserved, data_reserved) = match &large {
            Some(large) => (large.zones_reserved(), large.zones_reserved()),
            None if is_split => (
                // What is staged may go past what metadata may fill: it may come to lie in the tree, or split what it overwrites.
                reserves.zones() + zones.div_ceil(16),
                slots.filling() + u64::from(DATA_RESERVE_APART) + 2 + batch_zones(data_usable),
            ),
            None => (
                reserves.zones() + slots.filling(),
                reserves.zones() + slots.filling(),
            ),
        };
        let all = data_zones * data_usable;
        let scattered = match &large {
            Some(large) => large.slack_blocks,
            None if is_split => share(all, SCATTERED_APART),
            None => share(all, SCATTERED),
        };
        // What the volume needs for itself counts inside the reserve.
        let fillable = |all: u64, needed: u64| {
            let reserved = share(all, reserve_basis_points.into());
            all.saturating_sub(needed.max(reserved))
        };
        let needed = data_reserved * data_usable + scattered;
        let mut reserved_by_device = PerDevice::default();
        *layout.get_mut(&mut reserved_by_device, DeviceKind::Metadata) = reserved;
        *layout.get_mut(&mut reserved_by_device, DeviceKind::Data) = data_reserved;
        Ok(Budget {
            copies,
            row_blocks,
            data_slots: slots.data,
            separate_zones_max: (data_zones / SEPARATE_SHARE).max(2) as usize,
            hinted_zones_max: (data_zones / HINTED_SHARE).max(2) as usize,
            has_few_zones: data_zones < FEW_ZONES,
            moved_apart: slots.moved_apart,
            cold_metadata_apart: slots.cold_metadata_apart
                && large.is_none_or(|large| large.metadata_zones > 1),
            journal_blocks_max: bounds.journal_blocks_max,
            journal_blocks_reserved: bounds.journal_blocks_reserved,
            dirty_pages_max: bounds.dirty_pages_max,
            dirty_pages_reserved: bounds.dirty_pages_reserved,
            log_reserve: copies,
            chunk_blocks_max,
            pages_max: pages_listed(capacity, geometry.zone_count),
            metadata_zone_blocks: capacity - 1,
            data_reserve_max: match &large {
                Some(large) => large.spare_zones,
                None => reserves.data_reserve as u32,
            },
            user_blocks: fillable(all, needed),
            spare_blocks: fillable(all, needed).abs_diff(all.saturating_sub(needed)),
            data_zone_blocks: data_usable,
            metadata_blocks: if is_split {
                fillable(zones * page_usable, reserved * page_usable)
            } else {
                0
            },
            page_zone_blocks: page_usable,
            large,
            reserved: reserved_by_device,
            layout,
        })
    }

    /// Whether there are zones enough for a new volume, and not too many.
    pub(crate) fn check_zones(&self, capacities: ZoneCapacities) -> Result<()> {
        if self.pages_max == 0 {
            return Err(Error::Geometry(format!(
                "a checkpoint lists all zones within one, and those of {} blocks are too small for so many; \
                 make them larger",
                capacities.metadata
            )));
        }
        for device in self.layout.devices() {
            let zones = u64::from(self.layout.zone_count(*device));
            let needed = self.layout.get(&self.reserved, *device) + 2;
            let capacity = match device {
                DeviceKind::Metadata => capacities.metadata,
                DeviceKind::Data => capacities.data,
            };
            if zones < needed {
                return Err(Error::Geometry(format!(
                    "{zones} zones of {capacity} blocks cannot carry {}; with zones of this size \
                     at least {needed} are needed{}",
                    if self.row_blocks > 1 {
                        "their part of a volume with parity"
                    } else if self.layout.is_split() {
                        "this device of a volume on two"
                    } else {
                        "a volume"
                    },
                    with_copies(self.copies)
                )));
            }
        }
        Ok(())
    }

    /// Blocks of a zone of this device behind its header; on one device the same.
    pub(crate) fn zone_blocks(&self, device: DeviceKind) -> u64 {
        match device {
            DeviceKind::Data if self.layout.is_split() => self.data_zone_blocks,
            _ => self.metadata_zone_blocks,
        }
    }

    /// Zones that the volume keeps for itself, of those that data is in.
    pub(crate) fn zones_reserved(&self) -> u32 {
        self.layout.get(&self.reserved, DeviceKind::Data) as u32
    }

    /// How long the journal is to get until a checkpoint tells what a longer one would be worth: so long that the log needs few zones
    /// beyond the one it has. A load that journals little may never have such a checkpoint, and its volume would go without
    /// those zones for good.
    pub(crate) fn journal_blocks_first(&self) -> u64 {
        let few = self.metadata_zone_blocks / 2;
        few.clamp(self.journal_blocks_reserved, self.journal_blocks_max)
    }

    /// Blocks of a row of a zone of this role.
    pub(crate) fn row_blocks_of(&self, role: Role) -> u32 {
        match role {
            Role::Data => self.row_blocks,
            // Two devices, or sets that are mirrors.
            _ if self.layout.is_split() => 1,
            _ => self.row_blocks,
        }
    }

    /// Zones taken into use together for this role.
    pub(crate) fn copies_of(&self, role: Role) -> u32 {
        match role {
            Role::Log | Role::Metadata => self.copies,
            _ => 1,
        }
    }
}

/// Zones that may be active at the same time, by what they are for. The log and metadata always have theirs.
struct Slots {
    data: usize,
    moved_apart: bool,
    cold_metadata_apart: bool,
}

impl Slots {
    fn of(geometry: &Geometry, copies: u32) -> Result<Slots> {
        let limit = |l: Option<u32>| l.unwrap_or(ACTIVE_DEFAULT);
        let active = limit(geometry.max_open)
            .min(limit(geometry.max_active))
            .min(ACTIVE_MAX);
        // The log and metadata, with all their copies, and data.
        let active_min = 2 * copies + 1;
        if active < active_min {
            return Err(Error::Geometry(format!(
                "the device allows {active} open and active zones; Persimmon needs at least \
                 {active_min}{}",
                with_copies(copies)
            )));
        }
        let moved_apart = active > active_min;
        let cold_metadata_apart = active >= 4 + 4 * copies;
        let others = 2 * copies + u32::from(moved_apart) + copies * u32::from(cold_metadata_apart);
        Ok(Slots {
            data: (active - others).min(DATA_SLOTS_MAX) as usize,
            moved_apart,
            cold_metadata_apart,
        })
    }

    /// Zones of data that are reckoned to be in the middle of being filled.
    fn filling(&self) -> u64 {
        self.data.min(2) as u64
    }
}

/// The most zones that a volume without large zones reserves for itself, of those that log and metadata are in.
struct ZoneReserves {
    /// Left alone by new data: for the log, the largest checkpoint, and cleaning.
    data_reserve: u64,
    /// The log, as long as it can always get.
    log: u64,
    /// Garbage in metadata zones that waits for the next checkpoint.
    metadata_garbage: u64,
}

impl ZoneReserves {
    fn of(
        capacity: u64,
        copies: u32,
        journal_blocks_reserved: u64,
        checkpoint_blocks: u64,
    ) -> ZoneReserves {
        let copies = u64::from(copies);
        let zones_for = |blocks: u64| blocks.div_ceil(capacity - 1) * copies;
        let checkpoint = zones_for(checkpoint_blocks);
        ZoneReserves {
            data_reserve: copies + 2 * copies + checkpoint + 1,
            log: zones_for(journal_blocks_reserved) + copies,
            metadata_garbage: checkpoint + copies,
        }
    }

    fn zones(&self) -> u64 {
        self.data_reserve + self.log + self.metadata_garbage
    }
}

fn check_zone_size(capacities: ZoneCapacities) -> Result<()> {
    let capacity_blocks = capacities.metadata.min(capacities.data);
    if capacity_blocks < ZONE_BLOCKS_MIN {
        return Err(Error::Geometry(format!(
            "zones of {} KiB are too small; Persimmon needs at least 64 KiB",
            u64::from(capacity_blocks) * BLOCK_SIZE as u64 / 1024
        )));
    }
    Ok(())
}

/// Blocks of a zone of data behind its header that take data: a summary goes with every 3 MiB or so. In rows of several blocks each
/// summary and each batch of data fills its last one.
fn data_usable(capacity: u32, row_blocks: u32) -> u64 {
    let (capacity, row) = (u64::from(capacity), u64::from(row_blocks));
    let summaries = (capacity / 384).max(1) * row;
    let filled_up = if row > 1 {
        capacity / FILLED_UP_SHARE
    } else {
        0
    };
    capacity.saturating_sub(1 + summaries + filled_up)
}

/// Zones that a batch fills with data. The data of a file is committed at once: until then those zones free none.
fn batch_zones(data_usable: u64) -> u64 {
    (data_usable.max(STAGED_BLOCKS_MIN) + WRITE_BLOCKS_MAX).div_ceil(data_usable) + 1
}

/// Blocks of table chunks that a checkpoint may write.
fn chunk_blocks_max(dirty_pages_max: usize, zone_count: u32) -> u64 {
    (dirty_pages_max as u64 * 5 / 4).div_ceil(8) / MatEntry::PER_CHUNK as u64
        + u64::from(zone_count).div_ceil(ZitEntry::PER_CHUNK as u64)
        + 2
}

/// A share in hundredths of a percent.
pub(super) fn share(all: u64, of: u64) -> u64 {
    (all * of).div_ceil(10_000)
}

/// Blocks that a checkpoint of so many pages and chunks takes at most.
fn checkpoint_blocks(pages: u64, chunks: u64) -> u64 {
    pages * PAGE_BLOCKS_USUAL + chunks
}

/// Pages with which a tree is full, on a volume of so many zones of this capacity; none where a footer has no room for
/// both tables.
fn pages_listed(capacity: u64, zones: u32) -> u64 {
    // A zone holds a header, and other blocks of the log beside a footer; a quarter is for counters and overrides.
    let blocks = ((capacity - 1) * 3 / 4).min(FOOTER_BLOCKS_MAX.into());
    let addresses = blocks * BODY_LEN as u64 / size_of::<Addr>() as u64 * 3 / 4;
    let zit_chunks = u64::from(zones).div_ceil(ZitEntry::PER_CHUNK as u64);
    let mat_chunks = if zit_chunks <= addresses / 2 {
        addresses - zit_chunks
    } else {
        0
    };
    let pages = mat_chunks * MatEntry::PER_CHUNK as u64;
    pages - pages / PAGES_SLACK_SHARE
}

fn with_copies(copies: u32) -> &'static str {
    if copies > 1 { " for two copies" } else { "" }
}

/// Whether a device of this shape can carry a volume with so many copies of log and metadata; [`Error::Geometry`] says why not and how many zones are needed.
pub fn check_geometry(
    geometry: &Geometry,
    capacities: ZoneCapacities,
    reserve_basis_points: u32,
    copies: u32,
) -> Result<()> {
    let options = Options::default();
    let budget = Budget::new(geometry, capacities, reserve_basis_points, copies, &options)?;
    budget.check_zones(capacities)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn geometry(zone_count: u32, zone_blocks: u32) -> Geometry {
        Geometry {
            zone_count,
            zone_blocks,
            conventional_zones: 0,
            metadata_zones: Default::default(),
            max_open: Some(14),
            max_active: Some(14),
            max_transfer_blocks: 256,
            max_append_blocks: 256,
            volatile_cache: false,
            write_pointer_is_proof: true,
            stripes: None,
        }
    }

    /// More zones are reserved than volumes were made for once: those can still be mounted.
    #[test]
    fn a_volume_of_too_few_zones_is_full_and_not_refused() {
        for copies in [1, 2] {
            let capacities = ZoneCapacities::all(512);
            let of = |zones| {
                Budget::new(
                    &geometry(zones, 512),
                    capacities,
                    0,
                    copies,
                    &Options::default(),
                )
                .unwrap()
            };
            let enough = (1..100).find(|zones| of(*zones).check_zones(capacities).is_ok());
            let enough = enough.unwrap();
            assert!(of(enough).user_blocks > 0);
            let few = of(enough - 3);
            assert_eq!(few.user_blocks, 0);
            assert!(matches!(
                few.check_zones(capacities),
                Err(Error::Geometry(_))
            ));
        }
    }

    /// A reader took footers of up to 32,768 chunks of each table, and nothing kept who writes them from writing longer ones: with 11 million
    /// pages, or four million zones, a volume went on, and could not be mounted again.
    #[test]
    fn no_footer_outgrows_a_zone() {
        // The smallest zones of all; an image of 4 TiB; 28 TB of disk.
        for (zones, blocks) in [(200_000, 16), (4 << 20, 256), (111_760, 65_536)] {
            let pages = pages_listed(blocks, zones);
            let full = pages + pages / (PAGES_SLACK_SHARE - 1);
            let chunks = full.div_ceil(MatEntry::PER_CHUNK as u64)
                + u64::from(zones).div_ceil(ZitEntry::PER_CHUNK as u64);
            let footer_blocks = (chunks * 8).div_ceil(BODY_LEN as u64);
            assert!(footer_blocks < blocks.min(FOOTER_BLOCKS_MAX.into()));
            // Some pages for every zone.
            assert!(pages >= u64::from(zones), "{zones} zones: {pages} pages");
        }
        let capacities = ZoneCapacities::all(16);
        let budget = |zones| {
            let geometry = geometry(zones, 16);
            Budget::new(&geometry, capacities, 0, 1, &Options::default()).unwrap()
        };
        assert!(budget(200_000).check_zones(capacities).is_ok());
        let too_many = budget(4 << 20).check_zones(capacities);
        assert!(matches!(too_many, Err(Error::Geometry(_))));
    }
}
