//! Threads that share a virtual clock, and the turn that goes round among them.

use std::sync::Arc;
use std::thread::{self, Thread};
use std::time::Duration;

use super::blocked::Probe;
use super::clock::VirtualClock;

/// How long to wait in real time before looking again whether everybody is asleep. Real time is
/// for not burning a processor; it does not show in virtual time.
const LOOK_AGAIN: Duration = Duration::from_micros(20);
/// The same after having looked in vain for a while.
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(1);

/// So many looks in vain are about ten seconds.
const LOOKS_MAX: u32 = 10_000;

/// The clients of a clock while [`VirtualClock::run`] runs.
#[derive(Debug, Default)]
pub(super) struct Clients {
    slots: Vec<Slot>,
    turn: Option<usize>,
    /// Who hands out the turns.
    master: Option<Thread>,
}

#[derive(Debug)]
struct Slot {
    place: Place,
    thread: Option<Thread>,
    probe: Option<Arc<Probe>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the code under test: running, or asleep in a lock or condition variable of it.
    Out,
    /// Waiting for the turn, which it may have from this time on.
    Parked(Duration),
    Ended,
}

impl Clients {
    fn new(count: usize) -> Clients {
        let slot = || Slot {
            place: Place::Out,
            thread: None,
            probe: None,
        };
        Clients {
            slots: (0..count).map(|_| slot()).collect(),
            turn: None,
            master: Some(thread::current()),
        }
    }

    pub fn has_turn(&self, client: usize) -> bool {
        self.turn == Some(client)
    }

    /// Whether a client keeps the turn though its clock moves to `time`: all others are parked,
    /// and none is before it.
    pub fn goes_on(&self, client: usize, time: Duration) -> bool {
        self.has_turn(client)
            && self
                .slots
                .iter()
                .enumerate()
                .all(|(other, slot)| match slot.place {
                    Place::Out => other == client,
                    Place::Parked(at) => (time, client) < (at, other),
                    Place::Ended => true,
                })
    }

    /// Notes that a client waits for its turn, or has ended.
    pub fn leave(&mut self, client: usize, place: Place) {
        if let Some(slot) = self.slots.get_mut(client) {
            slot.place = place;
        }
        if self.has_turn(client) {
            self.turn = None;
        }
        if let Some(master) = &self.master {
            master.unpark();
        }
    }

    /// Clients that may be running.
    fn out(&self) -> Vec<(usize, Option<Arc<Probe>>)> {
        let out = self.slots.iter().enumerate();
        out.filter(|(_, slot)| slot.place == Place::Out)
            .map(|(client, slot)| (client, slot.probe.clone()))
            .collect()
    }

    /// Gives the turn to the parked client whose time comes first; answers that time.
    fn grant(&mut self) -> Option<Duration> {
        let parked = self.slots.iter_mut().enumerate();
        let (time, client, slot) = parked
            .filter_map(|(client, slot)| match slot.place {
                Place::Parked(time) => Some((time, client, slot)),
                _ => None,
            })
            .min_by_key(|(time, client, _)| (*time, *client))?;
        slot.place = Place::Out;
        if let Some(thread) = &slot.thread {
            thread.unpark();
        }
        self.turn = Some(client);
        Some(time)
    }
}

/// A simulated client: what its thread does from its first turn to its end.
pub type Client<'a, R> = Box<dyn FnOnce() -> R + Send + 'a>;

impl VirtualClock {
    /// Runs clients, each in a thread of its own, as [`crate::time`] says; returns when all have
    /// ended, with what they returned. All begin at the present time, the first of the list first.
    ///
    /// # Errors
    /// Where the kernel does not tell whether a thread is asleep.
    ///
    /// # Panics
    /// When a client does.
    pub fn run<'a, R: Send + 'a>(&self, clients: Vec<Client<'a, R>>) -> std::io::Result<Vec<R>> {
        // Fails here, where it is easily told, if it would fail in the threads.
        Probe::of_this_thread()?;
        self.lock().clients = Clients::new(clients.len());
        thread::scope(|scope| {
            let threads: Vec<_> = clients
                .into_iter()
                .enumerate()
                .map(|(client, work)| scope.spawn(move || self.be(client, work)))
                .collect();
            self.hand_out_turns();
            threads
                .into_iter()
                .map(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        })
    }

    fn be<R>(&self, client: usize, work: Client<'_, R>) -> std::io::Result<R> {
        self.become_client(Some(client));
        let _end = End(self, client);
        let probe = Arc::new(Probe::of_this_thread()?);
        if let Some(slot) = self.lock().clients.slots.get_mut(client) {
            slot.probe = Some(probe);
            slot.thread = Some(thread::current());
        }
        self.turn();
        Ok(work())
    }

    fn hand_out_turns(&self) {
        let mut seen = Vec::new();
        let mut pause = LOOK_AGAIN;
        let mut stuck = 0;
        let mut state = self.lock();
        loop {
            let out = state.clients.out();
            if !out.is_empty() {
                drop(state);
                let asleep = all_asleep(&out, &mut seen);
                state = self.lock();
                if !asleep {
                    drop(state);
                    thread::park_timeout(pause);
                    state = self.lock();
                    pause = (pause * 2).min(LOOK_AGAIN_MAX);
                    continue;
                }
            }
            match state.clients.grant() {
                Some(time) => state.now = state.now.max(time),
                None if out.is_empty() => return,
                // Perhaps a thread that is no client is about to wake one: a panic is printed
                // under a lock of the whole process.
                None if stuck < LOOKS_MAX => {
                    stuck += 1;
                    drop(state);
                    thread::park_timeout(LOOK_AGAIN_MAX);
                    state = self.lock();
                    continue;
                }
                None => deadlock(out.len()),
            }
            pause = LOOK_AGAIN;
            stuck = 0;
        }
    }
}

/// Whether all these clients were asleep at one and the same moment. Since then none of them can
/// have woken up: nobody was awake to wake it.
///
/// `seen` is what an earlier look found: who has not run since then has slept through.
fn all_asleep(
    clients: &[(usize, Option<Arc<Probe>>)],
    seen: &mut Vec<(usize, Option<u64>)>,
) -> bool {
    loop {
        let now: Vec<(usize, Option<u64>)> = clients
            .iter()
            .map(|(client, probe)| {
                let since = probe.as_ref().and_then(|probe| probe.asleep_since());
                (*client, since)
            })
            .collect();
        let slept_through = now
            .iter()
            .all(|look| look.1.is_some() && seen.contains(look));
        let awake = now.iter().any(|(_, since)| since.is_none());
        *seen = now;
        if slept_through || awake {
            return slept_through;
        }
    }
}

/// The code under test waits for something that nobody will do. Its threads cannot be ended.
fn deadlock(clients: usize) -> ! {
    eprintln!(
        "deadlock: {clients} simulated clients sleep in locks, and none is left to wake them"
    );
    std::process::abort()
}

/// Marks the end of a client, however it comes.
struct End<'a>(&'a VirtualClock, usize);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let End(clock, client) = *self;
        clock.become_client(None);
        clock.lock().clients.leave(client, Place::Ended);
    }
}
