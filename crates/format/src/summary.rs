//! Summary blocks of data zones: whose the blocks since the last summary are, and their
//! checksums. They guide cleaning and disaster recovery; the tree is the truth.
//!
//! In the envelope, owner is the sequence of the zone and sequence the block's place in it.
//! Payload: block of the summary before it in the zone 0..4 (0: none), number of entries and [`SHORT`] 4..8, then the
//! entries.
//!
//! An entry says what is other than where the one before ends (the first: than zeros): first a tag, u8: 0 one block, 1 a
//! run of several, 2 a compressed frame of one LZ4 block, 3 another one, and [`OTHER_INO`], [`OTHER_PLACE`]. Then the inode and
//! the place in the zone, if they are other (varints), how far the file block is from the one expected (varint, zigzag), of a run
//! the number of its blocks (varint), and the CRC-32C of each block; of a compressed frame its packing unit in the block (u8),
//! with tag 3 its codec and its blocks (u8 each), its compressed bytes (varint) and their CRC-32C, and with a dictionary that: its
//! first block (varint) and its blocks (u8). In the zone a run ends in the
//! block after it, a compressed frame in the block that it begins in; in the file both end in the block after them.

use crate::codec::{Put, Reader};
use crate::compression::Codec;
use crate::dictionary::Dictionary;
use crate::envelope::{self, BLOCK_PAYLOAD, Kind};
use crate::extent::FRAME_BLOCKS_MAX;
use crate::packed::{CompressedFrame, PACK_UNIT, Packed};
use crate::{Addr, BLOCK_SIZE, DeviceId, Ino, Result, VolumeKey, ZoneId};

const PREFIX_LEN: usize = 8;
/// Bit of the number of entries that is always set: they are short, see [`crate::zone_header::COMPACT`].
const SHORT: u32 = 1 << 31;
/// Tag of an entry of one block.
const ONE: u8 = 0;
/// Of a run of several.
const RUN: u8 = 1;
/// Of a compressed frame of one LZ4 block.
const PACKED: u8 = 2;
/// Of another compressed frame.
const PACKED_FRAME: u8 = 3;
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

/// A compressed frame and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedEntry {
    /// Block that it begins in, in the zone.
    pub zone_block: u32,
    /// Where in that block, in packing units.
    pub unit: u8,
    /// The frame.
    pub frame: CompressedFrame,
    /// File it was written for.
    pub ino: Ino,
    /// First block in the file.
    pub file_block: u64,
}

impl PackedEntry {
    /// The packed extent of the whole frame, in this zone.
    #[must_use]
    pub fn packed(&self, zone: ZoneId) -> Packed {
        let addr = Addr::new(DeviceId(0), zone, self.zone_block);
        Packed::at(addr, usize::from(self.unit) * PACK_UNIT, self.frame)
    }
}

