//! What a seed stands for.

use std::ops::Range;

use persimmon_device::label::LABEL_ZONES;
use persimmon_device::{BLOCK_SIZE, MetadataZones, Stripes};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::stripes;
use crate::workload::{Generator, Mix, Sequence};
use persimmon_sim::device::{Fault, FaultKind, FaultTarget, SimConfig};

/// Where a run comes from: says all about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A random run, by its seed.
    Seed(u64),
    /// One of the enumerated sequences, by its number.
    Sequence(u64),
    /// A sequence of three operations, by its seed.
    Sample(u64),
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Seed(seed) => write!(f, "seed:{seed}"),
            Origin::Sequence(number) => write!(f, "sequence:{number}"),
            Origin::Sample(seed) => write!(f, "sample:{seed}"),
        }
    }
}

impl std::str::FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Origin, String> {
        let parts = text.split_once(':');
        match parts.and_then(|(kind, number)| Some((kind, number.parse().ok()?))) {
            Some(("seed", number)) => Ok(Origin::Seed(number)),
            Some(("sequence", number)) => Ok(Origin::Sequence(number)),
            Some(("sample", number)) => Ok(Origin::Sample(number)),
            _ => Err("want seed:N, sequence:N or sample:N".to_owned()),
        }
    }
}

/// Everything about a run but its operations.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it all comes from.
    pub origin: Origin,
    /// Seed of a random workload.
    pub seed: u64,
    /// Where the moments of crash and what they leave come from.
    pub crash_seed: u64,
    /// The device.
    pub config: SimConfig,
    /// Commands of the workload that fail.
    pub faults: Vec<Fault>,
    /// Copies of log and metadata.
    pub copies: u32,
    /// How a zone may fail, in the workload and while recovering.
    pub zone_failure: Option<FaultKind>,
    /// Kind of workload.
    pub mix: Mix,
    /// Operations.
    pub ops: usize,
    /// Bytes of file data at most.
    pub bytes_max: u64,
    /// Names of extended attributes.
    pub xattr_names: u32,
    /// Files with all of these that the workload begins with; it makes these operations come on
    /// top.
    pub populated_files: u32,
    /// Each state takes long, so few are made.
    pub heavy: bool,
    /// Of so many commands of the workload about one is a moment of crash.
    pub crash_one_in: u32,
    /// Moments of crash within one operation at most.
    pub crashes_per_op_max: usize,
    /// States tried at each such moment.
    pub states_per_crash: u32,
    /// If a moment of crash can leave no more states than this, all of them are tried.
    pub exhaustive_max: usize,
    /// Operations at the start in which no crash is tried.
    pub calm_ops: usize,
    /// States at most, all together: what a run may cost.
    pub states_max: u64,
    /// Percent of the states that crash again while they recover.
    pub again_percent: u32,
    /// Percent of the states that are first recovered on a device on which a command fails.
    pub failing_percent: u32,
    /// Percent of the states in which one of two copies of a block of log or metadata is damaged.
    pub rotten_percent: u32,
    /// Percent of the states that are worked with after recovery.
    pub go_on_percent: u32,
    /// Percent of the states that the inspector checks.
    pub check_percent: u32,
    /// Percent of the runs that end with an unmount, an inspection and another mount.
    pub unmount_percent: u32,
}

/// States of one run at most, and of one in which each takes long.
const STATES_MAX: u64 = 2_000;
const HEAVY_STATES_MAX: u64 = 10;
/// From this seed on many copies are of whole blocks.
const CLONES_FROM: u64 = 100_000_000;
/// And from this one on snapshots are taken.
const SNAPSHOTS_FROM: u64 = 200_000_000;
/// And from this one on ranges are taken out of files and put in.
const SHIFTS_FROM: u64 = 300_000_000;
/// Of these seeds writes repeat what was written before, most of them to volumes that deduplicate. Those below 1,000,000,000 have quota too.
pub(crate) const REPEATING: Range<u64> = 900_000_000..2_000_000_000;
/// Of these seeds writes repeat what was written before, too, and what is written is packed with other files as a dictionary.
pub(crate) const NEAR: Range<u64> = 3_000_000_000..4_000_000_000;
/// Of these seeds attributes have values that are in pieces.
const LONG_XATTRS: Range<u64> = 21_000_000..30_000_000;
/// And from this one on, with clones, snapshots and ranges that are put in.
const LONG_XATTRS_FROM: u64 = 4_000_000_000;
/// And from this one on snapshots can be written to, get other names, and are gone back to.
const WRITABLE_FROM: u64 = 5_000_000_000;
/// And from this one on users are limited in what they may take.
pub(crate) const LIMITS_FROM: u64 = 6_000_000_000;
/// Of these seeds most writes are of a few bytes, and synced, so that there are deltas, and zones are emptied, so that these are folded.
pub(crate) const EDITS: Range<u64> = 10_000_000_000..OWNERS_FROM;
/// And from this one on groups and projects are limited too, limits are soft as well as hard, and files in snapshots stay open. Most writes
/// are no edits: what a limit refuses is known best where blocks take a block each.
pub(crate) const OWNERS_FROM: u64 = 11_000_000_000;
/// And from this one on quota is turned off and on, grace times change, and whole trees get a project.
pub(crate) const QUOTAS_FROM: u64 = 12_000_000_000;
/// Plans of smaller seeds are as they were when some of these found what they are tests of now.
const RICH_FROM: u64 = 5_000;
/// One of so many drives has conventional zones, by its seed alone, so that plans of others are as they
/// ever were.
const CONVENTIONAL_ONE_IN: u64 = 8;
/// Of 16 seeds these have a device of its own for metadata, likewise.
const SPLIT_OF_16: [u64; 2] = [5, 10];
/// From this seed on.
const SPLIT_FROM: u64 = 5_100;

