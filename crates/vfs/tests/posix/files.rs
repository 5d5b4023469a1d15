//! Content.

use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_vfs::{Allocate, Handle, LockOwner, OpenFlags, SeekTo, WriteFlags};

use crate::fixture::{Fixture, READ_WRITE};

#[test]
fn reads_stop_at_the_end() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"hello");
    let handle = fs.open(ino);
    let mut buf = [0; 8];
    assert_eq!(fs.vfs.read(ino, handle, 0, &mut buf).unwrap(), 5);
    assert_eq!(&buf[..5], b"hello");
    assert_eq!(fs.vfs.read(ino, handle, 3, &mut buf).unwrap(), 2);
    assert_eq!(fs.vfs.read(ino, handle, 5, &mut buf).unwrap(), 0);
    assert_eq!(fs.vfs.read(ino, handle, u64::MAX, &mut buf).unwrap(), 0);
}

#[test]
fn a_write_past_the_end_leaves_zeros() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"ab");
    fs.write(ino, 5, b"cd");
    assert_eq!(fs.content(ino), b"ab\0\0\0cd");
    assert_eq!(fs.at("f").size, 7);
}

#[test]
fn a_write_of_nothing_changes_nothing() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"ab");
    let before = fs.at("f");
    fs.write(ino, 100, b"");
    assert_eq!(fs.at("f"), before);
}

#[test]
fn writes_overlap_and_cross_blocks() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let mut expected = vec![0; 20_000];
    for (i, (offset, len)) in [
        (0, 20_000),
        (4000, 200),
        (8191, 2),
        (100, 9000),
        (19_999, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let data = vec![i as u8 + 1; len];
        fs.write(ino, offset as u64, &data);
        expected[offset..offset + len].copy_from_slice(&data);
    }
    assert_eq!(fs.content(ino), expected);
    fs.vfs.sync().unwrap();
    assert_eq!(fs.content(ino), expected);
}

#[test]
fn appending_handles_write_at_the_end() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"start");
    let flags = OpenFlags {
        append: true,
        ..READ_WRITE
    };
    let a = fs.vfs.open(ino, flags).unwrap();
    let b = fs.vfs.open(ino, flags).unwrap();
    let write = |handle, data: &[u8]| {
        fs.vfs
            .write(ino, handle, 0, data, WriteFlags::default())
            .unwrap()
    };
    assert_eq!(write(a, b"-a").end, 7);
    assert_eq!(write(b, b"-b").end, 9);
    assert_eq!(fs.content(ino), b"start-a-b");
}

#[test]
fn concurrent_appends_lose_nothing() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"");
    let flags = OpenFlags {
        append: true,
        ..READ_WRITE
    };
    std::thread::scope(|scope| {
        for id in 0..4u8 {
            let fs = &fs;
            scope.spawn(move || {
                let handle = fs.vfs.open(ino, flags).unwrap();
                for _ in 0..50 {
                    fs.vfs
                        .write(ino, handle, 0, &[id; 10], WriteFlags::default())
                        .unwrap();
                }
                fs.vfs.release(ino, handle).unwrap();
            });
        }
    });
    let content = fs.content(ino);
    assert_eq!(content.len(), 4 * 50 * 10);
    for piece in content.chunks(10) {
        assert!(piece.iter().all(|byte| *byte == piece[0]), "a torn append");
    }
}

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

#[test]
fn fsync_and_synchronous_handles_succeed() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"data");
    let sync = OpenFlags {
        sync: true,
        ..READ_WRITE
    };
    let data_sync = OpenFlags {
        data_sync: true,
        ..READ_WRITE
    };
    for flags in [READ_WRITE, sync, data_sync] {
        let handle = fs.vfs.open(ino, flags).unwrap();
        fs.vfs
            .write(ino, handle, 0, b"more", WriteFlags::default())
            .unwrap();
        fs.vfs.fsync(ino, handle).unwrap();
        fs.vfs.flush(ino, handle, LockOwner(1)).unwrap();
        fs.vfs.release(ino, handle).unwrap();
    }
    assert_eq!(fs.content(ino), b"more");
}

#[test]
fn preallocation_grows_the_size_or_keeps_it() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"hello");
    let reserve = |keep_size, offset, len| {
        let what = Allocate::Reserve { keep_size };
        fs.vfs
            .fallocate(ino, Handle::NONE, offset, len, what)
            .unwrap();
    };
    reserve(true, 0, 100_000);
    assert_eq!(fs.content(ino), b"hello");
    reserve(false, 3, 10);
    assert_eq!(fs.content(ino), b"hello\0\0\0\0\0\0\0\0");
    reserve(false, 0, 4);
    assert_eq!(fs.at("f").size, 13, "a range inside changes no size");
}

#[test]
fn holes_and_zeroed_ranges_read_as_zeros() {
    let fs = Fixture::default();
    let ino = fs.file("f", &[7; 12_000]);
    fs.vfs
        .fallocate(ino, Handle::NONE, 100, 8000, Allocate::Punch)
        .unwrap();
    let mut expected = vec![7; 12_000];
    expected[100..8100].fill(0);
    assert_eq!(fs.content(ino), expected);
    let zero = |keep_size| Allocate::Zero { keep_size };
    fs.vfs
        .fallocate(ino, Handle::NONE, 11_000, 5000, zero(true))
        .unwrap();
    expected[11_000..].fill(0);
    assert_eq!(fs.content(ino), expected);
    fs.vfs
        .fallocate(ino, Handle::NONE, 11_000, 5000, zero(false))
        .unwrap();
    expected.resize(16_000, 0);
    assert_eq!(fs.content(ino), expected);
}

#[test]
fn a_hole_is_found_after_data_and_at_the_end() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"hello");
    let seek = |offset, to| fs.vfs.seek(ino, Handle::NONE, offset, to);
    assert_eq!(seek(0, SeekTo::Data).unwrap(), 0);
    assert_eq!(seek(2, SeekTo::Data).unwrap(), 2);
    assert_eq!(seek(0, SeekTo::Hole).unwrap(), 5);
}

#[test]
fn a_range_is_copied_within_and_between_files() {
    let fs = Fixture::default();
    let from = fs.file("from", b"0123456789");
    let to = fs.file("to", b"abcdefghij");
    let copy = |from, to, len| fs.vfs.copy_file_range(from, to, len).unwrap();
    let none = Handle::NONE;
    assert_eq!(copy((from, none, 2), (to, none, 5), 3), 3);
    assert_eq!(fs.content(to), b"abcde234ij");
    assert_eq!(copy((from, none, 8), (to, none, 10), 100), 2);
    assert_eq!(fs.content(to), b"abcde234ij89");
    assert_eq!(copy((from, none, 10), (to, none, 0), 5), 0);
    assert_eq!(copy((from, none, 0), (from, none, 10), 10), 10);
    assert_eq!(fs.content(from), b"01234567890123456789");
}

#[test]
fn opening_with_truncate_empties() {
    let fs = Fixture::default();
    let ino = fs.file("f", b"hello");
    let flags = OpenFlags {
        truncate: true,
        ..READ_WRITE
    };
    let handle = fs.vfs.open(ino, flags).unwrap();
    assert_eq!(fs.at("f").size, 0);
    fs.vfs
        .write(ino, handle, 0, b"new", WriteFlags::default())
        .unwrap();
    fs.vfs.release(ino, handle).unwrap();
    assert_eq!(fs.content(ino), b"new");
}
