//! `persimmon dump`: decodes any structure for people.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use persimmon::internal::device::ZonedDevice;
use persimmon_fuse::mounts;
use persimmon_inspect::dump::{self, FORMS};
use persimmon_inspect::{InspectError, Inspector};
use serde::Serialize;

use crate::exit;
use crate::live::{self, Target};
use crate::output;
use crate::report::Info;

/// Show a structure of a volume that is not mounted.
#[derive(Args)]
#[command(after_help = format!("What to show:\n{FORMS}\nwithout any: the volume in short"))]
pub struct Dump {
    /// Device, image file, LABEL= or UUID=
    device: String,
    /// What to show
    what: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Dump {
    pub fn run(&self) -> Result<u8> {
        let path = match Target::of(&self.device)? {
            Target::Device(path) => path,
            Target::Live(dir) => return Err(refusal(&dir)?),
        };
        let device = crate::device::open(&path, true)?;
        let inspector = Inspector::open(&device as &dyn ZonedDevice)
            .with_context(|| path.display().to_string())?;
        if self.what.is_empty() {
            return self.show(&inspector.volume());
        }
        let target = dump::Target::parse(&inspector, &self.what).map_err(|error| match error {
            InspectError::Request(message) => exit::usage(message),
            other => other.into(),
        })?;
        self.show(&dump::dump(&inspector, &target)?)
    }

    fn show(&self, structure: &impl Serialize) -> Result<u8> {
        if self.json {
            output::json(structure)?;
        } else {
            output::print(dump::text(structure))?;
        }
        Ok(0)
    }
}

/// Why there is nothing to dump in a directory.
fn refusal(dir: &Path) -> Result<anyhow::Error> {
    let is_mount_point = mounts::at(dir)
        .context("/proc/self/mountinfo")?
        .is_some_and(|line| line.is_persimmon());
    let place = match live::ask::<Info>(dir, "info") {
        Ok(info) => info.mount_point.unwrap_or_else(|| dir.to_owned()),
        // A daemon that does not answer is one all the same.
        Err(_) if is_mount_point => dir.to_owned(),
        Err(error) if live::may_be_mounted(&error) => return Ok(error),
        Err(_) => {
            return Ok(anyhow!(
                "{} is a directory, and no Persimmon volume is mounted there; name a device or an \
                 image",
                dir.display()
            ));
        }
    };
    Ok(anyhow!(
        "mounted at {0}; `umount {0}` first",
        place.display()
    ))
}
