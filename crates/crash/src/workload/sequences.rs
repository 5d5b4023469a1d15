//! Every short sequence of operations on a few files, each followed by every kind of sync or none,
//! in the manner of ACE (Mohan and others, "Finding Crash-Consistency Bugs with Bounded Black-Box
//! Crash Testing", OSDI 2018).
//!
//! The files are `/A`, `/B`, `/d/A`, `/d/B`, the directories `/d`, `/e`, `/d/e`. Before a sequence
//! begins `/A`, `/d/A`, `/d` and `/e` are there (the [`Setup`]): so each role in an operation, to
//! be there or not, in the root or below, is had once, and the rest would be symmetric. What an
//! operation cannot do is left out: every operation of a sequence succeeds.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::op::{Durability, Op, Step};
use super::vocabulary::{Wish, vocabulary};
use crate::model::{Body, Model, Tree};

/// How durable the files are before a sequence begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Nothing of them is durable.
    Buffered,
    /// They are in the journal.
    Synced,
    /// They are in a checkpoint.
    Checkpointed,
}

impl Setup {
    /// All of them.
    pub const ALL: [Setup; 3] = [Setup::Buffered, Setup::Synced, Setup::Checkpointed];

    /// The operations that make it.
    #[must_use]
    pub fn ops(self) -> Vec<Op> {
        let create = |path: &str| Op::Create {
            path: path.to_owned(),
            mode: 0o644,
        };
        let mkdir = |path: &str| Op::Mkdir {
            path: path.to_owned(),
            mode: 0o755,
        };
        let write = |path: &str, length, fill| Op::Write {
            path: path.to_owned(),
            offset: 0,
            length,
            fill,
            durability: Durability::Buffered,
        };
        let mut ops = vec![
            create("/A"),
            write("/A", 3 * 4096 + 100, 1),
            Op::SetXattr {
                path: "/A".to_owned(),
                name: "user.ground".to_owned(),
                length: 10,
                fill: 1,
            },
            mkdir("/d"),
            create("/d/A"),
            write("/d/A", 900, 2),
            mkdir("/e"),
        ];
        match self {
            Setup::Buffered => {}
            Setup::Synced => ops.push(Op::Sync),
            Setup::Checkpointed => ops.extend([Op::Sync, Op::Step(Step::Checkpoint)]),
        }
        ops
    }
}

/// A sequence and what it begins on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// What there is before.
    pub setup: Setup,
    /// The device it runs on, one of [`Sequences::DEVICES`].
    pub device: usize,
    /// Operations and syncs of the sequence.
    pub ops: Vec<Op>,
    /// Of these, how many come before the last operation: shorter sequences have had them.
    pub had: usize,
}

/// An operation with what syncs it, and how many sequences go on from there.
struct Prefix {
    wish: usize,
    sync: Option<Op>,
    /// Operations that can come next, each with the place of the first sequence it is in.
    next: Vec<(usize, u64)>,
}

/// All sequences of one and two operations, numbered. A number always stands for the same
/// sequence. First come those of one operation, each on every setup and device; then those of two,
/// round by round: in each round every one of them is had, in each on another setup or device.
pub struct Sequences {
    vocabulary: Vec<Wish>,
    setup: Model,
    prefixes: Vec<Prefix>,
    twos: u64,
}

impl Sequences {
    /// Kinds of devices.
    pub const DEVICES: usize = 3;
    /// Rounds until every sequence of two operations was on every setup and device.
    pub const ROUNDS: u64 = (Setup::ALL.len() * Sequences::DEVICES) as u64;

