//! The log: a chain of zones with journal blocks and checkpoint footers, found through write
//! pointers alone. [`writer`] appends, [`scan`] finds and reads, `replay` makes records of blocks.

pub(crate) mod replay;
pub(crate) mod scan;
pub(crate) mod writer;

pub(crate) use writer::{InFlight, Log};
