//! Extended attributes: an item under the name, and pieces of the value where that is long.
//!
//! An attribute lies where [`crate::name`] says. Its item has a value of up to [`XATTR_INLINE_MAX`] bytes. A longer one is cut into
//! pieces, each an item of the inode and of the same kind, at items from [`ITEM_END`] on, where no name is. The pieces of a
//! value follow each other from the first item of a *slot* on; the attribute's item says which slot, and how long the
//! value is. The slot need not tell the name: any will do that no other attribute of the inode has.

use std::ops::Range;

use crate::checksum::data_block as crc32c;
use crate::codec::{Put, Reader};
use crate::name::ITEM_END;
use crate::quota::SECTOR;
use crate::{FormatError, Ino, Key, KeyKind, Result};

/// Longest name of an extended attribute, bytes.
pub const XATTR_NAME_MAX: usize = 255;
/// Longest value of an extended attribute that its item has, bytes.
pub const XATTR_INLINE_MAX: usize = 3900;
/// Longest value of an extended attribute, bytes: what a system call passes at most (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_MAX: usize = 64 << 10;
/// Most bytes of the names of one inode's extended attributes, each with the zero byte that ends it in a list: what a
/// system call lists at most (`XATTR_LIST_MAX`).
pub const XATTR_NAMES_MAX: u32 = 64 << 10;

/// Bytes of a value in each of its pieces but the last. A page has four of them, which fill it.
pub const PIECE_LEN: usize = 4000;
/// Most pieces of a value.
pub const PIECES_MAX: usize = XATTR_VALUE_MAX.div_ceil(PIECE_LEN);
/// Items of a slot, from one to the next.
pub const SLOT_ITEMS: u64 = 32;
/// Slots are below this, so that an item is behind those of the last one.
pub const SLOT_END: u64 = (u64::MAX - ITEM_END) / SLOT_ITEMS;

const _: () = assert!(PIECES_MAX as u64 <= SLOT_ITEMS);
const _: () = assert!(PIECE_LEN < crate::page::VALUE_LEN_MAX);
const _: () = assert!(1 + XATTR_NAME_MAX + XATTR_INLINE_MAX <= crate::page::VALUE_LEN_MAX);

const WHAT: &str = "extended attribute";

/// An extended attribute. Bytes: name length 0, name, value. With a value in pieces: zero 0, name length 1, name, then
/// the slot (u64), the length of the value (u32) and its CRC-32C (u32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xattr<'a> {
    /// Full name, such as `user.comment`.
    pub name: &'a [u8],
    /// Value.
    pub value: XattrValue<'a>,
}

/// Where the value of an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrValue<'a> {
    /// In the item, at most [`XATTR_INLINE_MAX`] bytes.
    Inline(&'a [u8]),
    /// In items of its own.
    Pieces(Pieces),
}

impl XattrValue<'_> {
    /// Bytes of the value.
    #[expect(
        clippy::len_without_is_empty,
        reason = "an empty value is nothing special"
    )]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            XattrValue::Inline(value) => value.len(),
            XattrValue::Pieces(pieces) => pieces.value_len(),
        }
    }
}

/// What an attribute counts as in the sectors of its inode: name and value, rounded up.
#[must_use]
pub fn sectors(name: &[u8], value_len: usize) -> u64 {
    (name.len() as u64 + value_len as u64).div_ceil(SECTOR)
}

/// A value in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Which slot they are in.
    slot: u64,
    /// Bytes of the value, [`XATTR_INLINE_MAX`] + 1 to [`XATTR_VALUE_MAX`].
    len: u32,
    /// CRC-32C of the value: pieces of different times do not pass for one value.
    crc: u32,
}

impl<'a> Xattr<'a> {
    /// As stored. The name is at most [`XATTR_NAME_MAX`] bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self.value {
            XattrValue::Inline(value) => {
                let mut out = Vec::with_capacity(1 + self.name.len() + value.len());
                out.put_u8(self.name.len() as u8);
                out.put(self.name);
                out.put(value);
                out
            }
            XattrValue::Pieces(pieces) => {
                let mut out = Vec::with_capacity(2 + self.name.len() + 16);
                out.put_u8(0);
                out.put_u8(self.name.len() as u8);
                out.put(self.name);
                out.put_u64(pieces.slot);
                out.put_u32(pieces.len);
                out.put_u32(pieces.crc);
                out
            }
        }
    }

    /// What a name takes of [`XATTR_NAMES_MAX`].
    #[must_use]
    pub fn listed_len(name: &[u8]) -> u32 {
        name.len() as u32 + 1
    }

    /// What it counts as in the sectors of its inode, with the feature [`COUNTED_XATTRS`](crate::zone_header::COUNTED_XATTRS).
    #[must_use]
    pub fn sectors(&self) -> u64 {
        sectors(self.name, self.value.len())
    }

    /// As read.
    pub fn decode(bytes: &'a [u8]) -> Result<Xattr<'a>> {
        let mut r = Reader::new(bytes, WHAT);
        let first = r.u8()?;
        if first != 0 {
            let name = r.bytes(first.into())?;
            let value = XattrValue::Inline(r.rest());
            return Ok(Xattr { name, value });
        }
        let len = r.u8()?;
        if len == 0 {
            return Err(r.bad("name length", 0));
        }
        let name = r.bytes(len.into())?;
        let (slot, len, crc) = (r.u64()?, r.u32()?, r.u32()?);
        if slot >= SLOT_END {
            return Err(r.bad("slot", slot));
        }
        if !(XATTR_INLINE_MAX + 1..=XATTR_VALUE_MAX).contains(&(len as usize)) {
            return Err(r.bad("length of the value", len.into()));
        }
        r.end()?;
        let value = XattrValue::Pieces(Pieces { slot, len, crc });
        Ok(Xattr { name, value })
    }
}

