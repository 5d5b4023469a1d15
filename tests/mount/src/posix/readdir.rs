//! Listing directories: complete, once each, stable while they change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{DirEntryExt, MetadataExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, Dir, FileType, OFlags};

use super::expect::*;
use crate::check::Place;

super::statements!("readdir":
    an_empty_directory_has_dot_and_dotdot,
    kinds_and_inode_numbers_agree_with_stat,
    every_entry_comes_once,
    every_position_can_be_returned_to,
    entries_stay_in_place_while_others_are_removed,
    entries_stay_in_place_while_others_are_made,
    removing_what_is_read_empties_the_directory,
    rewinding_shows_what_has_changed,
    two_readers_do_not_disturb_each_other,
    fifty_thousand_entries,
);

fn open_dir(path: &Path) -> Result<Dir> {
    let file: File = open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    Ok(Dir::new(file)?)
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The remaining names, which must all be different.
fn rest(dir: &mut Dir) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        let name = entry.file_name().to_str()?.to_owned();
        ensure!(
            is_dot(name.as_bytes()) || names.insert(name.clone()),
            "{name} came twice"
        );
    }
    Ok(names)
}

fn fill(place: &Place, count: usize) -> Result<BTreeSet<String>> {
    let names: BTreeSet<String> = (0..count)
        .map(|number| format!("entry-{number:05}"))
        .collect();
    for name in &names {
        file(place.at(name), b"")?;
    }
    Ok(names)
}

fn an_empty_directory_has_dot_and_dotdot(place: &Place) -> Result<()> {
    let mut dots = BTreeMap::new();
    for entry in open_dir(&place.dir)? {
        let entry = entry?;
        equal(entry.file_type(), FileType::Directory)?;
        dots.insert(entry.file_name().to_str()?.to_owned(), entry.ino());
    }
    let parent = meta(place.dir.join(".."))?.ino();
    equal(
        dots,
        [
            (".".to_owned(), meta(&place.dir)?.ino()),
            ("..".to_owned(), parent),
        ]
        .into(),
    )
}

fn kinds_and_inode_numbers_agree_with_stat(place: &Place) -> Result<()> {
    file(place.at("file"), b"")?;
    dir(place.at("dir"))?;
    symlink("x", place.at("symlink"))?;
    rustix::fs::mkfifoat(CWD, place.at("fifo"), 0o644.into())?;
    for (name, kind) in [
        ("socket", FileType::Socket),
        ("char", FileType::CharacterDevice),
    ] {
        rustix::fs::mknodat(
            CWD,
            place.at(name),
            kind,
            0o644.into(),
            rustix::fs::makedev(1, 3),
        )?;
    }
    let mut count = 0;
    for entry in std::fs::read_dir(&place.dir)? {
        let entry = entry?;
        let meta = meta(entry.path())?;
        equal(entry.file_type()?, meta.file_type())?;
        equal(entry.ino(), meta.ino())?;
        count += 1;
    }
    equal(count, 6)
}

fn every_entry_comes_once(place: &Place) -> Result<()> {
    let names = fill(place, 5000)?;
    ensure!(rest(&mut open_dir(&place.dir)?)? == names);
    Ok(())
}

fn every_position_can_be_returned_to(place: &Place) -> Result<()> {
    fill(place, 1000)?;
    let mut dir = open_dir(&place.dir)?;
    let mut entries = Vec::new();
    while let Some(entry) = dir.read() {
        let entry = entry?;
        entries.push((entry.offset(), entry.file_name().to_owned()));
    }
    equal(entries.len(), 1002)?;
    let offsets: BTreeSet<i64> = entries.iter().map(|(offset, _)| *offset).collect();
    equal(offsets.len(), entries.len())?;
    for at in [0, 1, 2, 500, 999, 1000] {
        dir.seek(entries[at].0)?;
        let next = dir.read().context("an entry after the position")??;
        equal(next.file_name(), entries[at + 1].1.as_c_str())?;
    }
    dir.seek(entries[1001].0)?;
    equal(dir.read().is_none(), true)
}

