//! Zones that fail under a mounted filesystem: what is lost is told by path, by the engine and by
//! the inspector alike, and nothing else is.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use std::sync::Arc;

use persimmon_crash::filesystem::{Filesystem, Mounted};
use persimmon_crash::harness::{Case, Origin, Plan, Subject, System, replay};
use persimmon_crash::workload::{Durability, Op, Sequences};
use persimmon_engine::{Options, Volume};
use persimmon_format::table::Role;
use persimmon_inspect::finding::{DATA_LOST, ZONE_STATE};
use persimmon_inspect::{CheckOptions, Severity};
use persimmon_sim::{SimConfig, SimDevice};

fn apply(mounted: &mut Mounted, op: Op) {
    mounted.apply(&op, 1_000_000).unwrap();
}

fn write(mounted: &mut Mounted, path: &str, offset: u64, length: u32) {
    let path = path.to_owned();
    let (fill, durability) = (7, Durability::Sync);
    apply(
        mounted,
        Op::Write {
            path,
            offset,
            length,
            fill,
            durability,
        },
    );
}

#[test]
fn what_is_lost_is_told_by_path() {
    for copies in [1, 2] {
        let device = Arc::new(SimDevice::new(SimConfig::new(56, 128)));
        Filesystem.format(&device, copies).unwrap();
        let mut mounted = Filesystem.mount(&device).unwrap();
        for path in ["/d", "/d/e"] {
            let (path, mode) = (path.to_owned(), 0o755);
            apply(&mut mounted, Op::Mkdir { path, mode });
        }
        for path in ["/d/e/large", "/small", "/d/sparse"] {
            let (path, mode) = (path.to_owned(), 0o644);
            apply(&mut mounted, Op::Create { path, mode });
        }
        write(&mut mounted, "/d/e/large", 0, 40 * 4096);
        write(&mut mounted, "/small", 0, 100);
        write(&mut mounted, "/d/sparse", 100 * 4096, 4 * 4096);
        mounted.close().unwrap();
        let open = || Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
        let (volume, _) = open();
        assert_eq!(volume.losses(10).unwrap().total, 0);
        let zones = volume.zones();
        let holds_data = |role, valid| role == Role::Data && valid > 0;
        for zone in zones
            .iter()
            .filter(|z| holds_data(z.entry.role, z.entry.valid))
        {
            device.set_offline(zone.zone);
        }
        drop(volume);

        let (volume, _) = open();
        let losses = volume.losses(10).unwrap();
        let mut found: Vec<_> = losses
            .ranges
            .iter()
            .map(|loss| {
                let path = String::from_utf8(loss.path.clone().unwrap()).unwrap();
                (path, loss.offset, loss.bytes)
            })
            .collect();
        found.sort();
        let expected = [
            ("/d/e/large".to_owned(), 0, 40 * 4096),
            ("/d/sparse".to_owned(), 100 * 4096, 4 * 4096),
        ];
        assert_eq!(found, expected);
        assert_eq!((losses.total, losses.incomplete), (2, false));
        assert_eq!(volume.losses(1).unwrap().total, 2);
        volume.close().unwrap();
        drop(volume);

        let report =
            persimmon_inspect::check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap();
        let errors = report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Error);
        let mut told: Vec<_> = errors
            .filter(|f| f.number != ZONE_STATE.number)
            .map(|f| (f.number, f.place.as_str()))
            .collect();
        told.sort_unstable();
        let lost = DATA_LOST.number;
        assert_eq!(told, [(lost, "/d/e/large"), (lost, "/d/sparse")]);

        // All else goes on, and writing a lost range anew mends it.
        let mut mounted = Filesystem.mount(&device).unwrap();
        let seen = mounted.observe().unwrap();
        assert_eq!(seen.nodes["/d/e/large"].lost.len(), 40);
        assert_eq!(seen.nodes["/d/sparse"].lost.len(), 4);
        assert!(seen.nodes["/small"].lost.is_empty());
        write(&mut mounted, "/d/e/large", 0, 40 * 4096);
        assert!(mounted.observe_one("/d/e/large").unwrap().lost.is_empty());
        mounted.close().unwrap();
    }
}

/// Runs that once failed: too many active zones while recovering, and when a zone's last write was
/// still under way; a retired log zone taken for part of the log because of its partner's name; a
/// zone that turned read-only before a checkpoint knew of it.
#[test]
fn runs_that_once_failed() {
    for seed in [19, 171, 206, 567, 718, 2410, 2782] {
        let case = Case::new(Origin::Seed(seed), &Sequences::new()).unwrap();
        if let Err(failure) = replay(&Filesystem, &case) {
            panic!("{failure}");
        }
    }
}

/// The random runs of the crash tests have zones fail, with one copy and with two.
#[test]
fn plans_have_zones_fail() {
    let plans: Vec<Plan> = (1..1000).map(Plan::new).collect();
    let count = |copies, fails| {
        let is = |p: &&Plan| p.copies == copies && p.zone_failure.is_some() == fails;
        plans.iter().filter(is).count()
    };
    for (copies, fails) in [(1, true), (2, true), (2, false)] {
        assert!(count(copies, fails) > 20, "{copies} {fails}");
    }
}
