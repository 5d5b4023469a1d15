use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Clock, Handle, Options, SetAttr, SetTime, Vfs};

use super::*;

struct Standing;

impl Clock for Standing {
    fn now(&self) -> Timestamp {
        at(1)
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: 0,
    }
}

fn vfs() -> Vfs {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 256).fast()));
    Volume::format(Arc::clone(&device) as _, &FormatOptions::default()).unwrap();
    let opened = Volume::open(device, persimmon_engine::Options::default());
    let (volume, _) = opened.unwrap();
    Vfs::new(Arc::new(volume), Arc::new(Standing), Options::default())
}

fn file(vfs: &Vfs, name: &[u8]) -> Ino {
    let root = persimmon_vfs::ROOT;
    let made = vfs.mknod(&Caller::root(), root, name, libc::S_IFREG | 0o644, 0);
    made.unwrap().ino
}

fn write(ledger: &Ledger, ino: Ino, offset: u64, data: &[u8]) {
    let written = Written {
        ino,
        offset,
        data,
        time: at(2),
        kills: None,
    };
    ledger.written(&written).unwrap();
}

fn content(vfs: &Vfs, ino: Ino) -> Vec<u8> {
    let mut buffer = vec![0; 64];
    let len = vfs.read(ino, Handle::NONE, 0, &mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

#[test]
fn a_ledger_that_is_opened_again_has_what_was_noted() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let (one, two) = (file(&vfs, b"one"), file(&vfs, b"two"));
    write(&ledger, one, 0, b"aaaa");
    write(&ledger, two, 3, b"b");
    write(&ledger, one, 2, b"cccc");
    let ledger = Ledger::open(ledger.memory().unwrap(), [7; 16]).unwrap();
    let replayed = ledger.replay(&vfs).unwrap();
    assert_eq!((replayed.writes, replayed.bytes), (3, 7));
    assert_eq!(content(&vfs, one), b"aacccc");
    assert_eq!(content(&vfs, two), b"\0\0\0b");
    ledger.forget_writes();
    assert_eq!(ledger.replay(&vfs).unwrap().writes, 0);
}

/// What was written before a truncation, say, is on the device with it, and done again it would undo it.
#[test]
fn what_is_recorded_is_not_done_again() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let (one, two) = (file(&vfs, b"one"), file(&vfs, b"two"));
    write(&ledger, one, 0, b"before");
    write(&ledger, two, 0, b"other");
    let position = ledger.position();
    ledger.recorded(one, Recorded::Content, position).unwrap();
    write(&ledger, one, 1, b"x");
    ledger.replay(&vfs).unwrap();
    assert_eq!(content(&vfs, one), b"\0x");
    assert_eq!(content(&vfs, two), b"other");
}

#[test]
fn times_that_were_set_stay() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let [set, written] = [b"set", b"new"].map(|name| file(&vfs, name));
    for ino in [set, written] {
        write(&ledger, ino, 0, b"data");
        let times = SetAttr {
            mtime: Some(SetTime::At(at(7))),
            ..SetAttr::default()
        };
        vfs.setattr(ino, Handle::NONE, &times).unwrap();
        let position = ledger.position();
        ledger.recorded(ino, Recorded::Times, position).unwrap();
    }
    write(&ledger, written, 4, b"more");
    ledger.replay(&vfs).unwrap();
    assert_eq!(content(&vfs, set), b"data");
    assert_eq!(vfs.getattr(set).unwrap().mtime, at(7));
    assert_eq!(content(&vfs, written), b"datamore");
    assert_eq!(vfs.getattr(written).unwrap().mtime, at(2));
}

/// A sync of everything told nobody: after it all was written again that had been written since a half was last emptied.
#[test]
fn what_a_sync_of_everything_has_taken_is_not_done_again() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let (one, two) = (file(&vfs, b"one"), file(&vfs, b"two"));
    vfs.keep_by(Arc::clone(&ledger) as _);
    for (offset, ino) in [(0, one), (100, two)] {
        write(&ledger, ino, offset, b"not any more");
    }
    vfs.sync().unwrap();
    write(&ledger, two, 0, b"later");
    let replayed = ledger.replay(&vfs).unwrap();
    assert_eq!((replayed.writes, replayed.bytes), (1, 5));
    assert_eq!(content(&vfs, one), b"");
    assert_eq!(content(&vfs, two), b"later");
    write(&ledger, one, 0, b"again");
    vfs.take_snapshot(b"snapshot", true).unwrap();
    assert_eq!(ledger.replay(&vfs).unwrap().writes, 0);
    assert_eq!(content(&vfs, one), b"");
}

