//! Blocks that files got from others after the checkpoint, where the tree has lost what the others had. A record that shares blocks tells
//! no more than whose they were: so the file that got them lacks them too, and nothing of its own is lost that would tell so.

use std::collections::BTreeMap;

use persimmon_format::extent::FRAME_BLOCKS_MAX;
use persimmon_format::record::{Op, Share};
use persimmon_format::{Ino, Key, SubvolumeId};

use super::content::Damage;
use super::forest::LostRanges;

/// File blocks that are lost: the first of each range, with the block behind it and what stands in for them. Ranges do not overlap.
type Blocks = BTreeMap<u64, (u64, Option<u64>)>;

/// What files lack by records that share, as of the last record.
#[derive(Default)]
pub(super) struct LostShares {
    /// By file, and by the subvolume that the records were about.
    files: BTreeMap<Ino, BTreeMap<SubvolumeId, Blocks>>,
}

impl LostShares {
    /// Notes what files lack, or have again, by the operations of a record. `next_ino`: what has this number or a higher one was not in the tree.
    pub(super) fn note(&mut self, ops: &[Op], lost: &LostRanges, next_ino: Ino) {
        for op in ops {
            match op {
                Op::Share(share) => self.share(share, lost, next_ino),
                Op::Map { ino, block, extent } => {
                    self.is_there(*ino, *block, block.saturating_add(extent.blocks()));
                }
                Op::Punch { ino, from, to } => self.is_there(*ino, *from, *to),
                _ => {}
            }
        }
    }

    fn share(&mut self, share: &Share, lost: &LostRanges, next_ino: Ino) {
        let source = share.from.plain();
        // An extent that begins before the range may have blocks in it.
        let reach = FRAME_BLOCKS_MAX as u64 - 1;
        let (from, to) = (
            Key::extent(source, share.from_block.saturating_sub(reach)),
            Key::extent(source, share.source_end()),
        );
        let was_in_tree = source < next_ino;
        let mut found: Vec<Damage> = lost
            .between(from, to)
            .filter(|_| was_in_tree)
            .map(|lost| lost.damage(from, to))
            .map(|part| Damage {
                to: Key::extent(source, part.to.item.saturating_add(reach)),
                ..part
            })
            .collect();
        found.extend(self.between(from, to));
        // What it had in that place goes.
        self.is_there(share.to, share.to_block, share.target_end());
        for part in found {
            let start = part.from.item.max(share.from_block);
            let end = part.to.item.min(share.source_end());
            let in_target = |block: u64| share.to_block.saturating_add(block - share.from_block);
            if start < end {
                self.lacks(share.to, in_target(start), in_target(end), part.older);
            }
        }
    }

    /// A range of a file is as a record says.
    fn is_there(&mut self, ino: Ino, from: u64, to: u64) {
        let of_file = self.files.get_mut(&ino.plain());
        let Some(blocks) = of_file.and_then(|of| of.get_mut(&ino.subvolume())) else {
            return;
        };
        for (start, end, older) in over(blocks, from, to) {
            blocks.remove(&start);
            if start < from {
                blocks.insert(start, (from, older));
            }
            if end > to {
                blocks.insert(to, (end, older));
            }
        }
    }

    fn lacks(&mut self, ino: Ino, mut from: u64, mut to: u64, older: Option<u64>) {
        self.is_there(ino, from, to);
        let of_file = self.files.entry(ino.plain()).or_default();
        let blocks = of_file.entry(ino.subvolume()).or_default();
        let before = blocks.range(..from).next_back();
        let before = before.map(|(start, (end, older))| (*start, *end, *older));
        if let Some((start, end, same)) = before
            && (end, same) == (from, older)
        {
            from = start;
        }
        if let Some((end, same)) = blocks.get(&to).copied()
            && same == older
        {
            blocks.remove(&to);
            to = end;
        }
        blocks.insert(from, (to, older));
    }

    /// What is lost of a range of keys, in any subvolume: a snapshot has what another one had when it was taken.
    pub(super) fn between(&self, from: Key, to: Key) -> impl Iterator<Item = Damage> {
        let files = self.files.range(from.ino..=to.ino);
        files.flat_map(move |(ino, of)| {
            let key = |block| Key::extent(*ino, block);
            let (from, to) = (from.max(key(0)), to.min(key(u64::MAX)));
            let parts = of.values().flat_map(move |blocks| match from < to {
                true => over(blocks, from.item, to.item),
                false => Vec::new(),
            });
            parts.map(move |(start, end, older)| Damage {
                from: key(start).max(from),
                to: key(end).min(to),
                older,
            })
        })
    }
}

/// The ranges that have blocks of `from..to`, in order.
fn over(blocks: &Blocks, from: u64, to: u64) -> Vec<(u64, u64, Option<u64>)> {
    let over = blocks.range(..to).rev();
    let over = over.take_while(|(_, (end, _))| *end > from);
    let mut over: Vec<_> = over
        .map(|(start, (end, older))| (*start, *end, *older))
        .collect();
    over.reverse();
    over
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(from: (u64, u64), to: (u64, u64), blocks: u64) -> Op {
        Op::Share(Share {
            from: Ino(from.0),
            from_block: from.1,
            to: Ino(to.0),
            to_block: to.1,
            blocks,
            at: 0,
        })
    }

    fn lost_of(shares: &LostShares, ino: u64) -> Vec<(u64, u64)> {
        let (from, to) = (Key::extent(Ino(ino), 0), Key::extent(Ino(ino), 1 << 40));
        let parts = shares.between(from, to);
        parts.map(|part| (part.from.item, part.to.item)).collect()
    }

    /// Shares that go round, as ranges that are taken out of a file do: what is noted does not grow with their number.
    #[test]
    fn what_goes_round_is_told_once() {
        let mut shares = LostShares::default();
        shares.lacks(Ino(20), 100, 164, None);
        for _ in 0..1000 {
            shares.note(
                &[
                    share((20, 10), (20, 1000), 500),
                    Op::Punch {
                        ino: Ino(20),
                        from: 10,
                        to: 510,
                    },
                    share((20, 1000), (20, 9), 500),
                    Op::Punch {
                        ino: Ino(20),
                        from: 1000,
                        to: 1500,
                    },
                    share((20, 9), (20, 10), 300),
                ],
                &LostRanges::default(),
                Ino(20),
            );
        }
        let found = lost_of(&shares, 20);
        assert!(found.len() <= 2 && !found.is_empty(), "{found:?}");
    }

    #[test]
    fn what_is_written_since_is_there_again() {
        let mut shares = LostShares::default();
        shares.lacks(Ino(20), 10, 20, None);
        shares.lacks(Ino(20), 20, 30, None);
        shares.lacks(Ino(20), 30, 40, Some(3));
        assert_eq!(lost_of(&shares, 20), [(10, 30), (30, 40)]);
        shares.is_there(Ino(20), 15, 35);
        assert_eq!(lost_of(&shares, 20), [(10, 15), (35, 40)]);
        shares.note(
            &[share((20, 12), (21, 2), 30)],
            &LostRanges::default(),
            Ino(20),
        );
        assert_eq!(lost_of(&shares, 21), [(2, 5), (25, 30)]);
        shares.is_there(Ino(20), 0, 100);
        assert_eq!(lost_of(&shares, 20), []);
    }
}