/// Commands that may fail, and before how many of them one does: of those that are seldom sent
/// one of the first.
const FAILING_COMMANDS: [(FaultTarget, u64); 8] = [
    (FaultTarget::Write, 60),
    (FaultTarget::Write, 60),
    (FaultTarget::Read, 20),
    (FaultTarget::Reset, 3),
    (FaultTarget::Reset, 3),
    (FaultTarget::Finish, 1),
    (FaultTarget::Flush, 20),
    (FaultTarget::Any, 100),
];

/// The same for a recovery, which sends few.
pub(super) const FAILING_IN_RECOVERY: [(FaultTarget, u64); 6] = [
    (FaultTarget::Read, 12),
    (FaultTarget::Read, 40),
    (FaultTarget::Write, 3),
    (FaultTarget::Reset, 2),
    (FaultTarget::Finish, 2),
    (FaultTarget::Flush, 2),
];

/// Commands at which a zone may fail, in a workload and in a recovery. The last are for zones that
/// go offline: one that turns read-only is read as before.
const FAILING_ZONES: [(FaultTarget, u64, u64); 6] = [
    (FaultTarget::Write, 20, 3),
    (FaultTarget::Write, 100, 8),
    (FaultTarget::Write, 400, 8),
    (FaultTarget::Reset, 2, 2),
    (FaultTarget::Finish, 1, 2),
    (FaultTarget::Read, 60, 20),
];

fn failing_zone(kind: FaultKind, rng: &mut ChaCha8Rng) -> (FaultTarget, u64, u64) {
    let count = FAILING_ZONES.len() - usize::from(kind == FaultKind::ReadOnly);
    FAILING_ZONES[rng.random_range(0..count)]
}

/// One of these commands fails, or from one on all of its kind.
pub(super) fn fault(rng: &mut ChaCha8Rng, commands: &[(FaultTarget, u64)]) -> Fault {
    let (target, before) = commands[rng.random_range(0..commands.len())];
    let fault = if rng.random_ratio(1, 2) {
        Fault::once(target)
    } else {
        Fault::for_ever(target)
    };
    fault.after(rng.random_range(0..before))
}

