//! The image container: what a regular file or an ordinary block device holds so that it can
//! behave as a zoned device. `docs/format/container.md` says every byte.
//!
//! ```text
//! superblock (copies 0 and 1) | first table | zone 0 | zone 1 | ... | superblock (copy 2) | second table
//! ```
//!
//! What is at the start has its like at the end, and nothing but these copies is in the first or last
//! 64 KiB: partition tables are written there, and boot sectors.

mod cell;

pub use cell::{
    CELL_BYTES, Cell, RECORD_BYTES, RecordedState, SLOT_BYTES, ZoneRecord, decode_cell,
};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{Addr, BLOCK_SIZE};

/// First bytes of a container.
pub const MAGIC: [u8; 8] = *b"PRSMNIMG";
/// The version this crate writes, and the newest it reads.
pub const VERSION: u32 = 2;
/// Copies of the superblock.
pub const COPIES: u32 = 3;
/// Where copy 1 is: behind what a partition table of 4096-byte sectors takes (24 KiB).
pub const SECOND_COPY: u64 = 32 << 10;
/// Where the first table is.
pub const TABLE: u64 = 64 << 10;
/// Bytes at the end of a container that hold nothing: what is found there is written by others.
pub const TAIL_BYTES: u64 = 64 << 10;
/// Zones begin no earlier than here, if that is no more than 1/12 of them: who overwrites the start of
/// a device by mistake does it by some megabytes.
pub const HEAD_BYTES: u64 = 4 << 20;
/// Bytes of a label, UTF-8, padded with zeros.
pub const LABEL_BYTES: usize = 64;
/// Zone data begins at a multiple of so many bytes, and so does each zone.
pub const DATA_ALIGN_BYTES: u64 = 1 << 20;
/// Smallest zone size, in blocks (1 MiB).
pub const ZONE_BLOCKS_MIN: u32 = 256;
/// Largest zone size, in blocks (4 GiB).
pub const ZONE_BLOCKS_MAX: u32 = 1 << 20;

/// Most zones of a container. Bounds the memory that opening one takes.
pub const ZONE_COUNT_MAX: u32 = 1 << 22;

/// Incompatible feature: the container has grown, and its first zone is where the superblock says.
pub const GROWN: u64 = 1;
/// The last place at which a container has its first zone: behind the longest table.
const DATA_MAX: u64 =
    (TABLE + ZONE_COUNT_MAX as u64 * CELL_BYTES as u64).next_multiple_of(DATA_ALIGN_BYTES);

const _: () = assert!((ZONE_COUNT_MAX as u64) < Addr::FIELD_LIMIT);

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Where the fields of the superblock are.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 8;
    pub(super) const COPY: usize = 12;
    pub(super) const FEATURES: usize = 16;
    pub(super) const GENERATION: usize = 24;
    pub(super) const UUID: usize = 32;
    pub(super) const LABEL: usize = 48;
    pub(super) const BLOCK_SIZE: usize = 112;
    pub(super) const ZONE_COUNT: usize = 116;
    pub(super) const ZONE_BLOCKS: usize = 120;
    pub(super) const CAPACITY: usize = 124;
    pub(super) const MAX_OPEN: usize = 128;
    pub(super) const MAX_ACTIVE: usize = 132;
    pub(super) const COMPLETE: usize = 136;
    pub(super) const TABLE_SEED: usize = 144;
    pub(super) const END: usize = 152;
    pub(super) const DATA: usize = 160;
    pub(super) const ZONE_STRIDE: usize = 168;
    pub(super) const TOTAL: usize = 176;
    pub(super) const VOLUME: usize = 184;
    pub(super) const CHECKSUM: usize = super::BLOCK_SIZE - 8;
}

const _: () = assert!(at::LABEL + LABEL_BYTES == at::BLOCK_SIZE);
const _: () = assert!(at::UUID + 16 == at::LABEL);
const _: () = assert!(at::TOTAL + 8 == at::VOLUME);
const _: () = assert!(at::VOLUME + 16 <= at::CHECKSUM);

