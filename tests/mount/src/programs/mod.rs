//! Real programs on the mount.

pub mod cargo;
pub mod fio;
pub mod fsx;
pub mod git;
pub mod overlay;
pub mod postgres;
pub mod python;
pub mod sqlite;
pub mod tree;

use std::path::PathBuf;

use crate::check::Check;

/// Every check, the short ones first.
pub fn checks() -> Vec<Check> {
    [
        git::CHECKS,
        overlay::CHECKS,
        tree::CHECKS,
        sqlite::CHECKS,
        python::CHECKS,
        cargo::CHECKS,
        fio::CHECKS,
        postgres::CHECKS,
        fsx::CHECKS,
    ]
    .concat()
}

/// The project's own source, which serves as a tree to copy, clone and build.
pub fn workspace() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root.pop();
    root
}

/// A list of checks of one program, named after their functions.
macro_rules! programs {
    ($program:literal: $($function:ident),+ $(,)?) => {
        /// What this program must be able to do.
        pub const CHECKS: &[$crate::check::Check] = &[
            $($crate::check::Check {
                name: concat!("programs::", $program, "::", stringify!($function)),
                run: $crate::check::Body::Place($function),
                limit_seconds: 600,
            }),+
        ];
    };
}
pub(crate) use programs;
