//! Opening a volume: the newest footer, the tables, and the journal past the cut.
//!
//! Only the log is read, and the data of records above the durable LSN where write pointers are
//! no proof. Nothing is written before the history's end is known; the first durable write is a
//! log block of a new epoch, which invalidates everything later.

use std::sync::Arc;

use persimmon_device::per_zone::PerZone;
use persimmon_device::{FirstZones, ZoneId, ZoneInfo, ZoneState, ZonedDevice};
use persimmon_format::footer::Footer;
use persimmon_format::log::{BODY_LEN, LogState};
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::{COUNTED_XATTRS, SHARED_FRAMES, VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, Lsn};

mod arrival;
mod checks;
mod reconcile;
mod records;
mod resume;
mod tables;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::headers::{header_blocks, read_header};
use crate::log::LogHead;
use crate::log::blocks::{self, Read};
use crate::log::replay::Replay;
use crate::log::scan::{self, FoundLog};
use crate::log::start::{self, LogAsRead, LogStart};
use crate::log::writer::LogInit;
use crate::log::zone::FoundZone;
use crate::media::Media;
use crate::meta::mat::Mat;
use crate::meta::numbers::Numbers;
use crate::meta::{Meta, PageCache};
use crate::options::Options;
use crate::store::{OnDevice, Parts};
use crate::zones::budget::ZoneCapacities;
use crate::zones::table::Found;
use crate::zones::{Budget, DeviceKind, Layout, Zones};
use arrival::Arrival;
pub(crate) use checks::check_counters;
use checks::{as_of, check_end, check_footer, check_identity};
use reconcile::reconcile;
use records::{ReplayTarget, replay_records};
use resume::{Unsure, go_on};
use tables::Tables;

/// What opening a volume found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The checkpoint it started from.
    pub checkpoint: u64,
    /// Log blocks that its footer takes.
    pub footer_blocks: u32,
    /// Chunks of its metadata allocation table.
    pub mat_chunks: u32,
    /// Chunks of its zone information table.
    pub zit_chunks: u32,
    /// Records replayed.
    pub records_replayed: u64,
    /// Records or parts of records left out because they, or their data, had not arrived.
    pub tail_cut: bool,
    /// The volume was closed in order: its last log block says that everything is durable.
    pub clean: bool,
    /// A new epoch begins, which invalidates everything after the history's end.
    pub new_epoch: bool,
    /// The newest footer was not whole: the one before it was taken.
    pub older_footer: bool,
    /// Places in the log past the cut where it is not intact, each of a block or more.
    pub log_blocks_bad: u32,
    /// Damaged zones of which nothing can be decoded, where the log may have gone on: what was acknowledged
    /// may be lost with them. The volume is read-only, so that nothing of them is overwritten.
    pub log_zones_undecodable: u32,
    /// Log zones found by their blocks, their headers being damaged.
    pub headers_rescued: u32,
    /// Zones that nothing names any more; they were reset, unless the volume is read-only.
    pub zones_reset: u32,
    /// Of a pair of log zones one held less than the other, or was gone.
    pub copies_uneven: bool,
    /// Zones that have failed and are not retired yet: something refers to them.
    pub zones_failed: u32,
    /// Chunks of the page table that are lost with a zone that failed. The volume is read-only.
    pub mat_chunks_lost: u32,
    /// Chunks of the zone table, likewise.
    pub zit_chunks_lost: u32,
    /// Changes of the journal that could not be replayed, since pages they need are damaged, or lost with a
    /// zone that failed; likewise what tells of snapshots or quota. The volume is read-only.
    pub changes_lost: u64,
    /// Number of the opening that wrote last ([`Volume::begin_opening`](crate::Volume::begin_opening)); 0 if it had none.
    pub opening: u32,
    /// The last record of the history.
    pub last: Lsn,
}

impl RecoveryReport {
    /// Metadata is lost, or may be: the volume is read-only.
    #[must_use]
    pub fn has_lost_metadata(&self) -> bool {
        self.log_zones_undecodable > 0
            || self.mat_chunks_lost > 0
            || self.zit_chunks_lost > 0
            || self.changes_lost > 0
    }
}

