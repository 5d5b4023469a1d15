//! What the kernel says about mounts: `/proc/self/mountinfo`, read without touching the mounts.

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::mount::UnmountFlags;

/// Filesystem types of mounts, as `/proc/mounts` and `mount` show them: with a block device, and without.
pub const FS_TYPES: [&str; 2] = ["fuseblk.persimmon", "fuse.persimmon"];

/// A line of `mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountLine {
    /// `major:minor` of the filesystem; also its name under `/sys/class/bdi`.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Type with subtype.
    pub fs_type: String,
    /// What is mounted there.
    pub source: PathBuf,
    /// Read-only, as a mount or as a filesystem.
    pub read_only: bool,
}

impl MountLine {
    /// Whether a Persimmon volume is mounted there.
    #[must_use]
    pub fn is_persimmon(&self) -> bool {
        FS_TYPES.contains(&self.fs_type.as_str())
    }
}

/// All mounts that this process sees, in the order of mounting.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn list() -> io::Result<Vec<MountLine>> {
    let text = fs::read("/proc/self/mountinfo")?;
    Ok(text
        .split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect())
}

/// The topmost mount at exactly `mount_point`.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn at(mount_point: &Path) -> io::Result<Option<MountLine>> {
    Ok(list()?
        .into_iter()
        .rev()
        .find(|line| line.mount_point == mount_point))
}

/// The number of the mount that a path leads to, which a mount on top of it changes. Asks neither the mount, whose daemon may be this
/// process, nor for a descriptor, of which there may be none left.
///
/// # Errors
/// The path leads nowhere.
pub fn number_of(path: &Path) -> rustix::io::Result<u64> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(CWD, path, flags, StatxFlags::MNT_ID)?;
    Ok(found.stx_mnt_id)
}

/// Unmounts what is mounted at `dir`, an absolute path, and follows no symbolic link on the way there: another mount,
/// to which somebody has put one since, stays.
///
/// # Errors
/// As of `umount2`; `ELOOP` where there is a link.
pub fn unmount(dir: &Path, flags: UnmountFlags) -> rustix::io::Result<()> {
    let flags = flags | UnmountFlags::NOFOLLOW;
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return rustix::mount::unmount(dir, flags);
    };
    // It keeps no mount at `dir` busy.
    let open = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let links = ResolveFlags::NO_SYMLINKS;
    let parent = rustix::fs::openat2(CWD, parent, open, Mode::empty(), links)?;
    let path = Path::new("/proc/self/fd").join(parent.as_raw_fd().to_string());
    rustix::mount::unmount(path.join(name), flags)
}

/// The mounts of Persimmon volumes whose source is `source`.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn of_source(source: &Path) -> io::Result<Vec<MountLine>> {
    Ok(list()?
        .into_iter()
        .filter(|line| line.is_persimmon() && line.source == source)
        .collect())
}

/// `36 35 98:0 /root /mount/point opts [optional...] - type source superopts`
fn parse_line(line: &[u8]) -> Option<MountLine> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = fields.nth(2)?;
    let mount_point = fields.nth(1)?;
    let mount_options = fields.next()?;
    fields.find(|field| *field == b"-")?;
    let fs_type = fields.next()?;
    let source = fields.next()?;
    let super_options = fields.next().unwrap_or_default();
    let is_read_only = |options: &[u8]| options.split(|byte| *byte == b',').any(|o| o == b"ro");
    Some(MountLine {
        device: String::from_utf8(device.to_vec()).ok()?,
        mount_point: unescape(mount_point),
        fs_type: String::from_utf8(fs_type.to_vec()).ok()?,
        source: unescape(source),
        read_only: is_read_only(mount_options) || is_read_only(super_options),
    })
}

/// Space, tab, newline and backslash are written `\ooo` in octal.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail
            .get(..3)
            .filter(|d| d.iter().all(|b| (b'0'..=b'7').contains(b)));
        match digits {
            Some(digits) if *first == b'\\' => {
                let value = digits
                    .iter()
                    .fold(0u32, |value, b| value * 8 + u32::from(b - b'0'));
                bytes.push(value as u8);
                rest = tail.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_escapes() {
        let line = br"98 61 0:52 / /mnt/a\040b rw,nosuid shared:7 master:2 - fuse.persimmon /im\134g ro,user_id=0";
        let line = parse_line(line).unwrap();
        assert_eq!(line.device, "0:52");
        assert_eq!(line.mount_point, PathBuf::from("/mnt/a b"));
        assert_eq!(line.fs_type, "fuse.persimmon");
        assert!(line.is_persimmon());
        assert_eq!(line.source, PathBuf::from(r"/im\g"));
        assert!(line.read_only);
        assert_eq!(parse_line(b"98 61 0:52"), None);
    }

    /// A mount below a directory that somebody else can rename was unmounted by its path: a link put in the place of
    /// the directory led to another mount.
    #[test]
    fn no_link_is_followed_to_a_mount() {
        let dir = std::env::temp_dir().join(format!("persimmon-link-{}", std::process::id()));
        let dir = {
            fs::create_dir_all(dir.join("real/below")).unwrap();
            dir.canonicalize().unwrap()
        };
        std::os::unix::fs::symlink("real", dir.join("link")).unwrap();
        let told = |path: &str| unmount(&dir.join(path), UnmountFlags::empty());
        assert_eq!(told("link/below"), Err(rustix::io::Errno::LOOP));
        // Nothing is mounted there, or who asks may not unmount anything.
        assert!(told("real/below").is_err_and(|error| error != rustix::io::Errno::LOOP));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(at(Path::new("/")).unwrap().is_some());
    }
}
