//! Flipped bytes: in whatever is alive they are found, in dead space they change nothing, and
//! never is there a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::{
    FILE, add, addr, assert_sound, content, footer, formatted, now, open, pages, populate, report,
};
use persimmon_device::ZonedDevice;
use persimmon_engine::Task;
use persimmon_format::inode::ROOT;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, ZoneId};
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_inspect::{CheckOptions, Inspector, Report, Severity, check};
use persimmon_sim::SimDevice;

/// A volume with history: overwritten, cleaned, several checkpoints, a journal.
fn volume_with_history() -> Arc<SimDevice> {
    let device = formatted();
    let volume = open(&device);
    let files = populate(&volume);
    for round in 0..40u64 {
        let ino = files[(round * 7) as usize % files.len()];
        let at = (round * 12_345) % 100_000;
        volume
            .write(ino, at, &content(round, 60_000), now(7))
            .unwrap();
        volume.sync_file(ino).unwrap();
        if round == 10 {
            volume.step(Task::Clean).unwrap();
        }
        if round % 12 == 11 {
            volume.step(Task::Checkpoint).unwrap();
        }
    }
    for n in 0..5 {
        let ino = add(&volume, ROOT, &format!("late {n}"), FILE);
        volume.write(ino, 0, &content(n, 3000), now(8)).unwrap();
        volume.sync_file(ino).unwrap();
    }
    volume.close().unwrap();
    assert_sound(&report(&device, true));
    device
}

/// Every block of the device that something needs, by the kind of structure.
fn live_blocks(device: &SimDevice) -> BTreeMap<&'static str, Vec<Addr>> {
    let mut live: BTreeMap<&str, Vec<Addr>> = BTreeMap::new();
    let footer = footer(device);
    live.insert("footer", vec![addr(&footer.addr)]);
    live.insert(
        "MAT chunk",
        footer.mat_chunks.iter().map(|a| addr(a)).collect(),
    );
    live.insert(
        "ZIT chunk",
        footer.zit_chunks.iter().map(|a| addr(a)).collect(),
    );
    for chunks in ["MAT chunk", "ZIT chunk"] {
        live.get_mut(chunks)
            .unwrap()
            .retain(|addr| *addr != Addr::ZERO);
    }
    let spread = |addr: Addr, blocks: u64| (0..blocks as u32).map(move |i| addr.offset(i));
    let rows = pages(device);
    let blocks = rows
        .iter()
        .flat_map(|row| spread(addr(&row.addr), row.blocks.into()));
    live.insert("page", blocks.collect());
    let inspector = Inspector::open(device).unwrap();
    let durable = inspector.volume().durable_lsn;
    let Dump::Log(log) = dump(&inspector, &Target::Log).unwrap() else {
        panic!("no log")
    };
    // A block in which no record begins may hold the end of the last one.
    let journal = log.blocks.iter().filter(|block| {
        let first = block.first.saturating_sub(u64::from(block.lead > 0));
        block.kind == "journal" && block.used_bytes > 0 && first <= durable
    });
    live.insert("journal", journal.map(|block| addr(&block.addr)).collect());
    let (mut data, mut packed) = (Vec::new(), Vec::new());
    let Dump::Keys(items) = dump(
        &inspector,
        &Target::Keys {
            from: None,
            to: None,
        },
    )
    .unwrap() else {
        panic!("no items")
    };
    for item in items.iter().filter(|item| item.kind == "extent") {
        if let Some((blocks, at)) = item.value.0.split_once(" blocks at ") {
            data.extend(spread(addr(at), blocks.parse().unwrap()));
        }
        // Not its whole block is somebody's.
        if let Some((_, at)) = item.value.0.split_once(" bytes at ") {
            let (at, _) = at.split_once(',').unwrap();
            packed.push(addr(at));
        }
    }
    assert!(!packed.is_empty());
    live.insert("data", data);
    let zones: BTreeSet<u32> = live.values().flatten().map(|addr| addr.zone().0).collect();
    let headers = zones
        .iter()
        .map(|zone| Addr::new(DeviceId(0), ZoneId(*zone), 0));
    live.insert("zone header", headers.collect());
    live
}

struct Bytes(u64);

impl Bytes {
    fn next(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % limit
    }
}

fn flip(device: &SimDevice, addr: Addr, byte: usize, mask: u8) {
    assert!(
        device.corrupt(addr.zone(), addr.block(), byte, mask),
        "{addr}"
    );
}

/// Checks, if there still is anything that can be.
fn try_check(device: &SimDevice, data: bool) -> Option<Report> {
    let options = CheckOptions {
        data,
        ..CheckOptions::default()
    };
    check(device, &options, &mut |_| {}).ok()
}

#[test]
fn flipped_bytes_of_live_structures_are_found() {
    let device = volume_with_history();
    let live = live_blocks(&device);
    let mut bytes = Bytes(1);
    for (kind, addrs) in &live {
        assert!(!addrs.is_empty(), "no {kind} to damage");
        let step = addrs.len().div_ceil(40);
        for addr in addrs.iter().step_by(step) {
            for _ in 0..3 {
                let (byte, mask) = (bytes.next(BLOCK_SIZE), 1 << bytes.next(8));
                flip(&device, *addr, byte, mask);
                let worst = try_check(&device, *kind == "data").map(|report| report.worst());
                assert!(
                    worst.is_none_or(|worst| worst == Some(Severity::Error)),
                    "{kind} at {addr}, byte {byte}, mask {mask:#x}: {worst:?}"
                );
                flip(&device, *addr, byte, mask);
            }
        }
    }
    assert_sound(&report(&device, true));
}

