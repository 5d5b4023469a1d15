//! The process behind a mount: opens the volume, serves it, closes it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use persimmon::internal::Opened;
use persimmon::internal::device::drive::Kind;
use persimmon::internal::device::{DeviceError, Drive, Hold, Locks, OpenOptions};
use persimmon::internal::engine::{RecoveryReport, Volume};
use persimmon::{AllCores, EngineOptions, Filesystem, OnError, Options, SystemClock, VfsOptions};
use persimmon_fuse::fuseblk::{Fuseblk, FuseblkError};
use persimmon_fuse::{Closing, End, Latencies, Mount, MountOptions, Stopper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::answers::Answers;
use crate::device::patiently;
use crate::exit::{self, FAILED, MOUNT_FAILED, MOUNT_SYSTEM};
use crate::logging;
use crate::output;
use crate::report::{self, Source};
use crate::supervisor::channel::{self, Channel, Message};
use crate::upgrade::Successor;
use crate::utab;

/// File data that may wait in memory where nothing is said of it, bytes.
const STAGING_BYTES: std::ops::RangeInclusive<u64> = 32 << 20..=128 << 20;
/// As a share of the machine's memory, within those.
const STAGING_MEMORY_SHARE: u64 = 16;

/// What waits in memory is not written if it is overwritten or removed soon: as much as the machine has to spare.
fn staging_bytes() -> u64 {
    let memory = rustix::system::sysinfo();
    let bytes = memory.totalram.saturating_mul(memory.mem_unit.into());
    let share = bytes / STAGING_MEMORY_SHARE;
    share.clamp(*STAGING_BYTES.start(), *STAGING_BYTES.end())
}

/// What keeps others off the volume before it is open.
#[derive(Default)]
struct Held {
    /// The mount to be, as which the kernel holds a block device.
    fuseblk: Option<Fuseblk>,
    /// The lock, where the device is opened without one. Let go before the answer that umount waits for.
    lock: Option<Hold>,
}

impl Held {
    fn is_locked(&self) -> bool {
        self.lock.is_some()
    }
}

/// How the mount ended.
struct Ended {
    /// By an unmount.
    in_order: bool,
    /// Umount waits until this is dropped.
    closing: Option<Closing>,
}

/// Whether others come before and after a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// With it the mount ends.
    Alone,
    /// The first one of a supervisor.
    First,
    /// It goes on with a mount.
    Next,
}

/// A daemon to be.
pub struct Daemon {
    /// Device or image, absolute.
    pub device: PathBuf,
    /// Mount point, absolute.
    pub dir: PathBuf,
    /// Everything after `-o`.
    pub options: MountOptions,
    /// The same as they were given.
    pub given: Vec<String>,
    /// It logs to a file or the system, and has no terminal.
    pub in_background: bool,
    /// Called once the mount answers, where somebody waits for that.
    pub ready: Option<Box<dyn FnOnce() -> Result<()>>>,
    /// Whether there are others.
    pub role: Role,
}

impl Daemon {
    /// Runs until the volume is unmounted and closed.
    pub fn run(self) -> Result<u8> {
        let signals = self.set_up_process()?;
        match self.role {
            Role::Next => self.go_on(signals),
            Role::Alone | Role::First => self.begin(signals),
        }
    }

