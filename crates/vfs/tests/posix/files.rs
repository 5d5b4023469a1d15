//! Content.

use std::sync::atomic::{AtomicBool, Ordering};

use persimmon_vfs::{Handle, OpenFlags, WriteFlags};

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
