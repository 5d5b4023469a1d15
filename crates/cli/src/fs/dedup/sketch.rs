//! Sketches: what two pieces of content that are much alike have in common, in a few hashes.
//!
//! A hash that rolls over the content chooses, for each of some features, the place where a mix of it is the smallest. Content that differs
//! in a few places, or is moved by some bytes, has most of these places still. Features are put together in groups; pieces that agree in
//! one group are most likely alike.

/// Groups of features, each of them one hash.
pub const GROUPS: usize = 3;
const OF_GROUP: usize = 3;
const FEATURES: usize = GROUPS * OF_GROUP;

/// Of so many places one is looked at, chosen by its content. So what is left out is the same in both pieces.
const SAMPLED: u64 = 16;
/// Bytes that the rolling hash depends on: each shifts it by one bit.
const ROLLED: usize = 64;

/// Pieces with fewer places are too small to be told apart.
const PLACES_MIN: usize = 2 * FEATURES;

/// What bytes are rolled in as, and with what features mix it.
pub struct Sketcher {
    bytes: [u64; 256],
    mixes: [(u64, u64); FEATURES],
}

impl Sketcher {
    /// With numbers that need not be secret: who makes pieces look alike has them compared, and nothing else.
    pub fn new() -> Sketcher {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mixed(state)
        };
        Sketcher {
            bytes: std::array::from_fn(|_| next()),
            mixes: std::array::from_fn(|_| (next() | 1, next())),
        }
    }

    /// The hashes of a piece; none if it is too small, or holds nothing but one byte again and again.
    pub fn sketch(&self, piece: &[u8]) -> Option<[u64; GROUPS]> {
        let mut least = [u64::MAX; FEATURES];
        let (mut rolled, mut places) = (0u64, 0);
        let mut last = 0;
        for (at, byte) in piece.iter().enumerate() {
            rolled = (rolled << 1).wrapping_add(self.bytes[usize::from(*byte)]);
            // The highest bits depend on all bytes that are rolled in.
            let is_place = at >= ROLLED && (rolled >> 56).is_multiple_of(SAMPLED);
            if !is_place || rolled == last {
                continue;
            }
            last = rolled;
            places += 1;
            for (least, (factor, more)) in least.iter_mut().zip(&self.mixes) {
                let feature = rolled.wrapping_mul(*factor).wrapping_add(*more);
                *least = (*least).min(feature);
            }
        }
        if places < PLACES_MIN {
            return None;
        }
        let mut number = 0;
        let mut groups = least.chunks_exact(OF_GROUP).map(|group| {
            number += 1;
            let all = group
                .iter()
                .fold(number, |all, one| mixed(all ^ one).wrapping_add(*one));
            mixed(all)
        });
        Some(std::array::from_fn(|_| groups.next().unwrap_or_default()))
    }
}

/// All bits of the result depend on all of the number's.
fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        (0..len as u64)
            .map(|at| mixed(at.wrapping_mul(31) ^ (seed << 40)) as u8)
            .collect()
    }

    fn alike(one: &[u8], other: &[u8]) -> bool {
        let sketcher = Sketcher::new();
        let (one, other) = (sketcher.sketch(one), sketcher.sketch(other));
        let both = one.unwrap().into_iter().zip(other.unwrap());
        { both }.any(|(one, other)| one == other)
    }

    #[test]
    fn what_differs_in_a_few_places_is_alike() {
        let mut found = 0;
        for seed in 0..20 {
            let one = noise(seed, 65_536);
            let mut other = one.clone();
            for at in [100, 30_000, 60_000] {
                other[at] ^= 1;
            }
            other.splice(20_000..20_000, *b"some bytes more");
            found += u32::from(alike(&one, &other));
        }
        assert!(found >= 19, "{found}");
    }

    #[test]
    fn what_differs_everywhere_is_not() {
        for seed in 0..20 {
            let (one, other) = (noise(seed, 65_536), noise(seed + 100, 65_536));
            assert!(!alike(&one, &other));
        }
    }

    #[test]
    fn what_says_nothing_has_no_sketch() {
        let sketcher = Sketcher::new();
        assert_eq!(sketcher.sketch(&[]), None);
        assert_eq!(sketcher.sketch(&noise(1, 100)), None);
        assert_eq!(sketcher.sketch(&[7; 65_536]), None);
    }
}
