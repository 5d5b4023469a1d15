//! Headers of zones, as they are on the device.

use persimmon_device::{Buffer, ZoneId};
use persimmon_format::gate::FixedFields;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId};

use crate::error::{Error, Result};
use crate::media::Media;

/// The first block of a zone, from wherever it is an intact header of whatever volume and version; else as it was read.
pub(crate) fn header_block(media: &Media, zone: ZoneId) -> Result<Buffer> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let is_header = |block: &Buffer| FixedFields::read(block).is_ok();
    match media.read_one(addr, 1) {
        Ok(block) if is_header(&block) => Ok(block),
        read => {
            let mut others = media.others(addr, 1).flatten();
            others.find(is_header).map_or(read, Ok)
        }
    }
}

/// The header of a zone, if it is one of this volume. An error too if it is one that this program does not
/// know.
pub(crate) fn read_header(
    media: &Media,
    identity: &VolumeIdentity,
    zone: ZoneId,
) -> Result<Option<ZoneHeader>> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let block = header_block(media, zone)?;
    if let Ok(fixed) = FixedFields::read(&block)
        && fixed.uuid == identity.uuid
    {
        fixed.check().map_err(Error::damaged(addr))?;
    }
    let header = ZoneHeader::decode(&block).ok();
    Ok(header.filter(|header| header.volume.uuid == identity.uuid && header.zone == zone))
}
