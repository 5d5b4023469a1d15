//! What loads without threads do for a volume themselves: what is due in the background, files without names, and names
//! without times.

use std::sync::Arc;

use persimmon_engine::{Error, Intent, Progress, Task, Volume};
use persimmon_format::Ino;
use persimmon_format::inode::{Inode, Timestamp};
use persimmon_vfs::{AccessTimes, Clock, Options, Vfs};

/// Steps of one kind taken at once.
const STEPS_MAX: u32 = 64;

/// Does what is due. No room is no error: who writes is told.
pub(crate) fn background(volume: &Volume) -> Result<(), Error> {
    for task in [
        Task::CheckpointIfDue,
        Task::FreeIfDue,
        Task::Reset,
        Task::CleanIfDue,
    ] {
        for _ in 0..STEPS_MAX {
            match volume.step(task) {
                Ok(Progress::Worked) => {}
                Ok(Progress::Idle) | Err(Error::NoSpace) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Makes an empty file that is in no directory.
pub(crate) fn nameless_file(volume: &Volume) -> Result<Ino, Error> {
    volume.update::<_, Error>(Intent::Grow, |tx| {
        let ino = tx.new_ino();
        let inode = Inode {
            mode: libc::S_IFREG | 0o644,
            nlink: 1,
            ..Inode::default()
        };
        tx.put_inode(ino, &inode);
        Ok(ino)
    })
}

/// Files have no times here.
struct NoClock;

impl Clock for NoClock {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
}

/// The names of a volume. Nothing depends on the time, and reading changes nothing.
pub(crate) fn names(volume: Arc<Volume>) -> Vfs {
    let options = Options {
        access_times: AccessTimes::Never,
        ..Options::default()
    };
    Vfs::new(volume, Arc::new(NoClock), options)
}
