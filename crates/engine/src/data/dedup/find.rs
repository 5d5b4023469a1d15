//! Which blocks of a batch are stored already: by the table of hashes, and by their bytes.

use std::collections::BTreeMap;

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::Ino;
use persimmon_format::delta::block_at;
use persimmon_format::extent::{Extent, FRAME_BLOCKS_MAX};
use persimmon_sync::Mutex;

use super::table::{SPACING_MAX, Seen};
use super::{Deduplication, Duplicate, Piece};
use crate::data::FileData;
use crate::data::read::Found;
use crate::data::read_cache::{Place, StoredAt};
use crate::data::read_plan::Plan;
use crate::error::Result;
use crate::meta::sharing;

/// Fewer blocks are written, unless they are all of a piece: each run of shared blocks takes entries of the metadata, and cuts the
/// compressed frames of its file.
const RUN_BLOCKS_MIN: usize = 4;
/// Blocks that are read at first to be compared: most that are not equal differ early.
const FIRST_LOOK_BLOCKS: usize = 8;
/// Comparisons of a batch that may turn out to be for nothing: the table has hints. What cannot be shared is not read, and counts for none.
const MISSES_MAX: u32 = 32;
/// Blocks hashed by one job.
const HASHED_BLOCKS: usize = 32;
/// Blocks that have to be free beside all that is promised. What is shared and overwritten frees nothing, and pages of the tree that become
/// dirty take room: six of one record, more or less, with three blocks each.
const ROOM_BLOCKS: u64 = 256;
/// On small volumes this fraction of what users may fill, and `ROOM_BLOCKS_MIN` at least.
const ROOM_SHARE: u64 = 16;
const ROOM_BLOCKS_MIN: u64 = 64;

/// Blocks of a batch that are written, by their places in files.
type Written = BTreeMap<(Ino, u64), Buffer>;

/// Blocks that were compared and are equal.
struct Run {
    /// Blocks before the one that was looked for, and from it on.
    before: usize,
    blocks: usize,
    from: Seen,
    places: Option<Vec<Place>>,
}

impl Run {
    /// It as blocks `start..end` of a piece.
    fn into_duplicate(self, piece: &Piece, start: usize) -> Option<Duplicate> {
        Some(Duplicate {
            piece: piece.part(start, start + self.before + self.blocks)?,
            from: self.from.ino,
            from_block: self.from.block - self.before as u64,
            places: self.places,
            is_part: false,
        })
    }
}

/// What came of looking at a block that was seen.
enum Looked {
    Equal(Run),
    /// It was read, and is not equal.
    Differs,
    /// Nothing is there that may be shared.
    NotThere,
}

/// Hashes of the blocks of a piece; none of those that need not be looked at.
type Hashes = Vec<Option<u64>>;

impl FileData {
    /// Parts pieces of a batch, which are in order, into those that are written and those that some file has stored already.
    pub(in crate::data) fn find_duplicates(
        &self,
        pieces: Vec<Piece>,
    ) -> (Vec<Piece>, Vec<Duplicate>) {
        let Some(dedup) = &self.dedup else {
            return (pieces, Vec::new());
        };
        let seeks = self.has_room_to_share();
        let bytes_max = dedup.bytes_for(self.store.zones.live_data_blocks());
        let hashes = self.hashes(dedup, &pieces);
        let (mut rest, mut duplicates) = (Vec::new(), Vec::new());
        let mut written = Written::new();
        let mut misses = 0;
        for (piece, hashes) in pieces.iter().zip(&hashes) {
            let write = |part: Option<Piece>, rest: &mut Vec<Piece>, written: &mut Written| {
                if let Some(part) = part {
                    written.insert((part.ino, part.first), part.data.clone());
                    rest.push(part);
                }
            };
            // Before it all is decided.
            let (mut done, mut at) = (0, 0);
            while let Some(hash) = hashes.get(at) {
                let is_first = at == 0 || hashes.get(at - 1) != Some(hash);
                // Of blocks that repeat, as those of a file that is filled with one byte, the first is looked at alone.
                let Some(hash) = hash.filter(|_| is_first) else {
                    at += 1;
                    continue;
                };
                let seen = match seeks && piece.is_sought && misses < MISSES_MAX {
                    true => dedup.table.lock().find(hash),
                    false => None,
                };
                let looked = seen.map(|seen| self.equal_run(piece, (done, at), seen, &written));
                misses += u32::from(matches!(looked, Some(Looked::Differs)));
                let run = match looked {
                    Some(Looked::Equal(run)) => Some(run),
                    _ => None,
                };
                let run = run.filter(|run| {
                    let blocks = run.before + run.blocks;
                    blocks >= RUN_BLOCKS_MIN || blocks == piece.blocks()
                });
                if let Some(run) = run {
                    let (start, end) = (at - run.before, at + run.blocks);
                    write(piece.part(done, start), &mut rest, &mut written);
                    duplicates.extend(run.into_duplicate(piece, start));
                    (done, at) = (end, end);
                    continue;
                }
                let block = piece.first + at as u64;
                let ino = piece.ino;
                dedup
                    .table
                    .lock()
                    .insert(hash, Seen { ino, block }, bytes_max);
                at += 1;
            }
            write(piece.part(done, piece.blocks()), &mut rest, &mut written);
        }
        (rest, duplicates)
    }

