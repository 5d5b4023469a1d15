//! What changes of a volume that nobody uses meanwhile: how many zones of its device it has, its label, its UUID.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use persimmon_device::{DeviceError, Drive, OpenOptions, Sizes};
use persimmon_engine::{Alteration, Growth, Volume};
use uuid::Uuid;

use crate::{EngineOptions, Error, Filesystem, Result};

/// How a volume is to grow.
#[derive(Clone, Debug)]
pub struct Grow {
    /// Bytes that an image becomes, as far as they are whole zones; `None`: those that its file or device has. A zoned drive has the
    /// zones that it has. Of two devices, that for data.
    pub size_bytes: Option<u64>,
    /// The same of the image for metadata, of a volume on two devices.
    pub metadata_size_bytes: Option<u64>,
    /// Whatever the zones hold that the volume gets. Those of an image are empty.
    pub overwrite: bool,
    /// How long to wait for another process to let go of the device.
    pub wait_for_lock: Duration,
}

impl Default for Grow {
    fn default() -> Grow {
        Grow {
            size_bytes: None,
            metadata_size_bytes: None,
            overwrite: false,
            wait_for_lock: OpenOptions::default().wait_for_lock,
        }
    }
}

/// A change of what a volume is called.
#[derive(Clone, Debug)]
pub struct Rename {
    /// Another label, at most 64 bytes; an empty one is none.
    pub label: Option<String>,
    /// Another UUID.
    pub uuid: Option<Uuid>,
    /// How long to wait for another process to let go of the device.
    pub wait_for_lock: Duration,
}

impl Default for Rename {
    fn default() -> Rename {
        Rename {
            label: None,
            uuid: None,
            wait_for_lock: OpenOptions::default().wait_for_lock,
        }
    }
}

impl Filesystem {
    /// Gives the volume at `path` the zones that its device has more, or its devices; of an image it first makes them. There may be no
    /// more: then nothing is changed, and the answer says so ([`Growth::is_none`]).
    ///
    /// # Errors
    /// It is in use, cannot be written to, or cannot become as large. Then nothing is lost, and it may be tried again.
    pub fn grow(path: impl AsRef<Path>, grow: &Grow) -> Result<Growth> {
        let path = path.as_ref();
        let wait = grow.wait_for_lock;
        let sizes = Sizes {
            data: grow.size_bytes,
            metadata: grow.metadata_size_bytes,
        };
        // Before anything is changed: can the volume have so many?
        let planned = Drive::grown(path, sizes, &options_for(wait, Use::Look))?;
        let (_, volume) = open(path, wait, Use::Look)?;
        let growth = Alteration::of(&volume)
            .growth_on(&planned, None)
            .map_err(Error::of_volume_at(path))?;
        let has_to_move = Alteration::of(&volume).has_to_move(&NO_ZONES);
        drop(volume);
        if growth.is_none() {
            if has_to_move {
                settle(path, wait)?;
            }
            return Ok(growth);
        }
        // What is refused for writing is refused before the device gets larger.
        drop(open(path, wait, Use::Change)?);
        Drive::grow(path, sizes, grow.overwrite, &options_for(wait, Use::Change))?;
        let (_, volume) = open(path, wait, Use::Change)?;
        let growth = Alteration::of(&volume)
            .grow(grow.overwrite)
            .map_err(Error::of_volume_at(path))?;
        drop(volume);
        if planned.metadata_zones.are_added() {
            settle(path, wait)?;
        }
        Ok(growth)
    }

    /// Changes what the volume at `path` is called.
    ///
    /// # Errors
    /// It is in use, cannot be written to, or the label does not fit. Then it is called as before.
    pub fn rename_volume(path: impl AsRef<Path>, rename: &Rename) -> Result<()> {
        let path = path.as_ref();
        let (device, volume) = open(path, rename.wait_for_lock, Use::Change)?;
        let uuid = rename.uuid.map(Uuid::into_bytes);
        Alteration::of(&volume)
            .rename(rename.label.as_deref(), uuid)
            .map_err(Error::of_volume_at(path))?;
        drop((volume, device));
        // What finds a volume by its name looks at the superblock of an image, and at headers in a drive.
        let (device, volume) = open(path, rename.wait_for_lock, Use::Name)?;
        let identity = volume.identity();
        device.set_identity(Uuid::from_bytes(identity.visible_uuid), &identity.label)?;
        volume.close().map_err(Error::of_volume_at(path))
    }
}

const NO_ZONES: Range<u32> = 0..0;

/// Moves the log and metadata to a device that the volume got for these.
fn settle(path: &Path, wait: Duration) -> Result<()> {
    let (_, volume) = open(path, wait, Use::Change)?;
    let alteration = Alteration::of(&volume);
    if !alteration.has_to_move(&NO_ZONES) {
        return Ok(());
    }
    alteration
        .move_all(&NO_ZONES)
        .map_err(Error::of_volume_at(path))
}

/// What a volume is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Nothing is written.
    Look,
    Change,
    /// Its log goes on in a zone whose header tells what it is called now, where its device has no other place that does.
    Name,
}

pub(crate) fn options_for(wait_for_lock: Duration, purpose: Use) -> OpenOptions {
    OpenOptions {
        read_only: purpose == Use::Look,
        wait_for_lock,
        ..OpenOptions::default()
    }
}

/// Opens a volume that nobody uses.
pub(crate) fn open(path: &Path, wait: Duration, purpose: Use) -> Result<(Arc<Drive>, Volume)> {
    let device = Arc::new(Drive::open(path, &options_for(wait, purpose))?);
    let volume = volume_on(&device, path, purpose)?;
    Ok((device, volume))
}

/// The same on a device that is open.
pub(crate) fn volume_on(device: &Arc<Drive>, path: &Path, purpose: Use) -> Result<Volume> {
    let options = EngineOptions {
        read_only: purpose == Use::Look,
        begin_log_zone: purpose == Use::Name && !device.has_identity(),
        ..EngineOptions::default()
    };
    let opened = Volume::open(Arc::clone(device) as _, options);
    let (volume, _) = opened.map_err(Error::of_volume_at(path))?;
    if purpose != Use::Look && volume.is_read_only() {
        return Err(refused_by(
            path,
            libc::EROFS,
            "the volume is read-only, because something in it is damaged or lost: see `persimmon fsck`",
        ));
    }
    Ok(volume)
}

/// What was asked for cannot be there.
pub(crate) fn refused(path: &Path, message: &str) -> Error {
    refused_by(path, libc::EINVAL, message)
}

/// The same for a reason that has a number of its own.
pub(crate) fn refused_by(path: &Path, errno: i32, message: &str) -> Error {
    Error::Device(DeviceError::Open {
        path: path.display().to_string(),
        message: message.to_owned(),
        os_error: Some(errno),
    })
}
