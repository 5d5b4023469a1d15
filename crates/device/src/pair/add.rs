//! A volume on one device that gets another one for metadata.
//!
//! The zones that it has keep their numbers, and those for metadata follow. The last two zones of the device that it has are given up
//! for a label: they are numbers that no device has from then on. First the device for metadata is made, then the label of the other
//! one is written: until that is there the volume is what it was, on one device, and from then on it is on two.

use std::path::Path;

use persimmon_format::device_label::{DeviceKind, DeviceLabel, DeviceZones, Grown, ZoneRun};
use uuid::Uuid;

use super::{Labels, Pair, PairError, check_two, usable};
use crate::drive::{Drive, Kind};
use crate::image::ImageGeometry;
use crate::label::{self, LABEL_ZONES, Label};
use crate::lock::open_error;
use crate::options::{CreateOptions, OpenOptions};
use crate::{DeviceError, Geometry, Result, ZoneState, ZonedDevice};

/// The labels of the two.
fn labels(
    (uuid, label): (Uuid, &str),
    metadata: DeviceZones,
    data: &Geometry,
) -> std::result::Result<Labels, String> {
    let all = data.zone_count;
    let Some(count) = all.checked_sub(LABEL_ZONES).filter(|count| *count > 0) else {
        return Err("has too few zones to give two of them up".to_owned());
    };
    if metadata.count == 0 {
        return Err("has too few zones for the metadata of a volume".to_owned());
    }
    if metadata.blocks > data.zone_blocks {
        return Err(format!(
            "zones of a device for metadata that is added later may not be larger than those of the volume, which have {} bytes",
            u64::from(data.zone_blocks) * crate::BLOCK_SIZE as u64
        ));
    }
    let of = |kind, own: u32, first| DeviceLabel {
        kind,
        uuid: uuid.into_bytes(),
        label: label.to_owned(),
        metadata,
        data: DeviceZones {
            count,
            blocks: data.zone_blocks,
        },
        grown: Some(Grown {
            before: own,
            runs: vec![ZoneRun { first, count: own }],
        }),
    };
    Ok(Labels {
        metadata: of(DeviceKind::Metadata, metadata.count, all),
        data: of(DeviceKind::Data, count, 0),
    })
}

impl Pair {
    /// What a volume on a device sees when it has another one for metadata.
    ///
    /// Errors: the two do not go together.
    pub fn with_metadata(path: &Path, metadata: &Geometry, data: &Geometry) -> Result<Geometry> {
        let zones = DeviceZones {
            count: metadata.zone_count.saturating_sub(LABEL_ZONES),
            blocks: metadata.zone_blocks,
        };
        let labels =
            labels((Uuid::nil(), ""), zones, data).map_err(|why| open_error(path, &why))?;
        labels.numbering(path)?.geometry(metadata, data)
    }

    /// Refuses what [`Pair::make_metadata`] would refuse, and makes nothing.
    ///
    /// Errors: as of that, but for those of writing.
    pub fn check_metadata(
        (path, shape): (&Path, &ImageGeometry),
        (data_path, data): (&Path, &Geometry),
        volume: Uuid,
        options: &CreateOptions,
    ) -> Result<()> {
        check_two(path, data_path)?;
        if is_made(path, volume, data) {
            return Ok(());
        }
        Drive::check_create(path, shape, &forced_if_empty(path, options))
    }

    /// Makes a device for the metadata of a volume on another one. One that was made so, and not used, is taken as it is. An image calls
    /// itself as `options` say: it is none of the volume yet.
    ///
    /// Errors: as of [`Drive::create`]; the two do not go together.
    pub fn make_metadata(
        (path, shape): (&Path, &ImageGeometry),
        (data_path, data): (&Path, &Geometry),
        named: (Uuid, &str),
        options: &CreateOptions,
    ) -> Result<()> {
        check_two(path, data_path)?;
        if is_made(path, named.0, data) {
            return Ok(());
        }
        let options = &forced_if_empty(path, options);
        let drive = Drive::claim(path, shape, options)?.made(options)?;
        let labels = labels(named, usable(&drive)?, data).map_err(|why| open_error(path, &why))?;
        label::write(&drive, &labels.metadata, path)
    }

    /// Writes the label of the device that the volume was on alone, whose last two zones nobody needs any more. From then on the volume
    /// is on both. Who calls it has kept that device since it saw that nobody needs them: another process could use them, or make
    /// the device larger.
    ///
    /// Errors: the other one was not made for this volume, or before that had as many zones as now; a device fails.
    pub fn join(metadata: &Path, data: &Drive, volume: Uuid, options: &OpenOptions) -> Result<()> {
        let of_metadata = super::label(&Drive::open_part(metadata, options)?)?;
        let found = of_metadata.filter(|label| label.uuid == volume.into_bytes());
        let Some(found) = found.filter(|label| label.kind == DeviceKind::Metadata) else {
            return Err(DeviceError::Pair(PairError::NoPart {
                path: metadata.display().to_string(),
                kind: DeviceKind::Metadata,
            }));
        };
        let named = (volume, found.label.as_str());
        let labels = labels(named, found.metadata, data.geometry())
            .map_err(|why| open_error(data.path(), &why))?;
        if labels.metadata != found {
            return Err(DeviceError::Pair(PairError::MadeBefore {
                path: metadata.display().to_string(),
                uuid: volume,
            }));
        }
        label::write(data, &labels.data, data.path())
    }
}

/// An image in which nothing was ever written may be overwritten: one that was killed before it wrote the label leaves it.
fn forced_if_empty(path: &Path, options: &CreateOptions) -> CreateOptions {
    let is_empty = || -> Option<bool> {
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let drive = Drive::open_part(path, &options).ok()?;
        let report = drive.report(0..drive.geometry().zone_count).ok()?;
        Some(report.iter().all(|info| info.state == ZoneState::Empty))
    };
    let is_image = matches!(Kind::of(path), Ok(Kind::Image));
    CreateOptions {
        force: options.force || is_image && is_empty().unwrap_or(false),
        ..options.clone()
    }
}

/// Whether a device was made for the metadata of this volume, and holds nothing.
fn is_made(path: &Path, volume: Uuid, data: &Geometry) -> bool {
    let made = || -> Option<bool> {
        let options = OpenOptions {
            read_only: true,
            ..OpenOptions::default()
        };
        let drive = Drive::open_part(path, &options).ok()?;
        let found = label::find::<DeviceLabel>(&drive).ok()??;
        let named = (volume, found.label.label.as_str());
        let wanted = labels(named, found.label.metadata, data).ok()?.metadata;
        let report = drive.report(0..found.label.zones()).ok()?;
        let is_empty = report
            .iter()
            .all(|info| info.state == ZoneState::Empty || info.state.is_worn_out());
        Some(found.is_in_place && found.label == wanted && is_empty)
    };
    made().unwrap_or(false)
}
