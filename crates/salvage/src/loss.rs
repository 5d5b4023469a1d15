//! What did not come through.

use std::fmt;

use persimmon_format::shown::as_text;
use persimmon_format::{BLOCK_SIZE, Ino, shown};
use serde::{Serialize, Serializer};

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

/// Said where deltas of blocks are lost.
pub(crate) const CHANGES_LOST: &str = "the latest changes of some blocks";

/// Said of what was written after the checkpoint, where the volume has snapshots.
pub(crate) const NEWER_LEFT: &str = "in a volume with snapshots what was written last is not kept";

/// Said of a range whose place in the store of shared blocks is lost, and of which summaries know all blocks.
pub(crate) fn blocks_found((from, to): (u64, u64)) -> String {
    let blocks = to.saturating_sub(from).div_ceil(BLOCK_SIZE as u64);
    format!("{blocks} blocks of it were found")
}

/// A loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Path in the new volume; bytes that are no UTF-8 are replaced. Empty where there is none.
    pub path: String,
    /// The path where it is not UTF-8, in hexadecimal in JSON.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "hexadecimal"
    )]
    pub path_bytes: Option<Vec<u8>>,
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

impl Loss {
    /// Something of the inode `ino` at `path`.
    pub(crate) fn new(
        path: Vec<u8>,
        ino: Ino,
        lost: Lost,
        (from, to): (u64, u64),
        detail: String,
    ) -> Loss {
        let (path, path_bytes) = match String::from_utf8(path) {
            Ok(path) => (path, None),
            Err(error) => {
                let (text, _) = as_text(error.as_bytes());
                (text, Some(error.into_bytes()))
            }
        };
        Loss {
            path,
            path_bytes,
            ino: ino.0,
            lost,
            from,
            to,
            detail,
        }
    }
}

fn hexadecimal<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = bytes.as_deref().unwrap_or_default();
    serializer.serialize_str(&as_text(bytes).1.unwrap_or_default())
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            let path = self.path_bytes.as_deref();
            write!(f, "{}: ", shown(path.unwrap_or(self.path.as_bytes())))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss of `/a\xff` was told as one of `/a\u{fffd}`, and a name with a newline as two losses.
    #[test]
    fn paths_are_told_escaped_and_whole() {
        let loss =
            |path: &[u8]| Loss::new(path.to_vec(), Ino(7), Lost::Name, (0, 0), String::new());
        let torn = loss(b"/a\xff\x1b[2J");
        assert_eq!(torn.to_string(), "/a\\xff\\u{1b}[2J: its name is lost");
        let json = serde_json::to_value(&torn).unwrap();
        assert_eq!(json["path_bytes"], "2f61ff1b5b324a");
        assert_eq!(json["path"], "/a\u{fffd}\u{1b}[2J");
        let two_lines = loss("/柿\n/etc".as_bytes());
        assert_eq!(two_lines.to_string(), "/柿\\n/etc: its name is lost");
        let json = serde_json::to_value(&two_lines).unwrap();
        assert_eq!(json["path"], "/柿\n/etc");
        assert!(json.get("path_bytes").is_none());
    }
}
