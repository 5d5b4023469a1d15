//! Copies what is left of a broken volume to a new one, or writes its metadata anew in place. Reading is [`persimmon_inspect::salvage`],
//! which never writes; the copy is made through the engine.
//!
//! Everything keeps its inode number, times, mode and owner, so that hard links and what refers to
//! numbers stay right; names and attributes are filed anew, since their hashes depend on the
//! volume. A file's data is copied block by block as its checksums allow: what is lost of it is a
//! hole in the copy, and told.

mod copy;
mod file;
mod loss;
mod mend;
mod quota;
mod store;

use persimmon_engine::Volume;
use persimmon_format::inode::Timestamp;
use persimmon_inspect::InspectError;
use persimmon_inspect::salvage::{Rebuilt, Source, Stage};
use serde::Serialize;

pub use loss::{Loss, Lost};
pub use mend::mend;

/// Why a copy could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broken volume cannot be read at all.
    #[error(transparent)]
    Broken(#[from] InspectError),
    /// What the repair in place does not do.
    #[error(
        "it has snapshots, and some of what tells which items are whose is lost; metadata is written anew only where that is whole: copy what \
         can be read with `persimmon recover`; nothing was changed"
    )]
    Snapshots,
    /// The volume that is written to failed, or is too small.
    #[error("the volume written to: {0}")]
    New(#[from] persimmon_engine::Error),
}

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a recovery is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Reading the broken volume.
    Reading(Stage),
    /// Copying; counted in inodes.
    Copying,
}

/// What was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Where the state of the volume was found.
    pub source: Source,
    /// The checkpoint that it is, or follows.
    pub checkpoint: u64,
    /// Regular files.
    pub files: u64,
    /// Of these, how many came whole: every byte, their attributes and a name.
    pub files_intact: u64,
    /// Directories.
    pub directories: u64,
    /// Symbolic links, device nodes, sockets and FIFOs.
    pub others: u64,
    /// File data, bytes.
    pub data_bytes: u64,
    /// Things in `lost+found`.
    pub strays: u64,
    /// Unlinked files that were only waiting to be freed, and are not copied.
    pub unlinked: u64,
    /// Losses told.
    pub losses: u64,
    /// Snapshots that were not copied: each is a filesystem of its own.
    pub snapshots_left: u64,
}

/// Copies what the main subvolume of `from` shows to `to`, which was just made and is empty. `on_loss` is told of all
/// that is lost, in no particular order; `now` is when. A checkpoint ends it.
///
/// # Errors
/// The new volume fails or is full. Damage of the broken one is no error.
pub fn recover(
    from: &Rebuilt<'_>,
    to: &Volume,
    now: Timestamp,
    on_loss: &mut dyn FnMut(&Loss),
    progress: &mut dyn FnMut(Doing, u64, u64),
) -> Result<Recovered> {
    recover_of(from, None, to, now, on_loss, progress)
}

/// The same of the snapshot with this name, if there is a name.
///
/// # Errors
/// There is no such snapshot; else as [`recover`].
pub fn recover_of(
    from: &Rebuilt<'_>,
    snapshot: Option<&[u8]>,
    to: &Volume,
    now: Timestamp,
    on_loss: &mut dyn FnMut(&Loss),
    progress: &mut dyn FnMut(Doing, u64, u64),
) -> Result<Recovered> {
    let content = from.content_of(snapshot, &mut |stage, done, total| {
        progress(Doing::Reading(stage), done, total);
    })?;
    let mut copy = copy::Copy::new(from, &content, to, now, on_loss);
    copy.run(progress)?;
    let recovered = copy.finish()?;
    to.sync()?;
    to.step(persimmon_engine::Task::Checkpoint)?;
    Ok(recovered)
}
