//! Making a file, or everything, durable.

use std::collections::BTreeSet;

use persimmon_format::{Ino, SubvolumeId};

use super::FileData;
use super::write_back::{Mode, collect};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault, unless};
use crate::options::FsyncOrder;

/// Most blocks whose record is sent along with them while other files are synced as well (128 KiB). A sync waits for the data of all
/// records before its own, so the record of a large sync is held back until its data is there: it comes a tenth later at most, and
/// nobody waits for more than its own data and that of small syncs.
const BESIDE_BLOCKS_MAX: u64 = 32;

impl FileData {
    /// Staged data of a file enters the history. Nothing is made durable.
    pub fn commit_file(&self, ino: Ino) -> Result<()> {
        self.write_back_file(ino, Mode::Background).map(|_| ())
    }

    /// Takes a snapshot, or changes of which the main subvolume is one: what is staged of a subvolume enters the history before, and nothing is
    /// staged that takes no room.
    pub(crate) fn take<R>(
        &self,
        subvolume: SubvolumeId,
        take: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        self.snapshot_fence.take(|| {
            unless(Fault::SnapshotWithoutStaged, || self.commit_all(subvolume))?;
            // After this no extent names a place where its data failed to arrive.
            self.retry_rewrites()?;
            take()
        })
    }

