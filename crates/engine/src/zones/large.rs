//! Large zones: each holds many journals and checkpoints, and a drive has few of them. So such a volume counts the room in
//! its open zones, and not zones. It keeps one zone for the log, as many as metadata fills, and spare ones.
//!
//! - Log and metadata use the first spare in turn. Whichever fills its zone takes the spare; what is live in the old zone
//!   follows, and the old zone becomes the spare. Both are candidates of the log; a volume of which some zones are not has one
//!   more that only the log takes. The log leaves its zone while it still holds all checkpoints that empty a zone of metadata.
//! - Only cleaning takes the second while others are free. In low space ([`Zones::in_low_space`]) users fill the open zones,
//!   then borrow it, but stop while the live blocks of the best victim still fit behind theirs
//!   ([`Zones::checkout_in_low_space`]). Cleaning moves those there, and the victim becomes the spare.
//!
//! Sequential overwriting empties another zone while it fills the spare, so nothing moves. Where garbage is even,
//! [`Large::slack_blocks`] makes sure that the best victim wins more than its summaries take.

use persimmon_device::ZoneId;
use persimmon_format::table::Role;

use super::allocation::Reserve;
use super::budget::{JOURNAL_OVERSHOOT, Pages, share};
use super::layout::DeviceKind;
use super::stream::Stream;
use super::table::{NoWriter, Shortage, Table, Zones};
use super::writer::ZoneWriter;
use crate::media::Media;

/// Zones that new data leaves free: one for log and metadata, one that may be borrowed.
const SPARE_ZONES: u32 = 2;
/// Pages that may be dirty where zones are short, and blocks of the journal, are this part of a large zone at most.
const DIRTY_SHARE: u64 = 16;
const JOURNAL_SHARE: u64 = 16;
/// [`Large::log_blocks_least`] is at most this share of a zone.
const LOG_SHARE: u64 = 2;
/// With fewer zones than these they are reckoned with as large ones: the dozen that other volumes reserve would be a good part of them.
/// Measured with 128 zones of 12 MiB of which 85 % are live: 4.1 blocks are sent for one that is written, and 5.3 the other way.
const FEW: u64 = 192;
/// If each has so many blocks that [`LOG_SHARE`] of it is enough for the log to leave it.
const FEW_BLOCKS: u64 = 2560;
/// Blocks staged in low-space mode, and the part of a zone that they may be.
const STAGED_BLOCKS_MAX: u64 = 8192;
const STAGED_SHARE: u64 = 16;
/// Blocks of pages for each 10,000 blocks of files that were overwritten singly at random: a leaf takes a block and holds 161 to
/// 322 extents.
const SCATTERED_PAGES: u64 = 65;
/// Of a zone, the part in eighths that metadata fills: the rest is room for the checkpoints between two times that
/// it is emptied.
const METADATA_EIGHTHS: u64 = 7;
/// Of what metadata may fill, the part that is not for the pages of what is scattered, at least.
const METADATA_SHARE_MORE: u64 = 4;
/// Blocks of the log that a checkpoint takes when it moves pages out of a zone. It takes one more for each
/// [`PAGES_PER_FOOTER_BLOCK`], because the footer lists the chunks of the MAT.
const FOOTER_BLOCKS: u64 = 8;
const PAGES_PER_FOOTER_BLOCK: u64 = 100_000;
/// What is moved takes a summary for so many blocks at most, and so many when checkpoints complete them, or zones end.
const BLOCKS_PER_SUMMARY: u64 = 256;
const SUMMARIES_MORE: u64 = 64;
/// Those of what users write besides.
const USERS_SUMMARIES: u64 = 32;
/// Blocks that emptying a zone wins at least.
const WON_MIN: u64 = 96;
/// Checkpoints that may come before what is live in a zone of metadata is moved to the last one.
const CHECKPOINTS_BEFORE: u64 = 2;
/// Among this many zones with most garbage, users leave room for the one with fewest live blocks.
const LOOKED_AT: usize = 8;

