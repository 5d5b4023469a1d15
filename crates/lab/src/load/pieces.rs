//! Pieces of many sizes, as programs of all kinds overwrite them.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Sizes in blocks, and of 100 writes those that are as large: 4 KiB to 1 MiB.
const SIZES: [(u64, u32); 5] = [(1, 30), (4, 25), (16, 25), (64, 13), (256, 7)];

/// Draws pieces of a file.
#[derive(Clone, Copy, Debug)]
pub struct Pieces {
    blocks: u64,
}

impl Pieces {
    /// Of a file of so many blocks.
    #[must_use]
    pub fn new(blocks: u64) -> Pieces {
        Pieces { blocks }
    }

    /// The first block of the next piece, and how many it has.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> (u64, u64) {
        let mut of_hundred = rng.random_range(0..100);
        let size = SIZES.iter().find(|(_, writes)| {
            let is_this = of_hundred < *writes;
            of_hundred = of_hundred.saturating_sub(*writes);
            is_this
        });
        let size = size
            .map_or(1, |(blocks, _)| *blocks)
            .min(self.blocks.max(1));
        let places = (self.blocks / size).max(1);
        (rng.random_range(0..places) * size, size)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn pieces_are_of_all_sizes_and_within_the_file() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let pieces = Pieces::new(1000);
        let drawn: Vec<_> = (0..10_000).map(|_| pieces.draw(&mut rng)).collect();
        assert!(
            drawn
                .iter()
                .all(|(at, size)| at % size == 0 && at + size <= 1000)
        );
        for (size, writes) in SIZES {
            let of_size = drawn.iter().filter(|(_, drawn)| *drawn == size).count();
            let expected = writes as usize * 100;
            assert!(of_size.abs_diff(expected) < 200, "{size}: {of_size}");
        }
        assert_eq!(Pieces::new(0).draw(&mut rng), (0, 1));
    }
}
