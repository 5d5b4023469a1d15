//! Metadata: one B+tree over logical pages, kept in a copy-on-write page cache.
//!
//! [`page`] is a node and its bytes, [`cache`] the nodes in memory, [`tree`] the operations. None
//! of them does I/O: what is not in memory is reported as missing, the caller fetches it without
//! holding a lock and starts again.

pub mod cache;
pub mod page;
pub mod tree;

pub use cache::{Missing, PageCache};
pub use page::{Page, PageError};
pub use tree::TreeError;
