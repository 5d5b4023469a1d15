//! Compressed frames of several blocks, and what files have left of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::{
    add_compressed, addr, assert_sound, change, footer, formatted_on, mend, now, numbers, open,
    report, reseal, text,
};
use persimmon_device::{BufferMut, ZonedDevice};
use persimmon_engine::{Error, Options, Task, Volume};
use persimmon_format::compression::{Codec, Compression};
use persimmon_format::extent::Extent;
use persimmon_format::footer::Footer;
use persimmon_format::inode::ROOT;
use persimmon_format::packed::{COMPRESSED_BLOCKS_MAX, Packed};
use persimmon_format::zone_header::{FRAMES, ZoneHeader};
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, Ino, Key, KeyKind, ZoneId};
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_inspect::{CheckOptions, Inspector, check};
use persimmon_sim::{SimConfig, SimDevice};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A device whose zones are large enough for the longest frames.
fn formatted() -> Arc<SimDevice> {
    formatted_on(
        SimDevice::new(SimConfig::new(16, 2560).capacity(2500).host_file()),
        1,
    )
}

/// Packed extents of a file by their first block.
type Parts = Vec<(u64, Packed)>;

fn parts(volume: &Volume, ino: Ino) -> Parts {
    let mut parts = Vec::new();
    let scanned = volume.view::<_, Error>(|view| {
        parts.clear();
        view.scan(
            Key::extent(ino, 0)..Key::extent(ino, 1 << 40),
            |key, value| {
                if key.ino != ino || key.kind != KeyKind::EXTENT {
                    return Ok(ControlFlow::Break(()));
                }
                if let Ok(Extent::Packed(packed)) = Extent::decode(value) {
                    parts.push((key.item, packed));
                }
                Ok(ControlFlow::Continue(()))
            },
        )
    });
    scanned.unwrap();
    parts
}

fn write(volume: &Volume, ino: Ino, block: u64, blocks: usize) {
    let bytes = text(block + 1, blocks * BLOCK_SIZE);
    volume.write(ino, block * BLOCK, &bytes, now(2)).unwrap();
    volume.commit_file(ino).unwrap();
}

