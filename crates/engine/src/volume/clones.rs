//! Making files with the content of others.

use persimmon_format::Ino;

use super::Volume;
use crate::data::HeldSources;
use crate::engine::Engine;

/// Files of a volume that become clones.
#[derive(Clone, Copy)]
pub struct Clones<'a> {
    engine: &'a Engine,
}

impl<'a> Clones<'a> {
    /// Of an open volume.
    #[must_use]
    pub fn of(volume: &'a Volume) -> Clones<'a> {
        Clones {
            engine: &volume.engine,
        }
    }

    /// Calls `f` while nobody changes any of these files, so that new ones can get all that they have. Whoever asks for many at a time holds up
    /// whoever writes to one of them.
    pub fn hold<R>(&self, sources: &[Ino], f: impl FnOnce(&HeldSources<'_>) -> R) -> R {
        self.engine.data.hold_sources(sources, f)
    }
}
