//! Quota, and flags that a file gets while it is open. A limit that was lowered, or reached by what only a tail had, once made the next
//! opening of the volume fail, for everybody who has a file on it.

use persimmon::{NewLimits, Owner, OwnerKind};
use persimmon_vfs::{Caller, InodeFlags};

use super::*;

const TREE: Owner = Owner {
    kind: OwnerKind::Project,
    id: 7,
};

/// A volume with a file that belongs to a project and has a tail.
fn limited(image: &Image, bytes: u64) -> (Filesystem, File) {
    let fs = image.open();
    fs.turn_quota_on(false).unwrap();
    fs.create_dir("/tree").unwrap();
    fs.set_project("/tree", TREE.id).unwrap();
    limit(&fs, bytes);
    let log = fs.open_file("/tree/log", &keeping()).unwrap();
    add(&log, b"flushed ");
    assert_eq!(tails(&fs).len(), 1);
    (fs, log)
}

fn limit(fs: &Filesystem, bytes: u64) {
    let limits = NewLimits {
        bytes_hard: Some(bytes),
        ..NewLimits::default()
    };
    fs.set_quota(TREE, &limits).unwrap();
}

#[test]
fn what_was_flushed_is_brought_in_over_a_limit_that_was_lowered() {
    let image = Image::sized(64 << 20);
    let (fs, log) = limited(&image, 1 << 20);
    add(&log, &[1; 20_000]);
    limit(&fs, 4096);
    // The limit is durable with this, and what was appended is not.
    let options = OpenOptions::new().write(true).create(true);
    let other = fs.open_file("/other", &options).unwrap();
    other.sync_all().unwrap();
    drop(other);
    let found = image.after(fs, vec![log], "/tree/log");
    assert!(found == [b"flushed ".to_vec(), vec![1; 20_000]].concat());
    // It counts from then on.
    let fs = image.open();
    let log = fs.open_file("/tree/log", &keeping()).unwrap();
    let refused = log.append(&[3; 8192]).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT, "{refused}");
}

#[test]
fn what_was_flushed_is_brought_into_a_file_that_got_flags() {
    let none = InodeFlags::default();
    let (append_only, immutable) = (true, true);
    for flags in [
        InodeFlags {
            append_only,
            ..none
        },
        InodeFlags { immutable, ..none },
    ] {
        let image = Image::sized(64 << 20);
        let fs = image.open();
        let log = fs.open_file("/log", &keeping()).unwrap();
        add(&log, b"flushed ");
        add(&log, b"kept");
        let vfs = fs.vfs();
        vfs.set_inode_flags(&Caller::root(), log.ino(), flags)
            .unwrap();
        let options = OpenOptions::new().write(true).create(true);
        fs.open_file("/other", &options)
            .unwrap()
            .sync_all()
            .unwrap();
        log.append(b" and").unwrap();
        log.flush_through().unwrap();
        assert_eq!(image.after(fs, vec![log], "/log"), b"flushed kept and");
    }
}

/// What was answered did not count before the volume had it: 64 KiB passed each limit.
#[test]
fn what_only_a_tail_has_counts() {
    const HARD: u64 = 32 << 10;
    let image = Image::sized(64 << 20);
    let (fs, log) = limited(&image, HARD);
    let mut answered = b"flushed ".to_vec();
    let refused = loop {
        match log.append(&[5; 1000]) {
            Ok(_) => answered.extend([5; 1000]),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.errno(), libc::EDQUOT, "{refused}");
    assert!(answered.len() as u64 <= HARD, "{}", answered.len());
    log.sync_all().unwrap();
    assert!(!fs.quota(TREE).unwrap().exceeds());
    let found = fs.read("/tree/log").unwrap();
    // Of the one that was refused there may have been room for a part.
    assert!(found.starts_with(&answered));
    drop(log);
    fs.close().unwrap();
}

/// It holds nobody up that it waits in the tail.
#[test]
fn others_of_the_owner_do_not_wait_for_what_only_a_tail_has() {
    const HARD: u64 = 1 << 20;
    let image = Image::sized(64 << 20);
    let (fs, log) = limited(&image, HARD);
    let options = OpenOptions::new().write(true).create(true);
    let other = fs.open_file("/tree/other", &options).unwrap();
    log.append(b"pending").unwrap();
    let begun = std::time::Instant::now();
    let refused = other.write_at(&[6; 2 << 20], 0).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT, "{refused}");
    assert!(begun.elapsed() < Duration::from_secs(1));
    // What is pending has its part of the quota.
    log.append(b" more").unwrap();
    log.sync_all().unwrap();
    assert_eq!(fs.read("/tree/log").unwrap(), b"flushed pending more");
}
