//! Zones that the log can take. On a volume of many zones these are the first of them alone, which data fills like others,
//! but for the last that are free. As the log goes on and checkpoints free what it leaves, as many stay free. Where some fail
//! there are too few, and nothing else gives any back: others of them are emptied for it then.

use persimmon_sync::atomic::Ordering;

use persimmon_device::ZoneId;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;

use super::entries::State;
use super::layout::DeviceKind;
use super::table::Zones;

/// Zones, with all copies, that the log is to have free or on their way beside the one that it is in.
const SPARES: u32 = 1;
/// The same where zones have failed, and others may. With large zones data leaves it no more than the one.
const SPARES_WHERE_ZONES_FAIL: u32 = 2;

/// What becomes of the zones that the log can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Candidates {
    /// There are enough, or nothing can be done.
    Left,
    /// The next checkpoint frees some, and it is time.
    Reclaimable,
    /// Some are to be emptied.
    ToEmpty,
}

impl Zones {
    /// Looks at the zones that the log can take. Where few are left, those with least in them are to be emptied from now on, before
    /// all other zones; when nothing is in them it is for a checkpoint to free them.
    pub(crate) fn keep_log_candidates(&self) -> Candidates {
        let layout = &self.budget.layout;
        if layout.only_log_candidates(DeviceKind::Metadata) {
            return Candidates::Left;
        }
        let spares = if self.failed_zones() > 0 && self.budget.large.is_none() {
            SPARES_WHERE_ZONES_FAIL
        } else {
            SPARES
        };
        let wanted = spares * self.budget.copies;
        let mut table = self.indexed();
        let (mut free, mut returning, mut reclaimable, mut being_emptied) = (0, 0, 0, 0);
        let mut others: Vec<(PackUnits, ZoneId)> = Vec::new();
        for zone in layout.log_candidates() {
            let Some(entry) = table.entries.get(zone) else {
                continue;
            };
            let valid = self.valid.of(self.pairs.first(zone));
            if entry.is_free() || entry.is_in_reset() {
                free += 1;
            } else if self.has_failed_in(&table, zone) {
                // The good zone of the pair becomes free, but not before the pair is empty.
            } else if entry.role == Role::Log {
                returning += 1;
            } else if entry.is_reclaimable(valid) {
                // One whose reset failed is no way out.
                reclaimable +=
                    u32::from(entry.state == State::Closed && !self.pins.is_filled(zone));
            } else if entry.is_open() || !matches!(entry.role, Role::Data | Role::Metadata) {
            } else if entry.lacks_redundancy {
                being_emptied += 1;
            } else if self.pairs.first(zone) == zone && !self.pins.is_filled(zone) {
                others.push((valid, zone));
            }
        }
        // The log is in one of its zones.
        let coming = free + u32::saturating_sub(returning, self.budget.copies);
        if coming >= wanted {
            return Candidates::Left;
        }
        if reclaimable > 0 {
            return Candidates::Reclaimable;
        }
        let missing = wanted - coming;
        others.sort_unstable();
        for (_, zone) in others
            .into_iter()
            .take(missing.saturating_sub(being_emptied) as usize)
        {
            if let Some(entry) = table.entries.get_mut(zone) {
                tracing::info!(
                    zone = zone.0,
                    "few zones are left for the log: one is emptied for it"
                );
                entry.lacks_redundancy = true;
                being_emptied += 1;
            }
        }
        if being_emptied == 0 {
            return Candidates::Left;
        }
        self.lacks_redundancy.store(true, Ordering::Release);
        Candidates::ToEmpty
    }
}
