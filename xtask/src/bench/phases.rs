//! Three phases, as they were published for zoned XFS, on a small image: jobs write files to three quarters
//! of the volume, read them, overwrite them in place, and read them again.
//!
//! A volume is measured against itself when it was new, so there is no rival. Overwriting is compared by
//! what reaches the device in a second, for what cleaning adds is told as write amplification.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use crate::volume::{Noise, Volume};

/// The name to choose it by.
pub const NAME: &str = "three phases";
const IMAGE_BYTES: u64 = 4 << 30;
const JOBS: u64 = 8;
const FILL: f64 = 0.75;
const MIB: u64 = 1 << 20;
/// Sizes of files, each as likely as another by its logarithm.
const FILE_MIB: (u64, u64) = (4, 128);
const PIECE: usize = 1 << 20;

/// What one round measured.
#[derive(Clone, Copy)]
pub struct Phases {
    /// Files.
    pub files: usize,
    /// Writing the files of a new volume.
    pub writing: Phase,
    /// Reading them, MB/s.
    pub reading: f64,
    /// Overwriting them in place.
    pub overwriting: Phase,
    /// Reading them then, MB/s.
    pub reading_again: f64,
}

/// A phase that writes.
#[derive(Clone, Copy)]
pub struct Phase {
    /// MB/s of users.
    pub rate: f64,
    /// MB/s sent to the device.
    pub device_rate: f64,
}

impl Phases {
    /// Overwriting by writing, per byte sent to the device.
    pub fn overwriting_ratio(&self) -> f64 {
        self.overwriting.device_rate / self.writing.device_rate
    }

    /// Reading after overwriting by reading before.
    pub fn reading_ratio(&self) -> f64 {
        self.reading_again / self.reading
    }
}

/// One file of a job.
struct Piece {
    path: PathBuf,
    bytes: u64,
}

/// Takes all phases on a new volume in `work`. `cold` is called before each that reads, and leaves nothing in
/// memory.
pub fn take(persimmon: &Path, work: &Path, cold: impl Fn(&Volume) -> Result<()>) -> Result<Phases> {
    let kind = crate::volume::Kind::Persimmon;
    let volume = Volume::create(kind, persimmon, work, "phases", IMAGE_BYTES, &[])?;
    volume.mount()?;
    let jobs = plan(&volume.dir)?;
    let bytes: u64 = jobs.iter().flatten().map(|file| file.bytes).sum();
    let writing = write(&volume, &jobs, bytes, 1)?;
    cold(&volume)?;
    let reading = read(&jobs, bytes)?;
    let overwriting = write(&volume, &jobs, bytes, 2)?;
    cold(&volume)?;
    let reading_again = read(&jobs, bytes)?;
    volume.unmount()?;
    std::fs::remove_file(&volume.image)?;
    Ok(Phases {
        files: jobs.iter().map(Vec::len).sum(),
        writing,
        reading,
        overwriting,
        reading_again,
    })
}

/// The files of each job, together as much as the volume is to hold.
fn plan(dir: &Path) -> Result<Vec<Vec<Piece>>> {
    let stat = rustix::fs::statvfs(dir)?;
    let share = (stat.f_bavail * stat.f_frsize) as f64 * FILL / JOBS as f64;
    let mut dice = Noise(7);
    let mut jobs = Vec::new();
    for job in 0..JOBS {
        let folder = dir.join(format!("job-{job}"));
        std::fs::create_dir(&folder)?;
        let mut files = Vec::new();
        let mut left = share as u64 / MIB;
        while left >= FILE_MIB.0 {
            let doublings = (FILE_MIB.1 / FILE_MIB.0).ilog2();
            let power = dice.below(u64::from(doublings) * 1000) as f64 / 1000.0;
            let size = (FILE_MIB.0 as f64 * power.exp2()) as u64;
            let size = size.min(left);
            left -= size;
            files.push(Piece {
                path: folder.join(files.len().to_string()),
                bytes: size * MIB,
            });
        }
        jobs.push(files);
    }
    Ok(jobs)
}

/// Runs `body` for the files of each job, all jobs at the same time; the seconds until the last is done.
fn seconds(jobs: &[Vec<Piece>], body: impl Fn(u64, &Piece) -> Result<()> + Sync) -> Result<f64> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (1..)
            .zip(jobs)
            .map(|(job, files)| {
                scope.spawn(move || files.iter().try_for_each(|file| body(job, file)))
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a job panicked"))?)
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// Writes all files from their beginning to their end, each up to the answer of fsync.
fn write(volume: &Volume, jobs: &[Vec<Piece>], bytes: u64, generation: u64) -> Result<Phase> {
    let sent = || -> Result<f64> {
        let stats = volume.json("stats", &volume.dir)?;
        stats["device_bytes"]
            .as_f64()
            .context("`persimmon stats` tells no device_bytes")
    };
    let before = sent()?;
    let seconds = seconds(jobs, |job, file| {
        let mut dice = Noise(generation << 32 | job);
        let mut piece = vec![0; PIECE];
        dice.fill(&mut piece);
        let mut options = OpenOptions::new();
        let mut open = options.write(true).create(true).open(&file.path)?;
        for number in 0..file.bytes / PIECE as u64 {
            // No two pieces are the same.
            piece[..8].copy_from_slice(&number.to_le_bytes());
            open.write_all(&piece)?;
        }
        Ok(open.sync_all()?)
    })?;
    Ok(Phase {
        rate: bytes as f64 / 1e6 / seconds,
        device_rate: (sent()? - before) / 1e6 / seconds,
    })
}

fn read(jobs: &[Vec<Piece>], bytes: u64) -> Result<f64> {
    let seconds = seconds(jobs, |_, file| {
        let mut open = File::open(&file.path)?;
        let mut piece = vec![0; PIECE];
        let mut seen = 0;
        loop {
            match open.read(&mut piece)? {
                0 => break,
                len => seen += len as u64,
            }
        }
        ensure!(seen == file.bytes, "{seen} bytes read");
        Ok(())
    })?;
    Ok(bytes as f64 / 1e6 / seconds)
}