/// Compressed frames that always fit one summary.
pub const PACKED_ENTRIES_MIN: usize = 96;
// A tag, three varints: 4 bytes of zone block, 10 + 8 of owner; packing unit, codec, blocks, length, checksum, dictionary.
const _: () = assert!(
    PACKED_ENTRIES_MIN * (1 + 4 + 10 + 8 + 1 + 1 + 1 + 3 + 4 + 9) <= BLOCK_PAYLOAD - PREFIX_LEN
);

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

    /// Whether there is room for these compressed frames.
    #[must_use]
    pub fn fits_packed(&self, packed: impl Iterator<Item = PackedEntry>) -> bool {
        let mut with = self.clone();
        packed.for_each(|entry| with.push_packed(&entry));
        with.bytes.len() <= BLOCK_PAYLOAD - PREFIX_LEN
    }

    /// Adds a compressed frame; the caller asked [`SummaryBuilder::fits_packed`].
    pub fn push_packed(&mut self, entry: &PackedEntry) {
        let begin = End {
            zone_block: entry.zone_block,
            ino: entry.ino,
            file_block: entry.file_block,
        };
        let frame = &entry.frame;
        let kind = if frame.is_of_block() {
            PACKED
        } else {
            PACKED_FRAME
        };
        self.put_begin(begin, kind);
        self.bytes.put_u8(entry.unit);
        if kind == PACKED_FRAME {
            self.bytes.put_u8(frame.codec.number());
            self.bytes.put_u8(frame.blocks);
        }
        self.bytes.put_varint(frame.len.into());
        self.bytes.put_u32(frame.crc);
        if let Some(dictionary) = frame.codec.dictionary() {
            dictionary.put_short(&mut self.bytes);
        }
        self.end = begin.after(0, frame.blocks.into());
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
        let kind = if blocks == 1 { ONE } else { RUN };
        self.put_begin(begin, kind);
        if kind == RUN {
            self.bytes.put_varint(blocks.into());
        }
        for crc in &entry.crcs {
            self.bytes.put_u32(*crc);
        }
        self.end = begin.after(blocks, blocks);
        self.count += 1;
    }

    /// What every entry begins with.
    fn put_begin(&mut self, begin: End, kind: u8) {
        let flag = |is_other: bool, flag: u8| if is_other { flag } else { 0 };
        let other_ino = flag(begin.ino != self.end.ino, OTHER_INO);
        let other_place = flag(begin.zone_block != self.end.zone_block, OTHER_PLACE);
        self.bytes.put_u8(kind | other_ino | other_place);
        if other_ino != 0 {
            self.bytes.put_varint(begin.ino.0);
        }
        if other_place != 0 {
            self.bytes.put_varint(begin.zone_block.into());
        }
        let further = begin.file_block.wrapping_sub(self.end.file_block) as i64;
        self.bytes.put_varint((further << 1 ^ further >> 63) as u64);
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
    /// Of an entry that begins here, has so many blocks of the zone to itself, and so many of the file.
    fn after(self, blocks: u32, file_blocks: u32) -> End {
        End {
            zone_block: self.zone_block.wrapping_add(blocks),
            ino: self.ino,
            file_block: self.file_block.wrapping_add(file_blocks.into()),
        }
    }

    /// Reads where the entry behind this one begins, and its kind.
    fn read_next(self, r: &mut Reader<'_>) -> Result<(End, u8)> {
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
        let kind = tag & !(OTHER_INO | OTHER_PLACE);
        if kind > PACKED_FRAME {
            return Err(r.bad("tag", tag.into()));
        }
        let begin = End {
            zone_block,
            ino,
            file_block: self.file_block.wrapping_add(further),
        };
        Ok((begin, kind))
    }
}

fn read_frame(r: &mut Reader<'_>, kind: u8) -> Result<CompressedFrame> {
    let (codec, blocks) = match kind {
        PACKED => (Codec::Lz4.number(), 1),
        _ => (r.u8()?, CompressedFrame::read_blocks(r)?),
    };
    let len = r.varint()?;
    let (len, crc) = (CompressedFrame::checked_len(r, len, blocks)?, r.u32()?);
    let frame = CompressedFrame {
        codec: Codec::read(codec, r, Dictionary::read_short)?,
        blocks,
        len,
        crc,
    };
    if kind == PACKED_FRAME && frame.is_of_block() {
        return Err(r.bad("blocks of a compressed frame", blocks.into()));
    }
    Ok(frame)
}

/// A summary as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where in the zone the summary before this one is; 0 if this is the first.
    pub previous: u32,
    /// What it describes: runs of whole blocks.
    pub entries: Vec<SummaryEntry>,
    /// Compressed frames and their owners.
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
            let (begin, kind) = end.read_next(&mut r)?;
            let End {
                zone_block: place,
                ino,
                file_block,
            } = begin;
            if kind == PACKED || kind == PACKED_FRAME {
                let entry = PackedEntry {
                    zone_block: place,
                    unit: r.u8()?,
                    frame: read_frame(&mut r, kind)?,
                    ino,
                    file_block,
                };
                end = begin.after(0, entry.frame.blocks.into());
                if place >= zone_block
                    || place.saturating_add(entry.packed(ZoneId(0)).span()) > zone_block
                {
                    return Err(r.bad("compressed frame", place.into()));
                }
                packed.push(entry);
                continue;
            }
            let blocks = match kind {
                ONE => 1,
                _ => match r.varint_u32("blocks")? {
                    blocks @ 0..2 => return Err(r.bad("blocks", blocks.into())),
                    blocks => blocks,
                },
            };
            end = begin.after(blocks, blocks);
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
