//! Freeing what the device can have back.

use persimmon_engine::{Progress, Task, ZoneStatus};
use persimmon_format::BLOCK_SIZE;
use persimmon_format::table::Role;

use crate::{Error, Result, Vfs};

/// What of a volume is to be trimmed, as `struct fstrim_range` says it: bytes, counted as if the capacities of all zones lay in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRange {
    /// Where it begins.
    pub start: u64,
    /// How long it is; it may go beyond the last zone.
    pub len: u64,
    /// Free zones of which less is in the range do not count.
    pub extent_min: u64,
}

impl Vfs {
    /// [`Vfs::trim`], and tells how many bytes of free zones are in `range` then: at most what users have left. So it tells the same when
    /// there was nothing to do, as other filesystems do. What is outside the range is given back, too, as it is at any time.
    ///
    /// # Errors
    /// `EINVAL`: it begins behind the last zone, is shorter than a block, or wants longer extents than any zone is. `EROFS`: the device is
    /// not to be written.
    pub fn trim_range(&self, range: TrimRange) -> Result<u64> {
        self.writable()?;
        let capacities = |zones: &[ZoneStatus]| -> Vec<u64> {
            let bytes = |zone: &ZoneStatus| u64::from(zone.capacity) * BLOCK_SIZE as u64;
            zones.iter().map(bytes).collect()
        };
        let all = capacities(&self.volume.zones());
        let largest = all.iter().copied().max().unwrap_or(0);
        if range.start >= all.iter().sum() {
            return Err(Error::Invalid("a range behind the last zone"));
        }
        if range.len < BLOCK_SIZE as u64 || range.extent_min > largest {
            return Err(Error::Invalid("less than a block, or more than a zone"));
        }
        self.trim()?;
        let zones = self.volume.zones();
        let end = range.start.saturating_add(range.len);
        let (mut at, mut free) = (0, 0);
        for (zone, bytes) in zones.iter().zip(capacities(&zones)) {
            let part = end.min(at + bytes).saturating_sub(range.start.max(at));
            at += bytes;
            if zone.entry.role == Role::Free && part >= range.extent_min {
                free += part;
            }
        }
        Ok(free.min(self.volume.space().available_bytes))
    }

    /// Frees the zones in which nothing is live, and has the device reset them: an image gives their space back to its host. Moves nothing.
    /// Tells how many bytes of zones became free. What it does happens by itself, sooner or later.
    pub fn trim(&self) -> Result<u64> {
        self.writable()?;
        self.sync()?;
        let free = || {
            let zones = self.volume.zones();
            let free = zones.iter().filter(|zone| zone.entry.role == Role::Free);
            free.map(|zone| u64::from(zone.capacity)).sum::<u64>()
        };
        let before = free();
        self.watch(self.volume.step(Task::FreeZones))?;
        // Each waits for one; there are no more than zones.
        for _ in 0..self.volume.identity().zone_count {
            if self.watch(self.volume.step(Task::Reset))? == Progress::Idle {
                break;
            }
        }
        Ok(free().saturating_sub(before) * BLOCK_SIZE as u64)
    }
}
