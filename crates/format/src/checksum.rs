//! Checksums. File data has a plain CRC-32C per block, kept in its extent; everything else has a
//! keyed one, so that user data can never pose as metadata (invariant I5).

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_secret, xxh3_64_with_seed};

/// Bytes of the volume's secret, stored in every zone header.
pub const SECRET_LEN: usize = 32;

const EXPANDED_LEN: usize = 192;

/// The volume's identity and its keyed checksum.
#[derive(Clone)]
pub struct VolumeKey {
    volume: u64,
    expanded: [u8; EXPANDED_LEN],
}

impl VolumeKey {
    /// The key of the volume with this UUID and secret.
    #[must_use]
    pub fn new(uuid: &[u8; 16], secret: &[u8; SECRET_LEN]) -> VolumeKey {
        let (head, _) = uuid.split_at(8);
        let mut volume = [0u8; 8];
        volume.copy_from_slice(head);
        let mut expanded = [0u8; EXPANDED_LEN];
        for (i, word) in expanded.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&xxh3_64_with_seed(secret, i as u64).to_le_bytes());
        }
        VolumeKey {
            volume: u64::from_le_bytes(volume),
            expanded,
        }
    }

    /// The first eight bytes of the UUID, which every block carries.
    #[must_use]
    pub fn volume(&self) -> u64 {
        self.volume
    }

    /// XXH3-64 of `bytes` under the volume's secret.
    #[must_use]
    pub fn checksum(&self, bytes: &[u8]) -> u64 {
        xxh3_64_with_secret(bytes, &self.expanded)
    }

    /// Hash of a file name for directory keys.
    #[must_use]
    pub fn name_hash(&self, name: &[u8]) -> u64 {
        xxh3_64_with_secret(name, &self.expanded)
    }
}

impl std::fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VolumeKey({:016x})", self.volume)
    }
}

/// Unkeyed XXH3-64, for the zone header, which is read before the secret is known.
#[must_use]
pub fn plain(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// CRC-32C of a block of file data.
#[must_use]
pub fn data_block(block: &[u8]) -> u32 {
    crc32c::crc32c(block)
}
