//! A volume on one device that gets another one for the log and metadata.
//!
//! In four steps: the device is made; the volume gives up its last two zones, which are for a label from then on; that label is
//! written, and the volume is on two devices; it grows by the zones of the new one, and what belongs there moves there. After each of them, or in
//! the midst of one, the volume can be used, and the next try goes on. Up to the label its device is opened once and stays locked: nobody
//! makes it larger, writes to the zones that were given up, or leaves ends of files that were flushed.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use persimmon_device::drive::{self, Kind};
use persimmon_device::image::ImageGeometry;
use persimmon_device::label::LABEL_ZONES;
use persimmon_device::{
    CreateOptions, Drive, Geometry, OpenOptions, Pair, Withheld, ZonedDevice, pair,
};
use persimmon_engine::{Alteration, Growth, Volume};
use uuid::Uuid;

use crate::properties::{Use, open, options_for, refused, volume_on};
use crate::shape::image;
use crate::volume::{METADATA_BYTES_MIN, Opened, made};
use crate::{EngineOptions, Error, Filesystem, Grow, Options, Result};

/// How a volume gets a device for metadata.
#[derive(Clone, Debug)]
pub struct AddMetadata {
    /// Size of an image for metadata, bytes; `None`: that of its file or device, and if there is none yet a sixteenth of the volume and 16
    /// MiB at least. A zoned drive has the zones that it has.
    pub size_bytes: Option<u64>,
    /// Overwrite what is on the device for metadata.
    pub force: bool,
    /// How long to wait for another process to let go of a device.
    pub wait_for_lock: Duration,
}

impl Default for AddMetadata {
    fn default() -> AddMetadata {
        AddMetadata {
            size_bytes: None,
            force: false,
            wait_for_lock: OpenOptions::default().wait_for_lock,
        }
    }
}

impl Filesystem {
    /// Gives the volume at `path`, which is on one device, another one for the log and metadata. From then on both are named
    /// ([`device::uri`](crate::device::uri)). Nothing of `metadata` is kept.
    ///
    /// # Errors
    /// The volume is in use, or cannot have it; there is something on it. Then nothing is lost, and it may be tried again.
    pub fn add_metadata(
        path: impl AsRef<Path>,
        metadata: impl AsRef<Path>,
        add: &AddMetadata,
    ) -> Result<Growth> {
        let (path, metadata) = (path.as_ref(), metadata.as_ref());
        if pair::is_uri(path) {
            return Err(refused(
                path,
                "the volume has a device for metadata already",
            ));
        }
        if !pair::is_part(path)
            && let Err(error) = begin(path, metadata, add)
            // One that was killed may have come to its end while this waited for it.
            && !pair::is_part(path)
        {
            return Err(error);
        }
        let both = pair::uri(metadata, path);
        name(&both, add.wait_for_lock)?;
        let grow = Grow {
            wait_for_lock: add.wait_for_lock,
            ..Grow::default()
        };
        Filesystem::grow(both, &grow)
    }
}

/// Has both be found by the names of the volume.
fn name(both: &Path, wait: Duration) -> Result<()> {
    let (device, volume) = open(both, wait, Use::Look)?;
    let identity = volume.identity().clone();
    drop((volume, device));
    let device = Drive::open(both, &options_for(wait, Use::Change))?;
    device.set_identity(Uuid::from_bytes(identity.visible_uuid), &identity.label)?;
    Ok(())
}

/// All up to the label that has the volume on two devices.
fn begin(path: &Path, metadata: &Path, add: &AddMetadata) -> Result<()> {
    // What is refused is refused before the device is opened to write.
    drop(plan(path, metadata, add, Use::Look)?);
    // From here on nobody else has it, so the plan stays right.
    let (drive, plan) = plan(path, metadata, add, Use::Change)?;
    // What is refused for writing is refused before anything is made.
    drop(volume_on(&drive, path, Use::Change)?);
    // It is kept for this device, and would not be looked for by the name of both.
    let opened = Opened::new(Arc::clone(&drive) as _, &Options::default());
    opened.map_err(Error::of_volume_at(path))?.bring_in(path)?;

    let parts = ((metadata, &plan.shape), (path, drive.geometry()));
    let named = (plan.uuid, plan.label.as_str());
    Pair::make_metadata(parts.0, parts.1, named, &plan.options)?;
    give_up(&drive, path)?;
    let options = options_for(add.wait_for_lock, Use::Change);
    Ok(Pair::join(metadata, &drive, plan.uuid, &options)?)
}

