//! The zones of one moment: for a checkpoint, for who looks for room, and for people.

use persimmon_device::ZoneId;
use persimmon_device::per_zone::PerZone;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::ZitEntry;

use super::counts::Sums;
use super::layout::DeviceKind;
use super::table::{Table, ZoneCut, ZoneStatus, Zones};
use crate::invariant::invariant_holds;

impl Zones {
    /// Zones of a device that live blocks would not need if they filled zones: free ones and garbage.
    pub(crate) fn slack_zones(&self, device: DeviceKind) -> u32 {
        let layout = &self.budget.layout;
        let blocks = layout.get(&self.device_blocks, device);
        let average = blocks / u64::from(layout.zone_count(device)).max(1);
        let misplaced = match device {
            DeviceKind::Data => self.counts().misplaced,
            DeviceKind::Metadata => 0,
        };
        let lost = u64::from(self.failed_in(device) + misplaced) * average;
        let spare = blocks.saturating_sub(self.live_blocks(device) + lost);
        (spare / average.max(1)) as u32
    }

    /// The table as of now, and the zones that nothing refers to. Called under the metadata
    /// lock, so that no valid count changes meanwhile.
    pub(crate) fn cut(&self) -> ZoneCut {
        let mut table = self.lock();
        // Who still wants a zone will say so again.
        table.wanting.clear();
        self.update_index(&mut table);
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
            table.counts.free.total() as usize <= table.entries.len(),
            "{} zones of {} are free",
            table.counts.free.total(),
            table.entries.len()
        );
        ZoneCut {
            entries,
            resets,
            next_sequence: table.next_sequence,
            write_clock: table.counts.write_clock,
        }
    }

    /// Whether a checkpoint can free a zone, with its partner if it has one.
    fn can_go(&self, table: &Table, zone: ZoneId) -> bool {
        let entry = table.entries.get(zone);
        entry.is_some_and(|entry| entry.is_reclaimable(self.valid(zone)))
            && !self.pairs.is_second(zone)
            && !self.pins.is_filled(zone)
    }

    /// Whether a zone that a cut found reclaimable may be reset: still unused by readers and by writers.
    pub(crate) fn may_reset(&self, zone: ZoneId) -> bool {
        !self.pins.is_filled(zone)
            && !self.pins.is_read(zone)
            && self.valid(zone) == PackUnits::ZERO
            && self.lock().entries.get(zone).is_some_and(|e| !e.is_open())
    }

    /// Zones of a device that the next checkpoint frees, if nothing goes wrong and nobody reads them.
    pub(crate) fn reclaimable_zones(&self, device: DeviceKind) -> u32 {
        self.counts_now().reclaimable(&self.budget.layout, device)
    }

    /// The same of both.
    pub(crate) fn all_reclaimable_zones(&self) -> u32 {
        let devices = self.budget.layout.devices().iter();
        devices.map(|device| self.reclaimable_zones(*device)).sum()
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
}
