//! What to show, in words.

use persimmon_format::inode::ROOT;
use persimmon_format::{Addr, DeviceId, Ino, Key, KeyKind, PageId, SubvolumeId, ZoneId};

use super::Target;
use crate::error::{InspectError, Result};
use crate::volume::Inspector;

/// The forms [`Target::parse`] understands, one a line.
pub const FORMS: &str = "\
header ZONE          the header of a zone
block ZONE:BLOCK     whatever is at an address
log                  the log from the replay position on
footer               the newest checkpoint's footer
mat                  where each metadata page is
zit                  what each zone is used for
page ID              a metadata page
keys [INO [INO]]     the items of all inodes, of one, of those from one to another
inode INO|/PATH      an inode; INO@SUBVOLUME in a snapshot
directory INO|/PATH  the entries of a directory
extents INO|/PATH    the extents of a file
summaries ZONE       the summary blocks of a data zone
subvolumes           the main subvolume and the snapshots";

impl Target {
    /// Understands a target in words. Paths are looked up in the volume.
    ///
    /// # Errors
    /// [`InspectError::Request`] with the forms there are; [`InspectError::NotFound`] for a path.
    pub fn parse<W: AsRef<str>>(inspector: &Inspector<'_>, words: &[W]) -> Result<Target> {
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        Ok(match words.as_slice() {
            ["log"] => Target::Log,
            ["footer"] => Target::Footer,
            ["subvolumes"] => Target::Subvolumes,
            ["mat"] => Target::Mat,
            ["zit"] => Target::Zit,
            ["header", zone] => Target::Header(ZoneId(number(zone)?)),
            ["summaries", zone] => Target::Summaries(ZoneId(number(zone)?)),
            ["block", addr] => Target::Block(address(addr)?),
            ["page", id] => Target::Page(PageId(number(id)?)),
            ["keys"] => Target::Keys {
                from: None,
                to: None,
            },
            ["keys", ino] => {
                let ino = number(ino)?;
                keys(ino, ino)
            }
            ["keys", from, to] => keys(number(from)?, number(to)?),
            ["inode", what] => Target::Inode(inode(inspector, what)?),
            ["directory", what] => Target::Directory(inode(inspector, what)?),
            ["extents", what] => Target::Extents(inode(inspector, what)?),
            _ => return Err(bad(&words.join(" "))),
        })
    }
}

fn keys(from: u64, to: u64) -> Target {
    let first = |ino| Key::new(Ino(ino), KeyKind(0), 0);
    Target::Keys {
        from: Some(first(from)),
        to: to.checked_add(1).map(first),
    }
}

fn bad(words: &str) -> InspectError {
    InspectError::Request(format!(
        "cannot show \"{words}\"; one of these can be:\n{FORMS}"
    ))
}

fn number<T: TryFrom<u64>>(word: &str) -> Result<T> {
    let parsed = match word.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => word.parse(),
    };
    parsed
        .ok()
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| InspectError::Request(format!("\"{word}\" is not a number that fits here")))
}

/// `zone:block` or `device:zone:block`.
fn address(word: &str) -> Result<Addr> {
    let parts: Vec<&str> = word.split(':').collect();
    let (device, zone, block) = match parts.as_slice() {
        [zone, block] => (0, number(zone)?, number(block)?),
        [device, zone, block] => (number(device)?, number(zone)?, number(block)?),
        _ => {
            return Err(InspectError::Request(format!(
                "\"{word}\" is not an address: write ZONE:BLOCK"
            )));
        }
    };
    Ok(Addr::new(DeviceId(device), ZoneId(zone), block))
}

fn inode(inspector: &Inspector<'_>, word: &str) -> Result<Ino> {
    if word.starts_with('/') {
        inspector.resolve(word)
    } else if let Some((ino, subvolume)) = word.split_once('@') {
        Ok(Ino(number(ino)?).of(SubvolumeId(number(subvolume)?)))
    } else {
        Ok(Ino(number(word)?))
    }
}

impl Inspector<'_> {
    /// The inode a path leads to, as of after the replay. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`InspectError::NotFound`], naming the part that is not there.
    pub fn resolve(&self, path: &str) -> Result<Ino> {
        let state = self.state()?;
        let mut at = ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let found = state.lookup(self, at, part.as_bytes());
            at = found.ok_or_else(|| InspectError::NotFound {
                what: format!("\"{part}\" of {path}"),
            })?;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::{address, number};

    #[test]
    fn numbers_and_addresses_are_read() {
        assert_eq!(number::<u64>("0x10").unwrap(), 16);
        assert!(number::<u8>("256").is_err());
        assert_eq!(address("5:12").unwrap().to_string(), "0:5:12");
        assert_eq!(address("1:5:12").unwrap().to_string(), "1:5:12");
        assert!(address("5").is_err());
    }
}
