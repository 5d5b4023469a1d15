//! A full volume once could not be opened to write as long as a tail was to be brought in, so that nothing could be deleted either.

use persimmon::{AddMetadata, FilesystemError};

use super::*;

/// Bytes in the tail: less than is written back before it has to be.
const KEPT: usize = 100_000;

/// A full volume, with a tail for which there is room only once `free` was done, which is not durable.
fn full(create: &Create, free: impl FnOnce(&Filesystem, File)) -> Image {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volume.img");
    Filesystem::create(&path, create).unwrap();
    let image = Image { dir, path };
    let fs = image.open();
    let log = fs.open_file("/log", &keeping()).unwrap();
    add(&log, b"");
    // More than the first tail has room for: the next one has it.
    add(&log, &[1; KEPT]);
    fs.write("/victim", vec![2; 2 << 20]).unwrap();
    let options = OpenOptions::new().append(true).create(true);
    let big = fs.open_file("/big", &options).unwrap();
    for piece in [vec![3; 64 << 10], vec![3; 4 << 10]] {
        while big.append(&piece).is_ok() {}
    }
    let victim = fs.open_file("/victim", &OpenOptions::new().read(true));
    fs.sync().unwrap();
    free(&fs, victim.unwrap());
    add(&log, &[4; KEPT]);
    let tail = tails(&fs).remove(0);
    let kept = fs::read(&tail).unwrap();
    assert!(kept.windows(KEPT).any(|bytes| bytes == [4; KEPT]));
    fs.abandon();
    drop((log, big));
    image
}

fn unlink_victim(fs: &Filesystem, victim: File) {
    drop(victim);
    fs.remove_file("/victim").unwrap();
}

fn whole() -> Vec<u8> {
    [[1; KEPT], [4; KEPT]].concat()
}

/// The small volume needs all of its reserve for itself.
#[test]
fn a_full_volume_opens_and_what_was_flushed_waits() {
    let image = full(&Create::sized(64 << 20), unlink_victim);
    // More often than once.
    for _ in 0..3 {
        let fs = image.open();
        assert_eq!(tails(&fs).len(), 1);
        let opened = [
            fs.read("/log").map(drop),
            fs.open_file("/log", &keeping()).map(drop),
            fs.write("/log", b"").map(drop),
            fs.set_attributes("/log", &cut()).map(drop),
        ];
        for refused in opened {
            let error = refused.unwrap_err();
            let why = error.filesystem();
            assert!(matches!(why, Some(FilesystemError::EndWaits)), "{error:?}");
            assert_eq!(error.errno(), libc::ENOSPC);
            assert!(error.to_string().contains("delete other files"), "{error}");
        }
        fs.rename("/log", "/renamed").unwrap();
        fs.rename("/renamed", "/log").unwrap();
        fs.close().unwrap();
    }
    // Opened to read, it is there as far as it is durable.
    let fs = Filesystem::open(&image.path, &Options::read_only()).unwrap();
    assert_eq!(fs.read("/log").unwrap(), [1; KEPT]);
    fs.close().unwrap();
    let fs = image.open();
    fs.remove_file("/victim").unwrap();
    // Flushes go to the device meanwhile.
    let other = fs.open_file("/other", &keeping()).unwrap();
    add(&other, b"first");
    add(&other, b"second");
    assert_eq!(tails(&fs).len(), 1);
    assert_eq!(image.after(fs, vec![other], "/other"), b"firstsecond");
    let fs = image.open();
    assert!(fs.read("/log").unwrap() == whole());
    assert!(tails(&fs).is_empty());
}

/// A file that waits can be deleted as all others, and what was flushed to it is given up with it.
#[test]
fn a_file_that_waits_can_be_removed() {
    let image = full(&Create::sized(64 << 20), unlink_victim);
    let fs = image.open();
    fs.remove_file("/log").unwrap();
    fs.write("/log", b"another").unwrap();
    fs.close().unwrap();
    let fs = image.open();
    assert_eq!(fs.read("/log").unwrap(), b"another");
    assert!(tails(&fs).is_empty());
}

/// What is held back beyond what the volume needs for itself may be used for what was acknowledged.
#[test]
fn what_was_flushed_takes_of_the_reserve() {
    let create = Create {
        reserve_basis_points: Some(5000),
        ..Create::sized(128 << 20)
    };
    let image = full(&create, unlink_victim);
    let fs = image.open();
    assert!(fs.read("/log").unwrap() == whole());
    assert!(tails(&fs).is_empty());
    // For nothing else.
    assert_eq!(fs.statfs().unwrap().blocks_available, 0);
    assert!(fs.write("/more", vec![5; 64 << 10]).is_err());
    fs.remove_file("/victim").unwrap();
    fs.write("/more", vec![5; 64 << 10]).unwrap();
}

/// They are freed in the background otherwise, once the volume is in use.
#[test]
fn unlinked_files_are_freed_for_what_was_flushed() {
    let image = full(&Create::sized(64 << 20), |fs, victim| {
        fs.remove_file("/victim").unwrap();
        fs.sync().unwrap();
        drop(victim);
    });
    let fs = image.open();
    assert!(fs.read("/log").unwrap() == whole());
    assert!(tails(&fs).is_empty());
}

fn cut() -> SetAttr {
    SetAttr {
        size: Some(0),
        ..SetAttr::default()
    }
}

/// It waited by the name of the one device, and nobody looked for it by the name of both.
#[test]
fn what_waits_for_room_keeps_a_volume_from_getting_a_device_for_metadata() {
    let image = full(&Create::sized(64 << 20), unlink_victim);
    let metadata = image.dir.path().join("metadata");
    let add = || Filesystem::add_metadata(&image.path, &metadata, &AddMetadata::default());
    let refused = add().unwrap_err();
    assert!(
        refused.to_string().contains("flushed before they died"),
        "{refused}"
    );
    assert!(!metadata.exists());
    let fs = image.open();
    assert_eq!(tails(&fs).len(), 1);
    fs.remove_file("/victim").unwrap();
    fs.close().unwrap();
    add().unwrap();
    let both = persimmon::device::uri(&metadata, &image.path);
    let fs = Filesystem::open(both, &Options::default()).unwrap();
    assert!(fs.read("/log").unwrap() == whole());
    fs.close().unwrap();
}

/// What waited met the files of the snapshot afterwards: it was brought into one that was as before, or given up.
#[test]
fn what_waits_for_room_keeps_a_volume_from_being_rolled_back() {
    let image = full(&Create::sized(64 << 20), unlink_victim);
    // Whether there is such a snapshot is looked at after that.
    let keep = std::ffi::OsStr::new("kept");
    for keep in [None, Some(keep)] {
        let rolled_back = Filesystem::roll_back(&image.path, "before", keep, &Options::default());
        let refused = rolled_back.unwrap_err().to_string();
        assert!(refused.contains("flushed before they died"), "{refused}");
    }
    let fs = image.open();
    assert_eq!(tails(&fs).len(), 1);
    fs.close().unwrap();
}
