//! What `cp` copies by cloning.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::statvfs;

use crate::command::script;
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::{Snapshot, sync_tree};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "clones::cp_shares_blocks_until_they_are_written",
    run: cp_shares_blocks_until_they_are_written,
    limit_seconds: 120,
    only_persimmon: true,
}];

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
        more > MIB && more < 12 * MIB,
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
