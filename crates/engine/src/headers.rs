//! Headers of zones, as they are on the device.

use persimmon_device::{Buffer, ZoneId};
use persimmon_format::gate::FixedFields;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId};

use crate::error::{Error, Result};
use crate::media::Media;

/// The first block of a zone as it is read, and then as its copies and its stripe set have it. What is read may be a header of another zone or
/// of another volume, where a drive or somebody has put one over it.
pub(crate) fn header_blocks(media: &Media, zone: ZoneId) -> impl Iterator<Item = Result<Buffer>> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let first = std::iter::once_with(move || media.read_one(addr, 1));
    first.chain(media.others(addr, 1))
}

/// The header of a zone, if it is one of this volume. An error too if it is one that this program does not
/// know.
pub(crate) fn read_header(
    media: &Media,
    identity: &VolumeIdentity,
    zone: ZoneId,
) -> Result<Option<ZoneHeader>> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let mut unreadable = None;
    for block in header_blocks(media, zone) {
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                unreadable = unreadable.or(Some(error));
                continue;
            }
        };
        match FixedFields::read(&block) {
            Ok(fixed) if fixed.uuid == identity.uuid => {
                fixed.check().map_err(Error::damaged(addr))?;
            }
            _ => continue,
        }
        let header = ZoneHeader::decode(&block).ok();
        if let Some(header) = header.filter(|header| header.zone == zone) {
            return Ok(Some(header));
        }
    }
    unreadable.map_or(Ok(None), Err)
}
