//! One mount: from the kernel's handshake to the end of the session.

use std::cell::Cell;
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use fuser::{Config, Filesystem, KernelConfig, MountOption, Request, Session, SessionACL};
use persimmon_vfs::{AccessTimes, Vfs};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use tracing::{info, warn};

use crate::adapter::{Adapter, Freezer};
use crate::answer::Door;
use crate::capabilities::{self, Agreed, Wanted};
use crate::freeze::Ended;
use crate::fuseblk::Fuseblk;
use crate::guard;
use crate::latency::Latencies;
use crate::ledger::Ledger;
use crate::live::Live;
use crate::mounts;
use crate::options::{MountOptions, Rings};
use crate::resume::{self, Handover};
use crate::transport::{self, Connected, Connection, Later};
use crate::write_back::WriteBack;

/// Read-ahead of the mount, KiB. The kernel's default of 128 halves the speed of sequential reads.
const READ_AHEAD_KIB: u32 = 1024;

/// How long files that are still open may hold up the end of the daemon once it was told to stop.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("{path}: {error}")]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The kernel, or fusermount3, refused.
    #[error("mounting at {path} failed: {}{remedy}", error.to_string().trim_end())]
    Refused {
        /// The mount point.
        path: PathBuf,
        /// The refusal.
        error: io::Error,
        /// What may help, or nothing.
        remedy: &'static str,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// What the session waits for.
pub(crate) enum Event {
    /// Nothing is mounted any more, or the connection broke.
    Ended,
    /// Somebody wants the daemon to end.
    Stop(&'static str),
    /// Nobody would notice any more that the daemon dies.
    Unsupervised,
    /// The last mount of a `fuseblk` is gone, and the kernel waits until the volume is closed.
    Destroyed(Closing),
}

/// The kernel waits in `umount`, until this is dropped. To be kept while the volume is closed.
pub struct Closing(Option<Box<dyn Later>>);

impl Closing {
    pub(crate) fn new(later: Box<dyn Later>) -> Closing {
        Closing(Some(later))
    }
}

impl std::fmt::Debug for Closing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Closing")
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        if let Some(later) = self.0.take() {
            later.answer(Ok(Vec::new()));
        }
    }
}

/// What the kernel tells the daemon, and so what the usual commands do on this mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hears {
    /// Of `umount`, which waits until the volume is closed: it is a mount of type `fuseblk`.
    pub umount: bool,
    /// Of `sync` and `syncfs`, which wait until everything is durable.
    pub syncfs: bool,
}

/// Asks a mount to end. Can be cloned and called from any thread, as often as one likes.
#[derive(Clone)]
pub struct Stopper(SyncSender<Event>);

impl Stopper {
    /// Unmounts; `why` goes to the log. Returns at once: [`Mount::wait`] does the work.
    pub fn stop(&self, why: &'static str) {
        // A full queue already holds a request to stop.
        let _ = self.0.try_send(Event::Stop(why));
    }

    /// The supervisor is gone: a guard takes its place, and no other daemon will come.
    pub fn unsupervised(&self) {
        let _ = self.0.try_send(Event::Unsupervised);
    }
}

/// How a mount ended.
#[derive(Debug)]
pub enum End {
    /// Unmounted. Where the kernel waits for the volume to be closed, it does so until what is in here is dropped.
    Unmounted(Option<Closing>),
    /// Told to stop while files were open, which did not close in time. The kernel answers their
    /// users with errors once this process ends.
    Forced,
    /// The connection to the kernel broke.
    Broken,
}

/// A mounted volume.
pub struct Mount {
    place: Place,
    events: Receiver<Event>,
    stopper: Stopper,
    panicked: Arc<AtomicBool>,
    hears: Hears,
    /// What a daemon after this one needs.
    handover: Option<Handover>,
    /// Told when the mount has ended.
    ledger: Option<Arc<Ledger>>,
    /// Ends a freeze before the mount does.
    freezer: Arc<Freezer>,
}

