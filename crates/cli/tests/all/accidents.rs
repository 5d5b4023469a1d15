//! An image whose start or end was overwritten or cut off: each accident on a volume with known files and one copy of
//! its metadata. Zeros over the first sector made it "not a Persimmon image", and a stray partition table
//! emptied the zones of its log: everything was there, and nothing got it back.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use persimmon::Options;
use persimmon_format::container::Superblock;

use crate::common::Place;
use crate::common::files::Files;

const MIB: u64 = 1 << 20;
const SECTOR: usize = 512;

/// Some before a checkpoint, some in the journal after it.
const FILES: Files = Files {
    count: 24,
    folders: 3,
    words: 1500,
    in_checkpoint: 12,
};

/// An image with a volume's files, and accidents that are undone afterwards.
struct Image {
    place: Place,
    file: File,
    whole: Vec<u8>,
}

impl Image {
    fn new(size: &str) -> Image {
        let place = Place::in_memory();
        FILES.make(&place, "image", size, "saved");
        let path = place.dir().join("image");
        Image {
            file: File::options().read(true).write(true).open(&path).unwrap(),
            whole: fs::read(path).unwrap(),
            place,
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.place.run(arguments)
    }

    fn path(&self) -> PathBuf {
        self.place.dir().join("image")
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
        to.rewind().unwrap();
        to.write_all(&self.whole).unwrap();
    }

    #[track_caller]
    fn check(&self, options: &Options, what: &str) {
        FILES.check(&self.path(), options, what);
    }

    /// Runs a program that makes partition tables on the image; nothing happens where it is not installed.
    fn label(&self, program: &str, arguments: &[&str], script: &str) {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            return;
        };
        let mut input = child.stdin.take().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        drop(input);
        assert!(child.wait().unwrap().success(), "{program}");
    }
}

