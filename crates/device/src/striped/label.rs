//! Devices that say of themselves that they are used in stripe sets.

use std::path::Path;
use std::sync::Arc;

use persimmon_format::stripe_label::StripeLabel;
use uuid::Uuid;

use super::Striped;
use crate::label::{self, Found, Label};
use crate::lock::open_error;
use crate::{DeviceError, Drive, Result, Stripes, ZonedDevice};

/// The label of a device that is used in stripe sets; `None` if it is not.
///
/// # Errors
/// It cannot be read.
pub fn label(device: &dyn ZonedDevice) -> Result<Option<StripeLabel>> {
    label::read(device)
}

impl Label for StripeLabel {
    fn decoded(block: &[u8]) -> Option<StripeLabel> {
        StripeLabel::decode(block).ok()
    }

    fn encoded(&self) -> Vec<u8> {
        self.encode()
    }

    fn zones(&self) -> u32 {
        self.zone_count
    }

    fn zones_before(&self) -> Option<u32> {
        self.before
    }

    fn volume(&self) -> [u8; 16] {
        self.uuid
    }

    fn marked(&self, path: &Path) -> DeviceError {
        open_error(
            path,
            &format!(
                "it is marked as used in stripe sets by volume {}, in a zone that has failed and cannot be erased; use another device",
                Uuid::from_bytes(self.uuid)
            ),
        )
    }
}

/// The label of a device in stripe sets, which is as it says or has more zones.
pub(super) fn checked(drive: &Drive) -> Result<Option<StripeLabel>> {
    let found: Found<StripeLabel> = match label::find(drive) {
        Ok(Some(found)) => found,
        Err(DeviceError::Gone) => return Err(DeviceError::Gone),
        // If it is one all the same, the headers of its zones tell.
        Ok(None) | Err(_) => return Ok(None),
    };
    let label = found.label;
    if !found.is_in_place || label.zone_blocks != drive.geometry().zone_blocks {
        return Err(open_error(
            drive.path(),
            &format!(
                "it is not as volume {} knows it: it is a truncated or resized copy; restore the whole device",
                Uuid::from_bytes(label.uuid)
            ),
        ));
    }
    Ok(Some(label))
}

/// Takes a device in stripe sets if it says that it is used so.
///
/// # Errors
/// It has not the zones that its label says; it fails.
pub fn open(drive: Drive, for_writing: bool) -> Result<Drive> {
    match checked(&drive)? {
        Some(label) => striped(drive, &label, for_writing),
        None => Ok(drive),
    }
}

/// Has a device that was emptied used in stripe sets from now on.
///
/// # Errors
/// It has too few zones, or those for the label have failed.
pub fn create(drive: Drive, stripes: Stripes, uuid: Uuid) -> Result<Drive> {
    let geometry = drive.geometry();
    let label = StripeLabel {
        uuid: uuid.into_bytes(),
        columns: stripes.columns,
        metadata_sets: stripes.metadata_sets,
        zone_count: label::zones(geometry).start,
        zone_blocks: geometry.zone_blocks,
        before: None,
    };
    label::write(&drive, &label, drive.path())?;
    striped(drive, &label, true)
}

/// A device in the stripe sets that its label tells.
fn striped(drive: Drive, label: &StripeLabel, for_writing: bool) -> Result<Drive> {
    let stripes = Stripes {
        columns: label.columns,
        metadata_sets: label.metadata_sets,
    };
    // It may have more zones than the volume was given.
    let zones = label.places().end;
    let striped = Striped::of_first(Arc::new(drive), zones, stripes, for_writing)?;
    Ok(Drive::Striped(Box::new(striped)))
}

/// Refuses a device that was emptied, if it still says that it is used in stripe sets.
///
/// # Errors
/// It says so in a zone that has failed; it is gone.
pub fn check_unmarked(drive: Drive) -> Result<Drive> {
    match label(&drive) {
        Ok(Some(label)) => Err(label.marked(drive.path())),
        Err(DeviceError::Gone) => Err(DeviceError::Gone),
        Ok(None) | Err(_) => Ok(drive),
    }
}
