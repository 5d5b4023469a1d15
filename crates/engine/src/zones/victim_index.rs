//! The victim index: lists zones by what they are good for: to be taken into use, freed, or emptied. So a step of
//! cleaning looks at the zones that changed since the step before, and not at all zones.
//!
//! A zone's listing follows from its entry, its valid count, whether it is being filled, and what is seen of blocks
//! that live as long ([`Survival`], which seldom changes, but then for many zones). Whatever changes
//! one of these touches the zone ([`Touched`]), and who asks brings the touched ones up to date first
//! ([`Zones::indexed`]). It is a hint for who acts on it: what is irrevocable goes by the entries.
//!
//! [`Touched`]: super::entries::Touched
//! [`Survival`]: super::survival::Survival

use std::collections::{BTreeMap, BTreeSet};

use persimmon_sync::Alarm;

use persimmon_device::ZoneId;
use persimmon_device::per_zone::PerZone;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;

use super::entries::{State, ZoneEntry};
use super::layout::{DeviceKind, Layout, PerDevice};
use super::lifetime::Interval;
use super::locked::Locked;
use super::table::{Table, Zones};
use crate::invariant::{invariant_holds, invariant_sub};

/// Garbage below which a zone has no score, as a share of its capacity: emptying it does not pay.
const GARBAGE_SHARE_SCORED: u32 = 32;
/// Garbage below which emptying one wins nothing, likewise: what is moved takes summaries too, which are half a percent
/// where all blocks are single in their files.
const GARBAGE_SHARE_MIN: u32 = 128;
/// The same of large zones, where little else is lost.
const GARBAGE_SHARE_MIN_LARGE: u32 = 256;

/// Zones that a host keeps the space of come before all others.
const ORDERS_WITH_SPACE: u32 = u32::MAX / 2;

/// What a zone is good for now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Listing {
    /// It is in use, with next to no garbage, or out of use for good.
    #[default]
    Unlisted,
    Free {
        /// Which comes first: one that a host keeps the space of, the longest first, for the others may have to
        /// wait until their resets are durable; then those reset least.
        order: u32,
    },
    /// The next checkpoint frees it. Its last reset failed if `reset_failed`.
    Reclaimable {
        reset_failed: bool,
    },
    /// Something valid is in it, and garbage.
    Data {
        garbage: u32,
        /// None with so little garbage that it is emptied only where there is no other.
        score: Option<Score>,
    },
    Metadata {
        garbage: u32,
    },
}

/// What is to become of a zone that has failed, or whose partner has, or that lacks redundancy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Failing {
    /// See [`ZoneStatus::must_be_emptied`](super::table::ZoneStatus::must_be_emptied).
    to_empty: bool,
    /// It has failed: it is out of use for good once nothing is in it.
    to_retire: bool,
}

/// The score of a victim, as the bits of a float: the bits of positive floats sort like their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Score(u32);

impl Listing {
    /// Of a zone with so much valid, and so much that moving has left between it. `is_filled`: what was written to it is not in the tree yet;
    /// `stands_in`: it goes with the zone that has the other copy; `garbage_share_min`: with less of it no zone is worth a look; `weight`: what counts how long blocks live.
    fn of(
        entry: &ZoneEntry,
        (valid, padding): (PackUnits, PackUnits),
        (is_filled, stands_in): (bool, bool),
        garbage_share_min: u32,
        weight: impl Fn(Interval) -> f64,
    ) -> Listing {
        if entry.is_free() {
            return Listing::Free {
                order: match entry.keeps_space {
                    Some(since) => since.get().min(ORDERS_WITH_SPACE),
                    None => entry.resets.saturating_add(ORDERS_WITH_SPACE),
                },
            };
        }
        if is_filled {
            return Listing::Unlisted;
        }
        if entry.is_reclaimable(valid) && !stands_in {
            return Listing::Reclaimable {
                reset_failed: entry.state == State::ResetFailed,
            };
        }
        let valid = valid.blocks() as u32;
        let garbage = entry.capacity.saturating_sub(valid);
        let is_little = garbage <= entry.capacity / garbage_share_min;
        if entry.is_open() || valid == 0 || entry.failure.is_some() || is_little {
            return Listing::Unlisted;
        }
        match entry.role {
            Role::Data => {
                // Both counts are rounded up to blocks.
                let won = garbage.saturating_sub(padding.blocks() as u32);
                let is_scored = won > entry.capacity / GARBAGE_SHARE_SCORED;
                let won = f64::from(won);
                let score = won * won * weight(entry.life.interval) / f64::from(valid);
                Listing::Data {
                    garbage,
                    score: is_scored.then_some(Score((score as f32).to_bits())),
                }
            }
            Role::Metadata => Listing::Metadata { garbage },
            _ => Listing::Unlisted,
        }
    }
}

