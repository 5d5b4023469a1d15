//! Packed pieces: compressed blocks of files, several in a block of the device.
//!
//! A piece is one file block as an LZ4 block (no frame). On the device it begins at a multiple of
//! [`GRAIN`] bytes and takes whole grains; it may go on in the next block. What zones hold is
//! counted in grains, so that a zone is empty exactly when nothing lives in it.

use std::iter::Sum;
use std::ops::AddAssign;

use crate::codec::{Put, Reader};
use crate::{Addr, BLOCK_SIZE, Result, checksum};

/// Bytes that pieces are aligned to and counted in.
pub const GRAIN: usize = 16;
/// Grains of a block.
pub const BLOCK_GRAINS: u64 = (BLOCK_SIZE / GRAIN) as u64;
const _: () = assert!(BLOCK_GRAINS == 256);

/// So many grains. A number of its own kind, for where counts of blocks are about too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Grains(pub u64);

impl Grains {
    /// None.
    pub const ZERO: Grains = Grains(0);

    /// Those of whole blocks.
    #[must_use]
    pub const fn of_blocks(blocks: u64) -> Grains {
        Grains(blocks * BLOCK_GRAINS)
    }

    /// Those that so many bytes take.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> Grains {
        Grains(bytes.div_ceil(GRAIN) as u64)
    }

    /// Blocks that they would fill, the last one perhaps in part.
    #[must_use]
    pub const fn blocks(self) -> u64 {
        self.0.div_ceil(BLOCK_GRAINS)
    }

    /// The bytes of them.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize * GRAIN
    }

    /// Less so many, or none where there are fewer.
    #[must_use]
    pub const fn saturating_sub(self, other: Grains) -> Grains {
        Grains(self.0.saturating_sub(other.0))
    }
}

/// What a damaged device claims may add up to anything.
impl AddAssign for Grains {
    fn add_assign(&mut self, other: Grains) {
        self.0 = self.0.saturating_add(other.0);
    }
}

impl Sum for Grains {
    fn sum<I: Iterator<Item = Grains>>(grains: I) -> Grains {
        Grains(grains.map(|grains| grains.0).sum())
    }
}

/// Bytes of a piece as an extent's value, after the tag.
pub(crate) const LEN: usize = 18;

/// A compressed block among others. Bytes: address 0..8, grain in the block 8, file blocks 9 (1;
/// up to 32 are reserved), compressed bytes 10..14, CRC-32C of them 14..18.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// Block that it begins in.
    pub addr: Addr,
    /// Where in that block, in grains.
    pub grain: u8,
    /// Compressed bytes: at least one, less than a block.
    pub len: u16,
    /// CRC-32C of the compressed bytes.
    pub crc: u32,
}

impl Packed {
    /// The piece that begins at byte `at`, a multiple of [`GRAIN`], of the blocks from `addr` on.
    #[must_use]
    pub fn at(addr: Addr, at: usize, compressed: &[u8]) -> Packed {
        Packed {
            addr: addr.offset((at / BLOCK_SIZE) as u32),
            grain: (at % BLOCK_SIZE / GRAIN) as u8,
            len: compressed.len() as u16,
            crc: checksum::data_block(compressed),
        }
    }

    /// First byte in its first block.
    #[must_use]
    pub fn start(&self) -> usize {
        usize::from(self.grain) * GRAIN
    }

    /// Blocks that hold it: one or two.
    #[must_use]
    pub fn span(&self) -> u32 {
        (self.start() + usize::from(self.len)).div_ceil(BLOCK_SIZE) as u32
    }

    /// Grains it takes.
    #[must_use]
    pub fn grains(&self) -> Grains {
        Grains::of_bytes(self.len.into())
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
        out.put_u8(self.grain);
        out.put_u8(1);
        out.put_u32(self.len.into());
        out.put_u32(self.crc);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Packed> {
        let addr = Addr::from_raw(r.u64()?);
        let grain = r.u8()?;
        let blocks = r.u8()?;
        if blocks != 1 {
            return Err(r.bad("blocks of a piece", blocks.into()));
        }
        let len = r.u32()?;
        Ok(Packed {
            addr,
            grain,
            len: checked_len(r, len.into())?,
            crc: r.u32()?,
        })
    }
}

/// The length of a piece as read.
pub(crate) fn checked_len(r: &Reader<'_>, len: u64) -> Result<u16> {
    if len == 0 || len >= BLOCK_SIZE as u64 {
        return Err(r.bad("length of a piece", len));
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
