//! Quota: what users, groups and projects take of a volume, and how much they may.
//!
//! A **project** is a number that an inode may have, which what is made in a directory takes from it: so all inodes of a directory tree can
//! have one. Only what the main subvolume shows counts.

use crate::codec::{Put, Reader};
use crate::{Key, KeyKind, Result};

/// Whose space is counted. The number is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum OwnerKind {
    /// A user, `st_uid`.
    User = 1,
    /// A group, `st_gid`.
    Group = 2,
    /// A project; that of number 0 is none, and nothing is counted for it.
    Project = 3,
}

impl OwnerKind {
    /// All of them.
    pub const ALL: [OwnerKind; 3] = [OwnerKind::User, OwnerKind::Group, OwnerKind::Project];

    fn from_number(number: u64) -> Option<OwnerKind> {
        OwnerKind::ALL
            .into_iter()
            .find(|kind| *kind as u64 == number)
    }
}

impl std::fmt::Display for OwnerKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OwnerKind::User => "user",
            OwnerKind::Group => "group",
            OwnerKind::Project => "project",
        })
    }
}

/// Somebody whose space is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// What it is.
    pub kind: OwnerKind,
    /// Which one.
    pub id: u32,
}

impl Owner {
    /// Its key: item is the kind times 2^32 and the id.
    #[must_use]
    pub fn key(self) -> Key {
        let item = (self.kind as u64) << 32 | u64::from(self.id);
        Key::new(Key::GLOBAL, KeyKind::QUOTA, item)
    }

    /// Of such a key; [`QuotaState::KEY`] is of none.
    #[must_use]
    pub fn of_key(key: &Key) -> Option<Owner> {
        if key.ino != Key::GLOBAL || key.kind != KeyKind::QUOTA {
            return None;
        }
        Some(Owner {
            kind: OwnerKind::from_number(key.item >> 32)?,
            id: key.item as u32,
        })
    }
}

/// What somebody takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Space of files, in units of 512 bytes, as `st_blocks`.
    pub sectors: u64,
    /// Inodes.
    pub inodes: u64,
}

/// Bytes of a sector, in which inodes count their space.
pub const SECTOR: u64 = 512;

/// How much of one thing somebody may take; 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// For longer than the grace time.
    pub soft: u64,
    /// Ever.
    pub hard: u64,
}

impl Limit {
    const LEN: usize = 16;

    /// There is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Limit::default()
    }

    /// Whether more than the soft limit is taken.
    #[must_use]
    pub fn is_exceeded(&self, used: u64) -> bool {
        self.soft != 0 && used > self.soft
    }

    fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.soft);
        out.put_u64(self.hard);
    }

    fn read(r: &mut Reader<'_>) -> Result<Limit> {
        Ok(Limit {
            soft: r.u64()?,
            hard: r.u64()?,
        })
    }
}

/// The value of the key of an [`Owner`]. Bytes: round 0..4, zeros 4..8, sectors 8..16, inodes 16..24, limits of bytes 24..40 (soft, hard) and of
/// inodes 40..56, the ends of the grace times of bytes 56..64 and of inodes 64..72.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The count that the usage is of: of another one than [`QuotaState::round`] says it counts as nothing.
    pub round: u32,
    /// What is taken.
    pub usage: Usage,
    /// Limit of bytes.
    pub bytes: Limit,
    /// Limit of inodes.
    pub inodes: Limit,
    /// When the soft limit of bytes becomes a hard one, seconds since 1970; counts only while more than the soft limit is taken. 0: not begun,
    /// or [over](Quota::charge).
    pub bytes_grace_end: i64,
    /// The same of inodes.
    pub inodes_grace_end: i64,
}

