use std::path::{Path, PathBuf};

use super::*;
use crate::conformance::{self, Shape};
use crate::image::ImageDevice;
use crate::{BufferMut, ZoneId, ZoneState};

fn shape(zone_count: u32, zone_blocks: u32) -> ImageGeometry {
    ImageGeometry {
        zone_count,
        zone_blocks,
        capacity_blocks: zone_blocks,
        max_open: None,
        max_active: None,
    }
}

fn options(uuid: u128) -> CreateOptions {
    CreateOptions {
        uuid: Uuid::from_u128(uuid),
        label: "two".into(),
        ..CreateOptions::default()
    }
}

/// A pair of images of a volume, closed: the names of both.
fn made(dir: &Path, name: &str, uuid: u128) -> [PathBuf; 2] {
    let names = ["fast", "bulk"].map(|part| dir.join(format!("{name}.{part}")));
    let (fast, bulk) = (shape(5, 256), shape(7, 512));
    Pair::create((&names[0], &fast), (&names[1], &bulk), &options(uuid)).unwrap();
    names
}

fn open(first: &Path, second: &Path) -> Result<Drive> {
    Drive::open(uri(first, second), &OpenOptions::default())
}

fn refused(opened: Result<Drive>) -> PairError {
    match opened {
        Err(DeviceError::Pair(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pair_keeps_the_promises_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut number = 0;
    let place = dir.path().join("now");
    conformance::check(
        |shape: &Shape| {
            number += 1;
            let _ = std::fs::remove_dir_all(&place);
            std::fs::create_dir(&place).unwrap();
            let part = |zone_count, limits: bool| ImageGeometry {
                zone_count,
                zone_blocks: shape.zone_blocks,
                capacity_blocks: shape.capacity_blocks,
                max_open: shape.max_open.filter(|_| limits),
                max_active: shape.max_active.filter(|_| limits),
            };
            // Where the parts meet is inside what the cases use; two zones of each are the label's.
            let (first, second) = (part(4, false), part(shape.zone_count, true));
            let (a, b) = (place.join("a"), place.join("b"));
            Pair::create((&a, &first), (&b, &second), &options(1)).unwrap()
        },
        |device: Pair| {
            drop(device);
            let options = OpenOptions::default();
            Pair::open(&place.join("a"), &place.join("b"), &options).unwrap()
        },
    );
    assert!(number > 0);
}

#[test]
fn zones_of_both_are_counted_through() {
    let dir = tempfile::tempdir().unwrap();
    let [fast, bulk] = made(dir.path(), "a", 1);
    let drive = open(&fast, &bulk).unwrap();
    let geometry = drive.geometry();
    assert_eq!(geometry.zone_count, 3 + 5);
    assert_eq!(geometry.metadata_zones, MetadataZones::first(3));
    assert_eq!(geometry.zone_blocks, 512);
    assert_eq!(geometry.log_candidates(), [0, 1, 2]);
    let capacities: Vec<u32> = drive
        .report(0..8)
        .unwrap()
        .iter()
        .map(|z| z.capacity)
        .collect();
    assert_eq!(capacities, [256, 256, 256, 512, 512, 512, 512, 512]);
    // The zones of the labels are nobody's.
    let error = drive.read(ZoneId(8), 0, 1).unwrap_err();
    assert!(matches!(error, DeviceError::NoSuchZone { zone, count: 8 } if zone.0 == 8));
    let reset = drive.run(Command::Reset {
        zone: ZoneId(8),
        keep_allocated: false,
    });
    assert!(matches!(reset, Err(DeviceError::NoSuchZone { .. })));
    let error = drive.read(ZoneId(5), 0, 1).unwrap_err();
    assert!(matches!(error, DeviceError::ReadPastEnd { zone, .. } if zone.0 == 5));
    assert_eq!(drive.path(), uri(&fast, &bulk));
}

#[test]
fn who_is_not_the_partner_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let [fast, bulk] = made(dir.path(), "a", 1);
    let [other_fast, other_bulk] = made(dir.path(), "b", 2);
    let alone = |path: &Path| refused(Drive::open(path, &OpenOptions::default()));
    assert!(
        matches!(alone(&fast), PairError::Alone { kind: DeviceKind::Metadata, uuid, .. } if uuid.as_u128() == 1)
    );
    assert!(
        matches!(alone(&bulk), PairError::Alone { kind: DeviceKind::Data, uuid, .. } if uuid.as_u128() == 1)
    );
    assert!(alone(&bulk).to_string().contains("pair:"));
    assert!(matches!(
        refused(open(&bulk, &fast)),
        PairError::Swapped { .. }
    ));
    assert!(matches!(
        refused(open(&fast, &fast)),
        PairError::Twice { .. }
    ));
    assert!(matches!(
        refused(open(&fast, &other_fast)),
        PairError::SameKind {
            kind: DeviceKind::Metadata,
            ..
        }
    ));
    for (one, two) in [(&fast, &other_bulk), (&other_fast, &bulk)] {
        assert!(matches!(
            refused(open(one, two)),
            PairError::OtherVolume { .. }
        ));
    }
    let plain = dir.path().join("plain");
    ImageDevice::create(&plain, &shape(7, 512), &options(1)).unwrap();
    assert!(matches!(
        refused(open(&fast, &plain)),
        PairError::NoPart {
            kind: DeviceKind::Data,
            ..
        }
    ));
    assert!(matches!(
        refused(open(&plain, &bulk)),
        PairError::NoPart {
            kind: DeviceKind::Metadata,
            ..
        }
    ));
    assert!(matches!(
        open(&fast, &dir.path().join("absent")),
        Err(DeviceError::Open { .. })
    ));
    // None of that has changed anything.
    open(&fast, &bulk).unwrap();
    open(&other_fast, &other_bulk).unwrap();
}

#[test]
fn a_device_of_another_size_is_no_partner() {
    let dir = tempfile::tempdir().unwrap();
    let [fast, bulk] = made(dir.path(), "a", 1);
    let names = ["c.fast", "c.bulk"].map(|name| dir.path().join(name));
    let (smaller, same) = (shape(6, 512), shape(5, 256));
    Pair::create((&names[0], &same), (&names[1], &smaller), &options(1)).unwrap();
    assert!(
        matches!(refused(open(&fast, &names[1])), PairError::Resized { path, .. } if path.contains("c.bulk"))
    );
    assert!(open(&fast, &bulk).is_ok() && open(&names[0], &names[1]).is_ok());
}

#[test]
fn what_holds_something_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let [fast, bulk] = made(dir.path(), "a", 1);
    let new = dir.path().join("new");
    let (one, two) = (shape(5, 256), shape(7, 512));
    for (first, second) in [(&fast, &new), (&new, &bulk)] {
        assert!(Pair::create((first, &one), (second, &two), &options(2)).is_err());
        assert!(!new.exists(), "one was refused, and the other made");
        open(&fast, &bulk).unwrap();
    }
    // Nor is one that could be, so that the next time it can be again.
    let blank = dir.path().join("blank");
    std::fs::write(&blank, []).unwrap();
    assert!(Pair::create((&blank, &one), (&bulk, &two), &options(2)).is_err());
    assert_eq!(std::fs::metadata(&blank).unwrap().len(), 0);
    Pair::create((&blank, &one), (&new, &two), &options(2)).unwrap();
}

#[test]
fn names_of_two_in_one() {
    for (first, second) in [("/dev/a", "/dev/b"), ("a+b", "c\\d+"), ("zonefs:/x", "\\+")] {
        let name = uri(Path::new(first), Path::new(second));
        assert_eq!(
            names(&name),
            Some((first.into(), second.into())),
            "{name:?}"
        );
    }
    assert_eq!(
        uri(Path::new("/a+b"), Path::new("/c")),
        Path::new("pair:/a\\+b+/c")
    );
    for wrong in [
        "/dev/a",
        "pair:",
        "pair:/a",
        "pair:/a+",
        "pair:+/b",
        "pair:/a+/b+/c",
        "pair:/a+/b\\",
    ] {
        assert_eq!(names(Path::new(wrong)), None, "{wrong}");
    }
    let error = Drive::open("pair:/a", &OpenOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("pair:METADATA_DEVICE+DATA_DEVICE"),
        "{error}"
    );
}

/// A device of which one zone has failed.
struct Worn {
    device: ImageDevice,
    zone: u32,
    state: Option<ZoneState>,
}

impl ZonedDevice for Worn {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let mut report = self.device.report(zones.clone())?;
        for (zone, info) in zones.zip(&mut report) {
            if zone == self.zone {
                info.state = self.state.unwrap_or(info.state);
            }
        }
        Ok(report)
    }

    fn submit(&self, mut command: Command) -> Pending {
        let zone = command.zone_mut().copied();
        if zone != Some(ZoneId(self.zone)) || self.state == Some(ZoneState::ReadOnly) {
            return self.device.submit(command);
        }
        Pending::ready(Err(DeviceError::Io {
            operation: "read",
            zone: ZoneId(self.zone),
            block: 0,
            message: "a bad block".into(),
        }))
    }
}

