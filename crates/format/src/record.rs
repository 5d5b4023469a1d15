//! Redo records: the results of a transaction, as operations on the tree's logical content.
//! Applying the same records to the same content gives the same content, whatever the pages look
//! like. An address in a record is one freshly written for it, or that of what the same record takes out of the file first
//! ([`mapped_anew`]): what lies elsewhere cleaning may have moved.

use crate::codec::{Put, Reader};
use crate::delta::is_delta;
use crate::extent::{Extent, FILE_BLOCKS_END, FRAME_BLOCKS_MAX};
use crate::inode::{Inode, SHARED, SIZE_MAX, Timestamp};
use crate::{BLOCK_SIZE, Ino, Key, KeyKind, Result, VersionId};

const WHAT: &str = "redo record";
const PUT: u8 = 1;
const DELETE: u8 = 2;
const MAP: u8 = 3;
const PUNCH: u8 = 4;
const TOUCH: u8 = 5;
const SPLICE: u8 = 6;
const PUT_INODE: u8 = 7;
const LOT: u8 = 8;
const SHARE: u8 = 9;
const MOVE: u8 = 10;
const SETTLE: u8 = 11;

/// One operation of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Insert or replace an item (not an extent). Tag 1, key, value length (varint), value. An inode
    /// of the live filesystem is written shorter: tag 7, inode number (varint), the fields as
    /// [`crate::inode`] has them for records.
    Put {
        /// Where.
        key: Key,
        /// What, encoded.
        value: Vec<u8>,
    },
    /// Remove an item (not an extent). Tag 2, key.
    Delete {
        /// Which.
        key: Key,
    },
    /// Map file blocks from `block` on to `extent`, in place of what was there; or make the delta of a block ([`crate::delta`]). Tag 3, inode
    /// (varint), block (varint), length of the extent (varint), extent as in
    /// [`crate::extent`]. A packed extent only with the feature [`crate::zone_header::FRAMES`]; packing of what lies in the tree
    /// is not journaled.
    Map {
        /// File.
        ino: Ino,
        /// First file block.
        block: u64,
        /// New content.
        extent: Extent,
    },
    /// Remove file blocks `from..to`. Tag 4, inode, from, to (varints).
    Punch {
        /// File.
        ino: Ino,
        /// First file block.
        from: u64,
        /// One past the last.
        to: u64,
    },
    /// Write `bytes` at byte `at` of a block whose content is inline, or which is a hole; what lies
    /// between the end of the content and `at` is zero. The content is at most one block. Tag 6,
    /// inode, block, at, length (varints), bytes.
    Splice {
        /// File.
        ino: Ino,
        /// File block.
        block: u64,
        /// First byte in the block.
        at: u16,
        /// New bytes.
        bytes: Vec<u8>,
    },
    /// Change attributes of an inode that exists. Tag 5, inode (varint), mask (u8: 1 size, 2
    /// mtime, 4 ctime, 8 atime, 16 mode), then the fields of the mask in this order.
    Touch {
        /// Inode.
        ino: Ino,
        /// What changes.
        set: Touch,
    },
    /// Have file blocks of one file in another one too, in place of what was there. All that the source has of them is frames and
    /// packed extents, whose blocks move to the store of shared blocks, or is there already. Tag 9, inode, block of the source; inode, block
    /// of the target; blocks; block of the store (varints): a block of the source moves to the block of the store that is as far from
    /// this one as it is from the source's first. Source and target are files, and ranges of one file do not overlap.
    Share(Share),
    /// Map file blocks of one version to an extent that has the same content, in place of what this version has there; in other versions
    /// nothing changes. Deltas of the blocks stay. Where there is one version the inode's sectors follow. Tag 10, version, then as
    /// [`Op::Map`].
    Move {
        /// Whose item it is.
        version: VersionId,
        /// File, without a subvolume.
        ino: Ino,
        /// First file block.
        block: u64,
        /// Where it is now.
        extent: Extent,
    },
    /// Remove items of a version that nothing shows: where it has several at one place all but the newest, and a whiteout that hides
    /// nothing; of an inode that is not there in it, and if the version is discarded, all. Tag 11, version, inode (varints), kind (u8) and
    /// item (varint) of the first place, the same one past the last.
    Settle(Settle),
    /// Take a lot of inode numbers. Tag 8, end (varint).
    Lot {
        /// Numbers from here on are not given out before a later record or footer has a greater end.
        end: u64,
    },
}

