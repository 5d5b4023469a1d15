//! Extents: where parts of files are.

use crate::codec::{Put, Reader};
use crate::delta::{self, DELTA_BYTES_MAX, DELTAS_END};
use crate::frame_part::FramePart;
use crate::packed::{CompressedFrame, PackUnits, Packed, Stored};
use crate::shared_frame::SharedFrame;
use crate::{Addr, BLOCK_SIZE, Result};

/// Blocks one frame may have (1 MiB).
pub const FRAME_BLOCKS_MAX: usize = 256;
/// Blocks one reservation may have, or one hole.
pub const RESERVED_BLOCKS_MAX: u32 = 1 << 30;

/// One past the last block that a file can have.
pub const FILE_BLOCKS_END: u64 = crate::inode::SIZE_MAX / BLOCK_SIZE as u64 + 1;

const FRAME: u8 = 1;
const INLINE: u8 = 2;
const RESERVED: u8 = 3;
const COMPRESSED: u8 = 4;
const PACKED: u8 = 5;
const PACKED_FRAME: u8 = 6;
const SHARED: u8 = 7;
const HOLE: u8 = 8;
const SHARED_OF_FRAME: u8 = 9;

/// The value of an extent key, whose item is the first file block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A run of blocks on the device. Bytes: tag 1, address 1..9, CRC-32C of each block.
    Frame {
        /// First block.
        addr: Addr,
        /// CRC-32C of each block; their number is the length of the run.
        crcs: Vec<u32>,
    },
    /// One block's content, zeros cut off its end. Bytes: tag 2, content.
    Inline(Vec<u8>),
    /// Preallocated: reads as zeros, its space is set aside. Bytes: tag 3, blocks 1..5.
    Reserved {
        /// Length of the run.
        blocks: u32,
    },
    /// One block's content as an LZ4 block, less than a block long, on its way into a packed
    /// extent. Bytes: tag 4, compressed content.
    Compressed(Vec<u8>),
    /// Blocks of a compressed frame. Bytes: tag 5 if it is all of a frame of one LZ4 block, else 6; packed extent as in
    /// [`crate::packed`].
    Packed(Packed),
    /// Blocks that other files may have too: those of the store of shared blocks ([`crate::inode::SHARED`]) from `at` on. Bytes
    /// without a frame: tag 7, first block 1..9, blocks 9..11. With one: tag 9, first block 1..9, [`SharedFrame`] 9..14.
    Shared {
        /// The first of them in the store.
        at: u64,
        /// Length of the run, at most [`FRAME_BLOCKS_MAX`].
        blocks: u16,
        /// The compressed frame that they are of, by which they count. Without one they count as they are.
        frame: Option<SharedFrame>,
    },
    /// Nothing, whatever older versions have here. Bytes: tag 8, blocks 1..5.
    Hole {
        /// Length of the run.
        blocks: u32,
    },
}

impl Extent {
    /// The blocks on the device in which it lies, if it does: of a packed extent those of all its frame.
    #[must_use]
    pub fn place(&self) -> Option<(Addr, u32)> {
        match self {
            Extent::Frame { addr, crcs } => Some((*addr, crcs.len() as u32)),
            Extent::Packed(packed) => Some((packed.addr, packed.span())),
            _ => None,
        }
    }

    /// The first of them.
    #[must_use]
    pub fn addr(&self) -> Option<Addr> {
        match self {
            Extent::Frame { addr, .. } => Some(*addr),
            Extent::Packed(packed) => Some(packed.addr),
            Extent::Inline(_)
            | Extent::Reserved { .. }
            | Extent::Compressed(_)
            | Extent::Shared { .. }
            | Extent::Hole { .. } => None,
        }
    }

    /// What it takes on the device: of a packed extent all of its frame.
    #[must_use]
    pub fn pack_units(&self) -> PackUnits {
        match self {
            Extent::Frame { crcs, .. } => PackUnits::of_blocks(crcs.len() as u64),
            Extent::Packed(packed) => packed.frame.pack_units(),
            Extent::Inline(_)
            | Extent::Reserved { .. }
            | Extent::Compressed(_)
            | Extent::Shared { .. }
            | Extent::Hole { .. } => PackUnits::ZERO,
        }
    }

