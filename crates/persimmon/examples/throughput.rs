//! How fast the library is without a kernel in between, on a simulated device in memory: creates
//! on one thread, and sequential writes with checksums. Prints one JSON object.

use std::sync::Arc;
use std::time::Instant;

use persimmon::Options;
use persimmon_engine::{FormatOptions, Volume};
use persimmon_sim::{SimConfig, SimDevice};
use persimmon_vfs::{Caller, Ino, OpenFlags, WriteFlags};

const ROOT: Ino = Ino(1);

const CREATES: u32 = 600_000;
const FILE_BYTES: u64 = 2 << 30;
const WRITE_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 512 zones of 16 MiB.
    let device = Arc::new(SimDevice::new(SimConfig::new(512, 4096).fast()));
    Volume::format(device.clone(), &FormatOptions::default())?;
    let mut options = Options::default();
    options.engine.cache_bytes_max = 512 << 20;
    let filesystem = persimmon::Filesystem::open_on(device, &options)?;
    let vfs = filesystem.vfs();
    let caller = Caller::root();

    let start = Instant::now();
    let flags = OpenFlags::from_linux(1);
    for i in 0..CREATES {
        let name = format!("file-{i:07}");
        let created = vfs.create(&caller, ROOT, name.as_bytes(), 0o644, flags)?;
        vfs.release(created.0.ino, created.1)?;
    }
    let creates_per_second = f64::from(CREATES) / start.elapsed().as_secs_f64();

    let content: Vec<u8> = (0..WRITE_BYTES).map(|i| (i * 7) as u8).collect();
    let (attr, handle) = vfs.create(&caller, ROOT, b"large", 0o644, flags)?;
    let start = Instant::now();
    for at in (0..FILE_BYTES).step_by(WRITE_BYTES) {
        vfs.write(attr.ino, handle, at, &content, WriteFlags::default())?;
    }
    vfs.fsync(attr.ino, handle, false)?;
    let write_bytes_per_second = FILE_BYTES as f64 / start.elapsed().as_secs_f64();
    println!(
        "{{\"creates_per_second\":{creates_per_second:.0},\
         \"sequential_write_bytes_per_second\":{write_bytes_per_second:.0}}}"
    );
    filesystem.close()?;
    Ok(())
}
