//! Listing directories: complete, once each, stable while they change.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use rustix::fs::FileType;

use crate::door::{Door, Entry};
use crate::expect::*;

crate::table!("readdir":
    an_empty_directory_has_dot_and_dotdot,
    kinds_and_inode_numbers_agree_with_stat,
    any_size_of_page_lists_everything_once,
    every_position_can_be_returned_to,
    entries_stay_in_place_while_others_come_and_go,
    many_entries_come_and_go,
);

fn fill(d: &impl Door, count: usize) -> Result<BTreeSet<String>> {
    let names: BTreeSet<String> = (0..count).map(|n| format!("entry-{n:05}")).collect();
    for name in &names {
        d.mknod(name, 0o100_644, (0, 0))?;
    }
    Ok(names)
}

/// Takes the names out of entries, the dots left out; each must be new.
fn see(seen: &mut BTreeSet<String>, entries: &[Entry]) -> Result<()> {
    for entry in entries.iter().filter(|entry| !entry.is_dot()) {
        let name = entry.name.to_string_lossy().into_owned();
        ensure!(seen.insert(name), "{entry:?} came twice");
    }
    Ok(())
}

fn an_empty_directory_has_dot_and_dotdot(d: &impl Door) -> Result<()> {
    let entries = d.list_from(".", 0, usize::MAX)?;
    let mut dots: Vec<_> = entries
        .iter()
        .map(|e| (e.name.as_os_str(), e.ino, e.kind))
        .collect();
    dots.sort_by_key(|(name, ..)| *name);
    let (own, parent) = (d.ino(".")?, d.ino("..")?);
    let kind = FileType::Directory;
    equal(
        dots,
        vec![(".".as_ref(), own, kind), ("..".as_ref(), parent, kind)],
    )
}

fn kinds_and_inode_numbers_agree_with_stat(d: &impl Door) -> Result<()> {
    d.file("file", b"")?;
    d.dir("dir")?;
    d.symlink("x", "symlink")?;
    for (name, mode) in [
        ("fifo", 0o010_644),
        ("socket", 0o140_644),
        ("char", 0o020_644),
    ] {
        d.mknod(name, mode, (1, 3))?;
    }
    let entries = d.list(".")?;
    equal(entries.len(), 6)?;
    for entry in entries {
        let stat = d.stat(&entry.name)?;
        equal((entry.kind, entry.ino), (stat.kind(), stat.ino))?;
    }
    Ok(())
}

fn any_size_of_page_lists_everything_once(d: &impl Door) -> Result<()> {
    let names = fill(d, 700)?;
    for size in [1, 2, 3, 64, 255, 256, 257, 1000] {
        let (mut seen, mut from) = (BTreeSet::new(), 0);
        loop {
            let page = d.list_from(".", from, size)?;
            let Some(last) = page.last() else {
                break;
            };
            from = last.next;
            see(&mut seen, &page)?;
        }
        ensure!(seen == names, "{} names by {size}", seen.len());
    }
    Ok(())
}

fn every_position_can_be_returned_to(d: &impl Door) -> Result<()> {
    fill(d, 1000)?;
    let entries = d.list_from(".", 0, usize::MAX)?;
    equal(entries.len(), 1002)?;
    let positions: BTreeSet<u64> = entries.iter().map(|entry| entry.next).collect();
    equal(positions.len(), entries.len())?;
    for at in [0, 1, 2, 500, 999, 1000] {
        equal(&d.list_from(".", entries[at].next, 1)?[0], &entries[at + 1])?;
    }
    equal(d.list_from(".", entries[1001].next, 1)?, vec![])
}

fn entries_stay_in_place_while_others_come_and_go(d: &impl Door) -> Result<()> {
    let names = fill(d, 2000)?;
    // Some that go were read already, some not.
    let mut gone: BTreeSet<&String> = BTreeSet::new();
    let mut going = names.iter().step_by(3);
    let (mut seen, mut from) = (BTreeSet::new(), 0);
    for round in 0.. {
        let page = d.list_from(".", from, 20)?;
        let Some(last) = page.last() else {
            break;
        };
        from = last.next;
        see(&mut seen, &page)?;
        if round < 50 {
            d.file(format!("new-{round}"), b"")?;
            for name in going.by_ref().take(10) {
                d.unlink(name)?;
                gone.insert(name);
            }
        }
    }
    let missing: Vec<&String> = names
        .difference(&seen)
        .filter(|n| !gone.contains(n))
        .collect();
    ensure!(missing.is_empty(), "not listed: {missing:?}");
    equal(d.list(".")?.len(), names.len() - gone.len() + 50)
}

fn many_entries_come_and_go(d: &impl Door) -> Result<()> {
    let names = fill(d, 5000)?;
    let mut seen = BTreeSet::new();
    let entries = d.list(".")?;
    see(&mut seen, &entries)?;
    ensure!(seen == names);
    for entry in entries {
        d.unlink(entry.name)?;
    }
    equal(d.list(".")?.len(), 0)
}
