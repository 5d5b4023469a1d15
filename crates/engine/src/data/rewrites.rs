//! Batches for fsync whose data failed after their record was written: they are written elsewhere, and a checkpoint leaves the bad record
//! behind.
//!
//! If the host below the device has no space for the rewrite, it is postponed. The data is staged again, so readers find it and it is not
//! lost. Meanwhile the tree names blocks that are not there. So nothing is acknowledged and no checkpoint is written until the rewrite
//! succeeds. Each later sync tries it first.

use persimmon_device::{BLOCK_SIZE, DeviceError};
use persimmon_format::Ino;
use persimmon_sync::{Arc, Mutex, MutexGuard};

use super::files::{Change, WriteBackExcluded};
use super::staged::Staged;
use super::write_back::{BatchFile, Mode, WrittenBack};
use super::{FileData, block_of};
use crate::error::{Error, Result};
use crate::faults::{Fault, unless};
use crate::in_flight::InFlight;
use crate::placement::Places;
use crate::reclaim::Demand;

/// A batch that waits to be written elsewhere.
struct Postponed {
    failed: Arc<InFlight>,
    inos: Vec<Ino>,
    /// Nobody moves what is not there, nor takes it for something that is.
    _places: Places,
}

/// All that wait.
#[derive(Default)]
pub(super) struct Rewrites {
    postponed: Mutex<Vec<Postponed>>,
}

impl Rewrites {
    fn add(&self, postponed: Postponed) {
        self.postponed.lock().push(postponed);
    }

    fn all(&self) -> Vec<(Arc<InFlight>, Vec<Ino>)> {
        let postponed = self.postponed.lock();
        let all = postponed.iter();
        all.map(|one| (Arc::clone(&one.failed), one.inos.clone()))
            .collect()
    }

    /// Takes one off. Nothing if another thread has done so.
    fn remove(&self, failed: &Arc<InFlight>) -> Option<Postponed> {
        let mut postponed = self.postponed.lock();
        let at = postponed
            .iter()
            .position(|one| Arc::ptr_eq(&one.failed, failed))?;
        Some(postponed.swap_remove(at))
    }
}

impl FileData {
    /// Rewrites a batch elsewhere whose data failed at `places`, after its record was written. A checkpoint
    /// acknowledges it, because it leaves the bad record behind.
    pub(super) fn rewrite_failed(
        &self,
        batch: &[BatchFile],
        failed: &Arc<InFlight>,
        places: Places,
    ) -> Result<WrittenBack> {
        let mut written = match self.write_and_map(batch, Mode::Rewrite) {
            Ok(written) => written,
            Err(error @ Error::Device(DeviceError::HostFull)) => {
                batch.iter().for_each(BatchFile::note_unarrived);
                self.rewrites.add(Postponed {
                    failed: Arc::clone(failed),
                    inos: batch.iter().map(|member| member.ino).collect(),
                    _places: places,
                });
                self.store.log.postpone(&error);
                return Err(error);
            }
            Err(error) => {
                self.store.make_read_only();
                self.store.log.batch_rewritten(failed, Err(error.clone()));
                return Err(error);
            }
        };
        drop(places);
        self.store.log.batch_rewritten(failed, Ok(()));
        // All other syncs wait for this one before they are acknowledged.
        let checkpoint = || self.leave_failures_behind();
        written.durable = unless(Fault::FailedDataAcknowledged, checkpoint);
        Ok(written)
    }

    fn leave_failures_behind(&self) -> Result<()> {
        let checkpoint = self.reclaimer.serve(Demand::Checkpoint);
        checkpoint.inspect_err(|error| match error.passes() {
            true => self.store.log.postpone(error),
            false => self.store.log.give_up(error),
        })
    }

    /// Excludes write-back of a file that is to get this size. The tree has the block that is cut, if one is, where it can be read.
    pub(super) fn exclude_to_resize<'c>(
        &self,
        ino: Ino,
        change: &'c Change<'_>,
        size: u64,
    ) -> Result<(WriteBackExcluded<'c>, MutexGuard<'c, Staged>)> {
        let cuts_block = !size.is_multiple_of(BLOCK_SIZE as u64);
        loop {
            let (excluded, staged) = change.exclude_write_back();
            let cuts_block = cuts_block && size < staged.loaded_size();
            if !(cuts_block && staged.is_unarrived && staged.is_dirty(block_of(size))) {
                return Ok((excluded, staged));
            }
            drop(staged);
            drop(excluded);
            self.write_back_file(ino, Mode::Background)?;
        }
    }

    /// Tries again what has to be done for data that failed, if anything has: before that nothing can be made durable. The caller keeps no file
    /// from being written back.
    pub(super) fn retry_rewrites(&self) -> Result<()> {
        if !self.store.log.has_postponed() {
            return Ok(());
        }
        for (failed, inos) in self.rewrites.all() {
            // What was written to these files since goes with it. Nothing may be left of one: it was removed or truncated.
            let write = |ino: &Ino| self.write_back_file(*ino, Mode::Rewrite).map(|_| ());
            let written = inos.iter().try_for_each(write);
            match &written {
                Err(error) if error.passes() => {
                    self.store.log.postpone(error);
                    return written;
                }
                Err(_) => self.store.make_read_only(),
                Ok(()) => {}
            }
            if self.rewrites.remove(&failed).is_some() {
                self.store.log.batch_rewritten(&failed, written.clone());
            }
            written?;
        }
        self.leave_failures_behind()
    }
}
