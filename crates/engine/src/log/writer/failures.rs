//! Data that failed after its record was written. Nothing is acknowledged until the data is mapped elsewhere and a checkpoint is newer than
//! the record.

use persimmon_format::Lsn;

use super::{Inner, Log, LogCut};
use crate::error::{Error, Result};
use crate::in_flight::InFlight;
use crate::invariant::{invariant_holds, invariant_sub};
use crate::media::Media;
use crate::zones::Zones;

/// The rewrite of failed data, or the checkpoint after it, found no space and will be tried again.
pub(super) struct Postponed {
    /// Why.
    error: Error,
    /// A checkpoint with the records up to here ends it.
    upto: Lsn,
}

impl Log {
    /// Whether a checkpoint with this cut, all of whose records are written, would make an extent
    /// durable whose data is not there.
    pub(crate) fn has_failures(&self, cut: &LogCut) -> bool {
        let inner = self.lock();
        cut.failing || inner.failed_batches > 0 || inner.failures > cut.failures
    }

    /// The owner of a failed batch has mapped its data elsewhere, or (with an error) could not.
    pub(crate) fn batch_rewritten(&self, failed: &InFlight, result: Result<()>) {
        let mut inner = self.lock();
        if failed.arrives_second() {
            invariant_sub!(
                self.alarm,
                inner.failed_batches,
                1,
                "batches that have failed"
            );
        }
        if let Err(error) = result {
            inner.broken.get_or_insert(error);
        }
        self.wake.notify_all();
    }

    /// Nothing that waits here can be acknowledged any more.
    pub(crate) fn give_up(&self, error: &Error) {
        self.lock().broken.get_or_insert_with(|| error.clone());
        self.wake.notify_all();
    }

    /// What failed data needs has to wait for now: nobody is to wait for that. Until a checkpoint has left its record behind nothing is
    /// acknowledged.
    pub(crate) fn postpone(&self, error: &Error) {
        let mut inner = self.lock();
        let (error, upto) = (error.clone(), inner.last_lsn());
        inner.postponed = Some(Postponed { error, upto });
        self.wake.notify_all();
    }

    /// Whether something has been postponed: it is to be tried again before anything is made durable.
    pub(crate) fn has_postponed(&self) -> bool {
        self.lock().postponed.is_some()
    }

    /// Waits until the owners of failed batches have mapped their data elsewhere.
    pub(crate) fn wait_for_rewrites(&self) -> Result<()> {
        let mut inner = self.lock();
        while inner.failed_batches > 0 && inner.broken.is_none() {
            inner.check_postponed()?;
            inner = self.wait(inner);
        }
        inner.check()
    }

    /// Whether data that a record names may still fail, or has failed and is not rewritten yet.
    pub(crate) fn has_data_under_way(&self) -> bool {
        let inner = self.lock();
        inner.written < inner.last_with_data || inner.failed_batches > 0
    }

    /// Waits until the data of all records made so far has arrived, or was rewritten elsewhere.
    pub(crate) fn wait_for_data(&self, media: &Media, zones: &Zones) -> Result<()> {
        let last = self.lock().last_with_data;
        self.write(media, zones, last)?;
        self.wait_for_rewrites()
    }

    /// The last record that is written: what has completed outlives the process once the device has recorded it. `None` where data has failed, and the history might end
    /// before it, until a checkpoint.
    pub(crate) fn recorded(&self) -> Option<Lsn> {
        let inner = self.lock();
        invariant_holds!(
            self.alarm,
            inner.failed_upto.is_none_or(|lsn| lsn <= inner.written),
            "data of record {:?} has failed, and records up to {} are written",
            inner.failed_upto,
            inner.written
        );
        let is_sound = inner.failed_upto.is_none() && inner.failed_batches == 0;
        is_sound.then_some(inner.written)
    }
}

impl Inner {
    /// An error if what failed data needs has been postponed.
    pub(super) fn check_postponed(&self) -> Result<()> {
        let postponed = self.postponed.as_ref();
        postponed.map_or(Ok(()), |postponed| Err(postponed.error.clone()))
    }

    /// A checkpoint holds all records up to its cut: whose data had failed, they are needed no more.
    pub(super) fn leave_failures_behind(&mut self, cut: Lsn) {
        self.failed_upto.take_if(|lsn| *lsn <= cut);
        self.postponed.take_if(|postponed| postponed.upto <= cut);
    }
}
