//! Flushing and recording: at most one of them runs at a time; those who come meanwhile wait and share the next.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::host::is_full;
use super::{ImageDevice, lock};
use crate::faults::{Fault, fault};
use crate::{DeviceError, Result};

/// Who flushes or records, and how far that is. Generations count both from 1.
#[derive(Debug, Default)]
pub(super) struct FlushGate {
    state: Mutex<GateState>,
    turn: Condvar,
    /// The last flush that succeeded.
    finished: AtomicU64,
}

/// How far a pass takes what has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Into the host's page cache.
    Recorded,
    /// To the disk.
    Durable,
}

#[derive(Debug, Default)]
struct GateState {
    running: bool,
    /// Generations begun.
    started: u64,
    /// The last one of either kind that succeeded.
    recorded: u64,
    /// Why nothing will ever be flushed again.
    failed: Option<DeviceError>,
}

impl FlushGate {
    /// The generation that covers everything that has completed by now.
    pub(super) fn next_generation(&self) -> u64 {
        lock(&self.state).started + 1
    }

    /// Whether what `generation` covers is durable.
    pub(super) fn is_durable(&self, generation: u64) -> bool {
        self.finished.load(Ordering::Acquire) >= generation
    }

    /// The error of the flush that failed for good, if one did.
    pub(super) fn check(&self) -> Result<()> {
        match &lock(&self.state).failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Runs `flush`, which reaches so far, or waits for one that began after this call and reaches as far.
    fn pass(&self, reach: Reach, flush: impl FnOnce() -> Result<(), FlushError>) -> Result<()> {
        let mut state = lock(&self.state);
        let wanted = match state.running && fault(Fault::FlushSharedTooEarly) {
            true => state.started,
            false => state.started + 1,
        };
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            let is_there = match reach {
                Reach::Recorded => state.recorded >= wanted,
                Reach::Durable => self.is_durable(wanted),
            };
            if is_there {
                return Ok(());
            }
            if !state.running {
                break;
            }
            state = self
                .turn
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.running = true;
        state.started += 1;
        let generation = state.started;
        drop(state);
        let result = flush();
        let mut state = lock(&self.state);
        state.running = false;
        let result = match result {
            Ok(()) => {
                state.recorded = generation;
                if reach == Reach::Durable {
                    self.finished.store(generation, Ordering::Release);
                }
                Ok(())
            }
            Err(FlushError::Retry(error)) => Err(error),
            Err(FlushError::Fatal(error)) => {
                state.failed = Some(error.clone());
                Err(error)
            }
        };
        drop(state);
        self.turn.notify_all();
        result
    }
}

enum FlushError {
    /// Nothing was lost; the next flush does it all.
    Retry(DeviceError),
    /// The host may have dropped what it could not write.
    Fatal(DeviceError),
}

impl ImageDevice {
    pub(super) fn flush_cache(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.gate.pass(Reach::Durable, || {
            let late = fault(Fault::TableAfterSync);
            if !late && !fault(Fault::TableNotWritten) {
                self.write_dirty_entries()?;
            }
            if !self.touched.swap(false, Ordering::AcqRel) {
                return Ok(());
            }
            self.host
                .sync()
                .map_err(|error| FlushError::Fatal(lost(&error)))?;
            if late {
                self.write_dirty_entries()?;
            }
            Ok(())
        })
    }

    /// A flush without its end: what it covers outlives the process, not the power.
    pub(super) fn record(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let write = || self.write_dirty_entries();
        self.gate.pass(Reach::Recorded, write)
    }

    /// Writes the records that are behind to the page cache. Inside the gate, so that no flush misses what another
    /// has taken and not written yet.
    fn write_dirty_entries(&self) -> Result<(), FlushError> {
        let dirty = lock(&self.zones).take_dirty();
        if dirty.is_empty() {
            return Ok(());
        }
        self.touched.store(true, Ordering::Release);
        for (done, zone) in dirty.iter().enumerate() {
            if let Err(error) = self.write_entry(*zone) {
                let mut zones = lock(&self.zones);
                for zone in dirty.iter().skip(done) {
                    zones.mark_dirty(*zone);
                }
                return Err(FlushError::Retry(error));
            }
        }
        Ok(())
    }
}

/// The error of an fdatasync. A host without room for what it took is none that can be cured: it has dropped it.
fn lost(error: &io::Error) -> DeviceError {
    let first = match is_full(error) {
        true => "free space there",
        false => "see to the disk below",
    };
    DeviceError::Flush {
        message: format!(
            "the host may have lost what was written to the image ({error}); unmount, {first}, and mount again to go \
             on from what is left"
        ),
    }
}
