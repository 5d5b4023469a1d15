//! Zones and blocks lost, with the log there or not: what they did not hold comes back as it was,
//! and every file that does not is told of.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::support::{
    Fs, Tree, assert_log_alone_lost, assert_told, intact, leaves, recovered, recovered_if_any, tree,
};
use persimmon_device::BLOCK_SIZE;
use persimmon_format::inode::FLAG_PREALLOCATED;
use persimmon_format::table::Role;
use persimmon_salvage::Lost;
use persimmon_vfs::{Caller, Handle, ROOT, SetAttr};

fn full(seed: u64) -> (Fs, Tree) {
    let mut fs = Fs::new(seed);
    let mut files = fs.fill(8, 100);
    fs.churn(&mut files, 1500);
    fs.checkpoint();
    fs.churn(&mut files, 60);
    fs.vfs.sync().unwrap();
    let truth = fs.tree();
    (fs, truth)
}

#[test]
fn of_a_lost_data_zone_each_range_is_told() {
    let (fs, truth) = full(11);
    for zone in fs.zones(Role::Data).into_iter().step_by(3) {
        let (copy, _, losses) = recovered(&fs.without(&[zone]));
        let copy = tree(&copy);
        for (path, thing) in &truth {
            let found = &copy[path];
            let ranges: Vec<_> = losses
                .iter()
                .filter(|loss| loss.path == *path || loss.ino == ino_of(&fs, path))
                .collect();
            let mut expected = thing.content.clone();
            for range in &ranges {
                assert_eq!(range.lost, Lost::Data);
                expected[range.from as usize..range.to as usize].fill(0);
            }
            assert!(expected == found.content, "{path}: {ranges:#?}");
            assert_eq!((thing.inode, &thing.xattrs), (found.inode, &found.xattrs));
        }
        let (same, files) = intact(&truth, &copy);
        assert!(same > files / 2, "{same} of {files}");
    }
}

fn ino_of(fs: &Fs, path: &str) -> u64 {
    let mut ino = persimmon_vfs::ROOT;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        ino = fs.vfs.lookup(ino, name.as_bytes()).unwrap().ino;
    }
    ino.0
}

/// A link without a target kept the new volume from ever being sound.
#[test]
fn of_a_symbolic_link_that_lost_its_target_the_copy_is_sound() {
    let mut fs = Fs::new(17);
    let link = fs.vfs.symlink(&Caller::root(), ROOT, b"link", b"target");
    let link = link.unwrap().ino;
    fs.file(ROOT, "file", 3000);
    fs.checkpoint();
    // The journal has its inode then.
    let set = SetAttr {
        uid: Some(7),
        ..SetAttr::default()
    };
    fs.vfs.setattr(link, Handle::NONE, &set).unwrap();
    fs.vfs.sync().unwrap();
    let device = fs.without(&[]);
    for at in leaves(&device, |_| true) {
        assert!(device.corrupt(at.zone(), at.block(), 1000, 0x20));
    }
    // This also checks the copy.
    let (_, _, losses) = recovered(&device);
    let of_link = losses.iter().filter(|loss| loss.ino == link.0);
    let lost: Vec<_> = of_link.map(|loss| loss.lost).collect();
    assert!(lost.contains(&Lost::Target), "{losses:#?}");
}

#[test]
fn of_a_lost_metadata_zone_what_differs_is_told() {
    let (fs, truth) = full(12);
    let mut hurt = 0;
    for zone in fs.zones(Role::Metadata) {
        let (copy, _, losses) = recovered(&fs.without(&[zone]));
        let copy = tree(&copy);
        assert_told(&truth, &copy, &losses);
        hurt += usize::from(!losses.is_empty());
    }
    assert!(hurt > 0);
}

