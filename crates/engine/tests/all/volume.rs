//! A volume on the simulated device: content survives flushing, remounting, cleaning and full
//! volumes. Compared with a plain copy in memory.

use std::collections::BTreeMap;

use crate::common::{NOW, create, fresh, noise, open, small, unlink};
use persimmon_engine::{Error, Intent, Options, Progress, Task, Volume};
use persimmon_format::{Ino, Key};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[test]
fn content_survives_remounts() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, b"hello", NOW).unwrap();
    volume.write(ino, 10_000, &[7; 5000], NOW).unwrap();
    let mut buf = [0; 5];
    assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), 5);
    assert_eq!(&buf, b"hello");
    volume.sync_file(ino).unwrap();
    drop(volume);
    for _ in 0..3 {
        let volume = open(&device);
        let mut buf = vec![1; 20_000];
        assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), 15_000);
        assert_eq!(&buf[..5], b"hello");
        assert!(buf[5..10_000].iter().all(|b| *b == 0));
        assert!(buf[10_000..15_000].iter().all(|b| *b == 7));
        volume.step(Task::Checkpoint).unwrap();
    }
}

/// A file whose last block was lost could not even be overwritten as a whole.
#[test]
fn what_is_overwritten_to_the_files_end_is_not_read_before() {
    let device = fresh(small());
    let mut model = noise(1, 12_000);
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &model, NOW).unwrap();
    volume.sync_file(ino).unwrap();
    drop(volume);
    for (offset, len, is_read) in [
        (0, 12_000, false),
        (4096, 7904, false),
        (8192, 3900, false),
        (100, 11_992, true),
        (4096, 100, true),
    ] {
        let volume = open(&device);
        // The leaf is in memory, the file's blocks are not.
        let mut found = vec![0; 1];
        volume.read(ino, 12_200, &mut found).unwrap();
        let before = device.counters().reads;
        let bytes = noise(offset + len as u64, len);
        volume.write(ino, offset, &bytes, NOW).unwrap();
        let reads = device.counters().reads - before;
        assert_eq!(reads > 0, is_read, "{offset} {len}: {reads}");
        let offset = offset as usize;
        model.resize(model.len().max(offset + len), 0);
        model[offset..offset + len].copy_from_slice(&bytes);
        volume.sync_file(ino).unwrap();
    }
    let volume = open(&device);
    // What is behind the end is zeros when the file grows.
    volume.truncate(ino, 14_000, NOW).unwrap();
    model.resize(14_000, 0);
    let mut found = vec![1; 20_000];
    assert_eq!(volume.read(ino, 0, &mut found).unwrap(), model.len());
    assert!(found[..model.len()] == model);
}

/// After `kill -9`, the next mount called the volume cleanly closed: every record had arrived, so
/// nothing had been cut. What tells is whether the log ends in the word of `close`.
#[test]
fn only_a_volume_that_was_closed_is_clean() {
    let device = fresh(small());
    let clean = || {
        let (volume, report) = Volume::open(device.clone(), Options::default()).unwrap();
        (volume, report.clean)
    };
    let (volume, was_clean) = clean();
    assert!(was_clean, "made and not used");
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, b"hello", NOW).unwrap();
    volume.sync_file(ino).unwrap();
    drop(volume);
    let (volume, was_clean) = clean();
    assert!(!was_clean, "dropped without being closed");
    volume.close().unwrap();
    drop(volume);
    let (volume, was_clean) = clean();
    assert!(was_clean, "closed");
    drop(volume);
    assert!(clean().1, "opened and not used");
}

