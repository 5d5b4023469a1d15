use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::conformance::{self, Shape};
use crate::image::{ImageDevice, ImageGeometry};
use crate::label::LABEL_ZONES;
use crate::{BLOCK_SIZE, BufferMut, CreateOptions, Drive, OpenOptions, ZoneState};

const PARITY: Stripes = Stripes {
    columns: 3,
    metadata_sets: 2,
};

fn shape(zone_count: u32) -> ImageGeometry {
    ImageGeometry {
        zone_count,
        zone_blocks: 256,
        capacity_blocks: 40,
        max_open: None,
        max_active: None,
    }
}

/// The zones of an image, of which one may be gone, one block be something else and one not be read.
#[derive(Debug)]
struct Hurt {
    image: ImageDevice,
    geometry: Geometry,
    offline: Mutex<Option<ZoneId>>,
    wrong: Mutex<Option<(ZoneId, u32)>>,
    unreadable: Mutex<Option<(ZoneId, u32)>>,
}

impl Hurt {
    fn of(zone_count: u32) -> Hurt {
        let image = ImageDevice::in_memory(&shape(zone_count), &CreateOptions::default()).unwrap();
        Hurt {
            geometry: image.geometry().clone(),
            image,
            offline: Mutex::default(),
            wrong: Mutex::default(),
            unreadable: Mutex::default(),
        }
    }

    fn lose(&self, zone: Option<u32>) {
        *self.offline.lock().unwrap() = zone.map(ZoneId);
    }
}

impl ZonedDevice for Hurt {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let mut report = self.image.report(zones.clone())?;
        for (zone, info) in zones.map(ZoneId).zip(&mut report) {
            if Some(zone) == *self.offline.lock().unwrap() {
                info.state = ZoneState::Offline;
                info.capacity = 0;
            }
        }
        Ok(report)
    }

    fn submit(&self, mut command: Command) -> Pending {
        let zone = command.zone_mut().map(|zone| *zone);
        let offline = *self.offline.lock().unwrap();
        if let Some(zone) = zone.filter(|zone| Some(*zone) == offline) {
            return Pending::ready(Err(DeviceError::BadState {
                zone,
                state: ZoneState::Offline,
                operation: "anything",
            }));
        }
        let read = match &command {
            Command::Read {
                zone,
                block,
                blocks,
            } => Some((*zone, *block, *blocks)),
            _ => None,
        };
        let limit = self.geometry.max_transfer_blocks;
        if let Some((_, _, blocks)) = read
            && blocks > limit
        {
            return Pending::ready(Err(DeviceError::TransferSize { blocks, limit }));
        }
        let unreadable = *self.unreadable.lock().unwrap();
        if let (Some((zone, first, blocks)), Some((bad, block))) = (read, unreadable)
            && zone == bad
            && (first..first + blocks).contains(&block)
        {
            return Pending::ready(Err(DeviceError::Io {
                zone,
                block: first,
                operation: "read",
                message: "a bad sector".to_owned(),
            }));
        }
        let result = self.image.run(command);
        let wrong = *self.wrong.lock().unwrap();
        Pending::ready(match (result, read, wrong) {
            (Ok(Completion::Read(data)), Some((zone, first, _)), Some((hurt, block)))
                if zone == hurt && (first..first + data.blocks()).contains(&block) =>
            {
                let mut data = data.into_mut();
                data[(block - first) as usize * BLOCK_SIZE] ^= 1;
                Ok(Completion::Read(data.freeze()))
            }
            (result, ..) => result,
        })
    }
}

/// Blocks that tell where they are.
fn pattern(zone: u32, block: u32, blocks: u32) -> Buffer {
    let mut data = BufferMut::zeroed(blocks as usize);
    for (number, content) in (block..).zip(data.chunks_exact_mut(BLOCK_SIZE)) {
        content.fill((number * 7 + zone) as u8);
        content[..4].copy_from_slice(&number.to_le_bytes());
    }
    data.freeze()
}

fn write(device: &impl ZonedDevice, zone: u32, block: u32, blocks: u32) -> Result<()> {
    let half = pattern(zone, block, blocks.div_ceil(2));
    let rest = pattern(zone, block + half.blocks(), blocks / 2);
    let data = [half, rest].into_iter().filter(|data| data.blocks() > 0);
    device
        .run(Command::Write {
            zone: ZoneId(zone),
            block,
            data: data.collect(),
        })
        .map(drop)
}

