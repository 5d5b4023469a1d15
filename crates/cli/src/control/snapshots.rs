//! Snapshots, as far as a mount does not show them: whether they can be written to, what they hold, what differs between them. And taking
//! one that can be written to.

use anyhow::Result;
use persimmon::internal::engine::Volume;
use persimmon::internal::format::Ino;
use persimmon::vfs::SubvolumeId;
use persimmon::{FilesystemError, Snapshot, Vfs};
use persimmon_fuse::control::TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::{Name, encode};

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Those with larger numbers than this one, as many as fit.
    List {
        /// 0 for the first.
        after: u16,
    },
    /// Bytes that are freed when it is deleted.
    Space {
        /// Its number.
        id: u16,
    },
    /// What each holds alone, of those with larger numbers than this one, and what all of them hold together.
    Held {
        /// 0 for the first.
        after: u16,
    },
    /// Take one that can be written to, of the subvolume that is mounted.
    TakeWritable {
        /// Its name.
        name: Name,
    },
    /// Take one of a snapshot.
    TakeOf {
        /// The name of that.
        of: Name,
        /// Its own.
        name: Name,
        /// It can be written to.
        writable: bool,
    },
    /// Inodes that may differ between two, with larger numbers than this one.
    Changes {
        /// Number of the one; 0 is the main subvolume.
        from: u16,
        /// Number of the other.
        to: u16,
        /// 0 for the first.
        after: u64,
    },
}

/// A snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: Name,
    /// When it was taken: seconds since 1970.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// It can be written to.
    pub writable: bool,
    /// Of which subvolume it was taken; 0 is the main one.
    #[serde(default)]
    pub origin: u16,
}

impl Row {
    pub fn new(snapshot: &Snapshot) -> Row {
        Row {
            id: snapshot.id.0,
            name: Name::new(&snapshot.name),
            seconds: snapshot.created.seconds,
            nanoseconds: snapshot.created.nanoseconds,
            writable: !snapshot.is_read_only,
            origin: snapshot.origin.0,
        }
    }
}

/// Bytes that snapshots hold.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Held {
    /// Number, and what is freed when that one alone is deleted. Those that hold nothing are left out.
    pub alone: Vec<(u16, u64)>,
    /// What is freed when all are deleted.
    pub together: u64,
    /// There are more.
    pub goes_on: bool,
}

/// Inodes, in ranges of neighbours.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Changes {
    /// First of each and how many follow it.
    pub ranges: Vec<(u64, u64)>,
    /// There are more.
    pub goes_on: bool,
}

/// Inodes that are looked for at most for one answer.
const INODES_MAX: usize = 64 << 10;
/// Snapshots in an answer that tells what they hold: each takes 29 bytes at most.
const HELD_MAX: usize = (TEXT_BYTES_MAX - 128) / 29;
/// Bytes of a list beside its rows, each with a comma.
const LIST_BYTES: usize = 2;
/// Bytes of the longest range in an answer.
const RANGE_BYTES: usize = 44;

/// The daemon's side.
pub(super) fn answer(vfs: &Vfs, question: Question) -> Result<Vec<u8>, String> {
    let volume = vfs.volume();
    match question {
        Question::List { after } => list(volume, after),
        Question::Space { id } => {
            let space = volume.snapshots().space(SubvolumeId(id));
            encode(&space.map_err(|error| error.to_string())?)
        }
        Question::Held { after } => held(volume, after),
        Question::TakeWritable { name } => {
            let taken = vfs.take_snapshot(name.bytes(), false);
            encode(&taken.map_err(refused)?.0)
        }
        Question::TakeOf { of, name, writable } => {
            let found = vfs.snapshot_named(of.bytes());
            let of = found
                .map_err(|_| format!("{of}: there is no such snapshot"))?
                .id;
            let taken = vfs.take_snapshot_of(of, name.bytes(), !writable);
            encode(&taken.map_err(refused)?.0)
        }
        Question::Changes { from, to, after } => changes(volume, (from, to), after),
    }
}

fn refused(error: FilesystemError) -> String {
    match error {
        FilesystemError::Exists => "there is a snapshot with this name already".to_owned(),
        error => error.to_string(),
    }
}

fn list(volume: &Volume, after: u16) -> Result<Vec<u8>, String> {
    let all = volume.snapshots().list();
    let (mut rows, mut bytes) = (Vec::new(), LIST_BYTES);
    for snapshot in all.iter().filter(|snapshot| snapshot.id.0 > after) {
        let row = Row::new(snapshot);
        bytes += encode(&row)?.len() + 1;
        if bytes > TEXT_BYTES_MAX {
            break;
        }
        rows.push(row);
    }
    encode(&rows)
}

fn held(volume: &Volume, after: u16) -> Result<Vec<u8>, String> {
    let found = volume.snapshots().held();
    let found = found.map_err(|error| error.to_string())?;
    let alone = found.alone.into_iter().map(|(id, bytes)| (id.0, bytes));
    let mut alone = alone.filter(|(id, bytes)| *id > after && *bytes > 0);
    encode(&Held {
        alone: alone.by_ref().take(HELD_MAX).collect(),
        together: found.together,
        goes_on: alone.next().is_some(),
    })
}

fn changes(volume: &Volume, (from, to): (u16, u16), after: u64) -> Result<Vec<u8>, String> {
    let between = (SubvolumeId(from), SubvolumeId(to));
    let snapshots = volume.snapshots();
    let changed = snapshots.some_changes(between, Ino(after), INODES_MAX);
    let changed = changed.map_err(|error| error.to_string())?;
    let mut told = Changes {
        ranges: Vec::new(),
        goes_on: changed.len() == INODES_MAX,
    };
    for ino in changed {
        if let Some((first, more)) = told.ranges.last_mut()
            && *first + *more + 1 == ino.0
        {
            *more += 1;
            continue;
        }
        if (told.ranges.len() + 2) * RANGE_BYTES > TEXT_BYTES_MAX {
            told.goes_on = true;
            break;
        }
        told.ranges.push((ino.0, 0));
    }
    encode(&told)
}
