//! Extended attributes count.

use persimmon_format::xattr;

use super::*;

/// An access control list with a user of its own, as system calls pass it.
fn acl() -> Vec<u8> {
    let entry = |tag: u16, permissions: u16, id: u32| {
        let [a, b] = tag.to_le_bytes();
        let [c, d] = permissions.to_le_bytes();
        let mut bytes = vec![a, b, c, d];
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes
    };
    let entries = [
        entry(1, 7, u32::MAX),
        entry(2, 6, ALICE),
        entry(4, 5, u32::MAX),
        entry(0x10, 7, u32::MAX),
        entry(0x20, 5, u32::MAX),
    ];
    [vec![2, 0, 0, 0], entries.concat()].concat()
}

fn blocks(fs: &Fixture, ino: Ino) -> u64 {
    fs.vfs.getattr(ino).unwrap().blocks
}

fn set_xattr(fs: &Fixture, caller: &Caller, ino: Ino, name: &str, len: usize) -> Result<(), Error> {
    let (name, value) = (name.as_bytes(), vec![7; len]);
    fs.vfs
        .setxattr(caller, ino, name, &value, XattrMode::Either)
}

/// Attributes were not charged: a user with a limit could fill the volume with values of 64 KiB.
#[test]
fn attributes_are_charged_and_limited() {
    let fs = fixture();
    let (alice, of) = (user(ALICE, STAFF), owner(OwnerKind::User, ALICE));
    set(&fs, of, bytes_hard(100_000));
    let (ino, handle) = create(&fs, &alice, ROOT, "a").unwrap();
    set_xattr(&fs, &alice, ino, "user.a", 65_000).unwrap();
    assert_eq!(blocks(&fs, ino), 127);
    let refused = set_xattr(&fs, &alice, ino, "user.b", 40_000).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    assert!(fs.vfs.getxattr(ino, b"user.b").is_err());
    set_xattr(&fs, &alice, ino, "user.b", 30_000).unwrap();
    assert_eq!(write(&fs, (ino, handle), 0, &noise(1, 8192)).unwrap(), 4096);
    let refused = write(&fs, (ino, handle), 4096, &noise(1, 4096)).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    // A user over the limit may still shrink a value, and root is not limited.
    set(&fs, of, bytes_hard(50_000));
    set_xattr(&fs, &alice, ino, "user.a", 60_000).unwrap();
    let refused = set_xattr(&fs, &alice, ino, "user.a", 61_000).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    set_xattr(&fs, &fs.root, ino, "user.a", 65_536).unwrap();
    fs.vfs.removexattr(ino, b"user.a").unwrap();
    fs.vfs.removexattr(ino, b"user.b").unwrap();
    check_counts(&fs);
    assert_eq!(blocks(&fs, ino), 8);
    fs.vfs.release(ino, handle).unwrap();
    fs.remount();
}

/// A staged overwrite is charged in addition to the block that it replaces: a user with enough room was refused.
#[test]
fn what_is_staged_is_written_before_anybody_is_refused() {
    let fs = fixture();
    let (alice, of) = (user(ALICE, STAFF), owner(OwnerKind::User, ALICE));
    let file = create(&fs, &alice, ROOT, "a").unwrap();
    write(&fs, file, 0, &noise(1, 65_536)).unwrap();
    fs.vfs.sync().unwrap();
    write(&fs, file, 0, &noise(2, 65_536)).unwrap();
    set(&fs, of, bytes_hard(100_000));
    set_xattr(&fs, &alice, file.0, "user.a", 30_000).unwrap();
    let refused = set_xattr(&fs, &alice, file.0, "user.b", 30_000).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    // A file is given to bob, who has room for it once his staged overwrite is written.
    let bob = owner(OwnerKind::User, 7);
    let theirs = create(&fs, &user(7, STAFF), ROOT, "b").unwrap();
    write(&fs, theirs, 0, &noise(3, 40_960)).unwrap();
    fs.vfs.sync().unwrap();
    write(&fs, theirs, 0, &noise(4, 40_960)).unwrap();
    set(&fs, bob, bytes_hard(150_000));
    let gives = SetAttr {
        uid: Some(7),
        author: Author::User { pid: 0, gid: STAFF },
        ..SetAttr::default()
    };
    fs.vfs.setattr(file.0, Handle::NONE, &gives).unwrap();
    check_counts(&fs);
}

