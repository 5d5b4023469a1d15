//! Mounts of type `fuseblk`. The kernel treats FUSE on a block device as any filesystem on one: it sends
//! `FUSE_DESTROY` and waits for the answer before `umount` returns, and from Linux 6.18 on it sends `FUSE_SYNCFS`
//! for `sync` and `syncfs`. Plain `fuse` gets neither.
//!
//! Such a mount needs a block device, which it holds exclusively. A volume on a block device is its own. Any other
//! (an image file, a zonefs, two devices) gets a loop device over an empty file in memory, from which nothing is
//! read and which goes with the mount. In the table of mounts it has the name of the volume all the same.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use persimmon_vfs::AccessTimes;
use rustix::fs::{CWD, FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Ioctl, IoctlOutput, Opcode, Setter, ioctl};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create,
    fsconfig_create_exclusive, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use rustix::thread::UnshareFlags;

use crate::options::MountOptions;

/// How often a device that somebody else holds is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How often a loop device that was free may be taken by another process first.
const LOOP_ATTEMPTS_MAX: usize = 16;
/// Block size of the mount, and bytes of the file below its loop device.
const BLOCK_BYTES: u64 = 4096;

/// Why there is no such mount.
#[derive(Debug, thiserror::Error)]
pub enum FuseblkError {
    /// Another mount or process holds the block device.
    #[error("the device is in use")]
    Busy,
    /// The kernel, or what surrounds this process, does not allow it.
    #[error("{what}: {error}")]
    Unavailable {
        /// What was tried.
        what: &'static str,
        /// The refusal.
        error: io::Error,
    },
}

fn unavailable<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> FuseblkError {
    move |error| FuseblkError::Unavailable {
        what,
        error: error.into(),
    }
}

/// A mount that is attached nowhere yet. The kernel holds its block device. Dropped, it is gone again.
#[derive(Debug)]
pub struct Fuseblk {
    // Closed first: then nobody waits for an answer of this process when the mount goes.
    pub(crate) device: OwnedFd,
    mount: OwnedFd,
}

impl Fuseblk {
    /// Makes the mount for the volume at `source`, an absolute path or a URI. If `source` is a block device, the
    /// kernel holds it exclusively from here on; while another does, tries again until `wait` has passed.
    ///
    /// # Errors
    /// See [`FuseblkError`].
    pub fn create(
        source: &Path,
        options: &MountOptions,
        wait: Duration,
    ) -> Result<Fuseblk, FuseblkError> {
        let device = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(unavailable("/dev/fuse"))?
            .into();
        let start = Instant::now();
        loop {
            match on_own_thread(|| create(source, &device, options)) {
                Ok(mount) => return Ok(Fuseblk { device, mount }),
                Err(FuseblkError::Busy) if start.elapsed() < wait => thread::sleep(RETRY_INTERVAL),
                Err(error) => return Err(error),
            }
        }
    }

    /// Attaches the mount at a directory.
    pub(crate) fn attach(&self, dir: &Path) -> io::Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(&self.mount, "", CWD, dir, flags)?)
    }

    /// The root directory of the mount.
    pub(crate) fn root(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.mount, ".", flags, Mode::empty())?)
    }
}

/// The thread's root directory is changed on the way, which ends with it.
fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, FuseblkError> + Send,
) -> Result<T, FuseblkError> {
    thread::scope(|scope| {
        let spawned = thread::Builder::new()
            .name("fuseblk".into())
            .spawn_scoped(scope, work);
        let thread = spawned.map_err(unavailable("starting a thread"))?;
        let ended = thread.join();
        ended.unwrap_or_else(|_| Err(unavailable("mounting")(io::Error::other("it panicked"))))
    })
}

fn create(
    source: &Path,
    device: &OwnedFd,
    options: &MountOptions,
) -> Result<OwnedFd, FuseblkError> {
    let own = fs::metadata(source).is_ok_and(|found| found.file_type().is_block_device());
    // Open until the kernel holds it: closed by all, it is free again.
    let loop_device = if own { None } else { Some(LoopDevice::new()?) };
    let context = fsopen("fuseblk", FsOpenFlags::FSOPEN_CLOEXEC);
    let context = context.map_err(unavailable("a mount of type fuseblk"))?;
    if let Some(loop_device) = &loop_device {
        loop_device.rename(source)?;
    }
    configure(context.as_fd(), source, device, options).map_err(unavailable("mount options"))?;
    let created = match fsconfig_create_exclusive(&context) {
        // Before Linux 6.6. The caller's lock keeps others away from the same device.
        Err(Errno::OPNOTSUPP) => fsconfig_create(&context),
        created => created,
    };
    match created {
        Ok(()) => {}
        Err(Errno::BUSY) => return Err(FuseblkError::Busy),
        Err(error) => return Err(unavailable("a mount of type fuseblk")(error)),
    }
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(&context, flags, attributes(options)).map_err(unavailable("fsmount"))
}

