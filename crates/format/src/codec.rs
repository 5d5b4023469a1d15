//! Cursors over bytes: every read is checked, nothing panics.

use crate::{BLOCK_SIZE, FormatError, Result, checksum};

/// Reads fields off the front of a slice.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Of a block that begins with a magic number and a version and ends with the checksum of all before it,
    /// behind the version.
    pub(crate) fn of_sealed_block(
        block: &'a [u8],
        magic: [u8; 8],
        version_max: u32,
        what: &'static str,
    ) -> Result<Self> {
        Ok(Reader::of_versions(block, magic, version_max, what)?.0)
    }

    /// The same, and which version it is.
    pub(crate) fn of_versions(
        block: &'a [u8],
        magic: [u8; 8],
        version_max: u32,
        what: &'static str,
    ) -> Result<(Self, u32)> {
        let mut r = Reader::new(block, what);
        if r.array::<8>()? != magic {
            return Err(FormatError::Magic { what });
        }
        let (body, sum) = block
            .split_at_checked(BLOCK_SIZE - 8)
            .ok_or(FormatError::Truncated { what })?;
        if Reader::new(sum, what).u64()? != checksum::plain(body) {
            return Err(FormatError::Checksum { what });
        }
        let version = r.u32()?;
        if version > version_max {
            return Err(FormatError::NewerVersion {
                found: version,
                supported: version_max,
            });
        }
        Ok((r, version))
    }

    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Reader { rest: bytes, what }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (head, tail) = self
            .rest
            .split_at_checked(len)
            .ok_or(FormatError::Truncated { what: self.what })?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self
            .rest
            .split_first_chunk()
            .ok_or(FormatError::Truncated { what: self.what })?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// So many of them, in memory of just their size.
    pub(crate) fn u32s(&mut self, count: usize) -> Result<Vec<u32>> {
        let (each, _) = self.bytes(count.saturating_mul(4))?.as_chunks();
        Ok(each
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes))
            .collect())
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// LEB128, at most ten bytes.
    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.bad("varint", u64::MAX))
    }

    /// A varint that fits 32 bits.
    pub(crate) fn varint_u32(&mut self, field: &'static str) -> Result<u32> {
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| self.bad(field, value))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn bad(&self, field: &'static str, value: u64) -> FormatError {
        FormatError::Value {
            what: self.what,
            field,
            value,
        }
    }

    /// An error unless everything was read.
    pub(crate) fn end(self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(self.bad("trailing bytes", self.rest.len() as u64))
        }
    }
}

/// Appends fields to a vector.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
    fn put_i64(&mut self, value: i64) {
        self.put(&value.to_le_bytes());
    }
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.put_u8(value as u8);
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
