//! Thresholds that can be changed while a volume is in use: each declared once, with its range. They
//! last until the volume is closed.

use persimmon_sync::atomic::Ordering;

use crate::engine::Engine;
use crate::options::CleaningOptions;

/// Most bytes that a bound on memory can be.
const BYTES_MOST: u64 = 1 << 40;

/// What the number of a threshold counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Zones.
    Zones,
    /// 1/100.
    Percent,
    /// 1/10,000.
    BasisPoints,
    /// Seconds.
    Seconds,
}

/// A number that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Its name, with the unit at the end.
    pub key: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// The least that it can be.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// What it does, in a sentence.
    pub what: &'static str,
}

/// Why nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TuneError {
    /// There is no such threshold.
    #[error("there is no threshold {key}")]
    Unknown {
        /// What was asked for.
        key: String,
    },
    /// The number is out of its range.
    #[error("{key} is between {least} and {most}, not {value}")]
    OutOfRange {
        /// The threshold.
        key: &'static str,
        /// What was asked for.
        value: u64,
        /// The least that it can be.
        least: u64,
        /// The most.
        most: u64,
    },
}

impl Threshold {
    /// Whether it can have this value.
    ///
    /// # Errors
    /// [`TuneError::OutOfRange`].
    pub fn check(&self, value: u64) -> Result<(), TuneError> {
        let Threshold {
            key, least, most, ..
        } = *self;
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(TuneError::OutOfRange {
            key,
            value,
            least,
            most,
        })
    }
}

struct Tunable {
    threshold: Threshold,
    get: fn(&Engine) -> u64,
    set: fn(&Engine, u64),
}

/// One of [`CleaningOptions`].
fn cleaning(engine: &Engine, change: impl FnOnce(&mut CleaningOptions)) {
    engine.store.tuned.change_cleaning(change);
}

/// Values are within the ranges, so that none is cut off.
const TUNABLES: [Tunable; 7] = [
    Tunable {
        threshold: Threshold {
            key: "free_target_basis_points",
            unit: Unit::BasisPoints,
            least: 0,
            most: 5000,
            what: "zones kept free by cleaning ahead, as a share of those that nothing live would need",
        },
        get: |engine| {
            engine
                .store
                .tuned
                .cleaning()
                .free_target_basis_points
                .into()
        },
        set: |engine, value| cleaning(engine, |c| c.free_target_basis_points = value as u32),
    },
    Tunable {
        threshold: Threshold {
            key: "free_target_zones_min",
            unit: Unit::Zones,
            least: 1,
            most: 10_000,
            what: "zones kept free by cleaning ahead, at least",
        },
        get: |engine| engine.store.tuned.cleaning().free_target_zones_min.into(),
        set: |engine, value| cleaning(engine, |c| c.free_target_zones_min = value as u32),
    },
    Tunable {
        threshold: Threshold {
            key: "metadata_garbage_percent",
            unit: Unit::Percent,
            least: 1,
            most: 100,
            what: "garbage from which on a zone of metadata is cleaned ahead",
        },
        get: |engine| {
            engine
                .store
                .tuned
                .cleaning()
                .metadata_garbage_percent
                .into()
        },
        set: |engine, value| cleaning(engine, |c| c.metadata_garbage_percent = value as u32),
    },
    Tunable {
        threshold: Threshold {
            key: "checkpoint_due_percent",
            unit: Unit::Percent,
            least: 10,
            most: 95,
            what: "journal, or changed pages, as a share of their bounds, from which on a checkpoint is written ahead",
        },
        get: |engine| {
            let tuned = &engine.store.tuned.checkpoint_due_percent;
            tuned.load(Ordering::Relaxed).into()
        },
        set: |engine, value| {
            let tuned = &engine.store.tuned.checkpoint_due_percent;
            tuned.store(value as u32, Ordering::Relaxed);
        },
    },
    Tunable {
        threshold: Threshold {
            key: "cache_bytes_max",
            unit: Unit::Bytes,
            least: 1 << 20,
            most: BYTES_MOST,
            what: "clean metadata pages kept in memory",
        },
        get: |engine| engine.store.tuned.cache_bytes_max.load(Ordering::Relaxed) as u64,
        set: |engine, value| {
            let tuned = &engine.store.tuned.cache_bytes_max;
            tuned.store(value as usize, Ordering::Relaxed);
        },
    },
    Tunable {
        threshold: Threshold {
            key: "staging_bytes_max",
            unit: Unit::Bytes,
            least: 256 << 10,
            most: BYTES_MOST,
            what: "file data waiting in memory to be written; less on small volumes",
        },
        get: |engine| engine.space.staging_bytes_max(),
        set: |engine, value| engine.space.set_staging(value),
    },
    Tunable {
        threshold: Threshold {
            key: "tails_bytes_max",
            unit: Unit::Bytes,
            least: 0,
            most: BYTES_MOST,
            what: "last blocks of files kept in memory for who appends",
        },
        get: |engine| engine.data.tails().bytes_max(),
        set: |engine, value| engine.data.tails().set_bytes_max(value),
    },
];

fn find(key: &str) -> Result<&'static Tunable, TuneError> {
    let found = TUNABLES.iter().find(|entry| entry.threshold.key == key);
    found.ok_or_else(|| TuneError::Unknown { key: key.into() })
}

/// The thresholds and their values.
#[must_use]
pub(crate) fn thresholds(engine: &Engine) -> Vec<(Threshold, u64)> {
    let value = |entry: &Tunable| (entry.threshold, (entry.get)(engine));
    TUNABLES.iter().map(value).collect()
}

/// Changes thresholds: all of these, or, where one of them cannot be so, none.
///
/// # Errors
/// See [`TuneError`].
pub(crate) fn tune<'a>(
    engine: &Engine,
    changes: impl Iterator<Item = (&'a str, u64)> + Clone,
) -> Result<(), TuneError> {
    for (key, value) in changes.clone() {
        find(key)?.threshold.check(value)?;
    }
    for (key, value) in changes {
        (find(key)?.set)(engine, value);
    }
    engine.store.activity.note();
    Ok(())
}
