//! Zone files that are open, a bounded number of them.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use persimmon_sync::{Condvar, Mutex, MutexGuard};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::linux::failure::Failure;
use crate::linux::limits::SECTOR_BYTES;
use crate::{Result, ZoneId};

/// Files open for reading alone.
const READ_FILES_MAX: usize = 64;
/// How long a file that was closed may still count as open, and how often that is looked at.
const CLOSING_MAX: Duration = Duration::from_secs(1);
const CLOSING_POLL: Duration = Duration::from_millis(1);

/// The directory of a zonefs with the files of sequential zones.
#[derive(Clone, Debug)]
pub struct ZoneFiles(pub PathBuf);

impl ZoneFiles {
    /// The directory beside it with those of conventional zones, which need not be there.
    pub fn conventional(&self) -> PathBuf {
        self.0.with_file_name("cnv")
    }

    pub fn path(&self, zone: ZoneId) -> PathBuf {
        self.0.join(zone.0.to_string())
    }

    /// Past the page cache, as zonefs wants writes.
    pub fn open(&self, zone: ZoneId, write: bool) -> io::Result<File> {
        OpenOptions::new()
            .read(!write)
            .write(write)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(self.path(zone))
    }
}

/// Files open for writing. With the mount option explicit-open each of them is an open zone of the
/// drive, so there are never more of them than the drive may have open.
#[derive(Debug)]
pub struct Writers {
    files: ZoneFiles,
    files_max: usize,
    state: Mutex<FilesState>,
    /// A file was opened or closed, or is in use no more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FilesState {
    open: HashMap<ZoneId, Writer>,
    /// Counts uses, to tell which file was used longest ago.
    uses: u64,
}

#[derive(Debug)]
struct Writer {
    /// `None`: about to be opened, or being closed.
    file: Option<Arc<File>>,
    /// Writes that need it.
    users: u32,
    /// The zone was opened explicitly.
    is_pinned: bool,
    last_use: u64,
}

/// A file that stays open for writing meanwhile.
pub struct Held {
    // Let go of first, so that it is the writers who close it.
    file: Arc<File>,
    _used: Used,
}

struct Used {
    writers: Arc<Writers>,
    zone: ZoneId,
}

impl Held {
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some(writer) = self.writers.lock().open.get_mut(&self.zone) {
            writer.users = writer.users.saturating_sub(1);
        }
        self.writers.changed.notify_all();
    }
}

impl Writers {
    pub fn new(files: ZoneFiles, files_max: u32) -> Writers {
        Writers {
            files,
            files_max: (files_max as usize).max(1),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Opens a zone's file for writing if it is not open, for which another one that is not in use
    /// is closed if need be. `admit` is asked before. Waits while all are in use, for the writes
    /// under way in one of them.
    pub fn hold(
        self: &Arc<Writers>,
        zone: ZoneId,
        admit: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Result<Held, Failure>> {
        let mut is_admitted = false;
        let mut state = self.lock();
        loop {
            state.uses += 1;
            let now = state.uses;
            if let Some(writer) = state.open.get_mut(&zone) {
                if let Some(file) = &writer.file {
                    let file = Arc::clone(file);
                    writer.users += 1;
                    writer.last_use = now;
                    return Ok(Ok(self.held(zone, file)));
                }
                state = self.wait(state);
            } else if !is_admitted {
                drop(state);
                admit()?;
                is_admitted = true;
                state = self.lock();
            } else if state.open.len() < self.files_max {
                let opening = Writer {
                    file: None,
                    users: 1,
                    is_pinned: false,
                    last_use: now,
                };
                state.open.insert(zone, opening);
                break;
            } else if let Some(victim) = state.victim() {
                state = self.close(state, victim);
            } else {
                state = self.wait(state);
            }
        }
        drop(state);
        let opened = once_closed(|| self.files.open(zone, true));
        let mut state = self.lock();
        let answer = match opened {
            Ok(file) => {
                let file = Arc::new(file);
                if let Some(writer) = state.open.get_mut(&zone) {
                    writer.file = Some(Arc::clone(&file));
                }
                Ok(self.held(zone, file))
            }
            Err(error) => {
                state.open.remove(&zone);
                Err(too_many(error))
            }
        };
        drop(state);
        self.changed.notify_all();
        Ok(answer)
    }

    /// Opens a zone's file, to stay open until [`Writers::release`].
    pub fn pin(self: &Arc<Writers>, zone: ZoneId) -> Result<(), Failure> {
        let held = match self.hold(zone, &mut || Ok(())) {
            Ok(held) => held?,
            // It is admitted.
            Err(_) => return Ok(()),
        };
        if let Some(writer) = self.lock().open.get_mut(&zone) {
            writer.is_pinned = true;
        }
        drop(held);
        Ok(())
    }

    /// Closes a zone's file, unless a write needs it, which then opened the zone again.
    pub fn release(&self, zone: ZoneId) {
        let mut state = self.lock();
        let Some(writer) = state.open.get_mut(&zone) else {
            return;
        };
        writer.is_pinned = false;
        if writer.users == 0 && writer.file.is_some() {
            drop(self.close(state, zone));
        }
    }

    /// Whether a zone's file is open for writing, and was opened explicitly.
    pub fn is_open(&self, zone: ZoneId) -> Option<bool> {
        let state = self.lock();
        let writer = state.open.get(&zone)?;
        writer.file.as_ref().map(|_| writer.is_pinned)
    }

    /// Closes a file that nobody uses. The lock is released meanwhile: closing closes the zone.
    fn close<'a>(
        &'a self,
        mut state: MutexGuard<'a, FilesState>,
        zone: ZoneId,
    ) -> MutexGuard<'a, FilesState> {
        let file = state
            .open
            .get_mut(&zone)
            .and_then(|writer| writer.file.take());
        drop(state);
        drop(file);
        let mut state = self.lock();
        state.open.remove(&zone);
        self.changed.notify_all();
        state
    }

    fn held(self: &Arc<Writers>, zone: ZoneId, file: Arc<File>) -> Held {
        Held {
            file,
            _used: Used {
                writers: Arc::clone(self),
                zone,
            },
        }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, FilesState>) -> MutexGuard<'a, FilesState> {
        self.changed.wait(state)
    }

