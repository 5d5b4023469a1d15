//! Which zone is emptied next.

use persimmon_device::ZoneId;

use super::Zones;
use super::layout::DeviceKind;
use super::table::ZoneStatus;

/// By what a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VictimPolicy {
    /// What is won for what it costs, as it would go on to be won: garbage squared, times how long
    /// what is live will stay so, over what is live (Lomet and Luo, "Efficiently reclaiming space
    /// in a log structured store", ICDE 2021).
    Score,
    /// Room is needed now: most garbage.
    Garbage,
    /// The same, but no zone is left for moved blocks: what is in a metadata zone needs none, for it
    /// goes where the next checkpoint goes.
    Metadata,
}

impl Zones {
    /// The first zone that must be emptied, among those that `may` be now.
    pub(crate) fn choose_failing(&self, may: impl Fn(&ZoneStatus) -> bool) -> Option<ZoneStatus> {
        if !self.may_have_to_empty() {
            return None;
        }
        let table = self.indexed();
        let zones = table.victim_index.to_empty();
        let mut zones = zones.filter_map(|zone| self.status_in(&table, zone));
        zones.find(|status| status.must_be_emptied() && may(status))
    }

    /// The best zone of a device to empty among those that `may` be. Reclaimable zones are not among them.
    /// `metadata_share_min` is the share of garbage, in percent, below which metadata is left to
    /// die by itself: all of it is written anew by and by.
    pub(crate) fn choose_victim(
        &self,
        device: DeviceKind,
        choice: VictimPolicy,
        metadata_share_min: u32,
        may: impl Fn(&ZoneStatus) -> bool,
    ) -> Option<ZoneStatus> {
        let table = self.indexed();
        let status = |zone| self.status_in(&table, zone).filter(|status| may(status));
        let index = &table.victim_index;
        // On two devices each device has one of both.
        let has = |of| !self.budget.layout.is_split() || device == of;
        // The best is nearly always one that may be.
        let best = |zones: &mut dyn Iterator<Item = (u32, ZoneId)>, of| {
            let mut zones = zones.filter(|_| has(of));
            zones.find_map(|(garbage, zone)| Some((garbage, status(zone)?)))
        };
        let metadata = || best(&mut index.metadata_by_garbage(), DeviceKind::Metadata);
        match choice {
            // Its pages cost less to move than blocks of data: they are written together.
            VictimPolicy::Score => metadata()
                .filter(|(garbage, zone)| {
                    let share = u64::from(*garbage) * 100 / u64::from(zone.capacity.max(1));
                    share >= metadata_share_min.into()
                })
                .map(|(_, zone)| zone)
                .or_else(|| {
                    let mut zones = index.by_score().filter(|_| has(DeviceKind::Data));
                    zones.find_map(status)
                }),
            VictimPolicy::Garbage => {
                let data = best(&mut index.by_garbage(), DeviceKind::Data);
                let both = data.into_iter().chain(metadata());
                both.max_by_key(|(garbage, _)| *garbage)
                    .map(|(_, zone)| zone)
            }
            VictimPolicy::Metadata => metadata().map(|(_, zone)| zone),
        }
    }
}
