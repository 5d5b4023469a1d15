//! Each rule about versions, broken on purpose, is found. Items of any version can be put by hand while there is only one: the table
//! comes last.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use crate::support::{
    DIRECTORY, FILE, add, add_compressed, add_xattr, change, content, formatted, now, numbers,
    open, report, text,
};
use persimmon_engine::{Result, Task, Transaction};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, ROOT, Timestamp};
use persimmon_format::version::{ChangedRange, Changes, Subvolume, Version, WHITEOUT};
use persimmon_format::{Compression, Ino, Key, KeyKind, SubvolumeId, VersionId};
use persimmon_inspect::Report;

/// The version of the main subvolume; snapshot 1 has the first one.
const LIVE: VersionId = VersionId(5);
const UNKNOWN: VersionId = VersionId(9);
const SNAPSHOT: SubvolumeId = SubvolumeId(1);

struct Cast {
    file: Ino,
    packed: Ino,
}

/// What is put last.
struct Table {
    subvolumes: BTreeMap<SubvolumeId, Subvolume>,
    versions: BTreeMap<VersionId, Version>,
    changes: BTreeMap<(VersionId, Ino), Changes>,
}

fn subvolume(version: VersionId, name: &str) -> Subvolume {
    Subvolume {
        version,
        is_read_only: !name.is_empty(),
        origin: SubvolumeId::MAIN,
        created: Timestamp::default(),
        name: name.as_bytes().to_vec(),
    }
}

fn below(parent: u32) -> Version {
    Version {
        parent: Some(VersionId(parent)),
        first_ino: 1 << 20,
        ..Version::default()
    }
}

impl Table {
    fn sound() -> Table {
        Table {
            subvolumes: BTreeMap::from([
                (SubvolumeId::MAIN, subvolume(LIVE, "")),
                (SNAPSHOT, subvolume(VersionId(0), "before")),
            ]),
            versions: BTreeMap::from([(LIVE, below(0))]),
            changes: BTreeMap::new(),
        }
    }

    fn version(&mut self, number: u32) -> &mut Version {
        self.versions.entry(VersionId(number)).or_default()
    }

    fn snapshot(&mut self) -> &mut Subvolume {
        self.subvolumes.get_mut(&SNAPSHOT).unwrap()
    }

    /// Says that the live version changed an inode, and items of a kind.
    fn tell(&mut self, ino: Ino, kind: KeyKind) {
        let changes = self.changes.entry((LIVE, ino)).or_default();
        if kind != KeyKind::INODE {
            changes.add(ChangedRange {
                kind,
                first: 0,
                last: u64::MAX,
            });
        }
    }

    fn put(&self, tx: &mut Transaction<'_>) {
        for ((number, ino), changes) in &self.changes {
            tx.put(Key::changes(*number, *ino), changes.encode());
        }
        for (number, version) in &self.versions {
            tx.put(Key::version(*number), version.encode());
        }
        for (id, subvolume) in &self.subvolumes {
            tx.put(Key::subvolume(*id), subvolume.encode());
        }
    }
}

