//! Compressed blocks that are inline in the tree since an fsync, and wait to be packed.

use std::collections::BTreeMap;
use std::ops::Bound;

use persimmon_format::Ino;

/// Which blocks of which files, in this order, and their compressed bytes. It follows the tree:
/// who maps a compressed extent adds it, who takes it away removes it.
#[derive(Debug, Default)]
pub(crate) struct Riding {
    blocks: BTreeMap<(Ino, u64), u16>,
    bytes: u64,
}

impl Riding {
    pub(super) fn add(&mut self, ino: Ino, block: u64, bytes: usize) {
        let before = self.blocks.insert((ino, block), bytes as u16);
        self.bytes += bytes as u64;
        self.bytes -= u64::from(before.unwrap_or(0));
    }

    pub(super) fn remove(&mut self, ino: Ino, block: u64) {
        let before = self.blocks.remove(&(ino, block));
        self.bytes -= u64::from(before.unwrap_or(0));
    }

    /// Compressed bytes of all of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The next `count` of them, after one.
    pub(crate) fn after(&self, after: Option<(Ino, u64)>, count: usize) -> Vec<(Ino, u64)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.blocks.range((start, Bound::Unbounded));
        next.take(count).map(|(place, _)| *place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_what_is_added_replaced_and_removed() {
        let mut riding = Riding::default();
        riding.add(Ino(5), 7, 100);
        riding.add(Ino(4), 9, 50);
        riding.add(Ino(5), 7, 30);
        riding.remove(Ino(5), 8);
        assert_eq!(riding.bytes(), 80);
        assert_eq!(riding.after(None, 9), [(Ino(4), 9), (Ino(5), 7)]);
        assert_eq!(riding.after(Some((Ino(4), 9)), 9), [(Ino(5), 7)]);
        assert_eq!(riding.after(None, 1), [(Ino(4), 9)]);
        riding.remove(Ino(5), 7);
        riding.remove(Ino(4), 9);
        assert_eq!(riding.bytes(), 0);
    }
}