    /// Finds out which operations can follow which.
    #[must_use]
    pub fn new() -> Sequences {
        let mut setup = Model::new(Tree::new(0o755, 0));
        for op in Setup::Buffered.ops() {
            // A setup that cannot be made would show in every test.
            let _ = setup.apply(&op, 0);
        }
        let mut sequences = Sequences {
            vocabulary: vocabulary(),
            prefixes: Vec::new(),
            twos: 0,
            setup,
        };
        for (wish, model) in sequences.possible(&sequences.setup) {
            // What is there does not depend on the sync.
            let mut followers = Vec::new();
            let mut count = 0;
            for (next, model) in sequences.possible(&model) {
                followers.push((next, count));
                count += syncs(model.now()).len() as u64;
            }
            for sync in syncs(model.now()) {
                let begin = sequences.twos;
                let next = followers.iter().map(|(next, at)| (*next, begin + at));
                sequences.prefixes.push(Prefix {
                    wish,
                    sync,
                    next: next.collect(),
                });
                sequences.twos += count;
            }
        }
        sequences
    }

    /// How many numbers stand for sequences of one operation: the first ones.
    #[must_use]
    pub fn ones(&self) -> u64 {
        self.prefixes.len() as u64 * Sequences::ROUNDS
    }

    /// How many sequences of two operations a round has.
    #[must_use]
    pub fn twos(&self) -> u64 {
        self.twos
    }

    /// Sequence number `number`; none past the last round.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<Sequence> {
        let mut ops = Vec::new();
        if let Some(two) = number.checked_sub(self.ones()) {
            let (round, two) = (two / self.twos, two % self.twos);
            if round >= Sequences::ROUNDS {
                return None;
            }
            // Neighbours differ in the last sync alone: they go to different devices.
            let variant = (two + round) % Sequences::ROUNDS;
            let mut model = self.setup.clone();
            let at = self.prefixes.partition_point(|p| p.first() <= two);
            let prefix = self.prefixes.get(at.checked_sub(1)?)?;
            self.carry_out(prefix.wish, &mut model, &mut ops);
            ops.extend(prefix.sync.clone());
            let had = ops.len();
            let at = prefix.next.partition_point(|(_, first)| *first <= two);
            let (wish, first) = *prefix.next.get(at.checked_sub(1)?)?;
            self.carry_out(wish, &mut model, &mut ops);
            let sync = syncs(model.now()).into_iter().nth((two - first) as usize)?;
            ops.extend(sync);
            return Some(Sequence::new(variant, ops, had));
        }
        let prefix = self.prefixes.get((number / Sequences::ROUNDS) as usize)?;
        let mut model = self.setup.clone();
        self.carry_out(prefix.wish, &mut model, &mut ops);
        ops.extend(prefix.sync.clone());
        Some(Sequence::new(number % Sequences::ROUNDS, ops, 0))
    }

    /// A sequence of `length` operations chosen by a seed.
    #[must_use]
    pub fn sample(&self, length: usize, seed: u64) -> Sequence {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut model = self.setup.clone();
        let (mut ops, mut had) = (Vec::new(), 0);
        for _ in 0..length {
            had = ops.len();
            let possible = self.possible(&model);
            let Some((wish, _)) = possible.choose(&mut rng) else {
                break;
            };
            self.carry_out(*wish, &mut model, &mut ops);
            let sync = syncs(model.now()).choose(&mut rng).cloned();
            ops.extend(sync.flatten());
        }
        Sequence::new(rng.random_range(0..Sequences::ROUNDS), ops, had)
    }

    /// The operations that succeed on such a filesystem, and what they make of it.
    fn possible(&self, model: &Model) -> Vec<(usize, Model)> {
        let wishes = self.vocabulary.iter().enumerate();
        wishes
            .filter_map(|(at, wish)| {
                let op = wish.op(model.now());
                let mut after = model.clone();
                after.apply(&op, 0).ok()?;
                is_plain(&op, model.now()).then_some((at, after))
            })
            .collect()
    }

    fn carry_out(&self, wish: usize, model: &mut Model, ops: &mut Vec<Op>) {
        if let Some(wish) = self.vocabulary.get(wish) {
            let op = wish.op(model.now());
            // It was found to be possible.
            let _ = model.apply(&op, 0);
            ops.push(op);
        }
    }
}