fn broken(mut f: impl FnMut(&mut Transaction<'_>, &mut Table, &Cast) -> Result<()>) -> Report {
    let device = formatted();
    let volume = open(&device);
    let directory = add(&volume, ROOT, "directory", DIRECTORY);
    let cast = Cast {
        file: add(&volume, directory, "file", FILE),
        packed: add_compressed(&volume, directory, "packed", Compression::Lz4),
    };
    let bytes = content(3, 40_000);
    volume.write(cast.file, 0, &bytes, now(1)).unwrap();
    volume
        .write(cast.packed, 0, &text(4, 8 * 4096), now(1))
        .unwrap();
    add_xattr(&volume, cast.file, "user.a", b"value");
    volume.sync().unwrap();
    volume.step(Task::Checkpoint).unwrap();
    assert_eq!(report(&device, true).findings, []);
    change(&volume, |tx| {
        let mut table = Table::sound();
        f(tx, &mut table, &cast)?;
        table.put(tx);
        Ok(())
    });
    volume.sync().unwrap();
    report(&device, true)
}

/// Expects exactly these findings beside that of the journal.
fn finds(expected: &[u16], f: impl FnMut(&mut Transaction<'_>, &mut Table, &Cast) -> Result<()>) {
    let report = broken(f);
    let mut found = numbers(&report);
    found.retain(|number| *number != 206);
    assert_eq!(found, expected, "{:#?}", report.findings);
}

/// Expects this finding among others: what is wrong has consequences.
fn finds_too(expected: u16, f: impl FnMut(&mut Transaction<'_>, &mut Table, &Cast) -> Result<()>) {
    let report = broken(f);
    let found = numbers(&report);
    assert!(found.contains(&expected), "{:#?}", report.findings);
}

/// The inode of the file in the live version too.
fn copy_inode(tx: &mut Transaction<'_>, ino: Ino, f: impl FnOnce(&mut Inode)) -> Result<()> {
    let mut inode = tx.inode(ino)?.unwrap();
    f(&mut inode);
    tx.put(Key::inode(ino).at(LIVE), inode.encode());
    Ok(())
}

#[test]
fn a_sound_one() {
    finds(&[], |_, _, _| Ok(()));
    finds(&[], |tx, table, cast| {
        table.tell(cast.file, KeyKind::EXTENT);
        table.tell(cast.file, KeyKind::XATTR);
        let hole = Extent::Hole { blocks: 10 };
        tx.put(Key::extent(cast.file, 0).at(LIVE), hole.encode());
        copy_inode(tx, cast.file, |inode| inode.sectors = 0)
    });
}

#[test]
fn versions_that_contradict_each_other() {
    // A parent that is not there, and one that is discarded.
    finds_too(541, |_, table, _| {
        table.version(5).parent = Some(VersionId(3));
        Ok(())
    });
    finds_too(541, |_, table, _| {
        table.version(0).is_discarded = true;
        Ok(())
    });
    // A second one without a parent, which nothing shows.
    finds(&[541, 541], |_, table, _| {
        table.version(7).first_ino = 9;
        Ok(())
    });
    // One with a parent, that nothing shows.
    finds(&[541], |_, table, _| {
        *table.version(7) = below(0);
        Ok(())
    });
    // One that is to be absorbed.
    finds(&[541], |_, table, _| {
        *table.version(3) = below(0);
        table.version(5).parent = Some(VersionId(3));
        Ok(())
    });
    // A number that two have absorbed, or that is there.
    finds(&[541], |_, table, _| {
        table.version(5).absorbed = vec![(2, 4)];
        *table.version(7) = below(0);
        table.version(7).absorbed = vec![(1, 3)];
        table.snapshot().version = VersionId(7);
        *table.version(8) = below(0);
        let other = subvolume(VersionId(8), "other");
        table.subvolumes.insert(SubvolumeId(2), other);
        Ok(())
    });
    finds(&[541], |_, table, _| {
        *table.version(7) = below(0);
        table.version(7).absorbed = vec![(5, 5)];
        table.snapshot().version = VersionId(7);
        Ok(())
    });
    // A discarded one has no parent.
    finds(&[541, 547], |_, table, _| {
        *table.version(7) = below(0);
        table.version(7).is_discarded = true;
        Ok(())
    });
}

#[test]
fn what_waits_to_be_removed() {
    finds(&[547], |_, table, _| {
        table.version(7).is_discarded = true;
        table.version(5).is_unsettled = true;
        Ok(())
    });
}

#[test]
fn subvolumes_that_cannot_be() {
    finds_too(542, |_, table, _| {
        table.snapshot().version = UNKNOWN;
        Ok(())
    });
    finds_too(542, |_, table, _| {
        table.version(7).is_discarded = true;
        table.snapshot().version = VersionId(7);
        Ok(())
    });
    // What it writes the main one would show.
    finds(&[542], |_, table, _| {
        table.snapshot().is_read_only = false;
        Ok(())
    });
    finds_too(542, |_, table, _| {
        table.snapshot().version = LIVE;
        Ok(())
    });
    for names in [["", "x"], ["before", "x"]] {
        finds(&[542], |_, table, _| {
            let mut other = subvolume(VersionId(0), names[1]);
            other.name = names[0].into();
            table.subvolumes.insert(SubvolumeId(2), other);
            Ok(())
        });
    }
    finds(&[542], |_, table, _| {
        let main = table.subvolumes.get_mut(&SubvolumeId::MAIN);
        main.unwrap().name = b"main".to_vec();
        Ok(())
    });
}

#[test]
fn values_and_numbers_of_changes() {
    finds(&[502], |tx, _, _| {
        tx.put(Key::changes(LIVE, Ino(17)), vec![9; 17]);
        Ok(())
    });
    finds(&[543], |tx, _, _| {
        tx.put(Key::changes(UNKNOWN, Ino(17)), Vec::new());
        Ok(())
    });
    finds(&[503], |tx, _, _| {
        tx.put(Key::changes(LIVE, Ino(1 << 50)), Vec::new());
        Ok(())
    });
}

#[test]
fn items_of_no_version() {
    finds(&[543], |tx, _, cast| {
        tx.put(Key::new(cast.file, KeyKind::XATTR, 8).at(UNKNOWN), vec![1]);
        Ok(())
    });
}

#[test]
fn extents_that_overlap_in_part() {
    finds(&[544], |tx, table, cast| {
        table.tell(cast.file, KeyKind::EXTENT);
        let hole = Extent::Hole { blocks: 3 };
        tx.put(Key::extent(cast.file, 0).at(LIVE), hole.encode());
        copy_inode(tx, cast.file, |_| {})
    });
    finds(&[546, 544], |tx, table, cast| {
        table.tell(cast.file, KeyKind::EXTENT);
        let hole = Extent::Hole { blocks: 3 };
        tx.put(Key::extent(cast.file, 5).at(LIVE), hole.encode());
        copy_inode(tx, cast.file, |_| {})
    });
}

#[test]
fn what_is_hidden_and_is_not_there() {
    finds(&[546], |tx, table, cast| {
        table.tell(cast.file, KeyKind::XATTR);
        let key = Key::new(cast.file, KeyKind::XATTR, 77);
        tx.put(key.at(LIVE), WHITEOUT.to_vec());
        Ok(())
    });
    // There is nothing below the first version.
    finds(&[546], |tx, _, cast| {
        let hole = Extent::Hole { blocks: 1 };
        tx.put(Key::extent(cast.file, 99), hole.encode());
        Ok(())
    });
}

#[test]
fn changes_that_nothing_tells_of() {
    finds(&[545], |tx, _, cast| copy_inode(tx, cast.file, |_| {}));
    finds(&[545], |tx, table, cast| {
        table.tell(cast.file, KeyKind::XATTR);
        let hole = Extent::Hole { blocks: 10 };
        tx.put(Key::extent(cast.file, 0).at(LIVE), hole.encode());
        Ok(())
    });
    // The version absorbed the one that tells.
    finds(&[], |tx, table, cast| {
        table.version(5).absorbed = vec![(3, 3)];
        let told = (VersionId(3), cast.file);
        table.changes.insert(told, Changes::default());
        copy_inode(tx, cast.file, |_| {})
    });
    // It was made in the version, or later.
    finds(&[], |tx, table, cast| {
        table.version(5).first_ino = cast.file.0;
        copy_inode(tx, cast.file, |_| {})
    });
}

#[test]
fn items_under_an_inode_that_is_not_there() {
    finds_too(501, |tx, table, cast| {
        table.tell(cast.file, KeyKind::XATTR);
        tx.put(Key::inode(cast.file).at(LIVE), WHITEOUT.to_vec());
        let key = Key::new(cast.file, KeyKind::XATTR, 77);
        tx.put(key.at(LIVE), b"value".to_vec());
        Ok(())
    });
}

#[test]
fn a_compressed_frame_in_two_versions() {
    let report = broken(|tx, table, cast| {
        table.tell(cast.packed, KeyKind::EXTENT);
        let mut found = None;
        tx.scan(
            Key::extent(cast.packed, 0)..Key::extent(cast.packed, 1 << 40),
            |_, value| {
                found = Some(value.to_vec());
                Ok(std::ops::ControlFlow::Break(()))
            },
        )?;
        let value = found.unwrap();
        assert!(matches!(Extent::decode(&value).unwrap(), Extent::Packed(_)));
        tx.put(Key::extent(cast.packed, 0).at(LIVE), value);
        Ok(())
    });
    let found = report.findings.iter().find(|found| found.number == 523);
    assert!(found.unwrap().message.contains("versions 0 and 5"));
}

/// Each subvolume is a filesystem of its own, and a repair leaves snapshots alone.
#[test]
fn what_is_wrong_in_a_snapshot_alone() {
    let report = broken(|tx, table, cast| {
        table.tell(cast.file, KeyKind::INODE);
        copy_inode(tx, cast.file, |_| {})?;
        let mut inode = tx.inode(cast.file)?.unwrap();
        inode.nlink = 7;
        tx.put_inode(cast.file, &inode);
        Ok(())
    });
    let found: Vec<_> = { report.findings.iter() }
        .filter(|f| f.number != 206)
        .collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].number, 621);
    assert!(found[0].place.starts_with("snapshot \"before\", inode "));
    assert!(report.repairs.is_empty());
    assert_eq!(report.counts.snapshots, 1);
    // And the other way round.
    let report = broken(|tx, table, cast| {
        table.tell(cast.file, KeyKind::INODE);
        copy_inode(tx, cast.file, |inode| inode.nlink = 7)
    });
    let found: Vec<_> = { report.findings.iter() }
        .filter(|f| f.number != 206)
        .collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].place.starts_with("inode "));
    assert!(!report.repairs.is_empty());
}

#[test]
fn from_origin_to_origin_one_comes_to_an_end() {
    finds(&[], |_, table, _| {
        table.snapshot().origin = SubvolumeId::MAIN;
        Ok(())
    });
    // One that is gone, which an earlier build left.
    finds(&[], |_, table, _| {
        table.snapshot().origin = SubvolumeId(7);
        Ok(())
    });
    // Of itself, and by another one.
    finds(&[542], |_, table, _| {
        table.snapshot().origin = SNAPSHOT;
        Ok(())
    });
    finds(&[542, 542], |_, table, _| {
        let other = SubvolumeId(2);
        table.snapshot().origin = other;
        let around = Subvolume {
            origin: SNAPSHOT,
            ..subvolume(VersionId(0), "around")
        };
        table.subvolumes.insert(other, around);
        Ok(())
    });
}
