//! Intact blocks that contradict each other: footers, tables, pages, zones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use crate::support::{
    addr, assert_sound, footer, formatted, mend, numbers, open, pages, populate, read, report,
    reseal, rewrite,
};
use persimmon_device::ZonedDevice;
use persimmon_engine::Task;
use persimmon_format::footer::Footer;
use persimmon_format::page::{self, Compression, PAGE_SIZE};
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{Addr, DeviceId, Lsn, PageId, ZoneId};
use persimmon_inspect::{CheckOptions, InspectError, Inspector, Report, Stage, check};
use persimmon_sim::{Fault, FaultTarget, SimDevice};

/// Bytes of a log block's payload before the footer's own.
const LOG_PREFIX_LEN: usize = 48;

/// A checkpointed volume with files in it.
fn volume() -> Arc<SimDevice> {
    let device = formatted();
    let volume = open(&device);
    populate(&volume);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(numbers(&report(&device, true)), [624]);
    device
}

/// What is found besides the orphan that [`volume`] holds.
fn found(report: &Report) -> Vec<u16> {
    let mut numbers = numbers(report);
    numbers.retain(|number| *number != 624);
    numbers
}

fn with_footer(expected: &[u16], change: impl FnOnce(&mut Footer)) {
    let device = volume();
    let at = addr(&footer(&device).addr);
    reseal(&device, at, |payload| {
        let mut footer = Footer::decode(&payload[LOG_PREFIX_LEN..]).unwrap();
        change(&mut footer);
        payload.truncate(LOG_PREFIX_LEN);
        payload.extend(footer.encode());
    });
    let report = report(&device, false);
    assert_eq!(found(&report), expected, "{:#?}", report.findings);
    if expected.iter().all(|number| [331, 332].contains(number)) {
        assert_sound(&mend(&device));
    }
}

fn with_mat(expected: &[u16], change: impl FnOnce(&mut Vec<MatEntry>)) {
    let device = volume();
    let at = addr(&footer(&device).mat_chunks[0]);
    reseal(&device, at, |payload| {
        let mut entries = MatEntry::decode_chunk(payload).unwrap();
        change(&mut entries);
        payload.clear();
        entries.iter().for_each(|entry| entry.encode(payload));
    });
    let report = report(&device, false);
    assert_eq!(found(&report), expected, "{:#?}", report.findings);
}

fn with_zit(expected: &[u16], role: Role, change: impl FnOnce(&mut ZitEntry)) {
    let device = volume();
    let at = addr(&footer(&device).zit_chunks[0]);
    reseal(&device, at, |payload| {
        let mut entries = ZitEntry::decode_chunk(payload).unwrap();
        let entry = entries.iter_mut().find(|entry| entry.role == role);
        change(entry.unwrap());
        payload.clear();
        entries.iter().for_each(|entry| entry.encode(payload));
    });
    let report = report(&device, false);
    assert_eq!(found(&report), expected, "{:#?}", report.findings);
    if expected == [322] {
        assert_sound(&mend(&device));
    }
}

/// Changes the image of a page.
fn with_page(device: &SimDevice, id: u64, change: impl FnOnce(&mut Vec<u8>)) {
    let row = pages(device)
        .into_iter()
        .find(|row| row.page == id)
        .unwrap();
    reseal(device, addr(&row.addr), |payload| {
        let mut image = [0; PAGE_SIZE];
        page::unpack(payload, &mut image).unwrap();
        let mut image = image.to_vec();
        change(&mut image);
        *payload = page::pack(&image.try_into().unwrap());
    });
}

/// Changes the level of a page, which its columns begin with: the image is a page's no more.
fn with_level(device: &SimDevice, id: u64, level: u8) {
    let row = pages(device)
        .into_iter()
        .find(|row| row.page == id)
        .unwrap();
    reseal(device, addr(&row.addr), |payload| {
        let (compression, stored) = page::split(payload).unwrap();
        assert_eq!(compression, Compression::Columns);
        let mut columns = lz4_flex::block::decompress(stored, 2 * PAGE_SIZE).unwrap();
        columns[0] = level;
        let stored = lz4_flex::block::compress(&columns);
        payload.truncate(4);
        payload.extend((stored.len() as u32).to_le_bytes());
        payload.extend(stored);
    });
}

#[test]
fn counts_of_the_footer() {
    with_footer(&[331], |footer| footer.inodes += 1);
    with_footer(&[332], |footer| footer.reserved_blocks = 0);
    with_footer(&[512], |footer| footer.next_ino -= 1);
}

