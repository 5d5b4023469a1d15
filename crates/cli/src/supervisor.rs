//! The process that stays when a daemon dies: it keeps the connection to the kernel, starts the daemon, and another one after it.
//!
//! It knows nothing of the volume and serves nothing, so that nothing of that can end it. Where no daemon can go on, it ends the connection:
//! whoever uses the mount gets errors then, and nobody waits for ever.

pub mod channel;
mod deaths;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use persimmon_fuse::{ANSWERED_AT, Handover, write_back};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{debug, error, warn};

use crate::exit::{self, FAILED, MOUNT_FAILED, MOUNT_SYSTEM};
use crate::upgrade::PROVEN;
use channel::{Channel, Message, pack, unpack};
use deaths::{Deaths, PAUSE, Verdict};

/// The argument of a daemon that is the first, and of those that come after it. Its standard input is a [`Channel`].
const SUPERVISED: &str = "--supervised";
const RESUMED: &str = "--resumed";

/// How long threads of a daemon that died may be in the kernel.
const PATIENCE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};
/// Of `pidfd_open`, since Linux 6.9: of one thread.
const PIDFD_THREAD: u32 = 0o200;
/// Times that it is tried to start one.
const SPAWNS_MAX: u32 = 30;
/// How long a daemon that is to go on with a mount may take before that is said, and before it is killed. The kernel waits meanwhile, and so does
/// who uses the mount.
const SILENCE_MAX: Duration = Duration::from_secs(10);
const OPENING_MAX: Duration = Duration::from_secs(60);
/// The same as a multiple of what one took before: some devices are slow.
const OPENINGS_MAX: u32 = 20;

/// A supervisor to be.
pub struct Supervisor {
    arguments: Vec<OsString>,
    /// Whoever asked for the mount goes on, and may read what is said to its end.
    is_in_background: bool,
    usual: OomScore,
}

/// How soon the system ends a process when it runs out of memory.
struct OomScore(Vec<u8>);

impl OomScore {
    const FILE: &str = "/proc/self/oom_score_adj";
    const LATE: &[u8] = b"-900";

    fn own() -> OomScore {
        OomScore(std::fs::read(OomScore::FILE).unwrap_or_default())
    }

    /// Starts a daemon with this score; that of this process is late, where the user may say so: a daemon that is ended is followed by
    /// another, a supervisor is not.
    fn spawn(&self, command: &mut Command) -> std::io::Result<Child> {
        let _ = std::fs::write(OomScore::FILE, &self.0);
        let spawned = command.spawn();
        let _ = std::fs::write(OomScore::FILE, OomScore::LATE);
        spawned
    }
}

/// A program, open, for its file may be replaced.
struct Program {
    file: File,
    path: PathBuf,
}

impl Program {
    fn open(path: &Path) -> Result<Program> {
        let mut options = File::options();
        // To be run it need not be readable.
        let flags = rustix::fs::OFlags::PATH.bits().cast_signed();
        let file = options.read(true).custom_flags(flags).open(path);
        Ok(Program {
            file: file.with_context(|| format!("{}", path.display()))?,
            path: path.to_owned(),
        })
    }

    fn own() -> Result<Program> {
        let mut own = Program::open(Path::new("/proc/self/exe"))?;
        own.path = std::env::current_exe().context("finding this program")?;
        Ok(own)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        command.arg0("persimmon").current_dir("/");
        command
    }
}

/// What is kept of a mount.
struct Mounted {
    handover: Handover,
    ledger: File,
    writes_back: Child,
}

impl Mounted {
    /// Starts the process that has pages written back.
    fn new(mut handover: Handover) -> Result<Mounted> {
        let socket = handover.writes_back.take().context("a socket is missing")?;
        let device = handover
            .devices
            .first()
            .context("a descriptor is missing")?;
        let own = Program::own()?;
        let mut command = own.command();
        command
            .arg(write_back::ARGUMENT)
            .stdin(socket)
            .stdout(device.try_clone()?)
            .stderr(Stdio::null())
            .process_group(0);
        Ok(Mounted {
            ledger: handover.ledger.try_clone()?.into(),
            writes_back: command.spawn().context("the process that writes back")?,
            handover,
        })
    }

