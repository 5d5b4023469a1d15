//! What making a volume on a drive looks at first.

use std::io;
use std::path::Path;

use persimmon_format::BLOCK_SIZE;
use persimmon_format::device_label::DeviceLabel;
use persimmon_format::gate::{self, FixedFields};
use persimmon_format::zone_header::ZoneHeader;

use super::{KernelDevice, Port};
use crate::lock::{explain, open_error};
use crate::options::{CreateOptions, OpenOptions};
use crate::probe::{Finding, Identity, unsupported};
use crate::{Geometry, Result, ZoneInfo, ZoneState, ZonedDevice};

/// Zones one of which has a header if there is a volume: the log is among the first so many.
pub const ZONES_WITH_LOG: usize = 64;
/// Blocks one command may transfer (4 MiB), however much the device takes.
const TRANSFER_BLOCKS_MAX: u64 = 1024;

/// A drive that is this process's and may be emptied: nothing is lost by it, or that is wanted. What is in its
/// zones is still there.
pub struct Claim<P: Port> {
    device: KernelDevice<P>,
    zones: Vec<ZoneInfo>,
}

impl<P: Port> Claim<P> {
    /// Looks at a drive that was opened. `foreign` and `identity`: as of [`check_nothing_lost`].
    pub fn of(
        device: KernelDevice<P>,
        force: bool,
        foreign: impl FnOnce() -> io::Result<Option<Finding>>,
        identity: impl FnOnce() -> io::Result<Option<Identity>>,
    ) -> Result<Claim<P>> {
        let zones = device.report(0..device.geometry().zone_count)?;
        if !force {
            check_nothing_lost(device.path(), &zones, foreign(), identity)?;
        }
        Ok(Claim { device, zones })
    }

    /// What it was opened by.
    pub fn path(&self) -> &Path {
        self.device.path()
    }

    /// Empties it. `also_empty`: as of [`KernelDevice::reset_all`].
    pub fn emptied(self, also_empty: bool) -> Result<KernelDevice<P>> {
        self.device.reset_all(&self.zones, also_empty)?;
        Ok(self.device)
    }
}

/// How a drive is opened to be emptied.
pub fn opening(options: &CreateOptions) -> OpenOptions {
    OpenOptions {
        wait_for_lock: options.wait_for_lock,
        ..OpenOptions::default()
    }
}

/// Refuses a drive that is not empty. `foreign`: what others left outside of the zones that are
/// used; `identity`: of the volume in them.
fn check_nothing_lost(
    path: &Path,
    zones: &[ZoneInfo],
    foreign: io::Result<Option<Finding>>,
    identity: impl FnOnce() -> io::Result<Option<Identity>>,
) -> Result<()> {
    let used = zones
        .iter()
        .any(|zone| zone.state != ZoneState::Empty && !zone.state.is_worn_out());
    let fail = |error: io::Error| explain(path, &error);
    let what = match foreign.map_err(fail)? {
        Some(found) => found.to_string(),
        None if !used => return Ok(()),
        None => match identity().map_err(fail)? {
            Some(_) => "a Persimmon volume".to_owned(),
            None => "data of an unknown kind".to_owned(),
        },
    };
    let message = format!("holds {what}; use --force to overwrite it");
    Err(open_error(path, &message))
}

