//! Snapshots of a volume in use, and a volume set back to one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persimmon_device::{Drive, ZonedDevice};
use persimmon_format::shown::shown;
use persimmon_vfs::{Clock, RenameMode, Snapshot, SubvolumeId, Timestamp};

use crate::internal::Opened;
use crate::{Error, Filesystem, Options, Result, SystemClock};

/// The path of a snapshot, for messages.
fn path_of(name: &OsStr) -> std::path::PathBuf {
    Path::new("/.snapshots").join(name)
}

impl Filesystem {
    /// The snapshots. What is in one is found by paths that begin with `/.snapshots/` and its name, with the calls for any other path; a
    /// listing of `/` does not show that directory.
    #[must_use]
    pub fn snapshots(&self) -> Vec<Snapshot> {
        self.vfs().snapshots()
    }

    /// Takes a snapshot of all files, under a name: all that was written before is in it, and stays as it is. One that is `writable` can be
    /// changed like the volume itself, and neither change shows in the other. Takes as long as it takes to write what is staged, however
    /// large the volume is, and no room but for what is changed later. It is durable with the next sync.
    ///
    /// # Errors
    /// `EEXIST`: there is one with this name. `EOPNOTSUPP`: the volume was made by a Persimmon without snapshots. `ENOSPC`: there are too
    /// many.
    pub fn take_snapshot(&self, name: impl AsRef<OsStr>, writable: bool) -> Result<()> {
        let name = name.as_ref();
        let vfs = self.mounted().vfs_as_it_is();
        self.mounted().keeper().fill_in_all(vfs)?;
        let taken = vfs.take_snapshot(name.as_bytes(), !writable);
        taken.map(drop).map_err(Error::at(&path_of(name)))
    }

    /// Takes a snapshot of a snapshot, usually of a writable one, as [`Filesystem::take_snapshot`] does of the volume. It is listed with all
    /// others, and by `.snapshots` in the root of the one that it was taken of.
    ///
    /// # Errors
    /// As of [`Filesystem::take_snapshot`]; `ENOENT`: there is none with the name `of`.
    pub fn take_snapshot_of(
        &self,
        of: impl AsRef<OsStr>,
        name: impl AsRef<OsStr>,
        writable: bool,
    ) -> Result<()> {
        let (of, name) = (of.as_ref(), name.as_ref());
        let vfs = self.mounted().vfs_as_it_is();
        let found = vfs.snapshot_named(of.as_bytes());
        let of = found.map_err(Error::at(&path_of(of)))?.id;
        self.mounted().keeper().fill_in_all(vfs)?;
        let taken = vfs.take_snapshot_of(of, name.as_bytes(), !writable);
        taken.map(drop).map_err(Error::at(&path_of(name)))
    }

    /// Deletes a snapshot with all that is in it. What it alone held is freed in the background. Snapshots of it stay, as snapshots of what
    /// it was one of.
    ///
    /// # Errors
    /// `ENOENT`: there is none with this name. `EBUSY`: a file in it is open for writing, or too many were taken of it. Files of it that are open for reading give
    /// `ESTALE` afterwards.
    pub fn delete_snapshot(&self, name: impl AsRef<OsStr>) -> Result<()> {
        let name = name.as_ref();
        let deleted = self.vfs().delete_snapshot(name.as_bytes());
        deleted.map_err(Error::at(&path_of(name)))
    }

    /// Gives a snapshot another name.
    ///
    /// # Errors
    /// `ENOENT`: there is none with this name. `EEXIST`: there is one with the new name.
    pub fn rename_snapshot(
        &self,
        name: impl AsRef<OsStr>,
        new_name: impl AsRef<OsStr>,
    ) -> Result<()> {
        let (name, new_name) = (name.as_ref(), new_name.as_ref());
        let mode = RenameMode::NoReplace;
        let renamed = self
            .vfs()
            .rename_snapshot(name.as_bytes(), new_name.as_bytes(), mode);
        renamed.map_err(Error::between(&path_of(name), &path_of(new_name)))
    }

    /// Bytes on the device that are freed when this snapshot alone is deleted. Looks at all that was changed since it was taken.
    ///
    /// # Errors
    /// `ENOENT`: there is none with this name.
    pub fn snapshot_space(&self, name: impl AsRef<OsStr>) -> Result<u64> {
        let name = name.as_ref();
        let found = self.vfs().snapshot_named(name.as_bytes());
        let id = found.map_err(Error::at(&path_of(name)))?.id;
        Ok(self.vfs().volume().snapshots().space(id)?)
    }

    /// Has the volume on a device or in an image be as one of its snapshots is. All that was changed since is gone, or, with `keep`, becomes
    /// a snapshot with that name. The snapshot itself and all others stay. Nobody may use the volume meanwhile.
    ///
    /// # Errors
    /// There is no such snapshot, or one with the name `keep`; there is no room for what programs flushed before they died; as
    /// [`Filesystem::open`].
    pub fn roll_back(
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        keep: Option<&OsStr>,
        options: &Options,
    ) -> Result<()> {
        let path = path.as_ref();
        let device: Arc<dyn ZonedDevice> = Arc::new(Drive::open(
            path,
            &persimmon_device::OpenOptions::default(),
        )?);
        let open = || {
            let opened = Opened::new(Arc::clone(&device), options);
            opened.map_err(Error::of_volume_at(path))
        };
        // What a process flushed before it died belongs to what is rolled back, not to the snapshot.
        open()?.bring_in(path)?;
        let opened = open()?;
        let rolled_back = opened.roll_back(name, keep, SystemClock.now());
        rolled_back.map_err(Error::of_volume_at(path))?;
        opened.start(Arc::new(SystemClock))?.close()
    }
}

/// A volume has no snapshot with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no subvolume '{}'; `persimmon snapshot list {}` lists those that can be mounted", shown(.name), .volume.display())]
pub struct NoSuchSubvolume {
    /// The name.
    pub name: Vec<u8>,
    /// The device or image.
    pub volume: PathBuf,
}

impl Opened {
    /// The number of a snapshot, for [`Opened::with_subvolume`]. `volume` is told in the error.
    ///
    /// # Errors
    /// There is none with this name.
    pub fn subvolume_named(
        &self,
        name: &[u8],
        volume: &Path,
    ) -> std::result::Result<SubvolumeId, NoSuchSubvolume> {
        let mut all = self.volume().snapshots().list().into_iter();
        let found = all.find(|snapshot| snapshot.name == name);
        found
            .map(|snapshot| snapshot.id)
            .ok_or_else(|| NoSuchSubvolume {
                name: name.to_vec(),
                volume: volume.to_owned(),
            })
    }

    /// Has the volume be as a snapshot is, before it is put to use: see [`Filesystem::roll_back`]. A process that used the volume before must
    /// not have died: what it flushed would be brought into the files of the snapshot.
    ///
    /// # Errors
    /// There is no such snapshot, or one with the name `keep`.
    pub fn roll_back(
        &self,
        name: impl AsRef<OsStr>,
        keep: Option<&OsStr>,
        now: Timestamp,
    ) -> std::result::Result<(), persimmon_engine::Error> {
        let volume = self.volume();
        let mut all = volume.snapshots().list().into_iter();
        let to = all
            .find(|snapshot| snapshot.name == name.as_ref().as_bytes())
            .ok_or(persimmon_engine::Error::NoSuchSnapshot)?;
        volume
            .snapshots()
            .roll_back(to.id, keep.map(OsStr::as_bytes), now)?;
        volume.sync()
    }
}
