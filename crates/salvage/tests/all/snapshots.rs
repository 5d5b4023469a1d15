//! A volume with snapshots: what the main subvolume shows is copied, or what one of them does, and never a mixture. Written anew in place, all
//! versions keep what is not lost.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{
    Fs, Tree, assert_log_alone_lost, assert_told, config, format, leaves, mount, recovered,
    recovered_of, settle, tree, tree_of,
};
use persimmon_engine::Options;
use persimmon_format::inode::{ROOT, Timestamp};
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, Ino, PageId, ZoneId};
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{InspectError, Inspector};
use persimmon_salvage::{Error, mend, recover_of};
use persimmon_sim::SimDevice;
use persimmon_vfs::{Snapshot, Vfs};

/// A volume that was much changed since each of its snapshots, as it is and as it was then. There is no checkpoint between.
fn full(seed: u64) -> (Fs, Tree, Vec<(&'static str, Tree)>) {
    let mut fs = Fs::new(seed);
    let mut files = fs.fill(4, 40);
    fs.checkpoint();
    let mut then = Vec::new();
    for name in ["one", "two", "three"] {
        for turn in 0..60 {
            let at = fs.random(files.len() as u64) as usize;
            let (directory, old, ino) = files[at].clone();
            if turn % 5 == 0 {
                fs.vfs.unlink(directory, old.as_bytes()).unwrap();
                let (new, len) = (format!("{name} {turn}"), fs.random(40_000));
                let ino = fs.file(directory, &new, len);
                files[at] = (directory, new, ino);
            } else {
                let (at, len) = (fs.random(40_000), fs.random(20_000));
                let bytes = fs.bytes(len);
                fs.write(ino, at, &bytes);
            }
        }
        fs.vfs.sync().unwrap();
        if name != "three" {
            then.push((name, fs.tree()));
            fs.vfs.take_snapshot(name.as_bytes(), true).unwrap();
        }
    }
    fs.checkpoint();
    let now = fs.tree();
    (fs, now, then)
}

/// All is there, and no more. Who looks at a tree changes when it was looked at.
fn assert_copied(truth: &Tree, copy: &Tree) {
    for (path, thing) in truth {
        let mut found = copy[path].clone();
        found.inode.atime = thing.inode.atime;
        assert_eq!(&found, thing, "{path}");
    }
    assert_eq!(truth.len(), copy.len());
}

#[test]
fn each_is_copied_for_itself() {
    let (fs, now, then) = full(61);
    for log_is_lost in [false, true] {
        let lost = match log_is_lost {
            true => fs.zones(Role::Log),
            false => Vec::new(),
        };
        let device = fs.without(&lost);
        let others = then.iter().map(|(name, tree)| (Some(*name), tree));
        for (name, truth) in others.chain([(None, &now)]) {
            let (copy, told, losses) = recovered_of(&device, name).unwrap();
            match log_is_lost {
                true => assert_log_alone_lost(&losses),
                false => assert_eq!(losses, []),
            }
            assert_copied(truth, &tree(&copy));
            let left = if name.is_some() { 1 } else { 2 };
            assert_eq!(told.snapshots_left, left);
        }
    }
}

#[test]
fn a_snapshot_that_does_not_exist() {
    let (fs, ..) = full(62);
    let rebuilt = rebuild(&*fs.device, &mut |_, _, _| {}).unwrap();
    let new = Arc::new(SimDevice::new(config()));
    format(&new, "new");
    let to = mount(&new);
    let now = Timestamp::default();
    let tried = recover_of(
        &rebuilt,
        Some(b"none such"),
        to.volume(),
        now,
        &mut |_| {},
        &mut |_, _, _| {},
    );
    let Err(Error::Broken(InspectError::NotFound { what })) = tried else {
        panic!("{tried:?}")
    };
    assert_eq!(what, "a snapshot named \"none such\"");
}

/// Where the leaf is that has the table of versions.
fn table(device: &SimDevice) -> Addr {
    let inspector = Inspector::open(device).unwrap();
    let Dump::Mat(rows) = dump(&inspector, &Target::Mat).unwrap() else {
        panic!("no table of pages")
    };
    let has_versions = |page: u64| match dump(&inspector, &Target::Page(PageId(page))).unwrap() {
        Dump::Page(page) => {
            let text = serde_json::to_value(&page).unwrap();
            let items = text["items"].as_array().cloned().unwrap_or_default();
            items.iter().any(|item| item["kind"] == "version")
        }
        other => panic!("{other:?}"),
    };
    let row = rows.iter().find(|row| has_versions(row.page)).unwrap();
    let parts: Vec<u32> = row
        .addr
        .split(':')
        .map(|part| part.parse().unwrap())
        .collect();
    Addr::new(DeviceId(0), ZoneId(parts[1]), parts[2])
}

/// Without the table nothing says which versions are the main subvolume's. The newest of each item is.
#[test]
fn without_the_table_the_newest_is_taken() {
    let (fs, now, _) = full(63);
    let device = fs.without(&[]);
    let addr = table(&device);
    assert!(device.corrupt(addr.zone(), addr.block(), 100, 0x10));
    let (copy, _, losses) = recovered(&device);
    let is_told = |loss: &persimmon_salvage::Loss| loss.detail.contains("table of snapshots");
    assert!(losses.iter().any(is_told), "{losses:#?}");
    assert_told(&now, &tree(&copy), &losses);
}

#[test]
fn of_a_lost_metadata_zone_what_differs_is_told() {
    let (fs, now, _) = full(64);
    for zone in fs.zones(Role::Metadata) {
        let (copy, _, losses) = recovered(&fs.without(&[zone]));
        assert_told(&now, &tree(&copy), &losses);
    }
}

/// Writes the metadata anew, and repairs what is left to repair. None where that is refused.
fn mended(device: &Arc<SimDevice>) -> Option<Vec<persimmon_salvage::Loss>> {
    let mut losses = Vec::new();
    {
        let rebuilt = rebuild(&**device, &mut |_, _, _| {}).unwrap();
        let how = (Timestamp::default(), Options::default());
        let to = Arc::clone(device) as _;
        let on_loss = &mut |loss: &persimmon_salvage::Loss| losses.push(loss.clone());
        match mend(&rebuilt, to, how, on_loss, &mut |_, _, _| {}) {
            Err(Error::Snapshots) => return None,
            done => done.unwrap(),
        }
    }
    settle(device);
    Some(losses)
}

/// The live files, and those of a snapshot.
fn trees(fs: &Vfs, then: &[(&'static str, Tree)]) -> (Tree, Vec<Tree>) {
    let snapshots = fs.snapshots();
    let of = |name: &str| {
        let named = |snapshot: &&Snapshot| snapshot.name == name.as_bytes();
        let id = snapshots.iter().find(named).unwrap().id;
        tree_of(fs, ROOT.of(id))
    };
    (tree(fs), then.iter().map(|(name, _)| of(name)).collect())
}

#[test]
fn metadata_is_written_anew_with_all_snapshots() {
    let (fs, ..) = full(65);
    let names = ["one", "two"].map(|name| (name, Tree::new()));
    let (now, then) = trees(&fs.vfs, &names);
    let device = Arc::new(fs.without(&fs.zones(Role::Log)));
    let losses = mended(&device).unwrap();
    assert_log_alone_lost(&losses);
    let vfs = mount(&device);
    let (found, before) = trees(&vfs, &names);
    assert_copied(&now, &found);
    for (truth, copy) in then.iter().zip(&before) {
        assert_copied(truth, copy);
    }
    // They can be deleted, and all that is left is the live files.
    for (name, _) in &names {
        vfs.delete_snapshot(name.as_bytes()).unwrap();
    }
    vfs.close().unwrap();
    drop(vfs);
    let report = settle(&device);
    assert!(report.is_clean(), "{:#?}", report.findings);
    assert_copied(&now, &tree(&mount(&device)));
}

/// What the live files or a snapshot have other than they had is told, by the number of the file, or of a directory above it: the path is that of
/// one name of the live file.
fn assert_told_by_inode(
    fs: &Vfs,
    top: Ino,
    (truth, copy): (&Tree, &Tree),
    losses: &[persimmon_salvage::Loss],
) {
    for (path, thing) in truth {
        let mut found = copy.get(path).cloned();
        if let Some(found) = &mut found {
            found.inode.atime = thing.inode.atime;
            // They follow from its names, each of which is looked at for itself.
            if thing.inode.is_dir() {
                (found.inode.size, found.inode.nlink) = (thing.inode.size, thing.inode.nlink);
            }
        }
        // The root gets `lost+found`.
        if found.as_ref() == Some(thing) || path == "/" {
            continue;
        }
        let mut way = vec![top];
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let above = *way.last().unwrap();
            way.push(fs.lookup(above, name.as_bytes()).unwrap().ino);
        }
        let is_told =
            |loss: &persimmon_salvage::Loss| way.iter().any(|ino| ino.plain().0 == loss.ino);
        assert!(losses.iter().any(is_told), "{top}: {path}: {losses:#?}");
    }
}

/// What of a version is lost is told, and what is not lost is there in each of them, and nothing else.
#[test]
fn of_a_lost_leaf_each_snapshot_keeps_the_rest() {
    let (fs, ..) = full(67);
    let names = ["one", "two"].map(|name| (name, Tree::new()));
    let (now, then) = trees(&fs.vfs, &names);
    let all = leaves(&fs.without(&[]), |_| true);
    let (mut repaired, mut refused) = (0, 0);
    for addr in &all {
        let device = Arc::new(fs.without(&[]));
        assert!(device.corrupt(addr.zone(), addr.block(), 100, 0x10));
        let Some(losses) = mended(&device) else {
            refused += 1;
            continue;
        };
        repaired += 1;
        let vfs = mount(&device);
        let (found, before) = trees(&vfs, &names);
        let snapshot = |name: &str| fs.vfs.snapshot_named(name.as_bytes()).unwrap().id;
        let tops = names.iter().map(|(name, _)| ROOT.of(snapshot(name)));
        let trees = then.iter().zip(&before).zip(tops);
        for (trees, top) in trees.chain([((&now, &found), ROOT)]) {
            assert_told_by_inode(&fs.vfs, top, trees, &losses);
        }
    }
    // The leaves with the table of versions, and with what versions say that they changed.
    assert!(
        refused <= 4 && repaired > refused,
        "{repaired} of {}",
        all.len()
    );
}

/// Where it is not known which versions there are, nothing is written.
#[test]
fn without_the_table_nothing_is_written_anew() {
    let (fs, ..) = full(68);
    let device = Arc::new(fs.without(&[]));
    let addr = table(&device);
    assert!(device.corrupt(addr.zone(), addr.block(), 100, 0x10));
    assert!(mended(&device).is_none());
}