    fn begin(self, signals: Signals) -> Result<u8> {
        let held = self.hold().map_err(mount_failed)?;
        let opened = self.open(held.is_locked(), None);
        let (device, opened, locks) = opened.map_err(mount_failed)?;
        if let (Some(lock), Some(locks)) = (&held.lock, &locks) {
            lock.kept_in(locks).map_err(mount_failed)?;
        }
        self.tell(report::recovery_lines(&self.device, opened.recovery()));
        self.check_whole(opened.volume(), opened.recovery())?;
        let opened = match &self.options.subvolume {
            Some(name) => {
                let found = opened.subvolume_named(name.as_bytes(), &self.device);
                let id = found.map_err(mount_failed)?;
                opened.with_subvolume(id)
            }
            None => opened,
        };
        let volume = Arc::clone(opened.volume());
        let fs = opened
            .start(Arc::new(SystemClock))
            .map_err(|error| exit::error(MOUNT_SYSTEM, error.to_string()))?;
        self.tell(report::waiting_line(&self.device, fs.files_waiting()));
        self.tell(report::unseen_line(&self.device, fs.files_unseen()));
        let latencies = Arc::<Latencies>::default();
        let channel = self.channel()?;
        let successor = channel
            .clone()
            .map(|channel| Successor::new(channel, None, None));
        let answers = self.answers(&fs, (volume, &device), &latencies, successor);
        let mounted = persimmon_fuse::mount(
            Arc::clone(fs.vfs()),
            Arc::new(answers),
            latencies,
            held.fuseblk,
            &self.device,
            &self.dir,
            &self.options,
        );
        let mut mount = match mounted {
            Ok(mount) => mount,
            Err(error) => {
                close(fs);
                return Err(mount_failed(error));
            }
        };
        if let Some(channel) = &channel
            && let Err(error) = hand_over(channel, &mut mount, locks.as_deref())
        {
            // Nothing was promised yet.
            warn!("no supervisor keeps the mount: {error:#}");
            mount.stopper().stop("there is no supervisor");
        }
        self.serve_and_close(mount, signals, channel, (fs, held.lock, locks))
    }

    /// Goes on with a mount, of which the supervisor says what a daemon before this one has left.
    fn go_on(self, signals: Signals) -> Result<u8> {
        let channel = self.channel()?.context("a supervisor")?;
        let Some((resume, descriptors)) = channel.receive()? else {
            return Err(mount_failed(anyhow!("the supervisor says nothing")));
        };
        let Message::Resume {
            kept,
            note,
            program,
        } = resume
        else {
            return Err(mount_failed(anyhow!("the supervisor says something else")));
        };
        let mut handover = channel::unpack(kept, descriptors)?;
        // The supervisor has them, too: they hold while there is no daemon.
        let locks = Locks::taken_before(std::mem::take(&mut handover.locks));
        let opened = self.open(false, Some(Arc::new(locks)));
        let (device, opened, locks) = opened.map_err(mount_failed)?;
        self.tell(report::recovery_lines(&self.device, opened.recovery()));
        self.check_whole(opened.volume(), opened.recovery())?;
        let volume = Arc::clone(opened.volume());
        let (fs, orphans) = opened
            .with_subvolume(handover.facts.subvolume)
            .resume(Arc::new(SystemClock))
            .map_err(|error| exit::error(MOUNT_SYSTEM, error.to_string()))?;
        let latencies = Arc::<Latencies>::default();
        let successor = Successor::new(Arc::clone(&channel), note, program);
        let answers = self.answers(&fs, (volume, &device), &latencies, Some(successor));
        let resumed = persimmon_fuse::resume(
            Arc::clone(fs.vfs()),
            Arc::new(answers),
            latencies,
            handover,
            orphans,
            self.dir.clone(),
            &self.options,
        );
        let mount = match resumed {
            Ok(mount) => mount,
            Err(error) => {
                // Not closed, which would free what the kernel may have open: another one may try.
                fs.abandon();
                return Err(mount_failed(error));
            }
        };
        channel.send(&Message::Serving, &[])?;
        self.serve_and_close(mount, signals, Some(channel), (fs, None, locks))
    }

    fn channel(&self) -> Result<Option<Arc<Channel>>> {
        match self.role {
            Role::Alone => Ok(None),
            Role::First | Role::Next => Ok(Some(Arc::new(Channel::of_daemon()?))),
        }
    }

