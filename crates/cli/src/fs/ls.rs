//! `persimmon fs ls`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use persimmon::internal::format::shown::{as_text, shown};
use persimmon::{Attr, FileKind, Filesystem, Ino, Timestamp};
use serde::Serialize;

use super::{Access, open, rooted, told_of_path};
use crate::exit::FS_PARTIAL;
use crate::output::{self, say};

/// List files of a volume that is not mounted.
///
/// By name. Times are in UTC, owners are numbers.
#[derive(Args)]
pub struct Ls {
    /// Device or image file of the volume, LABEL= or UUID=
    volume: OsString,
    /// Directories and files [default: the root]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
    /// Type and permissions, links, owner, group, size and time of each
    #[arg(short)]
    long: bool,
    /// Names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    /// Directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line.
struct Found {
    path: PathBuf,
    /// As it is shown: the name in its directory, or the path that was asked for.
    name: Vec<u8>,
    attr: Attr,
    target: Option<Vec<u8>>,
}

/// `--json`.
#[derive(Serialize)]
struct Row {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    inode: u64,
    /// Octal.
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    allocated_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    atime: String,
    mtime: String,
    ctime: String,
    btime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
}

impl Ls {
    pub fn run(&self) -> Result<u8> {
        let opened = open(&self.volume, Access::Read, "use ls there, or ")?;
        let mut listing = Listing {
            filesystem: &opened.filesystem,
            how: self,
            code: 0,
            is_first: true,
        };
        if self.json {
            output::print("[")?;
        }
        let mut paths: Vec<PathBuf> = self.paths.iter().map(|path| rooted(path)).collect();
        if paths.is_empty() {
            paths.push(PathBuf::from("/"));
        }
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        for path in paths {
            // As ls(1) does: a link that is named is followed to a directory, unless its own attributes are asked for.
            let found = if self.long {
                listing.filesystem.symlink_metadata(&path)
            } else {
                listing.filesystem.metadata(&path)
            };
            let found = found.or_else(|_| listing.filesystem.symlink_metadata(&path));
            match found {
                Ok(attr) if attr.kind() == FileKind::Directory => {
                    directories.push((path, attr.ino))
                }
                Ok(attr) => {
                    let name = path.as_os_str().as_bytes().to_vec();
                    files.extend(listing.found(path, name, attr.ino));
                }
                Err(error) => listing.fail(&told_of_path(&path, &error)),
            }
        }
        let many = self.recursive || directories.len() + files.len() > 1;
        listing.show(&files)?;
        listing.directories(directories, many)?;
        if self.json {
            say!("{}]", if listing.is_first { "" } else { "\n" })?;
        }
        Ok(listing.code)
    }
}

struct Listing<'a> {
    filesystem: &'a Filesystem,
    how: &'a Ls,
    code: u8,
    /// Nothing was shown yet.
    is_first: bool,
}

impl Listing<'_> {
    /// What fails is told, and the rest is shown.
    fn fail(&mut self, message: &str) {
        output::tell(format_args!("persimmon fs ls: {message}"));
        self.code = FS_PARTIAL;
    }

    fn found(&mut self, path: PathBuf, name: Vec<u8>, ino: Ino) -> Option<Found> {
        let vfs = self.filesystem.vfs();
        let looked = vfs.getattr(ino).and_then(|attr| {
            let target = match attr.kind() {
                FileKind::Symlink => Some(vfs.readlink(ino)?),
                _ => None,
            };
            Ok((attr, target))
        });
        match looked {
            Ok((attr, target)) => Some(Found {
                path,
                name,
                attr,
                target,
            }),
            Err(error) => {
                let path = shown(path.as_os_str().as_bytes());
                self.fail(&format!("{path}: {error}"));
                None
            }
        }
    }

    fn directories(&mut self, directories: Vec<(PathBuf, Ino)>, many: bool) -> Result<()> {
        // The next one last; a directory is followed by those in it.
        let mut waiting = directories;
        waiting.reverse();
        let mut listed = HashSet::new();
        while let Some((path, ino)) = waiting.pop() {
            if self.how.recursive && !listed.insert(ino) {
                let path = shown(path.as_os_str().as_bytes());
                self.fail(&format!(
                    "{path}: is listed above; named twice, or damaged: run `persimmon fsck`"
                ));
                continue;
            }
            let found = self.entries(&path)?;
            if many && !self.how.json {
                let blank = if self.is_first { "" } else { "\n" };
                say!("{blank}{}:", shown(path.as_os_str().as_bytes()))?;
                self.is_first = false;
            }
            self.show(&found)?;
            if self.how.recursive {
                let below = found.into_iter().rev();
                let below = below.filter(|it| it.attr.kind() == FileKind::Directory);
                waiting.extend(below.map(|it| (it.path, it.attr.ino)));
            }
        }
        Ok(())
    }

    /// Of one directory, by name.
    fn entries(&mut self, path: &Path) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        let listed = match self.filesystem.read_dir(path) {
            Ok(listed) => listed,
            Err(error) => {
                self.fail(&told_of_path(path, &error));
                return Ok(found);
            }
        };
        for entry in listed {
            match entry {
                Ok(entry) => {
                    let name = entry.file_name().as_bytes();
                    if self.how.all || !name.starts_with(b".") {
                        found.extend(self.found(entry.path(), name.to_vec(), entry.ino()));
                    }
                }
                Err(error) => self.fail(&told_of_path(path, &error)),
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn show(&mut self, found: &[Found]) -> Result<()> {
        if self.how.json {
            for found in found {
                let separator = if self.is_first { "\n" } else { ",\n" };
                self.is_first = false;
                output::print(format_args!(
                    "{separator}{}",
                    serde_json::to_string(&row(found))?
                ))?;
            }
            return Ok(());
        }
        let lines: Vec<String> = if self.how.long {
            long(found)
        } else {
            found
                .iter()
                .map(|found| shown(&found.name).to_string())
                .collect()
        };
        for line in lines {
            say!("{line}")?;
            self.is_first = false;
        }
        Ok(())
    }
}

fn long(found: &[Found]) -> Vec<String> {
    let columns: Vec<[String; 6]> = found
        .iter()
        .map(|Found { attr, .. }| {
            let size = device(attr).unwrap_or_else(|| attr.size.to_string());
            let time = date(attr.mtime);
            [
                permissions(attr),
                attr.nlink.to_string(),
                attr.uid.to_string(),
                attr.gid.to_string(),
                size,
                time,
            ]
        })
        .collect();
    let mut widths = [0; 6];
    for row in &columns {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.len());
        }
    }
    let line = |(row, found): (&[String; 6], &Found)| {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:>width$} "));
        }
        line.push_str(&shown(&found.name).to_string());
        if let Some(target) = &found.target {
            line.push_str(&format!(" -> {}", shown(target)));
        }
        line
    };
    columns.iter().zip(found).map(line).collect()
}

