//! Nobody cleans in the background: whoever needs room wins it.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use persimmon_engine::{Error, Intent, Volume};
use persimmon_format::{Ino, Key};
use persimmon_sim::SimConfig;

use crate::common::{NOW, create, fresh, noise, open, open_staging, small};

/// Checkpoints took zones for pages, and nobody won them back: inodes made and removed filled the volume with old pages.
#[test]
fn metadata_alone_never_fills_the_volume() {
    let device = fresh(small());
    let volume = open(&device);
    let mut inos = std::collections::VecDeque::new();
    for i in 0..300_000usize {
        let ino = create(&volume);
        inos.push_back(ino.unwrap_or_else(|error| panic!("inode {i}: {error}")));
        if inos.len() > 3000 {
            let ino = inos.remove(i * 7919 % inos.len()).unwrap();
            let removed = volume.update::<_, Error>(Intent::Shrink, |tx| {
                tx.delete(Key::inode(ino));
                Ok(())
            });
            removed.unwrap();
        }
    }
}

/// A batch filled several zones, of which none could be cleaned before it was committed; on a volume nearly full none was left.
#[test]
fn batches_over_several_zones_fit_a_volume_nearly_full() {
    let device = fresh(SimConfig::new(100, 64));
    let volume = open_staging(&device, 8 << 20).unwrap();
    let ino = create(&volume).unwrap();
    let blocks = volume.space().available_bytes / 4096 * 85 / 100;
    for block in 0..blocks {
        volume.write(ino, block * 4096, &[1; 4096], NOW).unwrap();
    }
    volume.sync().unwrap();
    let places = noise(12_345, 4 * 5 * blocks as usize);
    for (i, place) in places.as_chunks::<4>().0.iter().enumerate() {
        let block = u64::from(u32::from_le_bytes(*place)) % blocks;
        let written = volume.write(ino, block * 4096, &[i as u8; 4096], NOW);
        written.unwrap_or_else(|error| panic!("write {i}: {error}"));
    }
    volume.sync().unwrap();
}

/// Writes to a file until the volume is full.
fn fill(volume: &Volume, file: Ino) {
    let mut block = 0;
    let refused = loop {
        match volume.write(file, block * 4096, &noise(block, 4096), NOW) {
            Ok(_) => block += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace));
    volume.sync().unwrap();
}

/// A preallocated file that was cut inside of a block had the rest of it in the tree, and gave its space back: on a full volume what was left of
/// the block could not be overwritten any more.
#[test]
fn preallocated_blocks_keep_their_space_where_a_file_is_cut() {
    let device = fresh(small());
    let volume = open(&device);
    let [cut, again, other] = [0; 3].map(|_| create(&volume).unwrap());
    for file in [cut, again] {
        volume.preallocate(file, 0, 16 * 4096, true, NOW).unwrap();
        volume.write(file, 0, &noise(1, 16 * 4096), NOW).unwrap();
        volume.sync_file(file).unwrap();
    }
    volume.truncate(cut, 7 * 4096 + 3000, NOW).unwrap();
    // What is staged of the block has its room already.
    volume.write(again, 7 * 4096, &noise(2, 4096), NOW).unwrap();
    volume.truncate(again, 7 * 4096 + 3000, NOW).unwrap();
    volume.sync().unwrap();
    fill(&volume, other);
    let content = noise(3, 7 * 4096 + 3000);
    for file in [cut, again] {
        for (at, piece) in content.chunks(4096).enumerate() {
            volume.write(file, at as u64 * 4096, piece, NOW).unwrap();
            volume.sync_file(file).unwrap();
        }
        let mut found = vec![0; 8 * 4096];
        assert_eq!(volume.read(file, 0, &mut found).unwrap(), content.len());
        assert!(found.starts_with(&content));
    }
}

/// What was written to preallocated blocks, and then overwritten by something that compresses, came to lie in the tree, and gave its space
/// back: on a full volume it could not be overwritten any more. And what lay there already got no space when it was preallocated.
#[test]
fn preallocated_blocks_keep_their_space_whatever_is_written_to_them() {
    let device = fresh(small());
    let volume = open(&device);
    let [large, tiny, packed, other] = [0; 4].map(|_| create(&volume).unwrap());
    volume.write(tiny, 0, b"short", NOW).unwrap();
    volume.write(packed, 0, &[5; 32 * 4096], NOW).unwrap();
    for file in [tiny, packed] {
        volume.sync_file(file).unwrap();
    }
    volume.preallocate(packed, 0, 16 * 4096, true, NOW).unwrap();
    volume.preallocate(large, 0, 32 * 4096, true, NOW).unwrap();
    volume.preallocate(tiny, 0, 4096, true, NOW).unwrap();
    volume.write(large, 0, &noise(1, 32 * 4096), NOW).unwrap();
    volume.sync().unwrap();
    for block in 0..32 {
        volume.write(large, block * 4096, &[7; 4096], NOW).unwrap();
        volume.sync_file(large).unwrap();
    }
    fill(&volume, other);
    let content = noise(2, 32 * 4096);
    for (at, piece) in content.chunks(4096).enumerate() {
        volume.write(large, at as u64 * 4096, piece, NOW).unwrap();
        volume.sync_file(large).unwrap();
    }
    volume.write(tiny, 0, &noise(3, 4096), NOW).unwrap();
    for block in 0..16 {
        let bytes = noise(block, 4096);
        volume.write(packed, block * 4096, &bytes, NOW).unwrap();
    }
    volume.sync().unwrap();
    let mut found = vec![0; content.len()];
    volume.read(large, 0, &mut found).unwrap();
    assert!(found == content);
}
