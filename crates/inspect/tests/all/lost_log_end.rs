//! The zone that the log ends in is damaged. It is searched whole before it is given up; one that nothing can
//! decode is kept, and told as a possible loss. What a power cut leaves of a zone just taken into use is neither.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{FILE, add, content, now, rewrite};
use persimmon_device::{BufferMut, Command, ZoneId, ZoneState, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Options, RecoveryReport, Task, Volume};
use persimmon_format::inode::ROOT;
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, Ino};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, check};
use persimmon_sim::{SimConfig, SimDevice};

const CAPACITY: u32 = 120;

fn open(device: &Arc<SimDevice>) -> Result<(Volume, RecoveryReport), Error> {
    Volume::open(device.clone(), Options::default())
}

fn copy(device: &SimDevice) -> Arc<SimDevice> {
    Arc::new(device.snapshot().intact())
}

/// A volume whose log has so many blocks in its newest zone, after others that are full, and its files.
fn volume(config: SimConfig, blocks: u32) -> (Arc<SimDevice>, Vec<Ino>, u32) {
    let device = Arc::new(SimDevice::new(config));
    Volume::format(device.clone(), &FormatOptions::default()).unwrap();
    let (volume, _) = open(&device).unwrap();
    let mut files = Vec::new();
    let newest = loop {
        let ino = add(&volume, ROOT, &format!("file {}", files.len()), FILE);
        volume.write(ino, 0, &content(ino.0, 300), now(2)).unwrap();
        volume.sync_file(ino).unwrap();
        files.push(ino);
        let logs = log_zones(&device);
        let newest = logs.last().unwrap().0;
        if logs.len() > 1 && written(&device, newest) >= blocks {
            break newest;
        }
    };
    drop(volume);
    (device, files, newest)
}

fn log_zones(device: &SimDevice) -> Vec<(u32, u64)> {
    let header = |zone| {
        let block = device.read(ZoneId(zone), 0, 1).ok()?;
        let header = ZoneHeader::decode(&block).ok()?;
        (header.role == Role::Log).then_some((zone, header.sequence))
    };
    let mut zones: Vec<_> = (0..device.geometry().zone_count)
        .filter_map(header)
        .collect();
    zones.sort_by_key(|(_, sequence)| *sequence);
    zones
}

fn written(device: &SimDevice, zone: u32) -> u32 {
    device.report(zone..zone + 1).unwrap()[0].write_pointer
}

/// Garbage in place of the first blocks of a zone, the header among them.
fn damage(device: &SimDevice, zone: u32, blocks: u32) {
    for block in 0..blocks {
        let addr = Addr::new(DeviceId(0), ZoneId(zone), block);
        rewrite(device, addr, &content(u64::from(block) + 77, BLOCK_SIZE));
    }
}

fn found(volume: &Volume, files: &[Ino]) -> usize {
    let is_there = |ino: &&Ino| {
        let mut bytes = vec![0; 300];
        volume.read(**ino, 0, &mut bytes).is_ok() && bytes == content(ino.0, 300)
    };
    files.iter().filter(is_there).count()
}

fn numbers(device: &SimDevice) -> Vec<u16> {
    let report = check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
    report.findings.iter().map(|f| f.number).collect()
}

fn kinds() -> [SimConfig; 3] {
    let config = || SimConfig::new(40, 128).capacity(CAPACITY);
    [config(), config().volatile_cache(), config().host_file()]
}

/// With 64 damaged blocks at the start of the newest log zone a mount was refused. With 65 it succeeded: 392 of 900
/// files that had been synced were gone, and the zone was reset, though hundreds of good blocks in it told.
#[test]
fn a_damaged_log_zone_is_searched_whole() {
    for config in kinds() {
        let (device, files, newest) = volume(config, 100);
        let end = written(&device, newest);
        assert!(end > 70 && end < CAPACITY);
        for blocks in [1, 2, 64, 65, 66, end - 1] {
            let device = copy(&device);
            damage(&device, newest, blocks);
            let before = device.report(0..40).unwrap();
            match open(&device) {
                Ok((volume, report)) => {
                    assert_eq!(found(&volume, &files), files.len(), "{blocks} blocks");
                    assert_eq!((report.headers_rescued, blocks), (1, 1));
                }
                Err(error) => {
                    assert!(blocks > 1, "{error}");
                    assert!(matches!(error, Error::Inconsistent(_)), "{error}");
                    assert_eq!(device.report(0..40).unwrap(), before);
                    let numbers = numbers(&device);
                    assert!(numbers.contains(&202), "{blocks} blocks: {numbers:?}");
                }
            }
        }
    }
}

