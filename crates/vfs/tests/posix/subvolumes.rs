//! Snapshots of snapshots: the directory that each subvolume has of those that were taken of it, what becomes of them, and a filesystem whose
//! root is that of one.

use persimmon_vfs::{
    Error, Handle, Ino, Listing, OpenFlags, Options, ROOT, RenameMode, SNAPSHOTS, SetAttr,
    SubvolumeId, WriteFlags, XattrMode, is_snapshots, snapshots_of,
};

use crate::fixture::{Fixture, READ_WRITE};

fn errno<T: std::fmt::Debug>(result: Result<T, Error>) -> i32 {
    result.unwrap_err().errno()
}

/// Makes a directory of snapshots have one more, as whoever has a mount does.
fn take(fs: &Fixture, directory: &str, name: &str) -> Ino {
    let made = { &fs.vfs }.mkdir(&fs.root, fs.ino(directory), name.as_bytes(), 0o755);
    made.unwrap().ino
}

/// A filesystem with a file, and a writable snapshot `dev` of it with a file of its own.
fn with_dev() -> (Fixture, SubvolumeId) {
    let fs = Fixture::default();
    fs.file("old", b"of the main one");
    let dev = fs.vfs.take_snapshot(b"dev", false).unwrap();
    fs.file(".snapshots/dev/new", b"of dev alone");
    (fs, dev)
}

/// The filesystem again, with a subvolume's root as the root.
fn below(fs: Fixture, subvolume: SubvolumeId) -> Fixture {
    let options = Options {
        subvolume,
        ..fs.vfs.options().clone()
    };
    fs.remount_with(options)
}

fn origin(fs: &Fixture, name: &str) -> SubvolumeId {
    fs.vfs.snapshot_named(name.as_bytes()).unwrap().origin
}

#[test]
fn each_subvolume_lists_what_was_taken_of_it() {
    let (fs, dev) = with_dev();
    let one = take(&fs, ".snapshots/dev/.snapshots", "one");
    assert_eq!(origin(&fs, "one"), dev);
    fs.unlink(".snapshots/dev/new");
    take(&fs, ".snapshots/dev/.snapshots", "two");
    take(&fs, ".snapshots", "of main");
    let nested = take(&fs, ".snapshots/one/.snapshots", "of one");
    assert_eq!(
        fs.names(".snapshots"),
        ["dev", "of main", "of one", "one", "two"]
    );
    assert_eq!(fs.names(".snapshots/dev/.snapshots"), ["one", "two"]);
    assert_eq!(fs.names(".snapshots/of main/.snapshots"), [""; 0]);
    assert_eq!(
        fs.names(".snapshots/dev/.snapshots/one/.snapshots"),
        ["of one"]
    );
    // One inode, whichever way leads to it.
    assert_eq!(fs.ino(".snapshots/one"), one);
    assert_eq!(fs.ino(".snapshots/dev/.snapshots/one"), one);
    assert_eq!(fs.ino(".snapshots/one/.snapshots/of one"), nested);
    assert!(fs.exists(".snapshots/dev/.snapshots/one/new"));
    assert!(!fs.exists(".snapshots/dev/.snapshots/two/new"));
    // What was not taken of it is not found there: no way goes on for ever.
    for missing in [
        ".snapshots/dev/.snapshots/dev",
        ".snapshots/dev/.snapshots/of main",
        ".snapshots/one/.snapshots/one",
        ".snapshots/of one/.snapshots/of one",
    ] {
        assert_eq!(errno(fs.try_at(missing)), libc::ENOENT, "{missing}");
    }
    let fs = fs.remount();
    assert_eq!(fs.names(".snapshots/dev/.snapshots"), ["one", "two"]);
}

