//! Cleaning because somebody asks for it, a step at a time.

use super::Reclaimer;
use crate::error::Result;
use crate::zones::DeviceKind;

/// How a step of cleaning ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanState {
    /// There is more to do.
    GoesOn,
    /// So many zones are free as were asked for.
    Reached,
    /// Nothing more is to be won: no zone has garbage that is worth it, or there is no room to move
    /// what is live in the next one.
    Exhausted,
}

/// What a step of cleaning did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanStep {
    /// Whether to go on.
    pub state: CleanState,
    /// Blocks moved, by this step and whoever else cleaned meanwhile.
    pub blocks_moved: u64,
    /// Zones that are free now.
    pub free_zones: u32,
    /// Zones that the next checkpoint frees.
    pub reclaimable_zones: u32,
}

impl Reclaimer {
    /// Empties a zone, or writes the checkpoint that frees those that are empty: until
    /// `free_zones` are free, or, without a number, nothing is left that cleaning could win.
    ///
    /// # Errors
    /// The volume is read-only, or the device failed.
    pub fn clean_step(&self, free_zones: Option<u32>) -> Result<CleanStep> {
        self.store.check_writable()?;
        let moved = || self.store.media.counters.snapshot().blocks_moved;
        let before = moved();
        let state = self.clean_towards(free_zones)?;
        Ok(CleanStep {
            state,
            blocks_moved: moved() - before,
            free_zones: self.store.zones.all_free_zones(),
            reclaimable_zones: self.store.zones.all_reclaimable_zones(),
        })
    }

    fn clean_towards(&self, wanted: Option<u32>) -> Result<CleanState> {
        // Of what others have freed, all is to be counted.
        self.store.zones.complete_resets(&self.store.media);
        let (free, reclaimable) = (
            self.store.zones.all_free_zones(),
            self.store.zones.all_reclaimable_zones(),
        );
        if wanted.is_some_and(|wanted| free >= wanted) {
            return Ok(CleanState::Reached);
        }
        let enough = wanted.is_some_and(|wanted| free + reclaimable >= wanted);
        if reclaimable > 0
            && (enough || reclaimable >= self.space.free_zone_target(DeviceKind::Data))
        {
            self.free_reclaimable_zones()?;
        } else if !self.clean_one()? {
            // Nothing is worth cleaning, or its blocks have nowhere to go.
            let evacuates_pages = !self.store.on_device().evacuating.is_empty();
            if self.store.zones.all_reclaimable_zones() > 0 || evacuates_pages {
                self.free_reclaimable_zones()?;
            } else {
                // Others may have let go of some, or a reset was what there was no room for.
                self.store.zones.complete_resets(&self.store.media);
                if self.store.zones.all_free_zones() <= free {
                    return Ok(CleanState::Exhausted);
                }
            }
        }
        Ok(match wanted {
            Some(wanted) if self.store.zones.all_free_zones() >= wanted => CleanState::Reached,
            _ => CleanState::GoesOn,
        })
    }

    fn free_reclaimable_zones(&self) -> Result<()> {
        let before = self.store.zones.all_free_zones();
        self.checkpoint()?;
        self.store.zones.complete_resets(&self.store.media);
        if self.store.zones.all_free_zones() <= before {
            self.store.zones.wait_for_readers();
        }
        Ok(())
    }
}
