//! A volume on a device that a program brings itself: here one in memory that counts what it is sent.
//!
//!     cargo run --example device

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon::device::{
    Command, CreateOptions, Geometry, ImageDevice, ImageGeometry, Pending, Result, ZoneInfo,
    ZonedDevice,
};
use persimmon::{Create, Filesystem, Options};

struct Counting {
    below: ImageDevice,
    blocks: AtomicU64,
    resets: AtomicU64,
}

impl ZonedDevice for Counting {
    fn geometry(&self) -> &Geometry {
        self.below.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.below.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        match &command {
            Command::Write { data, .. } | Command::Append { data, .. } => {
                let blocks = Command::data_blocks(data);
                self.blocks.fetch_add(blocks.into(), Ordering::Relaxed);
            }
            Command::Reset { .. } => {
                self.resets.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        self.below.submit(command)
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    device()
}

/// Uses the volume until it has been cleaned.
pub fn device() -> std::result::Result<(), Box<dyn Error>> {
    let shape = ImageGeometry {
        zone_count: 32,
        zone_blocks: 512,
        capacity_blocks: 512,
        max_open: Some(8),
        max_active: Some(8),
    };
    let device = Arc::new(Counting {
        below: ImageDevice::in_memory(&shape, &CreateOptions::default())?,
        blocks: AtomicU64::new(0),
        resets: AtomicU64::new(0),
    });
    // It has the size that it has; the rest of `Create` counts.
    Filesystem::create_on(device.clone(), &Create::sized(0))?;
    let fs = Filesystem::open_on(device.clone(), &Options::default())?;
    for round in 0..20u8 {
        fs.write("/f", vec![round; 4 << 20])?;
        fs.sync()?;
    }
    fs.checkpoint()?;
    let cleaned = fs.clean(None)?;
    let scrubbed = fs.scrub(|_done, _of| true)?;
    assert_eq!(scrubbed.findings, []);
    let stats = fs.stats();
    println!(
        "{} bytes of files, {} sent to the device in {} blocks, {} zones reset, {} free, {} blocks moved",
        stats.user_bytes,
        stats.device_bytes(),
        device.blocks.load(Ordering::Relaxed),
        device.resets.load(Ordering::Relaxed),
        cleaned.free_zones,
        cleaned.blocks_moved,
    );
    for zone in fs.zones().iter().filter(|zone| zone.entry.valid > 0) {
        println!("zone {}: {} blocks are live", zone.zone.0, zone.entry.valid);
    }
    Ok(fs.close()?)
}
