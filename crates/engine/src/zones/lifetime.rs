//! How long blocks live before they are written again, estimated from zones alone: of each is known
//! when users wrote what is in it, and after how long that was thought to be written again, both
//! on average. No table of blocks, a few bytes a zone.
//!
//! A block that is overwritten tells how long it lived; its estimate is the mean of that and of the
//! zone it was in, of their logarithms, the zone's counting most. What a block that cleaning moved has lived for counts likewise where
//! it is longer than was thought. Blocks of about the same estimate share zones, so that they die together; what
//! it gains is measured by `persimmon_lab::placement` and told in docs/lab/amplification.md.

use persimmon_sync::atomic::{AtomicU64, Ordering};

use persimmon_device::ZoneId;
use persimmon_device::per_zone::ZoneCells;

use super::{Stream, Zones};

/// Classes of estimates, which users' writes and moved blocks are separated by.
pub(crate) const CLASSES: u8 = 8;
/// The class of blocks of which nothing is known.
pub(crate) const CLASS_UNKNOWN: u8 = CLASSES - 2;
/// From one class to the next intervals grow by two to this power.
const CLASS_LOG2: i32 = 2;
/// Parts of what was thought before for one part of what a block tells.
const MEMORY: u32 = 3;
/// Fractional bits of an [`Interval`].
const FRACTION_BITS: u32 = 8;

/// Blocks written to the volume between two writes of a block: the logarithm to base 2, in 1/256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interval(u16);

impl Interval {
    pub(crate) fn of_blocks(blocks: u64) -> Interval {
        let blocks = blocks.max(1);
        let whole = blocks.ilog2();
        // Linear between two powers: good to a tenth of a doubling.
        let below = u128::from(blocks - (1 << whole)) << FRACTION_BITS >> whole;
        Interval((whole << FRACTION_BITS) as u16 + below as u16)
    }

    /// About so many blocks.
    pub(crate) fn blocks(self) -> f64 {
        (f64::from(self.0) / f64::from(1u32 << FRACTION_BITS)).exp2()
    }

    /// With the news that a block of this estimate lived for so many blocks.
    pub(crate) fn observed(self, lived: u64) -> Interval {
        let lived = u32::from(Interval::of_blocks(lived).0);
        Interval(((u32::from(self.0) * MEMORY + lived) / (MEMORY + 1)) as u16)
    }

    /// With the news that a block of this estimate has lived for so long and lives on. It counts as a death at that
    /// age, if that is longer: only some live as long again.
    pub(crate) fn outlived(self, age: u64) -> Interval {
        self.max(self.observed(age))
    }

    /// The class of blocks with this estimate on a volume of so many blocks.
    pub(crate) fn class(self, volume_blocks: u64) -> u8 {
        let unit = i32::from(Interval::of_blocks(volume_blocks).0);
        let step = CLASS_LOG2 << FRACTION_BITS;
        let above = (i32::from(self.0) - unit + step / 2).div_euclid(step);
        (i32::from(CLASS_UNKNOWN) + above).clamp(0, i32::from(CLASSES) - 1) as u8
    }

    /// In the middle of a class.
    pub(crate) fn of_class(class: u8, volume_blocks: u64) -> Interval {
        let unit = i32::from(Interval::of_blocks(volume_blocks).0);
        let above = i32::from(class) - i32::from(CLASS_UNKNOWN);
        Interval((unit + above * (CLASS_LOG2 << FRACTION_BITS)).clamp(0, u16::MAX.into()) as u16)
    }
}

/// What is known of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// When the user wrote them: the volume's write clock.
    pub(crate) born: u64,
    /// When they will be written again.
    pub(crate) interval: Interval,
}

/// The mean of what is known of the blocks of a zone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lives {
    blocks: u64,
    born: u128,
    interval: u64,
}

impl Lives {
    pub(crate) fn add(&mut self, life: Life, blocks: u64) {
        self.blocks = self.blocks.saturating_add(blocks);
        let born = u128::from(life.born).saturating_mul(blocks.into());
        self.born = self.born.saturating_add(born);
        let interval = u64::from(life.interval.0).saturating_mul(blocks);
        self.interval = self.interval.saturating_add(interval);
    }

    /// Nothing, of no blocks.
    pub(crate) fn mean(&self) -> Option<Life> {
        Some(Life {
            born: self.born.checked_div(self.blocks.into())? as u64,
            interval: Interval(self.interval.checked_div(self.blocks)? as u16),
        })
    }
}

/// The lives of all zones, for who asks without the table: what [`ZoneEntry`](super::entries::ZoneEntry) says of them.
#[derive(Debug)]
pub(super) struct ZoneLives(ZoneCells<AtomicU64>);

/// Bits of an interval in a cell. The write clock has the others: it is told up to 2^48 blocks, an exbibyte.
const INTERVAL_BITS: u32 = u16::BITS;
const BORN_MAX: u64 = u64::MAX >> INTERVAL_BITS;

