//! A volume that a newer program wrote to is refused, by mount, fsck and recover alike, wherever that is
//! noticed: nothing of it is taken for torn. What may be ignored is, and stays.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{FILE, add, content, key, now, read, rewrite};
use persimmon_device::{BufferMut, Command, ZoneId, ZoneState, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Options, RecoveryReport, Task, Volume};
use persimmon_format::envelope::{self, Kind};
use persimmon_format::footer::Footer;
use persimmon_format::inode::ROOT;
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, FormatError, Ino, checksum};
use persimmon_inspect::salvage::rebuild;
use persimmon_inspect::{CheckOptions, InspectError, check};
use persimmon_sim::{SimConfig, SimDevice};

const FILES: u64 = 130;
/// A bit that no version has yet.
const FLAG: u64 = 1 << 63;
const INCOMPATIBLE: usize = 128;
const READ_ONLY_COMPATIBLE: usize = 136;
const COMPATIBLE: usize = 144;

fn at(zone: u32, block: u32) -> Addr {
    Addr::new(DeviceId(0), ZoneId(zone), block)
}

fn open(device: &Arc<SimDevice>, read_only: bool) -> Result<(Volume, RecoveryReport), Error> {
    let options = Options {
        read_only,
        ..Options::default()
    };
    Volume::open(device.clone(), options)
}

/// Files, each synced, so that the log goes on over several zones behind its last checkpoint.
fn volume(copies: u32) -> (Arc<SimDevice>, Vec<Ino>) {
    let config = SimConfig::new(48, 64).capacity(60).host_file();
    let device = Arc::new(SimDevice::new(config));
    let options = FormatOptions {
        copies,
        uuid: std::array::from_fn(|i| i as u8),
        secret: [7; 32],
        ..FormatOptions::default()
    };
    Volume::format(device.clone(), &options).unwrap();
    let (volume, _) = open(&device, false).unwrap();
    let mut files = Vec::new();
    for n in 0..FILES {
        let ino = add(&volume, ROOT, &format!("file {n}"), FILE);
        let len = if n % 8 == 0 { 20_000 } else { 300 };
        volume.write(ino, 0, &content(ino.0, len), now(2)).unwrap();
        volume.sync_file(ino).unwrap();
        files.push(ino);
        if n == 10 {
            volume.step(Task::Checkpoint).unwrap();
        }
    }
    drop(volume);
    (device, files)
}

fn copy(device: &SimDevice) -> Arc<SimDevice> {
    Arc::new(device.snapshot().intact())
}

/// Files whose content is there.
fn found(volume: &Volume, files: &[Ino]) -> usize {
    let is_there = |ino: &&Ino| {
        let mut bytes = vec![0; 300];
        volume.read(**ino, 0, &mut bytes).is_ok() && bytes == content(ino.0, 20_000)[..300]
    };
    files.iter().filter(is_there).count()
}

/// Zones with a header, and their roles.
fn headers(device: &SimDevice) -> Vec<(u32, ZoneHeader)> {
    (0..device.geometry().zone_count)
        .filter_map(|zone| {
            let block = device.read(ZoneId(zone), 0, 1).ok()?;
            Some((zone, ZoneHeader::decode(&block).ok()?))
        })
        .collect()
}

fn log_zones(device: &SimDevice) -> Vec<(u32, ZoneHeader)> {
    let mut zones = headers(device);
    zones.retain(|(_, header)| header.role == Role::Log);
    zones.sort_by_key(|(_, header)| header.sequence);
    zones
}