/// What is reserved where zones are large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Large {
    /// Zones for metadata.
    pub(super) metadata_zones: u64,
    /// Zones that new data leaves free.
    pub(crate) spare_zones: u32,
    /// Blocks of the largest checkpoint where zones are short.
    checkpoint_blocks: u64,
    /// What metadata may take without being counted as what users write, besides the pages of what is scattered.
    pub(crate) metadata_blocks: u64,
    /// Blocks that are left in the log's zone when it is time to leave it.
    log_blocks_least: u32,
    /// Blocks that may be staged in low-space mode.
    pub(crate) staged_blocks: u64,
    /// Room or garbage in data zones when a volume is full.
    pub(super) slack_blocks: u64,
}

impl Large {
    /// Of so many zones, their capacity and what data can use of it. Where zones are short there is a journal of so many blocks at most,
    /// so many dirty pages, and checkpoints of so many blocks. If not all zones are candidates of the log,
    /// it has one spare zone more for itself.
    pub(super) fn of(
        (zones, capacity, usable): (u64, u64, u64),
        (journal_blocks, dirty_pages): (u64, u64),
        checkpoint_blocks: u64,
        all_are_candidates: bool,
    ) -> Large {
        let staged_blocks = STAGED_BLOCKS_MAX.min(capacity / STAGED_SHARE);
        let of_metadata = capacity * METADATA_EIGHTHS / 8;
        let scattered = share(zones * usable, SCATTERED_PAGES);
        let metadata_zones = (scattered + of_metadata / METADATA_SHARE_MORE).div_ceil(of_metadata);
        // A zone of metadata is emptied by checkpoints of half of the pages that may be dirty.
        let checkpoints = (2 * capacity).div_ceil(dirty_pages.max(1));
        let footer = FOOTER_BLOCKS + scattered / PAGES_PER_FOOTER_BLOCK;
        let log_blocks_least =
            journal_blocks + journal_blocks / 8 + JOURNAL_OVERSHOOT + checkpoints * footer;
        // What a full zone has that is not live is no less than its header and what `usable` leaves for summaries.
        let won = needed_for(capacity) + WON_MIN - capacity;
        let slack = won.saturating_sub(capacity - usable) + 1;
        Large {
            metadata_zones,
            spare_zones: SPARE_ZONES + u32::from(!all_are_candidates),
            checkpoint_blocks,
            metadata_blocks: metadata_zones * of_metadata - scattered,
            log_blocks_least: log_blocks_least.min(capacity / LOG_SHARE) as u32,
            staged_blocks,
            slack_blocks: zones * slack + staged_blocks,
        }
    }

    /// Whether so few zones of such a capacity are reckoned with as large ones.
    pub(super) fn is_for(zones: u64, capacity: u64) -> bool {
        zones < FEW && capacity >= FEW_BLOCKS
    }

    /// Pages that may be dirty where zones are short, of so many blocks each.
    pub(super) fn dirty_pages_max(capacity: u64) -> u64 {
        capacity / DIRTY_SHARE
    }

    /// Blocks that a journal may have where zones are short.
    pub(super) fn journal_blocks_max(capacity: u64) -> u64 {
        capacity / JOURNAL_SHARE
    }

    /// Zones that the volume keeps for itself.
    pub(super) fn zones_reserved(&self) -> u64 {
        1 + self.metadata_zones + u64::from(self.spare_zones)
    }
}

/// What must happen to the last spare, that of log and metadata, before cleaning may borrow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSpare {
    /// There is none.
    Taken,
    /// The zone that metadata is written to ends soon.
    ForMetadata {
        /// Before, so many blocks of a victim can move to open zones,
        blocks: u64,
        /// or so many leaves to what is left of that one.
        leaves: u64,
    },
    /// That of the log does.
    ForLog,
    /// Neither: cleaning may take it.
    Borrowed,
}

/// Room for what is live in victims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvacuationRoom {
    data: u64,
    metadata: u64,
    /// The only victim of data that whoever cleans ahead may begin with: users leave room for that one.
    best: Option<ZoneId>,
}

