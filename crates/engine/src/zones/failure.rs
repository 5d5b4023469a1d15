//! Zones that fail in use. A read-only zone is emptied by cleaning, an offline one has lost what
//! it held, unless it has a partner. When nothing refers to it any more it is retired: never used
//! again, which the ZIT remembers.

use persimmon_sync::atomic::Ordering;

use persimmon_device::{ZoneId, ZoneState};
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;

use super::entries::ZoneEntry;
use super::layout::DeviceKind;
use super::table::{Table, ZoneStatus, Zones};
use super::writer::ZoneWriter;
use crate::error::Error;
use crate::invariant::invariant_holds;
use crate::media::Media;

/// How a zone has failed, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFailure {
    /// It takes no writes and no resets; what it holds can be read.
    ReadOnly,
    /// It cannot be read either.
    Offline,
}

impl ZoneFailure {
    pub(crate) fn of(state: ZoneState) -> Option<ZoneFailure> {
        match state {
            ZoneState::ReadOnly => Some(ZoneFailure::ReadOnly),
            ZoneState::Offline => Some(ZoneFailure::Offline),
            _ => None,
        }
    }
}

impl ZoneStatus {
    /// Whether it, or the zone with its other copy, has failed and something is left in it that
    /// can be moved elsewhere.
    pub(crate) fn must_be_emptied(&self) -> bool {
        let failed = self.failure.or(self.partner_failure);
        let movable = match self.entry.role {
            Role::Data => self.lacks_redundancy || failed == Some(ZoneFailure::ReadOnly),
            // What is not readable may be in memory.
            Role::Metadata => self.lacks_redundancy || failed.is_some(),
            _ => false,
        };
        movable && self.entry.valid > 0 && !self.open
    }
}

impl Zones {
    /// Asks the device about the zones that answered with errors. A zone that has failed, and its
    /// partner, take no more writes.
    pub(crate) fn examine(&self, media: &Media) {
        for zone in media.take_suspects() {
            let state = media.report_zone(zone).map(|info| info.state);
            if let Some(failure) = state.and_then(ZoneFailure::of) {
                self.note_failure(media, zone, failure);
            }
        }
    }

    /// Asks the device about all zones.
    pub(crate) fn examine_all(&self, media: &Media) {
        let report = match media.report_all() {
            Ok(report) => report,
            Err(error) => {
                tracing::warn!(%error, "the device does not tell which zones have failed; it is asked again later");
                return;
            }
        };
        for (zone, info) in (0..).map(ZoneId).zip(&report) {
            if let Some(failure) = ZoneFailure::of(info.state) {
                self.note_failure(media, zone, failure);
            }
        }
    }

    /// Whether a zone or its partner is known to have failed.
    pub(crate) fn has_failed(&self, zone: ZoneId) -> bool {
        self.has_failed_in(&self.lock(), zone)
    }

