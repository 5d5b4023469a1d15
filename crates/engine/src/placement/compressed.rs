//! Compressed frames on their way into packed runs.

use persimmon_device::{BLOCK_SIZE, BufferMut};
use persimmon_format::packed::{CompressedFrame, PackUnits, Packed};
use persimmon_format::summary::PACKED_ENTRIES_MIN;
use persimmon_format::{Compression, Ino};

use crate::zones::{Life, PackedFrame, Run};

/// A frame of a file, compressed.
pub(crate) struct Compressed {
    pub(crate) ino: Ino,
    /// The first file block of it.
    pub(crate) block: u64,
    pub(crate) frame: CompressedFrame,
    pub(crate) bytes: Vec<u8>,
    /// What the file has of it now, where cleaning moves it.
    pub(crate) from: Option<Packed>,
}

/// Of each 8 bytes a frame takes at most so many: with more, decompressing costs more than is won.
const WORTH_BYTES_OF_8: usize = 7;

impl Compressed {
    /// These whole blocks compressed, if that is worth it.
    pub(crate) fn of(
        ino: Ino,
        block: u64,
        content: &[u8],
        compression: Compression,
    ) -> Option<Compressed> {
        let (codec, bytes) = compression.compress(content, content.len() / 8 * WORTH_BYTES_OF_8)?;
        let blocks = u8::try_from(content.len() / BLOCK_SIZE).ok()?;
        Some(Compressed {
            ino,
            block,
            frame: CompressedFrame::of(codec, blocks, &bytes),
            bytes,
            from: None,
        })
    }
}

/// Puts compressed frames one behind the other into runs of up to `run_blocks_max` blocks.
pub(crate) fn packed_runs<'a>(
    frames: impl IntoIterator<Item = &'a Compressed>,
    life: Life,
    run_blocks_max: usize,
) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut rest = frames.into_iter().peekable();
    while rest.peek().is_some() {
        let (mut packed, mut bytes) = (Vec::new(), Vec::new());
        while let Some(next) = rest.peek() {
            let end = bytes.len() + PackUnits::of_bytes(next.bytes.len()).bytes();
            let is_full = packed.len() == PACKED_ENTRIES_MIN || end > run_blocks_max * BLOCK_SIZE;
            if is_full && !packed.is_empty() {
                break;
            }
            packed.push(PackedFrame {
                ino: next.ino,
                file_block: next.block,
                at: bytes.len() as u32,
                frame: next.frame,
                from: next.from,
            });
            bytes.extend_from_slice(&next.bytes);
            bytes.resize(end, 0);
            rest.next();
        }
        let mut data = BufferMut::zeroed(bytes.len().div_ceil(BLOCK_SIZE));
        if let Some(out) = data.get_mut(..bytes.len()) {
            out.copy_from_slice(&bytes);
        }
        runs.push(Run {
            ino: Ino(0),
            file_block: 0,
            data: data.freeze(),
            crcs: Vec::new(),
            packed,
            life,
            from: None,
        });
    }
    runs
}
