//! What the checkpoint says of the zones, and what the device says.

use persimmon_device::per_zone::PerZone;
use persimmon_device::{ZoneId, ZoneInfo, ZoneState};
use persimmon_format::footer::Footer;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::VolumeIdentity;

use super::check_counters;
use crate::error::{Error, Result};
use crate::headers::read_header;
use crate::log::zone::FoundZone;
use crate::media::Media;
use crate::zones::failure::ZoneFailure;
use crate::zones::table::Found;

/// The zones, the next zone sequence, and metadata zones to reset.
pub(super) type Reconciled = (PerZone<Found>, u64, Vec<ZoneId>);

/// Brings what the checkpoint says of the zones together with what the device says. `log_zones` are
/// those that are needed. Returns the zones, the next zone sequence, and the zones of a checkpoint
/// that was not finished. A zone that is free and was written to is orphaned: what has no
/// header, or that of a log zone that is not needed.
pub(super) fn reconcile(
    media: &Media,
    identity: &VolumeIdentity,
    report: &[ZoneInfo],
    zit: &PerZone<ZitEntry>,
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
    let unused = Found {
        entry: ZitEntry::default(),
        capacity: report.first().map_or(0, |info| info.capacity),
        used: false,
        failure: None,
    };
    let mut zones = PerZone::filled(report.len(), unused);
    for (i, (info, entry)) in report.iter().zip(zit.iter()).enumerate() {
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
        } else if info.state.is_worn_out() && valid == 0 {
            // A record may refer to it all the same: it is known by its header then.
            match read_header(media, identity, zone) {
                Ok(Some(header)) => {
                    entry.lifetime = header.lifetime;
                    entry.sequence = header.sequence;
                    next_sequence = next_sequence.max(header.sequence.saturating_add(1));
                }
                Ok(None) => {}
                Err(error @ Error::Unsupported { .. }) => return Err(error),
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
                Err(error @ Error::Unsupported { .. }) => return Err(error),
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
        } else if entry.role == Role::Free {
            // Blocks of files are in it, and neither its header nor the checkpoint told.
            entry.role = Role::Data;
            entry.lifetime = 0;
            entry.sequence = 0;
        }
        let found = Found {
            entry,
            capacity: info.capacity,
            used: used || entry.role == Role::Retired,
            failure: ZoneFailure::of(info.state),
        };
        zones.set(i, found);
    }
    // A header that a power cut took along may have had a number already.
    let next_sequence = next_sequence.saturating_add(report.len() as u64);
    check_counters(&[("the sequence of the next zone", next_sequence)])?;
    Ok((zones, next_sequence, stale))
}
