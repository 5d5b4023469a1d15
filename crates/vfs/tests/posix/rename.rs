//! Renaming.

use std::sync::Barrier;
use std::thread;

use persimmon_vfs::RenameMode::{self, Replace};
use persimmon_vfs::{Error, Ino, ROOT};

use crate::fixture::Fixture;

fn rename(fs: &Fixture, from: &str, to: &str, mode: RenameMode) {
    let (from_dir, from_name) = fs.split(from);
    let (to_dir, to_name) = fs.split(to);
    fs.vfs
        .rename(from_dir, from_name, to_dir, to_name, mode)
        .unwrap_or_else(|error| panic!("{from} -> {to}: {error}"));
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