    /// Requests that were answered.
    fn answered(&self) -> u64 {
        let mut count = [0; 8];
        let read = self.ledger.read_exact_at(&mut count, ANSWERED_AT);
        // A number that only has to differ.
        read.map_or(0, |()| u64::from_le_bytes(count))
    }

    /// Nobody goes on: who waits gets errors. Of no use, and no harm, once nothing is mounted any more.
    fn abort(&mut self) {
        if let Some(abort) = self.handover.abort.take()
            && let Err(error) = File::from(abort).write_all(b"1")
        {
            debug!("ending the connection: {error}");
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.abort();
        // Not waited for: without a file to abort by, it may wait in the kernel for what ends only with this process.
        let _ = self.writes_back.kill();
    }
}

/// How a daemon ended, and what it said before.
struct Ended {
    status: ExitStatus,
    /// How long it answered the kernel.
    served: Option<Duration>,
    /// By which program it is to be followed.
    replaced_by: Option<PathBuf>,
}

/// What a supervisor waits for, and keeps.
struct Watch {
    /// Readable once there was a signal.
    signals: UnixStream,
    /// The daemon was told to end.
    is_stopping: bool,
    /// The connection was ended.
    is_given_up: bool,
    /// What the slowest daemon took until it answered.
    opening: Duration,
    mounted: Option<Mounted>,
}

/// What is done about a daemon that does not get on.
#[derive(Clone, Copy)]
enum Impatience {
    Say,
    Kill,
    GiveUp,
}

impl Supervisor {
    /// Of daemons with these arguments, besides one that says which it is.
    pub fn new(arguments: Vec<OsString>, is_in_background: bool) -> Supervisor {
        Supervisor {
            arguments,
            is_in_background,
            usual: OomScore::own(),
        }
    }

    /// Runs until a daemon has ended the mount, or none can go on.
    ///
    /// # Errors
    /// The mount could not be made.
    pub fn run(&self) -> Result<u8> {
        let mut watch = Watch::new()?;
        let mut program = Program::own()?;
        // That is to take the place of the program.
        let mut candidate: Option<Program> = None;
        // What the program took the place of, and is better than none.
        let mut proven_before = None;
        let mut note = None;
        let mut deaths = Deaths::default();
        loop {
            let answered = watch.answered();
            let (running, is_new) = match &candidate {
                Some(candidate) => (candidate, true),
                None => (&program, false),
            };
            let ended = self.one_daemon(&mut watch, (running, is_new), note.take())?;
            if watch.mounted.is_none() {
                return Ok(code_of(ended.status).unwrap_or(MOUNT_FAILED));
            }
            if let Some(served) = ended.served
                && served >= PROVEN
                && let Some(proven) = candidate.take()
            {
                proven_before = Some(std::mem::replace(&mut program, proven));
            }
            match code_of(ended.status) {
                // Whoever has served and ends by itself has ended the mount.
                Some(code) if ended.served.is_some() => return Ok(code),
                _ if watch.is_given_up => return Ok(FAILED),
                _ if ended.served.is_some() && watch.is_stopping => {
                    error!("the daemon died before it had unmounted: {}", ended.status);
                    return Ok(FAILED);
                }
                _ => {}
            }
            if let Some(failed) = candidate.take() {
                let why = format!(
                    "{} cannot go on ({}); see the log. {} goes on",
                    failed.path.display(),
                    ended.status,
                    program.path.display()
                );
                error!("{why}");
                note = Some(why);
                continue;
            }
            if let Some(path) = ended.replaced_by {
                match Program::open(&path) {
                    Ok(next) => candidate = Some(next),
                    Err(error) => note = Some(format!("{error:#}")),
                }
                continue;
            }
            let has_answered = watch.answered() != answered;
            match deaths.another(ended.status, has_answered, Instant::now()) {
                Verdict::Another(pause) => {
                    warn!("the daemon died ({}); another one goes on", ended.status);
                    thread::sleep(pause);
                }
                Verdict::GiveUp(why) => match proven_before.take() {
                    Some(before) => {
                        error!("{why}; {} goes on", before.path.display());
                        program = before;
                        deaths = Deaths::default();
                    }
                    None => {
                        error!("{why}: the mount is given up");
                        return Ok(FAILED);
                    }
                },
            }
        }
    }

