//! Compressed files on a mount: what they take, who says how, and that everything that is done to them leaves what it leaves elsewhere.

mod random;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, SeekFrom, XattrFlags};
use serde_json::Value;

use crate::command::{output, run, script};
use crate::posix::expect::{holds, noise};
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::sync_tree;
use crate::sys::{ALICE, Map};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "compression::chattr_and_lsattr_set_and_show_it",
        run: chattr_and_lsattr_set_and_show_it,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "compression::text_takes_less_unless_it_is_told_not_to",
        run: text_takes_less_unless_it_is_told_not_to,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "compression::usage_says_the_same_of_the_mount_and_of_the_volume",
        run: usage_says_the_same_of_the_mount_and_of_the_volume,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "compression::programs_write_and_change_compressed_files",
        run: programs_write_and_change_compressed_files,
        limit_seconds: 120,
        only_persimmon: false,
    },
    Scenario {
        name: "compression::holes_in_compressed_frames_are_found",
        run: holes_in_compressed_frames_are_found,
        limit_seconds: 60,
        only_persimmon: true,
    },
    Scenario {
        name: "compression::random_changes_leave_what_they_leave_in_memory",
        run: random::random_changes_leave_what_they_leave_in_memory,
        limit_seconds: 120,
        only_persimmon: false,
    },
];

const NAME: &str = "user.persimmon.compression";
const FRAME: u64 = 128 << 10;
const BLOCK: u64 = 4096;

/// Numbered lines: each block another, and LZ4 makes less than half of them.
fn text(first: u64, len: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 100);
    for line in first.. {
        if text.len() >= len {
            break;
        }
        text.extend_from_slice(
            format!("{line}: a line of a file of text, such as it is\n").as_bytes(),
        );
    }
    text.truncate(len);
    text
}

fn tell(path: &Path, value: &str) -> Result<()> {
    Ok(rustix::fs::setxattr(
        path,
        NAME,
        value.as_bytes(),
        XattrFlags::empty(),
    )?)
}

fn told(path: &Path) -> Result<Option<String>> {
    let mut value = [0u8; 20];
    match rustix::fs::getxattr(path, NAME, &mut value[..]) {
        Ok(len) => Ok(Some(String::from_utf8_lossy(&value[..len]).into_owned())),
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `st_blocks` in bytes.
fn stored(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path)?.blocks() * 512)
}

/// The letters that lsattr shows.
fn letters(path: &Path) -> Result<String> {
    let shown = output(Command::new("lsattr").arg("-d").arg(path))?;
    let flags = shown.split(' ').next().unwrap_or_default();
    Ok(flags.replace('-', ""))
}

fn chattr(path: &Path, changes: &str) -> Result<()> {
    run(Command::new("chattr").args(changes.split(' ')).arg(path))
}

