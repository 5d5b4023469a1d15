//! The clock of a timed device.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use persimmon_sync::host::{Mutex, MutexGuard};

use super::clients::{Clients, Place};

/// A virtual clock: the time since the device was made, as far as anybody waited.
///
/// Alone, a thread moves it by waiting. Between the clients of [`VirtualClock::run`] it is shared
/// as [`crate::time`] says.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    state: Arc<Mutex<ClockState>>,
}

/// What the clock's lock guards.
#[derive(Debug, Default)]
pub(super) struct ClockState {
    /// The clock of who runs. It never goes back.
    pub(super) now: Duration,
    pub(super) clients: Clients,
}

thread_local! {
    /// Which client of which clock this thread is.
    static CLIENT: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

impl VirtualClock {
    /// A clock at zero.
    #[must_use]
    pub fn new() -> VirtualClock {
        VirtualClock::default()
    }

    /// The time of the calling thread.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.lock().now
    }

    /// Lets `time` pass for the calling thread: others have the turn meanwhile.
    pub fn sleep(&self, time: Duration) {
        let now = self.turn();
        self.wait_until(now.saturating_add(time));
    }

    /// Waits for the calling thread's turn; answers its time.
    pub(crate) fn turn(&self) -> Duration {
        let state = self.lock();
        match self.client() {
            Some(client) if !state.clients.has_turn(client) => {
                let now = state.now;
                self.park(state, client, now)
            }
            _ => state.now,
        }
    }

    /// Moves the calling thread's clock to `time`, unless it is past that.
    pub(crate) fn wait_until(&self, time: Duration) {
        let mut state = self.lock();
        let time = time.max(state.now);
        match self.client() {
            Some(client) if !state.clients.goes_on(client, time) => {
                self.park(state, client, time);
            }
            _ => state.now = time,
        }
    }

    /// Gives the turn away until `client` is next, at `time` at the earliest.
    fn park<'a>(
        &'a self,
        mut state: MutexGuard<'a, ClockState>,
        client: usize,
        time: Duration,
    ) -> Duration {
        state.clients.leave(client, Place::Parked(time));
        drop(state);
        self.wait_for_turn(client)
    }

    /// Takes the lock, never asleep: a client that slept here would seem to sleep in the code
    /// under test, and who is about to wake it need not be in that code.
    pub(super) fn lock(&self) -> MutexGuard<'_, ClockState> {
        loop {
            match self.state.try_lock() {
                Some(state) => return state,
                None => thread::yield_now(),
            }
        }
    }

    fn id(&self) -> usize {
        Arc::as_ptr(&self.state) as usize
    }

    fn client(&self) -> Option<usize> {
        let (clock, client) = CLIENT.get()?;
        (clock == self.id()).then_some(client)
    }

    /// Makes the calling thread a client of this clock, or of none.
    pub(super) fn become_client(&self, client: Option<usize>) {
        CLIENT.set(client.map(|client| (self.id(), client)));
    }
}
