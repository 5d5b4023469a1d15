//! `persimmon tune`: the thresholds of a mounted volume.

use std::collections::BTreeMap;
use std::ffi::OsString;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use persimmon_fuse::size::{parse_basis_points, parse_bytes, show_bytes};

use crate::control::tune::Setting;
use crate::control::{Command, ask};
use crate::exit::{self, USAGE};
use crate::live::Target;
use crate::output;

/// Tell the thresholds of a mounted volume, or change them until it is unmounted.
#[derive(Args)]
pub struct Tune {
    /// A directory of the mount, or its device
    target: OsString,
    /// Thresholds to change, all or none of them: sizes as 64M, shares as 12.5%
    #[arg(value_name = "KEY=VALUE", value_parser = parse_change)]
    changes: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_change(text: &str) -> Result<(String, String), String> {
    let change = text.split_once('=');
    let (key, value) = change.ok_or_else(|| format!("'{text}' is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Tune {
    pub fn run(&self) -> Result<u8> {
        let dir = Target::mounted(&self.target, "")?;
        let mut settings: Vec<Setting> = ask(&dir, &Command::Tune(BTreeMap::new()))?;
        if !self.changes.is_empty() {
            let changes = self.changes.iter();
            let changes: Result<BTreeMap<_, _>> = changes
                .map(|(key, value)| parse(&settings, key, value))
                .collect();
            let changes = changes.map_err(|error| exit::error(USAGE, error))?;
            settings = ask(&dir, &Command::Tune(changes))?;
            settings.retain(|setting| self.changes.iter().any(|(key, _)| *key == setting.key));
        }
        let said = if self.json {
            output::json(&settings)
        } else {
            say(&settings)
        };
        output::done(0, said)
    }
}

/// A change, in the unit of its threshold and within its range.
fn parse(settings: &[Setting], key: &str, value: &str) -> Result<(String, u64)> {
    let known = settings.iter().find(|setting| setting.key == key);
    let setting = known.ok_or_else(|| {
        let keys: Vec<&str> = settings.iter().map(|s| s.key.as_str()).collect();
        anyhow!("there is no threshold {key}; there are {}", keys.join(", "))
    })?;
    let number = match setting.unit.as_str() {
        "bytes" => parse_bytes(value),
        "basis_points" if value.ends_with('%') => parse_basis_points(value).map(u64::from),
        "percent" => number(value.strip_suffix('%').unwrap_or(value).trim_end()),
        // As they are told.
        "seconds" => number(value.strip_suffix('s').unwrap_or(value).trim_end()),
        _ => number(value),
    };
    let number = number.map_err(|error| anyhow!("{key}: {error}"))?;
    if !(setting.least..=setting.most).contains(&number) {
        bail!(
            "{key} is between {} and {}, not {value}",
            show(setting, setting.least),
            show(setting, setting.most)
        );
    }
    Ok((key.to_owned(), number))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("'{text}' is not a number"))
}

fn show(setting: &Setting, value: u64) -> String {
    match setting.unit.as_str() {
        "bytes" => show_bytes(value),
        "basis_points" => format!("{}%", value as f64 / 100.0),
        "percent" => format!("{value}%"),
        "seconds" => format!("{value} s"),
        _ => value.to_string(),
    }
}

fn say(settings: &[Setting]) -> Result<()> {
    let rows: Vec<Vec<String>> = settings
        .iter()
        .map(|setting| {
            vec![
                setting.key.clone(),
                show(setting, setting.value),
                show(setting, setting.least),
                show(setting, setting.most),
                setting.what.clone(),
            ]
        })
        .collect();
    let headings = ["threshold", "value", "least", "most", "what it is"];
    let right = [false, true, true, true, false];
    Ok(output::print(output::table(
        &headings,
        &right,
        rows.into_iter(),
    ))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Vec<Setting> {
        let setting = |key: &str, unit: &str, least, most| Setting {
            key: key.into(),
            value: least,
            unit: unit.into(),
            least,
            most,
            what: String::new(),
        };
        vec![
            setting("cache_bytes_max", "bytes", 1 << 20, 1 << 30),
            setting("free_target_basis_points", "basis_points", 0, 5000),
            setting("garbage_percent", "percent", 1, 100),
            setting("zones_min", "zones", 1, 9),
            setting("interval_seconds", "seconds", 1, 3600),
        ]
    }

    #[test]
    fn values_are_in_the_units_of_their_thresholds() {
        for (key, value, number) in [
            ("cache_bytes_max", "64M", 64 << 20),
            ("cache_bytes_max", "1048576", 1 << 20),
            ("free_target_basis_points", "12.5%", 1250),
            ("free_target_basis_points", "1250", 1250),
            ("garbage_percent", "70%", 70),
            ("garbage_percent", "70", 70),
            ("zones_min", "3", 3),
            ("interval_seconds", "2", 2),
            ("interval_seconds", "2s", 2),
            ("interval_seconds", "2 s", 2),
        ] {
            let parsed = parse(&settings(), key, value).unwrap();
            assert_eq!(parsed, (key.to_owned(), number), "{key}={value}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_the_range_told() {
        let refused = |key, value| parse(&settings(), key, value).unwrap_err().to_string();
        let range = refused("free_target_basis_points", "60%");
        assert_eq!(
            range,
            "free_target_basis_points is between 0% and 50%, not 60%"
        );
        let range = refused("cache_bytes_max", "1K");
        assert!(range.contains("between 1.0 MiB and 1.0 GiB"), "{range}");
        assert!(refused("zones_min", "0").contains("between 1 and 9"));
        assert!(refused("zones_min", "many").contains("'many'"));
        assert!(refused("speed", "9").contains("there are cache_bytes_max, "));
        assert!(parse_change("zones_min").is_err());
    }
}
