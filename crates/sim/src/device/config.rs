//! How a simulated device is made.

use persimmon_device::{Geometry, MetadataZones};

use crate::time::Timing;

/// When commands take effect and complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completions {
    /// Each when it is submitted: nothing is ever in flight, except the command that a power cut
    /// hits.
    AtSubmit,
    /// When somebody waits, in an order chosen by the seed among all commands in flight.
    WhenWaited,
}

/// What the device keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// Data, and all that happened since the last flush: power cuts are true to the fault model.
    Kept,
    /// Data alone, for benchmarks. Written buffers are shared, not copied. A power cut loses
    /// nothing but commands in flight.
    Dropped,
    /// The same, and of blocks made by [`super::pattern`] their numbers: for large volumes.
    Patterns,
}

/// Geometry and behaviour of a simulated device.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// What the device tells about itself.
    pub geometry: Geometry,
    /// Blocks that can be written in each zone; zones past the end of the list have the last
    /// entry, and an empty list means [`Geometry::zone_blocks`].
    pub capacities: Vec<u32>,
    /// When commands complete.
    pub completions: Completions,
    /// What is kept.
    pub history: History,
    /// Seed of the order of completions, of the extent of failed writes, and of the sampling of
    /// snapshots.
    pub seed: u64,
    /// A power cut can tear a block: where write pointers are proof it counts as written then, and ends in zeros, as if the
    /// rest of it had been padded since.
    pub tears_blocks: bool,
    /// Now and then what is sent to one zone takes effect behind all else, as that of a die that is busy: not before
    /// somebody waits for it.
    pub slow_zones: bool,
    /// How long commands take in virtual time; `None` is no time at all, and no clock.
    pub timing: Option<Timing>,
}

impl SimConfig {
    /// A device of `zone_count` zones of `zone_blocks` blocks, all of them writable: no limits on
    /// open zones, no volatile cache, write pointers that are proof, completion at submission.
    #[must_use]
    pub fn new(zone_count: u32, zone_blocks: u32) -> SimConfig {
        SimConfig {
            geometry: Geometry {
                zone_count,
                zone_blocks,
                conventional_zones: 0,
                metadata_zones: Default::default(),
                max_open: None,
                max_active: None,
                max_transfer_blocks: 256,
                max_append_blocks: 256,
                volatile_cache: false,
                write_pointer_is_proof: true,
                stripes: None,
            },
            capacities: Vec::new(),
            completions: Completions::AtSubmit,
            history: History::Kept,
            seed: 0,
            tears_blocks: false,
            slow_zones: false,
            timing: None,
        }
    }

    /// The same capacity for every zone.
    #[must_use]
    pub fn capacity(mut self, blocks: u32) -> SimConfig {
        self.capacities = vec![blocks];
        self
    }

    /// Limits on open and active zones.
    #[must_use]
    pub fn limits(mut self, max_open: Option<u32>, max_active: Option<u32>) -> SimConfig {
        self.geometry.max_open = max_open;
        self.geometry.max_active = max_active;
        self
    }

    /// The first `zones` zones are conventional.
    #[must_use]
    pub fn conventional(mut self, zones: u32) -> SimConfig {
        self.geometry.conventional_zones = zones;
        self
    }

    /// The first `zones` zones are a device of its own, for the log and metadata, which like an image
    /// has a volatile cache and write pointers that prove nothing.
    #[must_use]
    pub fn metadata(mut self, zones: u32) -> SimConfig {
        self.geometry.metadata_zones = MetadataZones::first(zones);
        self.host_file()
    }

    /// Like a drive with a volatile cache: completed commands can be lost until a flush.
    #[must_use]
    pub fn volatile_cache(mut self) -> SimConfig {
        self.geometry.volatile_cache = true;
        self
    }

    /// Like an image file on a host: volatile, and write pointers prove nothing.
    #[must_use]
    pub fn host_file(mut self) -> SimConfig {
        self.geometry.volatile_cache = true;
        self.geometry.write_pointer_is_proof = false;
        self
    }

    /// Commands complete when waited for, in the order of `seed`.
    #[must_use]
    pub fn reordering(mut self, seed: u64) -> SimConfig {
        self.completions = Completions::WhenWaited;
        self.seed = seed;
        self
    }

    /// The same, and now and then one zone is slow.
    #[must_use]
    pub fn slow_zones(mut self) -> SimConfig {
        self.slow_zones = true;
        self
    }

    /// For benchmarks.
    #[must_use]
    pub fn fast(mut self) -> SimConfig {
        self.history = History::Dropped;
        self
    }

    /// For benchmarks on large volumes; see [`History::Patterns`].
    #[must_use]
    pub fn patterns(mut self) -> SimConfig {
        self.history = History::Patterns;
        self
    }

    /// Commands take this long in virtual time; see [`crate::time`].
    #[must_use]
    pub fn timed(mut self, timing: Timing) -> SimConfig {
        self.timing = Some(timing);
        self
    }

    /// Blocks of this zone that can be written.
    #[must_use]
    pub fn zone_capacity(&self, zone: u32) -> u32 {
        let blocks = self.geometry.zone_blocks;
        self.capacities
            .get(zone as usize)
            .or(self.capacities.last())
            .map_or(blocks, |capacity| (*capacity).min(blocks))
    }
}
