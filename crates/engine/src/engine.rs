//! The engine put together: each part is given those that it may call, so that calls go one way.

use persimmon_sync::Arc;

use crate::checkpoint::Checkpoints;
use crate::cleaning::Cleaner;
use crate::data::FileData;
use crate::error::{Error, Result};
use crate::history::History;
use crate::placement::Placement;
use crate::quota::Quotas;
use crate::reclaim::Reclaimer;
use crate::settling::Settler;
use crate::snapshots::Snapshots;
use crate::space::Space;
use crate::store::{Parts, Store};
use crate::zones::Keeping;
use persimmon_format::SubvolumeId;
use persimmon_format::inode::Timestamp;

/// A journal this short is left to the next mount to replay.
const SHORT_JOURNAL_BLOCKS: u64 = 16;
/// The same by the pages it changed.
const SHORT_JOURNAL_PAGES: usize = 16;

/// All parts, from the lowest to the highest.
pub(crate) struct Engine {
    pub(crate) store: Arc<Store>,
    pub(crate) space: Arc<Space>,
    pub(crate) placement: Arc<Placement>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) reclaimer: Arc<Reclaimer>,
    pub(crate) history: Arc<History>,
    pub(crate) settler: Arc<Settler>,
    pub(crate) data: FileData,
    pub(crate) snapshots: Snapshots,
    pub(crate) quotas: Quotas,
}

impl Engine {
    pub(crate) fn new(parts: Parts) -> Engine {
        let store = Arc::new(Store::new(parts));
        let space = Arc::new(Space::new(&store));
        let placement = Arc::new(Placement::new(&store, &space));
        let checkpoints = Arc::new(Checkpoints::new(&store, &space, &placement));
        let cleaner = Arc::new(Cleaner::new(&store, &space, &placement));
        let reclaimer = Reclaimer::new(&store, &space, &placement, &checkpoints, &cleaner);
        let reclaimer = Arc::new(reclaimer);
        let history = Arc::new(History::new(&store, &reclaimer));
        let settler = Arc::new(Settler::new(&store, &history));
        let data = FileData::new(&store, &space, &placement, &reclaimer, &history, &settler);
        let snapshots = Snapshots::new(&store, &history);
        let quotas = Quotas::new(&store, &space, &reclaimer, &history);
        Engine {
            store,
            space,
            placement,
            checkpoints,
            reclaimer,
            history,
            settler,
            data,
            snapshots,
            quotas,
        }
    }

    /// Takes a snapshot: of what was written before.
    pub(crate) fn take_snapshot(
        &self,
        of: SubvolumeId,
        name: &[u8],
        is_read_only: bool,
        now: Timestamp,
    ) -> Result<SubvolumeId> {
        self.data.take(of, || {
            // Nobody writes to it before what it inherits is known.
            let id = self.snapshots.next_id()?;
            let _held = self.data.hold_subvolume(id);
            let named = (name, is_read_only);
            self.snapshots.take(id, of, named, now)?;
            if !is_read_only {
                self.data.find_inherited_truncations(id)?;
            }
            Ok(id)
        })
    }

    /// Deletes a snapshot, and what is staged of it.
    pub(crate) fn delete_snapshot(&self, id: SubvolumeId) -> Result<()> {
        self.snapshots.check_deletable(id)?;
        let closed = self.data.close_subvolume(id)?;
        self.snapshots.delete(id).inspect_err(|_| {
            // It is still there, and may be written to again.
            if let Err(error) = self.data.find_inherited_truncations(id) {
                tracing::error!(%error, "truncations of a snapshot are not known");
            }
        })?;
        closed.stay();
        Ok(())
    }

    /// Has the main subvolume be as a snapshot is.
    pub(crate) fn roll_back(
        &self,
        to: SubvolumeId,
        keep: Option<&[u8]>,
        now: Timestamp,
    ) -> Result<()> {
        let roll_back = || self.snapshots.roll_back(to, keep, now);
        self.data.take(SubvolumeId::MAIN, roll_back)?;
        self.data.find_truncations()
    }

    /// Writes everything and makes it durable. The volume stays usable.
    pub(crate) fn close(&self) -> Result<()> {
        if self.store.options.read_only {
            return Ok(());
        }
        let synced = match self.data.sync() {
            // All else is durable.
            Err(error @ Error::ItemDamaged { .. }) => Err(error),
            other => Ok(other.inspect_err(|_| {
                self.store
                    .zones
                    .give_space_back(&self.store.media, Keeping::Known);
            })?),
        };
        // A next mount reads little then, however many files there are.
        if self.store.log.blocks_to_read() > SHORT_JOURNAL_BLOCKS
            || self.store.meta().cache.dirty() > SHORT_JOURNAL_PAGES
        {
            self.checkpoints.write()?;
        }
        self.store.zones.complete_resets(&self.store.media);
        self.store
            .zones
            .give_space_back(&self.store.media, Keeping::Known);
        self.store
            .log
            .tell_durable(&self.store.media, &self.store.zones)?;
        self.store.media.flush_in_the_end()?;
        synced
    }
}

/// An engine on a simulated device, for tests of its parts.
#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::meta::Intent;
    use crate::options::{FormatOptions, Options};
    use persimmon_format::Ino;
    use persimmon_format::inode::{Inode, Timestamp};
    use persimmon_sim::{SimConfig, SimDevice};

    pub(crate) const NOW: Timestamp = Timestamp {
        seconds: 1_700_000_000,
        nanoseconds: 7,
    };

    /// On a new volume.
    pub(crate) fn engine(config: SimConfig) -> Engine {
        let device = std::sync::Arc::new(SimDevice::new(config));
        crate::mkfs::format(device.clone(), &FormatOptions::default()).unwrap();
        crate::recovery::open(device, Options::default()).unwrap().0
    }

    /// An empty regular file.
    pub(crate) fn create(engine: &Engine) -> Ino {
        let made = engine.data.update::<_, Error>(Intent::Grow, |tx| {
            let ino = tx.new_ino();
            let inode = Inode {
                mode: 0o100_644,
                nlink: 1,
                ..Inode::default()
            };
            tx.put_inode(ino, &inode);
            Ok(ino)
        });
        made.unwrap()
    }
}
