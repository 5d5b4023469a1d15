//! Items of the tree that are not what they must be: those of one file or name are that one's trouble.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use persimmon_engine::{Intent, Options, Task};
use persimmon_format::extent::Extent;
use persimmon_format::inode::Inode;
use persimmon_format::name::DirEntry;
use persimmon_format::{Key, KeyKind};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{
    Caller, Error, Handle, Ino, Listing, OpenFlags, ROOT, SetAttr, WriteFlags, XattrMode,
};

use crate::fixture::Fixture;

/// Nobody waits so long but for ever: a test that would hang fails instead.
const FOR_EVER: Duration = Duration::from_secs(120);

/// Does something in a thread of its own, which has to end.
fn ends<R: Send + 'static>(
    fs: &Arc<Fixture>,
    work: impl FnOnce(&Fixture) -> R + Send + 'static,
) -> R {
    let (over, ended) = mpsc::channel();
    let fs = Arc::clone(fs);
    std::thread::spawn(move || over.send(work(&fs)));
    ended
        .recv_timeout(FOR_EVER)
        .unwrap_or_else(|_| panic!("it goes on for ever"))
}

fn put(fs: &Fixture, items: &[(Key, Vec<u8>)]) {
    let put = fs.vfs.volume().update::<_, Error>(Intent::Grow, |tx| {
        for (key, value) in items {
            tx.put(*key, value.clone());
        }
        Ok(())
    });
    put.unwrap();
}

/// Everything but the damaged file works, and goes on doing so.
fn others_work(fs: &Fixture, round: &str) {
    assert!(!fs.vfs.is_read_only(), "{round}");
    let name = format!("other-{round}");
    let ino = fs.file(&name, b"content");
    fs.vfs.fsync(ino, Handle::NONE).unwrap();
    fs.write(ino, 5000, b"more");
    fs.vfs.volume().step(Task::WriteBack).unwrap();
    fs.vfs.sync().unwrap();
    assert_eq!(fs.content(ino).len(), 5004);
    fs.unlink(&name);
}

fn scrub_finds(fs: &Fixture, number: u16) -> bool {
    let volume = fs.vfs.volume();
    volume.step(Task::Checkpoint).unwrap();
    let mut cursor = Some(persimmon_engine::ScrubCursor::default());
    let mut found = false;
    while let Some(at) = cursor {
        let step = volume.scrub_step(at, 1000).unwrap();
        found |= step.findings.iter().any(|f| f.damage.number() == number);
        cursor = step.next;
    }
    found
}

fn check_finds(fs: &Fixture, number: u16) -> bool {
    let options = persimmon_inspect::CheckOptions::default();
    let report = persimmon_inspect::check(&*fs.device, &options, &mut |_| {}).unwrap();
    report.findings.iter().any(|found| found.number == number)
}

/// An entry with a slash in its name, or any other that no file may have, made the kernel refuse the whole directory: every
/// listing of it was EIO. One that could not be decoded did that to the daemon itself, and made the volume read-only.
#[test]
fn an_impossible_name_hides_no_other() {
    let fs = Fixture::default();
    let dir = fs.mkdir("d");
    fs.file("d/a", b"a");
    let target = fs.file("d/b", b"b");
    let entry = |number: u64, name: &[u8]| {
        let entry = DirEntry {
            ino: target,
            file_type: 8,
            name,
        };
        (
            Key::new(dir, KeyKind::DIR_ENTRY, number << 8),
            entry.encode(),
        )
    };
    let names: [&[u8]; 5] = [b"../../etc/passwd", b"..", b".", b"a\0b", b"/"];
    let mut items: Vec<_> = (1..).zip(names).map(|(n, name)| entry(n, name)).collect();
    items.push((Key::new(dir, KeyKind::DIR_ENTRY, 9 << 8), vec![1; 9]));
    items.push((Key::new(dir, KeyKind::DIR_ENTRY, 10 << 8), vec![1; 3]));
    // More of them than are taken out of the tree at a time.
    items.extend((20..700).map(|n| entry(n, b"x/y")));
    for part in items.chunks(64) {
        put(&fs, part);
    }
    assert_eq!(fs.names("d"), ["a", "b"]);
    let mut plus = Vec::new();
    fs.vfs
        .readdirplus(dir, Handle::NONE, 2, &mut |entry, _| {
            plus.push(entry.name.to_vec());
            Listing::More
        })
        .unwrap();
    assert_eq!(plus.len(), 2);
    assert_eq!(fs.content(fs.ino("d/a")), b"a");
    assert!(!fs.exists("d/c"));
    others_work(&fs, "names");
    assert!(scrub_finds(&fs, 502), "scrub tells");
    assert!(check_finds(&fs, 601) && check_finds(&fs, 502), "fsck tells");
}

