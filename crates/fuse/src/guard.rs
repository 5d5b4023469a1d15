//! A process that outlives the daemon by a moment, to end its connection to the kernel.
//!
//! Threads of the daemon wait in the kernel for answers that others of its threads give: when it unmounts, and when it has
//! the kernel write what that holds back. Where the daemon is killed, or ends before the kernel took such an answer, nobody
//! gives it any more; and what waits belongs to the process, so that its descriptors stay open, by which the kernel would
//! notice. Everybody would wait for ever: whoever uses the mount, and sync(2) of the whole machine. So the kernel tells
//! the guard when the daemon's first thread is gone, and the guard aborts the connection.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Dev, Mode, OFlags, major, minor};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// The first argument of a program that mounts when it is to be the guard: it has to call [`run`] then.
pub const ARGUMENT: &str = "--guard-of-a-mount";

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// What the guard writes once it would notice the end of the daemon.
const READY: &[u8] = b"\n";
/// How long that may take.
const PATIENCE_SECONDS: i64 = 10;

/// Starts the guard of the mount with the device number `mount`, for the process of the caller, which has to be its
/// first thread. Returns when the guard is on guard, and has none of the caller's descriptors any more: `spawn` returns
/// while the kernel still replaces the program, before it closes what the new one does not inherit. One of these is the
/// mount, which that moment would keep busy for an `umount`.
pub(crate) fn start(mount: Dev) -> io::Result<()> {
    let abort = abort_file(mount)?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(ARGUMENT).arg(getpid().to_string());
    command
        .stdin(abort)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // Neither the terminal's signals nor a directory are its business.
    command.process_group(0).current_dir("/");
    let guard = command.spawn()?;
    guard.stdout.map_or(Ok(()), await_ready)
}

/// Waits for what the guard writes. A guard that is stopped, or whose libraries cannot be read, must not keep a mount from being used.
fn await_ready(mut from: ChildStdout) -> io::Result<()> {
    let patience = Timespec {
        tv_sec: PATIENCE_SECONDS,
        tv_nsec: 0,
    };
    let mut waited = [PollFd::new(&from, PollFlags::IN)];
    if poll(&mut waited, Some(&patience))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    from.read_exact(&mut [0; READY.len()])
}

/// The file that aborts the connection of a mount when it is written to. It is of no use, and harms no other mount, once
/// that is gone.
pub(crate) fn abort_file(mount: Dev) -> io::Result<File> {
    // The kernel's own number of the device.
    let number = u64::from(major(mount)) << 20 | u64::from(minor(mount));
    let name = Path::new(&number.to_string()).join("abort");
    match OpenOptions::new()
        .write(true)
        .open(Path::new(CONNECTIONS).join(&name))
    {
        Ok(file) => Ok(file),
        // Perhaps nobody has mounted it there.
        Err(error) => within_own_mount(&name).map(File::from).map_err(|_| error),
    }
}

fn within_own_mount(name: &Path) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(context.as_fd(), flags, MountAttrFlags::empty())?;
    rustix::fs::openat(
        &mount,
        name,
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// Is the guard of the process `daemon`, its parent: until that is gone. The abort file is standard input.
///
/// # Errors
/// Where it cannot be.
pub fn run(daemon: &str) -> io::Result<()> {
    // What ends a whole group of processes must not end this one before the daemon: that one still has to write.
    let mut signals = Signals::new([SIGUSR1, SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
    set_parent_process_death_signal(Some(Signal::USR1))?;
    // A daemon that does not listen is gone, which is what comes next.
    let _ = io::stdout().write_all(READY);
    let parent = getppid().map(|parent| parent.to_string());
    if parent.as_deref() == Some(daemon) {
        signals.forever().find(|signal| *signal == SIGUSR1);
    }
    let mut abort = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    abort.write_all(b"1")
}
