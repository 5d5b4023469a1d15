//! What the back ends for real drives have in common: commands queued by zone, transfers through
//! io_uring, zone management, limits, and what errors mean. In what they differ is a [`Port`].
//!
//! A thread that waits for a read of a file or block device does that read itself. Everything else goes through the ring.
//! One thread collects what has completed, and sends what waited for it. Reports are calls that the
//! calling thread waits for, and so is zone management where it waits anyway; a reset or finish that is
//! only started is left to one of a few threads, for the kernel has no other way to do several at a time.
//! Reads do not wait for any of that.
//!
//! In each zone there is one write under way, or any number of appends where the drive itself says
//! where they landed; never both. What waits meanwhile and follows on is sent as one write. Where
//! the drive is told where to write, appends are writes.
//!
//! The zone machine says what the drive would refuse, so the drive is not asked for it: it counts
//! open and active zones as drives do. Which zone the drive closes for another it does not know,
//! nor need to. After an error, and in every report, the drive itself is asked what became of the
//! zone.

pub mod appends;
pub mod failure;
pub mod files;
pub mod front;
mod given_up;
pub mod limits;
pub mod make;
mod manage;
pub mod queue;
mod reads;
pub mod ready;
pub mod ring;
pub mod status;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use failure::Failure;
use queue::{Job, Shared};
use ready::LeftOut;
use ring::{Ring, Wire};

use crate::lock::{explain, open_error};
use crate::zones::ZoneMachine;
use crate::{
    Command, Completion, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo, ZoneState,
    ZonedDevice,
};

/// What is done to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Empty it.
    Reset,
    /// Make it full.
    Finish,
    /// Open it explicitly.
    Open,
    /// Close it.
    Close,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Action::Reset => "reset",
            Action::Finish => "finish",
            Action::Open => "open",
            Action::Close => "close",
        }
    }
}

/// Where a transfer begins.
pub type Place<P> = <<P as Port>::Wire as Wire>::Place;

/// A way to the drives of a kind.
pub trait Port: Sized + Send + Sync + 'static {
    /// How transfers are written down.
    type Wire: Wire;
    /// What a zone needs for being written to, from before a write waits until it is over.
    type Hold: Send;

    /// What it is called.
    const NAME: &'static str;
    /// The drive says where an append landed.
    const APPENDS: bool;

    /// Where a block is read.
    fn reading(&self, zone: ZoneId, block: u32) -> Result<Place<Self>, Failure>;

    /// Whether the kernel makes reads of a zone wait for what is done to it. They are held back then:
    /// waiting there, they would take the places of others.
    fn reads_wait(&self) -> bool {
        false
    }

    /// Where a block is written, or the zone for an append.
    fn writing(&self, zone: ZoneId, block: u32, hold: &Self::Hold) -> Place<Self>;

    /// The block of its zone that an append landed at, of what the drive answered.
    fn landed(&self, _: ZoneId, answer: u64) -> u32 {
        u32::try_from(answer).unwrap_or(u32::MAX)
    }

    /// Where a flush goes. Asked again where that was refused.
    fn flushing(&self) -> Result<Place<Self>, Failure>;

    /// Makes a zone ready to be written to. `admit` says whether it may become so, and is asked
    /// before anything is done to the zone; its error comes first.
    fn hold(
        &self,
        zone: ZoneId,
        admit: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Result<Self::Hold, Failure>>;

    /// State, capacity and write pointer of zones that exist. Fewer: the drive is gone.
    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>, Failure>;

    /// Does something to a zone. Returns when it is done.
    fn manage(&self, zone: ZoneId, action: Action) -> Result<(), Failure>;

    /// Writes zeros to the rest of a block of which only a part is written.
    fn pad(&self, zone: ZoneId) -> Result<(), Failure>;
}

/// A zoned drive behind a driver of Linux.
pub struct KernelDevice<P: Port> {
    path: PathBuf,
    shared: Arc<Shared<P>>,
    threads: Vec<JoinHandle<()>>,
}

/// Threads that do what is started to zones: a reset takes milliseconds on flash, and a drive does some at the
/// same time.
const MANAGERS: usize = 8;

