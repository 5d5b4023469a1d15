//! Programs that know what must be in their files, and look, until they are told to stop.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, RenameFlags, XattrFlags};

use crate::posix::expect::Noise;

type Work = fn(&Path, &AtomicBool) -> Result<()>;

/// All of them, by name.
pub const ALL: &[(&str, Work)] = &[
    ("bytes", bytes),
    ("names", names),
    ("once", once),
    ("listing", listing),
    ("unlinked", unlinked),
];

const FILE_BYTES: usize = 1 << 20;

/// Writes, truncates, punches and reads one file that stays open, and compares it with memory.
fn bytes(dir: &Path, stop: &AtomicBool) -> Result<()> {
    let options = || {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .to_owned()
    };
    let file = options().open(dir.join("file"))?;
    let mut due: Vec<u8> = Vec::new();
    let mut dice = Noise(11);
    let mut buffer = vec![0; FILE_BYTES];
    while !stop.load(Ordering::SeqCst) {
        let offset = dice.below(FILE_BYTES as u64 / 2) as usize;
        let len = 1 + dice.below(1 << 14) as usize;
        match dice.below(16) {
            0 => {
                file.set_len(offset as u64)?;
                due.resize(offset, 0);
            }
            1 => {
                let flags =
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, flags, offset as u64, len as u64)?;
                let end = due.len().min(offset + len);
                due[offset.min(end)..end].fill(0);
            }
            2 => file.sync_data()?,
            3..6 => {
                let read = file.read_at(&mut buffer, 0)?;
                ensure!(
                    buffer[..read] == due[..],
                    "the file differs from what was written"
                );
            }
            _ => {
                let byte = dice.below(256) as u8;
                file.write_all_at(&vec![byte; len], offset as u64)?;
                if due.len() < offset + len {
                    due.resize(offset + len, 0);
                }
                due[offset..offset + len].fill(byte);
            }
        }
    }
    Ok(())
}

/// Makes, renames, links and removes names, each of which must be there or not.
fn names(dir: &Path, stop: &AtomicBool) -> Result<()> {
    let mut due: BTreeSet<String> = BTreeSet::new();
    let mut dice = Noise(13);
    let mut made = 0u64;
    while !stop.load(Ordering::SeqCst) {
        let some = due
            .iter()
            .nth(dice.below(due.len().max(1) as u64) as usize)
            .cloned();
        made += 1;
        let name = format!("name-{made}");
        match (dice.below(8), some) {
            (0..3, _) => {
                let file = File::create_new(dir.join(&name)).context("creating")?;
                file.write_all_at(name.as_bytes(), 0)?;
                due.insert(name);
            }
            (3, Some(some)) => {
                fs::rename(dir.join(&some), dir.join(&name)).context("renaming")?;
                due.remove(&some);
                due.insert(name);
            }
            (4, Some(some)) => {
                fs::hard_link(dir.join(&some), dir.join(&name)).context("linking")?;
                due.insert(name);
            }
            (5, Some(some)) if due.len() > 20 => {
                fs::remove_file(dir.join(&some)).context("removing")?;
                due.remove(&some);
            }
            (6, Some(some)) => {
                let value = name.as_bytes();
                let path = dir.join(some);
                rustix::fs::setxattr(path, "user.name", value, XattrFlags::empty())?;
            }
            _ if made.is_multiple_of(16) => {
                let listed = fs::read_dir(dir)?;
                let listed: Result<BTreeSet<String>, std::io::Error> = listed
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
                    .collect();
                ensure!(listed? == due, "other names than were made");
            }
            _ => {}
        }
        while due.len() > 60 {
            if let Some(first) = due.pop_first() {
                fs::remove_file(dir.join(first)).context("removing")?;
            }
        }
    }
    Ok(())
}

/// What must be done once: a directory that is made and removed, names that are exchanged, links that are counted, and what is appended.
fn once(dir: &Path, stop: &AtomicBool) -> Result<()> {
    let [left, right, log, links] = ["left", "right", "log", "links"].map(|name| dir.join(name));
    fs::write(&left, "a")?;
    fs::write(&right, "b")?;
    fs::write(&links, "")?;
    let mut lines = 0u64;
    let appended = File::options().append(true).create(true).open(&log)?;
    while !stop.load(Ordering::SeqCst) {
        rustix::fs::renameat_with(CWD, &left, CWD, &right, RenameFlags::EXCHANGE)?;
        let due = if lines.is_multiple_of(2) { "b" } else { "a" };
        ensure!(fs::read_to_string(&left)? == due, "exchanged twice, or not");
        fs::create_dir(dir.join("dir")).context("mkdir")?;
        fs::remove_dir(dir.join("dir")).context("rmdir")?;
        std::os::unix::fs::symlink("to", dir.join("symlink")).context("symlink")?;
        fs::remove_file(dir.join("symlink")).context("removing a link")?;
        fs::hard_link(&links, dir.join("another")).context("link")?;
        ensure!(fs::metadata(&links)?.nlink() == 2, "the count of names");
        fs::remove_file(dir.join("another"))?;
        let created = File::create_new(dir.join("new"));
        created.context("creating")?;
        match File::create_new(dir.join("new")) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            other => anyhow::bail!("{other:?}"),
        }
        fs::remove_file(dir.join("new"))?;
        std::io::Write::write_all(&mut &appended, b"line\n")?;
        lines += 1;
        ensure!(
            fs::metadata(&log)?.len() == 5 * lines,
            "the length of the log"
        );
    }
    ensure!(
        fs::read(&log)? == b"line\n".repeat(lines as usize),
        "the log"
    );
    Ok(())
}

/// A directory that does not change is listed whole, however often the daemon dies meanwhile.
fn listing(dir: &Path, stop: &AtomicBool) -> Result<()> {
    const COUNT: usize = 2000;
    for number in 0..COUNT {
        if stop.load(Ordering::SeqCst) {
            return Ok(());
        }
        File::create(dir.join(format!("a-rather-long-name-of-a-file-{number}")))?;
    }
    while !stop.load(Ordering::SeqCst) {
        let mut listed = BTreeSet::new();
        for entry in fs::read_dir(dir)? {
            ensure!(listed.insert(entry?.file_name()), "a name comes twice");
        }
        ensure!(listed.len() == COUNT, "{} names of {COUNT}", listed.len());
    }
    Ok(())
}

/// Files without a name.
fn unlinked(dir: &Path, stop: &AtomicBool) -> Result<()> {
    let mut round = 0u64;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let path = dir.join("file");
        let mut options = File::options();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        fs::remove_file(&path)?;
        let due = round.to_string().repeat(1000);
        for piece in 0..20u64 {
            file.write_all_at(due.as_bytes(), piece * due.len() as u64)?;
        }
        let mut found = vec![0; due.len()];
        for piece in 0..20u64 {
            file.read_exact_at(&mut found, piece * due.len() as u64)?;
            ensure!(found == due.as_bytes(), "an unlinked file");
        }
    }
    Ok(())
}
