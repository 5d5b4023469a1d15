//! Pages to and from the device.

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use persimmon_format::envelope::{self, HEADER_LEN, Kind};
use persimmon_format::page::{Compression, PAGE_SIZE, PREFIX_LEN, prefix, split};
use persimmon_format::table::MatEntry;
use persimmon_format::{FormatError, PageId, VolumeKey};

use super::Page;
use crate::error::{Error, Result};
use crate::media::Media;

/// Seals a page as checkpoint `checkpoint` writes it: whole blocks, compressed where that saves
/// one.
pub(crate) fn seal(page: &Page, key: &VolumeKey, checkpoint: u64) -> Buffer {
    let mut image = [0; PAGE_SIZE];
    page.write_image(checkpoint, &mut image);
    let packed = lz4_flex::block::compress(&image);
    let (compression, bytes) = if packed.len() < image.len() {
        (Compression::Lz4, packed.as_slice())
    } else {
        (Compression::None, image.as_slice())
    };
    let payload = PREFIX_LEN + bytes.len();
    let mut buffer = BufferMut::zeroed(envelope::blocks_for(payload));
    buffer[HEADER_LEN..HEADER_LEN + PREFIX_LEN].copy_from_slice(&prefix(compression, bytes.len()));
    buffer[HEADER_LEN + PREFIX_LEN..HEADER_LEN + payload].copy_from_slice(bytes);
    envelope::seal(
        &mut buffer,
        key,
        Kind::Page,
        page.id().0,
        checkpoint,
        payload,
    );
    buffer.freeze()
}

/// Reads and verifies a page.
pub(crate) fn fetch(
    media: &Media,
    key: &VolumeKey,
    id: PageId,
    entry: MatEntry,
) -> Result<Arc<Page>> {
    media.read_good(entry.addr, entry.blocks.into(), |bytes| {
        debug_assert_eq!(bytes.len(), usize::from(entry.blocks) * BLOCK_SIZE);
        decode(&bytes, key, id, entry)
    })
}

fn decode(bytes: &[u8], key: &VolumeKey, id: PageId, entry: MatEntry) -> Result<Arc<Page>> {
    let damaged = |source| Error::Damaged {
        addr: entry.addr,
        source,
    };
    let (_, payload) = envelope::open(bytes, key, Kind::Page, Some(id.0)).map_err(damaged)?;
    let (compression, packed) = split(payload).map_err(damaged)?;
    let mut image = [0; PAGE_SIZE];
    let what = "metadata page";
    match compression {
        Compression::None => image.copy_from_slice(packed),
        Compression::Lz4 => {
            let size = lz4_flex::block::decompress_into(packed, &mut image)
                .map_err(|_| damaged(FormatError::Truncated { what }))?;
            if size != PAGE_SIZE {
                return Err(damaged(FormatError::Truncated { what }));
            }
        }
    }
    Page::validate_as(&image, id)
        .map(Arc::new)
        .map_err(|e| Error::Inconsistent(format!("metadata page {id} at {}: {e}", entry.addr)))
}
