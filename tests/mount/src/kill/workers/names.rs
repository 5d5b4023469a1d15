//! Files that change their names: moved between directories, over each other, with each other, and
//! along with their directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, RenameFlags};

use super::{Worker, sync_dir};
use crate::posix::expect::{Noise, noise};

/// Names of directories; of each of these there is one or none, so that one can be renamed.
const DIRECTORIES: [&str; 3] = ["x", "y", "z"];
/// Names of files in each.
const FILES: u64 = 6;

/// Path of each file, and which file it is.
type NamesState = BTreeMap<String, u64>;

/// Renames in every way, each synced by fsync of a directory. Every file is at exactly one of its
/// names, as a whole, and all renames of one moment are seen together.
#[derive(Default)]
pub(super) struct Names {
    acknowledged: NamesState,
    /// States that were asked for since, in order.
    pending: Vec<NamesState>,
    /// Files made so far.
    made: u64,
    steps: u64,
}

/// A file's content tells which it is.
fn body(file: u64) -> Vec<u8> {
    let mut body = file.to_le_bytes().to_vec();
    body.extend(noise(file, 100 + Noise(file).below(9000) as usize));
    body
}

fn look(dir: &Path) -> Result<NamesState> {
    let mut state = NamesState::new();
    for directory in DIRECTORIES {
        let path = dir.join(directory);
        if !path.exists() {
            continue;
        }
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().into_string();
            let name = name.ok().context("a name that nobody gave")?;
            let found = std::fs::read(entry.path())?;
            let number: [u8; 8] = found
                .get(..8)
                .and_then(|bytes| bytes.try_into().ok())
                .with_context(|| format!("{directory}/{name} has {} bytes", found.len()))?;
            let file = u64::from_le_bytes(number);
            ensure!(
                found == body(file),
                "{directory}/{name} is not the whole file {file}"
            );
            state.insert(format!("{directory}/{name}"), file);
        }
    }
    Ok(state)
}

impl Names {
    /// The state that was asked for last.
    fn newest(&self) -> NamesState {
        self.pending.last().unwrap_or(&self.acknowledged).clone()
    }

    /// A file that is durable under a name that does not count.
    fn make(&mut self, dir: &Path) -> Result<u64> {
        self.made += 1;
        let mut file = File::create(dir.join("new"))?;
        file.write_all(&body(self.made))?;
        file.sync_all()?;
        Ok(self.made)
    }

    /// Sets down what a rename will have changed, and does it.
    fn rename(
        &mut self,
        dir: &Path,
        from: &str,
        to: &str,
        then: NamesState,
        flags: RenameFlags,
    ) -> Result<()> {
        self.pending.push(then);
        rustix::fs::renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags)?;
        Ok(())
    }

    fn one(&mut self, dir: &Path, dice: &mut Noise) -> Result<()> {
        let mut state = self.newest();
        let present: Vec<&str> = DIRECTORIES
            .into_iter()
            .filter(|name| dir.join(name).exists())
            .collect();
        ensure!(!present.is_empty(), "the directories are gone");
        let mut path = |directories: &[&str]| {
            let directory = directories[dice.below(directories.len() as u64) as usize];
            format!("{directory}/{}", dice.below(FILES))
        };
        let (from, to) = (path(&present), path(&present));
        match (state.get(&from).copied(), state.get(&to).copied()) {
            _ if from == to => {
                // Every name of a directory changes at once.
                let from = present[0];
                let free = DIRECTORIES.into_iter().find(|name| !present.contains(name));
                let to = free.context("a free name")?;
                let prefix = format!("{from}/");
                let renamed = state.into_iter().map(|(path, file)| {
                    let moved = path
                        .strip_prefix(&prefix)
                        .map(|name| format!("{to}/{name}"));
                    (moved.unwrap_or(path), file)
                });
                let then = renamed.collect();
                self.rename(dir, from, to, then, RenameFlags::empty())
            }
            (Some(one), Some(other)) if dice.below(2) == 0 => {
                state.insert(from.clone(), other);
                state.insert(to.clone(), one);
                self.rename(dir, &from, &to, state, RenameFlags::EXCHANGE)
            }
            (Some(file), _) => {
                state.remove(&from);
                state.insert(to.clone(), file);
                self.rename(dir, &from, &to, state, RenameFlags::empty())
            }
            (None, _) => {
                let file = self.make(dir)?;
                state.insert(to.clone(), file);
                self.rename(dir, "new", &to, state, RenameFlags::empty())
            }
        }
    }
}

impl Worker for Names {
    fn name(&self) -> &'static str {
        "names"
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        self.steps += 1;
        let mut dice = Noise(self.steps);
        for _ in 0..1 + dice.below(3) {
            self.one(dir, &mut dice)?;
        }
        // A sync of any directory is one of all that was renamed before.
        let synced = DIRECTORIES.map(|name| dir.join(name));
        let synced = synced.iter().find(|path| path.exists());
        sync_dir(synced.map_or(dir, |path| path.as_path()))?;
        self.acknowledged = self.newest();
        self.pending.clear();
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let found = look(dir)?;
        let allowed = std::iter::once(&self.acknowledged).chain(&self.pending);
        ensure!(
            allowed.clone().any(|state| *state == found),
            "{found:?} is none of {:?}",
            allowed.collect::<Vec<_>>()
        );
        self.pending.clear();
        self.acknowledged = found;
        if !DIRECTORIES.iter().any(|name| dir.join(name).exists()) {
            std::fs::create_dir(dir.join(DIRECTORIES[0]))?;
            std::fs::create_dir(dir.join(DIRECTORIES[1]))?;
            sync_dir(dir)?;
        }
        Ok(())
    }
}