impl<P: Port> KernelDevice<P> {
    /// Takes a drive into use whose zones are as `zones` says, but for those that are left out.
    pub(crate) fn start(
        path: &Path,
        port: P,
        wire: P::Wire,
        geometry: Geometry,
        (zones, left_out): (&[ZoneInfo], LeftOut),
        read_only: bool,
    ) -> Result<KernelDevice<P>> {
        let geometry = left_out.limits(geometry);
        let mut machine = ZoneMachine::new(
            geometry.zone_count,
            0,
            geometry.max_open,
            geometry.max_active,
        );
        for (number, zone) in (0..).map(ZoneId).zip(zones) {
            machine.observe(number, zone)?;
        }
        let ring: Ring<P::Wire, Job<P>> =
            Ring::new(wire).map_err(|error| open_error(path, &no_ring(&error)))?;
        let shared = Arc::new(Shared::new(
            port, geometry, machine, ring, left_out, read_only,
        ));
        let mut device = KernelDevice {
            path: path.to_owned(),
            shared,
            threads: Vec::new(),
        };
        device.spawn(Shared::collect)?;
        if !read_only {
            for _ in 0..MANAGERS {
                device.spawn(Shared::manage_all)?;
            }
        }
        Ok(device)
    }

    /// Where that fails, those there are end with the device.
    fn spawn(&mut self, work: impl FnOnce(&Shared<P>) + Send + 'static) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new()
            .name(P::NAME.into())
            .spawn(move || work(&shared))
            .map_err(|error| explain(&self.path, &error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// What it was opened by: device node or URI.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn port(&self) -> &P {
        &self.shared.port
    }

    pub(crate) fn shared(&self) -> &Shared<P> {
        &self.shared
    }

    /// Empties all zones that are not. `also_empty`: and tells the kernel of those that are, which
    /// may believe otherwise ([`Failure::is_of_block_layer`]).
    pub(crate) fn reset_all(&self, zones: &[ZoneInfo], also_empty: bool) -> Result<()> {
        for (zone, info) in (0..).map(ZoneId).zip(zones) {
            if info.state.is_worn_out() || info.state == ZoneState::Empty && !also_empty {
                continue;
            }
            let reset = self.run(Command::Reset {
                zone,
                keep_allocated: false,
            });
            match reset {
                // Its last: the volume knows how to do without it.
                Ok(_) | Err(DeviceError::BadState { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<P: Port> ZonedDevice for KernelDevice<P> {
    fn identity(&self) -> Option<crate::DeviceIdentity> {
        crate::DeviceIdentity::of(&self.path)
    }

    fn geometry(&self) -> &Geometry {
        &self.shared.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        self.shared.report(zones)
    }

    fn submit(&self, command: Command) -> Pending {
        let shared = &self.shared;
        let manage = |zone, action| {
            let done = shared.manage(zone, action);
            Ok(Pending::ready(done.map(|()| Completion::Done)))
        };
        let started = match command {
            Command::Read {
                zone,
                block,
                blocks,
            } => shared.read(zone, block, blocks),
            Command::Write { zone, block, data } => shared.write(zone, Some(block), data),
            Command::Append { zone, data } => shared.write(zone, None, data),
            Command::Reset { zone, .. } => shared.start_managing(zone, Action::Reset),
            Command::Finish { zone } => shared.start_managing(zone, Action::Finish),
            Command::Open { zone } => manage(zone, Action::Open),
            Command::Close { zone } => manage(zone, Action::Close),
            // What has completed is with the drive.
            Command::Record => Ok(Pending::ready(Ok(Completion::Done))),
            Command::Flush => shared.flush(),
        };
        started.unwrap_or_else(|error| Pending::ready(Err(error)))
    }

    fn run(&self, command: Command) -> Result<Completion> {
        let done = |done: Result<()>| done.map(|()| Completion::Done);
        match command {
            // Who waits does it: it is not kept waiting by what others have only started.
            Command::Reset { zone, .. } => done(self.shared.manage(zone, Action::Reset)),
            Command::Finish { zone } => done(self.shared.manage(zone, Action::Finish)),
            Command::Read {
                zone,
                block,
                blocks,
            } => self.shared.read_here(zone, block, blocks),
            command => self.submit(command).wait(),
        }
    }

    fn read_into(
        &self,
        zone: ZoneId,
        block: u32,
        into: &mut [u8],
        beside_others: bool,
    ) -> Option<Result<()>> {
        // The drive serves several side by side.
        (!beside_others).then(|| self.shared.read_into(zone, block, into))?
    }

    fn resets_at_once(&self) -> usize {
        MANAGERS
    }
}

impl<P: Port> Drop for KernelDevice<P> {
    fn drop(&mut self) {
        self.shared.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl<P: Port> std::fmt::Debug for KernelDevice<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(P::NAME)
            .field("path", &self.path)
            .field("geometry", &self.shared.geometry)
            .finish_non_exhaustive()
    }
}

fn no_ring(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::ENOSYS) => {
            "io_uring is not allowed here; see the sysctl kernel.io_uring_disabled and the container's \
             seccomp rules"
                .to_owned()
        }
        _ => format!("io_uring: {error}"),
    }
}
