//! POSIX conformance by operation and by error code: the table that all doors share ([`persimmon_posix_tests`]), and what
//! only the kernel's system calls can state, each file one subject, each function one statement.

pub mod acl;
pub mod allocate;
pub mod copy;
pub mod directory;
pub mod door;
pub mod errors;
pub mod expect;
pub mod handle;
pub mod io;
pub mod link;
pub mod lock;
pub mod map;
pub mod mode;
pub mod names;
pub mod node;
pub mod open;
pub mod owner;
pub mod readdir;
pub mod rename;
pub mod statfs;
pub mod sticky;
pub mod symlink;
pub mod times;
pub mod truncate;
pub mod unlink;
pub mod xattr;

use crate::check::{Body, Check};
use crate::volume::Kind;

/// What is known not to hold on a filesystem, and why. The run fails when one of these holds after all,
/// so the list says the truth; for Persimmon it is the list of docs/POSIX.md.
pub const DEVIATIONS: &[(Kind, &str, &str)] = &[
    (
        Kind::Ext4,
        "posix::sparse::the_last_byte_below_8_eib_can_be_written",
        "ext4 ends a file at 16 TiB",
    ),
    (
        Kind::Ext4,
        "posix::errors::setxattr E2BIG: an access control list of more than 511 entries",
        "ext4 takes such a list",
    ),
    (
        Kind::Ext4,
        "posix::acl::a_list_names_nobody_twice",
        "ext4 takes such a list",
    ),
    (
        Kind::Ext4,
        "posix::errors::setxattr EINVAL: a lifetime that does not exist",
        "ext4 knows of no lifetimes",
    ),
];

/// True when this check is known not to hold on this filesystem.
pub fn deviates(name: &str, kind: Kind) -> bool {
    DEVIATIONS
        .iter()
        .any(|(on, check, _)| *on == kind && *check == name)
}

/// Every check: the table, then what only this door can state, grouped by subject.
pub fn checks() -> Vec<Check> {
    let table = persimmon_posix_tests::statements().into_iter();
    let table = table.map(|statement| Check {
        name: statement.name,
        run: Body::Statement(statement.run),
        limit_seconds: 60,
    });
    let own = [
        open::CHECKS,
        io::CHECKS,
        directory::CHECKS,
        link::CHECKS,
        symlink::CHECKS,
        rename::CHECKS,
        unlink::CHECKS,
        mode::CHECKS,
        owner::CHECKS,
        truncate::CHECKS,
        times::CHECKS,
        node::CHECKS,
        sticky::CHECKS,
        xattr::CHECKS,
        acl::CHECKS,
        lock::CHECKS,
        map::CHECKS,
        allocate::CHECKS,
        copy::CHECKS,
        names::CHECKS,
        errors::CHECKS,
        handle::CHECKS,
        readdir::CHECKS,
        statfs::CHECKS,
    ];
    table.chain(own.concat()).collect()
}

/// A list of checks of one subject, named after their functions.
macro_rules! statements {
    ($subject:literal: $($function:ident),+ $(,)?) => {
        /// The statements of this subject.
        pub const CHECKS: &[$crate::check::Check] = &[
            $($crate::check::Check {
                name: concat!("posix::", $subject, "::", stringify!($function)),
                run: $crate::check::Body::Place($function),
                limit_seconds: 60,
            }),+
        ];
    };
}
pub(crate) use statements;
