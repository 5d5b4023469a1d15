//! Quota of a mounted volume.

use anyhow::Result;
use persimmon::internal::engine::Quotas;
use persimmon::{
    Caller, Clock, Counting, Grace, NewLimits, Owner, OwnerKind, OwnerQuota, SystemClock, Vfs,
};
use persimmon_fuse::control::TEXT_BYTES_MAX;
use persimmon_fuse::live::Asked;
use persimmon_fuse::nodes::inode;
use serde::{Deserialize, Serialize};

use super::encode;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Whether it is on.
    State,
    /// What the user who asks, and the group, take and may take. Anybody may ask.
    Own,
    /// Turn it on; what is there is counted in the background.
    On {
        /// Count what is counted already.
        anew: bool,
    },
    /// Turn it off.
    Off,
    /// Owners behind this one, as many as fit.
    List {
        /// None for the first.
        after: Option<Who>,
    },
    /// Limit somebody.
    Set {
        /// Whom.
        who: Who,
        /// How.
        limits: Limits,
    },
    /// Set the grace times of a kind.
    Grace {
        /// Number of the kind.
        kind: u8,
        /// Seconds for bytes; none leaves it.
        bytes: Option<u32>,
        /// The same for inodes.
        inodes: Option<u32>,
    },
    /// Give a directory, and what is in it, a project.
    Project {
        /// Its inode.
        ino: u64,
        /// 0 takes it away.
        project: u32,
    },
}

/// An owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Who {
    /// Number of the kind.
    pub kind: u8,
    /// Number of the owner.
    pub id: u32,
}

/// Number of a kind, and back.
impl Who {
    pub fn new(owner: Owner) -> Who {
        Who {
            kind: owner.kind as u8,
            id: owner.id,
        }
    }

    pub fn owner(self) -> Option<Owner> {
        Some(Owner {
            kind: kind(self.kind)?,
            id: self.id,
        })
    }
}

fn kind(number: u8) -> Option<OwnerKind> {
    OwnerKind::ALL
        .into_iter()
        .find(|kind| *kind as u8 == number)
}

/// Limits to set; none leaves one as it is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes.
    pub bytes_soft: Option<u64>,
    /// Bytes.
    pub bytes_hard: Option<u64>,
    /// Inodes.
    pub inodes_soft: Option<u64>,
    /// Inodes.
    pub inodes_hard: Option<u64>,
}

impl Limits {
    pub fn to_set(self) -> NewLimits {
        NewLimits {
            bytes_soft: self.bytes_soft,
            bytes_hard: self.bytes_hard,
            inodes_soft: self.inodes_soft,
            inodes_hard: self.inodes_hard,
        }
    }
}

/// Whether quota is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing is counted.
    Off,
    /// What was there is being counted; limits count when it is.
    Counting,
    /// Limits count.
    On,
}

impl State {
    pub fn of(counting: Counting) -> State {
        match counting {
            Counting::Off => State::Off,
            Counting::Below(_) => State::Counting,
            Counting::All => State::On,
        }
    }
}

/// What an owner takes and may take.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Who.
    pub who: Who,
    /// Bytes taken.
    pub bytes: u64,
    /// Limit; 0 is none.
    pub bytes_soft: u64,
    /// Limit; 0 is none.
    pub bytes_hard: u64,
    /// When the soft limit becomes a hard one, seconds since 1970, if it is exceeded.
    pub bytes_grace_end: Option<i64>,
    /// Inodes taken.
    pub inodes: u64,
    /// Limit; 0 is none.
    pub inodes_soft: u64,
    /// Limit; 0 is none.
    pub inodes_hard: u64,
    /// As of bytes.
    pub inodes_grace_end: Option<i64>,
}

impl Row {
    pub fn new(quota: &OwnerQuota) -> Row {
        Row {
            who: Who::new(quota.owner),
            bytes: quota.bytes_used(),
            bytes_soft: quota.bytes.soft,
            bytes_hard: quota.bytes.hard,
            bytes_grace_end: quota.bytes_grace_end,
            inodes: quota.usage.inodes,
            inodes_soft: quota.inodes.soft,
            inodes_hard: quota.inodes.hard,
            inodes_grace_end: quota.inodes_grace_end,
        }
    }

    /// Whether more is taken than there may ever be.
    pub fn exceeds(&self) -> bool {
        let exceeds = |used: u64, hard: u64| hard != 0 && used > hard;
        exceeds(self.bytes, self.bytes_hard) || exceeds(self.inodes, self.inodes_hard)
    }
}

/// What a user and their group take.
#[derive(Debug, Serialize, Deserialize)]
pub struct Own {
    /// Whether quota is on.
    pub state: State,
    /// Of the user and of the group.
    pub rows: Vec<Row>,
}

/// The daemon's side of [`Question::Own`].
fn own(vfs: &Vfs, asked: Asked) -> Result<Vec<u8>, String> {
    let quotas = Quotas::of(vfs.volume());
    let owners = [(OwnerKind::User, asked.uid), (OwnerKind::Group, asked.gid)];
    let rows = owners.map(|(kind, id)| {
        let known = quotas.get(Owner { kind, id });
        known.map(|known| Row::new(&known))
    });
    let rows: Result<Vec<Row>, _> = rows.into_iter().collect();
    encode(&Own {
        state: State::of(quotas.state().counting),
        rows: rows.map_err(|error| error.to_string())?,
    })
}

/// The daemon's side.
pub(super) fn answer(vfs: &Vfs, question: Question, asked: Asked) -> Result<Vec<u8>, String> {
    let quotas = Quotas::of(vfs.volume());
    let told = |error: persimmon::VolumeError| error.to_string();
    match question {
        Question::Own => own(vfs, asked),
        Question::State => encode(&State::of(quotas.state().counting)),
        Question::On { anew } => {
            quotas.turn_on(anew).map_err(told)?;
            encode(&State::of(quotas.state().counting))
        }
        Question::Off => {
            quotas.turn_off().map_err(told)?;
            encode(&State::Off)
        }
        Question::List { after } => {
            let all = quotas.list().map_err(told)?;
            list(all.iter().map(Row::new).filter(|row| Some(row.who) > after))
        }
        Question::Set { who, limits } => {
            let owner = who.owner().ok_or("this daemon knows no such owner")?;
            let now = SystemClock.now();
            let set = quotas.set(owner, &limits.to_set(), now).map_err(told)?;
            vfs.sync().map_err(|error| error.to_string())?;
            encode(&Row::new(&set))
        }
        Question::Grace {
            kind: number,
            bytes,
            inodes,
        } => {
            let kind = kind(number).ok_or("this daemon knows no such owner")?;
            let known = quotas.state().grace(kind);
            let grace = Grace {
                bytes: bytes.unwrap_or(known.bytes),
                inodes: inodes.unwrap_or(known.inodes),
            };
            quotas.set_grace(kind, grace).map_err(told)?;
            encode(&())
        }
        Question::Project { ino, project } => {
            let set = vfs.set_project_below(&Caller::root(), inode(vfs, ino), project);
            encode(&set.map_err(|error| error.to_string())?)
        }
    }
}

fn list(all: impl Iterator<Item = Row>) -> Result<Vec<u8>, String> {
    let mut rows: Vec<Row> = Vec::new();
    let mut answer = encode(&rows)?;
    for row in all {
        rows.push(row);
        let longer = encode(&rows)?;
        if longer.len() > TEXT_BYTES_MAX {
            break;
        }
        answer = longer;
    }
    Ok(answer)
}
