//! Volumes that get more zones, another label, another UUID.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure ends the test")]

use std::sync::Arc;

use crate::common::{NOW, create, noise};
use persimmon_device::{
    BLOCK_SIZE, Command, FirstZones, MetadataZones, Striped, Stripes, Withheld, ZoneId, ZonedDevice,
};
use persimmon_engine::{Alteration, Error, FormatOptions, Options, RecoveryReport, Volume};
use persimmon_format::Ino;
use persimmon_format::table::Role;
use persimmon_format::zone_header::{PROPERTIES, ZoneHeader};
use persimmon_sim::{Fault, FaultTarget, SimConfig, SimDevice};

/// Zones of the volume as it is made; all of them can be the log's.
const BEFORE: u32 = 40;

/// A volume in the first zones of a device, with files in it, one of them synced last.
fn written(config: SimConfig) -> (Arc<SimDevice>, Vec<Ino>) {
    written_in(config, None)
}

/// The device as a volume sees it.
fn seen(device: &Arc<SimDevice>, stripes: Option<Stripes>) -> Arc<dyn ZonedDevice> {
    match stripes {
        None => device.clone(),
        Some(stripes) => Arc::new(Striped::new(device.clone(), stripes, true).unwrap()),
    }
}

fn written_in(config: SimConfig, stripes: Option<Stripes>) -> (Arc<SimDevice>, Vec<Ino>) {
    persimmon_engine::invariant::panic_on_bugs();
    let device = Arc::new(SimDevice::new(config));
    let options = FormatOptions {
        now: NOW,
        uuid: [3; 16],
        label: "old".into(),
        ..FormatOptions::default()
    };
    let whole = seen(&device, stripes);
    let first: Arc<dyn ZonedDevice> = Arc::new(FirstZones::of(whole, BEFORE));
    Volume::format(first.clone(), &options).unwrap();
    let (volume, _) = Volume::open(first, Options::default()).unwrap();
    let inos = (0..8)
        .map(|_| {
            let ino = create(&volume).unwrap();
            volume.write(ino, 0, &noise(ino.0, 50_000), NOW).unwrap();
            ino
        })
        .collect();
    volume.sync().unwrap();
    (device, inos)
}

fn open(device: &Arc<SimDevice>) -> (Volume, RecoveryReport) {
    open_in(device, None)
}

fn open_in(device: &Arc<SimDevice>, stripes: Option<Stripes>) -> (Volume, RecoveryReport) {
    Volume::open(seen(device, stripes), Options::default()).unwrap()
}

/// Two devices, of 20 zones for metadata. It gets so many more of these with its last zones, or all of them so.
fn split(all: u32, more: u32) -> SimConfig {
    let mut config = SimConfig::new(all, 128).capacity(120).metadata(0);
    let made = if more < 20 { 20 } else { 0 };
    config.geometry.metadata_zones = MetadataZones::of([0..made, BEFORE..BEFORE + more]);
    config
}

/// Zones that a volume of one device gives up when it gets another one for metadata.
const LAST: std::ops::Range<u32> = BEFORE - 2..BEFORE;

/// Two devices, of which the volume had one at first: its last two zones are not there any more.
fn added(all: u32, more: u32) -> (Arc<SimDevice>, Vec<Ino>) {
    let (device, inos) = written(split(all, more));
    let first: Arc<dyn ZonedDevice> = Arc::new(FirstZones::of(device.clone(), BEFORE));
    let first = Arc::new(Withheld::of(first, LAST));
    let (volume, _) = Volume::open(first, Options::default()).unwrap();
    Alteration::of(&volume).move_all(&LAST).unwrap();
    drop(volume);
    LAST.map(ZoneId).for_each(|zone| device.set_offline(zone));
    (device, inos)
}

fn compare(volume: &Volume, inos: &[Ino]) {
    for ino in inos {
        let mut found = vec![0; 50_000];
        assert_eq!(volume.read(*ino, 0, &mut found).unwrap(), 50_000);
        assert!(found == noise(ino.0, 50_000), "inode {ino}");
    }
}

