//! Every error an operation can answer without the volume being full or broken, one row each. The
//! tables of docs/POSIX.md list the same rows.

use std::collections::BTreeSet;

use persimmon_vfs::{
    Allocate, Error, Handle, Options, ROOT, RenameMode, Result, WriteFlags, XattrMode,
};

use crate::error_rows::{all_rows, size, tree};
use crate::fixture::{Fixture, READ_WRITE};

/// As `errno(1)` prints it.
fn errno_name(errno: i32) -> &'static str {
    match errno {
        libc::ENOENT => "ENOENT",
        libc::ESTALE => "ESTALE",
        libc::EEXIST => "EEXIST",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::EINVAL => "EINVAL",
        libc::EPERM => "EPERM",
        libc::EACCES => "EACCES",
        libc::EMLINK => "EMLINK",
        libc::ENOSPC => "ENOSPC",
        libc::EFBIG => "EFBIG",
        libc::EROFS => "EROFS",
        libc::ENODATA => "ENODATA",
        libc::E2BIG => "E2BIG",
        libc::ERANGE => "ERANGE",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ENXIO => "ENXIO",
        libc::EBADF => "EBADF",
        libc::ENFILE => "ENFILE",
        libc::ELOOP => "ELOOP",
        libc::EAGAIN => "EAGAIN",
        libc::EDEADLK => "EDEADLK",
        libc::ENOLCK => "ENOLCK",
        libc::EIO => "EIO",
        _ => "another",
    }
}

#[test]
fn every_row_answers_its_error_and_changes_nothing() {
    let mut wrong = Vec::new();
    for row in all_rows() {
        let fs = tree();
        let name = format!("{} {}: {}", row.operation, row.errno, row.when);
        match (row.run)(&fs) {
            Ok(()) => wrong.push(format!("{name}: succeeded")),
            Err(error) if errno_name(error.errno()) != row.errno => {
                wrong.push(format!("{name}: {error}"));
            }
            Err(_) => {}
        }
        assert_eq!(fs.names("d"), ["sub", "x"], "{name} left d changed");
        assert!(!fs.exists("n"), "{name} made a name");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// docs/POSIX.md promises these rows: one line `| operation | error | when |` each.
#[test]
fn the_document_lists_the_same_rows() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/POSIX.md");
    let document = std::fs::read_to_string(path).unwrap();
    let written: BTreeSet<String> = document
        .lines()
        .filter(|line| line.starts_with("| `") && line.contains("` | `E"))
        .map(str::to_owned)
        .collect();
    let tested: BTreeSet<String> = all_rows()
        .iter()
        .map(|row| format!("| `{}` | `{}` | {} |", row.operation, row.errno, row.when))
        .collect();
    let missing: Vec<_> = tested.difference(&written).collect();
    let untested: Vec<_> = written.difference(&tested).collect();
    assert!(missing.is_empty(), "not in docs/POSIX.md: {missing:#?}");
    assert!(untested.is_empty(), "in docs/POSIX.md only: {untested:#?}");
}

#[test]
fn a_read_only_filesystem_refuses_every_change() {
    let fs = Fixture::new(Options {
        read_only: true,
        ..Options::default()
    });
    let vfs = &fs.vfs;
    let root = &fs.root;
    let refused: Vec<(&str, Result<()>)> = vec![
        ("mknod", vfs.mknod(root, ROOT, b"n", 0o644, 0).map(drop)),
        ("mkdir", vfs.mkdir(root, ROOT, b"n", 0o755).map(drop)),
        ("symlink", vfs.symlink(root, ROOT, b"n", b"t").map(drop)),
        (
            "create",
            vfs.create(root, ROOT, b"n", 0o644, READ_WRITE).map(drop),
        ),
        (
            "tmpfile",
            vfs.tmpfile(root, ROOT, 0o600, READ_WRITE).map(drop),
        ),
        ("link", vfs.link(ROOT, ROOT, b"n").map(drop)),
        ("unlink", vfs.unlink(ROOT, b"n")),
        ("rmdir", vfs.rmdir(ROOT, b"n")),
        (
            "rename",
            vfs.rename(ROOT, b"a", ROOT, b"b", RenameMode::Replace),
        ),
        (
            "setattr",
            vfs.setattr(ROOT, Handle::NONE, &size(0)).map(drop),
        ),
        (
            "setxattr",
            vfs.setxattr(root, ROOT, b"user.a", b"", XattrMode::Either),
        ),
        ("removexattr", vfs.removexattr(ROOT, b"user.a")),
        ("open", vfs.open(ROOT, READ_WRITE).map(drop)),
        (
            "write",
            vfs.write(ROOT, Handle::NONE, 0, b"x", WriteFlags::default())
                .map(drop),
        ),
        (
            "fallocate",
            vfs.fallocate(ROOT, Handle::NONE, 0, 1, Allocate::Punch),
        ),
    ];
    for (operation, result) in refused {
        assert!(matches!(result, Err(Error::ReadOnly)), "{operation}");
    }
    vfs.getattr(ROOT).unwrap();
    vfs.sync().unwrap();
}
