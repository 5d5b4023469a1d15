//! Two devices of one volume: one for the log and metadata, one for file data.
//!
//! The last two zones of each hold a label ([`DeviceLabel`]) and nothing else, finished once and never written
//! again: it says which device of which volume this is, and one of them is enough to know it. A volume
//! is opened by the two that name each other; one of them alone, both in each other's place, or with the
//! part of another volume is refused before anything is written. Each label says by itself how the zones of its device are numbered
//! ([`numbering`]), so that one device can grow while the other stays as it is.
//!
//! Both are named by `pair:FIRST+SECOND`, each of them a name of its own; a plus sign in a name is written
//! `\+`, a backslash `\\`.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use persimmon_format::device_label::{DeviceKind, DeviceLabel, DeviceZones};
use uuid::Uuid;

mod add;
mod grow;
mod numbering;

use crate::drive::Drive;
use crate::image::ImageGeometry;
use crate::joined::Joined;
use crate::label::{self, Found, LABEL_ZONES, Label};
use crate::options::{CreateOptions, OpenOptions};
use crate::{
    Command, Completion, DeviceError, Geometry, MetadataZones, Pending, Result, ZoneInfo,
    ZonedDevice,
};
pub(crate) use grow::{Labels, grown};
use numbering::Numbering;

const SCHEME: &[u8] = b"pair:";
const SEPARATOR: u8 = b'+';
const ESCAPE: u8 = b'\\';

/// Why devices are not the two of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// A device that is one of two was named alone.
    #[error(
        "{path} is the device for {} of volume {uuid}, which lies on two devices: name both, \
         pair:METADATA_DEVICE+DATA_DEVICE", name(*kind)
    )]
    Alone {
        /// The device.
        path: String,
        /// What it is for.
        kind: DeviceKind,
        /// The volume.
        uuid: Uuid,
    },
    /// A device that is none of two was named as one.
    #[error(
        "{path} is not the device for {} of a volume on two devices; name the one that was given to \
         mkfs", name(*kind)
    )]
    NoPart {
        /// The device.
        path: String,
        /// What it was named for.
        kind: DeviceKind,
    },
    /// They are the two, in each other's place.
    #[error(
        "{second} is the device for metadata of volume {uuid} and {first} that for data: name them \
         in that order"
    )]
    Swapped {
        /// The one that was named first.
        first: String,
        /// The other.
        second: String,
        /// The volume.
        uuid: Uuid,
    },
    /// Both are for the same.
    #[error("{first} and {second} are both devices for {}: one of them is the wrong one", name(*kind))]
    SameKind {
        /// The one that was named first.
        first: String,
        /// The other.
        second: String,
        /// What both are for.
        kind: DeviceKind,
    },
    /// They are devices of two volumes.
    #[error(
        "{first} is of volume {first_uuid} and {second} of volume {second_uuid}: name the two devices \
         of one volume"
    )]
    OtherVolume {
        /// The one that was named first.
        first: String,
        /// Its volume.
        first_uuid: Uuid,
        /// The other.
        second: String,
        /// Its volume.
        second_uuid: Uuid,
    },
    /// A device has not the zones it was made with.
    #[error(
        "{path} is not as volume {uuid} knows it: it is an old, truncated or resized copy; \
         restore the whole device"
    )]
    Resized {
        /// The device.
        path: String,
        /// The volume.
        uuid: Uuid,
    },
    /// A device was made for the metadata of a volume that has another number of zones by now.
    #[error(
        "{path} was made for the metadata of volume {uuid} when that had another number of zones: make it anew, \
         with --force"
    )]
    MadeBefore {
        /// The device.
        path: String,
        /// The volume.
        uuid: Uuid,
    },
    /// Zones for the label hold that of another volume and take no other.
    #[error(
        "{path} is marked as the device for {} of volume {uuid} in a zone that has failed and cannot be \
         erased; use another device", name(*kind)
    )]
    Marked {
        /// The device.
        path: String,
        /// What it was for.
        kind: DeviceKind,
        /// The volume.
        uuid: Uuid,
    },
    /// One device was named twice.
    #[error("{path} cannot be both devices of a volume")]
    Twice {
        /// The device.
        path: String,
    },
}

fn name(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Metadata => "metadata",
        DeviceKind::Data => "data",
    }
}

