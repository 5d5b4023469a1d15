//! Packed extents: compressed frames of files, which share blocks of the device.
//!
//! A compressed frame is 1 to [`COMPRESSED_BLOCKS_MAX`] blocks of a file, compressed together. On the device it begins at a
//! multiple of [`PACK_UNIT`] bytes and takes whole packing units; it may go on in the next blocks. What zones hold is
//! counted in packing units, so that a zone is empty exactly when nothing lives in it.
//!
//! A packed extent is what a file still has of such a frame. When the file overwrites a part of it, two extents may be left
//! that name the same frame, always in the file blocks that it was written for. So all of them are found by a look at those
//! blocks, and the frame is counted once: see [`Packed::stored`].

use std::iter::Sum;
use std::ops::AddAssign;

use crate::codec::{Put, Reader};
use crate::compression::{Codec, Compression};
use crate::dictionary::Dictionary;
use crate::extent::Extent;
use crate::frame_part::FramePart;
use crate::{Addr, BLOCK_SIZE, Ino, Result, checksum};

/// File blocks that one compressed frame may have (128 KiB).
pub const COMPRESSED_BLOCKS_MAX: usize = 32;

/// Bytes that packed extents are aligned to and counted in.
pub const PACK_UNIT: usize = 16;
/// Packing units of a block.
pub const BLOCK_PACK_UNITS: u64 = (BLOCK_SIZE / PACK_UNIT) as u64;
const _: () = assert!(BLOCK_PACK_UNITS == 256);

/// A number of packing units, with a type of its own so that it is not mixed up with counts of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackUnits(pub u64);

impl PackUnits {
    /// None.
    pub const ZERO: PackUnits = PackUnits(0);

    /// Those of whole blocks.
    #[must_use]
    pub const fn of_blocks(blocks: u64) -> PackUnits {
        PackUnits(blocks * BLOCK_PACK_UNITS)
    }

    /// Those that so many bytes take.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> PackUnits {
        PackUnits(bytes.div_ceil(PACK_UNIT) as u64)
    }

    /// Blocks that they would fill, the last one perhaps in part.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        self.0.div_ceil(BLOCK_PACK_UNITS)
    }

    /// The bytes of them.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize * PACK_UNIT
    }

    /// Less so many, or none where there are fewer.
    #[must_use]
    pub const fn saturating_sub(self, other: PackUnits) -> PackUnits {
        PackUnits(self.0.saturating_sub(other.0))
    }
}

/// What a damaged device claims may add up to anything.
impl AddAssign for PackUnits {
    fn add_assign(&mut self, other: PackUnits) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sum for PackUnits {
    fn sum<I: Iterator<Item = PackUnits>>(units: I) -> PackUnits {
        PackUnits(units.map(|units| units.0).sum())
    }
}

/// Bytes of a packed extent of a whole frame of one LZ4 block as an extent's value, after the tag.
pub(crate) const BLOCK_LEN: usize = 18;
/// Bytes of any other one, without its dictionary.
pub(crate) const FRAME_LEN: usize = 21;

/// A compressed frame, wherever it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompressedFrame {
    /// How it was compressed.
    pub codec: Codec,
    /// Blocks of the file that it gives, 1 to [`COMPRESSED_BLOCKS_MAX`].
    pub blocks: u8,
    /// Compressed bytes: at least one, fewer than it gives.
    pub len: u32,
    /// CRC-32C of them.
    pub crc: u32,
}

impl CompressedFrame {
    /// The frame of `blocks` blocks that was compressed to these bytes.
    #[must_use]
    pub fn of(codec: Codec, blocks: u8, compressed: &[u8]) -> CompressedFrame {
        CompressedFrame {
            codec,
            blocks,
            len: compressed.len() as u32,
            crc: checksum::data_block(compressed),
        }
    }

    /// One block as LZ4 has it. Such frames may lie inline in the tree before they are packed.
    #[must_use]
    pub fn of_block(compressed: &[u8]) -> CompressedFrame {
        CompressedFrame::of(Codec::Lz4, 1, compressed)
    }

