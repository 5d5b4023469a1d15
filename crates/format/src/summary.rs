//! Summary blocks of data zones: whose the blocks since the last summary are, and their
//! checksums. They guide cleaning and disaster recovery; the tree is the truth.
//!
//! In the envelope, owner is the sequence of the zone and sequence the block's place in it.
//! Payload: block of the summary before it in the zone 0..4 (0: none), number of entries and [`SHORT`] 4..8, then the
//! entries.
//!
//! An entry says what is other than where the one before ends (the first: than zeros): first a tag, u8: 0 one block, 1 a
//! run of several, 2 a packed extent, and [`OTHER_INO`], [`OTHER_PLACE`]. Then the inode and the place in the zone, if
//! they are other (varints), how far the file block is from the one expected (varint, zigzag), of a run the number of its
//! blocks (varint), and the CRC-32C of each block; of a packed extent its packing unit in the block (u8), its compressed
//! bytes (varint) and their CRC-32C. A run ends in the blocks after it, a packed extent in the block that it begins in, and
//! in the file in the next one.

use crate::codec::{Put, Reader};
use crate::envelope::{self, BLOCK_PAYLOAD, Kind};
use crate::extent::FRAME_BLOCKS_MAX;
use crate::packed::{self, Packed};
use crate::{Addr, BLOCK_SIZE, DeviceId, Ino, Result, VolumeKey, ZoneId};

const PREFIX_LEN: usize = 8;
/// Bit of the number of entries that is always set: they are short, see [`crate::zone_header::COMPACT`].
const SHORT: u32 = 1 << 31;
/// Tag of an entry of one block.
const ONE: u8 = 0;
/// Of a run of several.
const RUN: u8 = 1;
/// The kind of a packed extent.
const PACKED: u8 = 2;
/// Bit of a tag: another inode than the entry before.
const OTHER_INO: u8 = 4;
/// Bit of a tag: it does not begin in the zone where the entry before ends.
const OTHER_PLACE: u8 = 8;

/// A run of data blocks and its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryEntry {
    /// First block, in the zone.
    pub zone_block: u32,
    /// File it was written for.
    pub ino: Ino,
    /// First block in the file.
    pub file_block: u64,
    /// CRC-32C of each block; their number is the length of the run.
    pub crcs: Vec<u32>,
}

/// A packed extent and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedEntry {
    /// Block that it begins in, in the zone.
    pub zone_block: u32,
    /// Where in that block, in packing units.
    pub unit: u8,
    /// Compressed bytes.
    pub len: u16,
    /// CRC-32C of them.
    pub crc: u32,
    /// File it was written for.
    pub ino: Ino,
    /// Block of the file.
    pub file_block: u64,
}

impl PackedEntry {
    /// The packed extent, in this zone.
    #[must_use]
    pub fn packed(&self, zone: ZoneId) -> Packed {
        Packed {
            addr: Addr::new(DeviceId(0), zone, self.zone_block),
            unit: self.unit,
            len: self.len,
            crc: self.crc,
        }
    }
}

/// Packed extents that always fit one summary.
pub const PACKED_ENTRIES_MIN: usize = 128;
// A tag, three varints: 4 bytes of zone block, 10 + 8 of owner.
const _: () =
    assert!(PACKED_ENTRIES_MIN * (1 + 4 + 10 + 8 + 1 + 2 + 4) <= BLOCK_PAYLOAD - PREFIX_LEN);

/// Where an entry ends: what the next one is expected to begin with.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    zone_block: u32,
    ino: Ino,
    file_block: u64,
}

/// A summary being put together.
#[derive(Clone, Debug, Default)]
pub struct SummaryBuilder {
    count: u32,
    end: End,
    bytes: Vec<u8>,
}

impl SummaryBuilder {
    /// Whether there is room for one more entry of `blocks` blocks.
    #[must_use]
    pub fn fits(&self, blocks: usize) -> bool {
        // A tag, four varints: 4 bytes of zone block, 10 + 10 of owner, 2 of length at most.
        self.bytes.len() + 27 + 4 * blocks <= BLOCK_PAYLOAD - PREFIX_LEN
    }

    /// No entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there is room for these packed extents.
    #[must_use]
    pub fn fits_packed(&self, packed: impl Iterator<Item = PackedEntry>) -> bool {
        let mut with = self.clone();
        packed.for_each(|entry| with.push_packed(&entry));
        with.bytes.len() <= BLOCK_PAYLOAD - PREFIX_LEN
    }

    /// Adds a packed extent; the caller asked [`SummaryBuilder::fits_packed`].
    pub fn push_packed(&mut self, entry: &PackedEntry) {
        let begin = End {
            zone_block: entry.zone_block,
            ino: entry.ino,
            file_block: entry.file_block,
        };
        self.put_begin(begin, 0);
        self.bytes.put_u8(entry.unit);
        self.bytes.put_varint(entry.len.into());
        self.bytes.put_u32(entry.crc);
        self.end = begin.after(0);
        self.count += 1;
    }

    /// Adds an entry; the caller asked [`SummaryBuilder::fits`].
    pub fn push(&mut self, entry: &SummaryEntry) {
        let begin = End {
            zone_block: entry.zone_block,
            ino: entry.ino,
            file_block: entry.file_block,
        };
        let blocks = entry.crcs.len() as u32;
        self.put_begin(begin, blocks);
        for crc in &entry.crcs {
            self.bytes.put_u32(*crc);
        }
        self.end = begin.after(blocks);
        self.count += 1;
    }

