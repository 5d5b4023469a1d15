//! Blocks of files that were read lately, in memory. A mount has the kernel's page cache above it and needs none; a program that
//! uses the library has nothing else between its reads and the device.
//!
//! What a block of a zone holds does not change until the zone is reset: a block is known by its address and by how
//! often its zone was reset before. Nothing has to be forgotten in time, then. What the cache holds was verified when it was read.
//!
//! It is set associative, as the caches of processors are: a block has its place in one of a few *ways* of one *set*, which its hash
//! chooses. A look costs one or two waits for memory and the copy. A cache of tables and lists of shared blocks took five, half of the
//! time of a read that found its blocks.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;
use persimmon_device::{BLOCK_SIZE, LargePages};
use persimmon_format::Addr;
use persimmon_sync::Mutex;

use crate::zones::Pin;

/// Bytes of the largest reads that look here: what is read in larger pieces is read once, from one end to the other.
const READ_BYTES_MAX: usize = 64 << 10;

/// Blocks with one lock: those of a large page.
const SHARD_BLOCKS: usize = (2 << 20) / BLOCK_SIZE;

/// Blocks of a set. With eight a set is full of blocks in use while others are not only where the cache is nearly all in use.
const WAYS: usize = 8;

/// A block of a zone, between two resets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    addr: Addr,
    resets: u32,
}

impl Place {
    /// Of a block in a zone that a reader has pinned.
    fn of(addr: Addr, pin: &Pin) -> Place {
        let resets = pin.resets();
        Place { addr, resets }
    }
}

/// What the ways of a set hold.
#[derive(Clone, Copy, Default)]
struct Set {
    places: [Option<Place>; WAYS],
    /// Was read since the hand passed.
    is_used: [bool; WAYS],
    /// The way that is looked at first for a new block.
    hand: u8,
}

impl Set {
    fn way_of(&self, place: Place) -> Option<usize> {
        self.places.iter().position(|held| *held == Some(place))
    }

    /// A way for a new block: a free one, or the next that was not read since the hand last passed it.
    fn make_room(&mut self) -> usize {
        if let Some(free) = self.places.iter().position(Option::is_none) {
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
struct Shard {
    sets: Vec<Set>,
    /// Once there is a block.
    content: Option<LargePages>,
}

impl Shard {
    /// The content of a way.
    fn range(set: usize, way: usize) -> std::ops::Range<usize> {
        let at = (set * WAYS + way) * BLOCK_SIZE;
        at..at + BLOCK_SIZE
    }
}

pub(crate) struct ReadCache {
    hasher: FixedState,
    shards: Vec<Mutex<Shard>>,
}

impl ReadCache {
    /// None where not one set fits.
    pub(crate) fn new(bytes_max: usize) -> Option<ReadCache> {
        let sets = bytes_max / (size_of::<Set>() + WAYS * BLOCK_SIZE);
        let in_shard = sets.min(SHARD_BLOCKS / WAYS);
        let shards = sets.checked_div(in_shard)?;
        let shard = || {
            Mutex::new(Shard {
                sets: vec![Set::default(); in_shard],
                content: None,
            })
        };
        Some(ReadCache {
            hasher: FixedState::default(),
            shards: (0..shards).map(|_| shard()).collect(),
        })
    }

    /// Whether a read of so many bytes looks here, and leaves what it read.
    pub(super) fn serves(bytes: usize) -> bool {
        bytes <= READ_BYTES_MAX
    }

    /// The shard of a place, and a number that chooses its set there.
    fn shard(&self, place: Place) -> Option<(&Mutex<Shard>, usize)> {
        let hash = self.hasher.hash_one(place);
        let (high, low) = ((hash >> 32) as usize, hash as u32 as usize);
        let shard = self.shards.get(high % self.shards.len())?;
        Some((shard, low))
    }

    /// Hands `take` a block of a pinned zone, if it is here.
    pub(super) fn with(&self, addr: Addr, pin: &Pin, take: impl FnOnce(&[u8])) -> bool {
        let place = Place::of(addr, pin);
        let Some((shard, number)) = self.shard(place) else {
            return false;
        };
        let mut shard = shard.lock();
        let at = number % shard.sets.len();
        let Some(set) = shard.sets.get_mut(at) else {
            return false;
        };
        let Some(way) = set.way_of(place) else {
            return false;
        };
        if let Some(is_used) = set.is_used.get_mut(way) {
            *is_used = true;
        }
        let content = shard.content.as_ref();
        let Some(content) = content.and_then(|content| content.get(Shard::range(at, way))) else {
            return false;
        };
        take(content);
        true
    }

    /// Keeps a block of a pinned zone that was read and verified, if there is memory for it.
    pub(super) fn insert(&self, addr: Addr, pin: &Pin, block: &[u8]) {
        let place = Place::of(addr, pin);
        let Some((shard, number)) = self.shard(place) else {
            return;
        };
        let mut shard = shard.lock();
        let Shard { sets, content } = &mut *shard;
        let at = number % sets.len();
        let bytes = sets.len() * WAYS * BLOCK_SIZE;
        if content.is_none() {
            *content = LargePages::new(bytes).ok();
        }
        let (Some(content), Some(set)) = (content, sets.get_mut(at)) else {
            return;
        };
        if set.way_of(place).is_some() {
            return;
        }
        let way = set.make_room();
        let kept = content.get_mut(Shard::range(at, way));
        let held = set.places.get_mut(way).zip(set.is_used.get_mut(way));
        if let (Some(kept), Some((held, is_used)), BLOCK_SIZE) = (kept, held, block.len()) {
            kept.copy_from_slice(block);
            (*held, *is_used) = (Some(place), false);
        }
    }
}