/// Nothing tells of what was in it any more: it may be had back by nobody, but it is not overwritten, nor what
/// only it led to.
#[test]
fn a_log_zone_that_nothing_can_decode_is_kept_and_told() {
    for config in kinds() {
        let (device, files, newest) = volume(config, 100);
        damage(&device, newest, written(&device, newest));
        let before = device.report(0..40).unwrap();
        assert!(numbers(&device).contains(&208));
        let rebuilt = rebuild(&*device, &mut |_, _, _| {}).unwrap();
        let told: Vec<String> = rebuilt.gaps().collect();
        assert!(
            told.iter()
                .any(|gap| gap.contains(&format!("zone {newest} is damaged"))),
            "{told:?}"
        );
        for _ in 0..2 {
            let (volume, report) = open(&device).unwrap();
            assert_eq!(report.log_zones_undecodable, 1);
            assert!(report.has_lost_metadata() && volume.is_read_only());
            assert!(found(&volume, &files) < files.len());
            let _ = volume.close();
        }
        assert_eq!(device.report(0..40).unwrap(), before);
    }
}

/// A data zone that was just taken into use when the power went is no log zone: nothing is told, and it is used
/// again. So is one that was damaged while the log has room where it ends.
#[test]
fn what_a_power_cut_leaves_of_a_zone_is_no_loss() {
    for (blocks, written_blocks) in [(100, 1), (100, 8), (CAPACITY, 1)] {
        for config in kinds() {
            let (device, files, newest) = volume(config, blocks);
            assert_eq!(written(&device, newest) == CAPACITY, blocks == CAPACITY);
            let report = device.report(0..40).unwrap();
            let empty = report
                .iter()
                .rposition(|info| info.state == ZoneState::Empty);
            let zone = ZoneId(empty.unwrap() as u32);
            let mut data = BufferMut::zeroed(written_blocks);
            data.copy_from_slice(&content(5, written_blocks * BLOCK_SIZE));
            let data = vec![data.freeze()];
            device
                .run(Command::Write {
                    zone,
                    block: 0,
                    data,
                })
                .unwrap();
            device.run(Command::Flush).unwrap();
            let numbers = numbers(&device);
            assert!(!numbers.contains(&208), "{numbers:?}");
            let (volume, report) = open(&device).unwrap();
            assert_eq!(report.log_zones_undecodable, 0);
            assert!(!volume.is_read_only());
            assert_eq!(found(&volume, &files), files.len());
            volume.step(Task::Checkpoint).unwrap();
            volume.close().unwrap();
            let state = device.report(zone.0..zone.0 + 1).unwrap()[0].state;
            assert_eq!(state, ZoneState::Empty, "it is leaked");
        }
    }
}

/// So where the log ends with its zone, a zone without a header that was written to tells of a loss.
#[test]
fn where_the_log_ends_with_its_zone_a_damaged_one_may_be_the_next() {
    for config in kinds() {
        let (device, files, newest) = volume(config, CAPACITY);
        assert_eq!(written(&device, newest), CAPACITY);
        let zone = {
            let (volume, _) = open(&copy(&device)).unwrap();
            assert_eq!(found(&volume, &files), files.len());
            let report = device.report(0..40).unwrap();
            report
                .iter()
                .position(|info| info.state == ZoneState::Empty)
                .unwrap() as u32
        };
        let mut data = BufferMut::zeroed(8);
        data.copy_from_slice(&content(5, 8 * BLOCK_SIZE));
        let (zone, data) = (ZoneId(zone), vec![data.freeze()]);
        device
            .run(Command::Write {
                zone,
                block: 0,
                data,
            })
            .unwrap();
        device.run(Command::Flush).unwrap();
        assert!(numbers(&device).contains(&208));
        let (volume, report) = open(&device).unwrap();
        assert_eq!(report.log_zones_undecodable, 1);
        assert!(volume.is_read_only());
        assert_eq!(found(&volume, &files), files.len());
    }
}