/// Fills the volume with files; answers them.
fn fill(volume: &Volume) -> Vec<Ino> {
    let mut inos = Vec::new();
    loop {
        let made = create(volume).and_then(|ino| {
            volume.write(ino, 0, &noise(ino.0, 50_000), NOW)?;
            inos.push(ino);
            volume.sync()
        });
        match made {
            Ok(()) => {}
            Err(Error::NoSpace) => break,
            Err(other) => panic!("{other}"),
        }
    }
    // The last one may have found no room.
    inos.pop();
    volume.sync().unwrap();
    inos
}

fn zones_used(device: &SimDevice, zones: std::ops::Range<u32>) -> usize {
    let report = device.report(zones).unwrap();
    report.iter().filter(|zone| zone.write_pointer > 0).count()
}

/// 100 zones: more than the log is among, and still one chunk of the zone table. 300: three of them.
#[test]
fn a_full_volume_has_room_again_in_the_zones_it_gets() {
    for all in [BEFORE + 1, 100, 300] {
        let (device, mut inos) = written(SimConfig::new(all, 128).capacity(120));
        let (volume, _) = open(&device);
        assert_eq!(volume.identity().zone_count, BEFORE);
        inos.extend(fill(&volume));
        volume.close().unwrap();
        drop(volume);
        // As before, it does without the zones that it does not know.
        let (volume, _) = open(&device);
        compare(&volume, &inos);
        assert_eq!(zones_used(&device, BEFORE..all), 0);

        let growth = Alteration::of(&volume).grow(false).unwrap();
        assert_eq!((growth.zones_before, growth.zones), (BEFORE, all));
        assert!(growth.user_blocks >= growth.user_blocks_before);
        assert!(!growth.is_none());
        drop(volume);
        assert_eq!(zones_used(&device, BEFORE..all), 0);

        let (volume, report) = open(&device);
        assert!(report.clean && report.zones_reset == 0, "{report:?}");
        let identity = volume.identity();
        assert_eq!((identity.zone_count, identity.label.as_str()), (all, "old"));
        assert_eq!(volume.zones().len(), all as usize);
        compare(&volume, &inos);
        let more = fill(&volume);
        let gained = growth.user_blocks - growth.user_blocks_before;
        assert!(
            more.len() as u64 * 13 >= gained * 9 / 10,
            "{} files in {gained} blocks",
            more.len()
        );
        inos.extend(more);
        // A single one may still be in reserve.
        assert!(zones_used(&device, BEFORE..all) > 0 || all == BEFORE + 1);
        volume.close().unwrap();
        drop(volume);
        let (volume, _) = open(&device);
        compare(&volume, &inos);
        // Nothing is left to be gained.
        let again = Alteration::of(&volume).grow(false).unwrap();
        assert!(again.is_none() && again.zones == all);
    }
}

#[test]
fn a_device_that_did_not_grow_is_left_alone() {
    let (device, inos) = written(SimConfig::new(BEFORE, 128).capacity(120));
    let (volume, _) = open(&device);
    let before = device.image_hash();
    let growth = Alteration::of(&volume).grow(false).unwrap();
    assert!(growth.is_none());
    assert_eq!((growth.zones_before, growth.zones), (BEFORE, BEFORE));
    assert_eq!(growth.user_blocks, growth.user_blocks_before);
    // Sizes that no volume can have.
    for zones in [BEFORE, BEFORE - 1, 0] {
        assert!(Alteration::of(&volume).growth_to(zones).unwrap().is_none());
    }
    for zones in [1 << 24, 1 << 28, (1 << 28) + 1, u32::MAX] {
        let refused = Alteration::of(&volume).growth_to(zones);
        assert!(
            matches!(refused, Err(Error::Geometry(_))),
            "{zones}: {refused:?}"
        );
    }
    assert!(
        Alteration::of(&volume)
            .growth_to(BEFORE + 1)
            .unwrap()
            .user_blocks
            > growth.user_blocks
    );
    assert_eq!(device.image_hash(), before);
    compare(&volume, &inos);
}

