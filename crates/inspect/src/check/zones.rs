//! Zones: what the zone information table, the headers and the device say of each.

use persimmon_device::ZoneState;
use persimmon_format::envelope::{self, Kind};
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, ZoneId};

use super::owners::{Owners, Usage};
use super::repair::Plan;
use crate::checkpoint::Checkpoint;
use crate::finding::{
    Findings, ZIT_ROLE, ZIT_VALID, ZIT_WRITE_POINTER, ZONE_HEADER, ZONE_HEADER_UNUSED, ZONE_STATE,
};
use crate::volume::{Inspector, ZoneHeaderFields, ZoneUse};

/// Blocks behind a damaged header that are looked at to tell what the zone was.
const PROBE_BLOCKS_MAX: u32 = 16;

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
        let counted = usage.blocks.get(index).copied().unwrap_or(0);
        let used = counted > 0 || owners.uses(index);
        if used && matches!(info.state, ZoneState::Offline | ZoneState::ReadOnly) {
            findings.add(&ZONE_STATE, &place, format_args!("{:?}", info.state));
        }
        match found {
            ZoneUse::Header(header) => {
                check_header(inspector, zone, &entry, header, counted, findings);
            }
            ZoneUse::Unwritten | ZoneUse::Foreign if used => {
                findings.add(&ZONE_HEADER, &place, "there is none");
            }
            ZoneUse::Unwritten | ZoneUse::Foreign => {}
            ZoneUse::Damaged(error) => {
                if used || is_log_in_use(inspector, checkpoint, zone, &entry) {
                    findings.add(&ZONE_HEADER, &place, error);
                } else {
                    findings.add(&ZONE_HEADER_UNUSED, &place, error);
                }
            }
        }
        if !lost && !checkpoint.zit_lost && u64::from(entry.valid) != counted {
            let detail = format!("it says {}, {counted} are in use", entry.valid);
            findings.add(&ZIT_VALID, &place, detail);
            plan.recount();
        }
    }
}

fn check_header(
    inspector: &Inspector<'_>,
    zone: ZoneId,
    entry: &ZitEntry,
    header: &ZoneHeaderFields,
    counted: u64,
    findings: &mut Findings,
) {
    let place = format!("zone {zone}");
    let listed = matches!(entry.role, Role::Log | Role::Metadata | Role::Data);
    if !listed {
        // Taken into use since the checkpoint, or waiting to be reset.
        return;
    }
    if header.sequence == entry.sequence {
        if header.role != entry.role {
            let detail = format!(
                "{} in its entry, {} in its header",
                entry.role.name(),
                header.role.name()
            );
            findings.add(&ZIT_ROLE, &place, detail);
        }
        let written = inspector.media.written(zone);
        if written < entry.write_pointer {
            let detail = format!("{} blocks of {}", written, entry.write_pointer);
            findings.add(&ZIT_WRITE_POINTER, place, detail);
        }
    } else if counted > 0 {
        // Without valid blocks the zone may have been reset and used again since.
        let detail = format!(
            "sequence {} in its entry, {} in its header",
            entry.sequence, header.sequence
        );
        findings.add(&ZIT_ROLE, place, detail);
    }
}

/// Whether a zone with a damaged header holds log blocks that a mount would look for.
fn is_log_in_use(
    inspector: &Inspector<'_>,
    checkpoint: &Checkpoint,
    zone: ZoneId,
    entry: &ZitEntry,
) -> bool {
    let start = inspector.log.zone_of(checkpoint.footer.replay.sequence);
    let first_needed = start.map_or(0, |zone| zone.sequence);
    if entry.role == Role::Log && entry.sequence >= first_needed {
        return true;
    }
    let blocks = inspector
        .media
        .written(zone)
        .saturating_sub(1)
        .min(PROBE_BLOCKS_MAX);
    let Ok(window) = inspector
        .media
        .read(Addr::new(DeviceId(0), zone, 1), blocks)
    else {
        return false;
    };
    window.chunks_exact(BLOCK_SIZE).any(|block| {
        [Kind::Journal, Kind::Footer].into_iter().any(|kind| {
            envelope::open(block, &inspector.key, kind, None)
                .is_ok_and(|(fields, _)| fields.owner >= first_needed)
        })
    })
}
