//! A recovered volume becomes writable: its zones are continued or ended, and a new epoch invalidates what is later.

use std::collections::BTreeSet;

use persimmon_device::{ZoneId, ZoneInfo};
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;

use super::RecoveryReport;
use crate::Volume;
use crate::error::{Error, Result};
use crate::headers::read_header;

/// Of the volume, what the room in a zone is at least that is worth a checkpoint: it is gone on with then, and not finished.
const HELD_SHARE: u64 = 4096;

/// Makes a recovered volume writable, unless it is to be read-only.
pub(super) fn go_on(
    volume: &Volume,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    summary: &RecoveryReport,
    leave_zone: bool,
    has_invalidated: bool,
) -> Result<()> {
    if summary.has_lost_metadata() {
        tracing::error!(?summary, "metadata is lost with a zone: read-only");
        volume.make_read_only();
        return Ok(());
    }
    if volume.options.read_only {
        return Ok(());
    }
    if let Some(error) = volume.bug() {
        // Nothing reaches the device any more; what there is can be read.
        tracing::error!(%error, "going on read-only");
        volume.make_read_only();
        return Ok(());
    }
    volume.zones.suspect_kept_space(&volume.media);
    let held = resume_writing(volume, report, stale, summary.new_epoch, has_invalidated)?;
    let mut finished = volume.find_truncations();
    let is_needed = finished.is_err() || leave_zone || volume.zones.log_is_failing();
    if finished.is_ok() && (is_needed || !held.is_empty()) {
        // The lock keeps other threads from packing into held zones.
        let _packing = volume.packing_lock.try_lock();
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

/// Makes a recovered volume writable. Answers the zones that take no writes before the next footer: until
/// then nobody writes data.
fn resume_writing(
    volume: &Volume,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    new_epoch: bool,
    has_invalidated: bool,
) -> Result<Vec<ZoneId>> {
    // Their headers are asked before anything is written: one may be of a newer program.
    let intact = intact_zones(volume, report, stale, has_invalidated)?;
    // What was found readable is built upon from here on: it must be durable.
    volume.media.flush()?;
    // Zones that are not gone on with are finished first: where the log goes on in other zones,
    // these need their slots. Checksums tell what was in them from then on.
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
                // Those whose header was lost are finished too: what is written behind it would not be believed.
                let goes_on = intact.contains(&zone)
                    && if volume.media.pairs.is_second(zone) {
                        // The first came before it.
                        volume.zones.is_open(zone)
                    } else {
                        volume.resume_zone(zone, info)
                    };
                held.extend(
                    (has_invalidated && entry.role == Role::Data && goes_on).then_some(zone),
                );
                goes_on
            }
            Role::Log => log_zone == Some(first),
            Role::Free | Role::Retired => false,
        };
        if !goes_on && let Err(error) = volume.media.finish_one(zone) {
            tracing::warn!(zone = zone.0, %error, "zone could not be finished");
        }
    }
    // Orphaned zones decide nothing, whichever way the log is read: no record counts that names
    // it. It may be all the room there is for the log.
    let orphaned = volume.zones.orphaned_zones();
    for zone in &orphaned {
        volume.reset_zone(*zone);
    }
    if !orphaned.is_empty() {
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

/// Zones of data and metadata that can be gone on with, and are worth it.
fn intact_zones(
    volume: &Volume,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    has_invalidated: bool,
) -> Result<BTreeSet<ZoneId>> {
    let mut intact = BTreeSet::new();
    for (zone, info) in (0..).map(ZoneId).zip(report) {
        let role = volume.zones.entry(zone).map(|entry| entry.role);
        if !info.state.is_active()
            || !matches!(role, Some(Role::Data | Role::Metadata))
            || stale.contains(&volume.media.pairs.first(zone))
        {
            continue;
        }
        // Zones that voided records may name take no writes before the next footer. No record names a zone of
        // metadata, for one that has changed its role since the last footer says so in its header.
        let is_named = has_invalidated && role == Some(Role::Data);
        let room = u64::from(info.capacity.saturating_sub(info.write_pointer));
        let is_worth_it = room * HELD_SHARE >= volume.zones.budget.user_blocks;
        if (!is_named || is_worth_it) && is_intact(volume, report, zone)? {
            intact.insert(zone);
        }
    }
    Ok(intact)
}

/// Whether a zone, and its partner, if the volume has two copies of what is in it, have their
/// headers and end at the same block.
fn is_intact(volume: &Volume, report: &[ZoneInfo], zone: ZoneId) -> Result<bool> {
    let Some(entry) = volume.zones.entry(zone) else {
        return Ok(false);
    };
    let pairs = &volume.media.pairs;
    let end = |zone: ZoneId| {
        report
            .get(zone.0 as usize)
            .map(|z| (z.state.is_active(), z.write_pointer))
    };
    let copies = volume.zones.budget.copies_of(entry.role);
    if pairs.both(zone).count() != copies as usize {
        return Ok(false);
    }
    for zone in pairs.both(zone) {
        let header = match read_header(&volume.media, volume.identity(), zone) {
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            read => read.ok().flatten(),
        };
        let is_its = |h: ZoneHeader| h.role == entry.role && h.sequence == entry.sequence;
        if end(zone) != end(pairs.first(zone)) || !header.is_some_and(is_its) {
            return Ok(false);
        }
    }
    Ok(true)
}
