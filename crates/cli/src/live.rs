//! Asking the daemon of a live mount, through the attributes it answers on any file of the mount.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use persimmon::internal::device::{DeviceError, pair};
use persimmon_fuse::live::PREFIX;
use persimmon_fuse::mounts::{self, MountLine};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use crate::mounted::{abandoned, is_of_a_gone_daemon, mounted_at};
use crate::probe;
use crate::report::Info;

/// The longest attribute that the kernel passes.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// How long a daemon may take to answer before it counts as hung.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// What a command was pointed at.
pub enum Target {
    /// A directory of a mounted volume.
    Live(PathBuf),
    /// A device or image that is not mounted, as far as this process sees.
    Device(PathBuf),
}

impl Target {
    /// A directory means the volume mounted there, a mounted device its mount, everything else
    /// the device itself.
    ///
    /// # Errors
    /// When there is no such thing.
    pub fn of(spec: impl AsRef<OsStr>) -> Result<Target> {
        let path = crate::spec::resolve(spec)?;
        if let Some(dir) = directory(&path)? {
            return Ok(Target::Live(dir));
        }
        Ok(match mounted_at(&path) {
            Some(dir) => Target::Live(dir),
            None => Target::Device(path),
        })
    }

    /// A directory of a mounted volume, for commands that need one. `why` is told where it certainly is not mounted.
    ///
    /// # Errors
    /// It is not mounted, or nothing can be told.
    pub fn mounted(spec: impl AsRef<OsStr>, why: &str) -> Result<PathBuf> {
        match Target::of(spec)? {
            Target::Live(dir) => Ok(dir),
            Target::Device(path) => Err(not_mounted(&path, why)),
        }
    }
}

/// The path, if it is a directory, or on a mount whose daemon is gone.
///
/// # Errors
/// Nothing can be told of it, as of a mount that other users may not enter: then it is not said not to be mounted.
pub fn directory(path: &Path) -> Result<Option<PathBuf>> {
    let of_uri = pair::is_uri(path) || path.starts_with("zonefs:");
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir().then(|| path.to_owned())),
        Err(_) if of_uri => Ok(None),
        Err(_) if is_abandoned(path) => Ok(Some(path.to_owned())),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let is_mount = mounts::at(path).ok().flatten();
            Err(match is_mount.filter(|line| line.is_persimmon()) {
                Some(_) => anyhow!(
                    "{}: permission denied: the volume mounted there lets in the user who mounted it alone (see -o \
                     allow_other)",
                    path.display()
                ),
                None => anyhow!("{}: {error}", path.display()),
            })
        }
        Err(_) => Ok(None),
    }
}

/// Why a command for mounts does nothing for a device that this process sees no mount of.
fn not_mounted(path: &Path, why: &str) -> anyhow::Error {
    match crate::device::try_open(path) {
        // Unmounted a moment ago, lazily, or in another namespace.
        Err(error @ DeviceError::Busy { .. }) => anyhow!(
            "{error}; no mount of it is seen from here (it may be in another namespace, detached by `umount --lazy`, or \
             about to be closed), so what waits to be written there cannot be told"
        ),
        Err(error) if !is_readable(path) => anyhow!("{error}"),
        _ => anyhow!("{} is not mounted{why}", path.display()),
    }
}

fn is_readable(path: &Path) -> bool {
    let denied = |path: &Path| {
        // A pipe that nobody writes to would not be opened for long.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).err() == Some(Errno::ACCESS)
    };
    match pair::names(path) {
        Some((metadata, data)) => !denied(&metadata) && !denied(&data),
        None => !denied(path),
    }
}

/// A mount of another device whose volume has the same UUID. Daemons that do not answer are left
/// out.
pub fn mounted_twin(device: &Path) -> Option<MountLine> {
    let uuid = probe::look(device).ok()??.uuid;
    let mounts = mounts::list().ok()?;
    mounts.into_iter().find(|line| {
        line.is_persimmon()
            && line.source != device
            && ask::<Info>(&line.mount_point, "info").is_ok_and(|info| info.uuid == uuid)
    })
}