/// A master boot record with one partition of this type.
fn mbr(kind: u8) -> Vec<u8> {
    let mut sector = vec![0; SECTOR];
    sector[446..462]
        .copy_from_slice(&[0, 0, 2, 0, kind, 255, 255, 255, 1, 0, 0, 0, 255, 255, 1, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// The checksum of a GPT.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// A GPT with one partition as tools write it, for an image of so many sectors: what is at the start, what at the end.
fn gpt(sectors: u64) -> [Vec<u8>; 2] {
    let mut entries = vec![0; 32 * SECTOR];
    entries[..16].copy_from_slice(&0x0fc6_3daf_8483_4772_8e79_3d69_d847_7de4_u128.to_be_bytes());
    entries[16..32].fill(0xa5);
    entries[32..40].copy_from_slice(&2048u64.to_le_bytes());
    entries[40..48].copy_from_slice(&(sectors - 34).to_le_bytes());
    let header = |this: u64, other: u64, table: u64| {
        let mut header = b"EFI PART\0\0\x01\0\x5c\0\0\0".to_vec();
        header.extend([0; 8]);
        for number in [this, other, 34, sectors - 34] {
            header.extend(number.to_le_bytes());
        }
        header.extend([0x5a; 16]);
        header.extend(table.to_le_bytes());
        for number in [128, 128, crc32(&entries)] {
            header.extend(number.to_le_bytes());
        }
        let crc = crc32(&header);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        header.resize(SECTOR, 0);
        header
    };
    let last = sectors - 1;
    let start = [mbr(0xee), header(1, last, 2), entries.clone()].concat();
    let end = [entries.clone(), header(last, 1, last - 32)].concat();
    [start, end]
}

/// Each part of the first 4 MiB, of `step` bytes, but for parts that were zeros anyway.
fn sweep(image: &Image, step: u64, only: impl Fn(u64) -> bool) -> u32 {
    let mut tried = 0;
    for from in (0..4 * MIB)
        .step_by(step as usize)
        .filter(|from| only(*from))
    {
        let to = from + step;
        if image.whole[from as usize..to as usize]
            .iter()
            .all(|byte| *byte == 0)
        {
            continue;
        }
        image.zero(from, to);
        let what = format!("{step} bytes at {from}");
        image.check(&Options::read_only(), &what);
        image.undo(from, to);
        tried += 1;
    }
    tried
}

#[test]
fn any_part_of_the_first_megabytes_may_be_lost() {
    let image = Image::new("64M");
    assert!(sweep(&image, 512, |_| true) >= 15);
    assert!(sweep(&image, 4096, |_| true) >= 4);
    assert!(sweep(&image, MIB, |_| true) >= 1);
    image.zero(0, 4 * MIB);
    image.check(&Options::read_only(), "the first 4 MiB");
    image.check(&Options::default(), "the first 4 MiB");
    let sound = image.run(&["fsck", "image", "--data"]);
    assert_eq!(sound.status.code(), Some(0), "{sound:?}");
}

#[test]
fn partition_tables_and_cut_or_zeroed_ends_cost_nothing() {
    let image = Image::new("64M");
    let total = image.whole.len() as u64;
    let [gpt_start, gpt_end] = gpt(total / SECTOR as u64);
    let write = |bytes: &[u8], at| image.file.write_all_at(bytes, at).unwrap();
    let sgdisk = ["--clear", "--new=1:2048:0"];
    let accidents: [(&str, &dyn Fn()); 11] = [
        ("MBR", &|| write(&mbr(0x83), 0)),
        ("MBR over the first 4 KiB", &|| {
            image.zero(0, 4096);
            write(&mbr(0x83), 0);
        }),
        ("GPT at the start", &|| write(&gpt_start, 0)),
        ("GPT at the end", &|| {
            write(&gpt_end, total - gpt_end.len() as u64);
        }),
        ("GPT", &|| {
            write(&gpt_start, 0);
            write(&gpt_end, total - gpt_end.len() as u64);
        }),
        ("sgdisk", &|| image.label("sgdisk", &sgdisk, "")),
        ("sfdisk, GPT", &|| {
            image.label("sfdisk", &["--quiet"], "label: gpt\n,,\n");
        }),
        ("sfdisk, MBR", &|| {
            image.label("sfdisk", &["--quiet"], "label: dos\n,,\n");
        }),
        ("last MiB", &|| image.zero(total - MIB, total)),
        ("cut by a sector", &|| {
            image.file.set_len(total - SECTOR as u64).unwrap();
        }),
        ("appended", &|| write(&[7; 9999], total)),
    ];
    for (what, accident) in accidents {
        accident();
        let before = image.run(&["fsck", "image"]);
        let told = String::from_utf8_lossy(&before.stdout).into_owned();
        // The last 64 KiB hold nothing, and a program may not be installed.
        let now = fs::read(image.path()).unwrap();
        let used = total as usize - (64 << 10);
        let is_harmed = now.len() < image.whole.len() || now[..used] != image.whole[..used];
        let is_told = told.contains("warning") == is_harmed;
        assert!(before.status.success() && is_told, "{what}: {told}");
        image.check(&Options::read_only(), what);
        image.check(&Options::default(), what);
        let after = image.run(&["fsck", "image", "--data", "--json"]);
        let after: serde_json::Value = serde_json::from_slice(&after.stdout).unwrap();
        let numbers = after["report"]["findings"].to_string();
        assert!(!numbers.contains("90"), "{what}: {numbers}");
        image.undo_all();
    }
}

/// Nothing is left of superblocks and tables: the zones are found by their headers, and read whatever their write
/// pointers were.
#[test]
fn an_image_without_both_ends_is_recovered_by_its_zones() {
    let image = Image::new("64M");
    let total = image.whole.len() as u64;
    image.zero(0, 4 * MIB);
    image.zero(total - MIB, total);
    let dir = image.place.dir();
    let info = image.run(&["info", "image"]);
    let told = String::from_utf8_lossy(&info.stderr).into_owned();
    assert!(told.contains("persimmon recover"), "{told}");
    let recovered = image.run(&["recover", "image", "new", "--json"]);
    assert_eq!(recovered.status.code(), Some(0), "{recovered:?}");
    FILES.check(&dir.join("new"), &Options::read_only(), "recovered");
    let mended = image.run(&["fsck", "image", "--repair", "--yes", "--scan"]);
    assert_eq!(mended.status.code(), Some(1), "{mended:?}");
    image.check(&Options::default(), "mended in place");
}

/// Whoever ends `mkfs --force` at its first step has a superblock that says so, and behind it all of the volume that was there.
/// What he was told was to run mkfs again.
#[test]
fn what_was_there_before_an_interrupted_mkfs_is_recovered() {
    let image = Image::new("64M");
    let block = image.whole.first_chunk().unwrap();
    let mut superblock = Superblock::decode(block).unwrap();
    superblock.complete = false;
    superblock.uuid = [7; 16];
    superblock.table_seed = Superblock::seed_for(superblock.uuid);
    let begun = superblock.encode(0).unwrap();
    image.file.write_all_at(&begun, 0).unwrap();
    let info = image.run(&["info", "image"]);
    let told = String::from_utf8_lossy(&info.stderr).into_owned();
    assert_eq!(info.status.code(), Some(1), "{told}");
    assert!(
        told.contains("interrupted") && told.contains("persimmon recover"),
        "{told}"
    );
    let recovered = image.run(&["recover", "image", "new", "--json"]);
    assert_eq!(recovered.status.code(), Some(0), "{recovered:?}");
    let new = image.place.dir().join("new");
    FILES.check(&new, &Options::read_only(), "recovered");
    let mended = image.run(&["fsck", "image", "--repair", "--yes", "--scan"]);
    assert!(mended.status.code() < Some(4), "{mended:?}");
    image.check(&Options::default(), "mended in place");
}
