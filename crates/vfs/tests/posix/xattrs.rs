//! Extended attributes.

use persimmon_engine::Intent;
use persimmon_vfs::{Error, Ino, ROOT, XattrMode};

use crate::fixture::{Fixture, user};

#[test]
fn trusted_attributes_are_listed_to_root_alone() {
    let fs = Fixture::default();
    fs.vfs
        .setxattr(&fs.root, ROOT, b"trusted.t", b"1", XattrMode::Either)
        .unwrap();
    assert_eq!(fs.vfs.listxattr(&fs.root, ROOT).unwrap(), b"trusted.t\0");
    assert_eq!(fs.vfs.listxattr(&user(1, 1), ROOT).unwrap(), b"");
}

/// A name of 200 bytes, which takes 201 of what all may take.
fn long(n: usize) -> Vec<u8> {
    format!("user.{n:0>195}").into_bytes()
}

/// As many attributes with long names as there may be.
fn fill(fs: &Fixture, ino: Ino) -> usize {
    (0..)
        .find(|n| {
            let set = fs
                .vfs
                .setxattr(&fs.root, ino, &long(*n), b"value", XattrMode::Create);
            match set {
                Ok(()) => false,
                Err(Error::NoSpace) => true,
                Err(error) => panic!("{error}"),
            }
        })
        .unwrap()
}

/// Any number could be set, but no system call lists more than 64 KiB of names: a file with 60,000 attributes, made by any
/// user in ten seconds, could not be listed by anybody and kept the daemon busy for a minute and a half each time.
#[test]
fn all_attributes_that_can_be_set_can_be_listed() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    assert_eq!(fill(&fs, ino), 65_512 / 201);
    let lifetime = b"user.persimmon.lifetime";
    let set = |name: &[u8], value: &[u8], mode| fs.vfs.setxattr(&fs.root, ino, name, value, mode);
    set(lifetime, b"short", XattrMode::Either).unwrap();
    let names = fs.vfs.listxattr(&fs.root, ino).unwrap();
    assert_eq!(names.len(), 65_512 / 201 * 201 + lifetime.len() + 1);
    // What is there may have another value; what goes leaves room.
    set(&long(3), b"another", XattrMode::Replace).unwrap();
    fs.vfs.removexattr(ino, &long(5)).unwrap();
    set(&long(1000), b"new", XattrMode::Create).unwrap();
    let refused = set(&long(1001), b"new", XattrMode::Create);
    assert!(matches!(refused, Err(Error::NoSpace)));
    // The count of them is in the history as they are.
    let fs = fs.remount();
    let refused = fs
        .vfs
        .setxattr(&fs.root, ino, &long(1001), b"new", XattrMode::Create);
    assert!(matches!(refused, Err(Error::NoSpace)));
}

/// A volume that an earlier version has written, or somebody else, may have more.
#[test]
fn of_more_attributes_than_can_be_listed_each_can_be_removed() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let full = fill(&fs, ino);
    fs.vfs
        .volume()
        .update::<(), persimmon_engine::Error>(Intent::Grow, |tx| {
            let mut inode = tx.inode(ino)?.unwrap();
            inode.xattr_names = 100;
            tx.put_inode(ino, &inode);
            Ok(())
        })
        .unwrap();
    let set = |n| {
        let mode = XattrMode::Create;
        fs.vfs.setxattr(&fs.root, ino, &long(n), b"value", mode)
    };
    for n in full..full + 10 {
        set(n).unwrap();
    }
    let listed = fs.vfs.listxattr(&fs.root, ino);
    assert!(matches!(listed, Err(Error::ListTooLong)));
    assert_eq!(Error::ListTooLong.errno(), libc::E2BIG);
    for n in 0..full {
        fs.vfs.removexattr(ino, &long(n)).unwrap();
    }
    assert_eq!(fs.vfs.listxattr(&fs.root, ino).unwrap().len(), 10 * 201);
}
