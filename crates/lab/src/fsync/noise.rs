//! Random offsets, and bytes that do not compress.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Random offsets, and bytes that do not compress.
pub struct Noise {
    rng: ChaCha8Rng,
    pool: Vec<u8>,
}

impl Noise {
    /// By a seed.
    #[must_use]
    pub fn new(seed: u64) -> Noise {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut pool = vec![0; 2 << 20];
        rng.fill(&mut pool[..]);
        Noise { rng, pool }
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.rng.random_range(0..limit)
    }

    /// At most 1 MiB.
    pub fn bytes(&mut self, len: usize) -> &[u8] {
        let at = self.rng.random_range(0..self.pool.len() - len);
        self.pool.get(at..at + len).unwrap_or_default()
    }
}
