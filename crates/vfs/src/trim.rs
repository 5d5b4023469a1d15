//! Freeing what the device can have back.

use persimmon_engine::{Progress, Task};
use persimmon_format::BLOCK_SIZE;
use persimmon_format::table::Role;

use crate::{Result, Vfs};

impl Vfs {
    /// Frees the zones in which nothing is live, and has the device reset them: an image gives their space back to its host. Moves nothing.
    /// Tells how many bytes of zones became free. What it does happens by itself, sooner or later.
    pub fn trim(&self) -> Result<u64> {
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
