//! Files that share blocks, on volumes that have lost what tells where these are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{Fs, Tree, assert_ranges_told, leaves_of, mount, recovered, repair, tree};
use persimmon_format::inode::SHARED;
use persimmon_salvage::{Loss, Lost};

/// Pairs of files with blocks in common: each pair has 100 of them, and each file some of its own.
fn full(pairs: u64) -> (Fs, Tree) {
    let mut fs = Fs::new(41);
    let directory = fs.directory(persimmon_vfs::ROOT, "directory");
    for pair in 0..pairs {
        let one = fs.file(directory, &format!("one {pair}"), 500_000);
        let other = fs.file(directory, &format!("other {pair}"), 50_000);
        fs.vfs.sync().unwrap();
        fs.clone_range((one, 10), (other, 12), 100);
        let bytes = fs.bytes(20_000);
        fs.write(one, 200_000, &bytes);
        let bytes = fs.bytes(7000);
        fs.write(other, 100_000, &bytes);
    }
    fs.checkpoint();
    // As a mount has it: clones were made below the layer that keeps what it knows of inodes.
    let fs = Fs::again(Arc::new(fs.without(&[])), 42);
    let truth = fs.tree();
    (fs, truth)
}

#[test]
fn of_lost_pages_of_the_store_what_files_lose_is_told() {
    let (fs, truth) = full(60);
    let leaves = leaves_of(&fs.device, |ino| ino == SHARED.0);
    assert!(!leaves.is_empty());
    for at in leaves {
        let broken = Arc::new(fs.without(&[]));
        assert!(broken.corrupt(at.zone(), at.block(), 300, 1));
        let (copy, _, losses) = recovered(&broken);
        let copy = tree(&copy);
        assert_ranges_told(&truth, &copy, &losses);
        assert!(!losses.is_empty());
        assert_none_lost_of_ones(&losses);
        // Summaries name the file that the blocks were written for: it has them all.
        let ones = truth.iter().filter(|(path, _)| path.contains("/one "));
        for (path, thing) in ones {
            assert!(copy[path].content == thing.content, "{path}");
        }
        let (report, losses) = repair(&broken);
        assert_eq!(report.findings, []);
        assert_none_lost_of_ones(&losses);
        let mended = tree(&mount(&broken));
        assert_ranges_told(&truth, &mended, &losses);
        for (path, thing) in &mended {
            let same = copy[path].content == thing.content;
            assert!(
                same,
                "{path} was copied with other content than it has after a repair"
            );
        }
    }
}

/// What summaries brought back was called lost all the same.
fn assert_none_lost_of_ones(losses: &[Loss]) {
    let is_lost = |loss: &&Loss| loss.path.contains("/one ") && loss.lost == Lost::Data;
    assert_eq!(losses.iter().find(is_lost), None);
    assert!(losses.iter().any(|loss| loss.path.contains("/one ")));
}

/// Blocks were written for a file that has lost the page with its extents; the store has them, and another file.
#[test]
fn what_a_file_shared_is_found_by_summaries() {
    let (fs, truth) = full(60);
    let leaves = leaves_of(&fs.device, |ino| ino > 16);
    let (mut found_whole, mut lost) = (0, 0);
    for at in leaves.into_iter().step_by(3) {
        let broken = Arc::new(fs.without(&[]));
        assert!(broken.corrupt(at.zone(), at.block(), 300, 1));
        let (copy, _, losses) = recovered(&broken);
        assert_ranges_told(&truth, &tree(&copy), &losses);
        let (report, losses) = repair(&broken);
        assert!(report.is_clean(), "{:#?}", report.findings);
        let mended = tree(&mount(&broken));
        assert_ranges_told(&truth, &mended, &losses);
        let ones = truth.iter().filter(|(path, _)| path.contains("/one "));
        let listed = |path: &str| losses.iter().any(|loss| loss.path == path);
        for (path, thing) in ones.filter(|(path, _)| listed(path)) {
            // Without its attributes it ends with a block.
            let there = mended.get(path);
            let is_whole = there.is_some_and(|there| there.content.starts_with(&thing.content));
            found_whole += usize::from(is_whole);
            lost += usize::from(!is_whole);
        }
    }
    assert!(found_whole > 10 && lost == 0, "{found_whole}, {lost}");
}

/// A record alone tells that a file has blocks of another one, of which the tree has lost where they are.
#[test]
fn what_was_shared_since_the_checkpoint_with_a_lost_source_is_told() {
    let mut fs = Fs::new(43);
    let directory = fs.directory(persimmon_vfs::ROOT, "directory");
    let sources: Vec<_> = (0..60)
        .map(|number| fs.file(directory, &format!("source {number}"), 300_000))
        .collect();
    let targets: Vec<_> = (0..60)
        .map(|number| fs.file(directory, &format!("target {number}"), 300_000))
        .collect();
    fs.checkpoint();
    for (source, target) in sources.iter().zip(&targets) {
        fs.clone_range((*source, 10), (*target, 20), 30);
        // And what one got by it the next one gets.
        fs.clone_range((*target, 15), (*target, 60), 10);
    }
    fs.vfs.sync().unwrap();
    let truth = Fs::again(Arc::new(fs.without(&[])), 44).tree();
    let is_source = |ino| sources.iter().any(|source| source.0 == ino);
    let leaves = leaves_of(&fs.device, is_source);
    assert!(!leaves.is_empty());
    for at in leaves {
        let broken = Arc::new(fs.without(&[]));
        assert!(broken.corrupt(at.zone(), at.block(), 300, 1));
        let (copy, _, losses) = recovered(&broken);
        let copy = tree(&copy);
        assert_ranges_told(&truth, &copy, &losses);
        let differ = |path: &str| truth[path].content != copy[path].content;
        let targets = copy.keys().filter(|path| path.contains("/target "));
        assert!(targets.filter(|path| differ(path)).count() > 0);
        let (_, losses) = repair(&broken);
        assert_ranges_told(&truth, &tree(&mount(&broken)), &losses);
    }
}