/// Zones with a number, in its order; of the same in theirs.
type Order<T> = BTreeSet<(T, ZoneId)>;

/// Free zones by their order; zones of the same order by number. Most of a large volume's have the same, so zones next to
/// each other take a bit each.
#[derive(Default)]
struct FreeZones(BTreeMap<(u32, u32), u64>);

impl FreeZones {
    fn put(&mut self, order: u32, ZoneId(zone): ZoneId, enters: bool) {
        let (place, bit) = ((order, zone / u64::BITS), 1 << (zone % u64::BITS));
        let zones = self.0.entry(place).or_default();
        *zones = if enters { *zones | bit } else { *zones & !bit };
        if *zones == 0 {
            self.0.remove(&place);
        }
    }

    fn iter(&self) -> impl Iterator<Item = ZoneId> {
        self.0.iter().flat_map(|((_, word), zones)| {
            let bits = (0..u64::BITS).filter(|bit| *zones & (1 << *bit) != 0);
            bits.map(|bit| ZoneId(*word * u64::BITS + bit))
        })
    }
}

/// Lists of zones by what they are good for.
#[derive(Default)]
pub(super) struct VictimIndex {
    listings: PerZone<Listing>,
    free_candidates: FreeZones,
    /// Free zones that are none for the log, of each device.
    free_others: PerDevice<FreeZones>,
    /// Zones that the next checkpoint frees.
    reclaimable: BTreeSet<ZoneId>,
    reclaimable_count: PerDevice<u32>,
    alarm: Alarm,
    /// Zones that it tries to free again, because a reset failed.
    reset_failed: BTreeSet<ZoneId>,
    score: Order<Score>,
    garbage: Order<u32>,
    metadata_garbage: Order<u32>,
    /// Zones that must be emptied, whatever else they are listed as.
    to_empty: BTreeSet<ZoneId>,
    /// Zones that have failed and are not out of use yet.
    to_retire: BTreeSet<ZoneId>,
}

impl VictimIndex {
    /// The index of zones with these listings.
    fn of(listings: PerZone<Listing>, layout: &Layout, alarm: &Alarm) -> VictimIndex {
        let mut index = VictimIndex {
            alarm: alarm.clone(),
            ..VictimIndex::default()
        };
        for (zone, listing) in (0..).map(ZoneId).zip(listings.iter()) {
            index.list(zone, *listing, layout, true);
        }
        index.listings = listings;
        index
    }

    fn set(&mut self, zone: ZoneId, listing: Listing, layout: &Layout) {
        let Some(before) = self.listings.get(zone.0 as usize).copied() else {
            return;
        };
        self.listings.set(zone.0 as usize, listing);
        match (before, listing) {
            _ if before == listing => {}
            (
                Listing::Data {
                    garbage,
                    score: Some(old),
                },
                Listing::Data {
                    garbage: same,
                    score: Some(new),
                },
            ) if garbage == same => {
                put(&mut self.score, (old, zone), false, &self.alarm);
                put(&mut self.score, (new, zone), true, &self.alarm);
            }
            _ => {
                self.list(zone, before, layout, false);
                self.list(zone, listing, layout, true);
            }
        }
    }

    /// What is to become of a zone.
    fn set_failing(&mut self, zone: ZoneId, failing: Failing) {
        for (set, is_in) in [
            (&mut self.to_empty, failing.to_empty),
            (&mut self.to_retire, failing.to_retire),
        ] {
            if is_in {
                set.insert(zone);
            } else {
                set.remove(&zone);
            }
        }
    }

    /// Enters a zone into the lists that its listing names, or takes it out of them.
    fn list(&mut self, zone: ZoneId, listing: Listing, layout: &Layout, enters: bool) {
        match listing {
            Listing::Unlisted => {}
            Listing::Free { order } => {
                let free = if layout.is_log_candidate(zone) {
                    &mut self.free_candidates
                } else {
                    layout.get_mut(&mut self.free_others, layout.device_of(zone))
                };
                free.put(order, zone, enters);
            }
            Listing::Reclaimable { reset_failed: true } => {
                put(&mut self.reset_failed, zone, enters, &self.alarm)
            }
            Listing::Reclaimable {
                reset_failed: false,
            } => {
                put(&mut self.reclaimable, zone, enters, &self.alarm);
                let count = layout.get_mut(&mut self.reclaimable_count, layout.device_of(zone));
                if enters {
                    *count += 1
                } else {
                    invariant_sub!(self.alarm, *count, 1, "empty zones")
                }
            }
            Listing::Data { garbage, score } => {
                put(&mut self.garbage, (garbage, zone), enters, &self.alarm);
                if let Some(score) = score {
                    put(&mut self.score, (score, zone), enters, &self.alarm);
                }
            }
            Listing::Metadata { garbage } => {
                put(
                    &mut self.metadata_garbage,
                    (garbage, zone),
                    enters,
                    &self.alarm,
                );
            }
        }
    }

