//! Thresholds: what they are, and changing them.

use std::collections::BTreeMap;
use std::time::Duration;

use persimmon::CommitInterval;
use persimmon::internal::engine::{Threshold, Unit, Volume};
use serde::{Deserialize, Serialize};

use super::encode;

/// A threshold and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub key: String,
    /// Its value now.
    pub value: u64,
    /// bytes, zones, percent, basis_points, seconds.
    pub unit: String,
    /// The least that it can be.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// What it does.
    pub what: String,
}

impl Setting {
    fn new(threshold: &Threshold, value: u64) -> Setting {
        let unit = match threshold.unit {
            Unit::Bytes => "bytes",
            Unit::Zones => "zones",
            Unit::Percent => "percent",
            Unit::BasisPoints => "basis_points",
            Unit::Seconds => "seconds",
        };
        Setting {
            key: threshold.key.to_owned(),
            value,
            unit: unit.to_owned(),
            least: threshold.least,
            most: threshold.most,
            what: threshold.what.to_owned(),
        }
    }
}

/// The daemon's side: all of the changes are made, or none.
pub(super) fn change(
    volume: &Volume,
    commit: &CommitInterval,
    changes: &BTreeMap<String, u64>,
) -> Result<Vec<u8>, String> {
    let seconds = CommitInterval::THRESHOLD;
    let new_commit = changes.get(seconds.key);
    if let Some(value) = new_commit {
        seconds.check(*value).map_err(|error| error.to_string())?;
    }
    let others = changes.iter().map(|(key, value)| (key.as_str(), *value));
    let others = others.filter(|(key, _)| *key != seconds.key);
    volume.tune(others).map_err(|error| error.to_string())?;
    if let Some(value) = new_commit {
        commit.set(Duration::from_secs(*value));
    }
    for (key, value) in changes {
        tracing::info!("{key} is {value} from now on");
    }
    let thresholds = volume.thresholds();
    let mut settings: Vec<Setting> = thresholds
        .iter()
        .map(|(threshold, value)| Setting::new(threshold, *value))
        .collect();
    settings.push(Setting::new(&seconds, commit.get().as_secs()));
    encode(&settings)
}
