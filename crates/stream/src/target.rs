//! Where a receiver puts what it receives. A target is asked for one name in one directory at a time, and follows no symbolic link.

use std::io;

use crate::wire::{Kind, Time};

/// What is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// A directory.
    Directory,
    /// An empty file.
    Regular,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// What has no content: a pipe, a socket, or a device node of this number.
    Special(Kind, u32),
}

/// A tree of files. Errors are those of the system calls that do the same. The empty name is the directory itself.
pub trait Target {
    /// A directory that is found again whatever is renamed.
    type Dir: Clone;
    /// A regular file to be written.
    type File;

    /// The directory that is received into.
    fn root(&mut self) -> io::Result<Self::Dir>;

    /// Whether what the owner of a file may not do is done all the same.
    fn is_privileged(&self) -> bool;

    /// The permissions of a directory that its owner could not work in, before it got more for that: told once. [`Target::set_mode`] forgets them.
    fn own_mode(&mut self, _at: &Self::Dir, _name: &[u8]) -> Option<u32> {
        None
    }

    /// A directory in one.
    fn open_dir(&mut self, at: &Self::Dir, name: &[u8]) -> io::Result<Self::Dir>;

    /// What a name leads to.
    fn kind(&mut self, at: &Self::Dir, name: &[u8]) -> io::Result<Kind>;

    /// Names in a directory, at most so many.
    fn list(&mut self, at: &Self::Dir, max: usize) -> io::Result<Vec<Vec<u8>>>;

    /// Makes something that is not there, for nobody else to use yet.
    fn make(&mut self, at: &Self::Dir, name: &[u8], node: Node<'_>) -> io::Result<()>;

    /// Takes what its directory passed on from what was made: a receiver that was killed in between has to do it again.
    fn strip(&mut self, at: &Self::Dir, name: &[u8]) -> io::Result<()>;

    /// Another name of what is no directory.
    fn link(&mut self, from: (&Self::Dir, &[u8]), to: (&Self::Dir, &[u8])) -> io::Result<()>;

    /// Renames to what is not there.
    fn rename(&mut self, from: (&Self::Dir, &[u8]), to: (&Self::Dir, &[u8])) -> io::Result<()>;

    /// Removes what is no directory.
    fn unlink(&mut self, at: &Self::Dir, name: &[u8]) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&mut self, at: &Self::Dir, name: &[u8]) -> io::Result<()>;

    /// Opens a regular file to write to it.
    fn open_file(&mut self, at: &Self::Dir, name: &[u8]) -> io::Result<Self::File>;

    /// Writes all of it.
    fn write(&mut self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes a hole, or zeros.
    fn punch(&mut self, file: &Self::File, offset: u64, len: u64) -> io::Result<()>;

    /// Sets the size.
    fn set_size(&mut self, file: &Self::File, size: u64) -> io::Result<()>;

    /// Sets owner and group.
    fn set_owner(&mut self, at: &Self::Dir, name: &[u8], uid: u32, gid: u32) -> io::Result<()>;

    /// Sets an extended attribute.
    fn set_xattr(
        &mut self,
        at: &Self::Dir,
        name: &[u8],
        attribute: &[u8],
        value: &[u8],
    ) -> io::Result<()>;

    /// Removes an extended attribute.
    fn remove_xattr(&mut self, at: &Self::Dir, name: &[u8], attribute: &[u8]) -> io::Result<()>;

    /// Sets permissions, but of a symbolic link.
    fn set_mode(&mut self, at: &Self::Dir, name: &[u8], mode: u32) -> io::Result<()>;

    /// Sets access and modification time.
    fn set_times(
        &mut self,
        at: &Self::Dir,
        name: &[u8],
        atime: Time,
        mtime: Time,
    ) -> io::Result<()>;

    /// The content of a small file of the receiver's own, if it is there.
    fn read_whole(
        &mut self,
        at: &Self::Dir,
        name: &[u8],
        max: usize,
    ) -> io::Result<Option<Vec<u8>>>;

    /// Gives such a file this content, in the place of what it had.
    fn write_whole(&mut self, at: &Self::Dir, name: &[u8], bytes: &[u8]) -> io::Result<()>;

    /// Renames such a file over another one.
    fn replace(&mut self, at: &Self::Dir, from: &[u8], to: &[u8]) -> io::Result<()>;

    /// Makes everything durable.
    fn sync(&mut self) -> io::Result<()>;
}
