//! What POSIX and Linux say of a filesystem: a table of named statements, each a function over a [`Door`]. The mount
//! tests hold the kernel's system calls to it, those of `persimmon-vfs` its operations without a kernel. What only one
//! door can state, such as permissions on paths, which the kernel checks, stands in the tests of that door.

mod acl;
mod allocate;
mod copy;
mod directory;
pub mod door;
pub mod errors;
pub mod expect;
mod flags;
mod io;
mod link;
mod lock;
mod mode;
mod names;
mod node;
mod open;
mod owner;
mod readdir;
mod rename;
mod seek;
mod sparse;
mod symlink;
mod sync;
mod times;
mod tmpfile;
mod truncate;
mod unlink;
mod xattr;

use anyhow::Result;

pub use acl::list_of;
pub use door::{Door, OpenFile};

/// Something that holds through every door. It begins in an empty directory of its own.
pub struct Statement<D> {
    /// `posix::SUBJECT::STATEMENT`.
    pub name: &'static str,
    /// An error tells what does not hold.
    pub run: fn(&D) -> Result<()>,
}

/// All of them, by subject.
#[must_use]
pub fn statements<D: Door>() -> Vec<Statement<D>> {
    [
        open::statements(),
        io::statements(),
        directory::statements(),
        link::statements(),
        symlink::statements(),
        rename::statements(),
        unlink::statements(),
        mode::statements(),
        owner::statements(),
        truncate::statements(),
        times::statements(),
        node::statements(),
        xattr::statements(),
        flags::statements(),
        acl::statements(),
        lock::statements(),
        allocate::statements(),
        seek::statements(),
        copy::statements(),
        tmpfile::statements(),
        names::statements(),
        errors::statements(),
        readdir::statements(),
        sparse::statements(),
        sync::statements(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The statements of one subject, named after their functions.
macro_rules! table {
    ($subject:literal: $($function:ident),+ $(,)?) => {
        pub fn statements<D: $crate::Door>() -> Vec<$crate::Statement<D>> {
            vec![$($crate::Statement {
                name: concat!("posix::", $subject, "::", stringify!($function)),
                run: |door| $function(door),
            }),+]
        }
    };
}
use table;
