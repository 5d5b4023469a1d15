//! Moving: reads the live extents of a victim, writes them elsewhere, and maps them to their new place.

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use persimmon_format::delta::block_at;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{PackUnits, Packed};
use persimmon_format::record::Op;
use persimmon_format::{Addr, Compression, Ino, checksum};

use super::Cleaner;
use super::folding::{Fold, Folded, FoundDelta, pages_with};
use crate::error::Result;
use crate::meta::extents::{self, MappedExtent};
use crate::meta::{Meta, Transaction, deltas};
use crate::placement::{Compressed, Exchange, Places, Placing, packed_runs};
use crate::statistics::add;
use crate::store::Store;
use crate::zones::{Life, MovedFrom, Placed, Run, Stream};

/// Garbage that is read along, where that makes two reads one: a command costs a drive about as much as
/// so many blocks more.
const GAP_BLOCKS_MAX: u32 = 4;
/// Blocks of one such read.
const READ_BLOCKS_MAX: u32 = 32;
/// Reads under way at the same time: what users read waits for no more than these, 1 MiB.
pub(super) const READS_AT_ONCE: usize = 8;

/// Blocks of a victim that were valid when it was looked: a frame, or all of a compressed frame, and the file block that it is at.
pub(super) struct LiveExtent {
    pub(super) ino: Ino,
    pub(super) block: u64,
    pub(super) frame: Extent,
    /// Of a compressed frame, what the file has of it.
    pub(super) parts: Vec<MappedExtent>,
    /// Of whole blocks, deltas that may be folded.
    pub(super) deltas: Vec<FoundDelta>,
}

impl LiveExtent {
    /// What moving an extent that a file has at this block takes along: of a part of a compressed frame all of the frame, at the
    /// block that it was written for. `None` if the part cannot be there.
    pub(super) fn around(ino: Ino, block: u64, extent: Extent) -> Option<LiveExtent> {
        let (block, frame) = match extent {
            Extent::Packed(part) => {
                let (start, _) = part.frame_at(block)?;
                (start, Extent::Packed(part.whole()))
            }
            frame => (block, frame),
        };
        Some(LiveExtent {
            ino,
            block,
            frame,
            parts: Vec::new(),
            deltas: Vec::new(),
        })
    }

    /// What a file has at a block, by itself.
    pub(super) fn of(ino: Ino, mapped: MappedExtent) -> LiveExtent {
        LiveExtent {
            ino,
            block: mapped.block,
            frame: mapped.extent,
            parts: Vec::new(),
            deltas: Vec::new(),
        }
    }

    /// Splits an extent of whole blocks into parts with at most `most` of these deltas each; they are of its blocks, and sorted.
    pub(super) fn cut_for(self, found: Vec<FoundDelta>, most: usize, out: &mut Vec<LiveExtent>) {
        let mut rest = self;
        if most > 0 {
            for delta in found {
                let skip = block_at(delta.mapped.block) - rest.block;
                if rest.deltas.len() >= most {
                    let behind = rest.part(skip, u64::MAX);
                    let deltas = std::mem::take(&mut rest.deltas);
                    out.push(LiveExtent {
                        deltas,
                        ..rest.part(0, skip)
                    });
                    rest = behind;
                }
                rest.deltas.push(delta);
            }
        }
        out.push(rest);
    }

    /// Some of its blocks, without deltas.
    fn part(&self, skip: u64, blocks: u64) -> LiveExtent {
        let blocks = blocks.min(self.frame.blocks() - skip);
        LiveExtent {
            ino: self.ino,
            block: self.block + skip,
            frame: self.frame.part(skip, blocks),
            parts: Vec::new(),
            deltas: Vec::new(),
        }
    }

    /// The blocks on the device in which it lies.
    fn place(&self) -> Option<(Addr, u32)> {
        self.frame.place()
    }

    /// How many they are.
    pub(super) fn blocks(&self) -> u64 {
        self.place().map_or(0, |(_, blocks)| blocks.into())
    }

    /// What moving it takes.
    pub(super) fn pack_units(&self) -> PackUnits {
        self.frame.pack_units()
    }
}

/// A live extent and the content of its blocks.
pub(super) struct Loaded {
    pub(super) extent: LiveExtent,
    pub(super) blocks: Buffer,
    /// No block is other than its checksum says, or each of them is.
    pub(super) is_sound: bool,
    pub(super) folded: Option<Folded>,
}

impl Loaded {
    /// Whether it may take less than a block.
    pub(super) fn is_piece(&self) -> bool {
        matches!(self.extent.frame, Extent::Packed(_))
    }

    /// Pages that moving it may make dirty, about.
    pub(super) fn weight(&self) -> usize {
        self.folded
            .as_ref()
            .map_or(1, |folded| pages_with(folded.deltas.len()))
    }

    /// Some of its blocks, as they were read.
    pub(super) fn part(&self, at: usize, len: usize) -> Loaded {
        Loaded {
            extent: self.extent.part(at as u64, len as u64),
            blocks: self.blocks.slice(at..at + len),
            is_sound: self.is_sound,
            folded: None,
        }
    }

