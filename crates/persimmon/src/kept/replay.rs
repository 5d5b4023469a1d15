//! What killed processes have flushed is brought into the volume, before anybody uses it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use persimmon_engine::RecoveryReport;
use persimmon_vfs::{Author, Error as VfsError, FileKind, Handle, Ino, Timestamp, Vfs};

use super::Place;
use super::tail::{self, CAPACITY, Found, Start, is_private};
use crate::{Error, Result};

/// Brings in the tails of a volume that was just recovered, and removes them. Killed in between, the next opening goes on. What they hold
/// was acknowledged: neither limits nor flags that a file got since keep it from that.
///
/// Answers the files whose ends stay in their tails, since there is no room for them: not in the reserve, and not once `orphans`
/// are freed, which is done only if it may help.
///
/// # Errors
/// When a tail cannot be read or brought in: what was flushed must not get lost because the volume was used without it.
pub(crate) fn replay(
    vfs: &Vfs,
    place: &Place,
    (recovery, now): (&RecoveryReport, Timestamp),
    orphans: &mut Vec<Ino>,
) -> Result<Vec<Ino>> {
    vfs.volume().allow_reserve(true);
    let mut replayed = replay_all(vfs, place, (recovery, now));
    if replayed.as_ref().is_ok_and(|waiting| !waiting.is_empty()) && !orphans.is_empty() {
        // Those that are not freed stay on their list: the next opening frees them.
        if let Err(error) = vfs.reclaim_orphans(&std::mem::take(orphans)) {
            tracing::warn!(%error, "freeing unlinked files");
        }
        replayed = replay_all(vfs, place, (recovery, now));
    }
    vfs.volume().allow_reserve(false);
    let waiting = replayed?;
    if !waiting.is_empty() {
        tracing::warn!(
            files = waiting.len(),
            "the volume is full, and what was flushed before a process died waits for room: delete other files, then open the volume \
             again; until then the files that wait cannot be opened, and flushes go to the device"
        );
    }
    Ok(waiting)
}

/// How many files a volume that was just recovered, and is opened for reading, does not have all of that was flushed to them. It is told and
/// not brought in: nothing is written. What cannot be looked at is only logged.
pub(crate) fn unseen(vfs: &Vfs, place: &Place, recovery: &RecoveryReport) -> usize {
    let tails = tails(place).unwrap_or_else(|error| {
        tracing::warn!(%error, "what was flushed before a process died cannot be looked at");
        Vec::new()
    });
    let is_unseen = |(user, path): &(u32, PathBuf)| {
        let is_unseen = match due(place, recovery, (*user, path))? {
            Due::Not(_) => false,
            Due::Content(start, content) => match lacking(vfs, &start, &content) {
                Ok(Ok(lacking)) => lacking.continues(vfs).unwrap_or(true),
                Ok(Err(_)) => false,
                Err(error) => return Err(io::Error::other(error)),
            },
        };
        Ok(is_unseen)
    };
    let unseen = tails.iter().filter(|tail| {
        is_unseen(tail).unwrap_or_else(|error: io::Error| {
            let path = tail.1.display();
            tracing::warn!(%path, %error, "what was flushed before a process died cannot be looked at");
            // It says something, and an opening that writes would not go on without it.
            true
        })
    });
    let unseen = unseen.count();
    if unseen > 0 {
        tracing::warn!(
            files = unseen,
            "files have flushed data that this opening does not see, since it is for reading: open the volume once for writing"
        );
    }
    unseen
}

fn replay_all(
    vfs: &Vfs,
    place: &Place,
    (recovery, now): (&RecoveryReport, Timestamp),
) -> Result<Vec<Ino>> {
    let mut waiting = Vec::new();
    for (user, path) in tails(place)? {
        let due = due(place, recovery, (user, &path));
        let fate = due.and_then(|due| match due {
            Due::Not(fate) => Ok(fate),
            Due::Content(start, content) => {
                let has_room = waiting.is_empty();
                extend(vfs, &start, &content, (has_room, now)).map_err(io::Error::other)
            }
        });
        match fate.map_err(|error| failed(&path, error))? {
            Fate::In(bytes) => {
                tracing::info!(path = %path.display(), bytes, "what was flushed before a process died is back");
                remove(&path).map_err(|error| failed(&path, error))?;
            }
            Fate::Discarded(why) => {
                tracing::warn!(path = %path.display(), "a tail is removed and not brought in: {why}");
                remove(&path).map_err(|error| failed(&path, error))?;
            }
            Fate::Aside(why) => {
                tracing::warn!(path = %path.display(), "a tail is not brought in, and left where it is until somebody removes it: {why}");
            }
            Fate::Waits(ino) => {
                tracing::warn!(path = %path.display(), ino = ino.0, "there is no room for what was flushed to a file");
                waiting.push(ino);
            }
        }
    }
    for user in place.all_users() {
        // Of another user's directory this may be refused, and an empty one says nothing.
        let _ = fs::remove_dir(place.directory(user));
    }
    Ok(waiting)
}

