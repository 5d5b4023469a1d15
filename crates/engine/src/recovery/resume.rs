//! A recovered volume becomes writable: its zones are continued or ended, and a new epoch invalidates what is later.

use std::collections::BTreeSet;

use persimmon_device::{ZoneId, ZoneInfo};
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;

use super::RecoveryReport;
use super::arrival::Thin;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::headers::read_header;
use crate::store::Store;

/// Of the volume, what the room in a zone is at least that is worth a checkpoint: it is gone on with then, and not finished.
const HELD_SHARE: u64 = 4096;

/// What of a recovered volume is not yet as it has to be.
pub(super) struct Unsure<'a> {
    /// The log goes on in another zone, after a checkpoint.
    pub(super) leave_zone: bool,
    /// Records were left out that may name blocks.
    pub(super) invalidated: bool,
    /// What hangs on one zone of its stripe set.
    pub(super) thin: &'a [Thin],
}

/// Makes a recovered volume writable, unless it is to be read-only.
pub(super) fn go_on(
    engine: &Engine,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    summary: &RecoveryReport,
    unsure: &Unsure<'_>,
) -> Result<()> {
    let store = &engine.store;
    if summary.has_lost_metadata() {
        tracing::error!(?summary, "metadata is lost: read-only");
        store.make_read_only();
        return Ok(());
    }
    if store.options.read_only {
        return Ok(());
    }
    if let Some(error) = store.bug() {
        // Nothing reaches the device any more; what there is can be read.
        tracing::error!(%error, "going on read-only");
        store.make_read_only();
        return Ok(());
    }
    store.zones.suspect_kept_space(&store.media);
    let (new_epoch, invalidated) = (summary.new_epoch, unsure.invalidated);
    let mut held = resume_writing(store, report, stale, new_epoch, invalidated)?;
    let mut finished = engine.data.find_truncations();
    let is_needed = finished.is_err() || unsure.leave_zone || store.zones.log_is_failing();
    if finished.is_ok() && !unsure.thin.is_empty() {
        // Before a checkpoint has it, and so before those zones take writes.
        store.zones.leave(&store.media, |zone| held.contains(&zone));
        held.clear();
        write_anew(engine, unsure.thin, is_needed)?;
        if store.is_read_only() {
            return Ok(());
        }
    }
    if finished.is_ok() && (is_needed || !held.is_empty()) {
        // The lock keeps other threads from packing into held zones.
        let _packing = engine.placement.hold_packing();
        finished = engine.checkpoints.write();
    }
    if let Err(error) = &finished {
        tracing::warn!(%error, "zones that would be gone on with after a checkpoint are ended");
        let is_held = |zone| held.contains(&zone);
        store.zones.leave(&store.media, is_held);
    }
    if !is_needed {
        finished = Ok(());
    }
    match finished {
        // A page was lost on the way: what does not need it can be read.
        Err(error) if store.is_read_only() => {
            tracing::error!(%error, "going on read-only");
            Ok(())
        }
        other => other,
    }
}

