//! Open files: each at the place of its handle.

use std::sync::atomic::Ordering;

use persimmon_vfs::{Handle, Ino};

use super::region::WORD;
use super::{AT_FILES, AT_HIGHEST_PLACE, AT_NEWEST_HANDLE, Ledger};
use crate::protocol::Header;

/// Handles that there is a place for.
const FILES_MAX: usize = 1 << 20;
/// Handle, inode, request, flags of both kinds, user and group.
const WORDS: usize = 5;
pub const BYTES: usize = FILES_MAX * WORDS * WORD;

/// A bit beside the kernel's own flags, of which there is one: whoever has it open is to hear that something is lost.
const LOST: u32 = 1 << 31;

/// A file that is open, and how it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFile {
    /// Its number.
    pub handle: Handle,
    /// What it opens.
    pub ino: Ino,
    /// The flags of `open(2)`.
    pub flags: u32,
    /// The kernel's own.
    pub kills: u32,
    /// Who opened it.
    pub uid: u32,
    /// Their group.
    pub gid: u32,
    /// The request that it was opened by.
    pub request: u64,
    /// Something that was written to it and answered is lost, and nobody has heard of it by this handle.
    pub lost: bool,
}

/// The lower and the upper half of a word.
fn both(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn at_place(number: usize) -> Option<usize> {
    (number > 0 && number < FILES_MAX).then_some(AT_FILES + number * WORDS * WORD)
}

impl Ledger {
    /// A file was opened by a request. False where there is no place for it: it cannot be.
    #[must_use]
    pub fn opened(&self, header: &Header, ino: Ino, handle: Handle, how: (u32, u32)) -> bool {
        let Some(at) = at_place(handle.place()) else {
            return false;
        };
        let highest = self.region.word(AT_HIGHEST_PLACE);
        let place = handle.place() as u64;
        if highest.load(Ordering::Relaxed) < place {
            highest.fetch_max(place, Ordering::Release);
        }
        // Later ones are greater: the count is in the upper bits.
        let newest = self.region.word(AT_NEWEST_HANDLE);
        newest.fetch_max(handle.0, Ordering::Release);
        let word = |number: usize| self.region.word(at + number * WORD);
        word(1).store(ino.0, Ordering::Relaxed);
        word(2).store(header.request(), Ordering::Relaxed);
        word(3).store(both(how.0, how.1 & !LOST), Ordering::Relaxed);
        word(4).store(both(header.uid, header.gid), Ordering::Relaxed);
        // With the handle it is there.
        word(0).store(handle.0, Ordering::Release);
        true
    }

    /// It was closed. Of one that was closed before, whose place another has, it takes nothing.
    pub fn released(&self, handle: Handle) {
        if let Some(at) = at_place(handle.place()) {
            let there = self.region.word(at);
            let _ = there.compare_exchange(handle.0, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Something that was written to the file is lost, and whoever has it open by this handle is to hear of it, or has heard.
    pub fn note_lost(&self, handle: Handle, lost: bool) {
        let Some(at) = at_place(handle.place()) else {
            return;
        };
        // Nobody opens or releases it meanwhile: it is being opened, synced, or nothing is served yet.
        if self.region.word(at).load(Ordering::Acquire) == handle.0 {
            let how = self.region.word(at + 3 * WORD);
            let bit = both(0, LOST);
            match lost {
                true => how.fetch_or(bit, Ordering::Release),
                false => how.fetch_and(!bit, Ordering::Release),
            };
        }
    }

    /// The last that was opened; no later one may have its number.
    pub fn newest_handle(&self) -> Handle {
        Handle(self.region.word(AT_NEWEST_HANDLE).load(Ordering::Acquire))
    }

    fn file(&self, number: usize) -> Option<OpenFile> {
        let at = at_place(number)?;
        let [handle, ino, request, how, who] =
            [0, 1, 2, 3, 4].map(|word| self.region.word(at + word * WORD).load(Ordering::Acquire));
        let ((flags, kills), (uid, gid)) = (halves(how), halves(who));
        (handle != 0).then_some(OpenFile {
            handle: Handle(handle),
            ino: Ino(ino),
            flags,
            kills: kills & !LOST,
            uid,
            gid,
            request,
            lost: kills & LOST != 0,
        })
    }

    /// All files that are open. Looks at all places that were ever taken: those behind them take no memory.
    pub fn files(&self) -> Vec<OpenFile> {
        let highest = self.region.word(AT_HIGHEST_PLACE).load(Ordering::Acquire);
        (1..=highest as usize)
            .filter_map(|number| self.file(number))
            .collect()
    }
}
