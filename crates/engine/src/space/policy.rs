//! Policy: what is done next about space, as functions of one picture of it. Nothing here waits, and nothing is changed;
//! [`reclaim`](crate::reclaim) carries it out.

use super::View;
use super::reserves::Journal;
use super::targets::Stock;
use crate::meta::Intent;
use crate::zones::DeviceKind;

/// Rounds without a zone gained before the volume counts as full.
pub(crate) const ROUNDS_MAX: usize = 64;
/// Rounds that win next to nothing before a caller that removes something goes on without room: it is not
/// refused if no zone is gained, and cleaning is tried again at every change.
const ROUNDS_MAX_SHRINK: usize = 4;
/// A round that wins less than this share of a zone has won nothing.
pub(crate) const WON_SHARE_MIN: u64 = 64;
/// Zones that are emptied in the first round: a waiting caller goes on soon, and one of them may be taken for moved blocks.
const EMPTIED_FIRST: u32 = 2;
/// In later rounds this share of the slack zones is.
const EMPTIED_SHARE: u32 = 32;

/// Who needs zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// New data needs one.
    Data,
    /// A change of metadata needs those that the next checkpoint may take.
    Change(Intent),
}

impl Need {
    /// The device whose zones it needs.
    pub(crate) fn device(self) -> DeviceKind {
        match self {
            Need::Data => DeviceKind::Data,
            Need::Change(_) => DeviceKind::Metadata,
        }
    }

    fn intent(self) -> Intent {
        match self {
            Need::Data => Intent::Grow,
            Need::Change(intent) => intent,
        }
    }
}

impl View<'_> {
    /// Whether there are too few zones for who needs some. Where data `may_take` none of those that are free, for they are the log's,
    /// there are too few however many: otherwise a caller that finds no zone would look for one again and again, and nobody would clean.
    pub(crate) fn is_short_for(&self, need: Need, may_take: bool) -> bool {
        let (free, watermark) = (self.free(need.device()), self.low_watermark(need.device()));
        match need {
            Need::Data => !may_take || free <= watermark,
            Need::Change(_) => free < watermark,
        }
    }

    /// Whether free zones are so few that none are reserved for a long journal any more, with this free-zone target.
    pub(crate) fn is_low(&self, device: DeviceKind, target: u32) -> bool {
        self.coming(device) + target < self.reserved(device, Journal::Wanted)
    }
}

/// What is there for who waits, at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) free: u32,
    /// Zones of this device on their way.
    pub(crate) in_reset: u32,
    /// Resets of any device that can be waited for.
    pub(crate) resets: u32,
    pub(crate) reclaimable: u32,
    /// Blocks that fit into free zones and those being filled.
    pub(crate) blocks: u64,
    /// It is still too little.
    pub(crate) is_short: bool,
    /// Some pages are changed that a checkpoint would write.
    pub(crate) has_changes: bool,
}

/// What a round of cleaning for a waiting caller has emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Emptied {
    /// Anything at all.
    pub(crate) any: bool,
    /// Zones of metadata: their pages leave with a whole checkpoint.
    pub(crate) pages: bool,
}

/// What is to be done next for who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// There is room.
    GoOn,
    /// Wait for a reset under way, the cheapest of all.
    AwaitReset,
    /// Empty victims until more zones are reclaimable or on their way: in the first round of a wait by the best score, in later ones by
    /// most garbage. Tell [`Wait::emptied`].
    Empty { is_first: bool },
    /// Write the checkpoint of the zones alone that frees what is reclaimable.
    FreeZones,
    /// Write a whole one.
    Checkpoint,
    /// Reclaimable zones are being read.
    AwaitReaders,
    /// There is no more room to be won.
    Refuse,
}

/// How far a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begins,
    Empties {
        before: u32,
        nothing_changed: bool,
    },
    Emptied {
        before: u32,
        nothing_changed: bool,
        emptied: Emptied,
    },
    Frees,
    Ends,
}

/// A wait for zones: rounds of emptying some and of a checkpoint that frees them.
///
/// A caller that wants more room is refused once that takes too long. A caller that removes something goes on as long as
/// there is more room than before, even far less than a zone: it needs the room, and must not be refused.
#[derive(Debug)]
pub(crate) struct Wait {
    intent: Intent,
    stage: Stage,
    /// Most zones that were free.
    zones: u32,
    rounds_without_zone: usize,
    /// Most blocks that there was room for.
    blocks: u64,
    /// A round that wins fewer blocks has won none.
    blocks_min: u64,
    rounds_without_blocks: usize,
}

