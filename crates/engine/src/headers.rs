//! Headers of zones, as they are on the device.

use persimmon_device::ZoneId;
use persimmon_format::gate::FixedFields;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId};

use crate::error::{Error, Result};
use crate::media::Media;

/// The header of a zone, if it is one of this volume. An error too if it is one that this program does not
/// know.
pub(crate) fn read_header(
    media: &Media,
    identity: &VolumeIdentity,
    zone: ZoneId,
) -> Result<Option<ZoneHeader>> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let block = media.read(addr, 1)?;
    if let Ok(fixed) = FixedFields::read(&block)
        && fixed.uuid == identity.uuid
    {
        fixed.check().map_err(Error::damaged(addr))?;
    }
    let header = ZoneHeader::decode(&block).ok();
    Ok(header.filter(|header| header.volume.uuid == identity.uuid && header.zone == zone))
}
