//! A device of which some zones are to be given up: they can be read, and look as if they had failed. So what is in them is moved
//! elsewhere, and they are not used again.

use std::ops::Range;
use std::sync::Arc;

use crate::{
    Command, DeviceError, DeviceIdentity, Geometry, Pending, Result, ZoneId, ZoneInfo, ZoneState,
    ZonedDevice,
};

/// See the module.
pub struct Withheld {
    device: Arc<dyn ZonedDevice>,
    zones: Range<u32>,
}

impl Withheld {
    /// These zones of a device are to be given up.
    #[must_use]
    pub fn of(device: Arc<dyn ZonedDevice>, zones: Range<u32>) -> Withheld {
        Withheld { device, zones }
    }
}

impl ZonedDevice for Withheld {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let mut report = self.device.report(zones.clone())?;
        for (zone, info) in zones.zip(&mut report) {
            if self.zones.contains(&zone) && info.state != ZoneState::Offline {
                info.state = ZoneState::ReadOnly;
            }
        }
        Ok(report)
    }

    fn submit(&self, mut command: Command) -> Pending {
        let is_read = matches!(command, Command::Read { .. });
        match command.zone_mut() {
            Some(zone) if self.zones.contains(&zone.0) && !is_read => {
                Pending::ready(Err(DeviceError::BadState {
                    zone: *zone,
                    state: ZoneState::ReadOnly,
                    operation: "change",
                }))
            }
            _ => self.device.submit(command),
        }
    }

    fn read_into(
        &self,
        zone: ZoneId,
        block: u32,
        into: &mut [u8],
        beside_others: bool,
    ) -> Option<Result<()>> {
        self.device.read_into(zone, block, into, beside_others)
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
    use crate::{BufferMut, CreateOptions, ZoneId};

    #[test]
    fn zones_that_are_given_up_can_be_read() {
        let geometry = ImageGeometry {
            zone_count: 5,
            zone_blocks: 256,
            capacity_blocks: 256,
            max_open: None,
            max_active: None,
        };
        let whole = ImageDevice::in_memory(&geometry, &CreateOptions::default()).unwrap();
        let whole = Arc::new(whole);
        let write = |zone| Command::Write {
            zone: ZoneId(zone),
            block: 0,
            data: vec![BufferMut::zeroed(1).freeze()],
        };
        whole.run(write(3)).unwrap();
        let device = Withheld::of(whole, 3..5);
        device.run(write(2)).unwrap();
        for zone in [3, 4] {
            let refused = device.run(write(zone)).unwrap_err();
            assert!(matches!(refused, DeviceError::BadState { zone: told, .. } if told.0 == zone));
        }
        device.read(ZoneId(3), 0, 1).unwrap();
        let states: Vec<bool> = device
            .report(1..5)
            .unwrap()
            .iter()
            .map(|info| info.state.is_worn_out())
            .collect();
        assert_eq!(states, [false, false, true, true]);
    }
}