/// All there are, and whose. Older files first: each is durable before the next, so that if the power goes now, too, what is there is still
/// the beginning of one history.
fn tails(place: &Place) -> Result<Vec<(u32, PathBuf)>> {
    let mut all = Vec::new();
    for user in place.all_users() {
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
        for entry in fs::read_dir(&dir).map_err(|error| failed(&dir, error))? {
            let entry = entry.map_err(|error| failed(&dir, error))?;
            all.push((user, entry.path()));
        }
    }
    // Numbers of files grow, and in their length the names do.
    all.sort_by_cached_key(|(_, path)| {
        let name = path.file_name().map(std::ffi::OsStr::to_owned);
        (name.as_ref().map(|name| name.len()), name)
    });
    Ok(all)
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Kept {
        path: path.to_owned(),
        source,
    }
}

fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// What becomes of a tail.
enum Fate {
    /// The volume has what it holds; bytes that are new.
    In(u64),
    /// It says nothing, or nothing that anybody can want.
    Discarded(&'static str),
    /// It says something, and not of the volume as it is.
    Aside(&'static str),
    /// There is no room for what it holds of this file.
    Waits(Ino),
}

/// What there is to bring in of a tail.
enum Due {
    Not(Fate),
    Content(Start, Vec<u8>),
}

fn due(place: &Place, recovery: &RecoveryReport, (user, path): (u32, &Path)) -> io::Result<Due> {
    let Some(bytes) = read(path, user)? else {
        return Ok(Due::Not(Fate::Discarded("it is no file of the user's")));
    };
    let (start, content) = match tail::parse(&bytes, &place.owner) {
        Found::Nothing(why) => return Ok(Due::Not(Fate::Discarded(why))),
        Found::OtherVersion(version) => {
            return Err(io::Error::other(format!(
                "it is of version {version}, which another version of Persimmon has made"
            )));
        }
        Found::End { start, content } => (start, content),
    };
    if !start.point.is_in_last_opening(recovery) {
        return Ok(Due::Not(Fate::Aside(
            "since it was made the volume has changed, or is an older copy",
        )));
    }
    Ok(Due::Content(start, content))
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

/// What the volume lacks of a tail.
struct Lacking<'a> {
    ino: Ino,
    /// Where the tail begins in the file.
    base: u64,
    /// What the file has there must be this.
    same: &'a [u8],
    /// Where the file ends.
    end: u64,
    missing: &'a [u8],
}

impl Lacking<'_> {
    /// Whether it goes on from what the file has.
    fn continues(&self, vfs: &Vfs) -> persimmon_vfs::Result<bool> {
        let mut found = vec![0; self.same.len()];
        let read = vfs.read(self.ino, Handle::NONE, self.base, &mut found)?;
        Ok(read == self.same.len() && found == self.same)
    }
}

/// What of `content` the file does not have; else what becomes of the tail.
fn lacking<'a>(
    vfs: &Vfs,
    start: &Start,
    content: &'a [u8],
) -> persimmon_vfs::Result<Result<Lacking<'a>, Fate>> {
    let (ino, base) = (start.ino, start.base);
    let attr = match vfs.getattr(ino) {
        Ok(attr) if attr.nlink > 0 => attr,
        Ok(_) | Err(VfsError::Stale | VfsError::NotFound) => {
            return Ok(Err(Fate::Discarded("its file has no name any more")));
        }
        Err(error) => return Err(error),
    };
    if attr.kind() != FileKind::Regular {
        return Ok(Err(Fate::Aside("it is not of a regular file")));
    }
    let Some(there) = attr.size.checked_sub(base) else {
        return Ok(Err(Fate::Aside("its file is shorter than when it began")));
    };
    // More was written, and written back.
    let Some((same, missing)) = usize::try_from(there)
        .ok()
        .and_then(|there| content.split_at_checked(there))
        .filter(|(_, missing)| !missing.is_empty())
    else {
        return Ok(Err(Fate::In(0)));
    };
    Ok(Ok(Lacking {
        ino,
        base,
        same,
        end: attr.size,
        missing,
    }))
}

/// Appends what of `content` the file does not have, durably, if there is room for it, and for all before. What it has of it must be the
/// same.
fn extend(
    vfs: &Vfs,
    start: &Start,
    content: &[u8],
    (has_room, now): (bool, Timestamp),
) -> persimmon_vfs::Result<Fate> {
    let lacking = match lacking(vfs, start, content)? {
        Ok(lacking) => lacking,
        Err(fate) => return Ok(fate),
    };
    let Lacking {
        ino, end, missing, ..
    } = lacking;
    if !has_room {
        return Ok(Fate::Waits(ino));
    }
    if !lacking.continues(vfs)? {
        return Ok(Fate::Aside("its file has other content"));
    }
    match append(vfs, ino, end, (missing, now)) {
        // The next opening goes on where this one was stopped.
        Err(error) if error.errno() == libc::ENOSPC => Ok(Fate::Waits(ino)),
        Err(error) => Err(error),
        Ok(()) => Ok(Fate::In(missing.len() as u64)),
    }
}

fn append(
    vfs: &Vfs,
    ino: Ino,
    mut at: u64,
    (mut rest, now): (&[u8], Timestamp),
) -> persimmon_vfs::Result<()> {
    while !rest.is_empty() {
        match vfs.write_again(ino, at, rest, (now, Some(Author::Privileged)))? {
            0 => return Err(VfsError::NoSpace),
            written => {
                at += written as u64;
                rest = rest.get(written..).unwrap_or_default();
            }
        }
    }
    vfs.fsync(ino, Handle::NONE)
}
