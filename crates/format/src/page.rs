//! Metadata pages as they lie on the device: the 16 KiB image of a tree node, compressed, in an
//! envelope whose owner is the page id and whose sequence is the checkpoint that wrote it.
//!
//! Payload: how it is stored 0 (0 as it is, 2 LZ4 block of its [`columns`]), reserved
//! 1..4, compressed length 4..8, bytes.
//!
//! Image: level 0 (0 is a leaf), flags 1 (zero), items 2..4, heap start 4..6, dead bytes 6..8
//! (zero), page id 8..16, sequence 16..24, zeros to 32; then a slot for each item, in the order of
//! the keys: key (21 bytes), place of the value in the image (u16), its length (u16). Values stand
//! in the order of the slots from the end of the page downwards without a gap, the first one last;
//! between the slots and the values all is zero. In an inner page a value is a child's page id.

mod columns;

use crate::codec::{Put, Reader};
use crate::{FormatError, Key, PageId, Result};

/// Bytes of a logical page.
pub const PAGE_SIZE: usize = 16384;
/// Longest value in a page, bytes. At least three items fit a page.
pub const VALUE_LEN_MAX: usize = 4200;
/// Bytes before the compressed image.
pub const PREFIX_LEN: usize = 8;
/// Most blocks a page can take on the device (stored uncompressed).
pub const PAGE_BLOCKS_MAX: usize = 5;

/// Bytes of an image before the slots.
pub const HEADER_LEN: usize = 32;
/// Bytes of a slot.
pub const SLOT_LEN: usize = Key::LEN + 4;
/// Bytes of an inner page's value: the id of a child.
pub const CHILD_LEN: usize = 8;
/// Highest level of a page. A tree this high has more pages than a volume has blocks.
pub const LEVEL_MAX: u8 = 12;
/// Where the image holds the checkpoint that wrote it (u64).
pub const SEQUENCE_OFFSET: usize = 16;
const WHAT: &str = "metadata page";

const _: () = assert!(3 * (SLOT_LEN + VALUE_LEN_MAX) <= PAGE_SIZE - HEADER_LEN);
const _: () = assert!(PAGE_SIZE <= u16::MAX as usize);
const _: () = assert!(
    (crate::envelope::HEADER_LEN + PREFIX_LEN + PAGE_SIZE).div_ceil(crate::BLOCK_SIZE)
        == PAGE_BLOCKS_MAX
);

/// How a page's image is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// As it is.
    None,
    /// An LZ4 block of its columns.
    Columns,
}

/// The payload of an image: its columns compressed, where that makes it shorter. An image that is no page has none, and
/// is stored all the same.
#[must_use]
pub fn pack(image: &[u8; PAGE_SIZE]) -> Vec<u8> {
    let columns = columns::from_image(image).map(|columns| lz4_flex::block::compress(&columns));
    let (compression, bytes) = match &columns {
        Some(compressed) if compressed.len() < PAGE_SIZE => (Compression::Columns, &compressed[..]),
        _ => (Compression::None, &image[..]),
    };
    let mut out = Vec::with_capacity(PREFIX_LEN + bytes.len());
    put_prefix(&mut out, compression, bytes.len());
    out.put(bytes);
    out
}

/// Takes the image out of a payload. Whether it is a page's is not checked.
pub fn unpack(payload: &[u8], image: &mut [u8; PAGE_SIZE]) -> Result<()> {
    let (compression, bytes) = split(payload)?;
    match compression {
        Compression::None => image.copy_from_slice(bytes),
        Compression::Columns => {
            let mut columns = [0; columns::LEN_MAX];
            let len = lz4_flex::block::decompress_into(bytes, &mut columns)
                .map_err(|_| FormatError::Truncated { what: WHAT })?;
            columns::to_image(columns.get(..len).unwrap_or(&[]), image)?;
        }
    }
    Ok(())
}

/// Puts what comes before `len` bytes stored.
fn put_prefix(out: &mut Vec<u8>, compression: Compression, len: usize) {
    out.put_u8(match compression {
        Compression::None => 0,
        Compression::Columns => 2,
    });
    out.put(&[0; 3]);
    out.put_u32(len as u32);
}

