//! What is there after `sync`, `syncfs`, `umount` or a remount read-only returned, and after a rename over a file: the
//! daemon is killed at once, or the image is copied as it is.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use persimmon_fuse::mounts;
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;

use crate::command::{output, run, script};
use crate::posix::expect::{Noise, create, holds, in_threads, noise};
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::Snapshot;
use crate::sys::Map;
use crate::volume::{Volume, is_mounted};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "durable::what_sync_syncfs_and_umount_acknowledged_is_there",
        run: what_sync_syncfs_and_umount_acknowledged_is_there,
        limit_seconds: 1800,
        only_persimmon: true,
    },
    Scenario {
        name: "durable::a_remount_read_only_writes_everything",
        run: a_remount_read_only_writes_everything,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "durable::a_remount_read_only_fails_where_it_cannot_write",
        run: a_remount_read_only_fails_where_it_cannot_write,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "durable::a_file_renamed_over_another_is_whole",
        run: a_file_renamed_over_another_is_whole,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "durable::renames_of_mapped_files_do_not_wait_for_each_other",
        run: renames_of_mapped_files_do_not_wait_for_each_other,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "durable::a_mount_by_root_holds_its_block_device",
        run: a_mount_by_root_holds_its_block_device,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "durable::an_image_is_found_by_its_name",
        run: an_image_is_found_by_its_name,
        limit_seconds: 60,
        only_persimmon: true,
    },
];

/// Rounds, where the command line says nothing.
const ROUNDS: u32 = 21;

/// What writers keep open while they are told that all is durable.
#[derive(Default)]
struct Open {
    files: Vec<File>,
    maps: Vec<Map>,
}

/// All kinds of writers, none of which syncs.
fn write(dir: &Path, round: u64) -> Result<Open> {
    let mut open = Open::default();
    let mut dice = Noise(round);
    let at = |name: &str| dir.join(name);
    // Buffered, large and small, kept open and closed.
    std::fs::write(at("large"), noise(round, 1 << 20 | 777))?;
    let mut kept = OpenOptions::new()
        .create(true)
        .append(true)
        .open(at("log"))?;
    for line in 0..20 {
        kept.write_all(format!("round {round}, line {line}\n").as_bytes())?;
    }
    open.files.push(kept);
    let blocks = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(at("blocks"))?;
    for _ in 0..40 {
        let place = dice.below(500) * 4096 + dice.below(2) * 77;
        blocks.write_all_at(&noise(dice.next_u64(), 3000), place)?;
    }
    // Shared maps: one that stays, one whose descriptor is closed, one that is gone.
    for name in ["mapped", "mapped-closed", "mapped-gone"] {
        let file = create(at(name), OFlags::CREATE | OFlags::RDWR, 0o644)?;
        rustix::fs::ftruncate(&file, 64 << 12)?;
        let map = Map::new(&file, 64 << 12, true)?;
        for page in 0..64 {
            map.set(page << 12 | page, (round + page as u64) as u8);
        }
        match name {
            "mapped" => {
                open.files.push(file);
                open.maps.push(map);
            }
            "mapped-closed" => open.maps.push(map),
            _ => {}
        }
    }
    // Names and attributes.
    let new = at("new");
    std::fs::create_dir_all(at("tree").join((round % 5).to_string()))?;
    std::fs::write(&new, noise(round + 1, 30_000))?;
    std::fs::rename(&new, at("replaced"))?;
    for number in 0..30 {
        let file = at("tree").join(format!("{}-{number}", round % 3));
        if number % 3 == 0 && file.exists() {
            std::fs::remove_file(file)?;
        } else {
            std::fs::write(file, noise(round * 30 + number, number as usize * 40))?;
        }
    }
    let value = format!("value of round {round}");
    rustix::fs::setxattr(
        at("large"),
        "user.round",
        value.as_bytes(),
        XattrFlags::empty(),
    )?;
    let mode = if round.is_multiple_of(2) {
        0o640
    } else {
        0o604
    };
    rustix::fs::chmod(at("replaced"), mode.into())?;
    for name in ["link", "symbolic", "moved"] {
        match std::fs::remove_file(at(name)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    std::fs::hard_link(at("replaced"), at("link"))?;
    symlink(format!("round-{round}"), at("symbolic"))?;
    std::fs::write(at("to-be-moved"), noise(round, 5000))?;
    std::fs::rename(at("to-be-moved"), at("moved"))?;
    OpenOptions::new()
        .write(true)
        .open(at("blocks"))?
        .set_len(1 << 20 | (round * 10))?;
    Ok(open)
}

/// Who says that everything is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acknowledgement {
    Sync,
    Syncfs,
    Umount,
}

/// Mount options of a round.
fn options(round: u32) -> Vec<&'static str> {
    let mut options = vec!["commit=3600"];
    options.extend(match round % 8 {
        2 | 5 => Some("writeback_cache"),
        4 => Some("threads=1"),
        _ => None,
    });
    options.push(transports()[round as usize / 3 % transports().len()]);
    options
}

