//! A device in stripe sets that has more zones than its label says. Sets follow each other, so those that there are stay where they
//! are. Behind them come sets for data: a device has no more for the log and metadata than it was made with.

use persimmon_format::stripe_label::StripeLabel;

use super::{geometry_of, label};
use crate::label::{self as zones_label, LABEL_ZONES, Label};
use crate::{Drive, Geometry, Result, Stripes, ZonedDevice};

/// What a device in stripe sets is when it has so many zones: it has no fewer than now. `None`: it is not used so.
///
/// # Errors
/// It is not as its label says.
pub(crate) fn grown(drive: &Drive, zones: u32) -> Result<Option<Geometry>> {
    let Some(label) = label::checked(drive)? else {
        return Ok(None);
    };
    let geometry = Geometry {
        zone_count: zones.max(label.places().end),
        ..drive.geometry().clone()
    };
    let stripes = Stripes {
        columns: label.columns,
        metadata_sets: label.metadata_sets,
    };
    Ok(Some(geometry_of(&geometry, stripes)))
}

/// Has all zones of a device used in stripe sets, if it is used so.
///
/// # Errors
/// They hold something, and `overwrite` is not said; it fails.
pub(crate) fn grow(drive: &Drive, overwrite: bool) -> Result<()> {
    let Some(old) = label::checked(drive)? else {
        return Ok(());
    };
    let zone_count = drive.geometry().zone_count - LABEL_ZONES;
    let new = if zone_count > old.zone_count {
        StripeLabel {
            zone_count,
            before: Some(old.zone_count),
            ..old.clone()
        }
    } else {
        old.clone()
    };
    if new != old || new.zones_before().is_some() {
        zones_label::move_to_end(drive, (&old, &new), overwrite, drive.path())?;
    }
    Ok(())
}
