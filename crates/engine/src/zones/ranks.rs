//! Zones by what they are good for: to be taken into use, freed, or emptied. So a step of cleaning
//! looks at the zones that changed since the step before, and not at all there are.
//!
//! A zone's standing follows from its entry, its valid count, whether it is being filled, and what is seen of blocks
//! that live as long ([`Survival`], which seldom changes, but then for many zones). Whatever changes
//! one of these touches the zone ([`Touched`]), and who asks brings the touched ones up to date first
//! ([`Zones::ranked`]). It is a hint for who acts on it: what is irrevocable goes by the entries.
//!
//! [`Touched`]: super::entries::Touched
//! [`Survival`]: super::survival::Survival

use std::collections::{BTreeMap, BTreeSet};

use persimmon_sync::Alarm;

use persimmon_device::ZoneId;
use persimmon_device::per_zone::PerZone;
use persimmon_format::packed::PackUnits;
use persimmon_format::table::Role;

use super::entries::Entry;
use super::layout::{Layout, Part, PerPart};
use super::lifetime::Interval;
use super::locked::Locked;
use super::table::{Table, Zones};
use crate::invariant::{invariant_holds, invariant_sub};

/// Garbage below which no zone is worth emptying, as a share of its capacity.
const GARBAGE_SHARE_WORTH: u32 = 32;
/// Garbage below which emptying one wins nothing, likewise: what is moved takes summaries too, which are half a percent
/// where all blocks are single in their files.
const GARBAGE_SHARE_MIN: u32 = 128;
/// The same of large zones, where little else is lost.
const GARBAGE_SHARE_MIN_LARGE: u32 = 256;

/// Zones that a host keeps the space of come before all others.
const TURNS_KEPT: u32 = u32::MAX / 2;

/// What a zone is good for now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Standing {
    /// It is in use, with next to no garbage, or out of use for good.
    #[default]
    Stays,
    Free {
        /// Which comes first: one that a host keeps the space of, the longest first, for the others may have to
        /// wait until their resets are durable; then those reset least.
        turn: u32,
    },
    /// The next checkpoint frees it. Its last reset failed if `reset_failed`.
    Reclaimable {
        reset_failed: bool,
    },
    /// Something valid is in it, and garbage.
    Data {
        garbage: u32,
        /// None with so little garbage that it is emptied only where there is no other.
        worth: Option<Worth>,
    },
    Metadata {
        garbage: u32,
    },
}

/// What emptying a zone is worth; positive numbers have the order of their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Worth(u32);

impl Standing {
    /// Of a zone with so much valid. `is_filled`: what was written to it is not in the tree yet;
    /// `stands_in`: it goes with the zone that has the other copy; `garbage_share_min`: with less of it no zone is worth a look; `weight`: what counts how long blocks live.
    fn of(
        entry: &Entry,
        valid: PackUnits,
        (is_filled, stands_in): (bool, bool),
        garbage_share_min: u32,
        weight: impl Fn(Interval) -> f64,
    ) -> Standing {
        if entry.is_free() {
            return Standing::Free {
                turn: match entry.keeps_space {
                    Some(since) => since.get().min(TURNS_KEPT),
                    None => entry.resets.saturating_add(TURNS_KEPT),
                },
            };
        }
        if is_filled {
            return Standing::Stays;
        }
        if entry.is_reclaimable(valid) && !stands_in {
            return Standing::Reclaimable {
                reset_failed: entry.reset_failed,
            };
        }
        let valid = valid.blocks() as u32;
        let garbage = entry.capacity.saturating_sub(valid);
        let is_little = garbage <= entry.capacity / garbage_share_min;
        if entry.open || valid == 0 || entry.failure.is_some() || is_little {
            return Standing::Stays;
        }
        match entry.role {
            Role::Data => {
                let won = f64::from(garbage);
                let worth = won * won * weight(entry.life.interval) / f64::from(valid);
                let is_worth = garbage > entry.capacity / GARBAGE_SHARE_WORTH;
                Standing::Data {
                    garbage,
                    worth: is_worth.then_some(Worth((worth as f32).to_bits())),
                }
            }
            Role::Metadata => Standing::Metadata { garbage },
            _ => Standing::Stays,
        }
    }
}

