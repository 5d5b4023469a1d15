//! Zone management of the ZNS command set: what is done to zones, and their report.

use std::fs::File;
use std::ops::Range;

use super::identify::{u32_at, u64_at};
use super::passthrough::{NvmeCommand, Queue, op, run};
use crate::linux::Action;
use crate::linux::failure::Failure;
use crate::{BLOCK_SIZE, BufferMut, ZoneId, ZoneInfo, ZoneKind, ZoneState};

/// Bytes asked for at a time: a header, and 1023 zones of 64 bytes.
const REPORT_BYTES: usize = 64 << 10;
const HEADER_BYTES: usize = 64;
const DESCRIPTOR_BYTES: usize = 64;
const DESCRIPTORS: u32 = ((REPORT_BYTES - HEADER_BYTES) / DESCRIPTOR_BYTES) as u32;
/// Only so many zones as the answer holds are counted in it.
const PARTIAL: u32 = 1 << 16;

/// A namespace with zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub nsid: u32,
    /// Bytes of a logical block are two to the power of this.
    pub block_shift: u32,
    /// Logical blocks from one zone to the next.
    pub zone_blocks: u64,
    pub zone_count: u32,
}

/// A zone as the drive reports it, in logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    pub start: u64,
    pub write_pointer: u64,
    pub capacity: u64,
    pub kind: ZoneKind,
    pub state: ZoneState,
}

impl Namespace {
    /// Where a block of a zone is.
    pub fn lba(&self, zone: ZoneId, block: u32) -> u64 {
        u64::from(zone.0) * self.zone_blocks + u64::from(block) * self.per_block()
    }

    /// The block of a zone at a logical block.
    pub fn block(&self, zone: ZoneId, lba: u64) -> u32 {
        let from_start = lba.saturating_sub(self.lba(zone, 0));
        u32::try_from(from_start / self.per_block()).unwrap_or(u32::MAX)
    }

    /// Logical blocks of a block.
    pub fn per_block(&self) -> u64 {
        (BLOCK_SIZE as u64 >> self.block_shift).max(1)
    }

    /// In blocks, from the start of the zone. Of a block that is written in part nothing counts.
    pub fn info(&self, zone: &Zone) -> ZoneInfo {
        let blocks = |lbas: u64| u32::try_from(lbas / self.per_block()).unwrap_or(u32::MAX);
        let capacity = blocks(zone.capacity);
        ZoneInfo {
            kind: zone.kind,
            state: zone.state,
            capacity,
            write_pointer: match zone.state {
                ZoneState::Full => capacity,
                ZoneState::Empty => 0,
                _ => blocks(zone.write_pointer.saturating_sub(zone.start)).min(capacity),
            },
        }
    }

    /// Logical blocks of its last block that are written, if that is not all of them.
    pub fn torn_blocks(&self, zone: &Zone) -> u64 {
        if !zone.state.is_active() {
            return 0;
        }
        zone.write_pointer.saturating_sub(zone.start) % self.per_block()
    }

    /// Writes zeros to the rest of a block that is written in part.
    pub fn pad(&self, file: &File, zone: ZoneId) -> Result<(), Failure> {
        let found = self.report(file, zone.0..zone.0.saturating_add(1))?;
        let Some(zone) = found.first().filter(|zone| self.torn_blocks(zone) > 0) else {
            return Ok(());
        };
        let missing = self.per_block() - self.torn_blocks(zone);
        let mut zeros = BufferMut::zeroed(1);
        let zeros = zeros.get_mut(..(missing << self.block_shift) as usize);
        let command = NvmeCommand {
            cdw12: missing as u32 - 1,
            ..NvmeCommand::at(op::WRITE, self.nsid, zone.write_pointer)
        };
        run(file, Queue::Io, command, zeros.unwrap_or_default())
    }

