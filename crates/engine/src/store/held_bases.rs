//! Stored blocks that somebody makes deltas to, or gives with theirs. Until that is in the tree what is stored must stay what it is: cleaning
//! moves such a block, and does not fold its delta into it.

use std::collections::BTreeMap;

use persimmon_format::Ino;
use persimmon_sync::{Alarm, Arc, Mutex};

/// An inode without its subvolume, and a file block.
type Place = (Ino, u64);

/// How many hold each block: a block of a file that several subvolumes have may be held for each of them.
#[derive(Clone)]
pub(crate) struct HeldBases(Arc<Mutex<BTreeMap<Place, usize>>>);

/// As long as it lives, the delta of a block is not folded.
pub(crate) struct HeldBase {
    bases: HeldBases,
    place: Place,
}

impl HeldBases {
    pub(super) fn new(alarm: &Alarm) -> HeldBases {
        HeldBases(Arc::new(Mutex::watched(BTreeMap::new(), alarm)))
    }

    /// Holds a block. Call it in the view of the tree that finds the block: cleaning asks [`HeldBases::has`] in the transaction that folds, so
    /// either the block is held before that, or the view sees the folded block.
    pub(crate) fn hold(&self, ino: Ino, block: u64) -> HeldBase {
        let place = (ino.plain(), block);
        *self.0.lock().entry(place).or_default() += 1;
        HeldBase {
            bases: self.clone(),
            place,
        }
    }

    /// Whether somebody holds a block.
    pub(crate) fn has(&self, ino: Ino, block: u64) -> bool {
        self.0.lock().contains_key(&(ino.plain(), block))
    }
}

impl Drop for HeldBase {
    fn drop(&mut self) {
        let mut held = self.bases.0.lock();
        if let Some(count) = held.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_held_until_the_last_lets_go() {
        let bases = HeldBases::new(&Alarm::default());
        let (one, other) = (bases.hold(Ino(5), 7), bases.hold(Ino(5), 7));
        assert!(bases.has(Ino(5), 7));
        assert!(!bases.has(Ino(5), 8) && !bases.has(Ino(6), 7));
        drop(one);
        assert!(bases.has(Ino(5), 7));
        drop(other);
        assert!(!bases.has(Ino(5), 7));
    }
}