    fn answers(
        &self,
        fs: &Filesystem,
        (volume, device): (Arc<Volume>, &Arc<Drive>),
        latencies: &Arc<Latencies>,
        successor: Option<Successor>,
    ) -> Answers {
        let source = Source::new(volume, device, self.options.read_only).mounted_at(
            &self.dir,
            self.shown_options(),
            Arc::clone(latencies),
        );
        let source = source.of_subvolume(fs.vfs().subvolume());
        let commit = Arc::clone(fs.commit_interval());
        Answers::new(Arc::clone(fs.vfs()), source, commit, successor)
    }

    fn serve_and_close(
        mut self,
        mount: Mount,
        signals: Signals,
        channel: Option<Arc<Channel>>,
        (fs, lock, locks): (Filesystem, Option<Hold>, Option<Arc<Locks>>),
    ) -> Result<u8> {
        if let Some(channel) = channel {
            watch_supervisor(channel, mount.stopper());
        }
        let panicked = mount.panicked();
        let ended = self.serve(mount, signals);
        // Umount may wait: for what comes before this is dropped.
        let _closing = ended.closing;
        if panicked.load(Ordering::Acquire) {
            fs.abandon();
            error!("not closed after a panic: the next mount recovers what was synced");
            return Ok(FAILED);
        }
        let closed = close(fs);
        drop(lock);
        if let Some(locks) = locks {
            locks.release();
        }
        Ok(if closed && ended.in_order { 0 } else { FAILED })
    }

    /// Has the kernel hold the volume, by a mount of type `fuseblk` that nobody sees yet: before it is opened, so
    /// that a block device has no moment in which another process could take it. Where that is not possible it
    /// will be plain FUSE.
    fn hold(&self) -> Result<Held> {
        if self.options.plain_fuse || !rustix::process::geteuid().is_root() {
            return Ok(Held::default());
        }
        let lock = self.lock()?;
        let create = |wait| match Fuseblk::create(&self.device, &self.options, wait) {
            Ok(fuseblk) => Ok(Some(fuseblk)),
            Err(FuseblkError::Busy) => Err(match &lock {
                Some(lock) => lock.busy(),
                None => DeviceError::Busy {
                    path: self.device.display().to_string(),
                },
            }),
            Err(error) => {
                warn!("mounting as plain FUSE: {error}");
                Ok(None)
            }
        };
        let fuseblk = patiently(create)?;
        let lock = lock.filter(|_| fuseblk.is_some());
        Ok(Held { fuseblk, lock })
    }

    /// The lock of a device that the kernel holds. That of others ends with this process.
    fn lock(&self) -> Result<Option<Hold>> {
        match Kind::of(&self.device)? {
            Kind::Image | Kind::Zbd => {
                let write = !self.options.read_only;
                Ok(Some(patiently(|wait| Hold::of(&self.device, write, wait))?))
            }
            Kind::Nvme | Kind::Zonefs | Kind::Pair => Ok(None),
        }
    }

    /// Log and session.
    pub fn set_up_log(&self) -> Result<()> {
        if self.in_background {
            logging::to_background(self.options.log.as_deref()).map_err(mount_failed)?;
            // Not the leader of a group, so this cannot fail; the terminal's signals stay away.
            let _ = rustix::process::setsid();
        } else {
            logging::to_terminal();
        }
        Ok(())
    }

    /// Log, session, signals. Before any thread starts.
    fn set_up_process(&self) -> Result<Signals> {
        self.set_up_log()?;
        // Inherited by all threads to come. The kernel refuses it to ordinary users.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|error| exit::error(MOUNT_SYSTEM, format!("signals: {error}")))
    }

    /// Refuses a volume of which metadata is missing, unless nothing is written to it, or that is asked for: then it is
    /// told.
    fn check_whole(&self, volume: &Volume, recovery: &RecoveryReport) -> Result<()> {
        let Some(missing) = report::missing(volume, recovery) else {
            return Ok(());
        };
        let line = format!(
            "{}: {missing}; `persimmon fsck --repair` or `persimmon recover` may save what is left; do not run mkfs",
            self.device.display()
        );
        if !self.options.read_only && self.options.on_error != OnError::Continue {
            let why = format!("{line}; mounted as it is with -o ro (or errors=continue)");
            return Err(exit::error(MOUNT_FAILED, why));
        }
        if self.ready.is_some() {
            crate::output::tell(&line);
        }
        error!("{line}");
        Ok(())
    }

