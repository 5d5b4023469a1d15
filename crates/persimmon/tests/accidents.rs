//! An image that was overwritten outside of Persimmon goes on being used, and is whole afterwards. That every file is there
//! after any accident is tested with the command (`cli/tests/all/accidents.rs`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::fs;
use std::path::{Path, PathBuf};

use persimmon::{Create, Filesystem, OpenOptions, Options};

const IMAGE_BYTES: u64 = 96 << 20;
const MIB: u64 = 1 << 20;

fn content(number: usize) -> Vec<u8> {
    let len = [0, 10, 700, 5000, 70_000, 900_000][number % 6];
    (0..len)
        .map(|i| ((i * 31 + number * 7) % 251) as u8)
        .collect()
}

const FILES: usize = 120;

fn fill(fs: &Filesystem) {
    for number in 0..FILES {
        let dir = format!("/d{}", number % 7);
        fs.create_dir_all(&dir).unwrap();
        fs.write(format!("{dir}/f{number}"), content(number))
            .unwrap();
        if number % 40 == 39 {
            fs.sync().unwrap();
        }
    }
    fs.sync().unwrap();
}

fn verify(name: &str, fs: &Filesystem) {
    for number in 0..FILES {
        let file = format!("/d{}/f{number}", number % 7);
        let read = fs
            .read(&file)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(read == content(number), "{name}: {file} differs");
    }
}

fn image(dir: &Path, closed: bool) -> PathBuf {
    let path = dir.join(if closed { "closed.img" } else { "crashed.img" });
    Filesystem::create(&path, &Create::sized(IMAGE_BYTES)).unwrap();
    let fs = Filesystem::open(&path, &Options::default()).unwrap();
    fill(&fs);
    if closed {
        fs.close().unwrap();
    } else {
        fs.abandon();
    }
    path
}

/// It goes on being used: nothing that it writes then is in the way of what was there, and it is whole again afterwards.
#[test]
fn a_volume_hit_by_an_accident_is_used_and_whole_again() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    for closed in [true, false] {
        let path = image(dir.path(), closed);
        let intact = fs::read(&path).unwrap();
        for (name, from, to) in [
            ("the first 64 KiB", 0, 64 << 10),
            ("the first table", 64 << 10, 128 << 10),
            ("the first 4 MiB", 0, 4 << 20),
            ("the last MiB", intact.len() - MIB as usize, intact.len()),
        ] {
            let mut hit = intact.clone();
            hit[from..to].fill(0);
            fs::write(&path, &hit).unwrap();
            let name = format!("without {name}, closed: {closed}");
            let fs = Filesystem::open(&path, &Options::default());
            let fs = fs.unwrap_or_else(|error| panic!("{name}: {error}"));
            verify(&name, &fs);
            for number in 0..60 {
                fs.write(format!("/new{number}"), vec![number as u8; 300_000])
                    .unwrap();
            }
            let log = fs
                .open_file("/log", &OpenOptions::new().append(true).create(true))
                .unwrap();
            for line in 0..100 {
                log.write_at(format!("{line}\n").as_bytes(), 0).unwrap();
                log.sync_all().unwrap();
            }
            drop(log);
            fs.close().unwrap();
            let fs = Filesystem::open(&path, &Options::default()).unwrap();
            verify(&name, &fs);
            for number in 0..60 {
                assert_eq!(
                    fs.read(format!("/new{number}")).unwrap(),
                    vec![number as u8; 300_000]
                );
            }
            assert_eq!(fs.read("/log").unwrap().len(), 290);
            fs.close().unwrap();
        }
    }
}
