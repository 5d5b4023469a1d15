//! What the statements are made of.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
pub use persimmon_posix_tests::expect::*;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// An error number from the standard library's error.
pub fn errno<T>(result: std::io::Result<T>) -> rustix::io::Result<T> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// A new file for reading and writing with this content, mode 0644.
pub fn file(path: impl AsRef<Path>, content: &[u8]) -> Result<File> {
    let path = path.as_ref();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o644);
    let mut file = options
        .open(path)
        .with_context(|| format!("creating {}", path.display()))?;
    file.write_all(content)?;
    Ok(file)
}

/// An existing file for reading and writing.
pub fn edit(path: impl AsRef<Path>) -> Result<File> {
    let path = path.as_ref();
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.with_context(|| format!("opening {}", path.display()))
}

/// A new directory, mode 0755.
pub fn dir(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    rustix::fs::mkdir(path, Mode::from_raw_mode(0o755))
        .with_context(|| format!("making {}", path.display()))
}

/// What the file is, links not followed.
pub fn meta(path: impl AsRef<Path>) -> Result<Metadata> {
    let path = path.as_ref();
    std::fs::symlink_metadata(path).with_context(|| format!("stat {}", path.display()))
}

/// The low twelve bits of the mode.
pub fn mode(path: impl AsRef<Path>) -> Result<u32> {
    Ok(meta(path)?.mode() & 0o7777)
}

/// Sets the low twelve bits of the mode.
pub fn chmod(path: impl AsRef<Path>, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::chmod(path.as_ref(), Mode::from_raw_mode(mode))
}

/// Sets owner and group, links not followed.
pub fn chown(path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> rustix::io::Result<()> {
    errno(std::os::unix::fs::lchown(path, uid, gid))
}

/// Opens with these flags.
pub fn open(path: impl AsRef<Path>, flags: OFlags) -> rustix::io::Result<File> {
    create(path, flags, 0)
}

/// Opens with these flags and, for a new file, this mode.
pub fn create(path: impl AsRef<Path>, flags: OFlags, mode: u32) -> rustix::io::Result<File> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::fs::open(path.as_ref(), flags, Mode::from_raw_mode(mode)).map(File::from)
}

/// The whole content from the start.
pub fn content(mut file: &File) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The file at `path` must hold exactly these bytes.
pub fn holds(path: impl AsRef<Path>, due: &[u8]) -> Result<()> {
    let path = path.as_ref();
    let got = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    same_bytes(&got, due).with_context(|| format!("content of {}", path.display()))
}

/// The path must name nothing.
pub fn gone(path: impl AsRef<Path>) -> Result<()> {
    refused(errno(std::fs::symlink_metadata(path)), Errno::NOENT)
}

/// Runs `body` when the clock has surely moved on and tells which times of `path` did.
pub fn moved<T>(path: impl AsRef<Path>, body: impl FnOnce() -> Result<T>) -> Result<Moved> {
    let path = path.as_ref();
    let before = meta(path)?;
    tick();
    body()?;
    let after = meta(path)?;
    let stamp = |meta: &Metadata| {
        (
            (meta.mtime(), meta.mtime_nsec()),
            (meta.ctime(), meta.ctime_nsec()),
        )
    };
    let ((mtime, ctime), (mtime_now, ctime_now)) = (stamp(&before), stamp(&after));
    ensure!(mtime_now >= mtime && ctime_now >= ctime, "a time went back");
    Ok(Moved {
        mtime: mtime_now > mtime,
        ctime: ctime_now > ctime,
    })
}

/// Longer than a step of the kernel's coarse clock, which stamps files.
pub fn tick() {
    std::thread::sleep(Duration::from_millis(15));
}
