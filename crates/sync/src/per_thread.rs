//! What threads would write to all the time: each has its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::CachePadded;

const COPIES: usize = 8;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

/// Eight copies of something, counters for instance, of which a thread uses one: two threads seldom write to the same memory.
#[derive(Debug, Default)]
pub struct PerThread<T>([CachePadded<T>; COPIES]);

impl<T> PerThread<T> {
    /// That of this thread.
    #[inline]
    pub fn own(&self) -> &T {
        // A thread that is ending has no number any more.
        let thread = THREAD.try_with(|thread| *thread).unwrap_or(0);
        &self.0[thread % COPIES]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|copy| &**copy)
    }
}

#[cfg(all(test, not(interleave)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn what_all_threads_counted_is_there() {
        let counts = PerThread::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counts.own().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let total: u64 = counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        assert_eq!(total, 20_000);
    }
}