/// How far opening a volume came.
enum Progress {
    Opened(Box<(Engine, RecoveryReport)>),
    /// The volume has only so many zones of the device.
    HasZones(u32),
}

/// Opens the volume on a device. If zones fail meanwhile it starts over, and knows of them.
pub(crate) fn open(
    mut device: Arc<dyn ZonedDevice>,
    options: Options,
) -> Result<(Engine, RecoveryReport)> {
    let mut zones = 0..device.geometry().zone_count;
    let worn_out = |report: &[ZoneInfo]| {
        report
            .iter()
            .filter(|info| info.state.is_worn_out())
            .count()
    };
    let mut report = device.report(zones.clone())?;
    loop {
        let error = match open_as_reported(Arc::clone(&device), options.clone(), &report) {
            Err(error) => error,
            Ok(Progress::Opened(opened)) => return Ok(*opened),
            Ok(Progress::HasZones(count)) => {
                device = Arc::new(FirstZones::of(device, count));
                zones.end = count;
                report.truncate(count as usize);
                continue;
            }
        };
        match device.report(zones.clone()) {
            Ok(now) if worn_out(&now) > worn_out(&report) => report = now,
            _ => return Err(error),
        }
        tracing::warn!(%error, "a zone failed during recovery, which starts over");
    }
}

