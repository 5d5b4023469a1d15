//! What the harness tests: something that makes volumes on devices and mounts them.

use std::sync::Arc;

use persimmon_device::ZoneId;

use persimmon_format::quota::Owner;

use crate::model::{Counting, Errno, FoundAccount, Observed, ObservedNode};
use crate::stripes;
use crate::workload::Op;
use persimmon_sim::device::SimDevice;

/// Makes, mounts and checks volumes.
pub trait System: Sync {
    /// A mounted volume.
    type Subject: Subject;

    /// Makes an empty volume with so many copies of log and metadata.
    fn format(&self, device: &Arc<SimDevice>, copies: u32) -> Result<(), String>;

    /// Whether it goes on when zones fail. Zones fail for those alone.
    fn outlives_zones(&self) -> bool {
        false
    }

    /// Zones all of whose blocks have a copy elsewhere, and how many blocks are written.
    fn mirrored(&self, _device: &SimDevice) -> Vec<(ZoneId, u32)> {
        Vec::new()
    }

    /// Mounts, with recovery where needed.
    fn mount(&self, device: &Arc<SimDevice>) -> Result<Self::Subject, String>;

    /// Has a volume that is not mounted be as a snapshot is, and keeps what was changed since as another one, if that gets a name. `now` in
    /// nanoseconds.
    fn roll_back(
        &self,
        _device: &Arc<SimDevice>,
        _to: &str,
        _keep: Option<&str>,
        _now: u64,
    ) -> Result<(), Refusal> {
        Err(libc::EOPNOTSUPP.into())
    }

    /// Checks a volume that is not mounted, without changing it. Findings are the error.
    fn check(&self, device: &Arc<SimDevice>) -> Result<(), String>;
}

/// An operation that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why, as a number.
    pub errno: Errno,
    /// Why, in words.
    pub message: String,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal {
            errno,
            message: String::new(),
        }
    }
}

/// What may have failed below a mounted volume.
pub trait Failures: Send + Sync {
    /// Something below has failed: from now on anything may be refused.
    fn has_failed(&self) -> bool;

    /// Some of what was written is lost.
    fn has_offline_zones(&self) -> bool;

    /// The power is off: it does not matter any more why something is refused.
    fn is_off(&self) -> bool {
        false
    }
}

impl Failures for SimDevice {
    fn has_failed(&self) -> bool {
        SimDevice::has_failed(self)
    }

    fn has_offline_zones(&self) -> bool {
        // A stripe set has all that one of its zones had.
        SimDevice::has_offline_zones(self) && stripes::of_seed(self.config().seed).is_none()
    }
}

/// A mounted volume.
pub trait Subject {
    /// Carries out an operation at time `now` (nanoseconds). [`Op::Remount`], [`Op::RollBack`] and
    /// [`Op::Read`] do not come here. Answers how much of a write or copy, in bytes, found room, if that was a part
    /// of it.
    fn apply(&mut self, op: &Op, now: u64) -> Result<Option<u64>, Refusal>;

    /// One node.
    fn observe_one(&mut self, path: &str) -> Result<ObservedNode, String>;

    /// What is open in a slot, read through that.
    fn observe_open(&mut self, _slot: u8) -> Result<ObservedNode, Refusal> {
        Err(libc::EBADF.into())
    }

    /// What somebody may take, and since when they take too much; `None` where nobody is limited.
    fn account(&mut self, _owner: Owner) -> Result<Option<FoundAccount>, String> {
        Ok(None)
    }

    /// What is counted of what owners take.
    fn counting(&self) -> Counting {
        Counting::Off
    }

    /// The whole tree.
    fn observe(&mut self) -> Result<Observed, String>;

    /// Inode numbers below this have been given out, or never will be. Nobody is to get one of them again, after
    /// a crash either.
    fn next_number(&self) -> u64 {
        0
    }

    /// Whether each block of a file takes a block: nothing is compressed.
    fn stores_whole_blocks(&self) -> bool {
        false
    }

    /// Whether a limit was the reason that a part of the last operation alone was carried out.
    fn was_cut_by_quota(&self) -> bool {
        false
    }

    /// How this is mounted, in a word each.
    fn options(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What recovery met when this was mounted, in a few words each.
    fn recovery_paths(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Unmounts cleanly.
    fn close(self) -> Result<(), String>;
}
