//! The log: a chain of zones with journal blocks and checkpoint footers, found through write
//! pointers alone. [`writer`] buffers and commits, `cut` has their blocks, `append` sends them, [`scan`] finds
//! its zones and [`blocks`] reads them, `chain` tells which of them are the log, `footers` which checkpoint is the newest, [`start`] which it
//! begins with, `replay` makes records of blocks.

mod append;
pub(crate) mod blocks;
mod chain;
mod cut;
mod footers;
pub(crate) mod replay;
pub(crate) mod scan;
pub(crate) mod start;
#[cfg(test)]
mod tests;
pub(crate) mod writer;
pub(crate) mod zone;

pub(crate) use append::LogHead;
pub(crate) use writer::{Log, LogCut};
