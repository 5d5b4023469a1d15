//! Thresholds that can be changed while a volume is in use: each declared once, with its range. They
//! last until the volume is closed.

use persimmon_sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::Volume;
use crate::options::{CleaningOptions, Options};

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

/// Those that are kept nowhere else.
#[derive(Debug)]
pub(crate) struct Tuned {
    pub(crate) cache_bytes_max: AtomicUsize,
    pub(crate) checkpoint_due_percent: AtomicU32,
}

impl Tuned {
    pub(crate) fn new(options: &Options) -> Tuned {
        Tuned {
            cache_bytes_max: AtomicUsize::new(options.cache_bytes_max),
            checkpoint_due_percent: AtomicU32::new(options.checkpoint_due_percent),
        }
    }
}

struct Entry {
    threshold: Threshold,
    get: fn(&Volume) -> u64,
    set: fn(&Volume, u64),
}

/// One of [`CleaningOptions`].
fn cleaning(volume: &Volume, change: impl FnOnce(&mut CleaningOptions)) {
    let mut options = volume.cleaning_options();
    change(&mut options);
    volume.set_cleaning_options(options);
}

/// Values are within the ranges, so that none is cut off.
const ENTRIES: [Entry; 7] = [
    Entry {
        threshold: Threshold {
            key: "pool_basis_points",
            unit: Unit::BasisPoints,
            least: 0,
            most: 5000,
            what: "zones kept free by cleaning ahead, as a share of those that nothing live would need",
        },
        get: |volume| volume.cleaning_options().pool_basis_points.into(),
        set: |volume, value| cleaning(volume, |c| c.pool_basis_points = value as u32),
    },
    Entry {
        threshold: Threshold {
            key: "pool_zones_min",
            unit: Unit::Zones,
            least: 1,
            most: 10_000,
            what: "zones kept free by cleaning ahead, at least",
        },
        get: |volume| volume.cleaning_options().pool_zones_min.into(),
        set: |volume, value| cleaning(volume, |c| c.pool_zones_min = value as u32),
    },
    Entry {
        threshold: Threshold {
            key: "metadata_garbage_percent",
            unit: Unit::Percent,
            least: 1,
            most: 100,
            what: "garbage from which on a zone of metadata is cleaned ahead",
        },
        get: |volume| volume.cleaning_options().metadata_garbage_percent.into(),
        set: |volume, value| cleaning(volume, |c| c.metadata_garbage_percent = value as u32),
    },
    Entry {
        threshold: Threshold {
            key: "checkpoint_due_percent",
            unit: Unit::Percent,
            least: 10,
            most: 95,
            what: "journal, or changed pages, as a share of their bounds, from which on a checkpoint is written ahead",
        },
        get: |volume| {
            let tuned = &volume.tuned.checkpoint_due_percent;
            tuned.load(Ordering::Relaxed).into()
        },
        set: |volume, value| {
            let tuned = &volume.tuned.checkpoint_due_percent;
            tuned.store(value as u32, Ordering::Relaxed);
        },
    },
    Entry {
        threshold: Threshold {
            key: "cache_bytes_max",
            unit: Unit::Bytes,
            least: 1 << 20,
            most: BYTES_MOST,
            what: "clean metadata pages kept in memory",
        },
        get: |volume| volume.tuned.cache_bytes_max.load(Ordering::Relaxed) as u64,
        set: |volume, value| {
            let tuned = &volume.tuned.cache_bytes_max;
            tuned.store(value as usize, Ordering::Relaxed);
        },
    },
    Entry {
        threshold: Threshold {
            key: "staging_bytes_max",
            unit: Unit::Bytes,
            least: 256 << 10,
            most: BYTES_MOST,
            what: "file data waiting in memory to be written; less on small volumes",
        },
        get: |volume| volume.space.staging_bytes_max(),
        set: |volume, value| volume.space.set_staging(value, &volume.zones.budget),
    },
    Entry {
        threshold: Threshold {
            key: "tails_bytes_max",
            unit: Unit::Bytes,
            least: 0,
            most: BYTES_MOST,
            what: "last blocks of files kept in memory for who appends",
        },
        get: |volume| volume.tails.bytes_max(),
        set: |volume, value| volume.tails.set_bytes_max(value),
    },
];

fn find(key: &str) -> Result<&'static Entry, TuneError> {
    let found = ENTRIES.iter().find(|entry| entry.threshold.key == key);
    found.ok_or_else(|| TuneError::Unknown { key: key.into() })
}

impl Volume {
    /// The thresholds and their values.
    #[must_use]
    pub fn thresholds(&self) -> Vec<(Threshold, u64)> {
        let value = |entry: &Entry| (entry.threshold, (entry.get)(self));
        ENTRIES.iter().map(value).collect()
    }

    /// Changes thresholds: all of these, or, where one of them cannot be so, none.
    ///
    /// # Errors
    /// See [`TuneError`].
    pub fn tune<'a>(
        &self,
        changes: impl Iterator<Item = (&'a str, u64)> + Clone,
    ) -> Result<(), TuneError> {
        for (key, value) in changes.clone() {
            find(key)?.threshold.check(value)?;
        }
        for (key, value) in changes {
            (find(key)?.set)(self, value);
        }
        self.note_activity();
        Ok(())
    }
}
