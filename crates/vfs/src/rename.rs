//! Renaming.

use crate::{Ino, RenameMode, Result, Vfs};

impl Vfs {
    /// Gives `name` of `parent` the name `new_name` in `new_parent`. Data of a file that takes the
    /// place of another enters the history first, so that no crash shows it empty or in part.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        unimplemented!()
    }
}
