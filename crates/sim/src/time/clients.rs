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
    /// Turns handed out so far.
    turns: u64,
    /// Who hands out the turns where nobody else can.
    master: Option<Thread>,
}

#[derive(Debug)]
struct Slot {
    place: Place,
    thread: Option<Thread>,
    probe: Option<Arc<Probe>>,
    /// How often it had run when it was last seen asleep.
    seen: Option<u64>,
}

/// A client that may be running, and what is known of it.
struct Out {
    client: usize,
    probe: Option<Arc<Probe>>,
    seen: Option<u64>,
}

/// What came of trying to hand the turn on.
enum Handed {
    /// It was handed on, or somebody else did that meanwhile.
    On,
    /// Somebody is awake, who will come for it or wake others.
    Awake,
    /// There is nobody left.
    AllEnded,
    /// All that are left, so many, sleep in locks.
    Deadlock(usize),
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
            seen: None,
        };
        Clients {
            slots: (0..count).map(|_| slot()).collect(),
            turn: None,
            turns: 0,
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
    }

    /// Clients that may be running; first the one that had the turn last, as it most likely is.
    fn out(&self) -> Vec<Out> {
        let slots = self.slots.iter().enumerate();
        let mut out: Vec<Out> = slots
            .filter(|(_, slot)| slot.place == Place::Out)
            .map(|(client, slot)| Out {
                client,
                probe: slot.probe.clone(),
                seen: slot.seen,
            })
            .collect();
        out.sort_by_key(|out| !self.has_turn(out.client));
        out
    }

    fn note_seen(&mut self, out: &[Out]) {
        for Out { client, seen, .. } in out {
            if let Some(slot) = self.slots.get_mut(*client) {
                slot.seen = *seen;
            }
        }
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
        self.turns += 1;
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

    /// Sees to it that the turn goes on when who has it falls asleep, until all have ended.
    fn hand_out_turns(&self) {
        let mut pause = LOOK_AGAIN;
        let (mut turns, mut stuck) = (0, 0);
        loop {
            match self.hand_on() {
                Handed::AllEnded => return,
                // Perhaps a thread that is no client is about to wake one: a panic is printed
                // under a lock of the whole process.
                Handed::Deadlock(clients) if stuck > LOOKS_MAX => deadlock(clients),
                Handed::Deadlock(_) => stuck += 1,
                Handed::On | Handed::Awake => stuck = 0,
            }
            let now = self.lock().clients.turns;
            pause = if now == turns {
                (pause * 2).min(LOOK_AGAIN_MAX)
            } else {
                LOOK_AGAIN
            };
            turns = now;
            thread::park_timeout(pause);
        }
    }

    /// Hands the turn on if every client is parked or asleep. The caller is parked, or no client.
    fn hand_on(&self) -> Handed {
        let (mut out, turns) = {
            let state = self.lock();
            (state.clients.out(), state.clients.turns)
        };
        let asleep = all_asleep(&mut out);
        let mut state = self.lock();
        if state.clients.turns != turns {
            return Handed::On;
        }
        state.clients.note_seen(&out);
        if !asleep {
            return Handed::Awake;
        }
        match state.clients.grant() {
            Some(time) => {
                state.now = state.now.max(time);
                Handed::On
            }
            None if out.is_empty() => Handed::AllEnded,
            None => Handed::Deadlock(out.len()),
        }
    }

    /// Gives the turn away until `client` is next.
    pub(super) fn wait_for_turn(&self, client: usize) -> Duration {
        if let Handed::Awake = self.hand_on() {
            self.wake_master();
        }
        loop {
            let state = self.lock();
            if state.clients.has_turn(client) {
                return state.now;
            }
            drop(state);
            thread::park();
        }
    }

    fn wake_master(&self) {
        if let Some(master) = &self.lock().clients.master {
            master.unpark();
        }
    }
}

/// Whether all these clients were asleep at one and the same moment. Since then none of them can
/// have woken up: nobody was awake to wake it. Notes how often each had run.
fn all_asleep(clients: &mut [Out]) -> bool {
    loop {
        let mut slept_through = true;
        for out in &mut *clients {
            let now = out
                .probe
                .as_ref()
                .and_then(|probe| probe.asleep_since(out.seen));
            slept_through &= now.is_some() && now == out.seen;
            out.seen = now;
            if now.is_none() {
                return false;
            }
        }
        if slept_through {
            return true;
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
        clock.wake_master();
    }
}
