//! Blocks that files share: the store of them, the extents that name its blocks, and their counts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::{
    FILE, add, add_some, addr, assert_right, assert_sound, change, content, engine_items, footer,
    formatted_shared, mend, now, numbers, open, report, reseal, text,
};
use persimmon_device::{BufferMut, ZonedDevice};
use persimmon_engine::{CloneRange, CloneWhen, Error, Task, Transaction, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::footer::Footer;
use persimmon_format::inode::{ROOT, SHARED};
use persimmon_format::references::References;
use persimmon_format::table::Role;
use persimmon_format::zone_header::{self, ZoneHeader};
use persimmon_format::{Addr, BLOCK_SIZE, Ino, Key, KeyKind, ZoneId};
use persimmon_inspect::Inspector;
use persimmon_inspect::dump::{Dump, Target, dump};
use persimmon_sim::SimDevice;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const BLOCK: u64 = BLOCK_SIZE as u64;

fn clone(volume: &Volume, from: (Ino, u64), to: (Ino, u64), blocks: u64) -> u64 {
    let range = CloneRange {
        from: from.0,
        from_offset: from.1 * BLOCK,
        to: to.0,
        to_offset: to.1 * BLOCK,
        len: blocks * BLOCK,
        when: CloneWhen::Always,
    };
    volume.clone_range(&range, now(7)).unwrap().bytes / BLOCK
}

#[test]
fn volumes_with_clones_are_sound() {
    let mut shared = 0;
    for seed in 0..6 {
        let device = formatted_shared();
        let mut volume = open(&device);
        let mut rng = StdRng::seed_from_u64(seed);
        let files = add_some(&volume, &mut rng, 4);
        for step in 0..120 {
            let mut file = || files[rng.random_range(0..files.len())];
            let (one, other) = (file(), file());
            let (at, to) = (rng.random_range(0..150), rng.random_range(0..150));
            let blocks = rng.random_range(1..70);
            match rng.random_range(0..16) {
                0..6 => {
                    let len = blocks as usize * BLOCK_SIZE;
                    let bytes = match rng.random_range(0..2) {
                        0 => text(step + 1, len),
                        _ => content(step + 1, len),
                    };
                    volume.write(one, at * BLOCK, &bytes, now(2)).unwrap();
                    volume.commit_file(one).unwrap();
                }
                6..11 if one != other || at.abs_diff(to) >= blocks => {
                    clone(&volume, (one, at), (other, to), blocks);
                }
                11 => volume
                    .punch(one, at * BLOCK, blocks * BLOCK, now(3))
                    .unwrap(),
                12 => volume.truncate(one, at * BLOCK + 5, now(4)).unwrap(),
                13 => {
                    let zones = volume.zones();
                    let data = zones
                        .iter()
                        .find(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0);
                    if let Some(zone) = data {
                        volume.empty_zones(&[zone.zone]).unwrap();
                    }
                }
                14 => drop(volume.step(Task::Checkpoint).unwrap()),
                _ => volume.sync_file(one).unwrap(),
            }
            if step % 10 == 9 {
                volume.sync().unwrap();
                assert_right(&device);
            }
            if step % 40 == 39 {
                drop(volume);
                volume = open(&device);
                assert_right(&device);
            }
        }
        volume.close().unwrap();
        let found = report(&device, true);
        assert_sound(&found);
        shared += found.counts.shared_blocks;
    }
    assert!(shared > 500, "{shared}");
}

/// Frames that were written piece by piece are one extent where they lie behind each other. All of it was shared with a part of it, so
/// that what a replay gave depended on how frames had been joined.
#[test]
fn of_a_frame_the_blocks_of_the_range_alone_are_shared() {
    let device = formatted_shared();
    let volume = open(&device);
    let (one, other) = (
        add(&volume, ROOT, "one", FILE),
        add(&volume, ROOT, "other", FILE),
    );
    volume.step(Task::Checkpoint).unwrap();
    for piece in 0..6 {
        let bytes = content(piece + 1, 4 * BLOCK_SIZE);
        volume
            .write(one, piece * 4 * BLOCK, &bytes, now(2))
            .unwrap();
        volume.commit_file(one).unwrap();
    }
    assert_eq!(clone(&volume, (one, 9), (other, 0), 2), 2);
    volume.sync().unwrap();
    let shared = |items: &BTreeMap<Key, Vec<u8>>| {
        let extents = items
            .range(Key::extent(one, 0)..=Key::extent(one, u64::MAX))
            .map(|(key, value)| (key.item, Extent::decode(value).unwrap()));
        Vec::from_iter(extents)
    };
    let of_one = shared(&engine_items(&device));
    let lengths: Vec<_> = of_one
        .iter()
        .map(|(block, extent)| {
            let is_shared = matches!(extent, Extent::Shared { .. });
            (*block, extent.blocks(), is_shared)
        })
        .collect();
    assert_eq!(lengths, [(0, 9, false), (9, 2, true), (11, 13, false)]);
    assert_right(&device);
    // What is left on both sides is shared later.
    assert_eq!(clone(&volume, (one, 0), (other, 30), 24), 24);
    volume.sync().unwrap();
    let all_shared = |(_, extent): &(u64, Extent)| matches!(extent, Extent::Shared { .. });
    assert!(shared(&engine_items(&device)).iter().all(all_shared));
    assert_right(&device);
    volume.step(Task::Checkpoint).unwrap();
    assert_right(&device);
}

/// Two files with 40 blocks each, of which they share those from 10 to 30: of the first all are in the store, from [`Shared::at`] on.
struct Shared {
    device: Arc<SimDevice>,
    volume: Volume,
    one: Ino,
    other: Ino,
    at: u64,
    /// Where block `at` lies.
    addr: Addr,
}

fn shared() -> Shared {
    let device = formatted_shared();
    let volume = open(&device);
    let [one, other] = ["one", "other"].map(|name| {
        let ino = add(&volume, ROOT, name, FILE);
        let bytes = content(ino.0, 40 * BLOCK_SIZE);
        volume.write(ino, 0, &bytes, now(2)).unwrap();
        volume.commit_file(ino).unwrap();
        ino
    });
    // Both have all of them, until one writes its own again.
    assert_eq!(clone(&volume, (one, 0), (other, 0), 40), 40);
    for start in [0, 30] {
        let bytes = content(other.0 + 1, 10 * BLOCK_SIZE);
        volume.write(other, start * BLOCK, &bytes, now(2)).unwrap();
        volume.commit_file(other).unwrap();
    }
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(report(&device, true).findings, []);
    let items = engine_items(&device);
    let of_store = items.range(Key::extent(SHARED, 0)..=Key::extent(SHARED, u64::MAX));
    let of_store: Vec<_> = of_store
        .map(|(key, value)| (key.item, Extent::decode(value).unwrap()))
        .collect();
    let [(at, Extent::Frame { addr, crcs })] = &of_store[..] else {
        panic!("{of_store:?}")
    };
    assert_eq!(crcs.len(), 40);
    let count = items[&Key::references(at + 10)].clone();
    let expected = References {
        blocks: 20,
        count: 2,
    };
    assert_eq!(References::decode(at + 10, &count), Ok(expected));
    Shared {
        device,
        volume,
        one,
        other,
        at: *at,
        addr: *addr,
    }
}

/// Breaks the volume, and expects these findings: from the journal (but that there is one), and from a checkpoint. Nothing but those of
/// `left` is left after a repair. Items put by hand are in no count of zones.
fn broken(
    [journal, checkpointed, left]: [&[u16]; 3],
    mut f: impl FnMut(&mut Transaction<'_>, &Shared) -> persimmon_engine::Result<()>,
) -> Shared {
    let shared = shared();
    change(&shared.volume, |tx| f(tx, &shared));
    shared.volume.sync().unwrap();
    let found = report(&shared.device, true);
    let sorted = |numbers: &[u16]| {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        numbers
    };
    let mut told = sorted(&numbers(&found));
    assert_eq!(told.remove(0), 206);
    assert_eq!(told, sorted(journal), "{:#?}", found.findings);
    shared.volume.step(Task::Checkpoint).unwrap();
    let found = report(&shared.device, true);
    let told = sorted(&numbers(&found));
    assert_eq!(told, sorted(checkpointed), "{:#?}", found.findings);
    let mended = mend(&shared.device);
    assert_eq!(numbers(&mended), left, "{:#?}", mended.findings);
    shared
}

fn put_count(tx: &mut Transaction<'_>, at: u64, blocks: u32, count: u32) {
    tx.put(Key::references(at), References { blocks, count }.encode());
}

#[test]
fn a_wrong_count_is_found() {
    for (blocks, count) in [(20, 3), (20, 200), (19, 2), (21, 2), (5, 7)] {
        let expected: &[u16] = match (blocks, count) {
            // Some blocks have no count then, and others one that is wrong.
            (5, 7) => &[534, 534],
            _ => &[534],
        };
        broken([expected, expected, &[]], |tx, shared| {
            put_count(tx, shared.at + 10, blocks, count);
            Ok(())
        });
    }
    broken([&[534], &[534], &[]], |tx, shared| {
        tx.delete(Key::references(shared.at + 10));
        Ok(())
    });
    // Of blocks that the store does not have: behind its own, and far away.
    for place in [40, 5000] {
        broken([&[534], &[534], &[]], |tx, shared| {
            put_count(tx, shared.at + place, 7, 2);
            Ok(())
        });
    }
}

#[test]
fn counts_that_overlap_are_found() {
    broken([&[535], &[535], &[]], |tx, shared| {
        put_count(tx, shared.at + 12, 18, 2);
        Ok(())
    });
    // What the second covers alone is wrong, too.
    broken([&[535, 534], &[535, 534], &[]], |tx, shared| {
        put_count(tx, shared.at + 25, 10, 9);
        Ok(())
    });
}

#[test]
fn a_count_that_is_none_is_found() {
    broken([&[502, 534], &[502, 534], &[]], |tx, shared| {
        tx.put(
            Key::references(shared.at + 10),
            vec![20, 0, 0, 0, 1, 0, 0, 0],
        );
        Ok(())
    });
}

#[test]
fn shared_blocks_that_no_file_has_are_found() {
    let shared = broken([&[534, 513], &[534, 513], &[]], |tx, shared| {
        // One file less has some of them.
        let extent = Extent::Shared {
            at: shared.at + 10,
            blocks: 15,
            frame: None,
        };
        tx.put(Key::extent(shared.other, 10), extent.encode());
        Ok(())
    });
    drop(shared);
    for (file, blocks) in [(30, 10), (33, 3)] {
        broken([&[533, 513], &[533, 513], &[]], |tx, shared| {
            // And of these none has any.
            let key = Key::extent(shared.one, 0);
            let whole = Extent::Shared {
                at: shared.at,
                blocks: 40,
                frame: None,
            };
            tx.put(key, whole.part(0, file).encode());
            let rest = whole.part(file + blocks, 40);
            if rest.blocks() > 0 {
                tx.put(Key::extent(shared.one, file + blocks), rest.encode());
            }
            Ok(())
        });
    }
}

/// A repair was cut off, by the limit of a plan or the power, between the parts of what it put in the place of an extent: the rest of it was gone.
#[test]
fn a_repair_that_ends_between_two_parts_loses_nothing() {
    for taken in 0.. {
        let Shared {
            device,
            volume,
            one,
            other,
            at,
            ..
        } = shared();
        let mut truth = vec![0; 40 * BLOCK_SIZE];
        volume.read(one, 0, &mut truth).unwrap();
        // Of blocks 10 to 15 no file has any.
        let whole = Extent::Shared {
            at,
            blocks: 40,
            frame: None,
        };
        change(&volume, |tx| {
            tx.put(Key::extent(one, 0), whole.part(0, 10).encode());
            tx.put(Key::extent(one, 15), whole.part(15, 25).encode());
            Ok(())
        });
        volume.truncate(other, 0, now(9)).unwrap();
        volume.step(Task::Checkpoint).unwrap();
        drop(volume);
        let repairs = report(&device, true).repairs;
        if taken > repairs.ops.len() {
            assert!(taken > 3, "{repairs:#?}");
            return;
        }
        let volume = open(&device);
        volume.repair(&repairs.ops[..taken], false, true).unwrap();
        volume.close().unwrap();
        drop(volume);
        assert_eq!(mend(&device).findings, [], "{taken} of {repairs:#?}");
        let mut found = vec![0; truth.len()];
        open(&device).read(one, 0, &mut found).unwrap();
        truth[10 * BLOCK_SIZE..15 * BLOCK_SIZE].fill(0);
        assert!(found == truth, "{taken} of {repairs:#?}");
    }
}

#[test]
fn shared_blocks_that_are_not_there_are_found() {
    // All of the store is gone: three extents of files name what was in it.
    let shared = broken(
        [&[534, 532, 532], &[534, 532, 532, 322], &[]],
        |tx, shared| {
            tx.delete(Key::extent(SHARED, shared.at));
            Ok(())
        },
    );
    let mut block = vec![1; BLOCK_SIZE];
    let volume = open(&shared.device);
    volume.read(shared.other, 12 * BLOCK, &mut block).unwrap();
    assert_eq!(block, [0; BLOCK_SIZE], "a hole is left");
    drop(shared);
    // The blocks of the store that both files have end early: each loses some.
    broken(
        [&[534, 532, 532], &[534, 532, 532, 322], &[]],
        |tx, shared| {
            let stored = Extent::decode(tx.get(&Key::extent(SHARED, shared.at))?.unwrap());
            let part = stored.unwrap().part(0, 25);
            tx.put(Key::extent(SHARED, shared.at), part.encode());
            Ok(())
        },
    );
    // A file names blocks far behind them, past the end that the footer tells; those around what the other has are nobody's.
    let (journal, checkpointed) = (&[534, 533, 533, 532], &[534, 533, 533, 532, 333]);
    broken([journal, checkpointed, &[]], |tx, shared| {
        let extent = Extent::Shared {
            at: shared.at + 1000,
            blocks: 40,
            frame: None,
        };
        tx.put(Key::extent(shared.one, 0), extent.encode());
        Ok(())
    });
}

/// What is read of a block that is not there is an error, until a repair says that it is a hole.
#[test]
fn a_shared_block_that_is_lost_is_no_hole() {
    let shared = shared();
    change(&shared.volume, |tx| {
        tx.delete(Key::extent(SHARED, shared.at));
        Ok(())
    });
    let mut block = vec![1; BLOCK_SIZE];
    let read = shared.volume.read(shared.other, 12 * BLOCK, &mut block);
    assert!(matches!(read, Err(Error::ItemDamaged { .. })), "{read:?}");
    shared.volume.read(shared.other, 0, &mut block).unwrap();
}

/// What was shared next was put behind all that the store had. Where it had lost its last blocks, that was in the place of blocks that
/// files still named: these had the content of another file then.
#[test]
fn a_clone_takes_no_place_that_a_file_names() {
    for with_checkpoint in [false, true] {
        let Shared {
            device,
            mut volume,
            one,
            other,
            at,
            ..
        } = shared();
        change(&volume, |tx| {
            tx.delete(Key::extent(SHARED, at));
            tx.delete(Key::references(at + 10));
            Ok(())
        });
        volume.sync().unwrap();
        if with_checkpoint {
            volume.step(Task::Checkpoint).unwrap();
        }
        drop(volume);
        volume = open(&device);
        let third = add(&volume, ROOT, "third", FILE);
        let bytes = content(third.0, 40 * BLOCK_SIZE);
        volume.write(third, 0, &bytes, now(2)).unwrap();
        assert_eq!(clone(&volume, (third, 0), (other, 50), 40), 40);
        let mut block = vec![1; BLOCK_SIZE];
        for block_of_one in [0, 12, 39] {
            let read = volume.read(one, block_of_one * BLOCK, &mut block);
            assert!(matches!(read, Err(Error::ItemDamaged { .. })), "{read:?}");
        }
        volume.sync().unwrap();
        drop(volume);
        let mended = mend(&device);
        assert_eq!(mended.findings, []);
        let volume = open(&device);
        let mut read = vec![0; bytes.len()];
        volume.read(third, 0, &mut read).unwrap();
        assert!(read == bytes);
        volume.read(other, 50 * BLOCK, &mut read).unwrap();
        assert!(read == bytes);
    }
}

/// A footer that tells too small an end of the shared blocks.
#[test]
fn an_end_of_the_shared_blocks_that_is_too_small_is_found() {
    let Shared { device, volume, .. } = shared();
    volume.close().unwrap();
    drop(volume);
    let at = addr(&footer(&device).addr);
    reseal(&device, at, |payload| {
        let mut footer = Footer::decode(&payload[48..]).unwrap();
        footer.shared_end -= 1;
        payload.truncate(48);
        payload.extend(footer.encode());
    });
    assert_eq!(numbers(&report(&device, true)), [333]);
    assert_eq!(mend(&device).findings, []);
}

#[test]
fn extents_that_the_store_cannot_have_are_found() {
    let put = |expected: [&[u16]; 3], extent: Extent| {
        broken(expected, |tx, shared| {
            tx.put(Key::extent(SHARED, shared.at + 41), extent.encode());
            Ok(())
        })
    };
    let inline = Extent::Inline(b"content".to_vec());
    // Nobody has it either: it is freed.
    put([&[531, 533], &[531, 533, 333], &[]], inline);
    let shared = Extent::Shared {
        at: 3,
        blocks: 7,
        frame: None,
    };
    put([&[531, 533], &[531, 533, 333], &[]], shared);
    let reserved = Extent::Reserved { blocks: 7 };
    put([&[531, 533], &[531, 332, 533, 333], &[]], reserved);
    // In the place of blocks that files have nothing can be freed.
    let shared = broken([&[531], &[531, 322], &[531]], |tx, shared| {
        let itself = Extent::Shared {
            at: shared.at,
            blocks: 40,
            frame: None,
        };
        tx.put(Key::extent(SHARED, shared.at), itself.encode());
        Ok(())
    });
    // Whoever follows it comes to no end, or says so.
    let volume = open(&shared.device);
    let mut block = vec![0; BLOCK_SIZE];
    volume.read(shared.one, 0, &mut block).unwrap_err();
    volume.truncate(shared.one, 0, now(9)).unwrap();
    volume.truncate(shared.other, 0, now(9)).unwrap();
}

#[test]
fn other_items_of_the_store_are_found() {
    broken([&[503], &[503], &[503]], |tx, _| {
        tx.put(Key::new(SHARED, KeyKind::SYMLINK, 0), b"target".to_vec());
        Ok(())
    });
    // Counts of another inode.
    broken([&[503], &[503], &[503]], |tx, shared| {
        let key = Key::new(shared.one, KeyKind::REFERENCES, 0);
        let references = References {
            blocks: 1,
            count: 2,
        };
        tx.put(key, references.encode());
        Ok(())
    });
}

/// A block of a file is one of the store, too.
#[test]
fn a_block_of_the_store_that_a_file_has_by_itself_is_found() {
    broken([&[523, 513], &[523, 513, 322], &[523]], |tx, shared| {
        let stored = Extent::decode(tx.get(&Key::extent(SHARED, shared.at))?.unwrap());
        let part = stored.unwrap().part(0, 1);
        tx.put(Key::extent(shared.other, 0), part.encode());
        Ok(())
    });
}

/// Damage in the store is told for it, and for each file that has the block.
#[test]
fn a_damaged_shared_block_is_told_for_each_file() {
    let shared = shared();
    let at = shared.addr.offset(15);
    assert!(shared.device.corrupt(at.zone(), at.block(), 100, 4));
    let found = report(&shared.device, true);
    let told: Vec<_> = found
        .findings
        .iter()
        .map(|finding| (finding.number, finding.place.as_str()))
        .collect();
    let places = [
        format!("inode 2, block {}", shared.at + 15),
        format!("inode {}, block 15", shared.one),
        format!("inode {}, block 15", shared.other),
    ];
    assert_eq!(told, places.each_ref().map(|place| (801, place.as_str())));
}

/// With its zone the files that have blocks of it lose them, under their names.
#[test]
fn shared_blocks_in_a_lost_zone_are_told_for_each_file() {
    let shared = shared();
    shared.device.set_offline(shared.addr.zone());
    let found = report(&shared.device, true);
    let lost: Vec<_> = found
        .findings
        .iter()
        .filter(|finding| finding.number == 803)
        .map(|finding| (finding.place.as_str(), finding.message.as_str()))
        .collect();
    let [("/one", first), ("/other", ..)] = lost[..] else {
        panic!("{lost:?}")
    };
    assert!(first.contains("bytes 0 to 163840"), "{first}");
    assert!(
        lost.iter()
            .any(|(_, told)| told.contains("40960 to 122880"))
            || lost.len() == 2
    );
}

/// Without its feature nothing of the volume may share blocks.
#[test]
fn shared_blocks_on_a_volume_without_the_feature_are_found() {
    let shared = shared();
    shared.volume.close().unwrap();
    let Shared { device, .. } = shared;
    let at = addr(&footer(&device).addr);
    reseal(&device, at, |payload| {
        let mut footer = Footer::decode(&payload[48..]).unwrap();
        footer.features.incompatible &= !zone_header::SHARED_BLOCKS;
        payload.truncate(48);
        payload.extend(footer.encode());
    });
    for zone in (0..device.geometry().zone_count).map(ZoneId) {
        let header = device.read(zone, 0, 1).ok();
        if let Some(mut header) = header.and_then(|block| ZoneHeader::decode(&block).ok()) {
            header.volume.incompatible &= !zone_header::SHARED_BLOCKS;
            let mut block = BufferMut::zeroed(1);
            block.copy_from_slice(&header.encode());
            assert!(device.replace(zone, 0, block.freeze()));
        }
    }
    let found = numbers(&report(&device, true));
    assert_eq!(found, [502; 3], "the store, and an extent of each file");
}

#[test]
fn shared_blocks_are_shown() {
    let shared = shared();
    assert_eq!(
        clone(&shared.volume, (shared.one, 0), (shared.other, 0), 3),
        3
    );
    shared.volume.sync().unwrap();
    let inspector = Inspector::open(&*shared.device).unwrap();
    let extents = |ino| match dump(&inspector, &Target::Extents(ino)).unwrap() {
        Dump::Extents(rows) => rows,
        other => panic!("{other:?}"),
    };
    let rows = extents(shared.one);
    let row = (rows[0].kind, rows[0].blocks, rows[0].shared);
    assert_eq!((rows.len(), row), (1, ("shared", 40, Some(shared.at))));
    assert_eq!(extents(SHARED)[0].kind, "frame");
    let all = Target::Keys {
        from: Some(Key::new(SHARED, KeyKind(0), 0)),
        to: None,
    };
    let Dump::Keys(rows) = dump(&inspector, &all).unwrap() else {
        panic!("no items")
    };
    let shown: Vec<_> = rows.iter().map(|row| row.value.0.as_str()).collect();
    assert!(shown.contains(&"20 blocks, 2 times"), "{shown:?}");
    let text = format!("shared blocks {}..{}", shared.at, shared.at + 40);
    assert!(shown.contains(&text.as_str()), "{shown:?}");
    let Dump::Log(log) = dump(&inspector, &Target::Log).unwrap() else {
        panic!("no log")
    };
    let text = format!(
        "share inode {}, blocks 0..3, with inode {}, block 0: ",
        shared.one, shared.other
    );
    let log = format!("{log:?}");
    assert!(log.contains(&text), "{log}");
}
