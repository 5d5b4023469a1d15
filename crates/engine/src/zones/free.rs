//! Free zones: how many there are, and how zones are taken into use and given back.

use persimmon_device::ZoneId;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;

use super::budget::Budget;
use super::entries::{State, ZoneEntry};
use super::layout::DeviceKind;
use super::table::{Table, Zones};
use crate::invariant::{invariant_holds, invariant_sub};
use crate::pairs::Pairs;

impl Zones {
    /// Zones that are free for a device.
    pub(crate) fn free_zones(&self, device: DeviceKind) -> u32 {
        self.counts().free(&self.budget.layout, device)
    }

    /// Blocks that free zones of a device have, and those that are written to.
    pub(crate) fn free_blocks(&self, device: DeviceKind) -> u64 {
        let table = self.lock();
        let zones = u64::from(self.budget.layout.get(&table.counts.free, device));
        let free = zones * self.budget.zone_blocks(device);
        let begun = u64::from(table.counts.metadata_blocks_left);
        match device {
            _ if !self.budget.layout.is_split() => free + begun + table.unwritten_blocks(),
            DeviceKind::Metadata => free + begun,
            DeviceKind::Data => free + table.unwritten_blocks(),
        }
    }

    /// Free zones in all.
    pub(crate) fn all_free_zones(&self) -> u32 {
        self.counts().free.total()
    }

    /// Zones that the log can take that are free, or on their way.
    pub(crate) fn log_candidates_coming(&self) -> u32 {
        let table = self.lock();
        let comes = |entry: &ZoneEntry| entry.is_free() || entry.is_in_reset();
        let candidates = self.budget.layout.log_candidates();
        let coming = candidates.filter(|zone| table.entries.get(*zone).is_some_and(comes));
        coming.count() as u32
    }

    /// Orphaned zones: nothing refers to them, but they were written to. They can be used after a reset.
    pub(crate) fn orphaned_zones(&self) -> Vec<ZoneId> {
        let table = self.lock();
        let zones = table.entries.iter();
        zones
            .filter(|(_, e)| e.role == Role::Free && e.is_used() && e.failure.is_none())
            .map(|(zone, _)| zone)
            .collect()
    }

    /// Data zones with something in them whose sequence is not known: their headers could not be read
    /// when records told that they are in use.
    pub(crate) fn unknown(&self) -> Vec<ZoneId> {
        let table = self.lock();
        let zones = table.entries.iter();
        let unknown = zones.filter(|(_, e)| e.role == Role::Data && e.sequence == 0);
        unknown
            .map(|(zone, _)| zone)
            .filter(|zone| self.valid.of(*zone) > PackUnits::ZERO)
            .collect()
    }

    /// The header of such a zone was read after all.
    pub(crate) fn know(&self, header: &ZoneHeader) {
        let mut table = self.lock();
        table.next_sequence = table.next_sequence.max(header.sequence.saturating_add(1));
        if let Some(entry) = table.entries.get_mut(header.zone) {
            entry.sequence = header.sequence;
            entry.lifetime = header.lifetime;
        }
    }
}

impl Table {
    /// Free zones for a role.
    pub(super) fn free_for(&self, role: Role, budget: &Budget) -> u32 {
        budget.layout.get(&self.counts.free, DeviceKind::of(role))
    }

    /// The count of free zones that a zone belongs to.
    pub(super) fn free_zones_mut(&mut self, zone: ZoneId, budget: &Budget) -> &mut u32 {
        let layout = &budget.layout;
        layout.get_mut(&mut self.counts.free, layout.device_of(zone))
    }