/// Places at which items of a version are settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// The version.
    pub version: VersionId,
    /// The inode, without a subvolume.
    pub ino: Ino,
    /// The first place.
    pub from: (KeyKind, u64),
    /// Behind the last one.
    pub to: (KeyKind, u64),
}

impl Settle {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.version.0.into());
        out.put_varint(self.ino.0);
        for (kind, item) in [self.from, self.to] {
            out.put_u8(kind.0);
            out.put_varint(item);
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Settle> {
        let settle = Settle {
            version: VersionId(r.varint_u32("version")?),
            ino: Ino(r.varint()?),
            from: (KeyKind(r.u8()?), r.varint()?),
            to: (KeyKind(r.u8()?), r.varint()?),
        };
        if settle.ino != settle.ino.plain() || settle.ino == SHARED {
            return Err(r.bad("settled inode", settle.ino.0));
        }
        if settle.from > settle.to || settle.to.0 > KeyKind::REFERENCES {
            return Err(r.bad("settled kind", settle.to.0.0.into()));
        }
        Ok(settle)
    }
}

/// Blocks that two files are to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Source.
    pub from: Ino,
    /// Its first block.
    pub from_block: u64,
    /// Target.
    pub to: Ino,
    /// Its first block.
    pub to_block: u64,
    /// How many.
    pub blocks: u64,
    /// Where the first of them goes in the store, if it is not there.
    pub at: u64,
}

impl Share {
    /// One past the last block of the source.
    #[must_use]
    pub fn source_end(&self) -> u64 {
        self.from_block.saturating_add(self.blocks)
    }

    /// One past the last block of the target.
    #[must_use]
    pub fn target_end(&self) -> u64 {
        self.to_block.saturating_add(self.blocks)
    }

