//! Which zones of the device below make up a stripe set, and where the blocks of a set lie in them.
//!
//! A set has some columns and one zone of parity, neighbours on the device. Its first block is the first block of
//! each of its zones. The others go round the columns, one block after the other: those of one round are a row, lie at the same
//! place of each column, and their exclusive or lies there in the zone of parity. With one column that is a copy.

use std::ops::Range;

use crate::geometry::Stripes;
use crate::label::LABEL_ZONES;
use crate::{Geometry, MetadataZones, ZoneId};

/// How a device is divided into stripe sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    stripes: Stripes,
    /// Sets there are.
    pub(super) sets: u32,
}

/// The zones of one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    /// Number of the set: of the zone that it looks like.
    pub(super) zone: ZoneId,
    /// The first of its zones.
    first: u32,
    /// Zones beside that of parity.
    pub(super) columns: u32,
}

/// Blocks of a set that lie behind each other in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) column: u32,
    /// The first of them in the column.
    pub(super) row: u32,
    pub(super) rows: u32,
    /// The first of them, counted from where the blocks of all columns begin; the others follow a whole row apart each.
    pub(super) at: u32,
}

impl Layout {
    /// Of a device with `zones` zones, those of its label included.
    pub(super) fn of(stripes: Stripes, zones: u32) -> Layout {
        let zones = zones.saturating_sub(LABEL_ZONES);
        let mirrored = stripes.metadata_sets.min(zones / 2);
        let data = (zones - 2 * mirrored) / stripes.columns.saturating_add(1);
        Layout {
            stripes,
            sets: mirrored + data,
        }
    }

    /// A set.
    pub(super) fn set(&self, zone: ZoneId) -> Option<Set> {
        if zone.0 >= self.sets {
            return None;
        }
        let mirrored = zone.0.min(self.stripes.metadata_sets);
        let columns = if zone.0 < self.stripes.metadata_sets {
            1
        } else {
            self.stripes.columns
        };
        Some(Set {
            zone,
            first: 2 * mirrored + (zone.0 - mirrored) * (columns + 1),
            columns,
        })
    }

    /// All sets.
    pub(super) fn all(&self) -> impl Iterator<Item = Set> {
        (0..self.sets).filter_map(|zone| self.set(ZoneId(zone)))
    }

    /// What the device below looks like by its sets.
    pub(super) fn geometry(&self, below: &Geometry) -> Geometry {
        let zones = self.stripes.columns + 1;
        // What is cut at these limits is cut between rows.
        let rows = |blocks: u32| blocks - blocks % self.stripes.columns;
        let share = |limit: Option<u32>| limit.map(|limit| limit / zones);
        Geometry {
            zone_count: self.sets,
            zone_blocks: below.zone_blocks.saturating_mul(self.stripes.columns),
            // A set of zones of both kinds is of those that are written in order.
            conventional_zones: (0..self.sets)
                .take_while(|zone| {
                    let set = self.set(ZoneId(*zone));
                    set.is_some_and(|set| set.zones().end <= below.conventional_zones)
                })
                .count() as u32,
            metadata_zones: MetadataZones::first(self.stripes.metadata_sets),
            max_open: share(below.max_open),
            max_active: share(below.max_active),
            max_transfer_blocks: rows(below.max_transfer_blocks),
            max_append_blocks: rows(below.max_append_blocks),
            volatile_cache: below.volatile_cache,
            // After a crash rows of which some blocks are missing are filled up.
            write_pointer_is_proof: false,
            stripes: Some(self.stripes),
        }
    }
}

/// Blocks in the first `rows` rows of a set with `columns` columns. The header is a row by itself.
pub(super) fn blocks_of(rows: u32, columns: u32) -> u32 {
    match rows.checked_sub(1) {
        None => 0,
        Some(behind_header) => behind_header.saturating_mul(columns).saturating_add(1),
    }
}

impl Set {
    /// Its zones; the last one has the parity.
    pub(super) fn zones(&self) -> Range<u32> {
        self.first..self.first + self.columns + 1
    }

    /// One of its zones; the one after the columns has the parity.
    pub(super) fn member(&self, column: u32) -> ZoneId {
        ZoneId(self.first + column)
    }

    /// Blocks of the set in its first `rows` rows.
    pub(super) fn blocks(&self, rows: u32) -> u32 {
        blocks_of(rows, self.columns)
    }

    /// The row that a block lies in.
    pub(super) fn row(&self, block: u32) -> u32 {
        block.div_ceil(self.columns)
    }

    /// Whether blocks up to `end` end with a row.
    pub(super) fn ends_row(&self, end: u32) -> bool {
        end == 0 || (end - 1).is_multiple_of(self.columns)
    }

    /// Where some blocks lie, column by column. The first block of all is a part of its own in the first column.
    pub(super) fn parts(&self, block: u32, blocks: u32) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut start = block;
        let end = block.saturating_add(blocks);
        if start == 0 && blocks > 0 {
            parts.push(Part {
                column: 0,
                row: 0,
                rows: 1,
                at: 0,
            });
            start = 1;
        }
        for first in start..end.min(start.saturating_add(self.columns)) {
            parts.push(Part {
                column: (first - 1) % self.columns,
                row: self.row(first),
                rows: (end - first).div_ceil(self.columns),
                at: first - block,
            });
        }
        parts
    }
}

impl Part {
    /// The places of its blocks among all that are asked for.
    pub(super) fn places(&self, columns: u32) -> impl Iterator<Item = usize> {
        let (at, step) = (self.at as usize, columns as usize);
        (0..self.rows as usize).map(move |row| at + row * step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_follow_each_other_and_leave_the_label_alone() {
        let stripes = Stripes {
            columns: 3,
            metadata_sets: 2,
        };
        let layout = Layout::of(stripes, 2 * 2 + 4 * 5 + 3 + LABEL_ZONES);
        assert_eq!(layout.sets, 7);
        let zones: Vec<Range<u32>> = layout.all().map(|set| set.zones()).collect();
        assert_eq!(zones[..3], [0..2, 2..4, 4..8]);
        assert!(zones.windows(2).all(|two| two[0].end == two[1].start));
        assert_eq!(layout.set(ZoneId(7)), None);
        let mirror = Layout::of(Stripes::MIRROR, 11);
        assert_eq!(mirror.sets, 4);
    }

    #[test]
    fn every_block_has_one_place() {
        let set = Set {
            zone: ZoneId(0),
            first: 0,
            columns: 3,
        };
        for (block, blocks) in [(0, 1), (0, 9), (1, 7), (2, 2), (5, 1), (4, 12)] {
            let mut seen = vec![false; blocks as usize];
            for part in set.parts(block, blocks) {
                for (row, place) in part.places(3).enumerate() {
                    let at = block + place as u32;
                    assert!(!std::mem::replace(&mut seen[place], true));
                    let row = part.row + row as u32;
                    assert_eq!(set.row(at), row);
                    assert_eq!(part.column, if at == 0 { 0 } else { (at - 1) % 3 });
                }
            }
            assert!(seen.iter().all(|seen| *seen), "{blocks} at {block}");
        }
        assert_eq!(set.blocks(0), 0);
        assert_eq!(set.blocks(4), 10);
        assert!(set.ends_row(1) && set.ends_row(10) && !set.ends_row(9));
    }
}