#[test]
fn places_in_the_footer() {
    with_footer(&[301], |footer| {
        footer.overrides.push((ZoneId(9999), ZitEntry::default()))
    });
    // Zones that something refers to: of metadata, and of data with estimates of its lifetime.
    with_footer(&[301, 322, 322, 322, 322], |footer| footer.zit.clear());
    with_footer(&[404, 406, 615], |footer| footer.root = PageId(55_555));
    with_footer(&[312], |footer| footer.page_limit -= 1);
}

/// The durable LSN says that records are missing; nothing else does.
#[test]
fn durable_records_that_are_not_there() {
    let device = volume();
    let volume = open(&device);
    crate::support::add(
        &volume,
        persimmon_format::inode::ROOT,
        "one more",
        crate::support::FILE,
    );
    volume.close().unwrap();
    let newest = newest_log_block(&device);
    reseal(&device, newest, |payload| {
        let durable = &mut payload[16..24];
        let lsn = u64::from_le_bytes(durable.try_into().unwrap());
        durable.copy_from_slice(&(lsn + 5).to_le_bytes());
    });
    assert_eq!(found(&report(&device, false)), [202, 206]);
}

fn newest_log_block(device: &SimDevice) -> Addr {
    let inspector = Inspector::open(device).unwrap();
    let target = persimmon_inspect::dump::Target::Log;
    match persimmon_inspect::dump::dump(&inspector, &target).unwrap() {
        persimmon_inspect::dump::Dump::Log(log) => addr(&log.newest.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn pages_in_wrong_places() {
    // Past the write pointer.
    with_mat(&[401, 406, 312], |mat| {
        let last = mat.iter().rposition(MatEntry::is_used).unwrap();
        mat[last].addr = Addr::new(DeviceId(0), mat[last].addr.zone(), 249);
    });
    // Another page's place.
    with_mat(&[402, 406, 314], |mat| {
        let used: Vec<usize> = (0..mat.len()).filter(|i| mat[*i].is_used()).collect();
        mat[used[1]] = mat[used[0]];
    });
    // No place at all.
    with_mat(&[404, 406], |mat| {
        let last = mat.iter().rposition(MatEntry::is_used).unwrap();
        mat[last] = MatEntry::NONE;
    });
}

#[test]
fn a_page_that_nothing_leads_to() {
    with_mat(&[312, 314, 313, 322], |mat| {
        let used = mat.iter().position(MatEntry::is_used).unwrap();
        let free = mat.iter().position(|entry| !entry.is_used()).unwrap();
        mat[free] = mat[used];
    });
}

#[test]
fn zones_miscounted() {
    with_zit(&[322], Role::Data, |entry| entry.valid += 1);
    with_zit(&[322], Role::Log, |entry| entry.valid += 1);
    with_zit(&[323], Role::Data, |entry| entry.role = Role::Metadata);
    with_zit(&[323], Role::Data, |entry| entry.sequence += 1);
    with_footer(&[324], |footer| {
        let mut entries = footer.overrides.iter_mut().map(|(_, entry)| entry);
        let entry = entries.find(|entry| entry.role == Role::Metadata);
        entry.unwrap().write_pointer = 250;
    });
    // On its way at the checkpoint, and never arrived.
    with_zit(&[], Role::Data, |entry| entry.write_pointer = 250);
}

#[test]
fn pages_that_lie() {
    let device = volume();
    let root = footer(&device).root_page;
    // Another level than its parent's child should have.
    let leaf = pages(&device)
        .iter()
        .map(|row| row.page)
        .find(|page| *page != root)
        .unwrap();
    with_level(&device, leaf, 1);
    let broken = report(&device, false);
    assert!(found(&broken).contains(&401), "{:#?}", broken.findings);
    with_level(&device, leaf, 0);
    assert!(found(&report(&device, false)).is_empty());
    with_page(&device, leaf, |image| image[8] ^= 1);
    assert!(found(&report(&device, false)).contains(&402));
    with_page(&device, leaf, |image| image[8] ^= 1);
    // The root's second child takes the place of its first.
    let device = volume();
    with_page(&device, root, |image| {
        assert_eq!(image[0], 1);
        let value = |slot: usize| {
            let at = 32 + slot * 25 + 21;
            usize::from(u16::from_le_bytes([image[at], image[at + 1]]))
        };
        let (first, second) = (value(0), value(1));
        image.copy_within(second..second + 8, first);
    });
    let numbers = found(&report(&device, false));
    assert!(
        numbers.contains(&403) && numbers.contains(&405),
        "{numbers:?}"
    );
}

#[test]
fn headers_that_lie() {
    let device = volume();
    let zone = addr(&pages(&device)[0].addr).zone();
    let at = Addr::new(DeviceId(0), zone, 0);
    let good = ZoneHeader::decode(&read(&device, at, 1)).unwrap();
    let with = |change: &dyn Fn(&mut ZoneHeader)| {
        let mut header = good.clone();
        change(&mut header);
        rewrite(&device, at, &header.encode());
        let report = report(&device, false);
        rewrite(&device, at, &good.encode());
        found(&report)
    };
    assert!(with(&|_| {}).is_empty());
    assert_eq!(with(&|header| header.volume.label = "other".into()), [103]);
    assert_eq!(with(&|header| header.sequence += 1), [323]);
    assert_eq!(with(&|header| header.zone.0 += 1), [103, 101]);
    assert_eq!(with(&|header| header.volume.uuid[0] ^= 1), [102, 101]);
    let role = with(&|header| header.role = Role::Data);
    assert!(role.contains(&312) && role.contains(&323), "{role:?}");
}

#[test]
fn zones_that_wore_out() {
    let device = volume();
    let data = addr(&pages(&device)[0].addr).zone();
    device.set_read_only(data);
    assert_eq!(found(&report(&device, true)), [106]);
}

#[test]
fn what_is_no_volume() {
    let device = crate::support::device();
    let error = Inspector::open(&device).err().unwrap();
    assert!(
        matches!(error, InspectError::NotAVolume { zones: 24 }),
        "{error}"
    );
    let device = volume();
    let at = newest_log_block(&device);
    for block in 1..=at.block() {
        let addr = Addr::new(DeviceId(0), at.zone(), block);
        assert!(device.corrupt(addr.zone(), block, 60, 1));
    }
    let error = Inspector::open(&*device).err().unwrap();
    assert!(
        matches!(error, InspectError::NoCheckpoint { .. }),
        "{error}"
    );
    assert_eq!(Lsn(0).next(), Lsn(1));
}

#[test]
fn a_damaged_footer_is_a_finding() {
    let device = volume();
    let volume = open(&device);
    crate::support::add(
        &volume,
        persimmon_format::inode::ROOT,
        "one more",
        crate::support::FILE,
    );
    volume.close().unwrap();
    let at = addr(&footer(&device).addr);
    assert!(device.corrupt(at.zone(), at.block(), 200, 1));
    let report = report(&device, false);
    assert_eq!(numbers(&report), [301]);
    assert_eq!(report.volume.checkpoint, None);
}

/// A copy on a device of another shape.
#[test]
fn a_volume_of_another_shape() {
    let device = volume();
    for zone in 0..24 {
        let at = Addr::new(DeviceId(0), ZoneId(zone), 0);
        let Ok(block) = device.read(at.zone(), 0, 1) else {
            continue;
        };
        let mut header = ZoneHeader::decode(&block).unwrap();
        header.volume.zone_count += 1;
        rewrite(&device, at, &header.encode());
    }
    let error = Inspector::open(&*device).err().unwrap();
    let expected = "the volume was made on 25 zones of 256 blocks, the device has 24 of 256";
    assert!(error.to_string().starts_with(expected), "{error}");
}

/// A medium that cannot read is something to report, block by block.
#[test]
fn blocks_that_cannot_be_read() {
    for zone in 0..5 {
        let device = volume();
        device.inject(Fault::for_ever(FaultTarget::Read).zone(ZoneId(zone)));
        let options = CheckOptions {
            data: true,
            ..CheckOptions::default()
        };
        if let Ok(report) = check(&*device, &options, &mut |_| {}) {
            let used = device.report(zone..zone + 1).unwrap()[0].write_pointer > 0;
            assert_eq!(report.is_clean(), !used, "{:#?}", report.findings);
        }
    }
}

#[test]
fn progress_goes_forward() {
    let device = volume();
    let mut seen = Vec::new();
    check(&*device, &CheckOptions::default(), &mut |at| seen.push(at)).unwrap();
    for pair in seen.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        assert!(after.done <= after.total);
        assert!(before.stage != after.stage || before.done <= after.done);
    }
    let last = seen.last().unwrap();
    assert!(last.stage == Stage::Links && last.done + 1 == last.total);
}
