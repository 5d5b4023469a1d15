//! Extended attributes that are kept in the inode, from which the engine reads them: to programs they are attributes among others, whose
//! values read back as names. What is made in a directory has those that the directory has.

use persimmon_format::inode::Inode;
use persimmon_format::{Compression, Lifetime, shown};

use crate::{Error, Ino, Result, XattrMode};

/// Of a wrong value that is logged, bytes.
const LOGGED_MAX: usize = 32;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeAttribute {
    /// How long the content will live.
    Lifetime,
    /// How the content is compressed.
    Compression,
}

impl InodeAttribute {
    pub(crate) const ALL: [InodeAttribute; 2] =
        [InodeAttribute::Lifetime, InodeAttribute::Compression];

    /// Bytes of all their names in a list, each with the zero byte that ends it.
    pub(crate) const LISTED_LEN: usize =
        InodeAttribute::Lifetime.name().len() + InodeAttribute::Compression.name().len() + 2;

    pub(crate) const fn name(self) -> &'static [u8] {
        match self {
            InodeAttribute::Lifetime => b"user.persimmon.lifetime",
            InodeAttribute::Compression => b"user.persimmon.compression",
        }
    }

    pub(crate) fn named(name: &[u8]) -> Option<InodeAttribute> {
        InodeAttribute::ALL.into_iter().find(|of| of.name() == name)
    }

    fn field(self, inode: &mut Inode) -> &mut u8 {
        match self {
            InodeAttribute::Lifetime => &mut inode.lifetime,
            InodeAttribute::Compression => &mut inode.compression,
        }
    }

    /// What an inode stores for a value.
    pub(crate) fn parse(self, ino: Ino, value: &[u8]) -> Result<u8> {
        let (stored, values) = match self {
            InodeAttribute::Lifetime => {
                let lifetime = Lifetime::parse(value);
                let stored = lifetime.map(|told| Lifetime::stored(Some(told)));
                (stored, "none, short, medium, long or extreme, or 1 to 5")
            }
            InodeAttribute::Compression => {
                let compression = std::str::from_utf8(value).ok().and_then(Compression::parse);
                let stored = compression.map(|told| Compression::stored(Some(told)));
                (stored, "none, lz4, zstd, or zstd:1 to zstd:15")
            }
        };
        stored.ok_or_else(|| {
            let name = shown(self.name());
            let value = shown(value.get(..LOGGED_MAX).unwrap_or(value));
            tracing::warn!(%ino, "{name} cannot be \"{value}\": {values}");
            Error::Invalid("value of the attribute")
        })
    }

    /// Its value.
    pub(crate) fn value(self, inode: &Inode) -> Option<Vec<u8>> {
        let name = match self {
            InodeAttribute::Lifetime => inode.lifetime_hint()?.name().to_owned(),
            InodeAttribute::Compression => inode.compression()?.to_string(),
        };
        Some(name.into_bytes())
    }

    /// Gives it to an inode.
    pub(crate) fn put(self, inode: &mut Inode, stored: u8, mode: XattrMode) -> Result<()> {
        match (self.value(inode), mode) {
            (Some(_), XattrMode::Create) => Err(Error::Exists),
            (None, XattrMode::Replace) => Err(Error::NoAttribute),
            _ => {
                *self.field(inode) = stored;
                Ok(())
            }
        }
    }

    /// Takes it away. Tells whether it was there.
    pub(crate) fn take(self, inode: &mut Inode) -> bool {
        let was_there = self.value(inode).is_some();
        *self.field(inode) = 0;
        was_there
    }
}
