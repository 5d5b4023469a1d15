//! Operations on quota itself, and on whole trees of a project.

use persimmon_format::quota::{Grace, OwnerKind};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::Generator;
use super::owners::PROJECTS;
use crate::model::{Counting, Tree};
use crate::workload::{Op, Step};

/// Grace times, seconds: none, some that end while there is work, and some that hardly do.
const GRACES: [u32; 5] = [0, 2, 40, 100, 500];

impl Generator {
    /// Turned off, quota is mostly turned on again soon, and counted to the end, so that limits count mostly.
    pub(super) fn quota_op(&mut self, tree: &Tree) -> Op {
        let roll = self.rng.random_range(0..100);
        match tree.quota().counting {
            Counting::Off if roll < 50 => Op::QuotaOn {
                anew: self.chance(30),
            },
            Counting::Begun if roll < 50 => Op::Step(Step::Count),
            Counting::Begun | Counting::All if roll >= 95 => Op::QuotaOn {
                anew: self.chance(80),
            },
            Counting::Begun | Counting::All if roll >= 87 => Op::QuotaOff,
            _ if roll % 3 == 0 => self.grace_op(),
            _ => self.project_op(tree),
        }
    }

    fn grace_op(&mut self) -> Op {
        let kind = OwnerKind::ALL.choose(&mut self.rng).copied();
        let mut seconds = || GRACES.choose(&mut self.rng).copied().unwrap_or_default();
        let grace = Grace {
            bytes: seconds(),
            inodes: seconds(),
        };
        Op::SetGrace {
            kind: kind.unwrap_or(OwnerKind::User),
            grace,
        }
    }

    fn project_op(&mut self, tree: &Tree) -> Op {
        Op::SetProjectBelow {
            path: match self.chance(70) {
                true => self.directory(tree),
                false => self.file_or_directory(tree),
            },
            project: self.rng.random_range(0..PROJECTS),
        }
    }
}
