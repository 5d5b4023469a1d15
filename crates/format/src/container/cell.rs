//! The two tables: a cell a zone in each. The first has write pointers; the second only states, so that
//! it is written when a zone begins, ends or is reset, and not with every flush.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{put, u32_at, u64_at};

/// Bytes of a zone record.
pub const RECORD_BYTES: usize = 32;
/// Bytes of a slot: one record, written twice.
pub const SLOT_BYTES: usize = 2 * RECORD_BYTES;
/// Bytes of a cell: the two slots of a zone.
pub const CELL_BYTES: usize = 2 * SLOT_BYTES;

// A cell never straddles a sector.
const _: () = assert!(CELL_BYTES == 128 && 512 % CELL_BYTES == 0);

/// State of a zone as recorded. Open zones are recorded as closed: a device that comes up has no
/// open zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordedState {
    /// Nothing written.
    Empty = 1,
    /// Written in part.
    Closed = 2,
    /// Full or finished.
    Full = 3,
    /// Never writable again.
    ReadOnly = 4,
    /// Never readable again.
    Offline = 5,
    /// In the second table: written in part, or open. How far the first one tells.
    InUse = 6,
}

/// State and write pointer of a zone at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRecord {
    /// Counted from 1 over the life of the container, in each table by itself; the larger counts.
    /// A zone's first record has 2: it fills the cell.
    pub sequence: u64,
    /// The zone.
    pub zone: u32,
    /// Blocks written. In a finished zone blocks from here on read as zeros.
    pub written: u32,
    /// How often the zone was reset.
    pub resets: u32,
    /// State.
    pub state: RecordedState,
}

impl ZoneRecord {
    /// The sequence of a record that was never written since: of a cell's two slots it is in the first, as even ones are.
    pub const UNUSED_SEQUENCE: u64 = 2;

    /// What fills a zone's cells when a container is made.
    #[must_use]
    pub fn unused(zone: u32) -> ZoneRecord {
        ZoneRecord {
            sequence: ZoneRecord::UNUSED_SEQUENCE,
            zone,
            written: 0,
            resets: 0,
            state: RecordedState::Empty,
        }
    }

    /// The record's bytes.
    #[must_use]
    pub fn encode(&self, seed: u64) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        put(&mut bytes, 0, &self.sequence.to_le_bytes());
        put(&mut bytes, 8, &self.zone.to_le_bytes());
        put(&mut bytes, 12, &self.written.to_le_bytes());
        put(&mut bytes, 16, &self.resets.to_le_bytes());
        put(&mut bytes, 20, &[self.state as u8]);
        let checksum = record_checksum(&bytes, seed);
        put(&mut bytes, 24, &checksum.to_le_bytes());
        bytes
    }

    /// The bytes of the slot the record goes to: twice the same.
    #[must_use]
    pub fn encode_slot(&self, seed: u64) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        let record = self.encode(seed);
        put(&mut slot, 0, &record);
        put(&mut slot, RECORD_BYTES, &record);
        slot
    }

    /// The bytes of a whole cell with this as the newest record: what begins a cell, and repairs
    /// a damaged one. The other slot says the same with the sequence before, so that a zone's
    /// first record is not safe only by half.
    #[must_use]
    pub fn encode_cell(&self, seed: u64) -> [u8; CELL_BYTES] {
        let mut cell = [0; CELL_BYTES];
        let before = ZoneRecord {
            sequence: self.sequence.saturating_sub(1),
            ..*self
        };
        put(&mut cell, before.slot_offset(), &before.encode_slot(seed));
        put(&mut cell, self.slot_offset(), &self.encode_slot(seed));
        cell
    }

    /// Where in its cell the record's slot is.
    #[must_use]
    pub fn slot_offset(&self) -> usize {
        (self.sequence & 1) as usize * SLOT_BYTES
    }

    fn decode(bytes: &[u8], zone: u32, seed: u64) -> Option<ZoneRecord> {
        if u64_at(bytes, 24) != record_checksum(bytes, seed) {
            return None;
        }
        let state = match bytes.get(20)? {
            1 => RecordedState::Empty,
            2 => RecordedState::Closed,
            3 => RecordedState::Full,
            4 => RecordedState::ReadOnly,
            5 => RecordedState::Offline,
            6 => RecordedState::InUse,
            _ => return None,
        };
        let record = ZoneRecord {
            sequence: u64_at(bytes, 0),
            zone: u32_at(bytes, 8),
            written: u32_at(bytes, 12),
            resets: u32_at(bytes, 16),
            state,
        };
        (record.zone == zone && record.sequence > 0).then_some(record)
    }
}

/// What the cell of a zone says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// All four copies are as they were written.
    Good(ZoneRecord),
    /// A copy is damaged, but the newest record is certain.
    Healed(ZoneRecord),
    /// The newest record may be lost. The newest sequence seen, or 0.
    Lost(u64),
}

/// Reads the cell of `zone`. A written slot holds the same record twice, and the slots hold two
/// successive records: whatever is not so is damage, zeros too.
#[must_use]
pub fn decode_cell(cell: &[u8; CELL_BYTES], zone: u32, seed: u64) -> Cell {
    let (even, odd) = cell.split_at(SLOT_BYTES);
    let slots = [read_slot(even, zone, seed), read_slot(odd, zone, seed)];
    let seen = |slot: &Slot| slot.record.map_or(0, |record| record.sequence);
    let [first, second] = &slots;
    let (newer, older) = if seen(first) > seen(second) {
        (first, second)
    } else {
        (second, first)
    };
    let Some(record) = newer.record else {
        return Cell::Lost(0);
    };
    let before = older
        .record
        .and_then(|before| before.sequence.checked_add(1));
    if before != Some(record.sequence) {
        return Cell::Lost(record.sequence);
    }
    if newer.intact && older.intact {
        Cell::Good(record)
    } else {
        Cell::Healed(record)
    }
}

struct Slot {
    record: Option<ZoneRecord>,
    intact: bool,
}

fn read_slot(slot: &[u8], zone: u32, seed: u64) -> Slot {
    let (first, second) = slot.split_at(RECORD_BYTES.min(slot.len()));
    let [first, second] = [first, second].map(|bytes| ZoneRecord::decode(bytes, zone, seed));
    let record = match (first, second) {
        (Some(a), Some(b)) if b.sequence > a.sequence => Some(b),
        (Some(a), _) => Some(a),
        (None, b) => b,
    };
    Slot {
        record,
        intact: first.is_some() && first == second,
    }
}

fn record_checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes.get(..24).unwrap_or(&[]), seed)
}
