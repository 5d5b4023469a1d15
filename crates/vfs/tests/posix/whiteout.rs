//! Renames that leave a whiteout, as overlayfs needs them of its upper layer.

use persimmon_vfs::RenameMode::{Exchange, NoReplace, Replace};
use persimmon_vfs::{Caller, Error, ROOT, RenameMode, Result};

use crate::fixture::Fixture;

const CHARACTER_DEVICE: u32 = libc::S_IFCHR;

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
    (attr.mode, attr.rdev, attr.nlink) == (CHARACTER_DEVICE, 0, 1) && (attr.uid, attr.gid) == (7, 8)
}

#[test]
fn the_old_name_is_a_whiteout_and_the_new_one_the_file() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    fs.mkdir("d");
    rename(&fs, "f", "d/g", Replace).unwrap();
    assert!(is_whiteout(&fs, "f"));
    assert_eq!(fs.ino("d/g"), ino);
    assert_eq!((fs.at("").size, fs.at("d").size), (2, 1));
    // In the same directory, and onto another.
    let replaced = fs.file("d/h", b"old");
    rename(&fs, "d/g", "d/h", Replace).unwrap();
    assert!(is_whiteout(&fs, "d/g"));
    assert_eq!((fs.ino("d/h"), fs.at("d").size), (ino, 2));
    assert!(fs.vfs.getattr(replaced).is_err());
    let fs = fs.remount();
    assert!(is_whiteout(&fs, "f") && is_whiteout(&fs, "d/g"));
}

#[test]
fn a_directory_leaves_one_too() {
    let fs = Fixture::default();
    fs.mkdir("d");
    fs.mkdir("e");
    rename(&fs, "d", "e/d", Replace).unwrap();
    assert!(is_whiteout(&fs, "d"));
    assert_eq!((fs.at("").nlink, fs.at("e").nlink), (3, 3));
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
    let flags = |flags| RenameMode::from_linux(flags);
    assert!(flags(libc::RENAME_WHITEOUT | libc::RENAME_EXCHANGE).is_err());
    assert!(flags(1 << 3).is_err());
    let both = flags(libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE);
    assert_eq!(both.unwrap(), (NoReplace, true));
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
