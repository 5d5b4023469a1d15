//! Moments of a run at which the power might have gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use persimmon_sync::host::{Mutex, MutexGuard};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::host::LossyHost;
use crate::threads::client::Shared;
use persimmon_sim::medium::Medium;

/// A medium as it was, and how far each client was then.
pub(super) struct Moment {
    pub medium: Medium,
    /// Operations of each that had returned, and that had begun.
    pub clients: Vec<(usize, usize)>,
}

/// Keeps some of the moments, each with the same chance.
pub(super) struct Watch {
    clients: Vec<Arc<Shared>>,
    kept: Mutex<Kept>,
}

struct Kept {
    rng: ChaCha8Rng,
    one_in: u32,
    most: usize,
    seen: usize,
    moments: Vec<Moment>,
}

impl Watch {
    pub fn new(clients: &[Arc<Shared>], seed: u64, one_in: u32, most: usize) -> Watch {
        Watch {
            clients: clients.to_vec(),
            kept: Mutex::new(Kept {
                rng: ChaCha8Rng::seed_from_u64(seed),
                one_in,
                most,
                seen: 0,
                moments: Vec::new(),
            }),
        }
    }

    /// What was kept; from now on nothing is.
    pub fn take(&self) -> Vec<Moment> {
        let mut kept = self.lock();
        kept.most = 0;
        std::mem::take(&mut kept.moments)
    }

    /// Others go on meanwhile: what had returned is read before the medium, what had begun behind it.
    pub fn now(&self, host: &LossyHost) -> Moment {
        let count = |of: fn(&Shared) -> usize| self.clients.iter().map(move |client| of(client));
        let ended: Vec<usize> = count(|client| client.ended.load(Ordering::SeqCst)).collect();
        let medium = host.medium();
        let begun = count(|client| client.begun.load(Ordering::SeqCst));
        Moment {
            medium,
            clients: ended.into_iter().zip(begun).collect(),
        }
    }

    pub fn may_keep_one(&self, host: &LossyHost) {
        let mut kept = self.lock();
        let kept = &mut *kept;
        if kept.most == 0 || host.is_off() || !kept.rng.random_ratio(1, kept.one_in) {
            return;
        }
        kept.seen += 1;
        if kept.moments.len() < kept.most {
            kept.moments.push(self.now(host));
        } else if let at = kept.rng.random_range(0..kept.seen)
            && let Some(moment) = kept.moments.get_mut(at)
        {
            *moment = self.now(host);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }
}