/// Splits a payload into how the image is stored, and the bytes it is stored as.
pub fn split(payload: &[u8]) -> Result<(Compression, &[u8])> {
    let mut r = Reader::new(payload, WHAT);
    let compression = match r.u8()? {
        0 => Compression::None,
        2 => Compression::Columns,
        other => return Err(r.bad("compression", other.into())),
    };
    r.bytes(3)?;
    let len = r.u32()?;
    let image = r.bytes(len as usize)?;
    if compression == Compression::None && image.len() != PAGE_SIZE {
        return Err(FormatError::Truncated { what: WHAT });
    }
    Ok((compression, image))
}

/// A page's image, checked and read only: what a reader needs that keeps no page cache.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'a> {
    level: u8,
    id: PageId,
    sequence: u64,
    slots: &'a [[u8; SLOT_LEN]],
    image: &'a [u8; PAGE_SIZE],
}

impl<'a> PageView<'a> {
    /// Checks an image wholly: size, reserved bytes, order of the keys, places of the values.
    pub fn new(image: &'a [u8]) -> Result<PageView<'a>> {
        let image: &[u8; PAGE_SIZE] = image
            .try_into()
            .map_err(|_| FormatError::Truncated { what: WHAT })?;
        let mut r = Reader::new(image, WHAT);
        let level = r.u8()?;
        let flags = r.u8()?;
        let count = usize::from(r.u16()?);
        let heap_start = usize::from(r.u16()?);
        let dead = r.u16()?;
        let id = PageId(r.u64()?);
        let sequence = r.u64()?;
        let reserved = r.u64()?;
        if level > LEVEL_MAX {
            return Err(r.bad("level", level.into()));
        }
        if flags != 0 || dead != 0 || reserved != 0 {
            return Err(r.bad(
                "reserved field",
                u64::from(flags) | u64::from(dead) | reserved,
            ));
        }
        let slots = r.bytes(count * SLOT_LEN)?;
        if count == 0 && level > 0 {
            return Err(r.bad("count", 0));
        }
        let slots_end = HEADER_LEN + slots.len();
        let (slots, _) = slots.as_chunks();
        let mut heap = PAGE_SIZE;
        let mut previous: Option<Key> = None;
        for (index, slot) in slots.iter().enumerate() {
            let (key, offset, len) = read_slot(slot);
            if previous.is_some_and(|previous| previous >= key) {
                return Err(r.bad("order of slot", index as u64));
            }
            previous = Some(key);
            let value_end = heap;
            heap = heap.wrapping_sub(len);
            if len > VALUE_LEN_MAX
                || (level > 0 && len != CHILD_LEN)
                || heap > value_end
                || offset != heap
                || heap < slots_end
            {
                return Err(r.bad("value of slot", index as u64));
            }
        }
        let gap = image.get(slots_end..heap).unwrap_or(&[]);
        if heap_start != heap || gap.iter().any(|byte| *byte != 0) {
            return Err(r.bad("heap start", heap_start as u64));
        }
        Ok(PageView {
            level,
            id,
            sequence,
            slots,
            image,
        })
    }

    /// Height above the leaves.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// The page's own id.
    #[must_use]
    pub fn id(&self) -> PageId {
        self.id
    }

    /// The checkpoint that wrote it.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Items in it.
    #[must_use]
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// Keys and values, in order.
    pub fn items(&self) -> impl DoubleEndedIterator<Item = (Key, &'a [u8])> + use<'a> {
        let image = self.image;
        self.slots.iter().map(move |slot| {
            let (key, offset, len) = read_slot(slot);
            (key, image.get(offset..offset + len).unwrap_or(&[]))
        })
    }

    /// Lower bounds and ids of an inner page's children, in order; nothing in a leaf.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = (Key, PageId)> + use<'a> {
        let inner = self.level > 0;
        self.items()
            .filter(move |_| inner)
            .filter_map(|(key, value)| {
                let id = u64::from_le_bytes(value.try_into().ok()?);
                Some((key, PageId(id)))
            })
    }
}

fn read_slot(slot: &[u8; SLOT_LEN]) -> (Key, usize, usize) {
    let (key, rest) = slot.split_first_chunk().unwrap_or((&[0; Key::LEN], &[]));
    let (offset, len) = match *rest {
        [a, b, c, d] => (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])),
        _ => (0, 0),
    };
    (Key::from_bytes(key), offset.into(), len.into())
}
