//! Volumes made before a feature was that all of this format have.

#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use persimmon_device::{BufferMut, ZoneId, ZonedDevice};
use persimmon_engine::{Error, Options, Volume};
use persimmon_format::zone_header::{LOTS, NAMES, ZoneHeader};
use persimmon_inspect::{CheckOptions, check};
use support::{FILE, add, formatted, open};

/// Its names would not be found, and its inode numbers be given out twice: nothing of it is read.
#[test]
fn an_older_volume_is_refused_and_told_of() {
    for missing in [NAMES, LOTS, NAMES | LOTS] {
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
