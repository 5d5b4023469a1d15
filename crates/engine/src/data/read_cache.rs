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
//! of that set. Memory for content is taken as blocks come, so a large cache of a small volume costs little. Readers take no lock and write
//! nothing that others read, so they do not slow each other down.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use persimmon_device::BLOCK_SIZE;
use persimmon_format::{Addr, Ino};
use persimmon_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use persimmon_sync::{Arc, ArcSwapOption, Mutex, OnceLock};

use super::blocks_in;

use crate::store::Changes;
use crate::zones::Pin;

/// Bytes of the largest reads that look here: what is read in larger pieces is read once, from one end to the other.
const READ_BYTES_MAX: usize = 64 << 10;

/// Sets that are changed under one lock. 512 blocks of content, so that threads seldom meet at one.
const SHARD_SETS: usize = 64;

/// Bytes of the largest cache. Its shards are made at once, and take 32 MiB then.
const BYTES_MAX: usize = 1 << 40;

/// Blocks of a set. With eight a set is full of blocks in use while others are not only where the cache is nearly all in use.
const WAYS: usize = 8;

/// All blocks of a file.
pub(super) const ALL_BLOCKS: (u64, u64) = (0, u64::MAX);

/// Blocks that are read together while the cache has room: the files of a small volume are in memory soon, and what is read in vain
/// takes nobody's place.
const AROUND_BLOCKS: u64 = 8;

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

/// A block in the cache. Only what is known of it changes.
struct Block {
    name: Name,
    place: Place,
    known: KnownCell,
    content: [u8; BLOCK_SIZE],
}

/// A [`Known`] that readers set. Whatever was set stays true, so it does not matter who is last.
struct KnownCell(AtomicU64);

/// A length may be that of a whole block.
const LEN_BITS: u32 = BLOCK_SIZE.ilog2() + 1;
const NOTHING_KNOWN: u64 = u64::MAX;

impl KnownCell {
    fn new(known: Option<Known>) -> KnownCell {
        let cell = KnownCell(AtomicU64::new(NOTHING_KNOWN));
        cell.set(known);
        cell
    }

    fn set(&self, known: Option<Known>) {
        let packed = known.and_then(|known| known.changes.packed(known.len as u64, LEN_BITS));
        if let Some(packed) = packed.filter(|packed| self.0.load(Ordering::Relaxed) != *packed) {
            self.0.store(packed, Ordering::Relaxed);
        }
    }

    /// Bytes that the file has of it while it has this count of changes.
    fn len_at(&self, changes: Changes) -> Option<usize> {
        let known = self.0.load(Ordering::Relaxed);
        let len = known & ((1 << LEN_BITS) - 1);
        (changes.packed(len, LEN_BITS) == Some(known)).then_some(len as usize)
    }
}

#[derive(Default)]
struct Set {
    /// Parts of the hashes of what the ways hold: most looks compare these alone.
    tags: [AtomicU32; WAYS],
    ways: [ArcSwapOption<Block>; WAYS],
    /// Was read since the hand passed.
    is_used: [AtomicBool; WAYS],
    /// The way that is looked at first for a new block.
    hand: AtomicUsize,
}

impl Set {
    /// Hands `take` the block if it is here.
    fn with<R>(&self, tag: u32, name: Name, take: impl FnOnce(&Block) -> Option<R>) -> Option<R> {
        for ((held, way), is_used) in self.tags.iter().zip(&self.ways).zip(&self.is_used) {
            if held.load(Ordering::Relaxed) != tag {
                continue;
            }
            let way = way.load();
            if let Some(block) = way.as_ref().filter(|block| block.name == name) {
                if !is_used.load(Ordering::Relaxed) {
                    is_used.store(true, Ordering::Relaxed);
                }
                return take(block);
            }
        }
        None
    }

