//! The counts of all zones, of one moment. They change under the lock of the table; who only asks takes a copy and no part in that lock.

use persimmon_sync::{Arc, Mutex};

use super::Zones;
use super::layout::{DeviceKind, Layout, PerDevice};

/// Zones of a checkpoint that is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    /// Zones that it has begun.
    pub(crate) zones: u32,
    /// Blocks of those, and what was left in the one that it goes on with.
    pub(crate) blocks: u32,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ZoneCounts {
    pub(super) free: PerDevice<u32>,
    /// Zones that are being reset, or wait for it.
    pub(super) in_reset: PerDevice<u32>,
    /// Zones that the next checkpoint frees, as of the last look at the victim index.
    pub(super) reclaimable: PerDevice<u32>,
    /// Zones of the log.
    pub(crate) log_zones: u32,
    /// Zones for data that hold the log or metadata: what was on the one device before the volume got another one for these.
    pub(crate) misplaced: u32,
    /// Blocks that the journal is to get as long as: zones are won for them.
    pub(crate) journal_blocks: u64,
    /// Those of them for which zones are secured: they are reserved.
    pub(crate) journal_blocks_secured: u64,
    /// Blocks left in the zone that the log goes on in, as far as is known.
    pub(crate) log_blocks_left: u32,
    /// Blocks left in the zone that checkpoints go on in.
    pub(crate) metadata_blocks_left: u32,
    /// Cleaning may take the last free zone where zones are large.
    pub(crate) last_spare_borrowed: bool,
    /// What a whole checkpoint under way has had.
    pub(crate) under_way: Option<UnderWay>,
    pub(crate) write_clock: u64,
}

impl ZoneCounts {
    /// Zones that are free for a device.
    pub(crate) fn free(&self, layout: &Layout, device: DeviceKind) -> u32 {
        layout.get(&self.free, device)
    }

    /// Zones of a device that are being reset, or wait for it.
    pub(crate) fn in_reset(&self, layout: &Layout, device: DeviceKind) -> u32 {
        layout.get(&self.in_reset, device)
    }

    /// Zones of a device that the next checkpoint frees, if nothing goes wrong and nobody reads them.
    pub(crate) fn reclaimable(&self, layout: &Layout, device: DeviceKind) -> u32 {
        layout.get(&self.reclaimable, device)
    }
}

/// The counts as of when the table was last let go.
#[derive(Clone, Debug, Default)]
pub(super) struct Published(Arc<Mutex<ZoneCounts>>);

impl Published {
    pub(super) fn set(&self, counts: &ZoneCounts) {
        let mut published = self.0.lock();
        if *published != *counts {
            *published = *counts;
        }
    }

    fn get(&self) -> ZoneCounts {
        *self.0.lock()
    }
}

impl Zones {
    /// The counts, with reclaimable zones as of the last look at the victim index.
    pub(crate) fn counts(&self) -> ZoneCounts {
        self.published.get()
    }

    /// The counts as of now.
    pub(crate) fn counts_now(&self) -> ZoneCounts {
        self.indexed().counts
    }
}
