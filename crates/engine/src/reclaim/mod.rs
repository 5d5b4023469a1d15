//! Reclaim: the only caller of cleaning and of checkpoints. Who needs room, or is about to change something, comes here and waits here.

use persimmon_sync::Arc;

mod ahead;
mod demand;
mod foreground;
mod host;
mod low_space;
mod throttle;

use crate::checkpoint::Checkpoints;
use crate::cleaning::{Cleaner, CleaningCursor};
use crate::error::Result;
use crate::fair_lock::FairLock;
use crate::placement::{Lack, Placement, Places, Placing, ToPlace};
use crate::space::Space;
use crate::statistics::add;
use crate::store::Store;
use crate::zones::table::ZoneStatus;
use crate::zones::{Run, Stream};

pub use demand::{CleanState, CleanStep};
use throttle::CleaningDebt;

/// Blocks moved at once.
const MOVE_BLOCKS: u64 = 1024;
/// Rounds without a zone gained before the volume counts as full.
const ROUNDS_MAX: usize = 64;
/// A round that wins less than this share of a zone has won nothing.
const WON_SHARE_MIN: u64 = 64;
/// Records buffered before somebody writes them without being asked, bytes.
const BUFFERED_BYTES_MAX: usize = 1 << 20;

/// See the module.
pub(crate) struct Reclaimer {
    store: Arc<Store>,
    space: Arc<Space>,
    placement: Arc<Placement>,
    checkpoints: Arc<Checkpoints>,
    cleaner: Arc<Cleaner>,
    /// One thread at a time moves blocks.
    cleaning_lock: FairLock,
    cleaning_debt: CleaningDebt,
}

impl Reclaimer {
    pub(crate) fn new(
        store: &Arc<Store>,
        space: &Arc<Space>,
        placement: &Arc<Placement>,
        checkpoints: &Arc<Checkpoints>,
        cleaner: &Arc<Cleaner>,
    ) -> Reclaimer {
        Reclaimer {
            store: Arc::clone(store),
            space: Arc::clone(space),
            placement: Arc::clone(placement),
            checkpoints: Arc::clone(checkpoints),
            cleaner: Arc::clone(cleaner),
            cleaning_lock: FairLock::default(),
            cleaning_debt: CleaningDebt::default(),
        }
    }

    /// Waits for a checkpoint where journal or changed pages have reached their bounds, and writes
    /// records that have piled up. What a checkpoint under way has not written yet counts: until
    /// it is durable a recovery would have to change those pages too.
    pub(crate) fn keep_bounds(&self) -> Result<()> {
        if self.store.log.buffered_bytes() > BUFFERED_BYTES_MAX {
            self.store.log.write(
                &self.store.media,
                &self.store.zones,
                self.store.log.last_lsn(),
            )?;
        }
        let full = || self.space.pages_are_many() || self.space.journal_is_full();
        if full() {
            add(&self.store.media.counters.stalls, 1);
            self.store
                .zones
                .shorten_journal(self.store.log.blocks_to_replay());
            self.checkpoints.write_if(full)?;
        }
        Ok(())
    }

    /// Waits for a checkpoint where changed pages have reached their bound.
    pub(crate) fn keep_dirty_bound(&self) -> Result<()> {
        if self.space.pages_are_many() {
            self.checkpoints.write_if(|| self.space.pages_are_many())
        } else {
            Ok(())
        }
    }

    /// Waits for resets under way while the caller `is_short` of zones. Returns whether it still is.
    fn await_resets(&self, is_short: impl Fn() -> bool) -> bool {
        loop {
            let seen = self.store.zones.resets_ended();
            if !is_short() {
                return false;
            }
            if !self.store.zones.complete_a_reset(&self.store.media, seen) {
                return true;
            }
        }
    }

    /// Writes a checkpoint.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.checkpoints.write()
    }

    /// Frees the zones in which nothing is valid.
    pub(crate) fn checkpoint_zones(&self) -> Result<()> {
        self.checkpoints.write_zones()
    }

    /// Where a zone of the log has failed, what is in it may be lost, and later records cannot be
    /// replayed without it: a checkpoint makes them needless. Before that nothing more is
    /// acknowledged.
    pub(crate) fn secure_log(&self) -> Result<()> {
        if self.store.zones.log_is_failing() {
            self.checkpoints
                .write_if(|| self.store.zones.log_is_failing())?;
        }
        Ok(())
    }

    /// A step of cleaning, for which there is room: what it may need is won before it begins. False when there is nothing more to do.
    fn advance(&self, cursor: &mut CleaningCursor, blocks_max: u64) -> Result<bool> {
        if cursor.is_to_move() {
            self.keep_metadata_zones()?;
            self.keep_bounds()?;
        } else if cursor.is_to_mark() {
            self.keep_dirty_bound()?;
        }
        self.cleaner.advance(cursor, blocks_max)
    }

    /// Empties a victim as far as that can be.
    pub(crate) fn clean(&self, victim: &ZoneStatus) -> Result<()> {
        let mut cursor = self.cleaner.begin_cursor(victim);
        while self.advance(&mut cursor, MOVE_BLOCKS)? {}
        Ok(())
    }

    /// Places runs, and wins room where zones run out, if that may be. After an error some may have found a place.
    pub(crate) fn place(
        &self,
        stream: Stream,
        placing: Placing<'_>,
        runs: Vec<Run>,
        places: &mut Places,
    ) -> Result<()> {
        if placing.makes_room() {
            self.throttle(runs.iter().map(|run| u64::from(run.data.blocks())).sum());
        }
        let mut to_place = ToPlace::new(runs);
        loop {
            match self
                .placement
                .place(stream, placing, &mut to_place, places)?
            {
                Lack::Nothing => return Ok(()),
                Lack::HostSpace(_) if self.free_for_host() => {}
                Lack::HostSpace(error) => return Err(self.placement.why_no_writer(placing, error)),
                Lack::Room => match self.make_room() {
                    Err(error) if error.is_want_of_zones() => to_place.give_up_on_room(),
                    other => other?,
                },
            }
        }
    }
}
