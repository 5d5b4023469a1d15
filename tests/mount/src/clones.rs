//! What `cp` copies by cloning.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::fs::statvfs;

use crate::command::{output, script};
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::{Snapshot, sync_tree};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "clones::cp_shares_blocks_until_they_are_written",
        run: cp_shares_blocks_until_they_are_written,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "clones::qemu_img_shares_what_it_converts",
        run: qemu_img_shares_what_it_converts,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "clones::the_command_clones_trees",
        run: the_command_clones_trees,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "clones::usage_tells_shared_from_own",
        run: usage_tells_shared_from_own,
        limit_seconds: 120,
        only_persimmon: true,
    },
    Scenario {
        name: "clones::dedup_shares_what_is_equal_beside_writers",
        run: dedup_shares_what_is_equal_beside_writers,
        limit_seconds: 120,
        only_persimmon: true,
    },
];

const MIB: u64 = 1 << 20;

fn used_bytes(dir: &Path) -> Result<u64> {
    sync_tree(dir)?;
    let room = statvfs(dir)?;
    Ok((room.f_blocks - room.f_bfree) * room.f_frsize)
}

fn cp_shares_blocks_until_they_are_written(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("clones", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    std::fs::create_dir(dir.join("tree"))?;
    for number in 0..20u64 {
        let name = dir.join("tree").join(number.to_string());
        std::fs::write(
            name,
            noise(number, 10 * MIB as usize + 1000 * number as usize),
        )?;
    }
    // Some that compresses, and a hole.
    let text = "what is written again and again. ".repeat(200_000);
    std::fs::write(dir.join("tree/text"), &text)?;
    File::create(dir.join("tree/sparse"))?.write_all_at(b"end", 50 * MIB)?;
    // What compresses takes less from then on.
    sync_tree(&dir)?;
    let before = used_bytes(&dir)?;
    script(
        &dir,
        &[],
        "cp -a --reflink=auto tree copy && cp -a tree third",
    )?;
    let more = used_bytes(&dir)? - before;
    ensure!(more < 10 * MIB, "two copies of 200 MiB take {more} bytes");
    script(&dir, &[], "diff -r tree copy && diff -r tree third")?;
    let (due, third) = (
        Snapshot::take(&dir.join("tree"))?,
        Snapshot::take(&dir.join("third"))?,
    );
    // What one of them writes is its own.
    let file = OpenOptions::new().write(true).open(dir.join("copy/3"))?;
    file.write_all_at(&noise(99, MIB as usize), 5 * MIB)?;
    file.sync_all()?;
    drop(file);
    let more = used_bytes(&dir)? - before;
    ensure!(
        (MIB..12 * MIB).contains(&more),
        "writing 1 MiB takes {more} bytes"
    );
    Snapshot::take(&dir.join("tree"))?.equals(&due)?;
    let changed = Snapshot::take(&dir.join("copy"))?;
    // The rest stays when one goes, through a kill.
    std::fs::remove_dir_all(dir.join("tree"))?;
    sync_tree(&dir)?;
    volume.kill()?;
    volume.mount(&[])?;
    Snapshot::take(&dir.join("copy"))?.equals(&changed)?;
    Snapshot::take(&dir.join("third"))?.equals(&third)?;
    std::fs::remove_dir_all(dir.join("copy"))?;
    std::fs::remove_dir_all(dir.join("third"))?;
    let left = used_bytes(&dir)?;
    ensure!(left < 10 * MIB, "{left} bytes are left of nothing");
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// `-C` has it copy by `copy_file_range`, in pieces.
fn qemu_img_shares_what_it_converts(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("converted", 512 << 20, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    std::fs::write(dir.join("disk"), noise(12, 100 * MIB as usize))?;
    OpenOptions::new()
        .write(true)
        .open(dir.join("disk"))?
        .set_len(400 * MIB)?;
    let before = used_bytes(&dir)?;
    script(&dir, &[], "qemu-img convert -C -f raw -O raw disk copy")?;
    let more = used_bytes(&dir)? - before;
    ensure!(more < 5 * MIB, "the copy of 100 MiB takes {more} bytes");
    script(&dir, &[], "cmp disk copy")?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

/// What files share counts once, in the directory that has them, mounted or not.
fn usage_tells_shared_from_own(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("shared-usage", 256 << 20, &[])?;
    volume.mount(&[])?;
    let path = |name: &str| volume.dir.join(name);
    std::fs::create_dir(path("dir"))?;
    std::fs::write(path("dir/noise"), noise(1, 3 * MIB as usize))?;
    std::fs::write(path("text"), "text that compresses ".repeat(60_000))?;
    std::fs::write(path("own"), noise(2, MIB as usize))?;
    output(volume.tool("sync").arg(&volume.dir))?;
    let copy = "cp --reflink=auto dir/noise dir/copy; cp --reflink=auto dir/noise copy; \
                cp --sparse=never text dir/text";
    script(&volume.dir, &[], copy)?;
    // Two of the copies have a block of their own. It waits to be written where it was shared, so nothing is added.
    for name in ["copy", "dir/copy"] {
        let file = OpenOptions::new().write(true).open(path(name))?;
        file.write_all_at(&noise(3, 4096), MIB)?;
    }
    output(volume.tool("sync").arg(&volume.dir))?;
    let of = |usage: &serde_json::Value, kind: &str| {
        let by = &usage["by_storage"][kind];
        let bytes = |field: &str| by[field].as_u64().unwrap_or(u64::MAX);
        (bytes("content_bytes"), bytes("stored_bytes"))
    };
    let file = volume.usage(&path("dir/noise"))?;
    ensure!(of(&file, "shared") == (3 * MIB, 3 * MIB), "{file}");
    let file = volume.usage(&path("copy"))?;
    ensure!(of(&file, "whole") == (4096, 4096), "{file}");
    let (content, stored) = of(&file, "shared");
    ensure!(content == 3 * MIB - 4096, "{file}");
    ensure!((content..=3 * MIB).contains(&stored), "{file}");
    let text = of(&volume.usage(&path("text"))?, "shared");
    ensure!(text.1 < text.0 / 4, "{text:?}");
    let dir = volume.usage(&path("dir"))?;
    let due = (6 * MIB - 4096 + text.0, 3 * MIB + text.1);
    ensure!(dir["files"] == 3, "{dir}");
    ensure!(of(&dir, "shared") == due, "{dir}, of which {due:?}");
    ensure!(of(&dir, "waiting") == (0, 0), "{dir}");
    std::fs::write(path("new"), noise(4, 10_000))?;
    let new = volume.usage(&path("new"))?;
    let (content, stored) = of(&new, "waiting");
    ensure!(content == 12_288 && stored >= 10_000, "{new}");
    std::fs::remove_file(path("new"))?;
    output(volume.tool("sync").arg(&volume.dir))?;
    let mounted = volume.usage(&volume.dir)?;
    volume.unmount()?;
    let of_volume = volume.usage(&volume.image)?;
    ensure!(mounted == of_volume, "{mounted} mounted, then {of_volume}");
    volume.destroy()
}

fn the_command_clones_trees(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("cloned", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    let path = |name: &str| dir.join(name);
    let clone = |from: &Path, to: &Path| {
        let mut command = volume.tool("clone");
        command.args([from, to]);
        command
    };
    std::fs::create_dir_all(path("tree/deep"))?;
    for number in 0..10u64 {
        // None ends with a block.
        let content = noise(number, 20 * MIB as usize + 1000 * number as usize + 7);
        std::fs::write(path("tree").join(number.to_string()), content)?;
    }
    File::create(path("tree/sparse"))?.write_all_at(b"end", 50 * MIB)?;
    let script_of_tree = "ln tree/1 tree/deep/again; ln -s ../1 tree/deep/link; mkfifo tree/pipe; \
                          setfattr -n user.name -v value tree/2; chmod 4750 tree/3; chmod 2750 tree/deep; \
                          touch -h -d 2001-02-03T04:05:06.789 tree/deep/link tree/4 tree/deep tree";
    script(&dir, &[], script_of_tree)?;
    let due = Snapshot::take(&path("tree"))?;
    let before = used_bytes(&dir)?;
    output(&mut clone(&path("tree"), &path("tree.clone")))?;
    let taken = used_bytes(&dir)?.saturating_sub(before);
    ensure!(taken < MIB, "a clone of 200 MiB takes {taken} bytes");
    // Snapshots have inode numbers too.
    let compare = "list() { cd $1; find . -printf '%p %y %m %n %s %T@ %l\\n' | sort; getfattr -Rh -d -m - .; }; \
                   diff <(list tree) <(list tree.clone); diff -r --no-dereference --exclude pipe tree tree.clone";
    script(&dir, &[], compare)?;
    Snapshot::take(&path("tree"))?.equals(&due)?;

    // A file with its last block, which is not full: nothing is written for it but metadata.
    let written = || -> Result<u64> {
        sync_tree(&dir)?;
        let stats = volume.stats()?;
        stats["data_bytes"].as_u64().context("data_bytes")
    };
    let before = written()?;
    output(&mut clone(&path("tree/5"), &path("five")))?;
    let bytes = written()? - before;
    ensure!(bytes == 0, "{bytes} bytes of data were written for a clone");
    script(&dir, &[], "cmp tree/5 five")?;

    // What is bound into the tree from elsewhere on the volume is named, and not cloned.
    let bind = "mkdir -p bound/at other; echo own > bound/own; echo other > other/f; mount --bind other bound/at";
    script(&dir, &[], bind)?;
    let bound = clone(&path("bound"), &path("bound.clone")).output();
    script(&dir, &[], "umount bound/at")?;
    let bound = bound?;
    let said = String::from_utf8_lossy(&bound.stderr).into_owned();
    ensure!(
        bound.status.code() == Some(4) && said.contains("mounted there from elsewhere"),
        "{said}"
    );
    let left =
        "cmp bound/own bound.clone/own; test ! -e bound.clone/at/f; rm -r bound bound.clone other";
    script(&dir, &[], left)?;

    // What cannot be.
    let elsewhere = bed.outside("elsewhere")?;
    for (from, to, told) in [
        (path("tree"), path("five"), "is there already"),
        (
            path("tree"),
            path("tree/deep/new"),
            "cannot be cloned into itself",
        ),
        (path("tree"), elsewhere.join("new"), "is not on the mount"),
        (
            elsewhere.clone(),
            path("new"),
            "is not on a mounted Persimmon volume",
        ),
    ] {
        let refused = clone(&from, &to).output()?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(
            refused.status.code() == Some(1) && said.contains(told),
            "{from:?} to {to:?}: {said}"
        );
    }
    ensure!(!path("new").exists() && !elsewhere.join("new").exists());
    // Nor of the volume by its image, while it is mounted.
    let mut by_image = volume.tool("clone");
    by_image.arg(&volume.image).args([":/tree", ":/new"]);
    let said = by_image.output()?.stderr;
    let said = String::from_utf8_lossy(&said).into_owned();
    ensure!(said.contains("name SOURCE and TARGET there"), "{said}");

    volume.kill()?;
    volume.mount(&[])?;
    Snapshot::take(&path("tree"))?.equals(&due)?;
    script(&dir, &[], compare)?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}

fn dedup_shares_what_is_equal_beside_writers(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("dedup", 1 << 30, &[])?;
    volume.mount(&[])?;
    let dir = volume.dir.clone();
    let path = |name: &str| dir.join(name);
    let dedup = |more: &[&str]| -> Result<serde_json::Value> {
        let mut command = volume.tool("dedup");
        command.arg(&dir).args(more).arg("--json");
        Ok(serde_json::from_str(&output(&mut command)?)?)
    };
    let bytes = |answer: &serde_json::Value| -> Result<u64> {
        answer["shared_bytes"].as_u64().context("shared_bytes")
    };
    for top in ["one", "two"] {
        std::fs::create_dir(path(top))?;
        for number in 0..10u64 {
            let content = noise(number, 10 * MIB as usize + 1000 * number as usize + 7);
            std::fs::write(path(top).join(number.to_string()), content)?;
        }
    }
    let before = used_bytes(&dir)?;
    ensure!(bytes(&dedup(&["--dry-run"])?)? >= 99 * MIB);
    ensure!(used_bytes(&dir)? >= before, "a dry run changed something");
    // Who writes to both all the while finds what was written last.
    let ended = AtomicBool::new(false);
    let shared = thread::scope(|scope| -> Result<u64> {
        let writers = ["one/3", "two/3", "two/4"].map(|name| {
            let (file, ended) = (path(name), &ended);
            scope.spawn(move || -> Result<()> {
                let file = OpenOptions::new().read(true).write(true).open(file)?;
                let mut old = vec![0; 5000];
                let mut number = 0u64;
                while !ended.load(Ordering::Relaxed) {
                    let at = number * 123_457 % (9 * MIB);
                    file.read_exact_at(&mut old, at)?;
                    let new = noise(number + 99, old.len());
                    for content in [&new, &old] {
                        file.write_all_at(content, at)?;
                        let mut found = vec![0; content.len()];
                        file.read_exact_at(&mut found, at)?;
                        ensure!(found == *content, "a write at {at} was lost");
                    }
                    number += 1;
                }
                Ok(())
            })
        });
        let mut shared = 0;
        let went = (0..3).try_for_each(|_| {
            shared += bytes(&dedup(&[])?)?;
            Ok::<_, anyhow::Error>(())
        });
        ended.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        went.map(|()| shared)
    })?;
    ensure!(shared >= 60 * MIB, "{shared} bytes became shared");
    dedup(&[])?;
    ensure!(bytes(&dedup(&[])?)? == 0, "a second run finds more");
    let saved = before.saturating_sub(used_bytes(&dir)?);
    ensure!(saved > 95 * MIB, "{saved} bytes were freed");
    script(&dir, &[], "diff -r one two")?;
    let due = Snapshot::take(&path("two"))?;
    volume.kill()?;
    volume.mount(&[])?;
    Snapshot::take(&path("two"))?.equals(&due)?;
    script(&dir, &[], "diff -r one two")?;
    volume.unmount()?;
    volume.fsck()?;
    volume.destroy()
}