    /// Where a block of the source goes in the store; `None` if an extent that begins there could end past the largest file.
    #[must_use]
    pub fn place(&self, block: u64) -> Option<u64> {
        let place = self.at.saturating_add(block).checked_sub(self.from_block)?;
        (place < FILE_BLOCKS_END - FRAME_BLOCKS_MAX as u64).then_some(place)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for field in [
            self.from.0,
            self.from_block,
            self.to.0,
            self.to_block,
            self.blocks,
            self.at,
        ] {
            out.put_varint(field);
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Share> {
        let (from, from_block) = (Ino(r.varint()?), r.varint()?);
        let (to, to_block) = (Ino(r.varint()?), r.varint()?);
        let (blocks, at) = (r.varint()?, r.varint()?);
        for start in [from_block, to_block, at] {
            let end = start.checked_add(blocks);
            if end.is_none_or(|end| end > FILE_BLOCKS_END) {
                return Err(r.bad("file block", start));
            }
        }
        for ino in [from, to] {
            if ino == SHARED {
                return Err(r.bad("file that shares blocks", ino.0));
            }
        }
        if from == to && from_block.abs_diff(to_block) < blocks || blocks == 0 {
            return Err(r.bad("shared blocks", blocks));
        }
        Ok(Share {
            from,
            from_block,
            to,
            to_block,
            blocks,
            at,
        })
    }
}

/// The extents whose data comes with a record: file, block, extent. What a record maps of a file that it has punched before was in that
/// file already, at another block.
pub fn mapped_anew(ops: &[Op]) -> impl Iterator<Item = (Ino, u64, &Extent)> {
    let mut punched: Vec<Ino> = Vec::new();
    ops.iter().filter_map(move |op| match op {
        Op::Punch { ino, .. } => {
            punched.push(*ino);
            None
        }
        Op::Map { ino, block, extent } => {
            (!punched.contains(ino)).then_some((*ino, *block, extent))
        }
        Op::Move {
            ino, block, extent, ..
        } => Some((*ino, *block, extent)),
        _ => None,
    })
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touch {
    /// Size, bytes.
    pub size: Option<u64>,
    /// Modification time.
    pub mtime: Option<Timestamp>,
    /// Change time.
    pub ctime: Option<Timestamp>,
    /// Access time.
    pub atime: Option<Timestamp>,
    /// Type and permissions.
    pub mode: Option<u32>,
}

impl Op {
    /// The inode whose items it changes.
    #[must_use]
    pub fn ino(&self) -> Option<Ino> {
        match self {
            Op::Put { key, .. } | Op::Delete { key } => Some(key.ino),
            Op::Map { ino, .. }
            | Op::Splice { ino, .. }
            | Op::Punch { ino, .. }
            | Op::Touch { ino, .. } => Some(*ino),
            // Its source has the same content as before.
            Op::Share(share) => Some(share.to),
            // What anybody sees stays the same, of a move together with what its record takes away.
            Op::Move { .. } | Op::Settle(_) => None,
            Op::Lot { .. } => None,
        }
    }

    /// The file blocks that get another content with it, from the first to one past the last: their deltas ([`crate::delta`]) go. Of places
    /// of deltas there are none.
    #[must_use]
    pub fn replaced_blocks(&self) -> Option<(Ino, u64, u64)> {
        let (ino, from, to) = match self {
            Op::Map { ino, block, extent } => (*ino, *block, block.saturating_add(extent.blocks())),
            Op::Punch { ino, from, to } => (*ino, *from, *to),
            Op::Splice { ino, block, .. } => (*ino, *block, block.saturating_add(1)),
            Op::Share(share) => (share.to, share.to_block, share.target_end()),
            // What anybody sees stays the same.
            Op::Move { .. } | Op::Settle(_) => return None,
            Op::Put { .. } | Op::Delete { .. } | Op::Touch { .. } | Op::Lot { .. } => return None,
        };
        (!is_delta(from)).then_some((ino, from, to))
    }

    /// The file that gets a delta with it.
    #[must_use]
    pub fn has_delta(&self) -> Option<Ino> {
        match self {
            Op::Map { ino, block, .. } if is_delta(*block) => Some(*ino),
            _ => None,
        }
    }

    /// Appends it as stored.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Op::Put { key, value } => {
                if let Some(inode) = short_inode(key, value) {
                    out.put_u8(PUT_INODE);
                    out.put_varint(key.ino.0);
                    inode.put_short(out);
                    return;
                }
                out.put_u8(PUT);
                key.put(out);
                out.put_varint(value.len() as u64);
                out.put(value);
            }
            Op::Delete { key } => {
                out.put_u8(DELETE);
                key.put(out);
            }
            Op::Map { ino, block, extent } => {
                out.put_u8(MAP);
                put_extent(*ino, *block, extent, out);
            }
            Op::Punch { ino, from, to } => {
                out.put_u8(PUNCH);
                out.put_varint(ino.0);
                out.put_varint(*from);
                out.put_varint(*to);
            }
            Op::Splice {
                ino,
                block,
                at,
                bytes,
            } => {
                out.put_u8(SPLICE);
                out.put_varint(ino.0);
                out.put_varint(*block);
                out.put_varint((*at).into());
                out.put_varint(bytes.len() as u64);
                out.put(bytes);
            }
            Op::Touch { ino, set } => {
                out.put_u8(TOUCH);
                out.put_varint(ino.0);
                set.encode(out);
            }
            Op::Share(share) => {
                out.put_u8(SHARE);
                share.encode(out);
            }
            Op::Move {
                version,
                ino,
                block,
                extent,
            } => {
                out.put_u8(MOVE);
                out.put_varint(version.0.into());
                put_extent(*ino, *block, extent, out);
            }
            Op::Settle(settle) => {
                out.put_u8(SETTLE);
                settle.encode(out);
            }
            Op::Lot { end } => {
                out.put_u8(LOT);
                out.put_varint(*end);
            }
        }
    }

    /// All operations of a record.
    pub fn decode_all(bytes: &[u8]) -> Result<Vec<Op>> {
        let mut r = Reader::new(bytes, WHAT);
        let mut ops = Vec::new();
        while !r.is_empty() {
            ops.push(Op::read(&mut r)?);
        }
        Ok(ops)
    }

