//! What a device says of itself whose zones are used in stripe sets, so that none of them can take anything along. It is the first
//! block of each of the device's last two zones, which hold nothing else.
//!
//! Bytes: magic 0..8, version 8..12, columns of a set for data 12..16, UUID of the volume 16..32, sets for the log and
//! metadata 32..36 (0: they are in the sets for data), zones of the device without these two 36..40, blocks from zone to zone 40..44,
//! and in version 2, of a device that has grown: zones that it had before 44..48; zeros, XXH3-64 of all that 4088..4096.

use crate::checksum;
use crate::codec::{Put, Reader};
use crate::{BLOCK_SIZE, Result};

/// First eight bytes.
pub const MAGIC: [u8; 8] = *b"PRSMSETS";
/// Version of this block, of a device that has grown.
pub const VERSION: u32 = 2;
/// That of a device that has not.
const VERSION_AS_MADE: u32 = 1;
/// Most columns of a set: with more, a zone is too small a share of what is read to know it again.
pub const COLUMNS_MAX: u32 = 15;
const CHECKSUM_OFFSET: usize = BLOCK_SIZE - 8;
const WHAT: &str = "stripe label";

/// The label of a device in stripe sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripeLabel {
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Zones of a set for data, beside that of parity: 1 to [`COLUMNS_MAX`].
    pub columns: u32,
    /// The first so many sets are for the log and metadata, and have one column; 0: all sets are for all.
    pub metadata_sets: u32,
    /// Zones of the device, without those of the label.
    pub zone_count: u32,
    /// Blocks from zone to zone.
    pub zone_blocks: u32,
    /// Zones that it had before it grew last, if it did: its label was in those behind them.
    pub before: Option<u32>,
}

impl StripeLabel {
    /// As stored: one block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_SIZE);
        out.put(&MAGIC);
        out.put_u32(match self.before {
            None => VERSION_AS_MADE,
            Some(_) => VERSION,
        });
        out.put_u32(self.columns);
        out.put(&self.uuid);
        out.put_u32(self.metadata_sets);
        out.put_u32(self.zone_count);
        out.put_u32(self.zone_blocks);
        if let Some(before) = self.before {
            out.put_u32(before);
        }
        out.resize(CHECKSUM_OFFSET, 0);
        let sum = checksum::plain(&out);
        out.put_u64(sum);
        out
    }

    /// As read.
    pub fn decode(block: &[u8]) -> Result<StripeLabel> {
        let (mut r, version) = Reader::of_versions(block, MAGIC, VERSION, WHAT)?;
        let columns = r.u32()?;
        if !(1..=COLUMNS_MAX).contains(&columns) {
            return Err(r.bad("columns", columns.into()));
        }
        let uuid = r.array()?;
        let metadata_sets = r.u32()?;
        if columns > 1 && metadata_sets == 0 {
            // The log is written block by block, and a row of them has several.
            return Err(r.bad("metadata sets", metadata_sets.into()));
        }
        Ok(StripeLabel {
            columns,
            uuid,
            metadata_sets,
            zone_count: r.u32()?,
            zone_blocks: r.u32()?,
            before: match version {
                ..=VERSION_AS_MADE => None,
                _ => Some(r.u32()?),
            },
        })
    }
}
