//! Policies: which stream a block goes to, and which zone is worth most to empty.

use super::zone::Zone;

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One stream, most garbage first.
    Greedy,
    /// Moved blocks apart; garbage times age by cost (Rosenblum and Ousterhout, "The design and
    /// implementation of a log-structured file system", 1992).
    CostBenefit,
    /// Cost-benefit, and six streams by inferred lifetime (Wang et al., "Separating data via block
    /// invalidation time inference for write amplification reduction in log-structured storage",
    /// FAST 2022). Knows when each block was written.
    SepBit,
    /// Streams by estimated rewrite interval, moved blocks apart. All that is known is of zones: when what is in one
    /// was written on average, and the interval it was thought to have. A block that is overwritten
    /// tells how long it lived; its new estimate is the mean of that and the zone's, by their
    /// logarithms. So does a moved block that lived longer than was thought. Victims by declining cost (Lomet and
    /// Luo, "Efficiently reclaiming space in a log structured store", ICDE 2021), where how long blocks
    /// will live is what is seen of their class, and not the estimate. What the engine does.
    Interval,
}

/// Streams of [`Policy::Interval`].
const INTERVAL_STREAMS: usize = 8;
/// From one to the next intervals grow by this factor.
const INTERVAL_RATIO: f64 = 4.0;
/// Weight of what was thought before against what a block tells.
const INTERVAL_MEMORY: f64 = 0.75;
/// Looks at what has died while as much is written as is live.
const LOOKS: u64 = 64;
/// Weight of what was seen before at the next look.
const SEEN_KEPT: f64 = 0.97;
/// Deaths that the estimate counts as, as a share of what is live.
const TRUSTED_SHARE: f64 = 1.0 / 4096.0;
/// How much of a difference between classes counts, in its logarithm.
const CONFIDENCE: f64 = 0.75;
/// Zones of the first stream that [`Policy::SepBit`] takes the mean lifetime of.
const SEPBIT_ZONES: u32 = 16;

impl Policy {
    /// Zones that it fills at the same time.
    #[must_use]
    pub fn streams(self) -> usize {
        match self {
            Policy::Greedy => 1,
            Policy::CostBenefit => 2,
            Policy::SepBit => 6,
            Policy::Interval => 2 * INTERVAL_STREAMS,
        }
    }

    /// Streams that may each ask for a zone before one is won. Blocks moved from a zone are of one class of intervals.
    pub(super) fn zones_wanted(self) -> usize {
        match self {
            Policy::Interval => INTERVAL_STREAMS,
            other => other.streams(),
        }
    }
}

/// A block about to be placed.
pub(super) struct Write {
    pub now: u64,
    /// When the user wrote it before.
    pub written: u64,
    /// The zone where that is; none if it is new.
    pub from: Option<Zone>,
}

/// A policy and what it has learned.
pub(super) struct Chooser {
    policy: Policy,
    /// Interval of a block of which nothing is known.
    unknown: f64,
    lifetimes: Lifetimes,
    /// Of each class of intervals.
    seen: [Seen; INTERVAL_STREAMS],
    looked_at: u64,
}

/// What was seen of a class of intervals, for [`Policy::Interval`].
#[derive(Clone, Copy, Default)]
struct Seen {
    died: f64,
    /// Blocks there were, times blocks that the user wrote meanwhile.
    lived: f64,
}

/// Of zones of the first stream, for [`Policy::SepBit`].
struct Lifetimes {
    sum: u64,
    zones: u32,
    mean: f64,
}

impl Chooser {
    pub fn new(policy: Policy, live_blocks: f64) -> Chooser {
        Chooser {
            policy,
            unknown: live_blocks,
            seen: [Seen::default(); INTERVAL_STREAMS],
            looked_at: 0,
            lifetimes: Lifetimes {
                sum: 0,
                zones: 0,
                mean: f64::INFINITY,
            },
        }
    }