fn entries_stay_in_place_while_others_are_removed(place: &Place) -> Result<()> {
    let names = fill(place, 3000)?;
    let mut dir = open_dir(&place.dir)?;
    let mut seen = BTreeSet::new();
    for _ in 0..500 {
        let entry = dir.read().context("an entry")??;
        if !is_dot(entry.file_name().to_bytes()) {
            seen.insert(entry.file_name().to_str()?.to_owned());
        }
    }
    // A third goes, some of it already read, some not.
    let removed: BTreeSet<String> = names.iter().step_by(3).cloned().collect();
    for name in &removed {
        std::fs::remove_file(place.at(name))?;
    }
    for name in rest(&mut dir)? {
        ensure!(seen.insert(name.clone()), "{name} came twice");
    }
    let missing: Vec<&String> = names
        .difference(&seen)
        .filter(|name| !removed.contains(*name))
        .collect();
    ensure!(missing.is_empty(), "not listed: {missing:?}");
    ensure!(rest(&mut open_dir(&place.dir)?)?.len() == names.len() - removed.len());
    Ok(())
}

fn entries_stay_in_place_while_others_are_made(place: &Place) -> Result<()> {
    let names = fill(place, 2000)?;
    let mut dir = open_dir(&place.dir)?;
    let mut seen = BTreeSet::new();
    for round in 0..400 {
        let entry = dir.read().context("an entry")??;
        if !is_dot(entry.file_name().to_bytes()) {
            seen.insert(entry.file_name().to_str()?.to_owned());
        }
        for number in 0..5 {
            file(place.at(format!("new-{round}-{number}")), b"")?;
        }
    }
    for name in rest(&mut dir)? {
        ensure!(seen.insert(name.clone()), "{name} came twice");
    }
    let missing: Vec<&String> = names.difference(&seen).collect();
    ensure!(missing.is_empty(), "not listed: {missing:?}");
    Ok(())
}

fn removing_what_is_read_empties_the_directory(place: &Place) -> Result<()> {
    fill(place, 4000)?;
    for entry in open_dir(&place.dir)? {
        let entry = entry?;
        if !is_dot(entry.file_name().to_bytes()) {
            std::fs::remove_file(place.at(entry.file_name().to_str()?))?;
        }
    }
    equal(std::fs::read_dir(&place.dir)?.count(), 0)
}

fn rewinding_shows_what_has_changed(place: &Place) -> Result<()> {
    fill(place, 100)?;
    let mut dir = open_dir(&place.dir)?;
    equal(rest(&mut dir)?.len(), 100)?;
    file(place.at("new"), b"")?;
    std::fs::remove_file(place.at("entry-00007"))?;
    dir.rewind();
    let names = rest(&mut dir)?;
    equal(
        (names.contains("new"), names.contains("entry-00007")),
        (true, false),
    )
}

fn two_readers_do_not_disturb_each_other(place: &Place) -> Result<()> {
    let names = fill(place, 2000)?;
    let (mut one, mut two) = (open_dir(&place.dir)?, open_dir(&place.dir)?);
    let mut seen = [0, 0];
    for _ in 0..1002 {
        for (count, dir) in seen.iter_mut().zip([&mut one, &mut two]) {
            *count += usize::from(dir.read().transpose()?.is_some());
        }
    }
    equal(seen, [1002, 1002])?;
    equal(rest(&mut one)?.len() + 1002, names.len() + 2)
}

fn fifty_thousand_entries(place: &Place) -> Result<()> {
    let names = fill(place, 50_000)?;
    ensure!(rest(&mut open_dir(&place.dir)?)? == names);
    for name in names.iter().step_by(777) {
        meta(place.at(name))?;
    }
    std::fs::remove_dir_all(&place.dir)?;
    Ok(())
}