/// UUID and label that these blocks tell, which begin zones in use: headers, or what
/// says whose part a device is, which is all that is on one for data as long as there is none.
pub fn identity_in(blocks: impl Iterator<Item = io::Result<[u8; BLOCK_SIZE]>>) -> Option<Identity> {
    let (mut headers, mut of_two) = (Vec::new(), None);
    let mut names = Vec::new();
    for block in blocks.take(ZONES_WITH_LOG).flatten() {
        match FixedFields::read(&block) {
            Ok(header) => {
                // Of a newer version the label is known, and the UUID that it was made with.
                let visible = ZoneHeader::decode(&block).map(|header| header.volume.visible_uuid);
                names.push((visible.unwrap_or(header.uuid), header.label.clone()));
                headers.push(header);
            }
            Err(_) => of_two = of_two.or(DeviceLabel::decode(&block).ok()),
        }
    }
    let uuid = gate::volume_of(headers.iter().map(|header| (header, true)));
    let unsupported = uuid.and_then(|uuid| unsupported(&headers, &uuid));
    // Both may have been changed: the zone that was taken into use last tells.
    let ours = headers.iter().zip(names);
    let ours = ours.filter(|(header, _)| Some(header.uuid) == uuid);
    let newest = ours.max_by_key(|(header, _)| header.sequence);
    let (uuid, label) = match (newest, of_two) {
        (Some((_, names)), _) => names,
        (None, Some(label)) => (label.uuid, label.label),
        (None, None) => return None,
    };
    Some(Identity {
        uuid: uuid::Uuid::from_bytes(uuid),
        label,
        unsupported,
    })
}

/// Whether nothing is in a zone, not even a part of a block, by its state and whether its write pointer has moved.
pub fn is_blank(state: ZoneState, has_moved: bool) -> bool {
    state.is_worn_out() || state == ZoneState::Empty || !has_moved
}

/// Whether a drive is to be made ready for writing when it is opened so: it holds a volume (`identity`), or nothing, or
/// that does not matter. What is not ours is not changed before somebody has said that it may be.
///
/// Errors: it cannot be looked at.
pub fn may_change(
    options: &OpenOptions,
    is_blank: bool,
    identity: impl FnOnce() -> io::Result<Option<Identity>>,
) -> io::Result<bool> {
    Ok(match options {
        OpenOptions {
            read_only: true, ..
        } => false,
        OpenOptions {
            whatever_it_holds: true,
            ..
        } => true,
        // Of a volume that this program cannot read neither.
        _ => is_blank || identity()?.is_some_and(|volume| volume.unsupported.is_none()),
    })
}

/// What all drives have in common: sizes of zones in bytes, and what one request may carry.
pub fn geometry(
    zone_count: usize,
    zone_bytes: u64,
    request_bytes_max: u64,
    request_segments_max: u64,
) -> Geometry {
    let block = BLOCK_SIZE as u64;
    // A block may be apart from the next one in memory, so it may take a segment of its own.
    let known = |limit: u64| if limit == 0 { 32 } else { limit };
    let transfer = known(request_bytes_max / block)
        .min(known(request_segments_max))
        .clamp(1, TRANSFER_BLOCKS_MAX) as u32;
    Geometry {
        zone_count: zone_count as u32,
        zone_blocks: (zone_bytes / block) as u32,
        conventional_zones: 0,
        metadata_zones: Default::default(),
        max_open: None,
        max_active: None,
        max_transfer_blocks: transfer,
        max_append_blocks: transfer,
        volatile_cache: true,
        write_pointer_is_proof: true,
        stripes: None,
    }
}

/// What is wrong with zones of so many bytes, or blocks.
pub fn problem(zone_bytes: u64, write_bytes_min: u64) -> Option<String> {
    let block = BLOCK_SIZE as u64;
    if write_bytes_min > block {
        return Some(format!(
            "wants writes of {write_bytes_min} bytes; Persimmon's blocks are of {block}"
        ));
    }
    let is_odd = zone_bytes == 0
        || !zone_bytes.is_multiple_of(block)
        || zone_bytes / block > u64::from(u32::MAX);
    is_odd.then(|| format!("has zones of {zone_bytes} bytes, which Persimmon cannot use"))
}

#[cfg(test)]
mod tests {
    use persimmon_format::DeviceId;
    use persimmon_format::device_label::{DeviceKind, DeviceZones};
    use persimmon_format::table::Role;
    use persimmon_format::zone_header::{Properties, REQUIRED, VolumeIdentity};