/// The transports that the kernel offers.
pub fn transports() -> &'static [&'static str] {
    let setting = std::fs::read("/sys/module/fuse/parameters/enable_uring");
    match setting {
        Ok(setting) if setting.first() == Some(&b'Y') => &["io_uring=off", "io_uring=on"],
        _ => &["io_uring=off"],
    }
}

/// Whether this kernel tells a mount of a block device of syncs.
fn hears_of_syncs() -> Result<bool> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(str::parse::<u32>);
    let mut next = || numbers.next().context("a release").and_then(|n| Ok(n?));
    Ok((next()?, next()?) >= (6, 18))
}

/// `sync`, `syncfs` and umount(8) returned at once, and what had been written before was lost with the daemon.
fn what_sync_syncfs_and_umount_acknowledged_is_there(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("durable", 512 << 20, &[])?;
    let kinds: &[Acknowledgement] = if hears_of_syncs()? {
        &[
            Acknowledgement::Sync,
            Acknowledgement::Syncfs,
            Acknowledgement::Umount,
        ]
    } else {
        &[Acknowledgement::Umount]
    };
    let rounds = bed.rounds.unwrap_or(ROUNDS);
    for round in 0..rounds {
        let kind = kinds[round as usize % kinds.len()];
        one_round(&mut volume, round, kind).with_context(|| format!("round {round}, {kind:?}"))?;
    }
    println!("      {rounds} rounds, nothing lost");
    volume.destroy()
}

fn one_round(volume: &mut Volume, round: u32, kind: Acknowledgement) -> Result<()> {
    let copy = volume.image.with_extension("copy");
    volume.mount_foreground(&options(round))?;
    let open = write(&volume.dir, round.into())?;
    let due = Snapshot::take(&volume.dir)?.without_times();
    match kind {
        Acknowledgement::Sync => rustix::fs::sync(),
        Acknowledgement::Syncfs => rustix::fs::syncfs(File::open(&volume.dir)?)?,
        Acknowledgement::Umount => {
            drop(open);
            run(Command::new("umount").arg(&volume.dir))?;
            copied(&volume.image, &copy)?;
            volume.kill_daemon()?;
            return compare(volume, &copy, &due);
        }
    }
    // As the image is at this moment, whatever the daemon would still do.
    volume.kill_daemon()?;
    copied(&volume.image, &copy)?;
    drop(open);
    volume.detach()?;
    compare(volume, &copy, &due)
}

fn copied(image: &Path, copy: &Path) -> Result<()> {
    run(Command::new("cp")
        .args(["--sparse=always", "--"])
        .arg(image)
        .arg(copy))
}

/// The copy has everything, and the volume goes on with it.
fn compare(volume: &mut Volume, copy: &Path, due: &Snapshot) -> Result<()> {
    std::fs::rename(copy, &volume.image)?;
    volume.mount(&[])?;
    Snapshot::take(&volume.dir)?.without_times().equals(due)?;
    volume.unmount()?;
    volume.fsck()
}

/// 5 MB were lost though `mount -o remount,ro` had returned.
fn a_remount_read_only_writes_everything(bed: &TestBed) -> Result<()> {
    for options in [["commit=3600", "rw"], ["commit=3600", "fuse"]] {
        let mut volume = bed.volume("remounted", 256 << 20, &[])?;
        volume.mount_foreground(&options)?;
        let due = noise(1, 5_000_000);
        std::fs::write(volume.dir.join("late"), &due)?;
        remount(&volume, "remount,ro")?;
        volume.kill()?;
        volume.mount(&[])?;
        holds(volume.dir.join("late"), &due).with_context(|| format!("{options:?}"))?;
        volume.unmount()?;
        volume.fsck()?;
        volume.destroy()?;
    }
    Ok(())
}

fn remount(volume: &Volume, how: &str) -> Result<()> {
    run(volume
        .tool("mount")
        .args(["-o", how])
        .arg(&volume.image)
        .arg(&volume.dir))
}