/// Mounts `vfs` at `dir`: attaches `fuseblk` if there is one, else as plain `fuse`. When this returns, the mount
/// answers. `source` is shown in `/proc/mounts`; `live` answers `persimmon info`, `zones` and `stats` on the mount;
/// how long operations take is counted in `latencies`.
///
/// # Errors
/// When the kernel refuses, with the likely remedy.
pub fn mount(
    vfs: Arc<Vfs>,
    live: Arc<dyn Live>,
    latencies: Arc<Latencies>,
    fuseblk: Option<Fuseblk>,
    source: &Path,
    dir: &Path,
    options: &MountOptions,
) -> Result<Mount, MountError> {
    let dir = dir.canonicalize().map_err(|error| MountError::MountPoint {
        path: dir.to_owned(),
        error,
    })?;
    let panicked = Arc::new(AtomicBool::new(false));
    let (sender, events) = sync_channel(4);
    let ledger = match options.supervise {
        true => {
            let volume = vfs.volume().identity().uuid;
            Some(Ledger::new(volume).map_err(MountError::Thread)?)
        }
        false => None,
    };
    let door = Door {
        vfs,
        latencies,
        panicked: Arc::clone(&panicked),
        ledger: ledger.clone(),
        lost: Arc::default(),
    };
    resume::keep_room(&door).map_err(MountError::Thread)?;
    let subvolume = door.vfs.subvolume();
    let adapter = Adapter::new(door, live, options, sender.clone()).map_err(MountError::Thread)?;
    let heard_of_syncs = adapter.heard_of_syncs();
    let freezer = adapter.freezer();
    let refused = |error: io::Error| MountError::Refused {
        path: dir.clone(),
        remedy: remedy(&error),
        error,
    };
    let handshake = Handshake::new(options).map_err(refused)?;
    let agreed = Arc::clone(&handshake.agreed);
    // What fails after it was mounted must leave no dead mount behind, also where it failed for want of descriptors.
    let attached_by_fuser = fuseblk.is_none();
    let below = mounts::number_of(&dir).map_err(io::Error::from);
    let below = below.map_err(refused)?;
    let spare = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let spare = Cell::new(Some(spare.map_err(io::Error::from).map_err(refused)?));
    let detach = || {
        // Unmounting takes a descriptor.
        drop(spare.take());
        if attached_by_fuser && mounts::number_of(&dir) != Ok(below) {
            let _ = mounts::unmount(&dir, UnmountFlags::DETACH);
        }
    };
    let config = config(source, options);
    let session = match &fuseblk {
        Some(fuseblk) => fuseblk
            .device
            .try_clone()
            .and_then(|device| Session::from_fd(handshake, device, config.acl, config)),
        None => Session::new(handshake, &dir, &config),
    };
    let session = session.map_err(refused).inspect_err(|_| detach())?;
    // Dropped, it would unmount once more whatever is then mounted at the directory (fuser 0.18
    // takes the poll error of a connection that has ended for the sign of one that is alive).
    let session = ManuallyDrop::new(session);
    // From the handshake on the kernel asks for an answer when the mount goes, and perhaps there is nobody to
    // give it: on failure the process ends with this.
    let fuseblk = ManuallyDrop::new(fuseblk);
    let agreed = agreed.get().copied().unwrap_or_default();
    let connected = Connected(sender.clone());
    let serve = || {
        let (write_back, mut handover) = match &ledger {
            Some(ledger) => Handover::begin(session.as_fd(), ledger, agreed, options.threads)?,
            None => (WriteBack::direct(), None),
        };
        let adapter = adapter.shared();
        let connection = Connection::new(session.as_fd(), adapter, agreed, write_back, connected)?;
        if agreed.rings {
            transport::serve_rings(&connection)?;
        } else {
            let devices = match &mut handover {
                Some(handover) => handover.devices()?,
                None => transport::descriptors(session.as_fd(), options.threads.max(1))?,
            };
            transport::serve_device(&connection, devices)?;
        }
        io::Result::Ok(handover)
    };
    let mut handover = serve().map_err(refused).inspect_err(|_| detach())?;
    // From here on threads of this process may come to wait for each other in the kernel.
    let mounted = match fuseblk.as_ref() {
        Some(fuseblk) => fuseblk.root().and_then(|root| Ok(rustix::fs::fstat(root)?)),
        None => rustix::fs::stat(&dir).map_err(io::Error::from),
    };
    let guarded = mounted.and_then(|found| match &mut handover {
        // The supervisor does what the guard would do.
        Some(handover) => handover.abort_by(guard::abort_file(found.st_dev)?),
        None => guard::start(found.st_dev),
    });
    if let Err(error) = guarded {
        info!("{}: without a guard: {error}", dir.display());
    }
    let mut hears = Hears {
        umount: false,
        syncfs: false,
    };
    if let Some(fuseblk) = &*fuseblk {
        // Nothing tells but trying: the kernel either asks for it or does not.
        if let Ok(root) = fuseblk.root() {
            let _ = rustix::fs::syncfs(&root);
        }
        hears.umount = true;
        hears.syncfs = heard_of_syncs.load(Ordering::Acquire);
        // Where that fails it stays, as above: who lets go of the last reference to a mount waits for an answer of its daemon, which
        // this thread is to give.
        fuseblk.attach(&dir).map_err(refused)?;
    }
    drop(ManuallyDrop::into_inner(fuseblk));
    let place = Place::new(dir);
    place.set_read_ahead();
    if let Some(handover) = &mut handover {
        handover.facts.mount.clone_from(&place.device);
        (handover.facts.umount, handover.facts.syncfs) = (hears.umount, hears.syncfs);
        handover.facts.subvolume = subvolume;
    }
    Ok(Mount {
        place,
        events,
        stopper: Stopper(sender),
        panicked,
        hears,
        handover,
        ledger,
        freezer,
    })
}

