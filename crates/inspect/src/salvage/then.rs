//! What was written after an earlier checkpoint: what lies behind the write pointers of that.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_format::ZoneId;
use persimmon_format::table::{Role, ZitEntry};

use super::forest::{Instead, LostRange};
use super::scan::Scan;
use super::tables;
use crate::checkpoint::Checkpoint;
use crate::volume::Inspector;

/// Earlier checkpoints looked at, the newest first. Of more, what the last checkpoint knows is taken: that is behind all of them.
const CHECKPOINTS_MAX: usize = 64;

/// By the earlier checkpoints as of which leaves are there: the block of each zone from which on all is newer.
#[derive(Default)]
pub(super) struct Then {
    ends: BTreeMap<u64, Vec<u32>>,
}

impl Then {
    pub(super) fn of(
        inspector: &Inspector<'_>,
        scan: &Scan,
        checkpoint: &Checkpoint,
        lost: &[LostRange],
    ) -> Then {
        let older = lost.iter().filter_map(|lost| match lost.instead {
            Instead::Older(checkpoint) => Some(checkpoint),
            Instead::Nothing | Instead::Leaves(_) => None,
        });
        let older: BTreeSet<u64> = older.collect();
        if checkpoint.zit_lost {
            return Then::default();
        }
        let newest = older.into_iter().rev().take(CHECKPOINTS_MAX);
        let ends = newest.map(|since| {
            let entries = tables::zit_since(inspector, scan, since, checkpoint);
            (since, ends(inspector, &entries))
        });
        Then {
            ends: ends.collect(),
        }
    }

    /// The block of a zone from which on all was written after an earlier checkpoint.
    pub(super) fn end(&self, since: u64, zone: ZoneId) -> u32 {
        let ends = self.ends.get(&since);
        let end = ends.and_then(|ends| ends.get(zone.0 as usize));
        end.copied().unwrap_or(u32::MAX)
    }
}

fn ends(inspector: &Inspector<'_>, entries: &[ZitEntry]) -> Vec<u32> {
    let given_out = entries.iter().map(|entry| entry.sequence).max();
    let given_out = given_out.unwrap_or(u64::MAX);
    let zones = (0..).map(ZoneId).zip(entries);
    let ends = zones.map(|(zone, entry)| match inspector.header(zone) {
        Some(header) if entry.role == Role::Data && entry.is_of_use(header.sequence) => {
            entry.write_pointer
        }
        // It was taken into use since.
        Some(header) if header.sequence > given_out => 0,
        // An earlier use of it, which a reset left where it was.
        _ => u32::MAX,
    });
    ends.collect()
}
