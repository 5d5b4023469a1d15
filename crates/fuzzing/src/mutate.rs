//! Inputs of the runner on stable Rust: seeds changed by a seeded generator.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Longest input made from nothing, bytes.
const FRESH_BYTES_MAX: usize = 400;
/// Changes made to a seed at most.
const CHANGES_MAX: u32 = 8;

const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// The input of one run: made of one of the seeds, of two, or of nothing.
pub fn input(seeds: &[Vec<u8>], seed: u64, run: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(run);
    // Every seed comes once as it is.
    if let Some(unchanged) = seeds.get(run as usize) {
        return unchanged.clone();
    }
    if seeds.is_empty() || rng.random_ratio(1, 4) {
        return fresh(&mut rng);
    }
    let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..=CHANGES_MAX) {
        let other = &seeds[rng.random_range(0..seeds.len())];
        change(&mut rng, &mut bytes, other);
    }
    bytes
}

fn fresh(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let len = rng.random_range(0..=FRESH_BYTES_MAX);
    (0..len).map(|_| rng.random()).collect()
}

fn change(rng: &mut ChaCha8Rng, bytes: &mut Vec<u8>, other: &[u8]) {
    if bytes.is_empty() {
        bytes.push(rng.random());
        return;
    }
    let at = rng.random_range(0..bytes.len());
    match rng.random_range(0..8) {
        0 => bytes[at] ^= 1 << rng.random_range(0..8),
        1 => bytes[at] = rng.random(),
        2 => {
            let number = NUMBERS[rng.random_range(0..NUMBERS.len())].to_le_bytes();
            let width = 1 << rng.random_range(0..4);
            for (to, from) in bytes[at..].iter_mut().zip(&number[..width]) {
                *to = *from;
            }
        }
        3 => {
            bytes[at] = bytes[at]
                .wrapping_add(rng.random_range(0..5))
                .wrapping_sub(2)
        }
        4 => bytes.truncate(at),
        5 => {
            let len = rng.random_range(0..16);
            let new: Vec<u8> = (0..len).map(|_| rng.random()).collect();
            bytes.splice(at..at, new);
        }
        6 => {
            let end = (at + rng.random_range(1..32)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            let from = rng.random_range(0..=other.len());
            let end = (from + rng.random_range(1..64)).min(other.len());
            bytes.splice(at..at, other[from..end].iter().copied());
        }
    }
}
