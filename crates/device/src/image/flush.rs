//! Flushing and recording: at most one of them runs at a time; threads that ask meanwhile wait and share the next.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_sync::{Condvar, Mutex};

use super::ImageDevice;
use super::host::is_full;
use crate::faults::{Fault, fault, only_if, unless};
use crate::{DeviceError, Result};

/// The flush or recording under way, and how far they are. Generations count both from 1.
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
        self.state.lock().started + 1
    }

    /// Whether what `generation` covers is durable.
    pub(super) fn is_durable(&self, generation: u64) -> bool {
        self.flushes() >= generation
    }

    /// Grows with each flush that succeeds.
    pub(super) fn flushes(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// The error of the flush that failed for good, if one did.
    pub(super) fn check(&self) -> Result<()> {
        match &self.state.lock().failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// Runs `flush`, which reaches so far, or waits for one that began after this call and reaches as far.
    fn pass(&self, reach: Reach, flush: impl FnOnce() -> Result<(), FlushError>) -> Result<()> {
        let mut state = self.state.lock();
        let shared = state.running && fault(Fault::FlushSharedTooEarly);
        let wanted = state.started + u64::from(!shared);
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
            state = self.turn.wait(state);
        }
        state.running = true;
        state.started += 1;
        let generation = state.started;
        drop(state);
        let mut flushing = Flushing {
            gate: self,
            ended: false,
        };
        let result = flush();
        flushing.ended = true;
        let mut state = self.state.lock();
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

/// A flush under way. If it panics, the records it took to write are lost to the next flush: nothing is flushed any
/// more, and the threads that wait get an error.
struct Flushing<'a> {
    gate: &'a FlushGate,
    ended: bool,
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.gate.state.lock();
        state.running = false;
        state.failed.get_or_insert_with(|| DeviceError::Flush {
            message: "a thread panicked in the midst of a flush of the image; see the log, unmount and mount again"
                .to_owned(),
        });
        drop(state);
        self.gate.turn.notify_all();
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
            let sync = || {
                self.host
                    .sync()
                    .map_err(|error| FlushError::Fatal(lost(&error)))
            };
            only_if(Fault::TableAfterSync, sync)?;
            unless(Fault::TableNotWritten, || self.write_dirty_entries())?;
            if !self.touched.swap(false, Ordering::AcqRel) {
                return Ok(());
            }
            unless(Fault::TableAfterSync, sync)
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
        let dirty = self.zones.lock().take_dirty();
        if dirty.is_empty() {
            return Ok(());
        }
        self.touched.store(true, Ordering::Release);
        for (done, zone) in dirty.iter().enumerate() {
            if let Err(error) = self.write_entry(*zone) {
                let mut zones = self.zones.lock();
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
    let first = if is_full(error) {
        "free space there"
    } else {
        "see to the disk below"
    };
    DeviceError::Flush {
        message: format!(
            "the host may have lost what was written to the image ({error}); unmount, {first}, and mount again to go \
             on from what is left"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// The thread that flushed had the turn, and no other got it after a panic: all of them waited for ever.
    #[test]
    fn nobody_waits_for_a_flush_that_panicked() {
        let gate = std::sync::Arc::new(FlushGate::default());
        let (over, ended) = mpsc::channel();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let flush = || {
                // One comes while it is under way, and one after it.
                for _ in 0..2 {
                    let (gate, over) = (std::sync::Arc::clone(&gate), over.clone());
                    std::thread::spawn(move || {
                        let passed = gate.pass(Reach::Durable, || Ok(()));
                        over.send(passed)
                    });
                }
                std::panic::resume_unwind(Box::new("a deliberate panic"))
            };
            gate.pass(Reach::Durable, flush)
        }));
        assert!(panicked.is_err());
        for _ in 0..2 {
            // Nobody waits so long but for ever.
            let told = ended.recv_timeout(Duration::from_secs(120));
            let told = told.expect("somebody waits for ever");
            assert!(matches!(told, Err(DeviceError::Flush { .. })), "{told:?}");
        }
        assert!(gate.check().is_err());
    }
}