#[test]
fn these_directories_are_found_and_not_listed_and_hidden_by_files() {
    let (fs, dev) = with_dev();
    let root = ROOT.of(dev);
    let directory = fs.at(".snapshots/dev/.snapshots");
    assert_eq!(directory.ino, snapshots_of(dev));
    assert!(is_snapshots(directory.ino) && directory.is_staged);
    assert_eq!(directory.ino.subvolume(), dev);
    assert_eq!(directory.generation, fs.at(".snapshots/dev").generation);
    assert!(
        !fs.names(".snapshots/dev")
            .contains(&".snapshots".to_owned())
    );
    let up = |ino| fs.vfs.lookup(ino, b"..").unwrap().ino;
    assert_eq!(up(directory.ino), root);
    assert_eq!(up(root), SNAPSHOTS);
    // Whoever owns the root of the subvolume may list them, and root alone takes and deletes any.
    let owner = SetAttr {
        uid: Some(7),
        mode: Some(0o700),
        ..SetAttr::default()
    };
    fs.vfs.setattr(root, Handle::NONE, &owner).unwrap();
    let directory = fs.at(".snapshots/dev/.snapshots");
    assert_eq!((directory.uid, directory.mode & 0o777), (0, 0o755));
    // Nothing else is done with it.
    let (vfs, ino, none) = (&fs.vfs, directory.ino, Handle::NONE);
    let either = XattrMode::Either;
    let refused = [
        errno(vfs.mknod(&fs.root, ino, b"n", libc::S_IFREG, 0)),
        errno(vfs.symlink(&fs.root, ino, b"n", b"to")),
        errno(vfs.unlink(ino, b"n")),
        errno(vfs.setattr(ino, none, &owner)),
        errno(vfs.setxattr(&fs.root, ino, b"user.x", b"", either)),
        errno(vfs.rmdir(root, b".snapshots")),
        errno(vfs.rename(root, b".snapshots", root, b"x", RenameMode::Replace)),
        errno(vfs.rename(root, b"new", root, b".snapshots", RenameMode::Replace)),
        errno(vfs.rename(root, b"new", ino, b"new", RenameMode::Replace)),
    ];
    assert_eq!(refused, [libc::EPERM; 9]);
    assert_eq!(errno(vfs.open(ino, READ_WRITE)), libc::EISDIR);
    assert_eq!(errno(vfs.readlink(ino)), libc::EINVAL);
    assert_eq!(errno(vfs.getxattr(ino, b"user.x")), libc::ENODATA);
    assert_eq!(
        errno(vfs.mkdir(&fs.root, root, b".snapshots", 0)),
        libc::EEXIST
    );
    assert_eq!(
        errno(vfs.create(&fs.root, root, b".snapshots", 0, READ_WRITE)),
        libc::EISDIR
    );
    // The main one has no second, and of a subvolume that is not there, there is none.
    let second = directory.ino.plain();
    assert_eq!(errno(vfs.getattr(second)), libc::ESTALE);
    let created = vfs.create(&fs.root, second, b"n", 0, READ_WRITE);
    assert_eq!(errno(created), libc::ESTALE);
    for id in [SubvolumeId(9), SubvolumeId::NONE] {
        assert_eq!(errno(vfs.getattr(snapshots_of(id))), libc::ESTALE);
    }
}