impl ZoneLives {
    pub(super) fn new(zones: usize) -> ZoneLives {
        ZoneLives(ZoneCells::new(zones))
    }

    pub(super) fn set(&self, zone: ZoneId, life: Life) {
        if let Some(cell) = self.0.make(zone.0 as usize) {
            let born = life.born.min(BORN_MAX);
            cell.store(
                born << INTERVAL_BITS | u64::from(life.interval.0),
                Ordering::Relaxed,
            );
        }
    }

    fn get(&self, zone: ZoneId) -> Option<Life> {
        let cell = self.0.get(zone.0 as usize)?.load(Ordering::Relaxed);
        Some(Life {
            born: cell >> INTERVAL_BITS,
            interval: Interval(cell as u16),
        })
    }
}

impl Zones {
    /// The stream for users' blocks that come in the place of others, and what is known of them now.
    /// `old` are the zones of those others, and how many blocks were in each.
    pub(crate) fn infer(&self, old: impl Iterator<Item = (ZoneId, u64)>) -> (Stream, Life) {
        let born = self.counts().write_clock;
        let mut lives = Lives::default();
        for (zone, blocks) in old {
            if let Some(life) = self.lives.get(zone) {
                let lived = born.saturating_sub(life.born);
                let interval = life.interval.observed(lived);
                lives.add(Life { born, interval }, blocks);
            }
        }
        let unknown = || Life {
            born,
            interval: Interval::of_class(CLASS_UNKNOWN, self.volume_blocks),
        };
        let life = lives.mean().unwrap_or_else(unknown);
        (Stream::Data(life.interval.class(self.volume_blocks)), life)
    }

    /// What is known of blocks with a lifetime that their user told, by its class.
    pub(crate) fn hinted(&self, class: u8) -> (Stream, Life) {
        let stream = Stream::Hinted(class);
        let life = Life {
            born: self.counts().write_clock,
            interval: Interval::of_class(stream.class(), self.volume_blocks),
        };
        (stream, life)
    }

    /// The stream for moved blocks of a zone, and what is known of them now.
    pub(crate) fn infer_moved(&self, zone: ZoneId) -> (Stream, Life) {
        let table = self.lock();
        let entry = table.entries.get(zone);
        let life = entry.map(|e| e.life).unwrap_or_default();
        let age = table.counts.write_clock.saturating_sub(life.born);
        let interval = life.interval.outlived(age);
        let class = interval.class(self.volume_blocks);
        let stream = match entry.map(|e| e.lifetime).and_then(Stream::hint_of) {
            Some(lifetime) => Stream::HintedMoved(class, lifetime),
            None => Stream::Moved(class),
        };
        (stream, Life { interval, ..life })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_logarithms() {
        for blocks in [1u64, 2, 3, 5, 100, 4096, 1 << 40, u64::MAX] {
            let about = Interval::of_blocks(blocks).blocks();
            let ratio = about / blocks as f64;
            assert!((0.9..1.1).contains(&ratio), "{blocks}: {about}");
        }
        assert!(Interval::of_blocks(1000) < Interval::of_blocks(1100));
        assert_eq!(Interval::of_blocks(0), Interval::of_blocks(1));
    }

    #[test]
    fn classes_are_a_factor_of_four_apart() {
        let volume = 1 << 20;
        let class = |blocks| Interval::of_blocks(blocks).class(volume);
        assert_eq!(class(volume), CLASS_UNKNOWN);
        assert_eq!(class(volume / 4), CLASS_UNKNOWN - 1);
        assert_eq!(class(volume / 16), CLASS_UNKNOWN - 2);
        assert_eq!(class(volume * 4), CLASS_UNKNOWN + 1);
        assert_eq!(class(u64::MAX), CLASSES - 1);
        assert_eq!(class(1), 0);
        for class in 0..CLASSES {
            assert_eq!(Interval::of_class(class, volume).class(volume), class);
        }
    }

    #[test]
    fn estimates_follow_what_is_seen_slowly() {
        let mut interval = Interval::of_blocks(1 << 20);
        let before = interval;
        interval = interval.observed(1 << 10);
        assert_eq!(interval, Interval((35 << FRACTION_BITS) / 2));
        (0..60).for_each(|_| interval = interval.observed(1 << 10));
        assert!(interval.blocks() < 1100.0);
        assert_eq!(before.outlived(5), before);
        assert_eq!(before.outlived(1 << 30), before.observed(1 << 30));
        assert!(before.outlived(1 << 30) > before);
    }

    #[test]
    fn means_weigh_by_blocks() {
        let mut lives = Lives::default();
        assert_eq!(lives.mean(), None);
        let life = |born, log2: u32| Life {
            born,
            interval: Interval::of_blocks(1 << log2),
        };
        lives.add(life(100, 4), 3);
        lives.add(life(200, 8), 1);
        assert_eq!(lives.mean(), Some(life(125, 5)));
    }
}
