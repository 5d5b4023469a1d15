//! Extended attributes.

use persimmon_vfs::{ROOT, XattrMode};

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