/// Whether attributes have values that are in pieces.
pub(crate) fn has_long_xattrs(seed: u64) -> bool {
    LONG_XATTRS.contains(&seed) || seed >= LONG_XATTRS_FROM
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Plan {
        let mut plan = Plan::plain(seed);
        if seed >= RICH_FROM {
            plan.enrich();
        }
        plan
    }

    fn plain(seed: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5045_5253_494d_4d4f);
        let zones = rng.random_range(24..40);
        let zone_blocks = [64, 96, 128][rng.random_range(0..3)];
        let mut config = SimConfig::new(zones, zone_blocks);
        if rng.random_ratio(1, 3) {
            config = config.capacity(zone_blocks - rng.random_range(1..16));
        }
        if rng.random_ratio(1, 3) {
            let active = rng.random_range(6..14);
            config = config.limits(Some(active), Some(active));
        }
        config = match rng.random_range(0..3) {
            0 => config,
            1 => config.volatile_cache(),
            _ => config.host_file(),
        };
        config.seed = seed;
        if rng.random_ratio(1, 2) {
            config = config.reordering(seed);
        }
        let fault = rng.random_ratio(1, 5).then(|| {
            let targets = [
                FaultTarget::Write,
                FaultTarget::Write,
                FaultTarget::Read,
                FaultTarget::Reset,
                FaultTarget::Flush,
                FaultTarget::Any,
            ];
            let target = targets[rng.random_range(0..targets.len())];
            let fault = if rng.random_ratio(1, 2) {
                Fault::once(target)
            } else {
                Fault::for_ever(target)
            };
            fault.after(rng.random_range(0..200))
        });
        // What cannot be read at a mount stays unknown to the tables: the inspector complains.
        let unreadable = fault
            .as_ref()
            .is_some_and(|fault| matches!(fault.target, FaultTarget::Read | FaultTarget::Any));
        let mut mix = Mix::ALL[rng.random_range(0..Mix::ALL.len())];
        let mut ops = rng.random_range(20..120);
        let mut crash_one_in = rng.random_range(1..8);
        let mut bytes_max = u64::from(zones) * u64::from(zone_blocks) * BLOCK_SIZE as u64 / 4;
        if rng.random_ratio(1, 8) {
            // A small volume that runs full: cleaning under pressure, and no space left.
            config.geometry.zone_count = rng.random_range(19..25);
            config.capacities.clear();
            mix = [Mix::Churn, Mix::Full, Mix::Full][rng.random_range(0..3)];
            ops = rng.random_range(150..400);
            crash_one_in = rng.random_range(10..40);
            bytes_max = u64::from(config.geometry.zone_count)
                * u64::from(zone_blocks)
                * BLOCK_SIZE as u64
                * rng.random_range(40..100)
                / 100;
        }
        // Drawn apart, so that plans without it are as they ever were.
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x434f_5049_4553_5f32);
        let copies = if rng.random_ratio(1, 5) { 2 } else { 1 };
        if copies == 2 {
            // Twice as many zones are held back.
            config.geometry.zone_count += 18;
        }
        let zone_failure = (fault.is_none() && rng.random_ratio(1, 4)).then(|| {
            // The loss of a zone of the log or of metadata without a copy is told in tests of its
            // own.
            if copies == 2 && rng.random_ratio(2, 3) {
                FaultKind::Offline
            } else {
                FaultKind::ReadOnly
            }
        });
        let fault = fault.or(zone_failure
            .map(|kind| Fault::of_zone(FaultTarget::Write, kind).after(rng.random_range(0..100))));
        Plan {
            origin: Origin::Seed(seed),
            seed,
            crash_seed: seed,
            config,
            faults: fault.into_iter().collect(),
            copies,
            zone_failure,
            mix,
            ops,
            bytes_max,
            xattr_names: 3,
            populated_files: 0,
            heavy: false,
            crash_one_in,
            crashes_per_op_max: 8,
            states_per_crash: 2,
            exhaustive_max: 0,
            calm_ops: 0,
            states_max: STATES_MAX,
            again_percent: 15,
            failing_percent: 0,
            rotten_percent: 0,
            go_on_percent: 10,
            check_percent: if unreadable { 0 } else { 25 },
            unmount_percent: 100,
        }
    }

    /// Adds what plain plans do not have.
    fn enrich(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x454e_5249_4348_4544);
        // How the volume is mounted goes by it.
        self.config.seed ^= rng.random_range(0..256) << 56;
        let small = self.config.geometry.zone_count < 24 || self.ops > 120;
        if !small && rng.random_ratio(1, 6) {
            self.mix = Mix::Bulky;
            self.ops *= 2;
            // Enough for several pages, which go with the file.
            self.xattr_names = 12;
        }
        self.enrich_faults(&mut rng);
        match rng.random_range(0..400) {
            // More pages than a chunk of their table has entries.
            0..2 => {
                (self.xattr_names, self.populated_files) = (100, 14);
                self.config.geometry.zone_count = 100 * self.copies;
                self.mix = Mix::Bulky;
            }
            // The zone table takes several chunks.
            2..22 => self.config.geometry.zone_count = rng.random_range(127..800),
            // So many that the footer, which names them, takes two blocks.
            22 => self.config.geometry.zone_count = rng.random_range(62_000..66_000),
            _ => {}
        }
        self.config.tears_blocks = self.seed.is_multiple_of(2);
        self.lay_conventional_zones();
        match stripes::of_seed(self.seed) {
            Some(of_seed) => self.lay_stripes(of_seed),
            None => self.lay_metadata_zones(),
        }
        self.failing_percent = 5;
        self.rotten_percent = 15;
        let populated_ops = self.populated_files as usize * (self.xattr_names as usize + 1);
        self.heavy = self.populated_files > 0 || self.config.geometry.zone_count > 1000;
        if self.heavy {
            self.ops = self.ops.min(40);
            self.crash_one_in = 20;
            self.crashes_per_op_max = 1;
            self.states_per_crash = 1;
            self.states_max = HEAVY_STATES_MAX;
            self.go_on_percent = 2;
        }
        self.ops += populated_ops;
        self.calm_ops = populated_ops;
    }

    /// An SMR drive: what is written to its first zones can be lost until a flush, and their write
    /// pointers prove nothing.
    fn lay_conventional_zones(&mut self) {
        let geometry = &mut self.config.geometry;
        if self.seed % CONVENTIONAL_ONE_IN == CONVENTIONAL_ONE_IN - 1
            && geometry.write_pointer_is_proof
        {
            let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x0053_4d52);
            geometry.conventional_zones = rng.random_range(1..=geometry.zone_count / 3);
            // The sequential zones alone can carry the log and what is kept free for it.
            geometry.zone_count += geometry.conventional_zones;
            geometry.volatile_cache = true;
        }
    }

    /// Two devices: one for the log and metadata, as large as a volume of its own, mostly an image, with
    /// zones of its own size; and one for file data, which may be small and run full.
    fn lay_metadata_zones(&mut self) {
        let drawn = self.seed >= SPLIT_FROM && SPLIT_OF_16.contains(&(self.seed % 16));
        if !drawn || self.config.geometry.zone_count > 1000 {
            return;
        }
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x5350_4c49_5421);
        let metadata_zones = self.config.geometry.zone_count;
        let data_zones = rng.random_range(17..32);
        let blocks = self.config.geometry.zone_blocks;
        let capacity = self.config.zone_capacity(0);
        if rng.random_ratio(1, 2) {
            // Those for data are larger.
            self.config.geometry.zone_blocks *= 2;
            self.config.capacities = vec![capacity; metadata_zones as usize];
            self.config.capacities.push(2 * capacity);
        }
        self.config = if rng.random_ratio(3, 4) {
            self.config.clone().metadata(metadata_zones)
        } else {
            self.config.geometry.metadata_zones = MetadataZones::first(metadata_zones);
            self.config.clone()
        };
        self.config.geometry.zone_count += data_zones;
        let data_bytes = u64::from(data_zones) * u64::from(blocks) * BLOCK_SIZE as u64;
        self.bytes_max = self.bytes_max.min(data_bytes);
    }

    /// The volume's zones are stripe sets of the device's.
    fn lay_stripes(&mut self, stripes: Stripes) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0x5354_5249_5045);
        let geometry = &mut self.config.geometry;
        // The sets are copies enough.
        self.copies = 1;
        let zones = stripes.columns + 1;
        geometry.zone_count = LABEL_ZONES
            + match stripes.metadata_sets {
                0 => 2 * geometry.zone_count,
                mirrored => 2 * mirrored + zones * rng.random_range(17..32),
            };
        for limit in [&mut geometry.max_open, &mut geometry.max_active] {
            *limit = limit.map(|limit| limit * zones);
        }
        if let Some(kind) = &mut self.zone_failure {
            // One zone may be lost, or some not be written to any more.
            if rng.random_ratio(2, 3) {
                *kind = FaultKind::Offline;
                for fault in &mut self.faults {
                    (fault.kind, fault.times) = (*kind, Some(1));
                }
            }
        }
        // What a crash tore in one zone, or left in one alone where write pointers do not tell, is written anew by the next mount. A
        // zone that fails or rots before that is done is one too many.
        if self.zone_failure.is_some() || rng.random_ratio(1, 2) {
            geometry.write_pointer_is_proof = true;
            geometry.conventional_zones = 0;
            self.config.tears_blocks = false;
        }
    }

    /// Commands fail of which there are few, and zones not only when they are written to.
    fn enrich_faults(&mut self, rng: &mut ChaCha8Rng) {
        if let Some(kind) = self.zone_failure {
            let (target, before, _) = failing_zone(kind, rng);
            let mut fault = Fault::of_zone(target, kind).after(rng.random_range(0..before));
            if kind == FaultKind::ReadOnly {
                // What is in them can be read: more than one may fail.
                fault.times = Some(rng.random_range(1..4));
                self.config.geometry.zone_count += 4;
            }
            self.faults = vec![fault];
        } else if !self.faults.is_empty() {
            self.faults = vec![fault(rng, &FAILING_COMMANDS)];
        }
        match self.faults.first().map(|fault| fault.target) {
            Some(FaultTarget::Flush) => self.config.geometry.volatile_cache = true,
            // Zones that fill and empty are reset.
            Some(FaultTarget::Reset) => {
                self.mix = Mix::Churn;
                self.ops = rng.random_range(100..200);
            }
            // A zone is finished early when it has no room for a page of several blocks,
            Some(FaultTarget::Finish) if self.zone_failure.is_some() => {
                self.mix = Mix::Bulky;
                self.xattr_names = 12;
                self.ops = rng.random_range(150..250);
            }
            // or when it cannot be written to any more.
            Some(FaultTarget::Finish) => {
                let write = Fault::once(FaultTarget::Write).after(rng.random_range(0..60));
                self.faults.push(write);
            }
            _ => {}
        }
        let unreadable = self.faults.iter().any(|fault| {
            matches!(fault.target, FaultTarget::Read | FaultTarget::Any)
                && fault.kind == FaultKind::Io
        });
        self.check_percent = if unreadable { 0 } else { 25 };
    }

    /// How a zone fails in a recovery.
    pub(super) fn zone_failing_in_recovery(&self, kind: FaultKind, rng: &mut ChaCha8Rng) -> Fault {
        let (target, before) = if self.seed >= RICH_FROM {
            let (target, _, before) = failing_zone(kind, rng);
            (target, before)
        } else {
            (FaultTarget::Write, 8)
        };
        Fault::of_zone(target, kind).after(rng.random_range(0..before))
    }

    /// A source of operations for this workload.
    #[must_use]
    pub fn generator(&self, seed: u64) -> Generator {
        Generator::new(seed, self.mix, self.bytes_max)
            .xattrs(self.xattr_names)
            .long_xattrs(matches!(self.origin, Origin::Seed(number) if has_long_xattrs(number)))
            .clones(matches!(self.origin, Origin::Seed(number) if number >= CLONES_FROM))
            .snapshots(matches!(self.origin, Origin::Seed(number) if number >= SNAPSHOTS_FROM))
            .writable_snapshots(matches!(self.origin, Origin::Seed(number) if number >= WRITABLE_FROM))
            .limits(matches!(self.origin, Origin::Seed(number) if number >= LIMITS_FROM))
            .shifts(matches!(self.origin, Origin::Seed(number) if number >= SHIFTS_FROM))
            .edits(matches!(self.origin, Origin::Seed(number) if EDITS.contains(&number)))
            .owners(matches!(self.origin, Origin::Seed(number) if number >= OWNERS_FROM))
            .quotas(matches!(self.origin, Origin::Seed(number) if number >= QUOTAS_FROM))
            .repeats(matches!(self.origin, Origin::Seed(number) if REPEATING.contains(&number) || NEAR.contains(&number)))
    }

    /// The plan of a short sequence: a crash at every command that shorter sequences have not had.
    #[must_use]
    pub fn of_sequence(origin: Origin, sequence: &Sequence) -> Plan {
        let (Origin::Seed(seed) | Origin::Sequence(seed) | Origin::Sample(seed)) = origin;
        // Neighbouring numbers would have much in common.
        let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
        let config = SimConfig::new(20, 64).reordering(seed);
        let config = match sequence.device {
            0 => config,
            1 => config.volatile_cache(),
            _ => config.host_file(),
        };
        let setup_ops = sequence.setup.ops().len();
        Plan {
            origin,
            seed,
            crash_seed: seed,
            config,
            faults: Vec::new(),
            copies: 1,
            zone_failure: None,
            mix: Mix::Even,
            ops: setup_ops + sequence.ops.len(),
            bytes_max: 1 << 20,
            xattr_names: 3,
            populated_files: 0,
            heavy: false,
            crash_one_in: 1,
            crashes_per_op_max: 64,
            states_per_crash: 3,
            exhaustive_max: 4,
            calm_ops: setup_ops + sequence.had,
            states_max: STATES_MAX,
            again_percent: 5,
            failing_percent: 2,
            rotten_percent: 0,
            go_on_percent: 3,
            check_percent: 10,
            unmount_percent: 10,
        }
    }

    /// The same, tried harder: every command a moment of crash, and more states at each, chosen
    /// by another seed.
    #[must_use]
    pub fn thorough(mut self, crash_seed: u64) -> Plan {
        self.crash_seed = crash_seed;
        if self.heavy {
            return self;
        }
        self.crash_one_in = 1;
        self.crashes_per_op_max = 64;
        self.states_per_crash = 4;
        self.calm_ops = 0;
        self
    }
}