    /// Whether it is one block as LZ4 has it, for which extents and summary entries have a shorter form.
    pub(crate) fn is_of_block(&self) -> bool {
        self.codec == Codec::Lz4 && self.blocks == 1
    }

    /// Packing units it takes.
    #[must_use]
    pub fn pack_units(&self) -> PackUnits {
        PackUnits::of_bytes(self.len as usize)
    }

    /// Its content out of its compressed bytes and the content of its dictionary, which is empty without one. `None` if they do not give
    /// that.
    #[must_use]
    pub fn decompress(&self, compressed: &[u8], dictionary: &[u8]) -> Option<Vec<u8>> {
        self.codec
            .decompress(compressed, self.blocks.into(), dictionary)
    }

    pub(crate) fn read_blocks(r: &mut Reader<'_>) -> Result<u8> {
        let blocks = r.u8()?;
        if blocks == 0 || usize::from(blocks) > COMPRESSED_BLOCKS_MAX {
            return Err(r.bad("blocks of a compressed frame", blocks.into()));
        }
        Ok(blocks)
    }

    /// A length as read, of a frame of so many blocks.
    pub(crate) fn checked_len(r: &Reader<'_>, len: u64, blocks: u8) -> Result<u32> {
        if len == 0 || len >= u64::from(blocks) * BLOCK_SIZE as u64 {
            return Err(r.bad("length of a compressed frame", len));
        }
        Ok(len as u32)
    }
}

/// What a frame counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// In its zone.
    pub units: PackUnits,
    /// In the file's `st_blocks`, units of 512 bytes.
    pub sectors: u64,
}

impl Stored {
    /// What it is more than a smaller one.
    #[must_use]
    pub fn beyond(self, less: Stored) -> Stored {
        Stored {
            units: self.units.saturating_sub(less.units),
            sectors: self.sectors.saturating_sub(less.sectors),
        }
    }
}

/// What a file has of a compressed frame. Bytes of a whole frame of one LZ4 block: address 0..8, packing unit in the block 8, 1
/// at 9, compressed bytes 10..14, CRC-32C of them 14..18. Of others: address 0..8, packing unit 8, codec 9, blocks of the frame 10,
/// blocks of it before this part 11, blocks of this part 12, compressed bytes 13..17, CRC-32C of them 17..21, and with a [`Dictionary`] that
/// 21..30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// Block that the frame begins in.
    pub addr: Addr,
    /// Where in that block, in packing units.
    pub unit: u8,
    /// The frame.
    pub frame: CompressedFrame,
    /// Blocks of the frame before this part.
    pub skip: u8,
    /// Blocks of this part.
    pub blocks: u8,
}

impl Packed {
    /// The packed extent of a whole frame that begins at byte `at`, a multiple of [`PACK_UNIT`], of the blocks from `addr` on.
    #[must_use]
    pub fn at(addr: Addr, at: usize, frame: CompressedFrame) -> Packed {
        Packed {
            addr: addr.offset((at / BLOCK_SIZE) as u32),
            unit: (at % BLOCK_SIZE / PACK_UNIT) as u8,
            frame,
            skip: 0,
            blocks: frame.blocks,
        }
    }