/// Sizes and limits of the zoned device in a container. Blocks are of [`BLOCK_SIZE`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerGeometry {
    /// Zones.
    pub zone_count: u32,
    /// Zone size in blocks.
    pub zone_blocks: u32,
    /// Blocks of each zone that can be written.
    pub capacity_blocks: u32,
    /// Open zones allowed; `None` is no limit.
    pub max_open: Option<u32>,
    /// Active zones allowed; `None` is no limit.
    pub max_active: Option<u32>,
}

/// Where the parts of a container are, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tables: the first, of write pointers, and the second, of states.
    pub tables: [u64; 2],
    /// The length of each, whole blocks.
    pub table_bytes: u64,
    /// Zone 0.
    pub data: u64,
    /// From one zone to the next.
    pub zone_stride: u64,
    /// One past the last zone: copy 2 of the superblock.
    pub end: u64,
    /// One past the tables there and the empty bytes behind them.
    pub total: u64,
}

impl Layout {
    /// Where a copy of the superblock is.
    #[must_use]
    pub fn copy(&self, copy: u32) -> u64 {
        match copy {
            0 => 0,
            1 => SECOND_COPY,
            _ => self.end,
        }
    }
}

/// A superblock, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Geometry of the device.
    pub geometry: ContainerGeometry,
    /// Grows with each rewriting; of two good copies the larger counts.
    pub generation: u64,
    /// UUID of the volume inside, for probing; the zone headers hold the true one.
    pub uuid: [u8; 16],
    /// Label of the volume inside, for probing; at most [`LABEL_BYTES`].
    pub label: String,
    /// UUID that the volume inside was made with, which its zone headers have. It is another than [`Superblock::uuid`]
    /// where users have changed that.
    pub volume: [u8; 16],
    /// Where zone 0 is, in a container that has grown: where it was before. `None`: where the geometry puts it.
    pub data: Option<u64>,
    /// Set once the container was made to its end.
    pub complete: bool,
    /// Seed of the checksums in the table.
    pub table_seed: u64,
}

/// Why bytes are not a usable superblock or a geometry not a usable geometry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContainerError {
    /// The magic is not there.
    #[error("not a Persimmon image")]
    NotAContainer,
    /// The magic is there, the checksum does not match.
    #[error("the image's superblock is damaged")]
    Damaged,
    /// Written by a newer release.
    #[error("the image has container version {found}, this program knows versions up to {known}")]
    Newer {
        /// Its version.
        found: u32,
        /// [`VERSION`].
        known: u32,
    },
    /// Written by an older release, in another layout.
    #[error(
        "the image has container version {found}, this program knows version {known} alone: copy its files with the \
         release that made it"
    )]
    Older {
        /// Its version.
        found: u32,
        /// [`VERSION`].
        known: u32,
    },
    /// Uses features of a newer release.
    #[error("the image uses container features {features:#x} that this program does not know")]
    UnknownFeatures {
        /// The unknown feature bits.
        features: u64,
    },
    /// A geometry that cannot be.
    #[error("{0}")]
    BadGeometry(&'static str),
}

impl ContainerGeometry {
    /// Checks the sizes and limits, and says where everything goes.
    pub fn layout(&self) -> Result<Layout, ContainerError> {
        self.layout_from(None)
    }

