//! What small files cost a drive from their making to their removal, as papers on SSDFS count it: files are made in one mount, overwritten
//! from end to end in the next, and removed in a third. Everything that these mounts send counts.

use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{FormatOptions, Options, Progress, Task, Volume};
use persimmon_format::Compression;
use persimmon_format::inode::Timestamp;
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Handle, OpenFlags, ROOT, SetAttr, SetTime, Vfs, WriteFlags};

use crate::chores::{background, names};
use crate::fsync::{Noise, Outcome};

/// As in `cargo xtask peers`: 1 GiB in zones of 16 MiB.
const ZONES: u32 = 64;
const ZONE_BLOCKS: u32 = 4096;
const ACTIVE: u32 = 14;
/// Files between two looks of the background threads.
const LOOK_FILES: u64 = 16;

/// Small files.
#[derive(Clone, Copy, Debug)]
pub struct Lifecycle {
    /// How many, all in one directory.
    pub files: u64,
    /// Of each.
    pub bytes: usize,
    /// Of each block that do not compress; the others are zeros.
    pub random_bytes: usize,
    /// How the volume is mounted.
    pub compression: Compression,
    /// Of their content.
    pub seed: u64,
    /// How often all of it is done, on the same volume.
    pub rounds: u32,
}

/// KiB sent to the drive for each file, the mean of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sent {
    /// By the mount that made them.
    pub create: f64,
    /// By the mount that overwrote them.
    pub update: f64,
    /// By the mount that removed them.
    pub delete: f64,
    /// Zones that all rounds erased.
    pub erased_zones: u64,
}

impl Sent {
    /// By all three.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.create + self.update + self.delete
    }
}

#[derive(Clone, Copy)]
enum Phase {
    Create,
    Update,
    Delete,
}

impl Lifecycle {
    /// Makes, overwrites and removes them, round after round, on a new volume.
    ///
    /// # Errors
    /// The volume.
    pub fn run(&self) -> Outcome<Sent> {
        let config = SimConfig::new(ZONES, ZONE_BLOCKS).limits(Some(ACTIVE), Some(ACTIVE));
        let device = Arc::new(SimDevice::new(config.fast()));
        Volume::format(Arc::clone(&device) as _, &FormatOptions::default())?;
        let mut noise = Noise::new(self.seed);
        let mut sent = |phase| -> Outcome<f64> {
            let before = device.counters().written_blocks();
            self.mount(&device, phase, &mut noise)?;
            let blocks = device.counters().written_blocks() - before;
            let files = self.files as f64 * f64::from(self.rounds);
            Ok((blocks * BLOCK_SIZE as u64) as f64 / 1024.0 / files)
        };
        let mut total = Sent::default();
        for _ in 0..self.rounds {
            total.create += sent(Phase::Create)?;
            total.update += sent(Phase::Update)?;
            total.delete += sent(Phase::Delete)?;
        }
        total.erased_zones = device.counters().resets;
        Ok(total)
    }

    fn mount(&self, device: &Arc<SimDevice>, phase: Phase, noise: &mut Noise) -> Outcome<()> {
        let options = Options {
            compression: self.compression,
            ..Options::default()
        };
        let (volume, _) = Volume::open(Arc::clone(device) as _, options)?;
        let volume = Arc::new(volume);
        let vfs = names(Arc::clone(&volume));
        for file in 0..self.files {
            let name = format!("small {file}");
            match phase {
                Phase::Create => self.create(&vfs, name.as_bytes(), noise)?,
                Phase::Update => self.update(&vfs, name.as_bytes(), file, noise)?,
                Phase::Delete => {
                    let ino = vfs.lookup(ROOT, name.as_bytes())?.ino;
                    vfs.unlink(ROOT, name.as_bytes())?;
                    vfs.forget(ino);
                }
            }
            if file % LOOK_FILES == 0 {
                while volume.step(Task::WriteBackIfDue)? == Progress::Worked {}
                background(&volume)?;
            }
        }
        Ok(vfs.close()?)
    }

    fn create(&self, vfs: &Vfs, name: &[u8], noise: &mut Noise) -> Outcome<()> {
        let flags = OpenFlags {
            write: true,
            exclusive: true,
            ..OpenFlags::default()
        };
        let (attr, handle) = vfs.create(&Caller::root(), ROOT, name, 0o644, flags)?;
        self.write(vfs, attr.ino, handle, noise)?;
        vfs.release(attr.ino, handle)?;
        vfs.forget(attr.ino);
        Ok(())
    }

    /// Of empty files the time is changed.
    fn update(&self, vfs: &Vfs, name: &[u8], file: u64, noise: &mut Noise) -> Outcome<()> {
        let ino = vfs.lookup(ROOT, name)?.ino;
        if self.bytes == 0 {
            let time = Timestamp {
                seconds: file.cast_signed() + 1,
                nanoseconds: 0,
            };
            let set = SetAttr {
                mtime: Some(SetTime::At(time)),
                ..SetAttr::default()
            };
            vfs.setattr(ino, Handle::NONE, &set)?;
            return Ok(());
        }
        let flags = OpenFlags {
            write: true,
            ..OpenFlags::default()
        };
        let handle = vfs.open(ino, flags)?;
        self.write(vfs, ino, handle, noise)?;
        vfs.release(ino, handle)?;
        vfs.forget(ino);
        Ok(())
    }

    fn write(
        &self,
        vfs: &Vfs,
        ino: persimmon_format::Ino,
        handle: Handle,
        noise: &mut Noise,
    ) -> Outcome<()> {
        let mut content = noise.bytes(self.bytes).to_vec();
        for block in content.chunks_mut(BLOCK_SIZE) {
            // Of the last block, which is shorter, the same share.
            let random = self.random_bytes * block.len() / BLOCK_SIZE;
            if let Some(zeros) = block.get_mut(random..) {
                zeros.fill(0);
            }
        }
        if !content.is_empty() {
            vfs.write(ino, handle, 0, &content, WriteFlags::default())?;
        }
        Ok(())
    }
}