/// Zones with a number, in its order; of the same in theirs.
type Order<T> = BTreeSet<(T, ZoneId)>;

/// Free zones by their turn; of the same turn in their order. Most of a large volume's have the same, so zones next to
/// each other take a bit each.
#[derive(Default)]
struct Turns(BTreeMap<(u32, u32), u64>);

impl Turns {
    fn put(&mut self, turn: u32, ZoneId(zone): ZoneId, enters: bool) {
        let (place, bit) = ((turn, zone / u64::BITS), 1 << (zone % u64::BITS));
        let zones = self.0.entry(place).or_default();
        *zones = match enters {
            true => *zones | bit,
            false => *zones & !bit,
        };
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

/// The zones by what they are good for.
#[derive(Default)]
pub(super) struct Ranks {
    standings: PerZone<Standing>,
    free_candidates: Turns,
    /// Free zones that are none for the log, of each part.
    free_others: PerPart<Turns>,
    /// Those that the next checkpoint frees.
    reclaimable: BTreeSet<ZoneId>,
    reclaimable_count: PerPart<u32>,
    alarm: Alarm,
    /// Those that it tries to free again.
    reset_failed: BTreeSet<ZoneId>,
    worth: Order<Worth>,
    garbage: Order<u32>,
    metadata_garbage: Order<u32>,
}

impl Ranks {
    /// Of zones with these standings.
    fn of(standings: PerZone<Standing>, layout: &Layout, alarm: &Alarm) -> Ranks {
        let mut ranks = Ranks {
            alarm: alarm.clone(),
            ..Ranks::default()
        };
        for (zone, standing) in (0..).map(ZoneId).zip(standings.iter()) {
            ranks.list(zone, *standing, layout, true);
        }
        ranks.standings = standings;
        ranks
    }

    fn set(&mut self, zone: ZoneId, standing: Standing, layout: &Layout) {
        let Some(before) = self.standings.get(zone.0 as usize).copied() else {
            return;
        };
        self.standings.set(zone.0 as usize, standing);
        match (before, standing) {
            _ if before == standing => {}
            (
                Standing::Data {
                    garbage,
                    worth: Some(old),
                },
                Standing::Data {
                    garbage: same,
                    worth: Some(new),
                },
            ) if garbage == same => {
                put(&mut self.worth, (old, zone), false, &self.alarm);
                put(&mut self.worth, (new, zone), true, &self.alarm);
            }
            _ => {
                self.list(zone, before, layout, false);
                self.list(zone, standing, layout, true);
            }
        }
    }

    /// Enters a zone where one of this standing belongs, or takes it out there.
    fn list(&mut self, zone: ZoneId, standing: Standing, layout: &Layout, enters: bool) {
        match standing {
            Standing::Stays => {}
            Standing::Free { turn } => {
                let free = match layout.is_log_candidate(zone) {
                    true => &mut self.free_candidates,
                    false => layout.get_mut(&mut self.free_others, layout.part_of(zone)),
                };
                free.put(turn, zone, enters);
            }
            Standing::Reclaimable { reset_failed: true } => {
                put(&mut self.reset_failed, zone, enters, &self.alarm)
            }
            Standing::Reclaimable {
                reset_failed: false,
            } => {
                put(&mut self.reclaimable, zone, enters, &self.alarm);
                let count = layout.get_mut(&mut self.reclaimable_count, layout.part_of(zone));
                match enters {
                    true => *count += 1,
                    false => invariant_sub!(self.alarm, *count, 1, "empty zones"),
                }
            }
            Standing::Data { garbage, worth } => {
                put(&mut self.garbage, (garbage, zone), enters, &self.alarm);
                if let Some(worth) = worth {
                    put(&mut self.worth, (worth, zone), enters, &self.alarm);
                }
            }
            Standing::Metadata { garbage } => {
                put(
                    &mut self.metadata_garbage,
                    (garbage, zone),
                    enters,
                    &self.alarm,
                );
            }
        }
    }

    /// Free zones that may be of the log, in their turn.
    pub(super) fn free_candidates(&self) -> impl Iterator<Item = ZoneId> {
        self.free_candidates.iter()
    }

    /// The other free zones of a part, likewise.
    pub(super) fn free_others(&self, part: Part, layout: &Layout) -> impl Iterator<Item = ZoneId> {
        layout.of_part(&self.free_others, part).iter()
    }

    /// Zones of a part that the next checkpoint frees.
    pub(super) fn reclaimable_count(&self, part: Part, layout: &Layout) -> u32 {
        layout.get(&self.reclaimable_count, part)
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

    /// Data zones, those first that are worth most to empty.
    pub(super) fn by_worth(&self) -> impl Iterator<Item = ZoneId> {
        self.worth.iter().rev().map(|(_, zone)| *zone)
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
    let changed = match enters {
        true => set.insert(item),
        false => set.remove(&item),
    };
    invariant_holds!(
        alarm,
        changed,
        "a zone was listed twice, or is taken out where it was not (enters: {enters})"
    );
}

impl Zones {
    /// The table, with ranks as of now.
    pub(super) fn ranked(&self) -> Locked<'_> {
        let mut table = self.lock();
        self.rank(&mut table);
        table
    }

    /// Ranks all zones as they are now; from here on those that are touched.
    pub(super) fn rank_all(&self, table: &mut Table) {
        self.touched.take();
        let zones = table.entries.zones();
        let standings = zones.map(|zone| self.standing(table, zone)).collect();
        table.ranks = Ranks::of(standings, &self.budget.layout, &self.alarm);
    }

    /// Brings ranks up to date.
    pub(super) fn rank(&self, table: &mut Table) {
        for zone in self.touched.take() {
            let standing = self.standing(table, zone);
            table.ranks.set(zone, standing, &self.budget.layout);
        }
        invariant_holds!(
            self.alarm,
            table.ranks.reclaimable_count.total() as usize == table.ranks.reclaimable.len(),
            "{} zones are empty, and {} are listed",
            table.ranks.reclaimable_count.total(),
            table.ranks.reclaimable.len()
        );
    }

    /// Whether the ranks are what a look at all zones tells.
    pub(super) fn ranks_agree(&self, table: &mut Table) -> bool {
        let agree = |table: &Table| {
            let mut zones = table.entries.zones();
            zones.all(|zone| {
                let listed = table.ranks.standings.get(zone.0 as usize).copied();
                listed == Some(self.standing(table, zone))
            })
        };
        // Who fills a zone holds no lock: a pin may have changed just now.
        (0..100).any(|_| {
            self.rank(table);
            agree(table) || {
                persimmon_sync::thread::yield_now();
                false
            }
        })
    }

    fn standing(&self, table: &Table, zone: ZoneId) -> Standing {
        let Some(entry) = table.entries.get(zone) else {
            return Standing::Stays;
        };
        let is_filled = self.pins.is_filled(zone);
        let stands_in = self.pairs.is_second(zone);
        let weight = |interval| table.survival.weight(interval);
        let share_min = match self.budget.large {
            Some(_) => GARBAGE_SHARE_MIN_LARGE,
            None => GARBAGE_SHARE_MIN,
        };
        let valid = self.valid.of(zone);
        Standing::of(entry, valid, (is_filled, stands_in), share_min, weight)
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
            metadata_zones,
            max_open: None,
            max_active: None,
            max_transfer_blocks: 256,
            max_append_blocks: 256,
            volatile_cache: true,
            write_pointer_is_proof: false,
        })
    }

    /// A zone as it may be, how much of it is valid, and whether it is being filled.
    fn state() -> impl Strategy<Value = (Entry, PackUnits, bool)> {
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
        // Many have nothing in them, and some next to no garbage.
        let units = prop_oneof![
            (0..65 * BLOCK_PACK_UNITS)
                .prop_map(|units| units.saturating_sub(20 * BLOCK_PACK_UNITS)),
            61 * BLOCK_PACK_UNITS..=64 * BLOCK_PACK_UNITS,
        ];
        let counts = (0..4u32, units, 1..1000u64);
        (prop::sample::select(ROLES), flags, counts).prop_map(
            |(role, (open, used, reset_failed, is_filled), (resets, units, interval))| {
                let free = role == Role::Free && !used;
                let entry = Entry {
                    role,
                    open: open && !free,
                    used: used || !free,
                    reset_failed,
                    resets,
                    capacity: 64,
                    life: Life {
                        born: 0,
                        interval: Interval::of_blocks(interval),
                    },
                    ..Entry::default()
                };
                (entry, PackUnits(units), is_filled)
            },
        )
    }

    proptest! {
        /// After any changes the ranks are what a look at all zones tells.
        #[test]
        fn ranks_are_what_a_scan_finds(
            metadata_zones in prop::sample::select(&[0u32, 70][..]),
            changes in prop::collection::vec((0..ZONES, state()), 1..400),
        ) {
            let layout = layout(metadata_zones);
            let none = PerZone::filled(ZONES as usize, Standing::Stays);
            let mut ranks = Ranks::of(none, &layout, &Alarm::default());
            let free = (Entry::default(), PackUnits::ZERO, false);
            let mut zones = vec![free; ZONES as usize];
            for (zone, (entry, units, is_filled)) in changes {
                zones[zone as usize] = (entry, units, is_filled);
                let standing = Standing::of(&entry, units, (is_filled, false), GARBAGE_SHARE_MIN, Interval::blocks);
                ranks.set(ZoneId(zone), standing, &layout);
            }
            let standings = ranks.standings.clone();
            let anew = Ranks::of(standings, &layout, &Alarm::default());
            prop_assert!(anew.free_others(Part::Data, &layout).eq(ranks.free_others(Part::Data, &layout)));
            prop_assert!(anew.by_worth().eq(ranks.by_worth()));
            let scan = || zones.iter().zip(0..).map(|(z, i)| (z, ZoneId(i)));
            let least_reset = |part: Part, candidates: bool| {
                let mut free: Vec<_> = scan()
                    .filter(|(z, zone)| z.0.is_free() && layout.contains(part, *zone))
                    .filter(|(_, zone)| layout.is_log_candidate(*zone) == candidates)
                    .map(|(z, zone)| (z.0.resets, zone))
                    .collect();
                free.sort_unstable();
                free.into_iter().map(|(_, zone)| zone).collect::<Vec<_>>()
            };
            prop_assert_eq!(
                ranks.free_candidates().collect::<Vec<_>>(),
                least_reset(Part::Metadata, true)
            );
            for part in layout.parts() {
                prop_assert_eq!(
                    ranks.free_others(*part, &layout).collect::<Vec<_>>(),
                    least_reset(*part, false)
                );
                let reclaimable = scan().filter(|(z, zone)| {
                    z.0.is_reclaimable(z.1) && !z.2 && !z.0.reset_failed && layout.contains(*part, *zone)
                });
                prop_assert_eq!(ranks.reclaimable_count(*part, &layout), reclaimable.count() as u32);
            }
            let reclaimable: Vec<_> = scan().filter(|(z, _)| z.0.is_reclaimable(z.1) && !z.2).collect();
            prop_assert_eq!(ranks.reclaimable_and_failed().count(), reclaimable.len());
            for (role, found) in [
                (Role::Data, ranks.by_garbage().collect::<Vec<_>>()),
                (Role::Metadata, ranks.metadata_by_garbage().collect::<Vec<_>>()),
            ] {
                let mut most: Vec<_> = scan()
                    .filter(|((e, units, is_filled), _)| {
                        e.role == role && !e.open && !is_filled && *units > PackUnits::ZERO
                    })
                    .map(|(z, zone)| (64 - z.1.blocks() as u32, zone))
                    .filter(|(garbage, _)| *garbage > 64 / GARBAGE_SHARE_MIN)
                    .collect();
                most.sort_unstable_by(|a, b| b.cmp(a));
                prop_assert_eq!(found, most);
            }
            let worths: Vec<f64> = ranks
                .by_worth()
                .map(|zone| {
                    let (entry, units, _) = &zones[zone.0 as usize];
                    let valid = units.blocks() as f64;
                    let garbage = 64.0 - valid;
                    garbage * garbage * entry.life.interval.blocks() / valid
                })
                .collect();
            let worth = ranks.by_garbage().filter(|(g, _)| *g > 64 / GARBAGE_SHARE_WORTH);
            prop_assert_eq!(worths.len(), worth.count());
            prop_assert!(worths.windows(2).all(|w| w[0] >= w[1] * 0.999_999));
        }
    }
}
