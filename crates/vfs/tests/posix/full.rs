//! A volume that is full: told at write time, and never a trap.

use std::sync::Arc;

use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{
    Allocate, Error, Handle, Ino, OpenFlags, Options, ROOT, RenameMode, Result, SetAttr, WriteFlags,
};
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::fixture::Fixture;

fn small() -> Fixture {
    let device = SimDevice::new(SimConfig::new(32, 256).fast());
    Fixture::on(Arc::new(device), Options::default())
}

fn write(fs: &Fixture, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    fs.vfs
        .write(ino, Handle::NONE, offset, data, WriteFlags::default())
        .map(drop)
}

/// Writes files until there is no room. Answers their numbers and what each holds.
fn fill(fs: &Fixture, piece: usize) -> Vec<(String, Ino, u64)> {
    let mut files = Vec::new();
    for i in 0..100_000 {
        let name = format!("fill-{i}");
        let made = fs.vfs.mknod(&fs.root, ROOT, name.as_bytes(), 0o644, 0);
        let ino = match made {
            Ok(attr) => attr.ino,
            Err(Error::NoSpace) => return files,
            Err(error) => panic!("{error}"),
        };
        let data = vec![i as u8; piece];
        match write(fs, ino, 0, &data) {
            Ok(()) => files.push((name, ino, piece as u64)),
            Err(Error::NoSpace) => {
                let size = fs.vfs.getattr(ino).unwrap().size;
                files.push((name, ino, size));
                return files;
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("never full");
}

fn check(fs: &Fixture, files: &[(String, Ino, u64)]) {
    for (name, ino, size) in files {
        let i: usize = name.rsplit('-').next().unwrap().parse().unwrap();
        let content = fs.content(*ino);
        assert_eq!(content.len() as u64, *size, "{name}");
        assert!(content.iter().all(|byte| *byte == i as u8), "{name}");
    }
}

/// Small files live in the metadata. Metadata zones that were partly garbage were not cleaned
/// unless nearly empty, and only writers of data asked for it: a volume of small files came to
/// where no checkpoint found a zone, and what had been accepted could not be made durable.
#[test]
fn what_was_accepted_is_kept() {
    for piece in [1000, 70_000, 1 << 20] {
        let fs = small();
        let files = fill(&fs, piece);
        fs.vfs.sync().unwrap();
        check(&fs, &files);
        // Staged small files were once counted for a whole block each, and changed pages for three
        // until the next checkpoint: a volume that was nearly empty called itself full.
        let stat = fs.vfs.statfs().unwrap();
        assert!(stat.blocks_available * 10 < stat.blocks, "{stat:?}");
        let fs = fs.remount();
        check(&fs, &files);
    }
}

#[test]
fn removing_truncating_renaming_and_chmod_work_on_a_full_volume() {
    let fs = small();
    let files = fill(&fs, 50_000);
    let (last, ino, _) = &files[files.len() - 1];
    fs.chmod(*ino, 0o600);
    fs.vfs
        .rename(ROOT, last.as_bytes(), ROOT, b"renamed", RenameMode::Replace)
        .unwrap();
    fs.vfs.unlink(ROOT, b"renamed").unwrap();
    fs.truncate(files[0].1, 10_000);
    fs.vfs
        .fallocate(files[1].1, Handle::NONE, 0, 40_000, Allocate::Punch)
        .unwrap();
    fs.vfs.sync().unwrap();
    check(&fs, &files[2..files.len() - 1]);
    assert_eq!(fs.content(files[0].1), vec![0; 10_000]);
}

#[test]
fn space_comes_back_again_and_again() {
    let fs = small();
    let mut first = 0;
    for round in 0..6 {
        let files = fill(&fs, 30_000);
        if round == 0 {
            first = files.len();
        }
        assert!(
            files.len() * 10 >= first * 9,
            "round {round}: {} files, {first} in the first",
            files.len()
        );
        for (name, _, _) in &files {
            fs.vfs.unlink(ROOT, name.as_bytes()).unwrap();
        }
        fs.vfs.sync().unwrap();
    }
}

#[test]
fn a_full_volume_takes_overwriting() {
    let fs = small();
    let files = fill(&fs, 100_000);
    fs.vfs.sync().unwrap();
    for _ in 0..3 {
        for (_, ino, size) in &files {
            let i = fs.content(*ino).first().copied().unwrap_or(0);
            for offset in (0..*size / 4096 * 4096).step_by(4096) {
                write(&fs, *ino, offset, &[i; 4096]).unwrap();
            }
        }
        fs.vfs.sync().unwrap();
    }
    check(&fs, &files);
}

/// Opening with `O_CREAT` answered `ENOSPC` for a file that was there: a database could not even open its lock.
#[test]
fn a_file_that_exists_is_opened_where_none_can_be_made() {
    let fs = small();
    let files = fill(&fs, 1000);
    while fs.vfs.mknod(&fs.root, ROOT, b"more", 0o644, 0).is_ok() {
        fs.vfs.unlink(ROOT, b"more").unwrap();
    }
    let create = |name: &[u8], flags| fs.vfs.create(&fs.root, ROOT, name, 0o644, flags);
    let flags = OpenFlags {
        read: true,
        write: true,
        ..OpenFlags::default()
    };
    let (name, ino, size) = &files[0];
    let (attr, handle) = create(name.as_bytes(), flags).unwrap();
    assert_eq!((attr.ino, attr.size), (*ino, *size));
    fs.vfs.release(*ino, handle).unwrap();
    assert!(matches!(create(b"more", flags), Err(Error::NoSpace)));
    let exclusive = OpenFlags {
        exclusive: true,
        ..flags
    };
    let refused = create(name.as_bytes(), exclusive);
    assert!(matches!(refused, Err(Error::NoSpace | Error::Exists)));
}

/// A file that lacks its end is nothing to go on from.
#[test]
fn a_file_that_is_held_back_can_only_be_named_otherwise_and_removed() {
    let fs = small();
    let (ino, other) = (fs.file("log", b"content"), fs.file("other", b"content"));
    fs.vfs.hold_back(vec![ino]);
    let flags = |truncate| OpenFlags {
        read: true,
        write: truncate,
        truncate,
        ..OpenFlags::default()
    };
    let refused = |result: Result<()>| match result {
        Err(error @ Error::EndWaits) => assert_eq!(error.errno(), libc::ENOSPC),
        other => panic!("{other:?}"),
    };
    refused(fs.vfs.open(ino, flags(false)).map(drop));
    refused(fs.vfs.open(ino, flags(true)).map(drop));
    let create = fs.vfs.create(&fs.root, ROOT, b"log", 0o644, flags(true));
    refused(create.map(drop));
    let cut = SetAttr {
        size: Some(3),
        ..SetAttr::default()
    };
    refused(fs.vfs.setattr(ino, Handle::NONE, &cut).map(drop));
    assert_eq!(fs.vfs.getattr(ino).unwrap().size, 7);
    let handle = fs.vfs.open(other, flags(true)).unwrap();
    fs.vfs.release(other, handle).unwrap();
    fs.vfs
        .rename(ROOT, b"log", ROOT, b"renamed", RenameMode::Replace)
        .unwrap();
    fs.vfs.unlink(ROOT, b"renamed").unwrap();
}

#[test]
fn preallocation_is_refused_or_kept() {
    let fs = small();
    let stat = fs.vfs.statfs().unwrap();
    let half = stat.blocks_available * 4096 / 2;
    let reserve = Allocate::Reserve { keep_size: false };
    let ino = fs.file("reserved", b"");
    fs.vfs
        .fallocate(ino, Handle::NONE, 0, half, reserve)
        .unwrap();
    let other = fs.file("too-much", b"");
    let refused = fs.vfs.fallocate(other, Handle::NONE, 0, half * 2, reserve);
    assert!(matches!(refused, Err(Error::NoSpace)));
    fill(&fs, 60_000);
    // What was reserved can be written whatever else was.
    let data = vec![9; 1 << 16];
    for offset in (0..half / (1 << 16) * (1 << 16)).step_by(1 << 16) {
        write(&fs, ino, offset, &data).unwrap();
    }
    fs.vfs.sync().unwrap();
}

/// With a device for metadata, of so many zones, and one for data.
fn split(metadata_zones: u32, data_zones: u32) -> Fixture {
    let config = SimConfig::new(metadata_zones + data_zones, 256);
    let device = SimDevice::new(config.metadata(metadata_zones).fast());
    Fixture::on(Arc::new(device), Options::default())
}

/// Makes empty files until there is no room for more.
fn fill_with_names(fs: &Fixture) -> Vec<String> {
    let mut names = Vec::new();
    for i in 0..1_000_000 {
        let name = format!("empty-{i}");
        match fs.vfs.mknod(&fs.root, ROOT, name.as_bytes(), 0o644, 0) {
            Ok(_) => names.push(name),
            Err(Error::NoSpace) => return names,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("never full");
}

#[test]
fn a_full_device_for_metadata_refuses_what_is_new_and_is_no_trap() {
    let fs = split(24, 40);
    let kept = fs.file("kept", &[7; 100_000]);
    let mut first = 0;
    for round in 0..2 {
        let names = fill_with_names(&fs);
        if round == 0 {
            first = names.len();
        }
        assert!(
            names.len() * 10 >= first * 9,
            "round {round}: {}, {first}",
            names.len()
        );
        let stat = fs.vfs.statfs().unwrap();
        assert_eq!((stat.blocks_available, stat.files_free), (0, 0), "{stat:?}");
        // Nothing that was promised is taken back, and nothing is refused later.
        let more = write(&fs, kept, 100_000, &[7; 1 << 20]);
        assert!(matches!(more, Err(Error::NoSpace)), "{more:?}");
        fs.vfs.sync().unwrap();
        assert!(!fs.vfs.is_read_only());
        fs.chmod(kept, 0o600);
        let renamed = names[0].as_bytes();
        fs.vfs
            .rename(ROOT, renamed, ROOT, b"renamed", RenameMode::Replace)
            .unwrap();
        fs.vfs.unlink(ROOT, b"renamed").unwrap();
        for name in &names[1..] {
            fs.vfs.unlink(ROOT, name.as_bytes()).unwrap();
        }
        fs.vfs.sync().unwrap();
        assert_eq!(fs.content(kept), vec![7; 100_000]);
    }
    let stat = fs.vfs.statfs().unwrap();
    assert!(
        stat.blocks_available > stat.blocks / 2 && stat.files_free > 1000,
        "{stat:?}"
    );
    let fs = fs.remount();
    write(&fs, kept, 100_000, &[7; 1 << 20]).unwrap();
    fs.vfs.sync().unwrap();
}

#[test]
fn a_full_device_for_data_refuses_data() {
    let fs = split(40, 24);
    let files = fill(&fs, 100_000);
    let stat = fs.vfs.statfs().unwrap();
    assert!(
        stat.blocks_available * 10 < stat.blocks && stat.files_free > 1000,
        "{stat:?}"
    );
    // There is room for names.
    fs.file("empty", b"");
    fs.vfs.sync().unwrap();
    check(&fs, &files);
    for round in 0..3 {
        for (_, ino, size) in &files {
            let i = fs.content(*ino).first().copied().unwrap_or(round);
            for offset in (0..*size / 4096 * 4096).step_by(4096) {
                write(&fs, *ino, offset, &[i; 4096]).unwrap();
            }
        }
    }
    fs.vfs.sync().unwrap();
    let fs = fs.remount();
    check(&fs, &files);
    for (name, ..) in &files {
        fs.vfs.unlink(ROOT, name.as_bytes()).unwrap();
    }
    fs.vfs.sync().unwrap();
    let again = fill(&fs, 100_000);
    assert!(
        again.len() * 10 >= files.len() * 9,
        "{} {}",
        again.len(),
        files.len()
    );
}

/// Small files lie in the tree: they need the device for metadata alone, which fills long before the other.
#[test]
fn small_files_fill_the_device_for_metadata() {
    let fs = split(26, 40);
    let files = fill(&fs, 1000);
    assert_eq!(fs.vfs.statfs().unwrap().blocks_available, 0);
    fs.vfs.sync().unwrap();
    check(&fs, &files);
    let fs = fs.remount();
    check(&fs, &files);
    for (name, ..) in &files {
        fs.vfs.unlink(ROOT, name.as_bytes()).unwrap();
    }
    let large = fill(&fs, 1 << 20);
    check(&fs, &large);
}

/// Removing in no order empties no page for long, and each one that changes is written anew: where the tree fills the
/// volume, room for that comes by cleaning zones with little garbage, again and again.
#[test]
fn small_files_that_fill_a_volume_go_in_any_order() {
    let device = SimDevice::new(SimConfig::new(255, 256).fast());
    let fs = Fixture::on(Arc::new(device), Options::default());
    let mut dice = ChaCha8Rng::seed_from_u64(1);
    let mut names = Vec::new();
    let mut data = [0; 700];
    loop {
        dice.fill(&mut data[..]);
        let name = format!("{}", names.len());
        let made = fs.vfs.mknod(&fs.root, ROOT, name.as_bytes(), 0o644, 0);
        let written = made.and_then(|attr| write(&fs, attr.ino, 0, &data).map(|()| attr));
        names.push(name);
        match written {
            Ok(_) => {}
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    fs.vfs.sync().unwrap();
    // The last one may not have been made.
    names.pop();
    names.shuffle(&mut dice);
    for (number, name) in names[..3000].iter().enumerate() {
        let removed = fs.vfs.unlink(ROOT, name.as_bytes());
        assert!(removed.is_ok(), "{number}: {removed:?}");
    }
    let stat = fs.remount().vfs.statfs().unwrap();
    let left = stat.files - stat.files_free;
    assert!(left as usize - (names.len() - 3000) <= 2, "{left} files");
}
