//! Changing attributes.

use persimmon_vfs::{FILE_SIZE_MAX, Handle, SetAttr, SetTime, Timestamp};

use crate::fixture::{Fixture, user};

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

#[test]
fn times_can_be_set_left_and_taken_from_the_clock() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"x");
    let before = fs.at("f");
    let time = Timestamp {
        seconds: -5,
        nanoseconds: 999_999_999,
    };
    let set = SetAttr {
        atime: Some(SetTime::At(time)),
        ..SetAttr::default()
    };
    let after = fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    assert_eq!((after.atime, after.mtime), (time, before.mtime));
    assert!(after.ctime > before.ctime);
    let set = SetAttr {
        mtime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    let now = fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    assert_eq!((now.atime, now.mtime), (time, now.ctime));
    assert!(now.mtime > before.mtime);
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
fn the_size_grows_with_zeros_and_shrinks() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"hello");
    let before = fs.at("f");
    assert_eq!(fs.truncate(ino, 8).size, 8);
    assert_eq!(fs.content(ino), b"hello\0\0\0");
    let after = fs.truncate(ino, 2);
    assert_eq!(after.size, 2);
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    fs.truncate(ino, 6);
    assert_eq!(
        fs.content(ino),
        b"he\0\0\0\0",
        "what was cut off stays gone"
    );
    assert_eq!(fs.truncate(ino, FILE_SIZE_MAX).size, FILE_SIZE_MAX);
    assert_eq!(fs.truncate(ino, 0).blocks, 0);
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

#[test]
fn owner_and_group_change() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let set = SetAttr {
        uid: Some(7),
        gid: Some(8),
        ..SetAttr::default()
    };
    let attr = fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    assert_eq!((attr.uid, attr.gid), (7, 8));
}

#[test]
fn access_follows_owner_group_and_other() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let set = SetAttr {
        mode: Some(0o640),
        uid: Some(7),
        gid: Some(8),
        ..SetAttr::default()
    };
    fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
    let may = |uid, gid, mask| fs.vfs.access(&user(uid, gid), ino, mask).is_ok();
    assert!(may(7, 1, 6) && !may(7, 1, 1));
    assert!(may(9, 8, 4) && !may(9, 8, 2));
    assert!(!may(9, 9, 4) && may(9, 9, 0));
    assert!(may(0, 0, 6) && !may(0, 0, 1));
    fs.chmod(ino, 0o077);
    assert!(!may(7, 8, 4), "the owner's bits alone count for the owner");
}

#[test]
fn attributes_through_a_handle_are_those_of_the_inode() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"abc");
    let handle = fs.open(ino);
    fs.unlink("f");
    let attr = fs.vfs.getattr(ino).unwrap();
    assert_eq!((attr.nlink, attr.size), (0, 3));
    fs.vfs.release(ino, handle).unwrap();
}