/// The device for metadata as it is to be made.
struct Plan {
    shape: ImageGeometry,
    options: CreateOptions,
    /// Of the volume.
    uuid: Uuid,
    label: String,
}

/// Opens the device of the volume, and refuses what the volume cannot have. Nothing is made.
fn plan(
    path: &Path,
    metadata: &Path,
    add: &AddMetadata,
    purpose: Use,
) -> Result<(Arc<Drive>, Plan)> {
    pair::check_two(metadata, path)?;
    let options = options_for(add.wait_for_lock, purpose);
    let drive = Arc::new(Drive::open(path, &options)?);
    let volume = volume_on(&drive, path, Use::Look)?;
    let identity = volume.identity();
    let geometry = drive.geometry();
    if geometry.stripes.is_some() {
        return Err(refused(
            path,
            "a volume with copies or parity of data can have no device for metadata",
        ));
    }
    if geometry.zone_count > identity.zone_count {
        return Err(refused(
            path,
            "its device has more zones than the volume: `persimmon grow` first",
        ));
    }
    let shape = shape(metadata, geometry, add.size_bytes)?;
    let (of_metadata, capacity) = made(metadata, &shape)?;
    let planned = Pair::with_metadata(metadata, &of_metadata, geometry)?;
    Alteration::of(&volume)
        .growth_on(&planned, Some(capacity))
        .map_err(Error::of_volume_at(path))?;
    let plan = Plan {
        shape,
        // Who looks for the volume by its names does not find this yet.
        options: CreateOptions {
            force: add.force,
            uuid: Uuid::new_v4(),
            ..CreateOptions::default()
        },
        uuid: Uuid::from_bytes(identity.uuid),
        label: identity.label.clone(),
    };
    let (of_metadata, of_data) = ((metadata, &plan.shape), (path, geometry));
    Pair::check_metadata(of_metadata, of_data, plan.uuid, &plan.options)?;
    drop(volume);
    Ok((drive, plan))
}

/// The shape of an image for metadata. Its zones are not larger than those of the volume.
fn shape(metadata: &Path, data: &Geometry, size: Option<u64>) -> Result<ImageGeometry> {
    let shaped = |bytes, zone_bytes| {
        let shape = image(bytes, zone_bytes).map_err(persimmon_engine::Error::Geometry);
        shape.map_err(Error::of_volume_at(metadata))
    };
    if Kind::of(metadata)? != Kind::Image {
        if size.is_some() {
            return Err(refused(
                metadata,
                "only an image can be given a size; a drive has the zones it has",
            ));
        }
        return shaped(METADATA_BYTES_MIN, None);
    }
    let block = persimmon_device::BLOCK_SIZE as u64;
    let zone_bytes = u64::from(data.zone_blocks) * block;
    let bytes = match size {
        Some(size) => size,
        None => match drive::length(metadata)? {
            Some(length) if length > 0 => length,
            _ => (zone_bytes * u64::from(data.zone_count) / 16).max(METADATA_BYTES_MIN),
        },
    };
    let usual = shaped(bytes, None)?;
    if usual.zone_blocks <= data.zone_blocks {
        return Ok(usual);
    }
    shaped(bytes, Some(zone_bytes))
}

/// Has a volume do without its last two zones.
fn give_up(drive: &Arc<Drive>, path: &Path) -> Result<()> {
    let zones = drive.geometry().zone_count;
    let last: Range<u32> = zones.saturating_sub(LABEL_ZONES)..zones;
    let device = Withheld::of(Arc::clone(drive) as _, last.clone());
    let opened = Volume::open(Arc::new(device), EngineOptions::default());
    let (volume, _) = opened.map_err(Error::of_volume_at(path))?;
    Alteration::of(&volume)
        .move_all(&last)
        .map_err(Error::of_volume_at(path))
}
