//! Listing.

use persimmon_sim::{Fault, FaultTarget};
use persimmon_vfs::{Error, Handle, Listing, ROOT};

use crate::fixture::Fixture;

#[test]
fn readdirplus_tells_attributes() {
    let fs = Fixture::default();
    fs.mkdir("d");
    fs.file("d/f", b"abc");
    let mut seen = Vec::new();
    let handle = fs.vfs.opendir(fs.ino("d")).unwrap();
    fs.vfs
        .readdirplus(fs.ino("d"), handle, 0, &mut |entry, attr| {
            let attr = attr.unwrap();
            assert_eq!(entry.ino, attr.ino);
            assert_eq!(entry.kind, attr.kind());
            seen.push((entry.name.to_vec(), attr.ino, attr.size));
            Listing::More
        })
        .unwrap();
    assert_eq!(seen[0].1, fs.ino("d"));
    assert_eq!(seen[1].1, ROOT);
    assert_eq!(seen[2], (b"f".to_vec(), fs.ino("d/f"), 3));
    fs.vfs.fsyncdir(fs.ino("d"), handle).unwrap();
    fs.vfs.releasedir(fs.ino("d"), handle).unwrap();
}

/// One page of inodes that could not be read made a directory unlistable on the mount: listing with
/// attributes failed as a whole, and `ls` told nothing, neither of the files that were well nor of
/// the names of the others.
#[test]
fn files_whose_inodes_are_lost_are_still_listed() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    for i in 0..400 {
        let name = format!("{i:0100}");
        fs.vfs
            .mknod(&fs.root, dir, name.as_bytes(), 0o644, 0)
            .unwrap();
    }
    let fs = fs.remount();
    // Pages with names are in memory after this, and so are inodes that share one with them.
    assert_eq!(fs.names("d").len(), 400);
    fs.device.inject(Fault::for_ever(FaultTarget::Read));
    let (mut known, mut unknown) = (0, 0);
    fs.vfs
        .readdirplus(dir, Handle::NONE, 0, &mut |entry, attr| {
            match attr {
                Some(attr) => {
                    assert_eq!(entry.ino, attr.ino);
                    known += 1;
                }
                None => unknown += 1,
            }
            Listing::More
        })
        .unwrap();
    assert_eq!(known + unknown, 402);
    assert!(known > 0 && unknown > 0, "{known} {unknown}");
    fs.device.heal();
}

#[test]
fn a_removed_directory_lists_nothing_while_open() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    let handle = fs.vfs.opendir(dir).unwrap();
    fs.vfs.rmdir(ROOT, b"d").unwrap();
    let mut count = 0;
    fs.vfs
        .readdir(dir, handle, 0, &mut |_| {
            count += 1;
            Listing::More
        })
        .unwrap();
    assert_eq!(count, 0);
    assert_eq!(fs.vfs.getattr(dir).unwrap().nlink, 0);
    fs.vfs.releasedir(dir, handle).unwrap();
    assert!(matches!(fs.vfs.getattr(dir), Err(Error::Stale)));
}