    /// Logs lines, and shows them to the user who typed the command.
    fn tell(&self, lines: impl IntoIterator<Item = String>) {
        for line in lines {
            if self.ready.is_some() {
                crate::output::tell(&line);
            }
            info!("{line}");
        }
    }

    /// What the kernel does not tell of, so that nobody counts on it.
    fn tell_of_syncs(&self, mount: &Mount) {
        let hears = mount.hears();
        if self.options.read_only || hears.syncfs {
            return;
        }
        let dir = self.dir.display();
        if !hears.umount {
            utab::register(&self.device, &self.dir);
        }
        let line = if hears.umount {
            format!(
                "{dir}: on this kernel (before Linux 6.18) sync and syncfs do not reach the volume; use \
                 `persimmon sync`. After umount everything is durable"
            )
        } else {
            format!(
                "{dir}: mounted as plain FUSE, where sync, syncfs and umount(8) do not wait for the volume; use \
                 `persimmon sync` and `persimmon umount`"
            )
        };
        if self.ready.is_some() {
            crate::output::tell(&line);
        }
        info!("{line}");
    }

    /// Until the mount is gone.
    fn serve(&mut self, mount: Mount, signals: Signals) -> Ended {
        self.tell_of_syncs(&mount);
        stop_at_signals(signals, mount.stopper());
        let (device, dir) = (self.device.display(), self.dir.display());
        info!("{device} mounted at {dir}");
        if let Some(ready) = self.ready.take()
            && let Err(error) = ready()
        {
            // Whoever asked for the mount would not know of it.
            warn!("the process that asked for the mount is gone: {error}");
            mount.stopper().stop("nobody waits for the mount");
        }
        let in_order = Ended {
            in_order: true,
            closing: None,
        };
        match mount.wait() {
            End::Unmounted(closing) => {
                utab::forget(&self.dir);
                info!("{dir} unmounted");
                Ended {
                    closing,
                    ..in_order
                }
            }
            End::Forced => {
                warn!("{dir} given up by its daemon");
                in_order
            }
            End::Broken => {
                error!("{dir}: the connection to the kernel broke");
                Ended {
                    in_order: false,
                    ..in_order
                }
            }
        }
    }

    /// `locks` are those of a daemon before; answered are those for the next one, if there may be one.
    fn open(
        &self,
        held: bool,
        locks: Option<Arc<Locks>>,
    ) -> Result<(Arc<Drive>, Opened, Option<Arc<Locks>>)> {
        let (device, locks) = patiently(|wait_for_lock| {
            // Each attempt has its own: of one that failed nothing may stay locked.
            let locks = locks
                .clone()
                .or_else(|| (self.role != Role::Alone).then(Arc::default));
            let options = OpenOptions {
                read_only: self.options.read_only,
                held,
                locks: locks.clone(),
                wait_for_lock,
                ..OpenOptions::default()
            };
            Ok((Drive::open(&self.device, &options)?, locks))
        })?;
        let device = Arc::new(device);
        for notice in device.notices() {
            warn!("{}: {notice}", self.device.display());
        }
        let mut engine = EngineOptions {
            fsync: self.options.fsync,
            compression: self.options.compression,
            deltas: self.options.deltas,
            dedup: self.options.dedup,
            parallel: Arc::new(AllCores),
            barrier: self.options.barrier,
            ..Default::default()
        };
        if let Some(bytes) = self.options.cache_bytes_max {
            engine.cache_bytes_max = usize::try_from(bytes)?;
        }
        if let Some(bytes) = self.options.dedup_bytes_max {
            engine.dedup_bytes_max = usize::try_from(bytes)?;
        }
        let staging = self.options.staging_bytes_max;
        engine.staging_bytes_max = usize::try_from(staging.unwrap_or_else(staging_bytes))?;
        let options = Options {
            engine,
            vfs: self.vfs_options(),
            commit_interval: self.options.commit_interval,
        };
        let opened = Opened::new(Arc::clone(&device) as _, &options)
            .map_err(|error| crate::open::unopened(&self.device, &error))?;
        Ok((device, opened, locks))
    }

