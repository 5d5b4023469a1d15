//! The writers of the kill tests: each knows what was acknowledged to it, what it had under way, and
//! what the filesystem may show after a crash.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::posix::expect::{Noise, noise};

const BLOCK: usize = 4096;

/// One writer, in a directory of its own.
pub trait Worker: Send {
    /// Also the name of its directory.
    fn name(&self) -> &'static str;
    /// One step; when it comes back without error, what it synced is acknowledged.
    fn step(&mut self, dir: &Path) -> Result<()>;
    /// Compares with what is there after a crash, and goes on from that.
    fn verify(&mut self, dir: &Path) -> Result<()>;
}

/// One of each.
pub fn all() -> Vec<Box<dyn Worker>> {
    vec![
        Box::new(Appender {
            sync: File::sync_all,
            name: "append-fsync",
            ..Appender::new()
        }),
        Box::new(Appender::new()),
        Box::new(Blocks::default()),
        Box::new(Replacer::new("replace-synced", true)),
        Box::new(Replacer::new("replace-unsynced", false)),
        Box::new(Remover::default()),
        Box::new(Unsynced::default()),
    ]
}

fn sync_dir(dir: &Path) -> Result<()> {
    Ok(File::open(dir)?.sync_all()?)
}

/// Appends records and syncs each.
struct Appender {
    name: &'static str,
    sync: fn(&File) -> std::io::Result<()>,
    acknowledged: Vec<u8>,
    pending: Vec<u8>,
    steps: u64,
}

impl Appender {
    const BYTES_MAX: usize = 3 << 20;

    fn new() -> Appender {
        Appender {
            name: "append-fdatasync",
            sync: File::sync_data,
            acknowledged: Vec::new(),
            pending: Vec::new(),
            steps: 0,
        }
    }
}

impl Worker for Appender {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(dir.join("log"))?;
        if self.acknowledged.is_empty() {
            sync_dir(dir)?;
        }
        self.steps += 1;
        let len = match self.steps % 9 {
            0 => 70_000,
            1..=3 => 5000,
            _ => 150,
        };
        self.pending = noise(self.steps, len);
        file.write_all(&self.pending)?;
        (self.sync)(&file)?;
        self.acknowledged.append(&mut self.pending);
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("log");
        let found = if path.exists() {
            std::fs::read(&path)?
        } else {
            Vec::new()
        };
        ensure!(
            found.len() >= self.acknowledged.len(),
            "{} bytes of {} acknowledged",
            found.len(),
            self.acknowledged.len()
        );
        let (kept, more) = found.split_at(self.acknowledged.len());
        ensure!(kept == self.acknowledged, "acknowledged bytes changed");
        ensure!(
            self.pending.starts_with(more),
            "{} bytes after the acknowledged ones are not those written",
            more.len()
        );
        self.pending.clear();
        self.acknowledged = found;
        if self.acknowledged.len() > Appender::BYTES_MAX {
            std::fs::remove_file(&path)?;
            sync_dir(dir)?;
            self.acknowledged.clear();
        }
        Ok(())
    }
}

/// A block that says where it belongs and which version it is.
fn stamped(place: u64, version: u64) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK);
    block.extend_from_slice(&place.to_le_bytes());
    block.extend_from_slice(&version.to_le_bytes());
    block.extend_from_slice(&noise(place << 32 | version, BLOCK - 16));
    block
}

/// The version of a block of this place, 0 for zeros.
fn version(place: u64, block: &[u8]) -> Result<u64> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let number: [u8; 8] = block
        .get(8..16)
        .and_then(|bytes| bytes.try_into().ok())
        .context("a short block")?;
    let version = u64::from_le_bytes(number);
    ensure!(
        block == &stamped(place, version)[..block.len()],
        "block {place} holds foreign or torn bytes"
    );
    Ok(version)
}

