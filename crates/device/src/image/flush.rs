//! Flushing: at most one flush at a time runs; those who come meanwhile wait and share the next.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use super::host::is_full;
use super::{ImageDevice, lock};
use crate::{DeviceError, Result};

/// Who flushes, and how far flushing is. Generations count flushes from 1.
#[derive(Debug, Default)]
pub(super) struct FlushGate {
    state: Mutex<GateState>,
    turn: Condvar,
    /// The last generation that succeeded.
    finished: AtomicU64,
}

#[derive(Debug, Default)]
struct GateState {
    running: bool,
    /// Generations begun.
    started: u64,
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

    /// Runs `flush`, or waits for one that began after this call.
    fn pass(&self, flush: impl FnOnce() -> Result<(), FlushError>) -> Result<()> {
        let mut state = lock(&self.state);
        let wanted = state.started + 1;
        loop {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            if self.is_durable(wanted) {
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
                self.finished.store(generation, Ordering::Release);
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
        self.gate.pass(|| {
            let touched = self.touched.swap(false, Ordering::AcqRel);
            let dirty = lock(&self.zones).take_dirty();
            if !touched && dirty.is_empty() {
                return Ok(());
            }
            for (done, zone) in dirty.iter().enumerate() {
                if let Err(error) = self.write_entry(*zone) {
                    let mut zones = lock(&self.zones);
                    for zone in dirty.iter().skip(done) {
                        zones.mark_dirty(*zone);
                    }
                    self.touched.store(true, Ordering::Release);
                    return Err(FlushError::Retry(error));
                }
            }
            self.host.sync().map_err(|error| {
                FlushError::Fatal(if is_full(&error) {
                    DeviceError::HostFull
                } else {
                    DeviceError::Flush {
                        message: error.to_string(),
                    }
                })
            })
        })
    }
}
