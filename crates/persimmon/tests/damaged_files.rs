//! Files of which an item is damaged, with the real background threads at work: all others go on.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use persimmon::{Filesystem, OpenOptions, Options, SetAttr};
use persimmon_engine::{Error, FormatOptions, Intent, Volume};
use persimmon_format::{Ino, Key};
use persimmon_sim::{SimConfig, SimDevice};

/// Nobody waits so long but for ever.
const FOR_EVER: Duration = Duration::from_secs(120);
const BLOCK: usize = 4096;
const EIO: i32 = 5;

fn open(device: &Arc<SimDevice>) -> Filesystem {
    let options = Options {
        commit_interval: Duration::from_millis(20),
        ..Options::default()
    };
    Filesystem::open_on(Arc::clone(device) as _, &options).unwrap()
}

/// A file of more pieces than one record removes.
fn scattered(fs: &Filesystem, path: &str) -> Ino {
    let options = OpenOptions::new().write(true).create(true);
    let file = fs.open_file(path, &options).unwrap();
    for piece in 0..600 {
        let block = vec![piece as u8; BLOCK];
        file.write_at(&block, piece * 2 * BLOCK as u64).unwrap();
    }
    file.sync_all().unwrap();
    file.ino()
}

fn put(fs: &Filesystem, key: Key, value: &[u8]) {
    let put = fs.vfs().volume().update::<_, Error>(Intent::Grow, |tx| {
        tx.put(key, value.to_vec());
        Ok(())
    });
    put.unwrap();
}

fn is_open(fs: &Filesystem, ino: Ino) -> bool {
    let found = fs
        .vfs()
        .volume()
        .view::<_, Error>(|view| Ok(view.get(&Key::truncation(ino))?.is_some()));
    found.unwrap()
}

fn errno<T: std::fmt::Debug>(result: persimmon::Result<T>) -> i32 {
    let error = result.unwrap_err();
    error
        .filesystem()
        .unwrap_or_else(|| panic!("{error}"))
        .errno()
}

fn truncate(fs: &Filesystem, path: &str, size: u64) -> persimmon::Result<()> {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    fs.set_attributes(path, &set).map(drop)
}

fn others_work(fs: &Filesystem, path: &str) {
    assert!(!fs.vfs().is_read_only(), "{path}");
    fs.write(path, vec![5; 9000]).unwrap();
    let file = fs.open_file(path, &OpenOptions::new().write(true)).unwrap();
    file.sync_all().unwrap();
}

/// Cutting a file of many pieces off met a damaged one behind the first 256, and the whole volume was read-only; so it was again
/// after each mount, which went on with that truncation. No truncation behind it was ever finished.
#[test]
fn a_truncation_that_meets_damage_is_the_trouble_of_its_file_alone() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 1024).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let fs = open(&device);
    let bad = scattered(&fs, "/bad");
    put(&fs, Key::extent(bad, 1001), &[0xff; 7]);
    assert_eq!(errno(truncate(&fs, "/bad", 10 * BLOCK as u64)), EIO);
    assert!(is_open(&fs, bad), "a part of it was cut off");
    others_work(&fs, "/other");
    // It must not grow over what is still mapped behind its end.
    assert_eq!(errno(truncate(&fs, "/bad", 1 << 30)), EIO);
    let file = fs.open_file("/bad", &OpenOptions::new().write(true));
    assert_eq!(errno(file.unwrap().write_at(b"x", 1 << 22)), EIO);
    assert_eq!(fs.metadata("/bad").unwrap().size, 10 * BLOCK as u64);
    others_work(&fs, "/other");
    // One that an interrupted mount might have left.
    let good = scattered(&fs, "/good");
    truncate(&fs, "/good", 0).unwrap();
    put(&fs, Key::truncation(good), &[0; 8]);
    fs.sync().unwrap();
    fs.abandon();

    let fs = open(&device);
    let began = Instant::now();
    while is_open(&fs, good) {
        assert!(began.elapsed() < FOR_EVER, "it is never finished");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(is_open(&fs, bad));
    others_work(&fs, "/another");
    assert_eq!(errno(truncate(&fs, "/bad", 1 << 30)), EIO);
    // The background has had its commits.
    std::thread::sleep(Duration::from_millis(100));
    others_work(&fs, "/yet-another");
    truncate(&fs, "/good", 1 << 20).unwrap();
    fs.close().unwrap();
}
