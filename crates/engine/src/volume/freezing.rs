//! A volume at rest, of which a copy can be taken below.

use super::Volume;
use crate::engine::Engine;
use crate::error::Result;

/// Freezing a volume. While it is frozen nothing is sent to the device that changes it: whoever needs that waits, and there is no
/// background work. Reading goes on.
#[derive(Clone, Copy)]
pub struct Freezing<'a> {
    engine: &'a Engine,
}

impl<'a> Freezing<'a> {
    /// Of an open volume.
    #[must_use]
    pub fn of(volume: &'a Volume) -> Freezing<'a> {
        Freezing {
            engine: &volume.engine,
        }
    }

    /// Makes everything durable in a checkpoint. From then on background work does not begin, and the volume freezes as soon as no command
    /// that changes the device is under way: [`Freezing::comes_to_rest`] tells.
    pub fn begin(&self) -> Result<()> {
        if !self.engine.store.is_read_only() {
            self.engine.data.sync()?;
            self.engine.checkpoints.write()?;
        }
        self.engine.store.media.gate.close();
        Ok(())
    }

    /// Nothing is sent to the device that changes it.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.engine.store.media.gate.is_closed()
    }

    /// Completes what is under way and nobody waits for, and tells whether the volume is frozen.
    #[must_use]
    pub fn comes_to_rest(&self) -> bool {
        let store = &self.engine.store;
        if !store.media.gate.is_closed() {
            store.zones.complete_resets_under_way(&store.media);
        }
        store.media.gate.is_closed()
    }

    /// It is frozen, or about to be.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.engine.store.media.gate.is_closing()
    }

    /// Of a frozen volume: has the device keep all that it was sent, so that it is found below.
    pub fn flush(&self) -> Result<()> {
        self.engine.store.media.flush_frozen()
    }

    /// Lets everybody go on.
    pub fn thaw(&self) {
        self.engine.store.media.gate.open();
        self.engine.store.activity.note();
    }
}