impl Mount {
    pub(crate) fn resumed(
        place: Place,
        (stopper, events): (SyncSender<Event>, Receiver<Event>),
        panicked: Arc<AtomicBool>,
        hears: Hears,
        ledger: Arc<Ledger>,
        freezer: Arc<Freezer>,
    ) -> Mount {
        Mount {
            place,
            events,
            stopper: Stopper(stopper),
            panicked,
            hears,
            handover: None,
            ledger: Some(ledger),
            freezer,
        }
    }

    /// A handle to end the mount with.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// What the kernel tells the daemon.
    #[must_use]
    pub fn hears(&self) -> Hears {
        self.hears
    }

    /// Set once an operation has panicked: what is in memory must then not be written back, the
    /// next mount recovers instead.
    #[must_use]
    pub fn panicked(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.panicked)
    }

    /// What a supervisor has to keep for the daemon that comes after this one, once.
    pub fn handover(&mut self) -> Option<Handover> {
        self.handover.take()
    }

    /// Waits until the mount is gone: unmounted by somebody, or because of [`Stopper::stop`].
    /// Bounded once told to stop.
    #[must_use]
    pub fn wait(self) -> End {
        let end = self.wait_for_end();
        if let Some(ledger) = &self.ledger {
            ledger.end();
        }
        end
    }

    fn wait_for_end(&self) -> End {
        let mut deadline: Option<Instant> = None;
        loop {
            let event = match deadline {
                None => self
                    .events
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(deadline) => self
                    .events
                    .recv_timeout(deadline.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Ended) if self.place.is_mounted() => return End::Broken,
                Ok(Event::Ended) => return End::Unmounted(None),
                Ok(Event::Destroyed(closing)) => return End::Unmounted(Some(closing)),
                Ok(Event::Stop(why)) if deadline.is_none() => {
                    info!("{why}: unmounting {}", self.place.dir.display());
                    deadline = Some(Instant::now() + BUSY_WAIT_MAX);
                    self.freezer.end(Ended::Asked);
                    self.unmount();
                }
                Ok(Event::Stop(_)) => {}
                Ok(Event::Unsupervised) => self.place.guard(),
                Err(RecvTimeoutError::Timeout) => {
                    warn!(
                        "{}: files are still open after {} seconds; ending without them",
                        self.place.dir.display(),
                        BUSY_WAIT_MAX.as_secs()
                    );
                    return End::Forced;
                }
                Err(RecvTimeoutError::Disconnected) => return End::Broken,
            }
        }
    }

    /// Unmounts on a thread of its own: the kernel waits there for answers of this very process.
    fn unmount(&self) {
        let place = self.place.clone();
        let spawned = thread::Builder::new()
            .name("unmount".into())
            .spawn(move || place.unmount());
        if let Err(error) = spawned {
            warn!("cannot start a thread to unmount: {error}");
        }
    }
}

