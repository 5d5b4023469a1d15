//! What a geometry allows: how many zones of each use may be active, how large journal and
//! checkpoints may become, how much users may store.

use persimmon_device::BLOCK_SIZE;
use persimmon_device::{Geometry, ZoneInfo};
use persimmon_format::Addr;
use persimmon_format::footer::FOOTER_BLOCKS_MAX;
use persimmon_format::log::BODY_LEN;
use persimmon_format::page::PAGE_BLOCKS_MAX;
use persimmon_format::table::{MatEntry, Role, ZitEntry};

use super::large::Large;
use super::layout::{Layout, Part, PerPart};
use crate::error::{Error, Result};
use crate::options::Options;

/// Longest journal between two checkpoints that options can ask for, bytes: what a mount reads
/// and keeps in memory at most is twice that.
pub(crate) const JOURNAL_BYTES_LIMIT: u64 = 256 << 20;
/// Zones kept active where the device sets no limit.
const ACTIVE_DEFAULT: u32 = 14;
/// Of the volume the journal may take this part at most.
const JOURNAL_SHARE: u64 = 32;
/// And this part at least: so much can always be kept free for it.
const JOURNAL_SHARE_KEPT: u64 = 256;
/// Blocks by which the journal may go past where it is to end, besides an eighth of the shortest: what is
/// buffered when it gets there, and footers.
pub(super) const JOURNAL_OVERSHOOT: u64 = 384;
/// Blocks of journal below which no volume works well.
pub(super) const JOURNAL_BLOCKS_MIN: u64 = 48;
const DIRTY_PAGES_MIN: usize = 48;
/// A volume has a page for this many blocks at least that may be dirty,
const DIRTY_PAGES_SHARE: u64 = 128;
/// and, where zones are short, for this many.
const DIRTY_PAGES_SHARE_KEPT: u64 = 256;
/// Operations that one transaction should have at most, or frames one group of survivors, on the largest volumes.
const OPS_MAX: usize = 512;
/// Pages that become dirty at once at most, by one of those: each may change a leaf, and some split.
const DIRTIED_AT_ONCE: u64 = OPS_MAX as u64 * 3 / 2;
/// Blocks that a page takes that does not compress: only one that is larger by that takes another.
const PAGE_BLOCKS_USUAL: u64 = PAGE_BLOCKS_MAX as u64 - 1;
/// Pages that tell what others take.
const PAGES_TO_TELL: u64 = 64;

/// Blocks that may be staged, however few the volume has.
pub(crate) const STAGED_BLOCKS_MIN: u64 = 64;
/// What of each 10,000 blocks of files is kept for the pages and summaries that they need beyond those they are written with
/// first, once all of them were overwritten one by one, in no order: measured, 82 of pages and 23 of summaries.
const SCATTERED: u64 = 125;
/// The same where pages lie on another device.
const SCATTERED_APART: u64 = 30;
/// Pages that the tree may still get beyond those of a full one, by overwriting, as a part of all.
const PAGES_SLACK_SHARE: u64 = 8;

/// Blocks of one write that are staged together, whatever is staged.
const WRITE_BLOCKS_MAX: u64 = 256;
/// Zones of the second device that new data leaves free: what cleaning moves needs one.
pub(crate) const DATA_FLOOR_APART: u32 = 1;

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
        let least = |part| {
            let zones = layout.zones(part);
            let zones = report
                .iter()
                .take(zones.end as usize)
                .skip(zones.start as usize);
            zones
                .map(|z| z.capacity)
                .filter(|c| *c > 0)
                .min()
                .unwrap_or(0)
        };
        ZoneCapacities {
            metadata: least(Part::Metadata),
            data: least(Part::Data),
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

/// What the pages of the tree take on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    /// Pages that were ever written.
    pub(crate) pages: u64,
    /// Blocks that they take, in one copy.
    pub(crate) blocks: u64,
}

impl Written {
    pub(crate) fn count(&mut self, entry: &MatEntry) {
        self.pages += u64::from(entry.is_used());
        self.blocks += u64::from(entry.blocks);
    }

    pub(crate) fn discount(&mut self, entry: &MatEntry) {
        self.pages -= u64::from(entry.is_used());
        self.blocks -= u64::from(entry.blocks);
    }