    use super::*;
    use crate::ZoneId;

    #[test]
    fn a_device_for_data_that_holds_none_tells_whose_it_is() {
        let zones = DeviceZones {
            count: 20,
            blocks: 256,
        };
        let label = DeviceLabel {
            kind: DeviceKind::Data,
            uuid: [7; 16],
            label: "two".into(),
            metadata: zones,
            data: zones,
            grown: None,
        };
        let mut block = [0; BLOCK_SIZE];
        assert_eq!(identity_in([Ok(block)].into_iter()), None);
        block.copy_from_slice(&label.encode());
        let unreadable = || Err(io::ErrorKind::Other.into());
        let found = identity_in([unreadable(), Ok([0; BLOCK_SIZE]), Ok(block)].into_iter());
        let found = found.unwrap();
        assert_eq!(
            (found.uuid, found.label.as_str()),
            (uuid::Uuid::from_bytes([7; 16]), "two")
        );
    }

    /// Both may have been changed since the volume was made: the zone that was taken into use last tells.
    #[test]
    fn a_volume_calls_itself_as_its_newest_header_does() {
        let header = |zone: u32, sequence, uuid, names: Option<(&str, [u8; 16])>| {
            let volume = VolumeIdentity {
                uuid,
                visible_uuid: uuid,
                secret: [0; 32],
                label: "made so".into(),
                incompatible: REQUIRED,
                read_only_compatible: 0,
                compatible: 0,
                created_seconds: 0,
                zone_count: 20,
                zone_blocks: 256,
                metadata_zones: Default::default(),
            };
            let volume = match names {
                Some((label, uuid)) => volume.with(Properties {
                    zone_count: 20,
                    uuid,
                    label: label.into(),
                }),
                None => volume,
            };
            let header = ZoneHeader {
                volume,
                device: DeviceId(0),
                zone: ZoneId(zone),
                role: Role::Log,
                lifetime: 0,
                sequence,
                first_log_sequence: 1,
                partner: None,
            };
            let mut block = [0; BLOCK_SIZE];
            block.copy_from_slice(&header.encode());
            Ok(block)
        };
        let blocks = [
            header(0, 3, [1; 16], Some(("later", [8; 16]))),
            header(1, 5, [1; 16], Some(("now", [9; 16]))),
            header(2, 2, [1; 16], None),
            // What is left of another volume.
            header(3, 7, [2; 16], None),
        ];
        let found = identity_in(blocks.into_iter()).unwrap();
        assert_eq!(found.uuid, uuid::Uuid::from_bytes([9; 16]));
        assert_eq!((found.label.as_str(), found.unsupported), ("now", None));
    }

    /// A drive that is somebody else's had its zones closed and torn blocks padded by an mkfs that was refused after, and
    /// by a mount that found no volume on it.
    #[test]
    fn what_is_not_ours_is_not_made_ready() {
        let ours = Identity {
            unsupported: None,
            uuid: uuid::Uuid::nil(),
            label: String::new(),
        };
        let writing = OpenOptions::default();
        let may = |options: &OpenOptions, is_blank, identity: Option<&Identity>| {
            let identity = identity.cloned();
            may_change(options, is_blank, || Ok(identity)).unwrap()
        };
        assert!(may(&writing, false, Some(&ours)));
        assert!(may(&writing, true, None));
        assert!(!may(&writing, false, None));
        assert!(!may(&opening(&CreateOptions::default()), false, None));
        let unseen = || Err(io::ErrorKind::Other.into());
        assert!(may_change(&writing, false, unseen).is_err());
        let whatever_it_holds = OpenOptions {
            whatever_it_holds: true,
            ..OpenOptions::default()
        };
        assert!(may(&whatever_it_holds, false, None));
        let reading = OpenOptions {
            read_only: true,
            ..whatever_it_holds
        };
        assert!(!may(&reading, true, Some(&ours)));
    }
}
