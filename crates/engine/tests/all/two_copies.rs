//! A log of which there are two copies is read block by block from wherever it is good.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use crate::common::{NOW, create, noise, old_log_block};
use persimmon_device::{BufferMut, ZoneId, ZonedDevice};
use persimmon_engine::{FormatOptions, Options, RecoveryReport, Volume};
use persimmon_format::Ino;
use persimmon_format::zone_header::ZoneHeader;
use persimmon_sim::{Fault, FaultTarget, SimConfig, SimDevice};

fn open(device: &Arc<SimDevice>) -> (Volume, RecoveryReport) {
    Volume::open(device.clone(), Options::default()).unwrap()
}

/// A volume with a few synced files, of a second mount, and the zones of its log.
fn written() -> (Arc<SimDevice>, Vec<Ino>, ZoneId, ZoneId) {
    written_as(FormatOptions::default().uuid)
}

fn written_as(uuid: [u8; 16]) -> (Arc<SimDevice>, Vec<Ino>, ZoneId, ZoneId) {
    let device = Arc::new(SimDevice::new(
        SimConfig::new(72, 64).capacity(60).host_file(),
    ));
    let options = FormatOptions {
        now: NOW,
        uuid,
        copies: 2,
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    drop(open(&device));
    let (volume, _) = open(&device);
    let inos: Vec<Ino> = (0..8)
        .map(|_| {
            let ino = create(&volume).unwrap();
            volume.write(ino, 0, &noise(ino.0, 5000), NOW).unwrap();
            volume.sync().unwrap();
            ino
        })
        .collect();
    let zones = volume.zones();
    let log = zones.iter().find(|z| z.entry.role.name() == "log").unwrap();
    (device, inos, log.zone, log.partner.unwrap())
}

fn compare(volume: &Volume, inos: &[Ino]) {
    for ino in inos {
        let mut buf = vec![0; 5000];
        assert_eq!(volume.read(*ino, 0, &mut buf).unwrap(), 5000);
        assert_eq!(buf, noise(ino.0, 5000));
    }
}

/// One block that could not be read made the reader do without its 63 neighbours too: with a bad
/// block in each copy, at different places, the mount failed, though every block was good somewhere.
#[test]
fn a_bad_block_does_not_take_its_neighbours_along() {
    let (device, inos, first, second) = written();
    let end = device.report(first.0..first.0 + 1).unwrap()[0].write_pointer;
    assert!(end > 8);
    for (a, b) in [(3, 6), (6, 3), (end - 1, end - 2), (end - 2, end - 1)] {
        let device = Arc::new(device.snapshot().intact());
        for (zone, block) in [(first, a), (second, b)] {
            device.inject(Fault::for_ever(FaultTarget::Read).zone(zone).block(block));
        }
        let (volume, report) = open(&device);
        assert_eq!(report.log_blocks_bad, 0);
        compare(&volume, &inos);
    }
    // What is good nowhere, but could not be read, is not taken for what never arrived.
    assert!(device.corrupt(first, end - 1, 100, 1));
    device.inject(
        Fault::for_ever(FaultTarget::Read)
            .zone(second)
            .block(end - 1),
    );
    assert!(Volume::open(device.clone(), Options::default()).is_err());
    device.heal();
    compare(&open(&device).0, &inos);
}

/// Where one of the log's two zones holds that of another volume, both volumes have a header. The one that was used last was taken, of which
/// nothing else is there, and the volume could not be mounted.
#[test]
fn a_zone_of_the_log_may_hold_that_of_another_volume() {
    let (device, inos, first, second) = written();
    for times in [1, 6] {
        let (foreign, ..) = written_as([9; 16]);
        (0..times).for_each(|_| drop(open(&foreign)));
        for zone in [first, second] {
            let damaged = Arc::new(device.snapshot().intact());
            let end =
                |device: &SimDevice| device.report(zone.0..zone.0 + 1).unwrap()[0].write_pointer;
            for block in 0..end(&damaged).min(end(&foreign)) {
                let content = foreign.read(zone, block, 1).unwrap();
                assert!(damaged.replace(zone, block, content));
            }
            let (volume, report) = open(&damaged);
            assert!(report.copies_uneven);
            compare(&volume, &inos);
        }
    }
}

/// After a power cut one zone can have, good, a block of an earlier epoch where the other has the
/// newer one. The first of the two was believed, and the difference not noticed.
#[test]
fn of_two_good_blocks_that_differ_the_later_epoch_counts() {
    let (device, inos, first, second) = written();
    let end = device.report(first.0..first.0 + 1).unwrap()[0].write_pointer;
    let (volume, report) = open(&Arc::new(device.snapshot().intact()));
    assert!(!report.copies_uneven);
    let block = device.read(first, 0, 1).unwrap();
    let header = ZoneHeader::decode(&block).unwrap();
    let key = volume.identity().key();
    for zone in [first, second] {
        let device = Arc::new(device.snapshot().intact());
        let mut block = BufferMut::zeroed(1);
        let sequence = header.first_log_sequence + u64::from(end) - 2;
        old_log_block(&mut block, &key, header.sequence, sequence);
        assert!(device.replace(zone, end - 1, block.freeze()));
        let (volume, report) = open(&device);
        assert!(report.copies_uneven);
        compare(&volume, &inos);
        drop(volume);
        // The checkpoint that followed needs neither.
        let (volume, report) = open(&device);
        assert!(!report.copies_uneven);
        compare(&volume, &inos);
    }
}
