//! How long blocks live of which estimates think the same. An [`Interval`] is a guess about each zone, and zones
//! whose blocks have lived long are thought to live on. So it is where some blocks are written more often than others;
//! where all are written equally often the guesses differ by chance and by age, and tell nothing of what comes.
//! What has died of each class of them, out of what there was, tells how much there is in it; victims are chosen by that.
//!
//! [`Interval`]: super::lifetime::Interval

use persimmon_sync::atomic::{AtomicI64, Ordering};

use persimmon_device::ZoneId;
use persimmon_device::per_zone::ZoneCells;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;

use super::Zones;
use super::lifetime::{CLASSES, Interval};
use super::table::Table;

/// Looks taken while as much is written as the volume holds.
const LOOKS: u64 = 64;
/// What was seen counts this much at the next look: half of it after a third of a volume.
const KEPT: f64 = 0.97;
/// As long as fewer blocks have died of a class than this part of the volume, the estimate counts more.
const TRUSTED_SHARE: u64 = 4096;
/// Of two classes of which one is seen to live twice as long, so much of that difference counts, in its logarithm: those
/// that live long do so until somebody begins to write them. All of it costs 3 % with zipf, half of it 2 %.
const CONFIDENCE: f64 = 0.75;
/// Steps of weights from one to twice as much.
const STEPS: f64 = 16.0;
/// A weight stays what it is until it is more steps off than these: all zones of the class are indexed anew then.
const STEPS_OFF: u32 = 1;

/// By class of estimates.
type PerClass<T> = [T; CLASSES as usize];

/// What has died in each zone since somebody looked, in packing units; what cleaning moved is not dead.
pub(super) struct Deaths(ZoneCells<AtomicI64>);

impl Deaths {
    pub(super) fn none(zones: usize) -> Deaths {
        Deaths(ZoneCells::new(zones))
    }

    pub(super) fn add(&self, zone: ZoneId, PackUnits(units): PackUnits) {
        if let Some(dead) = self.0.make(zone.0 as usize) {
            dead.fetch_add(units as i64, Ordering::Relaxed);
        }
    }

    fn sub(&self, zone: ZoneId, PackUnits(units): PackUnits) {
        if let Some(dead) = self.0.make(zone.0 as usize) {
            dead.fetch_sub(units as i64, Ordering::Relaxed);
        }
    }

    fn take(&self, zone: ZoneId) -> i64 {
        let dead = self.0.get(zone.0 as usize);
        dead.filter(|dead| dead.load(Ordering::Relaxed) != 0)
            .map_or(0, |dead| dead.swap(0, Ordering::Relaxed))
    }
}

/// What was seen of each class.
pub(super) struct Survival {
    volume_blocks: u64,
    /// Packing units that have died; less than nothing where what was moved was seen first.
    died: PerClass<f64>,
    /// Packing units that were there, times blocks written to the volume meanwhile.
    lived: PerClass<f64>,
    /// In steps.
    weights: PerClass<i32>,
    looked_at: u64,
}

impl Survival {
    pub(super) fn new(volume_blocks: u64, write_clock: u64) -> Survival {
        let mut survival = Survival {
            volume_blocks,
            died: [0.0; CLASSES as usize],
            lived: [0.0; CLASSES as usize],
            weights: [0; CLASSES as usize],
            looked_at: write_clock,
        };
        survival.weigh();
        survival
    }

    /// What blocks with such an estimate count as when a victim is chosen: more, the longer they live.
    pub(super) fn weight(&self, interval: Interval) -> f64 {
        let class = interval.class(self.volume_blocks);
        let steps = self.weights.get(usize::from(class));
        (f64::from(steps.copied().unwrap_or_default()) / STEPS).exp2()
    }

    fn is_due(&self, write_clock: u64) -> bool {
        write_clock.saturating_sub(self.looked_at) >= (self.volume_blocks / LOOKS).max(1)
    }

    fn note_deaths(&mut self, interval: Interval, units: i64) {
        let class = usize::from(interval.class(self.volume_blocks));
        if let Some(died) = self.died.get_mut(class) {
            *died += units as f64;
        }
    }

    /// So many packing units are there of each class now; they are taken to have been there since the last look. Answers the
    /// classes whose weight has changed.
    fn look(&mut self, live: PerClass<PackUnits>, write_clock: u64) -> PerClass<bool> {
        let written = write_clock.saturating_sub(self.looked_at) as f64;
        self.looked_at = write_clock;
        for (lived, live) in self.lived.iter_mut().zip(live) {
            *lived += live.0 as f64 * written;
        }
        let before = self.weights;
        self.weigh();
        for seen in self.lived.iter_mut().chain(&mut self.died) {
            *seen *= KEPT;
        }
        std::array::from_fn(|class| before.get(class) != self.weights.get(class))
    }

