//! How fast the library is without a kernel in between, on a simulated device in memory: creates
//! on one thread, and sequential writes with checksums. The best of five rounds, each on a new
//! volume: the first also pays for memory that the process never touched. Prints one JSON object.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use persimmon::{Filesystem, Options};
use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Ino, OpenFlags, WriteFlags};

const ROOT: Ino = Ino(1);

const ROUNDS: u32 = 5;
const CREATES: u32 = 300_000;
const FILE_BYTES: u64 = 1 << 30;
const WRITE_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut creates, mut bytes) = (0f64, 0f64);
    for _ in 0..ROUNDS {
        let filesystem = filesystem()?;
        creates = creates.max(creates_per_second(&filesystem)?);
        bytes = bytes.max(write_bytes_per_second(&filesystem)?);
        filesystem.close()?;
    }
    println!(
        "{{\"creates_per_second\":{creates:.0},\"sequential_write_bytes_per_second\":{bytes:.0}}}"
    );
    Ok(())
}

fn filesystem() -> Result<Filesystem, Box<dyn Error>> {
    // 512 zones of 16 MiB.
    let device = Arc::new(SimDevice::new(SimConfig::new(512, 4096).fast()));
    Volume::format(device.clone(), &FormatOptions::default())?;
    let mut options = Options::default();
    options.engine.cache_bytes_max = 512 << 20;
    Ok(Filesystem::open_on(device, &options)?)
}

fn creates_per_second(filesystem: &Filesystem) -> Result<f64, Box<dyn Error>> {
    let (vfs, caller) = (filesystem.vfs(), Caller::root());
    let start = Instant::now();
    let flags = OpenFlags::from_linux(1);
    for i in 0..CREATES {
        let name = format!("file-{i:07}");
        let created = vfs.create(&caller, ROOT, name.as_bytes(), 0o644, flags)?;
        vfs.release(created.0.ino, created.1)?;
    }
    Ok(f64::from(CREATES) / start.elapsed().as_secs_f64())
}

/// Up to the answer of fsync.
fn write_bytes_per_second(filesystem: &Filesystem) -> Result<f64, Box<dyn Error>> {
    let (vfs, caller) = (filesystem.vfs(), Caller::root());
    let content: Vec<u8> = (0..WRITE_BYTES).map(|i| (i * 7) as u8).collect();
    let flags = OpenFlags::from_linux(1);
    let (attr, handle) = vfs.create(&caller, ROOT, b"large", 0o644, flags)?;
    let start = Instant::now();
    for at in (0..FILE_BYTES).step_by(WRITE_BYTES) {
        vfs.write(attr.ino, handle, at, &content, WriteFlags::default())?;
    }
    vfs.fsync(attr.ino, handle)?;
    let rate = FILE_BYTES as f64 / start.elapsed().as_secs_f64();
    vfs.release(attr.ino, handle)?;
    Ok(rate)
}