impl EvacuationRoom {
    /// There is no need to look.
    const ANY: EvacuationRoom = EvacuationRoom {
        data: u64::MAX,
        metadata: u64::MAX,
        best: None,
    };

    /// Whether a victim of this role, in which so many blocks are live, can be emptied to the end, when checkpoints write
    /// so many blocks anew for that.
    pub(crate) fn fits(&self, role: Role, live: u64, again: u64) -> bool {
        match role {
            Role::Metadata => live.saturating_add(again) < self.metadata,
            _ => needed_for(live) < self.data && again < self.metadata,
        }
    }

    /// Whether whoever cleans ahead may begin with a victim.
    pub(crate) fn is_best(&self, role: Role, zone: ZoneId) -> bool {
        role == Role::Metadata || self.best.is_none_or(|best| best == zone)
    }
}

/// Room that it takes to move so many blocks that are live.
fn needed_for(live: u64) -> u64 {
    live + live / BLOCKS_PER_SUMMARY + SUMMARIES_MORE
}

impl Zones {
    /// Whether zones are large, and no more of them are free than the spare ones.
    pub(crate) fn in_low_space(&self) -> bool {
        let large = self.budget.large.as_ref();
        large.is_some_and(|large| self.free_zones(DeviceKind::Data) <= large.spare_zones)
    }

    /// A writer for users' blocks in low-space mode, and how many of them it may take.
    pub(crate) fn checkout_in_low_space(
        &self,
        media: &Media,
        stream: Stream,
        reserve: Reserve,
    ) -> Result<(ZoneWriter, u64), NoWriter> {
        let spare = self.budget.spare_zones();
        self.leave_full_zones(media);
        let mut table = self.indexed();
        loop {
            let is_borrowed = table.free_for(Role::Data, &self.budget) < spare;
            if is_borrowed && self.log_is_short(&table) {
                return Err(NoWriter::NeedRoom);
            }
            let is_written = table.someone_writes(Role::Data);
            let open = table.unwritten_blocks();
            // How much room a zone has while somebody writes to it, nobody knows.
            if open > 0 && !(is_borrowed && is_written) {
                let blocks = if is_borrowed {
                    table.blocks_before_best(open)
                } else {
                    open
                };
                return match table.take_open(Role::Data) {
                    Some(writer) if blocks > 0 => Ok((writer, blocks)),
                    Some(writer) => {
                        drop(table);
                        self.check_in(media, writer);
                        Err(NoWriter::NeedRoom)
                    }
                    None => Err(NoWriter::NeedRoom),
                };
            }
            if !is_written {
                break;
            }
            table = self.wait_for_writer(table)?;
            self.update_index(&mut table);
        }
        if !self.may_borrow_spare(&table, 0) {
            return Err(NoWriter::NeedRoom);
        }
        drop(table);
        let borrowing = Reserve {
            zones: Some(spare - 1),
            ..reserve
        };
        let writer = self.checkout(media, stream, borrowing, Shortage::Share)?;
        let blocks = self.indexed().blocks_before_best(writer.room().into());
        match blocks {
            0 => {
                self.check_in(media, writer);
                Err(NoWriter::NeedRoom)
            }
            _ => Ok((writer, blocks)),
        }
    }

    /// Whether users may go on in low-space mode: there is room in an open zone, or they can borrow the spare one.
    pub(crate) fn can_go_on(&self) -> bool {
        let table = self.indexed();
        let open = table.unwritten_blocks();
        match table.free_for(Role::Data, &self.budget) < self.budget.spare_zones() {
            true if self.log_is_short(&table) => false,
            true => table.blocks_before_best(open) > 0,
            false => open > 0 || self.may_borrow_spare(&table, open),
        }
    }

    /// Whether what is live in the zone with most garbage would leave something of an empty one.
    fn may_borrow_spare(&self, table: &Table, open: u64) -> bool {
        let fresh = self.budget.metadata_zone_blocks.saturating_sub(1);
        table.free_for(Role::Data, &self.budget) >= self.budget.spare_zones()
            && !self.log_is_short(table)
            && table.blocks_before_best(open + fresh) > 0
    }

