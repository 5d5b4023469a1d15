//! What a run found.

use std::time::Duration;

use serde::Serialize;

use super::Meter;
use persimmon_sim::SimDevice;
use persimmon_sim::device::Counters;

const BLOCK_BYTES: u64 = 4096;

/// What something cost.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Milliseconds that the processor worked, the simulated device included.
    pub worked_ms: f64,
    /// Milliseconds of virtual time: how long it took on the drive that was modelled, the processor aside.
    pub virtual_ms: f64,
    /// Read commands.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Commands of any other kind.
    pub others: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes on the heap that stayed there.
    pub heap_bytes: i64,
}

/// The state before something is done.
pub(super) struct Before {
    worked: Duration,
    time: Duration,
    counters: Counters,
    heap_bytes: u64,
}

impl Before {
    pub(super) fn of(device: &SimDevice, meter: &dyn Meter) -> Before {
        Before {
            heap_bytes: meter.heap_bytes(),
            counters: device.counters(),
            time: now(device),
            worked: meter.worked(),
        }
    }

    pub(super) fn cost(&self, device: &SimDevice, meter: &dyn Meter) -> Cost {
        let worked = meter.worked().saturating_sub(self.worked);
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let (after, before) = (device.counters(), self.counters);
        let blocks = |c: Counters| c.write_blocks + c.append_blocks;
        Cost {
            worked_ms: ms(worked),
            virtual_ms: ms(now(device).saturating_sub(self.time)),
            reads: after.reads - before.reads,
            read_bytes: (after.read_blocks - before.read_blocks) * BLOCK_BYTES,
            others: after.changes() - before.changes(),
            written_bytes: (blocks(after) - blocks(before)) * BLOCK_BYTES,
            heap_bytes: meter.heap_bytes() as i64 - self.heap_bytes as i64,
        }
    }
}

fn now(device: &SimDevice) -> Duration {
    device.clock().map_or(Duration::ZERO, |clock| clock.now())
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Bytes of all zones.
    pub device_bytes: u64,
    /// Zones.
    pub zones: u32,
    /// Bytes that users may fill, as the volume says.
    pub total_bytes: u64,
    /// Bytes that are filled.
    pub used_bytes: u64,
    /// Files.
    pub files: u64,
    /// Bytes of metadata on the device.
    pub metadata_bytes: u64,
    /// Chunks of the page table read at a mount.
    pub mat_chunks: u32,
    /// The same of the zone table.
    pub zit_chunks: u32,
    /// Filling the volume.
    pub filling: Cost,
    /// Mounting it after that; the heap is what a mounted volume keeps, with nothing cached yet.
    pub mount: Cost,
    /// One look whether something is to be cleaned or freed, where nothing is.
    pub idle_look_us: f64,
    /// Blocks written to random places and synced, one by one.
    pub changes: u32,
    /// What they cost together.
    pub changing: Cost,
    /// Unmounting after that.
    pub unmount: Cost,
    /// Mounting again.
    pub mount_again: Cost,
    /// Mounting when the same was done again, and the volume left as it was.
    pub mount_after_crash: Cost,
    /// Records replayed then.
    pub records_replayed: u64,
    /// Blocks read back at random, each as it was written.
    pub blocks_verified: u32,
}
