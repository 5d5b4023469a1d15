//! The ledger: memory that outlives the daemon, for the one that comes after it. The supervisor keeps it (a file in memory); a daemon
//! maps it and notes there, before it answers the kernel,
//!
//! - which files are open, by the numbers that the kernel has of them ([`files`]),
//! - what was written to files and is not known to be on the device ([`writes`]).
//!
//! Everything else that a daemon has answered is on the device by then (`adapter::keeping`), so that both together are all that it
//! had promised. A daemon that dies while it notes something had not answered yet: the kernel sends that request again.

mod exchanges;
mod files;
mod region;
mod replay;
mod writes;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use persimmon_vfs::Keeper;
use rustix::fs::MemfdFlags;

pub use files::OpenFile;
pub use replay::Replayed;
pub use writes::{Position, Recorded, Written};

use exchanges::Exchanges;
use region::Region;
use writes::Writes;

/// What a ledger begins with. The last byte is [`VERSION`].
const MAGIC: u64 = 0x7065_7273_6c65_6400 | VERSION as u64;

/// The version of a ledger, and of all else that is handed on: another program may come after this one.
pub const VERSION: u8 = 2;

const AT_MAGIC: usize = 0;
const AT_ANSWERED: usize = 8;
const AT_HIGHEST_PLACE: usize = 16;
const AT_NEWEST_HANDLE: usize = 24;
const AT_UUID: usize = 32;
const AT_WRITES: usize = 64;
const AT_EXCHANGES: usize = 4096;
const AT_FILES: usize = AT_EXCHANGES + exchanges::BYTES;
const AT_HALVES: usize = AT_FILES + files::BYTES;
const BYTES: usize = AT_HALVES + 2 * writes::HALF_BYTES;

/// Where in a ledger requests that were answered are counted: so a supervisor sees that a daemon gets on.
pub const ANSWERED_AT: u64 = AT_ANSWERED as u64;

fn words_of(uuid: [u8; 16]) -> [u64; 2] {
    let (low, high) = (
        u128::from_le_bytes(uuid) as u64,
        (u128::from_le_bytes(uuid) >> 64) as u64,
    );
    [low, high]
}

impl Region {
    fn uuid(&self) -> [&AtomicU64; 2] {
        [0, region::WORD].map(|at| self.word(AT_UUID + at))
    }
}

/// The ledger of a mount.
pub struct Ledger {
    memory: OwnedFd,
    region: Region,
    writes: Writes,
    exchanges: Exchanges,
}

impl Keeper for Ledger {
    fn position(&self) -> u64 {
        Ledger::position(self).0
    }

    fn kept(&self, position: u64) {
        // Where there is no room for that, it is compared with what the device has.
        let _ = self.recorded_all(Position(position));
    }
}

/// Why something was not noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotNoted {
    /// No room was made: the volume takes no more.
    #[error("what was written before cannot be written to the device")]
    NoRoom,
    /// Done again behind what is under way it would go to another place. The device is to have it.
    #[error("blocks of the file are being moved")]
    Shifting,
}

impl Ledger {
    /// An empty one of a volume, by its UUID.
    ///
    /// # Errors
    /// The system gives no memory.
    pub fn new(volume: [u8; 16]) -> io::Result<Arc<Ledger>> {
        let memory = rustix::fs::memfd_create("persimmon-ledger", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&memory, BYTES as u64)?;
        let ledger = Ledger::map(memory)?;
        for (at, word) in ledger.region.uuid().into_iter().zip(words_of(volume)) {
            at.store(word, Ordering::Relaxed);
        }
        ledger.region.word(AT_MAGIC).store(MAGIC, Ordering::Release);
        Ok(Arc::new(ledger))
    }

    /// That of a daemon before this one, which had the volume with this UUID.
    ///
    /// # Errors
    /// It is none that this program knows; or it had another volume.
    pub fn open(memory: OwnedFd, volume: [u8; 16]) -> io::Result<Arc<Ledger>> {
        let unknown = || io::Error::other("the daemon before kept its ledger in another way");
        if rustix::fs::fstat(&memory)?.st_size != BYTES as i64 {
            return Err(unknown());
        }
        let ledger = Ledger::map(memory)?;
        if ledger.region.word(AT_MAGIC).load(Ordering::Acquire) != MAGIC {
            return Err(unknown());
        }
        let own = ledger.region.uuid().map(|at| at.load(Ordering::Relaxed));
        if own != words_of(volume) {
            return Err(io::Error::other(
                "the device has another volume than the one that was mounted",
            ));
        }
        Ok(Arc::new(ledger))
    }

    fn map(memory: OwnedFd) -> io::Result<Ledger> {
        let region = Region::map(memory.as_fd(), BYTES)?;
        let writes = Writes::new(&region, AT_WRITES, AT_HALVES);
        Ok(Ledger {
            memory,
            region,
            writes,
            exchanges: Exchanges::default(),
        })
    }

    /// The memory, for others to keep.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn memory(&self) -> io::Result<OwnedFd> {
        self.memory.try_clone()
    }

    /// A request was answered.
    pub fn answered(&self) {
        let count = self.region.word(AT_ANSWERED);
        count.fetch_add(1, Ordering::Relaxed);
    }
}
