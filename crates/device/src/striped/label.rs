//! Devices that say of themselves that they are used in stripe sets.

use std::sync::Arc;

use persimmon_format::stripe_label::StripeLabel;
use uuid::Uuid;

use super::Striped;
use crate::label as zones_label;
use crate::{DeviceError, Drive, Geometry, Result, Stripes, ZonedDevice};

/// The label of a device that is used in stripe sets; `None` if it is not.
///
/// # Errors
/// It cannot be read.
pub fn label(device: &dyn ZonedDevice) -> Result<Option<StripeLabel>> {
    zones_label::read(device, decoded)
}

fn decoded(block: &[u8]) -> Option<StripeLabel> {
    StripeLabel::decode(block).ok()
}

/// Takes a device in stripe sets if it says that it is used so.
///
/// # Errors
/// It has not the zones that it was made with; it fails.
pub fn open(drive: Drive, for_writing: bool) -> Result<Drive> {
    let label = match label(&drive) {
        Ok(Some(label)) => label,
        Err(DeviceError::Gone) => return Err(DeviceError::Gone),
        // If it is one all the same, the headers of its zones tell.
        Ok(None) | Err(_) => return Ok(drive),
    };
    let geometry = drive.geometry();
    if (label.zone_count, label.zone_blocks) != zones(geometry) {
        return Err(DeviceError::Open {
            path: drive.path().display().to_string(),
            message: format!(
                "it is not as it was when volume {} was made: it is a truncated or resized copy; restore the whole device",
                Uuid::from_bytes(label.uuid)
            ),
        });
    }
    let stripes = Stripes {
        columns: label.columns,
        metadata_sets: label.metadata_sets,
    };
    let striped = Striped::new(Arc::new(drive), stripes, for_writing)?;
    Ok(Drive::Striped(Box::new(striped)))
}

/// Has a device that was emptied used in stripe sets from now on.
///
/// # Errors
/// It has too few zones, or those for the label have failed.
pub fn create(drive: Drive, stripes: Stripes, uuid: Uuid) -> Result<Drive> {
    let (zone_count, zone_blocks) = zones(drive.geometry());
    let label = StripeLabel {
        uuid: uuid.into_bytes(),
        columns: stripes.columns,
        metadata_sets: stripes.metadata_sets,
        zone_count,
        zone_blocks,
    };
    let path = drive.path().to_owned();
    zones_label::write(
        &drive,
        &label,
        &label.encode(),
        decoded,
        |other| marked(&drive, other),
        &path,
    )?;
    let striped = Striped::new(Arc::new(drive), stripes, true)?;
    Ok(Drive::Striped(Box::new(striped)))
}

/// Refuses a device that was emptied, if it still says that it is used in stripe sets.
///
/// # Errors
/// It says so in a zone that has failed; it is gone.
pub fn check_unmarked(drive: Drive) -> Result<Drive> {
    match label(&drive) {
        Ok(Some(label)) => Err(marked(&drive, &label)),
        Err(DeviceError::Gone) => Err(DeviceError::Gone),
        Ok(None) | Err(_) => Ok(drive),
    }
}

/// Zones that are not those of the label, and blocks from zone to zone.
fn zones(geometry: &Geometry) -> (u32, u32) {
    let label = zones_label::zones(geometry);
    (label.start, geometry.zone_blocks)
}

fn marked(drive: &Drive, label: &StripeLabel) -> DeviceError {
    DeviceError::Open {
        path: drive.path().display().to_string(),
        message: format!(
            "it is marked as used in stripe sets by volume {}, in a zone that has failed and cannot be erased; use another device",
            Uuid::from_bytes(label.uuid)
        ),
    }
}
