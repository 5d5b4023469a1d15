//! Making a volume: empty tables, a root directory, and the first checkpoint. Until its footer is
//! durable there is no volume, and opening says so.

use std::sync::Arc;

use persimmon_device::per_zone::PerZone;
use persimmon_device::{Geometry, ZoneId, ZoneInfo, ZoneState, ZonedDevice};
use persimmon_format::gate::FixedFields;
use persimmon_format::inode::{FIRST_INO, Inode, ROOT};
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::{
    COMPRESSED_LOG, COUNTED_XATTRS, DELTAS, DICTIONARIES, FRAMES, LONG_XATTRS, MIRRORED, QUOTA,
    REQUIRED, SHARED_BLOCKS, SHARED_FRAMES, SNAPSHOTS, SPLIT, STRIPED, VolumeIdentity,
};
use persimmon_format::{Addr, Compression, DeviceId, Key, Lsn};

use crate::empty::{EmptyVolume, RebuildStart};
use crate::error::Result;
use crate::media::Media;
use crate::meta::quota;
use crate::options::{FormatOptions, Options};
use crate::zones::budget::{ZoneCapacities, check_geometry};
use crate::zones::failure::ZoneFailure;
use crate::zones::table::Found;

const DIRECTORY: u32 = 0o040_000;

impl FormatOptions {
    /// Whether a volume can be made so on a device of this shape: to be asked before anything is written.
    ///
    /// # Errors
    /// As of [`FormatOptions::check`] and [`check_geometry`].
    pub fn check_on(&self, geometry: &Geometry, capacities: ZoneCapacities) -> Result<()> {
        self.check()?;
        check_geometry(geometry, capacities, self.reserve_on(geometry), self.copies)?;
        Ok(self.check_reserve(geometry)?)
    }
}

/// Makes a volume on the whole device. Everything on it is lost.
pub(crate) fn format(device: Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<()> {
    let geometry = device.geometry().clone();
    options.check()?;
    options.check_reserve(&geometry)?;
    let (reserve, copies) = (options.reserve_on(&geometry), options.copies);
    let feature = |is_there, bit| if is_there { bit } else { 0 };
    let split = feature(!geometry.metadata_zones.is_none(), SPLIT);
    let mirrored = feature(copies > 1, MIRRORED);
    let striped = feature(geometry.stripes.is_some(), STRIPED);
    let has_quota = feature(options.quota, QUOTA);
    let runtime = Options::default();
    let empty = EmptyVolume::of(device, reserve, copies, &runtime)?;
    empty.budget.check_zones(empty.capacities)?;

    let (media, report) = (&empty.media, &empty.report);
    for (i, info) in report.iter().enumerate() {
        let worn_out = info.state.is_worn_out();
        if info.state != ZoneState::Empty && !worn_out {
            media.reset(ZoneId(i as u32), false)?;
        }
    }
    media.flush()?;

    let identity = VolumeIdentity {
        uuid: options.uuid,
        visible_uuid: options.uuid,
        secret: options.secret,
        label: options.label.clone(),
        incompatible: REQUIRED
            | FRAMES
            | SHARED_BLOCKS
            | SNAPSHOTS
            | DELTAS
            | DICTIONARIES
            | COMPRESSED_LOG
            | LONG_XATTRS
            | SHARED_FRAMES
            | COUNTED_XATTRS
            | split
            | mirrored
            | striped
            | has_quota,
        read_only_compatible: 0,
        compatible: 0,
        created_seconds: options.now.seconds,
        zone_count: geometry.zone_count,
        zone_blocks: geometry.zone_blocks,
        metadata_zones: geometry.metadata_zones.count(),
    };
    let found: PerZone<Found> = report
        .iter()
        .map(|info| {
            let worn_out = info.state.is_worn_out();
            let role = if worn_out { Role::Retired } else { Role::Free };
            let entry = ZitEntry {
                role,
                ..ZitEntry::default()
            };
            Found {
                entry,
                capacity: info.capacity,
                used: worn_out,
                failure: ZoneFailure::of(info.state),
            }
        })
        .collect();
    let start = RebuildStart {
        identity,
        checkpoint: 0,
        last_lsn: Lsn(0),
        epoch: 1,
        log_sequence: 1,
        footer: Addr::ZERO,
        zit: Vec::new(),
        next_zone_sequence: free_sequence(media, report),
        next_ino: FIRST_INO,
        changes_lost: false,
        write_clock: 0,
        reserve_basis_points: reserve,
    };
    let engine = empty.begin(&found, start, runtime);
    let directory = Inode {
        mode: DIRECTORY | (options.root_mode & 0o7777),
        uid: options.root_uid,
        gid: options.root_gid,
        nlink: 2,
        atime: options.now,
        mtime: options.now,
        ctime: options.now,
        btime: options.now,
        parent: ROOT,
        compression: Compression::stored(options.compression),
        ..Inode::default()
    };
    let mut meta = engine.store.meta_mut();
    meta.insert_stored(&Key::inode(ROOT), &directory.encode());
    meta.inodes = 1;
    if options.quota {
        quota::begin(&mut meta, &directory)?;
    }
    drop(meta);
    engine.checkpoints.write()?;
    // Is the newest footer damaged, the one before it and the journal lead to the same: a young
    // volume has one before it too.
    engine.checkpoints.write()
}

/// The first sequence for zones of the new volume. A volume is known by the newest zone header of
/// the device, and a zone that is read-only still has that of the volume before.
fn free_sequence(media: &Media, report: &[ZoneInfo]) -> u64 {
    let read_only = report
        .iter()
        .enumerate()
        .filter(|(_, info)| info.state == ZoneState::ReadOnly);
    read_only
        .filter_map(|(zone, _)| {
            let addr = Addr::new(DeviceId(0), ZoneId(zone as u32), 0);
            let block = media.read_one(addr, 1).ok()?;
            Some(FixedFields::read(&block).ok()?.sequence)
        })
        .fold(1, |free, taken| free.max(taken.saturating_add(1)))
}
