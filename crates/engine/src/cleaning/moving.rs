//! Moving: reads the live extents of a victim, writes them elsewhere, and maps them to their new place.

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::extent::Extent;
use persimmon_format::record::Op;
use persimmon_format::{Addr, Ino, checksum};

use super::Cleaner;
use crate::error::Result;
use crate::invariant::invariant;
use crate::meta::{Transaction, extents};
use crate::placement::{Exchange, Places, Placing, Unpacked};
use crate::statistics::add;
use crate::zones::{Life, Run, Stream};

/// Garbage that is read along, where that makes two reads one: a command costs a drive about as much as
/// so many blocks more.
const GAP_BLOCKS_MAX: u32 = 4;
/// Blocks of one such read.
const READ_BLOCKS_MAX: u32 = 32;
/// Reads under way at the same time: what users read waits for no more than these, 1 MiB.
const READS_AT_ONCE: usize = 8;

/// Blocks of a victim that were valid when it was looked: a frame or a packed extent, and the file block that it is at.
pub(super) struct LiveExtent {
    pub(super) ino: Ino,
    pub(super) block: u64,
    pub(super) frame: Extent,
}

impl LiveExtent {
    /// The blocks on the device in which it lies.
    fn place(&self) -> Option<(Addr, u32)> {
        match &self.frame {
            Extent::Frame { addr, crcs } => Some((*addr, crcs.len() as u32)),
            Extent::Packed(packed) => Some((packed.addr, packed.span())),
            _ => None,
        }
    }

    /// How many they are.
    pub(super) fn blocks(&self) -> u64 {
        self.place().map_or(0, |(_, blocks)| blocks.into())
    }
}

/// A live extent and the content of its blocks.
pub(super) struct Loaded {
    pub(super) extent: LiveExtent,
    blocks: Buffer,
    /// No block of a frame is other than its checksum says, or each of them is.
    is_sound: bool,
}

impl Loaded {
    /// Whether a block is what its checksum says; packed extents keep theirs when they are packed again.
    fn soundness(extent: &LiveExtent, blocks: &Buffer) -> Vec<bool> {
        let Extent::Frame { crcs, .. } = &extent.frame else {
            return Vec::new();
        };
        let blocks = blocks.chunks_exact(BLOCK_SIZE).zip(crcs);
        blocks
            .map(|(block, crc)| checksum::data_block(block) == *crc)
            .collect()
    }

    /// Parts of a live extent in which either all blocks are intact or none is.
    fn parts(extent: LiveExtent, blocks: Buffer) -> Vec<Loaded> {
        let sound = Loaded::soundness(&extent, &blocks);
        let mut parts = Vec::new();
        let mut at = 0;
        for same in sound.chunk_by(|one, other| one == other) {
            let is_sound = same.first().is_none_or(|sound| *sound);
            let len = same.len();
            if len == sound.len() {
                break;
            }
            parts.push(Loaded {
                extent: LiveExtent {
                    ino: extent.ino,
                    block: extent.block + at as u64,
                    frame: extent.frame.part(at as u64, len as u64),
                },
                blocks: blocks.slice(at..at + len),
                is_sound,
            });
            at += len;
        }
        if parts.is_empty() {
            let is_sound = sound.first().is_none_or(|sound| *sound);
            parts.push(Loaded {
                extent,
                blocks,
                is_sound,
            });
        }
        parts
    }
}

impl Cleaner {
    /// Reads live extents of one zone, neighbours together. What cannot be read stays where it is.
    pub(super) fn read_live(&self, extents: Vec<LiveExtent>) -> Vec<Loaded> {
        let mut places: Vec<(Addr, u32)> = extents.iter().filter_map(LiveExtent::place).collect();
        places.sort_by_key(|(addr, _)| addr.block());
        let reads = joined(&places);
        let read = self.store.media.read_all(&reads, READS_AT_ONCE);
        let loaded = extents.into_iter().filter_map(|extent| {
            let (addr, blocks) = extent.place()?;
            let at = reads.partition_point(|(start, _)| start.block() <= addr.block());
            let (start, _) = reads.get(at.checked_sub(1)?)?;
            let from = (addr.block() - start.block()) as usize;
            let is_sound = |read: &Buffer| !Loaded::soundness(&extent, read).contains(&false);
            let together = read.get(at - 1)?.as_ref().ok();
            let together = together.map(|read| read.slice(from..from + blocks as usize));
            if let Some(blocks) = together.filter(is_sound) {
                return Some(vec![Loaded {
                    extent,
                    blocks,
                    is_sound: true,
                }]);
            }
            // One block may be bad, and not of this one; or it was read wrong this once.
            match self.store.media.read(addr, blocks) {
                Ok(blocks) => Some(Loaded::parts(extent, blocks)),
                Err(error) => {
                    tracing::error!(%addr, %error, "a valid block cannot be read, it stays");
                    None
                }
            }
        });
        loaded.flatten().collect()
    }