impl Wait {
    /// Begins, with zones of so many blocks.
    pub(crate) fn new(need: Need, zone_blocks: u64, seen: &Seen) -> Wait {
        Wait {
            intent: need.intent(),
            stage: Stage::Begins,
            zones: seen.free,
            rounds_without_zone: 0,
            blocks: seen.blocks,
            blocks_min: zone_blocks / WON_SHARE_MIN + 1,
            rounds_without_blocks: 0,
        }
    }

    /// What to do next.
    pub(crate) fn next(&mut self, seen: &Seen) -> Next {
        loop {
            match self.stage {
                Stage::Begins if !seen.is_short => return Next::GoOn,
                Stage::Begins | Stage::Frees if seen.is_short && seen.resets > 0 => {
                    return Next::AwaitReset;
                }
                Stage::Begins => {
                    self.stage = Stage::Empties {
                        before: seen.free,
                        nothing_changed: seen.reclaimable == 0 && !seen.has_changes,
                    };
                    return Next::Empty {
                        is_first: self.is_first(),
                    };
                }
                Stage::Empties { .. } => self.emptied(Emptied::default()),
                Stage::Emptied {
                    before,
                    nothing_changed,
                    emptied,
                } => {
                    let is_served = seen.free > before && !seen.is_short;
                    if is_served || seen.reclaimable == 0 && seen.in_reset > 0 {
                        // Another thread has freed them meanwhile: they are free or being reset.
                        self.stage = Stage::Begins;
                        continue;
                    }
                    if nothing_changed && !emptied.any && seen.reclaimable == 0 {
                        return Next::Refuse;
                    }
                    self.stage = Stage::Frees;
                    let needs_whole = emptied.pages || seen.reclaimable == 0;
                    return if needs_whole || !self.is_first() {
                        Next::Checkpoint
                    } else {
                        Next::FreeZones
                    };
                }
                Stage::Frees if seen.is_short => {
                    self.stage = Stage::Ends;
                    return Next::AwaitReaders;
                }
                Stage::Frees | Stage::Ends => {
                    self.stage = Stage::Begins;
                    self.note(seen);
                    if self.is_hopeless() {
                        return Next::Refuse;
                    }
                }
            }
        }
    }

    /// What the round has emptied.
    pub(crate) fn emptied(&mut self, emptied: Emptied) {
        if let Stage::Empties {
            before,
            nothing_changed,
        } = self.stage
        {
            self.stage = Stage::Emptied {
                before,
                nothing_changed,
                emptied,
            };
        }
    }

    /// Whether a round that empties zones is over for this caller: another thread has freed some.
    pub(crate) fn is_served(&self, seen: &Seen) -> bool {
        match self.stage {
            Stage::Empties { before, .. } => seen.free > before && !seen.is_short,
            _ => false,
        }
    }

    /// No round before this one has gone without a zone.
    fn is_first(&self) -> bool {
        self.rounds_without_zone == 0
    }

    fn note(&mut self, seen: &Seen) {
        let count = |has_won, rounds: &mut usize| *rounds = if has_won { 0 } else { *rounds + 1 };
        count(seen.free > self.zones, &mut self.rounds_without_zone);
        let blocks = self.blocks.saturating_add(self.blocks_min);
        count(seen.blocks >= blocks, &mut self.rounds_without_blocks);
        self.zones = self.zones.max(seen.free);
        self.blocks = self.blocks.max(seen.blocks);
    }

    fn is_hopeless(&self) -> bool {
        match self.intent {
            Intent::Grow => self.rounds_without_zone > ROUNDS_MAX,
            Intent::Shrink => self.rounds_without_blocks > ROUNDS_MAX_SHRINK,
        }
    }
}

/// Zones that a round wants reclaimable, with so many slack zones and this free-zone target.
pub(crate) fn zones_wanted(is_first: bool, slack: u32, target: u32) -> u32 {
    if is_first {
        EMPTIED_FIRST
    } else {
        (slack / EMPTIED_SHARE).clamp(EMPTIED_FIRST, target.max(EMPTIED_FIRST))
    }
}

