//! Volumes that got more zones and another name, and lost their log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{Fs, config, intact, mount, recovered, tree};
use persimmon_device::{FirstZones, ZonedDevice};
use persimmon_engine::{Alteration, FormatOptions, Options, Volume};
use persimmon_format::inode::Timestamp;
use persimmon_format::table::Role;
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, check};
use persimmon_salvage::mend;
use persimmon_sim::SimDevice;

/// Zones that the volume is made with; the device has 64.
const BEFORE: u32 = 40;

fn open(device: &Arc<SimDevice>) -> Volume {
    Volume::open(Arc::clone(device) as _, Options::default())
        .unwrap()
        .0
}

/// A volume with files that grew, and is called `new`.
fn grown() -> Arc<SimDevice> {
    let device = Arc::new(SimDevice::new(config()));
    let options = FormatOptions {
        label: "old".into(),
        ..FormatOptions::default()
    };
    let first: Arc<dyn ZonedDevice> = Arc::new(FirstZones::of(device.clone(), BEFORE));
    Volume::format(first, &options).unwrap();
    let mut fs = Fs::again(Arc::clone(&device), 5);
    fs.fill(4, 40);
    fs.checkpoint();
    drop(fs);
    Alteration::of(&open(&device)).grow(false).unwrap();
    Alteration::of(&open(&device))
        .rename(Some("new"), None)
        .unwrap();
    device
}

/// What `fsck --repair` does with a volume whose log is lost.
fn mended(fs: &Fs) -> Arc<SimDevice> {
    let device = Arc::new(fs.without(&fs.zones(Role::Log)));
    let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
    let how = (Timestamp::default(), Options::default());
    let same = Arc::clone(&device) as _;
    mend(&rebuilt, same, how, &mut |_| {}, &mut |_, _, _| {}).unwrap();
    let report = check(&*device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    device
}

/// Zone headers tell as much as the log did.
#[test]
fn a_grown_volume_is_mended_with_all_its_zones() {
    let device = grown();
    let mut fs = Fs::again(Arc::clone(&device), 6);
    let files = fs.fill_at("after", 6, 60);
    for (at, (_, _, ino)) in files.into_iter().enumerate() {
        let bytes = fs.bytes(270_000);
        fs.write(ino, 0, &bytes);
        if at % 20 == 0 {
            fs.checkpoint();
        }
    }
    fs.checkpoint();
    assert!(fs.zones(Role::Data).iter().any(|zone| zone.0 >= BEFORE));
    let truth = fs.tree();
    let mended = mended(&fs);
    let volume = open(&mended);
    let identity = volume.identity();
    assert_eq!((identity.zone_count, identity.label.as_str()), (64, "new"));
    drop(volume);
    assert!(tree(&mount(&mended)) == truth);
    let (copy, ..) = recovered(&fs.without(&fs.zones(Role::Log)));
    let (same, all) = intact(&truth, &tree(&copy));
    assert_eq!(same, all);
}

/// No header tells yet that it grew: then it did not, and nothing is lost.
#[test]
fn a_growth_that_the_log_alone_tells_of_is_lost_with_it() {
    let device = grown();
    let fs = Fs::again(device, 7);
    let truth = fs.tree();
    let mended = mended(&fs);
    let volume = open(&mended);
    assert!([BEFORE, 64].contains(&volume.identity().zone_count));
    assert!(tree(&mount(&mended)) == truth);
    let growth = Alteration::of(&open(&mended)).grow(false).unwrap();
    assert_eq!(growth.zones, 64);
    assert!(tree(&mount(&mended)) == truth);
}
