//! Persimmon on a device that has more zones than the volume was made with: at one mount or another it gets them, and
//! at others another name.

use std::sync::Arc;

use persimmon_device::{FirstZones, ZoneId};
use persimmon_engine::{Alteration, Volume};

use super::{Filesystem, Mounted, format_volume, options};
use crate::harness::System;
use crate::stripes;
use persimmon_sim::device::SimDevice;

/// Makes volumes that lack so many of the zones of their devices.
pub struct Growing(pub u32);

impl System for Growing {
    type Subject = Mounted;

    fn format(&self, device: &Arc<SimDevice>, copies: u32) -> Result<(), String> {
        let whole = stripes::on(device, true)?;
        let zones = whole.geometry().zone_count.saturating_sub(self.0);
        format_volume(Arc::new(FirstZones::of(whole, zones)), copies, false)
    }

    fn outlives_zones(&self) -> bool {
        true
    }

    fn mirrored(&self, device: &SimDevice) -> Vec<(ZoneId, u32)> {
        Filesystem.mirrored(device)
    }

    /// What is changed of the volume goes by what is on the device. Where that fails the volume is what it was, or
    /// changed: the mount that follows takes it as it is.
    fn mount(&self, device: &Arc<SimDevice>) -> Result<Mounted, String> {
        let chance = device.image_hash();
        if chance.is_multiple_of(3) {
            self.change(device, chance / 3)?;
        }
        Filesystem.mount(device)
    }

    fn check(&self, device: &Arc<SimDevice>) -> Result<(), String> {
        Filesystem.check(device)
    }
}

impl Growing {
    fn change(&self, device: &Arc<SimDevice>, chance: u64) -> Result<(), String> {
        let open = || Volume::open(stripes::on(device, true).ok()?, options(device.config())).ok();
        let Some((volume, _)) = open() else {
            // The mount says why.
            return Ok(());
        };
        let all = stripes::on(device, false)?.geometry().zone_count;
        let before = volume.identity().clone();
        if before.zone_count != all && before.zone_count != all - self.0 {
            return Err(format!("a volume of {} zones", before.zone_count));
        }
        // An injected fault may come between.
        let was_grown = Alteration::of(&volume).grow(false).is_ok();
        drop(volume);
        let Some((volume, _)) = open() else {
            return Ok(());
        };
        if was_grown && volume.identity().zone_count != all {
            return Err("the zones that the volume got are gone".into());
        }
        let label = format!("volume {chance}");
        let is_called = Alteration::of(&volume).rename(Some(&label), None).is_ok();
        drop(volume);
        if let Some((volume, _)) = open() {
            let now = &volume.identity().label;
            let is_right = *now == label || (!is_called && *now == before.label);
            if !is_right {
                return Err(format!("called \"{now}\" instead of \"{label}\""));
            }
        }
        Ok(())
    }
}
