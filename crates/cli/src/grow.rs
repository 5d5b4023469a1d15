//! `persimmon grow`: gives a volume more zones.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use persimmon::internal::device::{BLOCK_SIZE, drive, pair};
use persimmon::internal::format::shown::shown;
use persimmon::{AddMetadata, DeviceError, Error, Filesystem, Grow};
use persimmon_fuse::size::{parse_bytes, show_bytes};
use serde::Serialize;

use crate::device::patiently;
use crate::live::Target;
use crate::mounted::refusal;
use crate::output::{self, say};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Give a volume that is not mounted more zones
#[derive(Args)]
pub struct GrowCommand {
    /// Device, image file, LABEL= or UUID=
    target: OsString,
    /// Size that an image becomes, in whole zones [default: that of its file or device]
    #[arg(long, value_parser = parse_bytes, allow_hyphen_values = true)]
    size: Option<u64>,
    /// The same of the image for metadata, of a volume on two devices
    #[arg(long, value_parser = parse_bytes, allow_hyphen_values = true)]
    meta_size: Option<u64>,
    /// Have this device, or image file, hold the log and metadata from now on; `--meta-size` limits how much of it is used
    #[arg(long, conflicts_with = "size")]
    add_meta: Option<PathBuf>,
    /// Overwrite what the zones hold that the volume gets
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Serialize)]
struct Grown {
    #[serde(serialize_with = "crate::output::path_as_text")]
    device: PathBuf,
    grown: bool,
    zones_before: u32,
    zone_count: u32,
    user_bytes_before: u64,
    user_bytes: u64,
}

impl GrowCommand {
    pub fn run(&self) -> Result<u8> {
        let path = unmounted(&self.target)?;
        let growth = used_alone(|wait_for_lock| {
            if let Some(metadata) = &self.add_meta {
                let add = AddMetadata {
                    size_bytes: self.meta_size,
                    force: self.force,
                    wait_for_lock,
                };
                return Filesystem::add_metadata(&path, metadata, &add);
            }
            let grow = Grow {
                size_bytes: self.size,
                metadata_size_bytes: self.meta_size,
                overwrite: self.force,
                wait_for_lock,
            };
            Filesystem::grow(&path, &grow)
        })?;
        let grown = Grown {
            device: match &self.add_meta {
                Some(metadata) => drive::canonical(&pair::uri(metadata, &path))?,
                None => path,
            },
            grown: !growth.is_none(),
            zones_before: growth.zones_before,
            zone_count: growth.zones,
            user_bytes_before: growth.user_blocks_before * BLOCK,
            user_bytes: growth.user_blocks * BLOCK,
        };
        let said = if self.json {
            output::json(&grown)
        } else {
            tell(&grown)
        };
        output::done(0, said)
    }
}

fn tell(grown: &Grown) -> Result<()> {
    let device = grown.device.display();
    if !grown.grown {
        say!(
            "{device}: the volume has all {} zones of it already; nothing was changed",
            grown.zone_count
        )?;
        return Ok(());
    }
    say!(
        "{device}: {} zones became {}, and room for {} of files {}",
        grown.zones_before,
        grown.zone_count,
        show_bytes(grown.user_bytes_before),
        show_bytes(grown.user_bytes)
    )?;
    Ok(())
}

/// The device or image of a volume that is not mounted.
///
/// # Errors
/// There is none, or it is mounted.
pub fn unmounted(spec: &OsStr) -> Result<PathBuf> {
    match Target::of(spec)? {
        Target::Device(path) => Ok(path),
        // The directory may be any on the mount.
        Target::Live(dir) => Err(refusal(&dir, "")?.context(shown(spec.as_bytes()).to_string())),
    }
}

/// Does something with a volume that this process has to have for itself, and waits for others to let go of it.
///
/// # Errors
/// Those of `attempt`; [`DeviceError::Busy`].
pub fn used_alone<T>(
    mut attempt: impl FnMut(std::time::Duration) -> persimmon::Result<T>,
) -> Result<T> {
    let mut other = None;
    let done = patiently(|wait| match attempt(wait) {
        Ok(done) => Ok(Some(done)),
        Err(Error::Device(busy @ DeviceError::Busy { .. })) => Err(busy),
        Err(error) => {
            other = Some(error);
            Ok(None)
        }
    })?;
    match (done, other) {
        (Some(done), _) => Ok(done),
        (None, Some(error)) => Err(error.into()),
        (None, None) => anyhow::bail!("nothing was done"),
    }
}
