//! The log: a chain of zones with journal blocks and checkpoint footers, found through write
//! pointers alone. [`writer`] buffers and commits, `append` sends blocks, [`scan`] finds and reads,
//! `chain` tells what of that is the log, `footers` which checkpoint is the newest, [`base`] which it
//! begins with, `replay` makes records of blocks.

mod append;
pub(crate) mod base;
mod chain;
mod footers;
pub(crate) mod replay;
pub(crate) mod scan;
pub(crate) mod writer;

pub(crate) use append::Head;
pub(crate) use writer::{Cut, Log};