    /// Blocks written for so many changes of different leaves: the leaves, and a quarter for the pages above them and
    /// the chunks that tell where they are.
    pub(crate) fn for_leaves(&self, leaves: u64) -> u64 {
        let blocks = u128::from(leaves) * u128::from(self.blocks) / u128::from(self.pages.max(1));
        u64::try_from(blocks + blocks / 4).unwrap_or(u64::MAX)
    }

    /// For how many such changes there is room in so many blocks.
    pub(super) fn leaves_in(&self, room: u64) -> u64 {
        let leaves = u128::from(room) * 4 / 5 * u128::from(self.pages);
        u64::try_from(leaves / u128::from(self.blocks.max(1))).unwrap_or(u64::MAX)
    }
}

/// Pages that checkpoints may have to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    /// How many, for the next one.
    pub(crate) count: u64,
    /// How many one under way has, whether they are written yet or not.
    pub(crate) writing: u64,
    /// How many the tree has.
    pub(crate) all: u64,
    /// What those take that the tree has on the device.
    pub(crate) written: Written,
}

/// Room in zones that is there for pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Begun {
    /// Blocks left in the zone that checkpoints go on in.
    pub(crate) left: u32,
    /// Blocks that the checkpoint under way found left, and of the zones that it has begun.
    pub(crate) had: u32,
}

/// How much may change between two checkpoints, at most and where zones are short.
struct Bounds {
    journal_blocks_max: u64,
    journal_blocks_kept: u64,
    dirty_pages_max: usize,
    dirty_pages_kept: usize,
}

/// Limits derived from the geometry and the options.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// Which zones may be used for what.
    pub(crate) layout: Layout,
    /// Zones that hold each block of the log and of metadata.
    pub(crate) copies: u32,
    /// Data zones written at the same time.
    pub(crate) data_slots: usize,
    /// Zones of data being filled, beyond which streams share what is open.
    pub(crate) separate_zones_max: usize,
    /// Survivors of cleaning have a zone of their own.
    pub(crate) survivors_apart: bool,
    /// Cold metadata has a zone of its own.
    pub(crate) cold_metadata_apart: bool,
    /// Journal blocks between two checkpoints: beyond this, changes wait.
    pub(crate) journal_blocks_max: u64,
    /// Journal blocks for which there is room even on a full volume.
    pub(crate) journal_blocks_kept: u64,
    /// Dirty pages beyond which changes wait for a checkpoint.
    pub(crate) dirty_pages_max: usize,
    /// The same where zones are short: for a checkpoint of so many there is room even on a full volume.
    pub(crate) dirty_pages_kept: usize,
    /// Free zones that only the log may take.
    pub(crate) log_floor: u32,
    /// Blocks of table chunks that a checkpoint may write.
    pub(crate) chunk_blocks_max: u64,
    /// Pages with which the tree is full: a footer can list the places of some more.
    pub(crate) pages_max: u64,
    /// Blocks of a zone for metadata behind its header.
    pub(crate) metadata_zone_blocks: u64,
    /// Free zones left alone by new data at most: for the log, the largest checkpoint, and cleaning.
    pub(crate) data_floor_max: u32,
    /// Blocks that users may fill, with data and, on one device, the metadata it needs.
    pub(crate) user_blocks: u64,
    /// Of those, the blocks of a zone: what is left beside its header and summaries.
    pub(crate) data_zone_blocks: u64,
    /// On two devices, blocks that metadata may fill.
    pub(crate) metadata_blocks: u64,
    /// Of those, the blocks of a zone: without what is left where the next page does not fit.
    pub(crate) page_zone_blocks: u64,
    /// What is kept in place of floors where zones are large.
    pub(crate) large: Option<Large>,
    /// Zones of each part that the volume keeps for itself.
    held: PerPart<u64>,
}