#[test]
fn they_are_taken_renamed_and_deleted_where_they_are_listed() {
    let (fs, dev) = with_dev();
    let directory = snapshots_of(dev);
    take(&fs, ".snapshots/dev/.snapshots", "one");
    take(&fs, ".snapshots", "main's");
    let replace = RenameMode::Replace;
    let rename =
        |from: Ino, old: &[u8], to: Ino, new: &[u8]| fs.vfs.rename(from, old, to, new, replace);
    // Names are those of the whole volume.
    assert_eq!(
        errno(fs.vfs.mkdir(&fs.root, directory, b"main's", 0)),
        libc::EEXIST
    );
    assert_eq!(
        errno(rename(directory, b"one", directory, b"main's")),
        libc::EEXIST
    );
    assert_eq!(
        errno(rename(directory, b"main's", directory, b"mine")),
        libc::ENOENT
    );
    assert_eq!(errno(fs.vfs.rmdir(directory, b"main's")), libc::ENOENT);
    // No snapshot gets another origin.
    assert_eq!(
        errno(rename(directory, b"one", SNAPSHOTS, b"one")),
        libc::EPERM
    );
    assert_eq!(
        errno(rename(SNAPSHOTS, b"main's", directory, b"x")),
        libc::EPERM
    );
    rename(directory, b"one", directory, b"first").unwrap();
    assert_eq!(fs.names(".snapshots"), ["dev", "first", "main's"]);
    rename(SNAPSHOTS, b"first", SNAPSHOTS, b"second").unwrap();
    assert_eq!(fs.names(".snapshots/dev/.snapshots"), ["second"]);
    let before = fs.at(".snapshots/dev/.snapshots");
    fs.vfs.rmdir(directory, b"second").unwrap();
    assert_eq!(fs.names(".snapshots"), ["dev", "main's"]);
    let after = fs.at(".snapshots/dev/.snapshots");
    assert!(after.mtime > before.mtime && after.nlink == 2);
    // Of one that cannot be changed, too.
    take(&fs, ".snapshots/main's/.snapshots", "again");
    assert!(fs.exists(".snapshots/again/old"));
    fs.remount();
}

/// A later snapshot has the number of a deleted one: what was taken of that is not taken for one of it.
#[test]
fn what_was_taken_of_a_deleted_one_is_of_what_that_was_taken_of() {
    let (fs, dev) = with_dev();
    take(&fs, ".snapshots/dev/.snapshots", "one");
    let middle = fs.vfs.take_snapshot_of(dev, b"middle", false).unwrap();
    take(&fs, ".snapshots/middle/.snapshots", "deep");
    take(&fs, ".snapshots/middle/.snapshots", "deeper");
    let (directory, handle) = (snapshots_of(middle), fs.vfs.opendir(snapshots_of(middle)));
    fs.vfs.delete_snapshot(b"middle").unwrap();
    assert_eq!(origin(&fs, "deep"), dev);
    assert_eq!(
        fs.names(".snapshots/dev/.snapshots"),
        ["deep", "deeper", "one"]
    );
    // Its directory is gone, and so is who has it open.
    assert_eq!(errno(fs.vfs.getattr(directory)), libc::ESTALE);
    let handle = handle.unwrap();
    let listed = fs.vfs.readdir(directory, handle, 0, &mut |_| Listing::More);
    assert_eq!(errno(listed), libc::ESTALE);
    fs.vfs.releasedir(directory, handle).unwrap();
    fs.vfs.sync().unwrap();
    fs.vfs.delete_snapshot(b"dev").unwrap();
    assert_eq!(origin(&fs, "deep"), SubvolumeId::MAIN);
    fs.vfs.sync().unwrap();
    let fs = fs.after_power_cut(3);
    assert_eq!(fs.names(".snapshots"), ["deep", "deeper", "one"]);
    for name in ["one", "deep", "deeper"] {
        assert_eq!(origin(&fs, name), SubvolumeId::MAIN, "{name}");
        assert!(fs.exists(&format!(".snapshots/{name}/new")));
    }
    // The numbers are given out again.
    for at in 0..5 {
        let id = fs
            .vfs
            .take_snapshot(format!("n{at}").as_bytes(), true)
            .unwrap();
        assert_eq!(fs.vfs.snapshot_directories().len(), 1);
        assert!(
            fs.names(&format!(".snapshots/n{at}/.snapshots")).is_empty(),
            "{id}"
        );
    }
    fs.remount();
}

