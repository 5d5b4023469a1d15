//! What fills the tree: files of less than a block, long names and attributes.

use std::fmt;

use persimmon_vfs::{Caller, Error, Handle, StatFs, WriteFlags, XattrMode};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::twin::{Content, File, Small};
use super::volume::{Outcome, Subject, sure};

const ATTRIBUTE: &[u8] = b"user.attribute";

/// How large what fills the tree of a volume is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Most bytes of a file.
    file_max: usize,
    /// Most bytes of an attribute.
    attribute_max: usize,
    /// One of so many names is long.
    pub long_names: u32,
}

impl Sizes {
    pub fn draw(rng: &mut ChaCha8Rng) -> Sizes {
        let mut pick = |from: [usize; 4]| from[rng.random_range(0..from.len())];
        Sizes {
            file_max: pick([40, 300, 1000, 2048]),
            attribute_max: pick([10, 100, 1000, 3000]),
            long_names: pick([1, 2, 16, 64]) as u32,
        }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizes {
            file_max,
            attribute_max,
            long_names,
        } = self;
        write!(
            f,
            "files up to {file_max} bytes, attributes up to {attribute_max}, one of {long_names} names long"
        )
    }
}

impl Subject {
    /// A new file, or an attribute of one. Whether there was room.
    pub fn grow_tree(&mut self, room: StatFs) -> Outcome<bool> {
        let Some(sizes) = self.by_tree else {
            return Ok(true);
        };
        match self.twin.any(&mut self.rng) {
            Some(at) if self.rng.random_ratio(1, 8) => self.set_attribute(at, sizes, room),
            _ => {
                let Some(file) = self.make(room)? else {
                    return Ok(false);
                };
                let small = self.draw_small(sizes.file_max);
                self.fill_small(file, small)
            }
        }
    }

    fn draw_small(&mut self, len_max: usize) -> Small {
        self.next_pattern += 1;
        // Mostly of nearly the same length.
        let least = match self.rng.random_range(0..4) {
            0 => 1,
            _ => len_max * 3 / 4,
        };
        Small::Pattern(self.rng.random_range(least..=len_max), self.next_pattern)
    }

    fn set_attribute(&mut self, at: usize, sizes: Sizes, room: StatFs) -> Outcome<bool> {
        let value = self.draw_small(sizes.attribute_max);
        let file = &mut self.twin.files[at];
        let (caller, mode) = (Caller::root(), XattrMode::Either);
        let set = self
            .vfs
            .setxattr(&caller, file.ino, ATTRIBUTE, &value.bytes(), mode);
        let set = Self::may_be_refused(self.split, set, "setting an attribute", 1, room)?;
        if set.is_some() {
            file.attribute = Some(value);
        }
        Ok(set.is_some())
    }

    /// Removes its attribute, if it has one.
    pub fn remove_attribute(&mut self, at: usize, room: StatFs) -> Outcome<()> {
        let file = &mut self.twin.files[at];
        if file.attribute.take().is_none() {
            return Ok(());
        }
        let removed = self.vfs.removexattr(file.ino, ATTRIBUTE);
        sure(removed, "removing an attribute", room)
    }

    /// With as many bytes as it has.
    pub fn overwrite_small(&mut self, at: usize) -> Outcome<()> {
        let room = self.room()?;
        let file = &mut self.twin.files[at];
        let Content::Small(small) = file.content else {
            return Ok(());
        };
        self.next_pattern += 1;
        let new = Small::Pattern(small.len(), self.next_pattern);
        let flags = WriteFlags::default();
        let written = self
            .vfs
            .write(file.ino, Handle::NONE, 0, &new.bytes(), flags);
        // What it takes in the tree may be more than before: it compresses no more.
        let written = Self::may_be_refused(self.split, written, "overwriting", 1, room)?;
        let Some(written) = written else {
            return Ok(());
        };
        if written.len != small.len() {
            return Err(format!("{} of {} bytes written", written.len, small.len()));
        }
        file.content = Content::Small(new);
        Ok(())
    }

    pub fn compare_attribute(&self, file: &File) -> Outcome<()> {
        let due = file.attribute.map(Small::bytes);
        let found = match self.vfs.getxattr(file.ino, ATTRIBUTE) {
            Ok(value) => Some(value),
            Err(Error::NoAttribute) => None,
            Err(error) => return Err(format!("reading an attribute: {error}")),
        };
        if found == due {
            Ok(())
        } else {
            Err(format!("{} has another attribute than was set", file.name))
        }
    }
}