    /// Whether there is so much room that sharing blocks can take none from what was promised.
    pub(in crate::data) fn has_room_to_share(&self) -> bool {
        let share = self.store.zones.user_blocks() / ROOM_SHARE;
        let wanted = share.clamp(ROOM_BLOCKS_MIN, ROOM_BLOCKS);
        self.space.available_blocks() >= wanted
    }

    fn hashes(&self, dedup: &Deduplication, pieces: &[Piece]) -> Vec<Hashes> {
        let jobs: Vec<(usize, usize)> = pieces
            .iter()
            .enumerate()
            .flat_map(|(number, piece)| {
                let starts = (0..piece.blocks()).step_by(HASHED_BLOCKS);
                starts.map(move |start| (number, start))
            })
            .collect();
        let hash = |&(number, start): &(usize, usize)| -> Hashes {
            let Some(piece) = pieces.get(number) else {
                return Hashes::new();
            };
            let end = piece.blocks().min(start + HASHED_BLOCKS);
            let blocks = piece.content(start, end).chunks_exact(BLOCK_SIZE);
            let places = piece.first + start as u64..;
            let hashes = places.zip(blocks).map(|(block, content)| {
                let is_wanted = piece.is_sought || dedup.table.lock().takes(block);
                is_wanted.then(|| dedup.hash(content)).flatten()
            });
            hashes.collect()
        };
        let done: Vec<Mutex<Hashes>> = jobs.iter().map(|_| Mutex::default()).collect();
        self.store.options.parallel.run(jobs.len(), &|job| {
            if let (Some(what), Some(done)) = (jobs.get(job), done.get(job)) {
                *done.lock() = hash(what);
            }
        });
        let mut hashes: Vec<Hashes> = pieces.iter().map(|_| Hashes::new()).collect();
        for ((number, _), done) in jobs.into_iter().zip(done) {
            if let Some(all) = hashes.get_mut(number) {
                all.extend(done.into_inner());
            }
        }
        hashes
    }

    /// The blocks of a piece around one, not before block `done` of it, that are equal to those around a block that was seen.
    fn equal_run(
        &self,
        piece: &Piece,
        (done, at): (usize, usize),
        seen: Seen,
        written: &Written,
    ) -> Looked {
        let block = piece.first + at as u64;
        let is_in_place = seen.ino == piece.ino && seen.block == block;
        // Ranges of one file must not overlap, also where it is in a snapshot.
        let limit = match seen.ino.plain() == piece.ino.plain() && !is_in_place {
            true => seen.block.abs_diff(block).min(FRAME_BLOCKS_MAX as u64) as usize,
            false => FRAME_BLOCKS_MAX,
        };
        let before = (at - done)
            .min(seen.block as usize)
            .min(SPACING_MAX as usize);
        let (before, forward) = (
            before.min(limit.saturating_sub(1)),
            limit.min(piece.blocks() - at),
        );
        if forward == 0 {
            return Looked::NotThere;
        }
        if let Some(run) = written_run(piece, at, (before, forward), seen, written) {
            return Looked::Equal(run);
        }
        let mut places = Vec::new();
        let (mut step, mut is_read) = (FIRST_LOOK_BLOCKS, false);
        while places.len() < forward {
            let start = at + places.len();
            let end = at + forward.min(places.len() + step);
            let content = piece.content(start, end);
            let from = seen.block + places.len() as u64;
            let Some(equal) = self.equal_blocks(seen.ino, from, content) else {
                break;
            };
            is_read = true;
            let wanted = end - start;
            let equal: Vec<Place> = equal.into_iter().map_while(|place| place).collect();
            let is_end = equal.len() < wanted;
            places.extend(equal);
            if is_end {
                break;
            }
            step *= 4;
        }
        if places.is_empty() {
            return if is_read {
                Looked::Differs
            } else {
                Looked::NotThere
            };
        }
        let blocks = places.len();
        let before = before.min(limit - blocks);
        if before > 0 {
            let content = piece.content(at - before, at);
            let equal = self.equal_blocks(seen.ino, seen.block - before as u64, content);
            let equal = equal
                .unwrap_or_default()
                .into_iter()
                .rev()
                .map_while(|place| place);
            let mut all: Vec<Place> = equal.collect();
            all.reverse();
            all.append(&mut places);
            places = all;
        }
        Looked::Equal(Run {
            before: places.len() - blocks,
            blocks,
            from: seen,
            places: Some(places),
        })
    }