impl Default for Sequences {
    fn default() -> Sequences {
        Sequences::new()
    }
}

impl Prefix {
    fn first(&self) -> u64 {
        self.next.first().map_or(0, |(_, first)| *first)
    }
}

impl Sequence {
    fn new(variant: u64, ops: Vec<Op>, had: usize) -> Sequence {
        let setups = Setup::ALL.len();
        let variant = variant as usize;
        Sequence {
            setup: *Setup::ALL.get(variant % setups).unwrap_or(&Setup::Buffered),
            device: variant / setups % Sequences::DEVICES,
            ops,
            had,
        }
    }
}

/// Whether the model knows all about it: it leaves attributes of symbolic links to others, and
/// copies from a file to itself.
fn is_plain(op: &Op, tree: &Tree) -> bool {
    match op {
        Op::Chmod { path, .. }
        | Op::Chown { path, .. }
        | Op::SetMtime { path, .. }
        | Op::SetXattr { path, .. }
        | Op::RemoveXattr { path, .. } => {
            let node = tree.lookup(path).ok().and_then(|id| tree.node(id));
            node.is_some_and(|n| matches!(n.body, Body::File(_) | Body::Directory { .. }))
        }
        Op::Copy { from, to, .. } => tree.lookup(from) != tree.lookup(to),
        _ => true,
    }
}

/// Every sync that can follow, and none.
fn syncs(tree: &Tree) -> Vec<Option<Op>> {
    let mut syncs = vec![None, Some(Op::Sync), Some(Op::Step(Step::Checkpoint))];
    for (path, id) in tree.walk() {
        match tree.node(id).map(|node| &node.body) {
            Some(Body::File(_)) => {
                for data_only in [false, true] {
                    let path = path.clone();
                    syncs.push(Some(Op::Fsync { path, data_only }));
                }
            }
            Some(Body::Directory { .. }) => syncs.push(Some(Op::FsyncDir { path })),
            _ => {}
        }
    }
    syncs
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_number_is_another_sequence_and_every_operation_succeeds() {
        let sequences = Sequences::new();
        let (ones, twos) = (sequences.ones(), sequences.twos());
        println!("{ones} {twos}");
        let last = ones + Sequences::ROUNDS * twos;
        assert!(sequences.get(last - 1).is_some());
        assert!(sequences.get(last).is_none());
        let some_twos = (ones..last).step_by(9973);
        let mut seen = HashSet::new();
        for number in (0..ones).chain(some_twos) {
            let sequence = sequences.get(number).unwrap();
            assert!(seen.insert(format!("{sequence:?}")), "{number}");
            let mut model = Model::new(Tree::new(0o755, 0));
            for op in sequence.setup.ops().iter().chain(&sequence.ops) {
                assert_eq!(model.apply(op, 0), Ok(()), "{number}: {op}");
            }
        }
    }

    #[test]
    fn every_pair_of_operations_of_a_round_is_had_once() {
        let sequences = Sequences::new();
        let first = sequences.ones();
        let round = first..first + sequences.twos();
        let step = 7;
        let mut seen = HashSet::new();
        for number in round.clone().step_by(step) {
            assert!(seen.insert(format!("{:?}", sequences.get(number).unwrap().ops)));
        }
        for number in round.skip(1).step_by(step).take(10_000) {
            assert!(seen.insert(format!("{:?}", sequences.get(number).unwrap().ops)));
        }
    }

    #[test]
    fn a_sample_has_as_many_operations_as_asked_for() {
        let sequences = Sequences::new();
        for seed in 0..100 {
            let sample = sequences.sample(3, seed);
            assert!((3..=6).contains(&sample.ops.len()), "{sample:?}");
            assert_eq!(sample, sequences.sample(3, seed));
        }
    }
}
