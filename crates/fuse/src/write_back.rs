//! A process that has the kernel write back pages for a daemon that may die. The kernel sends those pages as requests, and whoever asked for it
//! waits in the kernel until they are answered: by the daemon that comes next, if need be. Were that a thread of the daemon, the
//! daemon would not be gone before, and would keep the device from the next one.
//!
//! A message has two words, in both directions: its number, and the inode.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{SystemTime, UNIX_EPOCH};

use bytemuck::{bytes_of, bytes_of_mut};
use persimmon_sync::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::warn;

use crate::transport;

/// The first argument of a program that mounts when it is to be that process: it has to call [`run`] then.
pub const ARGUMENT: &str = "--write-back-of-a-mount";

/// Is that process: its standard input is the socket, its standard output the mount's `/dev/fuse`. Ends with the last who may ask.
///
/// # Errors
/// Where it cannot be.
pub fn run() -> io::Result<()> {
    // What ends a whole group of processes must not end this one before the daemon.
    let _signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let device = io::stdout().as_fd().try_clone_to_owned()?;
    let mut message = [0u64; 2];
    while socket.read_exact(bytes_of_mut(&mut message)).is_ok() {
        let [_, node] = message;
        transport::write_back(device.as_fd(), node);
        // Who asked may be gone; who comes next passes over what it did not ask for.
        let _ = socket.write_all(bytes_of(&message));
    }
    Ok(())
}

/// Who has pages written back: that process, or whoever asks.
pub struct WriteBack {
    process: Option<Mutex<Process>>,
}

struct Process {
    socket: UnixStream,
    next: u64,
}

impl WriteBack {
    /// Whoever asks waits in the kernel.
    pub fn direct() -> WriteBack {
        WriteBack { process: None }
    }

    /// By the process at the other end of a socket.
    pub fn by(socket: OwnedFd) -> WriteBack {
        // The daemon before may have asked for something that is answered yet.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let next = now.map_or(0, |now| now.as_nanos() as u64);
        WriteBack {
            process: Some(Mutex::new(Process {
                socket: UnixStream::from(socket),
                next,
            })),
        }
    }

    /// Another daemon may come after this one.
    pub fn is_supervised(&self) -> bool {
        self.process.is_some()
    }

    /// Has the kernel write back the content of an inode of the mount `device`; one after the other where a process does it.
    pub fn write_back(&self, device: &OwnedFd, node: u64) {
        let Some(process) = &self.process else {
            return transport::write_back(device.as_fd(), node);
        };
        if let Err(error) = process.lock().ask(node) {
            warn!("the process that has pages written back: {error}");
            transport::write_back(device.as_fd(), node);
        }
    }
}

impl Process {
    fn ask(&mut self, node: u64) -> io::Result<()> {
        self.next += 1;
        let sent = [self.next, node];
        self.socket.write_all(bytes_of(&sent))?;
        let mut received = [0u64; 2];
        while received != sent {
            self.socket.read_exact(bytes_of_mut(&mut received))?;
        }
        Ok(())
    }
}