    /// What an entry of so many blocks, 0 of a packed extent, has before its checksums and what a packed extent alone has.
    fn put_begin(&mut self, begin: End, blocks: u32) {
        let flag = |is_other: bool, flag: u8| if is_other { flag } else { 0 };
        let other_ino = flag(begin.ino != self.end.ino, OTHER_INO);
        let other_place = flag(begin.zone_block != self.end.zone_block, OTHER_PLACE);
        let kind = match blocks {
            0 => PACKED,
            1 => ONE,
            _ => RUN,
        };
        self.bytes.put_u8(kind | other_ino | other_place);
        if other_ino != 0 {
            self.bytes.put_varint(begin.ino.0);
        }
        if other_place != 0 {
            self.bytes.put_varint(begin.zone_block.into());
        }
        let further = begin.file_block.wrapping_sub(self.end.file_block) as i64;
        self.bytes.put_varint((further << 1 ^ further >> 63) as u64);
        if kind == RUN {
            self.bytes.put_varint(blocks.into());
        }
    }

    /// From here on the next entry is reckoned as one that begins anywhere in the zone.
    pub fn forget_place(&mut self) {
        self.end.zone_block = u32::MAX;
    }

    /// Fills `block` (of [`BLOCK_SIZE`] bytes, zero) and starts over.
    pub fn finish_into(
        &mut self,
        block: &mut [u8],
        key: &VolumeKey,
        zone_sequence: u64,
        zone_block: u32,
        previous: u32,
    ) {
        debug_assert!(block.len() == BLOCK_SIZE);
        let mut payload = Vec::with_capacity(PREFIX_LEN + self.bytes.len());
        payload.put_u32(previous);
        payload.put_u32(self.count | SHORT);
        payload.put(&self.bytes);
        block[envelope::HEADER_LEN..envelope::HEADER_LEN + payload.len()].copy_from_slice(&payload);
        envelope::seal(
            block,
            key,
            Kind::Summary,
            zone_sequence,
            zone_block.into(),
            payload.len(),
        );
        self.count = 0;
        self.end = End::default();
        self.bytes.clear();
    }
}

impl End {
    /// Of an entry of so many blocks that begins here, 0 of a packed extent.
    fn after(self, blocks: u32) -> End {
        End {
            zone_block: self.zone_block.wrapping_add(blocks),
            ino: self.ino,
            file_block: self.file_block.wrapping_add(blocks.max(1).into()),
        }
    }

    /// Reads where the entry behind this one begins, and its blocks; 0 of a packed extent.
    fn read_next(self, r: &mut Reader<'_>) -> Result<(End, u32)> {
        let tag = r.u8()?;
        let ino = match tag & OTHER_INO {
            0 => self.ino,
            _ => Ino(r.varint()?),
        };
        let zone_block = match tag & OTHER_PLACE {
            0 => self.zone_block,
            _ => r.varint_u32("place")?,
        };
        let further = r.varint()?;
        let further = further >> 1 ^ (further & 1).wrapping_neg();
        let blocks = match tag & !(OTHER_INO | OTHER_PLACE) {
            PACKED => 0,
            ONE => 1,
            RUN => match r.varint_u32("blocks")? {
                blocks @ 0..2 => return Err(r.bad("blocks", blocks.into())),
                blocks => blocks,
            },
            _ => return Err(r.bad("tag", tag.into())),
        };
        let begin = End {
            zone_block,
            ino,
            file_block: self.file_block.wrapping_add(further),
        };
        Ok((begin, blocks))
    }
}

/// A summary as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where in the zone the summary before this one is; 0 if this is the first.
    pub previous: u32,
    /// What it describes: runs of whole blocks.
    pub entries: Vec<SummaryEntry>,
    /// Packed extents and their owners.
    pub packed: Vec<PackedEntry>,
}

impl Summary {
    /// Verifies the summary at `zone_block` of the zone with this sequence.
    pub fn decode(
        block: &[u8],
        key: &VolumeKey,
        zone_sequence: u64,
        zone_block: u32,
    ) -> Result<Summary> {
        let (envelope, payload) = envelope::open(block, key, Kind::Summary, Some(zone_sequence))?;
        let mut r = Reader::new(payload, Kind::Summary.name());
        if envelope.sequence != u64::from(zone_block) {
            return Err(r.bad("place", envelope.sequence));
        }
        let previous = r.u32()?;
        if previous >= zone_block {
            return Err(r.bad("previous", previous.into()));
        }
        let count = r.u32()?;
        if count & SHORT == 0 {
            return Err(r.bad("entries", count.into()));
        }
        let (mut entries, mut packed) = (Vec::new(), Vec::new());
        let mut end = End::default();
        for _ in 0..count & !SHORT {
            let (begin, blocks) = end.read_next(&mut r)?;
            end = begin.after(blocks);
            let End {
                zone_block: place,
                ino,
                file_block,
            } = begin;
            if blocks == 0 {
                let unit = r.u8()?;
                let len = r.varint()?;
                if place >= zone_block {
                    return Err(r.bad("packed extent", place.into()));
                }
                let entry = PackedEntry {
                    zone_block: place,
                    unit,
                    len: packed::checked_len(&r, len)?,
                    crc: r.u32()?,
                    ino,
                    file_block,
                };
                let span = entry.packed(ZoneId(0)).span();
                if place.saturating_add(span) > zone_block {
                    return Err(r.bad("packed extent", place.into()));
                }
                packed.push(entry);
                continue;
            }
            if blocks as usize > FRAME_BLOCKS_MAX || place.saturating_add(blocks) > zone_block {
                return Err(r.bad("run", place.into()));
            }
            let crcs = r.u32s(blocks as usize)?;
            entries.push(SummaryEntry {
                zone_block: place,
                ino,
                file_block,
                crcs,
            });
        }
        r.end()?;
        Ok(Summary {
            previous,
            entries,
            packed,
        })
    }
}
