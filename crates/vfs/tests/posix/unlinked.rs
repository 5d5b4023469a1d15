//! Files without a name: open ones live on, others are freed, temporary ones can get a name.

use persimmon_vfs::{Error, Ino, Options, ROOT, WriteFlags};

use crate::fixture::{Fixture, READ_WRITE};

fn is_gone(fs: &Fixture, ino: Ino) -> bool {
    matches!(fs.vfs.getattr(ino), Err(Error::Stale))
}

fn orphans(fs: &Fixture) -> Vec<Ino> {
    fs.vfs.volume().orphans().unwrap()
}

#[test]
fn an_open_file_lives_until_its_last_close() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    let a = fs.open(ino);
    let b = fs.open(ino);
    fs.unlink("f");
    assert_eq!(orphans(&fs), [ino]);
    fs.vfs
        .write(ino, a, 7, b" and more", WriteFlags::default())
        .unwrap();
    fs.vfs.release(ino, a).unwrap();
    assert_eq!(fs.content(ino), b"content and more");
    // What is open can be opened again (/proc/self/fd).
    let c = fs.open(ino);
    fs.vfs.release(ino, b).unwrap();
    fs.vfs.release(ino, c).unwrap();
    assert!(is_gone(&fs, ino));
    assert_eq!(orphans(&fs), []);
    assert!(matches!(fs.vfs.open(ino, READ_WRITE), Err(Error::Stale)));
}

#[test]
fn a_file_that_is_not_open_goes_at_once() {
    let fs = Fixture::default();
    let ino = fs.file("f", &[1; 100_000]);
    fs.unlink("f");
    assert!(is_gone(&fs, ino));
    assert_eq!(orphans(&fs), []);
}

#[test]
fn a_kernel_holds_an_unlinked_inode_until_it_forgets_it() {
    let fs = Fixture::new(Options {
        hold_until_forget: true,
        ..Options::default()
    });
    let ino = fs.file("f", b"content");
    fs.vfs.forget(ino);
    assert!(!is_gone(&fs, ino), "it has a name");
    fs.unlink("f");
    assert_eq!(fs.vfs.getattr(ino).unwrap().nlink, 0);
    let handle = fs.open(ino);
    fs.vfs.forget(ino);
    assert!(!is_gone(&fs, ino), "it is open");
    fs.vfs.release(ino, handle).unwrap();
    assert!(is_gone(&fs, ino));

    let ino = fs.file("g", b"content");
    let handle = fs.open(ino);
    fs.unlink("g");
    fs.vfs.release(ino, handle).unwrap();
    assert!(!is_gone(&fs, ino), "the kernel may still refer to it");
    fs.vfs.forget(ino);
    assert!(is_gone(&fs, ino));
}

#[test]
fn a_kernel_forgets_many_at_once() {
    let fs = Fixture::new(Options {
        hold_until_forget: true,
        ..Options::default()
    });
    let names: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
    let inos: Vec<_> = names.iter().map(|name| fs.file(name, b"content")).collect();
    for name in &names[10..] {
        fs.unlink(name);
    }
    let handle = fs.open(inos[50]);
    fs.vfs.forget_all(&inos);
    for (number, ino) in inos.iter().enumerate() {
        let kept = number < 10 || number == 50;
        assert_eq!(is_gone(&fs, *ino), !kept, "{number}");
    }
    fs.vfs.release(inos[50], handle).unwrap();
    assert!(is_gone(&fs, inos[50]));
    assert_eq!(orphans(&fs), []);
}

#[test]
fn closing_the_filesystem_frees_what_is_left() {
    let fs = Fixture::new(Options {
        hold_until_forget: true,
        ..Options::default()
    });
    let a = fs.file("a", b"1");
    fs.file("b", b"2");
    fs.open(a);
    fs.unlink("a");
    fs.unlink("b");
    assert_eq!(orphans(&fs).len(), 2);
    fs.vfs.close().unwrap();
    assert_eq!(orphans(&fs), []);
}

#[test]
fn orphans_of_an_earlier_use_are_reclaimed() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"content");
    fs.open(ino);
    fs.unlink("f");
    let left = orphans(&fs);
    assert_eq!(left, [ino]);
    fs.vfs.reclaim_orphans(&left).unwrap();
    assert!(is_gone(&fs, ino));
}

