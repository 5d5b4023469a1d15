//! What was written to files, in the order of its answers, until the device has it.
//!
//! There are two halves. One is filled; when it is full, the other, which must be empty, is filled next, and the volume is synced: then the
//! first one is empty. An entry is noted after its operation, and a sync begins after the change of halves, so it writes all that
//! the full half has. Who needs a half that is not empty yet waits for that sync.
//!
//! What is replayed are writes, which can be done any number of times. Everything else that changes the content of a file leaves nothing of that
//! file unwritten (`adapter::keeping`) and has noted here up to where: what was written before that is not replayed, so that no truncation
//! is undone. The kernel sends no write of a file beside such an operation, but for those that it does not know: where a range is taken out
//! of a file, or put in. While that is done ([`Ledger::shift`]) nothing that is written to the file is noted here, and the device has it instead.

use std::sync::atomic::Ordering;

use persimmon_sync::{Condvar, Mutex, MutexGuard};
use persimmon_vfs::{Ino, Timestamp};

use super::region::{Region, WORD};
use super::{Ledger, NotNoted};

/// Bytes of each half.
pub const HALF_BYTES: usize = 32 << 20;

/// Words of an entry before its data: length, kind, inode, offset or position, time, group and length of the data.
const WORDS: usize = 8;
const KIND_NONE: u64 = 0;
pub const KIND_WRITE: u64 = 1;
/// A write that takes setuid and setgid from the file.
pub const KIND_WRITE_KILLS: u64 = 2;
pub const KIND_CONTENT: u64 = 3;
pub const KIND_TIMES: u64 = 4;
pub const KIND_MODE: u64 = 5;
/// Of every file what [`KIND_CONTENT`] is of one. A program that does not know it writes more again than it has to.
pub const KIND_EVERYTHING: u64 = 6;

/// Bits of a position below the number of its half.
const OFFSET_BITS: u32 = 32;

/// A place in the order of what is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

impl Position {
    fn new(number: u64, offset: usize) -> Position {
        Position(number << OFFSET_BITS | offset as u64)
    }
}

/// A write that was done.
pub struct Written<'a> {
    /// The file.
    pub ino: Ino,
    /// From where on.
    pub offset: u64,
    /// The bytes.
    pub data: &'a [u8],
    /// When.
    pub time: Timestamp,
    /// The group of a writer who takes setuid and setgid from the file.
    pub kills: Option<u32>,
}

/// What of a file is on the device, and not to be changed by a replay of what was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// All that was written to it.
    Content,
    /// Its times, which somebody has set.
    Times,
    /// Its permissions, and so what a write took from them before.
    Mode,
}

/// Who writes there, and who waits.
pub struct Writes {
    /// Where it is said how much of each half is used, and its number.
    heads: usize,
    halves: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The half that is filled.
    active: usize,
    /// The other one is being emptied.
    is_emptying: bool,
    /// The last attempt to do so failed.
    has_failed: bool,
    /// There is no more to empty.
    is_over: bool,
    /// Entries of each half whose place is taken and that are not there yet.
    being_filled: [usize; 2],
    /// Files whose blocks are being moved.
    shifting: Vec<Ino>,
}

/// While it lives, writes of a file are not noted.
pub struct Shifting<'a> {
    ledger: &'a Ledger,
    ino: Ino,
}

impl Drop for Shifting<'_> {
    fn drop(&mut self) {
        let mut state = self.ledger.writes.state.lock();
        let at = state.shifting.iter().position(|ino| *ino == self.ino);
        if let Some(at) = at {
            state.shifting.swap_remove(at);
        }
    }
}

/// What was noted.
pub struct Entry {
    pub position: Position,
    pub kind: u64,
    pub ino: Ino,
    /// Of a write the offset, else the position.
    pub offset: u64,
    pub time: Timestamp,
    pub gid: u32,
    /// Where the data is in the region.
    pub data_at: usize,
    pub data_len: usize,
}

impl Writes {
    pub fn new(region: &Region, heads: usize, halves: usize) -> Writes {
        let writes = Writes {
            heads,
            halves,
            state: Mutex::new(State {
                active: 0,
                is_emptying: false,
                has_failed: false,
                is_over: false,
                being_filled: [0; 2],
                shifting: Vec::new(),
            }),
            changed: Condvar::new(),
        };
        let [first, second] = [0, 1].map(|half| writes.number(region, half));
        let active = usize::from(second > first);
        writes.state.lock().active = active;
        if first.max(second) == 0 {
            region.word(writes.number_at(0)).store(1, Ordering::Release);
        }
        writes
    }

    fn used_at(&self, half: usize) -> usize {
        self.heads + half * 2 * WORD
    }

