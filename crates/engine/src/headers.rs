//! Headers of zones, as they are on the device.

use persimmon_device::ZoneId;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId};

use crate::error::Result;
use crate::media::Media;

/// The header of a zone, if it is one of this volume.
pub(crate) fn read_header(
    media: &Media,
    identity: &VolumeIdentity,
    zone: ZoneId,
) -> Result<Option<ZoneHeader>> {
    let block = media.read(Addr::new(DeviceId(0), zone, 0), 1)?;
    let header = ZoneHeader::decode(&block).ok();
    Ok(header.filter(|header| header.volume.uuid == identity.uuid && header.zone == zone))
}
