//! An older version of a lost leaf stands in for it, and says what is not so any more: nothing is discarded for that which is intact and newer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use persimmon_engine::{Error, Intent, Transaction};
use persimmon_format::inode::Timestamp;
use persimmon_format::{Ino, Key};
use persimmon_inspect::dump::PageDump;
use persimmon_sim::SimDevice;
use persimmon_vfs::{Caller, ROOT};
use support::{Fs, leaves, mount, recovered, repair, tree};

const BLOCK: u64 = 4096;
/// More single blocks than the extents of two leaves tell of.
const MANY: u64 = 1200;

/// Writes every other block of a range, so that each is an extent of its own.
fn scatter(fs: &mut Fs, ino: Ino, blocks: std::ops::Range<u64>) {
    for block in blocks.step_by(2) {
        let bytes = fs.bytes(BLOCK);
        fs.write(ino, block * BLOCK, &bytes);
    }
}

/// The device with the leaf damaged that has the inode.
fn without_inode(fs: &Fs, ino: Ino) -> Arc<SimDevice> {
    without_leaf(fs, |page| {
        let mut items = page.items.iter();
        items.any(|item| item.ino == ino.0 && item.kind == "inode")
    })
}

/// The device with the one leaf damaged that is meant.
fn without_leaf(fs: &Fs, is_meant: impl Fn(&PageDump) -> bool) -> Arc<SimDevice> {
    let device = Arc::new(fs.without(&[]));
    let found = leaves(&device, is_meant);
    assert_eq!(found.len(), 1);
    let at = found[0];
    assert!(device.corrupt(at.zone(), at.block(), 1000, 0x20));
    device
}

/// The file grew since: what lies past the end that the older inode tells was freed as what no file has there.
#[test]
fn what_a_file_grew_by_is_kept() {
    let mut fs = Fs::new(51);
    fs.compresses = false;
    let ino = fs.file(ROOT, "file", 100_000);
    fs.checkpoint();
    scatter(&mut fs, ino, 100..100 + 2 * MANY);
    fs.checkpoint();
    let truth = fs.tree();
    let device = without_inode(&fs, ino);
    let (copy, _, losses) = recovered(&device);
    assert_end_kept(&truth["/file"].content, &tree(&copy)["/file"].content);
    assert!(!losses.is_empty());
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(!losses.is_empty());
    assert_end_kept(
        &truth["/file"].content,
        &tree(&mount(&device))["/file"].content,
    );
}

/// What was set aside for the whole file is one extent of the older leaf. It was put again under what had been written since, which nobody could
/// read then.
#[test]
fn what_was_set_aside_makes_room_for_what_was_written() {
    let mut fs = Fs::new(53);
    fs.compresses = false;
    let ino = fs.file(ROOT, "file", 1);
    let volume = fs.vfs.volume();
    let len = 2 * MANY * BLOCK;
    volume
        .preallocate(ino, 0, len, false, Timestamp::default())
        .unwrap();
    fs.checkpoint();
    scatter(&mut fs, ino, 0..2 * MANY);
    fs.checkpoint();
    let truth = fs.tree();
    let device = without_inode(&fs, ino);
    let (copy, _, _) = recovered(&device);
    assert_end_kept(&truth["/file"].content, &tree(&copy)["/file"].content);
    let (report, _) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    let found = tree(&mount(&device));
    assert_end_kept(&truth["/file"].content, &found["/file"].content);
}

/// The last half of a file is as it was.
fn assert_end_kept(truth: &[u8], found: &[u8]) {
    assert_eq!(truth.len(), found.len());
    let half = truth.len() / 2;
    assert!(truth[half..] == found[half..], "the end differs");
}

fn change(fs: &Fs, mut f: impl FnMut(&mut Transaction<'_>)) {
    let change = |tx: &mut Transaction<'_>| {
        f(tx);
        Ok(())
    };
    let volume = fs.vfs.volume();
    volume.update::<(), Error>(Intent::Shrink, change).unwrap();
}

/// The first leaf, with what belongs to no inode, and not with this file.
fn is_first(page: &PageDump, file: Ino) -> bool {
    let mut inos = page.items.iter().map(|item| item.ino);
    let is_first = inos.clone().any(|ino| ino == ROOT.0);
    assert!(!is_first || inos.all(|ino| ino != file.0));
    is_first
}

/// A truncation that took many records had ended, and the file was written anew: the older record freed all of it, and nobody told.
#[test]
fn a_truncation_that_has_ended_frees_nothing() {
    let mut fs = Fs::new(52);
    fs.compresses = false;
    let before = fs.file(ROOT, "before", 1);
    scatter(&mut fs, before, 0..MANY);
    let ino = fs.file(ROOT, "file", 100_000);
    change(&fs, |tx| tx.put(Key::truncation(ino), vec![0; 8]));
    fs.checkpoint();
    change(&fs, |tx| tx.delete(Key::truncation(ino)));
    fs.checkpoint();
    let truth = fs.tree();
    let device = without_leaf(&fs, |page| is_first(page, ino));
    let (report, _) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    let found = tree(&mount(&device));
    assert!(truth["/file"] == found["/file"], "{:?}", found["/file"]);
}

/// A file got its name after it had been made without one: the older record of that kept it from being copied, and nobody told.
#[test]
fn a_file_that_was_given_a_name_is_copied() {
    let mut fs = Fs::new(54);
    fs.compresses = false;
    let before = fs.file(ROOT, "before", 1);
    scatter(&mut fs, before, 0..MANY);
    let ino = fs.file(ROOT, "file", 100_000);
    change(&fs, |tx| tx.put(Key::orphan(ino), Vec::new()));
    fs.checkpoint();
    change(&fs, |tx| tx.delete(Key::orphan(ino)));
    fs.checkpoint();
    let truth = fs.tree();
    let device = without_leaf(&fs, |page| is_first(page, ino));
    let (copy, _, _) = recovered(&device);
    assert!(truth["/file"] == tree(&copy)["/file"]);
    let (report, _) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(truth["/file"] == tree(&mount(&device))["/file"]);
}

/// The older inode had no attributes, and says so: those in other leaves were there, and nobody saw them.
#[test]
fn attributes_that_came_later_are_seen() {
    let mut fs = Fs::new(55);
    let ino = fs.file(ROOT, "file", 100_000);
    fs.checkpoint();
    for number in 0..300 {
        let name = format!("user.number {number}");
        let (caller, value) = (Caller::root(), [number as u8; 100]);
        fs.vfs
            .setxattr(&caller, ino, name.as_bytes(), &value, Default::default())
            .unwrap();
    }
    fs.checkpoint();
    let device = without_inode(&fs, ino);
    let (copy, _, _) = recovered(&device);
    assert!(tree(&copy)["/file"].xattrs.len() > 50);
    let (report, _) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(tree(&mount(&device))["/file"].xattrs.len() > 50);
}
