//! Deltas: a block of a file as its difference to the content that is stored for it.
//!
//! A file has deltas as it has blocks, behind the last block that a file can have: that of block `n` is at block
//! [`FILE_BLOCKS_END`]` + n`, as an extent of one compressed block. Its bytes are the CRC-32C of the stored content 0..4, then an LZ4 block
//! of the exclusive or of both contents. The checksum ties a delta to its base: another content is never taken for it.
//!
//! There is one level. A newer delta is one to the same stored content and replaces the older; whatever maps or unmaps blocks of the file
//! removes their deltas too, see [`crate::record`].

use crate::extent::FILE_BLOCKS_END;
use crate::packed;
use crate::{BLOCK_SIZE, checksum};

/// Behind the last delta that a file can have.
pub const DELTAS_END: u64 = 2 * FILE_BLOCKS_END;

/// Longest delta, bytes: of what is longer the block is stored anew.
pub const DELTA_BYTES_MAX: usize = BLOCK_SIZE / 4;

const BASE_LEN: usize = 4;

/// Whether a file block is the place of a delta.
#[must_use]
pub fn is_delta(block: u64) -> bool {
    block >= FILE_BLOCKS_END
}

/// Where the delta of a file block is; that of one past the last block ends the range of them.
#[must_use]
pub fn place_of(block: u64) -> u64 {
    FILE_BLOCKS_END + block.min(FILE_BLOCKS_END)
}

/// The file block that a place belongs to: itself, or the block that a delta there is of.
#[must_use]
pub fn block_at(place: u64) -> u64 {
    if is_delta(place) {
        place - FILE_BLOCKS_END
    } else {
        place
    }
}

/// The delta that makes `new` of the stored content, if it is short enough.
#[must_use]
pub fn between(base: &[u8; BLOCK_SIZE], new: &[u8; BLOCK_SIZE]) -> Option<Vec<u8>> {
    let mut difference = *base;
    exclusive_or(&mut difference, new);
    let compressed = packed::compress(&difference, DELTA_BYTES_MAX - BASE_LEN)?;
    let mut delta = checksum::data_block(base).to_le_bytes().to_vec();
    delta.extend_from_slice(&compressed);
    Some(delta)
}

/// Makes of the stored content what the delta says. False, and nothing is changed, if it is not a delta to this content.
#[must_use]
pub fn apply(delta: &[u8], block: &mut [u8]) -> bool {
    let Some((base, compressed)) = delta.split_first_chunk::<BASE_LEN>() else {
        return false;
    };
    if block.len() != BLOCK_SIZE || u32::from_le_bytes(*base) != checksum::data_block(block) {
        return false;
    }
    let Some(difference) = packed::decompress(compressed) else {
        return false;
    };
    exclusive_or(block, &difference);
    true
}

/// Whether the bytes can be a delta, whatever its base is.
#[must_use]
pub fn is_sound(delta: &[u8]) -> bool {
    let compressed = delta.get(BASE_LEN..).unwrap_or_default();
    packed::decompress(compressed).is_some()
}

fn exclusive_or(block: &mut [u8], other: &[u8]) {
    for (byte, other) in block.iter_mut().zip(other) {
        *byte ^= other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise() -> [u8; BLOCK_SIZE] {
        let mut state = 1u64;
        std::array::from_fn(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
    }

    #[test]
    fn a_few_changed_bytes_make_a_short_delta() {
        let base = noise();
        let mut new = base;
        new[1000..1100].fill(7);
        let delta = between(&base, &new).unwrap();
        assert!(delta.len() < 160, "{} bytes", delta.len());
        let mut block = base;
        assert!(apply(&delta, &mut block));
        assert!(block == new);
        assert!(is_sound(&delta));
    }

    #[test]
    fn no_change_is_a_delta_too() {
        let base = noise();
        let delta = between(&base, &base).unwrap();
        let mut block = base;
        assert!(apply(&delta, &mut block));
        assert!(block == base);
    }

    #[test]
    fn what_differs_everywhere_has_no_delta() {
        assert_eq!(between(&noise(), &[0; BLOCK_SIZE]), None);
    }

    #[test]
    fn a_delta_is_of_its_base_alone() {
        let base = noise();
        let mut new = base;
        new[5] ^= 1;
        let delta = between(&base, &new).unwrap();
        let mut other = base;
        other[4000] ^= 1;
        let before = other;
        assert!(!apply(&delta, &mut other));
        assert!(other == before);
        for len in 0..delta.len() {
            let mut block = base;
            assert!(!apply(&delta[..len], &mut block) || block == new);
        }
    }

    #[test]
    fn the_bytes_of_a_delta_stay_what_they_are() {
        let base = [3; BLOCK_SIZE];
        let mut new = base;
        new[9] = 5;
        let delta = between(&base, &new).unwrap();
        let crc = checksum::data_block(&base).to_le_bytes();
        assert_eq!(delta[..4], crc);
        // Nine zeros, the difference, and zeros to the end.
        let lz4 = packed::decompress(&delta[4..]).unwrap();
        assert_eq!((lz4[8], lz4[9], lz4[10]), (0, 6, 0));
    }

    #[test]
    fn places_of_deltas_follow_those_of_blocks() {
        assert_eq!(place_of(0), FILE_BLOCKS_END);
        assert_eq!(place_of(u64::MAX), DELTAS_END);
        assert_eq!(block_at(place_of(17)), 17);
        assert_eq!(block_at(17), 17);
        assert!(is_delta(place_of(0)) && !is_delta(FILE_BLOCKS_END - 1));
    }
}