impl Quota {
    /// Bytes of an encoded one.
    pub const LEN: usize = 8 + 16 + 2 * Limit::LEN + 16;

    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Quota::LEN);
        out.put_u32(self.round);
        out.put_u32(0);
        out.put_u64(self.usage.sectors);
        out.put_u64(self.usage.inodes);
        self.bytes.put(&mut out);
        self.inodes.put(&mut out);
        out.put_i64(self.bytes_grace_end);
        out.put_i64(self.inodes_grace_end);
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<Quota> {
        let mut r = Reader::new(bytes, "quota");
        let round = r.u32()?;
        let reserved = r.u32()?;
        if reserved != 0 {
            return Err(r.bad("reserved field", reserved.into()));
        }
        let quota = Quota {
            round,
            usage: Usage {
                sectors: r.u64()?,
                inodes: r.u64()?,
            },
            bytes: Limit::read(&mut r)?,
            inodes: Limit::read(&mut r)?,
            bytes_grace_end: r.i64()?,
            inodes_grace_end: r.i64()?,
        };
        r.end()?;
        Ok(quota)
    }

    /// There is no limit.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.bytes.is_none() && self.inodes.is_none()
    }

    /// What is taken, by the count of this round.
    #[must_use]
    pub fn usage_in(&self, round: u32) -> Usage {
        if self.round == round {
            self.usage
        } else {
            Usage::default()
        }
    }

    /// A record changes what is taken by these sectors and inodes. A grace time is over where it takes somebody back to a soft limit: whatever
    /// exceeds that anew, a privileged user's doing too, begins another. While the count is under way nobody knows, and none ends.
    pub fn charge(&mut self, state: &QuotaState, sectors: i64, inodes: i64) {
        let before = self.usage_in(state.round);
        // Items may be damaged, and be counted anew then: what owners take makes no change fail.
        let after = Usage {
            sectors: before.sectors.saturating_add_signed(sectors),
            inodes: before.inodes.saturating_add_signed(inodes),
        };
        self.round = state.round;
        self.usage = after;
        if state.counting != Counting::All {
            return;
        }
        let returns = |limit: Limit, before: u64, after: u64| {
            limit.is_exceeded(before) && !limit.is_exceeded(after)
        };
        let bytes = |usage: Usage| usage.sectors.saturating_mul(SECTOR);
        if returns(self.bytes, bytes(before), bytes(after)) {
            self.bytes_grace_end = 0;
        }
        if returns(self.inodes, before.inodes, after.inodes) {
            self.inodes_grace_end = 0;
        }
    }
}

/// Grace times of one kind of owners, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// Of bytes.
    pub bytes: u32,
    /// Of inodes.
    pub inodes: u32,
}

impl Default for Grace {
    /// A week, as elsewhere.
    fn default() -> Grace {
        let week = 7 * 24 * 60 * 60;
        Grace {
            bytes: week,
            inodes: week,
        }
    }
}

/// How far the count of what owners take has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counting {
    /// Nothing is counted, and nobody is limited.
    #[default]
    Off,
    /// Inodes with numbers below this one are counted; limits count once all are.
    Below(u64),
    /// All inodes are.
    All,
}

/// The value of [`QuotaState::KEY`]. Bytes: counting 0 (0 off, 1 under way, 2 all), zeros 1..4, round 4..8, the first inode that is not
/// counted yet 8..16 (0 unless it is under way), then the grace times of users, groups and projects, each of bytes and of inodes (u32).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaState {
    /// What is counted.
    pub counting: Counting,
    /// Number of this count: each begins with nothing.
    pub round: u32,
    /// Grace times, in the order of [`OwnerKind::ALL`].
    pub graces: [Grace; 3],
}

impl QuotaState {
    /// Bytes of an encoded one.
    pub const LEN: usize = 4 + 4 + 8 + 3 * 8;

    /// Where it is; there is none on a volume whose quota was never turned on.
    pub const KEY: Key = Key {
        ino: Key::GLOBAL,
        kind: KeyKind::QUOTA,
        item: 0,
        version: crate::VersionId(0),
    };

    /// Grace times of a kind.
    #[must_use]
    pub fn grace(&self, kind: OwnerKind) -> Grace {
        let [users, groups, projects] = self.graces;
        match kind {
            OwnerKind::User => users,
            OwnerKind::Group => groups,
            OwnerKind::Project => projects,
        }
    }

    /// Whether an inode, without a subvolume, is counted.
    #[must_use]
    pub fn counts(&self, ino: crate::Ino) -> bool {
        match self.counting {
            Counting::Off => false,
            Counting::Below(end) => ino.0 < end,
            Counting::All => true,
        }
    }

    /// A new count begins, with nothing counted.
    #[must_use]
    pub fn anew(self) -> QuotaState {
        QuotaState {
            counting: Counting::Below(0),
            round: self.round.wrapping_add(1),
            ..self
        }
    }

    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(QuotaState::LEN);
        let (counting, below) = match self.counting {
            Counting::Off => (0, 0),
            Counting::Below(end) => (1, end),
            Counting::All => (2, 0),
        };
        out.put(&[counting, 0, 0, 0]);
        out.put_u32(self.round);
        out.put_u64(below);
        for grace in self.graces {
            out.put_u32(grace.bytes);
            out.put_u32(grace.inodes);
        }
        out
    }

    /// As read.
    pub fn decode(bytes: &[u8]) -> Result<QuotaState> {
        let mut r = Reader::new(bytes, "state of quota");
        let counting = r.u32()?;
        let round = r.u32()?;
        let below = r.u64()?;
        let counting = match (counting, below) {
            (0, 0) => Counting::Off,
            (1, end) => Counting::Below(end),
            (2, 0) => Counting::All,
            (0 | 2, end) => return Err(r.bad("first inode that is not counted", end)),
            (counting, _) => return Err(r.bad("counting", counting.into())),
        };
        let mut graces = [Grace::default(); 3];
        for grace in &mut graces {
            *grace = Grace {
                bytes: r.u32()?,
                inodes: r.u32()?,
            };
        }
        r.end()?;
        Ok(QuotaState {
            counting,
            round,
            graces,
        })
    }
}
