//! The process behind a mount: opens the volume, serves it, closes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use persimmon::{Background, SystemClock};
use persimmon_device::image::{ImageDevice, OpenOptions};
use persimmon_engine::{RecoveryReport, Volume};
use persimmon_fuse::{End, MountOptions, Stopper};
use persimmon_vfs::Vfs;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{error, info, warn};

use crate::exit::{self, FAILED, MOUNT_FAILED, MOUNT_SYSTEM};
use crate::report::{self, Source};
use crate::{live, logging};

/// How long to wait for the process that used the device before to let go: an unmount is over for
/// mount(8) before the daemon has written everything.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);

/// A daemon to be.
pub struct Daemon {
    /// Device or image, absolute.
    pub device: PathBuf,
    /// Mount point, absolute.
    pub dir: PathBuf,
    /// Everything after `-o`.
    pub options: MountOptions,
    /// Called once the mount answers; present in the background only.
    pub ready: Option<Box<dyn FnOnce() -> Result<()>>>,
}

impl Daemon {
    /// Runs until the volume is unmounted and closed.
    pub fn run(self) -> Result<u8> {
        let in_background = self.ready.is_some();
        if in_background {
            logging::to_background(self.options.log.as_deref())
                .map_err(|error| exit::error(MOUNT_FAILED, format!("{error:#}")))?;
            // Not the leader of a group, so this cannot fail; the terminal's signals stay away.
            let _ = rustix::process::setsid();
        } else {
            logging::to_terminal();
        }
        // Inherited by all threads to come. The kernel refuses it to ordinary users.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|error| exit::error(MOUNT_SYSTEM, format!("signals: {error}")))?;
        let failed = |error: anyhow::Error| exit::error(MOUNT_FAILED, format!("{error:#}"));

        let (device, volume, recovery) = self.open().map_err(failed)?;
        let vfs = Arc::new(Vfs::new(
            Arc::clone(&volume),
            Arc::new(SystemClock),
            self.vfs_options(),
        ));
        for line in report::recovery_lines(&self.device, &recovery) {
            if in_background {
                eprintln!("{line}");
            }
            info!("{line}");
        }
        volume
            .orphans()
            .map_err(persimmon_vfs::Error::from)
            .and_then(|orphans| vfs.reclaim_orphans(&orphans))
            .map_err(|error| failed(error.into()))?;
        let answers = Source::new(Arc::clone(&volume), &device, self.options.read_only);
        let answers = Arc::new(answers.mounted_at(&self.dir));
        let background = Background::start(&vfs, self.options.commit_interval)
            .map_err(|error| exit::error(MOUNT_SYSTEM, format!("starting a thread: {error}")))?;
        let mounted = persimmon_fuse::mount(
            Arc::clone(&vfs),
            answers,
            &self.device,
            &self.dir,
            &self.options,
        );
        let mount = match mounted {
            Ok(mount) => mount,
            Err(error) => {
                background.stop();
                close(&vfs);
                return Err(failed(error.into()));
            }
        };
        stop_at_signals(signals, mount.stopper());
        let panicked = mount.panicked();
        info!(
            "{} mounted at {}",
            self.device.display(),
            self.dir.display()
        );
        if let Some(ready) = self.ready {
            ready().map_err(failed)?;
        }
        let end = mount.wait();
        match &end {
            End::Unmounted => info!("{} unmounted", self.dir.display()),
            End::Forced => warn!("{} given up by its daemon", self.dir.display()),
            End::Broken => error!("{}: the connection to the kernel broke", self.dir.display()),
        }
        background.stop();
        if panicked.load(Ordering::Acquire) {
            error!("not closed after a panic: the next mount recovers what was synced");
            return Ok(FAILED);
        }
        let closed = close(&vfs);
        Ok(if closed && !matches!(end, End::Broken) {
            0
        } else {
            FAILED
        })
    }

    fn open(&self) -> Result<(Arc<ImageDevice>, Arc<Volume>, RecoveryReport)> {
        let device = Arc::new(ImageDevice::open(
            &self.device,
            &OpenOptions {
                read_only: self.options.read_only,
                wait_for_lock: LOCK_WAIT_MAX,
            },
        )?);
        for notice in device.notices() {
            warn!("{}: {notice}", self.device.display());
        }
        let mut options = persimmon_engine::Options {
            read_only: self.options.read_only,
            ..Default::default()
        };
        if let Some(bytes) = self.options.cache_bytes_max {
            options.cache_bytes_max = usize::try_from(bytes)?;
        }
        if let Some(bytes) = self.options.staging_bytes_max {
            options.staging_bytes_max = usize::try_from(bytes)?;
        }
        let (volume, recovery) = Volume::open(Arc::clone(&device) as _, options)
            .map_err(|error| anyhow::anyhow!("{}: {error}", self.device.display()))?;
        Ok((device, Arc::new(volume), recovery))
    }

    fn vfs_options(&self) -> persimmon_vfs::Options {
        persimmon_vfs::Options {
            read_only: self.options.read_only,
            access_times: self.options.access_times,
            directory_access_times: self.options.directory_access_times,
            on_error: self.options.on_error,
            hold_until_forget: true,
            ..Default::default()
        }
    }
}

/// Closes the volume; says so when that fails. What was synced is safe either way.
fn close(vfs: &Vfs) -> bool {
    match vfs.close() {
        Ok(()) => true,
        Err(error) => {
            error!("closing the volume: {error}; the next mount recovers what was synced");
            false
        }
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

/// Whether the daemon behind `dir` itself writes nothing, whatever the flags of the mount.
pub fn is_read_only(dir: &Path) -> bool {
    live::ask::<report::Info>(dir, "info").is_ok_and(|info| info.read_only)
}
