//! Blocks made from a number. A device that keeps [`super::History::Patterns`] knows them when they
//! are written and keeps the number, so that volumes of many GiB fit in little memory.

use std::sync::OnceLock;

use persimmon_device::{BLOCK_SIZE, Buffer};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

const MAGIC: [u8; 8] = *b"\x93pattern";
/// Magic and number.
const HEAD_LEN: usize = 16;
const BODY_LEN: usize = BLOCK_SIZE - HEAD_LEN;
/// Random bytes that bodies are cut from.
const POOL_LEN: usize = 1 << 20;

/// Fills blocks: the first from `number`, the next from the number after it, and so on. Blocks of
/// different numbers differ, and none compresses.
pub fn fill(blocks: &mut [u8], number: u64) {
    for (i, block) in blocks.chunks_mut(BLOCK_SIZE).enumerate() {
        let number = number.wrapping_add(i as u64);
        let (head, body) = block.split_at_mut(HEAD_LEN.min(block.len()));
        let (magic, place) = head.split_at_mut(MAGIC.len().min(head.len()));
        magic.copy_from_slice(&MAGIC[..magic.len()]);
        place.copy_from_slice(&number.to_le_bytes()[..place.len()]);
        body.copy_from_slice(&self::body(number)[..body.len()]);
    }
}

/// The number that a block was made from, if it was.
pub(super) fn number_of(block: &[u8]) -> Option<u64> {
    let (head, rest) = block.split_at_checked(HEAD_LEN)?;
    let number = head.strip_prefix(&MAGIC)?;
    let number = u64::from_le_bytes(number.try_into().ok()?);
    (rest == body(number)).then_some(number)
}

/// What runs of blocks hold.
#[derive(Clone)]
pub(super) enum Content {
    Bytes(Buffer),
    /// The number of each block.
    Numbers(Vec<u64>),
    /// One number, and how many blocks it makes.
    Same(u64, u32),
}

impl Content {
    /// The runs of a buffer that are made of patterns, and those that are not.
    pub fn runs_of(data: &Buffer) -> Vec<Content> {
        let numbers: Vec<Option<u64>> = data.chunks_exact(BLOCK_SIZE).map(number_of).collect();
        let mut at = 0;
        numbers
            .chunk_by(|a, b| a.is_some() == b.is_some())
            .map(|run| {
                let start = at;
                at += run.len();
                match run.iter().copied().collect::<Option<Vec<u64>>>() {
                    Some(numbers) => Content::Numbers(numbers),
                    None => Content::Bytes(data.slice(start..at)),
                }
            })
            .collect()
    }

    pub fn blocks(&self) -> u32 {
        match self {
            Content::Bytes(data) => data.blocks(),
            Content::Numbers(numbers) => numbers.len() as u32,
            Content::Same(_, blocks) => *blocks,
        }
    }

    /// Takes numbers on at the end of numbers. False: they are not of one kind.
    pub fn join(&mut self, next: &Content) -> bool {
        match (self, next) {
            (Content::Numbers(numbers), Content::Numbers(more)) => {
                numbers.extend_from_slice(more);
                true
            }
            _ => false,
        }
    }

    pub fn part(&self, from: usize, to: usize) -> Content {
        match self {
            Content::Bytes(data) => Content::Bytes(data.slice(from..to)),
            Content::Numbers(numbers) => {
                let part = numbers.get(from..to).unwrap_or_default();
                Content::Numbers(part.into())
            }
            Content::Same(number, _) => Content::Same(*number, to.saturating_sub(from) as u32),
        }
    }

    /// Writes the bytes to `target`, which is as long.
    pub fn copy_to(&self, target: &mut [u8]) {
        match self {
            Content::Bytes(data) => target.copy_from_slice(data),
            Content::Numbers(numbers) => {
                for (block, number) in target.chunks_mut(BLOCK_SIZE).zip(numbers) {
                    fill(block, *number);
                }
            }
            Content::Same(number, _) => {
                for block in target.chunks_mut(BLOCK_SIZE) {
                    fill(block, *number);
                }
            }
        }
    }
}

fn body(number: u64) -> &'static [u8] {
    static POOL: OnceLock<Vec<u8>> = OnceLock::new();
    let pool = POOL.get_or_init(|| {
        let mut pool = vec![0; POOL_LEN + BODY_LEN];
        ChaCha8Rng::seed_from_u64(0).fill_bytes(&mut pool);
        pool
    });
    // Numbers that follow each other begin far apart.
    let start = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - POOL_LEN.ilog2());
    &pool[start as usize..][..BODY_LEN]
}

#[cfg(test)]
mod tests {
    use persimmon_device::BufferMut;

    use super::*;

    #[test]
    fn numbers_come_back_and_other_blocks_stay_bytes() {
        let mut data = BufferMut::zeroed(6);
        fill(&mut data[..2 * BLOCK_SIZE], 7);
        fill(&mut data[4 * BLOCK_SIZE..], u64::MAX);
        data[6 * BLOCK_SIZE - 1] ^= 1;
        let data = data.freeze();
        let runs = Content::runs_of(&data);
        let numbers: Vec<Option<Vec<u64>>> = runs
            .iter()
            .map(|run| match run {
                Content::Numbers(numbers) => Some(numbers.clone()),
                Content::Bytes(_) | Content::Same(..) => None,
            })
            .collect();
        assert_eq!(
            numbers,
            [Some(vec![7, 8]), None, Some(vec![u64::MAX]), None]
        );
        let mut at = 0;
        for run in runs {
            let mut back = vec![0; run.blocks() as usize * BLOCK_SIZE];
            run.copy_to(&mut back);
            assert_eq!(back, data[at..at + back.len()]);
            at += back.len();
        }
        assert_eq!(at, data.len());
    }
}
