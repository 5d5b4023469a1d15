//! Writes that are done again.
//!
//! The device may have newer content than some of them, and somebody may have heard that it is durable. So of all that was written to a place
//! only the last is written again: what is in a file while it is done again was there before, or will be there in the end.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use persimmon_vfs::{
    Attr, Author, Error, Handle, Ino, Result, SeekTo, SetAttr, SetTime, Timestamp, Vfs,
};

use super::Ledger;
use super::writes::{
    Entry, KIND_CONTENT, KIND_EVERYTHING, KIND_MODE, KIND_TIMES, KIND_WRITE, KIND_WRITE_KILLS,
    Position,
};

/// Bytes that are compared, and written again, together: a block of a file.
const COMPARED_BYTES: u64 = 4096;

/// What a replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Writes of which the device did not have everything.
    pub writes: usize,
    /// The bytes of them that it did not have.
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

/// What one file did not take.
struct Untaken {
    writes: usize,
    /// Where the first of them begins.
    offset: u64,
    /// Why.
    error: Error,
}

/// A replay under way.
struct Replay<'a> {
    ledger: &'a Ledger,
    vfs: &'a Vfs,
    /// What files were like whose times were set after the last write that is replayed.
    set_later: HashMap<Ino, Attr>,
    /// When files were last written to by what changes nothing: the device may have the content, and not the time.
    unchanged: HashMap<Ino, Timestamp>,
    untaken: BTreeMap<Ino, Untaken>,
    replayed: Replayed,
}

impl Ledger {
    /// Does again what was written by a daemon that died. Nobody uses the volume yet. What one file does not take keeps no other file from
    /// going on. What the device has already is not written: a snapshot may share it, and there may be room for no more than the rest.
    ///
    /// # Errors
    /// The volume takes nothing.
    pub fn replay(&self, vfs: &Vfs) -> Result<Replayed> {
        let entries = self.writes.entries(&self.region);
        let [content, times, modes] =
            [KIND_CONTENT, KIND_TIMES, KIND_MODE].map(|kind| Latest::of(kind, &entries));
        let all = { entries.iter() }
            .filter(|entry| entry.kind == KIND_EVERYTHING)
            .map(|entry| Position(entry.offset))
            .max();
        let is_due = |entry: &&Entry| {
            let is_write = matches!(entry.kind, KIND_WRITE | KIND_WRITE_KILLS);
            is_write && all.is_none_or(|all| entry.position >= all) && !content.is_after(entry)
        };
        let mut covered: HashMap<Ino, Covered> = HashMap::new();
        let mut due = Vec::new();
        for entry in entries.iter().rev().filter(is_due) {
            let range = entry.offset..entry.offset + entry.data_len as u64;
            due.push((entry, covered.entry(entry.ino).or_default().add(range)));
        }
        let mut replay = Replay {
            ledger: self,
            vfs,
            set_later: HashMap::new(),
            unchanged: HashMap::new(),
            untaken: BTreeMap::new(),
            replayed: Replayed::default(),
        };
        for (entry, parts) in due.into_iter().rev() {
            let author = author(entry).filter(|_| !modes.is_after(entry));
            if parts.is_empty() && !matches!(author, Some(Author::User { .. })) {
                continue;
            }
            replay.write(entry, &parts, author, times.is_after(entry))?;
        }
        replay.set_times()?;
        Ok(replay.end())
    }
}

