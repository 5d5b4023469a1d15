//! Files with deltas, on volumes that have lost what tells where these are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{Fs, Tree, assert_log_alone_lost, leaves, recovered, tree};
use persimmon_format::delta::is_delta;
use persimmon_format::extent::Extent;
use persimmon_format::table::Role;
use persimmon_format::{Addr, Ino, Key, KeyKind};
use persimmon_salvage::Loss;
use persimmon_sim::SimDevice;

const BLOCK: u64 = 4096;

/// Files of which every third block has a delta, packed and named by a checkpoint.
fn full(fs: &mut Fs) -> Vec<(Ino, String)> {
    let mut files = Vec::new();
    for number in 0..12u64 {
        let name = format!("file {number}");
        let ino = fs.file(persimmon_vfs::ROOT, &name, 60 * BLOCK + 100);
        files.push((ino, format!("/{name}")));
    }
    fs.vfs.sync().unwrap();
    for (ino, _) in &files {
        for block in (0..60).step_by(3) {
            fs.change(*ino, block * BLOCK + block, block as u8);
        }
    }
    fs.checkpoint();
    let found = deltas(fs);
    assert!(found.iter().any(|extent| extent.addr().is_some()));
    assert!(found.len() >= 12 * 15, "{}", found.len());
    files
}

fn deltas(fs: &Fs) -> Vec<Extent> {
    let mut found = Vec::new();
    let delta = |key: Key, value: &[u8]| {
        let is_delta = key.kind == KeyKind::EXTENT && is_delta(key.item);
        is_delta.then(|| Extent::decode(value).unwrap())
    };
    let snapshots = fs.vfs.volume().snapshots();
    snapshots
        .walk_stored(delta, |extent| found.push(extent))
        .unwrap();
    found
}

fn assert_same(truth: &Tree, copy: &Tree) {
    for (path, thing) in truth {
        let copied = copy.get(path).map(|copied| &copied.content);
        assert!(copied == Some(&thing.content), "{path}");
    }
}

/// Where content differs a loss tells of it.
fn assert_ranges_told(truth: &Tree, copy: &Tree, losses: &[Loss]) {
    for (path, thing) in truth.iter().filter(|(_, thing)| thing.inode.is_file()) {
        let Some(copied) = copy.get(path) else {
            assert!(!losses.is_empty());
            continue;
        };
        let both = thing.content.iter().zip(&copied.content);
        for at in (0u64..).zip(both).filter(|(_, (one, other))| one != other) {
            let mut told = losses.iter().filter(|loss| loss.path == *path);
            let covers = |loss: &Loss| loss.to == 0 || (loss.from..loss.to).contains(&at.0);
            assert!(told.any(covers), "{path}, byte {}: {losses:#?}", at.0);
        }
    }
}

/// Where the leaves are that have deltas.
fn leaves_with_deltas(device: &SimDevice) -> Vec<Addr> {
    let has_one = |ino: u64, item: u64| ino > 2 && is_delta(item) && item < u64::MAX / 4;
    leaves(device, |page| {
        let mut items = page.items.iter();
        items.any(|item| item.kind == "extent" && has_one(item.ino, item.item))
    })
}

#[test]
fn what_files_have_is_copied_not_what_is_stored() {
    let mut fs = Fs::new(5);
    full(&mut fs);
    let truth = fs.tree();
    let (copy, _, losses) = recovered(&fs.without(&[]));
    assert_eq!(losses, []);
    assert_same(&truth, &tree(&copy));
    let (copy, _, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
    assert_log_alone_lost(&losses);
    assert_same(&truth, &tree(&copy));
}

/// What is stored of the last block goes on behind the end: the delta made it zeros before the file was cut there.
#[test]
fn the_last_block_of_a_file_that_was_cut_has_its_delta() {
    let mut fs = Fs::new(8);
    let ino = fs.file(persimmon_vfs::ROOT, "cut", 3 * BLOCK);
    fs.vfs.sync().unwrap();
    fs.change(ino, 3 * BLOCK - 20, 0);
    fs.change(ino, 2 * BLOCK + 9, 0x55);
    let set = persimmon_vfs::SetAttr {
        size: Some(3 * BLOCK - 20),
        ..persimmon_vfs::SetAttr::default()
    };
    fs.vfs
        .setattr(ino, persimmon_vfs::Handle::NONE, &set)
        .unwrap();
    fs.checkpoint();
    assert_eq!(deltas(&fs).len(), 1);
    let truth = fs.tree();
    let (copy, _, losses) = recovered(&fs.without(&[]));
    assert_eq!(losses, []);
    assert_same(&truth, &tree(&copy));
}

/// The file is as of the checkpoint, or as it was later: nothing else.
#[test]
fn what_came_after_the_checkpoint_makes_no_mixture() {
    let mut fs = Fs::new(6);
    let files = full(&mut fs);
    let before = fs.tree();
    for (ino, _) in &files {
        // Deltas of what had one, and of what had none; and blocks that are written anew.
        fs.change(*ino, 3 * BLOCK + 7, 0x71);
        fs.change(*ino, 4 * BLOCK + 7, 0x72);
        let bytes = fs.bytes(BLOCK);
        fs.write(*ino, 6 * BLOCK, &bytes);
        fs.vfs.fsync(*ino, persimmon_vfs::Handle::NONE).unwrap();
    }
    let after = fs.tree();
    let (copy, _, losses) = recovered(&fs.without(&fs.zones(Role::Log)));
    let copy = tree(&copy);
    for (_, path) in &files {
        let [before, after, copied] = [&before, &after, &copy].map(|tree| &tree[path].content);
        assert_eq!(copied.len(), before.len());
        let blocks = copied.chunks(BLOCK as usize).enumerate();
        for (block, content) in blocks {
            let range = block * BLOCK as usize..(block * BLOCK as usize + content.len());
            let is_known = *content == before[range.clone()] || *content == after[range];
            assert!(is_known, "{path}, block {block}: {losses:#?}");
        }
    }
}

#[test]
fn of_lost_pages_with_deltas_what_is_older_is_told() {
    let mut fs = Fs::new(7);
    full(&mut fs);
    let truth = fs.tree();
    let leaves = leaves_with_deltas(&fs.without(&[]));
    assert!(!leaves.is_empty());
    for at in leaves {
        let broken = Arc::new(fs.without(&[]));
        assert!(broken.corrupt(at.zone(), at.block(), 300, 1));
        let (copy, _, losses) = recovered(&broken);
        assert_ranges_told(&truth, &tree(&copy), &losses);
        assert!(!losses.is_empty());
    }
}
