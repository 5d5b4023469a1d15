//! Asking the daemon of a live mount, through the attributes it answers on any file of the mount.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use persimmon_fuse::live::PREFIX;
use persimmon_fuse::mounts::{self, MountLine};
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use crate::mounted::{abandoned, mounted_at};
use crate::probe;
use crate::report::Info;

/// The longest attribute that the kernel passes.
const ANSWER_BYTES_MAX: usize = 64 << 10;

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
    pub fn of(spec: &str) -> Result<Target> {
        let path = crate::spec::resolve(spec)?;
        if path.is_dir() || is_abandoned(&path) {
            return Ok(Target::Live(path));
        }
        Ok(match mounted_at(&path) {
            Some(dir) => Target::Live(dir),
            None => Target::Device(path),
        })
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
    matches!(answer, Some(Err(Errno::NOTCONN)))
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
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL) => bail!(
            "{} is not on a mounted Persimmon volume; name a mount point, a device or an image",
            dir.display()
        ),
        Err(Errno::NOTCONN) => bail!("{}", abandoned(dir)),
        Err(Errno::PERM) => bail!(
            "{}: only root and the user who mounted it may do that",
            dir.display()
        ),
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