/// Each block of metadata, with the whole log: one of them has the root's inode, and others have names in it.
#[test]
fn of_each_damaged_metadata_block_the_copy_is_sound() {
    let mut fs = Fs::new(16);
    for number in 0..250 {
        let name = format!("{number:0>200}");
        fs.file(persimmon_vfs::ROOT, &name, 100);
    }
    fs.checkpoint();
    let log = fs.zones(Role::Log);
    let mut attributes = 0;
    for zone in fs.zones(Role::Metadata) {
        for block in 1..100 {
            let device = fs.without(&log);
            // And the pages that the new volume had.
            for block in (1..8).chain([block]) {
                device.corrupt(zone, block, 100, 0x10);
            }
            let Some((_, _, losses)) = recovered_if_any(&device) else {
                continue;
            };
            let is_root = |loss: &&persimmon_salvage::Loss| {
                (loss.ino, loss.lost) == (persimmon_vfs::ROOT.0, Lost::Attributes)
            };
            attributes += losses.iter().filter(is_root).count();
        }
    }
    assert!(attributes > 0, "the root's inode was never lost");
}

#[test]
fn of_a_lost_metadata_zone_and_the_whole_log_what_differs_is_told() {
    let mut fs = Fs::new(13);
    let mut files = fs.fill(8, 100);
    fs.churn(&mut files, 1500);
    fs.checkpoint();
    let truth = fs.tree();
    for zone in fs.zones(Role::Metadata) {
        let mut lost = fs.zones(Role::Log);
        lost.push(zone);
        let (copy, _, losses) = recovered(&fs.without(&lost));
        let copy = tree(&copy);
        assert_told(&truth, &copy, &losses);
    }
}

/// Single damaged blocks of metadata, log there.
#[test]
fn of_damaged_metadata_blocks_what_differs_is_told() {
    let (mut fs, truth) = full(14);
    for zone in fs.zones(Role::Metadata) {
        let device = fs.without(&[]);
        for _ in 0..6 {
            let block = 1 + fs.random(500) as u32;
            let byte = fs.random(BLOCK_SIZE as u64) as usize;
            device.corrupt(zone, block, byte, 0x10);
        }
        let (copy, _, losses) = recovered(&device);
        assert_told(&truth, &tree(&copy), &losses);
    }
}

/// With two copies any zone of metadata may go, and all of the log with it.
#[test]
fn of_a_pair_of_metadata_zones_one_is_enough() {
    let mut fs = Fs::mirrored(15);
    let mut files = fs.fill(4, 60);
    fs.churn(&mut files, 600);
    fs.checkpoint();
    let truth = fs.tree();
    let zones = fs.zones(Role::Metadata);
    assert!(zones.len() > 1);
    for zone in zones {
        for log in [Vec::new(), fs.zones(Role::Log)] {
            let log_is_lost = !log.is_empty();
            let mut lost = log;
            lost.push(zone);
            let (copy, _, losses) = recovered(&fs.without(&lost));
            if log_is_lost {
                assert_log_alone_lost(&losses)
            } else {
                assert_eq!(losses, [])
            }
            let copy = tree(&copy);
            assert!(
                truth
                    .iter()
                    .all(|(path, thing)| copy.get(path) == Some(thing))
            );
        }
    }
}

/// The room was there in the copy, and nothing said that it was the file's: what was written to it found another place, or none.
#[test]
fn what_is_set_aside_is_set_aside_in_the_copy() {
    let mut fs = Fs::new(3);
    let file = fs.file(ROOT, "file", 10_000);
    let reserve = persimmon_vfs::Allocate::Reserve { keep_size: true };
    let none = persimmon_vfs::Handle::NONE;
    fs.vfs.fallocate(file, none, 0, 1 << 20, reserve).unwrap();
    fs.vfs.sync().unwrap();
    fs.checkpoint();
    let (copy, _, losses) = recovered(&fs.without(&[]));
    assert!(losses.is_empty(), "{losses:#?}");
    let file = copy.lookup(ROOT, b"file").unwrap().ino;
    let inode = copy.volume().attr(file).unwrap().unwrap();
    assert_ne!(inode.flags & FLAG_PREALLOCATED, 0);
    assert!(inode.sectors * 512 >= 1 << 20);
}
