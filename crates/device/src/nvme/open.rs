//! Opening and emptying a zoned namespace.

use std::fs::{self, File, OpenOptions as FileOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::identify::{Identified, identify};
use super::passthrough::{NvmeCommand, NvmeWire, Queue, namespace_id, op, run};
use super::zones::{Namespace, Zone};
use super::{Nvme, NvmeDevice};
use crate::linux::failure::Failure;
use crate::linux::make::{self, Claim};
use crate::linux::ready::{self, LeftOut};
use crate::lock::{explain, lock_opened, open_error, open_locked};
use crate::options::{CreateOptions, OpenOptions};
use crate::probe::{self, Identity};
use crate::{BLOCK_SIZE, BufferMut, Geometry, Result, ZoneId, ZoneInfo, ZoneState, zbd};

/// Whether the path is the generic character device of an NVMe namespace.
///
/// Errors: it cannot be looked at.
pub fn is_generic(path: &Path) -> io::Result<bool> {
    let metadata = fs::metadata(path)?;
    Ok(metadata.file_type().is_char_device()
        && sysfs(metadata.rdev()).is_some_and(|dir| {
            fs::canonicalize(dir.join("subsystem"))
                .is_ok_and(|subsystem| subsystem.ends_with("nvme-generic"))
        }))
}

/// The block device of the same namespace, if the kernel has one.
#[must_use]
pub fn block_device(generic: &Path) -> Option<PathBuf> {
    let dir = sysfs(fs::metadata(generic).ok()?.rdev())?;
    let number = dir.file_name()?.to_str()?.strip_prefix("ng")?.to_owned();
    let name = format!("nvme{number}");
    let is_there = Path::new("/sys/class/block").join(&name).exists();
    is_there.then(|| Path::new("/dev").join(name))
}

/// The generic character device of a block device that is a namespace.
#[must_use]
pub fn generic_of(block: &Path) -> Option<PathBuf> {
    let number = block.file_name()?.to_str()?.strip_prefix("nvme")?;
    let generic = Path::new("/dev").join(format!("ng{number}"));
    is_generic(&generic).is_ok_and(|is| is).then_some(generic)
}

fn sysfs(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::canonicalize(format!("/sys/dev/char/{major}:{minor}")).ok()
}

/// UUID and label of the volume in a namespace, without holding it. `None`: there is none.
///
/// Errors: the block device of the namespace cannot be read.
pub fn identity(path: &Path) -> io::Result<Option<Identity>> {
    match block_device(path) {
        Some(block) if zbd::is_zoned(&block)? => zbd::identity(&block),
        _ => Ok(None),
    }
}

impl NvmeDevice {
    /// Opens the generic character device of a namespace, for writing exclusively.
    ///
    /// Errors: [`crate::DeviceError::Busy`] where its block device is mounted, part of another device
    /// or in use by another process, else [`crate::DeviceError::Open`] with what is wrong and what to
    /// do.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<NvmeDevice> {
        let path = path.as_ref();
        let write = !options.read_only;
        if !is_generic(path).map_err(|error| explain(path, &error))? {
            let message = "is not the generic character device of an NVMe namespace";
            return Err(open_error(path, message));
        }
        let file = FileOptions::new().read(true).write(write).open(path);
        let file = file.map_err(|error| explain(path, &error))?;
        let block = block_device(path);
        let held = match &block {
            Some(block) => {
                let options = OpenOptions {
                    held: false,
                    ..options.clone()
                };
                open_locked(block, false, &options)?.file
            }
            None => {
                let held = file.try_clone().map_err(|error| explain(path, &error))?;
                lock_opened(path, &held, options)?;
                held
            }
        };
        let failed = |failure: Failure| open_error(path, &failure.to_string());
        let nsid = namespace_id(&file).map_err(|error| explain(path, &error))?;
        let found = identify(&file, nsid).map_err(failed)?;
        let found = found.ok_or_else(|| open_error(path, "has no zones"))?;
        let namespace = namespace(path, nsid, &found)?;
        let mut geometry = geometry(&found, namespace, block.as_deref());
        let zones = namespace
            .report(&file, 0..namespace.zone_count)
            .map_err(failed)?;
        geometry.zone_count = zones.len() as u32;
        let is_blank = |zone: &Zone| make::is_blank(zone.state, zone.write_pointer > zone.start);
        let is_blank = zones.iter().all(is_blank);
        let identity = || Ok(make::identity_in(first_blocks(&file, &namespace, &zones)));
        let may_change =
            make::may_change(options, is_blank, identity).map_err(|error| explain(path, &error))?;
        let torn = (0..).map(ZoneId).zip(&zones);
        let torn = torn.filter(|(_, zone)| namespace.torn_blocks(zone) > 0);
        let torn: Vec<ZoneId> = torn.map(|(number, _)| number).collect();
        let mut infos: Vec<ZoneInfo> = zones.iter().map(|zone| namespace.info(zone)).collect();
        let is_odd = |zone: &&Zone| !zone.capacity.is_multiple_of(namespace.per_block());
        if let Some(zone) = zones.iter().find(is_odd) {
            let message = format!(
                "the zone at block {} has a capacity of {}, which Persimmon cannot use",
                zone.start, zone.capacity
            );
            return Err(open_error(path, &message));
        }
        let file = Arc::new(file);
        let wire = NvmeWire {
            file: Arc::clone(&file),
            nsid,
            block_shift: namespace.block_shift,
        };
        let port = Nvme {
            file,
            namespace,
            _held: held,
        };
        let mut left_out = LeftOut::default();
        if may_change {
            left_out = ready::settle(&port, &mut infos, &torn).map_err(failed)?;
        }
        let zones = (&infos[..], left_out);
        NvmeDevice::start(path, port, wire, geometry, zones, options.read_only)
    }

    /// Empties a namespace, and opens it. Without `force` only if nothing is on it.
    ///
    /// Errors: as of [`NvmeDevice::open`].
    pub fn create(path: impl AsRef<Path>, options: &CreateOptions) -> Result<NvmeDevice> {
        NvmeDevice::claim(path.as_ref(), options)?.emptied(false)
    }

    /// All of [`NvmeDevice::create`] that can refuse the namespace.
    pub(crate) fn claim(path: &Path, options: &CreateOptions) -> Result<Claim<Nvme>> {
        let device = NvmeDevice::open(path, &make::opening(options))?;
        let foreign = || match block_device(path) {
            Some(block) => File::open(block).and_then(|file| probe::identify(&file)),
            None => Ok(None),
        };
        Claim::of(device, options.force, foreign, || identity(path))
    }
}

