//! Cleaning on demand: a step, and how it ended.

use persimmon::internal::engine::{CleanState, Volume};
use serde::{Deserialize, Serialize};

use super::encode;

/// Whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Yes.
    GoesOn,
    /// So much is free as was asked for.
    Reached,
    /// Nothing more can be won.
    Exhausted,
}

/// A step was done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cleaned {
    /// How it ended.
    pub state: State,
    /// Blocks moved.
    pub blocks_moved: u64,
    /// Zones that are free now.
    pub free_zones: u32,
    /// Zones that the next checkpoint frees.
    pub reclaimable_zones: u32,
    /// All zones.
    pub zone_count: u32,
    /// Zones that are to be free; null if as many as can be.
    pub wanted_zones: Option<u32>,
}

/// The daemon's side.
pub(super) fn step(volume: &Volume, free_basis_points: Option<u32>) -> Result<Vec<u8>, String> {
    let zone_count = volume.identity().zone_count;
    let wanted = |share: u32| {
        let zones = (u64::from(zone_count) * u64::from(share)).div_ceil(10_000);
        u32::try_from(zones).unwrap_or(u32::MAX)
    };
    let wanted_zones = free_basis_points.map(wanted);
    let step = volume
        .clean_step(wanted_zones)
        .map_err(|error| error.to_string())?;
    encode(&Cleaned {
        state: match step.state {
            CleanState::GoesOn => State::GoesOn,
            CleanState::Reached => State::Reached,
            CleanState::Exhausted => State::Exhausted,
        },
        blocks_moved: step.blocks_moved,
        free_zones: step.free_zones,
        reclaimable_zones: step.reclaimable_zones,
        zone_count,
        wanted_zones,
    })
}
