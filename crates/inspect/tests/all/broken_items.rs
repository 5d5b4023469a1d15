//! Each rule about items and names, broken on purpose through the engine, is found: as of the
//! checkpoint, and as of after the replay.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::support::{
    DIRECTORY, FILE, add, add_symlink, add_xattr, change, content, formatted, mend, now, numbers,
    open, report,
};
use persimmon_engine::{Error, Result, Task, Transaction, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{FLAG_XATTRS, Inode, ROOT};
use persimmon_format::name::{DirEntry, first_item};
use persimmon_format::packed::Packed;
use persimmon_format::xattr::{Pieces, Xattr, XattrValue, cut, piece_key};
use persimmon_format::{Addr, DeviceId, Ino, Key, KeyKind, VersionId, ZoneId};
use persimmon_inspect::Report;
use persimmon_sim::SimDevice;

/// What only a copy of the file, or a person, can put right.
const UNMENDABLE: &[u16] = &[503, 543, 511, 514, 521, 522, 523];

/// Inodes to break things on.
struct Cast {
    directory: Ino,
    inner: Ino,
    file: Ino,
    other: Ino,
    link: Ino,
}

/// Makes a sound volume, breaks it in one transaction, and expects exactly these findings,
/// before and after the next checkpoint.
fn broken(expected: &[u16], f: impl FnMut(&mut Transaction<'_>, &Cast) -> Result<()>) {
    broken_twice(expected, expected, f);
}

/// The same with other findings after the checkpoint: the engine does not count the blocks of an
/// extent that was put by hand.
fn broken_twice(
    expected: &[u16],
    checkpointed: &[u16],
    mut f: impl FnMut(&mut Transaction<'_>, &Cast) -> Result<()>,
) {
    let device = formatted();
    let volume = open(&device);
    let directory = add(&volume, ROOT, "directory", DIRECTORY);
    let cast = Cast {
        directory,
        inner: add(&volume, directory, "inner", DIRECTORY),
        file: add(&volume, directory, "file", FILE),
        other: add(&volume, ROOT, "other", FILE),
        link: add_symlink(&volume, ROOT, "link", "target"),
    };
    for ino in [cast.file, cast.other] {
        volume
            .write(ino, 0, &content(ino.0, 40_000), now(1))
            .unwrap();
        volume.commit_file(ino).unwrap();
    }
    add_xattr(&volume, cast.file, "user.a", b"value");
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(report(&device, true).findings, []);
    change(&volume, |tx| f(tx, &cast));
    let mended = found_and_mended(&device, volume, expected, checkpointed);
    // A link without any target stays one: nobody knows where it led.
    let expected: Vec<u16> = checkpointed
        .iter()
        .copied()
        .filter(|number| {
            UNMENDABLE.contains(number) || (*number == 515 && !has_target(&device, cast.link))
        })
        .collect();
    let left = numbers(&mended);
    assert_eq!(left, expected, "{:#?}", mended.findings);
}

/// Expects exactly these findings of a volume that was broken, from its journal and after the next checkpoint. What is left once it is mended.
fn found_and_mended(
    device: &Arc<SimDevice>,
    volume: Volume,
    expected: &[u16],
    checkpointed: &[u16],
) -> Report {
    volume.sync().unwrap();
    let mut replayed = vec![206];
    replayed.extend_from_slice(expected);
    assert_eq!(numbers(&report(device, true)), replayed, "in the journal");
    volume.step(Task::Checkpoint).unwrap();
    let found = report(device, true);
    assert_eq!(numbers(&found), checkpointed, "{:#?}", found.findings);
    drop(volume);
    mend(device)
}

fn has_target(device: &Arc<SimDevice>, link: Ino) -> bool {
    let target = Key::new(link, KeyKind::SYMLINK, 0);
    let volume = open(device);
    let has: Result<bool> = volume.view(|view| Ok(view.get(&target)?.is_some()));
    has.unwrap()
}

fn change_inode(tx: &mut Transaction<'_>, ino: Ino, f: impl FnOnce(&mut Inode)) -> Result<()> {
    let mut inode = tx.inode(ino)?.unwrap();
    f(&mut inode);
    tx.put_inode(ino, &inode);
    Ok(())
}

/// An inode has an attribute more.
fn counts(inode: &mut Inode, xattr: &Xattr<'_>) {
    inode.xattr_names += Xattr::listed_len(xattr.name);
    inode.sectors += xattr.sectors();
}

/// Puts an entry as it should be, but for what the caller chooses.
fn put_entry(tx: &mut Transaction<'_>, directory: Ino, name: &[u8], ino: Ino, file_type: u8) {
    let entry = DirEntry {
        ino,
        file_type,
        name,
    };
    let item = first_item(tx.key(), name) + 9;
    let key = Key::new(directory, KeyKind::DIR_ENTRY, item);
    tx.put(key, entry.encode());
}

fn entry_key(tx: &Transaction<'_>, directory: Ino, name: &str) -> Key {
    let item = first_item(tx.key(), name.as_bytes());
    Key::new(directory, KeyKind::DIR_ENTRY, item)
}

#[test]
fn items_without_an_inode() {
    broken(&[501], |tx, _| {
        tx.put(Key::new(Ino(7), KeyKind::SYMLINK, 0), b"x".to_vec());
        Ok(())
    });
}

#[test]
fn a_value_that_is_none() {
    broken(&[502, 611], |tx, _| {
        tx.put(Key::new(ROOT, KeyKind::DIR_ENTRY, 1000), vec![1, 2]);
        Ok(())
    });
}

#[test]
fn keys_of_another_format() {
    broken(&[503, 543, 503], |tx, cast| {
        tx.put(Key::new(Key::GLOBAL, KeyKind(55), 0), vec![1, 2]);
        tx.put(Key::new(cast.file, KeyKind(55), 0), vec![1, 2]);
        let version = Key::inode(cast.file).at(VersionId(3));
        tx.put(version, Inode::default().encode());
        Ok(())
    });
}

#[test]
fn a_mode_without_a_type() {
    broken(&[511, 605], |tx, cast| {
        tx.delete(Key::new(cast.link, KeyKind::SYMLINK, 0));
        change_inode(tx, cast.link, |inode| inode.mode = 0o777)
    });
}

#[test]
fn wrong_space() {
    broken(&[513], |tx, cast| {
        change_inode(tx, cast.file, |inode| inode.sectors += 8)
    });
}

#[test]
fn items_of_another_type() {
    broken(&[514], |tx, cast| {
        put_entry(tx, cast.other, b"entry", cast.file, 8);
        change_inode(tx, cast.file, |inode| inode.nlink = 2)
    });
}

#[test]
fn a_link_without_a_target() {
    broken(&[515], |tx, cast| {
        tx.delete(Key::new(cast.link, KeyKind::SYMLINK, 0));
        Ok(())
    });
    broken(&[515], |tx, cast| {
        tx.put(
            Key::new(cast.link, KeyKind::SYMLINK, 0),
            b"longer target".to_vec(),
        );
        Ok(())
    });
}

#[test]
fn attributes_astray() {
    let xattr = Xattr {
        name: b"user.a",
        value: XattrValue::Inline(b""),
    };
    broken(&[516], |tx, cast| {
        tx.put(Key::new(cast.file, KeyKind::XATTR, 77), xattr.encode());
        change_inode(tx, cast.file, |inode| counts(inode, &xattr))
    });
    broken(&[517], |tx, cast| {
        let item = first_item(tx.key(), b"user.a") + 1;
        tx.put(Key::new(cast.file, KeyKind::XATTR, item), xattr.encode());
        change_inode(tx, cast.file, |inode| counts(inode, &xattr))
    });
    broken(&[518], |tx, cast| {
        change_inode(tx, cast.file, |inode| inode.xattr_names += 1)
    });
}

/// A long value of `user.long`, five pieces of it, beside another one.
fn broken_pieces(expected: &[u16], mut f: impl FnMut(&mut Transaction<'_>, Ino, u64)) -> Report {
    let device = formatted();
    let volume = open(&device);
    let file = add(&volume, ROOT, "file", FILE);
    add_xattr(&volume, file, "user.long", &content(1, 20_000));
    add_xattr(&volume, file, "user.other", &content(2, 65_536));
    volume.step(Task::Checkpoint).unwrap();
    let sound = report(&device, true);
    assert_eq!((sound.findings, sound.counts.xattrs), (vec![], 2));
    change(&volume, |tx| {
        // As `add_xattr` chooses it.
        let slot = first_item(tx.key(), b"user.long") / 64;
        f(tx, file, slot);
        Ok(())
    });
    let mended = found_and_mended(&device, volume, expected, expected);
    assert_eq!(mended.findings, []);
    mended
}

#[test]
fn values_in_pieces_that_are_not_whole() {
    // One is missing: the attribute goes with the rest of them.
    for number in 0..5 {
        let mended = broken_pieces(&[519, 520, 520, 520, 520], |tx, file, slot| {
            tx.delete(piece_key(file, slot, number));
        });
        assert_eq!(mended.counts.xattrs, 1);
    }
    // One has another's number, is too short, or is of another value.
    let five = [519, 520, 520, 520, 520, 520];
    for piece in [vec![2; 4001], vec![1; 4000], vec![1; 4001], vec![1], vec![]] {
        let mended = broken_pieces(&five, |tx, file, slot| {
            tx.put(piece_key(file, slot, 1), piece.clone());
        });
        assert_eq!(mended.counts.xattrs, 1);
    }
    // One too many, behind the last, behind all that there can be, and of no attribute.
    for (slot_on, number) in [(0, 5), (0, 31), (1, 0), (1, 20)] {
        let mended = broken_pieces(&[520], |tx, file, slot| {
            let piece = cut(&content(1, 30_000)).nth(5).unwrap();
            tx.put(piece_key(file, slot + slot_on, number), piece);
        });
        assert_eq!(mended.counts.xattrs, 2);
    }
    // Another attribute says that they are its own.
    let mended = broken_pieces(&[519], |tx, file, slot| {
        let xattr = Xattr {
            name: b"user.thief",
            value: XattrValue::Pieces(Pieces::new(slot, &content(1, 20_000)).unwrap()),
        };
        let item = first_item(tx.key(), b"user.thief");
        tx.put(Key::new(file, KeyKind::XATTR, item), xattr.encode());
        change_inode(tx, file, |inode| counts(inode, &xattr)).unwrap();
    });
    assert_eq!(mended.counts.xattrs, 2);
    // Filed elsewhere than its name says: it keeps its pieces.
    let mended = broken_pieces(&[516], |tx, file, slot| {
        let value = XattrValue::Pieces(Pieces::new(slot, &content(1, 20_000)).unwrap());
        let name = b"user.long";
        let astray = Key::new(file, KeyKind::XATTR, 77);
        tx.put(astray, Xattr { name, value }.encode());
        let item = first_item(tx.key(), name);
        tx.delete(Key::new(file, KeyKind::XATTR, item));
    });
    assert_eq!(mended.counts.xattrs, 2);
    // Nothing but pieces is left.
    broken_pieces(&[520, 520, 520, 520, 520, 513, 518], |tx, file, _| {
        let item = first_item(tx.key(), b"user.long");
        tx.delete(Key::new(file, KeyKind::XATTR, item));
    });
}

#[test]
fn extents_in_each_others_way() {
    broken(&[521, 513], |tx, cast| {
        let extent = Extent::Inline(vec![1; 500]);
        tx.put(Key::extent(cast.file, 3), extent.encode());
        Ok(())
    });
}

#[test]
fn an_extent_nowhere() {
    for (zone, block) in [(20, 5), (99, 1), (1, 0)] {
        let device = formatted();
        let volume = open(&device);
        let file = add(&volume, ROOT, "file", FILE);
        change(&volume, |tx| {
            let addr = Addr::new(DeviceId(0), ZoneId(zone), block);
            let extent = Extent::Frame {
                addr,
                crcs: vec![5, 6],
            };
            tx.put(Key::extent(file, 0), extent.encode());
            change_inode(tx, file, |inode| {
                inode.size = 8000;
                inode.sectors = 16;
            })
        });
        volume.sync().unwrap();
        assert_eq!(numbers(&report(&device, true)), [206, 522]);
    }
}

/// A frame in a zone of the log: the blocks are there, but they are no data.
#[test]
fn an_extent_in_a_zone_of_another_role() {
    broken_twice(&[522], &[522, 322], |tx, cast| {
        let log = Addr::new(DeviceId(0), ZoneId(0), 1);
        let extent = Extent::Frame {
            addr: log,
            crcs: vec![5],
        };
        tx.put(Key::extent(cast.file, 10), extent.encode());
        change_inode(tx, cast.file, |inode| {
            inode.size = 41_000 + 4096;
            inode.sectors += 8;
        })
    });
}

/// The extent that a file has at its first block.
fn first_extent(volume: &Volume, ino: Ino) -> Extent {
    let mut found = None;
    let scanned = volume.view::<_, Error>(|view| {
        view.scan(
            Key::extent(ino, 0)..Key::extent(ino, 1 << 40),
            |_, value| {
                found = Extent::decode(value).ok();
                Ok(ControlFlow::Break(()))
            },
        )
    });
    scanned.unwrap();
    found.unwrap()
}

/// A packed extent that is another's too, or in part, or lies in a block that is a frame's, or nowhere.
#[test]
fn packed_extents_where_others_are() {
    for (case, expected) in [(0, 523), (1, 523), (2, 523), (3, 522)] {
        let device = formatted();
        let volume = open(&device);
        let [one, other, whole] = ["one", "other", "whole"].map(|n| add(&volume, ROOT, n, FILE));
        volume
            .write(one, 0, &content(3, 1024).repeat(4), now(1))
            .unwrap();
        volume.sync_file(one).unwrap();
        volume.write(whole, 0, &content(9, 9000), now(1)).unwrap();
        volume.sync().unwrap();
        volume.step(Task::Checkpoint).unwrap();
        let (packed, frame) = (first_extent(&volume, one), first_extent(&volume, whole));
        let (Extent::Packed(packed), Extent::Frame { addr, .. }) = (packed, frame) else {
            panic!("not packed")
        };
        let copy = match case {
            0 => packed,
            1 => Packed {
                unit: packed.unit + 60,
                ..packed
            },
            2 => Packed { addr, ..packed },
            _ => Packed {
                addr: Addr::new(DeviceId(0), ZoneId(20), 5),
                ..packed
            },
        };
        change(&volume, |tx| {
            tx.put(Key::extent(other, 0), Extent::Packed(copy).encode());
            change_inode(tx, other, |inode| {
                inode.size = 4096;
                inode.sectors = Extent::Packed(copy).sectors();
            })
        });
        volume.sync().unwrap();
        let found = numbers(&report(&device, true));
        assert!(found.contains(&expected), "{case}: {found:?}");
    }
}

#[test]
fn a_block_with_two_owners() {
    broken_twice(&[523, 523], &[523, 523, 322], |tx, cast| {
        let mut found = None;
        tx.scan(
            Key::extent(cast.file, 0)..Key::extent(cast.file, 1 << 40),
            |key, value| {
                assert_eq!(key.ino, cast.file);
                found = Some(value.to_vec());
                Ok(std::ops::ControlFlow::Break(()))
            },
        )?;
        let copy = add_file(tx, cast, b"copy");
        tx.put(Key::extent(copy, 0), found.clone().unwrap());
        tx.put(Key::extent(copy, 100), found.unwrap());
        change_inode(tx, copy, |inode| {
            inode.size = 500_000;
            inode.sectors = 160;
        })
    });
}

fn add_file(tx: &mut Transaction<'_>, cast: &Cast, name: &[u8]) -> Ino {
    let ino = tx.new_ino();
    let inode = Inode {
        mode: FILE,
        nlink: 1,
        ..Inode::default()
    };
    tx.put_inode(ino, &inode);
    put_entry(tx, cast.directory, name, ino, 8);
    change_inode(tx, cast.directory, |inode| inode.size += 1).unwrap();
    ino
}

#[test]
fn data_past_the_end() {
    broken(&[524], |tx, cast| {
        change_inode(tx, cast.file, |inode| inode.size = 4096)
    });
    broken(&[], |tx, cast| {
        tx.put(Key::truncation(cast.file), 1u64.to_le_bytes().to_vec());
        change_inode(tx, cast.file, |inode| inode.size = 4096)
    });
}

#[test]
fn impossible_names() {
    broken(&[601, 601, 601], |tx, cast| {
        for name in [b"a/b".as_slice(), b"a\0b", b".."] {
            put_entry(tx, cast.directory, name, cast.other, 8);
        }
        change_inode(tx, cast.directory, |inode| inode.size += 3)?;
        change_inode(tx, cast.other, |inode| inode.nlink += 3)
    });
}

#[test]
fn entries_astray() {
    broken(&[602], |tx, cast| {
        let key = entry_key(tx, ROOT, "other");
        let value = tx.get(&key)?.unwrap().to_vec();
        tx.delete(key);
        tx.put(Key::new(ROOT, KeyKind::DIR_ENTRY, 4242), value);
        assert!(cast.other.0 > 0);
        Ok(())
    });
    broken(&[603], |tx, cast| {
        put_entry(tx, ROOT, b"other", cast.other, 8);
        change_inode(tx, ROOT, |inode| inode.size += 1)?;
        change_inode(tx, cast.other, |inode| inode.nlink += 1)
    });
}

#[test]
fn entries_that_lead_nowhere() {
    broken(&[604], |tx, _| {
        put_entry(tx, ROOT, b"ghost", Ino(5555), 8);
        change_inode(tx, ROOT, |inode| inode.size += 1)
    });
    broken(&[605], |tx, cast| {
        put_entry(tx, ROOT, b"second name", cast.file, 10);
        change_inode(tx, ROOT, |inode| inode.size += 1)?;
        change_inode(tx, cast.file, |inode| inode.nlink += 1)
    });
}

#[test]
fn directories_that_miscount() {
    broken(&[611], |tx, cast| {
        change_inode(tx, cast.directory, |inode| inode.size = 9)
    });
    broken(&[621], |tx, cast| {
        change_inode(tx, cast.directory, |inode| inode.nlink = 2)
    });
    broken(&[612], |tx, cast| {
        change_inode(tx, cast.inner, |inode| inode.parent = ROOT)
    });
    broken(&[613], |tx, cast| {
        put_entry(tx, ROOT, b"again", cast.inner, 4);
        change_inode(tx, cast.inner, |inode| inode.parent = ROOT)?;
        change_inode(tx, ROOT, |inode| {
            inode.size += 1;
            inode.nlink += 1;
        })
    });
}

/// Two directories, each the only entry of the other, hold each other alive.
#[test]
fn directories_in_a_loop() {
    broken(&[614, 614], |tx, cast| {
        tx.delete(entry_key(tx, ROOT, "directory"));
        put_entry(tx, cast.inner, b"up", cast.directory, 4);
        change_inode(tx, ROOT, |inode| {
            inode.size -= 1;
            inode.nlink -= 1;
        })?;
        change_inode(tx, cast.directory, |inode| inode.parent = cast.inner)?;
        change_inode(tx, cast.inner, |inode| {
            inode.size += 1;
            inode.nlink += 1;
        })
    });
}

#[test]
fn no_root() {
    let device = formatted();
    let volume = open(&device);
    change(&volume, |tx| {
        tx.delete(Key::inode(ROOT));
        Ok(())
    });
    volume.sync().unwrap();
    assert_eq!(numbers(&report(&device, false)), [206, 615]);
}

#[test]
fn link_counts() {
    broken(&[621], |tx, cast| {
        change_inode(tx, cast.file, |inode| inode.nlink = 7)
    });
    broken(&[622], |tx, cast| {
        tx.delete(entry_key(tx, ROOT, "other"));
        change_inode(tx, ROOT, |inode| inode.size -= 1)?;
        change_inode(tx, cast.other, |inode| inode.nlink = 0)
    });
}

#[test]
fn attributes_that_nobody_looks_for() {
    broken(&[527], |tx, cast| {
        change_inode(tx, cast.file, |inode| inode.flags &= !FLAG_XATTRS)
    });
}

#[test]
fn records_of_nothing() {
    broken(&[624, 623], |tx, cast| {
        tx.put(Key::orphan(cast.file), Vec::new());
        Ok(())
    });
    broken(&[624, 623], |tx, _| {
        tx.put(Key::orphan(Ino(5555)), Vec::new());
        Ok(())
    });
    broken(&[625], |tx, _| {
        tx.put(Key::truncation(Ino(5555)), vec![0; 8]);
        Ok(())
    });
    broken(&[502], |tx, cast| {
        tx.put(Key::truncation(cast.file), vec![0; 3]);
        Ok(())
    });
}

/// The next mount that could write freed the blocks, and a check found nothing.
#[test]
fn a_truncation_of_what_the_file_has() {
    broken(&[626], |tx, cast| {
        tx.put(Key::truncation(cast.file), vec![0; 8]);
        Ok(())
    });
    let device = formatted();
    let volume = open(&device);
    let file = add(&volume, ROOT, "file", FILE);
    let bytes = content(9, 40_000);
    volume.write(file, 0, &bytes, now(1)).unwrap();
    volume.commit_file(file).unwrap();
    change(&volume, |tx| {
        tx.put(Key::truncation(file), 3u64.to_le_bytes().to_vec());
        Ok(())
    });
    volume.step(Task::Checkpoint).unwrap();
    drop(volume);
    assert_eq!(mend(&device).findings, []);
    let mut found = vec![0; bytes.len()];
    open(&device).read(file, 0, &mut found).unwrap();
    assert!(found == bytes);
}