impl Pieces {
    /// Of a value, which is longer than an attribute's item has, in a slot.
    pub fn new(slot: u64, value: &[u8]) -> Result<Pieces> {
        let len = value.len();
        let bad = |field, value| FormatError::Value {
            what: WHAT,
            field,
            value,
        };
        if slot >= SLOT_END {
            return Err(bad("slot", slot));
        }
        if !(XATTR_INLINE_MAX + 1..=XATTR_VALUE_MAX).contains(&len) {
            return Err(bad("length of the value", len as u64));
        }
        let (len, crc) = (len as u32, crc32c(value));
        Ok(Pieces { slot, len, crc })
    }

    /// Which slot they are in.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// Bytes of the value.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.len as usize
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.value_len().div_ceil(PIECE_LEN)
    }
}

/// A value cut into the items of its pieces, in their order.
pub fn cut(value: &[u8]) -> impl ExactSizeIterator<Item = Vec<u8>> {
    value.chunks(PIECE_LEN).enumerate().map(|(number, bytes)| {
        let number = number as u8;
        Piece { number, bytes }.encode()
    })
}

/// Keys of a slot of an inode.
#[must_use]
pub fn slot_keys(ino: Ino, slot: u64) -> Range<Key> {
    let first = |slot: u64| piece_key(ino, slot, 0);
    first(slot)..first(slot.saturating_add(1))
}

/// Key of a piece. Slots are below [`SLOT_END`].
#[must_use]
pub fn piece_key(ino: Ino, slot: u64, number: u8) -> Key {
    let item = slot.saturating_mul(SLOT_ITEMS);
    let item = item.saturating_add(number.into()).saturating_add(ITEM_END);
    Key::new(ino, KeyKind::XATTR, item)
}

/// Whether the item of an attribute's kind is a piece of a value, and which slot it is in.
#[must_use]
pub fn slot_of(key: &Key) -> Option<u64> {
    let behind_names = key.item.checked_sub(ITEM_END);
    behind_names
        .filter(|_| key.kind == KeyKind::XATTR)
        .map(|item| item / SLOT_ITEMS)
}

/// A piece of a value. Bytes: number 0, bytes from 1. So no piece is the one byte that says that nothing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Which one, counted from 0: as its key says.
    pub number: u8,
    /// What it has of the value, 1 to [`PIECE_LEN`] bytes.
    pub bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.bytes.len());
        out.put_u8(self.number);
        out.put(self.bytes);
        out
    }

    /// As read at a key.
    pub fn decode(key: &Key, bytes: &'a [u8]) -> Result<Piece<'a>> {
        let mut r = Reader::new(bytes, "piece of an extended attribute");
        let number = r.u8()?;
        let expected = (key.item % SLOT_ITEMS) as u8;
        if slot_of(key).is_none() || number != expected || number as usize >= PIECES_MAX {
            return Err(r.bad("number", number.into()));
        }
        if r.is_empty() || r.remaining() > PIECE_LEN {
            return Err(r.bad("length", r.remaining() as u64));
        }
        let bytes = r.rest();
        Ok(Piece { number, bytes })
    }
}

/// A value that is put together from its pieces, which come in the order of their keys.
#[derive(Debug)]
pub struct Joined {
    pieces: Pieces,
    value: Vec<u8>,
}

impl Joined {
    /// Nothing of it yet.
    #[must_use]
    pub fn new(pieces: Pieces) -> Joined {
        let value = Vec::with_capacity(pieces.value_len());
        Joined { pieces, value }
    }

    /// The next item of the slot.
    pub fn item(&mut self, key: &Key, bytes: &[u8]) -> Result<()> {
        let piece = Piece::decode(key, bytes)?;
        let at = usize::from(piece.number) * PIECE_LEN;
        let end = at.saturating_add(piece.bytes.len());
        let due = self.pieces.value_len().min(at.saturating_add(PIECE_LEN));
        if at != self.value.len() || end != due {
            return Err(FormatError::Mismatch {
                what: WHAT,
                field: "end of a piece",
                found: end as u64,
                expected: due as u64,
            });
        }
        self.value.extend_from_slice(piece.bytes);
        Ok(())
    }

    /// The value, if it is whole.
    pub fn finish(self) -> Result<Vec<u8>> {
        let (found, expected) = (self.value.len(), self.pieces.value_len());
        if found != expected {
            return Err(FormatError::Mismatch {
                what: WHAT,
                field: "length of the pieces",
                found: found as u64,
                expected: expected as u64,
            });
        }
        if crc32c(&self.value) != self.pieces.crc {
            return Err(FormatError::Checksum { what: WHAT });
        }
        Ok(self.value)
    }
}
