//! `persimmon dump`: decodes any structure for people.

use anyhow::{Context, Result, bail};
use clap::Args;
use persimmon_device::{Drive, OpenOptions, ZonedDevice};
use persimmon_inspect::Inspector;
use persimmon_inspect::dump::{self, FORMS};

use crate::daemon::LOCK_WAIT_MAX;
use crate::live::Target;
use crate::output;

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
            Target::Live(dir) => bail!("mounted at {0}; `umount {0}` first", dir.display()),
        };
        let device = Drive::open(
            &path,
            &OpenOptions {
                read_only: true,
                wait_for_lock: LOCK_WAIT_MAX,
            },
        )?;
        let inspector = Inspector::open(&device as &dyn ZonedDevice)
            .with_context(|| path.display().to_string())?;
        if self.what.is_empty() {
            // Few fields, whose names say it all.
            output::json(&inspector.volume())?;
            return Ok(0);
        }
        let target = dump::Target::parse(&inspector, &self.what)?;
        let shown = dump::dump(&inspector, &target)?;
        if self.json {
            output::json(&shown)?;
        } else {
            print!("{}", dump::text(&shown));
        }
        Ok(0)
    }
}