#[test]
fn a_temporary_file_has_no_name_until_it_is_linked() {
    let fs = Fixture::default();
    let (attr, handle) = fs.vfs.tmpfile(&fs.root, ROOT, 0o600, READ_WRITE).unwrap();
    assert_eq!((attr.nlink, attr.mode), (0, libc::S_IFREG | 0o600));
    assert_eq!(orphans(&fs), [attr.ino]);
    fs.vfs
        .write(attr.ino, handle, 0, b"text", WriteFlags::default())
        .unwrap();
    let linked = fs.vfs.link(attr.ino, ROOT, b"f").unwrap();
    assert_eq!(linked.nlink, 1);
    assert_eq!(orphans(&fs), []);
    fs.vfs.release(attr.ino, handle).unwrap();
    assert_eq!(fs.content(fs.ino("f")), b"text");
    fs.unlink("f");
    assert!(is_gone(&fs, attr.ino));
}

#[test]
fn a_temporary_file_that_gets_no_name_goes_with_its_handle() {
    let fs = Fixture::default();
    let (attr, handle) = fs.vfs.tmpfile(&fs.root, ROOT, 0o600, READ_WRITE).unwrap();
    fs.vfs.release(attr.ino, handle).unwrap();
    assert!(is_gone(&fs, attr.ino));
    assert_eq!(fs.names(""), [""; 0]);
}

/// It waited for a FORGET of a kernel that did not know it, and stayed until the next mount.
#[test]
fn a_temporary_file_that_cannot_be_opened_leaves_nothing() {
    for hold_until_forget in [false, true] {
        let fs = Fixture::new(Options {
            handles_max: 1,
            hold_until_forget,
            ..Options::default()
        });
        let ino = fs.file("f", b"content");
        let first = fs.vfs.open(ino, READ_WRITE).unwrap();
        let made = fs.vfs.tmpfile(&fs.root, ROOT, 0o600, READ_WRITE);
        assert_eq!(made.unwrap_err().errno(), libc::ENFILE);
        assert_eq!(orphans(&fs), []);
        fs.vfs.release(ino, first).unwrap();
    }
}

#[test]
fn opening_and_removing_from_many_threads_frees_everything() {
    let fs = Fixture::default();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fs = &fs;
            scope.spawn(move || {
                for round in 0..200 {
                    let name = format!("f{}", round % 3);
                    let made = fs
                        .vfs
                        .create(&fs.root, ROOT, name.as_bytes(), 0o644, READ_WRITE);
                    let (attr, handle) = made.unwrap();
                    if (round + thread) % 2 == 0 {
                        let removed = fs.vfs.unlink(ROOT, name.as_bytes());
                        assert!(matches!(removed, Ok(()) | Err(Error::NotFound)));
                    }
                    fs.vfs
                        .write(attr.ino, handle, 0, b"x", WriteFlags::default())
                        .unwrap();
                    fs.vfs.release(attr.ino, handle).unwrap();
                }
            });
        }
    });
    assert_eq!(orphans(&fs), []);
}

#[test]
fn everything_is_there_after_a_remount() {
    let fs = Fixture::default();
    fs.mkdir("d");
    let ino = fs.file("d/f", &[5; 10_000]);
    fs.vfs.symlink(&fs.root, ROOT, b"s", b"d/f").unwrap();
    fs.link("d/f", "g");
    let kept = fs.file("open", b"gone after the remount");
    fs.open(kept);
    fs.unlink("open");
    let before = fs.at("d/f").written();
    let fs = fs.remount();
    assert_eq!(fs.at("d/f"), before);
    assert_eq!(fs.content(ino), [5; 10_000]);
    assert_eq!(fs.vfs.readlink(fs.ino("s")).unwrap(), b"d/f");
    assert_eq!(fs.names(""), ["d", "g", "s"]);
    assert!(is_gone(&fs, kept));
}

/// A file made without a name was given one while its last handle was closed: the close found it
/// still marked as nameless and freed it under its new name.
#[test]
fn a_temporary_file_linked_while_it_is_closed_stays() {
    let fs = Fixture::default();
    for round in 0..300 {
        let name = format!("f{round}");
        let (attr, handle) = fs.vfs.tmpfile(&fs.root, ROOT, 0o600, READ_WRITE).unwrap();
        fs.write(attr.ino, 0, b"content");
        let linked = std::thread::scope(|scope| {
            let link = scope.spawn(|| fs.vfs.link(attr.ino, ROOT, name.as_bytes()));
            fs.vfs.release(attr.ino, handle).unwrap();
            link.join().unwrap()
        });
        match linked {
            Ok(_) => assert_eq!(fs.content(fs.ino(&name)), b"content"),
            Err(error) => {
                assert!(matches!(error, Error::Stale | Error::NotFound), "{error}");
                assert!(!fs.exists(&name));
            }
        }
    }
    assert_eq!(orphans(&fs), []);
}
