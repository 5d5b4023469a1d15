//! Blocks of files that were read lately, in memory. A mount has the kernel's page cache above it and needs none; a program that
//! uses the library has nothing else between its reads and the device.
//!
//! The cache finds a block by file and number, and proves in one of two ways that the content is current:
//!
//! - By the file's count of changes ([`Files::changes`](super::Files::changes)): while it is what it was when the block was read,
//!   neither size nor content of the file changed. Such a read asks neither for the inode nor for extents, and pins nothing.
//! - By the block's address and the number of resets of its zone. What a block of a zone holds does not change between two resets.
//!   A read that looked up the extent compares these, and notes the count of changes for the next one.
//!
//! So nothing has to be removed in time. The cache holds only what was verified when it was read.
//!
//! It is set associative, as the caches of processors are: a hash chooses a *set* for a block, and the block is in one of the *ways*
//! of that set. Memory for content is taken as blocks come, so a large cache of a small volume costs little.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use persimmon_device::BLOCK_SIZE;
use persimmon_format::{Addr, Ino};
use persimmon_sync::Mutex;
use persimmon_sync::atomic::{AtomicUsize, Ordering};

use super::blocks_in;

use crate::store::Changes;
use crate::zones::Pin;

/// Bytes of the largest reads that look here: what is read in larger pieces is read once, from one end to the other.
const READ_BYTES_MAX: usize = 64 << 10;

/// Sets with one lock. 512 blocks of content, so that threads seldom meet at one.
const SHARD_SETS: usize = 64;

/// Blocks of a set. With eight a set is full of blocks in use while others are not only where the cache is nearly all in use.
const WAYS: usize = 8;

/// All blocks of a file.
pub(super) const ALL_BLOCKS: (u64, u64) = (0, u64::MAX);

/// Blocks that are read together while the cache has room: the files of a small volume are in memory soon, and what is read in vain
/// takes nobody's place.
const AROUND_BLOCKS: u64 = 8;

/// Blocks whose memory is taken together.
const CHUNK_BLOCKS: usize = 16;

/// A file when some of it was read: its size, and the count of changes until which the size and all content stay as they are.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileState {
    pub(super) size: u64,
    pub(super) changes: Changes,
}

impl FileState {
    /// Bytes of a block that the file has.
    fn len_of(&self, block: u64) -> usize {
        let start = block.saturating_mul(BLOCK_SIZE as u64);
        self.size.saturating_sub(start).min(BLOCK_SIZE as u64) as usize
    }
}

/// A file that is read, and the cache that may have some of it.
#[derive(Clone, Copy)]
pub(super) struct Cached<'c> {
    pub(super) cache: &'c ReadCache,
    pub(super) ino: Ino,
    /// `None` while the file is being changed: then what is read is known by its place alone.
    pub(super) state: Option<FileState>,
    /// The file blocks that the state tells of, from the first to past the last. What is stored of others need not be what the file has.
    pub(super) known: (u64, u64),
    /// Blocks that are not in the cache are read with others around them.
    pub(super) reads_around: bool,
}

impl Cached<'_> {
    /// For a file that may have deltas, of which those of these blocks were looked up.
    pub(super) fn of_blocks(self, from: u64, to: u64) -> Self {
        Cached {
            known: (from, to),
            ..self
        }
    }

    /// For what is known by its place alone.
    pub(super) fn by_place(self) -> Self {
        Cached {
            state: None,
            reads_around: false,
            ..self
        }
    }

    /// For the first look, or one after a look that failed: a block around those that are asked for may be what cannot be read.
    pub(super) fn at_look(self, look: usize) -> Self {
        Cached {
            reads_around: look == 0 && self.cache.has_room(),
            ..self
        }
    }

    /// Blocks to read where `from..to` are not in the cache: with those around them as long as the cache has room.
    pub(super) fn around(&self, from: u64, to: u64) -> (u64, u64) {
        let Some(state) = self.state.filter(|_| self.reads_around) else {
            return (from, to);
        };
        let end = to
            .next_multiple_of(AROUND_BLOCKS)
            .min(blocks_in(state.size));
        (from - from % AROUND_BLOCKS, end.max(to))
    }

    fn found(&self, block: u64, at: StoredAt, pin: &Pin) -> Found {
        let (from, to) = self.known;
        let state = self.state.filter(|_| (from..to).contains(&block));
        Found {
            name: Name {
                ino: self.ino,
                block,
            },
            place: Place {
                at,
                resets: pin.resets(),
            },
            known: state.map(|state| Known {
                changes: state.changes,
                len: state.len_of(block),
            }),
        }
    }

    /// Hands `take` the content of a block that lies in a pinned zone, or in a compressed frame there, if it is in the cache.
    pub(super) fn with(
        &self,
        block: u64,
        at: StoredAt,
        pin: &Pin,
        take: impl FnOnce(&[u8]),
    ) -> bool {
        let found = self.found(block, at, pin);
        self.cache.with(&found, take).is_some()
    }

    /// Has the cache keep such a block, which was read and verified.
    pub(super) fn insert(&self, block: u64, at: StoredAt, pin: &Pin, content: &[u8]) {
        self.cache.insert(&self.found(block, at, pin), content);
    }
}

