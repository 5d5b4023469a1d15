//! What others write over an image, or cut off it: the copies at the other end tell all.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::ZoneState;

const MIB: u64 = 1 << 20;

/// Zones in use, full, finished, reset and never used.
fn make(path: &Path, options: &CreateOptions) -> Layout {
    let device = ImageDevice::create(path, &geometry(), options).unwrap();
    let write = |zone, blocks| {
        let data = vec![tagged(ZoneId(zone), 0, blocks, 0)];
        let (zone, block) = (ZoneId(zone), 0);
        device.run(Command::Write { zone, block, data }).unwrap();
    };
    let capacity = geometry().capacity_blocks;
    for (zone, blocks) in [(1, 7), (2, capacity), (3, 5), (4, 9)] {
        write(zone, blocks);
        device.flush().unwrap();
    }
    device.run(Command::Finish { zone: ZoneId(3) }).unwrap();
    let (zone, keep_allocated) = (ZoneId(4), false);
    let reset = Command::Reset {
        zone,
        keep_allocated,
    };
    device.run(reset).unwrap();
    device.flush().unwrap();
    device.layout
}

fn how(read_only: bool, search: bool) -> OpenOptions {
    OpenOptions {
        read_only,
        search,
        ..OpenOptions::default()
    }
}

/// All that was written can be read, and what was empty is empty. `exact`: so are write pointers.
#[track_caller]
fn check(device: &ImageDevice, exact: bool) {
    let capacity = geometry().capacity_blocks;
    let states = device.report(0..geometry().zone_count).unwrap();
    for (zone, blocks) in [(1, 7), (2, capacity), (3, 5)] {
        let read = device.read(ZoneId(zone), 0, blocks).unwrap();
        assert!(*read == *tagged(ZoneId(zone), 0, blocks, 0));
    }
    assert_eq!(states[1].state == ZoneState::Closed, exact);
    for zone in [0, 4, 5, 6, 7] {
        assert_eq!(states[zone].state, ZoneState::Empty, "zone {zone}");
    }
}

/// Zeros over the first sector made an image none at all, and a partition table made full zones empty.
#[test]
fn each_end_tells_what_the_other_has_lost() {
    let dir = quick_dir();
    let path = dir.path().join("a.img");
    let layout = make(&path, &CreateOptions::default());
    let whole = fs::read(&path).unwrap();
    let gpt = |file: &File, sector: u64| {
        let mut label = vec![0; 34 * sector as usize];
        label[446 + 4] = 0xee;
        label[510..512].copy_from_slice(&[0x55, 0xaa]);
        label[sector as usize..][..8].copy_from_slice(b"EFI PART");
        file.write_all_at(&label[..(34 * 512).max(6 * sector as usize)], 0)
            .unwrap();
        let backup = vec![0xee; 33 * 512];
        file.write_all_at(&backup, layout.total - 33 * 512).unwrap();
    };
    let zero = |file: &File, from: u64, to: u64| {
        file.write_all_at(&vec![0; (to - from) as usize], from)
            .unwrap();
    };
    type Accident<'a> = (&'a str, bool, &'a dyn Fn(&File));
    let accidents: [Accident<'_>; 10] = [
        ("first sector", true, &|file| zero(file, 0, 512)),
        ("GPT", true, &|file| gpt(file, 512)),
        ("GPT of large sectors", true, &|file| gpt(file, 4096)),
        ("table", false, &|file| {
            zero(file, layout.tables[0], layout.tables[0] + 4096);
        }),
        ("first MiB", false, &|file| zero(file, 0, MIB)),
        ("last MiB", true, &|file| {
            zero(file, layout.total - MIB, layout.total)
        }),
        ("cut by a sector", true, &|file| {
            file.set_len(layout.total - 512).unwrap();
        }),
        ("cut at the zones' end", true, &|file| {
            file.set_len(layout.end).unwrap();
        }),
        ("appended", true, &|file| {
            file.write_all_at(&[0x77; 100_000], layout.total).unwrap();
        }),
        ("on a larger device, first MiB lost", false, &|file| {
            zero(file, 0, MIB);
            file.set_len(layout.total + 100 * MIB).unwrap();
        }),
    ];
    for (what, exact, accident) in accidents {
        fs::write(&path, &whole).unwrap();
        accident(&File::options().write(true).open(&path).unwrap());
        // Where a device is larger than its image, that is found when asked to search.
        let search = what.starts_with("on a larger");
        assert_eq!(ImageDevice::open(&path, &how(true, false)).is_err(), search);
        check(
            &ImageDevice::open(&path, &how(true, search)).unwrap(),
            exact,
        );
        let device = ImageDevice::open(&path, &how(false, search)).unwrap();
        assert_eq!(device.notices().is_empty(), what == "appended", "{what}");
        check(&device, exact);
        drop(device);
        let device = ImageDevice::open(&path, &how(false, false)).unwrap();
        assert_eq!(device.notices(), &[], "{what}");
        check(&device, exact);
    }
}

