//! Freezing: the device is not written, so that a copy of it can be taken below.

use persimmon_engine::Freezing;

use crate::{Result, Vfs};

impl Vfs {
    /// Makes everything durable in a checkpoint. The filesystem freezes as soon as nothing is under way that is being written, which
    /// [`Vfs::comes_to_rest`] tells; callers keep others from changing anything meanwhile. While it is frozen reading goes on, a sync of what is
    /// durable answers at once, and what has to be written waits.
    pub fn begin_freezing(&self) -> Result<()> {
        self.flush_access_times()?;
        self.watch(Freezing::of(&self.volume).begin())
    }

    /// Completes what is under way and nobody waits for, and tells whether nothing is written to the device any more.
    #[must_use]
    pub fn comes_to_rest(&self) -> bool {
        Freezing::of(&self.volume).comes_to_rest()
    }

    /// Nothing is written to the device.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        Freezing::of(&self.volume).is_frozen()
    }

    /// Of a frozen filesystem: has the device keep what was written to it, so that it is found below.
    pub fn flush_frozen(&self) -> Result<()> {
        self.watch(Freezing::of(&self.volume).flush())
    }

    /// Ends a freeze, or one that has begun. Nothing else waits for this, and it waits for nothing.
    pub fn thaw(&self) {
        Freezing::of(&self.volume).thaw();
    }
}
