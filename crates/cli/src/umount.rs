//! `persimmon umount`: unmounts and returns when the daemon has let go of the device.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use persimmon::internal::device::DeviceError;
use persimmon_fuse::mounts;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::device::LOCK_WAIT_MAX;
use crate::live::{self, Target};
use crate::output::{self, say};
use crate::report::Info;
use crate::sync;
use crate::utab;

/// Unmount a volume and wait until it is closed.
#[derive(Args)]
pub struct Umount {
    /// Mount point, device or image file
    target: OsString,
    /// Detach even if files are open; they stay usable until they are closed
    #[arg(long, short = 'l')]
    lazy: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Force, as umount(8) passes it on (nothing is forced: --lazy detaches what is busy)
    #[arg(short = 'f', hide = true)]
    force: bool,
    /// Remount read-only if it is busy (not done: being busy is told)
    #[arg(short = 'r', hide = true)]
    read_only: bool,
    /// Do not write /etc/mtab (nobody does)
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// Say what is done
    #[arg(short = 'v', long, hide = true)]
    verbose: bool,
    /// Type of the filesystem, as umount(8) passes it on
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    kind: Option<String>,
}

impl Umount {
    pub fn run(&self) -> Result<u8> {
        let path = crate::spec::resolve(&self.target)?;
        let dir = match mount_point(&path) {
            Some(dir) => dir,
            None => Target::mounted(&self.target, "")?,
        };
        let line = mounts::at(&dir)?.filter(|line| line.is_persimmon());
        let Some(line) = line else {
            bail!("no Persimmon volume is mounted at {}", dir.display());
        };
        if !self.lazy {
            write_all(
                &dir,
                &line.source,
                "stays mounted (--lazy gives up what cannot be written)",
            )?;
        }
        self.unmount(&dir)?;
        utab::forget(&dir);
        // Where it is mounted in another place too, the daemon goes on.
        let goes_on = mounts::list()?.iter().any(|m| m.device == line.device);
        if !self.lazy && !goes_on {
            wait_for_daemon(&line.source)?;
        }
        output::done(0, self.say(&dir, &line.source))
    }

    fn say(&self, dir: &Path, device: &Path) -> Result<()> {
        if self.json {
            output::json_of_mount(device, dir)?;
        } else if self.verbose {
            say!("{} unmounted", dir.display())?;
        }
        Ok(())
    }

    fn unmount(&self, dir: &PathBuf) -> Result<()> {
        let mut flags = UnmountFlags::empty();
        flags.set(UnmountFlags::DETACH, self.lazy);
        match mounts::unmount(dir, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => bail!(
                "{0} is busy; `fuser -vm {0}` names who uses it, --lazy detaches it all the same",
                dir.display()
            ),
            Err(Errno::PERM) => {
                let mut command = Command::new("fusermount3");
                command
                    .arg("-u")
                    .args(self.lazy.then_some("-z"))
                    .arg("--")
                    .arg(dir);
                let status = command.status().context("fusermount3")?;
                if !status.success() {
                    bail!("fusermount3 could not unmount {}", dir.display());
                }
                Ok(())
            }
            Err(error) => bail!("{}: {error}", dir.display()),
        }
    }
}

/// The path, if something is mounted there: it can be unmounted by who may not look into it.
fn mount_point(path: &Path) -> Option<PathBuf> {
    let line = mounts::at(path).ok()??;
    line.is_persimmon().then(|| path.to_owned())
}

/// Has what waits written while there is somebody to tell that it could not be: once unmounted it would be gone.
/// A daemon that is gone, hangs, or takes no more changes has nothing to write.
/// `else_it`: what becomes of the mount then.
pub fn write_all(dir: &Path, device: &Path, else_it: &str) -> Result<()> {
    let writes = || live::ask::<Info>(dir, "info").is_ok_and(|info| !info.read_only);
    if !writes() {
        return Ok(());
    }
    let why_not = match sync::make_durable(dir) {
        Ok(synced) => synced.why_not().map(str::to_owned),
        // Nothing was tried, so nothing is known to have failed.
        Err(error) if error.is::<live::NotAllowed>() => return Err(error),
        Err(error) => Some(output::Causes(&error).to_string()),
    };
    if let Some(why) = why_not
        && writes()
    {
        bail!(
            "{0} {else_it}: what was written last cannot be written to {1}: {why}; see to that and try again",
            dir.display(),
            device.display()
        );
    }
    Ok(())
}

/// The device can be had again once the daemon has closed it.
fn wait_for_daemon(device: &Path) -> Result<()> {
    match crate::device::open(device, true) {
        Err(DeviceError::Busy { .. }) => bail!(
            "unmounted, but the daemon has not closed {} after {} seconds; see its log",
            device.display(),
            LOCK_WAIT_MAX.as_secs()
        ),
        // Any other trouble is not the unmount's.
        Ok(_) | Err(_) => Ok(()),
    }
}