    /// Free zones that may be of the log, in their order.
    pub(super) fn free_candidates(&self) -> impl Iterator<Item = ZoneId> {
        self.free_candidates.iter()
    }

    /// The other free zones of a device, likewise.
    pub(super) fn free_others(
        &self,
        device: DeviceKind,
        layout: &Layout,
    ) -> impl Iterator<Item = ZoneId> {
        layout.of_device(&self.free_others, device).iter()
    }

    /// The same, one by one.
    pub(super) fn reclaimable(&self) -> impl Iterator<Item = ZoneId> {
        self.reclaimable.iter().copied()
    }

    /// Those that it tries to free again: their last reset failed.
    pub(super) fn reset_failed(&self) -> impl Iterator<Item = ZoneId> {
        self.reset_failed.iter().copied()
    }

    /// Both.
    pub(super) fn reclaimable_and_failed(&self) -> impl Iterator<Item = ZoneId> {
        self.reclaimable.iter().chain(&self.reset_failed).copied()
    }

    /// Zones that must be emptied.
    pub(super) fn to_empty(&self) -> impl Iterator<Item = ZoneId> {
        self.to_empty.iter().copied()
    }

    /// Zones that are out of use for good once nothing is in them.
    pub(super) fn to_retire(&self) -> impl Iterator<Item = ZoneId> {
        self.to_retire.iter().copied()
    }

    /// Data zones by score, the best victim first.
    pub(super) fn by_score(&self) -> impl Iterator<Item = ZoneId> {
        self.score.iter().rev().map(|(_, zone)| *zone)
    }

    /// Data zones with their garbage, most of it first.
    pub(super) fn by_garbage(&self) -> impl Iterator<Item = (u32, ZoneId)> {
        most(&self.garbage)
    }

    /// The same of metadata zones.
    pub(super) fn metadata_by_garbage(&self) -> impl Iterator<Item = (u32, ZoneId)> {
        most(&self.metadata_garbage)
    }
}

fn most(order: &Order<u32>) -> impl Iterator<Item = (u32, ZoneId)> {
    order.iter().rev().copied()
}

fn put<T: Ord>(set: &mut BTreeSet<T>, item: T, enters: bool, alarm: &Alarm) {
    let changed = if enters {
        set.insert(item)
    } else {
        set.remove(&item)
    };
    invariant_holds!(
        alarm,
        changed,
        "a zone was listed twice, or is taken out where it was not (enters: {enters})"
    );
}

