//! Survivors: what is live of a victim is read, written elsewhere, and mapped to where it is then.

use persimmon_device::Buffer;
use persimmon_format::extent::Extent;
use persimmon_format::record::Op;
use persimmon_format::{Addr, Ino};

use crate::Volume;
use crate::data::{Loose, Way};
use crate::error::Result;
use crate::meta::{Transaction, extents};
use crate::statistics::{Class, add};
use crate::zones::{Life, Run, Stream};

/// Garbage that is read along, where that makes two reads one: a command costs a drive about as much as
/// so many blocks more.
const GAP_BLOCKS_MAX: u32 = 4;
/// Blocks of one such read.
const READ_BLOCKS_MAX: u32 = 32;
/// Reads under way at the same time: what users read waits for no more than these, 1 MiB.
const READS_AT_ONCE: usize = 8;

/// Blocks of a victim that were valid when it was looked: a frame or a piece, and the file block it is at.
pub(super) struct Survivor {
    pub(super) ino: Ino,
    pub(super) block: u64,
    pub(super) frame: Extent,
}

impl Survivor {
    /// The blocks on the device in which it lies.
    fn place(&self) -> Option<(Addr, u32)> {
        match &self.frame {
            Extent::Frame { addr, crcs } => Some((*addr, crcs.len() as u32)),
            Extent::Packed(piece) => Some((piece.addr, piece.span())),
            _ => None,
        }
    }

    /// How many they are.
    pub(super) fn blocks(&self) -> u64 {
        self.place().map_or(0, |(_, blocks)| blocks.into())
    }
}

/// A survivor and what is in its blocks.
pub(super) struct Loaded {
    pub(super) survivor: Survivor,
    blocks: Buffer,
}

impl Volume {
    /// Reads survivors of one zone, neighbours together. What cannot be read stays where it is.
    pub(super) fn read_survivors(&self, survivors: Vec<Survivor>) -> Vec<Loaded> {
        let mut places: Vec<(Addr, u32)> = survivors.iter().filter_map(Survivor::place).collect();
        places.sort_by_key(|(addr, _)| addr.block());
        let reads = joined(&places);
        let read = self.media.read_all(&reads, READS_AT_ONCE);
        let loaded = survivors.into_iter().filter_map(|survivor| {
            let (addr, blocks) = survivor.place()?;
            let at = reads.partition_point(|(start, _)| start.block() <= addr.block());
            let (start, _) = reads.get(at.checked_sub(1)?)?;
            let from = (addr.block() - start.block()) as usize;
            let blocks = match read.get(at - 1)? {
                Ok(read) => Ok(read.slice(from..from + blocks as usize)),
                // One block may be bad, and not of this one.
                Err(_) => self.media.read(addr, blocks),
            };
            match blocks {
                Ok(blocks) => Some(Loaded { survivor, blocks }),
                Err(error) => {
                    tracing::error!(%addr, %error, "a valid block cannot be read, it stays");
                    None
                }
            }
        });
        loaded.collect()
    }

    /// Writes survivors, which are sorted, elsewhere, and maps what is still there of them.
    pub(super) fn move_group(&self, group: &[Loaded], stream: Stream, life: Life) -> Result<()> {
        self.move_frames(group, stream, life)?;
        self.move_pieces(group, stream, life)
    }

    /// Packs the pieces of a group anew.
    fn move_pieces(&self, group: &[Loaded], stream: Stream, life: Life) -> Result<()> {
        let mut loose = Vec::new();
        for Loaded { survivor, blocks } in group {
            let Extent::Packed(piece) = &survivor.frame else {
                continue;
            };
            let Some(compressed) = piece.bytes(blocks) else {
                tracing::error!(addr = %piece.addr, "a valid piece cannot be read, it stays");
                continue;
            };
            loose.push(Loose {
                ino: survivor.ino,
                block: survivor.block,
                from: survivor.frame.clone(),
                compressed: compressed.to_vec(),
            });
        }
        if loose.is_empty() {
            return Ok(());
        }
        self.keep_dirty_bound()?;
        let loose: Vec<&Loose> = loose.iter().collect();
        let moved = self.pack(stream, life, Class::CleanedData, &loose)?;
        add(&self.media.counters.blocks_moved, moved);
        Ok(())
    }

    fn move_frames(&self, group: &[Loaded], stream: Stream, life: Life) -> Result<()> {
        let mut runs = Vec::with_capacity(group.len());
        for Loaded { survivor, blocks } in group {
            let Extent::Frame { crcs, .. } = &survivor.frame else {
                continue;
            };
            // A block that does not match its checksum moves with the checksum it should have:
            // reading it stays an error.
            runs.push(Run {
                ino: survivor.ino,
                file_block: survivor.block,
                data: blocks.clone(),
                crcs: crcs.clone(),
                pieces: Vec::new(),
                life,
            });
        }
        runs.reverse();
        let (mut pins, mut placed) = (Vec::new(), Vec::new());
        // What found a place is moved, even if there was none for the rest.
        let result = self.place_all(
            stream,
            Class::CleanedData,
            runs,
            Way::default(),
            &mut pins,
            &mut placed,
        );
        // The group is sorted, and a placed run is a part of one survivor.
        let old = |ino: Ino, block: u64, len: u64| {
            let at = group
                .partition_point(|s| (s.survivor.ino, s.survivor.block) <= (ino, block))
                .checked_sub(1)?;
            let survivor = &group.get(at)?.survivor;
            let skip = block.checked_sub(survivor.block)?;
            (survivor.ino == ino).then(|| survivor.frame.part(skip, len))
        };
        for part in placed.chunks(self.transaction_ops_max()) {
            let moves: Vec<_> = part
                .iter()
                .filter_map(|p| {
                    let from = old(p.run.ino, p.run.file_block, p.run.crcs.len() as u64)?;
                    Some((p.run.ino, p.run.file_block, from, p.addr))
                })
                .collect();
            self.keep_bounds()?;
            let (moved, _) = self.update_unbounded(None, |tx| remap(tx, &moves))?;
            add(&self.media.counters.blocks_moved, moved);
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
fn remap(tx: &mut Transaction<'_>, moves: &[(Ino, u64, Extent, Addr)]) -> Result<u64> {
    let mut moved = 0;
    for (ino, block, from, to) in moves {
        for live in tx.find(|meta| extents::still_there(meta, *ino, *block, from))? {
            let Extent::Frame { crcs, .. } = live.extent else {
                continue;
            };
            moved += crcs.len() as u64;
            let addr = to.offset((live.block - block) as u32);
            tx.push(Op::Map {
                ino: *ino,
                block: live.block,
                extent: Extent::Frame { addr, crcs },
            });
        }
    }
    Ok(moved)
}
