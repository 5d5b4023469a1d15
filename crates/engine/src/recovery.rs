//! Opening a volume: the newest footer, the tables, and the journal past the cut.
//!
//! Only the log is read, and the data of records above the durable LSN where write pointers are
//! no proof. Nothing is written before the history's end is known; the first durable write is a
//! log block of a new epoch, which voids everything later.

use std::cell::RefCell;
use std::sync::Arc;

use persimmon_device::{ZoneId, ZoneInfo, ZoneState, ZonedDevice};
use persimmon_format::extent::Extent;
use persimmon_format::footer::Footer;
use persimmon_format::log::{BODY_LEN, LogState};
use persimmon_format::record::Op;
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::zone_header::{KNOWN_READ_ONLY_COMPATIBLE, VolumeIdentity};
use persimmon_format::{Lsn, PageId, VolumeKey};

use crate::Volume;
use crate::arrival::{Arrival, read_header};
use crate::checkpoint::CheckpointState;
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::log::Head;
use crate::log::base::{self, Base, Log};
use crate::log::replay::{LeftOut, Replay};
use crate::log::scan::{self, FoundLog, FoundZone};
use crate::log::writer::LogStart;
use crate::media::Media;
use crate::meta::mat::Mat;
use crate::meta::{Meta, PageCache, apply, store};
use crate::options::Options;
use crate::tables::Tables;
use crate::volume::Parts;
use crate::zones::budget::ZoneCapacities;
use crate::zones::failure::ZoneFailure;
use crate::zones::table::Found;
use crate::zones::{Budget, Part, Zones};

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
    /// A new epoch begins, which voids everything after the history's end.
    pub new_epoch: bool,
    /// The newest footer was not whole: the one before it was taken.
    pub older_footer: bool,
    /// Places in the log past the cut where it is not intact, each of a block or more.
    pub log_blocks_bad: u32,
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
    /// Changes of the journal that could not be replayed, since pages they need are lost with a
    /// zone that failed. The volume is read-only.
    pub changes_lost: u64,
}

impl RecoveryReport {
    /// Metadata is lost: the volume is read-only.
    #[must_use]
    pub fn has_lost_metadata(&self) -> bool {
        self.mat_chunks_lost > 0 || self.zit_chunks_lost > 0 || self.changes_lost > 0
    }
}

/// Opens the volume on a device. If zones fail meanwhile it starts over, and knows of them.
pub(crate) fn open(
    device: Arc<dyn ZonedDevice>,
    options: Options,
) -> Result<(Volume, RecoveryReport)> {
    let zones = 0..device.geometry().zone_count;
    let dead = |report: &[ZoneInfo]| report.iter().filter(|info| info.state.is_dead()).count();
    let mut report = device.report(zones.clone())?;
    loop {
        let error = match open_as_reported(Arc::clone(&device), options.clone(), &report) {
            Err(error) => error,
            opened => return opened,
        };
        match device.report(zones.clone()) {
            Ok(now) if dead(&now) > dead(&report) => report = now,
            _ => return Err(error),
        }
        tracing::warn!(%error, "a zone failed during recovery, which starts over");
    }
}