    /// The options as the daemon tells them: what depends on who mounts is told too.
    fn shown_options(&self) -> String {
        let by_default = rustix::process::geteuid().is_root();
        let others = if self.options.allow_other.unwrap_or(by_default) {
            "allow_other"
        } else {
            "noallow_other"
        };
        let given = self.given.iter().map(String::as_str);
        let words: Vec<&str> = given
            .filter(|list| !list.is_empty())
            .chain([others])
            .collect();
        words.join(",")
    }

    fn vfs_options(&self) -> VfsOptions {
        VfsOptions {
            read_only: self.options.read_only,
            access_times: self.options.access_times,
            directory_access_times: self.options.directory_access_times,
            on_error: self.options.on_error,
            hold_until_forget: true,
            processes: Arc::new(persimmon_fuse::Proc),
            ..Default::default()
        }
    }
}

fn mount_failed(error: impl Into<anyhow::Error>) -> anyhow::Error {
    exit::error(MOUNT_FAILED, output::Causes(&error.into()))
}

/// Closes the volume; says so when that fails. What was synced is safe either way.
fn close(fs: Filesystem) -> bool {
    match fs.close() {
        Ok(()) => true,
        Err(error) => {
            error!("{error}; the next mount recovers what was synced");
            false
        }
    }
}

/// Gives the supervisor what it has to keep, and waits until it has it.
fn hand_over(channel: &Channel, mount: &mut Mount, locks: Option<&Locks>) -> Result<()> {
    let mut handover = mount.handover().context("nothing to hand over")?;
    if let Some(locks) = locks {
        handover.locks = locks.descriptors()?;
    }
    let (kept, descriptors) = channel::pack(&handover);
    channel.send(&Message::Mounted(kept), &descriptors)?;
    match channel.receive()? {
        Some((Message::Kept, _)) => Ok(()),
        _ => bail!("it does not answer"),
    }
}

/// The thread ends with the process, or with the supervisor.
fn watch_supervisor(channel: Arc<Channel>, stopper: Stopper) {
    let thread = thread::Builder::new().name("supervisor".into());
    let watch = move || {
        while let Ok(Some(_)) = channel.receive() {}
        stopper.unsupervised();
    };
    if let Err(error) = thread.spawn(watch) {
        warn!("the supervisor's end will not be noticed: {error}");
    }
}

/// The thread ends with the process: it only ever waits for a signal.
fn stop_at_signals(mut signals: Signals, stopper: Stopper) {
    let spawned = thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever() {
                stopper.stop(match signal {
                    SIGTERM => "terminated",
                    SIGINT => "interrupted",
                    _ => "hung up",
                });
            }
        });
    if let Err(error) = spawned {
        warn!("signals will not be heeded: {error}");
    }
}

#[cfg(test)]
mod tests {
    use persimmon_fuse::MountOptions;

    #[test]
    fn the_help_tells_the_defaults_of_the_engine() {
        let help = MountOptions::help();
        let defaults = persimmon::EngineOptions::default();
        let line = |option| help.lines().find(|line| line.contains(option));
        let told = format!("(default {}M)", defaults.cache_bytes_max >> 20);
        assert!(line("cache=").is_some_and(|line| line.contains(&told)));
        let (least, most) = super::STAGING_BYTES.into_inner();
        let told = format!("{}M to {}M", least >> 20, most >> 20);
        assert!(line("staging=").is_some_and(|line| line.contains(&told)));
        assert!(super::STAGING_BYTES.contains(&super::staging_bytes()));
    }
}