/// It returned 0 on a full host, and what was written last was lost with the daemon.
fn a_remount_read_only_fails_where_it_cannot_write(bed: &TestBed) -> Result<()> {
    let host = bed.outside("full-host-remounted")?;
    script(&host, &[], "mount -t tmpfs -o size=48M tmpfs .")?;
    let result = remount_when_full(&TestBed {
        work: host.clone(),
        ..bed.clone()
    });
    run(Command::new("umount").arg("-l").arg(&host))?;
    result
}

fn remount_when_full(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("full", 256 << 20, &[])?;
    volume.mount(&[])?;
    let outcome = (|| {
        let ballast = "head -c 1G /dev/zero > ballast 2>/dev/null || true";
        script(&bed.work, &[], ballast)?;
        let late = volume.dir.join("late");
        let due = noise(1, 8 << 20);
        File::create(&late)?.write_all(&due)?;
        ensure!(
            remount(&volume, "remount,ro").is_err(),
            "it is said to be written"
        );
        let line = mounts::at(&volume.dir)?.context("the mount")?;
        ensure!(!line.read_only, "it takes no more writes");
        std::fs::remove_file(bed.work.join("ballast"))?;
        remount(&volume, "remount,ro")?;
        holds(&late, &due)
    })();
    volume.detach()?;
    outcome
}

/// With a map that stayed, or with `writeback_cache` and an open descriptor, rename over a file left 65,536 zeros or
/// nothing at all after a kill: the kernel still had the pages.
fn a_file_renamed_over_another_is_whole(bed: &TestBed) -> Result<()> {
    for transport in transports() {
        for (case, options) in [
            ("mapped", vec![]),
            ("stored-after-close", vec![]),
            ("unmapped", vec![]),
            ("open", vec!["writeback_cache"]),
            ("stored-after-close", vec!["writeback_cache", "threads=1"]),
            ("stored-after-close", vec!["fuse", "threads=1"]),
        ] {
            let mut all = vec!["commit=3600", transport];
            all.extend(&options);
            renamed(bed, case, &all).with_context(|| format!("{case}, {all:?}"))?;
        }
    }
    Ok(())
}

