//! Which operations mark which times, and access times by policy.

use persimmon_vfs::{
    AccessTimes, Clock, Handle, Ino, Listing, OpenFlags, Options, ROOT, SetAttr, SetTime, XattrMode,
};

use crate::fixture::{Fixture, READ_WRITE};

fn with(access_times: AccessTimes) -> Fixture {
    Fixture::new(Options {
        access_times,
        ..Options::default()
    })
}

fn read(fs: &Fixture, ino: Ino, handle: Handle) {
    fs.vfs.read(ino, handle, 0, &mut [0; 4]).unwrap();
}

/// With a clock that stands still or is set back, changes had the same change time as the one before, or an earlier one: NFS
/// clients, which go by it, kept what was no more.
#[test]
fn change_times_grow_whatever_the_clock_does() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let dir = fs.mkdir("d");
    let check = |ino: Ino, what: &str, change: &dyn Fn()| {
        for turned_back in [0, 10_000] {
            let before = fs.vfs.getattr(ino).unwrap().ctime;
            fs.clock.advance(-turned_back);
            change();
            let after = fs.vfs.getattr(ino).unwrap().ctime;
            assert!(after > before, "{what}: {before:?}, then {after:?}");
        }
    };
    fs.vfs.fsync(ino, Handle::NONE).unwrap();
    for _ in 0..3 {
        check(ino, "write", &|| fs.write(ino, 0, b"x"));
        check(ino, "chmod", &|| {
            fs.chmod(ino, 0o600);
        });
        check(ino, "write after chmod", &|| fs.write(ino, 5000, b"x"));
        check(ino, "truncate", &|| {
            fs.truncate(ino, 3);
        });
        check(ino, "write after truncate", &|| fs.write(ino, 5000, b"x"));
        check(ino, "setxattr", &|| {
            let mode = XattrMode::Either;
            fs.vfs
                .setxattr(&fs.root, ino, b"user.a", b"", mode)
                .unwrap();
        });
        check(ino, "removexattr and a write", &|| {
            fs.write(ino, 0, b"y");
            let _ = fs.vfs.removexattr(ino, b"user.a");
        });
        check(ino, "fallocate", &|| {
            let what = persimmon_vfs::Allocate::Punch;
            fs.vfs.fallocate(ino, Handle::NONE, 0, 4096, what).unwrap();
        });
        check(ino, "link and unlink", &|| {
            fs.link("f", "g");
            fs.unlink("g");
        });
        check(dir, "entries", &|| {
            fs.file("d/x", b"");
            fs.unlink("d/x");
        });
        fs.vfs.fsync(ino, Handle::NONE).unwrap();
    }
}

#[test]
fn opening_to_read_counts_as_reading_where_the_door_says_so() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let handle = fs.open(ino);
    let atime = || fs.vfs.getattr(ino).unwrap().atime;
    let made = atime();
    assert!(fs.vfs.opened_to_read(ino, handle).unwrap());
    let opened = atime();
    assert!(opened > made);
    assert!(!fs.vfs.opened_to_read(ino, handle).unwrap(), "as for reads");
    assert_eq!(atime(), opened);
    fs.write(ino, 0, b"x");
    fs.vfs.release(ino, handle).unwrap();
    let again = fs.open(ino);
    assert!(fs.vfs.opened_to_read(ino, again).unwrap(), "after a change");
    assert!(atime() > opened);
}

#[test]
fn relative_access_times_move_once_after_a_change() {
    let fs = with(AccessTimes::Relative);
    let ino = fs.file("f", b"content");
    let handle = fs.open(ino);
    let made = fs.at("f").atime;
    read(&fs, ino, handle);
    let first = fs.at("f").atime;
    assert!(first > made);
    read(&fs, ino, handle);
    assert_eq!(fs.at("f").atime, first);
    fs.vfs
        .write(ino, handle, 0, b"x", Default::default())
        .unwrap();
    read(&fs, ino, handle);
    let second = fs.at("f").atime;
    assert!(second > first);
    fs.vfs.release(ino, handle).unwrap();
    let handle = fs.open(ino);
    read(&fs, ino, handle);
    assert_eq!(fs.at("f").atime, second);
    fs.clock.advance(25 * 3600);
    fs.vfs.release(ino, handle).unwrap();
    read(&fs, ino, fs.open(ino));
    assert!(fs.at("f").atime > second, "a day later");
}