/// Overwrites blocks of one file through O_DSYNC.
struct Blocks {
    acknowledged: Vec<u64>,
    pending: Option<(usize, u64)>,
    dice: Noise,
    file: Option<File>,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks {
            acknowledged: vec![0; 512],
            pending: None,
            dice: Noise(1),
            file: None,
        }
    }
}

impl Worker for Blocks {
    fn name(&self) -> &'static str {
        "blocks-dsync"
    }

    fn step(&mut self, _: &Path) -> Result<()> {
        let file = self.file.as_ref().context("the file of this round")?;
        let place = self.dice.below(self.acknowledged.len() as u64) as usize;
        let next = self.acknowledged[place] + 1;
        self.pending = Some((place, next));
        file.write_all_at(&stamped(place as u64, next), (place * BLOCK) as u64)?;
        self.acknowledged[place] = next;
        self.pending = None;
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        self.file = None;
        let path = dir.join("file");
        if !path.exists() {
            ensure!(
                self.acknowledged.iter().all(|version| *version == 0),
                "it is gone"
            );
            let file = File::create(&path)?;
            file.set_len((self.acknowledged.len() * BLOCK) as u64)?;
            file.sync_all()?;
            sync_dir(dir)?;
        }
        let found = std::fs::read(&path)?;
        ensure!(
            found.len() == self.acknowledged.len() * BLOCK,
            "size {}",
            found.len()
        );
        for (place, block) in found.chunks(BLOCK).enumerate() {
            let found = version(place as u64, block)?;
            let due = self.acknowledged[place];
            ensure!(
                found == due || self.pending == Some((place, found)),
                "block {place} has version {found}, {due} was acknowledged"
            );
            self.acknowledged[place] = found;
        }
        self.pending = None;
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_DSYNC);
        self.file = Some(options.open(&path)?);
        Ok(())
    }
}

/// Replaces files by renaming new ones over them: with every sync there is, or with none.
struct Replacer {
    name: &'static str,
    synced: bool,
    /// The version that must be there at least.
    acknowledged: BTreeMap<u64, u64>,
    /// The newest version that was tried.
    tried: BTreeMap<u64, u64>,
    dice: Noise,
}

impl Replacer {
    fn new(name: &'static str, synced: bool) -> Replacer {
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
        if self.synced {
            file.sync_all()?;
        }
        drop(file);
        std::fs::rename(&temporary, dir.join(name.to_string()))?;
        if self.synced {
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

/// Makes and removes files and directories, and syncs the directory.
#[derive(Default)]
struct Remover {
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

/// Overwrites large parts of a file without any sync: anything written may be there, nothing else.
struct Unsynced {
    versions: u64,
    dice: Noise,
}

impl Default for Unsynced {
    fn default() -> Self {
        Unsynced {
            versions: 0,
            dice: Noise(3),
        }
    }
}

impl Unsynced {
    const BLOCKS: u64 = 4096;
}

impl Worker for Unsynced {
    fn name(&self) -> &'static str {
        "unsynced"
    }

    fn step(&mut self, dir: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = options.open(dir.join("file"))?;
        self.versions += 1;
        let from = self.dice.below(Unsynced::BLOCKS - 64);
        if self.dice.below(50) == 0 {
            file.set_len(from * BLOCK as u64)?;
        }
        let blocks: Vec<u8> = (from..from + 1 + self.dice.below(63))
            .flat_map(|place| stamped(place, self.versions))
            .collect();
        file.write_all_at(&blocks, from * BLOCK as u64)?;
        Ok(())
    }

    fn verify(&mut self, dir: &Path) -> Result<()> {
        let path = dir.join("file");
        if !path.exists() {
            return Ok(());
        }
        let found = std::fs::read(&path)?;
        ensure!(
            found.len() as u64 <= Unsynced::BLOCKS * BLOCK as u64,
            "it is too long"
        );
        for (place, block) in found.chunks(BLOCK).enumerate() {
            let found = version(place as u64, block)?;
            ensure!(found <= self.versions, "block {place} is of the future");
        }
        Ok(())
    }
}
