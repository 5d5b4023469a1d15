//! Opening and emptying a zonefs.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions as FileOptions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persimmon_format::BLOCK_SIZE;
use rustix::fs::OFlags;

use super::files::{Readers, Writers, ZoneFiles};
use super::{ZonefsDevice, ZonefsPort, capacity_bytes, info, torn_bytes};
use crate::linux::files::FileWire;
use crate::linux::limits::Limits;
use crate::linux::make::{self, Claim};
use crate::linux::ready::{self, LeftOut};
use crate::lock::{explain, lock_opened, open_error, unescape};
use crate::options::{CreateOptions, OpenOptions};
use crate::probe::{self, Identity};
use crate::{BufferMut, Geometry, Result, ZoneId, ZoneInfo, ZoneState};

/// What stands before the directory in a URI.
const SCHEME: &[u8] = b"zonefs:";
/// `ZONEFS_MAGIC` of <linux/magic.h>.
const MAGIC: u64 = 0x5a4f_4653;
/// Files open for writing where the drive sets no limit.
const WRITE_FILES_MAX: u32 = 128;

/// The directory that `zonefs:DIR` names; `None` for what is no such URI.
#[must_use]
pub fn directory(uri: &Path) -> Option<&Path> {
    let dir = uri.as_os_str().as_bytes().strip_prefix(SCHEME)?;
    Some(Path::new(OsStr::from_bytes(dir)))
}

/// The file of the first zone of the zonefs that `zonefs:DIR` names; `None` for what is no such URI.
pub fn first_file(uri: &Path) -> Option<PathBuf> {
    Some(ZoneFiles(directory(uri)?.join("seq")).path(ZoneId(0)))
}

/// The URI of the zonefs that is mounted at a directory.
#[must_use]
pub fn uri(dir: &Path) -> PathBuf {
    let mut uri = SCHEME.to_vec();
    uri.extend_from_slice(dir.as_os_str().as_bytes());
    PathBuf::from(OsString::from_vec(uri))
}

/// What the kernel says of a zonefs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonefsLimits {
    /// Files that may be open for writing at once; `None` is no limit.
    pub max_open: Option<u32>,
    /// Files that may be partly written or open at once; `None` is no limit.
    pub max_active: Option<u32>,
    /// The block device below.
    pub block_device: PathBuf,
    /// How the kernel sees that.
    pub drive: Limits,
}

impl ZonefsLimits {
    /// Reads them for the zonefs that holds this file.
    ///
    /// Errors: the block device below is gone.
    pub fn read(file: &File) -> io::Result<ZonefsLimits> {
        let device = file.metadata()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let sysfs = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))?;
        let name = sysfs.file_name().ok_or(io::ErrorKind::NotFound)?;
        let drive = Limits::read(&sysfs)?;
        // Kernels before 5.19 have no such directory.
        let own = Path::new("/sys/fs/zonefs").join(name);
        let least = |file: &str, of_drive: Option<u32>| {
            let text = fs::read_to_string(own.join(file)).unwrap_or_default();
            let limit = text.trim().parse().ok().filter(|limit| *limit > 0);
            of_drive.into_iter().chain(limit).min()
        };
        Ok(ZonefsLimits {
            max_open: least("max_wro_seq_files", drive.max_open),
            max_active: least("max_active_seq_files", drive.max_active),
            // Sysfs writes a slash in a device's name as an exclamation mark.
            block_device: Path::new("/dev").join(name.to_string_lossy().replace('!', "/")),
            drive,
        })
    }
}

/// Directories at which this process sees a zonefs mounted.
///
/// Errors: `/proc` cannot be read.
pub fn list() -> io::Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    // id parent major:minor root place options [tags] - type source options
    let found = mounts.lines().filter_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let place = front.split(' ').nth(4)?;
        back.starts_with("zonefs ")
            .then(|| PathBuf::from(unescape(place)))
    });
    Ok(found.collect())
}

