//! Handles to a filesystem: clones, closing, listing, trees, reads that are submitted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use persimmon::{
    Create, Error, FileKind, Filesystem, FilesystemError, OpenOptions, Options, SeekTo,
};

fn memory() -> Filesystem {
    Filesystem::in_memory(64 << 20).unwrap()
}

fn image(dir: &Path) -> PathBuf {
    let path = dir.join("volume.img");
    Filesystem::create(&path, &Create::sized(64 << 20)).unwrap();
    path
}

fn open(path: &Path) -> Filesystem {
    Filesystem::open(path, &Options::default()).unwrap()
}

/// A filesystem that was dropped instead of closed once lost what had not been synced.
#[test]
fn the_last_handle_closes_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path());
    let fs = open(&path);
    let clone = fs.clone();
    let file = clone
        .open_file("/f", &OpenOptions::new().write(true).create(true))
        .unwrap();
    drop((fs, clone));
    file.write_at(b"by the last handle", 0).unwrap();
    drop(file);
    let fs = open(&path);
    assert_eq!(fs.read("/f").unwrap(), b"by the last handle");
    fs.close().unwrap();
}

/// A file that another takes the place of again and again was not found now and then, or was stale: between the look at
/// its name and at its inode, or its opening, it was replaced and freed.
#[test]
fn a_name_that_is_always_there_is_always_found() {
    let fs = memory();
    fs.write("/f", b"content").unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert_eq!(fs.read("/f").unwrap(), b"content");
                    assert_eq!(fs.metadata("/f").unwrap().size, 7);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2000 {
                fs.write("/next", b"content").unwrap();
                fs.rename("/next", "/f").unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn what_is_closed_takes_no_changes_through_other_handles() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path());
    let fs = open(&path);
    fs.write("/f", b"before").unwrap();
    let clone = fs.clone();
    fs.close().unwrap();
    let refused = clone.write("/f", b"after").unwrap_err();
    assert!(matches!(
        refused.filesystem(),
        Some(FilesystemError::ReadOnly)
    ));
    drop(clone);
    assert_eq!(open(&path).read("/f").unwrap(), b"before");
}

#[test]
fn an_abandoned_volume_keeps_what_was_synced() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path());
    let fs = open(&path);
    fs.write("/synced", b"1").unwrap();
    fs.sync().unwrap();
    fs.write("/lost", b"2").unwrap();
    fs.abandon();
    let fs = open(&path);
    assert!(fs.exists("/synced"));
    assert!(!fs.exists("/lost"));
}

#[test]
fn a_directory_is_listed_piece_by_piece() {
    let fs = memory();
    let all: BTreeSet<String> = (0..1000).map(|i| format!("name-{i}")).collect();
    fs.create_dir("/d").unwrap();
    for name in &all {
        fs.write(format!("/d/{name}"), name).unwrap();
    }
    let mut found = BTreeSet::new();
    for entry in fs.read_dir("/d").unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().size as usize,
            entry.file_name().len()
        );
        let name = entry.file_name().to_str().unwrap().to_owned();
        assert_eq!(entry.path(), Path::new("/d").join(&name));
        assert!(found.insert(name), "told twice");
    }
    assert_eq!(found, all);
    let file = fs.read_dir("/d/name-1").err().unwrap();
    assert!(file.to_string().starts_with("/d/name-1: "), "{file}");
}

#[test]
fn a_tree_is_walked_copied_and_removed() {
    let fs = memory();
    fs.create_dir_all("/t/a/b").unwrap();
    fs.write("/t/a/b/f", b"1").unwrap();
    fs.write("/t/g", b"2").unwrap();
    fs.write("/kept", b"3").unwrap();
    fs.symlink("/kept", "/t/a/link").unwrap();
    let walked: Vec<PathBuf> = fs
        .walk("/t")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let at = |path: &str| walked.iter().position(|p| p == Path::new(path)).unwrap();
    assert_eq!(walked.len(), 5);
    assert!(at("/t/a") < at("/t/a/b") && at("/t/a/b") < at("/t/a/b/f"));
    at("/t/a/link");
    fs.remove_dir_all("/t").unwrap();
    assert!(!fs.exists("/t"));
    assert_eq!(fs.read("/kept").unwrap(), b"3");
    fs.remove_dir_all("/kept").unwrap();
    let nothing = fs.remove_dir_all("/nothing").unwrap_err();
    assert!(matches!(
        nothing.filesystem(),
        Some(FilesystemError::NotFound)
    ));
}

