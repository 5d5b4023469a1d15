//! Clones of what is in a directory of a mount, made by the daemon: so a file takes part of a record, and no question of the kernel.

use std::path::Path;

use anyhow::Result;
use persimmon::vfs::NamedIno;
use persimmon::{Caller, Ino, Vfs};
use persimmon_fuse::control::TEXT_BYTES_MAX;
use persimmon_fuse::live::{Answered, Made};
use persimmon_fuse::nodes::inode;
use serde::{Deserialize, Serialize};

use super::{Command, Name, ask as ask_daemon, encode};
use crate::fs::tree::ClonedEntries;

/// Bytes of an answer that a byte of a name takes at most: what JSON has to escape takes six.
const BYTES_A_BYTE: usize = 6;
/// Bytes of an answer but for its names.
const ANSWER_BYTES: usize = 256;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub struct Question {
    /// The directory whose entries are cloned.
    from: u64,
    /// The directory that gets them.
    to: u64,
    /// They are those after this cookie.
    cookie: u64,
}

/// How far it came.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Cloned {
    /// It did nothing: the command is to clone by itself.
    is_refused: bool,
    next: Option<u64>,
    files: u64,
    others: u64,
    bytes: u64,
    left: Vec<(Name, u64)>,
}

/// The daemon's side. The kernel is to forget that the names were not there.
pub(super) fn answer(vfs: &Vfs, question: &Question) -> Result<Answered, String> {
    let (from, to) = (inode(vfs, question.from), inode(vfs, question.to));
    let names_max = (TEXT_BYTES_MAX - ANSWER_BYTES) / BYTES_A_BYTE;
    let cloned = vfs.clone_entries(&Caller::root(), from, to, (question.cookie, names_max));
    let cloned = cloned.map_err(|error| error.to_string())?;
    let made = cloned.made.iter().map(|named| named.name.clone());
    let made = Some(Made {
        directory: to,
        names: made.collect(),
    });
    let cloned = ClonedEntries::new(cloned);
    let left = cloned.left.iter();
    let text = encode(&Cloned {
        is_refused: false,
        next: cloned.next,
        files: cloned.files,
        others: cloned.others,
        bytes: cloned.bytes,
        left: left
            .map(|named| (Name::new(&named.name), named.ino.0))
            .collect(),
    })?;
    Ok(Answered {
        text,
        made,
        ..Answered::default()
    })
}

/// That of a daemon with a supervisor. To have the kernel forget a name it would wait for who holds the directory, who may wait for this
/// daemon: killed meanwhile, it could not end. And what a request that is sent again finds made may be a clone of before.
pub(crate) fn refuse() -> Result<Answered, String> {
    let refused = Cloned {
        is_refused: true,
        ..Cloned::default()
    };
    encode(&refused).map(Answered::from)
}

/// The command's side: asks the daemon behind `dir`. `None`: the command is to do it by itself.
///
/// # Errors
/// There is none, or it says no.
pub fn ask(dir: &Path, (from, to): (u64, u64), cookie: u64) -> Result<Option<ClonedEntries>> {
    let question = Question { from, to, cookie };
    let cloned: Cloned = ask_daemon(dir, &Command::Clone(question))?;
    if cloned.is_refused {
        return Ok(None);
    }
    let left = cloned.left.iter().map(|(name, ino)| NamedIno {
        name: name.bytes().to_vec(),
        ino: Ino(*ino),
    });
    Ok(Some(ClonedEntries {
        next: cloned.next,
        files: cloned.files,
        others: cloned.others,
        bytes: cloned.bytes,
        left: left.collect(),
    }))
}