#[track_caller]
fn check(device: &impl ZonedDevice, zone: u32, block: u32, blocks: u32) {
    let read = device.read(ZoneId(zone), block, blocks).unwrap();
    assert!(
        read[..] == pattern(zone, block, blocks)[..],
        "{zone}:{block}+{blocks}"
    );
}

#[test]
fn a_mirror_keeps_the_promises_of_one_zone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut number = 0;
    conformance::check(
        |shape: &Shape| {
            number += 1;
            let _ = std::fs::remove_file(&path);
            let twice = ImageGeometry {
                zone_count: 2 * shape.zone_count + LABEL_ZONES,
                zone_blocks: shape.zone_blocks,
                capacity_blocks: shape.capacity_blocks,
                max_open: shape.max_open.map(|limit| 2 * limit),
                max_active: shape.max_active.map(|limit| 2 * limit),
            };
            let image = ImageDevice::create(&path, &twice, &CreateOptions::default()).unwrap();
            Striped::new(Arc::new(image), Stripes::MIRROR, true).unwrap()
        },
        |device: Striped<ImageDevice>| {
            drop(device);
            let image = ImageDevice::open(&path, &OpenOptions::default()).unwrap();
            Striped::new(Arc::new(image), Stripes::MIRROR, true).unwrap()
        },
    );
    assert!(number > 0);
}

#[test]
fn any_zone_of_a_set_may_be_lost() {
    let hurt = Hurt::of(4 + 4 * 2 + LABEL_ZONES);
    let device = Striped::new(Arc::new(hurt), PARITY, true).unwrap();
    let capacities: Vec<u32> = device
        .report(0..4)
        .unwrap()
        .iter()
        .map(|z| z.capacity)
        .collect();
    assert_eq!(capacities, [40, 40, 118, 118]);
    write(&device, 0, 0, 9).unwrap();
    write(&device, 2, 0, 1).unwrap();
    write(&device, 2, 1, 30).unwrap();
    write(&device, 3, 0, 118).unwrap();
    assert!(matches!(
        write(&device, 2, 31, 4),
        Err(DeviceError::NotWholeRows { .. })
    ));
    for lost in std::iter::once(None).chain((0..12).map(Some)) {
        device.below().lose(lost);
        for (zone, end) in [(0, 9), (2, 31), (3, 118)] {
            check(&device, zone, 0, end);
            for (block, blocks) in [(0, 1), (1, 1), (2, 2), (5, 1), (4, 5), (3, 6)] {
                check(&device, zone, block, blocks);
            }
        }
        let states: Vec<ZoneState> = device
            .report(0..4)
            .unwrap()
            .iter()
            .map(|z| z.state)
            .collect();
        let of = |set: usize, zones: Range<u32>, state| {
            let state = match lost {
                Some(lost) if zones.contains(&lost) => ZoneState::ReadOnly,
                _ => state,
            };
            assert_eq!(states[set], state, "{lost:?}");
        };
        of(0, 0..2, ZoneState::ImplicitlyOpen);
        of(1, 2..4, ZoneState::Empty);
        of(2, 4..8, ZoneState::ImplicitlyOpen);
        of(3, 8..12, ZoneState::Full);
    }
}

#[test]
fn what_is_wrong_in_one_zone_is_right_without_it() {
    let device = Striped::new(Arc::new(Hurt::of(4 + 4 + LABEL_ZONES)), PARITY, true).unwrap();
    for (zone, end) in [(0, 9), (2, 31)] {
        write(&device, zone, 0, end).unwrap();
    }
    let zones = [(0, 0..2, 9), (2, 4..8, 31)];
    for (zone, below, end) in zones {
        for lost in below {
            for row in 0..4 {
                *device.below().wrong.lock().unwrap() = Some((ZoneId(lost), row));
                let agree = device.rows_agree(ZoneId(zone), 0, end).unwrap();
                assert!(!agree, "{lost}:{row} is not found");
                for (block, blocks) in [(0, 1), (1, 1), (0, end), (2, 5), (5, 1)] {
                    let wanted = pattern(zone, block, blocks);
                    let mut ways = (0..).map_while(|attempt| {
                        device.read_without(ZoneId(zone), block, blocks, attempt)
                    });
                    let first = device.read(ZoneId(zone), block, blocks).unwrap();
                    let is_right = |read: Result<Buffer>| read.unwrap()[..] == wanted[..];
                    assert!(is_right(Ok(first)) || ways.any(is_right), "{lost}:{row}");
                }
            }
        }
        *device.below().wrong.lock().unwrap() = None;
        assert!(device.rows_agree(ZoneId(zone), 0, end).unwrap());
        assert!(device.rows_agree(ZoneId(zone), 4, 1).unwrap());
    }
}

