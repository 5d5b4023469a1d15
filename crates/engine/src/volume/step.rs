//! Background work, a step at a time: threads of the library call it in production, the simulator calls it in tests.

use std::fmt;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::reclaim::{Ahead, Demand};
use crate::zones::Keeping;

/// Background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Write some of the staged file data.
    WriteBack,
    /// The same if half of what may be staged is: what is overwritten or removed before need not be written.
    WriteBackIfDue,
    /// Write all staged file data and make everything durable: the periodic commit.
    Commit,
    /// Write a checkpoint if the journal or the dirty pages are three quarters of the way to their bounds,
    /// or what [`Options::checkpoint_due_percent`](crate::Options::checkpoint_due_percent) says.
    CheckpointIfDue,
    /// Write a checkpoint.
    Checkpoint,
    /// Clean ahead, a part of a victim, if free zones run low.
    CleanIfDue,
    /// Free the zones in which nothing is valid, if free zones run low. Beside cleaning, and does not wait for
    /// their resets.
    FreeIfDue,
    /// Wait for a reset under way, and send more.
    Reset,
    /// Give the space of a free zone back to the host, if it keeps some, or free the zones in which nothing is valid,
    /// whose space is the host's too, if no zone was taken since it was last seen to.
    GiveBackIfIdle,
    /// Clean one victim.
    Clean,
    /// Free the zones in which nothing is valid, by a checkpoint of the zones alone if that can be.
    FreeZones,
    /// Finish a truncation that a crash interrupted.
    Truncate,
    /// Remove some of what deleted snapshots alone held.
    Settle,
    /// Count some of what owners take, if that was turned on and is not counted yet.
    Count,
    /// Ask the device which zones have failed, and make the log independent of those that have.
    Examine,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Task::WriteBack | Task::WriteBackIfDue => "writing back what waits in memory",
            Task::Commit => "the periodic commit",
            Task::CheckpointIfDue | Task::Checkpoint => "writing a checkpoint",
            Task::CleanIfDue | Task::Clean => "cleaning",
            Task::FreeIfDue | Task::FreeZones => "freeing zones",
            Task::Reset => "resetting zones",
            Task::GiveBackIfIdle => "giving space back to the host",
            Task::Truncate => "finishing a truncation",
            Task::Settle => "removing what deleted snapshots held",
            Task::Count => "counting what owners take",
            Task::Examine => "looking for failed zones",
        })
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something; there may be more.
    Worked,
    /// There was nothing to do.
    Idle,
}

/// Does a piece of background work.
pub(super) fn run(engine: &Engine, task: Task) -> Result<Progress> {
    let store = &engine.store;
    store.check_writable()?;
    let done = |worked| {
        if worked {
            Progress::Worked
        } else {
            Progress::Idle
        }
    };
    match task {
        Task::WriteBackIfDue if !engine.space.write_back_is_due() => {
            Ok(done(engine.placement.pack_ahead()))
        }
        Task::WriteBack | Task::WriteBackIfDue => engine.data.write_back().map(done),
        Task::Commit => match engine.data.sync() {
            // Whoever asks for it is told; the log told of it when it was given up.
            Ok(()) | Err(Error::ItemDamaged { .. }) => Ok(Progress::Worked),
            Err(error) => Err(error),
        },
        Task::CheckpointIfDue if !engine.space.checkpoint_is_due() => Ok(Progress::Idle),
        Task::CheckpointIfDue | Task::Checkpoint => {
            engine.checkpoints.write().map(|()| Progress::Worked)
        }
        Task::CleanIfDue => engine.reclaimer.work_ahead(Ahead::Clean).map(done),
        Task::FreeIfDue => engine.reclaimer.work_ahead(Ahead::Free).map(done),
        Task::Reset => {
            let seen = store.zones.resets_ended();
            Ok(done(store.zones.complete_a_reset(&store.media, seen)))
        }
        Task::GiveBackIfIdle if !store.zones.none_taken_since_asked() => Ok(Progress::Idle),
        Task::GiveBackIfIdle => {
            let gave = |keeping| store.zones.give_a_zones_space_back(&store.media, keeping);
            Ok(done(
                gave(Keeping::Suspected) || engine.reclaimer.work_ahead(Ahead::FreeForHost)?,
            ))
        }
        Task::Clean => engine.reclaimer.clean_one().map(done),
        Task::FreeZones if store.zones.all_reclaimable_zones() == 0 => Ok(Progress::Idle),
        Task::FreeZones => engine.checkpoints.write_zones().map(|()| Progress::Worked),
        Task::Settle => engine.settler.settle_some().map(done),
        Task::Count => engine.quotas.count_some().map(done),
        Task::Truncate => engine.data.finish_a_truncation().map(done),
        Task::Examine => {
            store.note_failures(|| store.zones.examine_all(&store.media));
            engine
                .reclaimer
                .serve(Demand::SoundLog)
                .map(|()| Progress::Idle)
        }
    }
}