    /// Whether what has a checksum is what that says.
    fn soundness(extent: &LiveExtent, blocks: &Buffer) -> Vec<bool> {
        match &extent.frame {
            Extent::Frame { crcs, .. } => {
                let blocks = blocks.chunks_exact(BLOCK_SIZE).zip(crcs);
                blocks
                    .map(|(block, crc)| checksum::data_block(block) == *crc)
                    .collect()
            }
            Extent::Packed(packed) => vec![packed.verified(blocks).is_some()],
            _ => Vec::new(),
        }
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
                extent: extent.part(at as u64, len as u64),
                blocks: blocks.slice(at..at + len),
                is_sound,
                folded: None,
            });
            at += len;
        }
        if parts.is_empty() {
            let is_sound = sound.first().is_none_or(|sound| *sound);
            parts.push(Loaded {
                extent,
                blocks,
                is_sound,
                folded: None,
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
                    folded: None,
                }]);
            }
            // One block may be bad, and not of this one; or it was read wrong this once.
            match self.store.media.read(addr, blocks) {
                Ok(blocks) => {
                    let blocks = self.mended(&extent, blocks);
                    Some(Loaded::parts(extent, blocks))
                }
                Err(error) => {
                    tracing::error!(%addr, %error, "a valid block cannot be read, it stays");
                    None
                }
            }
        });
        loaded.flatten().collect()
    }

    /// What was read of a live extent, or what it should be where that is known otherwise.
    fn mended(&self, extent: &LiveExtent, read: Buffer) -> Buffer {
        let media = &self.store.media;
        if !Loaded::soundness(extent, &read).contains(&false) {
            return read;
        }
        match &extent.frame {
            Extent::Frame { addr, crcs } => media.mended_blocks(*addr, &read, crcs),
            Extent::Packed(packed) => media.mended_packed(packed).unwrap_or(read),
            _ => read,
        }
    }

    /// Writes live extents, which are sorted, elsewhere, and maps the parts of them that are still live.
    pub(super) fn move_group(&self, group: &[Loaded], stream: Stream, life: Life) -> Result<()> {
        self.move_sound(group, true, stream, life)?;
        self.move_sound(group, false, stream, life)
    }

    /// Moves what of a group is sound, or what is not.
    ///
    /// What does not match its checksum moves with the checksum it should have: reading it stays an error. No
    /// record tells of it, for a recovery would take it for data that never arrived, and end the history there: the
    /// next checkpoint that frees zones is a whole one then. Nor does one tell of packed extents on a volume whose records know none.
    fn move_sound(&self, group: &[Loaded], sound: bool, stream: Stream, life: Life) -> Result<()> {
        let run_blocks_max = self.store.run_blocks_max();
        let blocks_max = (self.store.frame_blocks_max(), run_blocks_max);
        let mut moving = Moving::default();
        for loaded in group.iter().filter(|loaded| loaded.is_sound == sound) {
            if !sound {
                let LiveExtent { ino, block, .. } = loaded.extent;
                tracing::error!(%ino, block, blocks = loaded.extent.blocks(), "valid blocks are damaged; they are moved as they are");
            }
            moving.add(loaded, life, blocks_max, &self.store);
        }
        let Moving { mut runs, frames } = moving;
        runs.extend(packed_runs(&frames, life, run_blocks_max));
        if runs.is_empty() {
            return Ok(());
        }
        let mut places = Places::default();
        // What found a place is moved, even if there was none for the rest.
        let result = self
            .placement
            .place_now(stream, Placing::Moved, runs, &mut places);
        let moves = places.placed.iter().flat_map(Placed::moves);
        let mut moves: Vec<Exchange> = moves
            .map(|(ino, block, from, to)| Exchange {
                ino,
                block,
                from,
                to,
            })
            .collect();
        // A dictionary goes with the last that names it, wherever it lies by then: it is not to be put back by its own move after that.
        moves.sort_by_key(|moved| moved.ino != SHARED);
        let with_folded: Vec<&Loaded> = group.iter().filter(|one| one.folded.is_some()).collect();
        if !with_folded.is_empty() {
            let mut folds = Vec::new();
            moves.retain(|moved| {
                let fold = Fold::of(moved, &with_folded);
                let is_fold = fold.is_some();
                folds.extend(fold);
                !is_fold
            });
            let left = self.map_folded(&folds, &with_folded);
            if !left.is_empty() && result.is_ok() {
                self.move_sound(&left, true, stream, life)?;
            }
        }
        for moves in moves.chunks(self.store.moves_max()) {
            let is_packed = |moved: &Exchange| matches!(moved.to, Extent::Packed(_));
            // What is moved is told as the device has it: that is what pays for new blocks.
            let units: PackUnits = moves.iter().map(|moved| moved.to.pack_units()).sum();
            let moved = if sound && (self.store.has_frames() || !moves.iter().any(is_packed)) {
                self.store.change(None, |tx| remap(tx, moves))?.0
            } else {
                self.placement.exchange(moves)?
            };
            if moved > 0 {
                add(&self.store.media.counters.blocks_moved, units.blocks());
            }
        }
        result
    }
}

