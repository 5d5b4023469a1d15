//! The record bytes of one journal block, and how they are stored: as they are, or as one LZ4 block that holds several times as many
//! ([`crate::zone_header::COMPRESSED_LOG`]).

use std::borrow::Cow;
use std::ops::Deref;

use super::BODY_LEN;
use crate::{FormatError, Result};

/// Record bytes that one journal block can hold, compressed.
pub const RECORDS_LEN_MAX: usize = 4 * BODY_LEN;
const _: () = assert!(RECORDS_LEN_MAX <= u16::MAX as usize);

/// Record bytes of a journal block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Records<'a> {
    bytes: Cow<'a, [u8]>,
    /// What the block has in their place.
    compressed: Option<Cow<'a, [u8]>>,
}

impl<'a> Records<'a> {
    /// Stored as they are: at most [`BODY_LEN`] bytes.
    #[must_use]
    pub fn plain(bytes: &'a [u8]) -> Records<'a> {
        Records {
            bytes: Cow::Borrowed(bytes),
            compressed: None,
        }
    }

    /// Stored as one LZ4 block, which [`compress`] made of them.
    #[must_use]
    pub fn compressed(bytes: &'a [u8], lz4: &'a [u8]) -> Records<'a> {
        Records {
            bytes: Cow::Borrowed(bytes),
            compressed: Some(Cow::Borrowed(lz4)),
        }
    }

    /// From a block that has `stored`, and says that they are `len` bytes; 0 of those that are stored as they are.
    pub(super) fn read(stored: &'a [u8], len: u16, what: &'static str) -> Result<Records<'a>> {
        if len == 0 {
            return Ok(Records::plain(stored));
        }
        let wrong = |field, value| FormatError::Value { what, field, value };
        let len = usize::from(len);
        if len > RECORDS_LEN_MAX || len <= stored.len() {
            return Err(wrong("record bytes", len as u64));
        }
        let mut bytes = vec![0; len];
        match lz4_flex::block::decompress_into(stored, &mut bytes) {
            Ok(found) if found == len => Ok(Records {
                bytes: Cow::Owned(bytes),
                compressed: Some(Cow::Borrowed(stored)),
            }),
            Ok(found) => Err(wrong("decompressed record bytes", found as u64)),
            Err(_) => Err(wrong("compressed record bytes", stored.len() as u64)),
        }
    }

    /// What the block has of them, and the number that says how many they are.
    pub(super) fn stored(&self) -> (&[u8], u16) {
        match &self.compressed {
            None => (&self.bytes, 0),
            Some(lz4) => (lz4, self.bytes.len() as u16),
        }
    }

    /// Whether they are stored as one LZ4 block.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compressed.is_some()
    }

    /// Bytes that they take in the block.
    #[must_use]
    pub fn stored_len(&self) -> usize {
        self.stored().0.len()
    }
}

impl Deref for Records<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Record bytes, at most [`RECORDS_LEN_MAX`], as one LZ4 block, which may be longer than a journal block has room for.
#[must_use]
pub fn compress(bytes: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(bytes)
}
