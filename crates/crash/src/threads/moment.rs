//! Moments at which the power is cut, and what has to be found then.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use persimmon_device::{Command, Geometry, Pending, Result, ZoneInfo, ZonedDevice};
use persimmon_sync::host::Mutex;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::client::Shared;
use super::history::Done;
use crate::model::Observed;
use persimmon_sim::device::{SimDevice, Snapshot};

/// A device as it was, and how far each client was then.
pub(super) struct Moment {
    pub snapshot: Snapshot,
    /// Operations of each that had returned, and that had begun.
    pub clients: Vec<(usize, usize)>,
}

/// A device that keeps moments of what is done with it.
pub(super) struct Watched {
    sim: Arc<SimDevice>,
    clients: Vec<Arc<Shared>>,
    keeping: Mutex<Keeping>,
}

struct Keeping {
    rng: ChaCha8Rng,
    one_in: u32,
    moments_max: usize,
    seen: usize,
    moments: Vec<Moment>,
}

impl Watched {
    pub fn new(
        sim: &Arc<SimDevice>,
        clients: &[Arc<Shared>],
        rng: ChaCha8Rng,
        one_in: u32,
        moments_max: usize,
    ) -> Watched {
        Watched {
            sim: Arc::clone(sim),
            clients: clients.to_vec(),
            keeping: Mutex::new(Keeping {
                rng,
                one_in,
                moments_max,
                seen: 0,
                moments: Vec::new(),
            }),
        }
    }

    /// What was kept; from now on nothing is.
    pub fn take(&self) -> Vec<Moment> {
        let mut keeping = self.keeping.lock();
        keeping.moments_max = 0;
        std::mem::take(&mut keeping.moments)
    }

    /// Nothing here waits for another thread, so it is one moment for all of them under the scheduler. Other
    /// threads go on meanwhile: what had returned is read before, what had begun behind the device.
    pub fn now(&self) -> Moment {
        let count = |of: fn(&Shared) -> usize| self.clients.iter().map(move |client| of(client));
        let ended: Vec<usize> = count(|client| client.ended.load(Ordering::SeqCst)).collect();
        let snapshot = self.sim.snapshot();
        let begun = count(|client| client.begun.load(Ordering::SeqCst));
        Moment {
            snapshot,
            clients: ended.into_iter().zip(begun).collect(),
        }
    }

    fn may_keep_one(&self) {
        let mut keeping = self.keeping.lock();
        let keeping = &mut *keeping;
        // What is behind all else makes for rarer states.
        let one_in = if self.sim.slow_waits() {
            keeping.one_in.div_ceil(4)
        } else {
            keeping.one_in
        };
        if keeping.moments_max == 0 || !keeping.rng.random_ratio(1, one_in) {
            return;
        }
        // Each that there is stays as likely as any other.
        keeping.seen += 1;
        if keeping.moments.len() < keeping.moments_max {
            keeping.moments.push(self.now());
        } else if let at = keeping.rng.random_range(0..keeping.seen)
            && let Some(moment) = keeping.moments.get_mut(at)
        {
            *moment = self.now();
        }
    }
}

impl ZonedDevice for Watched {
    fn geometry(&self) -> &Geometry {
        self.sim.geometry()
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.sim.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        if !matches!(command, Command::Read { .. }) {
            self.may_keep_one();
        }
        self.sim.submit(command)
    }

    fn resets_at_once(&self) -> usize {
        self.sim.resets_at_once()
    }

    fn space_is_hosts(&self) -> bool {
        self.sim.space_is_hosts()
    }
}

/// Compares what each client found after a power cut with what it may find, and with what the others found.
///
/// Errors: what is wrong.
pub(crate) fn compare(
    found: &[Observed],
    clients: &[Arc<Shared>],
    at: &[(usize, usize)],
) -> std::result::Result<(), String> {
    // The oldest and newest state that each may have come to.
    let mut came_to = Vec::new();
    for (client, ((found, shared), (ended, begun))) in found.iter().zip(clients).zip(at).enumerate()
    {
        let admissible = shared.history().admissible(*ended, *begun);
        let (numbers, trees): (Vec<u64>, Vec<_>) = admissible.into_iter().unzip();
        let (oldest, newest) = found
            .range_in(&trees)
            .map_err(|why| format!("client {client}: {why}"))?;
        let number = |at: usize| numbers.get(at).copied().unwrap_or_default();
        came_to.push((number(oldest), number(newest)));
    }
    let in_order = |because: &str, by: usize, done: &Done| -> std::result::Result<(), String> {
        for (other, (shared, (_, newest))) in clients.iter().zip(&came_to).enumerate() {
            let history = shared.history();
            let (needed, of) = history.newest_at(done.began);
            if *newest < needed {
                let of = of.map_or("", |of| of.what.as_str());
                return Err(format!(
                    "client {by}'s \"{}\" {because}, but client {other} is at {newest}, and {needed} (\"{of}\") had returned before that began",
                    done.what
                ));
            }
        }
        Ok(())
    };
    for (client, ((shared, (oldest, _)), (ended, _))) in
        clients.iter().zip(&came_to).zip(at).enumerate()
    {
        let (there, synced) = {
            let history = shared.history();
            let there = history.entered_by(*oldest).map(Done::stamps);
            let mut returned = history.done.iter().take(*ended);
            let synced = returned.rfind(|done| done.acknowledged);
            (there, synced.map(Done::stamps))
        };
        if let Some(there) = there {
            in_order("is there", client, &there)?;
        }
        if let Some(synced) = synced {
            in_order("was acknowledged", client, &synced)?;
        }
    }
    Ok(())
}
