//! Blocks that say what they are.

use anyhow::{Context, Result, ensure};

use crate::posix::expect::noise;

/// Bytes of one.
pub(super) const BLOCK: usize = 4096;

/// A block that says where it belongs and which version it is.
pub(super) fn stamped(place: u64, version: u64) -> Vec<u8> {
    let mut block = Vec::with_capacity(BLOCK);
    block.extend_from_slice(&place.to_le_bytes());
    block.extend_from_slice(&version.to_le_bytes());
    block.extend_from_slice(&noise(place << 32 | version, BLOCK - 16));
    block
}

/// The version of a block of this place, 0 for zeros.
pub(super) fn version(place: u64, block: &[u8]) -> Result<u64> {
    if block.iter().all(|byte| *byte == 0) {
        return Ok(0);
    }
    let number: [u8; 8] = block
        .get(8..16)
        .and_then(|bytes| bytes.try_into().ok())
        .context("a short block")?;
    let version = u64::from_le_bytes(number);
    ensure!(
        block == &stamped(place, version)[..block.len()],
        "block {place} holds foreign or torn bytes"
    );
    Ok(version)
}

/// Whether each byte of a block is that of one of these versions, 0 standing for zeros.
pub(super) fn is_mixture(
    place: u64,
    versions: std::ops::RangeInclusive<u64>,
    block: &[u8],
) -> bool {
    let versions: Vec<Vec<u8>> = versions
        .map(|version| match version {
            0 => vec![0; BLOCK],
            _ => stamped(place, version),
        })
        .collect();
    let known = |(at, byte): (usize, &u8)| versions.iter().any(|whole| whole.get(at) == Some(byte));
    block.iter().enumerate().all(known)
}
