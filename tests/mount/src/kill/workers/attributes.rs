//! Attributes: each change with fsync is there, and of later ones the first few.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{Mode, XattrFlags};

use super::{Worker, sync_dir};
use crate::posix::expect::{Noise, noise};

/// What can be seen of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AttributesState {
    mode: u32,
    size: u64,
    modified: i64,
    /// Seed and length of the extended attribute.
    value: (u64, usize),
}

/// Changes mode, size, time and an extended attribute of one file.
#[derive(Default)]
pub(super) struct Attributes {
    acknowledged: AttributesState,
    /// What was asked for since, in order.
    pending: Vec<AttributesState>,
    steps: u64,
}

const XATTR: &str = "user.kill";

fn value(state: &AttributesState) -> Vec<u8> {
    noise(state.value.0, state.value.1)
}

impl Attributes {
    fn one(&mut self, file: &File, dice: &mut Noise) -> Result<()> {
        let mut state = self.pending.last().unwrap_or(&self.acknowledged).clone();
        let which = dice.below(4);
        match which {
            0 => state.mode = 0o600 | dice.below(0o100) as u32,
            1 => state.size = dice.below(1 << 40),
            2 => state.modified = dice.below(1 << 31) as i64,
            _ => state.value = (dice.next_u64(), 1 + dice.below(900) as usize),
        }
        self.pending.push(state.clone());
        match which {
            0 => rustix::fs::fchmod(file, Mode::from_raw_mode(state.mode))?,
            1 => {
                // A new size sets the time, which is another change: set it back with it.
                rustix::fs::ftruncate(file, state.size)?;
                self.set_time(file, state.modified)?;
            }
            2 => self.set_time(file, state.modified)?,
            _ => rustix::fs::fsetxattr(file, XATTR, &value(&state), XattrFlags::empty())?,
        }
        Ok(())
    }

    fn set_time(&self, file: &File, seconds: i64) -> Result<()> {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds as u64);
        Ok(file.set_modified(time)?)
    }
}

impl Worker for Attributes {
    fn name(&self) -> &'static str {
        "attributes"
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        self.steps += 1;
        let mut dice = Noise(self.steps << 8);
        let file = File::options().write(true).open(dir.join("file"))?;
        for _ in 0..1 + dice.below(3) {
            self.one(&file, &mut dice)?;
        }
        file.sync_all()?;
        self.acknowledged = self.pending.pop().unwrap_or_default();
        self.pending.clear();
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("file");
        if self.steps == 0 {
            let file = File::create(&path)?;
            self.acknowledged = AttributesState {
                mode: 0o644,
                value: (1, 1),
                ..AttributesState::default()
            };
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
            let first = value(&self.acknowledged);
            rustix::fs::fsetxattr(&file, XATTR, &first, XattrFlags::empty())?;
            self.set_time(&file, 0)?;
            file.sync_all()?;
            return sync_dir(dir);
        }
        let meta = std::fs::metadata(&path)?;
        let mut found = vec![0; 1000];
        let len = rustix::fs::getxattr(&path, XATTR, &mut found[..])?;
        found.truncate(len);
        let fits = |state: &&AttributesState| {
            // Between a new size and its time there is a moment.
            let modified = meta.mtime() == state.modified || self.is_new_size(state);
            modified
                && (meta.mode() & 0o7777, meta.size()) == (state.mode, state.size)
                && value(state) == found
        };
        let allowed = std::iter::once(&self.acknowledged).chain(&self.pending);
        let state = allowed.clone().find(fits);
        ensure!(
            state.is_some(),
            "mode {:o}, size {}, time {}, {} bytes of xattr: none of {:?}",
            meta.mode() & 0o7777,
            meta.size(),
            meta.mtime(),
            found.len(),
            allowed.collect::<Vec<_>>()
        );
        let mut state = state.cloned().unwrap_or_default();
        state.modified = meta.mtime();
        self.acknowledged = state;
        self.pending.clear();
        Ok(())
    }
}

impl Attributes {
    /// Whether this state came about by a new size that was not acknowledged.
    fn is_new_size(&self, state: &AttributesState) -> bool {
        let before = std::iter::once(&self.acknowledged).chain(&self.pending);
        before
            .zip(&self.pending)
            .any(|(before, after)| after == state && before.size != after.size)
    }
}
