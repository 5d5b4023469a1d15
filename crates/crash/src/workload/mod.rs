//! Operation sequences over few names, so that they meet each other: random ones, and every short
//! one.

mod generate;
mod op;
mod sequences;
mod vocabulary;

pub use generate::{Generator, Mix};
pub(crate) use op::compresses;
pub use op::{Allocate, Durability, Op, Rename, Step, bytes_of};
pub use sequences::{Sequence, Sequences, Setup};