    /// Where those of some blocks of a file are stored that are equal to `content`, and may be shared as far as that tells. What cannot be
    /// read is equal to nothing. `None`: none may be shared, and nothing is read.
    fn equal_blocks(&self, ino: Ino, from: u64, content: &[u8]) -> Option<Vec<Option<Place>>> {
        let to = from + (content.len() / BLOCK_SIZE) as u64;
        let found = self.find(ino, from, to).ok()?;
        let mut places = places_of(&found, from, to);
        if places.iter().all(Option::is_none) {
            return None;
        }
        let mut stored = vec![0; content.len()];
        let read = self.read_stored(ino, &found, (from, to), &mut stored);
        if read.is_err() {
            return Some(Vec::new());
        }
        let (stored, content) = (
            stored.chunks_exact(BLOCK_SIZE),
            content.chunks_exact(BLOCK_SIZE),
        );
        for ((stored, content), place) in stored.zip(content).zip(&mut places) {
            place.take_if(|_| stored != content);
        }
        Some(places)
    }

    fn read_stored(
        &self,
        ino: Ino,
        found: &Found,
        (from, to): (u64, u64),
        buf: &mut [u8],
    ) -> Result<()> {
        let offset = from * BLOCK_SIZE as u64;
        let mut plan = Plan::through(self.kept_by_place(ino));
        self.plan(ino, &found.extents, (from, to), offset, buf, &mut plan)?;
        self.fetch_into(ino, &plan, offset, buf)
    }

    /// Remembers some of what was read of a file of this size.
    pub(in crate::data) fn note_read(&self, ino: Ino, offset: u64, bytes: &[u8], size: u64) {
        if let Some(dedup) = &self.dedup {
            let bytes_max = dedup.bytes_for(self.store.zones.live_data_blocks());
            dedup.note_read(ino, offset, (bytes, size), bytes_max);
        }
    }
}

/// The same of blocks that are written with the batch.
fn written_run(
    piece: &Piece,
    at: usize,
    (before, forward): (usize, usize),
    seen: Seen,
    written: &Written,
) -> Option<Run> {
    let ((_, first), data) = written
        .range((seen.ino, 0)..=(seen.ino, seen.block))
        .next_back()?;
    let place = usize::try_from(seen.block - first).ok()?;
    let blocks = data.blocks() as usize;
    let theirs = |at: usize| data.get(at * BLOCK_SIZE..(at + 1) * BLOCK_SIZE);
    let ours = |at: usize| Some(piece.content(at, at + 1));
    let forward = forward.min(blocks.checked_sub(place)?);
    let is_equal = |(our, their): (usize, usize)| ours(our) == theirs(their);
    let ahead = (at..at + forward).zip(place..);
    let equal = ahead.take_while(|pair| is_equal(*pair)).count();
    if equal == 0 {
        return None;
    }
    let back = (1..=before.min(place)).take_while(|back| is_equal((at - back, place - back)));
    Some(Run {
        before: back.count(),
        blocks: equal,
        from: seen,
        places: None,
    })
}

/// Where blocks `from..to` of a file are stored: none for one that cannot be shared, or that has a delta.
pub(super) fn places_of(found: &Found, from: u64, to: u64) -> Vec<Option<Place>> {
    let mut places = vec![None; (to - from) as usize];
    let mut set = |block: u64, place: Option<Place>| {
        let at = block
            .checked_sub(from)
            .and_then(|at| usize::try_from(at).ok());
        if let Some(at) = at.and_then(|at| places.get_mut(at)) {
            *at = place;
        }
    };
    for (mapped, pin) in &found.extents {
        let Some(pin) = pin else { continue };
        for block in mapped.block.max(from)..mapped.end().min(to) {
            let at = stored_at(&mapped.extent, block - mapped.block);
            let resets = pin.resets();
            set(block, at.map(|at| Place { at, resets }));
        }
    }
    for (delta, _) in &found.deltas {
        set(block_at(delta.block), None);
    }
    places
}

/// Where a block of an extent is stored, if it may go to the store of shared blocks, or is there.
pub(in crate::data) fn stored_at(extent: &Extent, block: u64) -> Option<StoredAt> {
    match extent {
        Extent::Frame { addr, .. } => Some(StoredAt::Block(addr.offset(block as u32))),
        Extent::Packed(packed) if sharing::may_be_shared(extent) => {
            let index = packed.skip.checked_add(block as u8)?;
            Some(StoredAt::InFrame(packed.addr, packed.unit, index))
        }
        _ => None,
    }
}