    /// Waits until nobody writes to a data zone.
    pub(crate) fn wait_for_data_writers(&self) {
        let mut table = self.lock();
        while table.someone_writes(Role::Data) {
            let Ok(waited) = self.wait_for_writer(table) else {
                return;
            };
            table = waited;
        }
    }

    /// Where there is a place for what is live in a victim.
    pub(crate) fn evacuation_room(&self, changed: Pages) -> EvacuationRoom {
        let Some(large) = &self.budget.large else {
            return EvacuationRoom::ANY;
        };
        let (table, spare) = (self.indexed(), large.spare_zones);
        let free = table.free_for(Role::Data, &self.budget);
        let best = table.victim_index.by_garbage().next();
        let fresh = |least| {
            if free >= least {
                self.budget.metadata_zone_blocks.saturating_sub(1)
            } else {
                0
            }
        };
        let pages = self.budget.next_checkpoint_blocks(changed);
        let left = u64::from(table.counts.metadata_blocks_left) + fresh(spare - 1);
        EvacuationRoom {
            data: if free > spare {
                u64::MAX
            } else {
                table.unwritten_blocks() + fresh(spare)
            },
            metadata: left.saturating_sub(pages),
            best: best.filter(|_| free <= spare).map(|(_, zone)| zone),
        }
    }

    /// Whether the log needs another zone soon. Then users borrow none.
    fn log_is_short(&self, table: &Table) -> bool {
        let large = self.budget.large.as_ref();
        large.is_some_and(|large| table.counts.log_blocks_left < large.log_blocks_least)
    }

    /// Whether the log is to take another zone before anything else is done: the zone is there.
    pub(crate) fn log_waits(&self) -> bool {
        let table = self.lock();
        self.log_is_short(&table)
            && table.free_for(Role::Log, &self.budget) >= self.budget.spare_zones()
    }

    /// Whether log or metadata are to have a zone won before there are more changes.
    pub(crate) fn zones_are_missing(&self) -> bool {
        let table = self.lock();
        let (spare, free) = (
            self.budget.spare_zones(),
            table.free_for(Role::Log, &self.budget),
        );
        let wanted = if self.log_is_short(&table) {
            spare
        } else {
            spare - 1
        };
        free < wanted
    }

    /// Whether metadata may take the last zone with one of the next checkpoints.
    pub(crate) fn metadata_is_to_take_last(&self, changed: Pages) -> bool {
        let table = self.lock();
        let free = table.free_for(Role::Metadata, &self.budget);
        self.budget.large.is_some()
            && free + 1 == self.budget.spare_zones()
            && u64::from(table.counts.metadata_blocks_left)
                < CHECKPOINTS_BEFORE * self.budget.next_checkpoint_blocks(changed)
    }

    /// Whether so many blocks fit in a zone of metadata behind the checkpoints that come before they are written.
    pub(crate) fn fits_in_last(&self, blocks: u64, changed: Pages) -> bool {
        let before = CHECKPOINTS_BEFORE * self.budget.next_checkpoint_blocks(changed);
        blocks.saturating_add(before) < self.budget.metadata_zone_blocks
    }

    /// Tells who needs the last spare first. If nobody does, cleaning borrows it until [`Zones::return_last_spare`]. Cleaning sorts
    /// `found_at_once` blocks at a time.
    pub(crate) fn borrow_last_spare(&self, found_at_once: u64, changed: Pages) -> LastSpare {
        let mut table = self.indexed();
        let left = u64::from(table.counts.metadata_blocks_left);
        // What is found at once is moved in the order of files, and makes each page dirty once.
        let live = table
            .needed_for_best()
            .min(self.budget.metadata_zone_blocks);
        let pages = live.min(live.div_ceil(found_at_once) * changed.all);
        let tree = changed.written;
        let needed = tree.for_leaves(pages) + self.budget.next_checkpoint_blocks(changed);
        // The log leaves its zone only with so much left for the checkpoints that free it.
        let for_log = match &self.budget.large {
            Some(large) if self.log_is_short(&table) => {
                1 + self.checkpoints_of_log(large, table.free_for(Role::Log, &self.budget), changed)
            }
            _ => 0,
        };
        match () {
            () if table.free_for(Role::Data, &self.budget) + 1 < self.budget.spare_zones() => {
                LastSpare::Taken
            }
            () if left
                < needed
                    .min(self.budget.metadata_zone_blocks * 3 / 4)
                    .max(for_log) =>
            {
                let spared = left.saturating_sub(self.budget.next_checkpoint_blocks(changed));
                let open = table.unwritten_blocks();
                let open = open.saturating_sub(needed_for(open) - open);
                let leaves = tree.leaves_in(spared);
                LastSpare::ForMetadata {
                    blocks: open.min(leaves),
                    leaves,
                }
            }
            () if self.log_is_short(&table) => LastSpare::ForLog,
            () => {
                table.counts.last_spare_borrowed = true;
                LastSpare::Borrowed
            }
        }
    }

