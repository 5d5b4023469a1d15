//! Records of a stream. All integers are little endian.

use persimmon_format::BLOCK_SIZE;
use persimmon_format::compression::Codec;
use persimmon_format::packed::COMPRESSED_BLOCKS_MAX;

use crate::codec::{Put, Reader};
use crate::error::DecodeError;
use crate::wire::{Cursor, Kind, Time};

type Result<T> = std::result::Result<T, DecodeError>;

/// Longest name of a file, or of an extended attribute.
pub(crate) const NAME_MAX: usize = 255;
/// Longest target of a symbolic link.
pub(crate) const TARGET_MAX: usize = 4095;
/// Longest value of an extended attribute.
pub(crate) const VALUE_MAX: usize = 64 << 10;
/// Bytes of file content in one record that is not compressed.
pub const PLAIN_MAX: usize = 256 << 10;
/// One past the last block of the largest file.
const BLOCKS_END: u64 = i64::MAX as u64 / BLOCK_SIZE as u64 + 1;
/// One past the largest inode number.
const INO_END: u64 = 1 << 48;

/// A record. The number in front is its kind; fields follow in this order, inodes as u64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// 1: a name goes. Directory, inode, whether the inode is in no directory of the snapshot (u8), name (the rest).
    Remove {
        /// Of this directory.
        dir: u64,
        /// Leads to this inode.
        ino: u64,
        /// The inode goes too.
        is_gone: bool,
        /// The name.
        name: Vec<u8>,
    },
    /// 2: a directory without a name goes. Inode.
    RemoveDirectory {
        /// Which.
        ino: u64,
    },
    /// 3: a directory is made, without a name. Inode.
    MakeDirectory {
        /// Its inode.
        ino: u64,
    },
    /// 4: an inode gets a name, and is made if it is new. Directory, inode, kind (u8), device (u32), length of the name (u8), name, target of a
    /// symbolic link (the rest).
    Name {
        /// In this directory.
        dir: u64,
        /// To this inode.
        ino: u64,
        /// What it is.
        kind: Kind,
        /// Device number of a device node, else 0.
        rdev: u32,
        /// The name.
        name: Vec<u8>,
        /// Target of a symbolic link, else empty.
        target: Vec<u8>,
    },
    /// 5: content. Inode, first file block (u64), bytes (the rest).
    Plain {
        /// Of this file.
        ino: u64,
        /// From this file block on.
        block: u64,
        /// What it holds.
        bytes: Vec<u8>,
    },
    /// 6: content, as it is stored. Inode, first file block (u64), codec (u8: 1 LZ4 block, 2 Zstandard frame), blocks of the frame (u8), blocks
    /// of it to pass over (u8), blocks of it that count (u8), bytes of the frame (the rest).
    Frame {
        /// Of this file.
        ino: u64,
        /// From this file block on.
        block: u64,
        /// How it is compressed.
        codec: Codec,
        /// Blocks that the frame gives.
        frame_blocks: u8,
        /// Blocks to pass over.
        skip: u8,
        /// Blocks that count.
        blocks: u8,
        /// Compressed.
        bytes: Vec<u8>,
    },
    /// 7: a hole. Inode, first file block (u64), file blocks (u64).
    Hole {
        /// Of this file.
        ino: u64,
        /// From this file block on.
        block: u64,
        /// So many.
        blocks: u64,
    },
    /// 8: the size of a file. Inode, bytes (u64).
    Size {
        /// Of this file.
        ino: u64,
        /// Bytes.
        size: u64,
    },
    /// 9: who owns it. Inode, owner (u32), group (u32).
    Owner {
        /// Of this inode.
        ino: u64,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// 10: an extended attribute. Inode, length of the name (u8), name, value (the rest).
    SetXattr {
        /// Of this inode.
        ino: u64,
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// 11: an extended attribute goes. Inode, name (the rest).
    RemoveXattr {
        /// Of this inode.
        ino: u64,
        /// Its name.
        name: Vec<u8>,
    },
    /// 12: the last of an inode. Inode, permissions (u32), access time, modification time.
    Permissions {
        /// Of this inode.
        ino: u64,
        /// Permissions.
        mode: u32,
        /// Last access.
        atime: Time,
        /// Last change of the content.
        mtime: Time,
    },
    /// 13: a stream can go on from here. Whether a stage ends (u8), cursor.
    Mark {
        /// The receiver must have all before it for good before it does what follows.
        is_barrier: bool,
        /// Where a sender goes on.
        cursor: Cursor,
    },
    /// 14: all was sent. Records before it (u64), bytes of content (u64), digest of the records before it (16 bytes).
    End {
        /// Records.
        records: u64,
        /// Bytes of file content, holes left out.
        content_bytes: u64,
        /// Digest.
        digest: [u8; 16],
    },
}

impl Record {
    /// The number of its kind.
    #[must_use]
    pub fn kind(&self) -> u8 {
        match self {
            Record::Remove { .. } => 1,
            Record::RemoveDirectory { .. } => 2,
            Record::MakeDirectory { .. } => 3,
            Record::Name { .. } => 4,
            Record::Plain { .. } => 5,
            Record::Frame { .. } => 6,
            Record::Hole { .. } => 7,
            Record::Size { .. } => 8,
            Record::Owner { .. } => 9,
            Record::SetXattr { .. } => 10,
            Record::RemoveXattr { .. } => 11,
            Record::Permissions { .. } => 12,
            Record::Mark { .. } => 13,
            Record::End { .. } => 14,
        }
    }

    /// Bytes of file content that it stands for.
    pub(crate) fn content_bytes(&self) -> u64 {
        match self {
            Record::Plain { bytes, .. } => bytes.len() as u64,
            Record::Frame { blocks, .. } => u64::from(*blocks) * BLOCK_SIZE as u64,
            _ => 0,
        }
    }

    /// Its fields as sent.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Record::Remove {
                dir,
                ino,
                is_gone,
                name,
            } => {
                out.put_u64(*dir);
                out.put_u64(*ino);
                out.put_flag(*is_gone);
                out.put(name);
            }
            Record::RemoveDirectory { ino } | Record::MakeDirectory { ino } => out.put_u64(*ino),
            Record::Name {
                dir,
                ino,
                kind,
                rdev,
                name,
                target,
            } => {
                out.put_u64(*dir);
                out.put_u64(*ino);
                out.put_u8(kind.number());
                out.put_u32(*rdev);
                out.put_short(name);
                out.put(target);
            }
            Record::Plain { ino, block, bytes } => {
                out.put_u64(*ino);
                out.put_u64(*block);
                out.put(bytes);
            }
            Record::Frame {
                ino,
                block,
                codec,
                frame_blocks,
                skip,
                blocks,
                bytes,
            } => {
                out.put_u64(*ino);
                out.put_u64(*block);
                out.put(&[number_of(*codec), *frame_blocks, *skip, *blocks]);
                out.put(bytes);
            }
            Record::Hole { ino, block, blocks } => {
                out.put_u64(*ino);
                out.put_u64(*block);
                out.put_u64(*blocks);
            }
            Record::Size { ino, size } => {
                out.put_u64(*ino);
                out.put_u64(*size);
            }
            Record::Owner { ino, uid, gid } => {
                out.put_u64(*ino);
                out.put_u32(*uid);
                out.put_u32(*gid);
            }
            Record::SetXattr { ino, name, value } => {
                out.put_u64(*ino);
                out.put_short(name);
                out.put(value);
            }
            Record::RemoveXattr { ino, name } => {
                out.put_u64(*ino);
                out.put(name);
            }
            Record::Permissions {
                ino,
                mode,
                atime,
                mtime,
            } => {
                out.put_u64(*ino);
                out.put_u32(*mode);
                atime.put(&mut out);
                mtime.put(&mut out);
            }
            Record::Mark { is_barrier, cursor } => {
                out.put_flag(*is_barrier);
                cursor.put(&mut out);
            }
            Record::End {
                records,
                content_bytes,
                digest,
            } => {
                out.put_u64(*records);
                out.put_u64(*content_bytes);
                out.put(digest);
            }
        }
        out
    }

    /// As received. Every field has a value that it can have; whether they fit what is there is the receiver's to see.
    pub fn decode(kind: u8, bytes: &[u8]) -> Result<Record> {
        let mut r = Reader::new(bytes, "a record");
        let record = match kind {
            1 => Record::Remove {
                dir: inode(&mut r)?,
                ino: inode(&mut r)?,
                is_gone: r.flag()?,
                name: file_name(r.rest(), &r)?,
            },
            2 => Record::RemoveDirectory {
                ino: inode(&mut r)?,
            },
            3 => Record::MakeDirectory {
                ino: inode(&mut r)?,
            },
            4 => {
                let (dir, ino) = (inode(&mut r)?, inode(&mut r)?);
                let (kind, rdev) = (Kind::read(&mut r)?, r.u32()?);
                let name = r.short()?;
                let (name, target) = (file_name(name, &r)?, r.rest().to_vec());
                let fits = match kind {
                    Kind::Symlink => (1..=TARGET_MAX).contains(&target.len()),
                    _ => target.is_empty(),
                };
                if !fits || target.contains(&0) {
                    return Err(r.bad("target"));
                }
                Record::Name {
                    dir,
                    ino,
                    kind,
                    rdev,
                    name,
                    target,
                }
            }
            5 => {
                let (ino, block) = (inode(&mut r)?, r.u64()?);
                let bytes = r.rest().to_vec();
                if bytes.is_empty() || bytes.len() > PLAIN_MAX {
                    return Err(r.bad("length of content"));
                }
                in_file(&r, block, bytes.len().div_ceil(BLOCK_SIZE) as u64)?;
                Record::Plain { ino, block, bytes }
            }
            6 => {
                let (ino, block) = (inode(&mut r)?, r.u64()?);
                let codec = codec_of(&mut r)?;
                let (frame_blocks, skip, blocks) = (r.u8()?, r.u8()?, r.u8()?);
                let bytes = r.rest().to_vec();
                let is_frame = (1..=COMPRESSED_BLOCKS_MAX).contains(&usize::from(frame_blocks));
                let end = u16::from(skip) + u16::from(blocks);
                if !is_frame || blocks == 0 || end > frame_blocks.into() {
                    return Err(r.bad("blocks of a frame"));
                }
                if bytes.is_empty() || bytes.len() >= usize::from(frame_blocks) * BLOCK_SIZE {
                    return Err(r.bad("length of a frame"));
                }
                in_file(&r, block, blocks.into())?;
                Record::Frame {
                    ino,
                    block,
                    codec,
                    frame_blocks,
                    skip,
                    blocks,
                    bytes,
                }
            }
            7 => {
                let (ino, block, blocks) = (inode(&mut r)?, r.u64()?, r.u64()?);
                in_file(&r, block, blocks)?;
                Record::Hole { ino, block, blocks }
            }
            8 => {
                let (ino, size) = (inode(&mut r)?, r.u64()?);
                if size > i64::MAX as u64 {
                    return Err(r.bad("size"));
                }
                Record::Size { ino, size }
            }
            9 => Record::Owner {
                ino: inode(&mut r)?,
                uid: r.u32()?,
                gid: r.u32()?,
            },
            10 => {
                let (ino, name) = (inode(&mut r)?, r.short()?);
                let (name, value) = (xattr_name(name, &r)?, r.rest().to_vec());
                if value.len() > VALUE_MAX {
                    return Err(r.bad("length of an attribute"));
                }
                Record::SetXattr { ino, name, value }
            }
            11 => Record::RemoveXattr {
                ino: inode(&mut r)?,
                name: xattr_name(r.rest(), &r)?,
            },
            12 => Record::Permissions {
                ino: inode(&mut r)?,
                mode: match r.u32()? {
                    mode if mode & !0o7777 == 0 => mode,
                    _ => return Err(r.bad("permissions")),
                },
                atime: Time::read(&mut r)?,
                mtime: Time::read(&mut r)?,
            },
            13 => Record::Mark {
                is_barrier: r.flag()?,
                cursor: Cursor::read(&mut r)?,
            },
            14 => Record::End {
                records: r.u64()?,
                content_bytes: r.u64()?,
                digest: r.array()?,
            },
            kind => return Err(DecodeError::Kind(kind)),
        };
        r.end()?;
        Ok(record)
    }
}