/// A zonefs found at a directory.
struct Found {
    file: File,
    files: ZoneFiles,
    limits: ZonefsLimits,
}

/// Looks at what a URI names.
fn look(uri: &Path) -> Result<Found> {
    let dir = directory(uri).ok_or_else(|| open_error(uri, "is not zonefs:DIRECTORY"))?;
    let file = probe::open(dir).map_err(|error| explain(uri, &error))?;
    let statfs = rustix::fs::fstatfs(&file).map_err(|error| explain(uri, &error.into()))?;
    if statfs.f_type as u64 != MAGIC {
        let message =
            "is not a zonefs; mount one there: `mount -t zonefs -o explicit-open DEVICE DIRECTORY`";
        return Err(open_error(uri, message));
    }
    let files = ZoneFiles(dir.join("seq"));
    if !files.0.is_dir() {
        let message = "has no directory `seq`; name the directory that the zonefs is mounted at";
        return Err(open_error(uri, message));
    }
    let limits = ZonefsLimits::read(&file).map_err(|error| explain(uri, &error))?;
    Ok(Found {
        file,
        files,
        limits,
    })
}

impl ZonefsDevice {
    /// Opens the zonefs that `zonefs:DIR` names, for writing exclusively.
    ///
    /// Errors: [`crate::DeviceError::Busy`] where it is in use by another process, else
    /// [`crate::DeviceError::Open`] with what is wrong and what to do.
    pub fn open(uri: impl AsRef<Path>, options: &OpenOptions) -> Result<ZonefsDevice> {
        let uri = uri.as_ref();
        let Found {
            file,
            files,
            limits,
        } = look(uri)?;
        let drive = &limits.drive;
        let write_bytes_min = drive.logical_block_bytes.max(drive.write_granularity_bytes);
        if let Some(problem) = make::problem(drive.zone_bytes, write_bytes_min) {
            return Err(open_error(uri, &problem));
        }
        lock_opened(uri, &file, options)?;
        let may_change = make::may_change(options, false, || Ok(identity_of(&files)))
            .map_err(|error| explain(uri, &error))?;
        let Zones {
            numbers,
            mut zones,
            torn,
        } = zones(uri, &files)?;
        let writers = limits.max_open.unwrap_or(u32::MAX).min(WRITE_FILES_MAX);
        let geometry = Geometry {
            max_open: Some(writers),
            max_active: limits.max_active,
            volatile_cache: drive.volatile_cache,
            ..make::geometry(
                zones.len(),
                drive.zone_bytes,
                drive.request_bytes_max,
                drive.request_segments_max,
            )
        };
        let port = ZonefsPort {
            writers: Arc::new(Writers::new(files.clone(), writers)),
            readers: Readers::new(files.clone()),
            files,
            block_device: block_device(&file, &limits).map(Arc::new),
            numbers,
            zone_bytes: drive.zone_bytes,
            _locked: file,
        };
        let mut left_out = LeftOut::default();
        if may_change {
            // Files that are not open are no open zones: but for torn blocks there is nothing to make ready.
            left_out = ready::settle(&port, &mut zones, &torn).map_err(|failure| {
                let message = format!("its zones cannot be made ready for writing: {failure}");
                open_error(uri, &message)
            })?;
        }
        let zones = (&zones[..], left_out);
        ZonefsDevice::start(uri, port, FileWire, geometry, zones, options.read_only)
    }

    /// Empties a zonefs, and opens it. Without `force` only if nothing is in it.
    ///
    /// Errors: as of [`ZonefsDevice::open`].
    pub fn create(uri: impl AsRef<Path>, options: &CreateOptions) -> Result<ZonefsDevice> {
        ZonefsDevice::claim(uri.as_ref(), options)?.emptied(false)
    }

    /// All of [`ZonefsDevice::create`] that can refuse the zonefs.
    pub(crate) fn claim(uri: &Path, options: &CreateOptions) -> Result<Claim<ZonefsPort>> {
        let device = ZonefsDevice::open(uri, &make::opening(options))?;
        Claim::of(device, options.force, || Ok(None), || identity(uri))
    }
}