fn open_as_reported(
    device: Arc<dyn ZonedDevice>,
    options: Options,
    report: &[ZoneInfo],
) -> Result<(Volume, RecoveryReport)> {
    let media = Media::new(device, options.barrier);
    let FoundLog {
        identity,
        zones: log_zones,
    } = scan::find(&media, report).map_err(log_lost(&media, report))?;
    let headers_rescued = log_zones.iter().filter(|f| f.headless()).count() as u32;
    check_identity(&identity, &media, &options)?;
    let key = identity.key();

    let copies = identity.copies();
    let Log {
        footer_addr,
        footer,
        proven,
        older_footer,
        blocks,
        uneven,
    } = base::read(&media, &key, &log_zones, copies).map_err(log_lost(&media, report))?;
    check_footer(&media, &footer)?;
    let replay = Replay::new(&blocks, footer.counted);
    let Tables {
        written_zit,
        zit,
        mat,
        mat_lost: mat_chunks_lost,
        zit_lost: zit_chunks_lost,
    } = Tables::read(&media, &identity, report, &footer)?;
    let damaged = |f: &FoundZone| f.headless() || !f.is_whole(copies);
    let replayed_zones = scan::from(&log_zones, footer.replay.sequence);
    let leave_zone = uneven || replayed_zones.iter().any(damaged);
    // What only one zone of a pair has is durable when a checkpoint has it: the log is left then.
    let base = match leave_zone {
        true => proven,
        false => Base::of(footer_addr, &footer),
    };
    let log_zones = scan::from(&log_zones, base.replay_sequence).to_vec();
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
    let mut meta = metadata(&footer, mat);

    let arrival = Arrival {
        media: &media,
        identity: &identity,
        report,
        zit: &zit,
        next_sequence: footer.next_zone_sequence,
        headers: RefCell::default(),
    };
    let target = Target {
        key: &key,
        zones: &zones,
        found: &found,
        mat_lost: mat_chunks_lost > 0,
    };
    let replayed = replay_records(&replay, &footer, &arrival, &target, &mut meta)
        .map_err(log_lost(&media, report))?;
    let (last, tail_cut) = (replayed.last, replayed.left_out.of_newest);
    know_headers(&media, &identity, &zones);
    check_end(last, replay.epoch, log_zones.last(), &meta)?;

    // Where a write pointer proves nothing, blocks of a tail that nobody knows of may lie behind
    // it: they would come back in the place of new ones that a power cut loses.
    let new_epoch = tail_cut || !media.geometry().write_pointer_is_proof;
    let durable = match leave_zone {
        true => replay.told.max(base.counted),
        false => last,
    };
    let state = LogState {
        epoch: replay.epoch + u32::from(new_epoch && !fault(Fault::EpochKept)),
        resume_after: match new_epoch {
            true => last,
            false => resume_after(&blocks),
        },
        durable,
        footer: base.footer,
    };
    let start = LogStart {
        state,
        next_lsn: last.next(),
        head: log_zones.last().map(|newest| head(newest, &zones, copies)),
        chain: log_zones.iter().map(|f| f.zone).collect(),
        replay_sequence: footer.replay.sequence,
        // The first block of a new epoch tells.
        told: if new_epoch { durable } else { replay.told },
        has_bad_blocks: blocks.iter().any(|b| b.state().is_none()),
    };
    let summary = RecoveryReport {
        checkpoint: footer.checkpoint,
        footer_blocks: footer.encode().len().div_ceil(BODY_LEN) as u32,
        mat_chunks: footer.mat.len() as u32,
        zit_chunks: footer.zit.len() as u32,
        records_replayed: replayed.records,
        tail_cut,
        clean: !tail_cut && replay.told >= last,
        new_epoch,
        older_footer,
        log_blocks_bad: blocks.iter().filter(|b| b.state().is_none()).count() as u32,
        headers_rescued,
        zones_reset: (zones.nobodys().len() + stale.len()) as u32,
        copies_uneven: copies > 1 && leave_zone,
        zones_failed: found
            .iter()
            .filter(|f| f.failure.is_some() && f.entry.role != Role::Retired)
            .count() as u32,
        mat_chunks_lost,
        zit_chunks_lost,
        changes_lost: replayed.changes_lost,
    };
    let volume = Volume::assemble(Parts {
        media,
        identity,
        options,
        meta,
        zones,
        start,
        checkpoint: CheckpointState::of(&footer, written_zit),
        reserve_basis_points: footer.reserve_basis_points,
    });
    let has_void = replayed.left_out.any;
    go_on(&volume, report, &stale, &summary, leave_zone, has_void)?;
    Ok((volume, summary))
}

