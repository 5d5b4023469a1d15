//! Putting right what a check found wrong. The check plans, from outside; here its plan becomes
//! transactions. Nobody else uses the volume meanwhile.

use persimmon_format::extent::Extent;
use persimmon_format::packed::PackUnits;
use persimmon_format::record::Op;
use persimmon_format::table::Role;
use persimmon_format::{Addr, Key, KeyKind, PageId, ZoneId};

use crate::Volume;
use crate::error::{Error, Result};
use crate::meta::Intent;

/// Turns of moving things out of one zone.
const EMPTYING_ROUNDS_MAX: usize = 64;

/// What the tree and the tables use, counted.
struct Recount {
    inodes: u64,
    reserved_blocks: u64,
    /// What is in use of each zone.
    valid: Vec<PackUnits>,
}

impl Recount {
    fn add(&mut self, addr: Addr, units: PackUnits) {
        if let Some(valid) = self.valid.get_mut(addr.zone().0 as usize) {
            *valid += units;
        }
    }
}

impl Volume {
    /// Puts and deletes items as a check has planned, finishes truncations that the plan began,
    /// and, if asked to, counts again what the checkpoint's tables claim. A checkpoint ends it.
    /// Operations other than put and delete are not planned, and refused.
    pub fn repair(&self, ops: &[Op], recount: bool) -> Result<()> {
        for ops in ops.chunks(self.transaction_ops_max()) {
            self.update::<_, Error>(Intent::Shrink, |tx| {
                for op in ops {
                    match op {
                        Op::Put { key, value } => tx.put(*key, value.clone()),
                        Op::Delete { key } => tx.delete(*key),
                        _ => {
                            return Err(Error::Inconsistent("not an operation of a repair".into()));
                        }
                    }
                }
                Ok(())
            })?;
        }
        // Before anything is freed that the counts may not have.
        if recount {
            self.recount()?;
        }
        self.find_truncations()?;
        while self.finish_a_truncation()? {}
        self.checkpoint()
    }

    /// Moves everything out of these zones; a checkpoint then resets them. What cannot be read
    /// stays where it is.
    pub fn empty_zones(&self, zones: &[ZoneId]) -> Result<()> {
        self.zones.complete_resets(&self.media);
        for zone in zones {
            // Of a metadata zone as much moves at once as a checkpoint may write.
            for _ in 0..EMPTYING_ROUNDS_MAX {
                let status = self.zones.status();
                let status = status.iter().find(|status| status.zone == *zone);
                let Some(status) = status.filter(|status| status.entry.valid > 0) else {
                    break;
                };
                self.clean(status)?;
                self.checkpoint()?;
                self.zones.complete_resets(&self.media);
            }
        }
        Ok(())
    }

    fn recount(&self) -> Result<()> {
        let mut counts = Recount {
            inodes: 0,
            reserved_blocks: 0,
            valid: vec![PackUnits::ZERO; self.media.geometry().zone_count as usize],
        };
        self.count_items(&mut counts)?;
        let mut meta = self.meta_mut();
        for id in 0..meta.cache.id_limit() {
            if let Some(entry) = meta.mat.get(PageId(id)) {
                counts.add(entry.addr, PackUnits::of_blocks(entry.blocks.into()));
            }
        }
        let state = self.checkpoint_state();
        let chunks = meta.mat.chunks().iter().chain(&state.zit_chunks);
        for addr in chunks.filter(|addr| **addr != Addr::ZERO) {
            counts.add(*addr, PackUnits::of_blocks(1));
        }
        drop(state);
        meta.inodes = counts.inodes;
        meta.reserved_blocks = counts.reserved_blocks;
        for status in self.zones.status() {
            let counted = match status.entry.role {
                Role::Data | Role::Metadata => counts.valid.get(status.zone.0 as usize).copied(),
                _ => None,
            };
            self.zones
                .set_valid(status.zone, counted.unwrap_or_default());
        }
        self.zones.counts_are_complete(true);
        Ok(())
    }

    fn count_items(&self, counts: &mut Recount) -> Result<()> {
        let counted = |key: Key, value: &[u8]| match key.kind {
            KeyKind::INODE => Some(None),
            KeyKind::EXTENT => Extent::decode(value).ok().map(Some),
            _ => None,
        };
        self.walk(.., counted, |item| match item {
            None => counts.inodes += 1,
            Some(Extent::Reserved { blocks }) => counts.reserved_blocks += u64::from(blocks),
            Some(extent) => {
                if let Some((addr, units)) = extent.on_device() {
                    counts.add(addr, units);
                }
            }
        })
    }
}
