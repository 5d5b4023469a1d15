//! What a crash may leave of a file.

use std::collections::BTreeMap;

use persimmon_device::BLOCK_SIZE;

use super::content::{FileContent, block_hash};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// The file a program sees now, as the crash leaves it when everything is committed.
fn hashes(content: &FileContent) -> BTreeMap<u64, u64> {
    let bytes = content.read(0, usize::MAX);
    (0..)
        .zip(bytes.chunks(BLOCK_SIZE))
        .map(|(block, bytes)| (block, block_hash(bytes)))
        .filter(|(_, hash)| *hash != block_hash(&[]))
        .collect()
}

fn admits(at_crash: &FileContent, found: &FileContent) -> bool {
    at_crash.admits(found.size(), &hashes(found)).is_ok()
}

fn file(text: &str) -> FileContent {
    let mut content = FileContent::default();
    content.write(0, text.as_bytes());
    content.commit();
    content
}

#[test]
fn an_unsynced_block_holds_any_value_since_the_sync() {
    let mut content = file("one");
    content.write(0, b"two");
    content.write(0, b"three");
    for text in ["one", "two", "three"] {
        assert!(admits(&content, &file(text)), "{text}");
    }
    for text in ["", "zero", "onexx", "thr", "threee", "\0\0\0\0\0"] {
        assert!(!admits(&content, &file(text)), "{text}");
    }
    content.commit();
    assert!(!admits(&content, &file("two")));
    assert!(admits(&content, &file("three")));
}

#[test]
fn a_size_comes_with_the_write_that_causes_it() {
    let mut content = FileContent::default();
    content.write(BLOCK, b"second");
    let mut zeros = FileContent::default();
    zeros.truncate(BLOCK + 6);
    assert!(!admits(&content, &zeros));
    assert!(admits(&content, &FileContent::default()));
    assert!(admits(&content, &content.clone()));
    content.write(0, b"first");
    // A write into the hole causes no size: alone it fills its block.
    let mut first = FileContent::default();
    first.write(0, b"first");
    assert!(!admits(&content, &first));
    first.truncate(BLOCK);
    assert!(admits(&content, &first));
}

#[test]
fn a_truncate_ends_the_older_tail_for_ever() {
    let mut content = file("abcdef");
    content.write(0, b"ABCDEF");
    content.truncate(3);
    content.truncate(6);
    assert!(admits(&content, &file("abc\0\0\0")));
    assert!(admits(&content, &file("ABC\0\0\0")));
    assert!(!admits(&content, &file("abcdef")));
    content.commit();
    assert!(!admits(&content, &file("abc")));
}

/// All of it, as `fallocate` does.
fn punch(content: &mut FileContent, offset: u64, length: u64) {
    content.zero_edges(offset, length);
    content.punch(offset, length);
}

#[test]
fn a_punch_takes_whole_blocks_at_once_and_edges_later() {
    let mut content = file(&"x".repeat(3 * BLOCK_SIZE));
    let before = content.clone();
    punch(&mut content, 100, 2 * BLOCK);
    assert!(admits(&content, &content.clone()));
    assert!(!admits(&content, &before));
    let mut edges_open = before.clone();
    edges_open.punch(BLOCK, BLOCK);
    assert!(admits(&content, &edges_open));
    assert_eq!(content.read(0, 200), [&[b'x'; 100][..], &[0; 100]].concat());
    assert_eq!(content.read(2 * BLOCK + 99, 2), b"\0x");
}

/// Seed 9000463: a batch of several records came between a punch and the end of the file. The zeros at
/// the edge of what is punched are a block in the hole, as other bytes written there are.
#[test]
fn zeros_written_into_a_hole_may_end_a_file() {
    for zeros_at in [
        |content: &mut FileContent| punch(content, BLOCK + 1, 2 * BLOCK),
        |content: &mut FileContent| content.write(3 * BLOCK + 7, &[0; 9]),
        |content: &mut FileContent| content.write(3 * BLOCK + 7, b"x"),
    ] {
        let mut content = file("a");
        content.write(5 * BLOCK, b"end");
        zeros_at(&mut content);
        let mut as_far = file("a");
        as_far.write(3 * BLOCK, &content.read(3 * BLOCK, BLOCK_SIZE));
        assert_eq!(as_far.size(), 4 * BLOCK);
        assert!(admits(&content, &as_far));
        for size in [3 * BLOCK, 4 * BLOCK - 1, 5 * BLOCK] {
            let mut other = as_far.clone();
            other.truncate(size);
            assert!(!admits(&content, &other), "{size}");
        }
        content.commit();
        assert!(!admits(&content, &as_far));
    }
}

/// Seed 6000001133: what made the file longer was lost, and not what was written before that, in a block that goes on behind what the file
/// had. The file ends where that write does.
#[test]
fn what_is_written_behind_the_end_of_what_is_left_ends_the_file() {
    let mut content = FileContent::default();
    content.write(100, &[b'a'; 10]);
    content.write(3 * BLOCK, b"end");
    content.write(50, &[b'x'; 300]);
    let mut as_far = FileContent::default();
    as_far.write(50, &[b'x'; 300]);
    assert!(admits(&content, &as_far));
    // One more in the same block does not take that back.
    content.write(60, &[b'y'; 10]);
    as_far.write(60, &[b'y'; 10]);
    assert!(admits(&content, &as_far));
    for size in [110, 349, 351] {
        let mut other = as_far.clone();
        other.truncate(size);
        assert!(!admits(&content, &other), "{size}");
    }
    content.commit();
    assert!(!admits(&content, &as_far));
}

/// Where the file was durable so far, nothing written inside it ends it earlier.
#[test]
fn a_block_written_into_what_is_durable_ends_nothing() {
    for bytes in [b"x", b"\0"] {
        let mut content = file("a");
        content.write(5 * BLOCK, b"end");
        content.commit();
        content.write(3 * BLOCK, bytes);
        let mut short = content.clone();
        short.truncate(4 * BLOCK);
        assert!(!admits(&content, &short));
        content.write(9 * BLOCK, b"more");
        assert!(!admits(&content, &short));
    }
}

/// The same bytes again are no other block: what the first write caused goes with them.
#[test]
fn a_block_written_twice_brings_the_size_it_caused() {
    let mut content = file("");
    content.write(0, b"first");
    content.write(5 * BLOCK, b"end");
    content.write(0, b"first");
    let mut as_far = FileContent::default();
    as_far.write(0, b"first");
    assert!(admits(&content, &as_far));
    as_far.truncate(BLOCK);
    assert!(!admits(&content, &as_far));
}

#[test]
fn a_synced_range_binds_its_blocks_and_no_others() {
    let mut content = file(&"x".repeat(2 * BLOCK_SIZE));
    let old = content.clone();
    content.write(0, b"a");
    let only_a = content.clone();
    content.write(BLOCK, b"b");
    content.commit_range(BLOCK, 1);
    assert!(!admits(&content, &old));
    assert!(!admits(&content, &only_a));
    let mut only_b = old.clone();
    only_b.write(BLOCK, b"b");
    assert!(admits(&content, &only_b));
    assert!(admits(&content, &content.clone()));
}