impl Zones {
    /// The table, with the index up to date.
    pub(super) fn indexed(&self) -> Locked<'_> {
        let mut table = self.lock();
        self.update_index(&mut table);
        table
    }

    /// Indexes all zones as they are now; from here on those that are touched.
    pub(super) fn index_all(&self, table: &mut Table) {
        self.touched.take();
        let zones = table.entries.zones();
        let listings = zones.map(|zone| self.listing(table, zone)).collect();
        table.victim_index = VictimIndex::of(listings, &self.budget.layout, &self.alarm);
        for zone in table.entries.zones() {
            let failing = self.failing_in(table, zone);
            table.victim_index.set_failing(zone, failing);
        }
        table.counts.reclaimable = table.victim_index.reclaimable_count;
    }

    /// Brings the index up to date.
    pub(super) fn update_index(&self, table: &mut Table) {
        for zone in self.touched.take() {
            let listing = self.listing(table, zone);
            table.victim_index.set(zone, listing, &self.budget.layout);
            let failing = self.failing_in(table, zone);
            table.victim_index.set_failing(zone, failing);
        }
        table.counts.reclaimable = table.victim_index.reclaimable_count;
        invariant_holds!(
            self.alarm,
            table.victim_index.reclaimable_count.total() as usize
                == table.victim_index.reclaimable.len(),
            "{} zones are empty, and {} are listed",
            table.victim_index.reclaimable_count.total(),
            table.victim_index.reclaimable.len()
        );
    }

    /// Whether the index agrees with a look at all zones.
    #[cfg(debug_assertions)]
    pub(super) fn index_agrees(&self, table: &mut Table) -> bool {
        let agree = |table: &Table| {
            let mut zones = table.entries.zones();
            zones.all(|zone| {
                let index = &table.victim_index;
                let listed = index.listings.get(zone.0 as usize).copied();
                let failing = Failing {
                    to_empty: index.to_empty.contains(&zone),
                    to_retire: index.to_retire.contains(&zone),
                };
                listed == Some(self.listing(table, zone)) && failing == self.failing_in(table, zone)
            })
        };
        // Who fills a zone holds no lock: a pin may have changed just now.
        (0..100).any(|_| {
            self.update_index(table);
            agree(table) || {
                persimmon_sync::thread::yield_now();
                false
            }
        })
    }

    fn failing_in(&self, table: &Table, zone: ZoneId) -> Failing {
        let entry = table.entries.get(zone);
        let lacks_redundancy = entry.is_some_and(|entry| entry.lacks_redundancy);
        // Of nearly all zones.
        if !lacks_redundancy && !self.has_failed_in(table, zone) {
            return Failing::default();
        }
        let status = self.status_in(table, zone);
        let retires = |role| matches!(role, Role::Free | Role::Metadata | Role::Data);
        Failing {
            to_empty: status.is_some_and(|status| status.must_be_emptied()),
            to_retire: status
                .is_some_and(|status| status.failure.is_some() && retires(status.entry.role)),
        }
    }

    fn listing(&self, table: &Table, zone: ZoneId) -> Listing {
        let Some(entry) = table.entries.get(zone) else {
            return Listing::Unlisted;
        };
        let is_filled = self.pins.is_filled(zone);
        let stands_in = self.pairs.is_second(zone);
        let weight = |interval| table.survival.weight(interval);
        let share_min = match self.budget.large {
            Some(_) => GARBAGE_SHARE_MIN_LARGE,
            None => GARBAGE_SHARE_MIN,
        };
        let units = (self.valid.of(zone), self.padding.of(zone));
        Listing::of(entry, units, (is_filled, stands_in), share_min, weight)
    }
}

#[cfg(test)]
mod tests {
    use persimmon_device::Geometry;
    use persimmon_format::packed::BLOCK_PACK_UNITS;
    use proptest::prelude::*;

    use super::*;
    use crate::zones::lifetime::Life;

    const ZONES: u32 = 100;
    const ROLES: &[Role] = &[
        Role::Free,
        Role::Data,
        Role::Metadata,
        Role::Log,
        Role::Retired,
    ];

    fn layout(metadata_zones: u32) -> Layout {
        Layout::of(&Geometry {
            zone_count: ZONES,
            zone_blocks: 64,
            conventional_zones: 0,
            metadata_zones: persimmon_device::MetadataZones::first(metadata_zones),
            max_open: None,
            max_active: None,
            max_transfer_blocks: 256,
            max_append_blocks: 256,
            volatile_cache: true,
            write_pointer_is_proof: false,
            stripes: None,
        })
    }

    const STATES: &[State] = &[
        State::Empty,
        State::Open,
        State::Closed,
        State::InReset,
        State::ResetFailed,
    ];

    /// A zone as it may be, how much of it is valid, whether it is being filled, and what moving has left in it.
    fn state() -> impl Strategy<Value = (ZoneEntry, PackUnits, bool, PackUnits)> {
        let flags = (prop::sample::select(STATES), any::<bool>());
        // Many have nothing in them, and some next to no garbage.
        let units = prop_oneof![
            (0..65 * BLOCK_PACK_UNITS)
                .prop_map(|units| units.saturating_sub(20 * BLOCK_PACK_UNITS)),
            61 * BLOCK_PACK_UNITS..=64 * BLOCK_PACK_UNITS,
        ];
        let padding = prop_oneof![Just(0), 0..20 * BLOCK_PACK_UNITS];
        let counts = (0..4u32, units, padding, 1..1000u64);
        (prop::sample::select(ROLES), flags, counts).prop_map(
            |(role, (state, is_filled), (resets, units, padding, interval))| {
                // Only what is free is empty.
                let state = match (state, role) {
                    (State::Empty, Role::Free) => State::Empty,
                    (State::Empty, _) => State::Closed,
                    (state, _) => state,
                };
                let entry = ZoneEntry {
                    role,
                    state,
                    resets,
                    capacity: 64,
                    life: Life {
                        born: 0,
                        interval: Interval::of_blocks(interval),
                    },
                    ..ZoneEntry::default()
                };
                (entry, PackUnits(units), is_filled, PackUnits(padding))
            },
        )
    }

