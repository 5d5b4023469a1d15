//! Memory of dropped buffers, kept for the next ones: 32 MiB in the process, and a few small buffers for each thread.

use std::cell::RefCell;

use persimmon_sync::host::Mutex;

use super::Block;

/// The pool has no smaller buffers: the allocator is good at them.
pub(super) const BLOCKS_MIN: usize = 16;
/// Buffers of fewer blocks than this are kept by each thread for itself: reads of single blocks are so many that they would contend for
/// the pool's lock.
const SMALL_MAX: usize = 5;
/// Buffers of each small size that a thread keeps: 160 KiB in all.
const SMALL_EACH: usize = 4;

thread_local! {
    static SMALL: RefCell<Small> = const { RefCell::new(Small::new()) };
}

/// Blocks kept at most (32 MiB).
const LIMIT_BLOCKS: usize = 8192;

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

/// Kept memory with room for `blocks`. Its contents are old.
pub(super) fn take(blocks: usize) -> Option<Vec<Block>> {
    if blocks < BLOCKS_MIN {
        // A thread that ends has no pool any more.
        let small = SMALL.try_with(|small| small.borrow_mut().take(blocks));
        return small.ok().flatten();
    }
    POOL.lock().take(blocks)
}

/// Keeps `memory`, or frees it, or frees what was kept longest in its favour.
pub(super) fn give(memory: Vec<Block>) {
    // A quarter at most for one buffer, so that a giant does not drive out all others.
    if memory.capacity() == 0 || memory.capacity() > LIMIT_BLOCKS / 4 {
        return;
    }
    if memory.capacity() < BLOCKS_MIN {
        let _ = SMALL.try_with(|small| small.borrow_mut().give(memory));
        return;
    }
    let mut freed = Vec::new();
    POOL.lock().give(memory, LIMIT_BLOCKS, &mut freed);
    // Freed here, with the lock released.
    drop(freed);
}

/// What a thread keeps, by size.
struct Small([Vec<Vec<Block>>; SMALL_MAX]);

impl Small {
    const fn new() -> Small {
        Small([const { Vec::new() }; SMALL_MAX])
    }

    fn take(&mut self, blocks: usize) -> Option<Vec<Block>> {
        self.0.get_mut(blocks)?.pop()
    }

    fn give(&mut self, memory: Vec<Block>) {
        if let Some(kept) = self.0.get_mut(memory.capacity())
            && kept.len() < SMALL_EACH
        {
            kept.push(memory);
        }
    }
}

/// What all threads keep together.
struct Pool {
    /// Oldest first.
    free: Vec<Vec<Block>>,
    blocks: usize,
}

impl Pool {
    const fn new() -> Pool {
        Pool {
            free: Vec::new(),
            blocks: 0,
        }
    }

    fn take(&mut self, blocks: usize) -> Option<Vec<Block>> {
        // The newest that fits without wasting more than it serves: it is warm in the cache.
        let fits = |memory: &Vec<Block>| (blocks..=2 * blocks).contains(&memory.capacity());
        let index = self.free.iter().rposition(fits)?;
        let memory = self.free.remove(index);
        self.blocks -= memory.capacity();
        Some(memory)
    }

    fn give(&mut self, memory: Vec<Block>, limit: usize, freed: &mut Vec<Vec<Block>>) {
        self.blocks += memory.capacity();
        self.free.push(memory);
        let mut surplus = self.blocks.saturating_sub(limit);
        let mut oldest = 0;
        for memory in &self.free {
            if surplus == 0 {
                break;
            }
            surplus = surplus.saturating_sub(memory.capacity());
            oldest += 1;
        }
        freed.extend(self.free.drain(..oldest));
        self.blocks -= freed.iter().map(Vec::capacity).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(blocks: usize) -> Vec<Block> {
        bytemuck::zeroed_vec(blocks)
    }

    #[test]
    fn keeps_no_more_than_its_limit_and_the_newest() {
        let mut pool = Pool::new();
        let mut freed = Vec::new();
        for blocks in [100, 20, 30, 40, 50] {
            pool.give(memory(blocks), 150, &mut Vec::new());
        }
        assert_eq!(pool.blocks, 140);
        assert_eq!(pool.free.len(), 4);
        pool.give(memory(100), 150, &mut freed);
        assert_eq!((pool.blocks, freed.len()), (150, 3));
        assert!(pool.take(20).is_none());
        assert_eq!(pool.take(50).map(|memory| memory.len()), Some(100));
        assert_eq!(pool.blocks, 50);
    }

    #[test]
    fn recycled_buffers_are_zeroed_where_zeros_are_promised() {
        use crate::BufferMut;
        for blocks in [16, 40, 17, 33, 64, 15, 2, 3] {
            let mut dirty = BufferMut::unspecified(blocks);
            assert_eq!(dirty.blocks(), blocks);
            dirty.fill(0xee);
            let frozen = dirty.freeze();
            let part = frozen.slice(1..blocks - 1);
            drop(frozen);
            assert!(part.iter().all(|byte| *byte == 0xee));
            drop(part);
            for asked in [blocks, blocks.saturating_sub(5), blocks / 2 + 1] {
                let clean = BufferMut::zeroed(asked);
                assert_eq!(clean.blocks(), asked);
                assert!(clean.iter().all(|byte| *byte == 0));
                let mut empty = BufferMut::with_capacity(asked);
                assert_eq!(empty.blocks(), 0);
                empty.resize_blocks(asked);
                assert!(empty.iter().all(|byte| *byte == 0));
            }
        }
    }
}
