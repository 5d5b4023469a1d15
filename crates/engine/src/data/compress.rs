//! Compression of what is written back. A file's blocks are compressed in frames that begin at multiples of their length in the file, so
//! that who writes it again from one end to the other leaves no parts of frames. It happens before anything is placed, under no lock.

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::inode::{FLAG_PREALLOCATED, Inode};
use persimmon_format::{Compression, Ino};

use super::FileData;
use crate::placement::{Compressed, packed_runs};
use crate::zones::{Life, Lives, Run};

/// Blocks that somebody waits for are compressed from so many on: with fewer, hardly a block is saved.
const SYNCED_BLOCKS_MIN: u64 = 4;
/// Frames of so many blocks are probed first: two of their blocks are compressed alone.
const PROBED_BLOCKS_MIN: usize = 4;
/// What a probed block may take, of each 16 bytes.
const PROBED_BYTES_OF_16: usize = 15;

/// Blocks of one stream, sorted out by how they are stored.
#[derive(Default)]
pub(super) struct StreamRuns {
    whole: Vec<Run>,
    frames: Vec<Compressed>,
    lives: Lives,
}

impl StreamRuns {
    /// Adds blocks as they are.
    pub(super) fn add_whole(&mut self, run: Run) {
        self.whole.push(run);
    }

    /// Adds blocks of a file from `first` on: compressed where that is worth it.
    pub(super) fn add_compressed(
        &mut self,
        ino: Ino,
        first: u64,
        data: &Buffer,
        (compression, frame_blocks_max): (Compression, usize),
        life: Life,
    ) {
        let blocks = data.blocks() as usize;
        // Those before `at` that are not added yet are stored as they are.
        let (mut whole_from, mut at) = (0, 0);
        while at < blocks {
            let start = first + at as u64;
            let to_boundary = frame_blocks_max - start as usize % frame_blocks_max;
            let end = blocks.min(at + to_boundary);
            let content = data.get(at * BLOCK_SIZE..end * BLOCK_SIZE);
            let content = content.filter(|content| looks_compressible(content));
            let frame =
                content.and_then(|content| Compressed::of(ino, start, content, compression));
            if let Some(frame) = frame {
                self.add_range(ino, first, data, (whole_from, at), life);
                whole_from = end;
                self.lives.add(life, (end - at) as u64);
                self.frames.push(frame);
            }
            at = end;
        }
        self.add_range(ino, first, data, (whole_from, blocks), life);
    }

    fn add_range(
        &mut self,
        ino: Ino,
        first: u64,
        data: &Buffer,
        (from, to): (usize, usize),
        life: Life,
    ) {
        if from < to {
            let run = Run::of(ino, first + from as u64, data.slice(from..to), life);
            self.add_whole(run);
        }
    }

    /// As runs that can be placed.
    pub(super) fn into_runs(self, run_blocks_max: usize) -> Vec<Run> {
        let mut runs = self.whole;
        if let Some(life) = self.lives.mean() {
            let frames: Vec<&Compressed> = self.frames.iter().collect();
            runs.extend(packed_runs(&frames, life, run_blocks_max));
        }
        runs
    }
}

impl FileData {
    /// How so many blocks of a file are compressed, if they are.
    pub(super) fn compression_for(
        &self,
        inode: &Inode,
        blocks: u64,
        is_waited_for: bool,
    ) -> Option<Compression> {
        let told = inode
            .compression()
            .unwrap_or(self.store.options.compression);
        let may = told != Compression::None
            && self.store.has_frames()
            && inode.flags & FLAG_PREALLOCATED == 0
            && (!is_waited_for || blocks >= SYNCED_BLOCKS_MIN);
        may.then_some(told)
    }
}

/// Whether one of two blocks out of the middle of a frame compresses: most content that does not is like that everywhere.
fn looks_compressible(content: &[u8]) -> bool {
    let (blocks, _) = content.as_chunks::<BLOCK_SIZE>();
    if blocks.len() < PROBED_BLOCKS_MIN {
        return true;
    }
    let probed = [blocks.len() / 3, blocks.len() * 2 / 3];
    let bytes_max = BLOCK_SIZE / 16 * PROBED_BYTES_OF_16;
    let mut probed = probed.iter().filter_map(|at| blocks.get(*at));
    probed.any(|block| Compression::Lz4.compress(block, bytes_max).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use persimmon_device::BufferMut;

    fn noise(seed: u64) -> [u8; BLOCK_SIZE] {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        std::array::from_fn(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
    }

    /// Text in the first `text` blocks, and noise in those behind it.
    fn content(text: usize, blocks: usize) -> Buffer {
        let mut data = BufferMut::zeroed(blocks);
        for (at, block) in data.chunks_exact_mut(BLOCK_SIZE).enumerate() {
            if at < text {
                let line = format!("line {at}, and what follows is much the same. ");
                let bytes = line.bytes().cycle();
                block.iter_mut().zip(bytes).for_each(|(out, b)| *out = b);
            } else {
                block.copy_from_slice(&noise(at as u64));
            }
        }
        data.freeze()
    }

    fn sorted(first: u64, data: &Buffer) -> StreamRuns {
        let mut sorted = StreamRuns::default();
        let how = (Compression::Lz4, 32);
        sorted.add_compressed(Ino(20), first, data, how, Life::default());
        sorted
    }

    #[test]
    fn frames_end_at_multiples_of_their_length() {
        let sorted = sorted(5, &content(100, 100));
        assert!(sorted.whole.is_empty());
        let frames: Vec<_> = sorted
            .frames
            .iter()
            .map(|frame| (frame.block, frame.frame.blocks))
            .collect();
        assert_eq!(frames, [(5, 27), (32, 32), (64, 32), (96, 9)]);
        let all: u64 = sorted.into_runs(256).iter().map(Run::file_blocks).sum();
        assert_eq!(all, 100);
    }

    #[test]
    fn what_does_not_compress_stays_in_long_runs() {
        let sorted = sorted(0, &content(32, 160));
        assert_eq!(sorted.frames.len(), 1);
        let whole: Vec<_> = sorted
            .whole
            .iter()
            .map(|run| (run.file_block, run.data.blocks()))
            .collect();
        assert_eq!(whole, [(32, 128)]);
    }
}