    /// Puts a block into its way, a free one, or the next that was not read since the hand last passed it. True if the way was free. For
    /// who holds the shard's lock.
    fn put(&self, tag: u32, block: Block) -> bool {
        let has = |way: &ArcSwapOption<Block>| way.load().as_ref().map(|held| held.name);
        let names: [Option<Name>; WAYS] = self.ways.each_ref().map(has);
        let own = names.iter().position(|held| *held == Some(block.name));
        let free = || names.iter().position(Option::is_none);
        let at = own.or_else(free).unwrap_or_else(|| self.make_room());
        let (Some(way), Some(held), Some(is_used)) =
            (self.ways.get(at), self.tags.get(at), self.is_used.get(at))
        else {
            return false;
        };
        held.store(tag, Ordering::Relaxed);
        is_used.store(false, Ordering::Relaxed);
        way.swap(Some(Arc::new(block))).is_none()
    }

    fn make_room(&self) -> usize {
        loop {
            let way = self.hand.load(Ordering::Relaxed) % WAYS;
            self.hand.store(way + 1, Ordering::Relaxed);
            match self.is_used.get(way) {
                Some(is_used) if is_used.swap(false, Ordering::Relaxed) => {}
                _ => return way,
            }
        }
    }
}

/// Sets that are changed under one lock.
#[derive(Default)]
struct Shard {
    /// None before the first block.
    sets: OnceLock<Box<[Set]>>,
    changing: Mutex<()>,
}

/// Where a block may be.
struct Spot {
    set: usize,
    tag: u32,
}

pub(crate) struct ReadCache {
    hasher: FixedState,
    sets_in_shard: usize,
    shards: Vec<Shard>,
    /// Blocks that found a way of their own.
    filled: AtomicUsize,
}

impl ReadCache {
    /// None where not one set fits.
    pub(super) fn new(bytes_max: usize) -> Option<ReadCache> {
        let sets = bytes_max.min(BYTES_MAX) / (size_of::<Set>() + WAYS * size_of::<Block>());
        let sets_in_shard = sets.min(SHARD_SETS);
        let shards = sets.checked_div(sets_in_shard)?;
        Some(ReadCache {
            hasher: FixedState::default(),
            sets_in_shard,
            shards: (0..shards).map(|_| Shard::default()).collect(),
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

    fn shard(&self, name: Name) -> Option<(&Shard, Spot)> {
        let hash = self.hasher.hash_one(name);
        let (high, low) = ((hash >> 32) as usize, hash as u32);
        let shard = self.shards.get(high % self.shards.len())?;
        let set = high / self.shards.len() % self.sets_in_shard;
        Some((shard, Spot { set, tag: low }))
    }

    /// Hands `take` a block if it is here.
    fn look<R>(&self, name: Name, take: impl FnOnce(&Block) -> Option<R>) -> Option<R> {
        let (shard, spot) = self.shard(name)?;
        let set = shard.sets.get()?.get(spot.set)?;
        set.with(spot.tag, name, take)
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
            let rest = buf.get_mut(done..)?;
            let (len, take) = self.look(Name { ino, block }, |block| {
                let len = block.known.len_at(changes)?;
                let take = len.saturating_sub(within).min(rest.len());
                let from = block.content.get(within..within + take)?;
                rest.get_mut(..take)?.copy_from_slice(from);
                Some((len, take))
            })?;
            done += take;
            if len < BLOCK_SIZE && within + take >= len {
                break;
            }
        }
        (done > 0).then_some(done)
    }

    fn with(&self, found: &Found, take: impl FnOnce(&[u8])) -> Option<()> {
        self.look(found.name, |block| {
            if block.place != found.place {
                return None;
            }
            block.known.set(found.known);
            take(&block.content);
            Some(())
        })
    }

    fn insert(&self, found: &Found, content: &[u8]) {
        let mut whole = [0; BLOCK_SIZE];
        let Some((shard, spot)) = self.shard(found.name) else {
            return;
        };
        let Some(start) = whole.get_mut(..content.len()) else {
            return;
        };
        start.copy_from_slice(content);
        let block = Block {
            name: found.name,
            place: found.place,
            known: KnownCell::new(found.known),
            content: whole,
        };
        let new_sets = || (0..self.sets_in_shard).map(|_| Set::default()).collect();
        let _changing = shard.changing.lock();
        let sets = shard.sets.get_or_init(new_sets);
        if let Some(set) = sets.get(spot.set)
            && set.put(spot.tag, block)
        {
            self.filled.fetch_add(1, Ordering::Relaxed);
        }
    }
}