    fn number_at(&self, half: usize) -> usize {
        self.used_at(half) + WORD
    }

    fn used(&self, region: &Region, half: usize) -> usize {
        let used = region.word(self.used_at(half)).load(Ordering::Acquire);
        (used as usize).min(HALF_BYTES)
    }

    fn number(&self, region: &Region, half: usize) -> u64 {
        region.word(self.number_at(half)).load(Ordering::Acquire)
    }

    fn start(&self, half: usize) -> usize {
        self.halves + half * HALF_BYTES
    }

    /// Has the other half filled from now on, which is empty.
    fn change_halves(&self, region: &Region, state: &mut State) {
        let next = self.number(region, state.active) + 1;
        state.active ^= 1;
        let number = region.word(self.number_at(state.active));
        number.store(next, Ordering::Release);
        state.is_emptying = true;
        self.changed.notify_all();
    }

    /// Makes room for an entry. Its half, which is not emptied until it is [filled](Self::filled), and its place. `of_write`: that of a
    /// write to this file.
    fn reserve(
        &self,
        region: &Region,
        len: usize,
        of_write: Option<Ino>,
    ) -> std::result::Result<(usize, usize), NotNoted> {
        let mut state = self.state.lock();
        loop {
            if of_write.is_some_and(|ino| state.shifting.contains(&ino)) {
                return Err(NotNoted::Shifting);
            }
            let used = self.used(region, state.active);
            if used + len <= HALF_BYTES {
                let at = self.start(state.active) + used;
                region.word(at + WORD).store(KIND_NONE, Ordering::Relaxed);
                region.word(at).store(len as u64, Ordering::Relaxed);
                let word = region.word(self.used_at(state.active));
                word.store((used + len) as u64, Ordering::Release);
                let half = state.active;
                state.being_filled[half] += 1;
                return Ok((half, at));
            }
            if state.is_over {
                return Err(NotNoted::NoRoom);
            }
            if state.is_emptying {
                state = self.changed.wait(state);
            } else if self.used(region, state.active ^ 1) == 0 {
                self.change_halves(region, &mut state);
            } else if state.has_failed {
                // It is tried once more for the next one.
                state.has_failed = false;
                return Err(NotNoted::NoRoom);
            } else {
                state.is_emptying = true;
                self.changed.notify_all();
            }
        }
    }

    fn note(
        &self,
        region: &Region,
        (kind, ino, offset): (u64, Ino, u64),
        time: Timestamp,
        (gid, data): (u32, &[u8]),
    ) -> std::result::Result<(), NotNoted> {
        let len = WORDS * WORD + data.len().next_multiple_of(WORD);
        let of_write = matches!(kind, KIND_WRITE | KIND_WRITE_KILLS).then_some(ino);
        let (half, at) = self.reserve(region, len, of_write)?;
        let is_whole = self.fill(region, at, (kind, ino, offset), time, (gid, data));
        self.filled(half);
        match is_whole {
            true => Ok(()),
            false => Err(NotNoted::NoRoom),
        }
    }

    /// An entry is there, or will never be.
    fn filled(&self, half: usize) {
        let mut state = self.state.lock();
        state.being_filled[half] -= 1;
        // Only who empties the other half waits for that; to wake nobody is a system call too.
        if state.being_filled[half] == 0 && state.is_emptying && half != state.active {
            self.changed.notify_all();
        }
    }

    fn fill(
        &self,
        region: &Region,
        at: usize,
        (kind, ino, offset): (u64, Ino, u64),
        time: Timestamp,
        (gid, data): (u32, &[u8]),
    ) -> bool {
        let word = |number: usize| region.word(at + number * WORD);
        word(2).store(ino.0, Ordering::Relaxed);
        word(3).store(offset, Ordering::Relaxed);
        word(4).store(time.seconds.cast_unsigned(), Ordering::Relaxed);
        word(5).store(time.nanoseconds.into(), Ordering::Relaxed);
        word(6).store(gid.into(), Ordering::Relaxed);
        word(7).store(data.len() as u64, Ordering::Relaxed);
        if !region.fill(at + WORDS * WORD, data) {
            return false;
        }
        // With its kind it is there.
        word(1).store(kind, Ordering::Release);
        true
    }

    fn position(&self, region: &Region) -> Position {
        let state = self.state.lock();
        let number = self.number(region, state.active);
        Position::new(number, self.used(region, state.active))
    }

