//! Blocks that files got from others after the checkpoint, where the tree has lost what the others had. A record that shares blocks tells
//! no more than whose they were: so the file that got them lacks them too, and nothing of its own is lost that would tell so.

use std::collections::BTreeMap;

use persimmon_format::extent::FRAME_BLOCKS_MAX;
use persimmon_format::record::{Op, Share};
use persimmon_format::{Ino, Key};

use super::content::Damage;
use super::forest::LostRanges;

/// What files lack by records that share.
#[derive(Default)]
pub(super) struct LostShares {
    /// By file, in the order of the records.
    damage: BTreeMap<Ino, Vec<Damage>>,
}

impl LostShares {
    /// Notes what targets lack by the operations of a record. `next_ino`: what has this number or a higher one was not in the tree.
    pub(super) fn note(&mut self, ops: &[Op], lost: &LostRanges, next_ino: Ino) {
        for op in ops {
            if let Op::Share(share) = op {
                self.share(share, lost, next_ino);
            }
        }
    }

    fn share(&mut self, share: &Share, lost: &LostRanges, next_ino: Ino) {
        let source = share.from.plain();
        // An extent that begins before the range has blocks in it.
        let first = share.from_block.saturating_sub(FRAME_BLOCKS_MAX as u64 - 1);
        let (from, to) = (
            Key::extent(source, first),
            Key::extent(source, share.source_end()),
        );
        let was_in_tree = source < next_ino;
        let of_tree = lost.between(from, to).filter(|_| was_in_tree);
        let of_tree = of_tree.map(|lost| lost.damage(from, to));
        let found: Vec<Damage> = of_tree.chain(self.between(from, to)).collect();
        for part in found {
            let in_target = |key: Key| {
                let block = key.item.clamp(share.from_block, share.source_end());
                let block = share.to_block.saturating_add(block - share.from_block);
                Key::extent(share.to.plain(), block)
            };
            // Where one that begins before it is lost, its end is not known.
            let is_before = part.from.item < share.from_block;
            let to = if is_before { to } else { part.to };
            let of_target = self.damage.entry(share.to.plain()).or_default();
            of_target.push(Damage {
                from: in_target(part.from),
                to: in_target(to),
                older: part.older,
            });
        }
    }

    /// What is lost of a range of keys.
    pub(super) fn between(&self, from: Key, to: Key) -> impl Iterator<Item = Damage> {
        let files = self.damage.range(from.ino..=to.ino);
        files.flat_map(|(_, parts)| parts).filter_map(move |part| {
            let (from, to) = (part.from.max(from), part.to.min(to));
            (from < to).then_some(Damage { from, to, ..*part })
        })
    }
}
