//! Commands on a volume: asked of its daemon where it is mounted, else opened read-only, which
//! writes nothing.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use persimmon::internal::engine::{Error as EngineError, Options, Volume};

use crate::live::{self, Target};
use crate::report::{Info, Source, Stats, ZoneRow};

/// A volume to ask.
pub enum Subject {
    /// By its daemon.
    Live(std::path::PathBuf),
    /// Opened by this process.
    Opened(Box<Source>),
}

impl Subject {
    /// Finds or opens the volume.
    ///
    /// # Errors
    /// When there is none, or it is damaged too badly to be opened.
    pub fn of(spec: impl AsRef<OsStr>) -> Result<Subject> {
        Ok(match Target::of(spec)? {
            Target::Live(dir) => Subject::Live(dir),
            Target::Device(path) => Subject::Opened(Box::new(open(&path)?)),
        })
    }

    /// Identity and space.
    pub fn info(&self) -> Result<Info> {
        match self {
            Subject::Live(dir) => live::ask(dir, "info"),
            Subject::Opened(source) => Ok(source.info()),
        }
    }

    /// Counters.
    pub fn stats(&self) -> Result<Stats> {
        match self {
            Subject::Live(dir) => live::ask(dir, "stats"),
            Subject::Opened(source) => Ok(source.stats()),
        }
    }

    /// All zones, in order.
    pub fn zones(&self) -> Result<Vec<ZoneRow>> {
        let dir = match self {
            Subject::Live(dir) => dir,
            Subject::Opened(source) => return Ok(source.zones()),
        };
        let mut zones: Vec<ZoneRow> = Vec::new();
        loop {
            let page: Vec<ZoneRow> = live::ask(dir, &format!("zones.{}", zones.len()))?;
            if page.is_empty() {
                return Ok(zones);
            }
            zones.extend(page);
        }
    }
}

/// Why a volume cannot be opened, and what may save it: where one is, nobody is to make a new one.
pub fn unopened(path: &Path, error: &EngineError) -> anyhow::Error {
    let path = path.display();
    match error {
        EngineError::Damaged { .. } | EngineError::Inconsistent(_) => anyhow!(
            "{path}: a Persimmon volume that is damaged: {error}; `persimmon fsck --repair` or `persimmon recover` may \
             save it; do not run mkfs"
        ),
        error => anyhow!("{path}: {error}"),
    }
}

fn open(path: &Path) -> Result<Source> {
    let device = Arc::new(crate::device::open(path, true)?);
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let (volume, recovery) =
        Volume::open(Arc::clone(&device) as _, options).map_err(|error| unopened(path, &error))?;
    Ok(Source::new(Arc::new(volume), &device, true).opened(&recovery))
}
