//! Where blocks of files were seen, by the hashes of their content: a table in memory that stays below a bound. It holds hints. What it tells is
//! read and compared before anything is made of it.
//!
//! It begins small and grows with the data of the volume. Where it is as large as it may be, one block in 2, 4, up to 32 of a file is remembered, the
//! first always: runs of equal blocks are found from any of those on, and small files by their first. In the end others are forgotten for
//! new ones.

use persimmon_format::Ino;

/// A block of a file that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) ino: Ino,
    pub(super) block: u64,
}

/// An entry is the inode's number, 0 if it is free, and 36 bits of the hash over 28 bits of the block's number.
type Entry = [u64; 2];

const FREE: Entry = [0; 2];
const BLOCK_BITS: u32 = 28;
const HASH_BITS: u32 = 64 - BLOCK_BITS;
/// Entries that a hash may be in: nearly all of a table fills before one group of them is full.
const WAYS: usize = 32;
const GROUP_BYTES: usize = WAYS * size_of::<Entry>();
/// The smallest table.
const BYTES_MIN: usize = 64 << 10;
/// Most blocks of a file of which one is remembered.
pub(super) const SPACING_MAX: u64 = 32;

/// See the module.
pub(super) struct Table {
    /// Groups of [`WAYS`]; their number is a power of two.
    entries: Vec<Entry>,
    /// Blocks at multiples of this number are remembered.
    spacing: u64,
}

impl Table {
    pub(super) fn new() -> Table {
        Table {
            entries: vec![FREE; BYTES_MIN / size_of::<Entry>()],
            spacing: 1,
        }
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }

    /// Where a block of that hash was seen last. It is most likely equal.
    pub(super) fn find(&self, hash: u64) -> Option<Seen> {
        let group = self.entries.get(self.group(hash)).unwrap_or_default();
        let found = group.iter().find(|entry| is_of(entry, hash));
        found.map(|entry| Seen {
            ino: Ino(entry[0]),
            block: entry[1] & ((1 << BLOCK_BITS) - 1),
        })
    }

    /// Whether a block at this place of a file would be remembered. Blocks behind 1 TiB of a file are not.
    pub(super) fn takes(&self, block: u64) -> bool {
        block.is_multiple_of(self.spacing) && block >> BLOCK_BITS == 0
    }

    /// Remembers a block, in place of another of the same hash. The table may take `bytes_max`, or what the smallest takes.
    pub(super) fn insert(&mut self, hash: u64, seen: Seen, bytes_max: usize) {
        while self.takes(seen.block) {
            let (group, bytes) = (self.group(hash), self.bytes());
            let ways = self.entries.get_mut(group).unwrap_or_default();
            let entry = [seen.ino.0, hash >> BLOCK_BITS << BLOCK_BITS | seen.block];
            let same = ways.iter().position(|entry| is_of(entry, hash));
            let place = same.or_else(|| ways.iter().position(|entry| *entry == FREE));
            if let Some(place) = place.and_then(|place| ways.get_mut(place)) {
                *place = entry;
                return;
            }
            // While it grows there are both.
            if bytes * 3 <= bytes_max {
                self.grow();
            } else if self.spacing < SPACING_MAX {
                self.space_out();
            } else {
                // Any of them: the hash says which.
                if let Some(place) = ways.get_mut(hash as usize % WAYS) {
                    *place = entry;
                }
                return;
            }
        }
    }

    /// The first bits of a hash choose the group.
    fn group(&self, hash: u64) -> std::ops::Range<usize> {
        let bits = (self.entries.len() / WAYS).trailing_zeros();
        let group = hash.checked_shr(u64::BITS - bits).unwrap_or(0) as usize;
        group * WAYS..(group + 1) * WAYS
    }

    fn grow(&mut self) {
        let twice = vec![FREE; self.entries.len() * 2];
        let before = std::mem::replace(&mut self.entries, twice);
        for entry in before.into_iter().filter(|entry| *entry != FREE) {
            // Half of a group goes to each of two: there is room.
            let group = self.group(entry[1]);
            let ways = self.entries.get_mut(group).unwrap_or_default();
            if let Some(free) = ways.iter_mut().find(|entry| **entry == FREE) {
                *free = entry;
            }
        }
    }

