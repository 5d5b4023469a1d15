//! Which block is overwritten next.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::Zipf;

/// How writes spread over blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Popularity {
    /// Every block alike.
    Uniform,
    /// By Zipf's law.
    Zipf {
        /// Its exponent.
        theta: f64,
    },
    /// A share of the blocks gets a share of the writes; each part is uniform.
    HotCold {
        /// Share of the blocks that are hot.
        hot_blocks: f64,
        /// Share of the writes that they get.
        hot_writes: f64,
    },
}

/// Draws blocks. Popular ones lie anywhere, or, if so asked, next to each other.
#[derive(Clone, Debug)]
pub struct Scatter {
    popularity: Popularity,
    zipf: Zipf,
    blocks: u64,
    permutation: Option<Permutation>,
}

impl Scatter {
    /// Of `blocks` blocks; `clustered`: by falling popularity from the first block on.
    #[must_use]
    pub fn new(popularity: Popularity, blocks: u64, clustered: bool) -> Scatter {
        let theta = match popularity {
            Popularity::Zipf { theta } => theta,
            _ => 1.0,
        };
        Scatter {
            popularity,
            zipf: Zipf::new(blocks, theta),
            blocks: blocks.max(1),
            permutation: (!clustered).then(|| Permutation::new(blocks.max(1))),
        }
    }

    /// The next block.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> u64 {
        let rank = match self.popularity {
            Popularity::Uniform => return rng.random_range(0..self.blocks),
            Popularity::Zipf { .. } => self.zipf.draw(rng),
            Popularity::HotCold {
                hot_blocks,
                hot_writes,
            } => {
                let hot = (self.blocks as f64 * hot_blocks) as u64;
                let hot = hot.clamp(1, self.blocks.max(2) - 1);
                if rng.random_bool(hot_writes) || hot >= self.blocks {
                    rng.random_range(0..hot)
                } else {
                    rng.random_range(hot..self.blocks)
                }
            }
        };
        match &self.permutation {
            Some(permutation) => permutation.of(rank),
            None => rank,
        }
    }
}

/// A fixed permutation of the numbers below a limit: a Feistel network over the next power of four,
/// walked until it comes out below the limit.
#[derive(Clone, Debug)]
struct Permutation {
    limit: u64,
    half_bits: u32,
}

impl Permutation {
    fn new(limit: u64) -> Permutation {
        let bits = u64::BITS - (limit - 1).leading_zeros();
        Permutation {
            limit,
            half_bits: bits.div_ceil(2).max(1),
        }
    }

    fn of(&self, number: u64) -> u64 {
        let mut number = number;
        loop {
            number = self.round_trip(number);
            if number < self.limit {
                return number;
            }
        }
    }

    fn round_trip(&self, number: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (number >> self.half_bits, number & mask);
        for round in 1..=4u64 {
            let mixed = (right ^ (round << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (left, right) = (right, left ^ ((mixed >> 32) & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn permutations_hit_every_number_once() {
        for limit in [1, 2, 3, 5, 16, 17, 1000, 4097] {
            let permutation = Permutation::new(limit);
            let mut all: Vec<u64> = (0..limit).map(|n| permutation.of(n)).collect();
            if limit == 1000 {
                let moved = all.windows(2).filter(|w| w[0].abs_diff(w[1]) > 50).count();
                assert!(moved > 800, "neighbours stay neighbours");
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..limit));
        }
    }

    #[test]
    fn hot_blocks_get_their_share() {
        let popularity = Popularity::HotCold {
            hot_blocks: 0.1,
            hot_writes: 0.9,
        };
        let scatter = Scatter::new(popularity, 1000, true);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let hot = (0..10_000).filter(|_| scatter.draw(&mut rng) < 100).count();
        assert!((8_800..9_200).contains(&hot), "{hot}");
    }
}
