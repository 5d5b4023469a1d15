//! What the journal past the cut says is applied to what the checkpoint says.

use persimmon_device::ZoneState;
use persimmon_device::per_zone::PerZone;
use persimmon_format::delta::is_delta;
use persimmon_format::footer::Footer;
use persimmon_format::record::Op;
use persimmon_format::zone_header::QUOTA;
use persimmon_format::{Lsn, PageId, VolumeKey};

use super::arrival::Arrival;
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::log::replay::{LeftOut, Replay};
use crate::media::Media;
use crate::meta::{Meta, apply, store};
use crate::zones::Zones;
use crate::zones::table::Found;

/// What records are applied to, beside the metadata.
pub(super) struct ReplayTarget<'a> {
    pub(super) key: &'a VolumeKey,
    pub(super) zones: &'a Zones,
    /// What the ZIT counts in them.
    pub(super) found: &'a PerZone<Found>,
    /// That is all there is, and nobody will count anew.
    pub(super) are_counted: bool,
    pub(super) mat_lost: bool,
}

/// What came of the journal past the cut.
pub(super) struct Replayed {
    pub(super) last: Lsn,
    pub(super) left_out: LeftOut,
    pub(super) records: u64,
    pub(super) changes_lost: u64,
}

/// Applies the records past the cut up to the history's end.
pub(super) fn replay_records(
    replay: &Replay<'_>,
    footer: &Footer,
    arrival: &Arrival<'_>,
    target: &ReplayTarget<'_>,
    meta: &mut Meta,
) -> Result<Replayed> {
    let (mut records, mut changes_lost) = (0, 0);
    let is_known = footer.versions == 0 || read_versions(target, arrival.media, meta)?;
    if !is_known {
        changes_lost += 1;
    }
    let has_quota = footer.features.incompatible & QUOTA != 0;
    if has_quota && is_known && !read_quota(target, arrival.media, meta)? {
        changes_lost += 1;
    }
    let mut uncounted = footer.counted > footer.cut && !fault(Fault::CountedTwice);
    if uncounted {
        target.zones.counts_are_complete(false);
    }
    let take_counts = || {
        target.zones.set_counts(target.found);
        target.zones.counts_are_complete(target.are_counted);
    };
    let mut apply = |lsn: Lsn, ops: &[Op]| -> Result<()> {
        // Up to here the ZIT has counted already, and zones may be in another use by now.
        if uncounted && lsn > footer.counted {
            take_counts();
            uncounted = false;
        }
        if !uncounted {
            adopt(target.zones, ops);
        }
        changes_lost += match is_known {
            true => apply_record(arrival.media, target, meta, ops)?,
            false => ops.len() as u64,
        };
        Ok(())
    };
    let (last, left_out) = replay.run(footer.cut, |record| {
        let asked = record.lsn > replay.trusted && !fault(Fault::UnsafeClassic);
        if asked && !arrival.of(&record.ops)? {
            return Ok(fault(Fault::LostRecordSkipped));
        }
        records += 1;
        apply(record.lsn, &record.ops)?;
        Ok(true)
    })?;
    if uncounted {
        take_counts();
    }
    target.zones.forget_deaths();
    meta.numbers.replayed();
    Ok(Replayed {
        last,
        left_out,
        records,
        changes_lost,
    })
}

fn apply_record(
    media: &Media,
    target: &ReplayTarget<'_>,
    meta: &mut Meta,
    ops: &[Op],
) -> Result<u64> {
    let zones = target.zones;
    if ensure(media, target, meta, ops)? {
        apply::apply(meta, zones, ops)?;
        return Ok(0);
    }
    // A page is lost. What does not need it is as it should be.
    let mut lost = 0;
    for op in ops {
        // A delta goes with the move of the block into which it was folded: without that the block would be what it was before.
        let is_folded = matches!(op, Op::Punch { from, .. } if is_delta(*from));
        let op = std::slice::from_ref(op);
        if (lost == 0 || !is_folded) && ensure(media, target, meta, op)? {
            apply::apply(meta, zones, op)?;
        } else {
            lost += 1;
        }
    }
    Ok(lost)
}

/// Reads the table of versions as the checkpoint has it. False if it is lost: then nobody knows what a record changes, and none is applied.
/// What was never changed since a snapshot can be read, and the volume is read-only.
fn read_versions(target: &ReplayTarget<'_>, media: &Media, meta: &mut Meta) -> Result<bool> {
    loop {
        let missing = match meta.read_versions() {
            Ok(()) => return Ok(true),
            Err(Error::PageMissing(id)) => fetch_if_there(media, target, meta, id),
            Err(error) => Err(error),
        };
        match missing {
            Ok(true) => {}
            Ok(false) | Err(Error::Inconsistent(_)) => {
                tracing::error!("the table of snapshots cannot be read");
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Reads whether what owners take is counted, as the checkpoint has it. False if it is lost: then nobody knows what is to be counted, and the
/// volume is read-only.
fn read_quota(target: &ReplayTarget<'_>, media: &Media, meta: &mut Meta) -> Result<bool> {
    loop {
        match meta.read_quota() {
            Err(Error::PageMissing(id)) => {
                if !fetch_if_there(media, target, meta, id)? {
                    tracing::error!("the state of quota cannot be read");
                    return Ok(false);
                }
            }
            Err(Error::Inconsistent(what)) => {
                tracing::error!(what, "the state of quota cannot be read");
                return Ok(false);
            }
            other => return other.map(|()| true),
        }
    }
}

/// Reads a page; false if it is damaged, or lost with a zone that failed. A device that does not answer may do so the next time.
fn fetch_if_there(
    media: &Media,
    target: &ReplayTarget<'_>,
    meta: &mut Meta,
    id: PageId,
) -> Result<bool> {
    let Err(error) = fetch(media, target.key, meta, id) else {
        return Ok(true);
    };
    let gone = match meta.mat.get(id) {
        None => target.mat_lost,
        Some(_) if matches!(error, Error::Damaged { .. }) => true,
        Some(entry) => {
            let info = media.report_zone(entry.addr.zone());
            info.is_some_and(|info| info.state == ZoneState::Offline)
        }
    };
    if gone {
        tracing::error!(page = id.0, %error, "a page that recovery needs cannot be read");
        Ok(false)
    } else {
        Err(error)
    }
}

/// Zones that records refer to hold data.
fn adopt(zones: &Zones, ops: &[Op]) {
    for op in ops {
        if let Op::Map { extent, .. } | Op::Move { extent, .. } = op
            && let Some(addr) = extent.addr()
        {
            zones.adopt(addr.zone());
        }
    }
}

/// Reads the pages that operations need; false if one of them is lost.
fn ensure(media: &Media, target: &ReplayTarget<'_>, meta: &mut Meta, ops: &[Op]) -> Result<bool> {
    loop {
        let id = match apply::ensure(meta, ops) {
            Ok(()) => return Ok(true),
            Err(Error::PageMissing(id)) => id,
            Err(Error::NoSuchSnapshot) => {
                let what = "a record changes an inode of a subvolume that is not there";
                return Err(Error::Inconsistent(what.into()));
            }
            Err(error) => return Err(error),
        };
        if !fetch_if_there(media, target, meta, id)? {
            return Ok(false);
        }
    }
}

fn fetch(media: &Media, key: &VolumeKey, meta: &mut Meta, id: PageId) -> Result<()> {
    let entry = meta.mat.get(id).ok_or_else(|| Error::no_such_page(id))?;
    let page = store::fetch(media, key, id, entry)?;
    meta.cache.insert_clean(id, page);
    Ok(())
}