fn renamed(bed: &TestBed, case: &str, options: &[&str]) -> Result<()> {
    const BYTES: usize = 65_536;
    let mut volume = bed.volume("renamed", 128 << 20, &[])?;
    volume.mount_foreground(options)?;
    let (new, target) = (volume.dir.join("new"), volume.dir.join("target"));
    let mut old = File::create(&target)?;
    old.write_all(b"OLD")?;
    old.sync_all()?;
    drop(old);
    let mut file = create(
        &new,
        OFlags::CREATE | OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC,
        0o644,
    )?;
    let mut open = Open::default();
    if case == "open" {
        file.write_all(&[b'N'; BYTES])?;
        open.files.push(file);
    } else {
        file.set_len(BYTES as u64)?;
        let map = Map::new(&file, BYTES, true)?;
        let store = |map: &Map| (0..BYTES).for_each(|at| map.set(at, b'N'));
        match case {
            "stored-after-close" => {
                drop(file);
                store(&map);
                open.maps.push(map);
            }
            "mapped" => {
                store(&map);
                drop(file);
                open.maps.push(map);
            }
            _ => store(&map),
        }
    }
    std::fs::rename(&new, &target)?;
    File::open(&volume.dir)?.sync_all()?;
    volume.kill_daemon()?;
    drop(open);
    volume.detach()?;
    volume.mount(&[])?;
    holds(&target, &[b'N'; BYTES])?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// A rename that waits for pages takes none of the threads, or places in rings, that serve these: many at once come to
/// an end, also with one thread.
fn renames_of_mapped_files_do_not_wait_for_each_other(bed: &TestBed) -> Result<()> {
    for transport in transports() {
        for options in [
            ["threads=1", transport],
            ["writeback_cache", transport],
            ["fuse", transport],
        ] {
            let mut volume = bed.volume("crowd", 128 << 20, &[])?;
            volume.mount(&options)?;
            let dir = volume.dir.clone();
            in_threads(40, |thread| {
                let own = dir.join(format!("dir-{thread}"));
                std::fs::create_dir(&own)?;
                for step in 0..10u8 {
                    let file = create(own.join("new"), OFlags::CREATE | OFlags::RDWR, 0o644)?;
                    file.set_len(1 << 16)?;
                    let map = Map::new(&file, 1 << 16, true)?;
                    for page in 0..16 {
                        map.set(page << 12, step + 1);
                    }
                    std::fs::rename(own.join("new"), own.join("target"))?;
                    ensure!(map.get(0) == step + 1, "the map");
                }
                let found = std::fs::read(own.join("target"))?;
                ensure!(found[0] == 10 && found[15 << 12] == 10, "content");
                Ok(())
            })
            .with_context(|| format!("{options:?}"))?;
            volume.unmount()?;
            volume.fsck()?;
            volume.destroy()?;
        }
    }
    Ok(())
}

/// A loop device, detached at the end.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path) -> Result<Loop> {
        let name = output(Command::new("losetup").args(["-f", "--show"]).arg(file))?;
        Ok(Loop(name.trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// Mounted by root, a block device is the source of its mount. The kernel keeps others off it, also when the daemon is
/// gone, until it is unmounted.
fn a_mount_by_root_holds_its_block_device(bed: &TestBed) -> Result<()> {
    let host = bed.work.join("disk");
    File::create(&host)?.set_len(256 << 20)?;
    let disk = Loop::new(&host)?;
    let mut volume = bed.volume_on("device", &disk.0)?;
    volume.mount_foreground(&[])?;
    let line = mounts::at(&volume.dir)?.context("the mount")?;
    ensure!(
        line.fs_type == "fuseblk.persimmon" && line.source == disk.0,
        "{line:?}"
    );
    let exclusively = || {
        let flags = OFlags::RDONLY | OFlags::EXCL;
        rustix::fs::open(&disk.0, flags, rustix::fs::Mode::empty()).map(drop)
    };
    ensure!(
        exclusively() == Err(Errno::BUSY),
        "another may take it while it is mounted"
    );
    ensure!(
        run(volume.tool("mkfs").arg(&disk.0).arg("--force")).is_err(),
        "mkfs"
    );
    let due = noise(7, 3_000_000);
    std::fs::write(volume.dir.join("file"), &due)?;
    run(Command::new("umount").arg(&disk.0))?;
    exclusively().context("it is free as soon as umount returns")?;
    volume.unmount()?;
    volume.detach()?;
    volume.mount_foreground(&[])?;
    holds(volume.dir.join("file"), &due)?;
    volume.kill_daemon()?;
    ensure!(
        exclusively() == Err(Errno::BUSY),
        "another may take it while it is mounted"
    );
    volume.detach()?;
    volume.fsck()?;
    volume.destroy()?;
    std::fs::remove_file(host)?;
    Ok(())
}

/// An image is mounted by way of a loop device, which nobody sees: it is found and unmounted by its own name, and leaves
/// no loop device behind. One user more than root mounts as plain FUSE, and is told what that means.
fn an_image_is_found_by_its_name(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("a name", 128 << 20, &[])?;
    let loops = || output(Command::new("losetup").arg("-a"));
    let before = loops()?;
    volume.mount(&[])?;
    let line = mounts::at(&volume.dir)?.context("the mount")?;
    ensure!(
        line.fs_type == "fuseblk.persimmon" && line.source == volume.image,
        "{line:?}"
    );
    let found = output(
        Command::new("findmnt")
            .args(["-n", "-o", "TARGET"])
            .arg(&volume.image),
    )?;
    ensure!(Path::new(found.trim()) == volume.dir, "findmnt: {found}");
    let shown = output(
        Command::new("df")
            .args(["--output=source"])
            .arg(&volume.dir),
    )?;
    ensure!(
        shown.contains(&volume.image.display().to_string()),
        "df: {shown}"
    );
    let again = volume
        .tool("mount")
        .arg(&volume.image)
        .arg(bed.outside("elsewhere")?)
        .output()?;
    ensure!(!again.status.success(), "it is mounted twice");
    run(Command::new("umount").arg(&volume.image))?;
    ensure!(!is_mounted(&volume.dir)?, "umount IMAGE");
    volume.mount(&[])?;
    run(volume.tool("umount").arg(&volume.image))?;
    ensure!(loops()? == before, "a loop device is left: {}", loops()?);
    let told = volume
        .tool("mount")
        .arg(&volume.image)
        .arg(&volume.dir)
        .args(["-o", "fuse"])
        .stderr(File::create(bed.work.join("told"))?)
        .status()?;
    ensure!(told.success(), "-o fuse");
    let line = mounts::at(&volume.dir)?.context("the mount")?;
    let told = std::fs::read_to_string(bed.work.join("told"))?;
    if line.fs_type != "fuse.persimmon" || told.matches("`persimmon umount`").count() != 1 {
        bail!("{line:?}: {told}");
    }
    run(volume.tool("umount").arg(&volume.dir))?;
    volume.destroy()
}