/// Whether a path is on a mount whose daemon ended without an unmount. Asked of what the kernel remembers nothing of.
/// Bounded, even if a daemon hangs.
pub fn is_abandoned(path: &Path) -> bool {
    let path = path.to_owned();
    let answer = within(Some(ANSWER_WAIT_MAX), move || rustix::fs::statfs(&path));
    matches!(answer, Some(Err(error)) if is_of_a_gone_daemon(error))
}

/// Asks the daemon behind `dir`. Bounded, even if the daemon hangs.
///
/// # Errors
/// When `dir` is not on a Persimmon mount, or the daemon does not answer.
pub fn ask<T: DeserializeOwned>(dir: &Path, question: &str) -> Result<T> {
    ask_within(dir, question, Some(ANSWER_WAIT_MAX))
}

/// Asks for what may take as long as the device does. A daemon that does not answer even a simple question is
/// not waited for.
///
/// # Errors
/// As of [`ask`].
pub fn ask_for_work<T: DeserializeOwned>(dir: &Path, question: &str) -> Result<T> {
    ask::<Info>(dir, "info")?;
    ask_within(dir, question, None)
}

/// Whoever answers for a directory is no daemon of a volume.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} is not on a mounted Persimmon volume; name a mount point, a device or an image",
    .0.display()
)]
struct NotThere(PathBuf);

/// A question is for root and the user who runs the daemon, and whoever asked is neither.
#[derive(Debug, thiserror::Error)]
#[error("{}: permission denied: only root and the user who mounted it may do that", .0.display())]
pub struct NotAllowed(PathBuf);

/// Whether there may be a mount where asking failed so.
pub fn may_be_mounted(error: &anyhow::Error) -> bool {
    !error.is::<NotThere>()
}

fn ask_within<T: DeserializeOwned>(
    dir: &Path,
    question: &str,
    limit: Option<Duration>,
) -> Result<T> {
    let (path, name) = (dir.to_owned(), format!("{PREFIX}{question}"));
    let answer = within(limit, move || {
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        rustix::fs::getxattr(&path, name.as_str(), &mut answer).map(|length| {
            answer.truncate(length);
            answer
        })
    });
    let Some(answer) = answer else {
        bail!(
            "the daemon of {} has not answered for {} seconds; see its log",
            dir.display(),
            limit.unwrap_or_default().as_secs()
        );
    };
    match answer {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
            anyhow!(
                "the daemon of {} gave an answer this version does not understand: {error}",
                dir.display()
            )
        }),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL) => {
            Err(anyhow::Error::new(NotThere(dir.to_owned())))
        }
        Err(error) if is_of_a_gone_daemon(error) => bail!("{}", abandoned(dir)),
        Err(Errno::ACCESS | Errno::PERM) => Err(anyhow::Error::new(NotAllowed(dir.to_owned()))),
        Err(error) => bail!("{}: {error}", dir.display()),
    }
}

/// What `work` answers; nothing if that takes longer than `limit`. On a thread, which is left behind if it never
/// ends.
fn within<T: Send + 'static>(
    limit: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, answers) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(work());
    });
    match limit {
        Some(limit) => answers.recv_timeout(limit).ok(),
        None => answers.recv().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `persimmon sync` failed after ten seconds, the limit for all questions, though writing what waited was
    /// going well. Without a limit an answer is waited for.
    #[test]
    fn only_what_has_a_limit_is_given_up() {
        let slow = || {
            thread::sleep(Duration::from_millis(50));
            7
        };
        assert_eq!(within(Some(Duration::from_millis(1)), slow), None);
        assert_eq!(within(None, slow), Some(7));
        assert_eq!(within(Some(ANSWER_WAIT_MAX), slow), Some(7));
    }
}
