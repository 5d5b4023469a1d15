//! Keys of the metadata tree.

use crate::codec::{Put, Reader};
use crate::extent::Extent;
use crate::inode::SHARED;
use crate::version::WHITEOUT;
use crate::{Ino, Result, SubvolumeId, VersionId};

/// What a key's value is. The number is stored; the order of kinds is the order in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyKind(pub u8);

impl KeyKind {
    /// An inode; item 0.
    pub const INODE: KeyKind = KeyKind(1);
    /// An extended attribute; item as for [`KeyKind::DIR_ENTRY`], of the attribute's name.
    pub const XATTR: KeyKind = KeyKind(2);
    /// A symbolic link's target; item 0.
    pub const SYMLINK: KeyKind = KeyKind(3);
    /// A directory entry; item is the name's hash and a collision number ([`crate::name`]).
    pub const DIR_ENTRY: KeyKind = KeyKind(4);
    /// A piece of a file; item is its first block in the file ([`crate::extent`]).
    pub const EXTENT: KeyKind = KeyKind(5);
    /// Under inode 0: an inode without a name that is still open, or whose blocks are still
    /// being freed; item is its number. No value.
    pub const ORPHAN: KeyKind = KeyKind(6);
    /// Under inode 0: a truncation under way; item is the inode, the value the first block to go
    /// (u64).
    pub const TRUNCATION: KeyKind = KeyKind(7);
    /// Under [`crate::inode::SHARED`]: how many files have blocks of the store of shared blocks; item is the first of them
    /// ([`crate::references`]).
    pub const REFERENCES: KeyKind = KeyKind(8);
    /// Under inode 0: a subvolume; item is its number ([`crate::version::Subvolume`]).
    pub const SUBVOLUME: KeyKind = KeyKind(9);
    /// Under inode 0: a version; item is its number ([`crate::version::Version`]).
    pub const VERSION: KeyKind = KeyKind(10);
    /// Under a number for each version ([`Key::changes`]): where the version may have items of an older inode; item is the inode
    /// ([`crate::version::Changes`]).
    pub const CHANGES: KeyKind = KeyKind(11);
    /// Under inode 0: what somebody takes, and may take ([`crate::quota::Owner::key`]), or whether that is counted
    /// ([`crate::quota::QuotaState::KEY`]).
    pub const QUOTA: KeyKind = KeyKind(12);
}

/// A key. Ordered by its fields in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Whose.
    pub ino: Ino,
    /// What.
    pub kind: KeyKind,
    /// Which.
    pub item: u64,
    /// In which snapshot; the live filesystem is 0.
    pub version: VersionId,
}

const _: () = assert!(Key::LEN == 8 + 1 + 8 + 4);

impl Key {
    /// Bytes of an encoded key.
    pub const LEN: usize = 21;

    /// Owner of the keys that belong to no inode.
    pub const GLOBAL: Ino = Ino(0);

    /// A key of version 0, or of none.
    #[must_use]
    pub fn new(ino: Ino, kind: KeyKind, item: u64) -> Key {
        Key {
            ino,
            kind,
            item,
            version: VersionId(0),
        }
    }

    /// The same of another version.
    #[must_use]
    pub fn at(self, version: VersionId) -> Key {
        Key { version, ..self }
    }

    /// Whether the item is the same in all subvolumes.
    #[must_use]
    pub fn is_unversioned(self) -> bool {
        self.ino == SHARED || KeyKind::REFERENCES <= self.kind
    }

    /// Whether this value says that nothing is at the key, whatever ancestors have.
    #[must_use]
    pub fn is_whiteout(self, value: &[u8]) -> bool {
        match self.kind {
            KeyKind::EXTENT => Extent::is_hole(value),
            _ => value == WHITEOUT,
        }
    }

    /// Key of an inode.
    #[must_use]
    pub fn inode(ino: Ino) -> Key {
        Key::new(ino, KeyKind::INODE, 0)
    }

    /// Key of an extent.
    #[must_use]
    pub fn extent(ino: Ino, block: u64) -> Key {
        Key::new(ino, KeyKind::EXTENT, block)
    }

    /// Key of references to blocks of the store of shared blocks.
    #[must_use]
    pub fn references(block: u64) -> Key {
        Key::new(SHARED, KeyKind::REFERENCES, block)
    }

    /// Key of an orphan record, in the subvolume of the inode.
    #[must_use]
    pub fn orphan(ino: Ino) -> Key {
        Key::global(ino, KeyKind::ORPHAN)
    }

    /// Key of a truncation record, in the subvolume of the inode.
    #[must_use]
    pub fn truncation(ino: Ino) -> Key {
        Key::global(ino, KeyKind::TRUNCATION)
    }

    fn global(ino: Ino, kind: KeyKind) -> Key {
        Key::new(Key::GLOBAL.of(ino.subvolume()), kind, ino.plain().0)
    }

    /// Key of a subvolume.
    #[must_use]
    pub fn subvolume(subvolume: SubvolumeId) -> Key {
        Key::new(Key::GLOBAL, KeyKind::SUBVOLUME, subvolume.0.into())
    }

    /// Key of a version.
    #[must_use]
    pub fn version(version: VersionId) -> Key {
        Key::new(Key::GLOBAL, KeyKind::VERSION, version.0.into())
    }

    /// Key of what a version changed of an older inode.
    #[must_use]
    pub fn changes(version: VersionId, ino: Ino) -> Key {
        let owner = Ino(version.0.into()).of(SubvolumeId::NONE);
        Key::new(owner, KeyKind::CHANGES, ino.0)
    }

    /// As stored: ino, kind, item, version.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Key::LEN] {
        let mut out = [0u8; Key::LEN];
        out[..8].copy_from_slice(&self.ino.0.to_le_bytes());
        out[8] = self.kind.0;
        out[9..17].copy_from_slice(&self.item.to_le_bytes());
        out[17..].copy_from_slice(&self.version.0.to_le_bytes());
        out
    }

    /// Reads a key off 21 bytes.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Key::LEN]) -> Key {
        let [
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            kind,
            i,
            j,
            k,
            l,
            m,
            n,
            o,
            p,
            q,
            r,
            s,
            t,
        ] = *bytes;
        Key {
            ino: Ino(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            kind: KeyKind(kind),
            item: u64::from_le_bytes([i, j, k, l, m, n, o, p]),
            version: VersionId(u32::from_le_bytes([q, r, s, t])),
        }
    }

    pub(crate) fn put(self, out: &mut Vec<u8>) {
        out.put_varint(self.ino.0);
        out.put_u8(self.kind.0);
        out.put_u64(self.item);
        out.put_varint(self.version.0.into());
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Key> {
        let ino = Ino(r.varint()?);
        let kind = KeyKind(r.u8()?);
        let item = r.u64()?;
        let version = r.varint_u32("version")?;
        Ok(Key {
            ino,
            kind,
            item,
            version: VersionId(version),
        })
    }
}