/// One item that did not decode, whoever's it was, made the volume read-only for all at the next look at it.
#[test]
fn an_item_that_does_not_decode_is_the_trouble_of_its_file_alone() {
    let fs = Fixture::default();
    let file = |name: &str| {
        let ino = fs.file(name, &[7; 20_000]);
        fs.vfs.fsync(ino, Handle::NONE).unwrap();
        ino
    };
    let (inode, extent, overlap, xattr) = (
        file("inode"),
        file("extent"),
        file("overlap"),
        file("xattr"),
    );
    fs.vfs
        .setxattr(
            &Caller::root(),
            xattr,
            b"user.good",
            b"v",
            XattrMode::Either,
        )
        .unwrap();
    let reserved = |blocks| Extent::Reserved { blocks }.encode();
    put(
        &fs,
        &[
            (Key::inode(inode), vec![1; Inode::LEN - 1]),
            (Key::extent(extent, 2), vec![0xff; 7]),
            (Key::extent(overlap, 1), reserved(3)),
            (Key::extent(overlap, 2), reserved(3)),
            (Key::new(xattr, KeyKind::XATTR, 300), vec![0]),
        ],
    );
    let is_eio = |what: &str, result: Result<(), Error>| {
        assert_eq!(result.map_err(|e| e.errno()), Err(libc::EIO), "{what}");
        others_work(&fs, what);
    };
    let read = |ino: Ino| {
        let mut buffer = [0; 20_000];
        fs.vfs.read(ino, Handle::NONE, 0, &mut buffer).map(drop)
    };
    let write = |ino: Ino, offset| {
        let flags = WriteFlags::default();
        let written = fs.vfs.write(ino, Handle::NONE, offset, &[1; 4096], flags);
        written.map(drop)
    };
    let truncate = |ino: Ino| {
        let set = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        fs.vfs.setattr(ino, Handle::NONE, &set).map(drop)
    };
    is_eio("lookup", fs.try_at("inode").map(drop));
    is_eio("read an inode", read(inode));
    is_eio("write an inode", write(inode, 0));
    is_eio("unlink an inode", fs.vfs.unlink(ROOT, b"inode"));
    for (name, ino) in [("extent", extent), ("overlap", overlap)] {
        is_eio(name, read(ino));
        is_eio(name, truncate(ino));
        fs.vfs.getattr(ino).unwrap();
    }
    // What cannot be written is given up, and in nobody's way.
    write(extent, 2 * 4096).unwrap();
    fs.vfs.volume().step(Task::WriteBack).unwrap();
    for _ in 0..2 {
        let synced = fs.vfs.sync();
        assert_eq!(synced.map_err(|e| e.errno()), Err(libc::EIO), "sync");
    }
    // Until nobody can take it for written.
    fs.unlink("extent");
    others_work(&fs, "sync");
}

/// A sync of everything told of it once, the background's commit among them: the next `sync`, and `umount` after it, was
/// answered as if everything were durable.
#[test]
fn what_cannot_be_written_for_damage_is_told_by_every_sync_and_is_in_nobodys_way() {
    let fs = Fixture::default();
    let ino = fs.file("bad", &[7; 20_000]);
    fs.vfs.fsync(ino, Handle::NONE).unwrap();
    put(&fs, &[(Key::extent(ino, 2), vec![0xff; 7])]);
    let others: Vec<Ino> = (0..20)
        .map(|n| fs.file(&format!("good{n}"), &[n; 9000]))
        .collect();
    fs.write(ino, 2 * 4096, &[9; 4096]);
    let errno = |result: Result<(), Error>| result.map_err(|error| error.errno());
    // Nobody hears what the background is told.
    fs.vfs.volume().step(Task::Commit).unwrap();
    for _ in 0..2 {
        assert_eq!(errno(fs.vfs.sync()), Err(libc::EIO), "a sync tells of it");
        assert_eq!(errno(fs.vfs.fsync(ino, Handle::NONE)), Err(libc::EIO));
    }
    let more = fs
        .vfs
        .write(ino, Handle::NONE, 0, b"x", WriteFlags::default());
    assert_eq!(
        errno(more.map(drop)),
        Err(libc::EIO),
        "nothing is added to it"
    );
    assert!(!fs.vfs.is_read_only());
    let after = fs.after_damage(3);
    for (n, ino) in others.iter().enumerate() {
        assert_eq!(after.content(*ino), vec![n as u8; 9000]);
    }
    // Without names they are freed, but for the one.
    for n in 0..20 {
        fs.unlink(&format!("good{n}"));
    }
    fs.unlink("bad");
    assert!(!fs.vfs.is_read_only());
    fs.vfs.sync().unwrap();
    assert_eq!(fs.vfs.volume().orphans().unwrap(), [ino]);
    fs.vfs.close().unwrap();
}

