//! Zones freed for the host below the device, where their space is the host's.

use super::Reclaimer;
use crate::error::Result;
use crate::zones::DeviceKind;

impl Reclaimer {
    /// Frees zones because the host below the device has no space for one more: reclaimable zones take space of the host,
    /// which gets it back or uses it for what is written next. False if nothing was won.
    pub(super) fn free_for_host(&self) -> bool {
        let free_zones = || self.store.zones.free_zones(DeviceKind::Data);
        let before = free_zones();
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
        // Another thread may have done it meanwhile.
        if free_zones() <= before
            && self.store.zones.all_reclaimable_zones() > 0
            && let Err(error) = self.checkpoint_zones()
        {
            tracing::warn!(%error, "zones could not be freed for the host");
        }
        self.store.zones.complete_resets(&self.store.media);
        free_zones() > before
    }

    /// Frees reclaimable zones although enough zones are free: their space is the host's, and others wait for it. False
    /// if there was nothing to free.
    pub(super) fn free_for_idle_host(&self) -> Result<bool> {
        let reclaimable = self.store.zones.all_reclaimable_zones();
        if reclaimable == 0 || !self.store.media.space_is_hosts() {
            return Ok(false);
        }
        let (_lock, _midst) = (self.cleaning_lock.lock(), self.store.in_midst());
        self.checkpoint_zones()?;
        self.store.zones.complete_resets(&self.store.media);
        // Zones that are being read stay.
        Ok(self.store.zones.all_reclaimable_zones() < reclaimable)
    }
}