/// Deeper than a path that is walked from the root at each step, or a stack that is called into, would bear.
#[test]
fn a_deep_tree_is_removed() {
    let fs = memory();
    let mut ino = fs.metadata("/").unwrap().ino;
    let caller = persimmon::Caller::root();
    for _ in 0..5000 {
        ino = fs.vfs().mkdir(&caller, ino, b"d", 0o755).unwrap().ino;
    }
    fs.remove_dir_all("/d").unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 0);
}

#[test]
fn a_copy_has_content_permissions_and_holes() {
    let fs = memory();
    let file = fs
        .open_file("/from", &OpenOptions::new().write(true).create(true))
        .unwrap();
    file.write_at(&[7; 5000], 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    fs.set_permissions("/from", 0o4751).unwrap();
    fs.write("/to", vec![1; 4 << 20]).unwrap();
    assert_eq!(fs.copy("/from", "/to").unwrap(), 3 << 20);
    assert_eq!(fs.read("/to").unwrap(), fs.read("/from").unwrap());
    assert_eq!(fs.metadata("/to").unwrap().mode & 0o7777, 0o4751);
    let copy = fs.open_file("/to", &OpenOptions::new().read(true)).unwrap();
    assert_eq!(copy.seek_to(0, SeekTo::Data).unwrap(), Some(1 << 20));
    // Emptying the target would have emptied the source.
    assert!(fs.copy("/to", "to").is_err());
    assert_eq!(fs.metadata("/to").unwrap().size, 3 << 20);
}

#[test]
fn copies_share_their_blocks() {
    let fs = memory();
    let mut state = 1_u32;
    let noise = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    fs.write("/from", (0..2 << 20).map(noise).collect::<Vec<u8>>())
        .unwrap();
    fs.sync().unwrap();
    let used = || {
        fs.sync().unwrap();
        let room = fs.statfs().unwrap();
        (room.blocks - room.blocks_free) * u64::from(room.block_size)
    };
    let before = used();
    for copy in 0..8 {
        fs.copy("/from", format!("/copy {copy}")).unwrap();
    }
    let source = fs.open_file("/from", &OpenOptions::new().read(true));
    let part = fs.open_file("/part", &OpenOptions::new().write(true).create(true));
    let (source, part) = (source.unwrap(), part.unwrap());
    assert_eq!(source.copy_to(4096, &part, 8192, 1 << 20).unwrap(), 1 << 20);
    assert!(used() - before < 1 << 20, "{} and {before}", used());
    let due = fs.read("/from").unwrap();
    assert!(fs.read("/copy 7").unwrap() == due);
    assert!(fs.read("/part").unwrap()[8192..] == due[4096..4096 + (1 << 20)]);
}

#[test]
fn appending_tells_where_it_ends() {
    let fs = memory();
    let log = fs
        .open_file("/log", &OpenOptions::new().append(true).create(true))
        .unwrap();
    assert_eq!(log.append(b"one").unwrap(), 3);
    assert_eq!(log.append(b"").unwrap(), 3);
    assert_eq!(log.append(b"four").unwrap(), 7);
    let plain = fs
        .open_file("/log", &OpenOptions::new().write(true))
        .unwrap();
    let refused = plain.append(b"x").unwrap_err();
    assert!(refused.to_string().starts_with("/log: "), "{refused}");
    assert_eq!(fs.read("/log").unwrap(), b"onefour");
}

#[test]
fn submitted_reads_answer_what_reads_answer() {
    let fs = memory();
    let content: Vec<u8> = (0..1_000_000u32).map(|i| (i / 3) as u8).collect();
    fs.write("/f", &content).unwrap();
    let file = fs.open_file("/f", &OpenOptions::new().read(true)).unwrap();
    // More than may wait: the others are done at once.
    let reads: Vec<_> = (0..1000usize)
        .map(|i| (i * 999, file.submit_read(2000, i as u64 * 999).unwrap()))
        .collect();
    // Given up.
    drop(file.submit_read(1 << 20, 0).unwrap());
    // It stays open for them.
    drop(file);
    for (offset, read) in reads {
        let end = (offset + 2000).min(content.len());
        assert_eq!(read.wait().unwrap(), &content[offset..end], "{offset}");
    }
    let writer = fs.open_file("/f", &OpenOptions::new().write(true)).unwrap();
    let refused = writer.submit_read(1, 0).unwrap().wait().unwrap_err();
    assert!(matches!(
        refused,
        Error::At {
            source: FilesystemError::BadHandle,
            ..
        }
    ));
}

#[test]
fn a_read_under_way_may_be_the_last_handle() {
    let dir = tempfile::tempdir().unwrap();
    let path = image(dir.path());
    for _ in 0..20 {
        let fs = open(&path);
        fs.write("/f", vec![5; 300_000]).unwrap();
        let file = fs.open_file("/f", &OpenOptions::new().read(true)).unwrap();
        let read = file.submit_read(300_000, 0).unwrap();
        drop((fs, file));
        assert_eq!(read.wait().unwrap(), vec![5; 300_000]);
    }
    assert_eq!(
        open(&path).metadata("/f").unwrap().kind(),
        FileKind::Regular
    );
}

#[test]
fn a_volume_is_checkpointed_cleaned_and_scrubbed() {
    let fs = memory();
    for round in 0..3u8 {
        for i in 0..20 {
            fs.write(format!("/f{i}"), vec![round; 500_000]).unwrap();
        }
    }
    fs.checkpoint().unwrap();
    assert!(fs.stats().checkpoints > 0);
    let cleaned = fs.clean(None).unwrap();
    assert!(!cleaned.reached);
    let free = fs.clean(Some(1)).unwrap();
    assert!(free.reached && free.free_zones >= 1);
    assert_eq!(
        fs.zones().len() as u32,
        fs.vfs().volume().identity().zone_count
    );
    let scrubbed = fs.scrub(|_, _| true).unwrap();
    assert_eq!(scrubbed.findings, []);
    // What is in the files compresses well.
    assert!(!scrubbed.stopped && scrubbed.bytes > 20 * 500_000 / 200);
    assert!(fs.scrub(|_, _| false).unwrap().stopped);
}

/// Every kind of extent, staged blocks and holes, with ranges that begin and end anywhere, overlap, and pass the end.
#[test]
fn a_batch_answers_what_reads_answer() {
    let fs = memory();
    let options = OpenOptions::new().read(true).write(true).create(true);
    let file = fs.open_file("/f", &options).unwrap();
    let mut state = 7u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 33
    };
    for round in 0..40 {
        let len = 1 + random() % 60_000;
        let same = round % 3 == 0;
        let data: Vec<u8> = (0..len)
            .map(|i| if same { round } else { (i * 31 % 251) as u8 })
            .collect();
        file.write_at(&data, random() % 2_000_000).unwrap();
        match round % 4 {
            0 => file.sync_all().unwrap(),
            1 => fs.sync().unwrap(),
            2 => fs.checkpoint().unwrap(),
            _ => {}
        }
    }
    let size = file.metadata().unwrap().size;
    for count in [0, 1, 2, 17, 64] {
        let wanted: Vec<(u64, usize)> = (0..count)
            .map(|_| (random() % (size + 5000), (random() % 20_000) as usize))
            .collect();
        let mut buffers: Vec<Vec<u8>> = wanted.iter().map(|(_, len)| vec![1; *len]).collect();
        let mut ranges: Vec<(u64, &mut [u8])> = wanted
            .iter()
            .zip(&mut buffers)
            .map(|((offset, _), buffer)| (*offset, buffer.as_mut_slice()))
            .collect();
        let read = file.read_batch(&mut ranges).unwrap();
        for (i, (offset, len)) in wanted.iter().enumerate() {
            let mut alone = vec![1; *len];
            let expected = file.read_at(&mut alone, *offset).unwrap();
            assert_eq!(*read[i].as_ref().unwrap(), expected);
            assert_eq!(buffers[i], alone);
        }
    }
}
