//! What happens to images outside of Persimmon: a stray `dd`, a partition table, a copy that was cut off. The volume opens all
//! the same, with every file. Once the first sector was enough to make an image "not a Persimmon image", and a partition
//! table lay over the write pointers of a hundred zones.
//!
//! `ACCIDENTS=all cargo test --release -p persimmon --test accidents` zeroes each sector of the first 4 MiB alone.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test from top to bottom"
)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use persimmon::{Create, Filesystem, OpenOptions, Options};

const IMAGE_BYTES: u64 = 96 << 20;
const MIB: u64 = 1 << 20;
/// One past a sector.
const SECTOR: usize = 512;

/// Something that happens to an image.
struct Accident {
    name: String,
    at: u64,
    bytes: Vec<u8>,
    cut_to: Option<u64>,
}

impl Accident {
    fn bytes(name: impl Into<String>, at: u64, bytes: Vec<u8>) -> Accident {
        Accident {
            name: name.into(),
            at,
            bytes,
            cut_to: None,
        }
    }

    /// Lets it happen, runs `then`, and puts everything back.
    fn while_it_lasts(&self, file: &File, then: impl FnOnce()) {
        let length = file.metadata().unwrap().len();
        let mut before = vec![0; self.bytes.len()];
        file.read_exact_at(&mut before, self.at).unwrap();
        file.write_all_at(&self.bytes, self.at).unwrap();
        let mut tail = Vec::new();
        if let Some(end) = self.cut_to {
            tail.resize((length - end) as usize, 0);
            file.read_exact_at(&mut tail, end).unwrap();
            file.set_len(end).unwrap();
        }
        then();
        if let Some(end) = self.cut_to {
            file.set_len(length).unwrap();
            file.write_all_at(&tail, end).unwrap();
        }
        file.write_all_at(&before, self.at).unwrap();
    }
}

/// The accidents; of sectors and blocks some, unless all are asked for.
fn accidents(length: u64) -> Vec<Accident> {
    let all = std::env::var_os("ACCIDENTS").is_some_and(|which| which == "all");
    let mut accidents = Vec::new();
    for (size, some) in [(SECTOR, 61), (4096, 13), (MIB as usize, 1)] {
        for (i, at) in (0..4 * MIB).step_by(size).enumerate() {
            if all || i < 12 || i % some == 0 {
                let name = format!("{size} bytes at {at} zeroed");
                accidents.push(Accident::bytes(name, at, vec![0; size]));
            }
        }
    }
    accidents.push(Accident::bytes(
        "all of the first 4 MiB zeroed",
        0,
        vec![0; 4 << 20],
    ));
    accidents.push(Accident::bytes(
        "the last MiB zeroed",
        length - MIB,
        vec![0; MIB as usize],
    ));
    let mut mbr = vec![0; SECTOR];
    mbr[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 255, 255, 255, 0, 8, 0, 0, 0, 0xe8, 2, 0]);
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    accidents.push(Accident::bytes("an MBR", 0, mbr.clone()));
    // The protective MBR, the header, and 128 entries of 128 bytes, of which the first is a partition.
    let mut gpt = mbr;
    gpt.extend(b"EFI PART\0\0\x01\0");
    gpt.resize(2 * SECTOR, 0);
    gpt.extend([0xa5; 128]);
    gpt.resize(34 * SECTOR, 0);
    accidents.push(Accident::bytes("a GPT", 0, gpt.clone()));
    let backup = gpt[SECTOR..].to_vec();
    accidents.push(Accident::bytes(
        "the GPT's backup",
        length - backup.len() as u64,
        backup,
    ));
    let mut cut = Accident::bytes("cut off by a sector", 0, Vec::new());
    cut.cut_to = Some(length - SECTOR as u64);
    accidents.push(cut);
    accidents
}

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

fn check(name: &str, path: &Path) {
    let fs = Filesystem::open(path, &Options::read_only());
    let fs = fs.unwrap_or_else(|error| panic!("{name}: {error}"));
    verify(name, &fs);
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

#[test]
fn every_file_is_there_after_any_accident() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    for closed in [true, false] {
        let path = image(dir.path(), closed);
        let length = fs::metadata(&path).unwrap().len();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        for accident in accidents(length) {
            accident.while_it_lasts(&file, || check(&accident.name, &path));
        }
        check("nothing", &path);
    }
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
