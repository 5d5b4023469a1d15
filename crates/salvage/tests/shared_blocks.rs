//! Files that share blocks, on volumes that have lost what tells where these are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use persimmon_engine::Options;
use persimmon_format::Addr;
use persimmon_format::inode::{SHARED, Timestamp};
use persimmon_inspect::Report;
use persimmon_inspect::salvage::rebuild;
use persimmon_salvage::{Loss, mend};
use persimmon_sim::SimDevice;
use support::{Fs, Tree, leaves, mount, recovered, settle, tree};

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

fn repair(device: &Arc<SimDevice>) -> (Report, Vec<Loss>) {
    let mut losses = Vec::new();
    {
        let rebuilt = rebuild(&**device, &mut |_, _, _| {}).unwrap();
        let how = (Timestamp::default(), Options::default());
        let on_loss = &mut |loss: &Loss| losses.push(loss.clone());
        let device = Arc::clone(device) as _;
        mend(&rebuilt, device, how, on_loss, &mut |_, _, _| {}).unwrap();
    }
    (settle(device), losses)
}

/// Where the leaves are that have items of such inodes alone.
fn leaves_of(device: &SimDevice, is_meant: impl Fn(u64) -> bool) -> Vec<Addr> {
    leaves(device, |page| {
        page.items.iter().all(|item| is_meant(item.ino))
    })
}

/// What differs is in a range that is told of, and the files that are whole are.
fn assert_ranges_told(truth: &Tree, found: &Tree, losses: &[Loss]) {
    for (path, thing) in truth.iter().filter(|(_, thing)| thing.inode.is_file()) {
        let ranges: Vec<_> = losses.iter().filter(|loss| loss.path == *path).collect();
        if ranges.iter().any(|loss| loss.to == 0) {
            continue;
        }
        let Some(there) = found.get(path) else {
            assert!(!ranges.is_empty(), "{path} is missing");
            continue;
        };
        assert_eq!(thing.content.len(), there.content.len(), "{path}");
        for (at, (byte, now)) in thing.content.iter().zip(&there.content).enumerate() {
            let mut told = ranges.iter().map(|loss| loss.from..loss.to);
            assert!(
                byte == now || told.any(|range| range.contains(&(at as u64))),
                "{path}, byte {at}: {ranges:#?}"
            );
        }
    }
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
        // Summaries name the file that the blocks were written for: it has them all.
        let ones = truth.iter().filter(|(path, _)| path.contains("/one "));
        for (path, thing) in ones {
            assert!(copy[path].content == thing.content, "{path}");
        }
        let (report, losses) = repair(&broken);
        assert_eq!(report.findings, []);
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
