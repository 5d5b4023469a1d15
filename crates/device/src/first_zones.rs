//! The first zones of a device: all that a volume knows that was made when the device had no more.

use std::ops::Range;
use std::sync::Arc;

use crate::{
    Buffer, Command, Completion, DeviceError, DeviceIdentity, Geometry, Pending, Result, ZoneId,
    ZoneInfo, ZonedDevice,
};

/// A device of which only the first zones are there.
pub struct FirstZones {
    device: Arc<dyn ZonedDevice>,
    geometry: Geometry,
}

impl FirstZones {
    /// The first so many zones of a device; all of it, if it has no more.
    #[must_use]
    pub fn of(device: Arc<dyn ZonedDevice>, zone_count: u32) -> FirstZones {
        FirstZones {
            geometry: device.geometry().first(zone_count),
            device,
        }
    }

    /// A command that is for none of the zones left out.
    fn checked(&self, mut command: Command) -> Result<Command> {
        let count = self.geometry.zone_count;
        match command.zone_mut() {
            Some(zone) if zone.0 >= count => Err(DeviceError::NoSuchZone { zone: *zone, count }),
            _ => Ok(command),
        }
    }
}

impl ZonedDevice for FirstZones {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let count = self.geometry.zone_count;
        if zones.end > count && zones.start < zones.end {
            let zone = ZoneId(zones.end - 1);
            return Err(DeviceError::NoSuchZone { zone, count });
        }
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        match self.checked(command) {
            Ok(command) => self.device.submit(command),
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn run(&self, command: Command) -> Result<Completion> {
        self.device.run(self.checked(command)?)
    }

    fn read_without(
        &self,
        zone: ZoneId,
        block: u32,
        blocks: u32,
        attempt: u32,
    ) -> Option<Result<Buffer>> {
        self.device.read_without(zone, block, blocks, attempt)
    }

    fn rows_agree(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<bool> {
        self.device.rows_agree(zone, block, blocks)
    }

    fn read_into(
        &self,
        zone: ZoneId,
        block: u32,
        into: &mut [u8],
        beside_others: bool,
    ) -> Option<Result<()>> {
        let is_there = zone.0 < self.geometry.zone_count;
        is_there.then(|| self.device.read_into(zone, block, into, beside_others))?
    }

    fn resets_at_once(&self) -> usize {
        self.device.resets_at_once()
    }

    fn space_is_hosts(&self) -> bool {
        self.device.space_is_hosts()
    }

    fn identity(&self) -> Option<DeviceIdentity> {
        self.device.identity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{ImageDevice, ImageGeometry};
    use crate::{BufferMut, CreateOptions};

    #[test]
    fn zones_past_the_first_are_not_there() {
        let geometry = ImageGeometry {
            zone_count: 5,
            zone_blocks: 256,
            capacity_blocks: 256,
            max_open: None,
            max_active: None,
        };
        let options = CreateOptions::default();
        let whole = Arc::new(ImageDevice::in_memory(&geometry, &options).unwrap());
        let first = FirstZones::of(whole.clone(), 3);
        assert_eq!(first.geometry().zone_count, 3);
        assert_eq!(first.report(0..3).unwrap().len(), 3);
        assert!(first.report(0..4).is_err() && whole.report(0..4).is_ok());
        let write = |zone| Command::Write {
            zone: ZoneId(zone),
            block: 0,
            data: vec![BufferMut::zeroed(1).freeze()],
        };
        assert!(first.run(write(2)).is_ok());
        let missing = |result: Result<Completion>| {
            matches!(result, Err(DeviceError::NoSuchZone { count: 3, .. }))
        };
        assert!(missing(first.run(write(3))) && missing(first.submit(write(3)).wait()));
        assert!(first.flush().is_ok());
        assert_eq!(whole.report(2..4).unwrap()[1].write_pointer, 0);
        assert_eq!(FirstZones::of(whole, 9).geometry().zone_count, 5);
    }
}
