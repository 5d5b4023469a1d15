//! Packed extents: compressed blocks of files, several in a block of the device.
//!
//! A packed extent is one file block as an LZ4 block (no frame). On the device it begins at a multiple of
//! [`PACK_UNIT`] bytes and takes whole packing units; it may go on in the next block. What zones hold is
//! counted in packing units, so that a zone is empty exactly when nothing lives in it.

use std::iter::Sum;
use std::ops::AddAssign;

use crate::codec::{Put, Reader};
use crate::{Addr, BLOCK_SIZE, Result, checksum};

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

/// Bytes of a packed extent as an extent's value, after the tag.
pub(crate) const LEN: usize = 18;

/// A compressed block among others. Bytes: address 0..8, packing unit in the block 8, file blocks 9 (1;
/// up to 32 are reserved), compressed bytes 10..14, CRC-32C of them 14..18.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// Block that it begins in.
    pub addr: Addr,
    /// Where in that block, in packing units.
    pub unit: u8,
    /// Compressed bytes: at least one, less than a block.
    pub len: u16,
    /// CRC-32C of the compressed bytes.
    pub crc: u32,
}

impl Packed {
    /// The packed extent that begins at byte `at`, a multiple of [`PACK_UNIT`], of the blocks from `addr` on.
    #[must_use]
    pub fn at(addr: Addr, at: usize, compressed: &[u8]) -> Packed {
        Packed {
            addr: addr.offset((at / BLOCK_SIZE) as u32),
            unit: (at % BLOCK_SIZE / PACK_UNIT) as u8,
            len: compressed.len() as u16,
            crc: checksum::data_block(compressed),
        }
    }

    /// First byte in its first block.
    #[must_use]
    pub fn start(&self) -> usize {
        usize::from(self.unit) * PACK_UNIT
    }

    /// Blocks that hold it: one or two.
    #[must_use]
    pub fn span(&self) -> u32 {
        (self.start() + usize::from(self.len)).div_ceil(BLOCK_SIZE) as u32
    }

    /// Packing units it takes.
    #[must_use]
    pub fn pack_units(&self) -> PackUnits {
        PackUnits::of_bytes(self.len.into())
    }

    /// Its compressed bytes out of the blocks that hold it, if they are what they should be.
    #[must_use]
    pub fn verified<'a>(&self, blocks: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = self.bytes(blocks)?;
        (checksum::data_block(bytes) == self.crc).then_some(bytes)
    }

    /// Its compressed bytes out of the blocks that hold it, whatever they are.
    #[must_use]
    pub fn bytes<'a>(&self, blocks: &'a [u8]) -> Option<&'a [u8]> {
        blocks.get(self.start()..self.start() + usize::from(self.len))
    }

    /// The file block out of the blocks that hold it; `None` if they are not what they should be.
    #[must_use]
    pub fn content(&self, blocks: &[u8]) -> Option<[u8; BLOCK_SIZE]> {
        decompress(self.verified(blocks)?)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(self.addr.to_raw());
        out.put_u8(self.unit);
        out.put_u8(1);
        out.put_u32(self.len.into());
        out.put_u32(self.crc);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Packed> {
        let addr = Addr::from_raw(r.u64()?);
        let unit = r.u8()?;
        let blocks = r.u8()?;
        if blocks != 1 {
            return Err(r.bad("blocks of a packed extent", blocks.into()));
        }
        let len = r.u32()?;
        Ok(Packed {
            addr,
            unit,
            len: checked_len(r, len.into())?,
            crc: r.u32()?,
        })
    }
}

/// The length of a packed extent as read.
pub(crate) fn checked_len(r: &Reader<'_>, len: u64) -> Result<u16> {
    if len == 0 || len >= BLOCK_SIZE as u64 {
        return Err(r.bad("length of a packed extent", len));
    }
    Ok(len as u16)
}

/// A block compressed, if that takes at most `bytes_max` bytes.
#[must_use]
pub fn compress(block: &[u8; BLOCK_SIZE], bytes_max: usize) -> Option<Vec<u8>> {
    let packed = lz4_flex::block::compress(block);
    (packed.len() <= bytes_max.min(BLOCK_SIZE - 1)).then_some(packed)
}

/// The block that was compressed. `None` if these are not bytes that [`compress`] makes: they end
/// early, or give more or less than a block.
#[must_use]
pub fn decompress(bytes: &[u8]) -> Option<[u8; BLOCK_SIZE]> {
    let mut block = [0; BLOCK_SIZE];
    let len = lz4_flex::block::decompress_into(bytes, &mut block).ok()?;
    (len == BLOCK_SIZE).then_some(block)
}
