//! Putting right what a check found wrong. The check plans, from outside; here its plan becomes
//! transactions. Nobody else uses the volume meanwhile.

use persimmon_format::extent::Extent;
use persimmon_format::packed::{FrameTally, PackUnits};
use persimmon_format::record::Op;
use persimmon_format::table::Role;
use persimmon_format::{Addr, Key, KeyKind, PageId, ZoneId};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::meta::{Intent, deltas, sharing};

/// Turns of moving things out of one zone.
const EMPTYING_ROUNDS_MAX: usize = 64;

/// What the tree and the tables use, counted.
struct Recount {
    inodes: u64,
    reserved_blocks: u64,
    shared_end: u64,
    deltas: u64,
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

/// Changes a volume that nobody else uses.
pub(crate) struct Repair<'e>(pub(crate) &'e Engine);

impl Repair<'_> {
    /// Puts and deletes items as a check has planned, and, if asked to, counts again what the checkpoint's tables claim. Finishes the
    /// truncations that there are then, those that the plan began among them, if the plan was not `partial`: with counts of shared blocks
    /// that are still too low it would take away what other files have. A checkpoint ends it.
    /// Operations other than put and delete are not planned, and refused.
    pub(crate) fn carry_out(&self, ops: &[Op], recount: bool, partial: bool) -> Result<()> {
        for ops in ops.chunks(self.0.store.transaction_ops_max()) {
            self.0.history.update::<_, Error>(Intent::Shrink, |tx| {
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
        self.0.data.find_truncations()?;
        while !partial && self.0.data.finish_a_truncation()? {}
        // What owners take, if the plan was to do it anew.
        while self.0.quotas.count_some()? {}
        self.0.checkpoints.write()
    }

    /// Moves everything out of these zones; a checkpoint then resets them. What cannot be read
    /// stays where it is.
    pub(crate) fn empty_zones(&self, zones: &[ZoneId]) -> Result<()> {
        self.0.store.zones.complete_resets(&self.0.store.media);
        for zone in zones {
            // Of a metadata zone as much moves at once as a checkpoint may write.
            for _ in 0..EMPTYING_ROUNDS_MAX {
                let status = self.0.store.zones.status();
                let status = status.iter().find(|status| status.zone == *zone);
                let Some(status) = status.filter(|status| status.entry.valid > 0) else {
                    break;
                };
                self.0.reclaimer.clean(status)?;
                self.0.checkpoints.write()?;
                self.0.store.zones.complete_resets(&self.0.store.media);
            }
        }
        Ok(())
    }

    fn recount(&self) -> Result<()> {
        let mut counts = Recount {
            inodes: 0,
            reserved_blocks: 0,
            shared_end: 0,
            deltas: 0,
            valid: vec![PackUnits::ZERO; self.0.store.media.geometry().zone_count as usize],
        };
        self.count_items(&mut counts)?;
        let mut meta = self.0.store.meta_mut();
        for id in 0..meta.cache.id_limit() {
            if let Some(entry) = meta.mat.get(PageId(id)) {
                counts.add(entry.addr, PackUnits::of_blocks(entry.blocks.into()));
            }
        }
        let state = self.0.store.on_device();
        let chunks = meta.mat.chunks().iter().chain(&state.zit_chunks);
        for addr in chunks.filter(|addr| **addr != Addr::ZERO) {
            counts.add(*addr, PackUnits::of_blocks(1));
        }
        drop(state);
        meta.inodes = counts.inodes;
        meta.reserved_blocks = counts.reserved_blocks;
        meta.shared_end = meta.shared_end.max(counts.shared_end);
        meta.deltas = counts.deltas;
        for status in self.0.store.zones.status() {
            let counted = match status.entry.role {
                Role::Data | Role::Metadata => counts.valid.get(status.zone.0 as usize).copied(),
                _ => None,
            };
            self.0
                .store
                .zones
                .set_valid(status.zone, counted.unwrap_or_default());
        }
        self.0.store.zones.counts_are_complete(true);
        Ok(())
    }

    fn count_items(&self, counts: &mut Recount) -> Result<()> {
        let counted = |key: Key, value: &[u8]| match key.kind {
            KeyKind::INODE if !key.is_whiteout(value) => Some((key, None)),
            KeyKind::EXTENT => Extent::decode(value).ok().map(|extent| (key, Some(extent))),
            _ => None,
        };
        let mut frames = FrameTally::default();
        self.0.store.walk_stored(counted, |(key, item)| match item {
            None => counts.inodes += 1,
            Some(Extent::Reserved { blocks }) => counts.reserved_blocks += u64::from(blocks),
            Some(extent) => {
                counts.deltas += deltas::count(key.item, &extent);
                let shared_end = sharing::end_of(&key, &extent);
                counts.shared_end = counts.shared_end.max(shared_end);
                if let Some(addr) = extent.addr() {
                    counts.add(addr, frames.extent(key.ino, key.item, &extent).units);
                }
            }
        })
    }
}
