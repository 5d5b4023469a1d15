//! System calls that rustix does not wrap safely: other users, record locks, shared maps.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
pub use persimmon_posix_tests::door::Lock;
use rustix::fs::{Gid, OFlags, Uid};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

/// A user without any privilege; group and user number are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User(pub u32);

/// Two users who share nothing.
pub const ALICE: User = User(4001);
/// The other one.
pub const BOB: User = User(4002);

impl User {
    /// The user number.
    pub fn uid(self) -> Uid {
        Uid::from_raw(self.0)
    }

    /// The group number.
    pub fn gid(self) -> Gid {
        Gid::from_raw(self.0)
    }

    /// Runs `body` as this user, on a thread of its own: credentials belong to threads.
    pub fn run<T: Send>(self, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        self.run_in(&[], body)
    }

    /// The same with further groups.
    pub fn run_in<T: Send>(
        self,
        groups: &[u32],
        body: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                rustix::thread::set_thread_groups(&groups)?;
                rustix::thread::set_thread_res_gid(self.gid(), self.gid(), self.gid())?;
                rustix::thread::set_thread_res_uid(self.uid(), self.uid(), self.uid())?;
                body().with_context(|| format!("as user {}", self.0))
            });
            thread
                .join()
                .map_err(|_| anyhow!("a thread of user {} panicked", self.0))?
        })
    }
}

/// Runs `body` as root without `CAP_FSETID`, on a thread of its own.
pub fn without_fsetid<T: Send>(body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut sets = rustix::thread::capabilities(None)?;
            sets.effective.remove(CapabilitySet::FSETID);
            rustix::thread::set_capabilities(None, sets)?;
            body()
        });
        thread
            .join()
            .map_err(|_| anyhow!("a thread without CAP_FSETID panicked"))?
    })
}

/// Runs `body` with this umask on a thread that shares neither umask nor current directory with others.
pub fn with_umask<T: Send>(umask: u32, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            unshare_fs()?;
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
            body().with_context(|| format!("with umask {umask:03o}"))
        });
        thread
            .join()
            .map_err(|_| anyhow!("a thread with umask {umask:03o} panicked"))?
    })
}

/// Runs `body` on a thread of its own with this current directory.
pub fn in_directory<T: Send>(dir: &Path, body: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    with_umask(0o022, || {
        std::env::set_current_dir(dir)?;
        body()
    })
}

/// A path that leads to the open file itself.
pub fn proc_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// truncate(2), with lengths that the standard library does not let through.
#[allow(unsafe_code)]
pub fn truncate(path: &Path, len: i64) -> rustix::io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the path ends in a zero and lives through the call.
    last_error(unsafe { libc::truncate(path.as_ptr(), len) })
}

#[allow(unsafe_code)]
fn unshare_fs() -> rustix::io::Result<()> {
    // SAFETY: it changes only what the calling thread shares of the kernel's state.
    last_error(unsafe { libc::unshare(libc::CLONE_FS) })
}

fn raw(lock: Lock) -> libc::c_short {
    let kind = match lock {
        Lock::Read => libc::F_RDLCK,
        Lock::Write => libc::F_WRLCK,
        Lock::Unlock => libc::F_UNLCK,
    };
    kind as libc::c_short
}

/// Tries for a POSIX record lock of this process on bytes `start..start + len` (`len` 0: to the end).
pub fn lock(file: &File, lock: Lock, start: i64, len: i64) -> rustix::io::Result<()> {
    set_lock(file, libc::F_SETLK, lock, start, len)
}

/// Waits for a POSIX record lock.
pub fn lock_wait(file: &File, lock: Lock, start: i64, len: i64) -> rustix::io::Result<()> {
    set_lock(file, libc::F_SETLKW, lock, start, len)
}

/// Tries for a record lock of the open file description.
pub fn lock_description(file: &File, lock: Lock, start: i64, len: i64) -> rustix::io::Result<()> {
    set_lock(file, libc::F_OFD_SETLK, lock, start, len)
}

#[allow(unsafe_code)]
fn set_lock(
    file: &File,
    command: libc::c_int,
    lock: Lock,
    start: i64,
    len: i64,
) -> rustix::io::Result<()> {
    // SAFETY: flock is plain numbers, for which all zeros is a value.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = raw(lock);
    record.l_whence = libc::SEEK_SET as libc::c_short;
    record.l_start = start;
    record.l_len = len;
    // SAFETY: the descriptor is open and the record lives through the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &record) };
    last_error(result)
}

/// Who would refuse this lock: the process and the lock's start and length, `None` if nobody.
pub fn lock_holder(
    file: &File,
    lock: Lock,
    start: i64,
    len: i64,
) -> rustix::io::Result<Option<(i32, i64, i64)>> {
    holder(file, libc::F_GETLK, lock, start, len)
}

/// The same of a lock of the open file description.
pub fn description_lock_holder(
    file: &File,
    lock: Lock,
    start: i64,
    len: i64,
) -> rustix::io::Result<Option<(i32, i64, i64)>> {
    holder(file, libc::F_OFD_GETLK, lock, start, len)
}

