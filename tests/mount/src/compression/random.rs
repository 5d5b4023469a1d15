//! Random changes of files on a mount, made to twins in memory too.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags;

use super::{BLOCK, FRAME, Memory, data_ranges, tell, text};
use crate::posix::expect::{Noise, noise, same_bytes};
use crate::scenario::TestBed;
use crate::sys::Map;
use crate::volume::{Kind, Volume};

/// One file on the mount and its twin in memory.
struct Twin {
    name: String,
    mount: File,
    memory: File,
    len: u64,
}

const TWINS: u64 = 6;
const TWIN_LEN_MAX: u64 = 900_000;
const STEPS: u32 = 4000;

impl Twin {
    fn open(volume: &Volume, memory: &Memory, name: &str) -> Result<Twin> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mount = options.open(volume.dir.join(name))?;
        Ok(Twin {
            name: name.to_owned(),
            len: mount.metadata()?.len(),
            mount,
            memory: options.open(memory.0.join(name))?,
        })
    }

    /// Both must hold the same, and have their data where something else than zeros is.
    fn compare(&self) -> Result<()> {
        let read = |file: &File| -> Result<Vec<u8>> {
            let mut bytes = vec![0; file.metadata()?.len() as usize];
            file.read_exact_at(&mut bytes, 0)?;
            Ok(bytes)
        };
        let (found, due) = (read(&self.mount)?, read(&self.memory)?);
        same_bytes(&found, &due).context("content")?;
        let mut at = 0;
        for (start, end) in data_ranges(&self.mount)? {
            let is_zero = |range: &[u8]| range.iter().all(|byte| *byte == 0);
            ensure!(
                is_zero(&due[at..start as usize]),
                "a hole from {at} to {start} has data"
            );
            at = end as usize;
        }
        ensure!(
            due[at..].iter().all(|byte| *byte == 0),
            "a hole from {at} on has data"
        );
        Ok(())
    }

    fn change(&mut self, rng: &mut Noise, volume: &Volume) -> Result<()> {
        let unaligned = |rng: &mut Noise, end: u64| rng.below(end.max(1));
        let at = match rng.below(3) {
            0 => unaligned(rng, TWIN_LEN_MAX),
            1 => rng.below(TWIN_LEN_MAX / BLOCK) * BLOCK,
            _ => rng.below(TWIN_LEN_MAX / FRAME) * FRAME,
        };
        let len = match rng.below(4) {
            0 => 1 + rng.below(100),
            1 => (1 + rng.below(8)) * BLOCK,
            2 => 1 + rng.below(2 * FRAME),
            _ => 1 + rng.below(3 * BLOCK),
        };
        let len = len.min(TWIN_LEN_MAX - at);
        match rng.below(20) {
            0..=8 => {
                let bytes = match rng.below(5) {
                    0 => noise(rng.next_u64(), len as usize),
                    1 => vec![0; len as usize],
                    _ => text(rng.below(1 << 30), len as usize),
                };
                self.mount.write_all_at(&bytes, at)?;
                self.memory.write_all_at(&bytes, at)?;
            }
            9 => {
                let len = if rng.below(2) == 0 {
                    at
                } else {
                    at.min(self.len)
                };
                self.mount.set_len(len)?;
                self.memory.set_len(len)?;
            }
            kind @ 10..=12 => {
                let flags = match kind {
                    10 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    11 => FallocateFlags::KEEP_SIZE,
                    // tmpfs has no FALLOC_FL_ZERO_RANGE: as zeros there.
                    _ => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                };
                if kind == 11 && rng.below(4) != 0 {
                    return Ok(());
                }
                rustix::fs::fallocate(&self.mount, flags, at, len)?;
                if kind != 11 {
                    let end = (at + len).min(self.len);
                    let zeros = vec![0; end.saturating_sub(at) as usize];
                    self.memory.write_all_at(&zeros, at)?;
                }
            }
            13 if self.len > 0 => {
                let pages = self.len as usize;
                let (map, twin) = (
                    Map::new(&self.mount, pages, true)?,
                    Map::new(&self.memory, pages, true)?,
                );
                for _ in 0..1 + rng.below(200) {
                    let (at, byte) = (rng.below(self.len) as usize, rng.next_u64() as u8);
                    map.set(at, byte);
                    twin.set(at, byte);
                }
                if rng.below(2) == 0 {
                    map.sync()?;
                }
            }
            14 => {
                let to = rng.below(TWIN_LEN_MAX);
                let from = at.min(self.len);
                let len = len.min(self.len - from).min(TWIN_LEN_MAX - to);
                if from.abs_diff(to) >= len && len > 0 {
                    let (mut read, mut write) = (from, to);
                    let copied = rustix::fs::copy_file_range(
                        &self.mount,
                        Some(&mut read),
                        &self.mount,
                        Some(&mut write),
                        len as usize,
                    )?;
                    let mut bytes = vec![0; copied];
                    self.memory.read_exact_at(&mut bytes, from)?;
                    self.memory.write_all_at(&bytes, to)?;
                }
            }
            15 => {
                let mut options = OpenOptions::new();
                let flags = libc::O_DIRECT;
                let direct = options
                    .write(true)
                    .custom_flags(flags)
                    .open(volume.dir.join(&self.name))?;
                let at = at / BLOCK * BLOCK;
                let len = (1 + rng.below(40)) * BLOCK;
                let bytes = text(rng.below(1 << 30), (len + BLOCK) as usize);
                // Some filesystems want the memory aligned too.
                let start = bytes.as_ptr().align_offset(BLOCK as usize);
                let bytes = &bytes[start..start + len as usize];
                direct.write_all_at(bytes, at)?;
                self.memory.write_all_at(bytes, at)?;
            }
            16 | 17 => self.mount.sync_all()?,
            18 => {
                self.mount.sync_all()?;
                rustix::fs::fadvise(&self.mount, 0, None, rustix::fs::Advice::DontNeed)?;
            }
            _ => self.compare()?,
        }
        self.len = self.memory.metadata()?.len();
        ensure!(
            self.mount.metadata()?.len() == self.len,
            "its length is not {}",
            self.len
        );
        Ok(())
    }
}

