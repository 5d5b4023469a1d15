//! Content.

use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_vfs::{Allocate, Handle, OpenFlags, Options, ROOT, WriteFlags};

use crate::fixture::{Fixture, READ_WRITE};

/// An append beside a truncation went to where the end had been, and left a hole before itself. A read
/// beside one found the size of before and the blocks of after.
#[test]
fn no_zeros_are_in_a_file_that_is_appended_to_and_emptied() {
    const RECORD: usize = 3000;
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let flags = OpenFlags {
        append: true,
        ..READ_WRITE
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let appender = scope.spawn(|| {
            let handle = fs.vfs.open(ino, flags).unwrap();
            for i in 0..40_000u32 {
                let record = [1 + (i % 255) as u8; RECORD];
                fs.vfs
                    .write(ino, handle, 0, &record, WriteFlags::default())
                    .unwrap();
                if i % 7 == 0 {
                    // What is cut off is in the tree, too.
                    fs.vfs.volume().commit_file(ino).unwrap();
                }
            }
            fs.vfs.release(ino, handle).unwrap();
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if fs.vfs.getattr(ino).unwrap().size > 20 * RECORD as u64 {
                    fs.truncate(ino, 0);
                }
            }
        });
        scope.spawn(|| {
            let mut found = vec![0; 30 * RECORD];
            while !done.load(Ordering::Relaxed) {
                let len = fs.vfs.read(ino, Handle::NONE, 0, &mut found).unwrap();
                assert_eq!(len % RECORD, 0, "a torn append");
                for record in found[..len].chunks(RECORD) {
                    assert!(record[0] != 0, "a hole");
                    assert!(
                        record.iter().all(|byte| *byte == record[0]),
                        "a torn append"
                    );
                }
            }
        });
        let appended = appender.join();
        done.store(true, Ordering::Relaxed);
        appended.unwrap();
    });
}

/// Of a directory it was said that the range lies behind its end, and that nothing of it was copied.
#[test]
fn what_has_no_content_has_no_ranges() {
    let fs = Fixture::new(Options::default());
    let dir = fs.mkdir("d");
    let fifo = fs.vfs.mknod(&fs.root, ROOT, b"p", libc::S_IFIFO | 0o600, 0);
    let fifo = fifo.unwrap().ino;
    let keep_size = false;
    for what in [
        Allocate::Reserve { keep_size },
        Allocate::Punch,
        Allocate::Zero { keep_size },
        Allocate::Collapse,
        Allocate::Insert,
    ] {
        let errno = |ino| {
            let done = fs.vfs.fallocate(ino, Handle::NONE, 0, 4096, what);
            done.unwrap_err().errno()
        };
        assert_eq!(errno(dir), libc::EISDIR, "{what:?}");
        assert_eq!(errno(fifo), libc::EINVAL, "{what:?}");
    }
    let file = fs.file("f", b"");
    let copy = |from| {
        let (from, to) = ((from, Handle::NONE, 8192), (file, Handle::NONE, 0));
        fs.vfs.copy_file_range(from, to, 4096).unwrap_err().errno()
    };
    assert_eq!((copy(dir), copy(fifo)), (libc::EISDIR, libc::EINVAL));
}

/// More extents than one record moves, some of them under a snapshot.
#[test]
fn a_file_of_many_pieces_is_shifted() {
    const BLOCK: usize = 4096;
    const PIECES: usize = 5000;
    let fs = Fixture::new(Options::default());
    let ino = fs.file("f", b"");
    let mut due = vec![0; 2 * PIECES * BLOCK];
    for piece in 0..PIECES {
        let at = 2 * piece * BLOCK;
        let content = [(piece % 250) as u8 + 1; BLOCK];
        fs.write(ino, at as u64, &content[..100]);
        due[at..at + 100].copy_from_slice(&content[..100]);
        if piece % 500 == 0 {
            fs.vfs.sync().unwrap();
        }
    }
    due.truncate((2 * PIECES - 2) * BLOCK + 100);
    let shift = |due: &mut Vec<u8>, block: usize, blocks: usize, what| {
        let (at, len) = (block * BLOCK, blocks * BLOCK);
        fs.vfs
            .fallocate(ino, Handle::NONE, at as u64, len as u64, what)
            .unwrap();
        if what == Allocate::Collapse {
            due.drain(at..at + len);
        } else {
            due.splice(at..at, vec![0; len]);
        }
        assert!(fs.content(ino) == *due, "{what:?} of {blocks} at {block}");
    };
    shift(&mut due, 3, 5, Allocate::Collapse);
    shift(&mut due, 4, 7, Allocate::Insert);
    fs.vfs
        .mkdir(&fs.root, persimmon_vfs::SNAPSHOTS, b"s", 0)
        .unwrap();
    let before = due.clone();
    shift(&mut due, 1000, 1, Allocate::Insert);
    shift(&mut due, 0, 9, Allocate::Collapse);
    shift(&mut due, 10, 8000, Allocate::Collapse);
    let fs = fs.remount();
    assert!(fs.content(ino) == due);
    let snapshot = fs.at(".snapshots/s/f").ino;
    assert!(fs.content(snapshot) == before, "the snapshot changed");
}

/// What is opened to be emptied stays as it is where it cannot be opened.
#[test]
fn too_many_open_files_empty_none() {
    let fs = Fixture::new(Options {
        handles_max: 1,
        ..Options::default()
    });
    let ino = fs.file("f", b"content");
    let first = fs.vfs.open(ino, READ_WRITE).unwrap();
    let flags = OpenFlags {
        truncate: true,
        ..READ_WRITE
    };
    assert_eq!(fs.vfs.open(ino, flags).unwrap_err().errno(), libc::ENFILE);
    assert_eq!(fs.content(ino), b"content");
    fs.vfs.release(ino, first).unwrap();
    let emptied = fs.vfs.open(ino, flags).unwrap();
    assert_eq!(fs.content(ino), b"");
    fs.vfs.release(ino, emptied).unwrap();
}
