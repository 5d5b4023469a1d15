//! Operations by path.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use persimmon_engine::RecoveryReport;
use persimmon_vfs::{
    Attr, Caller, FileKind, Handle, Ino, RenameMode, SetAttr, StatFs, Vfs, XattrMode,
};

use crate::kept::Keeper;
use crate::mounted::Mounted;
use crate::path::{Last, Named, from_root, parent, parent_of_file, parent_of_new, resolve};
use crate::{Background, CommitInterval, Error, File, OpenOptions, ReadDir, Result};

/// A filesystem in use. Paths begin at its root, with or without a leading slash.
///
/// Clones are the same filesystem. It closes when the last clone and the last open [`File`] are dropped;
/// [`Filesystem::close`] says whether that succeeded.
#[derive(Clone)]
pub struct Filesystem {
    mounted: Arc<Mounted>,
}

impl Filesystem {
    pub(crate) fn new(
        vfs: Arc<Vfs>,
        background: Background,
        commit: Arc<CommitInterval>,
        recovery: RecoveryReport,
        keeper: Arc<Keeper>,
    ) -> Filesystem {
        Filesystem {
            mounted: Arc::new(Mounted::new(vfs, background, commit, recovery, keeper)),
        }
    }

    /// The operations by inode number. They see all that was written until this call, and afterwards, of files that are open with
    /// [`OpenOptions::keep_flushed`](crate::OpenOptions::keep_flushed), perhaps not what is appended: call this again then.
    #[must_use]
    pub fn vfs(&self) -> &Arc<Vfs> {
        self.mounted.vfs()
    }

    pub(crate) fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    fn caller(&self) -> &Caller {
        self.mounted.caller()
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery(&self) -> &RecoveryReport {
        self.mounted.recovery()
    }

    /// How long what was written stays volatile at most, while nobody asks for it to be durable. Can be changed at any time.
    #[must_use]
    pub fn commit_interval(&self) -> &Arc<CommitInterval> {
        self.mounted.commit()
    }

    /// Makes everything durable, ends the background work, and closes the volume. Clones and open files take no
    /// more changes from then on ([`FilesystemError::ReadOnly`](crate::FilesystemError::ReadOnly)); the device is let go of with the last of them.
    /// It is closed once: of several calls each waits for the first, and answers what it did.
    ///
    /// # Errors
    /// When not everything could be made durable, or it was [abandoned](Filesystem::abandon). What was acknowledged before is.
    pub fn close(self) -> Result<()> {
        self.mounted.close()
    }

    /// Ends the background work and leaves the volume as a crash of the process would: what was synced is there. For
    /// tests of programs that have to survive one.
    pub fn abandon(self) {
        self.mounted.abandon();
    }

    /// Makes everything done so far durable: content, names and attributes of all files.
    pub fn sync(&self) -> Result<()> {
        let vfs = self.mounted.vfs_as_it_is();
        let filled = self.mounted.keeper().fill_in_all(vfs);
        Ok(vfs.sync().and(filled)?)
    }

    /// Space and inodes.
    pub fn statfs(&self) -> Result<StatFs> {
        Ok(self.vfs().statfs()?)
    }

    /// Space and inodes of what a path means: where its project is limited, the limit (the soft one if there is one) and what is left of
    /// it, and never more than the volume has.
    pub fn statfs_at(&self, path: impl AsRef<Path>) -> Result<StatFs> {
        let vfs = self.vfs();
        self.by_path(path.as_ref(), Last::Follow, |ino| vfs.statfs_at(ino))
    }

    /// Files that cannot be opened, since there is no room on the volume for what was flushed to them before a process died: delete
    /// others, then open the volume again ([`OpenOptions::keep_flushed`](crate::OpenOptions::keep_flushed)).
    #[must_use]
    pub fn files_waiting(&self) -> usize {
        self.vfs().held_back().len()
    }

    /// Files with data that was flushed before a process died and that this opening does not see, because it is for reading: open the volume
    /// once for writing, which brings it in ([`OpenOptions::keep_flushed`](crate::OpenOptions::keep_flushed)).
    #[must_use]
    pub fn files_unseen(&self) -> usize {
        self.mounted.keeper().unseen()
    }

    /// Attributes of what a path means, links followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        self.attributes(path.as_ref(), Last::Follow)
    }