/// Random writes, truncations and punches on a few files, against a copy in memory, with
/// checkpoints, cleaning and remounts in between.
#[test]
fn random_changes_match_a_copy() {
    for seed in 0..12 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let device = fresh(small());
        let mut volume = open(&device);
        let mut copies: BTreeMap<Ino, Vec<u8>> = BTreeMap::new();
        for _ in 0..4 {
            copies.insert(create(&volume).unwrap(), Vec::new());
        }
        for step in 0..600 {
            let inos: Vec<Ino> = copies.keys().copied().collect();
            let ino = inos[rng.random_range(0..inos.len())];
            let copy = copies.get_mut(&ino).unwrap();
            match rng.random_range(0..100) {
                0..50 => {
                    let offset = rng.random_range(0..600_000);
                    let len = if rng.random() {
                        rng.random_range(1..9000)
                    } else {
                        4096
                    };
                    let offset = if len == 4096 {
                        offset / 4096 * 4096
                    } else {
                        offset
                    };
                    let data: Vec<u8> = (0..len).map(|_| rng.random()).collect();
                    volume.write(ino, offset as u64, &data, NOW).unwrap();
                    copy.resize(copy.len().max(offset + len), 0);
                    copy[offset..offset + len].copy_from_slice(&data);
                }
                50..60 => {
                    let size = rng.random_range(0..600_000);
                    volume.truncate(ino, size as u64, NOW).unwrap();
                    copy.resize(size, 0);
                }
                60..68 => {
                    let offset = rng.random_range(0..600_000);
                    let len = rng.random_range(1..60_000);
                    volume.punch(ino, offset as u64, len as u64, NOW).unwrap();
                    let size = copy.len();
                    let (a, b) = (offset.min(size), (offset + len).min(size));
                    copy[a..b].fill(0);
                }
                68..78 => volume.sync_file(ino).unwrap(),
                78..82 => volume.sync().unwrap(),
                82..86 => drop(volume.step(Task::Checkpoint).unwrap()),
                86..92 => drop(volume.step(Task::Clean).unwrap()),
                92..94 => drop(volume.step(Task::FreeZones).unwrap()),
                94..96 => {
                    volume.close().unwrap();
                    drop(volume);
                    volume = open(&device);
                }
                _ => {
                    let mut buf = vec![0; 20_000];
                    let offset = rng.random_range(0..600_000usize);
                    let got = volume.read(ino, offset as u64, &mut buf).unwrap();
                    let expect = copy.get(offset..).unwrap_or_default();
                    let expect = &expect[..expect.len().min(buf.len())];
                    assert_eq!(&buf[..got], expect, "seed {seed} step {step}");
                }
            }
            if step % 50 == 49 {
                for (ino, copy) in &copies {
                    let mut buf = vec![0; 700_000];
                    let got = volume.read(*ino, 0, &mut buf).unwrap();
                    assert!(
                        &buf[..got] == copy.as_slice(),
                        "seed {seed} step {step} inode {ino}"
                    );
                }
            }
        }
    }
}

/// Fills the volume to ENOSPC, overwrites it several times, and deletes everything.
#[test]
fn a_full_volume_can_be_overwritten_and_emptied() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    let mut blocks = 0u64;
    loop {
        match volume.write(ino, blocks * 4096, &[blocks as u8; 4096], NOW) {
            Ok(_) => blocks += 1,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    volume.sync().unwrap();
    assert!(blocks > 800, "{blocks}");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut content: Vec<u8> = (0..blocks).map(|b| b as u8).collect();
    for round in 0..blocks * 8 {
        let block = rng.random_range(0..blocks);
        let byte = rng.random();
        volume
            .write(ino, block * 4096, &[byte; 4096], NOW)
            .unwrap_or_else(|e| panic!("{round}: {e}"));
        content[block as usize] = byte;
    }
    volume.sync().unwrap();
    for (block, byte) in content.iter().enumerate() {
        let mut buf = [0; 4096];
        volume.read(ino, block as u64 * 4096, &mut buf).unwrap();
        assert!(buf.iter().all(|b| b == byte), "block {block}");
    }
    volume.truncate(ino, 4096, NOW).unwrap();
    unlink(&volume, &[ino]);
    volume.reclaim(&[ino]).unwrap();
    assert!(volume.orphans().unwrap().is_empty());
    volume.step(Task::Checkpoint).unwrap();
    assert!(volume.space().available_bytes / 4096 >= blocks);
}

/// A write that room runs out for half way tells how much of it is there.
#[test]
fn a_write_stops_where_the_volume_is_full() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    let data = vec![5; 64 << 20];
    let written = volume.write(ino, 0, &data, NOW).unwrap();
    assert!(written > 0 && written < data.len(), "{written}");
    assert_eq!(volume.attr(ino).unwrap().unwrap().size, written as u64);
    let rest = volume.write(ino, written as u64, &data[written..], NOW);
    assert!(matches!(rest, Err(Error::NoSpace)));
    volume.sync().unwrap();
}

/// Only what has no name is reclaimed.
#[test]
fn a_named_inode_is_not_reclaimed() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, b"here", NOW).unwrap();
    volume.reclaim(&[ino]).unwrap();
    let mut buf = [0; 4];
    assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), 4);
    assert_eq!(&buf, b"here");
}

/// Many at once are freed in few records, whatever one of them holds, and what has a name stays.
#[test]
fn many_nameless_inodes_are_reclaimed_together() {
    let device = fresh(small());
    let volume = open(&device);
    let before = volume.space().inodes;
    let inos: Vec<Ino> = (0..200).map(|_| create(&volume).unwrap()).collect();
    let (scattered, named) = (inos[70], inos[71]);
    for block in 0..600u64 {
        volume
            .write(scattered, block * 8192, &[9; 100], NOW)
            .unwrap();
    }
    volume.write(inos[100], 0, &[1; 9000], NOW).unwrap();
    volume.sync().unwrap();
    volume.write(inos[3], 0, b"only staged", NOW).unwrap();
    volume.write(named, 0, b"here", NOW).unwrap();
    let nameless: Vec<Ino> = inos.iter().copied().filter(|ino| *ino != named).collect();
    unlink(&volume, &nameless);
    volume.reclaim(&inos).unwrap();
    assert!(volume.orphans().unwrap().is_empty());
    assert_eq!(volume.space().inodes, before + 1);
    volume.close().unwrap();
    drop(volume);
    let volume = open(&device);
    assert!(volume.attr(scattered).unwrap().is_none());
    let mut buf = [0; 4];
    assert_eq!(volume.read(named, 0, &mut buf).unwrap(), 4);
    assert_eq!(&buf, b"here");
}

