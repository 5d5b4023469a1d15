//! Zones: what the zone information table, the headers and the device say of each.

use persimmon_device::ZoneState;
use persimmon_format::ZoneId;
use persimmon_format::packed::{BLOCK_PACK_UNITS, PackUnits};
use persimmon_format::table::{Role, ZitEntry};

use super::owners::{Owners, Usage};
use super::repair::Plan;
use crate::checkpoint::Checkpoint;
use crate::finding::{
    Findings, LOG_LOST, ZIT_ROLE, ZIT_VALID, ZIT_WRITE_POINTER, ZONE_COPY, ZONE_HEADER,
    ZONE_HEADER_UNUSED, ZONE_READ_ONLY, ZONE_STATE,
};
use crate::log::Headless;
use crate::volume::{Inspector, ZoneHeaderFields, ZoneUse};

pub(crate) fn check(
    inspector: &Inspector<'_>,
    usage: &Usage,
    owners: &Owners,
    lost: bool,
    findings: &mut Findings,
    plan: &mut Plan,
) {
    let Some(checkpoint) = &inspector.checkpoint else {
        return;
    };
    for ((zone, info), found) in inspector.media.zones().zip(&inspector.zones) {
        let index = zone.0 as usize;
        let place = format!("zone {zone}");
        let entry = checkpoint.zit.get(index).copied().unwrap_or_default();
        let counted = usage.owned.get(index).copied().unwrap_or_default();
        // Of a pair the second is used as the first is.
        let first = inspector.media.first(zone).0 as usize;
        let used = counted > PackUnits::ZERO || owners.uses(first);
        let paired = inspector.media.partner(zone).is_some();
        // Of the log only a set tells that a zone has failed: of another zone it shows where blocks are missing.
        let is_log_set = inspector.media.is_striped() && is_of_log(inspector, checkpoint, found);
        if (used || is_log_set) && info.state.is_worn_out() {
            let rule = match info.state {
                ZoneState::ReadOnly => &ZONE_READ_ONLY,
                _ if paired => &ZONE_COPY,
                _ => &ZONE_STATE,
            };
            // What is in a set of which one zone has failed is whole, and is left as a zone that takes no writes is.
            match info.state {
                ZoneState::ReadOnly if inspector.media.is_striped() => {
                    findings.add(rule, &place, "a zone of its stripe set has failed");
                }
                state => findings.add(rule, &place, format_args!("{state:?}")),
            }
        }
        match found {
            // That is told already.
            ZoneUse::Damaged(_) if used && info.state == ZoneState::Offline => {}
            ZoneUse::Header(header) => {
                if let Some((headless, error)) = inspector.headless.get(&zone) {
                    let bad = header_was_durable(inspector, checkpoint, &entry, headless);
                    let rule = if bad {
                        &ZONE_HEADER
                    } else {
                        &ZONE_HEADER_UNUSED
                    };
                    findings.add(rule, &place, error);
                }
                check_header(inspector, zone, &entry, header, counted, findings);
            }
            ZoneUse::Unwritten | ZoneUse::Foreign if used => {
                findings.add(&ZONE_HEADER, &place, "there is none");
            }
            ZoneUse::Unwritten | ZoneUse::Foreign => {}
            ZoneUse::Damaged(error) => {
                if inspector.may_be_lost_end(zone, checkpoint, &inspector.journal) {
                    findings.add(&LOG_LOST, &place, error);
                    continue;
                }
                let needed = first_needed(inspector, checkpoint);
                let partner = inspector.media.partner(zone);
                let logged = match partner.and_then(|zone| inspector.zones.get(zone.0 as usize)) {
                    Some(there @ ZoneUse::Header(_)) => is_of_log(inspector, checkpoint, there),
                    _ => entry.role == Role::Log && entry.sequence >= needed,
                };
                if (used || logged) && paired {
                    if !info.state.is_worn_out() {
                        findings.add(&ZONE_COPY, &place, error);
                    }
                } else if used || logged {
                    findings.add(&ZONE_HEADER, &place, error);
                    if used && !info.state.is_worn_out() {
                        plan.empty_zone(zone);
                    }
                } else if info.state != ZoneState::Offline {
                    // One that is offline is not reset, nor used again.
                    findings.add(&ZONE_HEADER_UNUSED, &place, error);
                }
            }
        }
        if !lost && !checkpoint.zit_lost && entry.pack_units() != counted {
            let (said, counted) = (blocks_text(entry.pack_units()), blocks_text(counted));
            let detail = format!("it says {said}, {counted} are in use");
            findings.add(&ZIT_VALID, &place, detail);
            plan.recount();
        }
    }
}

/// In blocks, for people.
fn blocks_text(PackUnits(units): PackUnits) -> String {
    let (blocks, rest) = (units / BLOCK_PACK_UNITS, units % BLOCK_PACK_UNITS);
    match rest {
        0 => blocks.to_string(),
        _ => format!("{blocks} and {rest}/{BLOCK_PACK_UNITS}"),
    }
}

fn check_header(
    inspector: &Inspector<'_>,
    zone: ZoneId,
    entry: &ZitEntry,
    header: &ZoneHeaderFields,
    counted: PackUnits,
    findings: &mut Findings,
) {
    let place = format!("zone {zone}");
    let listed = matches!(entry.role, Role::Log | Role::Metadata | Role::Data);
    if !listed {
        // Taken into use since the checkpoint, or waiting to be reset.
        return;
    }
    if entry.is_of_use(header.sequence) {
        if header.role != entry.role {
            let detail = format!(
                "{} in its entry, {} in its header",
                entry.role.name(),
                header.role.name()
            );
            findings.add(&ZIT_ROLE, &place, detail);
        }
        let written = inspector.media.written(zone);
        // Without valid blocks the zone may have been reset since, and its old header come back. Data may have been
        // on its way at the checkpoint, and not have arrived; what the tree has of it is missed as an extent.
        if written < entry.write_pointer && counted > PackUnits::ZERO && entry.role != Role::Data {
            let detail = format!("{} blocks of {}", written, entry.write_pointer);
            findings.add(&ZIT_WRITE_POINTER, place, detail);
        }
    } else if counted > PackUnits::ZERO {
        // Without valid blocks the zone may have been reset and used again since.
        let detail = format!(
            "sequence {} in its entry, {} in its header",
            entry.sequence, header.sequence
        );
        findings.add(&ZIT_ROLE, place, detail);
    }
}

/// The sequence of the log zone that replay begins in. Earlier ones may have been reset, and taken
/// into use again, since the checkpoint.
fn first_needed(inspector: &Inspector<'_>, checkpoint: &Checkpoint) -> u64 {
    let start = inspector.log.zone_of(checkpoint.footer.replay.sequence);
    start.map_or(0, |zone| zone.sequence)
}

/// Whether a zone is of the log that is still needed.
fn is_of_log(inspector: &Inspector<'_>, checkpoint: &Checkpoint, found: &ZoneUse) -> bool {
    let needed = first_needed(inspector, checkpoint);
    matches!(found, ZoneUse::Header(header) if header.role == Role::Log && header.sequence >= needed)
}

/// Whether the header of a log zone was there once, as the checkpoint or its blocks tell. A header
/// that a crash cut off, with blocks behind it that arrived, is nothing to worry about.
fn header_was_durable(
    inspector: &Inspector<'_>,
    checkpoint: &Checkpoint,
    entry: &ZitEntry,
    headless: &Headless,
) -> bool {
    let needed = headless.fields.sequence >= first_needed(inspector, checkpoint);
    needed && (entry.role == Role::Log || headless.was_durable())
}
