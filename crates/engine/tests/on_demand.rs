//! Nobody cleans in the background: whoever needs room wins it.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

mod common;

use persimmon_engine::{Error, Intent};
use persimmon_format::Key;
use persimmon_sim::SimConfig;

use common::{NOW, create, fresh, noise, open, open_staging, small};

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

/// A flight filled several zones, of which none could be cleaned before it landed; on a volume nearly full none was left.
#[test]
fn flights_over_several_zones_fit_a_volume_nearly_full() {
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