#[test]
fn strict_access_times_move_always_and_never_never() {
    let fs = with(AccessTimes::Always);
    let ino = fs.file("f", b"content");
    let handle = fs.open(ino);
    let mut last = fs.at("f").atime;
    for _ in 0..3 {
        read(&fs, ino, handle);
        assert!(fs.at("f").atime > last);
        last = fs.at("f").atime;
    }
    let quiet = OpenFlags {
        no_atime: true,
        ..READ_WRITE
    };
    read(&fs, ino, fs.vfs.open(ino, quiet).unwrap());
    assert_eq!(fs.at("f").atime, last);

    let fs = with(AccessTimes::Never);
    let ino = fs.file("f", b"content");
    let before = fs.at("f");
    read(&fs, ino, fs.open(ino));
    assert_eq!(fs.at("f"), before);
}

#[test]
fn listing_a_directory_is_an_access() {
    let fs = with(AccessTimes::Relative);
    let before = fs.at("").atime;
    fs.file("f", b"");
    fs.vfs
        .readdir(ROOT, Handle::NONE, 0, &mut |_| Listing::More)
        .unwrap();
    assert!(fs.at("").atime > before);

    let fs = Fixture::new(Options {
        directory_access_times: false,
        ..Options::default()
    });
    let before = fs.at("").atime;
    let handle = fs.vfs.opendir(ROOT).unwrap();
    fs.vfs
        .readdir(ROOT, handle, 0, &mut |_| Listing::More)
        .unwrap();
    assert_eq!(fs.at("").atime, before);
}

#[test]
fn access_times_in_memory_reach_the_tree() {
    let fs = Fixture::new(Options {
        access_times: AccessTimes::Always,
        access_times_max: 10,
        ..Options::default()
    });
    let inos: Vec<_> = (0..35).map(|i| fs.file(&format!("f{i}"), b"x")).collect();
    let stored = |ino| fs.vfs.volume().attr(ino).unwrap().unwrap().atime;
    for ino in &inos {
        read(&fs, *ino, Handle::NONE);
    }
    let there = |ino: &&Ino| stored(**ino) == fs.vfs.getattr(**ino).unwrap().atime;
    assert!(inos.iter().filter(there).count() >= 25, "the bound holds");
    fs.vfs.flush_access_times().unwrap();
    assert!(inos.iter().all(|ino| there(&ino)));
}

#[test]
fn a_set_access_time_wins_over_one_in_memory() {
    let fs = with(AccessTimes::Always);
    let ino = fs.file("f", b"x");
    read(&fs, ino, Handle::NONE);
    let time = persimmon_vfs::Timestamp {
        seconds: 5,
        nanoseconds: 6,
    };
    let set = persimmon_vfs::SetAttr {
        atime: Some(persimmon_vfs::SetTime::At(time)),
        ..Default::default()
    };
    assert_eq!(fs.vfs.setattr(ino, Handle::NONE, &set).unwrap().atime, time);
    fs.vfs.flush_access_times().unwrap();
    assert_eq!(fs.at("f").atime, time);
}

/// A write staged its times, `link` marked the change time after it, and when the data was flushed
/// the older time of the write took its place.
#[test]
fn flushing_a_write_does_not_take_the_change_time_back() {
    let fs = Fixture::default();
    let ino = fs.file("f", &[1; 10_000]);
    fs.link("f", "g");
    let before = fs.at("f").written();
    fs.vfs.sync().unwrap();
    assert_eq!(fs.at("f"), before);
    fs.write(ino, 0, b"x");
    let written = fs.at("f").written();
    assert!(written.ctime > before.ctime);
    fs.vfs.sync().unwrap();
    assert_eq!(fs.at("f"), written);
}

/// Who set the access time had looked at the time of the last write, and put it back though somebody had
/// written while it waited for what was on its way to the device.
#[test]
fn setting_the_access_time_beside_a_write_keeps_the_time_of_the_write() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let set = SetAttr {
        atime: Some(SetTime::Now),
        ..SetAttr::default()
    };
    for _ in 0..2000 {
        fs.write(ino, 0, b"y");
        let before = fs.clock.now();
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                fs.vfs.volume().commit_file(ino).unwrap();
            });
            scope.spawn(|| {
                start.wait();
                fs.write(ino, 0, b"x");
            });
            start.wait();
            fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
        });
        assert!(fs.at("f").mtime > before);
    }
}
