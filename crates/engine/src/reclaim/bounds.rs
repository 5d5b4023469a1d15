//! The bounds of journal and dirty pages, kept by checkpoints; and resets that are waited for.

use super::Reclaimer;
use crate::error::Result;
use crate::statistics::add;

/// Records buffered before somebody writes them without being asked, bytes.
const BUFFERED_BYTES_MAX: usize = 1 << 20;

impl Reclaimer {
    /// Waits for resets under way while the caller `is_short` of zones. Returns whether it still is.
    pub(super) fn await_resets(&self, is_short: impl Fn() -> bool) -> bool {
        loop {
            let seen = self.store.zones.resets_ended();
            if !is_short() {
                return false;
            }
            if !self.store.zones.complete_a_reset(&self.store.media, seen) {
                return true;
            }
        }
    }

    /// Writes a checkpoint.
    pub(super) fn checkpoint(&self) -> Result<()> {
        self.checkpoints.write()
    }

    /// Frees the zones in which nothing is valid.
    pub(super) fn checkpoint_zones(&self) -> Result<()> {
        self.checkpoints.write_zones()
    }

    /// Where a zone of the log has failed, what is in it may be lost, and later records cannot be
    /// replayed without it: a checkpoint makes them needless. Before that nothing more is
    /// acknowledged.
    pub(super) fn secure_log(&self) -> Result<()> {
        if self.store.zones.log_is_failing() {
            self.checkpoints
                .write_if(|| self.store.zones.log_is_failing())?;
        }
        Ok(())
    }

    /// Waits for a checkpoint where journal or changed pages have reached their bounds, and writes
    /// records that have piled up. What a checkpoint under way has not written yet counts: until
    /// it is durable a recovery would have to change those pages too.
    pub(super) fn keep_bounds(&self) -> Result<()> {
        self.write_buffered()?;
        let full = || self.space.pages_are_many() || self.space.journal_is_full();
        if full() {
            add(&self.store.media.counters.stalls, 1);
            self.store
                .zones
                .shorten_journal(self.store.log.blocks_to_replay());
            self.checkpoints.write_if(full)?;
        }
        Ok(())
    }

    /// Writes records that have piled up.
    pub(super) fn write_buffered(&self) -> Result<()> {
        if self.store.log.buffered_bytes() > BUFFERED_BYTES_MAX {
            self.store.log.write(
                &self.store.media,
                &self.store.zones,
                self.store.log.last_lsn(),
            )?;
        }
        Ok(())
    }

    /// Waits for a checkpoint where changed pages have reached their bound.
    pub(super) fn keep_dirty_bound(&self) -> Result<()> {
        if self.space.pages_are_many() {
            self.checkpoints.write_if(|| self.space.pages_are_many())
        } else {
            Ok(())
        }
    }
}
