//! Devices of a volume on two that have more zones than it.
//!
//! The label of a device that grew moves to its new end, and says which numbers its new zones have. The other one stays as it is: what
//! it says of this device is older. If both grew, that for metadata comes first; either is a step by itself.

use std::path::Path;

use persimmon_format::device_label::{DeviceKind, DeviceLabel, Grown, RUNS_MAX, ZoneRun};

use super::{Pair, check};
use crate::drive::Drive;
use crate::label::{self, LABEL_ZONES, Label};
use crate::lock::open_error;
use crate::{Geometry, Result, ZonedDevice};

/// The labels of both devices.
pub(crate) struct Labels {
    pub(crate) metadata: DeviceLabel,
    pub(crate) data: DeviceLabel,
}

impl Labels {
    /// The label of a device that has so many zones in all.
    ///
    /// Errors: it grew too often.
    fn grown(&self, kind: DeviceKind, zones: u32, path: &Path) -> Result<DeviceLabel> {
        let old = match kind {
            DeviceKind::Metadata => &self.metadata,
            DeviceKind::Data => &self.data,
        };
        let count = zones.saturating_sub(LABEL_ZONES);
        let mut new = old.clone();
        let Some(more) = count.checked_sub(old.own().count).filter(|more| *more > 0) else {
            return Ok(new);
        };
        // As both are known now.
        (new.metadata.count, new.data.count) = (self.metadata.own().count, self.data.own().count);
        let own = match kind {
            DeviceKind::Metadata => &mut new.metadata,
            DeviceKind::Data => &mut new.data,
        };
        own.count = count;
        let mut runs = old.runs();
        let first = self.next();
        match runs.last_mut() {
            Some(last) if last.end() == first => last.count += more,
            _ => runs.push(ZoneRun { first, count: more }),
        }
        if runs.len() > RUNS_MAX || first.checked_add(more).is_none() {
            return Err(open_error(path, "it has grown too often to grow once more"));
        }
        let before = old.own().count;
        new.grown = Some(Grown { before, runs });
        Ok(new)
    }

    fn set(&mut self, label: DeviceLabel) {
        match label.kind {
            DeviceKind::Metadata => self.metadata = label,
            DeviceKind::Data => self.data = label,
        }
    }
}

/// What the pair is when its devices have so many zones, that for metadata first: it has no fewer than now.
///
/// Errors: they are no pair; one grew too often.
pub(crate) fn grown(drives: (&Drive, &Drive), zones: (u32, u32)) -> Result<Geometry> {
    let mut labels = check(drives)?;
    for (drive, kind, zones) in [
        (drives.0, DeviceKind::Metadata, zones.0),
        (drives.1, DeviceKind::Data, zones.1),
    ] {
        labels.set(labels.grown(kind, zones, drive.path())?);
    }
    let numbering = labels.numbering(drives.1.path())?;
    numbering.geometry(drives.0.geometry(), drives.1.geometry())
}

impl Pair {
    /// Gives the pair the zones that its devices have more.
    ///
    /// Errors: they hold something, and `overwrite` is not said; one grew too often; it fails.
    pub(crate) fn grow(drives: (&Drive, &Drive), overwrite: bool) -> Result<()> {
        let mut labels = check(drives)?;
        for (drive, kind) in [
            (drives.0, DeviceKind::Metadata),
            (drives.1, DeviceKind::Data),
        ] {
            let zones = drive.geometry().zone_count;
            let new = labels.grown(kind, zones, drive.path())?;
            let old = match kind {
                DeviceKind::Metadata => &labels.metadata,
                DeviceKind::Data => &labels.data,
            };
            if *old != new || new.zones_before().is_some() {
                label::move_to_end(drive, (old, &new), overwrite, drive.path())?;
            }
            labels.set(new);
        }
        Ok(())
    }
}