/// What the device has was written to another place, which took room where a snapshot shared it.
#[test]
fn what_is_there_is_not_written_again_and_gets_its_time() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let one = file(&vfs, b"one");
    let block = |byte: u8| [byte; 4096];
    let there = [block(1), block(2), block(3), block(0)].concat();
    vfs.write_again(one, 0, &there, (at(1), None)).unwrap();
    write(&ledger, one, 0, &there);
    let replayed = ledger.replay(&vfs).unwrap();
    assert_eq!((replayed.writes, replayed.bytes), (0, 0));
    assert_eq!(vfs.getattr(one).unwrap().mtime, at(2));
    // One block of it is another, and the end is new.
    let due = [block(1), block(9), block(3), block(0), block(4)].concat();
    write(&ledger, one, 0, &due);
    let replayed = ledger.replay(&vfs).unwrap();
    assert_eq!((replayed.writes, replayed.bytes), (1, 2 * 4096));
    let mut found = vec![0; due.len() + 1];
    let len = vfs.read(one, Handle::NONE, 0, &mut found).unwrap();
    assert!(found[..len] == due);
}

/// A hole reads as zeros, and is none of those that were written.
#[test]
fn zeros_are_written_into_a_hole_again() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let one = file(&vfs, b"one");
    vfs.write_again(one, 8192, b"end", (at(1), None)).unwrap();
    write(&ledger, one, 0, &[0; 4096]);
    assert_eq!(ledger.replay(&vfs).unwrap().bytes, 4096);
}

/// A daemon that dies while it notes something has not answered: that is sent again.
#[test]
fn what_was_noted_in_part_is_left_out() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let one = file(&vfs, b"one");
    ledger.writes.reserve(&ledger.region, 128, None).unwrap();
    write(&ledger, one, 0, b"whole");
    ledger.replay(&vfs).unwrap();
    assert_eq!(content(&vfs, one), b"whole");
}

/// All was done again in its order: for a moment the device could have the older content of a place where somebody had synced the newer one.
#[test]
fn only_the_last_that_was_written_to_a_place_is_written_again() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let one = file(&vfs, b"one");
    for number in 0..100 {
        write(&ledger, one, number % 10, &[number as u8; 4]);
    }
    write(&ledger, one, 0, &[200; 20]);
    write(&ledger, one, 4, b"last");
    let replayed = ledger.replay(&vfs).unwrap();
    assert_eq!((replayed.writes, replayed.bytes), (2, 20));
    let due = [&[200; 4][..], b"last", &[200; 12][..]].concat();
    assert_eq!(content(&vfs, one), due);
}

/// A user's write takes setuid also where the owner has written over all of it.
#[test]
fn a_write_that_is_written_over_takes_setuid() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let one = file(&vfs, b"one");
    let mode = SetAttr {
        mode: Some(0o4755),
        ..SetAttr::default()
    };
    vfs.setattr(one, Handle::NONE, &mode).unwrap();
    let kills = Written {
        ino: one,
        offset: 0,
        data: b"a user's",
        time: at(2),
        kills: Some(5),
    };
    ledger.written(&kills).unwrap();
    write(&ledger, one, 0, b"the owner's");
    assert_eq!(ledger.replay(&vfs).unwrap().writes, 1);
    assert_eq!(vfs.getattr(one).unwrap().mode & 0o7777, 0o755);
}

#[test]
fn what_was_removed_is_passed_over() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let one = file(&vfs, b"one");
    vfs.unlink(persimmon_vfs::ROOT, b"one").unwrap();
    write(&ledger, one, 0, b"gone");
    assert_eq!(ledger.replay(&vfs).unwrap().writes, 0);
}

