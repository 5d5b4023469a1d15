//! Random operation sequences over few names, so that they meet each other.

mod generate;
mod op;

pub use generate::{Generator, Mix};
pub use op::{Allocate, Durability, Op, Rename, Step, bytes_of};
