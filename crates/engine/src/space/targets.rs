//! The free-zone target: zones that cleaning keeps free ahead of need.

use super::Space;
use super::reserves::Journal;
use crate::zones::DeviceKind;

/// The least free-zone target in blocks, however few they are as a share: what is written at once is no less on small
/// volumes, and where free zones run out some are cleaned that would have become empty by themselves.
const FREE_TARGET_BLOCKS: u64 = 3000;

/// The free-zone target is at most this share of the slack zones: what is kept free
/// is not there for garbage.
const FREE_TARGET_SHARE_MAX: u32 = 8;

/// The zones of a device by what they are good for.
pub(crate) struct Stock {
    pub(crate) free: u32,
    /// Zones that are being reset.
    pub(crate) in_reset: u32,
    /// Zones that the next checkpoint frees.
    pub(crate) reclaimable: u32,
    /// Zones that the next whole checkpoint frees.
    pub(crate) evacuating: u32,
    /// New data leaves so many zones free.
    pub(crate) reserve: u32,
    /// The free-zone target: so many more are to be free or reclaimable.
    pub(crate) target: u32,
    /// So many more may be on their way from reclaimable to free.
    pub(crate) lag: u32,
}

impl Stock {
    /// Whether cleaning has to empty a zone.
    pub(crate) fn is_short(&self) -> bool {
        self.free + self.in_reset + self.reclaimable + self.evacuating
            < self.reserve + self.target + self.lag
    }
}

impl Space {
    /// The free-zone target: zones that cleaning ahead keeps free or reclaimable beyond the reserve, to be
    /// filled between two checkpoints.
    pub(crate) fn free_zone_target(&self, device: DeviceKind) -> u32 {
        let options = self.store.tuned.cleaning();
        let slack = self.store.zones.slack_zones(device);
        let share = u64::from(slack) * u64::from(options.free_target_basis_points) / 10_000;
        let at_least = match options.free_target_basis_points {
            0 => 0,
            _ => {
                let zones = FREE_TARGET_BLOCKS
                    .div_ceil(self.store.zones.budget.zone_blocks(device) + 1)
                    as u32;
                zones.min(self.slack_share(device))
            }
        };
        let target = (share.min(u32::MAX.into()) as u32).max(at_least);
        let target = target.max(options.free_target_zones_min.max(1));
        match self.store.zones.budget.large {
            // With few zones none is kept free for what is not needed yet.
            Some(_) => {
                target.min(slack.saturating_sub(self.store.zones.budget.zones_reserved()) / 2)
            }
            None => target,
        }
    }

    /// How many of the slack zones may be kept free.
    pub(crate) fn slack_share(&self, device: DeviceKind) -> u32 {
        self.store.zones.slack_zones(device) / FREE_TARGET_SHARE_MAX
    }

    pub(crate) fn stock(&self, device: DeviceKind) -> Stock {
        // Only metadata zones are evacuated by the next whole checkpoint: they count as reclaimable.
        let evacuating = match device {
            DeviceKind::Data => 0,
            DeviceKind::Metadata => self.store.on_device().evacuating.len() as u32,
        };
        let view = self.view_now();
        let target = self.free_zone_target(device);
        // Target and lag together are no more than may be kept free.
        let lag_max = self.slack_share(device).saturating_sub(target);
        Stock {
            free: view.free(device),
            in_reset: view.in_reset(device),
            reclaimable: view.reclaimable(device),
            evacuating,
            reserve: view.reserved(device, Journal::Wanted),
            target,
            lag: self.store.zones.taken_in_a_reset().min(lag_max),
        }
    }
}
