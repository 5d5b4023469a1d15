//! What a mount reads after an unmount, and after a power cut.

use std::sync::Arc;
use std::time::Duration;

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::{Options, Volume};
use persimmon_format::inode::Timestamp;

use super::{Noise, Outcome, Setup};
use crate::measure::MeasureError;
use persimmon_sim::{Counters, SimDevice};

/// How a volume was used before it is mounted again.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// Of a scattered file.
    pub file_blocks: u64,
    /// Overwrites of 4 KiB since the last checkpoint, each synced.
    pub fsyncs: u64,
    /// It was unmounted; else the power was cut.
    pub closed: bool,
    /// Of offsets and bytes.
    pub seed: u64,
}

impl Used {
    /// The device afterwards.
    ///
    /// # Errors
    /// The volume.
    pub fn device(&self, setup: Setup) -> Outcome<Arc<SimDevice>> {
        let timed = setup.volume()?;
        let mut noise = Noise::new(self.seed);
        let ino = timed.file(self.file_blocks, &mut noise)?;
        timed.age(ino, self.file_blocks, &mut noise)?;
        let volume = &timed.volume;
        for _ in 0..self.fsyncs {
            let offset = noise.below(self.file_blocks) * BLOCK_SIZE as u64;
            volume.write(ino, offset, noise.bytes(BLOCK_SIZE), Timestamp::default())?;
            volume.sync_file(ino)?;
        }
        if self.closed {
            volume.close()?;
        }
        Ok(Arc::new(timed.device.snapshot().intact()))
    }
}

/// A mount.
#[derive(Clone, Copy, Debug)]
pub struct Mounted {
    /// Records of the log that were replayed.
    pub records_replayed: u64,
    /// Pages of the trees that are in memory then.
    pub pages: usize,
    /// Virtual time.
    pub time: Duration,
    /// What the device counted.
    pub counters: Counters,
}

impl Mounted {
    /// Mounts a volume on a device that counted nothing yet.
    ///
    /// # Errors
    /// The volume.
    pub fn on(device: &Arc<SimDevice>, options: Options) -> Outcome<Mounted> {
        let (volume, report) = Volume::open(Arc::clone(device) as _, options)?;
        let clock = device.clock();
        let clock = clock.ok_or_else(|| MeasureError::Plan("the device has no clock".into()))?;
        let (pages, _) = volume.cached_pages();
        Ok(Mounted {
            records_replayed: report.records_replayed,
            pages,
            time: clock.now(),
            counters: device.counters(),
        })
    }
}
