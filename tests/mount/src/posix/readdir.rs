//! Listing directories: complete, once each, stable while they change.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{Dir, OFlags};

use super::expect::*;
use crate::check::Place;

super::statements!("readdir":
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
