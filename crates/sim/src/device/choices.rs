//! Where a power cut leaves things open, something has to choose: a seeded generator, or an
//! enumeration of all there is.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Answers the open questions of a power cut one after the other.
pub trait Choices {
    /// A number below `count` (which is at least 1). By convention 0 is the choice that loses
    /// most, `count - 1` the one that keeps most.
    fn choose(&mut self, count: u32) -> u32;
}

/// Choices of a seeded generator. Extremes come more often than chance would have them: bugs live
/// where one zone lost everything and another nothing.
pub struct Sampled {
    rng: ChaCha8Rng,
    lose_all_percent: u32,
    keep_all_percent: u32,
}

impl Sampled {
    /// The choices of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Sampled {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (lose_all_percent, keep_all_percent) = match rng.random_range(0..8) {
            0 => (90, 5),
            1 => (5, 90),
            2 => (0, 0),
            3 => (50, 50),
            _ => (25, 25),
        };
        Sampled {
            rng,
            lose_all_percent,
            keep_all_percent,
        }
    }
}

impl Choices for Sampled {
    fn choose(&mut self, count: u32) -> u32 {
        if count <= 1 {
            return 0;
        }
        let roll = self.rng.random_range(0..100);
        if roll < self.lose_all_percent {
            0
        } else if roll < self.lose_all_percent + self.keep_all_percent {
            count - 1
        } else {
            self.rng.random_range(0..count)
        }
    }
}

/// Every combination of choices, one run after the other.
#[derive(Default)]
pub struct Exhaustive {
    /// Choice and count of each question of the present run.
    trail: Vec<(u32, u32)>,
    asked: usize,
}

impl Exhaustive {
    /// Starts with the run that loses most.
    #[must_use]
    pub fn new() -> Exhaustive {
        Exhaustive::default()
    }

    /// Turns to the next combination; false when all have been had.
    pub fn next_run(&mut self) -> bool {
        self.trail.truncate(self.asked);
        self.asked = 0;
        while let Some((choice, count)) = self.trail.pop() {
            if choice + 1 < count {
                self.trail.push((choice + 1, count));
                return true;
            }
        }
        false
    }
}

impl Choices for Exhaustive {
    fn choose(&mut self, count: u32) -> u32 {
        let choice = match self.trail.get(self.asked) {
            Some(&(choice, _)) => choice,
            None => {
                self.trail.push((0, count));
                0
            }
        };
        self.asked += 1;
        choice.min(count.saturating_sub(1))
    }
}