/// A rename that leaves a whiteout was refused to a user with enough room: the whiteout has an access control list, which is charged.
#[test]
fn what_is_staged_is_written_before_a_whiteout_is_refused() {
    let fs = fixture();
    let (alice, of) = (user(ALICE, STAFF), owner(OwnerKind::User, ALICE));
    fs.vfs.mkdir(&alice, ROOT, b"d", 0o755).unwrap();
    let dir = fs.vfs.lookup(ROOT, b"d").unwrap().ino;
    let mode = XattrMode::Either;
    fs.vfs
        .setxattr(&alice, dir, b"system.posix_acl_default", &acl(), mode)
        .unwrap();
    let file = create(&fs, &alice, dir, "a").unwrap();
    write(&fs, file, 0, &noise(1, 65_536)).unwrap();
    fs.vfs.sync().unwrap();
    write(&fs, file, 0, &noise(2, 65_536)).unwrap();
    set(&fs, of, bytes_hard(100_000));
    fs.vfs
        .rename_leaving_whiteout(&alice, (dir, b"a"), (dir, b"b"), RenameMode::Replace)
        .unwrap();
    assert_eq!(fs.names("d"), ["a", "b"]);
    check_counts(&fs);
}

#[test]
fn attributes_go_where_their_inode_goes() {
    let fs = fixture();
    let alice = user(ALICE, STAFF);
    fs.vfs.mkdir(&alice, ROOT, b"d", 0o755).unwrap();
    let dir = fs.vfs.lookup(ROOT, b"d").unwrap().ino;
    for name in [
        b"system.posix_acl_access",
        b"system.posix_acl_default".as_slice(),
    ] {
        let list = acl();
        fs.vfs
            .setxattr(&alice, dir, name, &list, XattrMode::Either)
            .unwrap();
    }
    assert_eq!(blocks(&fs, dir), 2);
    // What is made in it has the lists from the beginning.
    let (ino, handle) = create(&fs, &alice, dir, "a").unwrap();
    fs.vfs.mkdir(&alice, dir, b"sub", 0o755).unwrap();
    let sub = fs.vfs.lookup(dir, b"sub").unwrap().ino;
    assert_eq!((blocks(&fs, ino), blocks(&fs, sub)), (1, 2));
    fs.chmod(ino, 0o600);
    assert_eq!(blocks(&fs, ino), 1);
    set_xattr(&fs, &alice, ino, "user.long", 10_000).unwrap();
    let all = 1 + xattr::sectors(b"user.long", 10_000);
    write(&fs, (ino, handle), 0, &noise(1, 8192)).unwrap();
    fs.vfs.sync().unwrap();
    assert_eq!(blocks(&fs, ino), all + 16);
    fs.truncate(ino, 0);
    fs.vfs.sync().unwrap();
    assert_eq!(blocks(&fs, ino), all);
    check_counts(&fs);
    let gives = SetAttr {
        uid: Some(7),
        ..SetAttr::default()
    };
    fs.vfs.setattr(ino, Handle::NONE, &gives).unwrap();
    assert_eq!(get(&fs, owner(OwnerKind::User, 7)).usage.sectors, all);
    // A file capability goes with the next write.
    fs.vfs
        .setxattr(
            &fs.root,
            ino,
            b"security.capability",
            &[1; 20],
            XattrMode::Either,
        )
        .unwrap();
    assert_eq!(blocks(&fs, ino), all + 1);
    write(&fs, (ino, handle), 0, &noise(1, 4096)).unwrap();
    fs.vfs.sync().unwrap();
    assert_eq!(blocks(&fs, ino), all + 8);
    check_counts(&fs);
    fs.vfs.release(ino, handle).unwrap();
    // A clone has its own.
    let to = fs.vfs.mkdir(&fs.root, ROOT, b"copy", 0o755).unwrap().ino;
    fs.vfs
        .clone_entries(&fs.root, dir, to, (0, usize::MAX))
        .unwrap();
    let copy = fs.vfs.lookup(to, b"a").unwrap().ino;
    assert_eq!(blocks(&fs, copy), all + 8);
    check_counts(&fs);
    let fs = fs.remount();
    assert_eq!(blocks(&fs, ino), all + 8);
    fs.vfs.unlink(dir, b"a").unwrap();
    check_counts(&fs);
    fs.remount();
}
