//! The write-pointer table: one cell a zone, two alternating slots a cell.

use std::io;
use std::sync::{Mutex, MutexGuard};

use persimmon_format::container::{
    CELL_BYTES, Cell, Layout, RecordedState, ZoneRecord, decode_cell,
};

use super::host::Host;
use super::lock;
use crate::zones::Snapshot;
use crate::{DeviceError, Result, ZoneId, ZoneState};

/// Bytes of the table read or written at a time: memory is bounded whatever the zone count.
pub(super) const TABLE_CHUNK_BYTES: u64 = 1 << 20;

/// What is in the file, per zone.
#[derive(Debug)]
pub(super) struct Table {
    offset: u64,
    seed: u64,
    entries: Vec<Mutex<Entry>>,
}

/// The newest record of a zone in the file. Its lock is held while the next record is written, so
/// that records of one zone reach the file in order and each leaves its predecessor alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entry {
    sequence: u64,
    /// The cell has damaged copies, or none yet: write all of it.
    whole: bool,
}

/// A zone as found in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// As recorded.
    Sound(Snapshot),
    /// As recorded; a copy was damaged.
    Healed(Snapshot),
    /// The record is lost.
    Lost,
}

impl Table {
    /// Reads the table; `tell` hears of each zone that was ever used.
    pub(super) fn load(
        host: &dyn Host,
        layout: &Layout,
        zone_count: u32,
        seed: u64,
        mut tell: impl FnMut(ZoneId, Found) -> Result<()>,
        error: impl Fn(io::Error) -> DeviceError,
    ) -> Result<Table> {
        let mut entries = Vec::with_capacity(zone_count as usize);
        let mut at = 0;
        let mut chunk = vec![0; TABLE_CHUNK_BYTES.min(layout.table_bytes) as usize];
        let mut zone = 0;
        while at < layout.table_bytes {
            let length = TABLE_CHUNK_BYTES.min(layout.table_bytes - at) as usize;
            let bytes = chunk.get_mut(..length).unwrap_or(&mut []);
            host.read_at(bytes, layout.table + at).map_err(&error)?;
            for cell in bytes.as_chunks::<CELL_BYTES>().0 {
                if zone == zone_count {
                    break;
                }
                let (entry, found) = read_cell(cell, zone, seed);
                entries.push(Mutex::new(entry));
                if let Some(found) = found {
                    tell(ZoneId(zone), found)?;
                }
                zone += 1;
            }
            at += length as u64;
        }
        Ok(Table {
            offset: layout.table,
            seed,
            entries,
        })
    }

    /// The right to write the next record of a zone.
    pub(super) fn entry(&self, zone: ZoneId) -> Result<MutexGuard<'_, Entry>> {
        self.entries
            .get(zone.0 as usize)
            .map(lock)
            .ok_or(DeviceError::NoSuchZone {
                zone,
                count: self.entries.len() as u32,
            })
    }

    /// Writes the next record of a zone to the host's page cache.
    pub(super) fn write(
        &self,
        host: &dyn Host,
        zone: ZoneId,
        entry: &mut Entry,
        snapshot: Snapshot,
    ) -> io::Result<()> {
        let record = ZoneRecord {
            sequence: entry.sequence.saturating_add(1),
            zone: zone.0,
            written: snapshot.written,
            resets: snapshot.resets,
            state: match snapshot.state {
                ZoneState::Full => RecordedState::Full,
                ZoneState::ReadOnly => RecordedState::ReadOnly,
                ZoneState::Offline => RecordedState::Offline,
                _ if snapshot.written == 0 => RecordedState::Empty,
                _ => RecordedState::Closed,
            },
        };
        let cell = self.offset + u64::from(zone.0) * CELL_BYTES as u64;
        if entry.whole {
            host.write_bytes_at(&record.encode_cell(self.seed), cell)?;
        } else {
            let slot = cell + record.slot_offset() as u64;
            host.write_bytes_at(&record.encode_slot(self.seed), slot)?;
        }
        *entry = Entry {
            sequence: record.sequence,
            whole: false,
        };
        Ok(())
    }
}

fn read_cell(cell: &[u8; CELL_BYTES], zone: u32, seed: u64) -> (Entry, Option<Found>) {
    let snapshot = |record: ZoneRecord| Snapshot {
        state: match record.state {
            RecordedState::Empty => ZoneState::Empty,
            RecordedState::Closed => ZoneState::Closed,
            RecordedState::Full => ZoneState::Full,
            RecordedState::ReadOnly => ZoneState::ReadOnly,
            RecordedState::Offline => ZoneState::Offline,
        },
        written: record.written,
        resets: record.resets,
    };
    let entry = |sequence, whole| Entry { sequence, whole };
    match decode_cell(cell, zone, seed) {
        // The first record has sequence 2 and comes with its predecessor.
        Cell::Unused => (entry(1, true), None),
        Cell::Good(record) => (
            entry(record.sequence, false),
            Some(Found::Sound(snapshot(record))),
        ),
        Cell::Healed(record) => (
            entry(record.sequence, true),
            Some(Found::Healed(snapshot(record))),
        ),
        // Past any record that may be hidden under the damage.
        Cell::Lost(sequence) => (entry(sequence.saturating_add(2), true), Some(Found::Lost)),
    }
}
