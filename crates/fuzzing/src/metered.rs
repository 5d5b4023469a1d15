//! A device that ends what does not end by itself.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_device::{Command, Geometry, Pending, Result, ZoneInfo, ZonedDevice};
use persimmon_sim::SimDevice;

/// Commands that one input may cause. A sound volume of the size used here takes some thousands.
const COMMANDS_MAX: u64 = 60_000;

/// Counts commands, and panics when there are too many.
pub struct Metered {
    device: SimDevice,
    commands: AtomicU64,
    commands_max: u64,
}

impl Metered {
    pub fn new(device: SimDevice) -> Arc<Metered> {
        Metered::with_limit(device, COMMANDS_MAX)
    }

    /// For inputs that do more.
    pub fn with_limit(device: SimDevice, commands_max: u64) -> Arc<Metered> {
        Arc::new(Metered {
            device,
            commands: AtomicU64::new(0),
            commands_max,
        })
    }
}

impl ZonedDevice for Metered {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.device.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let before = self.commands.fetch_add(1, Ordering::Relaxed);
        let most = self.commands_max;
        assert!(before < most, "{most} commands and no end");
        self.device.submit(command)
    }
}