#[test]
fn a_copy_on_a_smaller_device_is_refused() {
    let (device, _) = written(SimConfig::new(60, 128).capacity(120));
    let smaller = Arc::new(FirstZones::of(device.clone(), BEFORE - 1));
    let refused = Volume::open(smaller, Options::default()).err().unwrap();
    assert!(
        refused.to_string().contains("truncated or resized"),
        "{refused}"
    );
    // Headers tell of 40 zones, the newest checkpoint of 60.
    Alteration::of(&open(&device).0).grow(false).unwrap();
    for zones in [BEFORE, 59] {
        let smaller = Arc::new(FirstZones::of(device.clone(), zones));
        let refused = Volume::open(smaller, Options::default()).err().unwrap();
        assert!(refused.to_string().contains("has 60 zones"), "{refused}");
    }
}

#[test]
fn what_new_zones_hold_is_not_lost_by_mistake() {
    let (device, inos) = written(SimConfig::new(60, 128).capacity(120));
    let data = vec![persimmon_device::BufferMut::zeroed(2).freeze()];
    let (zone, block) = (ZoneId(50), 0);
    device.run(Command::Write { zone, block, data }).unwrap();
    device.set_offline(ZoneId(55));
    let (volume, _) = open(&device);
    let refused = Alteration::of(&volume).grow(false).unwrap_err();
    assert!(refused.to_string().contains("zone 50"), "{refused}");
    assert_eq!(zones_used(&device, 50..51), 1);
    drop(volume);
    let (volume, _) = open(&device);
    assert_eq!(volume.identity().zone_count, BEFORE);
    assert_eq!(Alteration::of(&volume).grow(true).unwrap().zones, 60);
    drop(volume);
    let (volume, _) = open(&device);
    assert_eq!(zones_used(&device, 50..51), 0);
    assert_eq!(volume.failed_zones(), 1);
    compare(&volume, &inos);
}