    /// Whether the zone that metadata is written to has room for the next checkpoint.
    pub(crate) fn metadata_goes_on(&self, changed: Pages) -> bool {
        let left = u64::from(self.counts().metadata_blocks_left);
        self.budget.next_checkpoint_blocks(changed) < left
    }

    /// Cleaning takes no more of it.
    pub(crate) fn return_last_spare(&self) {
        self.lock().counts.last_spare_borrowed = false;
    }

    /// Ends data zones that have room for nothing but a summary, and have none to write.
    fn leave_full_zones(&self, media: &Media) {
        let is_full = |writer: &ZoneWriter| {
            writer.stream.role() == Role::Data && writer.room() == 0 && writer.summary.is_empty()
        };
        self.end_writers(media, is_full);
    }

    /// Ends the zone that metadata is written to, so that what is live in it can go to another.
    pub(crate) fn leave_metadata_zone(&self, media: &Media) {
        self.end_writers(media, |writer| writer.stream == Stream::Metadata);
    }

    /// Whether the log is to leave its zone before the next checkpoint, while it can: the zone ends, space is low, and the
    /// checkpoint that frees it needs no other.
    pub(crate) fn log_is_to_leave(&self, changed: Pages) -> bool {
        let Some(large) = &self.budget.large else {
            return false;
        };
        let table = self.indexed();
        let free = table.free_for(Role::Log, &self.budget);
        let pages = self.checkpoints_of_log(large, free, changed);
        self.log_is_short(&table)
            && free <= large.spare_zones
            && table.victim_index.free_candidates().next().is_some()
            && table.counts.log_zones == 1
            && !table.counts.last_spare_borrowed
            && pages < table.counts.metadata_blocks_left.into()
    }

    /// Blocks of metadata that the checkpoint takes with which the log leaves its zone.
    fn checkpoints_of_log(&self, large: &Large, free: u32, changed: Pages) -> u64 {
        let pages = self.budget.next_checkpoint_blocks(changed);
        // Others may change pages meanwhile, or the power may fail: two checkpoints then.
        if free < large.spare_zones {
            2 * pages.max(large.checkpoint_blocks)
        } else {
            pages
        }
    }

    /// Blocks left in the log's zone when it is time to leave it.
    pub(crate) fn log_blocks_least(&self) -> u32 {
        let large = self.budget.large.as_ref();
        large.map_or(0, |large| large.log_blocks_least)
    }
}

impl Table {
    /// Room that it takes to empty the data zone with fewest live blocks, of those with most garbage; more than there is if none has any.
    fn needed_for_best(&self) -> u64 {
        let zones = self.victim_index.by_garbage().take(LOOKED_AT);
        let live = zones.filter_map(|(garbage, zone)| {
            let entry = self.entries.get(zone)?;
            Some(entry.capacity.saturating_sub(garbage))
        });
        let least = live.min();
        least.map_or(u64::MAX, |live| needed_for(live.into()))
    }

    /// Blocks that users may write into `room` and still leave space to empty that zone. Counts their summaries: each write may flush
    /// one.
    fn blocks_before_best(&self, room: u64) -> u64 {
        let left = room.saturating_sub(self.needed_for_best().saturating_add(USERS_SUMMARIES));
        left - left.div_ceil(BLOCKS_PER_SUMMARY)
    }

