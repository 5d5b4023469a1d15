//! Named items: directory entries and extended attributes.
//!
//! A name lies under its hash, or behind it: at the first item from its hash on that was free when it
//! was made, at most [`PROBE_ITEMS`] on. So a search looks at the items of that range, and nothing
//! that is removed hides what lies behind it. The hash is SipHash under a key that serves nothing
//! else: nobody can choose names that collide without it.
//!
//! Readdir shows items encrypted, as [`cookie`]s. So what users see says nothing of the hashes, not even
//! which names of two directories have the same.

use siphasher::sip::{SipHasher13, SipHasher24};

use crate::checksum::SipKey;
use crate::codec::{Put, Reader};
use crate::{Ino, Result, VolumeKey};

/// Longest file name, bytes.
pub const NAME_MAX: usize = 255;
/// Items that a name may have: that of its hash and those behind it. More names than that near each
/// other need 2^63 tries for each, and bounds what a search looks at whatever a device holds.
pub const PROBE_ITEMS: u64 = 1 << 16;
/// Items and cookies are below this, so that a cookie is a positive `off_t`.
pub const ITEM_END: u64 = 1 << 63;
/// Items and cookies below this are never used: cookie 0 is the start, 1 is `.`, 2 is `..`.
pub const ITEM_MIN: u64 = 3;

/// The first of the [`PROBE_ITEMS`] items that `name` may have.
#[must_use]
pub fn first_item(key: &VolumeKey, name: &[u8]) -> u64 {
    let SipKey(k0, k1) = key.names;
    let hash = SipHasher24::new_with_keys(k0, k1).hash(name);
    #[cfg(feature = "weak-names")]
    let hash = hash & key.name_bits;
    (hash >> 1).clamp(ITEM_MIN, ITEM_END - PROBE_ITEMS)
}

/// Whether an item is one that a name may have, of which `first` is the first.
#[must_use]
pub fn may_have(first: u64, item: u64) -> bool {
    (first..first.saturating_add(PROBE_ITEMS)).contains(&item)
}

/// Rounds of the permutation of items. Four are the least for one that cannot be told from a random
/// one by who sees both sides (Luby and Rackoff).
const ROUNDS: u32 = 6;
const HIGH_MASK: u32 = u32::MAX >> 1;

/// What readdir shows for an item of a directory.
#[must_use]
pub fn cookie(key: &VolumeKey, directory: Ino, item: u64) -> u64 {
    walk(item, |item| {
        let (high, low) = halves(item);
        let step = |halves, round| mix(key, directory, halves, round);
        join((0..ROUNDS).fold((high, low), step))
    })
}

/// The item that a cookie stands for, which need not be there.
#[must_use]
pub fn item_of_cookie(key: &VolumeKey, directory: Ino, cookie: u64) -> u64 {
    walk(cookie, |cookie| {
        let (high, low) = halves(cookie);
        let step = |halves, round| mix(key, directory, halves, round);
        join((0..ROUNDS).rev().fold((high, low), step))
    })
}

/// A permutation of all numbers below [`ITEM_END`] made one of those from [`ITEM_MIN`] on: applied
/// until it leads to one of them, as it does, for its cycles lead back to where they begin.
fn walk(from: u64, permute: impl Fn(u64) -> u64) -> u64 {
    let mut at = permute(from.clamp(ITEM_MIN, ITEM_END - 1));
    while at < ITEM_MIN {
        at = permute(at);
    }
    at
}

/// A round of a Feistel network over 31 and 32 bits; it undoes itself.
fn mix(key: &VolumeKey, directory: Ino, (high, low): (u32, u32), round: u32) -> (u32, u32) {
    let is_even = round.is_multiple_of(2);
    let mut message = [0u8; 16];
    let (ino, rest) = message.split_at_mut(8);
    ino.copy_from_slice(&directory.0.to_le_bytes());
    let (half, number) = rest.split_at_mut(4);
    half.copy_from_slice(&if is_even { low } else { high }.to_le_bytes());
    number.copy_from_slice(&round.to_le_bytes());
    let SipKey(k0, k1) = key.cookies;
    let hash = SipHasher13::new_with_keys(k0, k1).hash(&message) as u32;
    if is_even {
        (high ^ hash & HIGH_MASK, low)
    } else {
        (high, low ^ hash)
    }
}

fn halves(item: u64) -> (u32, u32) {
    ((item >> 32) as u32 & HIGH_MASK, item as u32)
}

fn join((high, low): (u32, u32)) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(feature = "weak-names")]
thread_local! {
    static KEPT_BITS: std::cell::Cell<u64> = const { std::cell::Cell::new(u64::MAX) };
}

/// Keys made by this thread from now on keep only these bits of a name's hash. So tests have names
/// collide.
#[cfg(feature = "weak-names")]
pub fn keep_bits(bits: u64) {
    KEPT_BITS.set(bits);
}

#[cfg(feature = "weak-names")]
pub(crate) fn kept_bits() -> u64 {
    KEPT_BITS.get()
}

/// A directory entry. Bytes: inode 0..8, file type 8, name from 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The inode it names.
    pub ino: Ino,
    /// Its file type, the high four bits of `st_mode` (`S_IFMT >> 12`).
    pub file_type: u8,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> DirEntry<'a> {
    /// As stored.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(9 + self.name.len());
        out.put_u64(self.ino.0);
        out.put_u8(self.file_type);
        out.put(self.name);
        out
    }

    /// Whether a file can have this name: not `.` or `..`, and without slashes and zero bytes. Any other makes a kernel refuse
    /// the whole directory.
    #[must_use]
    pub fn has_possible_name(&self) -> bool {
        let forbids = |byte: &u8| matches!(byte, b'/' | 0);
        !matches!(self.name, b"" | b"." | b"..") && !self.name.iter().any(forbids)
    }

    /// As read.
    pub fn decode(bytes: &'a [u8]) -> Result<DirEntry<'a>> {
        let mut r = Reader::new(bytes, "directory entry");
        let ino = Ino(r.u64()?);
        let file_type = r.u8()?;
        if r.is_empty() || r.remaining() > NAME_MAX {
            return Err(r.bad("name length", r.remaining() as u64));
        }
        Ok(DirEntry {
            ino,
            file_type,
            name: r.rest(),
        })
    }
}
