//! Headers of zones, as they are on the device.

use persimmon_device::{Buffer, ZoneId};
use persimmon_format::gate::FixedFields;
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId};

use crate::error::{Error, Result};
use crate::media::Media;

/// The first block of a zone, from wherever it is an intact header of whatever volume and version, best one of this zone; else as it was read.
pub(crate) fn header_block(media: &Media, zone: ZoneId) -> Result<Buffer> {
    let addr = Addr::new(DeviceId(0), zone, 0);
    let is_header = |block: &Buffer| FixedFields::read(block).is_ok();
    // Intact, but written to another place: what a drive put here by mistake. The other zones of the set have the right one.
    let strayed = |block: &Buffer| ZoneHeader::decode(block).is_ok_and(|it| it.zone != zone);
    let fits = |block: &Buffer| is_header(block) && !strayed(block);
    let read = media.read_one(addr, 1);
    if read.as_ref().is_ok_and(fits) {
        return read;
    }
    let others: Vec<Buffer> = media.others(addr, 1).flatten().collect();
    let all = || read.iter().chain(&others);
    let found = all().find(|block| fits(block));
    let found = found.or_else(|| all().find(|block| is_header(block)));
    found.cloned().map_or(read, Ok)
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
