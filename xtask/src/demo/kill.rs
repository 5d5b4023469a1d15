//! SIGKILL for the daemon amid synced writers, and the proof that nothing acknowledged is lost.
//!
//! Each writer notes in a list outside the mount what the filesystem told it to be durable, and only then
//! goes on. After the kill and the next mount, everything on the list must be there.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use super::Page;
use super::counters::Counters;
use crate::volume::{Noise, Volume};

const ROUNDS: u32 = 3;
/// From the writers' start to the kill.
const PEACE: Duration = Duration::from_millis(1500);
const RECORD: usize = 4096;

pub fn show(page: &mut Page, volume: &Volume, work: &Path, counters: &mut Counters) -> Result<()> {
    for round in 1..=ROUNDS {
        let list = work.join(format!("acknowledged-{round}"));
        let dir = volume.dir.join(format!("round-{round}"));
        page.step("SIGKILL the daemon", || {
            std::fs::create_dir(&dir)?;
            File::open(&volume.dir)?.sync_all()?;
            let count = write_and_kill(volume, &dir, &list, counters)?;
            Ok(format!(
                "while four writers appended, made, replaced and removed: {count} acknowledged"
            ))
        })?;
        page.step("mount, compare", || {
            volume.detach()?;
            let said = volume.mount()?;
            let said = said.lines().next().unwrap_or_default();
            let recovery = said.rsplit_once(".img: ").map_or(said, |(_, text)| text);
            ensure!(!recovery.is_empty(), "the mount says nothing of a recovery");
            let count = compare(&dir, &list)?;
            // On a fast machine three rounds write more than the nearly full volume has left.
            std::fs::remove_dir_all(&dir)?;
            Ok(format!(
                "{recovery}\nall {count} acknowledged changes are there"
            ))
        })?;
    }
    page.step("fsck --data after it", || {
        counters.add(volume)?;
        volume.unmount()?;
        let verdict = volume.fsck()?;
        volume.mount()?;
        Ok(verdict)
    })
}

/// What a writer does for its `number`th change; an error once the daemon is dead.
type Change = fn(&Path, u64) -> std::io::Result<()>;

/// The writers by the names that they have in the list.
const WRITERS: [(&str, Change); 4] = [
    ("append", append),
    ("create", create),
    ("replace", replace),
    ("remove", remove),
];

fn content(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; RECORD];
    Noise(number).fill(&mut bytes);
    bytes
}

fn log_path(dir: &Path) -> PathBuf {
    dir.join("log")
}

fn created_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("created-{number}"))
}

fn removed_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("removed-{number}"))
}

fn replaced_path(dir: &Path) -> PathBuf {
    dir.join("replaced")
}

fn append(dir: &Path, number: u64) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut log = options.append(true).create(true).open(log_path(dir))?;
    log.write_all(&content(number))?;
    log.sync_data()?;
    if number == 0 {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

fn write_synced(path: &Path, number: u64) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&content(number))?;
    file.sync_all()
}

fn create(dir: &Path, number: u64) -> std::io::Result<()> {
    write_synced(&created_path(dir, number), number)?;
    File::open(dir)?.sync_all()
}

fn replace(dir: &Path, number: u64) -> std::io::Result<()> {
    let new = dir.join("replaced.new");
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(content(number));
    let mut file = File::create(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(new, replaced_path(dir))?;
    File::open(dir)?.sync_all()
}

fn remove(dir: &Path, number: u64) -> std::io::Result<()> {
    let path = removed_path(dir, number);
    write_synced(&path, number)?;
    std::fs::remove_file(path)?;
    File::open(dir)?.sync_all()
}

/// Lets the writers work, kills the daemon, and waits for them to notice; how much was acknowledged.
fn write_and_kill(
    volume: &Volume,
    dir: &Path,
    list: &Path,
    counters: &mut Counters,
) -> Result<u64> {
    let mut options = OpenOptions::new();
    let list = options.append(true).create_new(true).open(list)?;
    let killed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers = WRITERS.map(|(name, change)| {
            let (list, killed) = (&list, &killed);
            scope.spawn(move || write(dir, name, change, list, killed))
        });
        std::thread::sleep(PEACE);
        let counted = counters.add(volume);
        killed.store(true, Ordering::SeqCst);
        let died = volume.kill_daemon();
        if died.is_err() {
            // Nothing else would end the writers.
            volume.detach()?;
        }
        let mut count = 0;
        for writer in writers {
            count += writer.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        counted.and(died)?;
        ensure!(count > 0, "nothing was acknowledged before the kill");
        Ok(count)
    })
}

fn write(
    dir: &Path,
    name: &str,
    change: Change,
    mut list: &File,
    killed: &AtomicBool,
) -> Result<u64> {
    let mut number = 0;
    loop {
        match change(dir, number) {
            // One write of a short line to a file opened for appending: lines never mix.
            Ok(()) => list.write_all(format!("{name} {number}\n").as_bytes())?,
            Err(_) if killed.load(Ordering::SeqCst) => return Ok(number),
            Err(error) => return Err(error).with_context(|| format!("{name} {number}")),
        }
        number += 1;
    }
}

/// Holds the list against the volume; the number of its lines.
fn compare(dir: &Path, list: &Path) -> Result<usize> {
    let text = std::fs::read_to_string(list)?;
    let names: HashSet<_> = std::fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    let mut replaced_last = None;
    for line in text.lines() {
        let (writer, number) = line.split_once(' ').context("a line of the list")?;
        let number: u64 = number.parse()?;
        match writer {
            "append" => {
                let mut found = vec![0; RECORD];
                File::open(log_path(dir))?
                    .read_exact_at(&mut found, number * RECORD as u64)
                    .with_context(|| format!("acknowledged record {number} is lost"))?;
                ensure!(found == content(number), "record {number} is damaged");
            }
            "create" => {
                let found = std::fs::read(created_path(dir, number))
                    .with_context(|| format!("acknowledged file {number} is lost"))?;
                ensure!(found == content(number), "file {number} is damaged");
            }
            "replace" => replaced_last = Some(number),
            _ => ensure!(
                !names.contains(&removed_path(dir, number)),
                "file {number}, removed for good, is back"
            ),
        }
    }
    if let Some(least) = replaced_last {
        let found = std::fs::read(replaced_path(dir)).context("the replaced file is lost")?;
        let (number, rest) = found
            .split_first_chunk::<8>()
            .context("the replaced file is cut")?;
        let number = u64::from_le_bytes(*number);
        ensure!(
            number >= least,
            "replacement {least} is lost: {number} is there"
        );
        ensure!(
            rest == content(number),
            "replacement {number} is half there"
        );
    }
    Ok(text.lines().count())
}