#[test]
fn a_subvolume_is_used_as_the_root() {
    let (fs, dev) = with_dev();
    take(&fs, ".snapshots", "main's");
    let fs = below(fs, dev);
    let root = ROOT.of(dev);
    assert_eq!(fs.vfs.root(), root);
    let look = |parent: Ino, name: &str| fs.vfs.lookup(parent, name.as_bytes());
    let file = look(root, "new").unwrap().ino;
    assert_eq!(fs.content(file), b"of dev alone");
    // Nothing is above it, and of the snapshots those are there that were taken of it.
    assert_eq!(look(root, "..").unwrap().ino, root);
    let directory = look(root, ".snapshots").unwrap().ino;
    assert_eq!(directory, snapshots_of(dev));
    assert_eq!(look(directory, "..").unwrap().ino, root);
    assert_eq!(errno(look(directory, "main's")), libc::ENOENT);
    let one = fs.vfs.mkdir(&fs.root, directory, b"one", 0).unwrap().ino;
    assert_eq!(look(one, "..").unwrap().ino, directory);
    let two = fs.vfs.take_snapshot(b"two", false).unwrap();
    assert_eq!(origin(&fs, "two"), dev);
    let three = fs.vfs.take_snapshot_of(two, b"three", true).unwrap();
    assert_eq!(look(ROOT.of(three), "..").unwrap().ino, snapshots_of(two));
    // What paths lead to, and what they do not.
    let main = SubvolumeId::MAIN;
    let other = fs.vfs.snapshot_named(b"main's").unwrap().id;
    let is_below = |ino: Ino| fs.vfs.is_below_root(ino);
    assert!(
        [dev, two, three]
            .into_iter()
            .all(|id| is_below(ROOT.of(id)) && is_below(snapshots_of(id)))
    );
    assert!(
        [main, other, SubvolumeId(900)]
            .into_iter()
            .all(|id| !is_below(ROOT.of(id)) && !is_below(snapshots_of(id)))
    );
    assert_eq!(
        fs.vfs.snapshot_directories(),
        [dev, two].map(snapshots_of).into()
    );
    // The root stays.
    assert_eq!(errno(fs.vfs.delete_snapshot(b"dev")), libc::EBUSY);
    assert_eq!(errno(fs.vfs.rmdir(SNAPSHOTS, b"dev")), libc::EBUSY);
    fs.vfs
        .rename_snapshot(b"dev", b"renamed", RenameMode::Replace)
        .unwrap();
    assert_eq!(errno(fs.vfs.delete_snapshot(b"renamed")), libc::EBUSY);
    fs.vfs.delete_snapshot(b"two").unwrap();
    assert_eq!(look(ROOT.of(three), "..").unwrap().ino, directory);
    // It is written to like any other filesystem.
    let flags = OpenFlags {
        write: true,
        ..OpenFlags::default()
    };
    let (made, handle) = fs
        .vfs
        .create(&fs.root, root, b"made", 0o644, flags)
        .unwrap();
    fs.vfs
        .write(made.ino, handle, 0, b"here", WriteFlags::default())
        .unwrap();
    fs.vfs.release(made.ino, handle).unwrap();
    let fs = below(fs, SubvolumeId::MAIN);
    assert_eq!(fs.content(fs.ino(".snapshots/renamed/made")), b"here");
    assert!(!fs.exists("made"));
    assert_eq!(fs.ino(".snapshots/renamed/.."), SNAPSHOTS);
}

#[test]
fn a_read_only_snapshot_as_the_root_takes_no_changes_but_snapshots() {
    let (fs, _) = with_dev();
    take(&fs, ".snapshots", "s");
    let id = fs.vfs.snapshot_named(b"s").unwrap().id;
    let fs = below(fs, id);
    let root = fs.vfs.root();
    assert_eq!(
        errno(fs.vfs.create(&fs.root, root, b"n", 0o644, READ_WRITE)),
        libc::EROFS
    );
    let directory = fs.vfs.lookup(root, b".snapshots").unwrap().ino;
    let made = fs.vfs.mkdir(&fs.root, directory, b"copy", 0).unwrap().ino;
    assert!(fs.vfs.lookup(made, b"old").is_ok());
    fs.vfs.take_snapshot(b"to write", false).unwrap();
    fs.vfs.rmdir(directory, b"copy").unwrap();
    below(fs, SubvolumeId::MAIN);
}