fn sample(uuid: u128) -> DeviceLabel {
    let zones = DeviceZones {
        count: 5,
        blocks: 256,
    };
    DeviceLabel {
        kind: DeviceKind::Data,
        uuid: uuid.to_be_bytes(),
        label: String::new(),
        metadata: zones,
        data: zones,
        grown: None,
    }
}

#[test]
fn a_label_outlives_one_of_its_zones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let new = |force| {
        let options = CreateOptions {
            force,
            ..options(1)
        };
        ImageDevice::create(&path, &shape(7, 256), &options).unwrap()
    };
    let mut device = new(false);
    label::write(&device, &sample(1), &path).unwrap();
    for zone in [5, 6] {
        for state in [None, Some(ZoneState::ReadOnly), Some(ZoneState::Offline)] {
            let worn = Worn {
                device,
                zone,
                state,
            };
            assert_eq!(label(&worn).unwrap(), Some(sample(1)), "{zone} {state:?}");
            device = worn.device;
        }
    }
    // One zone is enough to begin with.
    for zone in [5, 6] {
        drop(device);
        let worn = Worn {
            device: new(true),
            zone,
            state: Some(ZoneState::Offline),
        };
        assert_eq!(label(&worn).unwrap(), None);
        label::write(&worn, &sample(2), &path).unwrap();
        assert_eq!(label(&worn).unwrap(), Some(sample(2)));
        device = worn.device;
    }
}

