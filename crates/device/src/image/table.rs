//! The two tables: one cell a zone in each, two alternating slots a cell.
//!
//! The first has write pointers, and is written with every flush. The second says of a zone that is
//! written in part only that it is in use, so it is written when a zone begins, ends or is reset, and a
//! flush in between costs nothing for it. Both become durable by the same fdatasync.

use std::io;
use std::ops::Range;

use persimmon_format::BLOCK_SIZE;
use persimmon_format::container::{
    CELL_BYTES, Cell, Layout, RecordedState, ZoneRecord, decode_cell,
};

use super::host::Host;
use super::io::io_error;
use super::{ByZone, LOCKS_MAX};
use crate::per_zone::PerZone;
use crate::zones::Snapshot;
use crate::{DeviceError, Result, ZoneId, ZoneState};

/// Bytes of a table read or written at a time: memory is bounded whatever the zone count.
pub(super) const TABLE_CHUNK_BYTES: u64 = 1 << 20;

/// What is in the file, per zone.
#[derive(Debug)]
pub(super) struct Table {
    offsets: [u64; 2],
    seed: u64,
    entries: ByZone<PerZone<Entry>>,
}

/// The newest records of a zone in the file. The zone's lock is held while the next ones are written, so
/// that records of one zone reach the file in order and each leaves its predecessor alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// In the first table, in the second.
    sequences: [u64; 2],
    /// The cell has damaged copies: write all of it.
    whole: [bool; 2],
    /// What the second table says.
    second: Option<RecordedState>,
}

/// A zone as found in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// What is known of it.
    pub(super) state: FoundState,
    /// By table, how its cell is.
    pub(super) cells: [Condition; 2],
    /// The second table says what was before a power cut, or what did not become durable.
    pub(super) second_is_behind: bool,
}

/// What the tables tell of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FoundState {
    /// As recorded.
    Known(Snapshot),
    /// It is in use, and its write pointer is lost; so often it was reset.
    InUse(u32),
    /// Both records are lost.
    Lost,
}

/// How a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// As it was written.
    Sound,
    /// A copy in it is damaged; the others tell the record.
    Healed,
    /// The record is lost.
    Lost,
}

impl Table {
    /// Reads the tables; `tell` hears of each zone that was ever used, or has a damaged cell.
    pub(super) fn load(
        host: &dyn Host,
        layout: &Layout,
        zone_count: u32,
        seed: u64,
        mut tell: impl FnMut(ZoneId, Found) -> Result<()>,
        error: impl Fn(io::Error) -> DeviceError,
    ) -> Result<Table> {
        let each = zone_count.div_ceil(LOCKS_MAX) as usize;
        let entries = ByZone::new(zone_count, || PerZone::filled(each, Entry::UNUSED));
        let mut at = 0;
        let chunk = vec![0; TABLE_CHUNK_BYTES.min(layout.table_bytes) as usize];
        let mut chunks = [chunk.clone(), chunk];
        let mut zone = 0;
        while at < layout.table_bytes {
            let length = TABLE_CHUNK_BYTES.min(layout.table_bytes - at) as usize;
            for (chunk, offset) in chunks.iter_mut().zip(layout.tables) {
                let bytes = chunk.get_mut(..length).unwrap_or(&mut []);
                host.read_at(bytes, offset + at).map_err(&error)?;
            }
            let [first, second] = &chunks;
            let first = first.as_chunks::<CELL_BYTES>().0.iter();
            let cells = first.zip(second.as_chunks::<CELL_BYTES>().0);
            for (first, second) in cells.take(length / CELL_BYTES) {
                if zone == zone_count {
                    break;
                }
                let (entry, found) = read_cells([first, second], zone, seed);
                let (mut shared, at) = entries.get(ZoneId(zone))?;
                shared.set(at, entry);
                drop(shared);
                if found != Found::UNUSED {
                    tell(ZoneId(zone), found)?;
                }
                zone += 1;
            }
            at += length as u64;
        }
        Ok(Table {
            offsets: layout.tables,
            seed,
            entries,
        })
    }

