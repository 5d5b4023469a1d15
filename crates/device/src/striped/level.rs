//! Zones of a set that do not end at the same row, made to: after a crash some have what others lack. Nothing of such rows was
//! acknowledged, since a write is over when all zones have what is theirs. Nothing of them is kept on purpose either: but what there is
//! of them can be found, believed by its checksums, and built upon, and then it must not hang on one zone.

use super::layout::{Part, Set};
use super::read::add;
use super::state::{is_cut, rows};
use super::{of_member, write};
use crate::faults::{Fault, fault};
use crate::{
    BLOCK_SIZE, Buffer, BufferMut, Command, Completion, DeviceError, Result, ZoneInfo, ZoneState,
    ZonedDevice,
};

/// Rows that are made good together.
const ROWS_AT_ONCE: u32 = 64;

/// Makes the zones of a set end at the same row: missing blocks become zeros, but for the last one of a row that lacks some, which
/// becomes what makes the parity right. Tells how many rows it took.
pub(super) fn level<D: ZonedDevice>(device: &D, set: Set, zones: &[ZoneInfo]) -> Result<u32> {
    if zones.iter().any(|zone| zone.state.is_worn_out()) {
        // It takes no more: the device is not to count the others among those that are written to.
        finish(device, set, zones)?;
        return Ok(0);
    }
    let capacity = zones.iter().map(|zone| zone.capacity).min().unwrap_or(0);
    let mut ends: Vec<u32> = zones.iter().map(|zone| rows(zone, capacity)).collect();
    let (least, most) = (
        ends.iter().copied().min().unwrap_or(0),
        ends.iter().copied().max().unwrap_or(0),
    );
    if is_cut(least, most) {
        // It looks full, and the device is not to count what is left of it among what is written to.
        finish(device, set, zones)?;
        return Ok(0);
    }
    if least == most {
        return Ok(0);
    }
    let mut row = least;
    while row < most {
        let end = match row {
            // A header is copied, and no exclusive or.
            0 => 1,
            _ => most.min(row + ROWS_AT_ONCE.min(device.geometry().max_transfer_blocks)),
        };
        if ends_early(device, set, zones, (row, end))? {
            finish(device, set, zones)?;
            break;
        }
        complete(device, set, &mut ends, (row, end))?;
        row = end;
    }
    Ok(row - least)
}

fn is_full(zone: &ZoneInfo) -> bool {
    zone.state == ZoneState::Full
}

/// Whether only zones that are full go on here, and have nothing: a finish of the set was cut off.
fn ends_early<D: ZonedDevice>(
    device: &D,
    set: Set,
    zones: &[ZoneInfo],
    (first, end): (u32, u32),
) -> Result<bool> {
    if zones
        .iter()
        .any(|zone| !is_full(zone) && zone.write_pointer > first)
    {
        return Ok(false);
    }
    for (column, zone) in (0..).zip(zones) {
        let part = Part {
            column,
            row: first,
            rows: end - first,
            at: 0,
        };
        if is_full(zone) && read(device, set, part)?.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Finishes those that are written in part.
fn finish<D: ZonedDevice>(device: &D, set: Set, zones: &[ZoneInfo]) -> Result<()> {
    let rest = (0..).zip(zones).filter(|(_, zone)| zone.state.is_active());
    let finished = rest.map(|(column, _)| {
        device.submit(Command::Finish {
            zone: set.member(column),
        })
    });
    write::all(set, finished.collect()).wait().map(drop)
}

/// Writes what is missing of some rows.
fn complete<D: ZonedDevice>(
    device: &D,
    set: Set,
    ends: &mut [u32],
    (first, end): (u32, u32),
) -> Result<()> {
    let there: Vec<Vec<u8>> = (0..)
        .zip(ends.iter())
        .map(|(column, written)| {
            let part = Part {
                column,
                row: first,
                rows: (*written).clamp(first, end) - first,
                at: 0,
            };
            read(device, set, part)
        })
        .collect::<Result<_>>()?;
    let mut missing: Vec<BufferMut> = ends
        .iter()
        .map(|written| BufferMut::zeroed((end - (*written).clamp(first, end)) as usize))
        .collect();
    for row in first..end {
        let Some(last) = ends.iter().rposition(|written| *written <= row) else {
            continue;
        };
        let mut whole = vec![0; BLOCK_SIZE];
        let start = (row - first) as usize * BLOCK_SIZE;
        for column in &there {
            if let Some(block) = column.get(start..start + BLOCK_SIZE) {
                match row {
                    0 => whole.copy_from_slice(block),
                    _ => add(&mut whole, block),
                }
            }
        }
        let lacks = ends
            .iter()
            .enumerate()
            .filter(|(_, written)| **written <= row);
        for (column, written) in lacks {
            let at = (row - (*written).max(first)) as usize * BLOCK_SIZE;
            if (column == last && !fault(Fault::ParityNotMadeGood) || row == 0)
                && let Some(block) = missing
                    .get_mut(column)
                    .and_then(|column| column.get_mut(at..at + BLOCK_SIZE))
            {
                block.copy_from_slice(&whole);
            }
        }
    }
    let written = missing
        .into_iter()
        .zip(ends.iter_mut())
        .zip(0..)
        .filter(|((missing, _), _)| missing.blocks() > 0)
        .map(|((missing, written), column)| {
            let block = *written;
            *written = end;
            device.submit(Command::Write {
                zone: set.member(column),
                block,
                data: vec![missing.freeze()],
            })
        });
    write::all(set, written.collect()).wait().map(drop)
}

/// What a zone has of some rows; what of that cannot be read is as good as zeros.
fn read<D: ZonedDevice>(device: &D, set: Set, part: Part) -> Result<Vec<u8>> {
    if part.rows == 0 {
        return Ok(Vec::new());
    }
    let read = |block, blocks| -> Result<Option<Buffer>> {
        let zone = set.member(part.column);
        match device.run(Command::Read {
            zone,
            block,
            blocks,
        }) {
            Ok(Completion::Read(buffer)) => Ok(Some(buffer)),
            Err(DeviceError::Gone) => Err(of_member(DeviceError::Gone, set)),
            Ok(_) | Err(_) => Ok(None),
        }
    };
    if let Some(all) = read(part.row, part.rows)? {
        return Ok(all.to_vec());
    }
    let mut whole = Vec::with_capacity(part.rows as usize * BLOCK_SIZE);
    for row in part.row..part.row + part.rows {
        match read(row, 1)? {
            Some(block) => whole.extend_from_slice(&block),
            None => whole.resize(whole.len() + BLOCK_SIZE, 0),
        }
    }
    Ok(whole)
}
