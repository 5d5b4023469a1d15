//! The engine and the inspector read the same volume with different code: they must agree on what
//! a crash leaves, and on damage neither may answer wrongly.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::support::{FILE, add, content, formatted, now, open, populate};
use persimmon_device::{BufferMut, ZonedDevice};
use persimmon_engine::{Error, FormatOptions, Options, Task, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{ROOT, SHARED};
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, Ino, Key, KeyKind, ZoneId};
use persimmon_inspect::Inspector;
use persimmon_inspect::dump::{Dump, ExtentRow, Target, dump, item_text};
use persimmon_sim::{SimConfig, SimDevice};

/// Items by key as text, and each file's blocks one by one, since how extents are cut is free.
type Content = (BTreeMap<Key, Vec<u8>>, BTreeMap<(Ino, u64), String>);

fn engine_content(device: &Arc<SimDevice>) -> Content {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let (volume, _) = Volume::open(device.clone(), options).unwrap();
    volume
        .view::<_, Error>(|view| {
            let (mut items, mut blocks) = Content::default();
            view.scan(
                Key::new(Ino(0), KeyKind(0), 0)..Key::inode(Ino(Ino::END)),
                |key, value| {
                    if key.kind == KeyKind::EXTENT {
                        let extent = Extent::decode(value).unwrap();
                        for i in 0..extent.blocks() {
                            let text = match &extent {
                                Extent::Frame { addr, crcs } => {
                                    format!("{} {:08x}", addr.offset(i as u32), crcs[i as usize])
                                }
                                Extent::Inline(bytes) => format!("inline {}", bytes.len()),
                                Extent::Reserved { .. } => "reserved".into(),
                                Extent::Hole { .. } => "hole".into(),
                                Extent::Compressed(bytes) => format!("compressed {}", bytes.len()),
                                Extent::Shared { at, .. } => format!("shared {}", at + i),
                                Extent::Packed(packed) => format!(
                                    "{} {:08x}, {} bytes at {}, block {} of {} with {}",
                                    packed.addr,
                                    packed.frame.crc,
                                    packed.frame.len,
                                    packed.start(),
                                    u64::from(packed.skip) + i,
                                    packed.frame.blocks,
                                    packed.frame.codec.name()
                                ),
                            };
                            blocks.insert((key.ino, key.item + i), text);
                        }
                    } else {
                        items.insert(key, value.to_vec());
                    }
                    Ok(ControlFlow::Continue(()))
                },
            )?;
            Ok((items, blocks))
        })
        .unwrap()
}

fn inspector_blocks(inspector: &Inspector<'_>, ino: Ino) -> BTreeMap<(Ino, u64), String> {
    let Dump::Extents(rows) = dump(inspector, &Target::Extents(ino)).unwrap() else {
        panic!("no extents")
    };
    let mut blocks = BTreeMap::new();
    for row in rows {
        let ExtentRow {
            file_block,
            addr,
            start,
            crcs,
            bytes,
            kind,
            codec,
            frame_blocks,
            frame_skip,
            shared,
            ..
        } = row;
        let crcs: Vec<String> = crcs
            .iter()
            .flat_map(|c| c.split(' '))
            .map(str::to_owned)
            .collect();
        for i in 0..row.blocks {
            let text = match (&addr, bytes) {
                _ if shared.is_some() => format!("shared {}", shared.unwrap() + i),
                (Some(addr), Some(len)) => {
                    let start = start.unwrap();
                    format!(
                        "{} {}, {len} bytes at {start}, block {} of {} with {}",
                        crate::support::addr(addr),
                        crcs[0],
                        u64::from(frame_skip.unwrap()) + i,
                        frame_blocks.unwrap(),
                        codec.unwrap()
                    )
                }
                (Some(addr), None) => {
                    let addr = crate::support::addr(addr).offset(i as u32);
                    format!("{addr} {}", crcs[i as usize])
                }
                (None, Some(len)) => format!("{kind} {len}"),
                (None, None) => "reserved".into(),
            };
            blocks.insert((ino, file_block + i), text);
        }
    }
    blocks
}