    /// Whether it is all of its frame.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.blocks == self.frame.blocks
    }

    /// All of its frame.
    #[must_use]
    pub fn whole(&self) -> Packed {
        Packed {
            skip: 0,
            blocks: self.frame.blocks,
            ..*self
        }
    }

    /// Whether both are of one frame.
    #[must_use]
    pub fn shares_frame(&self, other: &Packed) -> bool {
        self.whole() == other.whole()
    }

    /// The file blocks that the frame was written for, if the file has this part at `block`; `None` if it cannot be there.
    #[must_use]
    pub fn frame_at(&self, block: u64) -> Option<(u64, u64)> {
        let start = block.checked_sub(self.skip.into())?;
        Some((start, start.checked_add(self.frame.blocks.into())?))
    }

    /// Blocks of it from `skip` on, at most `take`.
    #[must_use]
    pub fn part(&self, skip: u64, take: u64) -> Packed {
        let skip = skip.min(self.blocks.into()) as u8;
        Packed {
            skip: self.skip + skip,
            blocks: take.min((self.blocks - skip).into()) as u8,
            ..*self
        }
    }

    /// Takes in the part of its frame that follows this one; false if it is another.
    pub fn join(&mut self, next: &Packed) -> bool {
        let follows = self.shares_frame(next) && self.skip + self.blocks == next.skip;
        if follows {
            self.blocks += next.blocks;
        }
        follows
    }

    /// What its frame counts as while the file has `live` blocks of it: what it takes on the device, but no more than these
    /// blocks would as they are. Cleaning writes them anew where that is less, so what is counted is what will be needed.
    #[must_use]
    pub fn stored(&self, live: u64) -> Stored {
        let bytes = u64::from(self.frame.len).min(live * BLOCK_SIZE as u64);
        Stored {
            units: PackUnits::of_bytes(bytes as usize),
            sectors: bytes.div_ceil(512),
        }
    }

    /// First byte in its first block.
    #[must_use]
    pub fn start(&self) -> usize {
        usize::from(self.unit) * PACK_UNIT
    }

    /// Blocks of the device that hold the frame.
    #[must_use]
    pub fn span(&self) -> u32 {
        (self.start() + self.frame.len as usize).div_ceil(BLOCK_SIZE) as u32
    }

    /// The compressed bytes out of the blocks that hold the frame, if they are what they should be.
    #[must_use]
    pub fn verified<'a>(&self, blocks: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = self.bytes(blocks)?;
        (checksum::data_block(bytes) == self.frame.crc).then_some(bytes)
    }

    /// The compressed bytes out of the blocks that hold the frame, whatever they are.
    #[must_use]
    pub fn bytes<'a>(&self, blocks: &'a [u8]) -> Option<&'a [u8]> {
        blocks.get(self.start()..self.start() + self.frame.len as usize)
    }

    /// What has to be read beside the frame to know its content.
    #[must_use]
    pub fn dictionary(&self) -> Option<Dictionary> {
        self.frame.codec.dictionary()
    }

    /// The content of the whole frame out of the blocks that hold it, and the content of its dictionary; `None` if they are not what they
    /// should be.
    #[must_use]
    pub fn frame_content(&self, blocks: &[u8], dictionary: &[u8]) -> Option<Vec<u8>> {
        self.frame.decompress(self.verified(blocks)?, dictionary)
    }

    /// The file blocks of this part, by the same.
    #[must_use]
    pub fn content(&self, blocks: &[u8], dictionary: &[u8]) -> Option<Vec<u8>> {
        let content = self.frame_content(blocks, dictionary)?;
        Some(self.of_frame(&content)?.to_vec())
    }

    /// Bytes it takes as stored.
    pub(crate) fn encoded_len(&self) -> usize {
        match self.is_short() {
            true => BLOCK_LEN,
            false => FRAME_LEN + self.dictionary().map_or(0, |_| Dictionary::LEN),
        }
    }

    /// The file blocks of this part out of the content of the whole frame.
    #[must_use]
    pub fn of_frame<'a>(&self, content: &'a [u8]) -> Option<&'a [u8]> {
        let start = usize::from(self.skip) * BLOCK_SIZE;
        content.get(start..start + usize::from(self.blocks) * BLOCK_SIZE)
    }

    /// Whether it has the shorter form as stored: that of all there is without the feature
    /// [`crate::zone_header::FRAMES`].
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.frame.is_of_block()
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.addr.to_raw());
        out.put_u8(self.unit);
        if self.is_short() {
            out.put_u8(1);
        } else {
            out.put_u8(self.frame.codec.number());
            out.put_u8(self.frame.blocks);
            out.put_u8(self.skip);
            out.put_u8(self.blocks);
        }
        out.put_u32(self.frame.len);
        out.put_u32(self.frame.crc);
        if let Some(dictionary) = self.dictionary() {
            dictionary.put(out);
        }
    }

    /// In the shorter form.
    pub(crate) fn read_short(r: &mut Reader<'_>) -> Result<Packed> {
        let addr = Addr::from_raw(r.u64()?);
        let unit = r.u8()?;
        let blocks = r.u8()?;
        if blocks != 1 {
            return Err(r.bad("blocks of a packed extent", blocks.into()));
        }
        let len = u64::from(r.u32()?);
        let frame = CompressedFrame {
            codec: Codec::Lz4,
            blocks,
            len: CompressedFrame::checked_len(r, len, blocks)?,
            crc: r.u32()?,
        };
        Ok(Packed {
            addr,
            unit,
            frame,
            skip: 0,
            blocks,
        })
    }

    /// In the other form.
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Packed> {
        let addr = Addr::from_raw(r.u64()?);
        let unit = r.u8()?;
        let codec = r.u8()?;
        let frame_blocks = CompressedFrame::read_blocks(r)?;
        let (skip, blocks) = (r.u8()?, r.u8()?);
        if blocks == 0 || u16::from(skip) + u16::from(blocks) > u16::from(frame_blocks) {
            return Err(r.bad("blocks of a packed extent", blocks.into()));
        }
        let len = u64::from(r.u32()?);
        let (len, crc) = (
            CompressedFrame::checked_len(r, len, frame_blocks)?,
            r.u32()?,
        );
        let frame = CompressedFrame {
            codec: Codec::read(codec, r, Dictionary::read)?,
            blocks: frame_blocks,
            len,
            crc,
        };
        if frame.is_of_block() {
            return Err(r.bad("blocks of a compressed frame", frame_blocks.into()));
        }
        Ok(Packed {
            addr,
            unit,
            frame,
            skip,
            blocks,
        })
    }
}

