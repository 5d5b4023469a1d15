//! What a mount leaves behind: clean, killed, read-only, with options.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, FileType, OFlags};
use rustix::io::Errno;

use crate::command::{run, script};
use crate::durable::transports;
use crate::posix::expect::{chmod, create, errno, mode, noise, open, refused};
use crate::programs::tree::MAKE_TREE;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::{Snapshot, sync_tree};
use crate::sys::{self, ALICE};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "remount::everything_comes_back_after_an_unmount",
        run: everything_comes_back_after_an_unmount,
        limit_seconds: 120,
        only_persimmon: false,
    },
    Scenario {
        name: "remount::everything_synced_comes_back_after_a_kill",
        run: everything_synced_comes_back_after_a_kill,
        limit_seconds: 120,
        only_persimmon: false,
    },
    Scenario {
        name: "remount::fsync_of_a_file_covers_the_names_and_attributes_of_all",
        run: fsync_of_a_file_covers_the_names_and_attributes_of_all,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "remount::what_maps_hold_is_synced_by_command",
        run: what_maps_hold_is_synced_by_command,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "remount::a_read_only_mount_refuses_every_change",
        run: a_read_only_mount_refuses_every_change,
        limit_seconds: 60,
        only_persimmon: false,
    },
    Scenario {
        name: "remount::a_read_only_mount_after_a_kill_replays_and_writes_nothing",
        run: a_read_only_mount_after_a_kill_replays_and_writes_nothing,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "remount::files_open_without_a_name_are_freed_after_a_kill",
        run: files_open_without_a_name_are_freed_after_a_kill,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "remount::file_handles_stay_what_they_are",
        run: file_handles_stay_what_they_are,
        limit_seconds: 60,
        only_persimmon: false,
    },
    Scenario {
        name: "remount::a_handle_from_before_a_kill_leads_to_no_other_file",
        run: a_handle_from_before_a_kill_leads_to_no_other_file,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "remount::noexec_nosuid_nodev_noatime_are_obeyed",
        run: noexec_nosuid_nodev_noatime_are_obeyed,
        limit_seconds: 60,
        only_persimmon: false,
    },
    Scenario {
        name: "remount::a_page_is_filled_up_through_a_descriptor_that_only_writes",
        run: a_page_is_filled_up_through_a_descriptor_that_only_writes,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "remount::a_removed_directory_stays_while_it_is_somebodys_current_one",
        run: a_removed_directory_stays_while_it_is_somebodys_current_one,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "remount::sigterm_unmounts_cleanly",
        run: sigterm_unmounts_cleanly,
        limit_seconds: 90,
        only_persimmon: true,
    },
];

/// Two of three hung.
const SIGTERM_ROUNDS: u32 = 5;

/// Everything a file can be, many small files, a large one, a sparse one, and removals among them.
fn populate(dir: &Path) -> Result<()> {
    script(dir, &[], MAKE_TREE)?;
    std::fs::create_dir(dir.join("many"))?;
    for number in 0..2000u64 {
        let bytes = noise(number, (number % 97) as usize * 100);
        std::fs::write(dir.join("many").join(number.to_string()), bytes)?;
    }
    for number in (0..2000).step_by(3) {
        std::fs::remove_file(dir.join("many").join(number.to_string()))?;
    }
    std::fs::write(dir.join("large"), noise(1, 20 << 20))?;
    let large = OpenOptions::new().write(true).open(dir.join("large"))?;
    for step in 0..200u64 {
        large.write_all_at(&noise(step, 3000), step * 77_777)?;
    }
    Ok(())
}

fn everything_comes_back_after_an_unmount(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("remount", 1 << 30, &[])?;
    volume.mount(&["dev", "suid"])?;
    populate(&volume.dir)?;
    let due = Snapshot::take(&volume.dir)?;
    ensure!(due.len() > 1300, "{} paths", due.len());
    for round in 0..3 {
        volume.unmount()?;
        volume.fsck()?;
        volume.mount(&["dev", "suid"])?;
        Snapshot::take(&volume.dir)?
            .equals(&due)
            .with_context(|| format!("mount {round}"))?;
    }
    volume.unmount()?;
    volume.destroy()
}