/// Reads the headers again that could not be read, of zones that are in use after all: the error may
/// have passed.
fn know_headers(media: &Media, identity: &VolumeIdentity, zones: &Zones) {
    for zone in zones.unknown() {
        match read_header(media, identity, zone) {
            Ok(Some(header)) if header.role == Role::Data => zones.know(&header),
            // Its blocks can be read without it.
            Ok(_) => tracing::warn!(zone = zone.0, "a zone in use has no header"),
            Err(error) => tracing::warn!(zone = zone.0, %error, "a zone's header cannot be read"),
        }
    }
}

/// The metadata as of the checkpoint.
fn metadata(footer: &Footer, mat: Mat) -> Meta {
    let in_use = |id| mat.get(id).is_some();
    Meta {
        cache: PageCache::with_ids(footer.page_limit.min(mat.len()), in_use),
        root: footer.root,
        mat,
        next_ino: footer.next_ino,
        inodes: footer.inodes,
        reserved_blocks: footer.reserved_blocks,
        riding: Default::default(),
    }
}

/// What records are applied to, beside the metadata.
struct Target<'a> {
    key: &'a VolumeKey,
    zones: &'a Zones,
    /// What the ZIT counts in them.
    found: &'a [Found],
    mat_lost: bool,
}

/// What came of the journal past the cut.
struct Replayed {
    last: Lsn,
    left_out: LeftOut,
    records: u64,
    changes_lost: u64,
}

/// Applies the records past the cut up to the history's end.
fn replay_records(
    replay: &Replay<'_>,
    footer: &Footer,
    arrival: &Arrival<'_>,
    target: &Target<'_>,
    meta: &mut Meta,
) -> Result<Replayed> {
    let (mut records, mut changes_lost) = (0, 0);
    let mut uncounted = footer.counted > footer.cut && !fault(Fault::CountedTwice);
    let mut apply = |lsn: Lsn, ops: &[Op]| -> Result<()> {
        // Up to here the ZIT has counted already, and zones may be in another use by now.
        if uncounted && lsn > footer.counted {
            target.zones.set_counts(target.found);
            uncounted = false;
        }
        if !uncounted {
            adopt(target.zones, ops);
        }
        changes_lost += apply_record(arrival.media, target, meta, ops)?;
        Ok(())
    };
    let mut backwards = Vec::new();
    let (last, left_out) = replay.run(footer.cut, |record| {
        let asked = record.lsn > replay.trusted && !fault(Fault::UnsafeClassic);
        if asked && !arrival.of(&record.ops)? {
            return Ok(fault(Fault::LostRecordSkipped));
        }
        records += 1;
        if fault(Fault::ReplayedBackwards) {
            backwards.push(record);
            return Ok(true);
        }
        apply(record.lsn, &record.ops)?;
        Ok(true)
    })?;
    for record in backwards.iter().rev() {
        apply(record.lsn, &record.ops)?;
    }
    if uncounted {
        target.zones.set_counts(target.found);
    }
    target.zones.forget_deaths();
    Ok(Replayed {
        last,
        left_out,
        records,
        changes_lost,
    })
}

/// Makes a recovered volume writable, unless it is to be read-only.
fn go_on(
    volume: &Volume,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    summary: &RecoveryReport,
    leave_zone: bool,
    has_void: bool,
) -> Result<()> {
    if summary.has_lost_metadata() {
        tracing::error!(?summary, "metadata is lost with a zone: read-only");
        volume.make_read_only();
        return Ok(());
    }
    if volume.options.read_only {
        return Ok(());
    }
    volume.zones.suspect_kept_space(&volume.media);
    let held = resume_writing(volume, report, stale, summary.new_epoch, has_void)?;
    let mut finished = volume.find_truncations();
    let is_needed = finished.is_err() || leave_zone || volume.zones.log_is_failing();
    if finished.is_ok() && (is_needed || !held.is_empty()) {
        // Who has the turn keeps others from packing into what is held.
        let _packing = volume.packing_turn.try_take();
        finished = volume.checkpoint();
    }
    if let Err(error) = &finished {
        tracing::warn!(%error, "zones that would be gone on with after a checkpoint are ended");
        let is_held = |zone| held.contains(&zone);
        volume.zones.leave(&volume.media, is_held);
    }
    if !is_needed {
        finished = Ok(());
    }
    match finished {
        // A page was lost on the way: what does not need it can be read.
        Err(error) if volume.is_read_only() => {
            tracing::error!(%error, "going on read-only");
            Ok(())
        }
        other => other,
    }
}

