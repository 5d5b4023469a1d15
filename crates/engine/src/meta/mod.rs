//! Metadata: one B+tree over logical pages, kept in a copy-on-write page cache.
//!
//! [`page`] is a node and its bytes, [`cache`] the nodes in memory, [`tree`] the operations,
//! `versions` which item of those at one place a subvolume shows, `extents` the ranges of files on top of them, `mapping` their changes,
//! `deltas` blocks that are differences to what is stored,
//! `sharing` and `references` blocks that files have in common, `changes` what a version changed of older inodes, `settle` what of a version
//! nothing shows any more, `apply` what a redo record does, `transaction` how records come about, `quota` what owners take, `journal_inline` what records have inline and waits to be packed, `numbers` those of inodes, `mat` where pages are on the device. None of
//! them does I/O: what is not in memory is reported as missing, the caller fetches it by `store`, without holding a lock, and
//! starts again.

pub(crate) mod apply;
pub mod cache;
pub(crate) mod changes;
pub(crate) mod deltas;
mod error;
pub(crate) mod extents;
pub(crate) mod journal_inline;
pub(crate) mod mapping;
pub(crate) mod mat;
pub(crate) mod numbers;
pub mod page;
pub(crate) mod quota;
pub(crate) mod references;
pub(crate) mod settle;
pub(crate) mod sharing;
pub(crate) mod store;
pub(crate) mod transaction;
pub mod tree;
pub(crate) mod versions;

use persimmon_format::quota::QuotaState;
use persimmon_format::{Key, Lsn, PageId};
use persimmon_sync::Alarm;

pub use cache::PageCache;
pub use error::{Missing, TreeError};
pub use page::{Page, PageError};
pub(crate) use transaction::Place;
pub use transaction::{Intent, Transaction, View};

use crate::error::Error;
use journal_inline::JournalInline;
use mat::Mat;
use numbers::Numbers;
use versions::Versions;

/// The metadata of a volume, behind one lock: one writer or many readers, no I/O inside.
pub(crate) struct Meta {
    pub(crate) cache: PageCache,
    pub(crate) root: PageId,
    pub(crate) mat: Mat,
    pub(crate) numbers: Numbers,
    pub(crate) versions: Versions,
    /// Whether what owners take is counted.
    pub(crate) quota: QuotaState,
    /// Inodes there are.
    pub(crate) inodes: u64,
    /// Blocks set aside by preallocation.
    pub(crate) reserved_blocks: u64,
    /// Blocks of the store of shared blocks that files name, or ever named, are below this.
    pub(crate) shared_end: u64,
    /// Whether shared blocks of compressed frames count their part of what those take.
    pub(crate) has_shared_frames: bool,
    /// The sectors of inodes count what extended attributes take.
    pub(crate) counts_xattrs: bool,
    /// Deltas that files have, in all versions.
    pub(crate) deltas: u64,
    /// Compressed blocks in the tree that are still to be packed.
    pub(crate) journal_inline: JournalInline,
    /// The last record of a change that was made since the volume was opened.
    pub(crate) last_record: Lsn,
    pub(crate) alarm: Alarm,
}

impl Meta {
    /// A state that cannot be raises this alarm.
    pub(crate) fn watch(&mut self, alarm: &Alarm) {
        self.cache.watch(alarm);
        self.mat.watch(alarm);
        self.journal_inline.watch(alarm);
        self.alarm = alarm.clone();
    }

    /// Puts an item under this very key.
    pub(crate) fn insert_stored(&mut self, key: &Key, value: &[u8]) -> bool {
        tree::insert(&mut self.cache, &mut self.root, key, value)
    }

    /// Removes the item under this very key.
    pub(crate) fn remove_stored(&mut self, key: &Key) -> bool {
        tree::remove(&mut self.cache, &mut self.root, key)
    }

    pub(crate) fn is_in_dirty_leaf(&self, key: &Key) -> Result<bool, TreeError> {
        tree::is_in_dirty_leaf(&self.cache, self.root, key)
    }
}

impl From<TreeError> for Error {
    fn from(error: TreeError) -> Error {
        match error {
            TreeError::Missing(page) => Error::PageMissing(page),
            other => Error::Inconsistent(other.to_string()),
        }
    }
}