/// The two names in a URI, that of the device for metadata first; `None` if it is none of a pair.
#[must_use]
pub fn names(uri: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut bytes = uri.as_os_str().as_bytes().strip_prefix(SCHEME)?.iter();
    let mut names = vec![Vec::new()];
    while let Some(byte) = bytes.next() {
        match *byte {
            SEPARATOR => names.push(Vec::new()),
            ESCAPE => names.last_mut()?.push(*bytes.next()?),
            byte => names.last_mut()?.push(byte),
        }
    }
    let [first, second] = <[Vec<u8>; 2]>::try_from(names).ok()?;
    let path = |name| PathBuf::from(OsString::from_vec(name));
    (!first.is_empty() && !second.is_empty()).then(|| (path(first), path(second)))
}

/// Whether a name is meant as that of a pair.
#[must_use]
pub fn is_uri(name: &Path) -> bool {
    name.as_os_str().as_bytes().starts_with(SCHEME)
}

/// The URI of two devices.
#[must_use]
pub fn uri(metadata: &Path, data: &Path) -> PathBuf {
    let mut uri = SCHEME.to_vec();
    for (number, name) in [metadata, data].into_iter().enumerate() {
        uri.extend((number > 0).then_some(SEPARATOR));
        for byte in name.as_os_str().as_bytes() {
            uri.extend(matches!(*byte, SEPARATOR | ESCAPE).then_some(ESCAPE));
            uri.push(*byte);
        }
    }
    PathBuf::from(OsString::from_vec(uri))
}

/// What was made of the name of a pair.
pub(crate) fn names_or_error(uri: &Path) -> Result<(PathBuf, PathBuf)> {
    names(uri).ok_or_else(|| DeviceError::Open {
        path: uri.display().to_string(),
        message: "two devices are named pair:METADATA_DEVICE+DATA_DEVICE".to_owned(),
        os_error: None,
    })
}

/// Two devices, opened.
pub struct Pair {
    joined: Joined<Drive, Drive>,
    path: PathBuf,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("path", &self.path).finish()
    }
}

impl Pair {
    /// Opens both.
    ///
    /// Errors: as of [`Drive::open`]; [`DeviceError::Pair`].
    pub fn open(metadata: &Path, data: &Path, options: &OpenOptions) -> Result<Pair> {
        check_two(metadata, data)?;
        let first = Drive::open_part(metadata, options)?;
        let second = Drive::open_part(data, options)?;
        let labels = check((&first, &second))?;
        Pair::joined(first, second, &labels)
    }

    /// Makes both anew. As long as one of them is refused, nothing on the other is overwritten.
    ///
    /// Errors: as of [`Drive::create`]; too few zones.
    pub fn create(
        (metadata, metadata_shape): (&Path, &ImageGeometry),
        (data, data_shape): (&Path, &ImageGeometry),
        options: &CreateOptions,
    ) -> Result<Pair> {
        check_two(metadata, data)?;
        let first = Drive::claim(metadata, metadata_shape, options)?;
        let second = Drive::claim(data, data_shape, options)?;
        let (first, second) = (first.made(options)?, second.made(options)?);
        let zones = (usable(&first)?, usable(&second)?);
        let labels = [DeviceKind::Metadata, DeviceKind::Data].map(|kind| DeviceLabel {
            kind,
            uuid: options.uuid.into_bytes(),
            label: options.label.clone(),
            metadata: zones.0,
            data: zones.1,
            grown: None,
        });
        for (drive, label) in [&first, &second].into_iter().zip(&labels) {
            label::write(drive, label, drive.path())?;
        }
        let [metadata, data] = labels;
        Pair::joined(first, second, &Labels { metadata, data })
    }

    fn joined(first: Drive, second: Drive, labels: &Labels) -> Result<Pair> {
        let path = uri(first.path(), second.path());
        let numbering = labels.numbering(second.path())?;
        let geometry = numbering.geometry(first.geometry(), second.geometry())?;
        Ok(Pair {
            joined: Joined::parts(first, second, (numbering.spans, geometry)),
            path,
        })
    }

    /// The URI of both.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device for the log and metadata.
    #[must_use]
    pub fn metadata(&self) -> &Drive {
        self.joined.first()
    }

    /// The device for file data.
    #[must_use]
    pub fn data(&self) -> &Drive {
        self.joined.second()
    }
}