    fn read(r: &mut Reader<'_>) -> Result<Op> {
        Ok(match r.u8()? {
            PUT => {
                let key = Key::read(r)?;
                let len = r.varint()? as usize;
                if len > crate::page::VALUE_LEN_MAX {
                    return Err(r.bad("value length", len as u64));
                }
                Op::Put {
                    key,
                    value: r.bytes(len)?.to_vec(),
                }
            }
            PUT_INODE => Op::Put {
                key: Key::inode(Ino(r.varint()?)),
                value: Inode::read_short(r)?.encode(),
            },
            DELETE => Op::Delete { key: Key::read(r)? },
            MAP => {
                let (ino, block, extent) = read_extent(r)?;
                Op::Map { ino, block, extent }
            }
            MOVE => {
                let version = VersionId(r.varint_u32("version")?);
                let (ino, block, extent) = read_extent(r)?;
                if ino != ino.plain() || ino == SHARED {
                    return Err(r.bad("moved inode", ino.0));
                }
                Op::Move {
                    version,
                    ino,
                    block,
                    extent,
                }
            }
            PUNCH => {
                let op = Op::Punch {
                    ino: Ino(r.varint()?),
                    from: r.varint()?,
                    to: r.varint()?,
                };
                match op {
                    Op::Punch { from, to, .. } if from > to => return Err(r.bad("punch", from)),
                    op => op,
                }
            }
            SPLICE => {
                let (ino, block) = (Ino(r.varint()?), r.varint()?);
                let (at, len) = (r.varint()?, r.varint()?);
                if block >= FILE_BLOCKS_END {
                    return Err(r.bad("file block", block));
                }
                if at.saturating_add(len) > BLOCK_SIZE as u64 {
                    return Err(r.bad("splice", at));
                }
                Op::Splice {
                    ino,
                    block,
                    at: at as u16,
                    bytes: r.bytes(len as usize)?.to_vec(),
                }
            }
            TOUCH => Op::Touch {
                ino: Ino(r.varint()?),
                set: Touch::read(r)?,
            },
            LOT => Op::Lot { end: r.varint()? },
            SHARE => Op::Share(Share::read(r)?),
            SETTLE => Op::Settle(Settle::read(r)?),
            tag => return Err(r.bad("tag", tag.into())),
        })
    }
}

fn put_extent(ino: Ino, block: u64, extent: &Extent, out: &mut Vec<u8>) {
    out.put_varint(ino.0);
    out.put_varint(block);
    out.put_varint(extent.encoded_len() as u64);
    extent.encode_into(out);
}

fn read_extent(r: &mut Reader<'_>) -> Result<(Ino, u64, Extent)> {
    let ino = Ino(r.varint()?);
    let block = r.varint()?;
    let len = r.varint()? as usize;
    let extent = Extent::decode(r.bytes(len)?)?;
    let is_mappable = !matches!(extent, Extent::Shared { .. } | Extent::Hole { .. });
    if !is_mappable || !extent.fits_at(block) {
        return Err(r.bad("file block", block));
    }
    Ok((ino, block, extent))
}

/// The inode, where a value is one, to the byte, and stands at its key.
fn short_inode(key: &Key, value: &[u8]) -> Option<Inode> {
    if *key != Key::inode(key.ino) {
        return None;
    }
    let inode = Inode::decode(value).ok()?;
    (inode.encode() == value).then_some(inode)
}

impl Touch {
    fn encode(&self, out: &mut Vec<u8>) {
        let bits = [
            self.size.is_some(),
            self.mtime.is_some(),
            self.ctime.is_some(),
            self.atime.is_some(),
            self.mode.is_some(),
        ];
        let mask = bits
            .iter()
            .enumerate()
            .map(|(i, set)| u8::from(*set) << i)
            .sum();
        out.put_u8(mask);
        if let Some(size) = self.size {
            out.put_varint(size);
        }
        for time in [self.mtime, self.ctime, self.atime].into_iter().flatten() {
            time.put_short(out);
        }
        if let Some(mode) = self.mode {
            out.put_u32(mode);
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Touch> {
        let mask = r.u8()?;
        if mask >= 32 {
            return Err(r.bad("mask", mask.into()));
        }
        let mut set = Touch::default();
        if mask & 1 != 0 {
            let size = r.varint()?;
            if size > SIZE_MAX {
                return Err(r.bad("size", size));
            }
            set.size = Some(size);
        }
        if mask & 2 != 0 {
            set.mtime = Some(Timestamp::read_short(r)?);
        }
        if mask & 4 != 0 {
            set.ctime = Some(Timestamp::read_short(r)?);
        }
        if mask & 8 != 0 {
            set.atime = Some(Timestamp::read_short(r)?);
        }
        if mask & 16 != 0 {
            set.mode = Some(r.u32()?);
        }
        Ok(set)
    }
}
