//! The history: changes of the metadata enter it in one order, and become durable in that order.

use persimmon_sync::Arc;

use persimmon_format::Lsn;

use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::in_flight::InFlight;
use crate::meta::{Intent, Transaction};
use crate::reclaim::{Demand, Reclaimer};
use crate::store::{Changed, Store};

/// See the module.
pub(crate) struct History {
    store: Arc<Store>,
    reclaimer: Arc<Reclaimer>,
}

impl History {
    pub(crate) fn new(store: &Arc<Store>, reclaimer: &Arc<Reclaimer>) -> History {
        History {
            store: Arc::clone(store),
            reclaimer: Arc::clone(reclaimer),
        }
    }

    /// Waits until the volume has what a change may need: room in the journal and for dirty pages, and zones for a checkpoint.
    pub(crate) fn prepare(&self, intent: Intent) -> Result<()> {
        self.store.check_writable()?;
        self.reclaimer.serve(Demand::Change(intent))
    }

    /// Changes the metadata: one transaction, one redo record. The closure may run several times.
    pub(crate) fn update<R, E: From<Error>>(
        &self,
        intent: Intent,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.update_with(intent, None, f).map(|(result, _)| result)
    }

    /// [`History::update`] of a record whose data is still under way. Returns its LSN too.
    pub(crate) fn update_with<R, E: From<Error>>(
        &self,
        intent: Intent,
        data: Option<Arc<InFlight>>,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Lsn), E> {
        self.prepare(intent)?;
        self.enter(data, f)
    }

    /// A change that [`prepare`](Self::prepare) was called for.
    pub(crate) fn enter<R, E: From<Error>>(
        &self,
        data: Option<Arc<InFlight>>,
        mut f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<(R, Lsn), E> {
        loop {
            match self.store.try_change(data.clone(), &mut f)? {
                Changed::Done(result, lsn) => return Ok((result, lsn)),
                // None is given out before it is durable that it may be.
                Changed::NeedsNumbers(_) if fault(Fault::LotNotWaitedFor) => {}
                Changed::NeedsNumbers(record) => self.commit(record)?,
            }
        }
    }

    /// Makes the history up to a record durable.
    pub(crate) fn commit(&self, lsn: Lsn) -> Result<()> {
        self.store
            .log
            .commit(&self.store.media, &self.store.zones, lsn, None)?;
        self.reclaimer.serve(Demand::SoundLog)
    }

    /// Has the history up to a record outlive the process.
    pub(crate) fn record(&self, lsn: Lsn) -> Result<()> {
        self.store
            .log
            .record(&self.store.media, &self.store.zones, lsn)?;
        self.reclaimer.serve(Demand::SoundLog)
    }
}
