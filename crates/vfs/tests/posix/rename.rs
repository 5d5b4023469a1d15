//! Renaming.

use std::sync::Barrier;
use std::thread;

use persimmon_vfs::RenameMode::{self, Exchange, NoReplace, Replace};
use persimmon_vfs::{Error, Ino, ROOT};

use crate::fixture::Fixture;

fn rename(fs: &Fixture, from: &str, to: &str, mode: RenameMode) {
    let (from_dir, from_name) = fs.split(from);
    let (to_dir, to_name) = fs.split(to);
    fs.vfs
        .rename(from_dir, from_name, to_dir, to_name, mode)
        .unwrap_or_else(|error| panic!("{from} -> {to}: {error}"));
}

/// (links, entries) of a directory.
fn counts(fs: &Fixture, path: &str) -> (u32, u64) {
    let attr = fs.at(path);
    (attr.nlink, attr.size)
}

#[test]
fn a_file_gets_another_name_and_keeps_the_rest() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let before = fs.at("f");
    rename(&fs, "f", "g", Replace);
    assert!(!fs.exists("f"));
    let after = fs.at("g");
    assert_eq!(after.ino, ino);
    assert_eq!(after.mtime, before.mtime);
    assert!(after.ctime > before.ctime);
    assert_eq!(fs.content(ino), b"content");
    assert_eq!(counts(&fs, ""), (2, 1));
}

#[test]
fn a_file_takes_the_place_of_another() {
    let fs = Fixture::default();
    let new = fs.file("new", b"new content");
    let old = fs.file("old", b"old content");
    rename(&fs, "new", "old", Replace);
    assert_eq!(fs.ino("old"), new);
    assert_eq!(fs.names(""), ["old"]);
    assert_eq!(counts(&fs, ""), (2, 1));
    assert!(fs.vfs.getattr(old).is_err(), "nobody has it open");
}

#[test]
fn a_replaced_file_with_another_name_lives_on() {
    let fs = Fixture::default();
    fs.file("new", b"n");
    let old = fs.file("old", b"o");
    fs.link("old", "other");
    rename(&fs, "new", "old", Replace);
    let attr = fs.at("other");
    assert_eq!((attr.ino, attr.nlink), (old, 1));
}

#[test]
fn two_names_of_one_file_stay_both() {
    let fs = Fixture::default();
    let ino = fs.file("a", b"");
    fs.link("a", "b");
    rename(&fs, "a", "b", Replace);
    assert_eq!((fs.ino("a"), fs.ino("b")), (ino, ino));
    rename(&fs, "a", "a", Replace);
    assert_eq!(fs.at("a").nlink, 2);
}

#[test]
fn a_directory_moves_with_its_parent_link() {
    let fs = Fixture::default();
    let from = fs.mkdir("from");
    let to = fs.mkdir("to");
    let moved = fs.mkdir("from/moved");
    fs.file("from/moved/f", b"");
    rename(&fs, "from/moved", "to/there", Replace);
    assert_eq!(fs.vfs.lookup(moved, b"..").unwrap().ino, to);
    assert_eq!(counts(&fs, "from"), (2, 0));
    assert_eq!(counts(&fs, "to"), (3, 1));
    assert!(fs.exists("to/there/f"));
    // Moving it back and one deeper must not be taken for a loop.
    rename(&fs, "to/there", "from/back", Replace);
    assert_eq!(fs.vfs.lookup(moved, b"..").unwrap().ino, from);
}

#[test]
fn a_directory_replaces_an_empty_one() {
    let fs = Fixture::default();
    fs.mkdir("a");
    fs.file("a/f", b"");
    let replaced = fs.mkdir("b");
    rename(&fs, "a", "b", Replace);
    assert_eq!(fs.names(""), ["b"]);
    assert_eq!(counts(&fs, ""), (3, 1));
    assert!(fs.exists("b/f"));
    assert!(fs.vfs.getattr(replaced).is_err());

    fs.mkdir("c");
    fs.mkdir("c/deep");
    fs.mkdir("d");
    rename(&fs, "c/deep", "d", Replace);
    assert_eq!(counts(&fs, "c"), (2, 0));
    assert_eq!(counts(&fs, ""), (5, 3));
}