    proptest! {
        /// After any changes the index agrees with a look at all zones.
        #[test]
        fn index_is_what_a_scan_finds(
            metadata_zones in prop::sample::select(&[0u32, 70][..]),
            changes in prop::collection::vec((0..ZONES, state()), 1..400),
        ) {
            let layout = layout(metadata_zones);
            let none = PerZone::filled(ZONES as usize, Listing::Unlisted);
            let mut index = VictimIndex::of(none, &layout, &Alarm::default());
            let free = (ZoneEntry::default(), PackUnits::ZERO, false, PackUnits::ZERO);
            let mut zones = vec![free; ZONES as usize];
            for (zone, (entry, units, is_filled, padding)) in changes {
                zones[zone as usize] = (entry, units, is_filled, padding);
                let listing = Listing::of(&entry, (units, padding), (is_filled, false), GARBAGE_SHARE_MIN, Interval::blocks);
                index.set(ZoneId(zone), listing, &layout);
            }
            let listings = index.listings.clone();
            let anew = VictimIndex::of(listings, &layout, &Alarm::default());
            prop_assert!(anew.free_others(DeviceKind::Data, &layout).eq(index.free_others(DeviceKind::Data, &layout)));
            prop_assert!(anew.by_score().eq(index.by_score()));
            let scan = || zones.iter().zip(0..).map(|(z, i)| (z, ZoneId(i)));
            let least_reset = |device: DeviceKind, candidates: bool| {
                let mut free: Vec<_> = scan()
                    .filter(|(z, zone)| z.0.is_free() && layout.contains(device, *zone))
                    .filter(|(_, zone)| layout.is_log_candidate(*zone) == candidates)
                    .map(|(z, zone)| (z.0.resets, zone))
                    .collect();
                free.sort_unstable();
                free.into_iter().map(|(_, zone)| zone).collect::<Vec<_>>()
            };
            prop_assert_eq!(
                index.free_candidates().collect::<Vec<_>>(),
                least_reset(DeviceKind::Metadata, true)
            );
            for device in layout.devices() {
                prop_assert_eq!(
                    index.free_others(*device, &layout).collect::<Vec<_>>(),
                    least_reset(*device, false)
                );
                let reclaimable = scan().filter(|(z, zone)| {
                    z.0.is_reclaimable(z.1) && !z.2 && z.0.state != State::ResetFailed && layout.contains(*device, *zone)
                });
                prop_assert_eq!(layout.get(&index.reclaimable_count, *device), reclaimable.count() as u32);
            }
            let reclaimable: Vec<_> = scan().filter(|(z, _)| z.0.is_reclaimable(z.1) && !z.2).collect();
            prop_assert_eq!(index.reclaimable_and_failed().count(), reclaimable.len());
            for (role, found) in [
                (Role::Data, index.by_garbage().collect::<Vec<_>>()),
                (Role::Metadata, index.metadata_by_garbage().collect::<Vec<_>>()),
            ] {
                let mut most: Vec<_> = scan()
                    .filter(|((e, units, is_filled, _), _)| {
                        e.role == role && !e.is_open() && !is_filled && *units > PackUnits::ZERO
                    })
                    .map(|(z, zone)| (64 - z.1.blocks() as u32, zone))
                    .filter(|(garbage, _)| *garbage > 64 / GARBAGE_SHARE_MIN)
                    .collect();
                most.sort_unstable_by(|a, b| b.cmp(a));
                prop_assert_eq!(found, most);
            }
            let won = |zone: ZoneId| {
                let (_, units, _, padding) = &zones[zone.0 as usize];
                64 - (units.blocks() + padding.blocks()).min(64) as u32
            };
            let scores: Vec<f64> = index
                .by_score()
                .map(|zone| {
                    let (entry, units, ..) = &zones[zone.0 as usize];
                    let won = f64::from(won(zone));
                    won * won * entry.life.interval.blocks() / units.blocks() as f64
                })
                .collect();
            let scored = index.by_garbage().filter(|(_, zone)| won(*zone) > 64 / GARBAGE_SHARE_SCORED);
            prop_assert_eq!(scores.len(), scored.count());
            prop_assert!(scores.windows(2).all(|w| w[0] >= w[1] * 0.999_999));
        }
    }
}