fn open_as_reported(
    device: Arc<dyn ZonedDevice>,
    options: Options,
    report: &[ZoneInfo],
) -> Result<Progress> {
    let media = Media::new(device, options.barrier);
    let volume = find_volume(&media, report, &options)?;
    let (identity, log_zones) = (volume.identity, volume.log_zones);
    let LogAsRead {
        footer_addr,
        footer,
        proven,
        older_footer,
        blocks,
        uneven,
    } = volume.log;
    let (key, copies) = (identity.key(), identity.copies());
    let headers_rescued = log_zones.iter().filter(|f| f.headless()).count() as u32;
    if identity.zone_count < media.geometry().zone_count {
        // It began before the device had more, and nothing of it is in these.
        return Ok(Progress::HasZones(identity.zone_count));
    }
    let replay = Replay::new(&blocks, footer.counted);
    let Tables {
        zit,
        as_written,
        mat,
        mat_lost: mat_chunks_lost,
        zit_lost: zit_chunks_lost,
    } = Tables::read(&media, &identity, report, &footer)?;
    let uneven = uneven || has_damaged(blocks::from(&log_zones, footer.replay.sequence), copies);
    let begin_log_zone = options.begin_log_zone || is_log_elsewhere(&media, &log_zones);
    let leave_zone = uneven || begin_log_zone;
    // What only one zone of a pair has is durable when a checkpoint has it: the log is left then.
    let log_start = if leave_zone {
        proven
    } else {
        LogStart::of(footer_addr, &footer)
    };
    let log_zones = blocks::from(&log_zones, log_start.replay_sequence).to_vec();
    let (found, next_sequence, stale) =
        reconcile(&media, &identity, report, &zit, &log_zones, &footer)?;

    let budget = budget(&media, report, &footer, copies, &options)?;
    let zones = Zones::new(
        budget,
        identity.clone(),
        &media,
        &found,
        next_sequence,
        footer.write_clock,
    );
    // What a lost chunk counted nobody knows; such a volume is read-only.
    let are_counted = zit_chunks_lost == 0 && !options.recount;
    zones.counts_are_complete(are_counted);
    let mut meta = metadata(&footer, mat);
    meta.watch(&media.alarm);

    let begun = footer.next_zone_sequence;
    let arrival = Arrival::new(&media, &identity, report, &zit, begun);
    let target = ReplayTarget {
        key: &key,
        zones: &zones,
        found: &found,
        are_counted,
        mat_lost: mat_chunks_lost > 0,
    };
    let replayed = replay_records(&replay, &footer, &arrival, &target, &mut meta)
        .map_err(log_lost(&media, report))?;
    let thin = arrival.take_thin(&zones);
    let (last, tail_cut) = (replayed.last, replayed.left_out.of_newest);
    know_headers(&media, &identity, &zones)?;
    check_end(last, replay.epoch, log_zones.last(), &meta)?;

    // Where a write pointer proves nothing, blocks of a tail that nobody knows of may lie behind
    // it: they would come back in the place of new ones that a power cut loses.
    let new_epoch = tail_cut || !media.geometry().write_pointer_is_proof;
    let durable = match leave_zone || !thin.is_empty() {
        true => replay.durable.max(log_start.counted),
        // What hangs on one zone of a stripe set is so once it is written anew: if that comes to nothing the next mount looks again.
        false => last,
    };
    let known = (durable, log_start.footer);
    let state = log_state(&replay, &blocks, new_epoch.then_some(last), known);
    let start = LogInit {
        state,
        next_lsn: last.next(),
        head: log_zones
            .last()
            .map(|newest| head(newest, &zones, copies, begin_log_zone)),
        chain: log_zones.iter().map(|f| f.zone).collect(),
        replay_sequence: footer.replay.sequence,
        spared_blocks: blocks.iter().map(Read::spared_blocks).sum(),
        // The first block of a new epoch tells.
        durable_on_device: if new_epoch { durable } else { replay.durable },
        has_bad_blocks: blocks.iter().any(|b| b.state().is_none()),
    };
    check_replay_start(&start)?;
    let summary = RecoveryReport {
        log_zones_undecodable: lost_ends(volume.undecodable, &media, &zit, &zones),
        checkpoint: footer.checkpoint,
        footer_blocks: footer.encode().len().div_ceil(BODY_LEN) as u32,
        mat_chunks: footer.mat.len() as u32,
        zit_chunks: footer.zit.len() as u32,
        records_replayed: replayed.records,
        tail_cut,
        clean: !tail_cut && replay.durable >= last,
        new_epoch,
        older_footer,
        log_blocks_bad: blocks.iter().filter(|b| b.state().is_none()).count() as u32,
        headers_rescued,
        zones_reset: (zones.orphaned_zones().len() + stale.len()) as u32,
        copies_uneven: copies > 1 && uneven,
        zones_failed: zones_failed(&found),
        mat_chunks_lost,
        zit_chunks_lost,
        changes_lost: replayed.changes_lost,
        opening: replay.opening,
        last,
    };
    let on_device = OnDevice::of(&footer, &identity, tables::written(zit, &as_written));
    let engine = Engine::new(Parts {
        media,
        identity,
        options,
        meta,
        zones,
        start,
        on_device,
        reserve_basis_points: footer.reserve_basis_points,
    });
    let invalidated = replayed.left_out.any;
    let unsure = Unsure {
        leave_zone,
        invalidated,
        thin: &thin,
    };
    go_on(&engine, report, &stale, &summary, &unsure)?;
    Ok(Progress::Opened(Box::new((engine, summary))))
}

/// Whether of any zone of the log a header or a copy is missing.
fn has_damaged(zones: &[FoundZone], copies: u32) -> bool {
    let mut zones = zones.iter();
    zones.any(|zone| zone.headless() || !zone.is_whole(copies))
}

/// Whether the log ends in a zone that it may not take: a volume that got a device for metadata had it on the other one before.
fn is_log_elsewhere(media: &Media, log_zones: &[FoundZone]) -> bool {
    let layout = Layout::of(media.geometry());
    let newest = log_zones.last();
    newest.is_some_and(|newest| !layout.is_log_candidate(newest.zone.zone))
}

/// Who a volume is, as of its newest footer, and its log.
struct FoundVolume {
    identity: VolumeIdentity,
    log_zones: Vec<FoundZone>,
    /// See [`FoundLog::undecodable`].
    undecodable: Vec<ZoneId>,
    log: LogAsRead,
}