    /// Does something to a zone. Returns when it is done.
    pub fn manage(&self, file: &File, zone: ZoneId, action: Action) -> Result<(), Failure> {
        let command = NvmeCommand {
            cdw13: match action {
                Action::Close => 1,
                Action::Finish => 2,
                Action::Open => 3,
                Action::Reset => 4,
            },
            ..NvmeCommand::at(op::ZONE_SEND, self.nsid, self.lba(zone, 0))
        };
        run(file, Queue::Io, command, &mut [])
    }

    /// These zones; fewer if the drive says so.
    pub fn report(&self, file: &File, zones: Range<u32>) -> Result<Vec<Zone>, Failure> {
        let mut found = Vec::with_capacity(zones.len());
        let mut data = BufferMut::zeroed(REPORT_BYTES / BLOCK_SIZE);
        let mut at = zones.start;
        while at < zones.end {
            let wanted = (zones.end - at).min(DESCRIPTORS) as usize;
            let bytes = HEADER_BYTES + wanted * DESCRIPTOR_BYTES;
            let command = NvmeCommand {
                cdw12: bytes as u32 / 4 - 1,
                cdw13: PARTIAL,
                ..NvmeCommand::at(op::ZONE_RECEIVE, self.nsid, self.lba(ZoneId(at), 0))
            };
            let answer = data.get_mut(..bytes).unwrap_or_default();
            run(file, Queue::Io, command, answer)?;
            let part = decode(answer);
            if part.is_empty() {
                break;
            }
            at = at.saturating_add(part.len() as u32);
            found.extend(part);
        }
        found.truncate(zones.len());
        Ok(found)
    }
}

fn decode(report: &[u8]) -> Vec<Zone> {
    let count = usize::try_from(u64_at(report, 0)).unwrap_or(usize::MAX);
    let descriptors = report.get(HEADER_BYTES..).unwrap_or_default();
    let descriptors = descriptors.as_chunks::<DESCRIPTOR_BYTES>().0;
    let zones = descriptors.iter().take(count).map(|zone| Zone {
        start: u64_at(zone, 16),
        write_pointer: u64_at(zone, 24),
        capacity: u64_at(zone, 8),
        kind: match u32_at(zone, 0) & 0xf {
            2 => ZoneKind::Sequential,
            _ => ZoneKind::Conventional,
        },
        // What is unknown is not written to.
        state: match u32_at(zone, 0) >> 12 & 0xf {
            1 => ZoneState::Empty,
            2 => ZoneState::ImplicitlyOpen,
            3 => ZoneState::ExplicitlyOpen,
            4 => ZoneState::Closed,
            0xe => ZoneState::Full,
            0xf => ZoneState::Offline,
            _ => ZoneState::ReadOnly,
        },
    });
    zones.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_in_blocks() {
        let mut report = vec![0; HEADER_BYTES + 3 * DESCRIPTOR_BYTES];
        report[0] = 2;
        for (number, state, pointer) in [(0u64, 4u8, 19u64), (1, 0xe, u64::MAX)] {
            let zone = &mut report[HEADER_BYTES + number as usize * 64..][..64];
            zone[0] = 2;
            zone[1] = state << 4;
            zone[8..16].copy_from_slice(&1600u64.to_le_bytes());
            zone[16..24].copy_from_slice(&(number * 2048).to_le_bytes());
            zone[24..32].copy_from_slice(&pointer.to_le_bytes());
        }
        let zones = decode(&report);
        let namespace = Namespace {
            nsid: 1,
            block_shift: 9,
            zone_blocks: 2048,
            zone_count: 2,
        };
        let infos: Vec<_> = zones.iter().map(|zone| namespace.info(zone)).collect();
        let expected = |state, write_pointer| ZoneInfo {
            kind: ZoneKind::Sequential,
            state,
            capacity: 200,
            write_pointer,
        };
        assert_eq!(
            infos,
            [
                expected(ZoneState::Closed, 2),
                expected(ZoneState::Full, 200)
            ]
        );
        assert_eq!(namespace.lba(ZoneId(1), 3), 2072);
        assert_eq!(namespace.block(ZoneId(1), 2072), 3);
        assert!(decode(&[]).is_empty());
    }
}
