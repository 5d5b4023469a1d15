//! What there is to see of a volume, to check, and to put right.

use std::collections::{BTreeMap, BTreeSet};

use persimmon_format::record::Op;
use persimmon_format::{Ino, Key, KeyKind, Lsn, ZoneId};

use super::Volume;
use crate::engine::Engine;
use crate::error::Result;
use crate::losses::{self, Losses};
use crate::paths;
use crate::reclaim::CleanStep;
use crate::repair::Repair;
use crate::scrub::{Damage, Scrub, ScrubCursor, ScrubStep};
use crate::statistics::Statistics;
use crate::tuning::{self, Threshold, TuneError};
use crate::zones::table::ZoneStatus;
use crate::zones::trace::Traced;

impl Volume {
    /// Inodes without a name, left by a crash or still open.
    pub fn orphans(&self) -> Result<Vec<Ino>> {
        let mut orphans = Vec::new();
        let orphan = |key: Key, _: &[u8]| Some(Ino(key.item).of(key.ino.subvolume()));
        let store = &self.engine.store;
        let subvolumes = store.meta().versions.writable();
        for subvolume in subvolumes {
            let owner = Key::GLOBAL.of(subvolume);
            let first = Key::new(owner, KeyKind::ORPHAN, 0);
            let end = Key::new(owner, KeyKind::TRUNCATION, 0);
            store.walk(first..end, orphan, |ino| orphans.push(ino))?;
        }
        Ok(orphans)
    }

    /// Counters since the volume was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            staged_bytes_peak: self.engine.space.staged_blocks_peak()
                * persimmon_device::BLOCK_SIZE as u64,
            dedup_table_bytes: self.engine.data.dedup_table_bytes() as u64,
            ..self.engine.store.media.counters.snapshot()
        }
    }

    /// Zones that have failed or are retired.
    #[must_use]
    pub fn failed_zones(&self) -> u32 {
        self.engine.store.zones.failed_zones()
    }

    /// All zones.
    #[must_use]
    pub fn zones(&self) -> Vec<ZoneStatus> {
        self.engine.store.zones.status()
    }

    /// So many zones at most, from this number on; looks at no others.
    #[must_use]
    pub fn zones_from(&self, from: usize, zones_max: usize) -> Vec<ZoneStatus> {
        self.engine.store.zones.status_from(from, zones_max)
    }

    /// What happened to zones lately, from event number `from` on, at most so many.
    #[must_use]
    pub fn trace(&self, from: u64, events_max: usize) -> Traced {
        self.engine.store.zones.trace.read(from, events_max)
    }

    /// Metadata pages in memory, and how many of them are dirty.
    #[must_use]
    pub fn cached_pages(&self) -> (usize, usize) {
        let meta = self.engine.store.meta();
        (meta.cache.resident(), meta.cache.dirty())
    }

    /// Empties a zone, or writes the checkpoint that frees those that are empty: until
    /// `free_zones` are free, or, without a number, nothing is left that cleaning could win.
    ///
    /// # Errors
    /// The volume is read-only, or the device failed.
    pub fn clean_step(&self, free_zones: Option<u32>) -> Result<CleanStep> {
        self.engine.reclaimer.clean_step(free_zones)
    }

    /// What is lost of files with zones that are offline; `ranges_max` ranges are told.
    pub fn losses(&self, ranges_max: usize) -> Result<Losses> {
        losses::losses(&self.engine.store, ranges_max)
    }

    /// A path of each of these inodes, from the root; none for what has no name, or whose name
    /// lies behind a damaged page.
    #[must_use]
    pub fn paths(&self, inos: &BTreeSet<Ino>) -> BTreeMap<Ino, Vec<u8>> {
        paths::paths(&self.engine.store, inos)
    }

    /// Bytes that a scrub reads as of now.
    #[must_use]
    pub fn scrub_bytes(&self) -> u64 {
        scrub(&self.engine).bytes()
    }

    /// Verifies about the next `blocks_max` blocks. Begin with the default cursor. Where the log is damaged, a checkpoint is written: what the
    /// log told is in memory, and the next recovery would miss it.
    ///
    /// # Errors
    /// None that stands for damage: those are findings.
    pub fn scrub_step(&self, cursor: ScrubCursor, blocks_max: u64) -> Result<ScrubStep> {
        let mut step = scrub(&self.engine).step(cursor, blocks_max)?;
        if self.engine.store.check_writable().is_err() {
            return Ok(step);
        }
        let of_log = step.findings.iter_mut();
        let mut of_log = of_log.filter(|it| it.damage == Damage::Log).peekable();
        if of_log.peek().is_some() {
            let outcome = match self.engine.checkpoints.write() {
                Ok(()) => "; a new checkpoint has what it told".to_owned(),
                Err(error) => format!("; no checkpoint could be written in its place: {error}"),
            };
            of_log.for_each(|it| it.reason.push_str(&outcome));
        }
        Ok(step)
    }

    /// Puts and deletes items as a check has planned, and, if asked to, counts again what the checkpoint's tables claim. Finishes the
    /// truncations that there are then, those that the plan began among them, if the plan was not `partial`. A checkpoint ends it.
    /// Operations other than put and delete are not planned, and refused.
    pub fn repair(&self, ops: &[Op], recount: bool, partial: bool) -> Result<()> {
        Repair(&self.engine).carry_out(ops, recount, partial)
    }

    /// Moves everything out of these zones; a checkpoint then resets them. What cannot be read
    /// stays where it is.
    pub fn empty_zones(&self, zones: &[ZoneId]) -> Result<()> {
        Repair(&self.engine).empty_zones(zones)
    }

    /// The thresholds and their values.
    #[must_use]
    pub fn thresholds(&self) -> Vec<(Threshold, u64)> {
        tuning::thresholds(&self.engine)
    }

    /// Changes thresholds: all of these, or, where one of them cannot be so, none.
    ///
    /// # Errors
    /// See [`TuneError`].
    pub fn tune<'a>(
        &self,
        changes: impl Iterator<Item = (&'a str, u64)> + Clone,
    ) -> Result<(), TuneError> {
        tuning::tune(&self.engine, changes)
    }

    /// Everything that the opening before this one has kept outside of the volume is in it, or is given up. All that is written from now
    /// on has this opening's number: drawn at random, so that two histories that part never have the same.
    ///
    /// Nothing else may go on in the volume meanwhile.
    pub fn begin_opening(&self, number: u32) {
        self.engine.store.log.begin_opening(number);
    }

    /// Has the number outlive this process, as it must before anything is kept outside of the volume. Later calls cost nothing.
    pub fn tell_opening(&self) -> Result<()> {
        self.engine.store.check_writable()?;
        self.engine
            .store
            .log
            .tell_opening(&self.engine.store.media, &self.engine.store.zones)
    }

    /// A record that the next opening will find if this process dies: the last one written so far. `None` where data could not be
    /// written: the history might end before it then, until the next checkpoint.
    pub fn recorded(&self) -> Result<Option<Lsn>> {
        let written = self.engine.store.log.recorded();
        // Another thread's write may have completed without outliving the process yet.
        self.engine.store.media.record()?;
        Ok(written)
    }
}

fn scrub(engine: &Engine) -> Scrub<'_> {
    Scrub {
        store: &engine.store,
        data: &engine.data,
    }
}