/// A bad sector of another zone, in a row where nothing is wrong, kept all other rows from being made right.
#[test]
fn what_is_wrong_is_made_right_beside_a_bad_sector() {
    let device = Striped::new(Arc::new(Hurt::of(4 + 4 + LABEL_ZONES)), PARITY, true).unwrap();
    write(&device, 2, 0, 31).unwrap();
    let below = device.below();
    for (wrong, bad) in [(4, 5), (5, 4), (6, 7)] {
        for (wrong_row, bad_row) in [(1, 2), (3, 1), (4, 10)] {
            *below.wrong.lock().unwrap() = Some((ZoneId(wrong), wrong_row));
            *below.unreadable.lock().unwrap() = Some((ZoneId(bad), bad_row));
            let mut ways =
                (0..).map_while(|attempt| device.read_without(ZoneId(2), 1, 30, attempt));
            let wanted = pattern(2, 1, 30);
            let is_right = |read: Result<Buffer>| read.is_ok_and(|read| read[..] == wanted[..]);
            assert!(ways.any(is_right), "{wrong}:{wrong_row}, {bad}:{bad_row}");
        }
    }
    // Two of one row are too many: what it reads is known to be wrong.
    *below.wrong.lock().unwrap() = Some((ZoneId(4), 3));
    *below.unreadable.lock().unwrap() = Some((ZoneId(5), 3));
    let refused = device.read_without(ZoneId(2), 7, 1, 0).unwrap();
    assert!(matches!(refused, Err(DeviceError::Io { .. })));
}

/// Whether rows agree can be asked of more than the device reads with one command.
#[test]
fn rows_are_compared_in_as_many_commands_as_it_takes() {
    let mut hurt = Hurt::of(4 + 4 + LABEL_ZONES);
    let usual = Hurt::of(4 + 4 + LABEL_ZONES).geometry;
    let device = Striped::new(Arc::new(hurt), PARITY, true).unwrap();
    for (zone, end) in [(0, 40), (2, 118)] {
        write(&device, zone, 0, end).unwrap();
    }
    hurt = Arc::into_inner(device.below).unwrap();
    hurt.geometry.max_transfer_blocks = 7;
    assert!(usual.max_transfer_blocks > 40);
    let device = Striped::new(Arc::new(hurt), PARITY, true).unwrap();
    for (zone, below, end) in [(0, 0, 40), (2, 5, 118)] {
        *device.below().wrong.lock().unwrap() = None;
        for block in [0, 1, 3] {
            assert!(device.rows_agree(ZoneId(zone), block, end - block).unwrap());
        }
        for row in [0, 1, 7, 8, 39] {
            *device.below().wrong.lock().unwrap() = Some((ZoneId(below), row));
            assert!(!device.rows_agree(ZoneId(zone), 0, end).unwrap());
        }
    }
}

/// The good blocks of a zone are read of it though it lacks one beside them: the others may have something wrong there.
#[test]
fn one_bad_sector_hides_no_good_block() {
    let device = Striped::new(Arc::new(Hurt::of(4 + 4 + LABEL_ZONES)), PARITY, true).unwrap();
    for (zone, end) in [(0, 40), (2, 118)] {
        write(&device, zone, 0, end).unwrap();
    }
    for (zone, below, end) in [(0, 0..2, 40), (2, 4..8, 118)] {
        for bad in below.clone() {
            for wrong in below.clone().filter(|wrong| *wrong != bad) {
                for (bad_row, wrong_row) in [(1, 2), (2, 1), (5, 17), (39, 1), (1, 39), (20, 19)] {
                    *device.below().unreadable.lock().unwrap() = Some((ZoneId(bad), bad_row));
                    *device.below().wrong.lock().unwrap() = Some((ZoneId(wrong), wrong_row));
                    let read = device.read(ZoneId(zone), 1, end - 1).unwrap();
                    let wanted = pattern(zone, 1, end - 1);
                    let differ = read
                        .chunks_exact(BLOCK_SIZE)
                        .zip(wanted.chunks_exact(BLOCK_SIZE));
                    let differ = differ.filter(|(read, wanted)| read != wanted).count();
                    // What the zone itself has wrong, if it is asked at all.
                    assert!(
                        differ <= usize::from(wrong != below.end - 1),
                        "{bad}, {wrong}"
                    );
                    let of_row = |row: u32| if zone == 0 { row } else { 3 * row - 2 };
                    let columns = below.len() as u32 - 1;
                    let own = of_row(wrong_row) + (bad - below.start);
                    if bad - below.start < columns {
                        check(&device, zone, own, 1);
                        let place = (own - 1) as usize * BLOCK_SIZE..own as usize * BLOCK_SIZE;
                        assert!(
                            read[place.clone()] == wanted[place],
                            "{bad}:{bad_row} hides {own}"
                        );
                    }
                }
            }
        }
    }
}