    /// The same of a container that has grown, whose first zone is where it was before.
    pub fn layout_from(&self, grown: Option<u64>) -> Result<Layout, ContainerError> {
        let bad = |why| Err(ContainerError::BadGeometry(why));
        if self.zone_count == 0 {
            return bad("a device needs at least one zone");
        }
        if self.zone_count > ZONE_COUNT_MAX {
            return bad("more than 4194304 zones; use larger zones");
        }
        if !(ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&self.zone_blocks) {
            return bad("the zone size must be 1 MiB to 4 GiB");
        }
        if self.capacity_blocks == 0 || self.capacity_blocks > self.zone_blocks {
            return bad("the zone capacity must be at least a block and at most the zone size");
        }
        if self.max_open == Some(0) || self.max_active == Some(0) {
            return bad("a limit of open or active zones must be at least 1");
        }
        if let (Some(open), Some(active)) = (self.max_open, self.max_active)
            && open > active
        {
            return bad("the limit of open zones must not be above that of active zones");
        }
        let cells = u64::from(self.zone_count) * CELL_BYTES as u64;
        let table_bytes = cells.next_multiple_of(BLOCK);
        let zone_stride =
            (u64::from(self.capacity_blocks) * BLOCK).next_multiple_of(DATA_ALIGN_BYTES);
        // At most 2^22 zones of 2^32 bytes and tables of 2^29: far below 2^63.
        let zones = u64::from(self.zone_count) * zone_stride;
        let head = HEAD_BYTES.min(zones / 12 / DATA_ALIGN_BYTES * DATA_ALIGN_BYTES);
        let data = match grown {
            None => (TABLE + table_bytes)
                .max(head)
                .next_multiple_of(DATA_ALIGN_BYTES),
            Some(data) if !(DATA_ALIGN_BYTES..=DATA_MAX).contains(&data) => {
                return bad("the first zone is where no container has it");
            }
            Some(data) if data % DATA_ALIGN_BYTES != 0 => {
                return bad("the first zone is where no container has it");
            }
            Some(data) => data,
        };
        let end = data + zones;
        let second_table = end + BLOCK;
        let after = second_table + table_bytes;
        // What has grown beyond the room in front of its first zone has both at its end.
        let (first_table, after) = if TABLE + table_bytes <= data {
            (TABLE, after)
        } else {
            (after, after + table_bytes)
        };
        let total = (after + TAIL_BYTES).next_multiple_of(DATA_ALIGN_BYTES);
        Ok(Layout {
            tables: [first_table, second_table],
            table_bytes,
            data,
            zone_stride,
            end,
            total,
        })
    }
}

impl Superblock {
    /// The block of copy 0, 1 or 2.
    pub fn encode(&self, copy: u32) -> Result<[u8; BLOCK_SIZE], ContainerError> {
        let layout = self.layout()?;
        let features = if self.data.is_some() { GROWN } else { 0 };
        let mut block = [0; BLOCK_SIZE];
        put(&mut block, at::MAGIC, &MAGIC);
        put(&mut block, at::VERSION, &VERSION.to_le_bytes());
        put(&mut block, at::COPY, &copy.to_le_bytes());
        put(&mut block, at::FEATURES, &features.to_le_bytes());
        put(&mut block, at::GENERATION, &self.generation.to_le_bytes());
        put(&mut block, at::UUID, &self.uuid);
        put(&mut block, at::LABEL, cut_label(&self.label).as_bytes());
        let g = &self.geometry;
        for (at, value) in [
            (at::BLOCK_SIZE, BLOCK_SIZE as u32),
            (at::ZONE_COUNT, g.zone_count),
            (at::ZONE_BLOCKS, g.zone_blocks),
            (at::CAPACITY, g.capacity_blocks),
            (at::MAX_OPEN, g.max_open.unwrap_or(0)),
            (at::MAX_ACTIVE, g.max_active.unwrap_or(0)),
            (at::COMPLETE, u32::from(self.complete)),
        ] {
            put(&mut block, at, &value.to_le_bytes());
        }
        for (at, value) in [
            (at::TABLE_SEED, self.table_seed),
            (at::END, layout.end),
            (at::DATA, layout.data),
            (at::ZONE_STRIDE, layout.zone_stride),
            (at::TOTAL, layout.total),
        ] {
            put(&mut block, at, &value.to_le_bytes());
        }
        if self.volume != self.uuid {
            put(&mut block, at::VOLUME, &self.volume);
        }
        let checksum = superblock_checksum(&block);
        put(&mut block, at::CHECKSUM, &checksum.to_le_bytes());
        Ok(block)
    }

