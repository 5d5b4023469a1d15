//! Making several files durable at once.

use persimmon_format::Ino;

use super::Volume;
use crate::engine::Engine;
use crate::error::Result;

/// Syncs of a volume whose callers wait together.
#[derive(Clone, Copy)]
pub struct Syncs<'a> {
    engine: &'a Engine,
}

impl<'a> Syncs<'a> {
    /// Of an open volume.
    #[must_use]
    pub fn of(volume: &'a Volume) -> Syncs<'a> {
        Syncs {
            engine: &volume.engine,
        }
    }

    /// Makes files durable as [`Volume::sync_file`] does each, and answers for each. Those with little to write share one record and one
    /// commit.
    #[must_use]
    pub fn files(&self, inos: &[Ino]) -> Vec<Result<()>> {
        self.engine.data.sync_files(inos)
    }

    /// Has all changes of names and attributes that were made before this call outlive the death of this process; the power may take
    /// them. What was written to files and is staged stays staged.
    pub fn record(&self) -> Result<()> {
        self.engine.data.record()
    }

    /// The same of everything, with what was written to files.
    ///
    /// # Errors
    /// As of [`Volume::sync`].
    pub fn record_all(&self) -> Result<()> {
        self.engine.data.record_all()
    }
}
