//! Listing directories, and whole trees.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use persimmon_vfs::{Attr, Entry, FileKind, Handle, Ino, Listing};

use crate::{Error, Filesystem, FilesystemError, Result};

/// The cookie of `..`, behind which the entries begin.
const AFTER_DOTS: u64 = 2;
/// Entries fetched at a time.
const BATCH: usize = 256;

/// What was removed, and freed, since its path was walked is not there.
fn gone(error: FilesystemError) -> FilesystemError {
    match error {
        FilesystemError::Stale => FilesystemError::NotFound,
        error => error,
    }
}

/// An entry of a directory.
#[derive(Clone)]
pub struct DirEntry {
    filesystem: Filesystem,
    directory: PathBuf,
    name: OsString,
    ino: Ino,
    kind: FileKind,
}

impl std::fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DirEntry")
            .field("path", &self.path())
            .field("ino", &self.ino)
            .field("kind", &self.kind)
            .finish()
    }
}

impl DirEntry {
    /// Its name.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// Its path: that of the directory as it was listed, and its name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// The inode it names.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// Attributes of what it names, a symbolic link not followed.
    ///
    /// # Errors
    /// Among others where it was removed meanwhile.
    pub fn metadata(&self) -> Result<Attr> {
        let attr = self.filesystem.vfs().getattr(self.ino).map_err(gone);
        attr.map_err(|source| Error::At {
            path: self.path(),
            source,
        })
    }
}

/// The entries of a directory: see [`Filesystem::read_dir`].
pub struct ReadDir {
    filesystem: Filesystem,
    directory: PathBuf,
    ino: Ino,
    /// Of the last entry fetched.
    cookie: u64,
    fetched: VecDeque<DirEntry>,
    ended: bool,
}

impl ReadDir {
    pub(crate) fn new(filesystem: Filesystem, directory: &Path, ino: Ino) -> ReadDir {
        ReadDir {
            filesystem,
            directory: directory.to_owned(),
            ino,
            cookie: AFTER_DOTS,
            fetched: VecDeque::new(),
            ended: false,
        }
    }

    fn fetch(&mut self) -> Result<()> {
        let ReadDir {
            filesystem,
            directory,
            cookie,
            fetched,
            ..
        } = self;
        let after = *cookie;
        let mut each = |entry: &Entry<'_>| {
            if fetched.len() >= BATCH {
                return Listing::Full;
            }
            *cookie = entry.cookie;
            fetched.push_back(DirEntry {
                filesystem: filesystem.clone(),
                directory: directory.clone(),
                name: OsString::from_vec(entry.name.to_vec()),
                ino: entry.ino,
                kind: entry.kind,
            });
            Listing::More
        };
        let listed = filesystem
            .vfs()
            .readdir(self.ino, Handle::NONE, after, &mut each);
        self.ended = self.fetched.len() < BATCH;
        listed.map_err(gone).map_err(Error::at(&self.directory))
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    /// An error ends it.
    fn next(&mut self) -> Option<Result<DirEntry>> {
        if self.fetched.is_empty()
            && !self.ended
            && let Err(error) = self.fetch()
        {
            self.ended = true;
            self.fetched.clear();
            return Some(Err(error));
        }
        self.fetched.pop_front().map(Ok)
    }
}

/// Everything below a directory: see [`Filesystem::walk`].
pub struct Walk {
    /// The directories that are being listed, the deepest last.
    listings: Vec<ReadDir>,
}

impl Iterator for Walk {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        while let Some(listing) = self.listings.last_mut() {
            match listing.next() {
                None => {
                    self.listings.pop();
                }
                Some(Ok(entry)) => {
                    if entry.kind == FileKind::Directory {
                        let below =
                            ReadDir::new(entry.filesystem.clone(), &entry.path(), entry.ino);
                        self.listings.push(below);
                    }
                    return Some(Ok(entry));
                }
                Some(Err(error)) => return Some(Err(error)),
            }
        }
        None
    }
}

impl Filesystem {
    /// Everything below a directory, a directory before what is in it. Symbolic links are told and not followed.
    /// A directory that cannot be listed is told as an error, and the walk goes on behind it.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        Ok(Walk {
            listings: vec![self.read_dir(path)?],
        })
    }

    /// Removes a file, a link, or a directory with everything in it. Links are removed, not followed.
    ///
    /// # Errors
    /// The first one; what was removed until then is gone.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let attr = self.symlink_metadata(path)?;
        if attr.kind() != FileKind::Directory {
            return self.remove_file(path);
        }
        let emptied = self.empty_directory(attr.ino).map_err(gone);
        emptied.map_err(Error::at(path))?;
        self.remove_dir(path)
    }

    /// Goes by inode numbers and a stack of its own: a tree may be deeper than a path or the thread's stack.
    fn empty_directory(&self, top: Ino) -> persimmon_vfs::Result<()> {
        let vfs = self.vfs();
        // The directories on the way down: each with its name in the one above.
        let mut way: Vec<(Ino, Vec<u8>)> = vec![(top, Vec::new())];
        while let Some((directory, _)) = way.last() {
            let directory = *directory;
            let mut batch = Vec::with_capacity(BATCH);
            vfs.readdir(directory, Handle::NONE, AFTER_DOTS, &mut |entry: &Entry<
                '_,
            >| {
                if batch.len() >= BATCH {
                    return Listing::Full;
                }
                batch.push((entry.ino, entry.kind, entry.name.to_vec()));
                Listing::More
            })?;
            if batch.is_empty() {
                let emptied = way.pop().map(|(_, name)| name);
                if let (Some(name), Some((above, _))) = (emptied, way.last()) {
                    vfs.rmdir(*above, &name)?;
                }
                continue;
            }
            for (ino, kind, name) in batch {
                if kind == FileKind::Directory {
                    way.push((ino, name));
                    break;
                }
                vfs.unlink(directory, &name)?;
            }
        }
        Ok(())
    }
}