    /// Both tables of a container in which no zone was ever used.
    pub(super) fn write_unused(
        host: &dyn Host,
        layout: &Layout,
        zone_count: u32,
        seed: u64,
    ) -> io::Result<()> {
        let mut chunk = vec![0; TABLE_CHUNK_BYTES.min(layout.table_bytes) as usize];
        let mut at = 0;
        let mut zones = 0..zone_count;
        while at < layout.table_bytes {
            let length = TABLE_CHUNK_BYTES.min(layout.table_bytes - at) as usize;
            let bytes = chunk.get_mut(..length).unwrap_or(&mut []);
            bytes.fill(0);
            for (cell, zone) in bytes
                .as_chunks_mut::<CELL_BYTES>()
                .0
                .iter_mut()
                .zip(&mut zones)
            {
                *cell = ZoneRecord::unused(zone).encode_cell(seed);
            }
            for offset in layout.tables {
                host.write_bytes_at(bytes, offset + at)?;
            }
            at += length as u64;
        }
        Ok(())
    }

    /// What both tables of a container have for these zones, of which none was ever used, and zeros up to the end of a block.
    pub(super) fn write_unused_of(
        host: &dyn Host,
        layout: &Layout,
        zones: Range<u32>,
        seed: u64,
    ) -> io::Result<()> {
        let each = TABLE_CHUNK_BYTES as usize / CELL_BYTES;
        for start in zones.clone().step_by(each) {
            let some = start..zones.end.min(start.saturating_add(each as u32));
            let mut bytes: Vec<u8> = some
                .flat_map(|zone| ZoneRecord::unused(zone).encode_cell(seed))
                .collect();
            let at = u64::from(start) * CELL_BYTES as u64;
            let end = (at + bytes.len() as u64).next_multiple_of(BLOCK_SIZE as u64);
            bytes.resize((end.min(layout.table_bytes) - at) as usize, 0);
            for offset in layout.tables {
                host.write_bytes_at(&bytes, offset + at)?;
            }
        }
        Ok(())
    }

    /// Writes the next record of a zone, as a look at it tells then, to the host's page cache, into the second
    /// table too if that says something else.
    pub(super) fn write(
        &self,
        host: &dyn Host,
        zone: ZoneId,
        look: impl FnOnce() -> Result<Snapshot>,
    ) -> Result<()> {
        let (mut entries, at) = self.entries.get(zone)?;
        let Some(entry) = entries.get_mut(at) else {
            // Of a table that ended before.
            let count = self.entries.zone_count;
            return Err(DeviceError::NoSuchZone { zone, count });
        };
        let snapshot = look()?;
        self.put_both(host, zone, entry, snapshot)
            .map_err(|error| io_error("write of the zone's record", zone, 0, &error))
    }

    fn put_both(
        &self,
        host: &dyn Host,
        zone: ZoneId,
        entry: &mut Entry,
        snapshot: Snapshot,
    ) -> io::Result<()> {
        let mut record = ZoneRecord {
            sequence: 0,
            zone: zone.0,
            written: snapshot.written,
            resets: snapshot.resets,
            state: recorded(snapshot),
        };
        self.put(host, 0, entry, record)?;
        if record.state == RecordedState::Closed {
            record.state = RecordedState::InUse;
            record.written = 0;
        }
        // A reset counts also where the second table never heard that the zone was used.
        if entry.second != Some(record.state) || record.state == RecordedState::Empty {
            self.put(host, 1, entry, record)?;
            entry.second = Some(record.state);
        }
        Ok(())
    }

    fn put(
        &self,
        host: &dyn Host,
        table: usize,
        entry: &mut Entry,
        record: ZoneRecord,
    ) -> io::Result<()> {
        let (Some(sequence), Some(whole), Some(offset)) = (
            entry.sequences.get_mut(table),
            entry.whole.get_mut(table),
            self.offsets.get(table),
        ) else {
            return Ok(());
        };
        let record = ZoneRecord {
            sequence: sequence.saturating_add(1),
            ..record
        };
        let cell = offset + u64::from(record.zone) * CELL_BYTES as u64;
        if *whole {
            host.write_bytes_at(&record.encode_cell(self.seed), cell)?;
        } else {
            let slot = cell + record.slot_offset() as u64;
            host.write_bytes_at(&record.encode_slot(self.seed), slot)?;
        }
        (*sequence, *whole) = (record.sequence, false);
        Ok(())
    }
}