/// UUID and label of the volume in a zonefs, without locking it. `None`: none of the zones that
/// hold the log has a header.
///
/// Errors: it is no zonefs, or cannot be read.
pub fn identity(uri: &Path) -> io::Result<Option<Identity>> {
    let found = look(uri).map_err(io::Error::other)?;
    Ok(identity_of(&found.files))
}

fn identity_of(files: &ZoneFiles) -> Option<Identity> {
    let zones = (0..).map(ZoneId).map_while(|zone| {
        let metadata = fs::metadata(files.path(zone)).ok()?;
        Some((zone, info(&metadata, None).state))
    });
    let used = zones.filter(|(_, state)| !matches!(state, ZoneState::Empty | ZoneState::Offline));
    let blocks = used.map(|(zone, _)| {
        let mut memory = BufferMut::zeroed(1);
        files.open(zone, false)?.read_exact_at(&mut memory, 0)?;
        let block = memory.first_chunk::<BLOCK_SIZE>().copied();
        block.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    });
    make::identity_in(blocks)
}

/// The device below, if this user may read it.
fn block_device(zonefs: &File, limits: &ZonefsLimits) -> Option<File> {
    let device = FileOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECT.bits() as i32)
        .open(&limits.block_device)
        .ok()?;
    // A name in /dev may mean another device than in sysfs.
    let is_it = device.metadata().ok()?.rdev() == zonefs.metadata().ok()?.dev();
    is_it.then_some(device)
}

/// All zones.
struct Zones {
    /// Their numbers on the drive.
    numbers: Vec<u32>,
    zones: Vec<ZoneInfo>,
    /// Those in which a block is written in part.
    torn: Vec<ZoneId>,
}

fn zones(uri: &Path, files: &ZoneFiles) -> Result<Zones> {
    let mut numbers = Vec::new();
    let mut zones = Vec::new();
    let mut torn = Vec::new();
    for zone in (0..).map(ZoneId) {
        let metadata = match fs::metadata(files.path(zone)) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(explain(uri, &error)),
        };
        let zone_now = info(&metadata, None);
        if !zone_now.state.is_worn_out()
            && !capacity_bytes(&metadata).is_multiple_of(BLOCK_SIZE as u64)
        {
            let message = format!(
                "of zone {zone} {} bytes can be written, which Persimmon cannot use",
                capacity_bytes(&metadata)
            );
            return Err(open_error(uri, &message));
        }
        if zone_now.state.is_active() && torn_bytes(&metadata) > 0 {
            torn.push(zone);
        }
        numbers.push(u32::try_from(metadata.ino()).unwrap_or(u32::MAX));
        zones.push(zone_now);
    }
    if zones.is_empty() {
        return Err(open_error(uri, "has no sequential zones"));
    }
    Ok(Zones {
        numbers,
        zones,
        torn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_directories() {
        let dir = |uri| directory(Path::new(uri)).map(Path::to_owned);
        assert_eq!(dir("zonefs:/mnt/z"), Some(PathBuf::from("/mnt/z")));
        assert_eq!(dir("zonefs:z"), Some(PathBuf::from("z")));
        assert_eq!(dir("/mnt/zonefs:z"), None);
        assert_eq!(uri(Path::new("/mnt/z")), Path::new("zonefs:/mnt/z"));
    }

    #[test]
    fn other_directories_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let uri = format!("zonefs:{}", dir.path().display());
        let refused = ZonefsDevice::open(&uri, &OpenOptions::default()).unwrap_err();
        assert!(refused.to_string().contains("is not a zonefs"), "{refused}");
        assert!(identity(Path::new(&uri)).is_err());
        let absent = ZonefsDevice::open("zonefs:/absent", &OpenOptions::default());
        assert!(absent.unwrap_err().to_string().contains("does not exist"));
    }
}
