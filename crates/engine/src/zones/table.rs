//! The live Zone Information Table: what every zone is used for, which are free, who writes to
//! which.

use persimmon_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use persimmon_sync::{Alarm, Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;

use persimmon_device::per_zone::PerZone;
use persimmon_device::{BufferMut, ZoneId};
use persimmon_format::packed::PackUnits;
use persimmon_format::summary::SummaryBuilder;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId};

use super::allocation::Reserve;
use super::budget::Budget;
use super::counts::{Sums, ValidCounts};
use super::entries::{Entries, Touched, ZoneEntry};
use super::failure::ZoneFailure;
use super::layout::{DeviceKind, PerDevice};
use super::lifetime::{CLASS_UNKNOWN, Interval, Life, Lives};
use super::locked::Locked;
use super::pin::{Pin, Pins};
use super::reserves::UnderWay;
use super::resets::{Keeping, Resets, SUSPECTED};
use super::retry::Tries;
use super::stream::Stream;
use super::survival::{Deaths, Survival};
use super::trace::{Filled, Trace};
use super::victim_index::VictimIndex;
use super::writer::ZoneWriter;
use crate::error::{Error, Result};
use crate::invariant::invariant_holds;
use crate::media::{Media, wait_all};
use crate::pairs::Pairs;
use crate::statistics::Class;

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
    pub(super) free_zones: PerDevice<u32>,
    pub(super) in_reset: PerDevice<u32>,
    /// Zones of the log.
    pub(super) log_zones: u32,
    /// Blocks that the journal is to get as long as: zones are won for them.
    pub(super) journal_blocks: u64,
    /// Those of them for which zones are secured: they are reserved.
    pub(super) journal_blocks_secured: u64,
    /// Blocks left in the zone that the log goes on in, as far as is known.
    pub(super) log_blocks_left: u32,
    /// Blocks left in the zone that checkpoints go on in.
    pub(super) metadata_blocks_left: u32,
    /// Cleaning may take the last free zone where zones are large.
    pub(super) last_spare_borrowed: bool,
    /// What a whole checkpoint under way has had.
    pub(super) under_way: Option<UnderWay>,
    pub(super) next_sequence: u64,
    /// How often a zone was left its host's space so far.
    pub(super) resets_kept: NonZeroU32,
    pub(super) write_clock: u64,
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
    device_blocks: PerDevice<u64>,
    pub(super) valid: ValidCounts,
    pub(super) deaths: Deaths,
    pub(super) pins: Pins,
    pub(super) touched: Touched,
    pub(super) pairs: Pairs,
    /// Zones that have failed or are retired.
    pub(super) failed: PerDevice<AtomicU32>,
    /// One of them is of the log.
    pub(super) log_failing: AtomicBool,
    /// The log's zone is full, or about to be, and the next one is not begun: see [`Zones::end_log_zone`].
    pub(super) log_ends: AtomicBool,
    /// Why the last write failed that was to succeed, if it did.
    pub(super) failing: Mutex<Option<Error>>,
    pub(super) is_failing: AtomicBool,
    table: Mutex<Table>,
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
    pub(crate) fn new(
        budget: Budget,
        identity: VolumeIdentity,
        media: &Media,
        found: &PerZone<Found>,
        next_sequence: u64,
        write_clock: u64,
    ) -> Zones {
        let volume_blocks = found.iter().map(|f| u64::from(f.capacity)).sum();
        let life = |entry: &ZitEntry| Life {
            born: entry.last_write,
            interval: Interval::of_class(
                Stream::of(entry.role, entry.lifetime).map_or(CLASS_UNKNOWN, Stream::class),
                volume_blocks,
            ),
        };
        let entries: PerZone<ZoneEntry> = found
            .iter()
            .map(|f| ZoneEntry {
                role: f.entry.role,
                lifetime: f.entry.lifetime,
                write_pointer: f.entry.write_pointer,
                capacity: f.capacity,
                resets: f.entry.resets,
                sequence: f.entry.sequence,
                last_write: f.entry.last_write,
                life: life(&f.entry),
                open: false,
                used: f.used,
                in_reset: false,
                keeps_space: None,
                reset_failed: false,
                failure: f.failure,
            })
            .collect();
        let mut free = PerDevice::default();
        for (zone, entry) in (0..).map(ZoneId).zip(entries.iter()) {
            let is_free = entry.role == Role::Free && !entry.used;
            let device = budget.layout.device_of(zone);
            *budget.layout.get_mut(&mut free, device) += u32::from(is_free);
        }
        let touched = Touched::none(found.len() as u32);
        let counted = found.iter().map(|f| &f.entry);
        let valid = ValidCounts::new(
            found.len(),
            counted,
            budget.copies,
            touched.clone(),
            &media.alarm,
        );
        let (journal_blocks, journal_blocks_secured) = (
            budget.journal_blocks_first(),
            budget.journal_blocks_reserved,
        );
        let zones = Zones {
            volume_blocks,
            device_blocks: budget.layout.sums(found.iter().map(|f| f.capacity.into())),
            budget,
            identity,
            pairs: media.pairs.clone(),
            failed: PerDevice::default(),
            log_failing: AtomicBool::new(false),
            log_ends: AtomicBool::new(true),
            failing: Mutex::default(),
            is_failing: AtomicBool::new(false),
            valid,
            deaths: Deaths::none(found.len()),
            pins: Pins::new(found.len() as u32, touched.clone(), &media.alarm),
            table: Mutex::watched(
                Table {
                    alarm: media.alarm.clone(),
                    free_zones: free,
                    in_reset: PerDevice::default(),
                    log_zones: entries.iter().filter(|e| e.role == Role::Log).count() as u32,
                    victim_index: VictimIndex::default(),
                    entries: Entries::new(entries, touched.clone()),
                    journal_blocks,
                    journal_blocks_secured,
                    log_blocks_left: 0,
                    metadata_blocks_left: 0,
                    last_spare_borrowed: false,
                    under_way: None,
                    next_sequence,
                    resets_kept: SUSPECTED,
                    write_clock,
                    survival: Survival::new(volume_blocks, write_clock),
                    parked: Vec::new(),
                    out: HashMap::new(),
                    wanting: HashSet::new(),
                },
                &media.alarm,
            ),
            alarm: media.alarm.clone(),
            returned: Condvar::new(),
            touched,
            resets: Resets::new(&media.alarm),
            trace: Trace::default(),
        };
        zones.index_all(&mut zones.lock());
        zones.count_failed(&zones.lock());
        zones
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked::of(&self.table)
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

    /// Zones of a device that live blocks would not need if they filled zones: free ones and garbage.
    pub(crate) fn slack_zones(&self, device: DeviceKind) -> u32 {
        let layout = &self.budget.layout;
        let blocks = layout.get(&self.device_blocks, device);
        let average = blocks / (layout.zones(device).len() as u64).max(1);
        let lost = u64::from(self.failed_in(device)) * average;
        let spare = blocks.saturating_sub(self.live_blocks(device) + lost);
        (spare / average.max(1)) as u32
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

    /// Waits while a zone that a checkpoint could free is being read. No new reader comes to it.
    pub(crate) fn wait_for_readers(&self) {
        let is_read = || {
            let table = self.indexed();
            table
                .victim_index
                .reclaimable()
                .any(|zone| self.pins.is_read(zone))
        };
        self.pins.wait_while(is_read);
    }

    /// A writer for `stream`, opening a zone where needed and more than `reserve` are free. Waits
    /// while others hold all writers that this stream may use; the caller holds none itself.
    pub(crate) fn checkout(
        &self,
        media: &Media,
        stream: Stream,
        mut reserve: Reserve,
        shortage: Shortage,
    ) -> Result<ZoneWriter, NoWriter> {
        let (wanted, stream) = (stream, self.budget.shared(stream));
        let mut tries = Tries::default();
        let mut host_full = None;
        let mut gave_back = false;
        loop {
            let mut opened = match (
                self.take_or_open(wanted, reserve, shortage),
                host_full.take(),
            ) {
                (Ok((writer, false)), _) => return Ok(writer),
                (Ok((opened, true)), _) => opened,
                (Err(NoWriter::NeedRoom), Some(error)) => return Err(NoWriter::Failed(error)),
                (Err(error), _) => return Err(error),
            };
            if let Err(error) = media.open(opened.zone) {
                self.put_back(media, opened.zone, Some(stream));
                // It may be free zones that the host keeps its space for.
                if !std::mem::replace(&mut gave_back, true)
                    && self.give_space_back(media, Keeping::Suspected)
                {
                    continue;
                }
                // Those that are open have their space.
                host_full = Some(error.into());
                reserve = Reserve::All;
                continue;
            }
            let Err(error) = self.write_header(media, &opened) else {
                return Ok(opened);
            };
            let zone = opened.zone;
            opened.is_ending = true;
            self.check_in(media, opened);
            tries.failed(self, zone, error).map_err(NoWriter::Failed)?;
        }
    }

    fn write_header(&self, media: &Media, writer: &ZoneWriter) -> Result<()> {
        let (role, lifetime) = (writer.stream.role(), writer.stream.lifetime());
        let header = |zone| self.header(zone, role, lifetime, writer.sequence, 0);
        self.write_headers(media, Class::Summary, writer.zone, header)?;
        let mut zones = self.pairs.both(writer.zone);
        let may_be_log = zones.any(|zone| self.budget.layout.is_log_candidate(zone));
        if may_be_log && self.log_ends.load(Ordering::Acquire) {
            media.flush_headers()
        } else {
            Ok(())
        }
    }

    /// Writes the header of a zone, and the partner's own.
    pub(super) fn write_headers(
        &self,
        media: &Media,
        class: Class,
        zone: ZoneId,
        header: impl Fn(ZoneId) -> persimmon_device::Buffer,
    ) -> Result<()> {
        let write = |zone| media.write_one(class, zone, 0, vec![header(zone)]);
        wait_all(self.pairs.both(zone).flat_map(write).collect::<Vec<_>>())?;
        Ok(())
    }

    pub(super) fn header(
        &self,
        zone: ZoneId,
        role: Role,
        lifetime: u8,
        sequence: u64,
        first_log_sequence: u64,
    ) -> persimmon_device::Buffer {
        let header = ZoneHeader {
            volume: self.identity.clone(),
            device: DeviceId(0),
            zone,
            role,
            lifetime,
            sequence,
            first_log_sequence,
            partner: self.pairs.partner(zone),
        };
        let mut block = BufferMut::zeroed(1);
        block.copy_from_slice(&header.encode());
        block.freeze()
    }

    /// Takes back a writer; one that can write no more is dropped.
    pub(super) fn park(&self, mut writer: ZoneWriter) {
        let mut table = self.lock();
        let stream = writer.stream;
        let has_failed = |zone: ZoneId| {
            let entry = table.entries.get(zone);
            entry.is_some_and(|entry| entry.failure.is_some())
        };
        let goes_on = !writer.is_full() && !self.pairs.both(writer.zone).any(has_failed);
        table.writer_is_back(stream);
        invariant_holds!(
            self.alarm,
            writer.write_pointer <= writer.capacity,
            "zone {} of {} blocks is written up to {}",
            writer.zone,
            writer.capacity,
            writer.write_pointer
        );
        invariant_holds!(
            self.alarm,
            table.parked.iter().all(|parked| parked.zone != writer.zone),
            "zone {} has two writers",
            writer.zone
        );
        let clock = table.write_clock;
        if let Some(entry) = table.entries.get(writer.zone) {
            let place = entry.write_pointer;
            let written = writer.write_pointer.saturating_sub(place);
            let filled = std::mem::take(&mut writer.filled);
            if written > 0 {
                let kind = (entry.role, entry.lifetime);
                let event = filled.event(writer.zone, kind, (place, written));
                self.trace.push(event);
            }
        }
        for zone in self.pairs.both(writer.zone) {
            if let Some(entry) = table.entries.get_mut(zone) {
                invariant_holds!(
                    self.alarm,
                    entry.open && !entry.in_reset,
                    "zone {zone} was written to, and is {entry:?}"
                );
                invariant_holds!(
                    self.alarm,
                    entry.sequence == writer.sequence && entry.role == stream.role(),
                    "zone {zone} was written to as {:?} of sequence {}, and is {entry:?}",
                    stream.role(),
                    writer.sequence
                );
                invariant_holds!(
                    self.alarm,
                    writer.write_pointer >= entry.write_pointer || writer.is_ending,
                    "the write pointer of zone {zone} went from {} back to {}",
                    entry.write_pointer,
                    writer.write_pointer
                );
                let written = writer.write_pointer.saturating_sub(entry.write_pointer);
                entry.write_pointer = writer.write_pointer;
                entry.last_write = clock.saturating_add(written.into());
                if let Some(life) = writer.lives.mean() {
                    entry.life = life;
                }
                entry.open = goes_on;
                table.write_clock = clock.saturating_add(written.into());
            }
        }
        if stream == Stream::Metadata {
            // It is not longer than the zone: see above.
            let left = writer.capacity.saturating_sub(writer.write_pointer);
            table.metadata_blocks_left = left;
            if !goes_on {
                table.forget_begun(stream);
            }
        }
        if goes_on {
            table.parked.push(writer);
        }
        self.look_at_deaths(&mut table);
        drop(table);
        self.returned.notify_all();
    }

    /// All parked writers of file data that have a summary to write and are one `of` these: the caller writes
    /// it and parks them again.
    pub(crate) fn take_unsummarised(&self, of: impl Fn(&ZoneWriter) -> bool) -> Vec<ZoneWriter> {
        self.take_all(|w| of(w) && !w.summary.is_empty())
    }

    /// Takes all parked writers that are so.
    pub(super) fn take_all(&self, wanted: impl Fn(&ZoneWriter) -> bool) -> Vec<ZoneWriter> {
        let mut table = self.lock();
        let (take, keep): (Vec<_>, Vec<_>) = std::mem::take(&mut table.parked)
            .into_iter()
            .partition(wanted);
        table.parked = keep;
        for writer in &take {
            *table.out.entry(writer.stream).or_default() += 1;
        }
        take
    }

    /// Makes a zone found partly written at mount writable again, as far as the budget goes.
    /// Answers false where there is no slot for it; the caller finishes the zone then.
    pub(crate) fn resume(&self, zone: ZoneId, write_pointer: u32, last_summary: u32) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.entries.get(zone).copied() else {
            return false;
        };
        let Some(stream) = Stream::of(entry.role, entry.lifetime) else {
            return false;
        };
        let stream = self.budget.shared(stream);
        let mut lives = Lives::default();
        lives.add(entry.life, write_pointer.into());
        let partner = self.pairs.partner(zone);
        let partner = partner.and_then(|zone| table.entries.get(zone));
        let capacity = partner.map_or(u32::MAX, |e| e.capacity).min(entry.capacity);
        if !table.may_open(stream, &self.budget) || write_pointer >= capacity {
            return false;
        }
        invariant_holds!(
            self.alarm,
            table.parked.iter().all(|writer| writer.zone != zone),
            "zone {zone} is gone on with twice"
        );
        for zone in self.pairs.both(zone) {
            if let Some(entry) = table.entries.get_mut(zone) {
                invariant_holds!(
                    self.alarm,
                    !entry.open && !entry.in_reset,
                    "zone {zone} is gone on with, and is {entry:?}"
                );
                entry.open = true;
                entry.write_pointer = write_pointer;
            }
        }
        if stream == Stream::Metadata {
            table.metadata_blocks_left = capacity - write_pointer;
        }
        table.parked.push(ZoneWriter {
            zone,
            stream,
            sequence: entry.sequence,
            write_pointer,
            capacity,
            summary: SummaryBuilder::new(self.identity.incompatible),
            last_summary,
            has_moved: false,
            by_cleaning: false,
            is_ending: false,
            queue: Vec::new(),
            lives,
            filled: Filled::default(),
            alarm: self.alarm.clone(),
        });
        true
    }

    /// The table as of now, and the zones that nothing refers to. Called under the metadata
    /// lock, so that no valid count changes meanwhile.
    pub(crate) fn cut(&self) -> ZoneCut {
        let mut table = self.lock();
        // Who still wants a zone will say so again.
        table.wanting.clear();
        self.retire(&mut table);
        self.update_index(&mut table);
        #[cfg(debug_assertions)]
        invariant_holds!(
            self.alarm,
            self.index_agrees(&mut table),
            "a change touched no zone"
        );
        let mut sums = Sums::default();
        let zones = table.entries.iter();
        let entries: PerZone<ZitEntry> = zones
            .map(|(zone, entry)| {
                let valid = self.valid(zone);
                sums.add(entry.role, valid);
                entry.to_zit(valid)
            })
            .collect();
        let reclaimable = table.victim_index.reclaimable_and_failed();
        let mut resets: Vec<ZoneId> = reclaimable
            .filter(|zone| self.can_go(&table, *zone))
            .collect();
        resets.sort_unstable();
        if !self.valid.agree(sums) {
            resets.clear();
        }
        invariant_holds!(
            self.alarm,
            resets.windows(2).all(|pair| pair.first() < pair.last()),
            "a cut frees a zone twice: {resets:?}"
        );
        invariant_holds!(
            self.alarm,
            table.free_zones.total() as usize <= table.entries.len(),
            "{} zones of {} are free",
            table.free_zones.total(),
            table.entries.len()
        );
        ZoneCut {
            entries,
            resets,
            next_sequence: table.next_sequence,
            write_clock: table.write_clock,
        }
    }

    /// Whether a checkpoint can free a zone, with its partner if it has one.
    fn can_go(&self, table: &Table, zone: ZoneId) -> bool {
        let entry = table.entries.get(zone);
        entry.is_some_and(|entry| entry.is_reclaimable(self.valid(zone)))
            && !self.pairs.is_second(zone)
            && !self.pins.is_filled(zone)
    }

    /// A replayed record refers to a zone: it holds data, whatever is known of it.
    pub(crate) fn adopt(&self, zone: ZoneId) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.get_mut(zone)
            // The log is not in it then, whatever the record says: it is damaged.
            && !matches!(entry.role, Role::Data | Role::Log)
        {
            let counted = entry.role == Role::Free && !entry.used;
            entry.role = Role::Data;
            entry.used = true;
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

    /// Whether a zone that a cut found reclaimable may be reset: still unused by readers and by writers.
    pub(crate) fn may_reset(&self, zone: ZoneId) -> bool {
        !self.pins.is_filled(zone)
            && !self.pins.is_read(zone)
            && self.valid(zone) == PackUnits::ZERO
            && self.lock().entries.get(zone).is_some_and(|e| !e.open)
    }

    /// Zones of a device that the next checkpoint frees, if nothing goes wrong and nobody reads them.
    pub(crate) fn reclaimable_zones(&self, device: DeviceKind) -> u32 {
        self.indexed()
            .victim_index
            .reclaimable_count(device, &self.budget.layout)
    }

    /// The same of both.
    pub(crate) fn all_reclaimable_zones(&self) -> u32 {
        let devices = self.budget.layout.devices().iter();
        devices.map(|device| self.reclaimable_zones(*device)).sum()
    }

    /// All zones, for people and for those who look for failed ones.
    pub(crate) fn status(&self) -> Vec<ZoneStatus> {
        self.status_from(0, usize::MAX)
    }

    /// So many zones at most, from this number on.
    pub(crate) fn status_from(&self, from: usize, zones_max: usize) -> Vec<ZoneStatus> {
        let table = self.lock();
        let end = table.entries.len().min(from.saturating_add(zones_max));
        (from..end)
            .filter_map(|zone| self.status_in(&table, ZoneId(zone as u32)))
            .collect()
    }

    pub(super) fn status_in(&self, table: &Table, zone: ZoneId) -> Option<ZoneStatus> {
        let entry = table.entries.get(zone)?;
        let partner = self.pairs.partner(zone);
        let other = partner.and_then(|zone| table.entries.get(zone));
        Some(ZoneStatus {
            zone,
            entry: entry.to_zit(self.valid(zone)),
            capacity: entry.capacity,
            open: entry.open,
            failure: entry.failure,
            partner,
            partner_failure: other.and_then(|other| other.failure),
        })
    }
}

impl ZoneEntry {
    fn to_zit(self, units: PackUnits) -> ZitEntry {
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
