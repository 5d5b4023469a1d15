//! What a seed stands for, as far as threads let it.

use std::time::Duration;

use persimmon_device::image::ImageGeometry;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::host::{Character, Mistake};
use crate::workload::Mix;

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of it all.
    pub seed: u64,
    /// The image.
    pub geometry: ImageGeometry,
    pub(super) host: Character,
    /// Copies of log and metadata.
    pub copies: u32,
    /// Bounds of memory, small so that they are reached, and how often is committed.
    pub options: persimmon::Options,
    /// What each client does mostly.
    pub mixes: Vec<Mix>,
    /// Operations of each between two crashes.
    pub ops: usize,
    /// Bytes of each one's files at most.
    pub bytes_max: u64,
    /// Crashes in a chain.
    pub rounds: usize,
    /// Moments of each round at which the power is cut in passing, at most: the round goes on.
    pub moments_max: usize,
    /// Of so many calls to the host one is such a moment.
    pub moment_one_in: u32,
    /// What is tried of what each moment may leave.
    pub states_per_moment: usize,
    /// Percent of the rounds that end with a power cut that the library notices.
    pub cut_percent: u32,
    /// Percent of the recoveries that are cut.
    pub recovery_cut_percent: u32,
    /// Percent of the states that the inspector looks at.
    pub check_percent: u32,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x484f_5354_4544_2121);
        let zone_blocks: u32 = 256;
        let zone_count = rng.random_range(28..64);
        let few = rng.random_ratio(1, 3);
        let geometry = ImageGeometry {
            zone_count,
            zone_blocks,
            capacity_blocks: zone_blocks - [0, 0, 0, 100][rng.random_range(0..4)],
            max_open: few.then_some(12),
            max_active: few.then_some(12),
        };
        let clients = rng.random_range(2..=3);
        let mixes = (0..clients)
            .map(|_| Mix::ALL[rng.random_range(0..Mix::ALL.len())])
            .collect();
        let bytes = u64::from(zone_count) * u64::from(zone_blocks) * 4096;
        let share = rng.random_range(4..16);
        Plan {
            seed,
            geometry,
            host: Character {
                is_file: rng.random_ratio(3, 4),
                punches: rng.random_ratio(3, 4),
                mistake: None,
            },
            copies: 1 + u32::from(rng.random_ratio(1, 4)),
            options: options(&mut rng),
            mixes,
            ops: rng.random_range(20..90),
            bytes_max: (bytes / share / clients).min(2 << 20),
            rounds: 4,
            moments_max: 4,
            moment_one_in: rng.random_range(3..30),
            states_per_moment: 2,
            cut_percent: 60,
            recovery_cut_percent: 35,
            check_percent: 50,
        }
    }

    /// The same on a host that does something wrong.
    #[must_use]
    pub fn mistaken(mut self, mistake: Mistake) -> Plan {
        self.host.mistake = Some(mistake);
        self
    }

    /// The same with so much overwritten that zones are emptied, and more moments looked at.
    #[must_use]
    pub fn churning(mut self) -> Plan {
        self.mixes.fill(Mix::Churn);
        self.ops = 300;
        self.bytes_max = 4 << 20;
        self.moments_max = 12;
        self.geometry.zone_count = 28;
        self
    }

    pub(super) fn without_mistake(&self) -> Plan {
        let mut plan = self.clone();
        plan.host.mistake = None;
        plan
    }
}

fn options(rng: &mut ChaCha8Rng) -> persimmon::Options {
    let mut small = || 1usize << rng.random_range(0..5);
    let mut options = persimmon::Options::default();
    options.engine.cache_bytes_max = (64 << 10) * small();
    options.engine.staging_bytes_max = (128 << 10) * small();
    options.engine.journal_bytes_max = (128 << 10) * small() as u64;
    options.engine.dirty_pages_max = 16 * small();
    options.engine.read_cache_bytes_max = options.engine.cache_bytes_max;
    options.commit_interval = Duration::from_millis(5 * small() as u64);
    options.vfs.access_times = persimmon_vfs::AccessTimes::Never;
    options
}
