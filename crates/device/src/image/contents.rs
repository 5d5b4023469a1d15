//! What zones hold, where their records are lost.

use std::io;

use persimmon_format::container::Layout;

use super::host::Host;
use super::open::Notice;
use super::table::{Condition, Found, FoundState, TABLE_CHUNK_BYTES};
use crate::zones::Snapshot;
use crate::{BLOCK_SIZE, Buffer, ZoneId, ZoneState};

/// The zones of an image, as bytes.
pub(super) struct Contents<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) layout: &'a Layout,
    /// Blocks of each zone.
    pub(super) capacity: u32,
}

impl Contents<'_> {
    /// Whether a zone has anything but zeros from this block on.
    fn has_any(&self, zone: ZoneId, block: u32) -> io::Result<bool> {
        let start = self.layout.data + u64::from(zone.0) * self.layout.zone_stride;
        let place = |block: u32| start + u64::from(block) * BLOCK_SIZE as u64;
        let (mut at, end) = (place(block), place(self.capacity));
        // Most zones in use begin with their header.
        let mut step = BLOCK_SIZE as u64;
        let mut chunk = Vec::new();
        while at < end {
            step = step.min(end - at);
            chunk.resize(step as usize, 0);
            self.host.read_at(&mut chunk, at)?;
            if chunk.iter().any(|byte| *byte != 0) {
                return Ok(true);
            }
            at += step;
            step = TABLE_CHUNK_BYTES;
        }
        Ok(false)
    }
}

/// What of the tables is damaged, collected zone by zone.
#[derive(Default)]
pub(super) struct Damage {
    zones: Vec<Notice>,
    /// Records lost in each table.
    lost: [u32; 2],
    /// Zones whose records are to be written again.
    pub(super) rewrite: Vec<ZoneId>,
}

impl Damage {
    /// The state of a zone. One whose write pointer is lost counts as full, so that all its blocks can be read
    /// and none is written again before a reset: checksums decide what they hold.
    pub(super) fn judge(
        &mut self,
        zone: ZoneId,
        found: Found,
        contents: &Contents<'_>,
    ) -> io::Result<Snapshot> {
        let is_damaged = found.cells != [Condition::Sound; 2];
        if is_damaged || found.second_is_behind {
            self.rewrite.push(zone);
        }
        for (lost, cell) in self.lost.iter_mut().zip(found.cells) {
            *lost += u32::from(cell == Condition::Lost);
        }
        if found.cells.contains(&Condition::Healed) {
            self.zones.push(Notice::ZoneRecord { zone });
        }
        let resets = match found.state {
            FoundState::Known(snapshot) => return Ok(snapshot),
            FoundState::InUse(resets) => resets,
            FoundState::Lost if contents.has_any(zone, 0)? => 0,
            FoundState::Lost => {
                return Ok(Snapshot {
                    state: ZoneState::Empty,
                    written: 0,
                    resets: 0,
                });
            }
        };
        self.zones.push(Notice::ZoneRecordLost { zone });
        Ok(Snapshot {
            state: ZoneState::Full,
            written: contents.capacity,
            resets,
        })
    }

    /// The state of a zone that holds something beyond its write pointer, which is not to be trusted.
    pub(super) fn distrust(
        &mut self,
        zone: ZoneId,
        known: Snapshot,
        contents: &Contents<'_>,
    ) -> io::Result<Option<Snapshot>> {
        let is_certain = matches!(known.state, ZoneState::ReadOnly | ZoneState::Offline);
        if is_certain || !contents.has_any(zone, known.written)? {
            return Ok(None);
        }
        self.rewrite.push(zone);
        self.zones.push(Notice::ZoneRecordLost { zone });
        Ok(Some(Snapshot {
            state: ZoneState::Full,
            written: contents.capacity,
            resets: known.resets,
        }))
    }

    /// All that is to be told.
    pub(super) fn notices(&self) -> Vec<Notice> {
        let tables = (1..).zip(self.lost).filter(|(_, zones)| *zones > 0);
        let tables = tables.map(|(table, zones)| Notice::TableRecords { table, zones });
        tables.chain(self.zones.iter().copied()).collect()
    }
}

/// A host that is shorter than the image on it: what is missing reads as zeros.
pub(super) struct Shortened {
    host: Box<dyn Host>,
    length: u64,
}

impl Shortened {
    /// A host of so many bytes, for reading.
    pub(super) fn new(host: Box<dyn Host>, length: u64) -> Shortened {
        Shortened { host, length }
    }
}

impl Host for Shortened {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let there = self.length.saturating_sub(offset).min(into.len() as u64);
        let (there, missing) = into.split_at_mut(there as usize);
        missing.fill(0);
        if there.is_empty() {
            Ok(())
        } else {
            self.host.read_at(there, offset)
        }
    }

    fn write_at(&self, _: &[Buffer], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn write_bytes_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn drop_cached(&self) -> io::Result<()> {
        self.host.drop_cached()
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_file(&self) -> bool {
        self.host.is_file()
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}
