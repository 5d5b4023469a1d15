//! What a stripe set looks like as a zone.

use super::layout::Set;
use crate::{ZoneInfo, ZoneKind, ZoneState};

/// By what the device below says of the zones of the set.
pub(super) fn of_set(set: &Set, zones: &[ZoneInfo]) -> ZoneInfo {
    let offline = zones
        .iter()
        .filter(|zone| zone.state == ZoneState::Offline)
        .count();
    // One that is offline has no capacity.
    let there = zones.iter().filter(|zone| zone.state != ZoneState::Offline);
    let capacity = there.map(|zone| zone.capacity).min().unwrap_or(0);
    let written = zones.iter().map(|zone| rows(zone, capacity));
    let (least, most) = (
        written.clone().min().unwrap_or(0),
        written.max().unwrap_or(0),
    );
    let all = |state| zones.iter().all(|zone| zone.state == state);
    let state = if offline > 1 {
        ZoneState::Offline
    } else if zones.iter().any(|zone| zone.state.is_worn_out()) {
        // What is in it can be read, and has nothing left to lose: it is to be moved elsewhere.
        ZoneState::ReadOnly
    } else if all(ZoneState::Empty) {
        ZoneState::Empty
    } else if all(ZoneState::Full) || is_cut(least, most) {
        ZoneState::Full
    } else {
        let open = zones.iter().map(|zone| zone.state).find(|s| s.is_open());
        open.unwrap_or(ZoneState::Closed)
    };
    let capacity = set.blocks(capacity);
    ZoneInfo {
        kind: if zones.iter().all(|z| z.kind == ZoneKind::Conventional) {
            ZoneKind::Conventional
        } else {
            ZoneKind::Sequential
        },
        state,
        capacity,
        write_pointer: match state {
            ZoneState::Full => capacity,
            _ => set.blocks(least),
        },
    }
}

/// Rows that are written of a zone.
pub(super) fn rows(zone: &ZoneInfo, capacity: u32) -> u32 {
    match zone.state {
        ZoneState::Empty => 0,
        ZoneState::Full => capacity,
        _ => zone.write_pointer.min(capacity),
    }
}

/// Whether one of the zones is empty where others hold more than a header: a reset was cut off, and then nobody needs the set, or
/// somebody erased that zone. It is to be read from the others, and takes nothing more before a reset of all.
pub(super) fn is_cut(least: u32, most: u32) -> bool {
    least == 0 && most > 1
}
