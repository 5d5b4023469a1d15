//! Which devices are mounted.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use persimmon::internal::device::pair;
use persimmon_fuse::mounts::{self, MountLine};
use rustix::io::Errno;

use crate::live;
use crate::report::Info;

/// Where a device or image is mounted, alone or as one of two, as far as this process sees.
pub fn mounted_at(device: &Path) -> Option<PathBuf> {
    let mounts = mounts::list().ok()?;
    let has_it = |line: &MountLine| {
        let of_pair = || pair::names(&line.source);
        line.source == device || of_pair().is_some_and(|(a, b)| a == device || b == device)
    };
    let mut ours = mounts.into_iter().filter(MountLine::is_persimmon);
    ours.find(has_it).map(|line| line.mount_point)
}

/// Whether the kernel answers so for a daemon that ended without an unmount: there is no connection (`ENOTCONN`), or it
/// broke while the kernel had the request (`ECONNABORTED`), which happens when that goes through io_uring.
pub fn is_of_a_gone_daemon(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}

/// What to do about a mount whose daemon ended without an unmount.
pub fn abandoned(dir: &Path) -> String {
    format!(
        "{0} is still mounted, but its daemon is gone; `umount {0}` and mount it again, which recovers what was \
         synced",
        dir.display()
    )
}

/// Why a command for volumes that are not mounted has nothing to do with a directory. `instead` says what does the same
/// where it is mounted.
///
/// # Errors
/// When the table of mounts cannot be read.
pub fn refusal(dir: &Path, instead: &str) -> Result<anyhow::Error> {
    let is_mount_point = mounts::at(dir)
        .context("/proc/self/mountinfo")?
        .is_some_and(|line| line.is_persimmon());
    let place = match live::ask::<Info>(dir, "info") {
        Ok(info) => info.mount_point.unwrap_or_else(|| dir.to_owned()),
        // A daemon that does not answer is one all the same.
        Err(_) if is_mount_point => dir.to_owned(),
        Err(error) if live::may_be_mounted(&error) => return Ok(error),
        Err(_) => {
            return Ok(anyhow!(
                "{} is a directory, and no Persimmon volume is mounted there; name a device or an \
                 image",
                dir.display()
            ));
        }
    };
    Ok(anyhow!(
        "mounted at {0}; {instead}`umount {0}` first",
        place.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Through io_uring `persimmon info` said `ECONNABORTED` of a killed daemon, instead of what to do about it.
    #[test]
    fn a_connection_that_broke_is_that_of_a_gone_daemon() {
        assert!(is_of_a_gone_daemon(Errno::NOTCONN));
        assert!(is_of_a_gone_daemon(Errno::CONNABORTED));
        assert!(!is_of_a_gone_daemon(Errno::NODATA));
        assert!(!is_of_a_gone_daemon(Errno::IO));
    }
}
