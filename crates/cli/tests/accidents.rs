//! An image whose start or end was overwritten or cut off: each accident on a volume with known files and one copy of
//! its metadata. Zeros over the first sector made it "not a Persimmon image", and a stray partition table
//! emptied the zones of its log: everything was there, and nothing got it back.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use persimmon::{Filesystem, Options};
use persimmon_engine::{Task, Volume};

const MIB: u64 = 1 << 20;
const FILES: u32 = 24;

fn run(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_persimmon"))
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap()
}

fn content(n: u32) -> Vec<u8> {
    n.to_le_bytes().repeat(1 + n as usize * 1500)
}

/// Some before a checkpoint, some in the journal after it.
fn make(dir: &Path, size: &str) {
    let made = run(dir, &["mkfs", "image", "--size", size, "--label", "saved"]);
    assert!(made.status.success());
    let filesystem = Filesystem::open(dir.join("image"), &Options::default()).unwrap();
    for n in 0..FILES {
        if n == FILES / 2 {
            filesystem.sync().unwrap();
            let volume: &Volume = filesystem.vfs().volume();
            volume.step(Task::Checkpoint).unwrap();
        }
        let folder = format!("/folder {}", n % 3);
        filesystem.create_dir_all(&folder).unwrap();
        let name = format!("{folder}/{n}");
        filesystem.write(name, content(n)).unwrap();
    }
    filesystem.sync().unwrap();
    filesystem.close().unwrap();
}

#[track_caller]
fn check(image: &Path, options: &Options, what: &str) {
    let filesystem = Filesystem::open(image, options);
    let filesystem = filesystem.unwrap_or_else(|error| panic!("{what}: {error}"));
    for n in 0..FILES {
        let read = filesystem.read(format!("/folder {}/{n}", n % 3));
        assert!(read.unwrap() == content(n), "{what}: file {n}");
    }
    filesystem.close().unwrap();
}

/// A volume's files, and an accident that is undone afterwards.
struct Place {
    dir: tempfile::TempDir,
    file: File,
    whole: Vec<u8>,
}

impl Place {
    fn new(size: &str) -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        make(dir.path(), size);
        let image = dir.path().join("image");
        Place {
            file: File::options().read(true).write(true).open(&image).unwrap(),
            whole: fs::read(image).unwrap(),
            dir,
        }
    }

    fn image(&self) -> std::path::PathBuf {
        self.dir.path().join("image")
    }

    fn zero(&self, from: u64, to: u64) {
        let zeros = vec![0; (to - from) as usize];
        self.file.write_all_at(&zeros, from).unwrap();
    }

    fn undo(&self, from: u64, to: u64) {
        let bytes = &self.whole[from as usize..to as usize];
        self.file.write_all_at(bytes, from).unwrap();
    }

    fn undo_all(&self) {
        self.file.set_len(0).unwrap();
        let mut to = &self.file;
        std::io::Seek::rewind(&mut to).unwrap();
        std::io::copy(&mut Cursor::new(&self.whole), &mut to).unwrap();
    }
}

/// Each part of the first 4 MiB, of `step` bytes, but for parts that were zeros anyway.
fn sweep(place: &Place, step: u64, only: impl Fn(u64) -> bool) -> u32 {
    let mut tried = 0;
    for from in (0..4 * MIB)
        .step_by(step as usize)
        .filter(|from| only(*from))
    {
        let to = from + step;
        if place.whole[from as usize..to as usize]
            .iter()
            .all(|byte| *byte == 0)
        {
            continue;
        }
        place.zero(from, to);
        let what = format!("{step} bytes at {from}");
        check(&place.image(), &Options::read_only(), &what);
        place.undo(from, to);
        tried += 1;
    }
    tried
}

#[test]
fn any_part_of_the_first_megabytes_may_be_lost() {
    let place = Place::new("64M");
    assert!(sweep(&place, 512, |_| true) >= 15);
    assert!(sweep(&place, 4096, |_| true) >= 4);
    assert!(sweep(&place, MIB, |_| true) >= 1);
    place.zero(0, 4 * MIB);
    check(&place.image(), &Options::read_only(), "the first 4 MiB");
    check(&place.image(), &Options::default(), "the first 4 MiB");
    let sound = run(place.dir.path(), &["fsck", "image", "--data"]);
    assert_eq!(sound.status.code(), Some(0), "{sound:?}");
}

#[test]
fn partition_tables_and_cut_or_zeroed_ends_cost_nothing() {
    let place = Place::new("64M");
    let total = place.whole.len() as u64;
    let mbr = || {
        let mut sector = [0; 512];
        sector[446 + 4] = 0x83;
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        place.file.write_all_at(&sector, 0).unwrap();
    };
    let gpt = || {
        place.zero(0, 34 * 512);
        mbr();
        place.file.write_all_at(b"EFI PART", 512).unwrap();
        place
            .file
            .write_all_at(&[0xee; 33 * 512], total - 33 * 512)
            .unwrap();
    };
    let accidents: [(&str, &dyn Fn()); 5] = [
        ("MBR", &mbr),
        ("GPT", &gpt),
        ("last MiB", &|| place.zero(total - MIB, total)),
        ("cut by a sector", &|| {
            place.file.set_len(total - 512).unwrap()
        }),
        ("appended", &|| {
            place.file.write_all_at(&[7; 9999], total).unwrap()
        }),
    ];
    for (what, accident) in accidents {
        accident();
        let before = run(place.dir.path(), &["fsck", "image"]);
        let told = String::from_utf8_lossy(&before.stdout).into_owned();
        let is_told = what == "appended" || told.contains("image");
        assert!(before.status.success() && is_told, "{what}: {told}");
        check(&place.image(), &Options::read_only(), what);
        check(&place.image(), &Options::default(), what);
        let after = run(place.dir.path(), &["fsck", "image", "--data", "--json"]);
        let after: serde_json::Value = serde_json::from_slice(&after.stdout).unwrap();
        let numbers = after["report"]["findings"].to_string();
        assert!(!numbers.contains("90"), "{what}: {numbers}");
        place.undo_all();
    }
}

/// Nothing is left of superblocks and tables: the zones are found by their headers, and read whatever their write
/// pointers were.
#[test]
fn an_image_without_both_ends_is_recovered_by_its_zones() {
    let place = Place::new("64M");
    let total = place.whole.len() as u64;
    place.zero(0, 4 * MIB);
    place.zero(total - MIB, total);
    let dir = place.dir.path();
    let info = run(dir, &["info", "image"]);
    let told = String::from_utf8_lossy(&info.stderr).into_owned();
    assert!(told.contains("persimmon recover"), "{told}");
    let recovered = run(dir, &["recover", "image", "new", "--json"]);
    assert_eq!(recovered.status.code(), Some(0), "{recovered:?}");
    check(&dir.join("new"), &Options::read_only(), "recovered");
    let mended = run(dir, &["fsck", "image", "--repair", "--yes", "--scan"]);
    assert_eq!(mended.status.code(), Some(1), "{mended:?}");
    check(&place.image(), &Options::default(), "mended in place");
}
