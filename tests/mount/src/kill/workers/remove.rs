//! Files, directories and links that come and go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Result, ensure};

use super::{Worker, sync_dir};
use crate::posix::expect::{Noise, noise};

/// Makes and removes files and directories, and syncs the directory.
#[derive(Default)]
pub(super) struct Remover {
    /// For each name whether it must be there.
    acknowledged: BTreeMap<u64, bool>,
    pending: Option<u64>,
    steps: u64,
}

impl Remover {
    fn make(path: &Path, name: u64) -> Result<()> {
        match name % 3 {
            0 => std::fs::create_dir(path)?,
            1 => std::os::unix::fs::symlink(format!("target-{name}"), path)?,
            _ => {
                let mut file = File::create_new(path)?;
                file.write_all(&noise(name, 2000))?;
                file.sync_all()?;
            }
        }
        Ok(())
    }
}

impl Worker for Remover {
    fn name(&self) -> &'static str {
        "make-and-remove"
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        self.steps += 1;
        let name = Noise(self.steps).below(60);
        let path = dir.join(name.to_string());
        let there = self.acknowledged.get(&name).copied().unwrap_or(false);
        self.pending = Some(name);
        match (there, name % 3) {
            (false, _) => Remover::make(&path, name)?,
            (true, 0) => std::fs::remove_dir(&path)?,
            (true, _) => std::fs::remove_file(&path)?,
        }
        sync_dir(dir)?;
        self.acknowledged.insert(name, !there);
        self.pending = None;
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        for name in 0..60 {
            let path = dir.join(name.to_string());
            let there = std::fs::symlink_metadata(&path).is_ok();
            let due = self.acknowledged.get(&name).copied().unwrap_or(false);
            let open = self.pending == Some(name);
            ensure!(
                there == due || open,
                "{name} is there: {there}, acknowledged: {due}"
            );
            if there && !open && name % 3 == 2 {
                ensure!(
                    std::fs::read(&path)? == noise(name, 2000),
                    "content of {name}"
                );
            }
            if there && open {
                // It may lack its content; start it again.
                match name % 3 {
                    0 => std::fs::remove_dir(&path)?,
                    _ => std::fs::remove_file(&path)?,
                }
            }
            self.acknowledged.insert(name, there && !open);
        }
        self.pending = None;
        sync_dir(dir)
    }
}
