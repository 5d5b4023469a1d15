//! What is written and synced while it is measured.

use std::sync::Arc;
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;
use persimmon_vfs::{Caller, OpenFlags, ROOT, WriteFlags};

use super::{Noise, Outcome, Sample, Setup, Timed};
use crate::chores::names;
use persimmon_sim::time::Client;

/// Between two appends of one of several threads.
const THINKS: Duration = Duration::from_micros(1);
/// Files of one directory.
const DIRECTORY_FILES: u64 = 100;

/// Random overwrites of one file, each followed by an fsync.
#[derive(Clone, Copy, Debug)]
pub struct Overwrites {
    /// Of the file. Its extents are as scattered as they get before it is measured.
    pub file_blocks: u64,
    /// Of one write.
    pub blocks: u64,
    /// Bytes of each write that do not compress; the others are zeros.
    pub random_bytes: usize,
    /// How many.
    pub fsyncs: u64,
    /// Of offsets and bytes.
    pub seed: u64,
}

impl Overwrites {
    /// One client does them.
    ///
    /// # Errors
    /// The volume, or the clock.
    pub fn run(&self, setup: Setup) -> Outcome<Sample> {
        let timed = setup.volume()?;
        let mut noise = Noise::new(self.seed);
        let ino = timed.file(self.file_blocks, &mut noise)?;
        timed.age(ino, self.file_blocks, &mut noise)?;
        let volume = &timed.volume;
        let len = self.blocks as usize * BLOCK_SIZE;
        let mut bytes = vec![0; len];
        let overwrite = |_| {
            let offset = noise.below(self.file_blocks / self.blocks) * len as u64;
            if let Some(random) = bytes.get_mut(..self.random_bytes) {
                random.copy_from_slice(noise.bytes(self.random_bytes));
            }
            volume.write(ino, offset, &bytes, Timestamp::default())?;
            Ok(volume.sync_file(ino)?)
        };
        timed.rounds(self.fsyncs, overwrite, || write_back(volume))
    }
}

/// Random blocks of one file of which some bytes change, as a database writes its pages, each followed by an fsync.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// Of the file. Its extents are as scattered as they get before it is measured.
    pub file_blocks: u64,
    /// That change in the block.
    pub bytes: usize,
    /// The block is read before, as by a database that does not have it in memory.
    pub reads: bool,
    /// How many.
    pub fsyncs: u64,
    /// Of offsets and bytes.
    pub seed: u64,
}

impl Changes {
    /// One client does them.
    ///
    /// # Errors
    /// The volume, or the clock.
    pub fn run(&self, setup: Setup) -> Outcome<Sample> {
        let timed = setup.volume()?;
        let mut noise = Noise::new(self.seed);
        let ino = timed.file(self.file_blocks, &mut noise)?;
        timed.age(ino, self.file_blocks, &mut noise)?;
        let volume = &timed.volume;
        let mut pages = vec![0; self.file_blocks as usize * BLOCK_SIZE];
        volume.read(ino, 0, &mut pages)?;
        let change = |_| {
            let start = noise.below(self.file_blocks) as usize * BLOCK_SIZE;
            let at = start + noise.below((BLOCK_SIZE - self.bytes) as u64) as usize;
            if let Some(bytes) = pages.get_mut(at..at + self.bytes) {
                bytes.copy_from_slice(noise.bytes(self.bytes));
            }
            if self.reads {
                volume.read(ino, start as u64, &mut [0; BLOCK_SIZE])?;
            }
            let page = pages.get(start..start + BLOCK_SIZE).unwrap_or_default();
            volume.write(ino, start as u64, page, Timestamp::default())?;
            Ok(volume.sync_file(ino)?)
        };
        timed.rounds(self.fsyncs, change, || write_back(volume))
    }
}

/// What waits to be written back belongs to what was synced.
fn write_back(volume: &Volume) -> Outcome<()> {
    while volume.step(Task::WriteBack)? == Progress::Worked {}
    Ok(())
}

