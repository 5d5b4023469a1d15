//! The reference: which block goes to which zone, and nothing else. No filesystem, no metadata, no
//! bytes, zones are free again at once. What the engine's write amplification is compared with,
//! and where a policy is tried before it is built.
//!
//! The clock is the number of blocks that the user wrote.

mod policy;
mod zone;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::load::{Popularity, Scatter};
pub use policy::Policy;
use policy::{Chooser, Write};
use zone::Zone;

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Zones.
    pub zones: u32,
    /// Blocks of each.
    pub zone_blocks: u32,
    /// Live blocks as a share of all.
    pub fill: f64,
    /// Which blocks are overwritten.
    pub popularity: Popularity,
    /// Where blocks go, and which zone is emptied.
    pub policy: Policy,
    /// Blocks written before it is measured, in live volumes.
    pub warm_up_volumes: f64,
    /// Blocks written while it is measured, in live volumes.
    pub volumes: f64,
    /// Of the load.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            zones: 2000,
            zone_blocks: 512,
            fill: 0.8,
            popularity: Popularity::Uniform,
            policy: Policy::Greedy,
            warm_up_volumes: 6.0,
            volumes: 2.0,
            seed: 1,
        }
    }
}

/// Blocks sent to the device per block that the user wrote.
///
/// # Panics
/// If the plan leaves no room for cleaning.
#[must_use]
pub fn write_amplification(plan: &Plan) -> f64 {
    let mut simulation = Simulation::new(plan);
    let blocks = simulation.places.len() as u64;
    let scatter = Scatter::new(plan.popularity, blocks, false);
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed);
    (0..blocks).for_each(|block| simulation.write(block as u32));
    for _ in 0..(plan.warm_up_volumes * blocks as f64) as u64 {
        simulation.write(scatter.draw(&mut rng) as u32);
    }
    let (user, sent) = (simulation.clock, simulation.sent);
    for _ in 0..(plan.volumes * blocks as f64) as u64 {
        simulation.write(scatter.draw(&mut rng) as u32);
    }
    (simulation.sent - sent) as f64 / (simulation.clock - user) as f64
}

/// What uniform overwriting costs where every zone is emptied when it is the one filled longest ago,
/// `1 / (1 - x)` with `x = exp(-(1 - x) / fill)`: zones chosen by most garbage come to the same, as
/// zones grow.
#[must_use]
pub fn uniform_bound(fill: f64) -> f64 {
    let mut x = 0.5f64;
    for _ in 0..10_000 {
        x = (-(1.0 - x) / fill).exp();
    }
    1.0 / (1.0 - x)
}

/// No place.
const NOWHERE: u32 = u32::MAX;

struct Simulation {
    zone_blocks: u32,
    zones_wanted: usize,
    chooser: Chooser,
    zones: Vec<Zone>,
    free: Vec<u32>,
    /// Zone being filled, by stream.
    open: Vec<Option<u32>>,
    /// Where each block is.
    places: Vec<u32>,
    /// What block is at each place.
    owners: Vec<u32>,
    /// When each block was last written by the user.
    written: Vec<u64>,
    clock: u64,
    sent: u64,
}

// Only a plan can be wrong here.
#[allow(clippy::expect_used)]
impl Simulation {
    fn new(plan: &Plan) -> Simulation {
        let capacity = plan.zones as usize * plan.zone_blocks as usize;
        let blocks = (capacity as f64 * plan.fill) as usize;
        Simulation {
            zone_blocks: plan.zone_blocks,
            zones_wanted: plan.policy.zones_wanted(),
            chooser: Chooser::new(plan.policy, blocks as f64),
            zones: vec![Zone::default(); plan.zones as usize],
            free: (0..plan.zones).rev().collect(),
            open: vec![None; plan.policy.streams()],
            places: vec![NOWHERE; blocks],
            owners: vec![NOWHERE; capacity],
            written: vec![0; blocks],
            clock: 0,
            sent: 0,
        }
    }

    fn write(&mut self, block: u32) {
        self.clock += 1;
        let old = self.places[block as usize];
        let overwritten = (old != NOWHERE).then(|| {
            let zone = &mut self.zones[(old / self.zone_blocks) as usize];
            zone.valid -= 1;
            self.owners[old as usize] = NOWHERE;
            *zone
        });
        let write = Write {
            now: self.clock,
            written: self.written[block as usize],
            from: overwritten,
        };
        self.chooser.look(&self.zones, self.clock);
        let (stream, interval) = self.chooser.of_user(&write);
        self.written[block as usize] = self.clock;
        self.place(block, stream, self.clock, interval);
        while self.free.len() <= self.zones_wanted {
            self.clean();
        }
    }

    fn place(&mut self, block: u32, stream: usize, born: u64, interval: f64) {
        let number = *self.open[stream].get_or_insert_with(|| {
            let zone = self.free.pop().expect("the fill leaves room for cleaning");
            self.zones[zone as usize] = Zone::opened(stream, self.clock);
            zone
        });
        let zone = &mut self.zones[number as usize];
        let place = number * self.zone_blocks + zone.written;
        zone.take(born, interval);
        self.places[block as usize] = place;
        self.owners[place as usize] = block;
        self.sent += 1;
        if zone.written == self.zone_blocks {
            zone.sealed = Some(self.clock);
            self.open[stream] = None;
        }
    }

    fn clean(&mut self) {
        let full = self.zones.iter().enumerate();
        let (victim, zone) = full
            .filter(|(_, zone)| zone.sealed.is_some() && zone.valid < self.zone_blocks)
            .map(|(i, zone)| (i, *zone))
            .max_by(|a, b| {
                let score = |zone| self.chooser.score(zone, self.zone_blocks, self.clock);
                score(&a.1).total_cmp(&score(&b.1))
            })
            .expect("some zone has garbage");
        self.zones[victim] = Zone::default();
        self.chooser.emptied(&zone, self.clock);
        let places = victim * self.zone_blocks as usize..(victim + 1) * self.zone_blocks as usize;
        for place in places {
            let block = std::mem::replace(&mut self.owners[place], NOWHERE);
            if block != NOWHERE {
                let write = Write {
                    now: self.clock,
                    written: self.written[block as usize],
                    from: Some(zone),
                };
                let (stream, born, interval) = self.chooser.of_moved(&write);
                self.place(block, stream, born, interval);
            }
        }
        self.free.push(victim as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(policy: Policy, popularity: Popularity) -> f64 {
        write_amplification(&Plan {
            zones: 400,
            zone_blocks: 128,
            fill: 0.75,
            popularity,
            policy,
            ..Plan::default()
        })
    }

    #[test]
    fn greedy_cleaning_of_uniform_writes_is_at_the_bound() {
        assert!((uniform_bound(0.7) - 1.88).abs() < 0.01);
        assert!((uniform_bound(0.9) - 5.18).abs() < 0.01);
        let measured = small(Policy::Greedy, Popularity::Uniform);
        let bound = uniform_bound(0.75);
        assert!((measured / bound - 1.0).abs() < 0.05, "{measured}, {bound}");
    }

    #[test]
    fn each_policy_beats_the_one_before_on_skewed_writes() {
        let zipf = Popularity::Zipf { theta: 0.99 };
        let policies = [
            Policy::Greedy,
            Policy::CostBenefit,
            Policy::SepBit,
            Policy::Interval,
        ];
        let measured = policies.map(|policy| small(policy, zipf));
        assert!(measured.is_sorted_by(|a, b| a > b), "{measured:?}");
    }
}