/// What frees zones ahead of need, if it is time: when nearly all free zones are filled, for a checkpoint costs the same, however many
/// zones it frees.
pub(crate) fn free_ahead(stock: &Stock) -> Option<Next> {
    let is_short = stock.is_short();
    let Stock {
        free,
        in_reset,
        reclaimable,
        evacuating,
        reserve,
        target,
        lag,
    } = *stock;
    let coming = free + in_reset;
    if coming > reserve + target / 2 + lag {
        return None;
    }
    // While other zones are being emptied it waits for some of them, unless the last free one is about to be taken.
    let enough = if is_short && coming > reserve + lag + 1 {
        (target / 4).max(1)
    } else {
        1
    };
    if reclaimable >= enough {
        Some(Next::FreeZones)
    } else if evacuating > 0 && (!is_short || coming <= reserve + 1) {
        Some(Next::Checkpoint)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen() -> impl Strategy<Value = Seen> {
        let counts = (0..20u32, 0..4u32, 0..4u32, 0..4u32, 0..10_000u64);
        (counts, any::<bool>(), any::<bool>()).prop_map(
            |((free, in_reset, more, reclaimable, blocks), is_short, has_changes)| Seen {
                free,
                in_reset,
                resets: in_reset + more,
                reclaimable,
                blocks,
                is_short,
                has_changes,
            },
        )
    }

    fn need() -> impl Strategy<Value = Need> {
        prop_oneof![
            Just(Need::Data),
            Just(Need::Change(Intent::Grow)),
            Just(Need::Change(Intent::Shrink)),
        ]
    }

    proptest! {
        /// Whatever happens meanwhile: who is not short goes on at the next round, nobody empties or frees anything while a reset would
        /// do, a checkpoint of the zones alone has zones to free, and zones are emptied before a checkpoint is written.
        #[test]
        fn the_cheapest_comes_first(need in need(), all in prop::collection::vec((seen(), any::<bool>(), any::<bool>()), 1..200)) {
            let mut wait = Wait::new(need, 500, &all[0].0);
            let mut has_emptied = false;
            for (seen, any, pages) in &all {
                match wait.next(seen) {
                    Next::GoOn => {
                        prop_assert!(!seen.is_short);
                        has_emptied = false;
                    }
                    Next::AwaitReset => prop_assert!(seen.is_short && seen.resets > 0),
                    Next::Empty { .. } => {
                        prop_assert!(seen.is_short && seen.resets == 0);
                        wait.emptied(Emptied { any: *any || *pages, pages: *pages });
                        has_emptied = true;
                    }
                    Next::FreeZones => prop_assert!(seen.reclaimable > 0 && std::mem::take(&mut has_emptied)),
                    Next::Checkpoint => prop_assert!(std::mem::take(&mut has_emptied)),
                    Next::AwaitReaders => prop_assert!(seen.is_short && seen.resets == 0),
                    Next::Refuse => return Ok(()),
                }
            }
        }

        /// Nobody waits for ever: where nothing is won it ends.
        #[test]
        fn a_wait_in_vain_ends(need in need(), mut seen in seen(), any in any::<bool>()) {
            seen = Seen { is_short: true, in_reset: 0, resets: 0, ..seen };
            let mut wait = Wait::new(need, 500, &seen);
            let mut steps = 0;
            loop {
                match wait.next(&seen) {
                    Next::Refuse => break,
                    Next::GoOn | Next::AwaitReset => prop_assert!(false, "there is nothing to go on with"),
                    Next::Empty { .. } => wait.emptied(Emptied { any, pages: false }),
                    _ => {}
                }
                steps += 1;
                prop_assert!(steps <= 3 * (ROUNDS_MAX + 2));
            }
        }

        /// Who removes something is not refused while each round wins a little.
        #[test]
        fn who_removes_goes_on_while_there_is_more(mut seen in seen()) {
            seen = Seen { is_short: true, in_reset: 0, resets: 0, reclaimable: 1, ..seen };
            let mut wait = Wait::new(Need::Change(Intent::Shrink), 500, &seen);
            for _ in 0..10 * ROUNDS_MAX {
                match wait.next(&seen) {
                    Next::Refuse => prop_assert!(false, "refused"),
                    Next::Empty { .. } => wait.emptied(Emptied { any: true, pages: false }),
                    Next::FreeZones | Next::Checkpoint => seen.blocks += 500 / WON_SHARE_MIN + 1,
                    _ => {}
                }
            }
        }

        #[test]
        fn zones_are_freed_ahead_only_if_that_frees_some(
            (free, in_reset, reclaimable, evacuating) in (0..50u32, 0..9u32, 0..9u32, 0..9u32),
            (reserve, target, lag) in (0..20u32, 1..20u32, 0..9u32),
        ) {
            let stock = Stock { free, in_reset, reclaimable, evacuating, reserve, target, lag };
            match free_ahead(&stock) {
                Some(Next::FreeZones) => prop_assert!(reclaimable > 0),
                Some(Next::Checkpoint) => prop_assert!(evacuating > 0),
                None => {
                    // With free zones at an end, what is reclaimable is freed.
                    let at_an_end = free + in_reset <= reserve + lag + 1;
                    prop_assert!(!(at_an_end && reclaimable > 0) || free + in_reset > reserve + target / 2 + lag);
                }
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
