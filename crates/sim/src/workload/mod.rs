//! Random operation sequences over few names, so that they meet each other.

mod op;

pub use op::{Allocate, Durability, Op, Rename, Step, bytes_of};
