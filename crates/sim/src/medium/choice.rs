//! Which version of each sector a power cut leaves.

use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Medium, SECTOR_BYTES};

/// Sectors of a block.
const BLOCK_SECTORS: u64 = persimmon_device::BLOCK_SIZE as u64 / SECTOR_BYTES;

/// A rule by which sectors are kept. All are allowed by the fault model; the rarer states need a rule of their own to be met at
/// all.
#[derive(Clone, Debug)]
enum Rule {
    /// Any version of each sector.
    Any,
    /// Of runs of so many sectors each has its newest version, or its oldest, with so many percent for the newest.
    Runs { sectors: u64, percent: u32 },
    /// The newest before this sector, the oldest from there on.
    Below(u64),
    /// The oldest before this sector, the newest from there on.
    From(u64),
    /// The newest in the zones, the oldest in headers and tables.
    Zones(Range<u64>),
    /// The oldest in the zones, the newest in headers and tables.
    Tables(Range<u64>),
    /// The first so many changes, no later ones.
    First(usize),
    /// All but one, and what came after that in its sectors.
    AllBut(usize),
}

/// One choice for a whole medium.
pub struct Choice {
    rng: ChaCha8Rng,
    rule: Rule,
    /// The last run of sectors, and whether it is kept.
    run: Option<(u64, bool)>,
}

impl Choice {
    /// The choice of a seed. `zones`: bytes in which the zones are; `zone_bytes`: of one of them.
    pub fn new(seed: u64, medium: &Medium, zones: &Range<u64>, zone_bytes: u64) -> Choice {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let sector = rng.random_range(0..medium.length() / SECTOR_BYTES);
        let change = rng.random_range(0..medium.pending().max(1));
        let percent = rng.random_range(0..=100);
        let sectors =
            [1, BLOCK_SECTORS, (zone_bytes / SECTOR_BYTES).max(1)][rng.random_range(0..3)];
        let zones = zones.start / SECTOR_BYTES..zones.end / SECTOR_BYTES;
        let rule = match rng.random_range(0..10) {
            0 | 1 => Rule::Any,
            2 | 3 => Rule::Runs { sectors, percent },
            4 => Rule::Below(sector),
            5 => Rule::From(sector),
            6 => Rule::Zones(zones),
            7 => Rule::Tables(zones),
            8 => Rule::First(change),
            _ => Rule::AllBut(change),
        };
        Choice {
            rng,
            rule,
            run: None,
        }
    }

    /// How many of the changes of a sector are kept: the first so many. Sectors come in order.
    pub(super) fn kept(&mut self, sector: u64, changes: &[usize]) -> usize {
        let all = changes.len();
        let newest_if = |is: bool| if is { all } else { 0 };
        match &self.rule {
            Rule::Any => self.rng.random_range(0..=all),
            Rule::Runs { sectors, percent } => {
                let run = sector / sectors;
                let kept = match self.run {
                    Some((last, kept)) if last == run => kept,
                    _ => self.rng.random_range(0..100) < *percent,
                };
                self.run = Some((run, kept));
                newest_if(kept)
            }
            Rule::Below(end) => newest_if(sector < *end),
            Rule::From(start) => newest_if(sector >= *start),
            Rule::Zones(zones) => newest_if(zones.contains(&sector)),
            Rule::Tables(zones) => newest_if(!zones.contains(&sector)),
            Rule::First(changes_kept) => changes.partition_point(|change| change < changes_kept),
            Rule::AllBut(lost) => match changes.binary_search(lost) {
                Ok(at) => at,
                Err(_) => all,
            },
        }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.rule)
    }
}