    /// Writes live extents, which are sorted, elsewhere, and maps the parts of them that are still live.
    pub(super) fn move_group(&self, group: &[Loaded], stream: Stream, life: Life) -> Result<()> {
        self.move_frames(group, true, stream, life)?;
        self.move_frames(group, false, stream, life)?;
        self.pack_again(group, stream, life)
    }

    /// Packs the packed extents of a group again.
    fn pack_again(&self, group: &[Loaded], stream: Stream, life: Life) -> Result<()> {
        let mut unpacked = Vec::new();
        for Loaded { extent, blocks, .. } in group {
            let Extent::Packed(packed) = &extent.frame else {
                continue;
            };
            let Some(compressed) = packed.bytes(blocks) else {
                tracing::error!(addr = %packed.addr, "a valid packed extent cannot be read, it stays");
                continue;
            };
            unpacked.push(Unpacked {
                ino: extent.ino,
                block: extent.block,
                from: extent.frame.clone(),
                compressed: compressed.to_vec(),
            });
        }
        if unpacked.is_empty() {
            return Ok(());
        }
        let unpacked: Vec<&Unpacked> = unpacked.iter().collect();
        let moved = self.placement.pack_moved(stream, life, &unpacked)?;
        add(&self.store.media.counters.blocks_moved, moved);
        Ok(())
    }

    /// Moves the frames of a group that are sound, or those that are not.
    ///
    /// A block that does not match its checksum moves with the checksum it should have: reading it stays an error. No
    /// record tells of it, for a recovery would take it for data that never arrived, and end the history there: the
    /// next checkpoint that frees zones is a whole one then.
    fn move_frames(&self, group: &[Loaded], sound: bool, stream: Stream, life: Life) -> Result<()> {
        let mut runs = Vec::with_capacity(group.len());
        for loaded in group.iter().filter(|loaded| loaded.is_sound == sound) {
            let Loaded { extent, blocks, .. } = loaded;
            let Extent::Frame { addr, crcs } = &extent.frame else {
                continue;
            };
            if !sound {
                tracing::error!(%addr, blocks = crcs.len(), "valid blocks are damaged; they are moved as they are");
            }
            runs.push(Run {
                ino: extent.ino,
                file_block: extent.block,
                data: blocks.clone(),
                crcs: crcs.clone(),
                packed: Vec::new(),
                life,
            });
        }
        if runs.is_empty() {
            return Ok(());
        }
        let mut places = Places::default();
        // What found a place is moved, even if there was none for the rest.
        let result = self
            .placement
            .place_now(stream, Placing::Moved, runs, &mut places);
        // The group is sorted, and a placed run is a part of one live extent.
        let old = |ino: Ino, block: u64, len: u64| {
            let at = group
                .partition_point(|s| (s.extent.ino, s.extent.block) <= (ino, block))
                .checked_sub(1)?;
            let extent = &group.get(at)?.extent;
            let skip = block.checked_sub(extent.block)?;
            (extent.ino == ino).then(|| extent.frame.part(skip, len))
        };
        for part in places.placed.chunks(self.store.transaction_ops_max()) {
            let moves: Vec<_> = part
                .iter()
                .filter_map(|p| {
                    let (ino, block) = (p.run.ino, p.run.file_block);
                    let from = old(ino, block, p.run.crcs.len() as u64)?;
                    let (addr, crcs) = (p.addr, p.run.crcs.clone());
                    let to = Extent::Frame { addr, crcs };
                    Some(Exchange {
                        ino,
                        block,
                        from,
                        to,
                    })
                })
                .collect();
            invariant!(
                self.store.media.alarm,
                moves.len() == part.len(),
                "{} moved runs belong to no live extent",
                part.len() - moves.len()
            );
            let moved = if sound {
                self.store.change(None, |tx| remap(tx, &moves))?.0
            } else {
                self.placement.exchange(&moves)?
            };
            add(&self.store.media.counters.blocks_moved, moved);
        }
        result
    }
}

/// Reads that take in all places, which are sorted.
fn joined(places: &[(Addr, u32)]) -> Vec<(Addr, u32)> {
    let mut reads: Vec<(Addr, u32)> = Vec::new();
    for (addr, blocks) in places {
        let end = addr.block() + blocks;
        if let Some((start, read)) = reads.last_mut()
            && addr.block() <= start.block() + *read + GAP_BLOCKS_MAX
            && (end <= start.block() + READ_BLOCKS_MAX || end <= start.block() + *read)
        {
            *read = (*read).max(end - start.block());
            continue;
        }
        reads.push((*addr, *blocks));
    }
    reads
}

/// Maps frames to where they were moved, as far as the files still have them where they were. Returns
/// the blocks moved.
fn remap(tx: &mut Transaction<'_>, moves: &[Exchange]) -> Result<u64> {
    let mut moved = 0;
    for Exchange {
        ino,
        block,
        from,
        to,
    } in moves
    {
        for live in tx.find(|meta| extents::still_there(meta, *ino, *block, from))? {
            let blocks = live.extent.blocks();
            moved += blocks;
            tx.push(Op::Map {
                ino: *ino,
                block: live.block,
                extent: to.part(live.block - block, blocks),
            });
        }
    }
    Ok(moved)
}
