//! What is left of an extent that names shared blocks where the store lacks some of them.

use persimmon_format::Key;
use persimmon_format::extent::Extent;

/// The parts of a shared extent under this key, of blocks `at..end` of the store, between the ranges that the store does not have.
#[must_use]
pub fn present_parts(
    key: &Key,
    (at, end): (u64, u64),
    missing: &[(u64, u64)],
) -> Vec<(Key, Extent)> {
    let mut parts = Vec::new();
    let mut done = at;
    for (from, to) in missing.iter().copied().chain([(end, end)]) {
        if from > done {
            let item = key.item.saturating_add(done - at);
            let part = Extent::Shared {
                at: done,
                blocks: u16::try_from(from - done).unwrap_or(u16::MAX),
            };
            parts.push((Key { item, ..*key }, part));
        }
        done = to;
    }
    parts
}