#[test]
fn no_replace_moves_to_a_free_name() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    rename(&fs, "f", "g", NoReplace);
    assert_eq!(fs.ino("g"), ino);
}

#[test]
fn exchange_swaps_whatever_the_two_are() {
    let fs = Fixture::default();
    let a = fs.mkdir("a");
    let b = fs.mkdir("b");
    let file = fs.file("a/f", b"file");
    let dir = fs.mkdir("b/d");
    rename(&fs, "a/f", "b/d", Exchange);
    assert_eq!((fs.ino("a/f"), fs.ino("b/d")), (dir, file));
    assert_eq!(fs.vfs.lookup(dir, b"..").unwrap().ino, a);
    assert_eq!((counts(&fs, "a"), counts(&fs, "b")), ((3, 1), (2, 1)));
    rename(&fs, "a/f", "b/d", Exchange);
    assert_eq!(fs.vfs.lookup(dir, b"..").unwrap().ino, b);

    let x = fs.file("x", b"");
    let y = fs.file("y", b"");
    rename(&fs, "x", "y", Exchange);
    assert_eq!((fs.ino("x"), fs.ino("y")), (y, x));
}

#[test]
fn both_directories_change_their_times() {
    let fs = Fixture::default();
    let from = fs.mkdir("from");
    let to = fs.mkdir("to");
    fs.file("from/f", b"");
    let mtime = |ino: Ino| fs.vfs.getattr(ino).unwrap().mtime;
    let before = (mtime(from), mtime(to), mtime(ROOT));
    rename(&fs, "from/f", "to/f", Replace);
    assert!(mtime(from) > before.0 && mtime(to) > before.1);
    assert_eq!(mtime(ROOT), before.2);
}

#[test]
fn a_deep_tree_is_walked_to_its_root() {
    let fs = Fixture::default();
    let mut path = String::from("d0");
    fs.mkdir(&path);
    for i in 1..60 {
        path = format!("{path}/d{i}");
        fs.mkdir(&path);
    }
    let (deep, _) = fs.split(&format!("{path}/x"));
    assert!(fs.vfs.rename(ROOT, b"d0", deep, b"x", Replace).is_err());
    fs.mkdir("other");
    rename(&fs, "other", &format!("{path}/other"), Replace);
    assert_eq!(
        fs.vfs
            .lookup(fs.ino(&format!("{path}/other")), b"..")
            .unwrap()
            .ino,
        deep
    );
}

/// Where a directory may go is looked up before the transaction that moves it. Two that move each a directory below the
/// other's must not both find that they may: both would be gone, each below the other.
#[test]
fn two_who_move_directories_below_each_other_make_no_circle() {
    let fs = Fixture::default();
    let (a, b) = (fs.mkdir("a"), fs.mkdir("b"));
    let (under_a, under_b) = (fs.mkdir("a/inner"), fs.mkdir("b/inner"));
    for _ in 0..300 {
        let start = Barrier::new(2);
        let go = |name: &[u8], to: Ino| {
            start.wait();
            fs.vfs.rename(ROOT, name, to, b"moved", Replace)
        };
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| go(b"a", under_b));
            let second = scope.spawn(|| go(b"b", under_a));
            (first.join().unwrap(), second.join().unwrap())
        });
        let (name, from) = match (first, second) {
            (Ok(()), Err(Error::Invalid(_))) => (&b"a"[..], under_b),
            (Err(Error::Invalid(_)), Ok(())) => (&b"b"[..], under_a),
            other => panic!("{other:?}"),
        };
        fs.vfs.rename(from, b"moved", ROOT, name, Replace).unwrap();
    }
    assert_eq!((fs.ino("a"), fs.ino("b")), (a, b));
    fs.remount();
}
