//! What a mount after a power cut reads. Where write pointers are proof they alone decide what had
//! arrived, but for what ends at one: its last block may be torn; checksums of the data do where they are not, and where a volatile cache can lose a reset,
//! so that an old write pointer stands over old data.

#![allow(clippy::unwrap_used, reason = "a failure ends the test")]

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, BufferMut, ZonedDevice};
use persimmon_engine::{Error, Layout, Options, Quotas, Shift, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::envelope::{self, Kind};
use persimmon_format::table::Role;
use persimmon_sim::{Fault, FaultTarget, SimConfig, SimDevice};

use crate::common::{NOW, create, fresh, noise, open, small};

/// Blocks that do not compress, so that none of them is inlined in the journal.
const BLOCKS: usize = 3;
const FILES: u64 = 12;

fn content(file: u64) -> Vec<u8> {
    noise(file, BLOCKS * BLOCK_SIZE)
}

/// Synced files that no checkpoint has, when the power went; no block of their data can be read, but for the last of
/// each zone where they are left out.
fn cut_and_unreadable(config: SimConfig, left_out: u32) -> (Arc<SimDevice>, Vec<Ino>) {
    let device = fresh(config);
    let volume = open(&device);
    let inos: Vec<Ino> = (0..FILES).map(|_| create(&volume).unwrap()).collect();
    for (ino, file) in inos.iter().zip(0..) {
        volume.write(*ino, 0, &content(file), NOW).unwrap();
        volume.sync_file(*ino).unwrap();
    }
    let device = Arc::new(device.snapshot().intact());
    let data = volume.zones().into_iter();
    for zone in data.filter(|zone| zone.entry.role == Role::Data) {
        // Block 0 is the zone's header: what a zone is, is not data.
        let info = device.report(zone.zone.0..zone.zone.0 + 1).unwrap()[0];
        for block in 1..info.write_pointer.saturating_sub(left_out) {
            let fault = Fault::for_ever(FaultTarget::Read);
            device.inject(fault.zone(zone.zone).block(block));
        }
    }
    (device, inos)
}

#[test]
fn a_mount_reads_only_what_ends_at_write_pointers_that_are_proof() {
    let (device, inos) = cut_and_unreadable(small(), BLOCKS as u32);
    let (volume, report) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    assert!(report.records_replayed >= FILES, "{report:?}");
    assert!(!report.tail_cut, "{report:?}");
    device.heal();
    for (ino, file) in inos.iter().zip(0..) {
        let mut buf = vec![0; BLOCKS * BLOCK_SIZE];
        assert_eq!(volume.read(*ino, 0, &mut buf).unwrap(), buf.len());
        assert_eq!(buf, content(file));
    }
}

/// There data that cannot be read is not taken for data that did not arrive: the mount fails.
#[test]
fn a_mount_reads_data_where_write_pointers_prove_nothing() {
    for config in [small().host_file(), small().volatile_cache()] {
        let (device, _) = cut_and_unreadable(config, 0);
        let opened = Volume::open(Arc::clone(&device) as _, Options::default());
        assert!(matches!(opened, Err(Error::Device(_))));
    }
}

/// Blocks that move within a file were there before. A recovery read them, and took one that has rotted since for data that had never
/// arrived: what was synced after that was cut off.
#[test]
fn a_mount_does_not_read_what_a_record_moves_within_a_file() {
    for config in [small().host_file(), small().volatile_cache()] {
        let device = fresh(config);
        let volume = open(&device);
        let (ino, other) = (create(&volume).unwrap(), create(&volume).unwrap());
        volume.write(ino, 0, &content(1), NOW).unwrap();
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        let range = (0, BLOCK_SIZE as u64);
        let layout = Layout::of(&volume);
        layout.shift(ino, range, Shift::Collapse, NOW).unwrap();
        volume.write(other, 0, b"small", NOW).unwrap();
        volume.sync_file(other).unwrap();
        let device = Arc::new(device.snapshot().intact());
        for zone in volume.zones() {
            let number = zone.zone.0;
            let end = device.report(number..number + 1).unwrap()[0].write_pointer;
            for block in (1..end).filter(|_| zone.entry.role == Role::Data) {
                device.inject(
                    Fault::for_ever(FaultTarget::Read)
                        .zone(zone.zone)
                        .block(block),
                );
            }
        }
        let options = Options::default();
        let (volume, report) = Volume::open(Arc::clone(&device) as _, options).unwrap();
        assert!(!report.tail_cut, "{report:?}");
        device.heal();
        let mut buf = vec![0; BLOCKS * BLOCK_SIZE];
        let read = volume.read(ino, 0, &mut buf).unwrap();
        assert_eq!(buf[..read], content(1)[BLOCK_SIZE..]);
        assert_eq!(volume.read(other, 0, &mut buf).unwrap(), 5);
        assert_eq!(&buf[..5], b"small");
    }
}

/// No record tells of packing: where a block is packed may be lost with the power, and a replay finds the block in the journal again. The record
/// of a shift names that place. It was taken for one that had long arrived, and what had been synced was gone.
#[test]
fn what_is_packed_and_then_moved_within_a_file_survives_the_power() {
    let mut packed = 0;
    for config in [small().host_file(), small().volatile_cache()] {
        let device = fresh(config);
        let volume = open(&device);
        let (ino, other) = (create(&volume).unwrap(), create(&volume).unwrap());
        let block = |number: u64| -> Vec<u8> {
            let mut block = noise(number, BLOCK_SIZE);
            block[1500..].fill(7);
            block
        };
        let mut blocks = 0;
        // Synced blocks stay inline in the journal until enough of them are packed.
        let is_packed = |volume: &Volume| {
            volume
                .zones()
                .iter()
                .any(|zone| zone.entry.role == Role::Data)
        };
        while !is_packed(&volume) {
            volume
                .write(ino, blocks * BLOCK_SIZE as u64, &block(blocks), NOW)
                .unwrap();
            volume.sync_file(ino).unwrap();
            blocks += 1;
            assert!(blocks < 4000, "nothing is packed");
        }
        packed += 1;
        let range = (0, BLOCK_SIZE as u64);
        Layout::of(&volume)
            .shift(ino, range, Shift::Collapse, NOW)
            .unwrap();
        volume.write(other, 0, b"small", NOW).unwrap();
        // The log is in the hands of the device, and not flushed.
        volume.record_file(other).unwrap();
        for seed in 0..40 {
            let left = Arc::new(device.persisted(seed));
            let (volume, _) = Volume::open(left, Options::default()).unwrap();
            let size = volume.attr(ino).unwrap().unwrap().size / BLOCK_SIZE as u64;
            let first = blocks - size;
            assert!(first < 2, "{first}");
            let mut found = vec![0; BLOCK_SIZE];
            for at in 0..size {
                let offset = at * BLOCK_SIZE as u64;
                let read = volume.read(ino, offset, &mut found);
                assert!(
                    matches!(read, Ok(BLOCK_SIZE)),
                    "seed {seed}, block {at}: {read:?}"
                );
                assert!(found == block(first + at), "seed {seed}, block {at}");
            }
        }
    }
    assert_eq!(packed, 2);
}

/// A drive with sectors of 512 bytes can lose power inside a block, whose rest is padded when it is opened: then the
/// write pointer stands behind it as if all of it were there. A record above the durable LSN that refers to it was
/// taken for complete, and the file had a block with the wrong checksum, which nobody had ever been told was there.
#[test]
fn a_torn_block_below_a_write_pointer_has_not_arrived() {
    let device = fresh(small());
    let volume = open(&device);
    let ino = create(&volume).unwrap();
    volume.write(ino, 0, &content(1), NOW).unwrap();
    volume.sync_file(ino).unwrap();
    volume.write(ino, 0, &content(2), NOW).unwrap();
    volume.sync_file(ino).unwrap();
    // As if the second sync was never over.
    let device = Arc::new(device.snapshot().intact());
    let mut torn = 0;
    for zone in volume.zones() {
        let number = zone.zone.0;
        let end = device.report(number..number + 1).unwrap()[0].write_pointer;
        if zone.entry.role != Role::Data || end < 2 {
            continue;
        }
        let last = device.read(zone.zone, end - 1, 1).unwrap();
        if last[..] != content(2)[(BLOCKS - 1) * BLOCK_SIZE..] {
            continue;
        }
        let mut padded = BufferMut::zeroed(1);
        padded[..512].copy_from_slice(&last[..512]);
        assert!(device.replace(zone.zone, end - 1, padded.freeze()));
        torn += 1;
    }
    assert_eq!(torn, 1);
    let (volume, report) = Volume::open(Arc::clone(&device) as _, Options::default()).unwrap();
    assert!(report.tail_cut, "{report:?}");
    let mut buf = vec![0; BLOCKS * BLOCK_SIZE];
    assert_eq!(volume.read(ino, 0, &mut buf).unwrap(), buf.len());
    assert!(buf == content(1));
}

/// A page that the journal changes was damaged, and the volume could not even be opened read-only, nor where only the pages of quota were.
#[test]
fn what_does_not_need_a_damaged_page_can_be_read() {
    for quota in [false, true] {
        let device = fresh(small());
        let volume = open(&device);
        if quota {
            Quotas::of(&volume).turn_on(false).unwrap();
        }
        let inos: Vec<Ino> = (0..200).map(|_| create(&volume).unwrap()).collect();
        let (first, last) = (inos[0], inos[inos.len() - 1]);
        for ino in [first, last] {
            volume.write(ino, 0, &content(1), NOW).unwrap();
        }
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        for ino in [first, last] {
            volume.write(ino, 0, &content(2), NOW).unwrap();
            volume.sync_file(ino).unwrap();
        }
        let device = Arc::new(device.snapshot().intact());
        let (mut opened, mut read) = (0, 0);
        for zone in volume.zones() {
            let number = zone.zone.0;
            let end = device.report(number..number + 1).unwrap()[0].write_pointer;
            for block in 1..end {
                let stored = device.read(zone.zone, block, 1).unwrap();
                if !envelope::peek(&stored).is_ok_and(|found| found.kind == Kind::Page) {
                    continue;
                }
                assert!(device.corrupt(zone.zone, block, 900, 1));
                let snapshot = Arc::new(device.snapshot().intact());
                assert!(device.corrupt(zone.zone, block, 900, 1));
                let (volume, report) = Volume::open(snapshot, Options::default()).unwrap();
                opened += u32::from(report.has_lost_metadata());
                for ino in [first, last] {
                    let mut buf = vec![0; BLOCKS * BLOCK_SIZE];
                    // What the journal says of a page that is there is replayed.
                    if let Ok(len) = volume.read(ino, 0, &mut buf) {
                        assert_eq!(buf[..len], content(2));
                        read += u32::from(report.has_lost_metadata());
                    }
                }
            }
        }
        assert!(opened >= 2 && read >= 1, "{opened} {read}");
    }
}
