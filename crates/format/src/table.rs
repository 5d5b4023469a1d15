//! Chunks of the two tables. The Metadata Allocation Table (MAT) says where each logical page is,
//! the Zone Information Table (ZIT) what each zone is used for. Both are arrays cut into
//! block-sized chunks; a checkpoint writes the changed ones, and its footer lists where all are.

use crate::codec::{Put, Reader};
use crate::envelope::BLOCK_PAYLOAD;
use crate::packed::PackUnits;
use crate::{Addr, Result};

/// Where a page is. Bytes: address 0..8, blocks 8..10, reserved 10..12. No blocks: no such page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatEntry {
    /// First block.
    pub addr: Addr,
    /// Blocks it takes; 0 in an unused entry.
    pub blocks: u16,
}

impl MatEntry {
    /// Bytes of an entry.
    pub const LEN: usize = 12;
    /// Entries of a chunk.
    pub const PER_CHUNK: usize = BLOCK_PAYLOAD / Self::LEN;
    /// An unused entry.
    pub const NONE: MatEntry = MatEntry {
        addr: Addr::ZERO,
        blocks: 0,
    };

    /// Whether there is such a page.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.blocks != 0
    }

    /// Appends it as stored.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.addr.to_raw());
        out.put_u16(self.blocks);
        out.put_u16(0);
    }

    fn read(r: &mut Reader<'_>) -> Result<MatEntry> {
        let addr = Addr::from_raw(r.u64()?);
        let blocks = r.u16()?;
        r.u16()?;
        if usize::from(blocks) > crate::page::PAGE_BLOCKS_MAX {
            return Err(r.bad("blocks", blocks.into()));
        }
        Ok(MatEntry { addr, blocks })
    }

    /// All entries of a chunk's payload.
    pub fn decode_chunk(payload: &[u8]) -> Result<Vec<MatEntry>> {
        let mut r = Reader::new(payload, "MAT chunk");
        let mut entries = Vec::with_capacity(Self::PER_CHUNK);
        while !r.is_empty() {
            entries.push(Self::read(&mut r)?);
        }
        Ok(entries)
    }
}

const _: () = assert!(MatEntry::PER_CHUNK == 337 && ZitEntry::PER_CHUNK == 126);

/// What a zone is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// Nothing.
    #[default]
    Free = 0,
    /// Journal blocks and footers.
    Log = 1,
    /// Pages and table chunks.
    Metadata = 2,
    /// File data and summaries.
    Data = 3,
    /// Taken out of use: read-only or offline.
    Retired = 4,
}

impl Role {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Role::Free => "free",
            Role::Log => "log",
            Role::Metadata => "metadata",
            Role::Data => "data",
            Role::Retired => "retired",
        }
    }

    /// The role with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Role> {
        Some(match number {
            0 => Role::Free,
            1 => Role::Log,
            2 => Role::Metadata,
            3 => Role::Data,
            4 => Role::Retired,
            _ => return None,
        })
    }
}

/// What is known of a zone. Bytes: role 0, lifetime 1, short 2, reserved 3, valid 4..8, write pointer
/// 8..12, resets 12..16, sequence 16..24, last write 24..32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZitEntry {
    /// Use.
    pub role: Role,
    /// Lifetime class of what is written to it: 0 none, 1 short, 2 medium, 3 long, 4 extreme,
    /// 5 blocks that cleaning moved; of data zones also 8 to 15 inferred and 16 to 23 moved blocks, in
    /// classes from the shortest lifetime to the longest.
    pub lifetime: u8,
    /// Blocks that something refers to; of packed extents the blocks they would fill, rounded up.
    pub valid: u32,
    /// Packing units by which that was rounded up.
    pub short: u8,
    /// Blocks written.
    pub write_pointer: u32,
    /// Resets in its life.
    pub resets: u32,
    /// Number of its present use, also in its header and in all of its blocks; grows with every
    /// zone that is taken into use. 0 in a data zone whose header could not be read yet.
    pub sequence: u64,
    /// The volume's write clock (blocks written so far) when it was last written; of data zones when
    /// users wrote what is in it, on average.
    pub last_write: u64,
}

impl ZitEntry {
    /// Bytes of an entry.
    pub const LEN: usize = 32;
    /// Entries of a chunk.
    pub const PER_CHUNK: usize = BLOCK_PAYLOAD / Self::LEN;

    /// What something refers to: this is what counts, `valid` and `short` are how it is stored.
    #[must_use]
    pub fn pack_units(&self) -> PackUnits {
        PackUnits::of_blocks(self.valid.into()).saturating_sub(PackUnits(self.short.into()))
    }

    /// Whether a zone whose header has this sequence is in the use that this tells of. A data zone
    /// of unknown sequence is as long as something in it is valid.
    #[must_use]
    pub fn is_of_use(&self, sequence: u64) -> bool {
        let unknown = self.sequence == 0 && self.role == Role::Data && self.valid > 0;
        self.sequence == sequence || unknown
    }

    /// With so much valid.
    #[must_use]
    pub fn with_pack_units(self, units: PackUnits) -> ZitEntry {
        let blocks = units.blocks();
        let short = PackUnits::of_blocks(blocks).saturating_sub(units);
        ZitEntry {
            valid: u32::try_from(blocks).unwrap_or(u32::MAX),
            short: short.0 as u8,
            ..self
        }
    }

    /// Appends it as stored.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.role as u8);
        out.put_u8(self.lifetime);
        out.put_u8(self.short);
        out.put_u8(0);
        out.put_u32(self.valid);
        out.put_u32(self.write_pointer);
        out.put_u32(self.resets);
        out.put_u64(self.sequence);
        out.put_u64(self.last_write);
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<ZitEntry> {
        let role = r.u8()?;
        let role = Role::from_number(role).ok_or_else(|| r.bad("role", role.into()))?;
        let lifetime = r.u8()?;
        let short = r.u8()?;
        r.u8()?;
        let valid = r.u32()?;
        if short > 0 && valid == 0 {
            return Err(r.bad("packing units", short.into()));
        }
        Ok(ZitEntry {
            role,
            lifetime,
            valid,
            short,
            write_pointer: r.u32()?,
            resets: r.u32()?,
            sequence: r.u64()?,
            last_write: r.u64()?,
        })
    }

    /// All entries of a chunk's payload.
    pub fn decode_chunk(payload: &[u8]) -> Result<Vec<ZitEntry>> {
        let mut r = Reader::new(payload, "ZIT chunk");
        let mut entries = Vec::with_capacity(Self::PER_CHUNK);
        while !r.is_empty() {
            entries.push(Self::read(&mut r)?);
        }
        Ok(entries)
    }
}
