//! Named items: directory entries and extended attributes. Their key's item is 55 bits of the
//! name's hash and 8 bits that tell names of equal hash apart, so it fits a positive `off_t` and
//! serves as a stable readdir cookie.

use crate::codec::{Put, Reader};
use crate::{Ino, Result, VolumeKey};

/// Longest file name, bytes.
pub const NAME_MAX: usize = 255;
/// Longest name of an extended attribute, bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value of an extended attribute, bytes.
pub const XATTR_VALUE_MAX: usize = 3900;
/// Most bytes of the names of one inode's extended attributes, each with the zero byte that ends it in a list: what a
/// system call lists at most (`XATTR_LIST_MAX`).
pub const XATTR_NAMES_MAX: u32 = 64 << 10;
/// Names of equal hash that one directory can hold.
pub const COLLISIONS_MAX: u64 = 256;
/// Items below this are never used, so that a readdir cookie can mean "." and "..".
const FIRST_HASH: u64 = 1;

/// The first of the [`COLLISIONS_MAX`] items that `name` may have.
#[must_use]
pub fn first_item(key: &VolumeKey, name: &[u8]) -> u64 {
    (key.name_hash(name) >> 9).max(FIRST_HASH) << 8
}

/// A directory entry. Bytes: inode 0..8, file type 8, name from 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode it names.
    pub ino: Ino,
    /// Its file type, the high four bits of `st_mode` (`S_IFMT >> 12`).
    pub file_type: u8,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> DirEntry<'a> {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(9 + self.name.len());
        out.put_u64(self.ino.0);
        out.put_u8(self.file_type);
        out.put(self.name);
        out
    }

    /// As read.
    pub fn decode(bytes: &'a [u8]) -> Result<DirEntry<'a>> {
        let mut r = Reader::new(bytes, "directory entry");
        let ino = Ino(r.u64()?);
        let file_type = r.u8()?;
        if r.is_empty() || r.remaining() > NAME_MAX {
            return Err(r.bad("name length", r.remaining() as u64));
        }
        Ok(DirEntry {
            ino,
            file_type,
            name: r.rest(),
        })
    }
}

/// An extended attribute. Bytes: name length 0, name, value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Full name, such as `user.comment`.
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> Xattr<'a> {
    /// As stored. The name is at most [`XATTR_NAME_MAX`] bytes, the value [`XATTR_VALUE_MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.name.len() + self.value.len());
        out.put_u8(self.name.len() as u8);
        out.put(self.name);
        out.put(self.value);
        out
    }

    /// What a name takes of [`XATTR_NAMES_MAX`].
    #[must_use]
    pub fn listed_len(name: &[u8]) -> u32 {
        name.len() as u32 + 1
    }

    /// As read.
    pub fn decode(bytes: &'a [u8]) -> Result<Xattr<'a>> {
        let mut r = Reader::new(bytes, "extended attribute");
        let len = r.u8()?;
        if len == 0 {
            return Err(r.bad("name length", 0));
        }
        let name = r.bytes(len.into())?;
        Ok(Xattr {
            name,
            value: r.rest(),
        })
    }
}
