//! Which devices are mounted.

use std::path::{Path, PathBuf};

use persimmon::internal::device::pair;
use persimmon_fuse::mounts::{self, MountLine};

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

/// What to do about a mount whose daemon ended without an unmount: the kernel answers for it that there is no
/// connection (`ENOTCONN`).
pub fn abandoned(dir: &Path) -> String {
    format!(
        "{0} is still mounted, but its daemon is gone; `umount {0}` and mount it again, which recovers what was \
         synced",
        dir.display()
    )
}
