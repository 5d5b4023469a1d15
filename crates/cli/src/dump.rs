//! `persimmon dump`: decodes any structure for people.

use anyhow::{Context, Result};
use clap::Args;
use persimmon::internal::device::ZonedDevice;
use persimmon_inspect::dump::{self, FORMS};
use persimmon_inspect::{InspectError, Inspector};
use serde::Serialize;
use std::ffi::OsString;

use crate::exit;
use crate::live::Target;
use crate::output;

/// Show a structure of a volume that is not mounted.
#[derive(Args)]
#[command(after_help = format!("What to show:\n{FORMS}\nwithout any: the volume in short"))]
pub struct Dump {
    /// Device, image file, LABEL= or UUID=
    device: OsString,
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
            Target::Live(dir) => return Err(crate::mounted::refusal(&dir, "")?),
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