#[allow(unsafe_code)]
fn holder(
    file: &File,
    command: libc::c_int,
    lock: Lock,
    start: i64,
    len: i64,
) -> rustix::io::Result<Option<(i32, i64, i64)>> {
    // SAFETY: flock is plain numbers, for which all zeros is a value.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = raw(lock);
    record.l_whence = libc::SEEK_SET as libc::c_short;
    record.l_start = start;
    record.l_len = len;
    // SAFETY: the descriptor is open and the record lives through the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &mut record) };
    last_error(result)?;
    let free = i32::from(record.l_type) == libc::F_UNLCK;
    Ok((!free).then_some((record.l_pid, record.l_start, record.l_len)))
}

fn last_error(result: libc::c_int) -> rustix::io::Result<()> {
    if result < 0 {
        let code = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(code.unwrap_or(libc::EIO)));
    }
    Ok(())
}

/// A file handle, as the kernel lays it out: length, type, bytes.
#[derive(Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Handle {
    len: u32,
    kind: i32,
    bytes: [u8; 128],
}

/// The file handle of what is at `path`.
#[allow(unsafe_code)]
pub fn handle_of(path: &Path) -> rustix::io::Result<Handle> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let mut handle = Handle {
        len: 128,
        kind: 0,
        bytes: [0; 128],
    };
    let mut mount_id: libc::c_int = 0;
    let place = std::ptr::from_mut(&mut handle).cast();
    // SAFETY: the path ends in a zero, and the handle has the room that its length tells.
    last_error(unsafe {
        libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), place, &mut mount_id, 0)
    })?;
    Ok(handle)
}

/// Opens what a handle names, on the mount that `mount` is on.
#[allow(unsafe_code)]
pub fn open_handle(mount: &File, handle: &Handle, flags: OFlags) -> rustix::io::Result<File> {
    let place = std::ptr::from_ref(handle).cast_mut().cast();
    let flags = flags.bits() as libc::c_int;
    // SAFETY: the kernel only reads the handle, which has the bytes that its length tells.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), place, flags) };
    last_error(fd)?;
    // SAFETY: a new descriptor that nobody else knows.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A mapped piece of a file, unmapped when dropped.
pub struct Map {
    start: *mut libc::c_void,
    len: usize,
}

impl Map {
    /// Maps the first `len` bytes for reading and writing, shared or private.
    #[allow(unsafe_code)]
    pub fn new(file: &impl AsFd, len: usize, shared: bool) -> Result<Map> {
        use rustix::mm::{MapFlags, ProtFlags};
        let flags = if shared {
            MapFlags::SHARED
        } else {
            MapFlags::PRIVATE
        };
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory in use.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, flags, file, 0)? };
        Ok(Map { start, len })
    }

    /// The byte at `at`.
    #[allow(unsafe_code)]
    pub fn get(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: inside the mapping, which lives as long as self.
        unsafe { self.start.cast::<u8>().add(at).read_volatile() }
    }

    /// Sets the byte at `at`.
    #[allow(unsafe_code)]
    pub fn set(&self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: inside the mapping, which lives as long as self and is writable.
        unsafe { self.start.cast::<u8>().add(at).write_volatile(byte) }
    }

    /// Stores what `source` holds at its start. A page that cannot be had is an error, where a
    /// store by the program itself would end it with SIGBUS.
    #[allow(unsafe_code)]
    pub fn read_into(&self, at: usize, len: usize, source: &File) -> Result<()> {
        assert!(at + len <= self.len);
        let mut done = 0;
        while done < len {
            // SAFETY: inside the mapping, which lives as long as self and is writable.
            let read = unsafe {
                let target = self.start.cast::<u8>().add(at + done).cast();
                libc::pread(source.as_raw_fd(), target, len - done, done as libc::off_t)
            };
            match usize::try_from(read) {
                Err(_) => return Err(std::io::Error::last_os_error().into()),
                Ok(0) => return Err(anyhow!("the source ends")),
                Ok(read) => done += read,
            }
        }
        Ok(())
    }

    /// Writes the changes of some whole pages to the file and waits.
    #[allow(unsafe_code)]
    pub fn sync_range(&self, at: usize, len: usize) -> rustix::io::Result<()> {
        assert!(at + len <= self.len);
        // SAFETY: inside the mapping.
        unsafe {
            let start = self.start.cast::<u8>().add(at).cast();
            rustix::mm::msync(start, len, rustix::mm::MsyncFlags::SYNC)
        }
    }

    /// Writes the changes to the file and waits.
    #[allow(unsafe_code)]
    pub fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: exactly the mapping.
        unsafe { rustix::mm::msync(self.start, self.len, rustix::mm::MsyncFlags::SYNC) }
    }
}

impl Drop for Map {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: exactly the mapping, and nothing refers to it after this.
        let _ = unsafe { rustix::mm::munmap(self.start, self.len) };
    }
}

// SAFETY: an address range of the process, the same for all its threads.
#[allow(unsafe_code)]
unsafe impl Send for Map {}

/// A file of zeros that is on no filesystem.
pub fn memory_file(name: &str, len: u64) -> Result<File> {
    let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
    let file = File::from(fd);
    file.set_len(len)?;
    Ok(file)
}
