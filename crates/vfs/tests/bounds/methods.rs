//! Whether the tables name every method of the vfs.

use std::collections::BTreeSet;
use std::fs;

use crate::dimensions::DIMENSIONS;

/// Methods that look at nothing of which there can be much, and why.
const NOT_MEASURED: &[(&str, &str)] = &[
    ("new", "makes an empty one"),
    ("volume", "a reference"),
    ("options", "a reference"),
    ("is_read_only", "two flags"),
    ("hold_back", "sorts what it is given, once in an opening"),
    ("held_back", "a reference"),
    ("admit_later", "the first part of `write`"),
    ("write_promised", "is `write`, with room set aside before"),
    (
        "set_project",
        "changes one inode, as `set_inode_flags` does",
    ),
    (
        "set_project_below",
        "looks at all that is in a tree, some entries of a directory at a time",
    ),
    ("subvolume", "an option"),
    ("root", "an option"),
    ("trim", "looks at the zones, not at files"),
    ("begin_freezing", "is `sync`, and a checkpoint"),
    ("comes_to_rest", "waits for resets that are under way"),
    ("is_frozen", "a flag"),
    ("flush_frozen", "a flush of the device"),
    ("thaw", "a flag"),
    ("trim_range", "is `trim`, and looks at the zones"),
    (
        "fsync_all",
        "is `fsync` of as many files as there are callers",
    ),
    (
        "clone_entries",
        "looks at some entries of a directory, and makes as many inodes",
    ),
    ("rename_leaving_whiteout", "is `rename`, and makes an inode"),
    (
        "pack_near",
        "looks at 16 MiB of two files at most, as `share_equal` does",
    ),
    ("record", "writes what waits in the log, as any sync does"),
    ("record_all", "is `sync` without a flush of the device"),
    ("keep_by", "a reference, once in an opening"),
    ("keeping", "asks for two numbers, and does what it is given"),
    (
        "adopt",
        "keeps the inodes that it is given, once in an opening",
    ),
    (
        "reopen",
        "opens the files that it is given, once in an opening",
    ),
];

/// A new request is measured too, or it is said here why not.
#[test]
fn every_public_method_is_in_a_table() {
    let mut methods = BTreeSet::new();
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let mut in_vfs = false;
        for line in text.lines() {
            if line.starts_with("impl") {
                in_vfs = line == "impl Vfs {";
            }
            let method = line.strip_prefix("    pub fn ").filter(|_| in_vfs);
            if let Some((name, _)) = method.and_then(|rest| rest.split_once(['(', '<'])) {
                methods.insert(name.to_owned());
            }
        }
    }
    assert!(methods.len() > 40, "{methods:?}");
    let requests = DIMENSIONS.iter().flat_map(|dimension| dimension.requests);
    // What follows a colon tells uses of one method apart.
    let requests = requests.map(|request| request.name.split(':').next().unwrap_or_default());
    let others = NOT_MEASURED.iter().map(|(name, _)| *name);
    let known: BTreeSet<String> = requests.chain(others).map(str::to_owned).collect();
    assert_eq!(methods, known);
}
