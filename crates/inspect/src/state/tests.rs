//! What records do to items of several versions, one operation at a time.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::ops::ControlFlow;
use std::sync::Arc;

use persimmon_engine::{FormatOptions, Volume};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, SHARED, Timestamp};
use persimmon_format::record::{Op, Settle, Share, Touch};
use persimmon_format::version::{Subvolume, Version};
use persimmon_format::{Addr, DeviceId, Ino, Key, KeyKind, SubvolumeId, VersionId, ZoneId};
use persimmon_sim::{SimConfig, SimDevice};

use super::State;
use crate::dump::item_text;
use crate::volume::Inspector;

const MAIN: SubvolumeId = SubvolumeId::MAIN;
const FILE: Ino = Ino(20);

fn with_state(test: impl FnOnce(&mut State<'_, '_>)) {
    let device = Arc::new(SimDevice::new(SimConfig::new(24, 256)));
    Volume::format(device.clone(), &FormatOptions::default()).unwrap();
    let inspector = Inspector::open(&*device).unwrap();
    test(&mut inspector.state().unwrap());
}

fn frame(block: u32, blocks: usize) -> Extent {
    let addr = Addr::new(DeviceId(0), ZoneId(7), block);
    Extent::Frame {
        addr,
        crcs: vec![5; blocks],
    }
}

fn put_inode(ino: Ino) -> Op {
    let inode = Inode {
        mode: 0o100_644,
        nlink: 1,
        ..Inode::default()
    };
    Op::Put {
        key: Key::inode(ino),
        value: inode.encode(),
    }
}

fn map(ino: Ino, block: u64, extent: Extent) -> Op {
    Op::Map { ino, block, extent }
}

fn punch(ino: Ino, from: u64, to: u64) -> Op {
    Op::Punch { ino, from, to }
}

fn subvolume(id: u16, version: u32) -> Op {
    let subvolume = Subvolume {
        version: VersionId(version),
        is_read_only: false,
        origin: MAIN,
        created: Timestamp::default(),
        name: match id {
            0 => Vec::new(),
            id => format!("snapshot {id}").into_bytes(),
        },
    };
    Op::Put {
        key: Key::subvolume(SubvolumeId(id)),
        value: subvolume.encode(),
    }
}

fn version(number: u32, parent: Option<u32>, absorbed: &[(u32, u32)]) -> Op {
    let version = Version {
        parent: parent.map(VersionId),
        absorbed: absorbed.to_vec(),
        ..Version::default()
    };
    Op::Put {
        key: Key::version(VersionId(number)),
        value: version.encode(),
    }
}

/// The main subvolume has the version 1 from now on, and what it was is snapshot 1.
fn take() -> [Op; 3] {
    [subvolume(1, 0), version(1, Some(0), &[]), subvolume(0, 1)]
}

fn of_kind(state: &State<'_, '_>, ino: Ino, kind: KeyKind) -> Vec<String> {
    let mut found = Vec::new();
    let _ = state.scan(Key::new(ino, kind, 0), &mut |key, value| {
        if (key.ino, key.kind) != (ino, kind) {
            return ControlFlow::Break(());
        }
        let text = item_text(&key, value);
        found.push(format!("{} v{}: {text}", key.item, key.version));
        ControlFlow::Continue(())
    });
    found
}

fn extents(state: &State<'_, '_>) -> Vec<String> {
    of_kind(state, FILE, KeyKind::EXTENT)
}

fn shown(state: &State<'_, '_>, ino: Ino) -> Vec<String> {
    let at = state.at(ino).unwrap();
    let mut found = Vec::new();
    state.each_extent(&at, (0, 1000), &mut |block, number, extent| {
        let text = item_text(&Key::extent(ino, block), &extent.unwrap().encode());
        found.push(format!("{block} v{number}: {text}"));
    });
    found
}

fn sectors(state: &State<'_, '_>, ino: Ino) -> u64 {
    state.inode(ino).unwrap().sectors
}

/// The snapshot that [`take`] takes is deleted: the main subvolume's version absorbs its.
fn absorb() -> [Op; 3] {
    [
        Op::Delete {
            key: Key::subvolume(SubvolumeId(1)),
        },
        Op::Delete {
            key: Key::version(VersionId(0)),
        },
        version(1, None, &[(0, 0)]),
    ]
}

#[test]
fn what_is_put_is_the_versions_own() {
    with_state(|state| {
        let key = Key::new(FILE, KeyKind::XATTR, 9);
        let put = |value: &[u8]| Op::Put {
            key,
            value: value.to_vec(),
        };
        state.apply(&[put_inode(FILE), put(b"old")]).unwrap();
        state.apply(&take()).unwrap();
        let in_snapshot = Key {
            ino: FILE.of(SubvolumeId(1)),
            ..key
        };
        state.apply(&[put(b"new")]).unwrap();
        assert_eq!(state.visible(&key).unwrap(), b"new");
        assert_eq!(state.visible(&in_snapshot).unwrap(), b"old");
        // What it deletes it hides, since the snapshot has it.
        state.apply(&[Op::Delete { key }]).unwrap();
        assert_eq!(state.visible(&key), None);
        assert_eq!(state.visible(&in_snapshot).unwrap(), b"old");
        let xattrs = of_kind(state, FILE, KeyKind::XATTR);
        assert!(xattrs.iter().any(|item| item == "9 v1: nothing"));
        assert_eq!(xattrs.len(), 2);
        // What nobody else has is gone without a trace.
        let other = Key::new(FILE, KeyKind::XATTR, 10);
        let value = b"x".to_vec();
        state.apply(&[Op::Put { key: other, value }]).unwrap();
        state.apply(&[Op::Delete { key: other }]).unwrap();
        assert_eq!(state.items_at(&other), []);
    });
}

