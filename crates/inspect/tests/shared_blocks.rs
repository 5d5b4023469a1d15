//! Blocks that files share: the store of them, the extents that name its blocks, and their counts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_engine::{CloneRange, Error, FormatOptions, Options, Task, Volume};
use persimmon_format::inode::ROOT;
use persimmon_format::table::Role;
use persimmon_format::{BLOCK_SIZE, Compression, Ino, Key, KeyKind};
use persimmon_inspect::Inspector;
use persimmon_inspect::dump::{Dump, Target, dump, item_text};
use persimmon_sim::{SimConfig, SimDevice};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{FILE, add, add_compressed, assert_sound, content, now, open, report, text};

const BLOCK: u64 = BLOCK_SIZE as u64;

fn formatted() -> Arc<SimDevice> {
    let config = SimConfig::new(24, 1024).capacity(1000).host_file();
    let device = Arc::new(SimDevice::new(config));
    let options = FormatOptions {
        uuid: std::array::from_fn(|i| i as u8),
        secret: [7; 32],
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    device
}

fn clone(volume: &Volume, from: (Ino, u64), to: (Ino, u64), blocks: u64) -> u64 {
    let range = CloneRange {
        from: from.0,
        from_offset: from.1 * BLOCK,
        to: to.0,
        to_offset: to.1 * BLOCK,
        len: blocks * BLOCK,
    };
    volume.clone_range(&range, now(7)).unwrap() / BLOCK
}

/// Items of the store and extents, as the engine has them.
fn engine_items(device: &Arc<SimDevice>) -> BTreeMap<Key, Vec<u8>> {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), options).unwrap();
    let mut items = BTreeMap::new();
    let scanned = volume.view::<_, Error>(|view| {
        items.clear();
        view.scan(Key::new(Ino(0), KeyKind(0), 0), |key, value| {
            items.insert(key, value.to_vec());
            Ok(ControlFlow::Continue(()))
        })
    });
    scanned.unwrap();
    items
}

/// A check finds nothing, and the replay of the inspector leads to the very items that the one of the engine leads to.
fn assert_right(device: &Arc<SimDevice>) {
    let found = report(device, true);
    assert_sound(&found);
    let inspector = Inspector::open(&**device).unwrap();
    let all = Target::Keys {
        from: None,
        to: None,
    };
    let Dump::Keys(rows) = dump(&inspector, &all).unwrap() else {
        panic!("no items")
    };
    let items = engine_items(device);
    let shown = |(key, value): (&Key, &Vec<u8>)| (key.ino.0, key.item, item_text(key, value));
    let engine: Vec<_> = items.iter().map(shown).collect();
    let mine: Vec<_> = rows
        .into_iter()
        .map(|row| (row.ino, row.item, row.value.0))
        .collect();
    assert_eq!(mine, engine);
}

#[test]
fn volumes_with_clones_are_sound() {
    let mut shared = 0;
    for seed in 0..6 {
        let device = formatted();
        let mut volume = open(&device);
        let mut rng = StdRng::seed_from_u64(seed);
        let files: Vec<Ino> = (0..4)
            .map(|n| {
                let name = format!("file {n}");
                match [None, Some(Compression::Lz4), Some(Compression::Zstd(1))]
                    [rng.random_range(0..3)]
                {
                    None => add(&volume, ROOT, &name, FILE),
                    Some(compression) => add_compressed(&volume, ROOT, &name, compression),
                }
            })
            .collect();
        for step in 0..120 {
            let mut file = || files[rng.random_range(0..files.len())];
            let (one, other) = (file(), file());
            let (at, to) = (rng.random_range(0..150), rng.random_range(0..150));
            let blocks = rng.random_range(1..70);
            match rng.random_range(0..16) {
                0..6 => {
                    let len = blocks as usize * BLOCK_SIZE;
                    let bytes = match rng.random_range(0..2) {
                        0 => text(step + 1, len),
                        _ => content(step + 1, len),
                    };
                    volume.write(one, at * BLOCK, &bytes, now(2)).unwrap();
                    volume.commit_file(one).unwrap();
                }
                6..11 if one != other || at.abs_diff(to) >= blocks => {
                    clone(&volume, (one, at), (other, to), blocks);
                }
                11 => volume
                    .punch(one, at * BLOCK, blocks * BLOCK, now(3))
                    .unwrap(),
                12 => volume.truncate(one, at * BLOCK + 5, now(4)).unwrap(),
                13 => {
                    let zones = volume.zones();
                    let data = zones
                        .iter()
                        .find(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0);
                    if let Some(zone) = data {
                        volume.empty_zones(&[zone.zone]).unwrap();
                    }
                }
                14 => drop(volume.step(Task::Checkpoint).unwrap()),
                _ => volume.sync_file(one).unwrap(),
            }
            if step % 10 == 9 {
                volume.sync().unwrap();
                assert_right(&device);
            }
            if step % 40 == 39 {
                drop(volume);
                volume = open(&device);
                assert_right(&device);
            }
        }
        volume.close().unwrap();
        let found = report(&device, true);
        assert_sound(&found);
        shared += found.counts.shared_blocks;
    }
    assert!(shared > 500, "{shared}");
}