/// A block of a file, as a read found it.
struct Found {
    name: Name,
    place: Place,
    known: Option<Known>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name {
    ino: Ino,
    block: u64,
}

/// Where a block of a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredAt {
    /// As it is.
    Block(Addr),
    /// In a compressed frame that begins at this packing unit of a block, this one of its blocks.
    InFrame(Addr, u8, u8),
}

/// The same, between two resets of the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: StoredAt,
    pub(super) resets: u32,
}

/// What holds of a block while its file has this count of changes.
#[derive(Clone, Copy, Debug)]
struct Known {
    changes: Changes,
    /// Bytes of it that the file has.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Way {
    name: Name,
    place: Place,
    known: Option<Known>,
    /// Where its content is in the shard.
    slot: usize,
}

#[derive(Clone, Default)]
struct Set {
    /// Parts of the hashes of what the ways hold: most looks compare these alone.
    tags: [u32; WAYS],
    ways: [Option<Way>; WAYS],
    /// Was read since the hand passed.
    is_used: [bool; WAYS],
    /// The way that is looked at first for a new block.
    hand: u8,
}

impl Set {
    fn position(&self, tag: u32, name: Name) -> Option<usize> {
        let mut held = self.tags.iter().zip(&self.ways);
        held.position(|(held, way)| *held == tag && way.is_some_and(|way| way.name == name))
    }

    fn find(&mut self, tag: u32, name: Name) -> Option<&mut Way> {
        let at = self.position(tag, name)?;
        *self.is_used.get_mut(at)? = true;
        self.ways.get_mut(at)?.as_mut()
    }

    /// A way for a new block: a free one, or the next that was not read since the hand last passed it.
    fn make_room(&mut self) -> usize {
        if let Some(free) = self.ways.iter().position(Option::is_none) {
            return free;
        }
        loop {
            let way = usize::from(self.hand) % WAYS;
            self.hand = self.hand.wrapping_add(1);
            match self.is_used.get_mut(way) {
                Some(is_used) if *is_used => *is_used = false,
                _ => return way,
            }
        }
    }
}

/// Sets with one lock, and the content of their blocks.
#[derive(Default)]
struct Shard {
    /// None before the first block.
    sets: Vec<Set>,
    content: Vec<Box<[u8]>>,
    slots_used: usize,
}

/// Where a block may be.
struct Spot {
    set: usize,
    tag: u32,
}

impl Shard {
    fn find(&mut self, spot: &Spot, name: Name) -> Option<&mut Way> {
        self.sets.get_mut(spot.set)?.find(spot.tag, name)
    }

    fn content(&self, slot: usize) -> Option<&[u8]> {
        let at = slot % CHUNK_BLOCKS * BLOCK_SIZE;
        let chunk = self.content.get(slot / CHUNK_BLOCKS)?;
        chunk.get(at..at + BLOCK_SIZE)
    }

    fn content_mut(&mut self, slot: usize) -> Option<&mut [u8]> {
        let at = slot % CHUNK_BLOCKS * BLOCK_SIZE;
        let chunk = self.content.get_mut(slot / CHUNK_BLOCKS)?;
        chunk.get_mut(at..at + BLOCK_SIZE)
    }

    /// A slot that no way has, with its memory.
    fn new_slot(&mut self) -> usize {
        let slot = self.slots_used;
        self.slots_used += 1;
        if slot / CHUNK_BLOCKS == self.content.len() {
            let chunk = vec![0; CHUNK_BLOCKS * BLOCK_SIZE];
            self.content.push(chunk.into_boxed_slice());
        }
        slot
    }

