//! Reading from stripe sets: each block from its column, or from what the other zones of the set have in its row.

use std::sync::Arc;

use super::layout::{Part, Set};
use super::of_member;
use super::state::of_set;
use crate::{
    BLOCK_SIZE, Buffer, BufferMut, Command, Completion, DeviceError, Pending, Result, ZoneInfo,
    ZoneState, ZonedDevice,
};

/// Starts reading some blocks of a set. What cannot be read of a column is made of the others.
pub(super) fn start<D: ZonedDevice + 'static>(
    device: &Arc<D>,
    set: Set,
    block: u32,
    blocks: u32,
) -> Pending {
    let parts: Vec<(Part, Pending)> = set
        .parts(block, blocks)
        .into_iter()
        .map(|part| (part, start_rows(&**device, set, part.column, part)))
        .collect();
    let device = Arc::clone(device);
    Pending::deferred(move || {
        let read = parts.into_iter().map(|(part, pending)| {
            let read = rows(pending).or_else(|error| match error {
                DeviceError::Gone => Err(error),
                error => instead(&*device, set, part, error),
            });
            Ok((part, read.map_err(|error| of_member(error, set))?))
        });
        gathered(set, blocks, read).map(Completion::Read)
    })
}

/// Reads blocks as if what one zone has of them were wrong: the one that is number `attempt` of those that have some of it.
/// Nothing, when there is no further one.
pub(super) fn without<D: ZonedDevice>(
    device: &D,
    set: Set,
    block: u32,
    blocks: u32,
    attempt: u32,
) -> Option<Result<Buffer>> {
    let parts = set.parts(block, blocks);
    // Of a header each zone has a copy, which can be any of the others.
    let is_header = block == 0 && blocks == 1;
    let (wrong, copy_of) = if is_header {
        (0, Some(attempt + 1).filter(|zone| *zone <= set.columns)?)
    } else {
        (attempt as usize, set.columns)
    };
    parts.get(wrong)?;
    let read = parts.iter().enumerate().map(|(number, part)| {
        let read = if number == wrong {
            let copy = Some(copy_of).filter(|_| part.row == 0);
            rebuilt(device, set, *part, copy).or_else(|error| match error {
                DeviceError::Gone => Err(error),
                error => rebuilt_in_part(device, set, *part, error),
            })
        } else {
            rows(start_rows(device, set, part.column, *part))
                .or_else(|error| instead(device, set, *part, error))
        };
        Ok((*part, read.map_err(|error| of_member(error, set))?))
    });
    Some(gathered(set, blocks, read))
}

/// Whether the rows of some blocks are what they have to be: the parity the exclusive or of the columns. A zone that is lost is
/// known as such, and leaves nothing to compare. They may be more than a command can read.
pub(super) fn rows_agree<D: ZonedDevice>(
    device: &D,
    set: Set,
    block: u32,
    blocks: u32,
) -> Result<bool> {
    let first = set.row(block);
    let last = set.row(block.saturating_add(blocks.saturating_sub(1)));
    let row = Part {
        column: 0,
        row: first.max(1),
        rows: last.saturating_sub(first.max(1)) + u32::from(last > 0),
        at: 0,
    };
    if first == 0 {
        let header = Part {
            rows: 1,
            row: 0,
            ..row
        };
        let copies = of_all(device, set, header);
        let copies: Vec<Buffer> = copies.into_iter().collect::<Result<_>>()?;
        let agree = copies.windows(2).all(|two| two[0][..] == two[1][..]);
        if !agree || row.rows == 0 {
            return Ok(agree);
        }
    }
    // The device below takes no more of a column in one command.
    let limit = device.geometry().max_transfer_blocks.max(1);
    let end = row.row + row.rows;
    let mut at = row.row;
    while at < end {
        let some = Part {
            row: at,
            rows: limit.min(end - at),
            ..row
        };
        let mut sum = BufferMut::zeroed(some.rows as usize);
        for column in of_all(device, set, some) {
            add(&mut sum, &column?);
        }
        if sum.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += some.rows;
    }
    Ok(true)
}

/// Rows of a column that could not be read. Where its zone is lost all are made of the others. Else the zone has most of them
/// itself, and the others stand in for those alone that it has not: there they may have something wrong where it is right.
fn instead<D: ZonedDevice>(device: &D, set: Set, part: Part, error: DeviceError) -> Result<Buffer> {
    let is_offline = |state: &ZoneState| *state == ZoneState::Offline;
    let is_lost = matches!(&error, DeviceError::BadState { state, .. } if is_offline(state));
    if (is_lost || part.rows == 1)
        && let Ok(rebuilt) = rebuilt(device, set, part, None)
    {
        return Ok(rebuilt);
    }
    let zones = device.report(set.zones())?;
    let own = zones.get(part.column as usize);
    if !is_lost
        && part.rows > 1
        && own.is_some_and(|own| is_offline(&own.state))
        && let Ok(rebuilt) = rebuilt(device, set, part, None)
    {
        return Ok(rebuilt);
    }
    let is_over = is_over(set, &zones, part);
    if part.rows == 1 && !is_over {
        return Err(error);
    }
    let mut whole = BufferMut::zeroed(part.rows as usize);
    match one_by_one(device, set, part, is_over, &mut whole) {
        Ok(()) => Ok(whole.freeze()),
        Err(_) => Err(error),
    }
}