#[test]
fn a_zone_that_says_something_else_forever_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let device = ImageDevice::create(&path, &shape(7, 256), &options(1)).unwrap();
    label::write(&device, &sample(1), &path).unwrap();
    device
        .run(Command::Reset {
            zone: ZoneId(6),
            keep_allocated: false,
        })
        .unwrap();
    // The other could not be reset.
    let worn = Worn {
        device,
        zone: 5,
        state: Some(ZoneState::ReadOnly),
    };
    let refused = label::write(&worn, &sample(2), &path).unwrap_err();
    assert!(
        matches!(&refused, DeviceError::Pair(PairError::Marked { uuid, .. }) if uuid.as_u128() == 1),
        "{refused}"
    );
    assert!(check_unmarked(&worn, &path).is_err());
    label::write(&worn, &sample(1), &path).unwrap();
}

#[test]
fn a_bad_block_in_a_last_zone_hides_no_volume_of_one_device() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let device = ImageDevice::create(&path, &shape(7, 256), &options(1)).unwrap();
    for zone in [5, 6] {
        device
            .run(Command::Write {
                zone: ZoneId(zone),
                block: 0,
                data: vec![BufferMut::zeroed(1).freeze()],
            })
            .unwrap();
    }
    let worn = Worn {
        device,
        zone: 6,
        state: None,
    };
    check_alone(&worn, &path).unwrap();
    // But a part is not taken for none.
    assert!(label(&worn).is_err());
}

/// The metadata device of a pair may be a drive with conventional zones, in which the log comes to lie: their write pointers
/// are an image's and prove nothing. The pair called them proof, as the drive does of its other zones, so a recovery began
/// no new epoch, and blocks of a tail behind the write pointer could come back in the place of new ones.
#[test]
fn write_pointers_of_a_pair_with_conventional_zones_prove_nothing() {
    let drive = |conventional_zones| Geometry {
        zone_count: 20,
        zone_blocks: 256,
        conventional_zones,
        metadata_zones: Default::default(),
        max_open: None,
        max_active: None,
        max_transfer_blocks: 32,
        max_append_blocks: 32,
        volatile_cache: conventional_zones > 0,
        write_pointer_is_proof: true,
        stripes: None,
    };
    for (first, second, proof) in [(0, 0, true), (4, 0, false), (0, 4, false)] {
        let joined = geometry_of(&drive(first), &drive(second)).unwrap();
        assert_eq!(joined.write_pointer_is_proof, proof);
    }
}
