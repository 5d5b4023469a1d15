//! How often the content of files may have changed. A reader proves with it that what it keeps in memory is current.

use persimmon_sync::atomic::{AtomicU64, Ordering};

use persimmon_format::Ino;

use crate::faults::{Fault, fault};

/// Files share counts of changes, by number: a power of two.
const COUNTS: usize = 1024;

/// A file's count of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Changes(u64);

impl Changes {
    /// The count above this many bits that hold another number; `None` where it has too many itself.
    pub(crate) fn packed(self, lower: u64, bits: u32) -> Option<u64> {
        let shifted = self.0.checked_shl(bits)?;
        (shifted >> bits == self.0 && lower >> bits == 0).then_some(shifted | lower)
    }
}

/// Times that size or content of a file may have changed.
pub(crate) struct ChangeCounts(Box<[AtomicU64]>);

impl Default for ChangeCounts {
    fn default() -> Self {
        ChangeCounts((0..COUNTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl ChangeCounts {
    fn count(&self, ino: Ino) -> Option<&AtomicU64> {
        self.0.get(ino.0 as usize % COUNTS)
    }

    /// The count of changes of a file. A reader asks for it first, then reads by the tree, and finds nothing staged of the file
    /// meanwhile: size and content are what it read for as long as the count stays the same.
    ///
    /// What is staged changes only while the file is in the table of staged files, and the tree only in [`note`](Self::note)'s callers:
    /// both count before anybody can see the change.
    pub(crate) fn of(&self, ino: Ino) -> Changes {
        Changes(
            self.count(ino)
                .map_or(0, |count| count.load(Ordering::SeqCst)),
        )
    }

    /// The file is about to change. Call it under the lock without which nobody sees the change.
    pub(crate) fn note(&self, ino: Ino) {
        if let Some(count) = self.count(ino).filter(|_| !fault(Fault::ChangeNotCounted)) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
}
