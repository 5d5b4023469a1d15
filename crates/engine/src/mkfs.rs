//! Making a volume: empty tables, a root directory, and the first checkpoint. Until its footer is
//! durable there is no volume, and opening says so.

use std::sync::Arc;

use persimmon_device::{ZoneId, ZoneInfo, ZoneState, ZonedDevice};
use persimmon_format::inode::{FIRST_INO, Inode, ROOT};
use persimmon_format::log::LogState;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::{COMPACT, MIRRORED, PACKED, SPLIT, VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, Key, Lsn};

use crate::Volume;
use crate::checkpoint::CheckpointState;
use crate::error::{Error, Result};
use crate::log::writer::LogStart;
use crate::media::Media;
use crate::meta::{Meta, PageCache, mat::Mat, tree};
use crate::options::{Barrier, FormatOptions, Options};
use crate::volume::Parts;
use crate::zones::budget::ZoneCapacities;
use crate::zones::failure::ZoneFailure;
use crate::zones::table::Found;
use crate::zones::{Budget, Zones};

const DIRECTORY: u32 = 0o040_000;

/// Makes a volume on the whole device. Everything on it is lost.
pub(crate) fn format(device: Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<()> {
    let media = Media::new(device, Barrier::Auto);
    let geometry = media.geometry().clone();
    let report = media.report_all()?;
    let capacities = ZoneCapacities::of(&geometry, &report);
    let runtime = Options::default();
    let (reserve, copies) = (options.reserve_on(&geometry), options.copies);
    let feature = |is_there, bit| if is_there { bit } else { 0 };
    let split = feature(geometry.metadata_zones > 0, SPLIT);
    let compact = feature(options.compact, COMPACT);
    let incompatible = match copies {
        1 => PACKED | compact | split,
        2 => MIRRORED | PACKED | compact | split,
        _ => {
            let why = format!("{copies} copies of the metadata: there can be 1 or 2");
            return Err(Error::Geometry(why));
        }
    };
    let budget = Budget::new(&geometry, capacities, reserve, copies, &runtime)?;
    budget.check_zones(capacities)?;

    for (i, info) in report.iter().enumerate() {
        let dead = info.state.is_dead();
        if info.state != ZoneState::Empty && !dead {
            media.reset(ZoneId(i as u32), false)?;
        }
    }
    media.flush()?;

    let identity = VolumeIdentity {
        uuid: options.uuid,
        secret: options.secret,
        label: options.label.clone(),
        incompatible,
        read_only_compatible: 0,
        compatible: 0,
        created_seconds: options.now.seconds,
        zone_count: geometry.zone_count,
        zone_blocks: geometry.zone_blocks,
        metadata_zones: geometry.metadata_zones,
    };
    let found: Vec<Found> = report
        .iter()
        .map(|info| {
            let dead = info.state.is_dead();
            let role = if dead { Role::Retired } else { Role::Free };
            let entry = ZitEntry {
                role,
                ..ZitEntry::default()
            };
            Found {
                entry,
                capacity: info.capacity,
                used: dead,
                failure: ZoneFailure::of(info.state),
            }
        })
        .collect();
    let sequence = free_sequence(&media, &report);
    let zones = Zones::new(budget, identity.clone(), &media, &found, sequence, 0);

    let mut cache = PageCache::new();
    let root = tree::create(&mut cache);
    let mut meta = Meta {
        cache,
        root,
        mat: Mat::new(Vec::new(), Vec::new()),
        next_ino: FIRST_INO,
        inodes: 1,
        reserved_blocks: 0,
        riding: Default::default(),
    };
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
        ..Inode::default()
    };
    meta.insert(&Key::inode(ROOT), &directory.encode());

    let zit_chunks = (geometry.zone_count as usize).div_ceil(ZitEntry::PER_CHUNK);
    let volume = Volume::assemble(Parts {
        media,
        identity,
        options: runtime,
        meta,
        zones,
        start: LogStart {
            state: LogState {
                epoch: 1,
                resume_after: Lsn(0),
                durable: Lsn(0),
                footer: Addr::ZERO,
            },
            next_lsn: Lsn(1),
            head: None,
            chain: Vec::new(),
            replay_sequence: 1,
            told: Lsn(0),
            has_bad_blocks: false,
        },
        checkpoint: CheckpointState {
            number: 0,
            written_zit: vec![ZitEntry::default(); geometry.zone_count as usize],
            zit_chunks: vec![Addr::ZERO; zit_chunks],
            cold: Default::default(),
            leaving: Default::default(),
            write_clock: 0,
            footer: None,
        },
        reserve_basis_points: reserve,
    });
    volume.checkpoint()?;
    // Is the newest footer damaged, the one before it and the journal lead to the same: a young
    // volume has one before it too.
    volume.checkpoint()
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
            Some(ZoneHeader::decode(&block).ok()?.sequence)
        })
        .fold(1, |free, taken| free.max(taken.saturating_add(1)))
}
