//! Quota of the broken volume in the new one: limits, grace times and projects. What owners take is counted anew, by what is copied.

use persimmon_engine::{NewLimits, Quotas, Volume};
use persimmon_format::inode::Timestamp;
use persimmon_format::quota::{Counting, Owner, OwnerKind, Quota, QuotaState};
use persimmon_format::{Key, KeyKind};

use crate::Result;

/// What the broken volume has of quota.
#[derive(Default)]
pub(crate) struct QuotaCopy {
    /// None: it never had quota, or it is lost whether it was on.
    state: Option<QuotaState>,
    limited: Vec<(Owner, Quota)>,
    /// The new volume may have projects.
    is_begun: bool,
}

impl QuotaCopy {
    /// Takes an item, if it is one of quota. `Err`: whose limits are lost.
    pub(crate) fn take(&mut self, key: &Key, value: &[u8]) -> Option<Result<(), String>> {
        if key.kind != KeyKind::QUOTA {
            return None;
        }
        Some(match Owner::of_key(key) {
            None => QuotaState::decode(value)
                .map(|state| self.state = Some(state))
                .map_err(|error| format!("grace times of quota: {error}")),
            Some(owner) => Quota::decode(value)
                .map(|quota| self.limited.push((owner, quota)))
                .map_err(|error| format!("limits of {} {}: {error}", owner.kind, owner.id)),
        })
    }

    /// To be called before an inode with a project is written.
    pub(crate) fn begin(&mut self, to: &Volume) -> Result<()> {
        if !self.is_begun {
            Quotas::of(to).turn_on(false)?;
            self.is_begun = true;
        }
        Ok(())
    }

    /// To be called when all is copied. Grace times that were under way begin anew.
    pub(crate) fn finish(mut self, to: &Volume, now: Timestamp) -> Result<()> {
        self.limited.retain(|(_, quota)| !quota.is_unlimited());
        if self.state.is_some() || !self.limited.is_empty() {
            self.begin(to)?;
        }
        if !self.is_begun {
            return Ok(());
        }
        let quotas = Quotas::of(to);
        if let Some(state) = &self.state {
            for kind in OwnerKind::ALL {
                quotas.set_grace(kind, state.grace(kind))?;
            }
        }
        quotas.count()?;
        for (owner, quota) in &self.limited {
            let limits = NewLimits {
                bytes_soft: Some(quota.bytes.soft),
                bytes_hard: Some(quota.bytes.hard),
                inodes_soft: Some(quota.inodes.soft),
                inodes_hard: Some(quota.inodes.hard),
            };
            quotas.set(*owner, &limits, now)?;
        }
        if self
            .state
            .is_some_and(|state| state.counting == Counting::Off)
        {
            quotas.turn_off()?;
        }
        Ok(())
    }
}