    /// Starts a daemon and waits until it has ended.
    fn one_daemon(
        &self,
        watch: &mut Watch,
        (program, is_new): (&Program, bool),
        note: Option<String>,
    ) -> Result<Ended> {
        let failed = |error: std::io::Error| {
            exit::error(MOUNT_SYSTEM, format!("starting the daemon: {error}"))
        };
        let (channel, there) = Channel::pair().map_err(failed)?;
        let mut command = program.command();
        command.arg("mount").args(&self.arguments).stdin(there);
        command.arg(if watch.mounted.is_some() {
            RESUMED
        } else {
            SUPERVISED
        });
        let mut tries = 1;
        let mut daemon = loop {
            match self.usual.spawn(&mut command) {
                // The system may be short of what a process takes: that passes, and the mount waits.
                Err(error) if watch.mounted.is_some() && tries < SPAWNS_MAX => {
                    error!("starting the daemon: {error}");
                    tries += 1;
                    thread::sleep(PAUSE);
                }
                spawned => break spawned.map_err(failed)?,
            }
        };
        // It has the other end: only so is its death heard.
        drop(command);
        if let Some(mounted) = &watch.mounted {
            let (kept, descriptors) = pack(&mounted.handover);
            // One that is gone already is waited for below.
            let resume = Message::Resume {
                kept,
                note,
                program: is_new.then(|| program.path.clone()),
            };
            let _ = channel.send(&resume, &descriptors);
        } else {
            // The daemon has it too; whoever asked for the mount reads to its end.
            leave_standard_output()?;
        }
        watch.until_ended(&mut daemon, &channel, self.is_in_background)
    }
}

impl Watch {
    fn new() -> Result<Watch> {
        let failed = |error| exit::error(MOUNT_SYSTEM, format!("signals: {error}"));
        let (signals, told) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let pipe = told.try_clone().map_err(failed)?;
            signal_hook::low_level::pipe::register(signal, pipe).map_err(failed)?;
        }
        Ok(Watch {
            signals,
            is_stopping: false,
            is_given_up: false,
            opening: Duration::ZERO,
            mounted: None,
        })
    }

    fn answered(&self) -> u64 {
        self.mounted.as_ref().map_or(0, Mounted::answered)
    }

    fn until_ended(
        &mut self,
        daemon: &mut Child,
        channel: &Channel,
        is_in_background: bool,
    ) -> Result<Ended> {
        let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
        let pid = pid.context("the daemon's process")?;
        let first_thread = PidfdFlags::from_bits_retain(PIDFD_THREAD);
        let first_thread = pidfd_open(pid, first_thread).context("the daemon's process")?;
        let (mut replaced_by, mut listens) = (None, true);
        let (begun, mut served) = (Instant::now(), None);
        let mut impatience = self.mounted.is_some().then_some(Impatience::Say);
        loop {
            let has_served = served.is_some();
            let timeout = match impatience {
                Some(next) if !has_served => {
                    let left = self.patience(next).saturating_sub(begun.elapsed());
                    if left.is_zero() {
                        impatience = self.lose_patience(next, pid);
                        continue;
                    }
                    Some(Timespec::try_from(left).context("a time")?)
                }
                _ => None,
            };
            let idle = PollFlags::empty();
            let mut waited = [
                PollFd::new(&first_thread, PollFlags::IN),
                PollFd::new(&self.signals, PollFlags::IN),
                PollFd::new(channel, if listens { PollFlags::IN } else { idle }),
            ];
            match poll(&mut waited, timeout.as_ref()) {
                Err(rustix::io::Errno::INTR) | Ok(0) => continue,
                polled => polled.context("waiting for the daemon")?,
            };
            let [has_ended, has_signal, has_message] = waited.map(|fd| !fd.revents().is_empty());
            if has_signal {
                let mut some = [0; 16];
                let _ = (&self.signals).read(&mut some);
                self.is_stopping = true;
                // Before it listens to signals, it would die of it.
                if has_served {
                    let _ = kill_process(pid, Signal::TERM);
                }
            }
            if has_message && listens {
                match channel.receive() {
                    Ok(Some((message, descriptors))) => {
                        let said = self.hear(channel, message, descriptors)?;
                        if matches!(said, Said::Serves) && !has_served && is_in_background {
                            leave_standard_error()?;
                        }
                        if matches!(said, Said::Serves) && !has_served {
                            served = Some(Instant::now());
                            self.opening = self.opening.max(begun.elapsed());
                        }
                        if matches!(said, Said::Serves) && self.is_stopping {
                            let _ = kill_process(pid, Signal::TERM);
                        }
                        if let Said::Replace(program) = said {
                            // A second one is asked for again, of the daemon that comes.
                            replaced_by.get_or_insert(program);
                            let _ = kill_process(pid, Signal::KILL);
                        }
                    }
                    Ok(None) => listens = false,
                    Err(error) => {
                        listens = false;
                        warn!("the daemon says what is not understood: {error:#}");
                    }
                }
                continue;
            }
            if has_ended {
                self.until_gone(pid)?;
                let status = daemon.wait().context("waiting for the daemon")?;
                return Ok(Ended {
                    status,
                    served: served.map(|since| since.elapsed()),
                    replaced_by,
                });
            }
        }
    }

