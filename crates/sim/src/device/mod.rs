//! The simulated zoned device.
//!
//! **The fault model.** Commands in flight take effect in any order, except that writes to one
//! zone keep theirs; a command completes when it has taken effect. Power can fail before any
//! command takes effect. What is found afterwards, zone by zone and independently of each other:
//! everything that was durable, then, in order, any part of what happened to the zone since. On a
//! device *without* a volatile cache all that completed is durable, and only commands in flight are
//! open: each took effect, or did not, or, a write or append of several blocks, up to any block.
//! On a device *with* one, durable is what had completed before the submission of the last
//! completed flush; of the writes, resets and finishes after that any prefix survives, ending
//! between two blocks. Where the write pointer proves the data below it (a real drive) that is all.
//! Where it does not (an image file on a host, a conventional zone), the write pointer and each
//! block survive on their own: the write pointer is that of any prefix, and each block holds
//! whatever it held at any time since it was durable: the new data, the older data of the zone's
//! former life, zeros, or a mixture of two at a 512-byte boundary. Zones found open are closed.
//! Beside power: any command can fail, on any zone or on one, once or for ever; a failed write
//! leaves the write pointer anywhere inside the command, a failed reset or finish was carried out
//! or not; bits flip silently; zones turn read-only or offline, at any command to them, and keep
//! then, or lose, all they hold, what was in the cache included. All of this can happen in a
//! recovery and while zones are cleaned as well. With virtual time ([`crate::time`]) commands take
//! turns on the dies they go to and complete in the order that comes of it, which is one of those
//! that the seed chooses among otherwise. Not modelled: writes landing at the wrong place, and
//! blocks that were durable changing at a power cut.

mod choices;
mod commands;
mod config;
mod counters;
mod fault;
mod medium;
pub mod pattern;
mod power;
mod queue;
mod state;
mod zone;

pub use choices::{Choices, Exhaustive, Sampled};
pub use config::{Completions, History, SimConfig};
pub use counters::Counters;
pub use fault::{Fault, FaultKind, FaultTarget};
pub use power::{PowerCut, Snapshot};

use std::ops::Range;
use std::sync::Arc;

use persimmon_device::{
    Buffer, Command, Completion, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo,
    ZonedDevice,
};
use persimmon_sync::host::{Mutex, MutexGuard};

use crate::time::{Schedule, VirtualClock};
use state::{Answer, State};

/// A zoned device in memory. Cheap to copy through [`SimDevice::snapshot`].
pub struct SimDevice {
    config: Arc<SimConfig>,
    state: Arc<Mutex<State>>,
    timed: Option<Timed>,
}

/// What a device has whose commands take time.
struct Timed {
    clock: VirtualClock,
    schedule: Mutex<Schedule>,
}

impl SimDevice {
    /// An empty device.
    #[must_use]
    pub fn new(config: SimConfig) -> SimDevice {
        let config = Arc::new(config);
        let state = State::new(Arc::clone(&config));
        SimDevice::from_state(config, state)
    }

