//! A volume with nothing in it yet: an empty tree, tables without entries, a log without a zone. Making a volume begins with it, and so
//! does writing the metadata of an old one anew. Nothing is on the device before the first checkpoint.

use std::sync::Arc;

use persimmon_device::per_zone::PerZone;
use persimmon_device::{ZoneInfo, ZonedDevice};
use persimmon_format::log::LogState;
use persimmon_format::table::ZitEntry;
use persimmon_format::zone_header::{COUNTED_XATTRS, QUOTA, SHARED_FRAMES, VolumeIdentity};
use persimmon_format::{Addr, Lsn};

use crate::engine::Engine;
use crate::error::Result;
use crate::log::writer::LogInit;
use crate::media::Media;
use crate::meta::{Meta, PageCache, mat::Mat, numbers::Numbers, tree};
use crate::options::{Barrier, Options};
use crate::store::{OnDevice, Parts, changed_properties};
use crate::zones::budget::ZoneCapacities;
use crate::zones::table::Found;
use crate::zones::{Budget, Zones};

/// Numbers from which a volume goes on: all are greater than any that it has used.
#[derive(Clone, Debug)]
pub struct RebuildStart {
    /// Who the volume is.
    pub identity: VolumeIdentity,
    /// The newest checkpoint that wrote anything.
    pub checkpoint: u64,
    /// The last record that the items hold.
    pub last_lsn: Lsn,
    /// Epoch of the log.
    pub epoch: u32,
    /// Number of the first log block.
    pub log_sequence: u64,
    /// The last durable footer, or [`Addr::ZERO`]: it counts until the new one is there.
    pub footer: Addr,
    /// The zone table, as far as it is known.
    pub zit: Vec<ZitEntry>,
    /// Sequence of the next zone taken into use.
    pub next_zone_sequence: u64,
    /// Inode numbers from this one on were never given out, as far as is known.
    pub next_ino: u64,
    /// Changes are lost, and with them perhaps the numbers that they gave out.
    pub changes_lost: bool,
    /// Blocks written in the volume's life.
    pub write_clock: u64,
    /// The reserved share, in 1/100 percent.
    pub reserve_basis_points: u32,
}

/// A device without a volume, on which one is to begin.
pub(crate) struct EmptyVolume {
    pub(crate) media: Media,
    pub(crate) report: Vec<ZoneInfo>,
    pub(crate) capacities: ZoneCapacities,
    /// What it allows.
    pub(crate) budget: Budget,
}

impl EmptyVolume {
    /// Looks at a device, which has to carry a volume of so many copies.
    pub(crate) fn of(
        device: Arc<dyn ZonedDevice>,
        reserve_basis_points: u32,
        copies: u32,
        options: &Options,
    ) -> Result<EmptyVolume> {
        let media = Media::new(device, Barrier::Auto);
        let report = media.report_all()?;
        let geometry = media.geometry();
        let capacities = ZoneCapacities::of(geometry, &report);
        let budget = Budget::new(geometry, capacities, reserve_basis_points, copies, options)?;
        Ok(EmptyVolume {
            media,
            report,
            capacities,
            budget,
        })
    }

    /// A volume in zones as they were `found`, whose numbers go on from `start`.
    pub(crate) fn begin(
        self,
        found: &PerZone<Found>,
        start: RebuildStart,
        options: Options,
    ) -> Engine {
        let zones = Zones::new(
            self.budget,
            start.identity.clone(),
            &self.media,
            found,
            start.next_zone_sequence,
            start.write_clock,
        );
        let mut cache = PageCache::new();
        cache.watch(&self.media.alarm);
        let root = tree::create(&mut cache);
        let properties = changed_properties(&start.identity);
        let has_quota = start.identity.incompatible & QUOTA != 0;
        let counts_xattrs = start.identity.incompatible & COUNTED_XATTRS != 0;
        let has_shared_frames = start.identity.incompatible & SHARED_FRAMES != 0;
        let zit_chunks = found.len().div_ceil(ZitEntry::PER_CHUNK);
        Engine::new(Parts {
            media: self.media,
            identity: start.identity,
            options,
            meta: Meta {
                cache,
                root,
                mat: Mat::new(Vec::new(), Vec::new()),
                numbers: Numbers::from(start.next_ino),
                versions: Default::default(),
                quota: Default::default(),
                inodes: 0,
                reserved_blocks: 0,
                shared_end: 0,
                has_shared_frames,
                counts_xattrs,
                deltas: 0,
                journal_inline: Default::default(),
                last_record: Lsn(0),
                alarm: Default::default(),
            },
            zones,
            start: log_start(
                start.last_lsn,
                start.log_sequence,
                start.epoch,
                start.footer,
            ),
            on_device: OnDevice {
                has_quota,
                number: start.checkpoint,
                written_zit: PerZone::filled(found.len(), ZitEntry::default()),
                zit_chunks: vec![Addr::ZERO; zit_chunks],
                cold: Default::default(),
                evacuating: Default::default(),
                write_clock: 0,
                properties,
                footer: None,
            },
            reserve_basis_points: start.reserve_basis_points,
        })
    }
}

/// A log that takes its first zone with the first block, which has this number.
fn log_start(last_lsn: Lsn, sequence: u64, epoch: u32, footer: Addr) -> LogInit {
    LogInit {
        state: LogState {
            epoch,
            opening: 0,
            resume_after: last_lsn,
            durable: last_lsn,
            footer,
        },
        next_lsn: last_lsn.next(),
        head: None,
        chain: Vec::new(),
        replay_sequence: sequence,
        spared_blocks: 0,
        durable_on_device: last_lsn,
        has_bad_blocks: false,
    }
}
