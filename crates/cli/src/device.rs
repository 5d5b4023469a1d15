//! Opening a device that another process may be using: waits for it, and says for whom.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use persimmon::internal::device::{DeviceError, Drive, OpenOptions};

/// How long to wait for the process that used the device before to let go: an unmount is over for
/// mount(8) before the daemon has written everything.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long to wait without a word: a process that is ending lets go sooner.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// Opens a device.
///
/// # Errors
/// [`DeviceError::Busy`] when another process has not let go after [`LOCK_WAIT_MAX`]; as
/// [`Drive::open`].
pub fn open(path: &Path, read_only: bool) -> Result<Drive, DeviceError> {
    open_by(path, read_only, false)
}

/// Opens a device; of an image one looks for it everywhere with `search`, and takes no write pointer for granted.
///
/// # Errors
/// As of [`open`].
pub fn open_by(path: &Path, read_only: bool, search: bool) -> Result<Drive, DeviceError> {
    patiently(|wait_for_lock| {
        Drive::open(
            path,
            &OpenOptions {
                read_only,
                wait_for_lock,
                search,
                ..OpenOptions::default()
            },
        )
    })
}

/// Opens a device for reading, or tells at once why not.
///
/// # Errors
/// [`DeviceError::Busy`] when another process uses it; as [`Drive::open`].
pub fn try_open(path: &Path) -> Result<Drive, DeviceError> {
    let options = OpenOptions {
        read_only: true,
        wait_for_lock: Duration::ZERO,
        ..OpenOptions::default()
    };
    Drive::open(path, &options)
}

/// Opens one device, though it be one of two.
///
/// # Errors
/// As of [`open`].
pub fn open_part(path: &Path) -> Result<Drive, DeviceError> {
    patiently(|wait_for_lock| {
        let read_only = true;
        Drive::open_part(
            path,
            &OpenOptions {
                read_only,
                wait_for_lock,
                ..OpenOptions::default()
            },
        )
    })
}

/// Tries something that waits so long for the lock of a device; once it has waited for a second,
/// says so and goes on.
///
/// # Errors
/// Those of `attempt`.
pub fn patiently<T>(
    mut attempt: impl FnMut(Duration) -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let start = Instant::now();
    match attempt(SILENCE_MAX) {
        // What is refused at once, since it is mounted, is not to be had by waiting.
        Err(DeviceError::Busy { path: shown }) if start.elapsed() >= SILENCE_MAX => {
            crate::output::tell(format_args!(
                "{shown} is in use by {}; waiting up to {} seconds for it to let go",
                user_of(Path::new(&shown)),
                LOCK_WAIT_MAX.as_secs()
            ));
            attempt(LOCK_WAIT_MAX - SILENCE_MAX)
        }
        other => other,
    }
}

/// Who holds the lock, as far as the kernel tells.
fn user_of(path: &Path) -> String {
    let holder = || {
        let metadata = fs::metadata(path).ok()?;
        let (major, minor) = (
            rustix::fs::major(metadata.dev()),
            rustix::fs::minor(metadata.dev()),
        );
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let pid = holder_of(
            &locks,
            &format!("{major:02x}:{minor:02x}:{}", metadata.ino()),
        )?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(format!("process {pid} ({})", name.trim_end()))
    };
    holder().unwrap_or_else(|| "another process".to_owned())
}

/// The process in `/proc/locks` that has flock's lock on the file with this name there.
fn holder_of(locks: &str, file: &str) -> Option<u32> {
    // number: FLOCK ADVISORY WRITE pid major:minor:inode start end
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields.as_slice() {
            [_, "FLOCK", _, _, pid, name, ..] if *name == file => pid.parse().ok(),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::holder_of;

    #[test]
    fn who_waits_is_not_who_holds() {
        let locks = "1: POSIX  ADVISORY  READ 900 fe:00:77 128 128\n\
                     2: -> FLOCK  ADVISORY  WRITE 901 fe:00:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 902 fe:00:777 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 903 fe:00:77 0 EOF\n";
        assert_eq!(holder_of(locks, "fe:00:77"), Some(903));
        assert_eq!(holder_of(locks, "fe:00:78"), None);
    }
}
