//! A directory for each run alone, and the removal of what runs that were killed have left.
//!
//! A run that dies leaves its mount, with nobody behind it: whoever comes next and uses that directory
//! fails. So no run uses another's, and each takes away those whose run is over.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::command::run;
use crate::scenario::{Scenario, TestBed};
use crate::volume::{cut_off, is_mounted, mounts_below};

/// The scenarios.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "workplace::what_a_killed_run_left_mounted_is_removed",
    run: what_a_killed_run_left_mounted_is_removed,
    limit_seconds: 60,
    only_persimmon: true,
}];

/// What each run's directory begins with; its process number follows.
const PREFIX: &str = "run-";
/// In each such directory: nothing else is removed, whatever its name.
const MARK: &str = ".mount-tests";

/// The directory of this run. It is locked while the run lives: by that the next one knows.
pub struct Workplace {
    dir: PathBuf,
    _lock: File,
}

impl Workplace {
    /// A new directory in `parent`, which is made if need be, once the leavings there are gone.
    pub fn new(parent: &Path) -> Result<Workplace> {
        std::fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        let parent = parent.canonicalize()?;
        // One after the other: a directory that is new and not locked yet looks like one left.
        let turn = File::open(&parent)?;
        flock(&turn, FlockOperation::LockExclusive)?;
        for entry in std::fs::read_dir(&parent)? {
            let entry = entry?;
            let (name, path) = (entry.file_name(), entry.path());
            let is_of_a_run = name.to_string_lossy().starts_with(PREFIX)
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
                && path.join(MARK).is_file();
            if !is_of_a_run {
                continue;
            }
            // Another run may be removing its own.
            let Ok(Some(_lock)) = locked(&path) else {
                continue;
            };
            // What cannot be taken away holds nobody up.
            if let Err(error) = remove(&path) {
                eprintln!("{} is left: {error:#}", path.display());
            }
        }
        let mut dir = parent.join(format!("{PREFIX}{}", std::process::id()));
        // What could not be removed may have the name, from an earlier life of this number.
        while dir.try_exists()? {
            dir.as_mut_os_string().push("-again");
        }
        std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        let lock = locked(&dir)?.context("a new directory is locked by somebody else")?;
        File::create(dir.join(MARK))?;
        Ok(Workplace { dir, _lock: lock })
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Takes it away with all that is in it and mounted below it.
    pub fn remove(self) -> Result<()> {
        remove(&self.dir)
    }
}

/// The lock on a directory, unless somebody has it.
fn locked(dir: &Path) -> Result<Option<File>> {
    let file = File::open(dir).with_context(|| format!("opening {}", dir.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("locking {}", dir.display())),
    }
}

/// Unmounts everything below `dir`, whatever state it is in, and deletes it.
fn remove(dir: &Path) -> Result<()> {
    cut_off(dir)?;
    // What was mounted last goes first: it may stand on another.
    for mount in mounts_below(dir)?.iter().rev() {
        run(Command::new("umount").arg("-l").arg(&mount.mount_point))?;
    }
    let left = mounts_below(dir)?;
    ensure!(left.is_empty(), "still mounted: {left:?}");
    std::fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))
}

fn what_a_killed_run_left_mounted_is_removed(bed: &TestBed) -> Result<()> {
    let parent = bed.outside("killed-run")?;
    let killed = Workplace::new(&parent)?;
    let left = killed.dir().to_owned();
    let work = TestBed {
        work: left.clone(),
        ..bed.clone()
    };
    let mut volume = work.volume("dead", 64 << 20, &[])?;
    volume.mount_foreground(&[])?;
    let another = Workplace::new(&parent)?;
    ensure!(
        is_mounted(&volume.dir)?,
        "a run took away what another one uses"
    );
    another.remove()?;
    volume.kill_daemon()?;
    ensure!(is_mounted(&volume.dir)?, "the dead mount is gone by itself");
    drop(killed);
    let next = Workplace::new(&parent)?;
    ensure!(!is_mounted(&volume.dir)?, "the dead mount is still there");
    ensure!(
        next.dir() == left,
        "the next run works in {}",
        next.dir().display()
    );
    let left = std::fs::read_dir(next.dir())?.count();
    ensure!(left == 1, "there is more than the mark: {left}");
    next.remove()?;
    let foreign = parent.join("run-of-somebody");
    std::fs::create_dir(&foreign)?;
    Workplace::new(&parent)?.remove()?;
    ensure!(foreign.exists(), "what is no run's was removed");
    Ok(())
}