pub(crate) fn number_of(codec: Codec) -> u8 {
    match codec {
        Codec::Lz4 => 1,
        Codec::Zstd => 2,
        // No volume hands one on, and who receives it refuses it.
        Codec::ZstdAfter(_) => 3,
    }
}

pub(crate) fn codec_of(r: &mut Reader<'_>) -> Result<Codec> {
    match r.u8()? {
        1 => Ok(Codec::Lz4),
        2 => Ok(Codec::Zstd),
        _ => Err(r.bad("codec")),
    }
}

fn inode(r: &mut Reader<'_>) -> Result<u64> {
    match r.u64()? {
        ino @ 1..INO_END => Ok(ino),
        _ => Err(r.bad("inode")),
    }
}

fn in_file(r: &Reader<'_>, block: u64, blocks: u64) -> Result<()> {
    match block.checked_add(blocks) {
        Some(end) if blocks > 0 && end <= BLOCKS_END => Ok(()),
        _ => Err(r.bad("file block")),
    }
}

/// A name that stays in its directory.
fn file_name(name: &[u8], r: &Reader<'_>) -> Result<Vec<u8>> {
    let is_name = (1..=NAME_MAX).contains(&name.len())
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    match is_name {
        true => Ok(name.to_vec()),
        false => Err(r.bad("name")),
    }
}

fn xattr_name(name: &[u8], r: &Reader<'_>) -> Result<Vec<u8>> {
    match (1..=NAME_MAX).contains(&name.len()) && !name.contains(&0) {
        true => Ok(name.to_vec()),
        false => Err(r.bad("name of an attribute")),
    }
}