    /// Takes a free zone into use, with its partner if it is to have one. Returns its sequence and
    /// the blocks that fit.
    pub(super) fn claim(
        &mut self,
        (zone, partner): (ZoneId, Option<ZoneId>),
        role: Role,
        lifetime: u8,
        budget: &Budget,
        pairs: &Pairs,
    ) -> (u64, u32) {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let clock = self.counts.write_clock;
        let mut capacity = u32::MAX;
        for zone in std::iter::once(zone).chain(partner) {
            self.take_from_free(zone, budget);
            self.counts.log_zones += u32::from(role == Role::Log);
            let Some(entry) = self.entries.get_mut(zone) else {
                continue;
            };
            invariant_holds!(
                self.alarm,
                entry.is_free() && !entry.is_in_reset() && !entry.is_open(),
                "zone {zone} is taken into use, and is {entry:?}"
            );
            invariant_holds!(
                self.alarm,
                entry.sequence < sequence,
                "zone {zone} of sequence {} is taken into use with {sequence}",
                entry.sequence
            );
            entry.role = role;
            entry.lifetime = lifetime;
            entry.sequence = sequence;
            entry.write_pointer = 1;
            entry.last_write = clock;
            entry.state = State::Open;
            entry.keeps_space = None;
            entry.lacks_redundancy = false;
            capacity = capacity.min(entry.capacity);
        }
        if let Some(partner) = partner {
            invariant_holds!(
                self.alarm,
                zone < partner,
                "zone {zone} is paired with {partner}, and addresses name the first"
            );
            invariant_holds!(
                self.alarm,
                pairs.partner(zone).is_none() && pairs.partner(partner).is_none(),
                "zones {zone} and {partner} are to be a pair, and are with {:?} and {:?}",
                pairs.partner(zone),
                pairs.partner(partner)
            );
            pairs.join(zone, partner);
        }
        invariant_holds!(
            self.alarm,
            (2..u32::MAX).contains(&capacity),
            "zone {zone} is taken into use for {capacity} blocks"
        );
        (sequence, capacity)
    }

    /// A zone is free no more. Were there fewer free ones than are taken, a count that wrapped would promise room that is
    /// not there: it stays at none.
    pub(super) fn take_from_free(&mut self, zone: ZoneId, budget: &Budget) {
        let alarm = self.alarm.clone();
        let free = self.free_zones_mut(zone, budget);
        invariant_sub!(alarm, *free, 1, "free zones");
    }

    /// The log has a zone less.
    pub(super) fn forget_log_zone(&mut self) {
        invariant_sub!(self.alarm, self.counts.log_zones, 1, "zones of the log");
    }

    /// A zone has another role from now on: what it held that belonged elsewhere is there.
    pub(super) fn leave_role(&mut self, zone: ZoneId, role: Role, budget: &Budget) {
        let was_misplaced = u32::from(budget.layout.is_misplaced(zone, role));
        invariant_sub!(
            self.alarm,
            self.counts.misplaced,
            was_misplaced,
            "zones that hold what belongs elsewhere"
        );
    }

    /// A zone is to be reset; false if it is already, or there is no such zone.
    pub(super) fn begin_reset(&mut self, zone: ZoneId, budget: &Budget) -> bool {
        let Some(entry) = self.entries.get_mut(zone) else {
            return false;
        };
        let begins = !entry.is_in_reset();
        invariant_holds!(
            self.alarm,
            !entry.is_open() && !entry.is_free(),
            "zone {zone} is reset, and is {entry:?}"
        );
        entry.state = State::InReset;
        let layout = &budget.layout;
        *layout.get_mut(&mut self.counts.in_reset, layout.device_of(zone)) += u32::from(begins);
        begins
    }

    /// The host keeps the space of a zone from now on.
    pub(super) fn keep_space(&mut self, zone: ZoneId) {
        self.resets_kept = self.resets_kept.saturating_add(1);
        let since = self.resets_kept;
        if let Some(entry) = self.entries.get_mut(zone) {
            entry.keeps_space = Some(since);
        }
    }

    /// Its reset is over.
    pub(super) fn end_reset(&mut self, zone: ZoneId, budget: &Budget) {
        let entry = self.entries.get_mut(zone);
        let ends = entry.is_some_and(|entry| {
            let ends = entry.is_in_reset();
            if ends {
                entry.state = State::Closed;
            }
            ends
        });
        let layout = &budget.layout;
        let in_reset = layout.get_mut(&mut self.counts.in_reset, layout.device_of(zone));
        invariant_sub!(self.alarm, *in_reset, u32::from(ends), "zones in reset");
    }

    /// A zone is free. Where it was claimed and nothing was written to it, it was not reset.
    pub(super) fn mark_free(&mut self, zone: ZoneId, budget: &Budget, was_reset: bool) {
        self.end_reset(zone, budget);
        let Some(entry) = self.entries.get_mut(zone) else {
            return;
        };
        invariant_holds!(
            self.alarm,
            entry.failure.is_none() || !entry.is_free(),
            "zone {zone} has failed, and becomes free: {entry:?}"
        );
        let counted = entry.role == Role::Free && !entry.is_used();
        let role = entry.role;
        *entry = ZoneEntry {
            capacity: entry.capacity,
            resets: entry.resets.saturating_add(was_reset.into()),
            last_write: entry.last_write,
            keeps_space: entry.keeps_space,
            ..ZoneEntry::default()
        };
        *self.free_zones_mut(zone, budget) += u32::from(!counted);
        self.leave_role(zone, role, budget);
        if role == Role::Log {
            self.forget_log_zone();
        }
    }
}