    /// All that is noted, in order.
    pub fn entries(&self, region: &Region) -> Vec<Entry> {
        let mut halves = [0, 1];
        halves.sort_by_key(|half| self.number(region, *half));
        let mut entries = Vec::new();
        for half in halves {
            let (used, number) = (self.used(region, half), self.number(region, half));
            let mut offset = 0;
            while offset + WORDS * WORD <= used {
                let at = self.start(half) + offset;
                let word = |number: usize| region.word(at + number * WORD).load(Ordering::Acquire);
                let len = word(0) as usize;
                if len < WORDS * WORD || !len.is_multiple_of(WORD) || offset + len > used {
                    break;
                }
                entries.push(Entry {
                    position: Position::new(number, offset),
                    kind: word(1),
                    ino: Ino(word(2)),
                    offset: word(3),
                    time: Timestamp {
                        seconds: word(4).cast_signed(),
                        nanoseconds: word(5) as u32,
                    },
                    gid: word(6) as u32,
                    data_at: at + WORDS * WORD,
                    data_len: (word(7) as usize).min(len - WORDS * WORD),
                });
                offset += len;
            }
        }
        entries
    }

    fn empty(&self, region: &Region, half: usize) {
        region.word(self.used_at(half)).store(0, Ordering::Release);
    }
}

impl Ledger {
    /// A write was done. Waits for the device where there is no more room.
    ///
    /// # Errors
    /// The device does not take what was written before; or the blocks of the file are being moved.
    pub fn written(&self, written: &Written<'_>) -> std::result::Result<(), NotNoted> {
        let kind = match written.kills {
            None => KIND_WRITE,
            Some(_) => KIND_WRITE_KILLS,
        };
        let data = (written.kills.unwrap_or_default(), written.data);
        let what = (kind, written.ino, written.offset);
        self.writes.note(&self.region, what, written.time, data)
    }

    /// Where the next one will be noted: to be asked for before an operation that changes content or times in another way.
    pub fn position(&self) -> Position {
        self.writes.position(&self.region)
    }

    /// The blocks of a file are about to be moved: from now on nothing that is written to it is noted, until what is returned is dropped.
    pub fn shift(&self, ino: Ino) -> Shifting<'_> {
        self.writes.state.lock().shifting.push(ino);
        Shifting { ledger: self, ino }
    }

    /// An operation on a file is on the device, and so is of what was written before `before` all that `what` says.
    ///
    /// # Errors
    /// As of [`Ledger::written`].
    pub fn recorded(
        &self,
        ino: Ino,
        what: Recorded,
        before: Position,
    ) -> std::result::Result<(), NotNoted> {
        let kind = match what {
            Recorded::Content => KIND_CONTENT,
            Recorded::Times => KIND_TIMES,
            Recorded::Mode => KIND_MODE,
        };
        let time = Timestamp::default();
        self.writes
            .note(&self.region, (kind, ino, before.0), time, (0, &[]))
    }

    /// All that was written before `before`, to whatever file, is on the device. Waits where there is no more room, so not for who
    /// empties halves.
    ///
    /// # Errors
    /// As of [`Ledger::written`].
    pub fn recorded_all(&self, before: Position) -> std::result::Result<(), NotNoted> {
        let what = (KIND_EVERYTHING, Ino(0), before.0);
        let time = Timestamp::default();
        self.writes.note(&self.region, what, time, (0, &[]))
    }

    /// Empties halves that are full, by `sync`, which says whether all that was written before it began is durable. Ends after
    /// [`Ledger::end`].
    pub fn serve(&self, mut sync: impl FnMut() -> bool) {
        let writes = &self.writes;
        loop {
            let mut state = writes.state.lock();
            while !state.is_emptying {
                if state.is_over {
                    return;
                }
                state = writes.changed.wait(state);
            }
            drop(state);
            let is_synced = sync();
            let mut state = writes.state.lock();
            // Whoever is slow to fill a place would write into another's.
            while state.being_filled[state.active ^ 1] > 0 {
                state = writes.changed.wait(state);
            }
            if is_synced {
                writes.empty(&self.region, state.active ^ 1);
            }
            state.is_emptying = false;
            state.has_failed = !is_synced;
            writes.changed.notify_all();
        }
    }

    /// Nothing is emptied any more.
    pub fn end(&self) {
        let mut state: MutexGuard<'_, State> = self.writes.state.lock();
        state.is_over = true;
        self.writes.changed.notify_all();
    }

    /// Forgets all that was written. Nobody uses the ledger meanwhile, and the device has it.
    pub fn forget_writes(&self) {
        // What is older must not be left alone: done again, it would come after what is newer.
        let mut halves = [0, 1];
        halves.sort_by_key(|half| self.writes.number(&self.region, *half));
        for half in halves {
            self.writes.empty(&self.region, half);
        }
    }
}

#[cfg(test)]
mod tests;
