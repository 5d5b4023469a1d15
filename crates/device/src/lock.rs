//! Opening a file or block device: by one writer or many readers at a time, and not below a mount.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::options::OpenOptions;
use crate::{DeviceError, Result};

/// How often a lock that another process holds is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A file or block device that is locked.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) is_block_device: bool,
    /// The process that took the lock, for itself alone.
    pub(crate) locked_by: Option<u32>,
}

impl Opened {
    /// Lets go of the lock, though a child of `fork` may have a descriptor of the same open file. The child itself lets go of nothing.
    pub(crate) fn release(&self) {
        if self.locked_by == Some(process::id()) {
            // Gone with the last descriptor otherwise.
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// The lock of a file or block device, taken before it is opened: for who has something else hold the device, which
/// an exclusive descriptor would be in the way of. Goes with this value.
#[derive(Debug)]
pub struct Hold {
    file: File,
    path: PathBuf,
}

impl Hold {
    /// Locks the file or block device at `path`, as opening it would; [`crate::OpenOptions::held`] then opens it
    /// without. A block device is not opened exclusively.
    ///
    /// # Errors
    /// [`DeviceError::Busy`] while another process has it open, else [`DeviceError::Open`].
    pub fn of(path: &Path, write: bool, wait: Duration) -> Result<Hold> {
        check_kind(path)?;
        let file = fs::OpenOptions::new().read(true).write(write).open(path);
        let file = file.map_err(|error| explain(path, &error))?;
        lock_file(path, &file, write, wait)?;
        Ok(Hold {
            file,
            path: path.to_owned(),
        })
    }

    /// Goes on with `locks` too.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn kept_in(&self, locks: &Locks) -> io::Result<()> {
        locks.lock().push(self.file.try_clone()?);
        Ok(())
    }

    /// The error of who finds that something else holds the device.
    #[must_use]
    pub fn busy(&self) -> DeviceError {
        match self.file.metadata() {
            Ok(metadata) => busy(&self.path, &metadata),
            Err(error) => explain(&self.path, &error),
        }
    }
}

/// Locks that outlive the process that took them, for one that opens the same devices after it: a third one has their descriptors meanwhile, so
/// that nobody else opens them in between.
#[derive(Debug, Default)]
pub struct Locks {
    files: Mutex<Vec<File>>,
    /// They are of a process before this one, which takes none.
    taken_before: bool,
}

impl Locks {
    /// Those of a process before this one.
    #[must_use]
    pub fn taken_before(descriptors: Vec<OwnedFd>) -> Locks {
        Locks {
            files: Mutex::new(descriptors.into_iter().map(File::from).collect()),
            taken_before: true,
        }
    }

    /// Their descriptors.
    ///
    /// # Errors
    /// The system gives none.
    pub fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let files = self.lock();
        let cloned = files.iter().map(|file| Ok(file.try_clone()?.into()));
        cloned.collect()
    }

    /// Lets go of them, whoever has descriptors of them. The devices are closed.
    pub fn release(&self) {
        for file in self.lock().drain(..) {
            // Gone with the last descriptor otherwise.
            let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<File>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that was opened is what was locked before.
    fn check(&self, path: &Path, file: &File) -> Result<()> {
        let found = file.metadata().map_err(|error| explain(path, &error))?;
        let is_same = |locked: Metadata| match found.file_type().is_block_device() {
            true => locked.file_type().is_block_device() && locked.rdev() == found.rdev(),
            false => (locked.dev(), locked.ino()) == (found.dev(), found.ino()),
        };
        let files = self.lock();
        let mut locked = files.iter().filter_map(|file| file.metadata().ok());
        match locked.any(is_same) {
            true => Ok(()),
            false => Err(open_error(
                path,
                "is not what was mounted: something else has its name by now",
            )),
        }
    }
}

/// Opens the file and locks it: exclusively for writing, shared for reading. While another process
/// is in the way, tries again until `wait` has passed.
///
/// The lock is flock's: it belongs to the open file, so a daemon that forks keeps it, and it goes
/// with the last descriptor however the process ends. A block device is moreover opened
/// exclusively for writing, which the kernel refuses while it is mounted or part of another.
/// `direct`: reads and writes pass the page cache by. `options` say, too, whether it is locked already.
pub(crate) fn open_locked(path: &Path, direct: bool, options: &OpenOptions) -> Result<Opened> {
    let metadata = check_kind(path)?;
    let is_block_device = metadata.file_type().is_block_device();
    let write = !options.read_only;
    let was_locked = options
        .locks
        .as_ref()
        .is_some_and(|locks| locks.taken_before);
    let mut patience = Patience::new(options.wait_for_lock);
    let mut how = fs::OpenOptions::new();
    let mut flags = OFlags::empty();
    let exclusively = write && is_block_device && !options.held && !was_locked;
    flags.set(OFlags::EXCL, exclusively);
    flags.set(OFlags::DIRECT, direct);
    how.read(true)
        .write(write)
        .custom_flags(flags.bits() as i32);
    let file = loop {
        match how.open(path) {
            Ok(file) => break file,
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                if !patience.wait() {
                    return Err(busy(path, &metadata));
                }
            }
            Err(error) => return Err(explain(path, &error)),
        }
    };
    if !options.held {
        flock_by(options, path, &file, patience, &metadata)?;
    }
    let is_own = !options.held && options.locks.is_none();
    Ok(Opened {
        file,
        is_block_device,
        locked_by: is_own.then(process::id),
    })
}

/// Why a volume cannot be there: it is neither a regular file nor a block device.
pub(crate) fn wrong_kind(metadata: &Metadata) -> Option<&'static str> {
    if metadata.file_type().is_block_device() || metadata.is_file() {
        None
    } else if metadata.is_dir() {
        Some("is a directory, neither a regular file nor a block device")
    } else {
        Some("is neither a regular file nor a block device")
    }
}

fn check_kind(path: &Path) -> Result<Metadata> {
    let metadata = fs::metadata(path).map_err(|error| explain(path, &error))?;
    match wrong_kind(&metadata) {
        Some(why) => Err(open_error(path, why)),
        None => Ok(metadata),
    }
}

/// Locks a regular file that this process has just made, by the descriptor that made it.
pub(crate) fn lock_new(path: &Path, file: File, wait: Duration) -> Result<Opened> {
    lock_file(path, &file, true, wait)?;
    Ok(Opened {
        file,
        is_block_device: false,
        locked_by: Some(process::id()),
    })
}

/// Locks a file or directory that is open: as [`open_locked`] does.
pub(crate) fn lock_opened(path: &Path, file: &File, options: &OpenOptions) -> Result<()> {
    let metadata = file.metadata().map_err(|error| explain(path, &error))?;
    let patience = Patience::new(options.wait_for_lock);
    flock_by(options, path, file, patience, &metadata)
}

fn lock_file(path: &Path, file: &File, write: bool, wait: Duration) -> Result<()> {
    let metadata = file.metadata().map_err(|error| explain(path, &error))?;
    flock(path, file, write, Patience::new(wait), &metadata)
}

/// With locks that outlive this process, takes one for them, or finds it among them.
fn flock_by(
    options: &OpenOptions,
    path: &Path,
    file: &File,
    patience: Patience,
    metadata: &Metadata,
) -> Result<()> {
    let lock = || flock(path, file, !options.read_only, patience, metadata);
    match &options.locks {
        None => lock(),
        Some(locks) if locks.taken_before => locks.check(path, file),
        Some(locks) => {
            lock()?;
            let kept = file.try_clone().map_err(|error| explain(path, &error))?;
            locks.lock().push(kept);
            Ok(())
        }
    }
}

fn flock(
    path: &Path,
    file: &File,
    write: bool,
    mut patience: Patience,
    metadata: &Metadata,
) -> Result<()> {
    let operation = if write {
        FlockOperation::NonBlockingLockExclusive
    } else {
        FlockOperation::NonBlockingLockShared
    };
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                if !patience.wait() {
                    return Err(busy(path, metadata));
                }
            }
            Err(error) => {
                let number = Some(error.raw_os_error());
                let message = format!("cannot be locked: {error}");
                return Err(open_error_of(path, &message, number));
            }
        }
    }
}

