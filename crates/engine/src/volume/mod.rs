//! A volume: the parts wired together, and what others may do with them.

use persimmon_sync::Arc;

use persimmon_device::ZonedDevice;
use std::ops::{ControlFlow, RangeBounds};

use persimmon_format::Key;
use persimmon_format::zone_header::VolumeIdentity;

mod clones;
mod files;
mod freezing;
mod inspect;
mod layout;
mod quota;
mod snapshots;
mod step;
mod syncs;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::meta::{Intent, Transaction, View};
use crate::options::{FormatOptions, Options};
use crate::recovery::{self, RecoveryReport};
use crate::store::{Activity, Standing};

pub use clones::Clones;
pub use freezing::Freezing;
pub use layout::Layout;
pub use quota::Quotas;
pub use snapshots::{HeldSpace, Snapshot, Snapshots};
pub use step::{Progress, Task};
pub use syncs::Syncs;

/// A mounted volume. Shared between threads; has none of its own and no clock: background work is
/// [`Volume::step`].
pub struct Volume {
    pub(crate) engine: Engine,
    /// All of it, though the volume may have fewer zones.
    pub(crate) device: std::sync::Arc<dyn ZonedDevice>,
}

impl Volume {
    /// Makes a volume on the whole device. Everything on it is lost.
    pub fn format(device: Arc<dyn ZonedDevice>, options: &FormatOptions) -> Result<()> {
        crate::mkfs::format(device, options)
    }

    /// Opens the volume on a device, recovering what is needed.
    pub fn open(
        device: Arc<dyn ZonedDevice>,
        options: Options,
    ) -> Result<(Volume, RecoveryReport)> {
        let (engine, report) = recovery::open(Arc::clone(&device), options)?;
        Ok((Volume { engine, device }, report))
    }

    /// Who the volume is.
    #[must_use]
    pub fn identity(&self) -> &VolumeIdentity {
        &self.engine.store.identity
    }

    /// Whether changes are refused, because it was opened so or because damage was found.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.engine.store.is_read_only()
    }

    /// Whether it takes changes, to be kept by whoever asks often.
    #[must_use]
    pub fn standing(&self) -> &Arc<Standing> {
        self.engine.store.standing()
    }

    /// Takes no changes from now on.
    pub fn make_read_only(&self) {
        self.engine.store.make_read_only()
    }

    /// Reads the metadata. The closure may run several times: a page that it misses is fetched
    /// and it begins again.
    pub fn view<R, E: From<Error>>(
        &self,
        f: impl FnMut(&View<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.engine.store.view(f)
    }

    /// Changes the metadata: one transaction, one redo record. The closure may run several times.
    pub fn update<R, E: From<Error>>(
        &self,
        intent: Intent,
        f: impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.engine.data.update(intent, f)
    }

    /// Operations that one transaction should have at most, where there is a choice. The pages of
    /// all of them must be in memory together, each may need several, and what is clean of them
    /// must fit the cache: else they would be fetched and evicted in turn for ever. And they make
    /// that many pages dirty before the next look at the bounds.
    #[must_use]
    pub fn transaction_ops_max(&self) -> usize {
        self.engine.store.transaction_ops_max()
    }

    /// Looks at each item in a range of keys, in order, and hands on what `pick` makes of it, until `visit` breaks. Holds no more in memory than what `pick` makes of 1,024 items.
    pub fn walk_while<T>(
        &self,
        keys: impl RangeBounds<Key>,
        pick: impl FnMut(Key, &[u8]) -> Option<T>,
        visit: impl FnMut(T) -> ControlFlow<()>,
    ) -> Result<()> {
        self.engine.store.walk_while(keys, pick, visit)
    }

    /// Has `call` told whenever a zone was taken for file data, so that there may be something to clean:
    /// long before the next look at it is due where much is written. It is called by whoever writes, and
    /// is not to wait. Only the first one given is called.
    pub fn on_zone_taken(&self, call: impl Fn() + Send + Sync + 'static) {
        self.engine.placement.on_zone_taken(call)
    }

    /// Does a piece of background work.
    pub fn step(&self, task: Task) -> Result<Progress> {
        if self.engine.store.media.gate.is_closing() {
            return Ok(Progress::Idle);
        }
        let progress = step::run(&self.engine, task);
        // One step may leave work for another.
        if task != Task::Commit && matches!(progress, Ok(Progress::Worked)) {
            self.engine.store.activity.note();
        }
        progress
    }

    /// Writes everything and makes it durable. The volume stays usable. One that is frozen is thawed.
    pub fn close(&self) -> Result<()> {
        Freezing::of(self).thaw();
        self.engine.close()
    }

    /// What there may be background work for.
    pub fn activity(&self) -> &Activity {
        &self.engine.store.activity
    }

    /// Whether a commit that succeeded has left nothing: no blocks are staged, and every record is durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let log = &self.engine.store.log;
        self.engine.space.staged_blocks() == 0 && log.durable() >= log.last_lsn()
    }
}
