//! Making an image.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use persimmon_format::BLOCK_SIZE;
use persimmon_format::container::{COPIES, ContainerGeometry, Layout, Superblock};
use rustix::fs::Access;

use super::ImageDevice;
use super::find::stale_copies;
use super::host::{Host, HostFile, is_full};
use super::open::{How, length_of};
use super::table::{TABLE_CHUNK_BYTES, Table};
use crate::lock::{check_unused, explain, lock_new, open_error, open_error_of, open_locked};
use crate::options::CreateOptions;
use crate::{DeviceError, Result, probe, traces};

/// Backups of foreign superblocks (GPT, md) live in so many bytes at the end of a device.
const TAIL_BYTES: u64 = 1 << 20;
/// Permissions of a new image.
const OWNER_ONLY: u32 = 0o600;
/// How an image is opened that was just made.
const WRITING: How = How {
    read_only: false,
    search: false,
};
/// Largest and smallest zones that are made where no size is asked for, bytes.
const ZONE_BYTES_MOST: u64 = 64 << 20;
const ZONE_BYTES_LEAST: u64 = 1 << 20;
/// Zones are made smaller until there are so many.
const ZONES_GOOD: u64 = 256;

impl ImageDevice {
    /// Makes an image in the file (made if need be) or block device, and opens it. All zones are
    /// empty. Interrupted, it leaves something that [`ImageDevice::open`] refuses.
    ///
    /// Errors: [`DeviceError::Busy`], [`DeviceError::HostFull`], or [`DeviceError::Open`] with what
    /// is wrong (a bad geometry, something on the device) and what to do.
    pub fn create(
        path: impl AsRef<Path>,
        geometry: &ContainerGeometry,
        options: &CreateOptions,
    ) -> Result<ImageDevice> {
        ImageDevice::claim(path.as_ref(), geometry, options)?.made(options)
    }

    /// All of [`ImageDevice::create`] that can refuse the file or device, but for room on the host.
    pub(crate) fn claim(
        path: &Path,
        geometry: &ContainerGeometry,
        options: &CreateOptions,
    ) -> Result<Claim> {
        let layout = geometry
            .layout()
            .map_err(|error| open_error(path, &error.to_string()))?;
        let made = match new_file(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(no_directory(path));
            }
            Err(error) => return Err(explain(path, &error)),
        };
        let new = NewFile(made.is_some().then(|| path.to_owned()));
        let mut host = HostFile::new(match made {
            Some(file) => lock_new(path, file, options.wait_for_lock)?,
            None => {
                let options = crate::OpenOptions {
                    wait_for_lock: options.wait_for_lock,
                    ..crate::OpenOptions::default()
                };
                open_locked(path, false, &options)?
            }
        });
        let length = length_of(path, &mut host)?;
        check_unused(path, &host.opened.file)?;
        if !options.force {
            check_nothing_lost(path, &host)?;
        }
        let old = host.opened.is_block_device.then_some(length);
        check_length(path, old, &layout)?;
        Ok(Claim {
            path: path.to_owned(),
            new,
            host,
            old,
            geometry: geometry.clone(),
            layout,
        })
    }

    /// Makes an image in the `length` bytes of a host that the caller has for itself, whatever is there,
    /// and opens it.
    ///
    /// Errors: as of [`ImageDevice::create`].
    pub(crate) fn create_on(
        path: &Path,
        host: Box<dyn Host>,
        length: u64,
        geometry: &ContainerGeometry,
        options: &CreateOptions,
    ) -> Result<ImageDevice> {
        let layout = geometry
            .layout()
            .map_err(|error| open_error(path, &error.to_string()))?;
        let superblock = write_empty(path, &*host, Some(length), geometry, &layout, options)?;
        ImageDevice::assemble(path, host, superblock, WRITING)
    }

    /// Size of a zone, bytes, where none is asked for on `bytes`: the largest power of two up to 64 MiB of which 256 fit, and
    /// 1 MiB at least. What a volume needs for itself are some ten zones, and some megabytes: of fewer and larger
    /// zones it takes more.
    #[must_use]
    pub fn zone_bytes_for(bytes: u64) -> u64 {
        let mut zone_bytes = ZONE_BYTES_MOST;
        while zone_bytes > ZONE_BYTES_LEAST && bytes / zone_bytes < ZONES_GOOD {
            zone_bytes /= 2;
        }
        zone_bytes
    }

    /// How many zones of this geometry fit into `bytes`.
    #[must_use]
    pub fn zones_fitting(bytes: u64, zone_blocks: u32, capacity_blocks: u32) -> u32 {
        let total = |zone_count| {
            let geometry = ContainerGeometry {
                zone_count,
                zone_blocks,
                capacity_blocks,
                max_open: None,
                max_active: None,
            };
            geometry.layout().map_or(u64::MAX, |layout| layout.total)
        };
        let (mut fits, mut too_many) = (0, persimmon_format::container::ZONE_COUNT_MAX + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if total(middle) <= bytes {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        fits
    }
}

/// Refuses what would be refused of an image in a file that is not there yet, which is not made.
pub(crate) fn check_new(path: &Path, geometry: &ContainerGeometry) -> Result<()> {
    let layout = geometry.layout();
    layout.map_err(|error| open_error(path, &error.to_string()))?;
    let directory = directory_of(path);
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return Err(open_error(
                path,
                &io::Error::from(io::ErrorKind::NotADirectory).to_string(),
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_directory(path)),
        Err(error) => return Err(explain(path, &error)),
    }
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| explain(path, &error.into()))
}

