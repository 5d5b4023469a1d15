//! The live Zone Information Table: what every zone is used for, which are free, who writes to
//! which.

use persimmon_sync::atomic::{AtomicBool, AtomicU32};
use persimmon_sync::{Alarm, Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use persimmon_device::ZoneId;
use persimmon_device::per_zone::PerZone;
use persimmon_format::Addr;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::VolumeIdentity;

use super::budget::Budget;
use super::counts::ValidCounts;
use super::entries::{Entries, Touched, ZoneEntry};
use super::failure::ZoneFailure;
use super::layout::{DeviceKind, PerDevice};
use super::lifetime::ZoneLives;
use super::locked::Locked;
use super::padding::Padding;
use super::pin::{Pin, Pins};
use super::resets::Resets;
use super::stream::Stream;
use super::survival::{Deaths, Survival};
use super::trace::Trace;
use super::victim_index::VictimIndex;
use super::writer::ZoneWriter;
use super::zone_counts::{Published, ZoneCounts};
use crate::error::Error;
use crate::pairs::Pairs;

/// Why no writer could be had.
#[derive(Debug)]
pub(crate) enum NoWriter {
    /// Too few zones are free for this stream: clean, checkpoint, and try again.
    NeedRoom,
    /// The device failed.
    Failed(crate::Error),
}

/// What to do for a stream that has no zone where there is a slot for one, but too few zones are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Tell, unless a zone of blocks that live about as long takes them: room can be made. What dies at
    /// different times in one zone has to be moved later.
    Tell,
    /// Write to the zone of any other.
    Share,
}

pub(super) struct Table {
    pub(super) alarm: Alarm,
    pub(super) entries: Entries,
    pub(super) victim_index: VictimIndex,
    pub(super) counts: ZoneCounts,
    pub(super) published: Published,
    pub(super) next_sequence: u64,
    /// How often a zone was left its host's space so far.
    pub(super) resets_kept: NonZeroU32,
    pub(super) survival: Survival,
    pub(super) parked: Vec<ZoneWriter>,
    /// Writers checked out, by stream.
    pub(super) out: HashMap<Stream, usize>,
    /// Streams that had to use the zone of another for want of a slot.
    pub(super) wanting: HashSet<Stream>,
}

/// The zones of a volume.
pub(crate) struct Zones {
    pub(crate) budget: Budget,
    pub(super) identity: VolumeIdentity,
    /// Capacity of all zones.
    pub(super) volume_blocks: u64,
    /// The same of each device.
    pub(super) device_blocks: PerDevice<u64>,
    pub(super) valid: ValidCounts,
    pub(super) deaths: Deaths,
    pub(super) padding: Padding,
    pub(super) lives: ZoneLives,
    pub(super) pins: Pins,
    pub(super) touched: Touched,
    pub(super) pairs: Pairs,
    /// Zones that have failed or are retired.
    pub(super) failed: PerDevice<AtomicU32>,
    /// One of them is of the log.
    pub(super) log_failing: AtomicBool,
    /// Some zone may have to be emptied though it has not failed.
    pub(super) lacks_redundancy: AtomicBool,
    /// The log's zone is full, or about to be, and the next one is not begun: see [`Zones::end_log_zone`].
    pub(super) log_ends: AtomicBool,
    /// Why the last write failed that was to succeed, if it did.
    pub(super) failing: Mutex<Option<Error>>,
    pub(super) is_failing: AtomicBool,
    /// Something could not be written for want of space on the host, and no file data has been since.
    pub(super) host_is_full: AtomicBool,
    pub(super) table: Mutex<Table>,
    pub(super) published: Published,
    pub(super) alarm: Alarm,
    pub(super) returned: Condvar,
    pub(super) resets: Resets,
    pub(crate) trace: Trace,
}

/// The ZIT as a checkpoint's cut found it.
pub(crate) struct ZoneCut {
    /// Entry of each zone.
    pub(crate) entries: PerZone<ZitEntry>,
    /// Zones to reset once the checkpoint is durable.
    pub(crate) resets: Vec<ZoneId>,
    /// Zones taken into use after the cut have this sequence or a later one: recovery goes by it.
    pub(crate) next_sequence: u64,
    pub(crate) write_clock: u64,
}

/// A zone, for choosing victims and for people.
#[derive(Clone, Copy, Debug)]
pub struct ZoneStatus {
    /// The zone.
    pub zone: ZoneId,
    /// Use, valid blocks, write pointer, resets ...
    pub entry: ZitEntry,
    /// Blocks it can hold.
    pub capacity: u32,
    /// Being written to.
    pub open: bool,
    /// It has failed for good.
    pub failure: Option<ZoneFailure>,
    /// The zone that holds the same.
    pub partner: Option<ZoneId>,
    /// That one has failed for good.
    pub partner_failure: Option<ZoneFailure>,
    /// It is to be emptied: something in it does not survive the loss of any one zone, as it should, which a scrub found; or it holds
    /// metadata, and the volume has a device for that by now; or the log can take it, and few such are left.
    pub lacks_redundancy: bool,
}

/// What a zone is at mount, after replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) entry: ZitEntry,
    pub(crate) capacity: u32,
    /// Something was written to it since its last reset.
    pub(crate) used: bool,
    /// It has failed for good.
    pub(crate) failure: Option<ZoneFailure>,
}

