//! Files that are written anew beside the old one and renamed over it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Worker, sync_dir};
use crate::posix::expect::{Noise, noise};

/// What is synced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Synced {
    /// The new file before the rename, the directory after it.
    FileAndDirectory,
    /// The directory after the rename: a rename over a file takes its content along.
    Directory,
    /// Nothing: old or new, never half of it.
    Nothing,
}

/// Replaces files by renaming new ones over them: with every sync there is, or with fewer.
pub(super) struct Replacer {
    name: &'static str,
    synced: Synced,
    /// The version that must be there at least.
    acknowledged: BTreeMap<u64, u64>,
    /// The newest version that was tried.
    tried: BTreeMap<u64, u64>,
    dice: Noise,
}

impl Replacer {
    pub fn new(name: &'static str, synced: Synced) -> Replacer {
        Replacer {
            name,
            synced,
            acknowledged: BTreeMap::new(),
            tried: BTreeMap::new(),
            dice: Noise(2),
        }
    }

    fn body(name: u64, version: u64) -> Vec<u8> {
        let len = 1 + Noise(name << 32 | version).below(60_000) as usize;
        let mut body = version.to_le_bytes().to_vec();
        body.extend(noise(name * 1000 + version, len));
        body
    }
}

impl Worker for Replacer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        let name = self.dice.below(20);
        let next = self.tried.get(&name).copied().unwrap_or(0) + 1;
        self.tried.insert(name, next);
        let temporary = dir.join(format!("{name}.new"));
        let mut file = File::create(&temporary)?;
        file.write_all(&Replacer::body(name, next))?;
        if self.synced == Synced::FileAndDirectory {
            file.sync_all()?;
        }
        drop(file);
        std::fs::rename(&temporary, dir.join(name.to_string()))?;
        if self.synced != Synced::Nothing {
            sync_dir(dir)?;
            self.acknowledged.insert(name, next);
        }
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        for name in 0..20 {
            let path = dir.join(name.to_string());
            let due = self.acknowledged.get(&name).copied().unwrap_or(0);
            let tried = self.tried.get(&name).copied().unwrap_or(0);
            if !path.exists() {
                ensure!(due == 0, "{name} is gone, version {due} was acknowledged");
                // Only a name that stands for a whole file already is replaced as a whole.
                let mut file = File::create(&path)?;
                file.write_all(&Replacer::body(name, 1))?;
                file.sync_all()?;
            }
            let tried = tried.max(1);
            let found = std::fs::read(&path)?;
            let number: [u8; 8] = found
                .get(..8)
                .and_then(|bytes| bytes.try_into().ok())
                .with_context(|| format!("{name} has only {} bytes", found.len()))?;
            let version = u64::from_le_bytes(number);
            ensure!(
                found == Replacer::body(name, version),
                "{name} is half a file"
            );
            ensure!(
                (due..=tried).contains(&version),
                "{name} has version {version}, {due} was acknowledged and {tried} tried"
            );
            // What a recovered volume shows is durable.
            self.acknowledged.insert(name, version);
            self.tried.insert(name, version);
        }
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_some() {
                std::fs::remove_file(path)?;
            }
        }
        sync_dir(dir)
    }
}