/// Cleaning a zone ended where it came by a file with a damaged extent: again and again, until there was no room. It did so too
/// where the extent is intact that lies there, and the inode is damaged, or the extent before, which a move looks at.
#[test]
fn a_zone_with_blocks_of_a_damaged_file_keeps_no_other_from_being_cleaned() {
    for damaged in [|bad| Key::extent(bad, 0), Key::inode] {
        a_zone_is_cleaned_beside(damaged);
    }
}

fn a_zone_is_cleaned_beside(damaged: fn(Ino) -> Key) {
    let fs = Fixture::default();
    let bad = fs.file("bad", &[7; 40_000]);
    fs.write(bad, 100 * 4096, &[8; 40_000]);
    fs.vfs.fsync(bad, Handle::NONE).unwrap();
    put(&fs, &[(damaged(bad), vec![0xff; 7])]);
    let names: Vec<String> = (0..8).map(|n| format!("f{n}")).collect();
    let inos: Vec<Ino> = names.iter().map(|name| fs.file(name, b"")).collect();
    let total = fs.vfs.statfs().unwrap().blocks_available / 10;
    for round in 0..12u64 {
        for (at, ino) in (0..).zip(&inos) {
            for block in 0..total {
                if (block + at + round) % 3 != 0 {
                    fs.write(*ino, block * 4096, &[round as u8; 4096]);
                }
            }
        }
        fs.vfs.sync().unwrap();
        while fs.vfs.volume().step(Task::CleanIfDue).unwrap() == persimmon_engine::Progress::Worked
        {
        }
    }
    assert!(!fs.vfs.is_read_only());
    for task in [Task::Clean, Task::Clean, Task::FreeZones] {
        fs.vfs.volume().step(task).unwrap();
    }
    // Nothing is placed in vain, again and again.
    let moved = fs.vfs.volume().statistics().blocks_moved;
    while fs.vfs.volume().step(Task::Clean).unwrap() == persimmon_engine::Progress::Worked {}
    let moved = fs.vfs.volume().statistics().blocks_moved - moved;
    assert!(moved < 100_000, "{moved}");
}

/// Blocks of damaged files stayed in staging, which counts them, and never left it: once they filled it every write waited for
/// ever. What was written to such a file is given up, and its readers see the file as it is on the device.
#[test]
fn blocks_of_damaged_files_do_not_fill_the_staging() {
    let device = Arc::new(SimDevice::new(SimConfig::new(64, 1024).fast()));
    let engine = Options {
        staging_bytes_max: 1 << 20,
        ..Options::default()
    };
    let fs = Arc::new(Fixture::with_engine(
        device,
        engine,
        persimmon_vfs::Options::default(),
    ));
    for round in 0..4 {
        let ino = fs.file(&format!("bad{round}"), &[7; 20_000]);
        fs.vfs.fsync(ino, Handle::NONE).unwrap();
        put(&fs, &[(Key::extent(ino, 100), vec![0xff; 7])]);
        fs.write(ino, 0, &[9; 200 * 4096]);
        fs.vfs.volume().step(Task::WriteBack).unwrap();
        let size = fs.vfs.getattr(ino).unwrap().size;
        assert_eq!(size, 20_000);
        assert_eq!(fs.content(ino), [7; 20_000]);
    }
    let written = ends(&fs, |fs| {
        let ino = fs.file("good", &[1; 300 * 4096]);
        fs.vfs.fsync(ino, Handle::NONE).map(|()| ino)
    });
    assert_eq!(fs.content(written.unwrap()), [1; 300 * 4096]);
    let staged = fs.vfs.volume().statistics().staged_bytes_peak;
    assert!(staged <= 2 << 20, "{staged}");
}

/// `open` with `O_CREAT` of a name whose inode is gone found the name, no inode behind it, and tried to make it again, for
/// ever, at full speed.
#[test]
fn making_a_file_whose_entry_leads_nowhere_is_an_error() {
    let fs = Arc::new(Fixture::default());
    let ino = fs.file("lost", b"a");
    fs.vfs.fsync(ino, Handle::NONE).unwrap();
    let deleted = fs.vfs.volume().update::<_, Error>(Intent::Shrink, |tx| {
        tx.delete(Key::inode(ino));
        Ok(())
    });
    deleted.unwrap();
    let errno = ends(&fs, |fs| {
        let flags = OpenFlags {
            read: true,
            write: true,
            ..OpenFlags::default()
        };
        let made = fs.vfs.create(&Caller::root(), ROOT, b"lost", 0o644, flags);
        made.map(drop).map_err(|error| error.errno())
    });
    assert_eq!(errno, Err(libc::EIO));
    others_work(&fs, "lost");
}