/// How often to try again.
struct Patience {
    attempts_left: u128,
}

impl Patience {
    fn new(wait: Duration) -> Patience {
        Patience {
            attempts_left: wait.as_millis() / RETRY_INTERVAL.as_millis(),
        }
    }

    /// Waits a moment; false: long enough already.
    fn wait(&mut self) -> bool {
        if self.attempts_left == 0 {
            return false;
        }
        self.attempts_left -= 1;
        std::thread::sleep(RETRY_INTERVAL);
        true
    }
}

/// Refuses a file or device that is mounted or attached to a loop device.
pub(crate) fn check_unused(path: &Path, file: &File) -> Result<()> {
    let metadata = file.metadata().map_err(|error| explain(path, &error))?;
    if mounted_on(path, &metadata).is_some() {
        return Err(busy(path, &metadata));
    }
    if let Some(device) = attached_to(path) {
        let message = format!("is attached to {device}; detach it first (losetup -d {device})");
        return Err(open_error(path, &message));
    }
    Ok(())
}

fn busy(path: &Path, metadata: &Metadata) -> DeviceError {
    DeviceError::Busy {
        path: match mounted_on(path, metadata) {
            Some(place) => format!("{} (mounted on {place})", path.display()),
            None => path.display().to_string(),
        },
    }
}

