//! Checksums. File data has a plain CRC-32C per block, kept in its extent; everything else has a
//! keyed one, so that user data can never pose as metadata (invariant I5).
//!
//! Names have keys of their own, see [`crate::name`]: users see what comes of those, and learn
//! nothing of the checksums' secret from it.

use crc_fast::{CrcAlgorithm, Digest};
use siphasher::sip128::SipHasher24;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_secret, xxh3_64_with_seed};

/// Bytes of the volume's secret, stored in every zone header.
pub const SECRET_LEN: usize = 32;

const EXPANDED_LEN: usize = 192;

/// What sets the keys of names apart from each other, and from all else that may be derived.
const NAMES_LABEL: &[u8] = b"persimmon: hashes of names";
const COOKIES_LABEL: &[u8] = b"persimmon: readdir cookies";

/// A key of SipHash.
#[derive(Clone, Copy)]
pub(crate) struct SipKey(pub(crate) u64, pub(crate) u64);

impl SipKey {
    /// SipHash-2-4-128 under the first half of the secret, of the label and the other half. It is a
    /// pseudorandom function: who knows its output knows nothing of the secret, nor of what another
    /// label gives.
    fn derive(secret: &[u8; SECRET_LEN], label: &[u8]) -> SipKey {
        let (key, rest) = secret.split_at(SECRET_LEN / 2);
        let mut half = [0u8; SECRET_LEN / 2];
        half.copy_from_slice(key);
        let output = SipHasher24::new_with_key(&half).hash(&[label, rest].concat());
        SipKey(output.h1, output.h2)
    }
}

/// The volume's identity and its keyed checksum.
#[derive(Clone)]
pub struct VolumeKey {
    volume: u64,
    expanded: [u8; EXPANDED_LEN],
    pub(crate) names: SipKey,
    pub(crate) cookies: SipKey,
    /// Bits that hashes of names keep: all, but in tests that have names collide.
    #[cfg(feature = "weak-names")]
    pub(crate) name_bits: u64,
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
            names: SipKey::derive(secret, NAMES_LABEL),
            cookies: SipKey::derive(secret, COOKIES_LABEL),
            #[cfg(feature = "weak-names")]
            name_bits: crate::name::kept_bits(),
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
    crc_of_more(0, block)
}

/// CRC-32C that goes on over more bytes. It is made for many: blocks take half the time that the instruction for this checksum takes.
#[must_use]
pub fn crc_of_more(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}