/// Why the log cannot be read, if a zone that may have been of it is offline.
fn log_lost(media: &Media, report: &[ZoneInfo]) -> impl Fn(Error) -> Error + use<> {
    let candidates = media.geometry().log_candidates();
    let is_offline = |zone: &ZoneId| {
        let info = report.get(zone.0 as usize);
        info.is_some_and(|info| info.state == ZoneState::Offline)
    };
    let offline = candidates.map(ZoneId).find(is_offline);
    move |error| match (offline, error) {
        (Some(zone), error @ (Error::NoVolume(_) | Error::Inconsistent(_))) => Error::LogLost {
            zone,
            source: Box::new(error),
        },
        (_, error) => error,
    }
}

/// Where the log goes on: behind its newest zone's last block, or in another zone.
///
/// A power cut can take a zone's header along and leave what is behind it. Such a zone is left as
/// soon as may be: whatever else befalls it, it would be hard to know again.
fn head(newest: &FoundZone, zones: &Zones, copies: u32) -> Head {
    let known = !newest.headless() || zones.free_zones(Part::Metadata) <= zones.budget.log_floor;
    let next_block = if newest.is_writable(copies) && known {
        newest.write_pointer.max(1)
    } else {
        newest.zone.capacity
    };
    Head {
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

fn check_identity(identity: &VolumeIdentity, media: &Media, options: &Options) -> Result<()> {
    let geometry = media.geometry();
    if identity.zone_count != geometry.zone_count || identity.zone_blocks != geometry.zone_blocks {
        return Err(Error::NoVolume(format!(
            "the volume was made on a device of {} zones of {} blocks, this one has {} of {}: it \
             is a truncated or resized copy; restore the whole device",
            identity.zone_count, identity.zone_blocks, geometry.zone_count, geometry.zone_blocks
        )));
    }
    if identity.metadata_zones != geometry.metadata_zones {
        return Err(Error::NoVolume(format!(
            "the volume was made with {} zones on a device for metadata, here there are {}; name the \
             devices that were given to mkfs",
            identity.metadata_zones, geometry.metadata_zones
        )));
    }
    let unknown = identity.read_only_compatible & !KNOWN_READ_ONLY_COMPATIBLE;
    if unknown != 0 && !options.read_only {
        return Err(Error::NoVolume(format!(
            "the volume uses features {unknown:#x} that this program cannot write; mount it \
             read-only, or use a newer persimmon"
        )));
    }
    Ok(())
}

/// What the newest epoch says was valid before it.
fn resume_after(blocks: &[scan::Read]) -> Lsn {
    let states = blocks.iter().filter_map(scan::Read::state);
    states
        .max_by_key(|state| state.epoch)
        .map_or(Lsn(0), |state| state.resume_after)
}

/// Counters of a volume stay far below this: one million a second for a hundred thousand years.
const COUNTER_LIMIT: u64 = 1 << 62;

/// What is counted up from here on must have room: a number that cannot be is damage.
fn check_counters(counters: &[(&str, u64)]) -> Result<()> {
    match counters.iter().find(|(_, count)| *count >= COUNTER_LIMIT) {
        None => Ok(()),
        Some((what, count)) => Err(Error::Inconsistent(format!(
            "{what} is {count}, which no volume reaches"
        ))),
    }
}

/// What replay found at the end of the history.
fn check_end(last: Lsn, epoch: u32, log_end: Option<&FoundZone>, meta: &Meta) -> Result<()> {
    check_counters(&[
        ("the last record of the log", last.0),
        ("the log's epoch", u64::from(epoch) << 32),
        (
            "the log's last zone",
            log_end.map_or(0, |f| f.zone.first_log_sequence),
        ),
        ("the next inode", meta.next_ino),
    ])
}

fn check_footer(media: &Media, footer: &Footer) -> Result<()> {
    check_counters(&[
        ("the number of the checkpoint", footer.checkpoint),
        ("the last record of the checkpoint", footer.cut.0),
        ("the last record that it counted", footer.counted.0),
        ("the log block to replay from", footer.replay.sequence),
        ("the next inode", footer.next_ino),
        ("the number of inodes", footer.inodes),
        ("the number of reserved blocks", footer.reserved_blocks),
        ("the write clock", footer.write_clock),
        ("the next zone's sequence", footer.next_zone_sequence),
    ])?;
    // Each page takes a block at least, and ids are dense.
    let geometry = media.geometry();
    let blocks = u64::from(geometry.zone_count) * u64::from(geometry.zone_blocks);
    let chunks_max = blocks / MatEntry::PER_CHUNK as u64 + 1;
    if footer.mat.len() as u64 > chunks_max {
        return Err(Error::Inconsistent(format!(
            "the page table has {} chunks, the device room for {chunks_max}",
            footer.mat.len()
        )));
    }
    Ok(())
}

/// The zones, the next zone sequence, and metadata zones to reset.
type Reconciled = (Vec<Found>, u64, Vec<ZoneId>);

/// Brings what the checkpoint says of the zones together with what the device says. `log_zones` are
/// those that are needed. Returns the zones, the next zone sequence, and the zones of a checkpoint
/// that was not finished. A zone that has something in it and is free is nobody's: what has no
/// header, or that of a log zone that is not needed.
fn reconcile(
    media: &Media,
    identity: &VolumeIdentity,
    report: &[ZoneInfo],
    zit: &[ZitEntry],
    log_zones: &[FoundZone],
    footer: &Footer,
) -> Result<Reconciled> {
    let mut stale = Vec::new();
    // Of a pair the second counts no valid blocks; it is needed as long as the first is.
    let valid = |at: usize| {
        let first = media.pairs.first(ZoneId(at as u32));
        zit.get(first.0 as usize).map_or(0, |entry| entry.valid)
    };
    let log_zone = |zone| {
        log_zones
            .iter()
            .find(|f| f.copies().any(|copy| copy.zone == zone))
    };
    let mut next_sequence = footer.next_zone_sequence;
    let mut zones = Vec::with_capacity(report.len());
    for (i, (info, entry)) in report.iter().zip(zit).enumerate() {
        let zone = ZoneId(i as u32);
        let used = info.state != ZoneState::Empty;
        let mut entry = *entry;
        next_sequence = next_sequence.max(entry.sequence.saturating_add(1));
        entry.write_pointer = match info.state {
            ZoneState::Empty => 0,
            // It means nothing there.
            ZoneState::ReadOnly | ZoneState::Offline => entry.write_pointer,
            _ => info.write_pointer.min(info.capacity),
        };
        let valid = valid(i);
        if let Some(log) = log_zone(zone) {
            entry.role = Role::Log;
            entry.sequence = log.zone.sequence;
            next_sequence = next_sequence.max(log.zone.sequence.saturating_add(1));
        } else if entry.role == Role::Retired {
            // Never used again.
        } else if info.state.is_dead() && valid == 0 {
            // A record may refer to it all the same: it is known by its header then.
            match read_header(media, identity, zone) {
                Ok(Some(header)) => {
                    entry.lifetime = header.lifetime;
                    entry.sequence = header.sequence;
                    next_sequence = next_sequence.max(header.sequence.saturating_add(1));
                }
                Ok(None) => {}
                Err(_) => entry.sequence = 0,
            }
            entry.role = Role::Retired;
        } else if !used && valid == 0 {
            entry = ZitEntry {
                resets: entry.resets,
                ..ZitEntry::default()
            };
        } else if used && valid == 0 {
            // Whatever the checkpoint knew of it, it may have been reset and taken into use again
            // since: its header tells what it is.
            let known = (entry.role, entry.sequence);
            entry.role = Role::Free;
            match read_header(media, identity, zone) {
                Ok(Some(header)) => {
                    next_sequence = next_sequence.max(header.sequence.saturating_add(1));
                    // An older one was there before the zone was reset, and its newer one was lost
                    // with the power: no record would be believed of what is written behind it.
                    let fresh = header.sequence >= footer.next_zone_sequence;
                    if fresh || known == (header.role, header.sequence) {
                        entry.role = header.role;
                        entry.lifetime = header.lifetime;
                        entry.sequence = header.sequence;
                    }
                }
                Ok(None) => {}
                // Its use may be another than the checkpoint knows. If no record names it, it is
                // reset when a checkpoint finds it without valid blocks.
                Err(error) => {
                    tracing::warn!(zone = zone.0, %error, "the header of an unused zone cannot be read");
                    entry.role = Role::Data;
                    entry.lifetime = 0;
                    entry.sequence = 0;
                }
            }
            match entry.role {
                Role::Metadata if known != (entry.role, entry.sequence) => stale.push(zone),
                Role::Data | Role::Metadata => {}
                _ => entry.role = Role::Free,
            }
        }
        zones.push(Found {
            entry,
            capacity: info.capacity,
            used: used || entry.role == Role::Retired,
            failure: ZoneFailure::of(info.state),
        });
    }
    // A header that a power cut took along may have had a number already.
    let next_sequence = next_sequence.saturating_add(report.len() as u64);
    Ok((zones, next_sequence, stale))
}

fn apply_record(media: &Media, target: &Target<'_>, meta: &mut Meta, ops: &[Op]) -> Result<u64> {
    let Target {
        key,
        zones,
        mat_lost,
        ..
    } = *target;
    if ensure(media, key, meta, ops, mat_lost)? {
        apply::apply(meta, zones, ops)?;
        return Ok(0);
    }
    // A page is lost with its zone. What does not need it is as it should be.
    let mut lost = 0;
    for op in ops {
        let op = std::slice::from_ref(op);
        if ensure(media, key, meta, op, mat_lost)? {
            apply::apply(meta, zones, op)?;
        } else {
            lost += 1;
        }
    }
    Ok(lost)
}

/// Zones that records refer to hold data.
fn adopt(zones: &Zones, ops: &[Op]) {
    for op in ops {
        if let Op::Map {
            extent: Extent::Frame { addr, .. },
            ..
        } = op
        {
            zones.adopt(addr.zone());
        }
    }
}

/// Reads the pages that operations need; false if one of them is lost with a zone that failed.
fn ensure(
    media: &Media,
    key: &VolumeKey,
    meta: &mut Meta,
    ops: &[Op],
    mat_lost: bool,
) -> Result<bool> {
    loop {
        let id = match apply::ensure(meta, ops) {
            Ok(()) => return Ok(true),
            Err(Error::PageMissing(id)) => id,
            Err(error) => return Err(error),
        };
        if let Err(error) = fetch(media, key, meta, id) {
            let gone = match meta.mat.get(id) {
                None => mat_lost,
                Some(entry) => {
                    let zone = entry.addr.zone();
                    let report = media.device().report(zone.0..zone.0.saturating_add(1));
                    report.is_ok_and(|zones| zones.iter().any(|z| z.state == ZoneState::Offline))
                }
            };
            return if gone { Ok(false) } else { Err(error) };
        }
    }
}

fn fetch(media: &Media, key: &VolumeKey, meta: &mut Meta, id: PageId) -> Result<()> {
    let entry = meta.mat.get(id).ok_or_else(|| no_such_page(id))?;
    let page = store::fetch(media, key, id, entry)?;
    meta.cache.insert_clean(id, page);
    Ok(())
}

pub(crate) fn no_such_page(id: PageId) -> Error {
    Error::Inconsistent(format!("metadata page {id} does not exist"))
}

/// Of the volume, what the room in a zone is at least that is worth a checkpoint: it is gone on with then, and not finished.
const HELD_SHARE: u64 = 4096;

/// Makes a recovered volume writable. Answers the zones that take no writes before the next footer: until
/// then nobody writes data.
fn resume_writing(
    volume: &Volume,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    new_epoch: bool,
    has_void: bool,
) -> Result<Vec<ZoneId>> {
    // What was found readable is built upon from here on: it must be durable.
    volume.media.flush()?;
    // Zones that are not gone on with are finished first: where the log goes on in other zones,
    // these need their slots. What was in them is told by checksums from then on.
    let log_zone = volume.log.zone_with_room();
    let mut held = Vec::new();
    for (i, info) in report.iter().enumerate() {
        let zone = ZoneId(i as u32);
        let Some(entry) = volume.zones.entry(zone) else {
            continue;
        };
        if !info.state.is_active() {
            continue;
        }
        let first = volume.media.pairs.first(zone);
        let goes_on = match entry.role {
            Role::Data | Role::Metadata => {
                // Zones that voided records may name take no writes before the next footer. No record names a zone of
                // metadata, for one that has changed its role since the last footer says so in its header.
                let is_named = has_void && entry.role == Role::Data;
                let room = u64::from(info.capacity.saturating_sub(info.write_pointer));
                let is_worth_it = room * HELD_SHARE >= volume.zones.budget.user_blocks;
                // Those whose header was lost are finished too: what is written behind it would not be believed.
                let goes_on = (!is_named || is_worth_it)
                    && !stale.contains(&first)
                    && is_intact(volume, report, zone)
                    && match volume.media.pairs.is_second(zone) {
                        // The first came before it.
                        true => volume.zones.is_open(zone),
                        false => volume.resume_zone(zone, info),
                    };
                held.extend((is_named && goes_on).then_some(zone));
                goes_on
            }
            Role::Log => log_zone == Some(first),
            Role::Free | Role::Retired => false,
        };
        if !goes_on && let Err(error) = volume.media.finish_one(zone) {
            tracing::warn!(zone = zone.0, %error, "zone could not be finished");
        }
    }
    // What is nobody's decides nothing, whichever way the log is read: no record counts that names
    // it. It may be all the room there is for the log.
    let nobodys = volume.zones.nobodys();
    for zone in &nobodys {
        volume.reset_zone(*zone);
    }
    if !nobodys.is_empty() {
        volume.media.flush()?;
    }
    if new_epoch {
        volume.log.begin_epoch(&volume.media, &volume.zones)?;
    }
    for zone in stale {
        volume.reset_zone(*zone);
    }
    Ok(held)
}

/// Whether a zone, and its partner, if the volume has two copies of what is in it, have their
/// headers and end at the same block.
fn is_intact(volume: &Volume, report: &[ZoneInfo], zone: ZoneId) -> bool {
    let Some(entry) = volume.zones.entry(zone) else {
        return false;
    };
    let pairs = &volume.media.pairs;
    let end = |zone: ZoneId| {
        report
            .get(zone.0 as usize)
            .map(|z| (z.state.is_active(), z.write_pointer))
    };
    let copies = volume.zones.budget.copies_of(entry.role);
    let intact = |zone| {
        end(zone) == end(pairs.first(zone))
            && read_header(&volume.media, volume.identity(), zone).is_ok_and(|h| {
                h.is_some_and(|h| h.role == entry.role && h.sequence == entry.sequence)
            })
    };
    pairs.both(zone).count() == copies as usize && pairs.both(zone).all(intact)
}