/// Rows of which a crash left a part are filled up, so that what is there of them can be read without any one zone.
#[test]
fn what_a_crash_left_uneven_is_evened() {
    // Rows that each zone of the set has beyond those that all have.
    for ahead in [[1, 0, 0, 0], [3, 1, 0, 2], [2, 2, 2, 0], [0, 0, 2, 2]] {
        let device = Striped::new(Arc::new(Hurt::of(4 + 4 + LABEL_ZONES)), PARITY, true).unwrap();
        write(&device, 2, 0, 31).unwrap();
        let below = device.below;
        for (column, rows) in (0..).zip(ahead) {
            for row in 11..11 + rows {
                let data = vec![pattern(77 + column, row, 1)];
                let zone = ZoneId(4 + column);
                below
                    .run(Command::Write {
                        zone,
                        block: row,
                        data,
                    })
                    .unwrap();
            }
        }
        let evened = Striped::new(below, PARITY, false).unwrap();
        let write_pointer = |device: &Striped<Hurt>| device.report(2..3).unwrap()[0].write_pointer;
        assert_eq!(write_pointer(&evened), 31);
        let below = evened.below;
        let evened = Striped::new(below, PARITY, true).unwrap();
        let most = *ahead.iter().max().unwrap();
        let end = 31 + 3 * most;
        assert_eq!(write_pointer(&evened), end);
        assert!(evened.rows_agree(ZoneId(2), 0, end).unwrap());
        check(&evened, 2, 0, 31);
        for column in 0..3 {
            for row in 0..ahead[column as usize] {
                let found = evened.read(ZoneId(2), 31 + 3 * row + column, 1).unwrap();
                assert!(found[..] == pattern(77 + column, 11 + row, 1)[..]);
            }
        }
        write(&evened, 2, end, 3).unwrap();
        check(&evened, 2, end, 3);
    }
}

/// One zone of a set was erased, or a reset of all was cut off.
#[test]
fn a_zone_that_was_erased_is_made_of_the_others() {
    let device = Striped::new(Arc::new(Hurt::of(4 + 4 + LABEL_ZONES)), PARITY, true).unwrap();
    write(&device, 2, 0, 31).unwrap();
    let below = device.below;
    let reset = Command::Reset {
        zone: ZoneId(5),
        keep_allocated: false,
    };
    below.run(reset).unwrap();
    let device = Striped::new(below, PARITY, true).unwrap();
    let info = device.report(2..3).unwrap()[0];
    assert_eq!((info.state, info.write_pointer), (ZoneState::Full, 118));
    // The device does not count it among those that are written to.
    let below = device.below().report(4..8).unwrap();
    assert!(
        below.iter().all(|zone| !zone.state.is_active()),
        "{below:?}"
    );
    check(&device, 2, 0, 31);
    let reset = Command::Reset {
        zone: ZoneId(2),
        keep_allocated: false,
    };
    device.run(reset).unwrap();
    assert_eq!(device.report(2..3).unwrap()[0].state, ZoneState::Empty);
    write(&device, 2, 0, 4).unwrap();
}

fn made(path: &Path, stripes: Option<Stripes>) -> Result<Drive> {
    let options = CreateOptions {
        force: true,
        stripes,
        uuid: uuid::Uuid::from_u128(7),
        ..CreateOptions::default()
    };
    Drive::create(path, &shape(14), &options)
}

#[test]
fn a_device_says_that_it_is_used_in_sets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    drop(made(&path, Some(PARITY)).unwrap());
    let opened = Drive::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(opened.geometry().stripes, Some(PARITY));
    assert_eq!(opened.geometry().zone_count, 4);
    let Drive::Striped(device) = opened else {
        panic!("{opened:?}");
    };
    // One of the two zones that say it is enough.
    let below = device.below;
    below
        .run(Command::Reset {
            zone: ZoneId(12),
            keep_allocated: false,
        })
        .unwrap();
    drop(below);
    let opened = Drive::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(opened.geometry().stripes, Some(PARITY));
    drop(opened);
    // Made anew, it does not say it any more.
    drop(made(&path, None).unwrap());
    let opened = Drive::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(opened.geometry().stripes, None);
}
