//! An older version of a lost leaf stands in for it, and blocks were written since: what the leaf had of them is lost, though they are there and
//! summaries name them. Those that the zone table proves to be a file's go back to it; no other one takes the place of anything.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{Fs, Tree, leaves, leaves_of, mount, recovered, repair, tree};
use persimmon_engine::Task;
use persimmon_format::Ino;
use persimmon_format::inode::SHARED;
use persimmon_salvage::{Loss, Lost};
use persimmon_sim::SimDevice;
use persimmon_vfs::{Caller, Handle, ROOT, SetAttr};

const BLOCK: usize = 4096;

/// The device with the leaf damaged that has the inode.
fn without_inode(fs: &Fs, ino: Ino) -> Arc<SimDevice> {
    let device = Arc::new(fs.without(&[]));
    let found = leaves(&device, |page| {
        let mut items = page.items.iter();
        items.any(|item| item.ino == ino.0 && item.kind == "inode")
    });
    assert_eq!(found.len(), 1);
    assert!(device.corrupt(found[0].zone(), found[0].block(), 1000, 0x20));
    device
}

/// What a copy has, and what is there after a repair in place, with what is told of each.
fn copied_and_repaired(device: &Arc<SimDevice>) -> [(Tree, Vec<Loss>); 2] {
    let (copy, _, told) = recovered(device);
    let (report, losses) = repair(device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    [(tree(&copy), told), (tree(&mount(device)), losses)]
}

fn is_told(losses: &[Loss], path: &str) -> bool {
    losses.iter().any(|loss| loss.path == path)
}

/// What a file holds, without zeros at its end: where its inode is older it ends with a block.
fn content(tree: &Tree, path: &str) -> Vec<u8> {
    let mut content = tree[path].content.clone();
    let end = content.iter().rposition(|byte| *byte != 0);
    content.truncate(end.map_or(0, |end| end + 1));
    content
}

/// What is in lost+found of what is newer.
fn beside(tree: &Tree) -> Vec<Vec<u8>> {
    let paths = tree.keys().filter(|path| path.starts_with("/lost+found/"));
    paths.map(|path| content(tree, path)).collect()
}

fn truncate(fs: &Fs, ino: Ino, size: u64) {
    let set = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    fs.vfs.setattr(ino, Handle::NONE, &set).unwrap();
}

fn fs(seed: u64) -> Fs {
    let mut fs = Fs::new(seed);
    fs.compresses = false;
    fs
}

/// A file was made without content, and written. The older leaf has it empty: the copy was empty, and nobody told.
#[test]
fn what_was_empty_then_is_told_and_has_its_content() {
    let mut fs = fs(71);
    let ino = fs.file(ROOT, "file", 0);
    let caller = Caller::root();
    fs.vfs.symlink(&caller, ROOT, b"link", b"file").unwrap();
    fs.checkpoint();
    let bytes = fs.bytes(50_000);
    fs.write(ino, 0, &bytes);
    fs.checkpoint();
    let truth = fs.tree();
    let device = without_inode(&fs, ino);
    let (_, told, _) = recovered(&device);
    assert_eq!((told.files, told.files_intact), (1, 0));
    for (found, losses) in copied_and_repaired(&device) {
        for path in ["/file", "/link"] {
            assert!(is_told(&losses, path), "{path}: {losses:#?}");
        }
        assert!(content(&found, "/file") == content(&truth, "/file"));
    }
}

/// Overwritten in part, and grown.
#[test]
fn what_was_written_since_takes_the_place_of_what_was_there() {
    let mut fs = fs(72);
    let ino = fs.file(ROOT, "file", 200_000);
    let other = fs.file(ROOT, "other", 100_000);
    fs.checkpoint();
    for (at, len) in [(0, 30_000), (100_000, 5000), (190_000, 300_000)] {
        let bytes = fs.bytes(len);
        fs.write(ino, at, &bytes);
    }
    let bytes = fs.bytes(90_000);
    fs.write(other, 5000, &bytes);
    fs.file(ROOT, "new", 70_000);
    fs.checkpoint();
    let truth = fs.tree();
    let device = without_inode(&fs, ino);
    let new = content(&truth, "/new");
    for (found, losses) in copied_and_repaired(&device) {
        for path in ["/file", "/other"] {
            assert!(is_told(&losses, path), "{path}: {losses:#?}");
            assert!(content(&found, path) == content(&truth, path), "{path}");
        }
        // It has lost its name.
        assert!(beside(&found).contains(&new));
    }
}

/// What was written since is gone since, too: nothing tells whether it is the file's, and it takes no place in it.
#[test]
fn what_is_gone_since_does_not_come_back_into_the_file() {
    let mut fs = fs(73);
    let ino = fs.file(ROOT, "file", 100_000);
    let emptied = fs.file(ROOT, "emptied", 0);
    let third = fs.file(ROOT, "third", 60_000);
    fs.checkpoint();
    let truth = fs.tree();
    let bytes = fs.bytes(200_000);
    fs.write(ino, 100_000, &bytes);
    fs.write(emptied, 0, &bytes);
    let third_bytes = fs.bytes(60_000);
    fs.write(third, 0, &third_bytes);
    fs.vfs.sync().unwrap();
    truncate(&fs, ino, 100_000);
    truncate(&fs, emptied, 0);
    fs.checkpoint();
    let device = without_inode(&fs, ino);
    for (found, losses) in copied_and_repaired(&device) {
        for path in ["/file", "/emptied"] {
            assert!(found[path].content == truth[path].content, "{path}");
        }
        assert!(is_told(&losses, "/third"));
        // That it was written anew cannot be told from what is gone: it is beside the file.
        let is_new = found["/third"].content == third_bytes;
        assert!(
            is_new
                || beside(&found)
                    .iter()
                    .any(|beside| third_bytes.starts_with(beside))
        );
        assert!(is_new || found["/third"].content == truth["/third"].content);
    }
}

/// The journal knows what came after the checkpoint: what it took away does not come back.
#[test]
fn what_the_journal_took_away_does_not_come_back() {
    let mut fs = fs(74);
    let ino = fs.file(ROOT, "file", 100_000);
    fs.checkpoint();
    let bytes = fs.bytes(300_000);
    fs.write(ino, 100_000, &bytes);
    fs.checkpoint();
    truncate(&fs, ino, 150_000);
    fs.vfs.sync().unwrap();
    let truth = fs.tree();
    let device = without_inode(&fs, ino);
    for (found, _) in copied_and_repaired(&device) {
        assert!(content(&found, "/file") == content(&truth, "/file"));
    }
}

/// The store of shared blocks has an older leaf, and files in intact leaves name blocks that were shared since.
#[test]
fn blocks_that_were_shared_since_are_found() {
    let mut fs = fs(75);
    let directory = fs.directory(ROOT, "directory");
    let mut pairs = Vec::new();
    for pair in 0..60 {
        let one = fs.file(directory, &format!("one {pair}"), 500_000);
        let other = fs.file(directory, &format!("other {pair}"), 50_000);
        pairs.push((one, other));
    }
    fs.vfs.sync().unwrap();
    let (first, since) = pairs.split_at(50);
    for (one, other) in first {
        fs.clone_range((*one, 10), (*other, 12), 100);
    }
    fs.checkpoint();
    for (one, other) in since {
        fs.clone_range((*one, 10), (*other, 12), 100);
    }
    fs.checkpoint();
    let fs = Fs::again(Arc::new(fs.without(&[])), 76);
    let truth = fs.tree();
    let mut older = 0;
    for at in leaves_of(&fs.device, |ino| ino == SHARED.0) {
        let device = Arc::new(fs.without(&[]));
        assert!(device.corrupt(at.zone(), at.block(), 300, 1));
        for (found, losses) in copied_and_repaired(&device) {
            older += losses
                .iter()
                .filter(|loss| loss.lost == Lost::Older)
                .count();
            for (path, thing) in truth.iter().filter(|(path, _)| path.contains("/one ")) {
                assert!(found[path].content == thing.content, "{path}");
                let is_lost = |loss: &&Loss| loss.path == *path && loss.lost == Lost::Data;
                assert_eq!(losses.iter().find(is_lost), None);
            }
        }
    }
    assert!(older > 0);
}

/// Blocks of the store that cleaning moved are named by their numbers: no file lacks them.
#[test]
fn blocks_of_the_store_are_found_by_number() {
    let mut fs = fs(77);
    let file = fs.file(ROOT, "file", 400_000);
    let spoiled = fs.file(ROOT, "spoiled", 1_500_000);
    fs.vfs.sync().unwrap();
    let many = fs.file(ROOT, "many", 1);
    for block in (0..2400).step_by(2) {
        let bytes = fs.bytes(BLOCK as u64);
        fs.write(many, block * BLOCK as u64, &bytes);
    }
    let clone = fs.file(ROOT, "clone", 1);
    fs.checkpoint();
    fs.clone_range((file, 0), (clone, 0), 97);
    let bytes = fs.bytes(1_500_000);
    fs.write(spoiled, 0, &bytes);
    fs.checkpoint();
    for _ in 0..20 {
        fs.vfs.volume().step(Task::Clean).unwrap();
    }
    fs.checkpoint();
    let fs = Fs::again(Arc::new(fs.without(&[])), 78);
    let truth = fs.tree();
    let device = Arc::new(fs.without(&[]));
    let found = leaves(&device, |page| {
        page.items.iter().any(|item| item.ino == SHARED.0)
    });
    assert_eq!(found.len(), 1);
    assert!(device.corrupt(found[0].zone(), found[0].block(), 1000, 0x20));
    for (found, _) in copied_and_repaired(&device) {
        let path = "/clone";
        assert!(content(&found, path) == content(&truth, path));
    }
}