    /// Bytes it takes as stored.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Extent::Frame { crcs, .. } => 9 + 4 * crcs.len(),
            Extent::Inline(bytes) | Extent::Compressed(bytes) => 1 + bytes.len(),
            Extent::Reserved { .. } | Extent::Hole { .. } => 5,
            Extent::Packed(packed) => 1 + packed.encoded_len(),
            Extent::Shared { frame: None, .. } => 11,
            Extent::Shared { frame: Some(_), .. } => 9 + SharedFrame::LEN,
        }
    }

    /// What a file has instead of this extent when its blocks became those of the store from `at` on. `tells_frame`: on volumes with the
    /// feature [`crate::zone_header::SHARED_FRAMES`].
    #[must_use]
    pub fn shared_at(&self, at: u64, tells_frame: bool) -> Extent {
        Extent::Shared {
            at,
            blocks: self.blocks() as u16,
            frame: match self {
                Extent::Packed(packed) if tells_frame => Some(SharedFrame::of(packed)),
                _ => None,
            },
        }
    }

    /// Inline content with `bytes` written at byte `at`: zeros in a gap before it, none at the end.
    #[must_use]
    pub fn spliced(mut content: Vec<u8>, at: usize, bytes: &[u8]) -> Extent {
        let end = at + bytes.len();
        content.resize(content.len().max(end), 0);
        if let Some(place) = content.get_mut(at..end) {
            place.copy_from_slice(bytes);
        }
        let len = content.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        content.truncate(len);
        Extent::Inline(content)
    }

    /// File blocks it covers.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        match self {
            Extent::Frame { crcs, .. } => crcs.len() as u64,
            Extent::Inline(_) | Extent::Compressed(_) => 1,
            Extent::Packed(packed) => packed.blocks.into(),
            Extent::Reserved { blocks } | Extent::Hole { blocks } => u64::from(*blocks),
            Extent::Shared { blocks, .. } => u64::from(*blocks),
        }
    }

    /// Whether it lies inside the largest file when it begins at this file block; a packed extent also the file blocks
    /// that its frame was written for. At the place of a delta, whether it can be one.
    #[must_use]
    pub fn fits_at(&self, block: u64) -> bool {
        if delta::is_delta(block) {
            return block < DELTAS_END && self.may_be_delta(block);
        }
        let end = match self {
            Extent::Packed(packed) => packed.frame_at(block).map(|(_, end)| end),
            Extent::Shared { at, blocks, .. }
                if at.saturating_add((*blocks).into()) > FILE_BLOCKS_END =>
            {
                None
            }
            other => block.checked_add(other.blocks()),
        };
        end.is_some_and(|end| end <= FILE_BLOCKS_END)
    }

    /// Whether it can be the delta at this place, or say that there is none.
    fn may_be_delta(&self, place: u64) -> bool {
        match self {
            Extent::Compressed(bytes) => bytes.len() <= DELTA_BYTES_MAX,
            Extent::Packed(packed) => {
                packed.is_short() && packed.frame.len as usize <= DELTA_BYTES_MAX
            }
            Extent::Hole { blocks } => place + u64::from(*blocks) <= DELTAS_END,
            Extent::Frame { .. }
            | Extent::Inline(_)
            | Extent::Reserved { .. }
            | Extent::Shared { .. } => false,
        }
    }

    /// Blocks of the store of shared blocks that it names, from the first to past the last: itself, or by its frame, which names its
    /// dictionary once, however many extents are of it.
    #[must_use]
    pub fn names(&self) -> Option<(u64, u64)> {
        match self {
            Extent::Shared { at, blocks, .. } => Some((*at, at.saturating_add((*blocks).into()))),
            Extent::Packed(packed) => {
                let dictionary = packed.dictionary()?;
                Some((dictionary.at, dictionary.end()))
            }
            _ => None,
        }
    }

    /// What it has of a compressed frame.
    #[must_use]
    pub fn frame_part(&self) -> Option<FramePart> {
        match *self {
            Extent::Packed(packed) => Some(FramePart::Packed(packed)),
            Extent::Shared {
                at,
                blocks,
                frame: Some(frame),
            } => Some(FramePart::Shared {
                at,
                // No more than a frame has.
                blocks: blocks as u8,
                frame,
            }),
            _ => None,
        }
    }

    /// What it counts as, where its file has `beside` blocks of the same compressed frame that are not part of it.
    #[must_use]
    pub fn stored(&self, beside: u64) -> Stored {
        if let Some(part) = self.frame_part() {
            return part.share(beside);
        }
        let sectors = match self {
            // Whether or not it was packed meanwhile: packing is no change of the file.
            Extent::Inline(bytes) | Extent::Compressed(bytes) => (bytes.len() as u64).div_ceil(512),
            Extent::Hole { .. } => 0,
            other => other.blocks() * (BLOCK_SIZE as u64 / 512),
        };
        Stored {
            units: self.pack_units(),
            sectors,
        }
    }

    /// Share in `st_blocks`, in units of 512 bytes. Of a packed extent, if the file has nothing else of its frame.
    #[must_use]
    pub fn sectors(&self) -> u64 {
        self.stored(0).sectors
    }

    /// The part of it from its `skip`-th block on, `take` blocks long. One whose content is inline is returned whole.
    #[must_use]
    pub fn part(&self, skip: u64, take: u64) -> Extent {
        match self {
            Extent::Frame { addr, crcs } => {
                let start = (skip as usize).min(crcs.len());
                let end = start.saturating_add(take as usize).min(crcs.len());
                Extent::Frame {
                    addr: addr.offset(start as u32),
                    crcs: crcs[start..end].to_vec(),
                }
            }
            Extent::Inline(_) | Extent::Compressed(_) => self.clone(),
            Extent::Packed(packed) => Extent::Packed(packed.part(skip, take)),
            Extent::Shared { at, blocks, frame } => {
                let skip = skip.min((*blocks).into());
                Extent::Shared {
                    at: at + skip,
                    blocks: (u64::from(*blocks) - skip).min(take) as u16,
                    frame: frame.map(|frame| frame.part(skip)),
                }
            }
            Extent::Reserved { blocks } => Extent::Reserved {
                blocks: u64::from(*blocks).saturating_sub(skip).min(take) as u32,
            },
            Extent::Hole { blocks } => Extent::Hole {
                blocks: u64::from(*blocks).saturating_sub(skip).min(take) as u32,
            },
        }
    }

    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode_into(&mut out);
        out
    }

    /// Appends it as stored.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        match self {
            Extent::Frame { addr, crcs } => {
                out.reserve(9 + 4 * crcs.len());
                out.put_u8(FRAME);
                out.put_u64(addr.to_raw());
                for crc in crcs {
                    out.put_u32(*crc);
                }
            }
            Extent::Inline(bytes) => {
                out.put_u8(INLINE);
                out.put(bytes);
            }
            Extent::Reserved { blocks } => {
                out.put_u8(RESERVED);
                out.put_u32(*blocks);
            }
            Extent::Compressed(bytes) => {
                out.put_u8(COMPRESSED);
                out.put(bytes);
            }
            Extent::Packed(packed) => {
                out.put_u8(if packed.is_short() {
                    PACKED
                } else {
                    PACKED_FRAME
                });
                packed.put(out);
            }
            Extent::Shared { at, blocks, frame } => match frame {
                None => {
                    out.put_u8(SHARED);
                    out.put_u64(*at);
                    out.put_u16(*blocks);
                }
                Some(frame) => {
                    out.put_u8(SHARED_OF_FRAME);
                    out.put_u64(*at);
                    frame.put(*blocks, out);
                }
            },
            Extent::Hole { blocks } => {
                out.put_u8(HOLE);
                out.put_u32(*blocks);
            }
        }
    }

    /// Whether an encoded extent is a hole.
    #[must_use]
    pub fn is_hole(bytes: &[u8]) -> bool {
        bytes.first() == Some(&HOLE)
    }

    /// File blocks an encoded extent covers, without decoding it whole.
    pub fn peek_blocks(bytes: &[u8]) -> Result<u64> {
        let mut r = Reader::new(bytes, "extent");
        Ok(match r.u8()? {
            FRAME => (bytes.len().saturating_sub(9) / 4) as u64,
            INLINE | COMPRESSED | PACKED => 1,
            RESERVED | HOLE => u64::from(r.u32()?),
            PACKED_FRAME => Packed::read(&mut r)?.blocks.into(),
            SHARED => {
                r.u64()?;
                r.u16()?.into()
            }
            SHARED_OF_FRAME => {
                r.u64()?;
                SharedFrame::read(&mut r)?.0.into()
            }
            tag => return Err(r.bad("tag", tag.into())),
        })
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Extent> {
        let mut r = Reader::new(bytes, "extent");
        let extent = match r.u8()? {
            FRAME => {
                let addr = Addr::from_raw(r.u64()?);
                let count = r.remaining() / 4;
                if count == 0 || count > FRAME_BLOCKS_MAX {
                    return Err(r.bad("frame length", count as u64));
                }
                let crcs = r.u32s(count)?;
                Extent::Frame { addr, crcs }
            }
            INLINE => {
                if r.remaining() > BLOCK_SIZE {
                    return Err(r.bad("inline length", r.remaining() as u64));
                }
                let len = r.remaining();
                Extent::Inline(r.bytes(len)?.to_vec())
            }
            tag @ (RESERVED | HOLE) => {
                let blocks = r.u32()?;
                if blocks == 0 || blocks > RESERVED_BLOCKS_MAX {
                    return Err(r.bad("reserved length", blocks.into()));
                }
                match tag {
                    HOLE => Extent::Hole { blocks },
                    _ => Extent::Reserved { blocks },
                }
            }
            COMPRESSED => {
                let len = CompressedFrame::checked_len(&r, r.remaining() as u64, 1)?;
                Extent::Compressed(r.bytes(len as usize)?.to_vec())
            }
            PACKED => Extent::Packed(Packed::read_short(&mut r)?),
            PACKED_FRAME => Extent::Packed(Packed::read(&mut r)?),
            tag @ (SHARED | SHARED_OF_FRAME) => {
                let at = r.u64()?;
                let (blocks, frame) = match tag {
                    SHARED => (r.u16()?, None),
                    _ => SharedFrame::read(&mut r).map(|(blocks, frame)| (blocks, Some(frame)))?,
                };
                if blocks == 0 || usize::from(blocks) > FRAME_BLOCKS_MAX {
                    return Err(r.bad("shared length", blocks.into()));
                }
                if at.saturating_add(blocks.into()) > FILE_BLOCKS_END {
                    return Err(r.bad("shared block", at));
                }
                Extent::Shared { at, blocks, frame }
            }
            tag => return Err(r.bad("tag", tag.into())),
        };
        r.end()?;
        Ok(extent)
    }
}