fn configure(
    context: BorrowedFd<'_>,
    source: &Path,
    device: &OwnedFd,
    options: &MountOptions,
) -> rustix::io::Result<()> {
    let number = |number: u32| number.to_string();
    fsconfig_set_string(context, "source", source)?;
    for (key, value) in [
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_owned()),
        ("user_id", number(rustix::process::getuid().as_raw())),
        ("group_id", number(rustix::process::getgid().as_raw())),
        ("blksize", BLOCK_BYTES.to_string()),
        ("subtype", "persimmon".to_owned()),
    ] {
        fsconfig_set_string(context, key, value)?;
    }
    fsconfig_set_flag(context, "default_permissions")?;
    for (key, on) in [
        ("allow_other", options.allow_other.unwrap_or(true)),
        ("ro", options.read_only),
        ("sync", options.sync),
        ("dirsync", options.dirsync),
    ] {
        if on {
            fsconfig_set_flag(context, key)?;
        }
    }
    Ok(())
}

/// Flags of the mount; those who may make it have `suid` and `dev` unless they say otherwise.
fn attributes(options: &MountOptions) -> MountAttrFlags {
    let mut flags = MountAttrFlags::empty();
    flags.set(MountAttrFlags::MOUNT_ATTR_RDONLY, options.read_only);
    flags.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, !options.exec);
    flags.set(
        MountAttrFlags::MOUNT_ATTR_NOSUID,
        options.suid == Some(false),
    );
    flags.set(MountAttrFlags::MOUNT_ATTR_NODEV, options.dev == Some(false));
    flags.set(
        MountAttrFlags::MOUNT_ATTR_NOATIME,
        options.access_times == AccessTimes::Never,
    );
    flags
}

/// A loop device over an empty file in memory. It is free again when the last who has it open closes it: the mount.
struct LoopDevice {
    file: File,
}

const GET_FREE: Opcode = 0x4c82;
const CONFIGURE: Opcode = 0x4c0a;
const AUTOCLEAR: u32 = 4;

/// `struct loop_config`, with the `struct loop_info64` in it.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    /// Devices, offset and size limit.
    numbers: [u64; 5],
    number: u32,
    encryption: [u32; 2],
    flags: u32,
    names: [u8; 160],
    reserved: [u64; 10],
}

/// An ioctl whose answer is its return value.
struct GetFree(IntegerSetter<GET_FREE>);

#[allow(unsafe_code)]
// SAFETY: it has no argument that the kernel would read or write through, and its result is a number.
unsafe impl Ioctl for GetFree {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        self.0.opcode()
    }

    fn as_ptr(&mut self) -> *mut std::ffi::c_void {
        self.0.as_ptr()
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _: *mut std::ffi::c_void,
    ) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

impl LoopDevice {
    #[allow(unsafe_code)]
    fn new() -> Result<LoopDevice, FuseblkError> {
        let backing = rustix::fs::memfd_create("persimmon", MemfdFlags::CLOEXEC)
            .map_err(unavailable("a file in memory"))?;
        rustix::fs::ftruncate(&backing, BLOCK_BYTES).map_err(unavailable("a file in memory"))?;
        let control = File::open("/dev/loop-control").map_err(unavailable("/dev/loop-control"))?;
        let mut refused = Errno::BUSY;
        for _ in 0..LOOP_ATTEMPTS_MAX {
            // SAFETY: the ioctl takes no argument.
            let number = unsafe { ioctl(&control, GetFree(IntegerSetter::new_usize(0))) }
                .map_err(unavailable("a free loop device"))?;
            let file = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(format!("/dev/loop{number}"))
                .map_err(unavailable("opening a loop device"))?;
            let config = LoopConfig {
                fd: backing.as_raw_fd().cast_unsigned(),
                block_size: 0,
                numbers: [0; 5],
                number: 0,
                encryption: [0; 2],
                flags: AUTOCLEAR,
                names: [0; 160],
                reserved: [0; 10],
            };
            // SAFETY: the kernel reads a `struct loop_config` through the pointer, which this is; the file in
            // memory is open until it has done so.
            match unsafe { ioctl(&file, Setter::<CONFIGURE, LoopConfig>::new(config)) } {
                Ok(()) => return Ok(LoopDevice { file }),
                Err(error) => refused = error,
            }
            if refused != Errno::BUSY {
                break;
            }
        }
        Err(unavailable("setting up a loop device")(refused))
    }

    /// Has `name` lead to the device, for this thread alone: its root directory becomes a filesystem in memory in
    /// which there is nothing else. The kernel looks the device up by that name, and shows it.
    #[allow(unsafe_code)]
    fn rename(&self, name: &Path) -> Result<(), FuseblkError> {
        let number = self
            .file
            .metadata()
            .map_err(unavailable("a loop device"))?
            .rdev();
        // SAFETY: the thread is one of its own, started for this; nothing else refers to its root directory.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
            .map_err(unavailable("a root directory of its own"))?;
        let in_memory = || -> rustix::io::Result<()> {
            let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&context)?;
            let flags = FsMountFlags::FSMOUNT_CLOEXEC;
            let root = fsmount(&context, flags, MountAttrFlags::empty())?;
            rustix::process::fchdir(&root)?;
            rustix::process::chroot(".")?;
            let parts = name.components().filter_map(|part| match part {
                Component::Normal(part) => Some(part),
                _ => None,
            });
            let path: PathBuf = parts.collect();
            let parents = path.ancestors().skip(1).filter(|p| *p != Path::new(""));
            let mut parents: Vec<&Path> = parents.collect();
            parents.reverse();
            for parent in parents {
                rustix::fs::mkdir(parent, Mode::RWXU)?;
            }
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::mknodat(CWD, &path, FileType::BlockDevice, mode, number)
        };
        in_memory().map_err(unavailable("a name for the loop device"))
    }
}