impl Budget {
    /// Derives the limits. A volume that has too few zones, by what is kept now, can hold nothing new; what is
    /// in it can be read and removed.
    pub(crate) fn new(
        geometry: &Geometry,
        capacities: ZoneCapacities,
        reserve_basis_points: u32,
        copies: u32,
        options: &Options,
    ) -> Result<Budget> {
        let layout = Layout::of(geometry);
        let capacity_blocks = capacities.metadata.min(capacities.data);
        if capacity_blocks < 16 {
            return Err(Error::Geometry(format!(
                "zones of {} KiB are too small; Persimmon needs at least 64 KiB",
                u64::from(capacity_blocks) * BLOCK_SIZE as u64 / 1024
            )));
        }
        let limit = |l: Option<u32>| l.unwrap_or(ACTIVE_DEFAULT);
        let active = limit(geometry.max_open)
            .min(limit(geometry.max_active))
            .min(32);
        // The log and metadata, with all their copies, and data.
        let active_min = 2 * copies + 1;
        if active < active_min {
            return Err(Error::Geometry(format!(
                "the device allows {active} open and active zones; Persimmon needs at least \
                 {active_min}{}",
                with_copies(copies)
            )));
        }
        let survivors_apart = active > active_min;
        let cold_metadata_apart = active >= 4 + 4 * copies;
        let system =
            2 * copies + u32::from(survivors_apart) + copies * u32::from(cold_metadata_apart);
        let data_slots = (active - system).min(12);

        // Those for metadata, which on one device are all.
        let zones = layout.zones(Part::Metadata).len() as u64;
        let capacity = u64::from(capacities.metadata);
        let total = zones * capacity;
        let split = layout.is_split();
        // By the geometry and a constant, since what users may fill must not become less with how a volume is opened: the option
        // is for simulations of large zones by small ones.
        let is_large = !split && copies == 1 && capacity >= options.large_zone_blocks.into();
        let Bounds {
            journal_blocks_max,
            journal_blocks_kept,
            dirty_pages_max,
            dirty_pages_kept,
        } = Bounds::of(total, is_large.then_some(capacity), options);
        // The last transaction before a checkpoint may go past the bound by its own pages.
        let pages = dirty_pages_kept as u64 * 5 / 4;
        let chunks = (dirty_pages_max as u64 * 5 / 4).div_ceil(8) / MatEntry::PER_CHUNK as u64
            + u64::from(geometry.zone_count).div_ceil(ZitEntry::PER_CHUNK as u64)
            + 2;
        let checkpoint_blocks = checkpoint_blocks(pages, chunks);
        let checkpoint_zones = checkpoint_blocks.div_ceil(capacity - 1) * u64::from(copies);
        let log_zones = (journal_blocks_kept.div_ceil(capacity - 1) + 1) * u64::from(copies);

        let log_floor = u64::from(copies);
        let data_floor = log_floor + 2 * u64::from(copies) + checkpoint_zones + 1;
        // Beyond the floors: the log as long as it can always get, zones being filled, and garbage in
        // metadata zones that waits for the next checkpoint.
        let metadata_garbage = checkpoint_zones + u64::from(copies);
        let filling = u64::from(data_slots.min(2));
        // On two devices what is staged may go past what metadata may fill: it may come to lie in the
        // tree, or split what it overwrites.
        let aside = if split { zones.div_ceil(16) } else { filling };
        let held = data_floor + log_zones + metadata_garbage + aside;
        // What the volume needs for itself counts inside the reserve.
        let fillable = |all: u64, needed: u64| {
            let reserved = share(all, reserve_basis_points.into());
            all.saturating_sub(needed.max(reserved))
        };
        let data_zones = layout.zones(Part::Data).len() as u64;
        let data_capacity = u64::from(capacities.data);
        // A header, and a summary for every 3 MiB or so.
        let usable = data_capacity - 1 - (data_capacity / 384).max(1);
        // A header, and what is left where the next page does not fit.
        let metadata_usable = capacity - (PAGE_BLOCKS_MAX as u64).min(capacity);
        // What is staged of a file lands at once: until then the zones it fills free none.
        let landing = (usable.max(STAGED_BLOCKS_MIN) + WRITE_BLOCKS_MAX).div_ceil(usable) + 1;
        let data_held = match split {
            true => filling + u64::from(DATA_FLOOR_APART) + 2 + landing,
            false => held,
        };
        let large = is_large.then(|| {
            Large::of(
                (zones, capacity, usable),
                (journal_blocks_max, dirty_pages_kept as u64),
                checkpoint_blocks,
                layout.only_log_candidates(Part::Data),
            )
        });
        let (held, data_held) = match &large {
            Some(large) => (large.zones_held(), large.zones_held()),
            None => (held, data_held),
        };
        let all = data_zones * usable;
        let more = match &large {
            Some(large) => large.slack_blocks,
            None if split => share(all, SCATTERED_APART),
            None => share(all, SCATTERED),
        };
        Ok(Budget {
            copies,
            data_slots: data_slots as usize,
            separate_zones_max: (data_zones / 32).max(2) as usize,
            survivors_apart,
            cold_metadata_apart: cold_metadata_apart
                && large.is_none_or(|large| large.metadata_zones > 1),
            journal_blocks_max,
            journal_blocks_kept,
            dirty_pages_max,
            dirty_pages_kept,
            log_floor: log_floor as u32,
            chunk_blocks_max: chunks,
            pages_max: pages_listed(capacity, geometry.zone_count),
            metadata_zone_blocks: capacity - 1,
            data_floor_max: match &large {
                Some(large) => large.spare_zones,
                None => data_floor as u32,
            },
            user_blocks: fillable(all, data_held * usable + more),
            data_zone_blocks: usable,
            metadata_blocks: match split {
                true => fillable(zones * metadata_usable, held * metadata_usable),
                false => 0,
            },
            page_zone_blocks: metadata_usable,
            large,
            held: {
                let mut by_part = PerPart::default();
                *layout.get_mut(&mut by_part, Part::Metadata) = held;
                *layout.get_mut(&mut by_part, Part::Data) = data_held;
                by_part
            },
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
        for part in self.layout.parts() {
            let zones = self.layout.zones(*part).len() as u64;
            let needed = self.layout.get(&self.held, *part) + 2;
            let capacity = match part {
                Part::Metadata => capacities.metadata,
                Part::Data => capacities.data,
            };
            if zones < needed {
                return Err(Error::Geometry(format!(
                    "{zones} zones of {capacity} blocks cannot carry {}; with zones of this size \
                     at least {needed} are needed{}",
                    match self.layout.is_split() {
                        true => "this part of a volume on two devices",
                        false => "a volume",
                    },
                    with_copies(self.copies)
                )));
            }
        }
        Ok(())
    }

    /// Zones kept for the log to grow into before a checkpoint gives some back, where it has so many, so
    /// many blocks are left in the last of them, and the journal is to get so long. How long it is does
    /// not count: no more than that is to come, for once free zones are short one that is longer is ended.
    pub(crate) fn log_growth(&self, log_zones: u32, begun_blocks: u32, journal_blocks: u64) -> u32 {
        if self.large.is_some() {
            return 0;
        }
        let zones = |blocks: u64| {
            let zones = blocks.div_ceil(self.metadata_zone_blocks) * u64::from(self.copies);
            u32::try_from(zones).unwrap_or(u32::MAX)
        };
        // One that is longer already may go on into one zone more until it is ended.
        let growth = (zones(journal_blocks) + self.copies).saturating_sub(log_zones);
        let all = journal_blocks + self.journal_overshoot();
        let missing = all.saturating_sub(begun_blocks.into());
        // A checkpoint may have to begin a zone all the same, and leaves this one to the log.
        growth.max(self.copies).min(zones(missing).max(self.copies))
    }

    /// Blocks by which the journal may go past where it is to end.
    fn journal_overshoot(&self) -> u64 {
        self.journal_blocks_kept / 8 + JOURNAL_OVERSHOOT
    }

    /// Free zones for metadata below which a journal has to end that has what is always kept for it: for a
    /// zone of the log, for what is still added to it, and for a checkpoint of these pages; and of those, the
    /// ones that must be zones that the log can take.
    pub(crate) fn journal_floor(
        &self,
        changed: Pages,
        begun: Begun,
        log_blocks_left: u32,
    ) -> (u32, u32) {
        if let Some(large) = &self.large {
            return (large.spare_zones - 1, 0);
        }
        let more = self.journal_overshoot();
        let more = more.saturating_sub(log_blocks_left.into());
        let more = more.div_ceil(self.metadata_zone_blocks) * u64::from(self.copies);
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let pages = self.checkpoint_zones(changed, begun);
        (self.pages_floor() + more + pages, self.log_floor + more)
    }

    /// Free zones left alone by the pages of a checkpoint: for the log, and for the chunks that follow them, or those of a
    /// checkpoint of the zones alone, which frees what pages wrote that found no room.
    pub(crate) fn pages_floor(&self) -> u32 {
        match self.large {
            Some(_) => 0,
            None => self.log_floor + self.copies,
        }
    }

    /// The same by those chunks.
    pub(crate) fn chunks_floor(&self) -> u32 {
        match self.large {
            Some(_) => 0,
            None => self.log_floor,
        }
    }

    /// Free zones for metadata left alone by new changes, beside those that the log may grow into, where
    /// the tree has these pages: for the log and chunks, a checkpoint that writes all of them and what
    /// is added until it comes, a zone that one before that begins with, and a zone for what cleaning moves.
    pub(crate) fn changes_floor(&self, tree: Pages) -> u32 {
        if let Some(large) = &self.large {
            return large.spare_zones;
        }
        let zones =
            self.pages_floor() + self.checkpoint_zones(tree, Begun::default()) + self.copies;
        (zones + 1).min(self.data_floor_max)
    }

    /// Free zones for metadata left alone by cleaning, beside those that the log may grow into: for the log and chunks,
    /// and for a checkpoint of these pages. With few of them cleaning may use what is otherwise kept
    /// for all. A checkpoint that begins a zone takes none from cleaning: what is left of that zone counts, and
    /// while it is used up cleaning has the zone that changes have left for it.
    pub(crate) fn survivors_floor(&self, changed: Pages, begun: Begun) -> u32 {
        if let Some(large) = &self.large {
            return large.spare_zones - 1;
        }
        let zones = self.pages_floor() + self.checkpoint_zones(changed, begun);
        zones.min(self.data_floor_max - 1)
    }

    /// Zones that a checkpoint of these pages may still take, and of those that become dirty before it is
    /// asked for, beside what is left of a zone that it goes on with; and before it one under way, beside
    /// what that has had.
    fn checkpoint_zones(&self, pages: Pages, begun: Begun) -> u32 {
        let under_way = Pages {
            count: pages.writing,
            ..pages
        };
        let next = self.next_checkpoint_blocks(pages);
        let blocks = match pages.writing {
            // At the zone's end there may be no room for a page.
            0 => next.saturating_sub(begun.left.saturating_sub(PAGE_BLOCKS_MAX as u32).into()),
            _ => next + under_way.blocks().saturating_sub(begun.had.into()),
        };
        (blocks.div_ceil(self.metadata_zone_blocks) * u64::from(self.copies)) as u32
    }

    /// Blocks that a checkpoint of these pages may take, and of those that become dirty before it is asked for.
    pub(super) fn next_checkpoint_blocks(&self, pages: Pages) -> u64 {
        let more = (self.dirty_pages_kept as u64 / 8).min(DIRTIED_AT_ONCE);
        let next = Pages {
            count: pages.count + more,
            all: pages.all + more,
            ..pages
        };
        next.blocks() + self.chunk_blocks_max
    }

    /// Operations that one transaction should have at most, or frames one group of survivors: each may dirty a page before the next look
    /// at the bounds, of so many pages that there is room for.
    pub(crate) fn ops_max(&self, pages: usize) -> usize {
        (pages.min(self.dirty_pages_kept) / 8).clamp(4, OPS_MAX)
    }

    /// Blocks of a zone of this part behind its header; on one device the same.
    pub(crate) fn zone_blocks(&self, part: Part) -> u64 {
        match part {
            Part::Data if self.layout.is_split() => self.data_zone_blocks,
            _ => self.metadata_zone_blocks,
        }
    }

    /// Where zones are large, those that new data leaves free.
    pub(super) fn spare_zones(&self) -> u32 {
        self.large.as_ref().map_or(0, |large| large.spare_zones)
    }

    /// Zones that the volume keeps for itself, of those that data is in.
    pub(crate) fn zones_held(&self) -> u32 {
        self.layout.get(&self.held, Part::Data) as u32
    }

    /// Zones taken into use together for this role.
    pub(crate) fn copies_of(&self, role: Role) -> u32 {
        match role {
            Role::Log | Role::Metadata => self.copies,
            _ => 1,
        }
    }
}

impl Pages {
    /// Blocks that they may take when they are written: as much as a page may take, but no more than all that the
    /// tree has. For those it is an eighth of a block each more than they took on average, since pages change; where
    /// there are too few to tell, as much as a page may take. Of some pages the average says nothing: leaves with
    /// checksums take twice what names do.
    ///
    /// A tree whose pages stop being compressible all at once takes more than that. The zones that
    /// the log may grow into are there for it too, which needs none once the checkpoint is durable; and one whose
    /// pages find no room all the same has left some for one of the zones alone, which frees what it wrote.
    fn blocks(self) -> u64 {
        let most = self.count * PAGE_BLOCKS_USUAL;
        let Written { pages, blocks } = self.written;
        match pages < PAGES_TO_TELL {
            true => most,
            false => most.min((self.all * (8 * blocks + pages)).div_ceil(8 * pages)),
        }
    }
}

impl Bounds {
    /// Of a volume of so many blocks, with large zones of so many, if they are.
    fn of(total: u64, large_zone: Option<u64>, options: &Options) -> Bounds {
        let of_large = |limit: fn(u64) -> u64| large_zone.map_or(u64::MAX, limit);
        let journal_bytes_max = options.journal_bytes_max.min(JOURNAL_BYTES_LIMIT);
        let journal_blocks_max = (journal_bytes_max / BLOCK_SIZE as u64)
            .min(total / JOURNAL_SHARE)
            .min(of_large(Large::journal_blocks_max))
            .max(JOURNAL_BLOCKS_MIN);
        let journal_blocks_kept = journal_blocks_max
            .min(total / JOURNAL_SHARE_KEPT)
            .max(JOURNAL_BLOCKS_MIN);
        let dirty_pages_max = options
            .dirty_pages_max
            .min((total / DIRTY_PAGES_SHARE) as usize)
            .max(DIRTY_PAGES_MIN);
        let dirty_pages_kept = dirty_pages_max
            .min((total / DIRTY_PAGES_SHARE_KEPT) as usize)
            .min(of_large(Large::dirty_pages_max) as usize)
            .max(DIRTY_PAGES_MIN);
        Bounds {
            journal_blocks_max,
            journal_blocks_kept,
            dirty_pages_max,
            dirty_pages_kept,
        }
    }
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
    let mat_chunks = match zit_chunks <= addresses / 2 {
        true => addresses - zit_chunks,
        false => 0,
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
pub(super) mod tests {
    use super::*;

    pub(in crate::zones) fn geometry(zone_count: u32, zone_blocks: u32) -> Geometry {
        Geometry {
            zone_count,
            zone_blocks,
            conventional_zones: 0,
            metadata_zones: 0,
            max_open: Some(14),
            max_active: Some(14),
            max_transfer_blocks: 256,
            max_append_blocks: 256,
            volatile_cache: false,
            write_pointer_is_proof: true,
        }
    }

    /// More zones are kept than volumes were made for once: those can still be mounted.
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

    #[test]
    fn floors_follow_the_pages() {
        let geometry = geometry(1000, 512);
        for copies in [1, 2] {
            let capacities = ZoneCapacities::all(512);
            let budget =
                Budget::new(&geometry, capacities, 0, copies, &Options::default()).unwrap();
            let mut before = 0;
            let of = |count, written| Pages {
                count,
                writing: 0,
                all: count,
                written,
            };
            let begun = |left| Begun { left, had: 0 };
            for pages in (0..10_000).step_by(50) {
                let incompressible = Written {
                    pages: 100,
                    blocks: 400,
                };
                let tree = of(pages, incompressible);
                let floor = budget.changes_floor(tree);
                assert!((before..=budget.data_floor_max).contains(&floor));
                // Cleaning has a zone that new data has left to it, whatever is dirty; and has it still when
                // a checkpoint has begun one, up to where that is full.
                assert!(budget.survivors_floor(tree, begun(0)) < floor);
                let few = of(pages.min(500), incompressible);
                assert!(
                    budget.survivors_floor(few, begun(0)) + copies < floor
                        || floor == budget.data_floor_max
                );
                before = floor;
                // Pages of two blocks need less, and too few tell nothing.
                let written = |pages| Written {
                    pages,
                    blocks: 2 * pages,
                };
                assert_eq!(of(pages, written(100)).blocks(), (pages * 17).div_ceil(8));
                assert_eq!(of(pages, written(10)).blocks(), tree.blocks());
                // Some of them may be the large ones.
                let some = Pages {
                    count: pages / 2,
                    ..of(pages, written(100))
                };
                assert_eq!(some.blocks(), pages / 2 * 4);
            }
            assert_eq!(before, budget.data_floor_max);
        }
    }
}