impl Entry {
    /// As a container is made.
    const UNUSED: Entry = Entry {
        sequences: [ZoneRecord::UNUSED_SEQUENCE; 2],
        whole: [false; 2],
        second: Some(RecordedState::Empty),
    };
}

impl Found {
    /// As a container is made.
    const UNUSED: Found = Found {
        state: FoundState::Known(Snapshot {
            state: ZoneState::Empty,
            written: 0,
            resets: 0,
        }),
        cells: [Condition::Sound; 2],
        second_is_behind: false,
    };
}

fn recorded(snapshot: Snapshot) -> RecordedState {
    match snapshot.state {
        ZoneState::Full => RecordedState::Full,
        ZoneState::ReadOnly => RecordedState::ReadOnly,
        ZoneState::Offline => RecordedState::Offline,
        _ if snapshot.written == 0 => RecordedState::Empty,
        _ => RecordedState::Closed,
    }
}

/// What is in the cell of a zone in one table.
struct CellFound {
    sequence: u64,
    condition: Condition,
    record: Option<ZoneRecord>,
}

/// Reads a cell of a table in which no record has the state `foreign`.
fn read_cell(cell: &[u8; CELL_BYTES], zone: u32, seed: u64, foreign: RecordedState) -> CellFound {
    let (condition, record) = match decode_cell(cell, zone, seed) {
        Cell::Good(record) => (Condition::Sound, record),
        Cell::Healed(record) => (Condition::Healed, record),
        Cell::Lost(sequence) => {
            return CellFound {
                // Past any record that may be hidden under the damage.
                sequence: sequence.saturating_add(2),
                condition: Condition::Lost,
                record: None,
            };
        }
    };
    if record.state == foreign {
        CellFound {
            sequence: record.sequence.saturating_add(2),
            condition: Condition::Lost,
            record: None,
        }
    } else {
        CellFound {
            sequence: record.sequence,
            condition,
            record: Some(record),
        }
    }
}

fn read_cells(cells: [&[u8; CELL_BYTES]; 2], zone: u32, seed: u64) -> (Entry, Found) {
    let [first, second] = cells;
    let first = read_cell(first, zone, seed, RecordedState::InUse);
    let second = read_cell(second, zone, seed, RecordedState::Closed);
    let known = |record: ZoneRecord, state| {
        FoundState::Known(Snapshot {
            state,
            written: record.written,
            resets: record.resets,
        })
    };
    let state = match first.record.or(second.record) {
        None => FoundState::Lost,
        Some(record) => match record.state {
            RecordedState::Empty => known(record, ZoneState::Empty),
            RecordedState::Closed => known(record, ZoneState::Closed),
            RecordedState::Full => known(record, ZoneState::Full),
            RecordedState::ReadOnly => known(record, ZoneState::ReadOnly),
            RecordedState::Offline => known(record, ZoneState::Offline),
            RecordedState::InUse => FoundState::InUse(record.resets),
        },
    };
    let said = |record: ZoneRecord| match record.state {
        RecordedState::Closed => (RecordedState::InUse, record.resets, 0),
        state => (state, record.resets, record.written),
    };
    let second_is_behind = match (first.record, second.record) {
        (Some(first), Some(second)) => said(first) != said(second),
        _ => false,
    };
    let second_stands = second.condition == Condition::Sound && !second_is_behind;
    let conditions = [first.condition, second.condition];
    let entry = Entry {
        sequences: [first.sequence, second.sequence],
        whole: conditions.map(|condition| condition != Condition::Sound),
        // What does not stand is written with the zone's next record, whatever that says.
        second: second
            .record
            .map(|record| record.state)
            .filter(|_| second_stands),
    };
    let found = Found {
        state,
        cells: conditions,
        second_is_behind,
    };
    (entry, found)
}
