//! What a seed stands for.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::harness;
use crate::stripes;
use crate::workload::Mix;
use persimmon_sim::device::{Fault, SimConfig};

/// Plans of single clients from this seed on lend their devices.
const DEVICES_FROM: u64 = 1_000_000;

/// Everything about a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of it all.
    pub seed: u64,
    /// The device.
    pub config: SimConfig,
    /// Commands that fail, and zones.
    pub faults: Vec<Fault>,
    /// Copies of log and metadata.
    pub copies: u32,
    /// What each client does mostly.
    pub mixes: Vec<Mix>,
    /// Operations of each.
    pub ops: usize,
    /// Bytes of each one's files at most.
    pub bytes_max: u64,
    /// Names of extended attributes.
    pub xattr_names: u32,
    /// Clients besides that all change the same directory, whose results nobody knows beforehand.
    pub disturbers: usize,
    /// Threads that do what is due in the background.
    pub chores: usize,
    /// Of so many commands one is a moment at which the power is cut.
    pub moment_one_in: u32,
    /// Such moments at most.
    pub moments_max: usize,
    /// What is tried of what each may leave.
    pub states_per_moment: usize,
    /// Percent of these that the inspector checks.
    pub check_percent: u32,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5448_5245_4144_5321);
        let may_fail = rng.random_ratio(1, 3);
        let of_one = device_plan(&mut rng, may_fail);
        let clients = rng.random_range(2..=4);
        // Some do what others do, others something else.
        let mixes = (0..clients)
            .map(|_| match rng.random_range(0..3) {
                0 => Mix::ALL[rng.random_range(0..Mix::ALL.len())],
                _ => of_one.mix,
            })
            .collect();
        let ops = of_one.ops.min(160) / clients;
        let crowded = rng.random_range(1..=2);
        Plan {
            seed,
            // Commands are under way until somebody waits for them.
            config: if rng.random_ratio(1, 2) {
                of_one.config.reordering(rng.random()).slow_zones()
            } else {
                of_one.config.reordering(rng.random())
            },
            faults: of_one.faults,
            copies: of_one.copies,
            mixes,
            ops: ops.max(8),
            bytes_max: of_one.bytes_max * crowded / clients as u64,
            xattr_names: of_one.xattr_names,
            disturbers: [0, 1, 2, 3][rng.random_range(0..4)],
            chores: rng.random_range(1..=3),
            moment_one_in: rng.random_range(4..40),
            moments_max: 12,
            states_per_moment: 2,
            check_percent: of_one.check_percent,
        }
    }
}

/// One of those for a single client that takes no time.
fn device_plan(rng: &mut ChaCha8Rng, may_fail: bool) -> harness::Plan {
    loop {
        let plan = harness::Plan::new(DEVICES_FROM + rng.random_range(0..1 << 32));
        let fits = plan.faults.is_empty() || may_fail;
        // The volume sees the device itself here.
        let is_striped = stripes::of_seed(plan.seed).is_some();
        if fits && !is_striped && !plan.heavy && plan.config.geometry.zone_count < 300 {
            return plan;
        }
    }
}
