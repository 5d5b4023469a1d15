//! POSIX access control lists.

use persimmon_vfs::{Caller, Ino, SetAttr, XattrMode};

use crate::fixture::{Fixture, user};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const NOBODY: u32 = u32::MAX;

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(permissions.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

fn set(fs: &Fixture, ino: Ino, name: &[u8], value: &[u8]) -> persimmon_vfs::Result<()> {
    fs.vfs
        .setxattr(&fs.root, ino, name, value, XattrMode::Either)
}

fn permissions(fs: &Fixture, ino: Ino) -> u32 {
    fs.vfs.getattr(ino).unwrap().mode & 0o7777
}

/// Owner rw, user 7 rwx, group r, mask rw, other none.
fn list() -> Vec<u8> {
    acl(&[
        (USER_OBJ, 6, NOBODY),
        (USER, 7, 7),
        (GROUP_OBJ, 4, NOBODY),
        (MASK, 6, NOBODY),
        (OTHER, 0, NOBODY),
    ])
}

#[test]
fn an_access_list_sets_the_mode_and_governs_access() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, ACCESS, &list()).unwrap();
    assert_eq!(permissions(&fs, ino), 0o660, "the group bits are the mask");
    assert_eq!(fs.vfs.getxattr(ino, ACCESS).unwrap(), list());
    let may = |uid, gid, mask| fs.vfs.access(&user(uid, gid), ino, mask).is_ok();
    assert!(may(7, 9, 6) && !may(7, 9, 1), "named, within the mask");
    assert!(may(9, 0, 4) && !may(9, 0, 2), "the owning group");
    assert!(!may(9, 9, 4), "other");
}

#[test]
fn a_list_that_says_what_a_mode_says_becomes_the_mode() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let plain = acl(&[
        (USER_OBJ, 7, NOBODY),
        (GROUP_OBJ, 5, NOBODY),
        (OTHER, 1, NOBODY),
    ]);
    set(&fs, ino, ACCESS, &plain).unwrap();
    assert_eq!(permissions(&fs, ino), 0o751);
    assert!(fs.vfs.getxattr(ino, ACCESS).is_err());
    fs.vfs.removexattr(ino, ACCESS).unwrap();
}

#[test]
fn chmod_changes_owner_mask_and_other_of_the_list() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    set(&fs, ino, ACCESS, &list()).unwrap();
    fs.chmod(ino, 0o741);
    let expected = acl(&[
        (USER_OBJ, 7, NOBODY),
        (USER, 7, 7),
        (GROUP_OBJ, 4, NOBODY),
        (MASK, 4, NOBODY),
        (OTHER, 1, NOBODY),
    ]);
    assert_eq!(fs.vfs.getxattr(ino, ACCESS).unwrap(), expected);
}

#[test]
fn a_default_list_takes_the_place_of_the_mask() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    let default = acl(&[
        (USER_OBJ, 7, NOBODY),
        (USER, 6, 7),
        (GROUP_OBJ, 5, NOBODY),
        (MASK, 7, NOBODY),
        (OTHER, 5, NOBODY),
    ]);
    set(&fs, dir, DEFAULT, &default).unwrap();
    let caller = Caller {
        umask: 0o077,
        ..Caller::root()
    };
    let file = fs.vfs.mknod(&caller, dir, b"f", 0o640, 0).unwrap();
    assert_eq!(file.mode & 0o7777, 0o640, "the umask does not count");
    let inherited = acl(&[
        (USER_OBJ, 6, NOBODY),
        (USER, 6, 7),
        (GROUP_OBJ, 5, NOBODY),
        (MASK, 4, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    assert_eq!(fs.vfs.getxattr(file.ino, ACCESS).unwrap(), inherited);
    assert!(fs.vfs.getxattr(file.ino, DEFAULT).is_err());

    let sub = fs.vfs.mkdir(&caller, dir, b"s", 0o777).unwrap();
    assert_eq!(fs.vfs.getxattr(sub.ino, DEFAULT).unwrap(), default);
    assert_eq!(fs.vfs.getxattr(sub.ino, ACCESS).unwrap(), default);
    let link = fs.vfs.symlink(&caller, dir, b"l", b"t").unwrap();
    assert!(fs.vfs.getxattr(link.ino, ACCESS).is_err());
}

#[test]
fn a_default_list_without_named_entries_only_cuts_the_mode() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    let default = acl(&[
        (USER_OBJ, 7, NOBODY),
        (GROUP_OBJ, 5, NOBODY),
        (OTHER, 0, NOBODY),
    ]);
    set(&fs, dir, DEFAULT, &default).unwrap();
    let file = fs.vfs.mknod(&fs.root, dir, b"f", 0o666, 0).unwrap();
    assert_eq!(file.mode & 0o7777, 0o640);
    assert!(fs.vfs.getxattr(file.ino, ACCESS).is_err());
    fs.vfs.removexattr(dir, DEFAULT).unwrap();
    let file = fs.vfs.mknod(&fs.root, dir, b"g", 0o666, 0).unwrap();
    assert_eq!(file.mode & 0o7777, 0o666);
}

#[test]
fn lists_that_are_none_are_refused() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let owner = (USER_OBJ, 7, NOBODY);
    let group = (GROUP_OBJ, 7, NOBODY);
    let mask = (MASK, 7, NOBODY);
    let other = (OTHER, 7, NOBODY);
    let bad: [&[(u16, u16, u32)]; 8] = [
        &[owner, group],
        &[owner, owner, group, other],
        &[group, owner, other],
        &[owner, (USER, 7, 1), group, other],
        &[owner, (USER, 7, 1), (USER, 7, 1), group, mask, other],
        &[owner, group, (GROUP, 8, 1), mask, other],
        &[owner, group, other, (0x40, 7, 1)],
        &[owner, (USER, 7, NOBODY), group, mask, other],
    ];
    for entries in bad {
        assert!(set(&fs, ino, ACCESS, &acl(entries)).is_err(), "{entries:?}");
    }
    assert!(set(&fs, ino, ACCESS, &list()[..7]).is_err());
    assert!(set(&fs, ino, DEFAULT, &list()).is_err(), "no directory");
    assert_eq!(permissions(&fs, ino), 0o644);
}

#[test]
fn setting_a_list_of_a_foreign_group_clears_setgid() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let own = SetAttr {
        uid: Some(5),
        gid: Some(50),
        mode: Some(0o2755),
        ..SetAttr::default()
    };
    fs.vfs
        .setattr(ino, persimmon_vfs::Handle::NONE, &own)
        .unwrap();
    fs.vfs
        .setxattr(&user(5, 5), ino, ACCESS, &list(), XattrMode::Either)
        .unwrap();
    assert_eq!(permissions(&fs, ino), 0o660);
}
