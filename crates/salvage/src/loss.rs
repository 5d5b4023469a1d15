//! What did not come through.

use std::fmt;

use serde::Serialize;

/// What is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lost {
    /// A name is left, and nothing of what it led to.
    Everything,
    /// Data of a file: it is a hole in the copy.
    Data,
    /// Where the data of a part of a file was; what of it summaries knew is in the copy.
    Extents,
    /// Type, owner, mode and times.
    Attributes,
    /// The name: it is in `lost+found`.
    Name,
    /// Names of a directory may be missing.
    Names,
    /// Extended attributes may be missing, or one could not be read.
    Xattrs,
    /// The target of a symbolic link.
    Target,
    /// An item that makes no sense.
    Item,
    /// Not lost, but as of an earlier checkpoint.
    Older,
    /// Blocks that were written after the checkpoint are in a file of their own in `lost+found`.
    Newer,
    /// Metadata of which nothing tells what it held: a range of the tree, or records of the journal.
    Metadata,
}

/// A loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Path in the new volume; bytes that are no UTF-8 are replaced. Empty where there is none.
    pub path: String,
    /// Inode number; 0 where there is none.
    pub ino: u64,
    /// What.
    pub lost: Lost,
    /// First byte of the range, for data and extents.
    pub from: u64,
    /// One past its last byte.
    pub to: u64,
    /// More about it.
    pub detail: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        match self.lost {
            Lost::Everything => write!(f, "nothing is left")?,
            Lost::Data => write!(f, "bytes {} to {} are lost", self.from, self.to)?,
            Lost::Extents => write!(f, "bytes {} to {}: their place is lost", self.from, self.to)?,
            Lost::Attributes => write!(f, "attributes are lost")?,
            Lost::Name => write!(f, "its name is lost")?,
            Lost::Names => write!(f, "names in it may be missing")?,
            Lost::Xattrs => write!(f, "extended attributes may be missing")?,
            Lost::Target => write!(f, "the target of the symbolic link is lost")?,
            Lost::Item => write!(f, "a part of it makes no sense")?,
            Lost::Older => write!(f, "a part of it is older than the rest")?,
            Lost::Newer => write!(f, "there is newer data of it")?,
            Lost::Metadata => write!(f, "metadata is lost")?,
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}
