//! Compression of data that is written back. Frames begin at multiples of their length in the file, so that rewriting a file from
//! start to end leaves no partial frames. Compression happens before blocks are placed, under no lock.

use std::collections::BTreeMap;

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::inode::{FLAG_PREALLOCATED, Inode};
use persimmon_format::{Compression, Ino};
use persimmon_sync::Mutex;

use super::FileData;
use crate::options::Parallel;
use crate::placement::{Compressed, packed_runs};
use crate::zones::{Life, Lives, Run, Stream};

/// In a synced batch, fewer blocks of a file are compressed only where that saves a whole one: nothing else fills the rest of a
/// block.
pub(super) const SYNCED_BLOCKS_MIN: u64 = 4;
/// Frames of at least so many blocks are probed first: two of their blocks are compressed alone.
const PROBED_BLOCKS_MIN: usize = 4;
/// What a probed block may take, of each 16 bytes.
const PROBED_BYTES_OF_16: usize = 15;

/// Blocks of a file that follow each other, and how they are to be compressed.
pub(super) struct Compressible {
    pub(super) ino: Ino,
    /// The first of them in the file.
    pub(super) first: u64,
    pub(super) data: Buffer,
    pub(super) compression: Compression,
    /// Compression of a frame of one block.
    pub(super) single_compression: Compression,
    /// A frame that takes as many blocks as before is stored as it is.
    pub(super) must_save_block: bool,
    pub(super) life: Life,
}

impl Compressible {
    /// Ranges of blocks that are compressed together: they end at multiples of `frame_blocks_max` in the file.
    fn frames(&self, frame_blocks_max: usize) -> impl Iterator<Item = (usize, usize)> {
        let (first, blocks) = (self.first, self.data.blocks() as usize);
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at;
            let within = ((first + start as u64) % frame_blocks_max as u64) as usize;
            at = blocks.min(start + frame_blocks_max - within);
            (start < at).then_some((start, at))
        })
    }

    fn compress(&self, (from, to): (usize, usize)) -> Option<Compressed> {
        let content = self.data.get(from * BLOCK_SIZE..to * BLOCK_SIZE)?;
        let compression = match to - from {
            1 => self.single_compression,
            _ => self.compression,
        };
        if !looks_compressible(content, compression) {
            return None;
        }
        let bytes_max = if self.must_save_block {
            content.len().checked_sub(BLOCK_SIZE)?
        } else {
            content.len()
        };
        if bytes_max == 0 {
            return None;
        }
        let block = self.first + from as u64;
        Compressed::of(self.ino, block, content, compression)
            .filter(|frame| frame.bytes.len() <= bytes_max)
    }

    /// Blocks as they are, if there are any between these.
    fn run(&self, (from, to): (usize, usize)) -> Option<Run> {
        (from < to).then(|| {
            let data = self.data.slice(from..to);
            Run::of(self.ino, self.first + from as u64, data, self.life)
        })
    }
}

/// Blocks of one stream.
#[derive(Default)]
pub(super) struct StreamBlocks {
    /// Those that are stored as they are.
    pub(super) whole: Vec<Run>,
    pub(super) compressible: Vec<Compressible>,
}

/// Blocks of a batch, by their streams.
pub(super) type Streams = BTreeMap<Stream, StreamBlocks>;

/// Compresses what is worth it, and makes runs of everything.
pub(super) fn into_runs(
    streams: Streams,
    parallel: &dyn Parallel,
    (frame_blocks_max, run_blocks_max): (usize, usize),
) -> BTreeMap<Stream, Vec<Run>> {
    let all = streams.values().flat_map(|stream| &stream.compressible);
    let jobs: Vec<(&Compressible, (usize, usize))> = all
        .flat_map(|blocks| blocks.frames(frame_blocks_max).map(move |at| (blocks, at)))
        .collect();
    let done: Vec<Mutex<Option<Compressed>>> = jobs.iter().map(|_| Mutex::default()).collect();
    parallel.run(jobs.len(), &|job| {
        if let (Some((blocks, at)), Some(done)) = (jobs.get(job), done.get(job)) {
            *done.lock() = blocks.compress(*at);
        }
    });
    let mut done = done.into_iter().map(Mutex::into_inner);
    let mut runs_of = |stream: StreamBlocks| {
        let (mut runs, mut frames) = (stream.whole, Vec::new());
        let mut lives = Lives::default();
        for blocks in &stream.compressible {
            // What does not compress stays in runs as long as they were.
            let mut whole_from = 0;
            for (from, to) in blocks.frames(frame_blocks_max) {
                if let Some(frame) = done.next().flatten() {
                    runs.extend(blocks.run((whole_from, from)));
                    whole_from = to;
                    lives.add(blocks.life, (to - from) as u64);
                    frames.push(frame);
                }
            }
            runs.extend(blocks.run((whole_from, blocks.data.blocks() as usize)));
        }
        if let Some(life) = lives.mean() {
            runs.extend(packed_runs(&frames, life, run_blocks_max));
        }
        runs
    };
    streams
        .into_iter()
        .map(|(stream, blocks)| (stream, runs_of(blocks)))
        .collect()
}

