//! Writing to stripe sets: whole rows, with their parity.

use super::layout::Set;
use super::of_member;
use super::read::add;
use crate::faults::{Fault, fault};
use crate::{
    BLOCK_SIZE, Buffer, BufferMut, Command, Completion, DeviceError, Pending, Result, ZonedDevice,
};

/// Starts writing to a set. It has succeeded when all zones of the set have what is theirs.
pub(super) fn start<D: ZonedDevice>(
    device: &D,
    set: Set,
    block: u32,
    data: Vec<Buffer>,
) -> Pending {
    let blocks = Command::data_blocks(&data);
    let end = block.saturating_add(blocks);
    let starts = block == 0 || set.ends_row(block);
    if blocks > 0 && !(starts && set.ends_row(end)) {
        return Pending::ready(Err(DeviceError::NotWholeRows {
            zone: set.zone,
            block,
            blocks,
            columns: set.columns,
        }));
    }
    let columns = if set.columns == 1 {
        vec![data.clone(), data]
    } else {
        columns(set, block, &data)
    };
    let row = if block == 0 { 0 } else { set.row(block) };
    let zones = (0..=set.columns).map(|column| set.member(column));
    let pending = zones
        .zip(columns)
        .map(|(zone, data)| {
            device.submit(Command::Write {
                zone,
                block: row,
                data,
            })
        })
        .collect();
    all(set, pending)
}

/// What each zone of a set gets of some blocks.
fn columns(set: Set, block: u32, data: &[Buffer]) -> Vec<Vec<Buffer>> {
    let mut blocks = data
        .iter()
        .flat_map(|buffer| (0..buffer.blocks() as usize).map(|at| buffer.slice(at..at + 1)));
    let mut columns = vec![Vec::new(); set.columns as usize];
    let header = if block == 0 { blocks.next() } else { None };
    for (number, block) in blocks.enumerate() {
        if let Some(column) = columns.get_mut(number % set.columns as usize) {
            column.push(block);
        }
    }
    let rows = columns.first().map_or(0, Vec::len);
    let mut parity = BufferMut::zeroed(rows);
    let summed = columns.len() - usize::from(fault(Fault::ParityLeavesOut));
    for column in columns.iter().take(summed) {
        for (sum, block) in parity.chunks_exact_mut(BLOCK_SIZE).zip(column) {
            add(sum, block);
        }
    }
    columns.push(match rows {
        0 => Vec::new(),
        _ => vec![parity.freeze()],
    });
    if let Some(header) = header {
        for column in &mut columns {
            column.insert(0, header.clone());
        }
    }
    columns
}

/// One command of a set, which is over when it is in all its zones.
pub(super) fn all(set: Set, pending: Vec<Pending>) -> Pending {
    Pending::deferred(move || {
        let left_out = usize::from(fault(Fault::SetNotWaitedFor));
        let waited_for = pending.len().saturating_sub(left_out);
        let pending = pending.into_iter().take(waited_for);
        let done: Vec<Result<Completion>> = pending.map(Pending::wait).collect();
        for done in done {
            done.map_err(|error| of_member(error, set))?;
        }
        Ok(Completion::Done)
    })
}
