//! An older version of a lost leaf stands in for it, and says what is not so any more: nothing is discarded for that which is intact and newer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::sync::Arc;

use crate::support::{Fs, Tree, leaves, mount, recovered, repair, tree, tree_of};
use persimmon_engine::{Error, Intent, Transaction};
use persimmon_format::inode::Timestamp;
use persimmon_format::{Ino, Key};
use persimmon_inspect::dump::{ItemDump, PageDump};
use persimmon_sim::SimDevice;
use persimmon_vfs::{Caller, Handle, OpenFlags, ROOT, Vfs};

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
    let (device, found) = without_leaves(fs, is_meant);
    assert_eq!(found, 1);
    device
}

/// The device with the leaves damaged that have anything of the file, as a lost zone would have it, and how many these are.
fn without_file(fs: &Fs, ino: Ino) -> Arc<SimDevice> {
    let (device, found) =
        without_leaves(fs, |page| page.items.iter().any(|item| item.ino == ino.0));
    assert!(found > 2, "{found}");
    device
}

/// The device with the leaves damaged that are meant, and how many these are.
fn without_leaves(fs: &Fs, is_meant: impl Fn(&PageDump) -> bool) -> (Arc<SimDevice>, usize) {
    let device = Arc::new(fs.without(&[]));
    let found = leaves(&device, is_meant);
    for at in &found {
        assert!(device.corrupt(at.zone(), at.block(), 1000, 0x20));
    }
    (device, found.len())
}