/// More than both halves hold is noted; each is emptied by a sync that began after it was full.
#[test]
fn a_half_is_emptied_while_the_other_is_filled() {
    let ledger = Ledger::new([7; 16]).unwrap();
    let synced = AtomicUsize::new(0);
    let data = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ledger.serve(|| {
                synced.fetch_add(1, Ordering::Relaxed);
                true
            });
        });
        for number in 0..100 {
            write(&ledger, Ino(9), number << 20, &data);
        }
        ledger.end();
    });
    assert!(synced.load(Ordering::Relaxed) >= 2);
    let entries = ledger.writes.entries(&ledger.region);
    let offsets: Vec<u64> = entries.iter().map(|entry| entry.offset >> 20).collect();
    let all: Vec<u64> = (100 - offsets.len() as u64..100).collect();
    assert_eq!(offsets, all);
}

/// What cannot be kept is not answered as if it was, and nobody waits for ever.
#[test]
fn a_sync_that_fails_is_told() {
    let ledger = Ledger::new([7; 16]).unwrap();
    let data = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| ledger.serve(|| false));
        let refused = (0..100).any(|number| {
            let written = Written {
                ino: Ino(9),
                offset: number << 20,
                data: &data,
                time: at(2),
                kills: None,
            };
            ledger.written(&written).is_err()
        });
        ledger.end();
        assert!(refused);
    });
}

#[test]
fn an_unknown_ledger_is_refused() {
    let memory = rustix::fs::memfd_create("other", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    assert!(Ledger::open(memory, [7; 16]).is_err());
}

/// Another image has the name of the one that was mounted.
#[test]
fn the_ledger_of_another_volume_is_refused() {
    let ledger = Ledger::new([7; 16]).unwrap();
    let refused = Ledger::open(ledger.memory().unwrap(), [8; 16])
        .err()
        .unwrap();
    assert!(refused.to_string().contains("another volume"));
    assert!(Ledger::open(ledger.memory().unwrap(), [7; 16]).is_ok());
}

/// Flags that the file got after the write, or a limit, forbid new writes: not this one, which was answered.
#[test]
fn what_may_not_be_changed_any_more_is_done_again() {
    for linux in [0x10, 0x20] {
        let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
        let (one, two) = (file(&vfs, b"one"), file(&vfs, b"two"));
        write(&ledger, one, 0, b"before");
        write(&ledger, two, 0, b"behind it");
        let flags = persimmon_vfs::InodeFlags::from_linux(linux).unwrap();
        vfs.set_inode_flags(&Caller::root(), one, flags).unwrap();
        assert_eq!(ledger.replay(&vfs).unwrap().writes, 2);
        assert_eq!(content(&vfs, one), b"before");
        assert_eq!(content(&vfs, two), b"behind it");
    }
}

/// A package is unpacked, and then its program gets a capability.
#[test]
fn capabilities_that_came_after_a_write_stay() {
    let (vfs, ledger) = (vfs(), Ledger::new([7; 16]).unwrap());
    let one = file(&vfs, b"one");
    write(&ledger, one, 0, b"program");
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let name = b"security.capability";
    let either = persimmon_vfs::XattrMode::Either;
    vfs.setxattr(&Caller::root(), one, name, &capability, either)
        .unwrap();
    let position = ledger.position();
    ledger.recorded(one, Recorded::Mode, position).unwrap();
    ledger.replay(&vfs).unwrap();
    assert_eq!(content(&vfs, one), b"program");
    assert_eq!(vfs.getxattr(one, name).unwrap(), capability);
}

/// A thread that was stopped while it filled its place would write into what others have there by then.
#[test]
fn a_half_is_emptied_once_all_places_in_it_are_filled() {
    let ledger = Ledger::new([7; 16]).unwrap();
    let (half, _) = ledger.writes.reserve(&ledger.region, 128, None).unwrap();
    let data = vec![7; 1 << 20];
    std::thread::scope(|scope| {
        scope.spawn(|| ledger.serve(|| true));
        // Into the other half.
        for number in 0..33 {
            write(&ledger, Ino(100 + number), 0, &data);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(ledger.writes.used(&ledger.region, half) > 0);
        ledger.writes.filled(half);
        while ledger.writes.used(&ledger.region, half) > 0 {
            std::thread::yield_now();
        }
        ledger.end();
    });
}
