//! The last blocks of files that were synced lately, in memory: who appends to such a file again
//! needs the block that it ends in.

use persimmon_sync::atomic::{AtomicUsize, Ordering};
use persimmon_sync::{Alarm, Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};

use persimmon_device::BLOCK_SIZE;
use persimmon_format::{Addr, Ino};

use crate::invariant::{invariant_holds, invariant_sub};

/// A block and where it was written. The tree says whether it is still there, and its checksum
/// whether it is still this one: nothing has to be forgotten in time.
struct Tail {
    addr: Addr,
    content: Box<[u8]>,
}

impl Tail {
    /// Memory that it takes, bytes.
    fn cost(len: usize) -> usize {
        len + 2 * size_of::<Ino>() + size_of::<Tail>()
    }
}

#[derive(Default)]
struct CachedTails {
    tails: HashMap<Ino, Tail>,
    /// The files, oldest first.
    order: VecDeque<Ino>,
    bytes: usize,
}

/// Last blocks of files, one a file.
pub(crate) struct Tails {
    cached: Mutex<CachedTails>,
    alarm: Alarm,
    bytes_max: AtomicUsize,
}

impl Tails {
    pub(super) fn new(bytes_max: usize, alarm: &Alarm) -> Tails {
        Tails {
            cached: Mutex::watched(CachedTails::default(), alarm),
            alarm: alarm.clone(),
            bytes_max: AtomicUsize::new(bytes_max),
        }
    }

    /// Memory that they may take.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed) as u64
    }

    /// Memory that they may take from now on; what is too much goes with the next that is kept.
    pub(crate) fn set_bytes_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max as usize, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, CachedTails> {
        self.cached.lock()
    }

    /// Keeps what the last block of a file holds, at most a block, in the place of what was kept of
    /// it before, and forgets the files whose turn it is.
    pub(super) fn keep(&self, ino: Ino, addr: Addr, content: &[u8]) {
        let content = Box::<[u8]>::from(content);
        let mut cached = self.lock();
        cached.bytes += Tail::cost(content.len());
        match cached.tails.insert(ino, Tail { addr, content }) {
            Some(before) => {
                let cost = Tail::cost(before.content.len());
                invariant_sub!(self.alarm, cached.bytes, cost, "bytes of cached tails");
            }
            None => cached.order.push_back(ino),
        }
        while cached.bytes > self.bytes_max.load(Ordering::Relaxed)
            && let Some(oldest) = cached.order.pop_front()
        {
            if let Some(tail) = cached.tails.remove(&oldest) {
                let cost = Tail::cost(tail.content.len());
                invariant_sub!(self.alarm, cached.bytes, cost, "bytes of cached tails");
            }
        }
        invariant_holds!(
            self.alarm,
            (cached.bytes == 0) == cached.tails.is_empty()
                && cached.tails.len() <= cached.order.len(),
            "{} tails of {} bytes are cached, and {} are in order",
            cached.tails.len(),
            cached.bytes,
            cached.order.len()
        );
    }

    /// The block that was written to this address, if its content is kept.
    pub(super) fn block(&self, ino: Ino, addr: Addr) -> Option<[u8; BLOCK_SIZE]> {
        let cached = self.lock();
        let tail = cached.tails.get(&ino).filter(|tail| tail.addr == addr)?;
        let mut block = [0; BLOCK_SIZE];
        let out = block.get_mut(..tail.content.len())?;
        out.copy_from_slice(&tail.content);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use persimmon_device::ZoneId;
    use persimmon_format::DeviceId;

    use super::*;

    #[test]
    fn one_block_a_file_is_kept_of_the_latest_files() {
        let tails = Tails::new(Tail::cost(2) + Tail::cost(1), &Alarm::default());
        let at = |block| Addr::new(DeviceId(0), ZoneId(3), block);
        let read = |ino, addr| tails.block(Ino(ino), addr).map(|block| block[0]);
        tails.keep(Ino(1), at(1), &[1, 1]);
        tails.keep(Ino(2), at(2), &[2]);
        tails.keep(Ino(1), at(3), &[3]);
        assert_eq!(read(1, at(1)), None);
        assert_eq!(read(1, at(3)), Some(3));
        assert_eq!(read(2, at(3)), None);
        tails.keep(Ino(5), at(4), &[4]);
        assert_eq!(read(1, at(3)), None);
        assert_eq!(read(2, at(2)), Some(2));
        assert_eq!(read(5, at(4)), Some(4));
    }
}