    /// Attributes of what a path names, a link at its end not followed.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Attr> {
        self.attributes(path.as_ref(), Last::Keep)
    }

    fn attributes(&self, path: &Path, last: Last) -> Result<Attr> {
        let vfs = self.vfs();
        let found = from_root(|| {
            let attr = resolve(vfs, path, last)?;
            // Fails where the volume could not be given all of it.
            self.mounted.keeper().fill_in(vfs, attr.ino)?;
            Ok(attr)
        });
        found.map_err(Error::at(path))
    }

    /// Whether the path leads anywhere.
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.metadata(path).is_ok()
    }

    /// Changes attributes: permissions, owner, size, times.
    pub fn set_attributes(&self, path: impl AsRef<Path>, set: &SetAttr) -> Result<Attr> {
        let vfs = self.vfs();
        let change = |ino| vfs.setattr(ino, Handle::NONE, set);
        self.by_path(path.as_ref(), Last::Follow, |ino| match set.size {
            Some(_) => {
                let keeper = self.mounted.keeper();
                keeper.changing(vfs, ino, || change(ino))
            }
            None => change(ino),
        })
    }

    /// Opens a file.
    pub fn open_file(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = path.as_ref();
        File::open(&self.mounted, path, options).map_err(Error::at(path))
    }

    /// The whole content of a file.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path, &OpenOptions::new().read(true))?;
        file.read_up_to(usize::MAX, 0)
    }

    /// Makes or empties a file and writes all of its content.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        self.open_file(path, &options)?
            .write_at(content.as_ref(), 0)
    }

    /// The entries of a directory, without the dots, in the directory's own order.
    ///
    /// Entries are read some hundred at a time as the iterator goes on. What is there from the first to the last
    /// is told exactly once; what is made or removed meanwhile may be told or not.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let path = path.as_ref();
        let dir = self.metadata(path)?;
        match dir.kind() {
            FileKind::Directory => Ok(ReadDir::new(self.clone(), path, dir.ino)),
            _ => Err(Error::at(path)(persimmon_vfs::Error::NotDirectory)),
        }
    }

    /// Changes permissions and the setuid, setgid and sticky bits: the lowest twelve bits of `mode`.
    pub fn set_permissions(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        let set = SetAttr {
            mode: Some(mode),
            ..SetAttr::default()
        };
        self.set_attributes(path, &set).map(drop)
    }

    /// Makes a directory. [`FilesystemError::Exists`](crate::FilesystemError::Exists): something has that name, or it is the root.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, vfs) = (path.as_ref(), self.vfs());
        let made = from_root(|| {
            let Named { dir, name, .. } = parent_of_new(vfs, path)?;
            vfs.mkdir(self.caller(), dir, name, 0o777)
        });
        made.map(drop).map_err(Error::at(path))
    }

    /// Makes a directory and those above it that are missing.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() {
            return self.create_dir(path);
        }
        let vfs = self.vfs();
        let mut dir = PathBuf::new();
        let made = from_root(|| {
            let mut at = vfs.root();
            // From the top on down: a path may have thousands of components.
            dir.clear();
            for component in path.components() {
                dir.push(component);
                if let Component::Normal(_) | Component::ParentDir = component {
                    at = self.directory_in(vfs, at, &dir, component.as_os_str().as_bytes())?;
                }
            }
            Ok(())
        });
        made.map_err(Error::at(&dir))
    }

    /// The directory of a name in `above`, which is made if there is none. The name is the last one of `path`.
    fn directory_in(
        &self,
        vfs: &Vfs,
        above: Ino,
        path: &Path,
        name: &[u8],
    ) -> persimmon_vfs::Result<Ino> {
        let found = match vfs.lookup(above, name) {
            Err(persimmon_vfs::Error::NotFound) => {
                match vfs.mkdir(self.caller(), above, name, 0o777) {
                    // Another was faster.
                    Err(persimmon_vfs::Error::Exists) => vfs.lookup(above, name)?,
                    made => made?,
                }
            }
            found => found?,
        };
        let found = match found.kind() {
            FileKind::Symlink => match resolve(vfs, path, Last::Follow) {
                Err(persimmon_vfs::Error::Stale) => return Err(persimmon_vfs::Error::Stale),
                resolved => resolved.ok(),
            },
            _ => Some(found),
        };
        match found {
            Some(found) if found.kind() == FileKind::Directory => Ok(found.ino),
            _ => Err(persimmon_vfs::Error::Exists),
        }
    }

    /// Removes a name of anything but a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, vfs) = (path.as_ref(), self.vfs());
        let removed = from_root(|| {
            let named = parent_of_file(vfs, path)?;
            named.check_of_file(vfs)?;
            vfs.unlink(named.dir, named.name)
        });
        removed.map_err(Error::at(path))
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (path, vfs) = (path.as_ref(), self.vfs());
        let removed = from_root(|| {
            let Named { dir, name, .. } = parent(vfs, path)?;
            vfs.rmdir(dir, name)
        });
        removed.map_err(Error::at(path))
    }

    /// Renames, replacing what has the new name. Atomic, also against crashes.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameMode::Replace)
    }

    /// Renames without replacing, or exchanges two names.
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let vfs = self.vfs();
        // Which of the two is to blame is known here alone.
        let mut blamed = Some(to);
        let renamed = from_root(|| {
            blamed = Some(to);
            let target = parent(vfs, to)?;
            blamed = Some(from);
            let source = parent(vfs, from)?;
            blamed = None;
            let moved = source.found(vfs)?;
            match mode {
                RenameMode::Exchange => drop(target.found(vfs)?),
                _ => target.check_target_of(&moved)?,
            }
            // Under its new name it is to be whole.
            self.mounted.keeper().fill_in(vfs, moved.ino)?;
            vfs.rename(source.dir, source.name, target.dir, target.name, mode)
        });
        renamed.map_err(|error| match blamed {
            Some(path) => Error::at(path)(error),
            None => Error::between(from, to)(error),
        })
    }

    /// Gives a file one more name. A symbolic link is linked itself.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (original, link) = (original.as_ref(), link.as_ref());
        let vfs = self.vfs();
        let mut blamed = Some(original);
        let linked = from_root(|| {
            blamed = Some(original);
            let ino = resolve(vfs, original, Last::Keep)?.ino;
            self.mounted.keeper().fill_in(vfs, ino)?;
            blamed = Some(link);
            let named = parent_of_new(vfs, link)?;
            named.check_of_new_link(vfs)?;
            blamed = None;
            vfs.link(ino, named.dir, named.name)
        });
        linked.map(drop).map_err(|error| match blamed {
            Some(path) => Error::at(path)(error),
            None => Error::between(original, link)(error),
        })
    }

    /// Makes a symbolic link to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (target, link) = (target.as_ref().as_os_str().as_bytes(), link.as_ref());
        let vfs = self.vfs();
        let made = from_root(|| {
            let named = parent_of_new(vfs, link)?;
            named.check_of_new_link(vfs)?;
            vfs.symlink(self.caller(), named.dir, named.name, target)
        });
        made.map(drop).map_err(Error::at(link))
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let vfs = self.vfs();
        self.by_path(path.as_ref(), Last::Keep, |ino| vfs.readlink(ino))
    }

    /// Value of an extended attribute.
    pub fn xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<Vec<u8>> {
        let (vfs, name) = (self.vfs(), name.as_bytes());
        self.by_path(path.as_ref(), Last::Follow, |ino| vfs.getxattr(ino, name))
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: &str, value: &[u8]) -> Result<()> {
        let (vfs, caller, name) = (self.vfs(), self.caller(), name.as_bytes());
        self.by_path(path.as_ref(), Last::Follow, |ino| {
            vfs.setxattr(caller, ino, name, value, XattrMode::Either)
        })
    }

    /// Names of the extended attributes, in no order.
    pub fn list_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let (vfs, caller) = (self.vfs(), self.caller());
        let list = self.by_path(path.as_ref(), Last::Follow, |ino| {
            vfs.listxattr(caller, ino)
        })?;
        // Each ends with a zero byte.
        let names = list.split(|byte| *byte == 0);
        Ok(names
            .filter(|name| !name.is_empty())
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: &str) -> Result<()> {
        let (vfs, name) = (self.vfs(), name.as_bytes());
        self.by_path(path.as_ref(), Last::Follow, |ino| {
            vfs.removexattr(ino, name)
        })
    }

    /// Does something with what a path means.
    pub(crate) fn by_path<T>(
        &self,
        path: &Path,
        last: Last,
        act: impl Fn(Ino) -> persimmon_vfs::Result<T>,
    ) -> Result<T> {
        let vfs = self.mounted.vfs_as_it_is();
        let done = from_root(|| act(resolve(vfs, path, last)?.ino));
        done.map_err(Error::at(path))
    }
}