fn assert_same_content(device: &Arc<SimDevice>) {
    let (items, blocks) = engine_content(device);
    let inspector = Inspector::open(&**device).unwrap();
    let found = crate::support::dumped_items(&inspector);
    let found: Vec<_> = found.iter().filter(|item| item.kind != "extent").collect();
    assert_eq!(found.len(), items.len());
    for (found, (key, value)) in found.iter().zip(&items) {
        assert_eq!((found.ino, found.item), (key.ino.0, key.item));
        assert_eq!(found.value.0, item_text(key, value), "{key:?}");
    }
    let mut mine = inspector_blocks(&inspector, SHARED);
    for (key, _) in items.iter().filter(|(key, _)| key.kind == KeyKind::INODE) {
        mine.append(&mut inspector_blocks(&inspector, key.ino));
    }
    assert_eq!(mine, blocks);
}

#[test]
fn both_recover_the_same_from_a_crash() {
    for seed in 0..24 {
        let device = formatted();
        let volume = open(&device);
        device.cut_after(30 + seed * 11);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let files = populate(&volume);
            for (round, ino) in files.iter().enumerate() {
                let at = round as u64 * 1000 % 60_000;
                volume.write(*ino, at, &content(9, 9000), now(9)).unwrap();
                volume.sync_file(*ino).unwrap();
                volume.truncate(*ino, at + 4000, now(10)).unwrap();
                if round % 9 == 8 {
                    volume.step(Task::Checkpoint).unwrap();
                }
            }
        }));
        // Crash, recover a little, crash again: epochs.
        let mut crashed = Arc::new(device.persisted(seed));
        assert_same_content(&crashed);
        for again in 0..2 {
            let volume = open(&crashed);
            crashed.cut_after(3 + seed % 7);
            let _ = catch_unwind(AssertUnwindSafe(|| {
                for n in 0..10 {
                    let ino = add(&volume, ROOT, &format!("again {again} {n}"), FILE);
                    volume.write(ino, 0, &content(n, 9000), now(11)).unwrap();
                    volume.sync_file(ino).unwrap();
                }
            }));
            crashed = Arc::new(crashed.persisted(seed + 1000));
            assert_same_content(&crashed);
        }
    }
}

/// A drive with small sectors can tear a block, which is padded when it is opened for writing: the write pointer, which is
/// proof there, stands behind it. Both took it for what was synced.
#[test]
fn both_leave_out_a_torn_block_below_a_write_pointer() {
    let device = Arc::new(SimDevice::new(SimConfig::new(24, 256).capacity(250)));
    Volume::format(device.clone(), &FormatOptions::default()).unwrap();
    let volume = open(&device);
    let ino = add(&volume, ROOT, "torn", FILE);
    volume.write(ino, 0, &content(1, 9000), now(9)).unwrap();
    volume.sync_file(ino).unwrap();
    let before = engine_content(&Arc::new(device.snapshot().intact()));
    volume.write(ino, 0, &content(2, 8192), now(10)).unwrap();
    volume.sync_file(ino).unwrap();
    let crashed = Arc::new(device.snapshot().intact());
    let (zones, last) = (
        device.geometry().zone_count,
        &content(2, 8192)[BLOCK_SIZE..],
    );
    let mut torn = 0;
    for (zone, info) in (0..).zip(device.report(0..zones).unwrap()) {
        let Some(end) = info.write_pointer.checked_sub(1) else {
            continue;
        };
        if info.state.is_active() && &crashed.read(ZoneId(zone), end, 1).unwrap()[..] == last {
            let mut padded = BufferMut::zeroed(1);
            padded[..512].copy_from_slice(&last[..512]);
            assert!(crashed.replace(ZoneId(zone), end, padded.freeze()));
            torn += 1;
        }
    }
    assert_eq!(torn, 1);
    assert!(engine_content(&crashed) == before);
    assert_same_content(&crashed);
}