/// What fuser is there for: mounting, and agreeing with the kernel on what is possible.
pub(crate) struct Handshake {
    wanted: Wanted,
    /// What it came to.
    pub(crate) agreed: Arc<OnceLock<Agreed>>,
}

impl Handshake {
    pub(crate) fn new(options: &MountOptions) -> io::Result<Handshake> {
        Ok(Handshake {
            wanted: Wanted {
                writeback_cache: options.writeback_cache,
                rings: wants_rings(options)?,
                read_only: options.read_only,
            },
            agreed: Arc::default(),
        })
    }
}

impl Filesystem for Handshake {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let agreed = capabilities::negotiate(config, self.wanted);
        // The kernel shakes hands once.
        let _ = self.agreed.set(agreed);
        Ok(())
    }
}

/// Processors from which on rings, with memory and a thread each, are only taken if asked for.
const PROCESSORS_AUTO_MAX: usize = 32;

/// Whether to ask the kernel for rings.
fn wants_rings(options: &MountOptions) -> io::Result<bool> {
    let option = options.io_uring;
    if options.supervise {
        // What came through rings the kernel does not send again.
        return match option {
            Rings::On => Err(io::Error::other(
                "io_uring=on and supervise exclude each other; leave one of them out",
            )),
            Rings::Auto | Rings::Off => Ok(false),
        };
    }
    let available = transport::is_enabled() && option != Rings::Off;
    match option {
        Rings::Off => Ok(false),
        Rings::Auto if !available => Ok(false),
        Rings::Auto => Ok(transport::probe().is_ok_and(|count| count <= PROCESSORS_AUTO_MAX)),
        Rings::On if !available => Err(io::Error::other(
            "io_uring=on, and this kernel is not set to offer it; as root, \
             `echo Y > /sys/module/fuse/parameters/enable_uring` turns it on, where the kernel has it",
        )),
        Rings::On => transport::probe().map(|_| true),
    }
}

/// The mount point, and which of the filesystems that may be mounted there is this one.
#[derive(Clone)]
pub(crate) struct Place {
    dir: PathBuf,
    /// `major:minor`, where `/proc` told it.
    device: Option<String>,
}

impl Place {
    /// That of a mount which a daemon before this one has made.
    pub(crate) fn known(dir: PathBuf, device: Option<String>) -> Place {
        Place { dir, device }
    }

    fn new(dir: PathBuf) -> Place {
        let line = mounts::at(&dir).unwrap_or_else(|error| {
            warn!("/proc/self/mountinfo: {error}");
            None
        });
        Place {
            dir,
            device: line.map(|line| line.device),
        }
    }

    /// What is mounted there now, if anything, is what was when this was made.
    fn is_top(&self) -> bool {
        let line = mounts::at(&self.dir).ok().flatten();
        line.map(|line| line.device) == self.device
    }

    fn is_mounted(&self) -> bool {
        self.device.is_some() && self.is_top()
    }