#[test]
fn flipped_bytes_of_dead_space_change_nothing() {
    let device = volume_with_history();
    let live: BTreeSet<Addr> = live_blocks(&device).into_values().flatten().collect();
    let sound = report(&device, true);
    let mut bytes = Bytes(2);
    let zones = device.report(0..device.geometry().zone_count).unwrap();
    let mut tried = 0;
    for (zone, info) in zones.iter().enumerate() {
        for block in 0..info.write_pointer {
            let addr = Addr::new(DeviceId(0), ZoneId(zone as u32), block);
            if live.contains(&addr) {
                continue;
            }
            tried += 1;
            let byte = bytes.next(BLOCK_SIZE);
            flip(&device, addr, byte, 0xff);
            let found = report(&device, false);
            assert_sound(&found);
            let counts = |mut report: Report| {
                report.counts.data_blocks_verified = 0;
                report.counts
            };
            assert_eq!(counts(found), counts(sound.clone()), "{addr}, byte {byte}");
            flip(&device, addr, byte, 0xff);
        }
    }
    assert!(tried > 50, "{tried} dead blocks");
}

/// The header of the only log zone once took the whole volume along, with the advice to run mkfs.
#[test]
fn a_log_without_a_header_is_read_by_its_blocks() {
    let device = formatted();
    let volume = open(&device);
    populate(&volume);
    volume.close().unwrap();
    let sound = report(&device, true);
    let log = addr(&footer(&device).addr).zone();
    flip(&device, Addr::new(DeviceId(0), log, 0), 99, 1);
    let found = report(&device, true);
    let numbers = crate::support::numbers(&found);
    assert!(numbers.contains(&101), "{:#?}", found.findings);
    assert_eq!(found.findings.len(), sound.findings.len() + 1);
    assert_eq!(found.counts, sound.counts);
}

/// A block in the midst of an extent was told as the first one of it, and counted as verified.
#[test]
fn a_damaged_block_is_told_by_its_place_in_the_file() {
    const BLOCKS: usize = 7;
    let device = formatted();
    let volume = open(&device);
    let ino = add(&volume, ROOT, "file", FILE);
    let written = content(3, BLOCKS * BLOCK_SIZE);
    volume.write(ino, 0, &written, now(2)).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    volume.close().unwrap();
    let notes = report(&device, true).findings_total;
    let holds = |at: Addr, bytes: &[u8]| {
        let read = device.read(at.zone(), at.block(), 1);
        read.is_ok_and(|block| block[..] == *bytes)
    };
    let zones = device.geometry().zone_count;
    let all = (0..zones).flat_map(|zone| {
        let end = device.report(zone..zone + 1).unwrap()[0].write_pointer;
        (0..end).map(move |block| Addr::new(DeviceId(0), ZoneId(zone), block))
    });
    let all: Vec<Addr> = all.collect();
    for bad in [4, 5] {
        let bytes = &written[bad * BLOCK_SIZE..][..BLOCK_SIZE];
        let at = all.iter().find(|at| holds(**at, bytes)).unwrap();
        flip(&device, *at, 9, 1);
    }
    let found = report(&device, true);
    let told = found.findings.iter().filter(|f| f.number == 801);
    let places: Vec<&str> = told.map(|f| f.place.as_str()).collect();
    let place = |block| format!("inode {ino}, block {block}");
    assert_eq!(places, [place(4), place(5)]);
    assert_eq!(found.counts.data_blocks, BLOCKS as u64);
    assert_eq!(found.counts.data_blocks_verified, BLOCKS as u64 - 2);
    // The summary of a check counted the errors among the findings that are kept.
    let options = CheckOptions {
        data: true,
        findings_max: 1,
        ..CheckOptions::default()
    };
    let cut = check(&*device, &options, &mut |_| {}).unwrap();
    assert_eq!((cut.findings.len(), cut.findings_total), (1, 2 + notes));
    assert_eq!((cut.errors_total, cut.notes_total), (2, notes));
}

/// Summaries are hints: without one, cleaning looks blocks up in the tree.
#[test]
fn a_damaged_summary_is_a_warning() {
    let device = volume_with_history();
    let inspector = Inspector::open(&*device).unwrap();
    let all = (0..24).filter_map(
        |zone| match dump(&inspector, &Target::Summaries(ZoneId(zone))) {
            Ok(Dump::Summaries(list)) if list.len() > 1 => Some(list),
            _ => None,
        },
    );
    let summaries = all.max_by_key(Vec::len).unwrap();
    let first = addr(&summaries[0].addr);
    assert!(
        summaries[0]
            .runs
            .iter()
            .all(|run| run.ino > 0 && run.blocks > 0)
    );
    flip(&device, first, 77, 1);
    let found = report(&device, true);
    assert!(found.is_clean());
    assert_eq!(found.worst(), Some(Severity::Warning));
    assert_eq!(found.findings.last().unwrap().number, 802);
}

/// Several bytes at once, anywhere: whatever comes out, it is an answer.
#[test]
fn checks_and_dumps_never_panic() {
    let device = volume_with_history();
    let live: Vec<Addr> = live_blocks(&device).into_values().flatten().collect();
    let mut bytes = Bytes(3);
    for _ in 0..150 {
        let damaged = Arc::new(device.snapshot().intact());
        for _ in 0..=bytes.next(4) {
            let addr = live[bytes.next(live.len())];
            flip(&damaged, addr, bytes.next(BLOCK_SIZE), 0x55);
        }
        let _ = try_check(&damaged, true);
        let Ok(inspector) = Inspector::open(&*damaged) else {
            continue;
        };
        for words in [
            "log",
            "footer",
            "mat",
            "zit",
            "keys",
            "page 1",
            "inode 1",
            "directory /",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let target = Target::parse(&inspector, &words);
            let _ = target.and_then(|target| dump(&inspector, &target));
        }
    }
}