fn find_volume(media: &Media, report: &[ZoneInfo], options: &Options) -> Result<FoundVolume> {
    let FoundLog {
        identity,
        zones: log_zones,
        undecodable,
    } = scan::find(media, report).map_err(log_damaged(media, report))?;
    check_identity(&identity, media, options)?;
    let (key, copies) = (identity.key(), identity.copies());
    let log = start::read(media, &key, &log_zones, copies).map_err(log_damaged(media, report))?;
    check_footer(media, &log.footer)?;
    Ok(FoundVolume {
        identity: as_of(identity, &log.footer, media, options)?,
        log_zones,
        undecodable,
        log,
    })
}

/// Zones that have failed and are not retired yet.
fn zones_failed(found: &PerZone<Found>) -> u32 {
    let failed = |f: &&Found| f.failure.is_some() && f.entry.role != Role::Retired;
    found.iter().filter(failed).count() as u32
}

/// How many of the zones of which nothing can be decoded are such that nothing refers to them: the log may have gone on in them.
fn lost_ends(
    undecodable: Vec<ZoneId>,
    media: &Media,
    zit: &PerZone<ZitEntry>,
    zones: &Zones,
) -> u32 {
    let is_unknown = |zone: &ZoneId| {
        // Of a pair the second counts no valid blocks.
        let first = media.pairs.first(*zone);
        let then = zit.get(first.0 as usize).copied();
        // What was retired since was so by this recovery, for it has failed.
        let was_retired = then.is_some_and(|entry| entry.role == Role::Retired);
        let mut entries = then.into_iter().chain(zones.entry(first));
        !was_retired && !entries.any(|entry| entry.valid > 0)
    };
    let lost: Vec<ZoneId> = undecodable.into_iter().filter(is_unknown).collect();
    for zone in &lost {
        tracing::error!(
            zone = zone.0,
            "a zone is damaged or offline, nothing of it can be decoded, and the log may have gone on in it"
        );
    }
    lost.len() as u32
}

/// Reads the headers again that could not be read, of zones that are in use after all: the error may
/// have passed.
fn know_headers(media: &Media, identity: &VolumeIdentity, zones: &Zones) -> Result<()> {
    for zone in zones.unknown() {
        match read_header(media, identity, zone) {
            Ok(Some(header)) if header.role == Role::Data => {
                check_counters(&[("the sequence of a zone", header.sequence)])?;
                zones.know(&header);
            }
            // Its blocks can be read without it.
            Ok(_) => tracing::warn!(zone = zone.0, "a zone in use has no header"),
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(error) => tracing::warn!(zone = zone.0, %error, "a zone's header cannot be read"),
        }
    }
    Ok(())
}

/// An error where the log, if it goes on anywhere, ends before the block that its checkpoint has it replayed from.
fn check_replay_start(start: &LogInit) -> Result<()> {
    let from = start.replay_sequence;
    match start.head.map(|head| head.sequence()) {
        Some(end) if end < from => Err(Error::Inconsistent(format!(
            "the checkpoint has the log replayed from block {from} on, and the log ends before block {end}"
        ))),
        _ => Ok(()),
    }
}

/// What the next blocks of the log say: how far it is durable, and where the checkpoint is. A new epoch begins behind a record.
fn log_state(
    replay: &Replay<'_>,
    blocks: &[Read],
    new_epoch: Option<Lsn>,
    (durable, footer): (Lsn, Addr),
) -> LogState {
    LogState {
        epoch: replay.epoch + u32::from(new_epoch.is_some() && !fault(Fault::EpochKept)),
        opening: replay.opening,
        resume_after: new_epoch.unwrap_or_else(|| resume_after(blocks)),
        durable,
        footer,
    }
}