    fn lock(&self) -> MutexGuard<'_, FilesState> {
        self.state.lock()
    }
}

impl FilesState {
    /// The file to close for another: that was used longest ago. One of a zone that was opened
    /// explicitly only if the zone takes no more writes.
    fn victim(&self) -> Option<ZoneId> {
        let idle = self.open.iter().filter(|(_, writer)| {
            let is_closable = |file: &Arc<File>| !writer.is_pinned || is_over(file);
            writer.users == 0 && writer.file.as_ref().is_some_and(is_closable)
        });
        let oldest = idle.min_by_key(|(_, writer)| writer.last_use);
        oldest.map(|(zone, _)| *zone)
    }
}

/// Whether a zone is full or failed.
fn is_over(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| {
        metadata.len() >= metadata.blocks() * SECTOR_BYTES || metadata.mode() & 0o222 == 0
    })
}

/// Opens a file, for which a file that was closed last may still count as open: `io_uring` can let go of a file a little after
/// it told that a write is over.
fn once_closed(mut open: impl FnMut() -> io::Result<File>) -> io::Result<File> {
    let until = Instant::now() + CLOSING_MAX;
    loop {
        match open() {
            Err(error) if is_too_many(&error) && Instant::now() < until => {
                thread::sleep(CLOSING_POLL);
            }
            opened => return opened,
        }
    }
}

/// Zonefs refuses to open a file beyond the limits of the drive.
fn is_too_many(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BUSY)
}

fn too_many(error: io::Error) -> Failure {
    if is_too_many(&error) {
        Errno::TOOMANYREFS.into()
    } else {
        error.into()
    }
}

/// Files open for reading.
#[derive(Debug)]
pub struct Readers {
    files: ZoneFiles,
    state: Mutex<ReadState>,
}

#[derive(Debug, Default)]
struct ReadState {
    open: HashMap<ZoneId, (Arc<File>, u64)>,
    uses: u64,
}

impl Readers {
    pub fn new(files: ZoneFiles) -> Readers {
        Readers {
            files,
            state: Mutex::default(),
        }
    }

    /// The file of the first zone that has not failed. Zonefs flushes the drive for any of its files, but for those of zones
    /// that have.
    pub fn first_alive(&self) -> Result<Arc<File>, Failure> {
        let mut refused = Failure::from(Errno::PERM);
        for zone in (0..).map(ZoneId) {
            match fs::metadata(self.files.path(zone)) {
                Ok(metadata) if super::info(&metadata, None).state.is_worn_out() => {}
                Ok(_) => match self.get(zone) {
                    Err(failure) if failure.is_refused() => refused = failure,
                    opened => return opened,
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error.into()),
            }
        }
        Err(refused)
    }

    /// A zone's file.
    pub fn get(&self, zone: ZoneId) -> Result<Arc<File>, Failure> {
        if let Some(file) = self.lock().used(zone) {
            return Ok(file);
        }
        let file = Arc::new(self.files.open(zone, false)?);
        let mut state = self.lock();
        let mut closed = None;
        if state.open.len() >= READ_FILES_MAX {
            let oldest = state.open.iter().min_by_key(|(_, (_, last_use))| *last_use);
            if let Some(zone) = oldest.map(|(zone, _)| *zone) {
                closed = state.open.remove(&zone);
            }
        }
        let now = state.uses;
        state.open.insert(zone, (Arc::clone(&file), now));
        drop(state);
        drop(closed);
        Ok(file)
    }

