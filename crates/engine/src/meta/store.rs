//! Pages to and from the device.

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use persimmon_format::envelope::{self, HEADER_LEN, Kind};
use persimmon_format::page::{self, PAGE_SIZE};
use persimmon_format::table::MatEntry;
use persimmon_format::{PageId, VolumeKey};

use super::Page;
use crate::error::{Error, Result};
use crate::invariant::invariant;
use crate::media::Media;

/// Seals a page as checkpoint `checkpoint` of this volume writes it: whole blocks, compressed where that saves one.
pub(crate) fn seal(page: &Page, key: &VolumeKey, checkpoint: u64) -> Buffer {
    let mut image = [0; PAGE_SIZE];
    page.write_image(checkpoint, &mut image);
    let payload = page::pack(&image);
    let mut buffer = BufferMut::zeroed(envelope::blocks_for(payload.len()));
    buffer[HEADER_LEN..HEADER_LEN + payload.len()].copy_from_slice(&payload);
    envelope::seal(
        &mut buffer,
        key,
        Kind::Page,
        page.id().0,
        checkpoint,
        payload.len(),
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
        invariant!(
            media.alarm,
            bytes.len() == usize::from(entry.blocks) * BLOCK_SIZE,
            "{} bytes were read of {} blocks",
            bytes.len(),
            entry.blocks
        );
        decode(&bytes, key, id, entry)
    })
}

fn decode(bytes: &[u8], key: &VolumeKey, id: PageId, entry: MatEntry) -> Result<Arc<Page>> {
    let damaged = |source| Error::damaged(entry.addr)(source);
    let (_, payload) = envelope::open(bytes, key, Kind::Page, Some(id.0)).map_err(damaged)?;
    let mut image = [0; PAGE_SIZE];
    page::unpack(payload, &mut image).map_err(damaged)?;
    Page::validate_as(&image, id)
        .map(Arc::new)
        .map_err(|e| Error::Inconsistent(format!("metadata page {id} at {}: {e}", entry.addr)))
}
