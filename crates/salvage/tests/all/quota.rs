//! A volume with quota: projects, limits and grace times come along, and what owners take is counted by what was copied.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{Fs, mount, recovered, settle};
use persimmon_engine::{NewLimits, Options, Quotas};
use persimmon_format::inode::Timestamp;
use persimmon_format::quota::{Counting, Grace, Limit, Owner, OwnerKind};
use persimmon_format::table::Role;
use persimmon_inspect::salvage::rebuild;
use persimmon_salvage::mend;
use persimmon_vfs::{Caller, ROOT};

const USER: Owner = Owner {
    kind: OwnerKind::User,
    id: 0,
};
const PROJECT: Owner = Owner {
    kind: OwnerKind::Project,
    id: 7,
};
const GRACE: Grace = Grace {
    bytes: 1000,
    inodes: 2000,
};

fn full(seed: u64) -> Fs {
    let mut fs = Fs::new(seed);
    let quotas = Quotas::of(fs.vfs.volume());
    quotas.turn_on(false).unwrap();
    quotas.count().unwrap();
    let tree = fs.directory(ROOT, "tree");
    fs.vfs.set_project(&Caller::root(), tree, 7).unwrap();
    fs.file(tree, "in", 50_000);
    fs.file(ROOT, "out", 50_000);
    let quotas = Quotas::of(fs.vfs.volume());
    let limits = NewLimits {
        bytes_soft: Some(10_000),
        bytes_hard: Some(1 << 20),
        inodes_hard: Some(100),
        ..NewLimits::default()
    };
    let now = Timestamp::default();
    quotas.set(PROJECT, &limits, now).unwrap();
    quotas.set_grace(OwnerKind::Project, GRACE).unwrap();
    fs.vfs.sync().unwrap();
    fs
}

#[test]
fn limits_and_projects_are_there_in_the_copy() {
    for (is_off, is_log_lost) in [(false, false), (false, true), (true, false)] {
        let fs = full(3);
        if is_off {
            Quotas::of(fs.vfs.volume()).turn_off().unwrap();
        }
        fs.checkpoint();
        let lost = match is_log_lost {
            true => fs.zones(Role::Log),
            false => Vec::new(),
        };
        let (copy, _, losses) = recovered(&fs.without(&lost));
        assert_eq!(losses.is_empty(), !is_log_lost, "{losses:#?}");
        let quotas = Quotas::of(copy.volume());
        let state = quotas.state();
        assert_eq!(state.counting == Counting::Off, is_off);
        assert_eq!(state.grace(OwnerKind::Project), GRACE);
        assert_eq!(state.grace(OwnerKind::User), Grace::default());
        let project = quotas.get(PROJECT).unwrap();
        let soft_and_hard = |soft, hard| Limit { soft, hard };
        assert_eq!(project.bytes, soft_and_hard(10_000, 1 << 20));
        assert_eq!(project.inodes, soft_and_hard(0, 100));
        if !is_off {
            assert_eq!(project.usage.inodes, 2);
            assert!(project.bytes_used() >= 40_000);
            assert!(project.bytes_grace_end.is_some());
            assert_eq!(quotas.get(USER).unwrap().usage.inodes, 4);
        }
        let tree = copy.lookup(ROOT, b"tree").unwrap().ino;
        let file = copy.lookup(tree, b"in").unwrap().ino;
        assert_eq!(
            (copy.project(tree).unwrap(), copy.project(file).unwrap()),
            (7, 7)
        );
    }
}

/// Nothing of quota gets onto a volume whose source never had any.
#[test]
fn what_had_no_quota_gets_none() {
    let fs = Fs::new(3);
    fs.checkpoint();
    let (copy, _, _) = recovered(&fs.without(&[]));
    assert!(!Quotas::of(copy.volume()).has_projects());
}

/// Of what was turned on since the volume was opened the footers tell, and the headers of zones do not yet. With new metadata the volume had
/// limits and no quota.
#[test]
fn a_volume_that_gets_new_metadata_still_has_quota() {
    let fs = full(3);
    fs.checkpoint();
    let device = Arc::new(fs.without(&[]));
    {
        let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
        let how = (Timestamp::default(), Options::default());
        let to = Arc::clone(&device) as _;
        mend(&rebuilt, to, how, &mut |_| {}, &mut |_, _, _| {}).unwrap();
    }
    let report = settle(&device);
    assert_eq!(report.worst(), None, "{:#?}", report.findings);
    let vfs = mount(&device);
    let quotas = Quotas::of(vfs.volume());
    assert_ne!(quotas.state().counting, Counting::Off);
    quotas.set_grace(OwnerKind::User, GRACE).unwrap();
    quotas.turn_off().unwrap();
}