/// Appends, each followed by an fsync. Each client appends to a file of its own.
#[derive(Clone, Copy, Debug)]
pub struct Appends {
    /// At the same time.
    pub clients: u64,
    /// Of one append.
    pub bytes: usize,
    /// Of all clients together.
    pub fsyncs: u64,
    /// Of bytes.
    pub seed: u64,
}

impl Appends {
    /// Does them.
    ///
    /// # Errors
    /// The volume, or the clock.
    pub fn run(&self, setup: Setup) -> Outcome<Sample> {
        let timed = setup.volume()?;
        let mut noise = Noise::new(self.seed);
        let mut files = Vec::new();
        for _ in 0..self.clients {
            files.push(timed.file(1, &mut noise)?);
        }
        let rounds = self.fsyncs / self.clients;
        let volume = &timed.volume;
        let appenders = files.into_iter().zip(1..);
        let mut appenders = appenders.map(|(ino, salt)| self.appender(&timed, ino, salt));
        if self.clients == 1
            && let Some(append) = appenders.next()
        {
            return timed.rounds(rounds, append, || write_back(volume));
        }
        let clients = appenders.map(|mut append| -> Client<'_, Outcome<()>> {
            Box::new(move || {
                (0..rounds).try_for_each(&mut append)?;
                write_back(volume)
            })
        });
        timed.run(clients.collect())
    }

    fn appender<'t>(
        &self,
        timed: &'t Timed,
        ino: Ino,
        salt: u64,
    ) -> impl FnMut(u64) -> Outcome<()> + Send + use<'t> {
        let mut noise = Noise::new(self.seed + salt);
        let (bytes, mut size) = (self.bytes, BLOCK_SIZE as u64);
        move |_| {
            let volume = &timed.volume;
            timed.clock()?.sleep(THINKS);
            volume.write(ino, size, noise.bytes(bytes), Timestamp::default())?;
            size += bytes as u64;
            Ok(volume.sync_file(ino)?)
        }
    }
}

/// Small files made, by one client.
#[derive(Clone, Copy, Debug)]
pub struct SmallFiles {
    /// How many, a hundred in each directory.
    pub files: u64,
    /// Of each. They do not compress.
    pub bytes: usize,
    /// Each is synced; else all of them at the end.
    pub synced: bool,
    /// Of bytes.
    pub seed: u64,
}

impl SmallFiles {
    /// Makes them. The sample ends when all are durable and what waited to be written back was written.
    ///
    /// # Errors
    /// The volume, or the clock.
    pub fn run(&self, setup: Setup) -> Outcome<Sample> {
        let timed = setup.volume()?;
        let vfs = names(Arc::clone(&timed.volume));
        let (root, mut noise) = (Caller::root(), Noise::new(self.seed));
        let flags = OpenFlags {
            write: true,
            exclusive: true,
            ..OpenFlags::default()
        };
        let volume = &timed.volume;
        let mut directory = ROOT;
        let make = |file: u64| {
            if file.is_multiple_of(DIRECTORY_FILES) {
                let name = format!("directory{file:06}");
                directory = vfs.mkdir(&root, ROOT, name.as_bytes(), 0o755)?.ino;
            }
            let name = format!("file{file:06}");
            let (attr, handle) = vfs.create(&root, directory, name.as_bytes(), 0o644, flags)?;
            if self.bytes > 0 {
                let bytes = noise.bytes(self.bytes);
                vfs.write(attr.ino, handle, 0, bytes, WriteFlags::default())?;
            }
            if self.synced {
                vfs.fsync(attr.ino, handle)?;
            }
            vfs.release(attr.ino, handle)?;
            vfs.forget(attr.ino);
            Ok(())
        };
        timed.rounds(self.files, make, || {
            vfs.sync()?;
            write_back(volume)
        })
    }
}
