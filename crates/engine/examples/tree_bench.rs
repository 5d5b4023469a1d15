//! Speed of the metadata tree in memory: `cargo run --release -p persimmon-engine --example
//! tree_bench [ITEMS]`, one million items unless told.
//!
//! Values have 60 to 120 bytes; replaced ones change their length. `ensure` checks first that the
//! path is in memory, as the engine does.

use std::hint::black_box;

use persimmon_engine::meta::{PageCache, tree};
use persimmon_format::page::PAGE_SIZE;
use persimmon_format::{Ino, Key, KeyKind, PageId};
use rustix::time::{ClockId, clock_gettime};

/// A sequence of numbers without a pattern that a processor would find (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Time this thread has run on a processor; others wait for the same ones.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Does `work` on each item, and tells the rate of the median and of the best hundredth of them:
/// on a busy machine the best is nearer to what the code can do.
fn report<T>(what: &str, items: &[T], mut work: impl FnMut(usize, &T)) {
    let part = (items.len() / 100).max(1);
    let mut seconds: Vec<f64> = items
        .chunks_exact(part)
        .enumerate()
        .map(|(chunk, items)| {
            let start = thread_seconds();
            for (at, item) in items.iter().enumerate() {
                work(chunk * part + at, item);
            }
            thread_seconds() - start
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let rate = |seconds: f64| part as f64 / seconds / 1e6;
    let (median, best) = (seconds[seconds.len() / 2], seconds[0]);
    println!(
        "{what:<28} {:7.2} M/s median {:7.2} M/s best",
        rate(median),
        rate(best)
    );
}

fn shuffled(keys: &[Key], seed: u64) -> Vec<Key> {
    let mut keys = keys.to_vec();
    let mut numbers = Numbers(seed);
    for at in (1..keys.len()).rev() {
        keys.swap(at, numbers.next() as usize % (at + 1));
    }
    keys
}

fn bench(name: &str, keys: &[Key]) {
    let bytes = [7u8; 120];
    let value = |n: usize| &bytes[..60 + n % 61];
    let mut cache = PageCache::new();
    let mut root: PageId = tree::create(&mut cache);
    report(&format!("{name}: insert fresh"), keys, |n, key| {
        tree::insert(&mut cache, &mut root, key, value(n));
    });
    if let Ok(shape) = tree::verify(&cache, root) {
        let fill = shape.used_bytes as f64 / (shape.pages * PAGE_SIZE) as f64;
        println!("{:<28} {shape:?}, {:.0} % full", "", fill * 100.0);
    }
    report(&format!("{name}: get in order"), keys, |_, key| {
        black_box(tree::get(&cache, root, key).ok());
    });
    report(
        &format!("{name}: get random"),
        &shuffled(keys, 2),
        |_, key| {
            black_box(tree::get(&cache, root, key).ok());
        },
    );
    report(
        &format!("{name}: floor random"),
        &shuffled(keys, 3),
        |_, key| {
            black_box(tree::floor(&cache, root, key).ok());
        },
    );
    let mut range = tree::range(&cache, root, ..);
    report(&format!("{name}: range over all"), keys, |_, _| {
        black_box(range.next());
    });
    report(&format!("{name}: replace"), &shuffled(keys, 4), |n, key| {
        tree::insert(&mut cache, &mut root, key, value(n * 7));
    });
    report(
        &format!("{name}: ensure, replace"),
        &shuffled(keys, 5),
        |n, key| {
            if tree::ensure_resident(&cache, root, key).is_ok() {
                tree::insert(&mut cache, &mut root, key, value(n * 5));
            }
        },
    );
    report(
        &format!("{name}: remove, insert"),
        &shuffled(keys, 6),
        |n, key| {
            tree::remove(&mut cache, &mut root, key);
            tree::insert(&mut cache, &mut root, key, value(n * 3));
        },
    );
    report(
        &format!("{name}: remove random"),
        &shuffled(keys, 7),
        |_, key| {
            tree::remove(&mut cache, &mut root, key);
        },
    );
    println!("{:<28} {} pages left", "", cache.allocated());
}

fn main() {
    let items = std::env::args()
        .nth(1)
        .and_then(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    let mut numbers = Numbers(1);
    let in_order: Vec<Key> = (0..items)
        .map(|n| Key::new(Ino(n / 4), KeyKind((n % 4) as u8), n))
        .collect();
    bench("sequential", &in_order);
    let scattered: Vec<Key> = (0..items)
        .map(|_| Key::new(Ino(1), KeyKind(4), numbers.next()))
        .collect();
    bench("random", &scattered);
}