#[test]
fn without_both_tables_zones_tell_whether_they_are_in_use() {
    let dir = quick_dir();
    let path = dir.path().join("a.img");
    let layout = make(&path, &CreateOptions::default());
    let file = File::options().write(true).open(&path).unwrap();
    for table in layout.tables {
        let zeros = vec![0; layout.table_bytes as usize];
        file.write_all_at(&zeros, table).unwrap();
    }
    let device = ImageDevice::open(&path, &how(false, false)).unwrap();
    check(&device, false);
    let zones = geometry().zone_count;
    let lost = |table| Notice::TableRecords { table, zones };
    assert_eq!(device.notices()[..2], [lost(1), lost(2)]);
    drop(device);
    let device = ImageDevice::open(&path, &how(false, false)).unwrap();
    assert_eq!(device.notices(), &[]);
    check(&device, false);
}

/// A write pointer that is too low hides what is there.
#[test]
fn a_search_takes_no_write_pointer_for_granted() {
    let dir = quick_dir();
    let path = dir.path().join("a.img");
    let layout = make(&path, &CreateOptions::default());
    let file = File::options().write(true).open(&path).unwrap();
    let place = layout.data + layout.zone_stride + 20 * crate::BLOCK_SIZE as u64;
    file.write_all_at(b"something", place).unwrap();
    let device = ImageDevice::open(&path, &how(true, false)).unwrap();
    assert_eq!(device.report(1..2).unwrap()[0].write_pointer, 7);
    drop(device);
    let device = ImageDevice::open(&path, &how(true, true)).unwrap();
    let zone = ZoneId(1);
    assert_eq!(device.notices(), &[Notice::ZoneRecordLost { zone }]);
    assert!(device.read(zone, 20, 1).unwrap().starts_with(b"something"));
    check(&device, false);
}

/// The end of an older image may be taken for the end of the one that was made over it.
#[test]
fn what_is_left_of_an_older_image_counts_for_nothing() {
    let host = power::LossyHost::default();
    let path = Path::new("stale");
    let length = 64 * MIB;
    let of = |zone_count, uuid| {
        let geometry = ImageGeometry {
            zone_count,
            ..geometry()
        };
        let options = CreateOptions {
            uuid: uuid::Uuid::from_u128(uuid),
            label: format!("{uuid}"),
            ..CreateOptions::default()
        };
        let boxed = Box::new(host.clone());
        ImageDevice::create_on(path, boxed, length, &geometry, &options).unwrap()
    };
    for (old, new) in [(20, 10), (10, 20)] {
        drop(of(old, 1));
        let layout = of(new, 2).layout;
        for copy in 0..2 {
            let zeros = vec![0; crate::BLOCK_SIZE];
            host.write_bytes_at(&zeros, layout.copy(copy)).unwrap();
        }
        // It ends before its device does, so nothing is found without a search but what is stale.
        let found = ImageDevice::open_on(path, Box::new(host.clone()), length, true).unwrap();
        assert!(found.is_none());
        let found = ImageDevice::open_on(path, Box::new(host.clone()), layout.total, true).unwrap();
        assert_eq!(found.unwrap().label(), "2");
    }
}

/// To write the first copy again would be the end of what was made over the image, and may be wanted.
#[test]
fn a_filesystem_made_over_an_image_is_not_written_to() {
    let dir = quick_dir();
    let path = dir.path().join("a.img");
    make(&path, &CreateOptions::default());
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 4096], 0).unwrap();
    file.write_all_at(&[0x53, 0xef], 0x438).unwrap();
    let error = ImageDevice::open(&path, &how(false, false)).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("ext2 filesystem") && message.contains("recover"),
        "{message}"
    );
    check(&ImageDevice::open(&path, &how(true, false)).unwrap(), true);
}
