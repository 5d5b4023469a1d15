//! A volume with snapshots: what the main subvolume shows is copied, or what one of them does, and never a mixture. In place nothing is
//! written anew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;

use persimmon_engine::Options;
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, PageId, ZoneId};
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, InspectError, Inspector, check};
use persimmon_salvage::{Error, mend, recover_of};
use persimmon_sim::SimDevice;
use support::{
    Fs, Tree, assert_log_alone_lost, assert_told, config, format, mount, recovered, recovered_of,
    tree,
};

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

/// A repair in place would have to say of each version what it shows where something is lost.
#[test]
fn metadata_is_not_written_anew() {
    let (fs, ..) = full(65);
    let device = Arc::new(fs.without(&fs.zones(Role::Log)));
    let before = device.snapshot();
    let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
    let how = (Timestamp::default(), Options::default());
    let to = Arc::clone(&device) as _;
    let tried = mend(&rebuilt, to, how, &mut |_| {}, &mut |_, _, _| {});
    assert!(matches!(tried, Err(Error::Snapshots)), "{tried:?}");
    drop(before);
    // Once there are none any more it is as ever.
    let plain = Fs::new(66);
    plain.checkpoint();
    let options = CheckOptions::default();
    let report = check(&*plain.device, &options, &mut |_| {}).unwrap();
    assert!(report.is_clean());
    let device = Arc::new(plain.without(&plain.zones(Role::Log)));
    let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
    let how = (Timestamp::default(), Options::default());
    let to = Arc::clone(&device) as _;
    mend(&rebuilt, to, how, &mut |_| {}, &mut |_, _, _| {}).unwrap();
}
