//! Where commands that change the device pass, and can be held up: while the volume is frozen.

use persimmon_sync::{Arc, Condvar, Mutex};

/// Passed by each command; open but for a freeze.
#[derive(Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    /// Commands that have passed and are not known to be over.
    under_way: u64,
    is: Is,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Is {
    #[default]
    Open,
    /// Closed once nothing is under way. Until then others pass: who holds a command under way may need to send one more before it waits
    /// for it.
    Closing,
    Closed,
}

/// A command under way, until dropped.
pub(crate) struct Passage(Arc<Shared>);

impl Gate {
    /// Waits while the gate is closed.
    pub(crate) fn enter(&self) -> Passage {
        let mut state = self.0.state.lock();
        while state.is == Is::Closed {
            state = self.0.opened.wait(state);
        }
        state.under_way += 1;
        drop(state);
        Passage(Arc::clone(&self.0))
    }

    /// Closes as soon as nothing is under way.
    pub(crate) fn close(&self) {
        let mut state = self.0.state.lock();
        state.is = match state.under_way {
            0 => Is::Closed,
            _ => Is::Closing,
        };
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.state.lock().is == Is::Closed
    }

    /// Nothing new is to begin.
    pub(crate) fn is_closing(&self) -> bool {
        self.0.state.lock().is != Is::Open
    }

    /// Lets all pass from now on.
    pub(crate) fn open(&self) {
        self.0.state.lock().is = Is::Open;
        self.0.opened.notify_all();
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.under_way -= 1;
        if state.under_way == 0 && state.is == Is::Closing {
            state.is = Is::Closed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_closes_once_nothing_is_under_way_and_holds_up_who_comes_then() {
        let gate = Arc::new(Gate::default());
        let first = gate.enter();
        gate.close();
        assert!(!gate.is_closed() && gate.is_closing());
        // The holder of the first may need it.
        let second = gate.enter();
        drop(first);
        assert!(!gate.is_closed());
        drop(second);
        assert!(gate.is_closed());

        let waiting = {
            let gate = Arc::clone(&gate);
            std::thread::spawn(move || drop(gate.enter()))
        };
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        gate.open();
        waiting.join().unwrap();
        assert!(!gate.is_closing());
        gate.close();
        assert!(gate.is_closed());
    }
}
