//! What is not as it should be where it was read, had from elsewhere: the other zones of a stripe set, or the partner of a zone.

use persimmon_device::{BLOCK_SIZE, Buffer, BufferMut};
use persimmon_format::packed::Packed;
use persimmon_format::{Addr, checksum};

use crate::media::Media;

impl Media {
    /// Blocks as their checksums have them, each from wherever it is so; where one is so nowhere, as it was read.
    pub(crate) fn mended_blocks(&self, addr: Addr, read: &[u8], crcs: &[u32]) -> Buffer {
        let mut whole = BufferMut::with_capacity(crcs.len());
        whole.extend(read);
        let blocks = whole.chunks_exact_mut(BLOCK_SIZE).zip(crcs);
        for ((block, crc), at) in blocks.zip(0..) {
            let is_good = |block: &[u8]| checksum::data_block(block) == *crc;
            if !is_good(block) {
                let mut others = self.others(addr.offset(at), 1).flatten();
                if let Some(other) = others.find(|other| is_good(other)) {
                    block.copy_from_slice(&other);
                }
            }
        }
        whole.freeze()
    }

    /// The blocks of a packed extent, of which it is known that they do not match where they were read.
    pub(crate) fn mended_packed(&self, packed: &Packed) -> Option<Buffer> {
        let mut others = self.others(packed.addr, packed.span()).flatten();
        others.find(|blocks| packed.verified(blocks).is_some())
    }
}