    /// Starts a guard, which the first thread of the process has to do.
    fn guard(&self) {
        let number = self.device.as_deref().and_then(|device| {
            let (major, minor) = device.split_once(':')?;
            Some(rustix::fs::makedev(
                major.parse().ok()?,
                minor.parse().ok()?,
            ))
        });
        let Some(number) = number else {
            return;
        };
        match guard::start(number) {
            Ok(()) => warn!(
                "{}: the supervisor is gone: if this daemon dies, the mount does too",
                self.dir.display()
            ),
            Err(error) => warn!("{}: without a guard: {error}", self.dir.display()),
        }
    }

    fn set_read_ahead(&self) {
        let Some(device) = &self.device else {
            return;
        };
        // That of a fuseblk stands beside that of its block device.
        let own = format!("/sys/class/bdi/{device}-fuseblk");
        let bdi = if Path::new(&own).exists() {
            own
        } else {
            format!("/sys/class/bdi/{device}")
        };
        let path = format!("{bdi}/read_ahead_kb");
        // Only root may; without it the mount is slower at large sequential reads, not wrong.
        if let Err(error) = fs::write(&path, READ_AHEAD_KIB.to_string()) {
            tracing::debug!("{path}: {error}");
        }
    }

    fn unmount(&self) {
        if !self.is_mounted() {
            return;
        }
        match mounts::unmount(&self.dir, UnmountFlags::empty()) {
            Ok(()) => {}
            Err(Errno::PERM) if fusermount(&self.dir, &[]) => {}
            Err(error) => {
                info!("{} is busy ({error}): detaching it", self.dir.display());
                // What shared mappings have dirtied comes while this process still answers.
                if let Ok(root) = fs::File::open(&self.dir) {
                    let _ = rustix::fs::syncfs(&root);
                }
                let detached = mounts::unmount(&self.dir, UnmountFlags::DETACH);
                if detached.is_err() && !fusermount(&self.dir, &["-z"]) {
                    warn!("{} cannot be detached", self.dir.display());
                }
            }
        }
    }
}

/// Unmounts by the setuid helper, for those who are not root.
fn fusermount(dir: &Path, flags: &[&str]) -> bool {
    let mut command = Command::new("fusermount3");
    command.arg("-u").arg("-q").args(flags).arg("--").arg(dir);
    command.status().is_ok_and(|status| status.success())
}

pub(crate) fn config(source: &Path, options: &MountOptions) -> Config {
    let root = rustix::process::geteuid().is_root();
    let mut list = vec![
        MountOption::FSName(shown_source(source, root)),
        // Not MountOption::Subtype: a direct mount would drop it.
        MountOption::CUSTOM("subtype=persimmon".into()),
        MountOption::DefaultPermissions,
    ];
    let mut set = |on: bool, option: MountOption| {
        if on {
            list.push(option);
        }
    };
    set(options.read_only, MountOption::RO);
    set(!options.exec, MountOption::NoExec);
    set(options.sync, MountOption::Sync);
    set(options.dirsync, MountOption::DirSync);
    set(options.suid.unwrap_or(root), MountOption::Suid);
    set(options.dev.unwrap_or(root), MountOption::Dev);
    set(
        options.access_times == AccessTimes::Never,
        MountOption::NoAtime,
    );
    let mut config = Config::default();
    config.mount_options = list;
    config.acl = if options.allow_other.unwrap_or(root) {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    config
}

/// fusermount3 takes a comma for the end of the option unless it is escaped.
fn shown_source(source: &Path, root: bool) -> String {
    let text = OsString::from(source).to_string_lossy().into_owned();
    if root {
        text
    } else {
        text.replace('\\', r"\\").replace(',', r"\,")
    }
}

fn remedy(error: &io::Error) -> &'static str {
    let text = error.to_string();
    if error.kind() == io::ErrorKind::NotFound {
        "; is /dev/fuse there? `modprobe fuse` loads the module"
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        "; without root, /dev/fuse must be readable and writable for the user, and the directory the user's own"
    } else if text.contains("user_allow_other") {
        "; without root, `allow_other` needs the line user_allow_other in /etc/fuse.conf"
    } else {
        ""
    }
}
