//! Ranges of files that are lost with zones that are offline, by path.

use std::collections::HashMap;

use persimmon_format::inode::ROOT;
use persimmon_format::name::DirEntry;
use persimmon_format::{BLOCK_SIZE, Key, VersionId, ZoneId, shown};

use super::links::Names;
use crate::finding::{DATA_LOST, Findings};
use crate::state::State;

/// Deepest path that is told.
const DEPTH_MAX: usize = 4096;

/// A range of blocks.
struct Range {
    ino: u64,
    from: u64,
    to: u64,
    zone: ZoneId,
    /// Whose the extent is.
    version: VersionId,
}

/// What is lost.
#[derive(Default)]
pub(crate) struct Losses {
    ranges: Vec<Range>,
}

impl Losses {
    /// Adds blocks of the file whose extent has this key.
    pub(crate) fn add(&mut self, key: &Key, blocks: u64, zone: ZoneId) {
        let (ino, from) = (key.ino.0, key.item);
        let to = from.saturating_add(blocks);
        match self.ranges.last_mut() {
            Some(last)
                if (last.ino, last.to, last.zone, last.version)
                    == (ino, from, zone, key.version) =>
            {
                last.to = to;
            }
            _ => self.ranges.push(Range {
                ino,
                from,
                to,
                zone,
                version: key.version,
            }),
        }
    }

    /// Tells them, each with one of the file's names.
    pub(crate) fn tell(&self, state: &State<'_, '_>, names: &Names, findings: &mut Findings) {
        if self.ranges.is_empty() {
            return;
        }
        let main = state.main();
        let mut entries = HashMap::new();
        for entry in &names.entries {
            entries
                .entry(entry.child)
                .or_insert((entry.directory, entry.key()));
        }
        for range in &self.ranges {
            let path = match main.shows(range.version) {
                true => path_of(range.ino, &entries, state),
                false => Some(format!("inode {}, version {}", range.ino, range.version)),
            };
            let place = path.unwrap_or_else(|| format!("inode {}", range.ino));
            let byte = |block: u64| block.saturating_mul(BLOCK_SIZE as u64);
            let detail = format!(
                "bytes {} to {}, zone {}",
                byte(range.from),
                byte(range.to),
                range.zone
            );
            findings.add(&DATA_LOST, place, detail);
        }
    }
}

fn path_of(ino: u64, entries: &HashMap<u64, (u64, Key)>, state: &State<'_, '_>) -> Option<String> {
    let mut parts = Vec::new();
    let mut at = ino;
    while at != ROOT.0 {
        let (directory, key) = entries.get(&at)?;
        let value = state.visible(key)?;
        let entry = DirEntry::decode(&value).ok()?;
        parts.push(shown(entry.name).to_string());
        if parts.len() > DEPTH_MAX {
            return None;
        }
        at = *directory;
    }
    parts.reverse();
    Some(format!("/{}", parts.join("/")))
}
