//! What keeps an operation on the tree from going through.

use persimmon_format::PageId;
use thiserror::Error;

/// A page is needed that is not in memory. Fetch it, [`super::PageCache::insert_clean`] it, start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("metadata page {0} is not in memory")]
pub struct Missing(pub PageId);

/// Why an operation on the tree did not go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TreeError {
    /// A page must be fetched first.
    #[error("metadata page {0} is not in memory")]
    Missing(PageId),
    /// A page, well formed in itself, does not fit the tree at this place.
    #[error("metadata page {page} is damaged: {damage}")]
    Damaged {
        /// The page.
        page: PageId,
        /// What is wrong.
        damage: TreeDamage,
    },
    /// A value is longer than a page may hold, bytes.
    #[error("a value of {0} bytes is too long for the metadata tree")]
    ValueLength(usize),
}

/// How a page does not fit its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TreeDamage {
    /// Its level is not one below its parent's, or is too high for a root.
    #[error("its level is {0}")]
    Level(u8),
    /// It holds keys outside the range its parent gives it.
    #[error("its keys are outside its range")]
    Range,
    /// Two pages refer to it.
    #[error("it is referred to twice")]
    Shared,
    /// It says it is another page.
    #[error("it is page {0}")]
    Id(PageId),
    /// It was not in memory in the middle of a change: it has been freed under another page that
    /// refers to it too, or the change was made without [`super::tree::ensure_resident`].
    #[error("it went missing during a change")]
    Gone,
}

impl From<Missing> for TreeError {
    fn from(Missing(id): Missing) -> TreeError {
        TreeError::Missing(id)
    }
}