impl Replay<'_> {
    /// Does a write again, in those parts of it that no later one covers.
    fn write(
        &mut self,
        entry: &Entry,
        parts: &[Range<u64>],
        author: Option<Author>,
        are_times_set_later: bool,
    ) -> Result<()> {
        let found = match self.vfs.getattr(entry.ino) {
            // It was removed since, and nobody has it open.
            Err(Error::NotFound | Error::Stale) => return Ok(()),
            Err(error) if error.is_damage() => {
                self.lose(entry, error);
                return Ok(());
            }
            found => found?,
        };
        let data = self.ledger.region.copy(entry.data_at, entry.data_len);
        let data = data.unwrap_or_default();
        let changed: Vec<_> = { parts.iter() }
            .flat_map(|part| changed_in(self.vfs, entry, part, &data))
            .collect();
        if !are_times_set_later {
            self.set_later.remove(&entry.ino);
        }
        match changed.is_empty() {
            true if are_times_set_later || parts.is_empty() => {}
            true => {
                let last = self.unchanged.entry(entry.ino).or_insert(entry.time);
                *last = entry.time.max(*last);
            }
            false => {
                self.unchanged.remove(&entry.ino);
                if are_times_set_later {
                    self.set_later.entry(entry.ino).or_insert(found);
                }
            }
        }
        match write_again(self.vfs, entry, &changed, (&data, author)) {
            Err(error @ (Error::HostFull | Error::ReadOnly)) => return Err(error),
            Err(error) => {
                self.lose(entry, error);
                return Ok(());
            }
            Ok(()) => {}
        }
        self.replayed.writes += usize::from(!changed.is_empty());
        self.replayed.bytes += changed
            .iter()
            .map(|part| part.end - part.start)
            .sum::<u64>();
        Ok(())
    }

    fn lose(&mut self, entry: &Entry, error: Error) {
        let untaken = self.untaken.entry(entry.ino).or_insert(Untaken {
            writes: 0,
            offset: entry.offset,
            error,
        });
        untaken.writes += 1;
        untaken.offset = entry.offset.min(untaken.offset);
    }

    /// Times that writes that were done again have taken from files, or would have set.
    fn set_times(&self) -> Result<()> {
        let set = |ino: Ino, mtime: Timestamp, ctime: Timestamp| {
            let set = SetAttr {
                mtime: Some(SetTime::At(mtime)),
                ctime: Some(ctime),
                ..SetAttr::default()
            };
            match self.vfs.setattr(ino, Handle::NONE, &set) {
                Err(error) if error.is_damage() => {
                    tracing::error!(ino = ino.0, %error, "a damaged file does not get its times back");
                    Ok(())
                }
                set => set.map(drop),
            }
        };
        for (ino, found) in &self.set_later {
            set(*ino, found.mtime, found.ctime)?;
        }
        for (ino, time) in &self.unchanged {
            let found = match self.vfs.getattr(*ino) {
                Err(error) if error.is_damage() => continue,
                found => found?,
            };
            if !self.set_later.contains_key(ino) && found.mtime != *time {
                set(*ino, *time, found.ctime.max(*time))?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Replayed {
        for (ino, untaken) in &self.untaken {
            tracing::error!(
                ino = ino.0,
                writes = untaken.writes,
                offset = untaken.offset,
                error = %untaken.error,
                "what was written cannot be written again"
            );
        }
        self.replayed.lost = self.untaken.into_keys().collect();
        self.replayed
    }
}

/// Where in a part of a write the file has something else, or nothing. Where that cannot be told all of it is written, which tells why.
fn changed_in(vfs: &Vfs, entry: &Entry, part: &Range<u64>, data: &[u8]) -> Vec<Range<u64>> {
    let [from, to] = [part.start, part.end].map(|offset| (offset - entry.offset) as usize);
    let Some(data) = data.get(from..to) else {
        return vec![part.clone()];
    };
    let mut found = vec![0; data.len()];
    // Nobody has read it: its access time stays.
    let Ok(len) = vfs.volume().read(entry.ino, part.start, &mut found) else {
        return vec![part.clone()];
    };
    found.truncate(len);
    // Zeros that were written are data, and not a hole, though they read the same.
    let data_end = LazyCell::new(|| {
        let hole = vfs.seek(entry.ino, Handle::NONE, part.start, SeekTo::Hole);
        hole.unwrap_or_default()
    });
    let mut changed: Vec<Range<u64>> = Vec::new();
    let mut at = part.start;
    while at < part.end {
        let end = (at / COMPARED_BYTES * COMPARED_BYTES)
            .saturating_add(COMPARED_BYTES)
            .min(part.end);
        let [from, to] = [at, end].map(|offset| (offset - part.start) as usize);
        let piece = data.get(from..to);
        let is_there = piece == found.get(from..to)
            && (piece.is_some_and(|piece| piece.iter().any(|byte| *byte != 0)) || end <= *data_end);
        match changed.last_mut() {
            _ if is_there => {}
            Some(last) if last.end == at => last.end = end,
            _ => changed.push(at..end),
        }
        at = end;
    }
    changed
}

fn write_again(
    vfs: &Vfs,
    entry: &Entry,
    parts: &[Range<u64>],
    (data, mut author): (&[u8], Option<Author>),
) -> Result<()> {
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