/// Changes a header as a newer program would have.
fn change_header(device: &SimDevice, zone: u32, change: impl FnOnce(&mut [u8])) {
    let mut block = read(device, at(zone, 0), 1);
    change(&mut block);
    let sum = checksum::plain(&block[..BLOCK_SIZE - 8]);
    block[BLOCK_SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
    rewrite(device, at(zone, 0), &block);
}

fn set_flag(device: &SimDevice, zone: u32, set: usize) {
    change_header(device, zone, |block| block[set + 7] |= 0x80);
}

fn set_version(device: &SimDevice, zone: u32) {
    change_header(device, zone, |block| block[8] = 2);
}

/// Makes an enveloped structure one of the next version.
fn make_newer(device: &SimDevice, addr: Addr) {
    let blocks = envelope::peek(&read(device, addr, 1)).unwrap().blocks;
    let mut bytes = read(device, addr, blocks.into());
    bytes[5] = envelope::VERSION + 1;
    let mut header: [u8; envelope::HEADER_LEN] = *bytes.first_chunk().unwrap();
    let digest = key().checksum(&bytes[envelope::HEADER_LEN..]);
    header[40..].copy_from_slice(&digest.to_le_bytes());
    let sum = key().checksum(&header);
    bytes[40..48].copy_from_slice(&sum.to_le_bytes());
    rewrite(device, addr, &bytes);
}

/// Where enveloped structures of a kind begin.
fn places(device: &SimDevice, kind: Kind) -> Vec<Addr> {
    let report = device.report(0..device.geometry().zone_count).unwrap();
    let zones = (0u32..).zip(&report);
    zones
        .flat_map(|(zone, info)| (1..info.write_pointer).map(move |block| at(zone, block)))
        .filter(|addr| {
            let block = read(device, *addr, 1);
            envelope::peek(&block).is_ok_and(|fields| fields.kind == kind)
        })
        .collect()
}

fn whole_check(device: &SimDevice) -> Result<Vec<u16>, InspectError> {
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let report = check(device, &options, &mut |_| {})?;
    Ok(report.findings.iter().map(|f| f.number).collect())
}

fn check_refused(device: &SimDevice, why: &str) {
    let checked = whole_check(device);
    assert!(
        matches!(checked, Err(InspectError::Unsupported { .. })),
        "{why}: {checked:?}"
    );
    let rebuilt = rebuild(device, &mut |_, _, _| {}).and_then(|rebuilt| {
        rebuilt.content(&mut |_, _, _| {})?;
        Ok(())
    });
    assert!(
        matches!(rebuilt, Err(InspectError::Unsupported { .. })),
        "{why}: {rebuilt:?}"
    );
}

/// Mount, fsck and recover refuse, and nothing is written.
fn assert_refused(device: &Arc<SimDevice>, why: &str) {
    check_refused(device, why);
    let zones = 0..device.geometry().zone_count;
    let before = device.report(zones.clone()).unwrap();
    for read_only in [true, false] {
        let error = open(device, read_only).err();
        assert!(
            matches!(error, Some(Error::Unsupported { .. })),
            "{why}: {error:?}"
        );
    }
    assert_eq!(device.report(zones).unwrap(), before, "{why}");
}

/// The mount took an intact header with an unknown flag for a torn one: with that of the newest log zone 392 of
/// 900 files were gone, the zone was reset and used again, and fsck found nothing wrong.
#[test]
fn each_header_alone_stops_everything() {
    for copies in [1, 2] {
        let (device, files) = volume(copies);
        assert!(log_zones(&device).len() >= 2 * copies as usize);
        assert_eq!(
            found(&open(&copy(&device), false).unwrap().0, &files),
            files.len()
        );
        for (zone, header) in headers(&device) {
            let why = format!("zone {zone}, {}", header.role.name());
            let flagged = copy(&device);
            set_flag(&flagged, zone, INCOMPATIBLE);
            assert_refused(&flagged, &why);
            let newer = copy(&device);
            set_version(&newer, zone);
            assert_refused(&newer, &why);
        }
    }
}

#[test]
fn all_headers_and_all_but_one_stop_everything() {
    let (device, _) = volume(1);
    let zones: Vec<u32> = headers(&device).iter().map(|(zone, _)| *zone).collect();
    for spared in zones.iter().map(Some).chain([None]) {
        for version in [false, true] {
            let device = copy(&device);
            for zone in zones.iter().filter(|zone| Some(*zone) != spared) {
                if version {
                    set_version(&device, *zone)
                } else {
                    set_flag(&device, *zone, INCOMPATIBLE)
                }
            }
            assert_refused(&device, &format!("all but {spared:?}, version: {version}"));
        }
    }
}

/// A volume whose footers have no flags is not read as one that has them.
#[test]
fn a_volume_without_flags_in_footers_is_refused() {
    let (device, _) = volume(1);
    for (zone, _) in headers(&device) {
        change_header(&device, zone, |block| block[INCOMPATIBLE] &= !64);
    }
    assert_refused(&device, "without flags in footers");
    let error = open(&device, false).err().unwrap().to_string();
    assert!(error.contains("without the features"), "{error}");
}

/// What another volume left behind is none of this one's.
#[test]
fn a_newer_header_of_another_volume_stops_nothing() {
    let (device, files) = volume(1);
    let newest = log_zones(&device).pop().unwrap().1;
    for sequence in [1, newest.sequence + 100] {
        let device = copy(&device);
        let report = device.report(0..48).unwrap();
        let empty = report
            .iter()
            .position(|info| info.state == ZoneState::Empty);
        let zone = empty.unwrap() as u32;
        let mut block = BufferMut::zeroed(1);
        block.copy_from_slice(&read(&device, at(0, 0), 1));
        let data = vec![block.freeze()];
        let write = Command::Write {
            zone: ZoneId(zone),
            block: 0,
            data,
        };
        device.run(write).unwrap();
        change_header(&device, zone, |block| {
            block[8] = 2;
            block[16] ^= 1;
            block[156..160].copy_from_slice(&zone.to_le_bytes());
            block[160..168].copy_from_slice(&sequence.to_le_bytes());
        });
        assert!(whole_check(&device).unwrap().contains(&102));
        let (volume, _) = open(&device, false).unwrap();
        assert_eq!(found(&volume, &files), files.len());
    }
}

/// Intact log blocks of a newer version were where the log ended, as if torn.
#[test]
fn structures_of_a_newer_version_stop_everything() {
    let (device, _) = volume(1);
    let newest_log = log_zones(&device).pop().unwrap().0;
    let mut journal = places(&device, Kind::Journal);
    journal.retain(|addr| addr.zone() == ZoneId(newest_log));
    assert!(journal.len() > 10);
    for addr in &journal {
        let device = copy(&device);
        make_newer(&device, *addr);
        assert_refused(&device, &format!("log block {addr}"));
    }
    // Without the header of its zone too.
    let headless = copy(&device);
    make_newer(&headless, at(newest_log, 2));
    assert!(headless.corrupt(ZoneId(newest_log), 0, 100, 1));
    assert_refused(&headless, "a log zone without header");
    for kind in [Kind::Footer, Kind::MatChunk, Kind::ZitChunk, Kind::Page] {
        let addr = *places(&device, kind).iter().max().unwrap();
        let device = copy(&device);
        make_newer(&device, addr);
        match kind {
            // It is read when something needs it.
            Kind::Page => check_refused(&device, kind.name()),
            _ => assert_refused(&device, kind.name()),
        }
    }
}

#[test]
fn summaries_of_a_newer_version_stop_a_check_of_data() {
    let (device, _) = volume(1);
    let (volume, _) = open(&device, false).unwrap();
    let ino = add(&volume, ROOT, "large", FILE);
    volume.write(ino, 0, &content(1, 900_000), now(2)).unwrap();
    volume.close().unwrap();
    let addr = places(&device, Kind::Summary)[0];
    assert!(whole_check(&device).unwrap().is_empty());
    make_newer(&device, addr);
    let checked = whole_check(&device);
    assert!(
        matches!(checked, Err(InspectError::Unsupported { .. })),
        "{checked:?}"
    );
}

/// Of a footer the features, where its part begins that has them.
fn footers(device: &SimDevice) -> Vec<(Addr, Footer)> {
    let footer = |addr: Addr| {
        let block = read(device, addr, 1);
        let (_, payload) = envelope::open(&block, &key(), Kind::Footer, None).unwrap();
        (addr, Footer::decode(&payload[48..]).unwrap())
    };
    let mut footers: Vec<_> = places(device, Kind::Footer)
        .into_iter()
        .map(footer)
        .collect();
    footers.sort_by_key(|(_, footer)| footer.checkpoint);
    footers
}

fn set_in_footer(device: &SimDevice, set: usize) {
    let (addr, _) = footers(device).pop().unwrap();
    crate::support::reseal(device, addr, |payload| {
        payload[48 + set - INCOMPATIBLE + 7] |= 0x80
    });
}

/// A flag that was set after all headers were written stands in the footer.
#[test]
fn features_in_the_footer_count_though_every_header_is_older() {
    let (device, files) = volume(1);
    let refused = copy(&device);
    set_in_footer(&refused, INCOMPATIBLE);
    assert_refused(&refused, "the newest footer");
    let ignored = copy(&device);
    set_in_footer(&ignored, COMPATIBLE);
    let (volume, _) = open(&ignored, false).unwrap();
    assert_eq!(volume.identity().compatible, FLAG);
    assert_eq!(found(&volume, &files), files.len());
    let to_read = copy(&device);
    set_in_footer(&to_read, READ_ONLY_COMPATIBLE);
    assert_only_to_read(&to_read, &files);
}

fn assert_only_to_read(device: &Arc<SimDevice>, files: &[Ino]) {
    let before = device.report(0..48).unwrap();
    let error = open(device, false).err();
    assert!(
        matches!(error, Some(Error::OnlyToRead { unknown: FLAG })),
        "{error:?}"
    );
    assert!(error.unwrap().to_string().contains("-o ro"));
    let (volume, _) = open(device, true).unwrap();
    assert_eq!(volume.identity().read_only_compatible, FLAG);
    assert_eq!(found(&volume, files), files.len());
    assert_eq!(device.report(0..48).unwrap(), before);
    let numbers = whole_check(device).unwrap();
    assert!(!numbers.contains(&103), "{numbers:?}");
    rebuild(&**device, &mut |_, _, _| {}).unwrap();
}

#[test]
fn unknown_features_that_are_compatible_are_ignored_and_kept() {
    let (device, files) = volume(1);
    for (zone, _) in headers(&device) {
        let to_read = copy(&device);
        set_flag(&to_read, zone, READ_ONLY_COMPATIBLE);
        assert_only_to_read(&to_read, &files);
        let ignored = copy(&device);
        set_flag(&ignored, zone, COMPATIBLE);
        let numbers = whole_check(&ignored).unwrap();
        assert!(!numbers.contains(&103), "{numbers:?}");
        let before = headers(&ignored);
        let (volume, _) = open(&ignored, false).unwrap();
        let ino = add(&volume, ROOT, "more", FILE);
        volume.write(ino, 0, &content(1, 900_000), now(2)).unwrap();
        volume.step(Task::Checkpoint).unwrap();
        assert_eq!(found(&volume, &files), files.len());
        volume.close().unwrap();
        let known = |header: &ZoneHeader| before.iter().any(|(_, h)| h.sequence == header.sequence);
        let newer: Vec<_> = headers(&ignored)
            .into_iter()
            .filter(|(_, h)| !known(h))
            .collect();
        assert!(!newer.is_empty());
        assert!(
            newer
                .iter()
                .all(|(_, header)| header.volume.compatible == FLAG)
        );
        let (_, footer) = footers(&ignored).pop().unwrap();
        assert_eq!(footer.features.compatible, FLAG);
        // The header that had it may be gone one day.
        assert_eq!(open(&ignored, false).unwrap().0.identity().compatible, FLAG);
    }
}

#[test]
fn messages_say_what_to_do() {
    let (device, _) = volume(1);
    set_flag(&device, log_zones(&device).pop().unwrap().0, INCOMPATIBLE);
    let error = open(&device, false).err().unwrap();
    assert!(
        matches!(
            &error,
            Error::Unsupported {
                source: FormatError::UnknownFeatures { unknown: FLAG },
                ..
            }
        ),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("use a newer persimmon") && !text.contains("mkfs"),
        "{text}"
    );
}