/// At every command of a growth, a change of names, and the opening that follows, the power is cut.
#[test]
fn a_power_cut_leaves_the_volume_as_it_was_or_changed() {
    let one = || SimConfig::new(100, 128).capacity(120);
    let cached = |config: SimConfig| config.volatile_cache().reordering(7);
    let parity = Stripes {
        columns: 2,
        metadata_sets: 20,
    };
    for (kind, (config, stripes)) in [
        (one(), None),
        (one().host_file(), None),
        (cached(one()), None),
        (split(100, 0), None),
        (cached(split(100, 12)), None),
        // It gets a device for metadata.
        (split(100, 25), None),
        (cached(split(100, 25)), None),
        (
            SimConfig::new(202, 128).capacity(120),
            Some(Stripes::MIRROR),
        ),
        (
            cached(SimConfig::new(2 * 20 + 3 * 80 + 2, 128).capacity(120)),
            Some(parity),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let (device, inos) = written_in(config, stripes);
        let start = device.snapshot();
        let mut seen_sizes = [0, 0];
        for commands in 0.. {
            let device = Arc::new(start.intact());
            device.cut_after(commands);
            let changed = opened(&device, stripes)
                .and_then(|volume| {
                    Alteration::of(&volume).grow(false)?;
                    drop(volume);
                    let volume = opened(&device, stripes)?;
                    Alteration::of(&volume).rename(Some("new"), Some([9; 16]))
                })
                .is_ok();
            let is_over = !device.is_cut();
            for seed in 0..4 {
                let device = Arc::new(device.persisted(seed));
                let (volume, _) = open_in(&device, stripes);
                compare(&volume, &inos);
                let identity = volume.identity().clone();
                let names = (identity.label.as_str(), identity.visible_uuid);
                let was_grown = identity.zone_count == 100;
                match names {
                    ("old", uuid) => assert!(uuid == [3; 16] && !changed),
                    (label, uuid) => assert_eq!((label, uuid, was_grown), ("new", [9; 16], true)),
                }
                assert_eq!(identity.uuid, [3; 16]);
                assert!(was_grown || identity.zone_count == BEFORE);
                seen_sizes[usize::from(was_grown)] += 1;
                // It goes on from there.
                assert_eq!(Alteration::of(&volume).grow(false).unwrap().zones, 100);
                drop(volume);
                let (volume, _) = open_in(&device, stripes);
                assert_eq!(volume.zones().len(), 100);
                let ino = create(&volume).unwrap();
                volume.write(ino, 0, &noise(ino.0, 50_000), NOW).unwrap();
                volume.sync().unwrap();
                drop(volume);
                let (volume, _) = open_in(&Arc::new(device.persisted(seed)), stripes);
                compare(&volume, &inos);
                compare(&volume, &[ino]);
            }
            if is_over {
                break;
            }
        }
        assert!(
            seen_sizes.iter().all(|count| *count > 20),
            "{kind}: {seen_sizes:?}"
        );
    }
}

fn opened(device: &Arc<SimDevice>, stripes: Option<Stripes>) -> Result<Volume, Error> {
    let whole: Arc<dyn ZonedDevice> = match stripes {
        None => device.clone(),
        Some(stripes) => Arc::new(Striped::new(device.clone(), stripes, true)?),
    };
    Ok(Volume::open(whole, Options::default())?.0)
}

#[test]
fn a_volume_is_called_by_its_new_names() {
    let (device, inos) = written(SimConfig::new(BEFORE, 128).capacity(120));
    let (volume, _) = open(&device);
    for label in ["x".repeat(65), "ä".repeat(33)] {
        let refused = Alteration::of(&volume).rename(Some(&label), None);
        assert!(matches!(refused, Err(Error::Options(_))), "{refused:?}");
    }
    let longest = "ä".repeat(32);
    Alteration::of(&volume)
        .rename(Some(&longest), None)
        .unwrap();
    drop(volume);
    let (volume, _) = open(&device);
    let identity = volume.identity();
    assert_eq!(
        (&identity.label, identity.visible_uuid),
        (&longest, [3; 16])
    );
    Alteration::of(&volume).rename(None, Some([9; 16])).unwrap();
    drop(volume);
    let (volume, _) = open(&device);
    let identity = volume.identity();
    assert_eq!(
        (&identity.label, identity.visible_uuid),
        (&longest, [9; 16])
    );
    assert_eq!(identity.uuid, [3; 16]);
    assert_eq!(Alteration::of(&volume).grow(false).unwrap().zones, BEFORE);
    Alteration::of(&volume).rename(Some(""), None).unwrap();
    drop(volume);
    // The header of a zone of the log tells it from here on.
    let options = Options {
        begin_log_zone: true,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), options).unwrap();
    assert_eq!(volume.identity().label, "");
    compare(&volume, &inos);
    drop(volume);
    let headers = (0..BEFORE).filter_map(|zone| {
        let block = device.read(ZoneId(zone), 0, 1).ok()?;
        ZoneHeader::decode(&block).ok()
    });
    let newest = headers.max_by_key(|header| header.sequence).unwrap();
    assert_eq!(newest.role.name(), "log");
    let volume = newest.volume;
    assert_eq!((volume.label.as_str(), volume.visible_uuid), ("", [9; 16]));
    assert!(volume.incompatible & PROPERTIES != 0);
    let (volume, _) = open(&device);
    compare(&volume, &inos);
}

/// The two zones given up for a label counted as zones that users may fill, and as failed ones.
#[test]
fn zones_that_were_given_up_are_none_of_the_volumes() {
    let (device, inos) = added(100, 25);
    let (volume, _) = open(&device);
    assert_eq!(volume.failed_zones(), 2);
    let growth = Alteration::of(&volume).grow(false).unwrap();
    drop(volume);
    let (volume, _) = open(&device);
    assert_eq!(volume.failed_zones(), 0);
    let blocks = volume.space().total_bytes / BLOCK_SIZE as u64;
    assert_eq!(blocks, growth.user_blocks);
    compare(&volume, &inos);
}