impl ZonedDevice for Pair {
    fn geometry(&self) -> &Geometry {
        self.joined.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.joined.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        self.joined.submit(command)
    }

    fn run(&self, command: Command) -> Result<Completion> {
        self.joined.run(command)
    }

    fn resets_at_once(&self) -> usize {
        self.joined.resets_at_once()
    }

    fn space_is_hosts(&self) -> bool {
        self.joined.space_is_hosts()
    }

    fn identity(&self) -> Option<crate::DeviceIdentity> {
        self.joined.identity()
    }
}

/// What two devices of these shapes look like as a pair, whose labels take [`LABEL_ZONES`] of each.
///
/// Errors: too many zones together.
pub fn geometry_of(metadata: &Geometry, data: &Geometry) -> Result<Geometry> {
    let counts = [metadata, data].map(|geometry| geometry.zone_count.saturating_sub(LABEL_ZONES));
    Numbering::as_made(counts[0], counts[1])?.geometry(metadata, data)
}

/// The URI of two devices of one volume, in whichever order; `None` if they are not, or
/// cannot be looked at now.
#[must_use]
pub fn of_parts(one: &Path, other: &Path) -> Option<PathBuf> {
    let [a, b] = [label_of(one)?, label_of(other)?];
    if a.uuid != b.uuid {
        return None;
    }
    match (a.kind, b.kind) {
        (DeviceKind::Metadata, DeviceKind::Data) => Some(uri(one, other)),
        (DeviceKind::Data, DeviceKind::Metadata) => Some(uri(other, one)),
        _ => None,
    }
}

/// Whether a device is one of two; not, if it cannot be looked at now.
#[must_use]
pub fn is_part(path: &Path) -> bool {
    label_of(path).is_some()
}

fn label_of(path: &Path) -> Option<DeviceLabel> {
    let options = OpenOptions {
        read_only: true,
        wait_for_lock: std::time::Duration::ZERO,
        ..OpenOptions::default()
    };
    label(&Drive::open_part(path, &options).ok()?).ok()?
}

impl Numbering {
    /// What devices of these shapes look like whose zones are numbered so.
    ///
    /// Errors: too many zones together.
    fn geometry(&self, metadata: &Geometry, data: &Geometry) -> Result<Geometry> {
        // One flag tells of all zones, and an image in conventional zones keeps their write pointers by itself.
        let proves = |half: &Geometry| half.write_pointer_is_proof && half.conventional_zones == 0;
        let least = |a: Option<u32>, b: Option<u32>| a.into_iter().chain(b).min();
        let metadata_zones = MetadataZones::of(self.metadata_zones());
        Ok(Geometry {
            zone_count: self.zone_count,
            zone_blocks: metadata.zone_blocks.max(data.zone_blocks),
            // Each zone tells for itself. But before the device for metadata came, the log was behind these.
            conventional_zones: if metadata_zones.are_added() {
                data.conventional_zones
            } else {
                0
            },
            metadata_zones,
            max_open: least(metadata.max_open, data.max_open),
            max_active: least(metadata.max_active, data.max_active),
            max_transfer_blocks: metadata.max_transfer_blocks.min(data.max_transfer_blocks),
            max_append_blocks: metadata.max_append_blocks.min(data.max_append_blocks),
            volatile_cache: metadata.volatile_cache || data.volatile_cache,
            write_pointer_is_proof: proves(metadata) && proves(data),
            stripes: None,
        })
    }
}

