//! A tree that is copied to a mount that deduplicates what is written: one copy is stored, as after `persimmon dedup`.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::command::{output, script};
use crate::posix::expect::noise;
use crate::scenario::{Scenario, TestBed};
use crate::snapshot::Snapshot;
use crate::volume::Volume;

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "dedup::a_tree_is_stored_once_inline_and_offline",
        run: a_tree_is_stored_once_inline_and_offline,
        limit_seconds: 240,
        only_persimmon: true,
    },
    Scenario {
        name: "dedup::programs_find_their_content",
        run: programs_find_their_content,
        limit_seconds: 240,
        only_persimmon: true,
    },
];

const MIB: u64 = 1 << 20;
const INLINE: [&str; 2] = ["dedup=write", "compression=none"];

/// Files from one block to 16 MiB.
fn make_tree(top: &Path) -> Result<()> {
    for number in 0..1200u64 {
        let dir = top.join((number % 40).to_string());
        std::fs::create_dir_all(&dir)?;
        let len = match number % 100 {
            0 => 16 * MIB + 77,
            _ => 4096 + number * 61,
        };
        std::fs::write(dir.join(number.to_string()), noise(number, len as usize))?;
    }
    Ok(())
}

fn data_bytes(volume: &Volume) -> Result<u64> {
    let usage = volume.usage(&volume.image)?;
    let whole = &usage["by_storage"]["whole"]["stored_bytes"];
    let shared = &usage["by_storage"]["shared"]["stored_bytes"];
    let bytes = [whole, shared].map(|bytes| bytes.as_u64().unwrap_or(0));
    Ok(bytes.iter().sum())
}

fn a_tree_is_stored_once_inline_and_offline(bed: &TestBed) -> Result<()> {
    let mut stored = Vec::new();
    for options in [&INLINE[..], &INLINE[1..]] {
        let is_inline = options.contains(&INLINE[0]);
        let mut volume = bed.volume("dedup-inline", 2 << 30, &[])?;
        volume.mount(options)?;
        let dir = volume.dir.clone();
        make_tree(&dir.join("one"))?;
        script(&dir, &[], "sync")?;
        volume.unmount()?;
        let one = data_bytes(&volume)?;
        // What is copied is remembered as it is read.
        volume.mount(options)?;
        script(
            &dir,
            &[],
            "cp -r --reflink=never --sparse=never one two && sync && cat one/*/* | md5sum > sum",
        )?;
        if is_inline {
            let stats = volume.stats()?;
            let number = |name: &str| stats[name].as_u64().with_context(|| name.to_owned());
            let (shared, table) = (
                number("deduplicated_blocks")? * 4096,
                number("dedup_table_bytes")?,
            );
            ensure!(
                shared > one / 100 * 95,
                "{shared} bytes of {one} became shared"
            );
            ensure!(
                table <= one / 1000,
                "the table takes {table} bytes, for {one} of data"
            );
        } else {
            let mut command = volume.tool("dedup");
            output(command.arg(&dir).args(["--min-run", "1"]))?;
        }
        let due = Snapshot::take(&dir.join("two"))?;
        script(&dir, &[], "diff -r one two")?;
        // What was written to one of them is its own.
        script(
            &dir,
            &[],
            "echo more >> two/0/0 && rm -r one && cat two/*/* | md5sum > sum2",
        )?;
        volume.kill()?;
        volume.mount(options)?;
        ensure!(Snapshot::take(&dir.join("two"))?.equals(&due).is_err());
        volume.unmount()?;
        volume.fsck()?;
        let left = data_bytes(&volume)?;
        ensure!(
            left.abs_diff(one) < one / 50,
            "{one} bytes of a tree, {left} of its copy alone"
        );
        volume.destroy()?;
        stored.push(left);
    }
    println!("stored inline and offline: {stored:?}");
    Ok(())
}

/// Copies that are changed, packed and unpacked, with kills, compressed and not.
fn programs_find_their_content(bed: &TestBed) -> Result<()> {
    for options in [&["dedup=write"][..], &INLINE[..]] {
        let mut volume = bed.volume("dedup-programs", 1 << 30, &[])?;
        volume.mount(options)?;
        let dir = volume.dir.clone();
        let work = "mkdir src && cp -r --reflink=never /usr/include/linux src && \
             for n in 1 2 3; do cp -r --reflink=never src copy$n; done && \
             tar cf all.tar src && mkdir out && tar xf all.tar -C out && \
             dd if=all.tar of=again.tar bs=64k conv=fsync status=none && \
             find copy2 -name '*.h' -size +8k -exec sh -c 'echo changed >> \"$1\"' _ {} ';' && sync";
        script(&dir, &[], work)?;
        let due = Snapshot::take(&dir)?;
        volume.kill()?;
        volume.mount(options)?;
        Snapshot::take(&dir)?.equals(&due)?;
        let compare = "cmp all.tar again.tar && diff -r src copy1 && diff -r src copy3 && diff -r src out/src && \
             rm -r src copy1 && diff -r copy3 out/src && cat copy2/linux/*.h | tail -1";
        script(&dir, &[], compare)?;
        volume.unmount()?;
        volume.fsck()?;
        volume.destroy()?;
    }
    Ok(())
}
