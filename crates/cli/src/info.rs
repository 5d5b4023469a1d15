//! `persimmon info`: identity, geometry, space.

use anyhow::Result;
use clap::Args;
use persimmon::internal::format::shown;
use persimmon_fuse::size::show_bytes;
use std::ffi::OsString;

use crate::open::Subject;
use crate::output::{self, say};

/// Tell what a volume is.
#[derive(Args)]
pub struct InfoCommand {
    /// Device, image file, LABEL=, UUID=, or a directory of a live mount
    target: OsString,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl InfoCommand {
    pub fn run(&self) -> Result<u8> {
        let info = Subject::of(&self.target)?.info()?;
        if self.json {
            output::json(&info)?;
            return Ok(0);
        }
        let limit = |limit: Option<u32>| limit.map_or("no limit".into(), |n| n.to_string());
        let state = match (&info.mount_point, info.daemon_pid, info.clean) {
            (Some(dir), Some(pid), _) => {
                let of = info.subvolume.as_ref();
                let of = of.map_or_else(String::new, |name| format!(", subvolume {name}"));
                format!("mounted at {} by process {pid}{of}", dir.display())
            }
            (_, _, Some(false)) => {
                "not mounted; was not unmounted, the next mount recovers it".into()
            }
            _ => "not mounted, clean".into(),
        };
        let used = info.total_bytes.saturating_sub(info.available_bytes);
        let rows: &[(&str, String)] = &[
            ("device", info.device.display().to_string()),
            (
                "state",
                match info.mount_point {
                    Some(_) if info.frozen => format!("{state}, frozen"),
                    Some(_) if info.read_only => format!("{state}, read-only"),
                    _ => state,
                },
            ),
            ("UUID", info.uuid.clone()),
            (
                "label",
                if info.label.is_empty() {
                    "none".into()
                } else {
                    shown(&info.label).to_string()
                },
            ),
            ("format", format!("version {}", info.format_version)),
            (
                "features",
                match info.features.names() {
                    names if names.is_empty() => "none".into(),
                    names => names.join(", "),
                },
            ),
            (
                "zones",
                format!(
                    "{} of {}, {} writable",
                    info.zone_count,
                    show_bytes(info.zone_size_bytes),
                    show_bytes(info.zone_capacity_bytes)
                ),
            ),
            (
                "open, active",
                format!("{}, {}", limit(info.max_open), limit(info.max_active)),
            ),
            (
                "space",
                format!(
                    "{} of {} in use, {} available",
                    show_bytes(used),
                    show_bytes(info.total_bytes),
                    show_bytes(info.available_bytes)
                ),
            ),
            ("inodes", info.inodes.to_string()),
            (
                "copies",
                match info.copies {
                    // Stripe sets have two of all but file data with parity.
                    1 if info.data_copies > 1 || info.data_parity.is_some() => {
                        "2 of metadata, checkpoints and log, by stripe sets".into()
                    }
                    1 => "1 of metadata, checkpoints and log".into(),
                    copies => {
                        format!("{copies} of metadata, checkpoints and log, in pairs of zones")
                    }
                },
            ),
            (
                "file data",
                match (info.data_copies, info.data_parity) {
                    (2, _) => "2 copies, in pairs of zones, and so all else".into(),
                    (_, Some(zones)) => {
                        format!("parity for each {zones} zones, and 2 copies of all else")
                    }
                    _ => "1 copy".into(),
                },
            ),
            (
                "failed zones",
                match info.failed_zones {
                    0 => "none".into(),
                    zones => format!("{zones}, see `persimmon zones`"),
                },
            ),
        ];
        let mut rows = rows.to_vec();
        if let (Some(metadata), Some(data)) = (&info.metadata_device, &info.data_device) {
            let left = info.metadata_available_bytes;
            let used = info.metadata_total_bytes.saturating_sub(left);
            let space = format!(
                "{}: {} zones, {} of {} in use",
                metadata.display(),
                info.metadata_zones,
                show_bytes(used),
                show_bytes(info.metadata_total_bytes)
            );
            let others = info.zone_count.saturating_sub(info.metadata_zones);
            let data = format!("{}: {others} zones", data.display());
            rows.splice(1..1, [("metadata on", space), ("data on", data)]);
        }
        for (name, value) in rows {
            say!("{name:<14}{value}")?;
        }
        Ok(0)
    }
}