    /// Stream of a block that the user writes, and its estimated interval.
    pub fn of_user(&mut self, write: &Write) -> (usize, f64) {
        let Some(from) = write.from else {
            let stream = match self.policy {
                Policy::Greedy | Policy::CostBenefit => 0,
                Policy::SepBit => 1,
                Policy::Interval => self.class(self.unknown),
            };
            return (stream, self.unknown);
        };
        match self.policy {
            Policy::Greedy | Policy::CostBenefit => (0, self.unknown),
            Policy::SepBit => {
                let lived = (write.now - write.written) as f64;
                (usize::from(lived >= self.lifetimes.mean), self.unknown)
            }
            Policy::Interval => {
                self.seen[self.class(from.interval())].died += 1.0;
                let interval = observed(from.interval(), write.now - from.born());
                (self.class(interval), interval)
            }
        }
    }

    /// Stream of a moved block, when the user wrote it, and its estimated interval.
    pub fn of_moved(&self, write: &Write) -> (usize, u64, f64) {
        let from = write.from.unwrap_or_default();
        match self.policy {
            Policy::Greedy => (0, write.now, self.unknown),
            Policy::CostBenefit => (1, write.now, self.unknown),
            Policy::SepBit => {
                let age = (write.now - write.written) as f64;
                let mean = self.lifetimes.mean;
                let stream = match from.stream {
                    0 => 2,
                    _ if age < 4.0 * mean => 3,
                    _ if age < 16.0 * mean => 4,
                    _ => 5,
                };
                (stream, write.now, self.unknown)
            }
            Policy::Interval => {
                let age = write.now - from.born();
                let interval = from.interval().max(observed(from.interval(), age));
                let stream = INTERVAL_STREAMS + self.class(interval);
                (stream, from.born(), interval)
            }
        }
    }

    /// Looks at what there is in all zones, if it is time to.
    pub fn look(&mut self, zones: &[Zone], now: u64) {
        let written = (now - self.looked_at) as f64;
        if self.policy != Policy::Interval || written < self.unknown / LOOKS as f64 {
            return;
        }
        self.looked_at = now;
        for seen in &mut self.seen {
            seen.died *= SEEN_KEPT;
            seen.lived *= SEEN_KEPT;
        }
        for zone in zones.iter().filter(|zone| zone.written > 0) {
            let class = self.class(zone.interval());
            self.seen[class].lived += f64::from(zone.valid) * written;
        }
    }

    /// How long blocks of a zone live.
    fn life(&self, zone: &Zone) -> f64 {
        let seen = &self.seen[self.class(zone.interval())];
        let trusted = self.unknown * TRUSTED_SHARE;
        (seen.lived + trusted * zone.interval()) / (seen.died + trusted)
    }

    fn class(&self, interval: f64) -> usize {
        // The last but one is for blocks written as often as the average.
        let above = (interval / self.unknown).ln() / INTERVAL_RATIO.ln();
        let last = (INTERVAL_STREAMS - 1) as f64;
        (last - 1.0 + above).round().clamp(0.0, last) as usize
    }

    /// A zone was emptied.
    pub fn emptied(&mut self, zone: &Zone, now: u64) {
        if zone.stream != 0 || self.policy != Policy::SepBit {
            return;
        }
        let lifetimes = &mut self.lifetimes;
        lifetimes.sum += now - zone.opened;
        lifetimes.zones += 1;
        if lifetimes.zones == SEPBIT_ZONES {
            *lifetimes = Lifetimes {
                sum: 0,
                zones: 0,
                mean: lifetimes.sum as f64 / f64::from(SEPBIT_ZONES),
            };
        }
    }

    /// How much a full zone is worth to empty.
    pub fn score(&self, zone: &Zone, zone_blocks: u32, now: u64) -> f64 {
        let garbage = f64::from(zone_blocks - zone.valid);
        // Nothing to move: before all others.
        let live = f64::from(zone.valid).max(0.001);
        let age = (now - zone.sealed.unwrap_or(now)) as f64;
        match self.policy {
            Policy::Greedy => garbage,
            Policy::CostBenefit | Policy::SepBit => garbage * age / live,
            Policy::Interval => garbage * garbage * self.life(zone).powf(CONFIDENCE) / live,
        }
    }
}

/// An estimate, with the news that a block lived for so long.
fn observed(interval: f64, lived: u64) -> f64 {
    let lived = (lived as f64).max(1.0);
    (INTERVAL_MEMORY * interval.ln() + (1.0 - INTERVAL_MEMORY) * lived.ln()).exp()
}
