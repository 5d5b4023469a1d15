//! Copying a file within the volume.

use std::path::Path;

use persimmon_vfs::SeekTo;

use crate::{Error, Filesystem, FilesystemError, OpenOptions, Result};

impl Filesystem {
    /// Copies the content and the permissions of a file to another, which is made, or emptied first. Holes stay holes. Tells the
    /// size. Owner, times and extended attributes are those of a new file.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open_file(from, &OpenOptions::new().read(true))?;
        let attr = source.metadata()?;
        // Emptying the target would empty the source.
        if self
            .metadata(&to)
            .is_ok_and(|target| target.ino == attr.ino)
        {
            return Err(Error::at(to.as_ref())(FilesystemError::Invalid(
                "a copy of a file onto itself",
            )));
        }
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let target = self.open_file(&to, &options)?;
        let mut at = 0;
        while let Some(data) = source.seek_to(at, SeekTo::Data)? {
            let hole = source.seek_to(data, SeekTo::Hole)?.unwrap_or(attr.size);
            source.copy_to(data, &target, data, hole - data)?;
            at = hole;
        }
        let made = target.metadata()?;
        // A hole at the end.
        if made.size != attr.size {
            target.set_len(attr.size)?;
        }
        let mode = attr.mode & 0o7777;
        if made.mode & 0o7777 != mode {
            self.set_permissions(to, mode)?;
        }
        Ok(attr.size)
    }
}