/// Counts the compressed frames that files have once each, where extents come in the order of their keys.
#[derive(Clone, Debug, Default)]
pub struct FrameTally {
    ino: Ino,
    /// Frames of which more may come: the first part, the file block that has it, and the blocks seen.
    frames: Vec<(FramePart, u64, u64)>,
}

impl FrameTally {
    /// What an extent at this block of a file adds to what was counted.
    pub fn extent(&mut self, ino: Ino, block: u64, extent: &Extent) -> Stored {
        match extent.frame_part() {
            Some(part) => self.part(ino, block, part),
            None => extent.stored(0),
        }
    }

    /// What a part of a frame at this block of a file adds to what was counted for the frame.
    fn part(&mut self, ino: Ino, block: u64, part: FramePart) -> Stored {
        if part.is_whole() {
            return part.stored(part.blocks());
        }
        if self.ino != ino {
            self.ino = ino;
            self.frames.clear();
        }
        self.frames
            .retain(|(first, at, _)| first.end_at(*at) > block);
        let mut known = self.frames.iter_mut();
        let same = known.find(|(first, at, _)| first.counts_with(*at, &part, block));
        if let Some((_, _, seen)) = same {
            let share = part.share(*seen);
            *seen += part.blocks();
            return share;
        }
        self.frames.push((part, block, part.blocks()));
        part.stored(part.blocks())
    }
}

/// A block compressed with LZ4, if that takes at most `bytes_max` bytes.
#[must_use]
pub fn compress(block: &[u8; BLOCK_SIZE], bytes_max: usize) -> Option<Vec<u8>> {
    let (_, packed) = Compression::Lz4.compress(block, bytes_max)?;
    Some(packed)
}

/// The block that was compressed. `None` if these are not bytes that [`compress`] makes: they end
/// early, or give more or less than a block.
#[must_use]
pub fn decompress(bytes: &[u8]) -> Option<[u8; BLOCK_SIZE]> {
    let mut block = [0; BLOCK_SIZE];
    let len = lz4_flex::block::decompress_into(bytes, &mut block).ok()?;
    (len == BLOCK_SIZE).then_some(block)
}