/// The mount point of the device, or of something that names the file as its source.
fn mounted_on(path: &Path, metadata: &Metadata) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let canonical = fs::canonicalize(path).ok()?;
    let device = metadata.file_type().is_block_device().then(|| {
        let device = metadata.rdev();
        format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        )
    });
    // id parent major:minor root place options [tags] - type source options
    mounts.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(2);
        let number = front.next()?;
        let place = front.nth(1)?;
        let source = unescape(back.split(' ').nth(1)?);
        let hit = device.as_deref() == Some(number) || Path::new(&source) == canonical;
        hit.then(|| unescape(place))
    })
}

/// The loop device that has the file as its backing file.
fn attached_to(path: &Path) -> Option<String> {
    let canonical = fs::canonicalize(path).ok()?;
    let devices = fs::read_dir("/sys/block").ok()?;
    devices.flatten().find_map(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        let hit = Path::new(backing.trim_end_matches('\n')) == canonical;
        hit.then(|| format!("/dev/{}", device.file_name().to_string_lossy()))
    })
}

/// Undoes the octal escapes of /proc files.
pub(crate) fn unescape(field: &str) -> String {
    let mut out = field.to_owned();
    for (escape, plain) in [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ] {
        out = out.replace(escape, plain);
    }
    out
}

/// An error of opening, with what to do about it.
pub(crate) fn explain(path: &Path, error: &io::Error) -> DeviceError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => match fs::read_link(path) {
            Ok(target) => format!(
                "is a symbolic link to {}, which does not exist",
                target.display()
            ),
            Err(_) => "does not exist; make it with `persimmon mkfs`".to_owned(),
        },
        io::ErrorKind::PermissionDenied => {
            "permission denied; run as a user who may read and write it".to_owned()
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "is on a read-only filesystem; a volume there can be mounted with `-o ro`".to_owned()
        }
        _ => error.to_string(),
    };
    open_error_of(path, &remedy, error.raw_os_error())
}

pub(crate) fn open_error(path: &Path, message: &str) -> DeviceError {
    open_error_of(path, message, None)
}

/// The same where something on the device is damaged.
pub(crate) fn damage_error(path: &Path, message: &str) -> DeviceError {
    open_error_of(path, message, Some(libc::EIO))
}

/// The same where the system has said something, too.
pub(crate) fn open_error_of(path: &Path, message: &str, os_error: Option<i32>) -> DeviceError {
    DeviceError::Open {
        path: path.display().to_string(),
        message: message.to_owned(),
        os_error,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_the_system_said_is_told_by_its_number() {
        for number in [libc::EACCES, libc::ENOENT, libc::EISDIR] {
            let error = explain(Path::new("image"), &io::Error::from_raw_os_error(number));
            let told = match error {
                DeviceError::Open { os_error, .. } => os_error,
                other => panic!("{other}"),
            };
            assert_eq!(told, Some(number));
        }
    }

    /// A process that was killed had the only lock: another one could open, and repair, the device before the next one did.
    #[test]
    fn locks_that_are_kept_outlive_who_took_them() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["one", "two"].map(|name| dir.path().join(name));
        fs::write(&path, "").unwrap();
        fs::write(&other, "").unwrap();
        let now = OpenOptions {
            wait_for_lock: Duration::ZERO,
            ..OpenOptions::default()
        };
        let by = |locks: &Arc<Locks>| OpenOptions {
            locks: Some(Arc::clone(locks)),
            ..now.clone()
        };
        let first = Arc::new(Locks::default());
        let opened = open_locked(&path, false, &by(&first)).unwrap();
        let kept = first.descriptors().unwrap();
        assert_eq!(kept.len(), 1);
        drop((opened, first));
        let is_busy = || {
            matches!(
                open_locked(&path, false, &now),
                Err(DeviceError::Busy { .. })
            )
        };
        assert!(is_busy());
        let next = Arc::new(Locks::taken_before(kept));
        let opened = open_locked(&path, false, &by(&next)).unwrap();
        assert!(matches!(
            open_locked(&other, false, &by(&next)),
            Err(DeviceError::Open { .. })
        ));
        // Another file has the name.
        fs::rename(&path, dir.path().join("three")).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(matches!(
            open_locked(&path, false, &by(&next)),
            Err(DeviceError::Open { .. })
        ));
        fs::rename(dir.path().join("three"), &path).unwrap();
        assert!(is_busy());
        let kept = next.descriptors().unwrap();
        drop(opened);
        next.release();
        // Though a third process has them still.
        assert!(!is_busy());
        drop(kept);
    }
}