    /// Reads a copy. The checksum is where it is in every version, and is checked first.
    pub fn decode(block: &[u8; BLOCK_SIZE]) -> Result<Superblock, ContainerError> {
        if !has_magic(block) {
            return Err(ContainerError::NotAContainer);
        }
        if u64_at(block, at::CHECKSUM) != superblock_checksum(block) {
            return Err(ContainerError::Damaged);
        }
        let version = u32_at(block, at::VERSION);
        if version > VERSION {
            return Err(ContainerError::Newer {
                found: version,
                known: VERSION,
            });
        }
        if version < VERSION {
            return Err(ContainerError::Older {
                found: version,
                known: VERSION,
            });
        }
        let features = u64_at(block, at::FEATURES);
        if features & !GROWN != 0 {
            return Err(ContainerError::UnknownFeatures {
                features: features & !GROWN,
            });
        }
        let limit = |at| Some(u32_at(block, at)).filter(|limit| *limit != 0);
        let geometry = ContainerGeometry {
            zone_count: u32_at(block, at::ZONE_COUNT),
            zone_blocks: u32_at(block, at::ZONE_BLOCKS),
            capacity_blocks: u32_at(block, at::CAPACITY),
            max_open: limit(at::MAX_OPEN),
            max_active: limit(at::MAX_ACTIVE),
        };
        let data = (features & GROWN != 0).then(|| u64_at(block, at::DATA));
        let layout = geometry.layout_from(data)?;
        if u32_at(block, at::BLOCK_SIZE) != BLOCK_SIZE as u32
            || u64_at(block, at::END) != layout.end
            || u64_at(block, at::DATA) != layout.data
            || u64_at(block, at::ZONE_STRIDE) != layout.zone_stride
            || u64_at(block, at::TOTAL) != layout.total
        {
            return Err(ContainerError::BadGeometry(
                "the image's layout does not follow from its geometry",
            ));
        }
        let label: [u8; LABEL_BYTES] = array_at(block, at::LABEL);
        let label = label.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let uuid: [u8; 16] = array_at(block, at::UUID);
        let changed: [u8; 16] = array_at(block, at::VOLUME);
        let volume = if changed == [0; 16] { uuid } else { changed };
        Ok(Superblock {
            geometry,
            data,
            volume,
            generation: u64_at(block, at::GENERATION),
            uuid,
            label: String::from_utf8_lossy(label).into_owned(),
            complete: u32_at(block, at::COMPLETE) == 1,
            table_seed: u64_at(block, at::TABLE_SEED),
        })
    }

    /// Where everything is.
    pub fn layout(&self) -> Result<Layout, ContainerError> {
        self.geometry.layout_from(self.data)
    }

    /// Whether both are of the same container with the same zones: a rewriting changes neither.
    #[must_use]
    pub fn is_of_same(&self, other: &Superblock) -> bool {
        self.geometry == other.geometry
            && self.data == other.data
            && self.table_seed == other.table_seed
    }

    /// The seed that a container gets which is made for a volume with this UUID.
    #[must_use]
    pub fn seed_for(uuid: [u8; 16]) -> u64 {
        u64_at(&uuid, 0).swap_bytes() ^ u64_at(&uuid, 8).swap_bytes()
    }
}

/// Whether a block begins as a superblock does.
#[must_use]
pub fn has_magic(block: &[u8]) -> bool {
    block.starts_with(&MAGIC)
}

/// As much of a label as has room, cut between characters.
#[must_use]
pub fn cut_label(label: &str) -> &str {
    let mut end = label.len().min(LABEL_BYTES);
    while !label.is_char_boundary(end) {
        end -= 1;
    }
    label.get(..end).unwrap_or("")
}

fn superblock_checksum(block: &[u8; BLOCK_SIZE]) -> u64 {
    xxh3_64_with_seed(block.get(..at::CHECKSUM).unwrap_or(&[]), 0)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(value) {
        *to = *from;
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests;
