//! What is left of an extent that names shared blocks where the store lacks some of them.

use persimmon_format::Key;
use persimmon_format::extent::Extent;

/// The parts of a shared extent under this key, between the ranges of the store that the store does not have. Of another extent there are none.
#[must_use]
pub fn present_parts(key: &Key, extent: &Extent, missing: &[(u64, u64)]) -> Vec<(Key, Extent)> {
    let Extent::Shared { at, blocks, .. } = *extent else {
        return Vec::new();
    };
    let end = at.saturating_add(blocks.into());
    let mut parts = Vec::new();
    let mut done = at;
    for (from, to) in missing.iter().copied().chain([(end, end)]) {
        if from > done {
            let item = key.item.saturating_add(done - at);
            let part = extent.part(done - at, from - done);
            parts.push((Key { item, ..*key }, part));
        }
        done = to;
    }
    parts
}