impl Zones {
    pub(super) fn lock(&self) -> Locked<'_> {
        Locked::of(&self.table)
    }

    /// Whether a zone or its partner is known to have failed.
    pub(super) fn has_failed_in(&self, table: &Table, zone: ZoneId) -> bool {
        self.pairs
            .both(zone)
            .filter_map(|zone| table.entries.get(zone))
            .any(|entry| entry.failure.is_some())
    }

    /// A zone as the table has it.
    pub(super) fn status_in(&self, table: &Table, zone: ZoneId) -> Option<ZoneStatus> {
        let entry = table.entries.get(zone)?;
        let partner = self.pairs.partner(zone);
        let other = partner.and_then(|zone| table.entries.get(zone));
        Some(ZoneStatus {
            zone,
            entry: entry.to_zit(self.valid(zone)),
            capacity: entry.capacity,
            open: entry.is_open(),
            failure: entry.failure,
            partner,
            partner_failure: other.and_then(|other| other.failure),
            lacks_redundancy: entry.lacks_redundancy,
        })
    }

    /// So much of file data at `addr` became referenced.
    pub(crate) fn add_data(&self, addr: Addr, units: PackUnits) {
        self.valid.add(Role::Data, addr.zone(), units);
    }

    /// The same of metadata.
    pub(crate) fn add_metadata(&self, addr: Addr, blocks: u64) {
        let units = PackUnits::of_blocks(blocks);
        self.valid.add(Role::Metadata, addr.zone(), units);
    }

    /// So much of file data at `addr` is no longer referenced.
    pub(crate) fn sub_data(&self, addr: Addr, units: PackUnits) {
        self.valid.sub(Role::Data, addr.zone(), units);
        self.deaths.add(addr.zone(), units);
    }

    /// The same of metadata.
    pub(crate) fn sub_metadata(&self, addr: Addr, blocks: u64) {
        let units = PackUnits::of_blocks(blocks);
        self.valid.sub(Role::Metadata, addr.zone(), units);
    }

    /// So much of a zone is referenced, whatever was counted before.
    pub(crate) fn set_valid(&self, zone: ZoneId, units: PackUnits) {
        let role = self.lock().entries.get(zone).map(|entry| entry.role);
        self.valid.set(role.unwrap_or_default(), zone, units);
    }

    /// So much is referenced as the zone table says, whatever was counted before: for zones that were in another use by
    /// then too.
    pub(crate) fn set_counts(&self, found: &PerZone<Found>) {
        self.valid.set_all(found.iter().map(|found| &found.entry));
    }

    /// Whether valid counts are all there is, so that what contradicts them stops the volume.
    pub(crate) fn counts_are_complete(&self, are_complete: bool) {
        self.valid.set_complete(are_complete);
    }

    /// What of a zone is referenced.
    pub(crate) fn valid(&self, zone: ZoneId) -> PackUnits {
        self.valid.of(zone)
    }

    /// The same in blocks, rounded up.
    pub(crate) fn valid_blocks(&self, zone: ZoneId) -> u32 {
        self.valid(zone).blocks() as u32
    }

    /// Blocks referenced in the zones of a device.
    pub(crate) fn live_blocks(&self, device: DeviceKind) -> u64 {
        match device {
            _ if !self.budget.layout.is_split() => {
                self.live_data_blocks() + self.live_metadata_blocks()
            }
            DeviceKind::Data => self.live_data_blocks(),
            DeviceKind::Metadata => self.live_metadata_blocks(),
        }
    }

    /// Blocks referenced in file data.
    pub(crate) fn live_data_blocks(&self) -> u64 {
        self.valid.live(Role::Data).blocks()
    }

    /// The same in metadata, with all copies.
    pub(crate) fn live_metadata_blocks(&self) -> u64 {
        self.valid.live(Role::Metadata).blocks()
    }

    /// Blocks that still fit into open zones of file data.
    pub(crate) fn unwritten_blocks(&self) -> u64 {
        self.lock().unwritten_blocks()
    }

    pub(crate) fn pin(&self, zone: ZoneId) -> Option<Pin> {
        self.pins.pin(zone)
    }

    pub(crate) fn pin_filling(&self, zone: ZoneId) -> Option<Pin> {
        self.pins.pin_filling(zone)
    }

    /// Whether something was written to a zone that is not in the tree yet.
    pub(crate) fn is_filled(&self, zone: ZoneId) -> bool {
        self.pins.is_filled(zone)
    }

    /// A replayed record refers to a zone: it holds data, whatever is known of it.
    pub(crate) fn adopt(&self, zone: ZoneId) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.get_mut(zone)
            // The log is not in it then, whatever the record says: it is damaged.
            && !matches!(entry.role, Role::Data | Role::Log)
        {
            let counted = entry.role == Role::Free && !entry.is_used();
            let role = std::mem::replace(&mut entry.role, Role::Data);
            entry.close();
            self.lives.set(zone, entry.life);
            table.leave_role(zone, role, &self.budget);
            if counted {
                table.take_from_free(zone, &self.budget);
            }
        }
    }

    /// One zone as of now.
    pub(crate) fn entry(&self, zone: ZoneId) -> Option<ZitEntry> {
        let table = self.lock();
        table.entries.get(zone).map(|e| e.to_zit(self.valid(zone)))
    }
}

impl ZoneEntry {
    pub(super) fn to_zit(self, units: PackUnits) -> ZitEntry {
        let entry = ZitEntry {
            role: self.role,
            lifetime: self.lifetime,
            valid: 0,
            short: 0,
            write_pointer: self.write_pointer,
            resets: self.resets,
            sequence: self.sequence,
            last_write: match self.role {
                Role::Data => self.life.born,
                _ => self.last_write,
            },
        };
        entry.with_pack_units(units)
    }
}

impl Table {
    /// Lets everybody see the counts.
    pub(super) fn publish(&self) {
        self.published.set(&self.counts);
    }
}