    fn from_state(config: Arc<SimConfig>, state: State) -> SimDevice {
        let timed = config.timing.map(|timing| Timed {
            clock: VirtualClock::new(),
            schedule: Mutex::new(Schedule::new(timing, &config.geometry)),
        });
        SimDevice {
            config,
            state: Arc::new(Mutex::new(state)),
            timed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// How the device was made.
    #[must_use]
    pub fn config(&self) -> &SimConfig {
        &self.config
    }

    /// The device's clock, which began at zero with it; `None` if its commands take no time. A
    /// device that comes out of a [`Snapshot`] has a clock of its own.
    #[must_use]
    pub fn clock(&self) -> Option<&VirtualClock> {
        self.timed.as_ref().map(|timed| &timed.clock)
    }

    /// Cuts the power when `commands` more commands other than reads have taken effect: the next
    /// one finds no power and stays in flight, and from then on every command answers
    /// [`DeviceError::Gone`].
    pub fn cut_after(&self, commands: u64) {
        self.lock().cut_after(Some(commands));
    }

    /// Takes back [`SimDevice::cut_after`], if the power is still on.
    pub fn cut_never(&self) {
        self.lock().cut_after(None);
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.lock().cut();
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.lock().is_cut()
    }

    /// Starts the device's own random choices anew from `seed`.
    pub fn reseed(&self, seed: u64) {
        self.lock().reseed(seed);
    }

    /// The device as it is at this moment, commands in flight included.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// One legal state after a power cut at this moment, chosen by `seed`: a device of its own,
    /// powered on, with fresh counters and without faults.
    #[must_use]
    pub fn persisted(&self, seed: u64) -> SimDevice {
        self.snapshot().persisted(&mut Sampled::new(seed))
    }

    /// From now on keeps a snapshot before about one in `one_in` commands other than reads takes
    /// effect; 0 stops.
    pub fn record_snapshots(&self, one_in: u32) {
        self.lock().record_snapshots(one_in);
    }

    /// The snapshots kept since the last call, oldest first.
    #[must_use]
    pub fn take_snapshots(&self) -> Vec<Snapshot> {
        self.lock().take_snapshots()
    }

    /// Whether something that was sent to a slow zone has not taken effect.
    #[must_use]
    pub fn slow_waits(&self) -> bool {
        self.lock().queue.slow_waits()
    }

    /// Makes commands fail.
    pub fn inject(&self, fault: Fault) {
        self.lock().faults.add(fault);
    }

    /// Ends all injected faults, and forgets that any has come to pass.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Whether any injected fault has come to pass, but for zones that failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.lock().faults.have_struck()
    }

    /// Flips the bits of `mask` in byte `byte` of a block, silently. Everything that happened to
    /// the zone so far becomes durable. Answers whether there was such a block.
    pub fn corrupt(&self, zone: ZoneId, block: u32, byte: usize, mask: u8) -> bool {
        self.lock().corrupt(zone, block, byte, mask)
    }

    /// Puts other content in the place of written blocks, silently, as [`SimDevice::corrupt`] does.
    pub fn replace(&self, zone: ZoneId, block: u32, content: Buffer) -> bool {
        self.lock().replace(zone, block, content)
    }

    /// Fills an empty zone, silently and at once: with a header, and then with the block that
    /// [`pattern::fill`] makes from a number, over and over. Answers whether there was such a zone.
    pub fn fill(&self, zone: ZoneId, header: Buffer, number: u64) -> bool {
        self.lock().fill(zone, header, number)
    }

    /// Turns a zone read-only for ever.
    pub fn set_read_only(&self, zone: ZoneId) {
        self.lock()
            .wear_out(zone, persimmon_device::ZoneState::ReadOnly);
    }

    /// Turns a zone offline for ever.
    pub fn set_offline(&self, zone: ZoneId) {
        self.lock()
            .wear_out(zone, persimmon_device::ZoneState::Offline);
    }

    /// Zones that have turned read-only or gone offline.
    #[must_use]
    pub fn failed_zones(&self) -> u32 {
        self.lock().worn_out().0
    }

    /// Whether a zone has gone offline.
    #[must_use]
    pub fn has_offline_zones(&self) -> bool {
        self.lock().worn_out().1 > 0
    }

    /// Whether a fault of this target and kind has come to pass.
    #[must_use]
    pub fn has_come(&self, fault: &Fault) -> bool {
        self.lock().faults.has_come(fault)
    }

    /// A hash of what can be found on the device now: zone states, write pointers, and every block
    /// that can be read.
    #[must_use]
    pub fn image_hash(&self) -> u64 {
        self.lock().image_hash()
    }

    /// What has taken effect so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    /// How often each zone was reset.
    #[must_use]
    pub fn zone_resets(&self) -> Vec<u32> {
        self.lock().zone_resets()
    }
}

/// Dies do them each for itself; a drive has no end of queue room.
const RESETS_AT_ONCE: usize = 16;

impl ZonedDevice for SimDevice {
    fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.lock().report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        persimmon_sync::meet();
        let Some(Timed { clock, schedule }) = &self.timed else {
            return self.submit_untimed(command);
        };
        let now = clock.turn();
        if self.is_cut() {
            return Pending::ready(gone());
        }
        let completed = schedule.lock().take(&command, now);
        let pending = self.submit_untimed(command);
        let clock = clock.clone();
        Pending::deferred(move || {
            clock.wait_until(completed);
            pending.wait()
        })
    }

    fn resets_at_once(&self) -> usize {
        RESETS_AT_ONCE
    }

    /// As of an image, where it behaves like one.
    fn space_is_hosts(&self) -> bool {
        !self.geometry().write_pointer_is_proof
    }
}

impl SimDevice {
    fn submit_untimed(&self, command: Command) -> Pending {
        match self.config.completions {
            Completions::AtSubmit => {
                let answer = self.lock().run_now(command);
                // Copies of data are made with the lock released.
                Pending::ready(answer.and_then(Answer::finish))
            }
            Completions::WhenWaited => {
                let id = match self.lock().enqueue(command) {
                    Ok(id) => id,
                    Err(error) => return Pending::ready(Err(error)),
                };
                let ticket = Ticket {
                    state: Arc::clone(&self.state),
                    id,
                };
                Pending::deferred(move || ticket.wait())
            }
        }
    }
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimDevice")
            .field("config", &self.config)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// A claim on the answer of a queued command. The command runs even if nobody asks.
struct Ticket {
    state: Arc<Mutex<State>>,
    id: u64,
}

impl Ticket {
    fn wait(self) -> Result<Completion> {
        persimmon_sync::meet();
        let answer = self.state.lock().run_until(self.id);
        answer.and_then(Answer::finish)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.state.lock().forget(self.id);
    }
}

/// The answer to a command that finds no power.
fn gone<T>() -> Result<T> {
    Err(DeviceError::Gone)
}

#[cfg(test)]
mod tests;
