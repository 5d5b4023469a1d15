//! Renames that leave a whiteout: whose it is, and what a crash leaves.

use persimmon_vfs::RenameMode::{Exchange, NoReplace, Replace};
use persimmon_vfs::{Caller, Error, ROOT, RenameMode, Result};

use crate::fixture::Fixture;

fn rename(fs: &Fixture, from: &str, to: &str, mode: RenameMode) -> Result<()> {
    let caller = Caller {
        uid: 7,
        gid: 8,
        ..Caller::root()
    };
    let (from, to) = (fs.split(from), fs.split(to));
    fs.vfs.rename_leaving_whiteout(&caller, from, to, mode)
}

fn is_whiteout(fs: &Fixture, path: &str) -> bool {
    let attr = fs.at(path);
    (attr.mode, attr.rdev, attr.nlink) == (libc::S_IFCHR, 0, 1) && (attr.uid, attr.gid) == (7, 8)
}

#[test]
fn it_is_the_callers_and_counts_as_an_entry() {
    let fs = Fixture::default();
    fs.file("f", b"content");
    fs.mkdir("d");
    rename(&fs, "f", "d/g", Replace).unwrap();
    assert_eq!((fs.at("").size, fs.at("d").size), (2, 1));
    let replaced = fs.file("d/h", b"old");
    rename(&fs, "d/g", "d/h", Replace).unwrap();
    assert_eq!(fs.at("d").size, 2);
    assert!(fs.vfs.getattr(replaced).is_err());
    let fs = fs.remount();
    assert!(is_whiteout(&fs, "f") && is_whiteout(&fs, "d/g"));
}

#[test]
fn what_is_refused_leaves_none() {
    let fs = Fixture::default();
    let (f, g) = (fs.file("f", b"f"), fs.file("g", b"g"));
    assert!(matches!(
        rename(&fs, "f", "g", NoReplace),
        Err(Error::Exists)
    ));
    assert!(matches!(
        rename(&fs, "f", "g", Exchange),
        Err(Error::Invalid(_))
    ));
    assert!(matches!(
        rename(&fs, "n", "g", Replace),
        Err(Error::NotFound)
    ));
    assert_eq!((fs.ino("f"), fs.ino("g")), (f, g));
    assert_eq!(fs.names(""), ["f", "g"]);
}

#[test]
fn after_a_crash_there_are_both_or_neither() {
    for seed in 0..50 {
        let fs = Fixture::default();
        let ino = fs.file("f", b"content");
        fs.vfs.sync().unwrap();
        rename(&fs, "f", "g", Replace).unwrap();
        let fs = fs.after_power_cut(seed);
        if fs.exists("g") {
            assert!(is_whiteout(&fs, "f"), "seed {seed}");
        } else {
            assert_eq!(fs.ino("f"), ino, "seed {seed}");
        }
        assert!(fs.vfs.lookup(ROOT, b"f").is_ok());
    }
}