/// Live extents that are moved together.
#[derive(Default)]
struct Moving {
    runs: Vec<Run>,
    frames: Vec<Compressed>,
}

impl Moving {
    fn add(&mut self, loaded: &Loaded, life: Life, blocks_max: (usize, usize), store: &Store) {
        let LiveExtent {
            ino, block, frame, ..
        } = &loaded.extent;
        match frame {
            Extent::Frame { addr, crcs } => {
                let (data, crcs) = match &loaded.folded {
                    Some(folded) => (&folded.blocks, &folded.crcs),
                    None => (&loaded.blocks, crcs),
                };
                self.runs.push(Run {
                    ino: *ino,
                    file_block: *block,
                    data: data.clone(),
                    crcs: crcs.clone(),
                    packed: Vec::new(),
                    life,
                    from: Some(MovedFrom::Frame(*addr)),
                });
            }
            Extent::Packed(packed) => {
                self.add_packed(loaded, packed, life, blocks_max, store);
            }
            Extent::Inline(_)
            | Extent::Reserved { .. }
            | Extent::Compressed(_)
            | Extent::Shared { .. }
            | Extent::Hole { .. } => {}
        }
    }

    /// A compressed frame moves as it is if that takes what is counted for it. Else what the file still has of it is compressed anew.
    fn add_packed(
        &mut self,
        loaded: &Loaded,
        packed: &Packed,
        life: Life,
        (frame_blocks_max, run_blocks_max): (usize, usize),
        store: &Store,
    ) {
        let LiveExtent {
            ino, block, parts, ..
        } = &loaded.extent;
        let Some(bytes) = packed.bytes(&loaded.blocks) else {
            tracing::error!(addr = %packed.addr, "a valid compressed frame cannot be read, it stays");
            return;
        };
        let live = parts.iter().map(|part| part.extent.blocks()).sum();
        let is_counted_whole = packed.stored(live).units == packed.frame.pack_units();
        // A device may append less at once than when the frame was written.
        let fits = bytes.len().div_ceil(BLOCK_SIZE) <= run_blocks_max;
        let content = if is_counted_whole && fits || !loaded.is_sound {
            None
        } else {
            let dictionary = store.dictionary_of(packed).ok();
            dictionary.and_then(|dictionary| packed.frame.decompress(bytes, &dictionary))
        };
        let Some(content) = content else {
            if !fits {
                tracing::error!(addr = %packed.addr, "a damaged compressed frame is too long for the device, it stays");
                return;
            }
            let (ino, block, bytes) = (*ino, *block, bytes.to_vec());
            self.frames.push(Compressed {
                ino,
                block,
                frame: packed.frame,
                bytes,
                from: Some(*packed),
            });
            return;
        };
        let compression = Compression::for_codec(packed.frame.codec);
        for part in parts {
            let Extent::Packed(from) = part.extent else {
                continue;
            };
            // It is as long as the frame, or it would not have been decompressed.
            let Some(content) = from.of_frame(&content) else {
                continue;
            };
            let pieces = content.chunks(frame_blocks_max * BLOCK_SIZE);
            for (piece, at) in pieces.zip((0..).step_by(frame_blocks_max)) {
                let (ino, start) = (*ino, part.block + at);
                let from = from.part(at, (piece.len() / BLOCK_SIZE) as u64);
                match Compressed::of(ino, start, piece, compression) {
                    Some(frame) => self.frames.push(Compressed {
                        from: Some(from),
                        ..frame
                    }),
                    None => self.runs.push(Run {
                        from: Some(MovedFrom::Packed(from)),
                        ..Run::of(ino, start, buffer(piece), life)
                    }),
                }
            }
        }
    }
}

fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = BufferMut::zeroed(bytes.len() / BLOCK_SIZE);
    buffer.copy_from_slice(bytes);
    buffer.freeze()
}

/// Reads that take in all places, which are sorted.
pub(super) fn joined(places: &[(Addr, u32)]) -> Vec<(Addr, u32)> {
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
            let extent = to.part(live.block - block, blocks);
            tx.push(tx.find(|meta| moved_to(meta, *ino, &live, extent))?);
        }
    }
    Ok(moved)
}

/// What maps a live extent to its new place, in the version whose it is. Mapping takes the deltas of the blocks away, a move does not.
fn moved_to(meta: &Meta, ino: Ino, live: &MappedExtent, extent: Extent) -> Result<Op> {
    let MappedExtent { block, version, .. } = *live;
    let is_plain = meta.versions.is_plain() && !deltas::may_have(meta, ino)?;
    Ok(if is_plain || ino == SHARED {
        Op::Map { ino, block, extent }
    } else {
        Op::Move {
            version,
            ino,
            block,
            extent,
        }
    })
}
