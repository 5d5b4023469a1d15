//! How the content of a file of a live mount is stored: told by its daemon, some extents at a time.

use std::io;
use std::path::Path;
use std::time::Duration;

use persimmon::vfs::Result as VfsResult;
use persimmon::{Ino, Vfs};
use persimmon_fuse::live::PREFIX;
use persimmon_inspect::FileUsage;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::live::ANSWER_BYTES_MAX;

/// What the daemon is asked, with the file block to begin at.
pub const QUESTION: &str = "storage";

/// How often a daemon is asked that has too many questions already, and how long to wait before.
const TRIES: usize = 500;
const WAIT: Duration = Duration::from_millis(20);

/// Some extents of a file.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Look {
    /// What they have, but for what the shared ones take.
    pub usage: FileUsage,
    /// Extents of the store of shared blocks that they refer to: first block, and sectors taken. The daemon limits their number so that
    /// the answer fits an attribute.
    pub shared: Vec<(u64, u64)>,
    /// Where the next look begins; null at the end.
    pub next: Option<u64>,
}

/// The daemon's side.
pub fn look(vfs: &Vfs, ino: Ino, from: u64) -> VfsResult<Look> {
    let found = vfs.storage(ino, from)?;
    let mut usage = FileUsage::default();
    for (block, extent, sectors) in &found.extents {
        usage.add_extent(*block, extent, *sectors);
    }
    usage.add_waiting(found.waiting_blocks);
    Ok(Look {
        usage,
        shared: found.shared,
        next: found.next,
    })
}

/// Asks the daemon of a mount about a file of it.
pub fn ask(path: &Path, from: u64) -> io::Result<Look> {
    let name = format!("{PREFIX}{QUESTION}.{from}");
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let mut tries = 0;
    let length = loop {
        match rustix::fs::lgetxattr(path, name.as_str(), &mut answer) {
            Err(Errno::AGAIN) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(WAIT);
            }
            length => break length?,
        }
    };
    let answer = answer.get(..length).unwrap_or_default();
    serde_json::from_slice(answer).map_err(io::Error::other)
}