/// A volume with two files, each of a whole frame but for the block at 3, and the parts of the first.
fn broken_up() -> (Arc<SimDevice>, Volume, [Ino; 2], Parts) {
    let device = formatted();
    let volume = open(&device);
    let files = [("one", Compression::Zstd(1)), ("other", Compression::Lz4)].map(|(name, how)| {
        let ino = add_compressed(&volume, ROOT, name, how);
        write(&volume, ino, 0, COMPRESSED_BLOCKS_MAX);
        volume
            .write(ino, 3 * BLOCK, &[1; BLOCK_SIZE], now(3))
            .unwrap();
        volume.commit_file(ino).unwrap();
        ino
    });
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let found = parts(&volume, files[0]);
    let [(0, first), .., (4, second)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert!(first.shares_frame(second) && first.frame.codec == Codec::Zstd);
    assert_eq!((first.blocks, second.skip, second.blocks), (3, 4, 28));
    let parts = vec![(0, *first), (4, *second)];
    (device, volume, files, parts)
}

#[test]
fn a_volume_with_parts_of_frames_is_sound() {
    let (device, volume, [one, other], _) = broken_up();
    let checkpointed = report(&device, true);
    assert_eq!(checkpointed.findings, []);
    // Both files, but for a block of each that was written again: that may lie packed in the tree.
    assert!(checkpointed.counts.packed_blocks >= 62);
    assert_eq!(
        checkpointed.counts.data_blocks,
        checkpointed.counts.data_blocks_verified
    );
    // Again from records: parts of parts, nothing left of a frame, frames in records.
    for (ino, block, blocks) in [(one, 10, 1), (one, 8, 4), (other, 0, 20), (other, 31, 9)] {
        write(&volume, ino, block, blocks);
        volume
            .punch(ino, (block + 1) * BLOCK, BLOCK, now(4))
            .unwrap();
        volume.commit_file(ino).unwrap();
        volume.sync().unwrap();
        let found = report(&device, true);
        assert_eq!(numbers(&found), [206], "{:#?}", found.findings);
        assert_eq!(found.counts.data_blocks, found.counts.data_blocks_verified);
    }
    volume.truncate(one, 6 * BLOCK + 1, now(5)).unwrap();
    volume.sync().unwrap();
    assert_sound(&report(&device, true));
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(report(&device, true).findings, []);
    volume.step(Task::Clean).unwrap();
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(report(&device, true).findings, []);
}

/// Each field of a part, changed alone: the findings in the journal, and what they are when a checkpoint has it.
#[test]
fn each_field_of_a_part_that_is_wrong_is_found() {
    type Change = fn(&mut Packed);
    let cases: &[(&str, &[u16], Change)] = &[
        ("codec", &[523, 801], |part| part.frame.codec = Codec::Lz4),
        ("frame blocks", &[523, 801], |part| {
            part.frame.blocks -= 1;
            part.blocks -= 1;
        }),
        ("skip", &[523], |part| {
            part.skip -= 1;
        }),
        ("length", &[523, 801], |part| part.frame.len -= 1),
        ("checksum", &[523, 801], |part| part.frame.crc ^= 1),
        ("unit", &[523, 801], |part| part.unit ^= 1),
        // It reaches into the frame behind it, too.
        ("address", &[523, 801, 523], |part| {
            part.addr = part.addr.offset(1);
        }),
        ("address in no written zone", &[522], |part| {
            part.addr = Addr::new(DeviceId(0), ZoneId(12), 5);
        }),
        ("address in no zone", &[522], |part| {
            part.addr = Addr::new(DeviceId(0), ZoneId(99), 5);
        }),
    ];
    for (name, expected, change_part) in cases {
        let (device, volume, [one, _], parts) = broken_up();
        let (block, mut part) = parts[1];
        change_part(&mut part);
        change(&volume, |tx| {
            tx.put(Key::extent(one, block), Extent::Packed(part).encode());
            Ok(())
        });
        volume.sync().unwrap();
        // Zones and sectors count what is left of the frame too, where that changes.
        let mut found = numbers(&report(&device, true));
        found.retain(|number| ![206, 513].contains(number));
        assert_eq!(found, *expected, "{name}");
        volume.step(Task::Checkpoint).unwrap();
        let mut found = numbers(&report(&device, true));
        found.retain(|number| ![101, 322, 513].contains(number));
        assert_eq!(found, *expected, "{name}, in a checkpoint");
    }
}

/// Where a part is put, and which.
type Put = dyn Fn([Ino; 2], &[(u64, Packed)]) -> (Key, Packed);

/// What a file has of a frame is other than is counted: the blocks of a part, its file, and where it lies in that.
#[test]
fn parts_that_are_not_those_of_one_file_are_found() {
    let put = |expected: &[u16], checkpointed: &[u16], f: &Put| {
        let (device, volume, files, parts) = broken_up();
        let (key, part) = f(files, &parts);
        change(&volume, |tx| {
            tx.put(key, Extent::Packed(part).encode());
            Ok(())
        });
        volume.sync().unwrap();
        let found = report(&device, true);
        assert_eq!(numbers(&found), expected, "{:#?}", found.findings);
        volume.step(Task::Checkpoint).unwrap();
        let found = report(&device, true);
        assert_eq!(numbers(&found), checkpointed, "{:#?}", found.findings);
        drop(volume);
        let left = numbers(&mend(&device));
        // What is past the end is freed, and with it what was shared; what is counted wrong is counted again.
        let is_freed = checkpointed.contains(&524);
        let stays = |number: &&u16| !is_freed && ![322, 513].contains(*number);
        let stay: Vec<u16> = checkpointed.iter().filter(stays).copied().collect();
        assert_eq!(left, stay);
    };
    // Fewer blocks than are counted.
    put(&[206, 513], &[513, 322], &|[one, _], parts| {
        (Key::extent(one, 4), parts[1].1.part(0, 4))
    });
    // A block of the frame twice, in the blocks of the file that it is for: they overlap.
    put(
        &[206, 521, 523, 521, 523],
        &[521, 523, 521, 523],
        &|[one, _], parts| {
            (
                Key::extent(one, 2),
                parts[0].1.part(2, 1).whole().part(2, 4),
            )
        },
    );
    // Past them.
    put(
        &[206, 523, 513, 524],
        &[523, 513, 524, 322],
        &|[one, _], parts| (Key::extent(one, 40), parts[0].1),
    );
    // In another file.
    put(
        &[206, 523, 513, 524],
        &[523, 513, 524, 322],
        &|[_, other], parts| (Key::extent(other, 36), parts[1].1),
    );
    // Before the file begins.
    put(&[206, 502, 513], &[502, 513, 322], &|[one, _], parts| {
        (Key::extent(one, 0), parts[1].1.part(0, 3))
    });
}

#[test]
fn sectors_off_by_a_share_of_a_frame_are_found() {
    for more in [true, false] {
        let (device, volume, [one, _], _) = broken_up();
        change(&volume, |tx| {
            let mut inode = tx.inode(one)?.unwrap();
            inode.sectors = if more {
                inode.sectors + 1
            } else {
                inode.sectors - 1
            };
            tx.put_inode(one, &inode);
            Ok(())
        });
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        drop(volume);
        assert_eq!(numbers(&report(&device, true)), [513]);
        assert_eq!(mend(&device).findings, []);
    }
}

/// Without its feature nothing of the volume may need it.
#[test]
fn parts_of_frames_on_a_volume_without_the_feature_are_found() {
    let (device, volume, ..) = broken_up();
    volume.close().unwrap();
    drop(volume);
    let at = addr(&footer(&device).addr);
    reseal(&device, at, |payload| {
        let mut footer = Footer::decode(&payload[48..]).unwrap();
        footer.features.incompatible &= !FRAMES;
        payload.truncate(48);
        payload.extend(footer.encode());
    });
    for zone in (0..device.geometry().zone_count).map(ZoneId) {
        let header = device.read(zone, 0, 1).ok();
        if let Some(mut header) = header.and_then(|block| ZoneHeader::decode(&block).ok()) {
            header.volume.incompatible &= !FRAMES;
            let mut block = BufferMut::zeroed(1);
            block.copy_from_slice(&header.encode());
            assert!(device.replace(zone, 0, block.freeze()));
        }
    }
    let found = numbers(&report(&device, true));
    assert_eq!(
        found, [502; 5],
        "two parts of two files, and a block with Zstandard"
    );
}

/// The checksum over the compressed bytes tells whether a frame arrived; a record whose frame did not ends the history, for both.
#[test]
fn a_record_ends_the_history_where_its_frame_is_not_there() {
    let config = SimConfig::new(16, 2560).capacity(2500);
    history_ends(&formatted_on(SimDevice::new(config.clone().host_file()), 1));
    // Write pointers are proof, but for the last block: it may have been torn.
    history_ends(&formatted_on(SimDevice::new(config), 1));
}

fn history_ends(device: &Arc<SimDevice>) {
    let volume = open(device);
    let ino = add_compressed(&volume, ROOT, "file", Compression::Zstd(3));
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    let before = text(1, COMPRESSED_BLOCKS_MAX * BLOCK_SIZE);
    volume.write(ino, 0, &before, now(2)).unwrap();
    volume.sync_file(ino).unwrap();
    write(&volume, ino, 32, 32);
    volume.sync_file(ino).unwrap();
    let [(0, _), (32, last)] = parts(&volume, ino)[..] else {
        panic!("two frames")
    };
    // Durable is what the newest block says: that there are records behind the first.
    for byte in [0, last.frame.len as usize - 1] {
        let crashed = device.snapshot().intact();
        let at = last.start() + byte;
        let block = last.addr.block() + (at / BLOCK_SIZE) as u32;
        assert!(crashed.corrupt(last.addr.zone(), block, at % BLOCK_SIZE, 1));
        let crashed = Arc::new(crashed);
        let found = report(&crashed, true);
        let size = |device: &Arc<SimDevice>| {
            let inspector = Inspector::open(&**device).unwrap();
            match dump(&inspector, &Target::Inode(ino)).unwrap() {
                Dump::Inode(inode) => inode.size,
                other => panic!("{other:?}"),
            }
        };
        let seen = size(&crashed);
        let options = Options {
            read_only: true,
            ..Options::default()
        };
        let (recovered, _) = Volume::open(crashed.clone(), options).unwrap();
        assert_eq!(recovered.attr(ino).unwrap().unwrap().size, seen);
        if seen == 32 * BLOCK {
            assert_eq!(numbers(&found), [205, 206]);
            let mut read = vec![0; before.len()];
            recovered.read(ino, 0, &mut read).unwrap();
            assert!(read == before);
        } else {
            panic!("{:#?}", found.findings);
        }
    }
}

/// What a dump shows of a part, and of a summary with frames of several blocks.
#[test]
fn parts_and_frames_are_shown() {
    let (device, volume, [one, _], parts) = broken_up();
    volume.close().unwrap();
    let inspector = Inspector::open(&*device).unwrap();
    let Dump::Extents(rows) = dump(&inspector, &Target::Extents(one)).unwrap() else {
        panic!("no extents")
    };
    let row = rows.iter().find(|row| row.file_block == 4).unwrap();
    assert_eq!(
        (
            row.kind,
            row.blocks,
            row.codec,
            row.frame_blocks,
            row.frame_skip
        ),
        ("packed", 28, Some("zstd"), Some(32), Some(4))
    );
    let Dump::Inode(inode) = dump(&inspector, &Target::Inode(one)).unwrap() else {
        panic!("no inode")
    };
    assert_eq!(inode.compression.as_deref(), Some("zstd:1"));
    let frame = parts[0].1;
    let summaries = dump(&inspector, &Target::Summaries(frame.addr.zone())).unwrap();
    let Dump::Summaries(summaries) = summaries else {
        panic!("no summaries")
    };
    let mut packed = summaries.iter().flat_map(|summary| &summary.packed);
    let row = packed.find(|row| row.zone_block == frame.addr.block() && row.start == frame.start());
    let row = row.unwrap();
    assert_eq!((row.codec, row.blocks, row.ino), ("zstd", 32, one.0));
    assert_eq!(row.bytes, frame.frame.len);
}

/// One frame, of which a byte is damaged: every part of it is told, and nothing else.
#[test]
fn a_damaged_frame_is_told_for_each_of_its_parts() {
    let (device, volume, [one, _], parts) = broken_up();
    volume.close().unwrap();
    let frame = parts[0].1;
    assert!(device.corrupt(frame.addr.zone(), frame.addr.block() + 1, 100, 4));
    let options = CheckOptions {
        data: true,
        ..CheckOptions::default()
    };
    let report = check(&*device, &options, &mut |_| {}).unwrap();
    let places: Vec<_> = report
        .findings
        .iter()
        .map(|f| (f.number, f.place.as_str()))
        .collect();
    let told = [0, 4].map(|block| format!("inode {one}, block {block}"));
    assert_eq!(places, [(801, told[0].as_str()), (801, told[1].as_str())]);
}
