//! Summary blocks of data zones: whose the blocks since the last summary are, and their
//! checksums. They guide cleaning and disaster recovery; the tree is the truth.
//!
//! In the envelope, owner is the sequence of the zone and sequence the block's place in it.
//! Payload: block of the summary before it in the zone 0..4 (0: none), entries 4..8, then each
//! entry: place in the zone, inode, file block, blocks (varints), CRC-32C of each block. An entry of
//! no blocks is a packed piece: then follow its grain in the block (u8), its compressed bytes
//! (varint) and their CRC-32C.

use crate::codec::{Put, Reader};
use crate::envelope::{self, BLOCK_PAYLOAD, Kind};
use crate::extent::FRAME_BLOCKS_MAX;
use crate::packed::{self, Packed};
use crate::{Addr, BLOCK_SIZE, DeviceId, Ino, Result, VolumeKey, ZoneId};

const PREFIX_LEN: usize = 8;

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

/// A packed piece and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceEntry {
    /// Block that it begins in, in the zone.
    pub zone_block: u32,
    /// Where in that block, in grains.
    pub grain: u8,
    /// Compressed bytes.
    pub len: u16,
    /// CRC-32C of them.
    pub crc: u32,
    /// File it was written for.
    pub ino: Ino,
    /// Block of the file.
    pub file_block: u64,
}

impl PieceEntry {
    /// The piece, in this zone.
    #[must_use]
    pub fn piece(&self, zone: ZoneId) -> Packed {
        Packed {
            addr: Addr::new(DeviceId(0), zone, self.zone_block),
            grain: self.grain,
            len: self.len,
            crc: self.crc,
        }
    }
}

/// Pieces that always fit one summary.
pub const PIECES_MIN: usize = 128;
// Four varints: 4 bytes of zone block, 10 + 8 of owner, 2 of length at most.
const _: () = assert!(PIECES_MIN * (4 + 10 + 8 + 1 + 1 + 2 + 4) <= BLOCK_PAYLOAD - PREFIX_LEN);

/// A summary being put together.
#[derive(Clone, Debug, Default)]
pub struct SummaryBuilder {
    count: u32,
    bytes: Vec<u8>,
}

impl SummaryBuilder {
    /// Whether there is room for one more entry of `blocks` blocks.
    #[must_use]
    pub fn fits(&self, blocks: usize) -> bool {
        // Four varints: 4 bytes of zone block, 10 + 10 of owner, 2 of length at most.
        self.bytes.len() + 26 + 4 * blocks <= BLOCK_PAYLOAD - PREFIX_LEN
    }

    /// No entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there is room for these pieces.
    #[must_use]
    pub fn fits_pieces(&self, pieces: impl Iterator<Item = PieceEntry>) -> bool {
        let mut with = self.clone();
        pieces.for_each(|piece| with.push_piece(&piece));
        with.bytes.len() <= BLOCK_PAYLOAD - PREFIX_LEN
    }

    /// Adds a piece; the caller asked [`SummaryBuilder::fits_pieces`].
    pub fn push_piece(&mut self, piece: &PieceEntry) {
        self.bytes.put_varint(piece.zone_block.into());
        self.bytes.put_varint(piece.ino.0);
        self.bytes.put_varint(piece.file_block);
        self.bytes.put_varint(0);
        self.bytes.put_u8(piece.grain);
        self.bytes.put_varint(piece.len.into());
        self.bytes.put_u32(piece.crc);
        self.count += 1;
    }

    /// Adds an entry; the caller asked [`SummaryBuilder::fits`].
    pub fn push(&mut self, entry: &SummaryEntry) {
        self.bytes.put_varint(entry.zone_block.into());
        self.bytes.put_varint(entry.ino.0);
        self.bytes.put_varint(entry.file_block);
        self.bytes.put_varint(entry.crcs.len() as u64);
        for crc in &entry.crcs {
            self.bytes.put_u32(*crc);
        }
        self.count += 1;
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
        payload.put_u32(self.count);
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
        self.bytes.clear();
    }
}

/// A summary as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where in the zone the summary before this one is; 0 if this is the first.
    pub previous: u32,
    /// What it describes: runs of whole blocks.
    pub entries: Vec<SummaryEntry>,
    /// And packed pieces.
    pub pieces: Vec<PieceEntry>,
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
        let (mut entries, mut pieces) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let place = r.varint()?;
            let ino = Ino(r.varint()?);
            let file_block = r.varint()?;
            let blocks = r.varint()? as usize;
            if blocks == 0 {
                let grain = r.u8()?;
                let len = r.varint()?;
                if place >= zone_block.into() {
                    return Err(r.bad("piece", place));
                }
                let piece = PieceEntry {
                    zone_block: place as u32,
                    grain,
                    len: packed::checked_len(&r, len)?,
                    crc: r.u32()?,
                    ino,
                    file_block,
                };
                let span = piece.piece(ZoneId(0)).span();
                if place.saturating_add(span.into()) > zone_block.into() {
                    return Err(r.bad("piece", place));
                }
                pieces.push(piece);
                continue;
            }
            if blocks > FRAME_BLOCKS_MAX || place.saturating_add(blocks as u64) > zone_block.into()
            {
                return Err(r.bad("run", place));
            }
            let crcs = (0..blocks).map(|_| r.u32()).collect::<Result<_>>()?;
            entries.push(SummaryEntry {
                zone_block: place as u32,
                ino,
                file_block,
                crcs,
            });
        }
        r.end()?;
        Ok(Summary {
            previous,
            entries,
            pieces,
        })
    }
}
