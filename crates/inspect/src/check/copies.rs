//! The second copies of a volume that has two: what is good in one zone of a pair and bad in the
//! other.

use persimmon_format::envelope::{self, Kind};
use persimmon_format::{Addr, VolumeKey};

use crate::finding::{Findings, PAGE_COPY};
use crate::media::Media;
use crate::volume::Inspector;

/// Reads both copies of each page and table chunk of the checkpoint. Where a whole zone is gone
/// that is told once, with the zones.
pub(crate) fn check(inspector: &Inspector<'_>, findings: &mut Findings) {
    let Ok(checkpoint) = inspector.checkpoint() else {
        return;
    };
    let media = &inspector.media;
    for (kind, number, addr, blocks) in checkpoint.metadata() {
        let Some(copy) = media.copy_of(addr) else {
            continue;
        };
        if media.is_offline(addr.zone()) || media.is_offline(copy.zone()) {
            continue;
        }
        let good = |at| is_good(media, &inspector.key, kind, number, at, blocks);
        let bad = match (good(addr), good(copy)) {
            (true, false) => copy,
            (false, true) => addr,
            // Both bad is told where the block is needed.
            _ => continue,
        };
        findings.add(&PAGE_COPY, bad, format_args!("{kind:?} {number}"));
    }
}

fn is_good(
    media: &Media<'_>,
    key: &VolumeKey,
    kind: Kind,
    number: usize,
    addr: Addr,
    blocks: u32,
) -> bool {
    let read = media.read(addr, blocks);
    read.is_ok_and(|bytes| {
        let opened = envelope::open(&bytes, key, kind, Some(number as u64));
        media.decoded(addr, opened.map(drop)).is_ok()
    })
}