    fn lock(&self) -> MutexGuard<'_, ReadState> {
        self.state.lock()
    }
}

impl ReadState {
    fn used(&mut self, zone: ZoneId) -> Option<Arc<File>> {
        self.uses += 1;
        let now = self.uses;
        let (file, last_use) = self.open.get_mut(&zone)?;
        *last_use = now;
        Some(Arc::clone(file))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::DeviceError;

    /// Files of a directory that is no zonefs; some hosts' have no direct I/O, as tmpfs.
    fn writers(files_max: u32) -> Option<(tempfile::TempDir, Arc<Writers>)> {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for zone in 0..6 {
            // Like a zone that is not full: it takes more room than its size.
            let file = File::create(dir.path().join(zone.to_string())).unwrap();
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, 8192).unwrap();
        }
        let files = ZoneFiles(dir.path().to_owned());
        files.open(ZoneId(0), false).ok()?;
        Some((dir, Arc::new(Writers::new(files, files_max))))
    }

    fn hold(writers: &Arc<Writers>, zone: u32) -> Held {
        writers.hold(ZoneId(zone), &mut || Ok(())).unwrap().unwrap()
    }

    #[test]
    fn the_file_used_longest_ago_gives_way_unless_it_is_pinned() {
        let Some((_dir, writers)) = writers(2) else {
            return;
        };
        let open = |zone| writers.is_open(ZoneId(zone));
        writers.pin(ZoneId(0)).unwrap();
        drop(hold(&writers, 1));
        drop(hold(&writers, 2));
        assert_eq!((open(0), open(1), open(2)), (Some(true), None, Some(false)));
        writers.release(ZoneId(2));
        writers.release(ZoneId(0));
        assert_eq!((open(0), open(2)), (None, None));
    }

    #[test]
    fn who_finds_all_in_use_waits_for_one() {
        let Some((_dir, writers)) = writers(2) else {
            return;
        };
        let held = (hold(&writers, 1), hold(&writers, 2));
        let waiting = {
            let writers = Arc::clone(&writers);
            thread::spawn(move || drop(hold(&writers, 3)))
        };
        drop(held);
        waiting.join().unwrap();
        assert_eq!(writers.is_open(ZoneId(3)), Some(false));
        assert!(writers.lock().open.len() <= 2);
    }

    #[test]
    fn what_is_refused_opens_nothing() {
        let Some((_dir, writers)) = writers(1) else {
            return;
        };
        let refused = writers.hold(ZoneId(1), &mut || Err(DeviceError::ReadOnly));
        assert!(matches!(refused, Err(DeviceError::ReadOnly)));
        let absent = writers.hold(ZoneId(99), &mut || Ok(())).unwrap();
        assert!(absent.is_err());
        assert!(writers.lock().open.is_empty());
    }

    /// A drive of six open zones had a seventh, which was closed, but not yet by `io_uring`.
    #[test]
    fn a_file_that_is_being_closed_is_waited_for() {
        let busy = || io::Error::from_raw_os_error(Errno::BUSY.raw_os_error());
        let mut asked = 0;
        let opened = once_closed(|| {
            asked += 1;
            if asked < 4 {
                Err(busy())
            } else {
                tempfile::tempfile()
            }
        });
        assert!(opened.is_ok());
        let refused = once_closed(|| Err(busy())).unwrap_err();
        assert!(is_too_many(&refused));
    }

    /// Zonefs makes the file of a failed zone immutable and takes its permissions, and then refuses to flush through it. Flushes
    /// went through the file of zone 0: with that zone the volume could never be written again.
    #[test]
    fn a_flush_goes_through_a_zone_that_has_not_failed() {
        let dir = tempfile::tempdir().unwrap();
        let files = ZoneFiles(dir.path().to_owned());
        for (zone, mode) in (0..).map(ZoneId).zip([0, 0o444, 0o640, 0o640]) {
            fs::write(files.path(zone), zone.0.to_string()).unwrap();
            fs::set_permissions(files.path(zone), Permissions::from_mode(mode)).unwrap();
        }
        // Not every filesystem that tests run on has files past the page cache.
        if files.open(ZoneId(2), false).is_err() {
            return;
        }
        let readers = Readers::new(files.clone());
        let flushed = || {
            let file = readers.first_alive()?;
            Ok::<u64, Failure>(file.metadata()?.ino())
        };
        let inode = |zone| fs::metadata(files.path(ZoneId(zone))).unwrap().ino();
        assert_eq!(flushed().unwrap(), inode(2));
        fs::set_permissions(files.path(ZoneId(2)), Permissions::from_mode(0o000)).unwrap();
        assert_eq!(flushed().unwrap(), inode(3));
        fs::set_permissions(files.path(ZoneId(3)), Permissions::from_mode(0o000)).unwrap();
        assert!(flushed().unwrap_err().is_refused());
    }
}
