//! Fields, all little endian.

use crate::error::DecodeError;

type Result<T> = std::result::Result<T, DecodeError>;

/// Takes fields from bytes.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Reader<'a> {
        Reader { rest: bytes, what }
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let cut = self.rest.split_at_checked(len);
        let (head, tail) = cut.ok_or(DecodeError::Short(self.what))?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let cut = self.rest.split_first_chunk();
        let (head, tail) = cut.ok_or(DecodeError::Short(self.what))?;
        self.rest = tail;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad("flag")),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Bytes behind their length in one byte.
    pub(crate) fn short(&mut self) -> Result<&'a [u8]> {
        let len = self.u8()?;
        self.bytes(len.into())
    }

    /// Bytes behind their length in four bytes.
    pub(crate) fn long(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn bad(&self, field: &'static str) -> DecodeError {
        DecodeError::Value {
            what: self.what,
            field,
        }
    }

    pub(crate) fn end(self) -> Result<()> {
        match self.rest {
            [] => Ok(()),
            _ => Err(self.bad("trailing bytes")),
        }
    }
}

/// Appends fields.
pub(crate) trait Put {
    fn put(&mut self, bytes: &[u8]);
    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }
    fn put_flag(&mut self, value: bool) {
        self.put(&[value.into()]);
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
    /// Bytes, at most 255, behind their length.
    fn put_short(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(u8::MAX.into());
        self.put_u8(len as u8);
        self.put(bytes.get(..len).unwrap_or_default());
    }
    /// Bytes behind their length in four bytes.
    fn put_long(&mut self, bytes: &[u8]) {
        self.put_u32(bytes.len() as u32);
        self.put(bytes);
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}
