//! Writes that are done again.
//!
//! The device may have newer content than some of them, and somebody may have heard that it is durable. So of all that was written to a place
//! only the last is written again: what is in a file while it is done again was there before, or will be there in the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use persimmon_vfs::{Attr, Author, Error, Handle, Ino, Result, SetAttr, SetTime, Vfs};

use super::Ledger;
use super::writes::{
    Entry, KIND_CONTENT, KIND_MODE, KIND_TIMES, KIND_WRITE, KIND_WRITE_KILLS, Position,
};

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Writes.
    pub writes: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Files that did not take all that was written to them: it is lost, though it was answered.
    pub lost: HashSet<Ino>,
}

/// What of a file later writes write: where each range begins, and its end. None touches another.
#[derive(Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Adds a range. Those parts of it that were not covered before.
    fn add(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.start).next_back();
        let from = before.map_or(range.start, |(start, _)| *start);
        let touched: Vec<_> = { self.0.range(from..=range.end) }
            .map(|(start, end)| *start..*end)
            .filter(|other| other.end >= range.start)
            .collect();
        let (mut parts, mut at, mut whole) = (Vec::new(), range.start, range.clone());
        for other in touched {
            if other.start > at {
                parts.push(at..other.start);
            }
            at = at.max(other.end);
            whole = whole.start.min(other.start)..whole.end.max(other.end);
            self.0.remove(&other.start);
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        self.0.insert(whole.start, whole.end);
        parts
    }
}

/// Up to where something is recorded of each file: the latest of what was noted of it.
struct Latest(HashMap<Ino, Position>);

impl Latest {
    fn of(kind: u64, entries: &[Entry]) -> Latest {
        let mut latest = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.kind == kind) {
            let noted = Position(entry.offset);
            let before = latest.entry(entry.ino).or_insert(noted);
            *before = noted.max(*before);
        }
        Latest(latest)
    }

    fn is_after(&self, entry: &Entry) -> bool {
        let latest = self.0.get(&entry.ino);
        latest.is_some_and(|latest| entry.position < *latest)
    }
}

impl Ledger {
    /// Does again what was written by a daemon that died. Nobody uses the volume yet. What one file does not take keeps no other file from
    /// going on.
    ///
    /// # Errors
    /// The volume takes nothing.
    pub fn replay(&self, vfs: &Vfs) -> Result<Replayed> {
        let entries = self.writes.entries(&self.region);
        let [content, times, modes] =
            [KIND_CONTENT, KIND_TIMES, KIND_MODE].map(|kind| Latest::of(kind, &entries));
        let is_due = |entry: &&Entry| {
            let is_write = matches!(entry.kind, KIND_WRITE | KIND_WRITE_KILLS);
            is_write && !content.is_after(entry)
        };
        let mut covered: HashMap<Ino, Covered> = HashMap::new();
        let mut due = Vec::new();
        for entry in entries.iter().rev().filter(is_due) {
            let range = entry.offset..entry.offset + entry.data_len as u64;
            due.push((entry, covered.entry(entry.ino).or_default().add(range)));
        }
        let mut replayed = Replayed::default();
        // Files whose times were set after the last write that is replayed.
        let mut set_later: HashMap<Ino, Attr> = HashMap::new();
        for (entry, parts) in due.into_iter().rev() {
            let author = author(entry).filter(|_| !modes.is_after(entry));
            if parts.is_empty() && !matches!(author, Some(Author::User { .. })) {
                continue;
            }
            let found = match vfs.getattr(entry.ino) {
                // It was removed since, and nobody has it open.
                Err(Error::NotFound | Error::Stale) => continue,
                // What one file does not take keeps no other file from going on.
                Err(error) if error.is_damage() => {
                    tracing::error!(ino = entry.ino.0, offset = entry.offset, %error, "what was written to a damaged file is lost");
                    replayed.lost.insert(entry.ino);
                    continue;
                }
                found => found?,
            };
            if times.is_after(entry) {
                set_later.entry(entry.ino).or_insert(found);
            } else {
                set_later.remove(&entry.ino);
            }
            match self.write_again(vfs, entry, &parts, author) {
                Err(error @ (Error::HostFull | Error::ReadOnly)) => return Err(error),
                Err(error) => {
                    tracing::error!(ino = entry.ino.0, offset = entry.offset, %error, "what was written cannot be written again");
                    replayed.lost.insert(entry.ino);
                    continue;
                }
                Ok(()) => {}
            }
            replayed.writes += usize::from(!parts.is_empty());
            replayed.bytes += parts.iter().map(|part| part.end - part.start).sum::<u64>();
        }
        for (ino, found) in set_later {
            let set = SetAttr {
                mtime: Some(SetTime::At(found.mtime)),
                ctime: Some(found.ctime),
                ..SetAttr::default()
            };
            match vfs.setattr(ino, Handle::NONE, &set) {
                Err(error) if error.is_damage() => {
                    tracing::error!(ino = ino.0, %error, "a damaged file does not get its times back");
                }
                set => drop(set?),
            }
        }
        Ok(replayed)
    }

    fn write_again(
        &self,
        vfs: &Vfs,
        entry: &Entry,
        parts: &[Range<u64>],
        mut author: Option<Author>,
    ) -> Result<()> {
        let data = self.region.copy(entry.data_at, entry.data_len);
        let data = data.unwrap_or_default();
        if parts.is_empty() {
            vfs.write_again(entry.ino, entry.offset, &[], (entry.time, author))?;
        }
        for part in parts {
            let mut at = part.start;
            let piece = |at: u64| {
                let [from, to] = [at, part.end].map(|offset| (offset - entry.offset) as usize);
                data.get(from..to).filter(|piece| !piece.is_empty())
            };
            while let Some(piece) = piece(at) {
                let written = vfs.write_again(entry.ino, at, piece, (entry.time, author.take()))?;
                if written == 0 {
                    return Err(Error::NoSpace);
                }
                at += written as u64;
            }
        }
        Ok(())
    }
}

fn author(entry: &Entry) -> Option<Author> {
    match entry.kind {
        KIND_WRITE_KILLS => Some(Author::User {
            pid: 0,
            gid: entry.gid,
        }),
        _ => Some(Author::Privileged),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_is_not_written_again() {
        let mut covered = Covered::default();
        let mut add = |from, to| -> Vec<_> {
            let added = covered.add(from..to).into_iter();
            added.map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(add(10, 20), [(10, 20)]);
        assert_eq!(add(12, 15), []);
        assert_eq!(add(30, 40), [(30, 40)]);
        assert_eq!(add(5, 35), [(5, 10), (20, 30)]);
        assert_eq!(add(5, 40), []);
        assert_eq!(add(40, 50), [(40, 50)]);
        assert_eq!(add(0, 60), [(0, 5), (50, 60)]);
        assert_eq!(covered.0.len(), 1);
    }
}
