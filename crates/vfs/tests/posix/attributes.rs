//! Changing attributes.

use persimmon_vfs::{Handle, SetAttr, SetTime, Timestamp};

use crate::fixture::Fixture;

#[test]
fn chmod_changes_permissions_alone() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"x");
    let before = fs.at("f");
    let after = fs.chmod(ino, libc::S_IFDIR | 0o7777);
    assert_eq!(after.mode, libc::S_IFREG | 0o7777, "the type stays");
    assert_eq!((after.mtime, after.size), (before.mtime, before.size));
    assert!(after.ctime > before.ctime);
}

/// The time of a write that is not in the history yet must neither undo a time set after it nor
/// be lost when only the other time is set.
#[test]
fn a_time_set_after_a_write_stays() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"x");
    fs.write(ino, 0, b"y");
    let written = fs.at("f").mtime;
    let past = Timestamp {
        seconds: 1,
        nanoseconds: 0,
    };
    let set = SetAttr {
        atime: Some(SetTime::At(past)),
        ..SetAttr::default()
    };
    assert_eq!(
        fs.vfs.setattr(ino, Handle::NONE, &set).unwrap().mtime,
        written
    );
    fs.write(ino, 0, b"z");
    let set = SetAttr {
        mtime: Some(SetTime::At(past)),
        ..SetAttr::default()
    };
    fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    fs.vfs.sync().unwrap();
    let attr = fs.at("f");
    assert_eq!((attr.mtime, attr.atime), (past, past));
}

#[test]
fn ftruncate_goes_by_its_handle() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"hello");
    let handle = fs.open(ino);
    fs.chmod(ino, 0);
    let set = SetAttr {
        size: Some(1),
        ..SetAttr::default()
    };
    assert_eq!(fs.vfs.setattr(ino, handle, &set).unwrap().size, 1);
}