/// Where a new file is made.
fn directory_of(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn no_directory(path: &Path) -> DeviceError {
    let missing = Some(libc::ENOENT);
    open_error_of(path, "the directory does not exist; make it first", missing)
}

/// A file or device that is this process's and may become an image: nothing is lost by it, or that is
/// wanted. What is on it is still there.
pub struct Claim {
    path: PathBuf,
    new: NewFile,
    host: HostFile,
    /// Bytes of a block device.
    old: Option<u64>,
    geometry: ContainerGeometry,
    layout: Layout,
}

/// Makes a file that was not there, which its owner alone may read and write, whatever the umask is: permissions are
/// checked by who mounts the volume, not by who reads its image.
fn new_file(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let file = options.mode(OWNER_ONLY).open(path)?;
    // By the descriptor: what has the name by now may be another file. The umask may have taken the owner's rights.
    file.set_permissions(fs::Permissions::from_mode(OWNER_ONLY))?;
    Ok(file)
}

/// A file that was not there, and is not in the end unless it becomes an image.
struct NewFile(Option<PathBuf>);

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The error of making it is the one to tell.
            let _ = fs::remove_file(path);
        }
    }
}

impl Claim {
    /// Makes the image, and opens it.
    pub fn made(mut self, options: &CreateOptions) -> Result<ImageDevice> {
        let path = self.path.as_path();
        if self.old.is_none() {
            resize(path, &self.host.opened.file, self.layout.total)?;
        }
        let (geometry, layout) = (&self.geometry, &self.layout);
        let superblock = write_empty(path, &self.host, self.old, geometry, layout, options)?;
        if self.new.0.take().is_some() {
            sync_directory(path).map_err(|error| explain(path, &error))?;
        }
        ImageDevice::assemble(path, Box::new(self.host), superblock, WRITING)
    }
}

/// Refuses a block device of so many bytes that is too small.
fn check_length(path: &Path, length: Option<u64>, layout: &Layout) -> Result<()> {
    let Some(length) = length.filter(|length| *length < layout.total) else {
        return Ok(());
    };
    let message = format!(
        "has {length} bytes, the zones need {}; take fewer or smaller zones",
        layout.total
    );
    Err(open_error(path, &message))
}