    pub(super) fn commit_all(&self, subvolume: SubvolumeId) -> Result<()> {
        self.write_back_staged();
        for ino in self.files.all() {
            if ino.subvolume() == subvolume {
                match self.commit_file(ino) {
                    // Of such a file nothing is staged that could be written.
                    Ok(()) | Err(Error::ItemDamaged { .. }) => self.files.forget_if_clean(ino),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Makes a file durable, with everything that happened before.
    pub fn sync_file(&self, ino: Ino) -> Result<()> {
        self.retry_rewrites()?;
        let beside_max = if self.files.note_sync(Some(ino)) {
            u64::MAX
        } else {
            BESIDE_BLOCKS_MAX
        };
        match self.write_back_file(ino, self.sync_mode(beside_max))? {
            Some(()) => {
                self.placement.pack_ahead();
                Ok(())
            }
            None if fault(Fault::CleanFileNotSynced) => Ok(()),
            None => self.history.commit(self.store.log.last_lsn()),
        }
    }

    fn sync_mode(&self, beside_max: u64) -> Mode {
        match self.store.options.fsync {
            _ if fault(Fault::UnsafeClassic) => Mode::SyncInOrder,
            // A place that a record names is not written again, and with it goes the rest of its zone.
            _ if self.store.zones.host_is_full() => Mode::SyncInOrder,
            // A snapshot waits until the data of all records has arrived. Without new ones that ends.
            _ if self.snapshot_fence.is_taking() => Mode::SyncInOrder,
            FsyncOrder::WritePointer => Mode::Sync { beside_max },
            FsyncOrder::Strict => Mode::SyncInOrder,
        }
    }

    /// Makes files durable, each with everything that happened before. Those with little to write share one batch, one record and one
    /// commit, so the callers of many syncs wait for one. Answers for each file.
    pub(crate) fn sync_files(&self, inos: &[Ino]) -> Vec<Result<()>> {
        let together = match inos {
            [_] => BTreeSet::new(),
            // What is wrong with one file, its own sync tells.
            inos => self.sync_small(inos).unwrap_or_default(),
        };
        let sync = |ino: &Ino| match together.contains(ino) {
            true => Ok(()),
            false => self.sync_file(*ino),
        };
        inos.iter().map(sync).collect()
    }

    /// Syncs those of which little is staged, and that no batch has now: nobody waits here for a file while another is collected.
    /// Tells which.
    fn sync_small(&self, inos: &[Ino]) -> Result<BTreeSet<Ino>> {
        self.retry_rewrites()?;
        self.store.check_writable()?;
        self.files.note_sync(None);
        let mut synced = BTreeSet::new();
        let mut batch = Vec::new();
        let mut blocks = 0;
        for ino in inos.iter().copied().collect::<BTreeSet<Ino>>() {
            if let Some(file) = self.files.get(ino) {
                let staged = file.lock();
                let more = blocks + staged.dirty_blocks();
                if staged.busy || staged.damage.is_some() || more > BESIDE_BLOCKS_MAX {
                    continue;
                }
                blocks = more;
                batch.extend(collect(ino, &file, staged));
            }
            synced.insert(ino);
        }
        if batch.is_empty() {
            self.history.commit(self.store.log.last_lsn())?;
        } else {
            self.write_back_batch(batch, self.sync_mode(BESIDE_BLOCKS_MAX))?;
            self.placement.pack_ahead();
        }
        Ok(synced)
    }

    /// Has a file outlive the death of this process, with everything that happened before: it is in the hands of the device,
    /// or of the host's kernel, but may be in a cache that the power empties.
    pub fn record_file(&self, ino: Ino) -> Result<()> {
        self.retry_rewrites()?;
        match self.write_back_file(ino, Mode::Recorded)? {
            Some(()) => {
                self.placement.pack_ahead();
                Ok(())
            }
            None => self.record(),
        }
    }

    /// Has the history outlive the death of this process, without what is staged.
    pub(crate) fn record(&self) -> Result<()> {
        self.retry_rewrites()?;
        self.history.record(self.store.log.last_lsn())
    }

    /// Writes back what is staged now, in batches of many files. Data written meanwhile is not waited for, and the caller looks at what could not
    /// be written.
    fn write_back_staged(&self) {
        let mut left = self.space.staged_blocks();
        while left > 0 {
            match self.write_back_queued() {
                Ok(0) | Err(_) => break,
                Ok(written) => left = left.saturating_sub(written),
            }
        }
    }

    /// Makes everything durable. Where some file finds no room, or fails, the others do all the same. As long as there is
    /// a file of which something was given up because its items are damaged, not everything is: that is
    /// [`Error::ItemDamaged`], if nothing worse is wrong.
    pub fn sync(&self) -> Result<()> {
        let written = self.write_back_all();
        worse(written, self.sync_metadata())
    }

    /// Has everything outlive the death of this process: it is written as by a sync, but the device flushes nothing.
    pub(crate) fn record_all(&self) -> Result<()> {
        let written = self.write_back_all();
        worse(written, self.record())
    }

    fn write_back_all(&self) -> Result<()> {
        let mut written = self.retry_rewrites();
        self.write_back_staged();
        for ino in self.files.all() {
            let one = self.write_back_file(ino, Mode::Background);
            written = worse(written, one.map(|_| ()));
            // A file that was in use when its last batch was committed is still in the table.
            self.files.forget_if_clean(ino);
        }
        written
    }
}

/// What to answer of two results: damage in one file tells less than that all others are not durable either.
fn worse(one: Result<()>, other: Result<()>) -> Result<()> {
    match (one, other) {
        (Ok(()) | Err(Error::ItemDamaged { .. }), Err(error)) => Err(error),
        (one, _) => one,
    }
}

#[cfg(test)]
#[cfg(not(interleave))]
mod tests {
    use crate::engine::tests::{NOW, create, engine};
    use crate::zones::locked::TAKEN;
    use persimmon_sim::SimConfig;

    /// What a small fsync asks of the zones it asks of counts. It takes the lock of their table to take a writer, to give it back, and to
    /// note what the log has written.
    #[test]
    fn a_small_fsync_takes_the_lock_of_the_zones_three_times() {
        let engine = engine(SimConfig::new(1000, 256));
        let ino = create(&engine);
        let mut random = 1u32;
        let mut noise = |blocks: usize| -> Vec<u8> {
            let bytes = std::iter::repeat_with(|| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 24) as u8
            });
            bytes.take(blocks * 4096).collect()
        };
        engine.data.write(ino, 0, &noise(16), NOW).unwrap();
        engine.data.sync_file(ino).unwrap();
        for block in 0..8 {
            let before = engine.store.media.counters.snapshot().data_bytes;
            engine
                .data
                .write(ino, 4096 * block, &noise(1), NOW)
                .unwrap();
            let taken = TAKEN.get();
            engine.data.sync_file(ino).unwrap();
            let taken = TAKEN.get() - taken;
            assert_eq!(
                engine.store.media.counters.snapshot().data_bytes - before,
                4096
            );
            assert!(taken <= 3, "block {block}: {taken}");
        }
    }
}