    /// A writer of any zone of a role that has room and that nobody writes to.
    pub(super) fn take_open(&mut self, role: Role) -> Option<ZoneWriter> {
        self.take(|w| w.stream.role() == role && w.room() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::tests::geometry;
    use super::super::budget::{Budget, ZoneCapacities};
    use super::*;
    use crate::options::Options;

    const GIB: u64 = (1 << 30) / 4096;

    fn budget(zone_count: u32, zone_blocks: u32, copies: u32) -> Budget {
        let geometry = geometry(zone_count, zone_blocks);
        let capacities = ZoneCapacities::all(zone_blocks);
        Budget::new(&geometry, capacities, 0, copies, &Options::default()).unwrap()
    }

    #[test]
    fn of_large_zones_few_are_kept() {
        let zone = 2 * GIB as u32;
        // With 128 the pages of what is scattered may take two, and the log has a candidate for itself.
        for (zones, reserved) in [(32, 4), (64, 4), (128, 6)] {
            let of_users = budget(zones, zone, 1).user_blocks;
            let not_users = u64::from(zones) * u64::from(zone) - of_users;
            assert!(
                not_users > reserved * u64::from(zone),
                "{zones}: {not_users}"
            );
            // A quarter of a percent for summaries, and as much garbage as makes one zone worth emptying.
            let more = u64::from(zones) * u64::from(zone) / 200;
            assert!(
                not_users < reserved * u64::from(zone) + more,
                "{zones}: {not_users}"
            );
        }
    }

    #[test]
    fn zones_that_hold_few_checkpoints_are_not_large() {
        let is_large = |zones, blocks, copies| budget(zones, blocks, copies).large.is_some();
        assert!(is_large(64, 2 * GIB as u32, 1));
        assert!(is_large(64, GIB as u32 / 2, 1));
        assert!(!is_large(64, 2 * GIB as u32, 2));
        assert!(!is_large(1024, 4096, 1));
        // Few are, if the log leaves them in time.
        assert!(is_large(128, 3072, 1) && !is_large(128, 3072, 2));
        assert!(!is_large(FEW as u32, 3072, 1) && !is_large(128, 2048, 1));
        for blocks in [FEW_BLOCKS, 3072, 4096, 16_384, 131_072] {
            let large = budget(128, blocks as u32, 1).large.unwrap();
            let journal = Large::journal_blocks_max(blocks);
            assert!(
                u64::from(large.log_blocks_least) > journal + JOURNAL_OVERSHOOT,
                "{blocks}: {large:?}"
            );
            assert!(
                u64::from(large.log_blocks_least) < blocks / LOG_SHARE,
                "{blocks}"
            );
        }
    }

    #[test]
    fn what_is_scattered_has_zones_for_its_pages() {
        // 1 PB and more: pages of all of it take thousands of zones.
        for zones in [32, 1000, 500_000] {
            let budget = budget(zones, 2 * GIB as u32, 1);
            let large = budget.large.unwrap();
            let pages = budget.user_blocks * SCATTERED_PAGES / 10_000;
            let room = large.metadata_zones * u64::from(2 * GIB as u32) * METADATA_EIGHTHS / 8;
            assert!(pages <= room, "{zones}");
        }
    }

    #[test]
    fn what_wins_nothing_has_no_place() {
        let room = EvacuationRoom {
            data: 10_000,
            metadata: 500,
            best: Some(ZoneId(7)),
        };
        assert!(room.fits(Role::Data, 9_800, 499));
        assert!(!room.fits(Role::Data, 9_950, 0));
        assert!(!room.fits(Role::Data, 9_800, 500));
        assert!(room.fits(Role::Metadata, 490, 9));
        assert!(!room.fits(Role::Metadata, 490, 10));
        assert!(room.is_best(Role::Data, ZoneId(7)) && !room.is_best(Role::Data, ZoneId(6)));
        assert!(room.is_best(Role::Metadata, ZoneId(6)));
    }
}
