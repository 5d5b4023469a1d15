//! Extended attributes.

use persimmon_engine::Intent;
use persimmon_vfs::{Error, Ino, ROOT, XattrMode};

use crate::fixture::{Fixture, user};

#[test]
fn attributes_are_set_replaced_listed_and_removed() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let set = |name: &str, value: &[u8], mode| {
        fs.vfs
            .setxattr(&fs.root, ino, name.as_bytes(), value, mode)
            .unwrap();
    };
    let before = fs.at("f");
    set("user.a", b"one", XattrMode::Create);
    set("user.b", b"", XattrMode::Either);
    set("security.c", &[0; 3900], XattrMode::Either);
    assert!(fs.at("f").ctime > before.ctime);
    assert_eq!(fs.at("f").mtime, before.mtime);
    assert_eq!(fs.vfs.getxattr(ino, b"user.a").unwrap(), b"one");
    assert_eq!(fs.vfs.getxattr(ino, b"user.b").unwrap(), b"");
    assert_eq!(fs.vfs.getxattr(ino, b"security.c").unwrap(), [0; 3900]);
    set("user.a", b"two", XattrMode::Replace);
    assert_eq!(fs.vfs.getxattr(ino, b"user.a").unwrap(), b"two");
    let mut names: Vec<_> = fs.vfs.listxattr(&fs.root, ino).unwrap();
    assert_eq!(names.pop(), Some(0));
    let mut names: Vec<_> = names.split(|byte| *byte == 0).collect();
    names.sort();
    assert_eq!(names, [&b"security.c"[..], b"user.a", b"user.b"]);
    fs.vfs.removexattr(ino, b"user.a").unwrap();
    assert!(fs.vfs.getxattr(ino, b"user.a").is_err());
}

#[test]
fn trusted_attributes_are_listed_to_root_alone() {
    let fs = Fixture::default();
    fs.vfs
        .setxattr(&fs.root, ROOT, b"trusted.t", b"1", XattrMode::Either)
        .unwrap();
    assert_eq!(fs.vfs.listxattr(&fs.root, ROOT).unwrap(), b"trusted.t\0");
    assert_eq!(fs.vfs.listxattr(&user(1, 1), ROOT).unwrap(), b"");
}

#[test]
fn many_attributes_on_one_inode() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    for i in 0..300 {
        let name = format!("user.attribute-{i}");
        let value = format!("value {i}");
        fs.vfs
            .setxattr(
                &fs.root,
                ino,
                name.as_bytes(),
                value.as_bytes(),
                XattrMode::Create,
            )
            .unwrap();
    }
    for i in 0..300 {
        let name = format!("user.attribute-{i}");
        let value = fs.vfs.getxattr(ino, name.as_bytes()).unwrap();
        assert_eq!(value, format!("value {i}").as_bytes());
    }
    fs.unlink("f");
    assert!(fs.vfs.getxattr(ino, b"user.attribute-1").is_err());
}

#[test]
fn links_and_devices_take_trusted_and_security() {
    let fs = Fixture::default();
    let link = fs.vfs.symlink(&fs.root, ROOT, b"s", b"t").unwrap().ino;
    for name in [&b"trusted.a"[..], b"security.a"] {
        fs.vfs
            .setxattr(&fs.root, link, name, b"v", XattrMode::Either)
            .unwrap();
        assert_eq!(fs.vfs.getxattr(link, name).unwrap(), b"v");
    }
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
