//! The C library. `include/persimmon.h` is what C sees of it; a test holds the two together.
//!
//! **Conventions.** A function that can fail returns 0, or an error number of `<errno.h>`; [`persimmon_error_message`] then
//! tells the reason in words, for the calling thread, until its next call. Paths are bytes that end with a zero byte, from the root of the
//! volume. Objects are made by one function and given back by one other; `NULL` may be given back. All functions may be
//! called by any number of threads at once, but for those that give an object back, which must be the last to use it.
//! A directory that is listed, and a read under way, belong to one thread at a time.
//!
//! **A child of `fork`** cannot use what its parent opened: such a call answers `EBADF` and touches nothing, and a function that gives an
//! object back leaves it in memory.
//!
//! **Structures that may grow** begin with their size as the caller knows it, so that a program that was built with an older
//! header goes on to work: fields behind that size have their defaults. Fields of a newer header are refused unless they are zero.
//!
//! **Panics** never cross into C: such a call answers `EIO`, the message says that it is a bug, and the volume takes no
//! more changes where half a change may be in memory.

#![allow(
    unsafe_code,
    reason = "the edge to C: each use says what the caller promises"
)]
#![allow(non_camel_case_types, reason = "names of C")]

mod attributes;
mod call;
mod dir;
mod file;
mod filesystem;
mod log;
mod maintenance;
mod names;
mod process;
mod quota;
mod read;
mod streams;
#[cfg(test)]
mod tests;
mod types;

pub use attributes::*;
pub use call::persimmon_error_message;
pub use dir::*;
pub use file::*;
pub use filesystem::*;
pub use log::*;
pub use maintenance::*;
pub use names::*;
pub use quota::*;
pub use read::*;
pub use streams::*;
pub use types::*;
