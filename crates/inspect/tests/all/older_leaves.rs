//! What a rebuilt tree has where an older version of a lost leaf stands in: blocks that were written since are found by summaries. They are
//! the file's where the zone table proves that they are live, and newer ones that may be gone else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{FILE, add, addr, content, formatted, now, open, pages};
use persimmon_engine::Task;
use persimmon_format::inode::ROOT;
use persimmon_format::{Ino, Key};
use persimmon_inspect::salvage::rebuild;
use persimmon_sim::SimDevice;

const BLOCK: u64 = 4096;

/// A file of ten blocks as of a checkpoint, and blocks that are written since; then it is cut to so many bytes, if to any. Each page of the tree
/// is an older one.
fn with_older_leaf((at, blocks): (u64, u64), size: Option<u64>) -> (Arc<SimDevice>, Ino) {
    let device = formatted();
    let volume = open(&device);
    let ino = add(&volume, ROOT, "file", FILE);
    let write = |at, blocks, seed| {
        let bytes = content(seed, (blocks * BLOCK) as usize);
        volume.write(ino, at * BLOCK, &bytes, now(2)).unwrap();
    };
    write(0, 10, 1);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    write(at, blocks, 2);
    volume.sync().unwrap();
    if let Some(size) = size {
        volume.truncate(ino, size, now(3)).unwrap();
    }
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    drop(volume);
    let device = Arc::new(device.snapshot().intact());
    for page in pages(&device) {
        let at = addr(&page.addr);
        assert!(device.corrupt(at.zone(), at.block(), 1000, 0x20));
    }
    (device, ino)
}

/// Blocks that summaries know: those that belong into the file, and those beside it; and where the file ends.
fn found(written: (u64, u64), size: Option<u64>) -> (Vec<u64>, Vec<u64>, u64) {
    let (device, ino) = with_older_leaf(written, size);
    let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
    let content = rebuilt.content(&mut |_, _, _| {}).unwrap();
    let damage = content.damage(Key::extent(ino, 0), Key::extent(ino, 1));
    assert!(damage.into_iter().all(|part| part.older.is_some()));
    let strays = content.stray_blocks().iter();
    let (beside, inside): (Vec<_>, Vec<_>) = strays.partition(|(_, stray)| stray.later);
    let blocks = |strays: Vec<(&(Ino, u64), _)>| {
        let blocks = strays.into_iter().map(|((_, block), _)| *block);
        blocks.collect::<Vec<u64>>()
    };
    let inode = content.inode(ino).unwrap();
    let size = content.size_shown(ino, &inode);
    // What is the file's since takes the place of what the older leaf has.
    let in_tree = (0..10).filter(|block| {
        let extent = content.extent_before(Key::extent(ino, *block));
        extent.is_some_and(|(first, value)| {
            let blocks = persimmon_format::extent::Extent::peek_blocks(&value).unwrap();
            *block < first + blocks
        })
    });
    let in_tree: Vec<u64> = in_tree.collect();
    let inside = blocks(inside.into_iter().map(|(at, _)| (at, ())).collect());
    assert!(in_tree.iter().all(|block| !inside.contains(block)));
    assert!((0..10).all(|block| in_tree.contains(&block) || inside.contains(&block)));
    (
        inside,
        blocks(beside.into_iter().map(|(at, _)| (at, ())).collect()),
        size,
    )
}

#[test]
fn live_blocks_that_are_newer_are_the_files() {
    let (inside, beside, size) = found((3, 4), None);
    assert_eq!((inside, beside), ((3..7).collect(), vec![]));
    assert_eq!(size, 10 * BLOCK);
    let (inside, beside, size) = found((10, 10), None);
    assert_eq!((inside, beside), ((10..20).collect(), vec![]));
    assert_eq!(size, 20 * BLOCK);
}

/// Nothing tells which of them are gone: none changes the file.
#[test]
fn blocks_that_may_be_gone_are_beside_the_file() {
    let (inside, beside, size) = found((10, 10), Some(12 * BLOCK));
    assert_eq!((inside, beside), (vec![], (10..20).collect()));
    assert_eq!(size, 10 * BLOCK);
}