/// The volume is small, so that its zones are cleaned meanwhile.
pub(super) fn random_changes_leave_what_they_leave_in_memory(bed: &TestBed) -> Result<()> {
    let mut volume = bed.volume("random", 48 << 20, &[])?;
    let memory = Memory::mount(bed, "random-in-memory")?;
    let mut rng = Noise(bed.seed);
    for round in 0..4 {
        let is_plain = round % 2 == 0 || volume.kind == Kind::Ext4;
        volume.mount(if is_plain {
            &[]
        } else {
            &["compression=zstd:1"]
        })?;
        let names = (0..TWINS).map(|number| number.to_string());
        let twins: Result<Vec<Twin>> = names
            .map(|name| Twin::open(&volume, &memory, &name))
            .collect();
        let mut twins = twins?;
        if round == 0 && volume.kind == Kind::Persimmon {
            for (number, value) in [(1, "none"), (2, "lz4"), (3, "zstd:9")] {
                tell(&volume.dir.join(number.to_string()), value)?;
            }
        }
        for step in 0..STEPS / 4 {
            let which = rng.below(TWINS) as usize;
            let twin = &mut twins[which];
            twin.change(&mut rng, &volume).with_context(|| {
                format!(
                    "seed {}, round {round}, step {step}, file {which}",
                    bed.seed
                )
            })?;
        }
        for twin in &twins {
            twin.compare()
                .with_context(|| format!("seed {}, round {round}, {}", bed.seed, twin.name))?;
        }
        drop(twins);
        volume.unmount()?;
        volume.fsck()?;
    }
    volume.mount(&[])?;
    for number in 0..TWINS {
        Twin::open(&volume, &memory, &number.to_string())?
            .compare()
            .with_context(|| format!("seed {}, at the end, {number}", bed.seed))?;
    }
    volume.unmount()?;
    drop(memory);
    volume.destroy()
}
