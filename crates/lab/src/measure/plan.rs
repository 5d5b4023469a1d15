//! What to measure.

use std::time::Duration;

use persimmon_engine::Options;

use crate::load::Load;
use persimmon_sim::Timing;

/// A measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is written.
    pub load: Load,
    /// Blocks that are overwritten most lie next to each other in the file; else anywhere.
    pub clustered: bool,
    /// Zones of the drive.
    pub zones: u32,
    /// Blocks of each.
    pub zone_blocks: u32,
    /// Zones that may be open and active at the same time; `None`: any.
    pub active_max: Option<u32>,
    /// Live data over the capacity of data zones and free zones.
    pub fill: f64,
    /// Written before it is measured, in volumes of live data.
    pub warm_up_volumes: f64,
    /// Written while it is measured, in volumes of live data.
    pub volumes: f64,
    /// Seed of the load.
    pub seed: u64,
    /// How the volume is opened.
    pub options: Options,
    /// Of the volume, in 1/100 percent.
    pub reserve_basis_points: u32,
    /// Measure latencies in virtual time; [`Plan::volumes`] then plays no part.
    pub pace: Option<Pace>,
}

/// Clients in virtual time. Each overwrites a block, syncs, and reads a block, again and again.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Of the drive's commands.
    pub timing: Timing,
    /// Clients at the same time.
    pub clients: u32,
    /// Pause of a client after each round.
    pub think: Duration,
    /// Rounds of each client.
    pub rounds: u64,
    /// Clients, and what goes on beside them, are threads: they wait for each other's locks, and figures are not the same to the last
    /// digit. Else one thread plays them, as [`persimmon_sim::time`] says.
    pub threads: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            load: Load::Overwrite(crate::load::Popularity::Uniform),
            clustered: false,
            zones: 2000,
            zone_blocks: 512,
            active_max: Some(14),
            fill: 0.8,
            warm_up_volumes: 4.0,
            volumes: 1.0,
            seed: 1,
            options: Options {
                staging_bytes_max: 1 << 20,
                ..Options::default()
            },
            reserve_basis_points: 0,
            pace: None,
        }
    }
}