/// The metadata as of the checkpoint.
fn metadata(footer: &Footer, mat: Mat) -> Meta {
    let in_use = |id| mat.get(id).is_some();
    Meta {
        cache: PageCache::with_ids(footer.page_limit.min(mat.len()), in_use),
        root: footer.root,
        mat,
        numbers: Numbers::of_checkpoint(footer.next_ino, footer.lot_end),
        versions: Default::default(),
        quota: Default::default(),
        inodes: footer.inodes,
        reserved_blocks: footer.reserved_blocks,
        shared_end: footer.shared_end,
        has_shared_frames: footer.features.incompatible & SHARED_FRAMES != 0,
        counts_xattrs: footer.features.incompatible & COUNTED_XATTRS != 0,
        deltas: footer.deltas,
        journal_inline: Default::default(),
        last_record: Lsn(0),
        alarm: Default::default(),
    }
}

/// Why the log cannot be read, if a zone that may have been of it is offline.
fn log_lost(media: &Media, report: &[ZoneInfo]) -> impl Fn(Error) -> Error {
    let candidates = media.geometry().log_places();
    let is_offline = |zone: &ZoneId| {
        let info = report.get(zone.0 as usize);
        info.is_some_and(|info| info.state == ZoneState::Offline)
    };
    let offline = candidates.into_iter().map(ZoneId).find(is_offline);
    move |error| match (offline, error) {
        (Some(zone), error @ (Error::NoVolume(_) | Error::Inconsistent(_))) => Error::LogLost {
            zone,
            source: Box::new(error),
        },
        (_, error) => error,
    }
}

/// Why the log cannot be found or read: as [`log_lost`], or it is damaged. There is no volume only where no zone
/// has a header of one.
fn log_damaged(media: &Media, report: &[ZoneInfo]) -> impl Fn(Error) -> Error {
    let or_lost = log_lost(media, report);
    move |error| match or_lost(error) {
        error @ (Error::NoVolume(_) | Error::Inconsistent(_) | Error::Damaged { .. }) => {
            match any_header(media, report) {
                Some(VolumeIdentity {
                    label,
                    visible_uuid,
                    ..
                }) => Error::LogDamaged {
                    label,
                    uuid: visible_uuid,
                    source: Box::new(error),
                },
                None => error,
            }
        }
        error => error,
    }
}

/// What the first zone header that is left says of the volume, wherever it is.
fn any_header(media: &Media, report: &[ZoneInfo]) -> Option<VolumeIdentity> {
    let written = |info: &ZoneInfo| !matches!(info.state, ZoneState::Offline | ZoneState::Empty);
    let zones = (0..).map(ZoneId).zip(report);
    zones
        .filter(|(_, info)| written(info))
        .find_map(|(zone, _)| {
            let headers = header_blocks(media, zone).flatten();
            let mut headers = headers.filter_map(|block| ZoneHeader::decode(&block).ok());
            let header = headers.find(|header| header.zone == zone)?;
            Some(header.volume)
        })
}

/// Where the log goes on: behind its newest zone's last block, or in another zone.
///
/// A power cut can take a zone's header along and leave what is behind it. Such a zone is left as
/// soon as may be: whatever else befalls it, it would be hard to know again.
fn head(newest: &FoundZone, zones: &Zones, copies: u32, leave: bool) -> LogHead {
    let known =
        !newest.headless() || zones.free_zones(DeviceKind::Metadata) <= zones.budget.log_reserve;
    let next_block = if newest.is_writable(copies) && known && !leave {
        newest.write_pointer.max(1)
    } else {
        newest.zone.capacity
    };
    LogHead {
        zone: newest.zone,
        next_block,
    }
}

fn budget(
    media: &Media,
    report: &[ZoneInfo],
    footer: &Footer,
    copies: u32,
    options: &Options,
) -> Result<Budget> {
    let capacities = ZoneCapacities::of(media.geometry(), report);
    let reserve = footer.reserve_basis_points;
    Budget::new(media.geometry(), capacities, reserve, copies, options)
}

/// What the newest epoch says was valid before it.
fn resume_after(blocks: &[Read]) -> Lsn {
    let states = blocks.iter().filter_map(Read::state);
    states
        .max_by_key(|state| state.epoch)
        .map_or(Lsn(0), |state| state.resume_after)
}