#[test]
fn under_an_inode_that_is_gone_nothing_is_hidden() {
    with_state(|state| {
        let key = Key::new(FILE, KeyKind::XATTR, 9);
        let value = b"old".to_vec();
        let put = Op::Put { key, value };
        let file = [put_inode(FILE), put, map(FILE, 0, frame(10, 4))];
        state.apply(&file).unwrap();
        state.apply(&take()).unwrap();
        let delete = |key| Op::Delete { key };
        let gone = [delete(Key::inode(FILE)), delete(key), punch(FILE, 0, 9)];
        state.apply(&gone).unwrap();
        let inode = of_kind(state, FILE, KeyKind::INODE);
        assert_eq!((inode.len(), &*inode[1]), (2, "0 v1: nothing"));
        assert_eq!(of_kind(state, FILE, KeyKind::XATTR).len(), 1);
        assert_eq!(extents(state), ["0 v0: 4 blocks at 0:7:10"]);
        assert_eq!(shown(state, FILE), Vec::<String>::new());
        let before = FILE.of(SubvolumeId(1));
        assert_eq!(shown(state, before), ["0 v0: 4 blocks at 0:7:10"]);
        assert_eq!(state.inode(FILE), None);
        assert_eq!(sectors(state, before), 32);
    });
}

#[test]
fn ranges_are_cut_in_all_versions() {
    with_state(|state| {
        let file = [put_inode(FILE), map(FILE, 0, frame(10, 10))];
        state.apply(&file).unwrap();
        state.apply(&take()).unwrap();
        state.apply(&[punch(FILE, 3, 5)]).unwrap();
        let cut = [
            "0 v0: 3 blocks at 0:7:10",
            "3 v0: 2 blocks at 0:7:13",
            "3 v1: nothing, 2 blocks",
            "5 v0: 5 blocks at 0:7:15",
        ];
        assert_eq!(extents(state), cut);
        assert_eq!(sectors(state, FILE), 64);
        assert_eq!(sectors(state, FILE.of(SubvolumeId(1))), 80);
        // A frame over a hidden part, a shown one, and what nobody has.
        state.apply(&[map(FILE, 4, frame(50, 8))]).unwrap();
        let mapped = [
            "0 v0: 3 blocks at 0:7:10",
            "3 v0: 1 blocks at 0:7:13",
            "3 v1: nothing, 1 blocks",
            "4 v0: 1 blocks at 0:7:14",
            "4 v1: 1 blocks at 0:7:50",
            "5 v0: 5 blocks at 0:7:15",
            "5 v1: 5 blocks at 0:7:51",
            "10 v1: 2 blocks at 0:7:56",
        ];
        assert_eq!(extents(state), mapped);
        assert_eq!(sectors(state, FILE), (3 + 8) * 8);
        // What it alone has leaves nothing.
        state.apply(&[punch(FILE, 10, 12)]).unwrap();
        assert_eq!(extents(state), &mapped[..7]);
    });
}

#[test]
fn frames_are_joined_where_nobody_else_has_any() {
    with_state(|state| {
        let file = [put_inode(FILE), map(FILE, 0, frame(10, 2))];
        state.apply(&file).unwrap();
        state.apply(&take()).unwrap();
        state.apply(&[map(FILE, 2, frame(12, 2))]).unwrap();
        state.apply(&[map(FILE, 4, frame(14, 2))]).unwrap();
        let joined = ["0 v0: 2 blocks at 0:7:10", "2 v1: 4 blocks at 0:7:12"];
        assert_eq!(extents(state), joined);
        // Once it owns the number of the one before, what follows takes that number.
        state.apply(&absorb()).unwrap();
        state.apply(&[map(FILE, 2, frame(12, 4))]).unwrap();
        assert_eq!(extents(state), ["0 v0: 6 blocks at 0:7:10"]);
    });
}

#[test]
fn a_move_changes_one_number_alone() {
    with_state(|state| {
        let file = [put_inode(FILE), map(FILE, 0, frame(10, 4))];
        state.apply(&file).unwrap();
        state.apply(&take()).unwrap();
        state.apply(&[map(FILE, 0, frame(30, 4))]).unwrap();
        let moved = Op::Move {
            version: VersionId(0),
            ino: FILE,
            block: 0,
            extent: frame(80, 4),
        };
        state.apply(&[moved]).unwrap();
        let expected = ["0 v0: 4 blocks at 0:7:80", "0 v1: 4 blocks at 0:7:30"];
        assert_eq!(extents(state), expected);
        assert_eq!(sectors(state, FILE), 32);
    });
}