fn device(attr: &Attr) -> Option<String> {
    let is_device = matches!(attr.kind(), FileKind::CharDevice | FileKind::BlockDevice);
    let rdev = attr.rdev.into();
    is_device.then(|| format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev)))
}

fn row(found: &Found) -> Row {
    let (path, path_bytes) = as_text(found.path.as_os_str().as_bytes());
    let (target, target_bytes) = match &found.target {
        Some(target) => {
            let (text, bytes) = as_text(target);
            (Some(text), bytes)
        }
        None => (None, None),
    };
    let attr = &found.attr;
    Row {
        path,
        path_bytes,
        kind: match attr.kind() {
            FileKind::Directory => "directory",
            FileKind::Regular => "file",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "pipe",
            FileKind::Socket => "socket",
            FileKind::CharDevice => "character device",
            FileKind::BlockDevice => "block device",
        },
        inode: attr.ino.0,
        mode: format!("{:04o}", attr.mode & 0o7777),
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        allocated_bytes: attr.blocks.saturating_mul(512),
        device: device(attr),
        atime: instant(attr.atime),
        mtime: instant(attr.mtime),
        ctime: instant(attr.ctime),
        btime: instant(attr.btime),
        target,
        target_bytes,
    }
}

/// As ls(1) writes them.
fn permissions(attr: &Attr) -> String {
    let kind = match attr.kind() {
        FileKind::Directory => 'd',
        FileKind::Regular => '-',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = attr.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (attr.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Year, month and day of a day since 1970, in the calendar of today.
pub fn civil(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years from the first of March of year 0, so that a leap day ends its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = match month {
        0..10 => (month + 3, 0),
        _ => (month - 9, 1),
    };
    (era * 400 + year + next, month, day)
}

fn clock(time: Timestamp) -> (String, String) {
    let (year, month, day) = civil(time.seconds.div_euclid(86_400));
    let second = time.seconds.rem_euclid(86_400);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!(
            "{:02}:{:02}:{:02}",
            second / 3_600,
            second / 60 % 60,
            second % 60
        ),
    )
}

/// A time by UTC, for people.
pub fn date(time: Timestamp) -> String {
    let (date, clock) = clock(time);
    format!("{date} {clock}")
}

/// A time by UTC, for programs.
pub fn instant(time: Timestamp) -> String {
    let (date, clock) = clock(time);
    format!("{date}T{clock}.{:09}Z", time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000007Z"),
            (-1, "1969-12-31T23:59:59.000000007Z"),
            (951_782_399, "2000-02-28T23:59:59.000000007Z"),
            (951_782_400, "2000-02-29T00:00:00.000000007Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000000007Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000007Z"),
            (-11_676_096_000, "1600-01-01T00:00:00.000000007Z"),
        ] {
            let time = Timestamp {
                seconds,
                nanoseconds: 7,
            };
            assert_eq!(instant(time), text);
        }
        // What a volume may hold, however absurd.
        for seconds in [i64::MIN, i64::MAX] {
            let time = Timestamp {
                seconds,
                nanoseconds: 0,
            };
            assert!(!date(time).is_empty());
        }
    }
}