fn everything_synced_comes_back_after_a_kill(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("killed", 1 << 30, &[])?;
    volume.mount_foreground(&["dev", "suid"])?;
    populate(&volume.dir)?;
    let due = Snapshot::take(&volume.dir)?;
    sync_tree(&volume.dir)?;
    for round in 0..3 {
        volume.kill()?;
        volume.fsck()?;
        volume.mount_foreground(&["dev", "suid"])?;
        Snapshot::take(&volume.dir)?
            .equals(&due)
            .with_context(|| format!("kill {round}"))?;
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// `persimmon sync` said that everything was durable while the kernel held what had been stored
/// through a shared map: only the daemon was asked, and it had not heard of that yet.
/// docs/POSIX.md, "What a crash leaves", through the mount: a sync of one file has its content, and names and attributes of
/// all, but not what was written to another.
fn fsync_of_a_file_covers_the_names_and_attributes_of_all(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("promises", 256 << 20, &[])?;
    // Nothing is committed by itself meanwhile.
    volume.mount_foreground(&["commit=600"])?;
    let at = |name: &str| volume.dir.join(name);
    std::fs::write(at("old"), b"old")?;
    std::fs::write(at("long"), vec![7; 50_000])?;
    sync_tree(&volume.dir)?;

    std::fs::create_dir(at("d"))?;
    std::fs::rename(at("old"), at("d/new"))?;
    chmod(at("d/new"), 0o600)?;
    OpenOptions::new()
        .write(true)
        .open(at("long"))?
        .set_len(5_000)?;
    let other = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(at("other"))?;
    other.write_all_at(&[2; 30_000], 0)?;
    let synced = File::create(at("synced"))?;
    synced.write_all_at(&[1; 30_000], 0)?;
    synced.sync_all()?;
    volume.kill_daemon()?;
    drop((other, synced));
    volume.detach()?;

    volume.mount_foreground(&[])?;
    let at = |name: &str| volume.dir.join(name);
    ensure!(std::fs::read(at("synced"))? == [1; 30_000]);
    ensure!(std::fs::read(at("d/new"))? == b"old");
    ensure!(mode(at("d/new"))? == 0o600);
    ensure!(!at("old").exists());
    ensure!(std::fs::read(at("long"))? == [7; 5_000]);
    // Its name is there. What was written to it was in the daemon's memory.
    ensure!(
        std::fs::read(at("other"))?.is_empty(),
        "more than is promised"
    );
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// From Linux 6.18 on the kernel does not write what it holds back of plain FUSE when it is asked for `syncfs`, and the
/// daemon did not ask for it: on such mounts `persimmon sync` said that all was durable, and it was not.
fn what_maps_hold_is_synced_by_command(bed: &TestBed) -> Result<()> {
    for options in [
        &["commit=3600"][..],
        &["commit=3600", "fuse"],
        &["commit=3600", "fuse", "writeback_cache"],
    ] {
        what_the_kernel_holds_back_is_synced(bed, options)
            .with_context(|| format!("-o {}", options.join(",")))?;
    }
    Ok(())
}

fn what_the_kernel_holds_back_is_synced(bed: &TestBed, options: &[&str]) -> Result<()> {
    let mut volume = bed.volume("mapped", 256 << 20, &[])?;
    volume.mount_foreground(options)?;
    let bytes = 4 << 20;
    let file = create(volume.dir.join("f"), OFlags::CREATE | OFlags::RDWR, 0o644)?;
    rustix::fs::ftruncate(&file, bytes as u64)?;
    rustix::fs::fsync(&file)?;
    let map = sys::Map::new(&file, bytes, true)?;
    for at in (0..bytes).step_by(4096) {
        map.set(at, 7);
    }
    let mut written = File::create(volume.dir.join("written"))?;
    written.write_all(&vec![7; bytes])?;
    let mut sync = volume.tool("sync");
    run(sync.arg(&volume.dir))?;
    // Nothing may come after the question.
    volume.kill_daemon()?;
    drop((map, file, written));
    volume.detach()?;
    volume.mount_foreground(&[])?;
    for name in ["f", "written"] {
        let found = std::fs::read(volume.dir.join(name))?;
        ensure!(found.len() == bytes, "{name} has {} bytes", found.len());
        let lost = found.iter().step_by(4096).filter(|byte| **byte != 7);
        ensure!(lost.count() == 0, "pages of {name} were lost");
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn a_read_only_mount_refuses_every_change(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("read-only", 512 << 20, &[])?;
    volume.mount(&["dev", "suid"])?;
    std::fs::write(volume.dir.join("file"), b"content")?;
    std::fs::create_dir(volume.dir.join("dir"))?;
    let due = Snapshot::take(&volume.dir)?;
    volume.unmount()?;
    volume.let_go()?;
    let image = std::fs::read(&volume.image)?;
    volume.mount(&["ro"])?;
    let at = |name: &str| volume.dir.join(name);
    let (file, dir, new) = (at("file"), at("dir"), at("new"));
    let mode = rustix::fs::Mode::RWXU;
    let changes: [(&str, rustix::io::Result<()>); 13] = [
        ("open", open(&file, OFlags::RDWR).map(drop)),
        (
            "creat",
            create(&new, OFlags::CREATE | OFlags::RDWR, 0o644).map(drop),
        ),
        ("mkdir", rustix::fs::mkdir(&new, mode)),
        ("rmdir", rustix::fs::rmdir(&dir)),
        ("unlink", rustix::fs::unlink(&file)),
        ("rename", rustix::fs::rename(&file, &new)),
        ("link", rustix::fs::link(&file, &new)),
        ("symlink", rustix::fs::symlink("x", &new)),
        (
            "mknod",
            rustix::fs::mknodat(CWD, &new, FileType::Fifo, mode, 0),
        ),
        ("chmod", chmod(&file, 0o600)),
        (
            "chown",
            errno(std::os::unix::fs::chown(&file, Some(1), None)),
        ),
        ("truncate", sys::truncate(&file, 0)),
        (
            "setxattr",
            rustix::fs::setxattr(&file, "user.x", b"x", rustix::fs::XattrFlags::empty()),
        ),
    ];
    for (name, result) in changes {
        refused(result, Errno::ROFS).context(name)?;
    }
    Snapshot::take(&volume.dir)?.equals(&due)?;
    // What is emptied as it is opened is not opened at all, and the kernel does not take it for empty.
    let emptied = open(&file, OFlags::RDONLY | OFlags::TRUNC);
    refused(emptied.map(drop), Errno::ROFS)?;
    // The kernel opens files without the daemon here: they are read and locked as ever.
    for _ in 0..3 {
        let opened = open(&file, OFlags::RDONLY)?;
        rustix::fs::flock(&opened, rustix::fs::FlockOperation::NonBlockingLockShared)?;
        let mut content = [0; 10];
        let len = rustix::io::pread(&opened, &mut content, 0)?;
        ensure!(&content[..len] == b"content", "{content:?} is read");
    }
    volume.unmount()?;
    volume.let_go()?;
    if volume.kind == crate::volume::Kind::Persimmon {
        ensure!(
            std::fs::read(&volume.image)? == image,
            "the image has changed"
        );
    }
    volume.destroy()
}

fn a_read_only_mount_after_a_kill_replays_and_writes_nothing(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("read-only-killed", 512 << 20, &[])?;
    volume.mount_foreground(&[])?;
    for number in 0..100u64 {
        let mut file = File::create(volume.dir.join(number.to_string()))?;
        file.write_all(&noise(number, 3000 * (number as usize % 5)))?;
    }
    sync_tree(&volume.dir)?;
    let due = Snapshot::take(&volume.dir)?;
    volume.kill()?;
    let image = std::fs::read(&volume.image)?;
    volume.mount(&["ro"])?;
    Snapshot::take(&volume.dir)?.equals(&due)?;
    volume.unmount()?;
    volume.let_go()?;
    ensure!(
        std::fs::read(&volume.image)? == image,
        "the image has changed"
    );
    volume.mount(&[])?;
    Snapshot::take(&volume.dir)?.equals(&due)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn free_bytes(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

fn files_open_without_a_name_are_freed_after_a_kill(bed: &TestBed) -> Result<()> {
    const BYTES: usize = 64 << 20;
    let mut volume = bed.volume("orphans", 512 << 20, &[])?;
    volume.mount_foreground(&[])?;
    let before = free_bytes(&volume.dir)?;
    let path = volume.dir.join("file");
    std::fs::write(&path, noise(1, BYTES))?;
    let held = File::open(&path)?;
    std::fs::remove_file(&path)?;
    sync_tree(&volume.dir)?;
    ensure!(
        before - free_bytes(&volume.dir)? > BYTES as u64 / 2,
        "an open file was freed"
    );
    volume.kill()?;
    drop(held);
    volume.mount(&[])?;
    let start = Instant::now();
    while before.saturating_sub(free_bytes(&volume.dir)?) > BYTES as u64 / 10 {
        ensure!(
            start.elapsed() < Duration::from_secs(20),
            "the space does not come back"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn file_handles_stay_what_they_are(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("handles", 512 << 20, &[])?;
    volume.mount(&[])?;
    for name in ["one", "two"] {
        std::fs::write(volume.dir.join(name), name)?;
    }
    let handle = |name: &str| sys::handle_of(&volume.dir.join(name));
    let (one, two) = (handle("one")?, handle("two")?);
    ensure!(one != two, "two files have one handle");
    let ino = std::fs::metadata(volume.dir.join("one"))?.ino();
    volume.unmount()?;
    volume.mount(&[])?;
    let handle = |name: &str| sys::handle_of(&volume.dir.join(name));
    ensure!(
        handle("one")? == one && handle("two")? == two,
        "a handle has changed"
    );
    ensure!(
        std::fs::metadata(volume.dir.join("one"))?.ino() == ino,
        "an inode number has changed"
    );
    // A new file never gets the handle of an old one, even with its number.
    for _ in 0..50 {
        std::fs::remove_file(volume.dir.join("two"))?;
        std::fs::write(volume.dir.join("two"), b"new")?;
        let new = sys::handle_of(&volume.dir.join("two"))?;
        ensure!(new != two, "a new file has the handle of a removed one");
    }
    volume.unmount()?;
    volume.destroy()
}

/// A file that a crash took away had a number, and the next file made got it again: a handle that somebody
/// had kept of the one opened the other, whoever that belonged to.
fn a_handle_from_before_a_kill_leads_to_no_other_file(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("killed-handles", 256 << 20, &[])?;
    let mut lost = Vec::new();
    for round in 0..4 {
        volume.mount_foreground(&["commit=3600"])?;
        let mount = File::open(&volume.dir)?;
        for number in 0..20 {
            let path = volume.dir.join(format!("secret-{round}-{number}"));
            std::fs::write(&path, "somebody else's")?;
            let ino = std::fs::metadata(&path)?.ino();
            ensure!(
                lost.iter().all(|(_, other)| *other != ino),
                "inode number {ino} is used again"
            );
        }
        for (handle, ino) in &lost {
            let opened = sys::open_handle(&mount, handle, OFlags::RDONLY);
            refused(opened, Errno::STALE)
                .with_context(|| format!("the handle of inode {ino}, which is lost"))?;
        }
        // Durable; what follows is in the daemon's memory alone.
        rustix::fs::fsync(&mount)?;
        let unsynced = |number: u32| volume.dir.join(format!("unsynced-{round}-{number}"));
        let mut kept = Vec::new();
        for number in 0..20 {
            std::fs::write(unsynced(number), "one's own")?;
            let ino = std::fs::metadata(unsynced(number))?.ino();
            kept.push((sys::handle_of(&unsynced(number))?, ino));
        }
        volume.kill_daemon()?;
        drop(mount);
        volume.detach()?;
        volume.mount_foreground(&[])?;
        for (number, one) in (0..).zip(kept) {
            if !volume
                .dir
                .join(format!("unsynced-{round}-{number}"))
                .exists()
            {
                lost.push(one);
            }
        }
        volume.unmount()?;
        volume.fsck()?;
    }
    ensure!(!lost.is_empty(), "the kills took nothing away");
    volume.destroy()
}

fn noexec_nosuid_nodev_noatime_are_obeyed(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("options", 512 << 20, &[])?;
    volume.mount(&["noexec", "nosuid", "nodev", "noatime"])?;
    chmod(&volume.dir, 0o755)?;
    let program = volume.dir.join("id");
    std::fs::copy("/usr/bin/id", &program)?;
    chmod(&program, 0o4755)?;
    refused(errno(Command::new(&program).status()), Errno::ACCESS).context("noexec")?;
    let null = volume.dir.join("null");
    let device = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(CWD, &null, FileType::CharacterDevice, 0o666.into(), device)?;
    refused(open(&null, OFlags::RDWR), Errno::ACCESS).context("nodev")?;
    let before = std::fs::metadata(&program)?;
    std::thread::sleep(Duration::from_millis(20));
    std::fs::read(&program)?;
    let after = std::fs::metadata(&program)?;
    ensure!(
        (before.atime(), before.atime_nsec()) == (after.atime(), after.atime_nsec()),
        "noatime"
    );
    volume.unmount()?;
    volume.mount(&["suid", "dev"])?;
    ensure!(mode(&program)? == 0o4755, "the bit is kept under nosuid");
    let runs_as = || {
        let output = Command::new(&program).arg("-u").output()?;
        Ok(String::from_utf8(output.stdout)?)
    };
    ensure!(ALICE.run(runs_as)?.trim() == "0", "setuid works under suid");
    open(&null, OFlags::RDWR).context("a device under dev")?;
    volume.unmount()?;
    volume.mount(&["nosuid"])?;
    ensure!(ALICE.run(runs_as)?.trim() != "0", "nosuid");
    volume.unmount()?;
    volume.destroy()
}

/// With `writeback_cache` the kernel reads what a page lacks before it is written in part.
fn a_page_is_filled_up_through_a_descriptor_that_only_writes(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("writeback", 512 << 20, &[])?;
    let path = volume.dir.join("file");
    volume.mount(&[])?;
    let mut due = noise(1, 10_000);
    std::fs::write(&path, &due)?;
    for round in 0..2u8 {
        volume.unmount()?;
        volume.mount(&["writeback_cache"])?;
        let mut end = OpenOptions::new().append(true).open(&path)?;
        end.write_all(&[round; 100]).context("appending")?;
        end.sync_data()?;
        due.extend([round; 100]);
        let middle = OpenOptions::new().write(true).open(&path)?;
        middle
            .write_all_at(&[round; 10], 5000)
            .context("in the middle")?;
        middle.sync_data()?;
        due[5000..5010].fill(round);
        ensure!(std::fs::read(&path)? == due, "content in round {round}");
    }
    volume.unmount()?;
    volume.mount(&[])?;
    ensure!(std::fs::read(&path)? == due, "content after all");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// A directory that the kernel had evicted was freed under the one whose current directory it had
/// become since, once it was removed: that it had been evicted was heard of late. With rings that
/// happened nearly each time, where much is evicted at once.
fn a_removed_directory_stays_while_it_is_somebodys_current_one(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("evicted", 256 << 20, &[])?;
    volume.mount(&[])?;
    let evict = || std::fs::write("/proc/sys/vm/drop_caches", "2\n");
    let others: Vec<_> = (0..100).map(|i| volume.dir.join(format!("f{i}"))).collect();
    for other in &others {
        std::fs::write(other, b"")?;
    }
    let dir = volume.dir.join("d");
    for round in 0..20 {
        std::fs::create_dir(&dir)?;
        for other in &others {
            std::fs::metadata(other)?;
        }
        evict()?;
        sys::in_directory(&dir, || {
            std::fs::remove_dir(&dir)?;
            std::thread::sleep(Duration::from_millis(20));
            let listed = open(".", OFlags::RDONLY)?;
            ensure!(rustix::fs::fstat(&listed)?.st_nlink == 0);
            refused(
                rustix::fs::getxattr(".", "user.x", &mut [0u8; 8][..]),
                Errno::NODATA,
            )
        })
        .with_context(|| format!("round {round}"))?;
    }
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// Through rings it hung for ever, and sync(2) of the whole machine with it: the daemon ended when it had queued its
/// answer to the unmount, which the kernel had not taken yet; the thread that unmounted, and waited for that, kept the
/// connection open.
fn sigterm_unmounts_cleanly(bed: &TestBed) -> Result<()> {
    for transport in transports() {
        for round in 0..SIGTERM_ROUNDS {
            sigterm_unmounts(bed, transport)
                .with_context(|| format!("{transport}, round {round}"))?;
        }
    }
    Ok(())
}

fn sigterm_unmounts(bed: &TestBed, transport: &str) -> Result<()> {
    let mut volume = bed.volume("sigterm", 512 << 20, &[])?;
    volume.mount_foreground(&[transport])?;
    // Nothing synced: ending in order keeps it all the same.
    std::fs::write(volume.dir.join("file"), noise(1, 5_000_000))?;
    volume.terminate()?;
    volume.fsck()?;
    volume.mount(&["ro"])?;
    ensure!(
        std::fs::read(volume.dir.join("file"))? == noise(1, 5_000_000),
        "content"
    );
    volume.unmount()?;
    volume.destroy()
}