/// Between the growth that gives a volume its device for metadata and the move of what belongs there, data was promised the zones
/// that metadata was in, and found none of them.
#[test]
fn data_is_not_promised_the_zones_that_metadata_has_yet_to_leave() {
    let (device, inos) = written(split(100, 60));
    let first: Arc<dyn ZonedDevice> = Arc::new(FirstZones::of(device.clone(), BEFORE));
    let (volume, _) = Volume::open(first, Options::default()).unwrap();
    // They lie in the tree.
    for _ in 0..4000 {
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &noise(ino.0, 1500), NOW).unwrap();
    }
    volume.close().unwrap();
    drop(volume);
    Alteration::of(&open(&device).0).grow(false).unwrap();

    let (volume, _) = open(&device);
    let misplaced = |volume: &Volume| {
        let zones = volume.zones();
        let own = zones.iter().take(BEFORE as usize);
        own.filter(|zone| matches!(zone.entry.role, Role::Log | Role::Metadata))
            .count() as u64
    };
    let (zones, available) = (misplaced(&volume), volume.space().available_bytes);
    assert!(zones > 10, "{zones}");
    // Somebody mounts it like this: what is acknowledged finds room.
    let ino = create(&volume).unwrap();
    let mut end = 0;
    loop {
        match volume.write(ino, end, &noise(end, 50_000), NOW) {
            Ok(written) => end += written as u64,
            Err(Error::NoSpace) => break,
            Err(other) => panic!("{other}"),
        }
    }
    volume.sync().unwrap();
    volume.truncate(ino, 0, NOW).unwrap();
    volume.sync().unwrap();
    Alteration::of(&volume).move_all(&(0..0)).unwrap();
    drop(volume);
    let (volume, _) = open(&device);
    assert_eq!(misplaced(&volume), 0);
    let more = volume.space().available_bytes.saturating_sub(available);
    assert!(
        more / BLOCK_SIZE as u64 >= zones * 100,
        "{more} in {zones} zones"
    );
    compare(&volume, &inos);
}

/// For blocks that could not be read the whole volume was cleaned, again and again, and then space was blamed.
#[test]
fn what_cannot_be_read_is_told_where_zones_are_given_up() {
    let (device, mut inos) = written(split(100, 25));
    let first: Arc<dyn ZonedDevice> = Arc::new(FirstZones::of(device.clone(), BEFORE));
    let (volume, _) = Volume::open(first.clone(), Options::default()).unwrap();
    let last = |volume: &Volume| {
        let mut zones = volume.zones().into_iter();
        zones.find(|zone| {
            let is_full = zone.entry.role == Role::Data && !zone.open && zone.entry.valid > 40;
            is_full && LAST.contains(&zone.zone.0)
        })
    };
    // Zones that were used before come last.
    let zone = loop {
        if let Some(zone) = last(&volume) {
            break zone;
        }
        let ino = create(&volume).unwrap();
        volume.write(ino, 0, &noise(ino.0, 50_000), NOW).unwrap();
        volume.sync().unwrap();
        inos.push(ino);
        if inos.len() > 100 {
            let garbage = inos.remove(inos.len() / 2);
            volume.truncate(garbage, 0, NOW).unwrap();
        }
    };
    volume.close().unwrap();
    drop(volume);
    device.inject(Fault::for_ever(FaultTarget::Read).zone(zone.zone));
    let open = || {
        let device = Arc::new(Withheld::of(first.clone(), LAST));
        Volume::open(device, Options::default()).unwrap().0
    };
    let volume = open();
    let others = |volume: &Volume| -> Vec<(ZoneId, u64)> {
        let zones = volume.zones().into_iter();
        let others =
            zones.filter(|zone| zone.entry.role == Role::Data && !LAST.contains(&zone.zone.0));
        others
            .map(|zone| (zone.zone, zone.entry.sequence))
            .collect()
    };
    let before = others(&volume);
    let refused = Alteration::of(&volume).move_all(&LAST).unwrap_err();
    assert!(
        matches!(refused, Error::Unmovable { zone: told } if told == zone.zone),
        "{refused}"
    );
    let after = others(&volume);
    assert!(
        before.iter().all(|zone| after.contains(zone)),
        "others were cleaned"
    );
    drop(volume);

    let volume = open();
    inos.retain(|ino| {
        let is_read = volume.read(*ino, 0, &mut vec![0; 50_000]).is_ok();
        if !is_read {
            volume.truncate(*ino, 0, NOW).unwrap();
        }
        is_read
    });
    Alteration::of(&volume).move_all(&LAST).unwrap();
    drop(volume);
    compare(&open(), &inos);
}
