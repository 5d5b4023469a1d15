//! What a device says of itself where it has no other place for that: the last two of its zones hold a label and nothing else,
//! finished once and never written again. One of them is enough to know it.

use std::ops::Range;

use crate::{
    BufferMut, Command, DeviceError, Geometry, Result, ZoneId, ZoneInfo, ZoneState, ZonedDevice,
};

/// Zones at the end of a device that hold its label, and are none of the volume's.
pub const LABEL_ZONES: u32 = 2;

/// The zones of the label.
pub(crate) fn zones(geometry: &Geometry) -> Range<u32> {
    let end = geometry.zone_count;
    end.saturating_sub(LABEL_ZONES)..end
}

/// The label of a device, if it has one: of the first of its zones where it can be read. `decode` makes it of a block.
pub(crate) fn read<L>(
    device: &dyn ZonedDevice,
    decode: impl Fn(&[u8]) -> Option<L>,
) -> Result<Option<L>> {
    let zones = zones(device.geometry());
    let report = device.report(zones.clone())?;
    let mut unread = None;
    for (zone, info) in zones.map(ZoneId).zip(&report) {
        match read_in(device, zone, info, &decode) {
            Ok(None) => {}
            Ok(label) => return Ok(label),
            Err(DeviceError::Gone) => return Err(DeviceError::Gone),
            Err(error) => unread = Some(error),
        }
    }
    unread.map_or(Ok(None), Err)
}

fn read_in<L>(
    device: &dyn ZonedDevice,
    zone: ZoneId,
    info: &ZoneInfo,
    decode: impl Fn(&[u8]) -> Option<L>,
) -> Result<Option<L>> {
    let is_written = match info.state {
        ZoneState::Empty | ZoneState::Offline => false,
        ZoneState::Full | ZoneState::ReadOnly => true,
        _ => info.write_pointer > 0,
    };
    if !is_written {
        return Ok(None);
    }
    match device.read(zone, 0, 1) {
        Ok(block) => Ok(decode(&block)),
        Err(error @ (DeviceError::Gone | DeviceError::Io { .. })) => Err(error),
        // Nothing is there.
        Err(_) => Ok(None),
    }
}

/// Writes a label to each zone that is for it: `block`, of which `decode` makes `label` again. A zone that has failed is passed
/// over if there is another, unless it says something else that would be believed: `marked` is the error then.
pub(crate) fn write<L: PartialEq>(
    device: &dyn ZonedDevice,
    label: &L,
    block: &[u8],
    decode: impl Fn(&[u8]) -> Option<L>,
    marked: impl Fn(&L) -> DeviceError,
    path: &std::path::Path,
) -> Result<()> {
    let mut written = 0;
    let zones = zones(device.geometry());
    let report = device.report(zones.clone())?;
    for (zone, info) in zones.map(ZoneId).zip(&report) {
        if info.state.is_worn_out() {
            match read_in(device, zone, info, &decode)? {
                Some(other) if other != *label => return Err(marked(&other)),
                _ => continue,
            }
        }
        let mut data = BufferMut::zeroed(1);
        data.copy_from_slice(block);
        device.run(Command::Write {
            zone,
            block: 0,
            data: vec![data.freeze()],
        })?;
        device.run(Command::Finish { zone })?;
        written += 1;
    }
    if written == 0 {
        return Err(DeviceError::Open {
            path: path.display().to_string(),
            message: "its last zones have failed, which would say whose device it is; use another \
                      device"
                .to_owned(),
        });
    }
    device.flush()
}
