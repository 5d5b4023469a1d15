//! How requests come from the kernel and answers get there: by reading and writing `/dev/fuse`
//! (`device`), or through rings shared with it, one for each processor (`ring`).

mod device;
mod memory;
mod ring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

use tracing::error;

use crate::capabilities::Agreed;
use crate::protocol::{Answer, Call, Errno};
use crate::session::Event;
use crate::write_back::WriteBack;

pub use device::{descriptors, knows, resend, write_back};
pub use ring::{is_enabled, probe};

/// What became of a request.
pub enum Outcome {
    /// It is answered so.
    Now(Answer),
    /// Who took [`Transport::later`] answers it.
    Later,
    /// The kernel waits for no answer.
    Never,
}

/// Who answers requests, on the threads of the transport.
pub trait Serve: Send + Sync + 'static {
    /// Does what a request asks for.
    fn serve(&self, call: &mut Call<'_>, transport: &dyn Transport) -> Outcome;

    /// Does what was put off while requests were served. Called by a thread that has served all that came, before it waits
    /// for more. True if there is more to do by now: to be called again, once the answers so far are sent and without waiting.
    fn serve_waiting(&self) -> bool {
        false
    }

    /// Whether what the kernel forgets may be told a little later, many at once.
    fn may_forget_late(&self) -> bool;
}

/// Where the request at hand came from.
pub trait Transport {
    /// To answer it from another thread.
    fn later(&self) -> Box<dyn Later>;

    /// The same for an operation during which the kernel is asked to [`Later::write_back`]. `None` where so many of
    /// these wait already that the kernel might have no place left for what it is asked for: it cannot be done now.
    fn later_with_pages(&self) -> Option<Box<dyn Later>> {
        Some(self.later())
    }

    /// Has the kernel forget the attributes of inode `node`, which somebody has open.
    fn forget_attributes(&self, node: u64);

    /// Asks the kernel whether it refers to inode `node`. True too where it does not say.
    fn knows(&self, node: u64) -> bool;
}

/// An answer to come. Must be given, or the one who asks waits forever.
pub trait Later: Send {
    /// Answers with a body, or with an error.
    fn answer(self: Box<Self>, result: Result<Vec<u8>, Errno>);

    /// Has the kernel write what it holds back of the content of inode `node`: its requests are answered when this
    /// returns. Not to be called by a thread that answers them.
    fn write_back(&self, node: u64);

    /// Has the kernel forget what it remembers of a name, that it is not there among others. Not to be called by a thread that answers requests:
    /// the kernel waits for those in this directory first.
    fn forget_name(&self, directory: u64, name: &[u8]);

    /// Has the kernel ask anew for the attributes of inode `node`.
    fn forget_attributes(&self, node: u64);

    /// To serve the request only now. It is answered by what [`Transport::later`] of that gives.
    fn transport(self: Box<Self>) -> Box<dyn Transport>;
}

/// Tells, when the last thread that serves the mount lets go of it, that the connection is over.
pub struct Connected(pub SyncSender<Event>);

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Ended);
    }
}

/// The connection to the kernel, as the threads that serve it share it.
pub struct Connection {
    device: OwnedFd,
    server: Arc<dyn Serve>,
    agreed: Agreed,
    write_back: Arc<WriteBack>,
    connected: Connected,
}

impl Connection {
    /// `device` is an open `/dev/fuse` whose handshake is done and came to `agreed`.
    pub fn new(
        device: BorrowedFd<'_>,
        server: Arc<dyn Serve>,
        agreed: Agreed,
        write_back: WriteBack,
        connected: Connected,
    ) -> io::Result<Arc<Connection>> {
        Ok(Arc::new(Connection {
            device: device.try_clone_to_owned()?,
            server,
            agreed,
            write_back: Arc::new(write_back),
            connected,
        }))
    }
}

/// Starts a thread that serves until the connection ends. One that ends otherwise leaves requests
/// unanswered: then the mount is given up.
fn start(
    name: String,
    connection: &Arc<Connection>,
    work: impl FnOnce(&Connection) -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let connection = Arc::clone(connection);
    let serve = move || {
        let result = catch_unwind(AssertUnwindSafe(|| work(&connection)));
        let result = result.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        if let Err(error) = result {
            error!("a thread that serves the kernel failed: {error}");
            let stop = Event::Stop("requests cannot be answered any more");
            // A full queue already holds a request to stop.
            let _ = connection.connected.0.try_send(stop);
        }
    };
    thread::Builder::new().name(name).spawn(serve).map(drop)
}

/// Serves the kernel by threads that read requests and write answers, one for each of [`descriptors`].
///
/// # Errors
/// The system gives no threads, or no memory for them. A thread that found that out by itself would leave a mount that nobody answers, and
/// the one that mounts waiting for its first answer.
pub fn serve_device(connection: &Arc<Connection>, devices: Vec<OwnedFd>) -> io::Result<()> {
    for (number, own) in devices.into_iter().enumerate() {
        let room = device::room(connection)?;
        start(format!("fuse-{number}"), connection, |connection| {
            device::run(own, room, connection, false)
        })?;
    }
    Ok(())
}

/// Serves the kernel by rings; what does not come through them, what it forgets above all, is
/// read from the device.
///
/// # Errors
/// The system refuses a ring, or gives no threads. Then the connection is of no use any more: the
/// kernel waits for its rings.
pub fn serve_rings(connection: &Arc<Connection>) -> io::Result<()> {
    let own = connection.device.as_fd().try_clone_to_owned()?;
    let room = device::room(connection)?;
    start("fuse-device".into(), connection, |connection| {
        device::run(own, room, connection, true)
    })?;
    ring::start(connection)
}