/// What a copy has of the file, and what is there after a repair in place. Both are told of.
fn copied_and_repaired(device: &Arc<SimDevice>) -> [Tree; 2] {
    let (copy, _, losses) = recovered(device);
    assert!(!losses.is_empty());
    let (report, losses) = repair(device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(!losses.is_empty());
    [tree(&copy), tree(&mount(device))]
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
    set_aside(&fs, ino, 2 * MANY, 2 * MANY);
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

/// Sets blocks aside for a file: all of a range, or pieces of it with two blocks between.
fn set_aside(fs: &Fs, ino: Ino, blocks: u64, piece: u64) {
    for at in (0..blocks).step_by(piece as usize + 2) {
        let len = piece.min(blocks - at) * BLOCK;
        let volume = fs.vfs.volume();
        volume
            .preallocate(ino, at * BLOCK, len, false, Timestamp::default())
            .unwrap();
    }
}

/// The journal was replayed over what the older leaf has in the range of the next one: of an extent that was cut by that, the rest took the place
/// of a newer one.
#[test]
fn a_change_in_the_journal_uncovers_nothing_older() {
    let mut fs = Fs::new(56);
    fs.compresses = false;
    let ino = fs.file(ROOT, "file", 1);
    set_aside(&fs, ino, 2 * MANY, 16);
    fs.checkpoint();
    for first in [0, 1] {
        scatter(&mut fs, ino, first..2 * MANY);
        fs.vfs.sync().unwrap();
    }
    fs.checkpoint();
    let device = Arc::new(fs.without(&[]));
    let last = Cell::new(0);
    leaves(&device, |page| {
        if page.items.iter().any(|item| item.kind == "inode") {
            last.set(page.items.last().unwrap().item);
        }
        false
    });
    // The first of the next leaf, in a piece that was set aside.
    let changed = last.get() + 1;
    assert!((1..15).contains(&(changed % 18)), "{changed}");
    let bytes = fs.bytes(BLOCK);
    fs.write(ino, changed * BLOCK, &bytes);
    fs.vfs.fsync(ino, Handle::NONE).unwrap();
    let truth = fs.tree();
    let device = without_inode(&fs, ino);
    for found in copied_and_repaired(&device) {
        let (truth, found) = (&truth["/file"].content, &found["/file"].content);
        let from = (changed * BLOCK) as usize;
        let mut blocks = (from..truth.len()).step_by(BLOCK as usize);
        let differs =
            blocks.find(|at| truth[*at..][..BLOCK as usize] != found[*at..][..BLOCK as usize]);
        assert_eq!(differs, None);
    }
}

/// The leaf behind the older one is lost as well, and nothing stands in for it: what had been set aside hid what summaries know of that.
#[test]
fn what_was_set_aside_hides_nothing_that_is_lost() {
    let mut fs = Fs::new(57);
    fs.compresses = false;
    let ino = fs.file(ROOT, "file", 1);
    set_aside(&fs, ino, 2 * MANY, 2 * MANY);
    fs.checkpoint();
    scatter(&mut fs, ino, 0..2 * MANY);
    fs.checkpoint();
    let truth = fs.tree();
    for found in copied_and_repaired(&without_file(&fs, ino)) {
        assert_end_kept(&truth["/file"].content, &found["/file"].content);
    }
}

/// The file grew since, into leaves that are lost: what summaries know of that lay past the end that the older inode tells.
#[test]
fn what_a_file_grew_by_is_kept_where_summaries_alone_know_it() {
    let mut fs = Fs::new(58);
    fs.compresses = false;
    let ino = fs.file(ROOT, "file", 100_000);
    fs.checkpoint();
    scatter(&mut fs, ino, 100..100 + 2 * MANY);
    fs.checkpoint();
    let truth = fs.tree();
    for found in copied_and_repaired(&without_file(&fs, ino)) {
        // To the end of the last block that is known.
        let len = truth["/file"].content.len();
        assert_eq!(len as u64 % BLOCK, 0);
        assert_end_kept(&truth["/file"].content, &found["/file"].content);
    }
}

/// With snapshots an extent that reached over newer ones was given up as a whole, and told block by block.
#[test]
fn what_was_set_aside_with_a_snapshot_is_cut() {
    let mut fs = Fs::new(59);
    fs.compresses = false;
    // The table of snapshots is in another leaf.
    let before = fs.file(ROOT, "before", 1);
    scatter(&mut fs, before, 0..2 * MANY);
    let ino = fs.file(ROOT, "file", 1);
    let after = fs.file(ROOT, "after", 1);
    scatter(&mut fs, after, 0..2 * MANY);
    set_aside(&fs, ino, 2 * MANY, 2 * MANY);
    fs.vfs.take_snapshot(b"one", true).unwrap();
    fs.checkpoint();
    scatter(&mut fs, ino, 0..2 * MANY);
    fs.checkpoint();
    let snapshot = |vfs: &Vfs| tree_of(vfs, ROOT.of(vfs.snapshot_named(b"one").unwrap().id));
    let (truth, then) = (fs.tree(), snapshot(&fs.vfs));
    let device = without_inode(&fs, ino);
    let (report, losses) = repair(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert!(!losses.is_empty() && losses.len() < 10, "{losses:#?}");
    let vfs = mount(&device);
    assert_end_kept(&truth["/file"].content, &tree(&vfs)["/file"].content);
    assert!(then["/file"].content == snapshot(&vfs)["/file"].content);
}

/// A file was made without a name, and got one. The older leaf has it without, and says that it waits to be freed: so it was, with what other leaves
/// have of it.
#[test]
fn a_file_that_had_no_name_yet_is_not_freed() {
    for is_inode_lost in [false, true] {
        let mut fs = Fs::new(60);
        fs.compresses = false;
        let before = fs.file(ROOT, "before", 1);
        let flags = OpenFlags {
            write: true,
            ..OpenFlags::default()
        };
        let caller = Caller::root();
        let (attr, _) = fs.vfs.tmpfile(&caller, ROOT, 0o640, flags).unwrap();
        fs.checkpoint();
        if is_inode_lost {
            // The inode comes into a leaf of which there is no older version.
            scatter(&mut fs, before, 0..2 * MANY);
        }
        scatter(&mut fs, attr.ino, 0..2 * MANY);
        fs.vfs.link(attr.ino, ROOT, b"file").unwrap();
        fs.checkpoint();
        let truth = fs.tree();
        let (device, lost) = without_leaves(&fs, |page| {
            let mut items = page.items.iter();
            let is_inode = |item: &ItemDump| item.ino == attr.ino.0 && item.kind == "inode";
            items.any(|item| item.ino == ROOT.0 || is_inode(item))
        });
        assert_eq!(lost, if is_inode_lost { 2 } else { 1 });
        let name = format!("/lost+found/#{}", attr.ino);
        for found in copied_and_repaired(&device) {
            let file = found.get(&name).expect("the file");
            assert_end_kept(&truth["/file"].content, &file.content);
        }
    }
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