fn chattr_and_lsattr_set_and_show_it(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("flags", 64 << 20, &[])?;
    volume.mount(&[])?;
    rustix::fs::chmod(&volume.dir, rustix::fs::Mode::from_raw_mode(0o777))?;
    let (file, dir) = (volume.dir.join("f"), volume.dir.join("d"));
    std::fs::write(&file, b"content")?;
    std::fs::create_dir(&dir)?;
    for path in [&file, &dir] {
        ensure!(letters(path)?.is_empty());
        for (changes, value, shown) in [
            ("+c", Some("lz4"), "c"),
            ("+c", Some("lz4"), "c"),
            ("-c", None, ""),
            ("+m", Some("none"), "m"),
            ("-m +c", Some("lz4"), "c"),
            ("-c +m", Some("none"), "m"),
            ("-m", None, ""),
            ("=c", Some("lz4"), "c"),
            ("=m", Some("none"), "m"),
        ] {
            chattr(path, changes).with_context(|| changes.to_owned())?;
            ensure!(
                told(path)?.as_deref() == value,
                "{changes}: {:?}",
                told(path)?
            );
            ensure!(letters(path)? == shown, "{changes}: {}", letters(path)?);
        }
        tell(path, "zstd:7")?;
        ensure!(letters(path)? == "c");
        chattr(path, "+c")?;
        ensure!(told(path)?.as_deref() == Some("zstd:7"));
        for (changes, words) in [
            ("+m", "Invalid argument"),
            ("+A", "not supported"),
            ("+C", "not supported"),
        ] {
            let refused = chattr(path, changes);
            let error = format!("{:#}", refused.err().context(changes.to_owned())?);
            ensure!(error.contains(words), "{changes}: {error}");
        }
        run(Command::new("lsattr").args(["-d", "-p"]).arg(path))?;
        ensure!(told(path)?.as_deref() == Some("zstd:7"));
    }
    // A file of its own, a file of another, and what is made in the directory.
    ALICE.run(|| {
        let own = volume.dir.join("alice");
        std::fs::write(&own, b"content")?;
        let flags = rustix::fs::ioctl_getflags(File::open(&own)?)?;
        ensure!(flags.is_empty());
        let compressed = rustix::fs::IFlags::COMPRESSED;
        rustix::fs::ioctl_setflags(File::open(&own)?, compressed)?;
        ensure!(rustix::fs::ioctl_getflags(File::open(&own)?)? == compressed);
        let refused = rustix::fs::ioctl_setflags(File::open(&file)?, compressed);
        ensure!(refused == Err(rustix::io::Errno::PERM), "{refused:?}");
        Ok(())
    })?;
    std::fs::create_dir(dir.join("below"))?;
    std::fs::write(dir.join("below/f"), b"content")?;
    volume.unmount()?;
    volume.mount(&["ro"])?;
    ensure!(letters(&dir.join("below/f"))? == "c");
    ensure!(told(&dir.join("below"))?.as_deref() == Some("zstd:7"));
    let refused = chattr(&file, "-c").err().context("it was set")?;
    ensure!(format!("{refused:#}").contains("Read-only"));
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn text_takes_less_unless_it_is_told_not_to(bed: &TestBed) -> Result<()> {
    const LEN: usize = 3_000_000;
    let whole = (LEN as u64).next_multiple_of(BLOCK);
    for (mkfs, options, is_compressed) in [
        (&[][..], &[][..], true),
        (&[][..], &["compression=none"][..], false),
        (
            &["--compression", "none"][..],
            &["compression=zstd"][..],
            false,
        ),
        (
            &["--compression", "zstd:3"][..],
            &["compression=none"][..],
            true,
        ),
    ] {
        let what = format!("mkfs {mkfs:?}, mount {options:?}");
        let mut volume = bed.volume("text", 128 << 20, mkfs)?;
        volume.mount(options)?;
        let due = text(0, LEN);
        let at = |name: &str| volume.dir.join(name);
        std::fs::write(at("text"), &due)?;
        std::fs::write(at("noise"), noise(1, LEN))?;
        for (dir, value) in [("none", "none"), ("lz4", "lz4"), ("zstd", "zstd:9")] {
            std::fs::create_dir(at(dir))?;
            tell(&at(dir), value)?;
            std::fs::create_dir_all(at(dir).join("deep/deeper"))?;
            std::fs::write(at(dir).join("deep/deeper/text"), &due)?;
        }
        sync_tree(&volume.dir)?;
        for _ in 0..2 {
            let at = |name: &str| volume.dir.join(name);
            let [text, none, lz4, zstd] = [
                "text",
                "none/deep/deeper/text",
                "lz4/deep/deeper/text",
                "zstd/deep/deeper/text",
            ]
            .map(at);
            for path in [&text, &none, &lz4, &zstd] {
                holds(path, &due)?;
            }
            holds(at("noise"), &noise(1, LEN))?;
            // The last block is not full, and may lie in the tree as it is.
            let is_whole = |taken: u64| taken <= whole && taken > whole - BLOCK;
            let taken = stored(&at("noise"))?;
            ensure!(is_whole(taken), "{what}: noise takes {taken}");
            ensure!(
                is_whole(stored(&none)?),
                "{what}: none takes {}",
                stored(&none)?
            );
            ensure!(stored(&lz4)? < whole / 3, "{what}: lz4 {}", stored(&lz4)?);
            ensure!(stored(&zstd)? < stored(&lz4)?, "{what}: zstd");
            let taken = stored(&text)?;
            let is_less = taken < whole / 3;
            ensure!(
                is_less == is_compressed && taken <= whole,
                "{what}: {taken}"
            );
            volume.unmount()?;
            volume.fsck()?;
            volume.mount(&[])?;
        }
        volume.unmount()?;
        volume.destroy()?;
    }
    Ok(())
}

fn usage_says_the_same_of_the_mount_and_of_the_volume(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("usage", 128 << 20, &[])?;
    volume.mount(&[])?;
    let at = |name: &str| volume.dir.join(name);
    for (dir, value) in [("none", "none"), ("lz4", "lz4"), ("zstd", "zstd:9")] {
        std::fs::create_dir(at(dir))?;
        tell(&at(dir), value)?;
        std::fs::write(at(dir).join("text"), text(0, 1_000_000))?;
    }
    std::fs::write(at("noise"), noise(1, 300_000))?;
    std::fs::hard_link(at("noise"), at("lz4/again"))?;
    std::fs::write(at("small"), b"small")?;
    let sparse = File::create(at("sparse"))?;
    sparse.set_len(50 << 20)?;
    sparse.write_all_at(&noise(2, 100), 30 << 20)?;
    let reserved = File::create(at("reserved"))?;
    rustix::fs::fallocate(&reserved, FallocateFlags::KEEP_SIZE, 0, 100 * BLOCK)?;
    drop((sparse, reserved));
    // Counted by nobody: it is no file.
    std::os::unix::fs::symlink("noise", at("link"))?;
    run(volume.tool("sync").arg(&volume.dir))?;
    let of_mount = volume.usage(&volume.dir)?;
    let waiting = &of_mount["by_storage"]["waiting"]["stored_bytes"];
    ensure!(*waiting == 0, "{of_mount}");
    ensure!(volume.usage(&volume.image)? == of_mount);
    let [none, lz4] = ["none/text", "lz4/text"].map(at);
    let (none, lz4) = (volume.usage(&none)?, volume.usage(&lz4)?);
    ensure!(none["files"] == 1 && none["content_bytes"] == lz4["content_bytes"]);
    ensure!(lz4["ratio"].as_f64() < none["ratio"].as_f64());
    // A user who may not look everywhere is told so.
    rustix::fs::chmod(at("zstd"), rustix::fs::Mode::from_raw_mode(0o700))?;
    rustix::fs::chmod(&volume.dir, rustix::fs::Mode::from_raw_mode(0o755))?;
    let of_alice = ALICE.run(|| {
        Ok(volume
            .tool("usage")
            .arg(&volume.dir)
            .arg("--json")
            .output()?)
    })?;
    ensure!(of_alice.status.code() == Some(1), "{of_alice:?}");
    let of_alice: Value = serde_json::from_slice(&of_alice.stdout)?;
    ensure!(
        of_alice["unreadable"] == 1 && of_alice["files"] == 6,
        "{of_alice}"
    );

    volume.unmount()?;
    let of_volume = volume.usage(&volume.image)?;
    for field in [
        "files",
        "content_bytes",
        "stored_bytes",
        "ratio",
        "by_storage",
    ] {
        let (mount, volume) = (&of_mount[field], &of_volume[field]);
        ensure!(mount == volume, "{field}: {mount} mounted, then {volume}");
    }
    ensure!(of_volume["files"] == 7, "{of_volume}");
    let reserved = &of_volume["by_storage"]["reserved"]["stored_bytes"];
    ensure!(*reserved == 100 * BLOCK, "{of_volume}");
    volume.destroy()
}

/// A directory in memory, to compare with.
struct Memory(PathBuf);

impl Memory {
    fn mount(bed: &TestBed, name: &str) -> Result<Memory> {
        let dir = bed.outside(name)?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=512m", "tmpfs"]);
        run(command.arg(&dir))?;
        Ok(Memory(dir))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Does the same on the mount and in memory, and compares; then once more after an unmount.
fn programs_write_and_change_compressed_files(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("programs", 512 << 20, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.join("work");
    std::fs::create_dir(&dir)?;
    let memory = Memory::mount(bed, "programs-in-memory")?;
    let source = bed.outside("source")?;
    std::fs::create_dir(source.join("tree"))?;
    for number in 0..200u64 {
        let len = [100, 3000, 9000, 70_000, 300_000][(number % 5) as usize];
        std::fs::write(
            source.join("tree").join(number.to_string()),
            text(number * 1000, len),
        )?;
    }
    std::fs::write(source.join("text"), text(7, 5_000_000))?;
    std::fs::write(source.join("noise"), noise(7, 1_000_000))?;
    for dir in [&dir, &memory.0] {
        script(
            dir,
            &[("FROM", &source)],
            r#"
            cp -a "$FROM/tree" copied
            mkdir untarred; tar -C "$FROM" -c tree | tar -C untarred -x
            tar -c --sort=name copied > tree.tar
            cp "$FROM/text" text; cp text again; cp --reflink=auto --sparse=always text sparse
            # In memory there is no way round the cache, and a range becomes zeros as a hole.
            case "$(stat -f -c %T .)" in tmpfs) direct= zeros=-p ;; *) direct=direct zeros=-z ;; esac
            dd status=none if="$FROM/text" of=direct bs=128K iflag=fullblock count=38 ${direct:+oflag=$direct}
            dd status=none if="$FROM/noise" of=direct bs=4K count=7 seek=33 conv=notrunc ${direct:+oflag=$direct}
            dd status=none if="$FROM/text" of=direct bs=64K count=3 seek=9 skip=20 conv=notrunc ${direct:+oflag=$direct}
            cp "$FROM/text" changed; sync changed
            dd status=none if="$FROM/noise" of=changed bs=1000 seek=333 count=300 conv=notrunc
            dd status=none if="$FROM/noise" of=changed bs=1 seek=1234567 count=10 conv=notrunc,fsync
            cp "$FROM/text" punched; sync punched
            for at in 4096 131072 200000 1048576 3000001; do fallocate -p -o $at -l 40000 punched; done
            sync punched
            fallocate -p -o 0 -l 4096 punched; fallocate -p -o 4194304 -l 262144 punched
            fallocate $zeros -o 700000 -l 100000 punched
            cp "$FROM/text" cut; sync cut; truncate -s 1234567 cut; truncate -s 3000000 cut; sync cut
            truncate -s 131072 cut; head -c 5000 "$FROM/text" >> cut
            fallocate -l 1M reserved; dd status=none if="$FROM/text" of=reserved bs=10000 seek=10 count=20 conv=notrunc,fsync
            cp "$FROM/text" reserved-later; sync reserved-later; fallocate -o 4M -l 2M reserved-later
            dd status=none if="$FROM/text" of=reserved-later bs=64K seek=60 count=20 conv=notrunc,fsync
            for n in $(seq 100); do head -c 1000 "$FROM/text" >> appended; [ $((n % 9)) = 0 ] && sync appended || true; done
            : > emptied; cp "$FROM/text" emptied; sync emptied; head -c 100 "$FROM/text" > emptied
            "#,
        )
        .with_context(|| dir.display().to_string())?;
        std::fs::copy(source.join("text"), dir.join("mapped"))?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(dir.join("mapped"))?;
        file.sync_all()?;
        let map = Map::new(&file, 2_000_000, true)?;
        for at in (0..2_000_000).step_by(7919) {
            map.set(at, at as u8);
        }
        map.sync()?;
    }
    let compare = |when: &str| -> Result<()> {
        let mut command = Command::new("diff");
        command.args(["-r", "--no-dereference"]);
        run(command.args([&dir, &memory.0])).with_context(|| when.to_owned())
    };
    compare("as cached")?;
    sync_tree(&volume.dir)?;
    compare("after a sync")?;
    volume.unmount()?;
    volume.fsck()?;
    volume.mount(&[])?;
    compare("after an unmount")?;
    volume.unmount()?;
    drop(memory);
    volume.destroy()
}

/// Ranges of data that `SEEK_DATA` and `SEEK_HOLE` find.
fn data_ranges(file: &File) -> Result<Vec<(u64, u64)>> {
    let end = file.metadata()?.len();
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < end {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        ensure!(
            start < at && at <= end,
            "data from {start} to {at} of {end}"
        );
        ranges.push((start, at));
    }
    Ok(ranges)
}

fn holes_in_compressed_frames_are_found(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("holes", 64 << 20, &[])?;
    volume.mount(&[])?;
    let path = volume.dir.join("f");
    let len = 8 * FRAME;
    let mut due = text(0, len as usize);
    std::fs::write(&path, &due)?;
    let file = OpenOptions::new().read(true).write(true).open(&path)?;
    file.sync_all()?;
    let before = stored(&path)?;
    ensure!(before < len / 3);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut hole = |from: u64, to: u64| -> Result<()> {
        due[from as usize..to as usize].fill(0);
        Ok(rustix::fs::fallocate(&file, punch, from, to - from)?)
    };
    // In the midst of a frame, over the boundary of two, all of one, and within a block, which leaves data.
    hole(5 * BLOCK, 9 * BLOCK)?;
    hole(2 * FRAME - BLOCK, 2 * FRAME + 2 * BLOCK)?;
    hole(4 * FRAME, 5 * FRAME)?;
    hole(6 * FRAME + 100, 6 * FRAME + 3000)?;
    drop(file);
    let ranges = [
        (0, 5 * BLOCK),
        (9 * BLOCK, 2 * FRAME - BLOCK),
        (2 * FRAME + 2 * BLOCK, 4 * FRAME),
        (5 * FRAME, len),
    ];
    for round in 0..3 {
        let file = File::open(&path)?;
        ensure!(
            data_ranges(&file)? == ranges,
            "round {round}: {:?}",
            data_ranges(&file)?
        );
        holds(&path, &due)?;
        match round {
            0 => file.sync_all()?,
            1 => {
                let after = stored(&path)?;
                ensure!(after < before, "{after} bytes, before {before}");
                drop(file);
                volume.unmount()?;
                volume.fsck()?;
                volume.mount(&[])?;
            }
            _ => {}
        }
    }
    volume.unmount()?;
    volume.destroy()
}
