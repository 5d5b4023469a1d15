//! What a volume and its newest footer say is checked before anything is built on it.

use persimmon_device::Geometry;
use persimmon_format::footer::Footer;
use persimmon_format::table::MatEntry;
use persimmon_format::zone_header::{STRIPED, VolumeIdentity};
use persimmon_format::{Ino, Lsn};

use crate::error::{Error, Result};
use crate::log::zone::FoundZone;
use crate::media::Media;
use crate::meta::Meta;
use crate::options::Options;

/// Counters of a volume stay far below this: one million a second for a hundred thousand years.
const COUNTER_LIMIT: u64 = 1 << 62;
/// Numbers of inodes that are left to be given out, at least.
const NUMBERS_LEFT: u64 = 1 << 32;

pub(super) fn check_identity(
    identity: &VolumeIdentity,
    media: &Media,
    options: &Options,
) -> Result<()> {
    let geometry = media.geometry();
    if (identity.incompatible & STRIPED != 0) != geometry.stripes.is_some() {
        return Err(Error::NoVolume(
            "the zones of the volume are stripe sets, and neither of the last two zones of the device can be read, \
             which say how they are made up; `persimmon recover` cannot help there, restore one of them from a copy"
                .into(),
        ));
    }
    check_zones(identity, geometry)?;
    let metadata_zones = geometry.metadata_zones.before(identity.zone_count).count();
    if identity.metadata_zones != metadata_zones {
        return Err(Error::NoVolume(format!(
            "the volume was made with {} zones on a device for metadata, here there are {metadata_zones}; name the \
             devices that were given to mkfs",
            identity.metadata_zones
        )));
    }
    check_writable(identity, options)
}

/// A device with fewer zones than the volume, or others, is no copy of the whole. One with more is: the volume was not
/// told of them.
fn check_zones(identity: &VolumeIdentity, geometry: &Geometry) -> Result<()> {
    if identity.zone_count > geometry.zone_count || identity.zone_blocks != geometry.zone_blocks {
        return Err(Error::NoVolume(format!(
            "the volume has {} zones of {} blocks, this device has {} of {}: it is a truncated or resized copy; copy the \
             whole device again",
            identity.zone_count, identity.zone_blocks, geometry.zone_count, geometry.zone_blocks
        )));
    }
    Ok(())
}

/// A volume with the features and properties that its newest footer has: the headers that were read may be older than what
/// was set since.
pub(super) fn as_of(
    mut identity: VolumeIdentity,
    footer: &Footer,
    media: &Media,
    options: &Options,
) -> Result<VolumeIdentity> {
    identity.add_features(footer.features);
    if let Some(properties) = &footer.properties {
        let geometry = media.geometry();
        identity = identity.with(properties.clone());
        check_zones(&identity, geometry)?;
        let metadata_zones = geometry.metadata_zones.before(identity.zone_count);
        identity = identity.with_metadata_zones(metadata_zones.count());
    }
    check_writable(&identity, options)?;
    Ok(identity)
}

/// An error if the volume has features that this program would have to know to write, and it is to be written.
fn check_writable(identity: &VolumeIdentity, options: &Options) -> Result<()> {
    match identity.features().unknown_to_write() {
        unknown if unknown != 0 && !options.read_only => Err(Error::OnlyToRead { unknown }),
        _ => Ok(()),
    }
}

pub(super) fn check_footer(media: &Media, footer: &Footer) -> Result<()> {
    check_counters(&[
        ("the number of the checkpoint", footer.checkpoint),
        ("the last record of the checkpoint", footer.cut.0),
        ("the last record that it counted", footer.counted.0),
        ("the log block to replay from", footer.replay.sequence),
        ("the number of inodes", footer.inodes),
        ("the number of reserved blocks", footer.reserved_blocks),
        ("the write clock", footer.write_clock),
        ("the next zone's sequence", footer.next_zone_sequence),
    ])?;
    check_inode_number("the next inode", footer.next_ino)?;
    check_inode_number("the end of the lot of inode numbers", footer.lot_end)?;
    if footer.lot_end < footer.next_ino {
        return Err(Error::Inconsistent(format!(
            "inode numbers up to {} are handed out, of a lot that ends at {}",
            footer.next_ino, footer.lot_end
        )));
    }
    // Each page takes a block at least, and ids are dense.
    let geometry = media.geometry();
    let blocks = u64::from(geometry.zone_count) * u64::from(geometry.zone_blocks);
    let chunks_max = blocks / MatEntry::PER_CHUNK as u64 + 1;
    if footer.mat.len() as u64 > chunks_max {
        return Err(Error::Inconsistent(format!(
            "the page table has {} chunks, the device room for {chunks_max}",
            footer.mat.len()
        )));
    }
    Ok(())
}

/// What replay found at the end of the history.
pub(super) fn check_end(
    last: Lsn,
    epoch: u32,
    log_end: Option<&FoundZone>,
    meta: &Meta,
) -> Result<()> {
    check_counters(&[
        ("the last record of the log", last.0),
        ("the log's epoch", u64::from(epoch) << 32),
        (
            "the log's last zone",
            log_end.map_or(0, |f| f.zone.first_log_sequence),
        ),
    ])?;
    check_inode_number("the next inode", meta.numbers.next())
}

/// Numbers of inodes end where those of subvolumes begin.
fn check_inode_number(what: &str, number: u64) -> Result<()> {
    if number >= Ino::END - NUMBERS_LEFT {
        return Err(Error::Inconsistent(format!(
            "{what} is {number}, which no volume reaches"
        )));
    }
    Ok(())
}

/// What is counted up from here on must have room: a number that cannot be is damage.
pub(crate) fn check_counters(counters: &[(&str, u64)]) -> Result<()> {
    match counters.iter().find(|(_, count)| *count >= COUNTER_LIMIT) {
        None => Ok(()),
        Some((what, count)) => Err(Error::Inconsistent(format!(
            "{what} is {count}, which no volume reaches"
        ))),
    }
}
