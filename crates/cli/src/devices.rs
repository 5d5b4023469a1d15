//! `persimmon devices`: the zoned drives of this machine, and what Persimmon makes of them.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use persimmon::internal::device::zbd::{self, Limits};
use persimmon::internal::device::zonefs::{self, ZonefsLimits};
use persimmon::internal::device::{BLOCK_SIZE, Drive, OpenOptions, ZonedDevice, drive, nvme};
use persimmon::internal::format::shown;
use persimmon_fuse::size::show_bytes;
use serde::Serialize;

use crate::mounted::mounted_at;
use crate::output::say;

/// List the zoned drives of this machine, their limits, and how Persimmon would use them.
#[derive(Args)]
pub struct Devices {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A zoned drive.
#[derive(Serialize)]
struct Device {
    /// Device node or URI.
    #[serde(serialize_with = "crate::output::path_as_text")]
    device: PathBuf,
    /// Model, as far as the driver tells.
    model: String,
    /// Zones that the drive has, conventional ones included.
    zone_count: u32,
    /// From the start of one zone to the start of the next.
    zone_size_bytes: u64,
    /// Zones that may be open at once; null is no limit.
    max_open: Option<u32>,
    /// Zones that may be active at once; null is no limit.
    max_active: Option<u32>,
    /// What the drive addresses.
    logical_block_bytes: u64,
    /// The largest zone append.
    append_bytes_max: u64,
    /// Completed writes may be lost at a power cut until a flush.
    volatile_cache: bool,
    /// `zbd` or `zonefs`; null if Persimmon cannot use the drive.
    back_end: Option<&'static str>,
    /// The generic character device of the same NVMe namespace, for the back end nvme; null if there is none.
    generic: Option<PathBuf>,
    /// Zones that a volume would have; null if the drive cannot be looked at now.
    usable_zones: Option<u32>,
    /// Bytes that could be written in each; null as above.
    zone_capacity_bytes: Option<u64>,
    /// The largest write; null as above.
    transfer_bytes_max: Option<u64>,
    /// Why it cannot be used, or not now.
    problem: Option<String>,
    /// UUID of the volume on it.
    uuid: Option<String>,
    /// Its label.
    label: Option<String>,
    /// Where it is mounted.
    #[serde(serialize_with = "crate::output::path_as_text")]
    mount_point: Option<PathBuf>,
}

impl Devices {
    pub fn run(&self) -> Result<u8> {
        let carriers = zonefs_mounts()?;
        let mut devices = Vec::new();
        for (path, limits) in zbd::list().context("/sys/block")? {
            let carrier = carriers.iter().find(|(_, of)| of.block_device == path);
            devices.push(match carrier {
                Some((dir, _)) => {
                    let problem = format!("carries the zonefs at {}", dir.display());
                    Device::of(path, "zbd", limits, Some(problem))
                }
                None => Device::of(path, "zbd", limits, None),
            });
        }
        for (dir, limits) in carriers {
            let drive = Limits {
                max_open: limits.max_open,
                max_active: limits.max_active,
                model: format!("zonefs on {}", limits.block_device.display()),
                ..limits.drive
            };
            let uri = zonefs::uri(&dir);
            devices.push(Device::of(uri, "zonefs", drive, None));
        }
        if self.json {
            crate::output::json(&devices)?;
            return Ok(0);
        }
        if devices.is_empty() {
            say!("no zoned drives; a file or an ordinary block device will do as well")?;
        }
        for device in &devices {
            device.say()?;
        }
        Ok(0)
    }
}

/// Where a zonefs is mounted, and its limits.
fn zonefs_mounts() -> Result<Vec<(PathBuf, ZonefsLimits)>> {
    let mounts = zonefs::list().context("/proc/self/mountinfo")?;
    let with_limits = mounts.into_iter().filter_map(|dir| {
        let limits = ZonefsLimits::read(&File::open(&dir).ok()?).ok()?;
        Some((dir, limits))
    });
    Ok(with_limits.collect())
}

impl Device {
    /// `problem`: why it cannot be used, if that is known.
    fn of(
        path: PathBuf,
        back_end: &'static str,
        limits: Limits,
        problem: Option<String>,
    ) -> Device {
        let options = OpenOptions {
            read_only: true,
            wait_for_lock: Duration::ZERO,
            ..OpenOptions::default()
        };
        let generic = nvme::generic_of(&path);
        let mount_point = mounted_at(&path).or_else(|| mounted_at(generic.as_ref()?));
        let opened = match (&mount_point, problem) {
            (Some(dir), _) => Err(format!("mounted at {}", dir.display())),
            (None, Some(problem)) => Err(problem),
            (None, None) => Drive::open(&path, &options).map_err(|error| error.to_string()),
        };
        let capacity = |device: &Drive| {
            let zones = device.report(0..device.geometry().zone_count).ok()?;
            zones
                .iter()
                .filter(|z| !z.state.is_worn_out())
                .map(|z| z.capacity)
                .min()
        };
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK_SIZE as u64;
        let usable = opened.as_ref().ok();
        let volume = drive::identity(&path).ok().flatten();
        Device {
            model: limits.model,
            zone_count: limits.zone_count,
            zone_size_bytes: limits.zone_bytes,
            max_open: limits.max_open,
            max_active: limits.max_active,
            logical_block_bytes: limits.logical_block_bytes,
            append_bytes_max: limits.append_bytes_max,
            volatile_cache: limits.volatile_cache,
            back_end: (usable.is_some() || mount_point.is_some()).then_some(back_end),
            generic,
            usable_zones: usable.map(|device| device.geometry().zone_count),
            zone_capacity_bytes: usable.and_then(capacity).map(bytes),
            transfer_bytes_max: usable.map(|device| bytes(device.geometry().max_transfer_blocks)),
            problem: opened.as_ref().err().cloned(),
            uuid: volume.as_ref().map(|volume| volume.uuid.to_string()),
            label: volume.map(|volume| volume.label),
            mount_point,
            device: path,
        }
    }

    fn say(&self) -> Result<()> {
        let limit = |limit: Option<u32>| limit.map_or("any number".to_owned(), |n| n.to_string());
        say!("{}  {}", self.device.display(), self.model)?;
        say!(
            "    {} zones of {}, {} open and {} active at once, blocks of {}, appends of {} at most, {}",
            self.zone_count,
            show_bytes(self.zone_size_bytes),
            limit(self.max_open),
            limit(self.max_active),
            show_bytes(self.logical_block_bytes),
            show_bytes(self.append_bytes_max),
            if self.volatile_cache {
                "volatile write cache"
            } else {
                "no volatile write cache"
            }
        )?;
        match (self.back_end, self.usable_zones, &self.problem) {
            (Some(back_end), Some(zones), _) => say!(
                "    used by {back_end}: {zones} zones, {} of each writable, writes of {} at most",
                show_bytes(self.zone_capacity_bytes.unwrap_or(0)),
                show_bytes(self.transfer_bytes_max.unwrap_or(0)),
            )?,
            (Some(back_end), _, Some(problem)) => say!("    used by {back_end}: {problem}")?,
            (_, _, Some(problem)) => say!("    cannot be used: {problem}")?,
            _ => {}
        }
        if let Some(generic) = &self.generic {
            say!(
                "    also as {}, by nvme: past the block layer, with zone appends",
                generic.display()
            )?;
        }
        if let Some(uuid) = &self.uuid {
            let label = self.label.as_deref().filter(|label| !label.is_empty());
            let label = label.map(|label| format!(", label {}", shown(label)));
            say!("    holds the volume {uuid}{}", label.unwrap_or_default())?;
        }
        Ok(())
    }
}