    fn space_out(&mut self) {
        self.spacing *= 2;
        for entry in &mut self.entries {
            if entry[1] & (self.spacing - 1) != 0 {
                *entry = FREE;
            }
        }
    }
}

/// Whether an entry is of this hash, as far as it tells.
fn is_of(entry: &Entry, hash: u64) -> bool {
    *entry != FREE && entry[1] >> BLOCK_BITS == hash >> BLOCK_BITS
}

const _: () = assert!(HASH_BITS >= 32 && BYTES_MIN.is_multiple_of(GROUP_BYTES));
const _: () = assert!((BYTES_MIN / GROUP_BYTES).is_power_of_two());

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        let bytes = *blake3::hash(&number.to_le_bytes()).as_bytes();
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    }

    fn fill(table: &mut Table, blocks: u64, bytes_max: usize) {
        for block in 0..blocks {
            let seen = Seen { ino: Ino(7), block };
            table.insert(hash(block), seen, bytes_max);
        }
    }

    fn found(table: &Table, blocks: u64) -> Vec<u64> {
        let found = (0..blocks).filter(|block| {
            let found = table.find(hash(*block));
            let other = found
                .filter(|seen| seen.block != *block)
                .map(|seen| seen.block);
            let is_alike = |other: u64| hash(other) >> BLOCK_BITS == hash(*block) >> BLOCK_BITS;
            assert!(other.is_none_or(is_alike), "{block}: {other:?}");
            found.is_some()
        });
        found.collect()
    }

    #[test]
    fn it_grows_as_far_as_it_may_and_then_remembers_fewer() {
        let mut table = Table::new();
        assert_eq!(table.bytes(), BYTES_MIN);
        fill(&mut table, 1500, 0);
        assert_eq!(found(&table, 1500).len(), 1500, "{}", table.spacing);
        // With room it holds all of them.
        fill(&mut table, 50_000, 3 << 20);
        assert!(
            (1 << 20..=3 << 20).contains(&table.bytes()),
            "{}",
            table.bytes()
        );
        assert_eq!((found(&table, 50_000).len(), table.spacing), (50_000, 1));
        // Without, blocks at some places of files.
        let mut table = Table::new();
        fill(&mut table, 50_000, 0);
        assert_eq!(table.bytes(), BYTES_MIN);
        let found = found(&table, 50_000);
        assert!((8..=32).contains(&table.spacing), "{}", table.spacing);
        assert!(
            found
                .iter()
                .all(|block| block.is_multiple_of(table.spacing))
        );
        assert_eq!(found.len() as u64, 50_000_u64.div_ceil(table.spacing));
    }

    #[test]
    fn a_full_table_takes_what_is_new() {
        let mut table = Table::new();
        let firsts =
            |first: u64| (first..first + 20_000).map(|number| (hash(number), Ino(number + 1)));
        for first in [0, 100_000] {
            for (hash, ino) in firsts(first) {
                table.insert(hash, Seen { ino, block: 0 }, 0);
            }
        }
        assert_eq!(table.bytes(), BYTES_MIN);
        let found = |first| {
            let found = firsts(first)
                .filter(|(hash, ino)| table.find(*hash).is_some_and(|seen| seen.ino == *ino));
            found.count()
        };
        assert!(
            found(100_000) > 3000 && found(0) < 500,
            "{} {}",
            found(100_000),
            found(0)
        );
        table.insert(
            hash(5),
            Seen {
                ino: Ino(9),
                block: 0,
            },
            0,
        );
        let seen = Seen {
            ino: Ino(3),
            block: 64,
        };
        table.insert(hash(5), seen, 0);
        assert_eq!(table.find(hash(5)), Some(seen));
        table.insert(
            hash(6),
            Seen {
                ino: Ino(3),
                block: 1 << BLOCK_BITS,
            },
            0,
        );
        assert_ne!(
            table.find(hash(6)),
            Some(Seen {
                ino: Ino(3),
                block: 0
            })
        );
    }
}
