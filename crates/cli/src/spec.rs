//! Which device is meant: a path, a URI, `LABEL=...`, `UUID=...`.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use persimmon::internal::device::{drive, pair};
use persimmon::internal::format::shown::shown_path;

use crate::mounted::mounted_at;
use crate::probe::{self, udev_encoded};

/// Colon-separated image files, or directories of them, to look through for a label or a UUID.
const IMAGES_VARIABLE: &str = "PERSIMMON_IMAGES";

/// The device or image file that `spec` means, as an absolute path without symbolic links; a URI with
/// such a path.
///
/// A tag (`LABEL=`, `UUID=`) is looked up, in this order, in the links that udev made, on all block
/// devices, and in image files named in `/etc/fstab` or by `PERSIMMON_IMAGES`.
///
/// # Errors
/// When nothing, or more than one device, has the tag, or the path does not exist.
pub fn resolve(spec: impl AsRef<OsStr>) -> Result<PathBuf> {
    let path = Path::new(spec.as_ref());
    // A tag is UTF-8, what is not is a path.
    let spec = path.to_str().unwrap_or_default();
    let Some((tag, value)) = tag(spec) else {
        return drive::canonical(path).with_context(|| shown_path(path).to_string());
    };
    let link = Path::new("/dev/disk")
        .join(tag.directory())
        .join(udev_encoded(value));
    if let Ok(device) = fs::canonicalize(&link)
        && probe::look(&device).is_ok_and(|found| found.is_some_and(|f| tag.matches(&f, value)))
        // Of two devices it names either.
        && !pair::is_part(&device)
    {
        return Ok(device);
    }
    let mut found = BTreeSet::new();
    for candidate in block_devices().into_iter().chain(images()) {
        let Ok(path) = fs::canonicalize(&candidate) else {
            continue;
        };
        if let Ok(Some(volume)) = probe::look(&path)
            && tag.matches(&volume, value)
        {
            found.insert(path);
        }
    }
    let mut found = found.into_iter();
    let found = (found.next(), found.next(), found.next());
    if let (Some(one), Some(other), None) = &found {
        if let Some(pair) = pair::of_parts(one, other) {
            return Ok(pair);
        }
        // Mounted, they cannot be looked at.
        let at = mounted_at(one);
        if at.is_some() && at == mounted_at(other) {
            return Ok(one.clone());
        }
    }
    match (found.0, found.1) {
        (Some(one), None) => Ok(one),
        (None, _) => bail!(
            "{spec}: no such volume; looked at all block devices, at images in /etc/fstab and at \
             those named by {IMAGES_VARIABLE}"
        ),
        (Some(one), Some(other)) => bail!(
            "{spec} means both {} and {}; name the device itself",
            one.display(),
            other.display()
        ),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Label,
    Uuid,
}

impl Tag {
    fn directory(self) -> &'static str {
        match self {
            Tag::Label => "by-label",
            Tag::Uuid => "by-uuid",
        }
    }

    fn matches(self, volume: &probe::Found, value: &str) -> bool {
        match self {
            Tag::Label => volume.label == value,
            Tag::Uuid => volume.uuid.eq_ignore_ascii_case(value),
        }
    }
}

fn tag(spec: &str) -> Option<(Tag, &str)> {
    let (name, value) = spec.split_once('=')?;
    let value = value.trim_matches('"');
    match name {
        "LABEL" => Some((Tag::Label, value)),
        "UUID" => Some((Tag::Uuid, value)),
        _ => None,
    }
}

fn block_devices() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/class/block") else {
        return Vec::new();
    };
    entries
        .flatten()
        // Sysfs writes a slash in a device's name as an exclamation mark.
        .map(|entry| entry.file_name().to_string_lossy().replace('!', "/"))
        .map(|name| Path::new("/dev").join(name))
        .collect()
}

fn images() -> Vec<PathBuf> {
    let fstab = fs::read_to_string("/etc/fstab").unwrap_or_default();
    let mut images = fstab_images(&fstab);
    let listed = env::var_os(IMAGES_VARIABLE).unwrap_or_default();
    for path in env::split_paths(&listed) {
        match fs::read_dir(&path) {
            Ok(entries) => images.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => images.push(path),
        }
    }
    images.retain(|path| path.is_file());
    images
}

/// Paths in the first column of lines whose type is persimmon, those of pairs too.
fn fstab_images(fstab: &str) -> Vec<PathBuf> {
    fstab
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let spec = PathBuf::from(fields.next()?.replace("\\040", " "));
            let kind = fields.nth(1)?;
            matches!(kind, "persimmon" | "fuse.persimmon").then_some(spec)
        })
        .flat_map(|spec| match pair::names(&spec) {
            Some((metadata, data)) => vec![metadata, data],
            None => vec![spec],
        })
        .filter(|path| path.is_absolute())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_paths() {
        assert_eq!(tag("LABEL=my data"), Some((Tag::Label, "my data")));
        assert_eq!(tag("UUID=\"ab\""), Some((Tag::Uuid, "ab")));
        assert_eq!(tag("/dev/sda"), None);
        assert_eq!(tag("/images/a=b"), None);
    }

    #[test]
    fn images_of_fstab() {
        let fstab = "# comment\n/srv/a\\040b.img /mnt persimmon loop 0 0\n/dev/sda1 / ext4 x 0 0\nLABEL=x /y persimmon ro 0 0\npair:/a+/dev/b /z persimmon x 0 0\n";
        assert_eq!(
            fstab_images(fstab),
            ["/srv/a b.img", "/a", "/dev/b"].map(PathBuf::from)
        );
    }
}