/// Writes anew what a crash left in one zone of a stripe set alone, before anybody builds upon it: until it is durable elsewhere nothing
/// that is durable says that it was, so that the next mount finds it again. A checkpoint that `follows` makes it so.
///
/// Where there is no room for it the volume has to be writable all the same, for room to be made: the set is emptied as soon as may be.
/// Where it fails otherwise the volume is read-only, or a zone has failed and recovery starts over.
fn write_anew(engine: &Engine, thin: &[Thin], follows: bool) -> Result<()> {
    let store = &engine.store;
    let zones: BTreeSet<ZoneId> = thin.iter().map(|thin| thin.zone).collect();
    let rewrite = |zone: ZoneId| {
        let of_zone = thin.iter().filter(|thin| thin.zone == zone);
        let status = store.zones.status_from(zone.0 as usize, 1);
        let status = status.first();
        status.map_or(Ok(()), |status| {
            engine.reclaimer.rewrite(status, of_zone.map(Thin::mapped))
        })
    };
    let if_there_is_room = |done: Result<()>| match done {
        Err(error) if error.passes() => {
            tracing::warn!(
                %error,
                "what a crash left in one zone of a stripe set alone is not written anew yet"
            );
            Ok(())
        }
        done => done,
    };
    let mut done = if_there_is_room(zones.into_iter().try_for_each(rewrite));
    if done.is_ok() && !follows {
        // The log has to say so: else a mount that lacks a zone would look for what was in it, and end the history there.
        let durable = engine.data.sync_metadata();
        let told = durable.and_then(|()| store.log.tell_durable(&store.media, &store.zones));
        done = if_there_is_room(told);
    }
    match done {
        Err(Error::Device(error)) if !store.is_read_only() => Err(error.into()),
        Err(error) => {
            tracing::error!(
                %error,
                "what a crash left in one zone of a stripe set alone cannot be written anew: read-only"
            );
            store.make_read_only();
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// Makes a recovered volume writable. Answers the zones that take no writes before the next footer: until
/// then nobody writes data.
fn resume_writing(
    store: &Store,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    new_epoch: bool,
    has_invalidated: bool,
) -> Result<Vec<ZoneId>> {
    // Their headers are asked before anything is written: one may be of a newer program.
    let intact = intact_zones(store, report, stale, has_invalidated)?;
    // What was found readable is built upon from here on: it must be durable.
    store.media.flush()?;
    // Zones that are not gone on with are finished first: where the log goes on in other zones,
    // these need their slots. Checksums tell what was in them from then on.
    let log_zone = store.log.zone_with_room();
    let mut held = Vec::new();
    for (i, info) in report.iter().enumerate() {
        let zone = ZoneId(i as u32);
        let Some(entry) = store.zones.entry(zone) else {
            continue;
        };
        if !info.state.is_active() {
            continue;
        }
        let first = store.media.pairs.first(zone);
        let goes_on = match entry.role {
            Role::Data | Role::Metadata => {
                // Those whose header was lost are finished too: what is written behind it would not be believed.
                let goes_on = intact.contains(&zone)
                    && if store.media.pairs.is_second(zone) {
                        // The first came before it.
                        store.zones.is_open(zone)
                    } else {
                        resume_zone(store, zone, info)
                    };
                held.extend(
                    (has_invalidated && entry.role == Role::Data && goes_on).then_some(zone),
                );
                goes_on
            }
            Role::Log => log_zone == Some(first),
            Role::Free | Role::Retired => false,
        };
        if !goes_on && let Err(error) = store.media.finish_one(zone) {
            tracing::warn!(zone = zone.0, %error, "zone could not be finished");
        }
    }
    // Orphaned zones decide nothing, whichever way the log is read: no record counts that names
    // it. It may be all the room there is for the log.
    let orphaned = store.zones.orphaned_zones();
    for zone in &orphaned {
        reset(store, *zone);
    }
    if !orphaned.is_empty() {
        store.media.flush()?;
    }
    if new_epoch {
        store.log.begin_epoch(&store.media, &store.zones)?;
    }
    for zone in stale {
        reset(store, *zone);
    }
    Ok(held)
}

/// Zones of data and metadata that can be gone on with, and are worth it.
fn intact_zones(
    store: &Store,
    report: &[ZoneInfo],
    stale: &[ZoneId],
    has_invalidated: bool,
) -> Result<BTreeSet<ZoneId>> {
    let mut intact = BTreeSet::new();
    for (zone, info) in (0..).map(ZoneId).zip(report) {
        let role = store.zones.entry(zone).map(|entry| entry.role);
        if !info.state.is_active()
            || !matches!(role, Some(Role::Data | Role::Metadata))
            || stale.contains(&store.media.pairs.first(zone))
        {
            continue;
        }
        // Zones that voided records may name take no writes before the next footer. No record names a zone of
        // metadata, for one that has changed its role since the last footer says so in its header.
        let is_named = has_invalidated && role == Some(Role::Data);
        let room = u64::from(info.capacity.saturating_sub(info.write_pointer));
        let is_worth_it = room * HELD_SHARE >= store.zones.budget.user_blocks;
        // What hangs on one zone of a stripe set is written anew: the set takes no more.
        if store.zones.lacks_redundancy(zone) {
            continue;
        }
        if (!is_named || is_worth_it) && is_intact(store, report, zone)? {
            intact.insert(zone);
        }
    }
    Ok(intact)
}

/// Whether a zone, and its partner, if the volume has two copies of what is in it, have their
/// headers and end at the same block.
fn is_intact(store: &Store, report: &[ZoneInfo], zone: ZoneId) -> Result<bool> {
    let Some(entry) = store.zones.entry(zone) else {
        return Ok(false);
    };
    let pairs = &store.media.pairs;
    let end = |zone: ZoneId| {
        report
            .get(zone.0 as usize)
            .map(|z| (z.state.is_active(), z.write_pointer))
    };
    let copies = store.zones.budget.copies_of(entry.role);
    if pairs.both(zone).count() != copies as usize {
        return Ok(false);
    }
    for zone in pairs.both(zone) {
        let header = match read_header(&store.media, &store.identity, zone) {
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

/// Resets a zone nobody needs, and its partner.
fn reset(store: &Store, zone: ZoneId) {
    store.zones.queue_resets(&store.media, [zone]);
    store.zones.complete_resets(&store.media);
}

/// Goes on writing to a zone found partly written at mount, if its space can be set aside.
fn resume_zone(store: &Store, zone: ZoneId, info: &ZoneInfo) -> bool {
    if store.media.open(zone).is_err() {
        return false;
    }
    let holds_data = store
        .zones
        .entry(zone)
        .is_some_and(|entry| entry.role == Role::Data);
    let last_summary = if holds_data {
        store.last_summary(zone, info.write_pointer)
    } else {
        None
    };
    let last_summary = last_summary.map_or(0, |(at, _)| at);
    store.zones.resume(zone, info.write_pointer, last_summary)
}
