//! Which zone is emptied next.

use persimmon_device::ZoneId;
use persimmon_format::table::Role;

use super::Zones;
use super::table::{Entry, ZoneStatus};

/// By what a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// What is won for what it costs, as it would go on to be won: garbage squared, times how long
    /// what is live will stay so, over what is live (Lomet and Luo, "Efficiently reclaiming space
    /// in a log structured store", ICDE 2021).
    Worth,
    /// Room is needed now: most garbage.
    Garbage,
    /// The same, but no zone is left for survivors: what is in a metadata zone needs none, for it
    /// goes where the next checkpoint goes.
    Metadata,
}

/// Garbage below which no zone is emptied, as a share of its capacity.
const GARBAGE_SHARE_MIN: u32 = 32;

impl Zones {
    /// The best zone to empty among those that `may` be. Zones wholly dead are none.
    /// `metadata_share_min` is the share of garbage, in percent, below which metadata is left to
    /// die by itself: all of it is written anew by and by.
    pub(crate) fn choose_victim(
        &self,
        choice: Choice,
        metadata_share_min: u32,
        may: impl Fn(&ZoneStatus) -> bool,
    ) -> Option<ZoneStatus> {
        let mut scored: Vec<(f64, ZoneId)> = {
            let table = self.lock();
            let zones = (0..).map(ZoneId).zip(&table.entries);
            zones
                .filter_map(|(zone, entry)| {
                    let valid = self.valid(zone);
                    let score = score(choice, metadata_share_min, entry, valid)?;
                    Some((score, zone))
                })
                .collect()
        };
        // The best is nearly always one that may be.
        while !scored.is_empty() {
            let best = scored.iter().enumerate();
            let (at, (_, zone)) = best.max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0))?;
            if let Some(status) = self.status_of(*zone).filter(|status| may(status)) {
                return Some(status);
            }
            scored.swap_remove(at);
        }
        None
    }
}

fn score(choice: Choice, metadata_share_min: u32, entry: &Entry, valid: u32) -> Option<f64> {
    let garbage = entry.capacity.saturating_sub(valid);
    if entry.open
        || valid == 0
        || entry.failure.is_some()
        || garbage <= entry.capacity / GARBAGE_SHARE_MIN
    {
        return None;
    }
    let worth = || {
        let garbage = f64::from(garbage);
        garbage * garbage * entry.life.interval.blocks() / f64::from(valid)
    };
    match (entry.role, choice) {
        (Role::Metadata, Choice::Worth) => {
            let share = u64::from(garbage) * 100 / u64::from(entry.capacity.max(1));
            // Its pages cost less to move than blocks of data: they are written together.
            (share >= metadata_share_min.into()).then_some(f64::MAX)
        }
        (Role::Data, Choice::Worth) => Some(worth()),
        (Role::Data, Choice::Garbage) => Some(garbage.into()),
        (Role::Metadata, Choice::Garbage | Choice::Metadata) => Some(garbage.into()),
        _ => None,
    }
}
