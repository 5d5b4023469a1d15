//! Zones of a null_blk that fail, under a volume and without one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use persimmon_crash::filesystem::{failing_zones_test, lost_zones_test};
use persimmon_device::{Stripes, ZonedDevice, striped, zonefs};
use persimmon_engine::ZoneFailure;

use crate::{fresh, fresh_in, open};

/// A null_blk as its settings have it.
pub struct Settings<'a> {
    drive: &'a Path,
    dir: &'a Path,
    zone_sectors: u64,
}

impl<'a> Settings<'a> {
    /// Of the drive, or the zonefs on it, that has zones of `zone_blocks` blocks.
    pub fn new(drive: &'a Path, dir: &'a Path, zone_blocks: u32) -> Settings<'a> {
        Settings {
            drive,
            dir,
            zone_sectors: u64::from(zone_blocks) * 8,
        }
    }

    /// The first sector of a zone.
    pub fn sector(&self, zone: u32) -> Result<u64> {
        let number = match zonefs::directory(self.drive) {
            None => u64::from(zone),
            Some(dir) => {
                let file = dir.join("seq").join(zone.to_string());
                fs::metadata(file).context("a zone file")?.ino()
            }
        };
        Ok(number * self.zone_sectors)
    }

    /// Sets one of them.
    pub fn set(&self, name: &str, value: impl ToString) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(path, value.to_string()).with_context(|| format!("setting {name}"))
    }

    /// A zone can be read but not written to any more.
    pub fn turn_read_only(&self, zone: u32) -> Result<()> {
        self.set("zone_readonly", self.sector(zone)?)
    }

    /// A zone can be neither read nor written to any more.
    pub fn turn_offline(&self, zone: u32) -> Result<()> {
        self.set("zone_offline", self.sector(zone)?)
    }
}

/// Makes a volume with parity of data on a drive, and has zones go offline under it, as on the simulator.
pub fn with_parity(path: &Path, settings: &Path) -> Result<()> {
    let below = fresh(path).geometry().clone();
    let settings = Settings::new(path, settings, below.zone_blocks);
    let stripes = Stripes {
        columns: 2,
        metadata_sets: below.zone_count / 5,
    };
    drop(fresh_in(path, Some(stripes)));
    let lost = lost_zones_test(&mut || Arc::new(open(path)), &mut |set| {
        let zones = striped::zones_of(&below, stripes, set).ok_or("no such set")?;
        println!("set {set}: zone {} is lost", zones.start);
        let failed = settings.turn_offline(zones.start);
        failed.map_err(|error| format!("{error:#}"))
    });
    lost.map_err(anyhow::Error::msg)?;
    println!("{}: nothing lost with a zone of each kind", path.display());
    Ok(())
}

/// Makes a volume on a drive, or the zonefs on it, and has zones fail under it, as on the simulator.
pub fn run(path: &Path, settings: &Path) -> Result<()> {
    let zone_blocks = fresh(path).geometry().zone_blocks;
    let settings = Settings::new(path, settings, zone_blocks);
    let lost = failing_zones_test(&mut || Arc::new(open(path)), &mut |zone, failure| {
        println!("zone {zone}: {failure:?}");
        let failed = match failure {
            ZoneFailure::ReadOnly => settings.turn_read_only(zone.0),
            ZoneFailure::Offline => settings.turn_offline(zone.0),
        };
        failed.map_err(|error| format!("{error:#}"))
    });
    let lost = lost.map_err(anyhow::Error::msg)?;
    println!("{}: {lost} files lost with a data zone", path.display());
    Ok(())
}