    /// Has a zone emptied, of which something would not survive the loss of another one.
    pub(crate) fn note_lack_of_redundancy(&self, zone: ZoneId) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.get_mut(zone) {
            entry.lacks_redundancy = true;
        }
        self.lacks_redundancy.store(true, Ordering::Release);
    }

    /// Whether something in a zone would not survive the loss of another one, as far as that is known.
    pub(crate) fn lacks_redundancy(&self, zone: ZoneId) -> bool {
        let table = self.lock();
        let entry = table.entries.get(zone);
        entry.is_some_and(|entry| entry.lacks_redundancy)
    }

    /// Whether there may be zones that have to be emptied.
    pub(super) fn may_have_to_empty(&self) -> bool {
        self.lacks_redundancy.load(Ordering::Acquire) || self.failed_zones() > 0
    }

    /// Whether a zone is being written to.
    pub(crate) fn is_open(&self, zone: ZoneId) -> bool {
        let table = self.lock();
        let entry = table.entries.get(zone);
        entry.is_some_and(|entry| entry.is_open())
    }

    /// Whether what a zone held cannot be read any more, here or in another copy.
    pub(crate) fn is_lost(&self, zone: ZoneId) -> bool {
        let table = self.lock();
        self.pairs
            .both(zone)
            .filter_map(|zone| table.entries.get(zone))
            .all(|entry| entry.failure == Some(ZoneFailure::Offline))
    }

    /// Whether a zone itself cannot be read any more; another copy may be left.
    pub(crate) fn is_offline(&self, zone: ZoneId) -> bool {
        let table = self.lock();
        let entry = table.entries.get(zone);
        entry.is_some_and(|entry| entry.failure == Some(ZoneFailure::Offline))
    }

    fn note_failure(&self, media: &Media, zone: ZoneId, failure: ZoneFailure) {
        let mut table = self.lock();
        // What is in its partner is to be moved too.
        if let Some(partner) = self.pairs.partner(zone) {
            self.touched.touch(partner);
        }
        let Some(entry) = table.entries.get_mut(zone) else {
            return;
        };
        if entry.failure == Some(failure) || entry.role == Role::Retired {
            entry.failure = Some(failure);
            return;
        }
        tracing::error!(
            zone = zone.0,
            role = entry.role.name(),
            ?failure,
            "a zone has failed"
        );
        entry.failure = Some(failure);
        if entry.role == Role::Free {
            let counted = !entry.is_used();
            entry.role = Role::Retired;
            entry.close();
            if counted {
                table.take_from_free(zone, &self.budget);
            }
        }
        // Writers under way find out by themselves.
        let first = self.pairs.first(zone);
        let left = |writer: &ZoneWriter| writer.zone == first;
        if let Some(at) = table.parked.iter().position(left) {
            let writer = table.parked.remove(at);
            table.forget_begun(writer.stream);
            for zone in self.pairs.both(zone) {
                if let Some(entry) = table.entries.get_mut(zone) {
                    entry.close();
                }
            }
        }
        self.count_failed(&table);
        drop(table);
        // The partner takes no more writes: the device is to count it no more.
        if let Some(partner) = self.pairs.partner(zone) {
            let _ = media.finish_one(partner);
        }
        // Nor do the other zones of a stripe set.
        if media.geometry().stripes.is_some() {
            let _ = media.finish_one(zone);
        }
        self.returned.notify_all();
    }

    /// Counts failed zones; after each change of one or of its role. What was given up for a label counts nowhere.
    pub(super) fn count_failed(&self, table: &Table) {
        let has_failed = |e: &ZoneEntry| e.failure.is_some() || e.role == Role::Retired;
        let layout = &self.budget.layout;
        let given_up = layout.given_up();
        let counts = |(zone, entry): (ZoneId, &ZoneEntry)| {
            u64::from(has_failed(entry) && !given_up.contains(&zone.0))
        };
        let failed = layout.sums(table.entries.iter().map(counts));
        for device in layout.devices() {
            let count = layout.get(&failed, *device) as u32;
            layout
                .of_device(&self.failed, *device)
                .store(count, Ordering::Relaxed);
        }
        let log = table
            .entries
            .iter()
            .any(|(_, e)| has_failed(e) && e.role == Role::Log && !e.is_in_reset());
        self.log_failing.store(log, Ordering::Release);
    }

    /// Counts them again where one was of the log: it may have been left by now.
    pub(super) fn count_failed_again(&self) {
        if self.log_is_failing() {
            self.count_failed(&self.lock());
        }
    }

    /// Zones that have failed or are retired.
    pub(crate) fn failed_zones(&self) -> u32 {
        let devices = self.budget.layout.devices().iter();
        devices.map(|device| self.failed_in(*device)).sum()
    }

    /// Whether a zone of the log has failed that a recovery would need: a checkpoint ends that.
    pub(crate) fn log_is_failing(&self) -> bool {
        self.log_failing.load(Ordering::Acquire)
    }

    pub(super) fn failed_in(&self, device: DeviceKind) -> u32 {
        let failed = self.budget.layout.of_device(&self.failed, device);
        failed.load(Ordering::Relaxed)
    }

    /// Blocks that users may fill, with data and, on one device, the metadata it needs; fewer with each
    /// zone that fails.
    pub(crate) fn user_blocks(&self) -> u64 {
        self.budget.user_blocks.saturating_sub(self.lost_blocks())
    }

    /// The same with what the reserve has to spare.
    pub(crate) fn user_and_spare_blocks(&self) -> u64 {
        let all = self.budget.user_blocks + self.budget.spare_blocks;
        all.saturating_sub(self.lost_blocks())
    }

    fn lost_blocks(&self) -> u64 {
        u64::from(self.failed_in(DeviceKind::Data)).saturating_mul(self.budget.data_zone_blocks)
    }

    /// On two devices, blocks that metadata may fill, likewise.
    pub(crate) fn metadata_blocks(&self) -> u64 {
        let lost = u64::from(self.failed_in(DeviceKind::Metadata));
        let lost = lost.saturating_mul(self.budget.page_zone_blocks);
        self.budget.metadata_blocks.saturating_sub(lost)
    }

    /// Why there is no zone for what must be written: too much is in use, or so many have failed that nothing is left to users.
    /// As long as something is left to them, cleaning may win a zone, or they may remove something.
    pub(crate) fn no_zone(&self) -> Error {
        let failed = self.failed_zones();
        if failed == 0 || !self.leaves_nothing() {
            return self.failing().unwrap_or_else(|| self.want_of_zones());
        }
        Error::WornOut {
            failed,
            zones: self.lock().entries.len() as u32,
        }
    }

    /// The same for what users write: it is enough that nothing is left to them.
    pub(crate) fn no_space(&self) -> Error {
        if self.leaves_nothing() {
            self.no_zone()
        } else {
            Error::NoSpace
        }
    }

    /// Whether users may fill no block at all, or none of metadata.
    fn leaves_nothing(&self) -> bool {
        let is_split = self.budget.layout.is_split();
        self.user_blocks() == 0 || (is_split && self.metadata_blocks() == 0)
    }

    /// Retires the failed zones that nothing refers to, nor will: what was written before one failed may enter the
    /// tree yet. Called under the metadata lock, at a checkpoint's cut, when the victim index is as of now. What is left of a pair is a zone like others.
    pub(super) fn retire(&self, table: &mut Table) {
        if self.failed_zones() == 0 {
            return;
        }
        let failed: Vec<ZoneId> = table.victim_index.to_retire().collect();
        let mut some_retired = false;
        for zone in failed {
            let first = self.pairs.first(zone);
            let unused = self.valid.of(first) == PackUnits::ZERO && !self.pins.is_filled(first);
            let Some(entry) = table.entries.get(zone) else {
                continue;
            };
            let retires = entry.failure.is_some()
                && !entry.is_open()
                && !entry.is_in_reset()
                && unused
                && matches!(entry.role, Role::Free | Role::Metadata | Role::Data);
            if retires {
                tracing::warn!(zone = zone.0, "a failed zone is empty and retired");
                some_retired = true;
                if let Some(partner) = self.pairs.separate(zone) {
                    self.touched.touch(partner);
                }
                if let Some(entry) = table.entries.get_mut(zone) {
                    invariant_holds!(
                        self.alarm,
                        entry.is_used() || entry.role != Role::Free,
                        "zone {zone} is retired, and counts as free: {entry:?}"
                    );
                    let role = std::mem::replace(&mut entry.role, Role::Retired);
                    table.leave_role(zone, role, &self.budget);
                }
            }
        }
        if some_retired {
            self.count_failed(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use persimmon_sim::SimConfig;

    use super::*;
    use crate::engine::Engine;
    use crate::engine::tests::{NOW, create, engine};
    use crate::options::{FormatOptions, Options};

    /// Zones that must be emptied, as found by asking for the first of them again and again, and by a look at all.
    fn to_empty(engine: &Engine) -> (Vec<ZoneId>, Vec<ZoneId>) {
        let zones = &engine.store.zones;
        let mut listed = Vec::new();
        while let Some(next) = zones.choose_failing(|z| !listed.contains(&z.zone)) {
            listed.push(next.zone);
        }
        let all = zones.status().into_iter();
        (
            listed,
            all.filter(|z| z.must_be_emptied())
                .map(|z| z.zone)
                .collect(),
        )
    }

    /// All zones were looked at for each 64 blocks that cleaning moved, as long as one had failed.
    #[test]
    fn zones_that_must_be_emptied_are_listed() {
        let device = std::sync::Arc::new(persimmon_sim::SimDevice::new(SimConfig::new(60, 128)));
        let options = FormatOptions {
            copies: 2,
            ..FormatOptions::default()
        };
        crate::mkfs::format(device.clone(), &options).unwrap();
        let open = |read_only| {
            let options = Options {
                read_only,
                ..Options::default()
            };
            crate::recovery::open(device.clone(), options).unwrap().0
        };
        let engine = open(false);
        let ino = create(&engine);
        engine.data.write(ino, 0, &[7; 50_000], NOW).unwrap();
        engine.close().unwrap();
        drop(engine);
        // No zone is written to.
        let engine = open(true);
        let zones = &engine.store.zones;
        assert_eq!(to_empty(&engine), (vec![], vec![]));
        let of = |role| {
            let status = zones.status().into_iter();
            let mut zones =
                status.filter(move |z| z.entry.role == role && z.entry.valid > 0 && !z.open);
            zones.next().unwrap()
        };
        let (data, metadata) = (of(Role::Data), of(Role::Metadata));
        zones.note_lack_of_redundancy(data.zone);
        assert_eq!(to_empty(&engine), (vec![data.zone], vec![data.zone]));
        // What is in both is counted in the first.
        let partner = metadata.partner.unwrap();
        zones.note_failure(&engine.store.media, partner, ZoneFailure::Offline);
        let (listed, all) = to_empty(&engine);
        assert_eq!(listed, all);
        assert!(
            [data.zone, metadata.zone]
                .iter()
                .all(|zone| all.contains(zone))
        );
    }

    /// A single zone that had failed made every want of zones the end of the volume: nobody cleaned for what was to be written.
    #[test]
    fn a_volume_that_has_lost_a_zone_is_short_of_zones_as_others_are() {
        let engine = engine(SimConfig::new(40, 128));
        let zones = &engine.store.zones;
        let fail =
            |zone| zones.note_failure(&engine.store.media, ZoneId(zone), ZoneFailure::ReadOnly);
        assert!(zones.no_zone().is_want_of_zones());
        fail(39);
        assert_eq!(zones.failed_zones(), 1);
        assert!(zones.no_zone().is_want_of_zones());
        (8..39).for_each(fail);
        assert_eq!(zones.user_blocks(), 0);
        let worn = zones.no_zone();
        assert!(
            matches!(
                worn,
                Error::WornOut {
                    failed: 32,
                    zones: 40
                }
            ),
            "{worn}"
        );
    }
}