#[test]
fn settling_removes_what_nothing_shows() {
    let settle = |number, from, to| {
        Op::Settle(Settle {
            version: VersionId(number),
            ino: FILE,
            from,
            to,
        })
    };
    let all = ((KeyKind::INODE, 0), (KeyKind::REFERENCES, 0));
    let set = Touch {
        size: Some(7),
        ..Touch::default()
    };
    with_state(|state| {
        let file = [put_inode(FILE), map(FILE, 0, frame(10, 9))];
        state.apply(&file).unwrap();
        state.apply(&take()).unwrap();
        let changes = [
            map(FILE, 0, frame(30, 3)),
            punch(FILE, 6, 9),
            Op::Touch { ino: FILE, set },
        ];
        state.apply(&changes).unwrap();
        let before = shown(state, FILE);
        state.apply(&absorb()).unwrap();
        let first = ((KeyKind::INODE, 0), (KeyKind::EXTENT, 3));
        state.apply(&[settle(1, first.0, first.1)]).unwrap();
        let some = [
            "0 v1: 3 blocks at 0:7:30",
            "3 v0: 3 blocks at 0:7:13",
            "6 v0: 3 blocks at 0:7:16",
            "6 v1: nothing, 3 blocks",
        ];
        assert_eq!(extents(state), some);
        assert_eq!(of_kind(state, FILE, KeyKind::INODE).len(), 1);
        state.apply(&[settle(1, all.0, all.1)]).unwrap();
        assert_eq!(extents(state), &some[..2]);
        assert_eq!(shown(state, FILE), before);
        assert_eq!(state.inode(FILE).unwrap().size, 7);
    });
    // Of an inode that is not there all goes, and of a discarded version.
    with_state(|state| {
        let file = [put_inode(FILE), map(FILE, 0, frame(10, 9))];
        state.apply(&file).unwrap();
        state.apply(&take()).unwrap();
        let key = Key::inode(FILE);
        state.apply(&[Op::Delete { key }]).unwrap();
        let absorb = [
            Op::Delete {
                key: Key::version(VersionId(0)),
            },
            version(1, None, &[(0, 0)]),
        ];
        state.apply(&absorb).unwrap();
        state.apply(&[settle(1, all.0, all.1)]).unwrap();
        assert_eq!(extents(state), Vec::<String>::new());
        assert_eq!(of_kind(state, FILE, KeyKind::INODE), Vec::<String>::new());
    });
}

#[test]
fn shared_blocks_stay_the_versions_whose_they_were() {
    with_state(|state| {
        let other = Ino(30);
        let files = [
            put_inode(FILE),
            put_inode(other),
            map(FILE, 0, frame(10, 6)),
            map(other, 0, frame(60, 8)),
        ];
        state.apply(&files).unwrap();
        state.apply(&take()).unwrap();
        let share = Op::Share(Share {
            from: FILE,
            from_block: 2,
            to: other,
            to_block: 3,
            blocks: 6,
            at: 300,
        });
        state.apply(&[share]).unwrap();
        let source = ["0 v0: 2 blocks at 0:7:10", "2 v0: shared blocks 300..304"];
        assert_eq!(extents(state), source);
        let store = of_kind(state, SHARED, KeyKind::EXTENT);
        assert_eq!(store, ["300 v0: 4 blocks at 0:7:12"]);
        // The target's range ends in a hole of the source: there it hides what the snapshot has.
        let target = [
            "0 v0: 3 blocks at 0:7:60",
            "3 v0: 4 blocks at 0:7:63",
            "3 v1: shared blocks 300..304",
            "7 v0: 1 blocks at 0:7:67",
            "7 v1: nothing, 1 blocks",
        ];
        assert_eq!(of_kind(state, other, KeyKind::EXTENT), target);
        let counts = of_kind(state, SHARED, KeyKind::REFERENCES);
        assert_eq!(counts, ["300 v0: 4 blocks, 2 times"]);
        assert_eq!(sectors(state, other), (3 + 4) * 8);
        // What hides the source's blocks in one version leaves them to the other.
        state.apply(&[punch(FILE, 0, 6)]).unwrap();
        let source = [
            "0 v0: 2 blocks at 0:7:10",
            "0 v1: nothing, 2 blocks",
            "2 v0: shared blocks 300..304",
            "2 v1: nothing, 4 blocks",
        ];
        assert_eq!(extents(state), source);
        assert_eq!(of_kind(state, SHARED, KeyKind::REFERENCES), counts);
    });
}

#[test]
fn a_subvolume_that_does_not_exist_is_an_error() {
    with_state(|state| {
        let ino = FILE.of(SubvolumeId(9));
        for op in [put_inode(ino), punch(ino, 0, 9), map(ino, 0, frame(1, 1))] {
            assert!(state.apply(&[op]).is_err());
        }
    });
}