    fn insert(&mut self, spot: &Spot, found: &Found, content: &[u8]) -> Option<()> {
        let set = self.sets.get_mut(spot.set)?;
        let at = set.position(spot.tag, found.name);
        let at = at.unwrap_or_else(|| set.make_room());
        let slot = set.ways.get_mut(at)?.take().map(|way| way.slot);
        let slot = slot.unwrap_or_else(|| self.new_slot());
        let kept = self.content_mut(slot)?;
        kept.get_mut(..content.len())?.copy_from_slice(content);
        let set = self.sets.get_mut(spot.set)?;
        *set.tags.get_mut(at)? = spot.tag;
        *set.is_used.get_mut(at)? = false;
        *set.ways.get_mut(at)? = Some(Way {
            name: found.name,
            place: found.place,
            known: found.known,
            slot,
        });
        Some(())
    }
}

pub(crate) struct ReadCache {
    hasher: FixedState,
    sets_in_shard: usize,
    shards: Vec<Mutex<Shard>>,
    /// Blocks that found a way of their own.
    filled: AtomicUsize,
}

impl ReadCache {
    /// None where not one set fits.
    pub(super) fn new(bytes_max: usize) -> Option<ReadCache> {
        let sets = bytes_max / (size_of::<Set>() + WAYS * BLOCK_SIZE);
        let sets_in_shard = sets.min(SHARD_SETS);
        let shards = sets.checked_div(sets_in_shard)?;
        Some(ReadCache {
            hasher: FixedState::default(),
            sets_in_shard,
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            filled: AtomicUsize::new(0),
        })
    }

    /// Whether most sets have a free way.
    pub(super) fn has_room(&self) -> bool {
        let ways = self.shards.len() * self.sets_in_shard * WAYS;
        self.filled.load(Ordering::Relaxed) < ways / 2
    }

    /// Whether a read of so many bytes looks here, and leaves what it read.
    pub(super) fn serves(bytes: usize) -> bool {
        bytes <= READ_BYTES_MAX
    }

    fn shard(&self, name: Name) -> Option<(&Mutex<Shard>, Spot)> {
        let hash = self.hasher.hash_one(name);
        let (high, low) = ((hash >> 32) as usize, hash as u32);
        let shard = self.shards.get(high % self.shards.len())?;
        let set = high / self.shards.len() % self.sets_in_shard;
        Some((shard, Spot { set, tag: low }))
    }

    /// Reads a range of a file that had `changes` changes when the read began: fewer bytes than asked for at its end. `None` if not
    /// all blocks are here, or not known to be current.
    pub(super) fn read(
        &self,
        ino: Ino,
        changes: Changes,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<usize> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.checked_add(done as u64)?;
            let within = (at % BLOCK_SIZE as u64) as usize;
            let block = at / BLOCK_SIZE as u64;
            let name = Name { ino, block };
            let (shard, spot) = self.shard(name)?;
            let mut shard = shard.lock();
            let way = shard.find(&spot, name)?;
            let known = way.known.filter(|known| known.changes == changes)?;
            let slot = way.slot;
            let rest = buf.get_mut(done..)?;
            let take = known.len.saturating_sub(within).min(rest.len());
            let from = shard.content(slot)?.get(within..within + take)?;
            rest.get_mut(..take)?.copy_from_slice(from);
            done += take;
            if known.len < BLOCK_SIZE && within + take >= known.len {
                break;
            }
        }
        (done > 0).then_some(done)
    }

    fn with(&self, found: &Found, take: impl FnOnce(&[u8])) -> Option<()> {
        let (shard, spot) = self.shard(found.name)?;
        let mut shard = shard.lock();
        let way = shard.find(&spot, found.name)?;
        if way.place != found.place {
            return None;
        }
        way.known = found.known.or(way.known);
        let slot = way.slot;
        take(shard.content(slot)?);
        Some(())
    }

    fn insert(&self, found: &Found, content: &[u8]) {
        if let Some((shard, spot)) = self.shard(found.name) {
            let mut shard = shard.lock();
            if shard.sets.is_empty() {
                shard.sets = vec![Set::default(); self.sets_in_shard];
            }
            let slots_used = shard.slots_used;
            shard.insert(&spot, found, content);
            let taken = shard.slots_used - slots_used;
            self.filled.fetch_add(taken, Ordering::Relaxed);
        }
    }
}