/// Reads every file whole; `None` where the engine reports an error.
fn read_all(volume: &Volume) -> Result<BTreeMap<Ino, Option<Vec<u8>>>, Error> {
    let inos = volume.view::<_, Error>(|view| {
        let mut inos = Vec::new();
        view.scan(
            Key::new(Ino(0), KeyKind(0), 0)..Key::inode(Ino(Ino::END)),
            |key, _| {
                if key.kind == KeyKind::INODE {
                    inos.push(key.ino);
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(inos)
    })?;
    let mut files = BTreeMap::new();
    for ino in inos {
        let read = || {
            let Some(inode) = volume.attr(ino)? else {
                return Ok(Vec::new());
            };
            let mut bytes = vec![
                0;
                if inode.is_file() {
                    inode.size as usize
                } else {
                    0
                }
            ];
            let mut done = 0;
            while done < bytes.len() {
                match volume.read(ino, done as u64, &mut bytes[done..])? {
                    0 => break,
                    read => done += read,
                }
            }
            Ok::<_, Error>(bytes)
        };
        files.insert(ino, read().ok());
    }
    Ok(files)
}

/// Any byte of the volume flipped: the engine opens it or says why not, and what it reads is what
/// was written or an error.
#[test]
fn the_engine_never_reads_wrong_data() {
    let device = formatted();
    let volume = open(&device);
    populate(&volume);
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    for n in 0..5 {
        let ino = add(&volume, ROOT, &format!("late {n}"), FILE);
        volume.write(ino, 0, &content(n, 9000), now(8)).unwrap();
        volume.sync_file(ino).unwrap();
    }
    volume.close().unwrap();
    let truth = read_all(&volume).unwrap();
    drop(volume);
    let mut state = 1u64;
    let mut next = |limit: usize| {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % limit
    };
    let zones = device.report(0..device.geometry().zone_count).unwrap();
    let (mut refused, mut partial, mut whole) = (0, 0, 0);
    for (zone, info) in zones.iter().enumerate() {
        for block in 0..info.write_pointer {
            let damaged = Arc::new(device.snapshot().intact());
            let at = Addr::new(DeviceId(0), ZoneId(zone as u32), block);
            let (byte, mask) = (next(BLOCK_SIZE), 1 << next(8));
            assert!(damaged.corrupt(at.zone(), block, byte, mask));
            let Ok((volume, _)) = Volume::open(damaged, Options::default()) else {
                refused += 1;
                continue;
            };
            let Ok(files) = read_all(&volume) else {
                partial += 1;
                continue;
            };
            assert_eq!(files.len(), truth.len(), "{at}, byte {byte}");
            let mut bad = 0;
            for (ino, found) in &files {
                match found {
                    Some(bytes) => assert!(truth[ino].as_ref() == Some(bytes), "{at}, inode {ino}"),
                    None => bad += 1,
                }
            }
            if bad > 0 { partial += 1 } else { whole += 1 }
        }
    }
    assert!(
        refused > 5 && partial > 5 && whole > 5,
        "{refused} {partial} {whole}"
    );
}

/// The header of the newest log zone went bad: the zone before it ends in an orderly way, and a
/// mount that believed it would lose, without a word, all that was synced since.
#[test]
fn a_lost_log_zone_is_not_passed_over() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 64).host_file()));
    Volume::format(device.clone(), &FormatOptions::default()).unwrap();
    let volume = open(&device);
    let file = add(&volume, ROOT, "file", FILE);
    let log_zones = || {
        let inspector = Inspector::open(&*device).unwrap();
        match dump(&inspector, &Target::Log).unwrap() {
            Dump::Log(log) => log.zones,
            other => panic!("{other:?}"),
        }
    };
    // Until the log has gone on to a zone that the newest footer is not in, and then some more.
    let mut round = 0;
    let mut beyond = 0;
    while beyond < 5 {
        volume
            .write(file, round * 100, &content(round, 100), now(1))
            .unwrap();
        volume.sync_file(file).unwrap();
        round += 1;
        let newest = log_zones().last().unwrap().zone;
        let footer = crate::support::addr(&crate::support::footer(&device).addr);
        beyond = if newest == footer.zone().0 {
            0
        } else {
            beyond + 1
        };
        assert!(round < 2000, "the log stays in one zone");
    }
    // Not closed: that may write a checkpoint.
    let truth = read_all(&volume).unwrap();
    drop(volume);
    let newest = log_zones().last().unwrap().zone;
    assert!(device.corrupt(ZoneId(newest), 0, 70, 1));
    let found = crate::support::numbers(&crate::support::report(&device, true));
    assert!(found.contains(&101), "{found:?}");
    assert_same_content(&device);
    let volume = open(&device);
    assert_eq!(read_all(&volume).unwrap(), truth);
}