/// Rows of a column that could not be read at once, from wherever each can be read: in halves, for few may be what is wrong.
fn one_by_one<D: ZonedDevice>(
    device: &D,
    set: Set,
    part: Part,
    is_over: bool,
    to: &mut [u8],
) -> Result<()> {
    let half = part.rows.div_ceil(2);
    let (first, second) = to.split_at_mut(half as usize * BLOCK_SIZE);
    let halves = [(part.row, half), (part.row + half, part.rows - half)];
    for ((row, rows_of_half), to) in halves.into_iter().zip([first, second]) {
        let part = Part {
            row,
            rows: rows_of_half,
            ..part
        };
        if part.rows == 0 {
            continue;
        }
        let own = match rows(start_rows(device, set, part.column, part)) {
            Ok(own) => {
                to.copy_from_slice(&own);
                continue;
            }
            Err(own) => own,
        };
        if part.rows > 1 {
            one_by_one(device, set, part, is_over, to)?;
            continue;
        }
        let is_past_end = |error: &DeviceError| matches!(error, DeviceError::ReadPastEnd { .. });
        match rebuilt(device, set, part, None) {
            Ok(rebuilt) => to.copy_from_slice(&rebuilt),
            // What was not written can be read of a zone that is full or read-only, and so of a set that looks like one.
            Err(other) if is_over && (is_past_end(&own) || is_past_end(&other)) => {}
            Err(_) => return Err(own),
        }
    }
    Ok(())
}

/// Whether nothing will be written any more to rows of a set, which it has.
fn is_over(set: Set, zones: &[ZoneInfo], part: Part) -> bool {
    let looks = of_set(&set, zones);
    let is_inside = set.blocks(part.row + part.rows) <= looks.capacity;
    is_inside && matches!(looks.state, ZoneState::Full | ZoneState::ReadOnly)
}

fn of_all<D: ZonedDevice>(device: &D, set: Set, part: Part) -> Vec<Result<Buffer>> {
    let pending: Vec<Pending> = (0..=set.columns)
        .map(|column| start_rows(device, set, column, part))
        .collect();
    pending.into_iter().map(rows).collect()
}

fn start_rows<D: ZonedDevice>(device: &D, set: Set, column: u32, part: Part) -> Pending {
    device.submit(Command::Read {
        zone: set.member(column),
        block: part.row,
        blocks: part.rows,
    })
}

fn rows(pending: Pending) -> Result<Buffer> {
    match pending.wait()? {
        Completion::Read(buffer) => Ok(buffer),
        other => Err(DeviceError::Protocol {
            expected: "read",
            got: other.name(),
        }),
    }
}

/// What a column has to hold, by the others of the set; of a header the copy in one of them.
fn rebuilt<D: ZonedDevice>(device: &D, set: Set, part: Part, copy: Option<u32>) -> Result<Buffer> {
    if part.row == 0 {
        let columns = copy.map_or(0..set.columns + 1, |copy| copy..copy + 1);
        let others = columns.filter(|column| *column != part.column);
        let mut last = None;
        for column in others {
            match rows(start_rows(device, set, column, part)) {
                Ok(header) => return Ok(header),
                Err(error) => last = Some(error),
            }
        }
        return Err(last.unwrap_or(DeviceError::Gone));
    }
    let others = (0..=set.columns).filter(|column| *column != part.column);
    let pending: Vec<Pending> = others
        .map(|column| start_rows(device, set, column, part))
        .collect();
    // The whole of a mirror is the other one.
    let mut sum: Option<Buffer> = None;
    for column in pending {
        let column = rows(column)?;
        sum = Some(match sum {
            None => column,
            Some(sum) => {
                let mut sum = sum.into_mut();
                add(&mut sum, &column);
                sum.freeze()
            }
        });
    }
    sum.ok_or(DeviceError::Gone)
}

/// The same where others of the set cannot be read whole: as many rows as can be made of them, and of the column itself those for
/// which they lack something. There need be nothing wrong with these. Where all would be of the column nothing is won.
fn rebuilt_in_part<D: ZonedDevice>(
    device: &D,
    set: Set,
    part: Part,
    error: DeviceError,
) -> Result<Buffer> {
    if part.rows == 1 {
        return Err(error);
    }
    let mut whole = BufferMut::zeroed(part.rows as usize);
    let mut some_rebuilt = false;
    for (row, to) in (part.row..).zip(whole.chunks_exact_mut(BLOCK_SIZE)) {
        let part = Part {
            row,
            rows: 1,
            ..part
        };
        match rebuilt(device, set, part, None) {
            Ok(block) => {
                some_rebuilt = true;
                to.copy_from_slice(&block);
            }
            Err(_) => {
                let own = rows(start_rows(device, set, part.column, part))?;
                to.copy_from_slice(&own);
            }
        }
    }
    if some_rebuilt {
        Ok(whole.freeze())
    } else {
        Err(error)
    }
}

/// Puts the blocks of columns in their order.
fn gathered(
    set: Set,
    blocks: u32,
    parts: impl ExactSizeIterator<Item = Result<(Part, Buffer)>>,
) -> Result<Buffer> {
    let is_one = parts.len() == 1;
    let mut whole = BufferMut::unspecified(if is_one { 0 } else { blocks as usize });
    for part in parts {
        let (part, column) = part?;
        if is_one {
            return Ok(column);
        }
        for (place, block) in part
            .places(set.columns)
            .zip(column.chunks_exact(BLOCK_SIZE))
        {
            let start = place * BLOCK_SIZE;
            if let Some(to) = whole.get_mut(start..start + BLOCK_SIZE) {
                to.copy_from_slice(block);
            }
        }
    }
    Ok(whole.freeze())
}

/// Adds to a sum, which is the exclusive or.
pub(super) fn add(sum: &mut [u8], column: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(column) {
        *sum ^= byte;
    }
}
