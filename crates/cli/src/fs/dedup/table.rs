//! Where blocks were seen, by their hashes: a table whose size does not grow. When it is full it keeps those hashes alone that end in one
//! more zero bit, so that what is kept is the same sample of the blocks of all files.

use std::hash::Hasher;

use rustix::rand::{GetRandomFlags, getrandom};
use siphasher::sip128::{Hasher128, SipHasher24};

/// Entries that a hash may be in: nearly all of a table fills before one group of them is full.
const WAYS: usize = 32;
const ENTRY_BYTES: u64 = 16;
const GROUP_BYTES: u64 = WAYS as u64 * ENTRY_BYTES;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the file's inode; not 0.
    pub ino: u64,
    pub block: u64,
}

/// An entry is the inode's number, 0 if it is free, and 32 bits each of the hash and of the block's number.
pub struct Table {
    entries: Vec<[u64; 2]>,
    hasher: SipHasher24,
    /// Zero bits that each hash ends in that is kept.
    zero_bits: u32,
}

impl Table {
    /// A table of at most `bytes`, with a key that nobody can foresee: whoever writes files cannot make hashes equal.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn new(bytes: u64) -> rustix::io::Result<Table> {
        let mut key = [0; 16];
        getrandom(&mut key, GetRandomFlags::empty())?;
        let groups = (bytes / GROUP_BYTES).clamp(1, 1 << 31) as usize;
        Ok(Table {
            entries: vec![[0; 2]; groups * WAYS],
            hasher: SipHasher24::new_with_key(&key),
            zero_bits: 0,
        })
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.entries.len() as u64 * ENTRY_BYTES
    }

    /// Blocks for each one that is kept.
    pub fn sampling(&self) -> u64 {
        1 << self.zero_bits
    }

    /// The hash of a block's content.
    pub fn hash(&self, block: &[u8]) -> u64 {
        let mut hasher = self.hasher;
        hasher.write(block);
        hasher.finish128().h1
    }

    /// The upper half of a hash chooses the group, and the lower one is kept in the entry.
    fn group(&self, hash: u64) -> std::ops::Range<usize> {
        let groups = (self.entries.len() / WAYS) as u64;
        let group = ((hash >> 32) * groups) >> 32;
        let start = group as usize * WAYS;
        start..start + WAYS
    }

    fn is_kept(&self, hash: u64) -> bool {
        hash & ((1 << self.zero_bits) - 1) == 0
    }

    /// Where a block of that hash was seen first. It is most likely equal.
    pub fn find(&self, hash: u64) -> Option<Place> {
        if !self.is_kept(hash) {
            return None;
        }
        let group = self.entries.get(self.group(hash)).unwrap_or_default();
        let found = group
            .iter()
            .find(|[ino, rest]| *ino != 0 && rest >> 32 == hash & 0xffff_ffff);
        found.map(|[ino, rest]| Place {
            ino: *ino,
            block: rest & 0xffff_ffff,
        })
    }

    /// Remembers a block, unless its hash is none of the sample. Blocks behind 16 TiB of a file are not remembered.
    pub fn insert(&mut self, hash: u64, place: Place) {
        let Ok(block) = u32::try_from(place.block) else {
            return;
        };
        let group = self.group(hash);
        while self.is_kept(hash) {
            let ways = self.entries.get_mut(group.clone()).unwrap_or_default();
            if let Some(free) = ways.iter_mut().find(|[ino, _]| *ino == 0) {
                *free = [place.ino, hash << 32 | u64::from(block)];
                return;
            }
            if self.zero_bits == 31 {
                return;
            }
            self.zero_bits += 1;
            let dropped = 1 << (32 + self.zero_bits - 1);
            for entry in &mut self.entries {
                if entry[1] & dropped != 0 {
                    *entry = [0; 2];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_is_found_until_the_table_is_full() {
        let mut table = Table::new(1 << 16).unwrap();
        assert_eq!(table.bytes(), 1 << 16);
        let hashes: Vec<u64> = (0..1_u64 << 14)
            .map(|number| table.hash(&number.to_le_bytes()))
            .collect();
        let place = |number: usize| Place {
            ino: 7 + number as u64 / 100,
            block: number as u64 % 100,
        };
        for (number, hash) in hashes.iter().enumerate() {
            assert_eq!(table.find(*hash), None);
            table.insert(*hash, place(number));
            if number < 1 << 11 {
                assert_eq!(
                    (table.find(*hash), table.sampling()),
                    (Some(place(number)), 1)
                );
            }
        }
        // 4,096 entries for 16,384 hashes.
        assert!((4..=16).contains(&table.sampling()), "{}", table.sampling());
        let mut found = 0;
        for (number, hash) in hashes.iter().enumerate() {
            let is_kept = hash % table.sampling() == 0;
            let due = is_kept.then(|| place(number));
            assert_eq!(table.find(*hash), due);
            found += u64::from(is_kept);
        }
        let share = (1 << 14) / table.sampling();
        assert!((share / 2..share * 2).contains(&found), "{found}");
    }

    #[test]
    fn keys_are_drawn_for_each_table() {
        let hash = |table: &Table| table.hash(b"the same");
        let (one, other) = (Table::new(0).unwrap(), Table::new(0).unwrap());
        assert_ne!(hash(&one), hash(&other));
        assert_eq!(one.bytes(), GROUP_BYTES);
    }
}