impl FileData {
    /// The compression of a file; `None` if its blocks are stored as they are.
    pub(super) fn compression_for(&self, inode: &Inode) -> Option<Compression> {
        let told = inode
            .compression()
            .unwrap_or(self.store.options.compression);
        let may = told != Compression::None
            && self.store.has_frames()
            && inode.flags & FLAG_PREALLOCATED == 0;
        may.then_some(told)
    }

    /// The compression of blocks alone in a file with this one. As LZ4 has them they cannot be shared.
    pub(super) fn single_compression(&self, of_file: Compression) -> Compression {
        match of_file {
            Compression::Lz4 if self.dedup.is_some() => Compression::Zstd(1),
            other => other,
        }
    }
}

/// Whether one of two blocks out of the middle of a frame compresses: most content that does not is like that everywhere.
fn looks_compressible(content: &[u8], compression: Compression) -> bool {
    let quickest = match compression {
        Compression::Zstd(_) => Compression::Zstd(1),
        other => other,
    };
    let (blocks, _) = content.as_chunks::<BLOCK_SIZE>();
    if blocks.len() < PROBED_BLOCKS_MIN {
        return true;
    }
    let probed = [blocks.len() / 3, blocks.len() * 2 / 3];
    let bytes_max = BLOCK_SIZE / 16 * PROBED_BYTES_OF_16;
    let mut probed = probed.iter().filter_map(|at| blocks.get(*at));
    probed.any(|block| quickest.compress(block, bytes_max).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Serial;
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

    /// The runs of blocks of one file, in frames of up to 32.
    fn runs(first: u64, data: Buffer, must_save_block: bool) -> Vec<Run> {
        let blocks = Compressible {
            ino: Ino(20),
            first,
            data,
            compression: Compression::Lz4,
            single_compression: Compression::Lz4,
            must_save_block,
            life: Life::default(),
        };
        let stream = StreamBlocks {
            whole: Vec::new(),
            compressible: vec![blocks],
        };
        let streams = Streams::from([(Stream::Metadata, stream)]);
        let runs = into_runs(streams, &Serial, (32, 256));
        runs.into_values().flatten().collect()
    }

    #[test]
    fn frames_end_at_multiples_of_their_length() {
        let runs = runs(5, content(100, 100), false);
        let frames: Vec<_> = runs
            .iter()
            .flat_map(|run| &run.packed)
            .map(|frame| (frame.file_block, frame.frame.blocks))
            .collect();
        assert_eq!(frames, [(5, 27), (32, 32), (64, 32), (96, 9)]);
        assert_eq!(runs.iter().map(Run::file_blocks).sum::<u64>(), 100);
    }

    #[test]
    fn what_does_not_compress_stays_in_long_runs() {
        let runs = runs(0, content(32, 160), false);
        let runs: Vec<_> = runs
            .iter()
            .map(|run| (run.file_block, run.file_blocks(), run.packed.len()))
            .collect();
        assert_eq!(runs, [(32, 128, 0), (0, 32, 1)]);
    }

    #[test]
    fn what_is_synced_alone_is_compressed_only_if_that_saves_a_block() {
        let frames = |text, blocks| -> usize {
            let runs = runs(7, content(text, blocks), true);
            runs.iter().map(|run| run.packed.len()).sum()
        };
        assert_eq!(frames(2, 2), 1, "two blocks of text take one");
        assert_eq!(frames(1, 1), 0, "one block of text takes one");
        assert_eq!(frames(1, 3), 0, "one of three saves next to a block");
        assert_eq!(frames(2, 3), 1);
    }
}
