//! The content of files: staged when written, taken to the device in batches of many files, read
//! back verified.
//!
//! [`files`] holds what is staged of each file, `write`, `read` and
//! `resize`, `shift` and `seek` are the calls from above, `growth` which staged blocks make a file longer, `truncations` what is left of long
//! ones to do later. `write_back` takes staged data to the device, `records` what the journal is told of that, `dedup` shares what is stored already,
//! `journal_inline` what an fsync inlines in its record, which is packed into blocks later; `deltas` are blocks of which little changed; `tails` are last blocks, in memory for who appends.

use persimmon_sync::{Arc, Mutex};
use std::collections::BTreeSet;

use persimmon_format::{Ino, SubvolumeId};

mod clone;
mod compress;
mod dedup;
mod deltas;
mod equal;
mod files;
mod growth;
mod journal_inline;
mod near;
mod quota;
mod read;
mod read_cache;
mod read_plan;
mod records;
mod resize;
mod rewrites;
mod seek;
mod shift;
mod single_blocks;
mod snapshot_fence;
mod staged;
mod stored;
mod sync;
mod tails;
mod truncations;
mod whole_clones;
mod write;
mod write_back;
mod zeroing;

use crate::error::{Error, Result};
use crate::history::History;
use crate::meta::{Intent, Transaction};
use crate::placement::Placement;
use crate::reclaim::{Demand, Reclaimer};
use crate::settling::Settler;
use crate::space::Space;
use crate::store::Store;
pub use clone::{CloneRange, CloneWhen, Cloned};
use dedup::Deduplication;
use files::Files;
pub use files::InoMap;
use journal_inline::Compressibility;
pub use quota::Admission;
use read_cache::ReadCache;
use rewrites::Rewrites;
pub use seek::Seek;
pub use shift::Shift;
use snapshot_fence::SnapshotFence;
pub use staged::WriteHint;
pub use stored::{StoredContent, StoredLook, StoredPiece};
use tails::Tails;
use truncations::Truncations;
pub use whole_clones::{Given, HeldSources, WholeClones};

/// The content of all files.
pub(crate) struct FileData {
    store: Arc<Store>,
    space: Arc<Space>,
    placement: Arc<Placement>,
    reclaimer: Arc<Reclaimer>,
    history: Arc<History>,
    settler: Arc<Settler>,
    files: Files,
    rewrites: Rewrites,
    truncations: Truncations,
    tails: Tails,
    read_cache: Option<ReadCache>,
    /// Blocks out of compressed frames, for reads that do not use the other one.
    frame_cache: Option<ReadCache>,
    compressibility: Compressibility,
    /// Whether little changes of synced blocks.
    similarity: Compressibility,
    dedup: Option<Deduplication>,
    snapshot_fence: SnapshotFence,
    /// Subvolumes that are about to come or to go, and those that are gone: nothing is staged of them.
    closed: Mutex<BTreeSet<SubvolumeId>>,
}

impl FileData {
    pub(super) fn new(
        store: &Arc<Store>,
        space: &Arc<Space>,
        placement: &Arc<Placement>,
        reclaimer: &Arc<Reclaimer>,
        history: &Arc<History>,
        settler: &Arc<Settler>,
    ) -> FileData {
        let (options, alarm) = (&store.options, &store.media.alarm);
        FileData {
            store: Arc::clone(store),
            space: Arc::clone(space),
            placement: Arc::clone(placement),
            reclaimer: Arc::clone(reclaimer),
            history: Arc::clone(history),
            settler: Arc::clone(settler),
            files: Files::new(store),
            rewrites: Rewrites::default(),
            truncations: Truncations::default(),
            tails: Tails::new(options.tails_bytes_max, alarm),
            read_cache: ReadCache::new(options.read_cache_bytes_max),
            frame_cache: ReadCache::new(options.frame_cache_bytes_max),
            compressibility: Compressibility::default(),
            similarity: Compressibility::default(),
            dedup: Deduplication::new(options, &store.identity.secret)
                .filter(|_| store.has_shared_blocks() && !options.read_only),
            snapshot_fence: SnapshotFence::default(),
            closed: Mutex::default(),
        }
    }

    /// Changes the metadata: one transaction, one redo record. The closure may run several times. A change that makes the tree larger is
    /// refused where there is no room for it.
    pub(crate) fn update<R, E: From<Error>>(
        &self,
        intent: Intent,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        while let Err(error) = self.history.prepare(intent) {
            if !(matches!(error, Error::NoSpace) && self.settler.settle_some()?) {
                return Err(error.into());
            }
        }
        let room = || self.space.has_metadata_room().then_some(());
        if intent == Intent::Grow && self.hold(room)?.is_none() {
            return Err(self.store.zones.no_space().into());
        }
        let (result, _) = self.history.enter(None, f)?;
        Ok(result)
    }

    /// Makes all transactions so far durable; staged file data is not forced.
    pub(crate) fn sync_metadata(&self) -> Result<()> {
        self.retry_rewrites()?;
        self.files.note_sync(None);
        self.history.commit(self.store.log.last_lsn())
    }

    /// Puts a file in the queue of those with something staged.
    fn enqueue(&self, ino: Ino) {
        self.files.enqueue(ino);
        self.store.activity.note();
    }

    /// Calls `hold` to reserve room. If there is none, it gives back reservations that are too large, then settles deleted snapshots, and
    /// calls `hold` again after each step.
    fn hold<R>(&self, hold: impl Fn() -> Option<R>) -> Result<Option<R>> {
        if let Some(held) = hold() {
            return Ok(Some(held));
        }
        if self.flush_reservations()?
            && let Some(held) = hold()
        {
            return Ok(Some(held));
        }
        while self.settler.settle_some()? {
            if let Some(held) = hold() {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// Writes back what is staged and writes dirty metadata pages, to give back the part of their reservations that they
    /// do not need. True if there was something to write: then the caller looks at the count again.
    fn flush_reservations(&self) -> Result<bool> {
        let mut worked = false;
        // Only what is staged now: other threads may go on writing for ever.
        let mut left = self.space.staged_blocks();
        while left > 0 && self.space.staged_blocks() > 0 {
            match self.write_back_queued()? {
                0 => {
                    worked |= self.placement.pack_ahead();
                    break;
                }
                written => left = left.saturating_sub(written),
            }
            worked = true;
        }
        if self.store.meta().cache.dirty() > 0 {
            self.reclaimer.serve(Demand::Checkpoint)?;
            worked = true;
        }
        Ok(worked)
    }

    /// Memory that hashes of blocks take.
    pub(crate) fn dedup_table_bytes(&self) -> usize {
        self.dedup.as_ref().map_or(0, Deduplication::bytes)
    }

    /// Last blocks of files kept in memory for who appends.
    pub(crate) fn tails(&self) -> &Tails {
        &self.tails
    }
}

/// Largest file offset, bytes: 8 EiB less one.
pub(crate) const OFFSET_MAX: u64 = i64::MAX as u64;

/// The block that holds a byte.
pub(crate) fn block_of(offset: u64) -> u64 {
    offset / persimmon_device::BLOCK_SIZE as u64
}

/// Blocks that hold `size` bytes.
pub(crate) fn blocks_in(size: u64) -> u64 {
    size.div_ceil(persimmon_device::BLOCK_SIZE as u64)
}