/// A namespace that can be used.
fn namespace(path: &Path, nsid: u32, found: &Identified) -> Result<Namespace> {
    let block_bytes = 1u64.checked_shl(found.block_shift).unwrap_or(u64::MAX);
    let zone_bytes = found.zone_blocks.saturating_mul(block_bytes);
    let problem = match found.metadata_bytes {
        0 => make::problem(zone_bytes, block_bytes),
        bytes => Some(format!(
            "has {bytes} bytes of metadata with each block, which Persimmon cannot use"
        )),
    };
    if let Some(problem) = problem {
        return Err(open_error(path, &problem));
    }
    Ok(Namespace {
        nsid,
        block_shift: found.block_shift,
        zone_blocks: found.zone_blocks,
        zone_count: u32::try_from(found.blocks / found.zone_blocks).unwrap_or(u32::MAX),
    })
}

/// `block`: whose request limits are those of the kernel.
fn geometry(found: &Identified, namespace: Namespace, block: Option<&Path>) -> Geometry {
    let queue = |name: &str| {
        let device = block.and_then(Path::file_name)?;
        let path = Path::new("/sys/class/block")
            .join(device)
            .join("queue")
            .join(name);
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    let kernel = queue("max_hw_sectors_kb").map(|kib| kib << 10);
    let transfer = [kernel, found.transfer_bytes_max]
        .into_iter()
        .flatten()
        .min();
    let zone_bytes = namespace.zone_blocks << namespace.block_shift;
    let geometry = make::geometry(
        namespace.zone_count as usize,
        zone_bytes,
        transfer.unwrap_or(0),
        queue("max_segments").unwrap_or(0),
    );
    let append = found.append_bytes_max.unwrap_or(u64::MAX) / BLOCK_SIZE as u64;
    let append = u32::try_from(append).unwrap_or(u32::MAX).max(1);
    Geometry {
        max_open: found.max_open,
        max_active: found.max_active,
        max_append_blocks: geometry.max_transfer_blocks.min(append),
        volatile_cache: found.volatile_cache,
        ..geometry
    }
}

/// The first blocks of zones in use.
fn first_blocks<'a>(
    file: &'a File,
    namespace: &'a Namespace,
    zones: &'a [Zone],
) -> impl Iterator<Item = io::Result<[u8; BLOCK_SIZE]>> + 'a {
    let used = zones
        .iter()
        .filter(|zone| !matches!(zone.state, ZoneState::Empty | ZoneState::Offline));
    used.map(move |zone| {
        let mut memory = BufferMut::zeroed(1);
        let command = NvmeCommand {
            cdw12: namespace.per_block() as u32 - 1,
            ..NvmeCommand::at(op::READ, namespace.nsid, zone.start)
        };
        run(file, Queue::Io, command, &mut memory)
            .map_err(|failure| io::Error::other(failure.to_string()))?;
        let block = memory.first_chunk::<BLOCK_SIZE>().copied();
        block.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    })
}
