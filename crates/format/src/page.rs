//! Metadata pages as they lie on the device: the 16 KiB image of a tree node, compressed, in an
//! envelope whose owner is the page id and whose sequence is the checkpoint that wrote it.
//!
//! Payload: compression 0 (0 none, 1 LZ4 block), reserved 1..4, compressed length 4..8, bytes.

use crate::codec::{Put, Reader};
use crate::{FormatError, Result};

/// Bytes of a logical page.
pub const PAGE_SIZE: usize = 16384;
/// Longest value in a page, bytes. At least three items fit a page.
pub const VALUE_LEN_MAX: usize = 4200;
/// Bytes before the compressed image.
pub const PREFIX_LEN: usize = 8;
/// Most blocks a page can take on the device (stored uncompressed).
pub const PAGE_BLOCKS_MAX: usize = 5;

/// How a page's image is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    None,
    /// An LZ4 block.
    Lz4,
}

/// The prefix of a payload with `len` bytes of image.
#[must_use]
pub fn prefix(compression: Compression, len: usize) -> [u8; PREFIX_LEN] {
    let mut out = Vec::with_capacity(PREFIX_LEN);
    out.put_u8(match compression {
        Compression::None => 0,
        Compression::Lz4 => 1,
    });
    out.put(&[0; 3]);
    out.put_u32(len as u32);
    let mut array = [0; PREFIX_LEN];
    array.copy_from_slice(&out);
    array
}

/// Splits a payload into compression and image bytes.
pub fn split(payload: &[u8]) -> Result<(Compression, &[u8])> {
    let mut r = Reader::new(payload, "metadata page");
    let compression = match r.u8()? {
        0 => Compression::None,
        1 => Compression::Lz4,
        other => return Err(r.bad("compression", other.into())),
    };
    r.bytes(3)?;
    let len = r.u32()?;
    let image = r.bytes(len as usize)?;
    if compression == Compression::None && image.len() != PAGE_SIZE {
        return Err(FormatError::Truncated {
            what: "metadata page",
        });
    }
    Ok((compression, image))
}