/// Refuses a device that is one of two. One that cannot be read there may be a volume of its own all the
/// same, with a bad block in a zone that is like any other: if it is not, the headers of its zones tell.
///
/// Errors: [`PairError::Alone`]; it is gone.
pub(crate) fn check_alone(device: &dyn ZonedDevice, path: &Path) -> Result<()> {
    match label(device) {
        Ok(Some(label)) => Err(DeviceError::Pair(PairError::Alone {
            path: path.display().to_string(),
            kind: label.kind,
            uuid: Uuid::from_bytes(label.uuid),
        })),
        Err(DeviceError::Gone) => Err(DeviceError::Gone),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Refuses a device that was made for a volume of its own, if it still says that it is one of two.
///
/// Errors: [`PairError::Marked`]; it is gone.
pub(crate) fn check_unmarked(device: &dyn ZonedDevice, path: &Path) -> Result<()> {
    match label(device) {
        Ok(Some(label)) => Err(marked(path, &label)),
        Err(DeviceError::Gone) => Err(DeviceError::Gone),
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Refuses one device named twice.
///
/// Errors: [`PairError::Twice`].
pub fn check_two(metadata: &Path, data: &Path) -> Result<()> {
    let canonical = |path| crate::drive::canonical(path).ok();
    if canonical(metadata).is_some_and(|first| Some(first) == canonical(data)) {
        let path = metadata.display().to_string();
        return Err(DeviceError::Pair(PairError::Twice { path }));
    }
    Ok(())
}

/// The labels of both, which name each other.
fn check((one, other): (&Drive, &Drive)) -> Result<Labels> {
    let shown = |drive: &Drive| drive.path().display().to_string();
    let (first, second) = (shown(one), shown(other));
    let labels: (Option<Found<DeviceLabel>>, Option<Found<DeviceLabel>>) =
        (label::find(one)?, label::find(other)?);
    let error = match labels {
        (None, _) => PairError::NoPart {
            path: first,
            kind: DeviceKind::Metadata,
        },
        (_, None) => PairError::NoPart {
            path: second,
            kind: DeviceKind::Data,
        },
        (Some(a), Some(b)) if a.label.kind == b.label.kind => PairError::SameKind {
            first,
            second,
            kind: a.label.kind,
        },
        (Some(a), Some(b)) if a.label.uuid != b.label.uuid => PairError::OtherVolume {
            first,
            first_uuid: Uuid::from_bytes(a.label.uuid),
            second,
            second_uuid: Uuid::from_bytes(b.label.uuid),
        },
        (Some(a), Some(_)) if a.label.kind == DeviceKind::Data => PairError::Swapped {
            first,
            second,
            uuid: Uuid::from_bytes(a.label.uuid),
        },
        (Some(a), Some(b)) => {
            let uuid = Uuid::from_bytes(a.label.uuid);
            match () {
                () if !is_as_known(one, &a, b.label.metadata) => {
                    PairError::Resized { path: first, uuid }
                }
                () if !is_as_known(other, &b, a.label.data) => {
                    PairError::Resized { path: second, uuid }
                }
                () => {
                    return Ok(Labels {
                        metadata: a.label,
                        data: b.label,
                    });
                }
            }
        }
    };
    Err(DeviceError::Pair(error))
}

/// Whether a device is what its own label says, and what the label of the other says, which may know it as it was before it grew.
fn is_as_known(drive: &Drive, found: &Found<DeviceLabel>, by_other: DeviceZones) -> bool {
    let own = found.label.own();
    let is_known = match found.label.grown {
        None => own.count == by_other.count,
        Some(_) => own.count >= by_other.count,
    };
    found.is_in_place
        && is_known
        && own.blocks == by_other.blocks
        && own.blocks == drive.geometry().zone_blocks
}

fn marked(path: &Path, label: &DeviceLabel) -> DeviceError {
    DeviceError::Pair(PairError::Marked {
        path: path.display().to_string(),
        kind: label.kind,
        uuid: Uuid::from_bytes(label.uuid),
    })
}

/// Zones of a device before those of its label.
fn usable(drive: &Drive) -> Result<DeviceZones> {
    let geometry = drive.geometry();
    match geometry.zone_count.checked_sub(LABEL_ZONES) {
        Some(count) if count > 0 => Ok(DeviceZones {
            count,
            blocks: geometry.zone_blocks,
        }),
        _ => Err(DeviceError::Open {
            path: drive.path().display().to_string(),
            message: "has too few zones for a kind of a volume".to_owned(),
            os_error: None,
        }),
    }
}

/// The label of a device, if it is one of two.
fn label(device: &dyn ZonedDevice) -> Result<Option<DeviceLabel>> {
    label::read(device)
}

impl Label for DeviceLabel {
    fn decoded(block: &[u8]) -> Option<DeviceLabel> {
        DeviceLabel::decode(block).ok()
    }

    fn encoded(&self) -> Vec<u8> {
        self.encode()
    }

    fn zones(&self) -> u32 {
        self.own().count
    }

    fn zones_before(&self) -> Option<u32> {
        self.grown.as_ref().map(|grown| grown.before)
    }

    fn volume(&self) -> [u8; 16] {
        self.uuid
    }

    fn marked(&self, path: &Path) -> DeviceError {
        marked(path, self)
    }
}

#[cfg(test)]
mod tests;
