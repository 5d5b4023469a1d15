//! Trimming by range, as `FITRIM` asks for it.

use std::sync::Arc;

use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Error, Handle, Options, TrimRange, WriteFlags};

use crate::fixture::Fixture;

const ZONE: u64 = 256 * 4096;
const ZONES: u64 = 32;

fn all() -> TrimRange {
    TrimRange {
        start: 0,
        len: u64::MAX,
        extent_min: 0,
    }
}

fn fixture(options: Options) -> Fixture {
    let device = SimDevice::new(SimConfig::new(ZONES as u32, 256).fast());
    Fixture::on(Arc::new(device), options)
}

#[test]
fn what_is_free_in_the_range_is_told_each_time() {
    let fs = fixture(Options::default());
    let total = fs.vfs.statfs().unwrap().blocks * 4096;
    let free = fs.vfs.trim_range(all()).unwrap();
    assert!(free > total / 2 && free <= total, "{free} of {total}");
    assert_eq!(fs.vfs.trim_range(all()).unwrap(), free);

    let range = |start, len| TrimRange {
        start,
        len,
        ..all()
    };
    let parts: Vec<u64> = (0..ZONES)
        .map(|zone| fs.vfs.trim_range(range(zone * ZONE, ZONE)).unwrap())
        .collect();
    assert!(parts.iter().all(|part| [0, ZONE].contains(part)));
    // What metadata and cleaning need is free, too, and not for users.
    assert!(parts.iter().sum::<u64>() >= free);
    // The second half of a free zone, and a quarter of the next one.
    let two = parts.windows(2).position(|two| two == [ZONE, ZONE]);
    let start = two.unwrap() as u64 * ZONE + ZONE / 2;
    let half = range(start, ZONE / 2 + ZONE / 4);
    assert_eq!(fs.vfs.trim_range(half).unwrap(), ZONE / 2 + ZONE / 4);
    let long = TrimRange {
        extent_min: ZONE / 2,
        ..half
    };
    assert_eq!(fs.vfs.trim_range(long).unwrap(), ZONE / 2);
}

#[test]
fn what_was_removed_is_free_and_told() {
    let fs = fixture(Options::default());
    let ino = fs.file("f", b"");
    let data = vec![7; 8 * ZONE as usize];
    let flags = WriteFlags::default();
    fs.vfs.write(ino, Handle::NONE, 0, &data, flags).unwrap();
    fs.vfs.sync().unwrap();
    let before = fs.vfs.trim_range(all()).unwrap();
    fs.vfs.unlink(persimmon_vfs::ROOT, b"f").unwrap();
    let after = fs.vfs.trim_range(all()).unwrap();
    assert!(after >= before + 6 * ZONE, "{before}, {after}");
}

#[test]
fn ranges_that_make_no_sense_are_refused() {
    let fs = fixture(Options::default());
    let refused = |start, len, extent_min| {
        let range = TrimRange {
            start,
            len,
            extent_min,
        };
        assert!(
            matches!(fs.vfs.trim_range(range), Err(Error::Invalid(_))),
            "{range:?}"
        );
    };
    refused(ZONES * ZONE, u64::MAX, 0);
    refused(u64::MAX, u64::MAX, 0);
    refused(0, 0, 0);
    refused(0, 4095, 0);
    refused(0, u64::MAX, ZONE + 1);
    fs.vfs.trim_range(TrimRange { len: 4096, ..all() }).unwrap();
}

#[test]
fn a_volume_that_takes_no_changes_is_not_trimmed() {
    let fs = fixture(Options {
        read_only: true,
        ..Options::default()
    });
    assert!(matches!(fs.vfs.trim_range(all()), Err(Error::ReadOnly)));
    assert!(matches!(fs.vfs.trim(), Err(Error::ReadOnly)));
}