/// A truncation of many extents that a crash broke off is finished by a step after the mount, or by
/// the first change of the file, and nothing of what it cut ever shows.
#[test]
fn interrupted_truncations_are_finished_after_the_mount() {
    let device = fresh(small());
    let volume = open(&device);
    let inos = [create(&volume).unwrap(), create(&volume).unwrap()];
    for ino in inos {
        for block in 0..300u64 {
            volume.write(ino, block * 8192, &[9; 100], NOW).unwrap();
        }
        volume.sync().unwrap();
        // The first record of a truncation to 100 bytes.
        volume
            .update::<_, Error>(Intent::Shrink, |tx| {
                let mut inode = tx.inode(ino)?.unwrap();
                inode.size = 100;
                tx.put_inode(ino, &inode);
                tx.put(Key::truncation(ino), 1u64.to_le_bytes().to_vec());
                Ok(())
            })
            .unwrap();
    }
    volume.sync_metadata().unwrap();
    drop(volume);
    let volume = open(&device);
    let sectors = |ino| volume.attr(ino).unwrap().unwrap().sectors;
    assert!(
        inos.iter().all(|ino| sectors(*ino) >= 300),
        "left for later"
    );
    // A change of the one comes before the step.
    volume.write(inos[1], 1_000_000, b"end", NOW).unwrap();
    // The beginning, and the block that is staged.
    assert!(sectors(inos[1]) <= 16);
    let mut content = vec![1; 1_000_003];
    volume.read(inos[1], 0, &mut content).unwrap();
    assert!(content[..100].iter().all(|byte| *byte == 9));
    assert!(content[100..1_000_000].iter().all(|byte| *byte == 0));
    assert_eq!(volume.step(Task::Truncate).unwrap(), Progress::Worked);
    assert_eq!(volume.step(Task::Truncate).unwrap(), Progress::Idle);
    assert!(sectors(inos[0]) <= 8);
}

/// What fsync makes durable of a file's growing tail travels inside the journal: one block each,
/// no data command, until a block is full.
#[test]
fn an_appended_tail_is_inlined_in_the_journal() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.sync().unwrap();
    let before = volume.statistics();
    let mut copy = Vec::new();
    for i in 0..82u64 {
        let piece = noise(i + 1, 100);
        volume.write(ino, i * 100, &piece, NOW).unwrap();
        volume.sync_file(ino).unwrap();
        copy.extend_from_slice(&piece);
    }
    let after = volume.statistics();
    assert_eq!(after.journal_bytes - before.journal_bytes, 82 * 4096);
    assert_eq!(after.data_bytes - before.data_bytes, 2 * 4096);
    // Overwritten in the tail, in a full block, and beyond the end.
    for (offset, len) in [(8195, 3), (5, 9), (8300, 40), (8000, 300)] {
        let piece = vec![0xee; len];
        volume.write(ino, offset as u64, &piece, NOW).unwrap();
        copy.resize(copy.len().max(offset + len), 0);
        copy[offset..offset + len].copy_from_slice(&piece);
        volume.sync_file(ino).unwrap();
    }
    let check = |volume: &Volume| {
        let mut buf = vec![0; copy.len() + 9];
        assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), copy.len());
        assert_eq!(&buf[..copy.len()], &copy[..]);
    };
    check(&volume);
    drop(volume);
    let volume = open(&device);
    check(&volume);
    volume.step(Task::Checkpoint).unwrap();
    volume.close().unwrap();
    drop(volume);
    check(&open(&device));
}

/// What made the file grow is not all punched out: its size comes with the rest, not before.
#[test]
fn punching_a_part_of_what_made_a_file_grow_leaves_the_size_to_the_rest() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &[1; 4096], NOW).unwrap();
    volume.sync().unwrap();
    volume.write(ino, 4096, &[2; 12_000], NOW).unwrap();
    volume.punch(ino, 8192, 100_000, NOW).unwrap();
    volume.sync_metadata().unwrap();
    drop(volume);
    let volume = open(&device);
    assert_eq!(volume.attr(ino).unwrap().unwrap().size, 4096);
}
