//! Which blocks of a file its content is in.

use persimmon_format::Ino;
use persimmon_format::inode::Timestamp;

use super::Volume;
use crate::data::Shift;
use crate::engine::Engine;
use crate::error::Result;

/// The layout of a volume's files.
#[derive(Clone, Copy)]
pub struct Layout<'a> {
    engine: &'a Engine,
}

impl<'a> Layout<'a> {
    /// Of an open volume.
    #[must_use]
    pub fn of(volume: &'a Volume) -> Layout<'a> {
        Layout {
            engine: &volume.engine,
        }
    }

    /// Takes a range of whole blocks out of a file, or puts a hole of whole blocks into it: `range` is where, and how many bytes. What is
    /// behind moves. Other blocks of the file, and of snapshots, stay as they are.
    ///
    /// # Errors
    /// [`Error::NotBeforeEnd`](crate::Error::NotBeforeEnd): the range to take out does not end before the file does, or the hole does
    /// not begin before that. [`Error::TooLarge`](crate::Error::TooLarge): something would move past the largest file.
    pub fn shift(&self, ino: Ino, range: (u64, u64), how: Shift, now: Timestamp) -> Result<()> {
        self.engine.data.shift(ino, range, how, now)
    }
}