/// Writes the superblocks and an empty table; clears so many bytes of what was there before.
fn write_empty(
    path: &Path,
    host: &dyn Host,
    old: Option<u64>,
    geometry: &ContainerGeometry,
    layout: &Layout,
    options: &CreateOptions,
) -> Result<Superblock> {
    let mut superblock = Superblock {
        geometry: geometry.clone(),
        generation: 0,
        uuid: options.uuid.into_bytes(),
        volume: options.uuid.into_bytes(),
        data: None,
        label: options.label.clone(),
        complete: false,
        table_seed: Superblock::seed_for(options.uuid.into_bytes()),
    };
    let fail = |error: io::Error| {
        if is_full(&error) {
            DeviceError::HostFull
        } else {
            explain(path, &error)
        }
    };
    check_length(path, old, layout)?;
    let block = |superblock: &Superblock, copy| {
        superblock
            .encode(copy)
            .map_err(|error| open_error(path, &error.to_string()))
    };
    host.write_bytes_at(&block(&superblock, 0)?, 0)
        .map_err(fail)?;
    host.sync().map_err(fail)?;
    if let Some(length) = old {
        // The first is that of this image.
        let stale = stale_copies(host, length).map_err(fail)?;
        zero_blocks(host, stale.into_iter().filter(|place| *place != 0)).map_err(fail)?;
        zero(host, BLOCK_SIZE as u64, layout.data).map_err(fail)?;
        // A discard where there is one. What is not zeroed below nobody reads: zones are empty.
        let _ = host.punch(layout.data, length - layout.data);
        zero(host, layout.end, layout.total).map_err(fail)?;
        let tail = length.saturating_sub(TAIL_BYTES).max(layout.total);
        zero(host, tail, length).map_err(fail)?;
    }
    // Written whole: so a flush never allocates for them.
    Table::write_unused(host, layout, geometry.zone_count, superblock.table_seed).map_err(fail)?;
    host.sync().map_err(fail)?;
    superblock.complete = true;
    superblock.generation = 1;
    for copy in (0..COPIES).rev() {
        host.write_bytes_at(&block(&superblock, copy)?, layout.copy(copy))
            .map_err(fail)?;
    }
    host.sync().map_err(fail)?;
    Ok(superblock)
}

/// Erases the superblocks of an image in the `length` bytes of a host, and the first `head` bytes, where those of
/// other filesystems are.
pub(crate) fn erase(host: &dyn Host, length: u64, head: u64) -> io::Result<()> {
    zero_blocks(host, stale_copies(host, length)?)?;
    zero(host, 0, head.min(length))?;
    host.sync()
}

fn zero_blocks(host: &dyn Host, places: impl IntoIterator<Item = u64>) -> io::Result<()> {
    let mut places = places.into_iter();
    places.try_for_each(|place| zero(host, place, place + BLOCK_SIZE as u64))
}

/// Refuses a device or file with something on it.
fn check_nothing_lost(path: &Path, host: &HostFile) -> Result<()> {
    let file = &host.opened.file;
    let what = match probe::identify(file).map_err(|error| explain(path, &error))? {
        Some(found) if found.is_unfinished() => return Ok(()),
        Some(found) => found.to_string(),
        None => match traces::of_volume(file) {
            Some(trace) => trace.to_string(),
            // A device full of old bytes is common; a file that is not empty is somebody's.
            None if host.opened.is_block_device || probe::is_blank(file).unwrap_or(false) => {
                return Ok(());
            }
            None => "data of an unknown kind".to_owned(),
        },
    };
    let message = format!("holds {what}; use --force to overwrite it");
    Err(open_error(path, &message))
}

fn resize(path: &Path, file: &File, total: u64) -> Result<()> {
    let resized = file.set_len(0).and_then(|()| file.set_len(total));
    resized.map_err(|error| match error.kind() {
        _ if is_full(&error) => DeviceError::HostFull,
        io::ErrorKind::FileTooLarge => open_error_of(
            path,
            &format!("the host filesystem takes no file of {total} bytes; choose a smaller size"),
            error.raw_os_error(),
        ),
        _ => explain(path, &error),
    })
}

pub(super) fn zero(host: &dyn Host, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; TABLE_CHUNK_BYTES as usize];
    let mut at = from;
    while at < to {
        let length = (to - at).min(TABLE_CHUNK_BYTES) as usize;
        host.write_bytes_at(zeros.get(..length).unwrap_or(&zeros), at)?;
        at += length as u64;
    }
    Ok(())
}

/// Makes the name of a new file durable.
fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}