    fn weigh(&mut self) {
        let trusted = (PackUnits::of_blocks(self.volume_blocks).0 / TRUSTED_SHARE).max(1) as f64;
        let seen = self.lived.iter().zip(&self.died);
        for ((class, weight), (lived, died)) in (0..).zip(&mut self.weights).zip(seen) {
            let thought = Interval::of_class(class, self.volume_blocks).blocks();
            let life = (lived + trusted * thought) / (died.max(0.0) + trusted);
            let now = (life.max(1.0).log2() * CONFIDENCE * STEPS).round() as i32;
            if now.abs_diff(*weight) > STEPS_OFF {
                *weight = now;
            }
        }
    }
}

impl Zones {
    /// Cleaning has moved so much out of a zone.
    pub(crate) fn note_moved(&self, zone: ZoneId, units: PackUnits) {
        self.deaths.sub(zone, units);
    }

    /// Counts what has died in a zone, before it is another's.
    pub(super) fn count_deaths(&self, table: &mut Table, zone: ZoneId) {
        let units = self.deaths.take(zone);
        let entry = table.entries.get(zone);
        if let Some(interval) = entry.map(|entry| entry.life.interval) {
            table.survival.note_deaths(interval, units);
        }
    }

    /// Looks at what has died if enough was written since the last time.
    pub(super) fn look_at_deaths(&self, table: &mut Table) {
        if !table.survival.is_due(table.counts.write_clock) {
            return;
        }
        let mut live = [PackUnits::ZERO; CLASSES as usize];
        for zone in table.entries.zones() {
            self.count_deaths(table, zone);
            if let Some(class) = self.class_of_data(table, zone)
                && let Some(live) = live.get_mut(class)
            {
                *live += self.valid.of(zone);
            }
        }
        let clock = table.counts.write_clock;
        let changed = table.survival.look(live, clock);
        if !changed.contains(&true) {
            return;
        }
        for zone in table.entries.zones() {
            let class = self.class_of_data(table, zone);
            if class.is_some_and(|class| changed.get(class) == Some(&true)) {
                self.touched.touch(zone);
            }
        }
    }

    /// What has died so far is nothing to go by: so it is after a replay, which goes through it all again.
    pub(crate) fn forget_deaths(&self) {
        for zone in self.lock().entries.zones() {
            self.deaths.take(zone);
        }
    }

    fn class_of_data(&self, table: &Table, zone: ZoneId) -> Option<usize> {
        let entry = table.entries.get(zone)?;
        let class = entry.life.interval.class(self.volume_blocks);
        (entry.role == Role::Data).then_some(usize::from(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: u64 = 1 << 20;

    /// Each class is as large; of each as much dies in a look as `share` says.
    fn after_looks(share: impl Fn(usize) -> f64) -> PerClass<f64> {
        let mut survival = Survival::new(VOLUME, 0);
        let live = PackUnits::of_blocks(VOLUME).0 / u64::from(CLASSES);
        for look in 1..=400 {
            for class in 0..CLASSES {
                let died = live as f64 * share(class.into());
                survival.note_deaths(Interval::of_class(class, VOLUME), died as i64);
            }
            survival.look([PackUnits(live); CLASSES as usize], look * VOLUME / LOOKS);
        }
        std::array::from_fn(|class| survival.weight(Interval::of_class(class as u8, VOLUME)))
    }

    #[test]
    fn estimates_are_believed_until_something_is_seen() {
        let survival = Survival::new(VOLUME, 7);
        let weight = |blocks| survival.weight(Interval::of_blocks(blocks));
        let four_times = weight(VOLUME) / weight(VOLUME / 4);
        assert!((four_times / 4f64.powf(CONFIDENCE) - 1.0).abs() < 0.1);
        assert!(weight(VOLUME * 4) > weight(VOLUME));
    }

    #[test]
    fn classes_that_die_alike_weigh_the_same() {
        let weights = after_looks(|_| 0.01);
        let (least, most) = weights
            .iter()
            .fold((f64::MAX, 0f64), |(a, b), w| (a.min(*w), b.max(*w)));
        assert!(most / least < 1.2, "{weights:?}");
    }

    #[test]
    fn what_dies_less_often_weighs_more() {
        let weights = after_looks(|class| 0.3 / 2f64.powi(class as i32));
        assert!(weights.windows(2).all(|w| w[1] > w[0] * 1.4), "{weights:?}");
        // Whatever was thought of them.
        let weights = after_looks(|class| 0.001 * 2f64.powi(class as i32));
        assert!(weights.windows(2).all(|w| w[1] < w[0]), "{weights:?}");
    }

    #[test]
    fn what_was_moved_is_not_dead() {
        let deaths = Deaths::none(2);
        deaths.add(ZoneId(1), PackUnits(500));
        deaths.sub(ZoneId(1), PackUnits(400));
        deaths.add(ZoneId(7), PackUnits(1));
        assert_eq!([0, 1, 7].map(|zone| deaths.take(ZoneId(zone))), [0, 100, 0]);
        assert_eq!(deaths.take(ZoneId(1)), 0);
    }
}
