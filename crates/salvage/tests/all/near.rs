//! Frames with dictionaries, on volumes that have lost what tells where these are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{Fs, Tree, assert_ranges_told, leaves_of, mount, recovered, repair, tree};
use persimmon_format::Addr;
use persimmon_format::inode::SHARED;
use persimmon_vfs::Handle;

/// Pairs of files: the second has what the first has, with a few changes. Of some the first is gone.
fn full(pairs: u64) -> (Fs, Tree) {
    with_snapshots(pairs, 0)
}

/// The same, and snapshots of it.
fn with_snapshots(pairs: u64, snapshots: u32) -> (Fs, Tree) {
    let mut fs = Fs::new(43);
    let directory = fs.directory(persimmon_vfs::ROOT, "directory");
    for pair in 0..pairs {
        let one = fs.file(directory, &format!("one {pair}"), 300_000);
        let other = fs.file(directory, &format!("other {pair}"), 1);
        let mut content = vec![0; 300_000];
        fs.vfs.read(one, Handle::NONE, 0, &mut content).unwrap();
        for at in (0..content.len()).step_by(70_000) {
            content[at] ^= 0x5a;
        }
        fs.write(other, 0, &content);
        let spared = fs
            .vfs
            .pack_near((one, Handle::NONE, 0), (other, Handle::NONE, 0), 300_000)
            .unwrap()
            .shared;
        assert!(spared > 250_000, "{spared}");
        if pair % 3 == 0 {
            fs.write(one, 0, &vec![7; 200_000]);
        }
    }
    for snapshot in 0..snapshots {
        let name = format!("snapshot {snapshot}");
        fs.vfs.take_snapshot(name.as_bytes(), true).unwrap();
    }
    fs.checkpoint();
    let fs = Fs::again(Arc::new(fs.without(&[])), 44);
    let truth = fs.tree();
    (fs, truth)
}

fn same(truth: &Tree, found: &Tree) {
    for (path, thing) in truth {
        assert!(found[path].content == thing.content, "{path}");
    }
}

#[test]
fn what_is_whole_is_copied_and_kept() {
    let (fs, truth) = full(12);
    let device = Arc::new(fs.without(&[]));
    let (copy, _, losses) = recovered(&device);
    assert_eq!(losses, []);
    same(&truth, &tree(&copy));
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_eq!(losses, []);
    same(&truth, &tree(&mount(&device)));
}

fn check_lost(fs: &Fs, truth: &Tree, lost: Vec<Addr>) {
    assert!(!lost.is_empty());
    for at in lost {
        let broken = Arc::new(fs.without(&[]));
        assert!(broken.corrupt(at.zone(), at.block(), 300, 1));
        let (copy, _, losses) = recovered(&broken);
        assert_ranges_told(truth, &tree(&copy), &losses);
        let (report, losses) = repair(&broken);
        assert!(report.is_clean(), "{:#?}", report.findings);
        assert_ranges_told(truth, &tree(&mount(&broken)), &losses);
    }
}

#[test]
fn of_lost_dictionaries_what_files_lose_is_told() {
    let (fs, truth) = full(40);
    let lost = leaves_of(&fs.device, |ino| ino == SHARED.0);
    check_lost(&fs, &truth, lost);
}

/// Mending a volume with snapshots kept frames whose dictionary was lost, and did not tell.
#[test]
fn of_lost_dictionaries_a_volume_with_snapshots_tells_too() {
    let (fs, truth) = with_snapshots(40, 1);
    let lost = leaves_of(&fs.device, |ino| ino == SHARED.0);
    assert!(!lost.is_empty());
    for at in lost {
        let broken = Arc::new(fs.without(&[]));
        assert!(broken.corrupt(at.zone(), at.block(), 300, 1));
        let (_, losses) = repair(&broken);
        assert!(!losses.is_empty());
        assert_ranges_told(&truth, &tree(&mount(&broken)), &losses);
    }
}

#[test]
fn of_lost_frames_what_files_lose_is_told() {
    let (fs, truth) = full(40);
    let lost = leaves_of(&fs.device, |ino| ino > 16);
    check_lost(&fs, &truth, lost.into_iter().step_by(2).collect());
}