    /// Until all threads are gone of a daemon that has ended, and with them its hold on the device. One may wait in the kernel for an answer
    /// that only this daemon would have given: then the mount ends.
    fn until_gone(&mut self, pid: Pid) -> Result<()> {
        let process = pidfd_open(pid, PidfdFlags::empty()).context("the daemon's process")?;
        let mut waited = [PollFd::new(&process, PollFlags::IN)];
        loop {
            match poll(&mut waited, Some(&PATIENCE)) {
                Err(rustix::io::Errno::INTR) => {}
                Ok(0) => {
                    self.give_up("the daemon that died waits in the kernel");
                }
                gone => return gone.map(drop).context("waiting for the daemon"),
            }
        }
    }

    fn give_up(&mut self, why: &str) {
        if let Some(mounted) = &mut self.mounted
            && !self.is_given_up
        {
            error!("{why}: the mount is given up");
            mounted.abort();
            self.is_given_up = true;
        }
    }

    /// How long after its start a daemon that does not answer yet is waited for.
    fn patience(&self, next: Impatience) -> Duration {
        let most = OPENING_MAX.max(self.opening * OPENINGS_MAX);
        match next {
            Impatience::Say => SILENCE_MAX,
            Impatience::Kill => most,
            Impatience::GiveUp => most + SILENCE_MAX,
        }
    }

    /// What comes next.
    fn lose_patience(&mut self, next: Impatience, daemon: Pid) -> Option<Impatience> {
        let (waited, most) = (self.patience(next), self.patience(Impatience::Kill));
        let (waited, most) = (waited.as_secs(), most.as_secs());
        match next {
            Impatience::Say => {
                warn!(
                    "the daemon does not answer after {waited} s, and programs wait for it; it is killed after {most} s"
                );
                Some(Impatience::Kill)
            }
            Impatience::Kill => {
                error!("the daemon does not answer after {waited} s and is killed");
                let _ = kill_process(daemon, Signal::KILL);
                Some(Impatience::GiveUp)
            }
            Impatience::GiveUp => {
                self.give_up("the daemon that was killed does not end");
                None
            }
        }
    }

    fn hear(
        &mut self,
        channel: &Channel,
        message: Message,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Said> {
        match message {
            Message::Mounted(kept) => {
                self.mounted = Some(Mounted::new(unpack(kept, descriptors)?)?);
                // One that was killed since is followed by another, as at any other time.
                let _ = channel.send(&Message::Kept, &[]);
                Ok(Said::Serves)
            }
            Message::Serving => Ok(Said::Serves),
            Message::Replace { program } if self.mounted.is_some() => Ok(Said::Replace(program)),
            Message::Replace { .. } | Message::Kept | Message::Resume { .. } => Ok(Said::Nothing),
        }
    }
}

/// What a message of a daemon comes to.
enum Said {
    Nothing,
    Serves,
    Replace(PathBuf),
}

/// `None`: a signal ended it.
fn code_of(status: ExitStatus) -> Option<u8> {
    status
        .code()
        .map(|code| u8::try_from(code).unwrap_or(FAILED))
}

fn leave_standard_error() -> Result<()> {
    Ok(rustix::stdio::dup2_stderr(null()?)?)
}

fn leave_standard_output() -> Result<()> {
    Ok(rustix::stdio::dup2_stdout(null()?)?)
}

fn null() -> Result<File> {
    let null = File::options().write(true).open("/dev/null");
    null.context("/dev/null")
}
