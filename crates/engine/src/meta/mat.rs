//! The Metadata Allocation Table in memory: page id to address, as of the newest checkpoint.
//! Only a checkpoint changes it.

use persimmon_format::table::MatEntry;
use persimmon_format::{Addr, PageId};
use persimmon_sync::Alarm;

use crate::invariant::{invariant_holds, invariant_sub};
use crate::zones::Written;

/// The table and which of its chunks changed since they were written.
pub(crate) struct Mat {
    entries: Vec<MatEntry>,
    written: Written,
    /// Where each chunk is; [`Addr::ZERO`] for one never written.
    chunks: Vec<Addr>,
    changed: Vec<bool>,
    alarm: Alarm,
}

impl Mat {
    /// A state that cannot be raises this alarm.
    pub(super) fn watch(&mut self, alarm: &Alarm) {
        self.alarm = alarm.clone();
    }

    /// A table as read: entries of whole chunks, and where the chunks are.
    pub(crate) fn new(mut entries: Vec<MatEntry>, chunks: Vec<Addr>) -> Mat {
        entries.resize(chunks.len() * MatEntry::PER_CHUNK, MatEntry::NONE);
        let changed = vec![false; chunks.len()];
        let mut written = Written::default();
        entries.iter().for_each(|entry| written.count(entry));
        Mat {
            entries,
            written,
            chunks,
            changed,
            alarm: Alarm::default(),
        }
    }

    /// Ids that the table has room for are below this.
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Where a page is, if it ever was written.
    pub(crate) fn get(&self, id: PageId) -> Option<MatEntry> {
        self.entries
            .get(usize::try_from(id.0).ok()?)
            .copied()
            .filter(MatEntry::is_used)
    }

    /// Changes an entry and returns the one before.
    pub(crate) fn set(&mut self, id: PageId, entry: MatEntry) -> MatEntry {
        let at = id.0 as usize;
        if at >= self.entries.len() {
            let chunks = at / MatEntry::PER_CHUNK + 1;
            self.entries
                .resize(chunks * MatEntry::PER_CHUNK, MatEntry::NONE);
            self.chunks.resize(chunks, Addr::ZERO);
            self.changed.resize(chunks, false);
        }
        self.changed[at / MatEntry::PER_CHUNK] = true;
        let before = std::mem::replace(&mut self.entries[at], entry);
        let (pages, blocks) = (u64::from(before.is_used()), u64::from(before.blocks));
        invariant_sub!(self.alarm, self.written.pages, pages, "pages on the device");
        invariant_sub!(
            self.alarm,
            self.written.blocks,
            blocks,
            "blocks of pages on the device"
        );
        self.written.count(&entry);
        before
    }

    /// What the pages take where the table says they are.
    pub(crate) fn written(&self) -> Written {
        self.written
    }

    /// Chunks that must be written.
    pub(crate) fn changed_chunks(&self) -> Vec<usize> {
        self.changed
            .iter()
            .enumerate()
            .filter(|(_, c)| **c)
            .map(|(i, _)| i)
            .collect()
    }

    /// Makes the next checkpoint write this chunk again.
    pub(crate) fn touch_chunk(&mut self, chunk: usize) {
        if let Some(changed) = self.changed.get_mut(chunk) {
            *changed = true;
        }
    }

    /// The payload of a chunk.
    pub(crate) fn encode_chunk(&self, chunk: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(MatEntry::PER_CHUNK * MatEntry::LEN);
        let start = chunk * MatEntry::PER_CHUNK;
        for entry in self.entries.iter().skip(start).take(MatEntry::PER_CHUNK) {
            entry.encode(&mut out);
        }
        out
    }

    /// A chunk was written at `addr`; returns where it was before.
    pub(crate) fn moved_chunk(&mut self, chunk: usize, addr: Addr) -> Addr {
        invariant_holds!(
            self.alarm,
            self.changed.get(chunk) == Some(&true),
            "chunk {chunk} of the page table was written, and is not marked as changed"
        );
        self.changed[chunk] = false;
        std::mem::replace(&mut self.chunks[chunk], addr)
    }

    /// Where each chunk is.
    pub(crate) fn chunks(&self) -> &[Addr] {
        &self.chunks
    }

    /// Ids of the pages that lie in blocks for which `inside` says so.
    pub(crate) fn pages_at(&self, inside: impl Fn(Addr) -> bool) -> Vec<PageId> {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, e)| e.is_used() && inside(e.addr))
            .map(|(i, _)| PageId(i as u64))
            .collect()
    }
}
