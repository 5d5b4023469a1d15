//! What killed processes have flushed is brought into the volume, before anybody uses it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use persimmon_vfs::{Error as VfsError, FileKind, Handle, Ino, OpenFlags, Vfs, WriteFlags};

use super::Place;
use super::tail::{self, CAPACITY, Found, is_private};
use crate::{Error, Result};

/// Brings in every tail of a volume that was just recovered, and removes it. Killed in between, the next opening goes on.
///
/// # Errors
/// When a tail cannot be read or brought in: what was flushed must not get lost because the volume was used without it.
pub(crate) fn replay(vfs: &Vfs, place: &Place) -> Result<()> {
    let mut users = place.users.to_vec();
    users.sort_unstable();
    users.dedup();
    for user in users {
        let dir = place.directory(user);
        match is_private(&dir, user) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(dir = %dir.display(), user, "a directory of tails is not the user's, and is left alone");
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // Where nobody may look, no process of this user has made one.
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "a directory of tails cannot be looked at");
                continue;
            }
        }
        let entries = fs::read_dir(&dir).map_err(|error| failed(&dir, error))?;
        let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
        let mut paths = paths.map_err(|error| failed(&dir, error))?;
        // Older files first, each durable before the next: if the power goes now, too, what is there is still the beginning of
        // one history. Numbers of files grow, and in their length the names do.
        paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        for path in paths {
            bring_in(vfs, place, user, &path).map_err(|error| failed(&path, error))?;
            remove(&path).map_err(|error| failed(&path, error))?;
        }
        // Of another user's directory this may be refused, and an empty one says nothing.
        let _ = fs::remove_dir(&dir);
    }
    Ok(())
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Kept {
        path: path.to_owned(),
        source,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

/// What is no tail of this volume is told in the log.
fn bring_in(vfs: &Vfs, place: &Place, user: u32, path: &Path) -> io::Result<()> {
    let found = match read(path, user)? {
        Some(bytes) => tail::parse(&bytes, &place.owner),
        None => Found::Nothing("it is no file of the user's"),
    };
    let why = match found {
        Found::Nothing(why) => why,
        Found::OtherVersion(version) => {
            return Err(io::Error::other(format!(
                "it is of version {version}, which another version of Persimmon has made"
            )));
        }
        Found::End { ino, base, content } => match extend(vfs, ino, base, &content) {
            Ok(Extended::By(bytes)) => {
                tracing::info!(
                    ino = ino.0,
                    bytes,
                    "what was flushed before a process died is back"
                );
                return Ok(());
            }
            Ok(Extended::Not(why)) => why,
            Err(error) => return Err(io::Error::other(error)),
        },
    };
    tracing::warn!(path = %path.display(), "a tail is removed and not brought in: {why}");
    Ok(())
}

/// Its bytes; `None` if it is nothing that a process of the user made.
fn read(path: &Path, user: u32) -> io::Result<Option<Vec<u8>>> {
    // Of a pipe the open must not wait for a writer.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file: File = match opened {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO)) => {
            return Ok(None);
        }
        opened => opened?,
    };
    let attr = file.metadata()?;
    let is_tail = attr.is_file() && attr.uid() == user && attr.len() <= CAPACITY as u64;
    if !is_tail {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(CAPACITY as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

enum Extended {
    By(u64),
    Not(&'static str),
}

/// Appends what of `content` the file does not have, durably. What it has of it must be the same.
fn extend(vfs: &Vfs, ino: Ino, base: u64, content: &[u8]) -> persimmon_vfs::Result<Extended> {
    let attr = match vfs.getattr(ino) {
        Ok(attr) if attr.nlink > 0 => attr,
        Ok(_) | Err(VfsError::Stale | VfsError::NotFound) => {
            return Ok(Extended::Not("its file has no name any more"));
        }
        Err(error) => return Err(error),
    };
    if attr.kind() != FileKind::Regular {
        return Ok(Extended::Not("it is not of a regular file"));
    }
    let Some(there) = attr.size.checked_sub(base) else {
        return Ok(Extended::Not("its file is shorter than when it began"));
    };
    // More was written, and written back.
    let Some((same, missing)) = usize::try_from(there)
        .ok()
        .and_then(|there| content.split_at_checked(there))
        .filter(|(_, missing)| !missing.is_empty())
    else {
        return Ok(Extended::By(0));
    };
    let flags = OpenFlags {
        read: true,
        write: true,
        ..OpenFlags::default()
    };
    let handle = vfs.open(ino, flags)?;
    let done = append(vfs, ino, handle, base, same, missing);
    let released = vfs.release(ino, handle);
    let done = done?;
    released?;
    Ok(done)
}

fn append(
    vfs: &Vfs,
    ino: Ino,
    handle: Handle,
    base: u64,
    same: &[u8],
    missing: &[u8],
) -> persimmon_vfs::Result<Extended> {
    let mut found = vec![0; same.len()];
    let read = vfs.read(ino, handle, base, &mut found)?;
    if read != same.len() || found != same {
        return Ok(Extended::Not("its file has other content"));
    }
    let (mut at, mut rest) = (base + same.len() as u64, missing);
    while !rest.is_empty() {
        let written = vfs.write(ino, handle, at, rest, WriteFlags::default())?;
        at = written.end;
        rest = rest.get(written.len..).unwrap_or_default();
    }
    vfs.fsync(ino, handle)?;
    Ok(Extended::By(missing.len() as u64))
}
