//! The volume below the files: durability, space, cleaning, verification.

use std::path::Path;

use persimmon_engine::{
    CleanState, CleanStep, ScrubCursor, ScrubFinding, Statistics, Task, ZoneStatus,
};

use persimmon_vfs::{FileKind, Handle};

use crate::{Error, Filesystem, FilesystemError, Result};

/// Blocks verified in one step of a scrub: 1 MiB.
const SCRUB_BLOCKS: u64 = 256;

/// What [`Filesystem::clean`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaned {
    /// As many zones are free as were asked for. False: nothing more is to be won.
    pub reached: bool,
    /// Blocks moved meanwhile, by this call and by whoever else cleaned.
    pub blocks_moved: u64,
    /// Zones that are free now.
    pub free_zones: u32,
}

/// What [`Filesystem::scrub`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes read and verified, or found damaged.
    pub bytes: u64,
    /// What is damaged, the first [`Scrubbed::FINDINGS_MAX`].
    pub findings: Vec<ScrubFinding>,
    /// All there is.
    pub findings_total: u64,
    /// It was stopped before the end.
    pub stopped: bool,
}

impl Scrubbed {
    /// Findings kept.
    pub const FINDINGS_MAX: usize = 10_000;
}

impl Filesystem {
    /// Writes a checkpoint: the next opening replays no journal, and zones in which nothing is live become free.
    /// Everything done before it is durable, as after [`Filesystem::sync`].
    pub fn checkpoint(&self) -> Result<()> {
        self.sync()?;
        self.vfs().volume().step(Task::Checkpoint)?;
        Ok(())
    }

    /// Makes every change of names so far durable, in all directories; `path` has to be one. Contents of files are not
    /// written by it.
    pub fn sync_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let dir = self.metadata(path)?;
        if dir.kind() != FileKind::Directory {
            return Err(Error::at(path)(FilesystemError::NotDirectory));
        }
        let synced = self.vfs().fsyncdir(dir.ino, Handle::NONE);
        synced.map_err(Error::at(path))
    }

    /// Counters since the volume was opened: bytes sent to the device by class, cleaning, stalls.
    #[must_use]
    pub fn stats(&self) -> Statistics {
        self.vfs().volume().statistics()
    }

    /// Use, write pointer and valid blocks of each zone.
    #[must_use]
    pub fn zones(&self) -> Vec<ZoneStatus> {
        self.vfs().volume().zones()
    }

    /// Frees the zones in which nothing is live and has the device reset them: an image gives their space back to its host. Nothing is moved,
    /// and nothing needs this call. Tells how many bytes of zones became free.
    pub fn trim(&self) -> Result<u64> {
        Ok(self.vfs().trim()?)
    }

    /// Cleans now: moves what is live out of zones with garbage, most worth first, until `free_zones` are free, or,
    /// without a number, until cleaning would win nothing more. What is moved costs writes; nothing needs this call.
    pub fn clean(&self, free_zones: Option<u32>) -> Result<Cleaned> {
        let mut blocks_moved = 0;
        loop {
            let step: CleanStep = self.vfs().volume().clean_step(free_zones)?;
            blocks_moved += step.blocks_moved;
            if step.state != CleanState::GoesOn {
                return Ok(Cleaned {
                    reached: step.state == CleanState::Reached,
                    blocks_moved,
                    free_zones: step.free_zones,
                });
            }
        }
    }

    /// Reads and verifies everything live. After each piece of about 1 MiB `goes_on` is told how many bytes are
    /// done, of about how many; it may wait, or end the scrub by answering false.
    pub fn scrub(&self, mut goes_on: impl FnMut(u64, u64) -> bool) -> Result<Scrubbed> {
        let volume = self.vfs().volume();
        let mut done = Scrubbed::default();
        let mut cursor = Some(ScrubCursor::default());
        while let Some(at) = cursor {
            let step = volume.scrub_step(at, SCRUB_BLOCKS)?;
            done.bytes += step.bytes;
            done.findings_total += step.findings.len() as u64;
            let room = Scrubbed::FINDINGS_MAX - done.findings.len();
            done.findings.extend(step.findings.into_iter().take(room));
            cursor = step.next;
            if cursor.is_some() && !goes_on(done.bytes, volume.scrub_bytes()) {
                done.stopped = true;
                break;
            }
        }
        Ok(done)
    }
}
