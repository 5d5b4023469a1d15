//! Volumes without a feature that all of this format have.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::{FILE, add, formatted, open};
use persimmon_device::{BufferMut, ZoneId, ZonedDevice};
use persimmon_engine::{Error, Options, Volume};
use persimmon_format::zone_header::{COMPACT, LOTS, NAMES, PACKED, ZoneHeader};
use persimmon_inspect::{CheckOptions, check};

/// Without `NAMES` its names would not be found, without `LOTS` its inode numbers be given out twice, without `COMPACT`
/// its summaries be misread: nothing of it is read.
#[test]
fn a_volume_without_a_required_feature_is_refused_and_told_of() {
    for missing in [NAMES, LOTS, NAMES | LOTS, COMPACT, PACKED] {
        let device = formatted();
        let volume = open(&device);
        add(&volume, persimmon_format::inode::ROOT, "file", FILE);
        volume.close().unwrap();
        drop(volume);
        for zone in (0..device.geometry().zone_count).map(ZoneId) {
            let header = device.read(zone, 0, 1);
            let Some(mut header) = header.ok().and_then(|b| ZoneHeader::decode(&b).ok()) else {
                continue;
            };
            header.volume.incompatible &= !missing;
            let mut block = BufferMut::zeroed(1);
            block.copy_from_slice(&header.encode());
            assert!(device.replace(zone, 0, block.freeze()));
        }
        let before = device.image_hash();
        let told = format!("without the features {missing:#x}");
        for read_only in [true, false] {
            let options = Options {
                read_only,
                ..Options::default()
            };
            match Volume::open(device.clone(), options) {
                Err(error @ Error::Unsupported { .. }) => {
                    assert!(error.to_string().contains(&told), "{error}");
                }
                other => panic!("{:?}", other.map(|(_, report)| report)),
            }
        }
        let checked = check(&*device, &CheckOptions::default(), &mut |_| {});
        let why = checked.unwrap_err().to_string();
        assert!(why.contains(&told), "{why}");
        assert_eq!(device.image_hash(), before, "something was written");
    }
}
