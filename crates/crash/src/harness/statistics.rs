//! What a campaign has covered.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

use persimmon_sim::device::{Fault, FaultKind, PowerCut, SimConfig};

use crate::stripes;

/// How often each of several things was had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<Cow<'static, str>, u64>);

impl Counts {
    /// Counts one.
    pub fn one(&mut self, name: impl Into<Cow<'static, str>>) {
        *self.0.entry(name.into()).or_default() += 1;
    }

    /// How often it was had.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Names and counts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_ref(), *count))
    }

    fn add(&mut self, other: &Counts) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (name, count)) in self.iter().enumerate() {
            let separator = if at > 0 { ", " } else { "" };
            write!(f, "{separator}{name} {count}")?;
        }
        Ok(())
    }
}

/// A set of hashes, which need no further hashing.
pub type Images = HashSet<u64, BuildHasherDefault<Hashed>>;

/// Takes a hash for what it is.
#[derive(Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Counts over one run or many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// Random workloads run.
    pub runs: u64,
    /// Short sequences run.
    pub sequences: u64,
    /// Crash states recovered and compared.
    pub states: u64,
    /// Of these, states of short sequences.
    pub sequence_states: u64,
    /// Of all states, those in which something unacknowledged was lost.
    pub shortened: u64,
    /// Of all states, those that crashed while recovering from another crash.
    pub recovery_crashes: u64,
    /// States that were worked with after recovery.
    pub continued: u64,
    /// Workloads that an injected fault or want of space ended.
    pub broken: u64,
    /// Inspector runs.
    pub checks: u64,
    /// Operations refused as they have to be.
    pub refused: u64,
    /// Operations refused for want of space.
    pub no_space: u64,
    /// Operations that succeeded, by name.
    pub ops: Counts,
    /// Kinds of devices, by run.
    pub devices: Counts,
    /// Mount options, by state.
    #[serde(default)]
    pub options: Counts,
    /// Faults beside power cuts, by run.
    pub faults: Counts,
    /// Operations in which a fault struck, by name.
    #[serde(default)]
    pub failing_ops: Counts,
    /// What power cuts did, by state.
    pub power_cuts: Counts,
    /// What recovery met, by state.
    pub recoveries: Counts,
    /// Hashes of the device images that were recovered.
    #[serde(skip)]
    pub images: Images,
}

impl Statistics {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Statistics) {
        self.runs += other.runs;
        self.sequences += other.sequences;
        self.states += other.states;
        self.sequence_states += other.sequence_states;
        self.shortened += other.shortened;
        self.recovery_crashes += other.recovery_crashes;
        self.continued += other.continued;
        self.broken += other.broken;
        self.checks += other.checks;
        self.refused += other.refused;
        self.no_space += other.no_space;
        self.ops.add(&other.ops);
        self.devices.add(&other.devices);
        self.options.add(&other.options);
        self.faults.add(&other.faults);
        self.failing_ops.add(&other.failing_ops);
        self.power_cuts.add(&other.power_cuts);
        self.recoveries.add(&other.recoveries);
        self.images.extend(&other.images);
    }

    pub(super) fn count_device(&mut self, config: &SimConfig, copies: u32) {
        let geometry = &config.geometry;
        self.devices.one(match () {
            () if !geometry.write_pointer_is_proof => "host file",
            () if geometry.volatile_cache => "drive with a volatile cache",
            () => "drive without a volatile cache",
        });
        if geometry.conventional_zones > 0 {
            self.devices.one("conventional zones");
        }
        if !geometry.metadata_zones.is_none() {
            self.devices.one("a device for metadata");
        }
        if stripes::of_seed(config.seed).is_some() {
            self.devices.one("stripe sets");
        }
        if copies > 1 {
            self.devices.one("two copies");
        }
        if config.completions == persimmon_sim::device::Completions::WhenWaited {
            self.devices.one("commands reordered");
        }
        if geometry.max_active.is_some() {
            self.devices.one("few active zones");
        }
        if !config.capacities.is_empty() {
            self.devices.one("capacity below zone size");
        }
    }

    pub(super) fn count_fault(&mut self, fault: &Fault, struck: bool) {
        let struck = if struck { "" } else { " (never came)" };
        let kind = match fault.kind {
            FaultKind::Io | FaultKind::HostFull => None,
            FaultKind::ReadOnly => Some("zone turns read-only"),
            FaultKind::Offline => Some("zone goes offline"),
        };
        if let Some(kind) = kind {
            let at = format!("{:?}", fault.target).to_lowercase();
            self.faults.one(format!("{kind} at a {at}{struck}"));
            return;
        }
        let times = match fault.times {
            None => "for ever",
            Some(_) => "once",
        };
        self.faults
            .one(format!("{:?} fails {times}{struck}", fault.target).to_lowercase());
    }

    pub(super) fn count_cut(&mut self, cut: PowerCut) {
        for (is, name) in [
            (cut.in_flight, "commands in flight"),
            (cut.lost, "something lost"),
            (cut.kept, "something not yet durable kept"),
            (cut.torn, "command torn"),
            (cut.reset, "late reset done"),
            (cut.scattered, "blocks scattered"),
            (!cut.lost && !cut.kept, "nothing open"),
        ] {
            if is {
                self.power_cuts.one(name);
            }
        }
    }
}

impl std::fmt::Display for Statistics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{} random runs ({} ended by errors), {} short sequences",
            self.runs, self.broken, self.sequences
        )?;
        writeln!(
            f,
            "{} crash states ({} of short sequences), {} distinct device images",
            self.states,
            self.sequence_states,
            self.images.len()
        )?;
        writeln!(
            f,
            "of the states {} lost something unacknowledged, {} crashed in recovery, {} were worked with afterwards",
            self.shortened, self.recovery_crashes, self.continued
        )?;
        writeln!(
            f,
            "{} inspections; {} operations refused, {} for want of space",
            self.checks, self.refused, self.no_space
        )?;
        writeln!(f, "operations: {}", self.ops)?;
        writeln!(f, "devices: {}", self.devices)?;
        writeln!(f, "mounted with: {}", self.options)?;
        writeln!(f, "faults: {}", self.faults)?;
        writeln!(f, "faults struck in: {}", self.failing_ops)?;
        writeln!(f, "power cuts: {}", self.power_cuts)?;
        write!(f, "recoveries: {}", self.recoveries)
    }
}
