//! Summary blocks: hints, so what is wrong with them is a warning. Each names the one before it;
//! the last one of a zone is searched back from the write pointer, and nothing names it: damaged,
//! it is known by what is left of its header.

use persimmon_format::envelope::{self, Kind};
use persimmon_format::summary::Summary;
use persimmon_format::table::Role;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, FormatError, ZoneId};

use super::owners::Owners;
use crate::finding::{DATA_SUMMARY, Findings};
use crate::volume::Inspector;

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 64;

pub(crate) fn check(inspector: &Inspector<'_>, owners: &Owners, findings: &mut Findings) {
    for (zone, _) in inspector.media.zones() {
        let Some(header) = inspector.header(zone) else {
            continue;
        };
        if header.role == Role::Data && owners.uses(zone.0 as usize) {
            follow(inspector, owners, zone, header.sequence, findings);
        }
    }
}

fn follow(
    inspector: &Inspector<'_>,
    owners: &Owners,
    zone: ZoneId,
    sequence: u64,
    findings: &mut Findings,
) {
    let mut damaged = |addr| {
        if !owners.has(addr) {
            findings.add(&DATA_SUMMARY, addr, "its header says that it is one");
        }
    };
    let last = last(inspector, zone, sequence, &mut damaged);
    let Some((mut at, mut summary)) = last else {
        return;
    };
    while summary.previous != 0 {
        let addr = Addr::new(DeviceId(0), zone, summary.previous);
        let before = inspector
            .media
            .read(addr, 1)
            .map_err(|error| error.to_string())
            .and_then(|block| {
                let summary = Summary::decode(&block, &inspector.key, sequence, addr.block());
                (inspector.media.decoded(addr, summary))
                    .map_err(|error: FormatError| error.to_string())
            });
        match before {
            Ok(before) => (at, summary) = (addr.block(), before),
            Err(error) => {
                let detail = format!("{error}; the one at block {at} names it");
                findings.add(&DATA_SUMMARY, addr, detail);
                return;
            }
        }
    }
}

/// The last summary of a zone, and its block. `damaged` is told of those after it that were some.
fn last(
    inspector: &Inspector<'_>,
    zone: ZoneId,
    sequence: u64,
    damaged: &mut dyn FnMut(Addr),
) -> Option<(u32, Summary)> {
    let mut end = inspector.media.written(zone);
    while end > 1 {
        let start = end.saturating_sub(WINDOW_BLOCKS).max(1);
        let window = inspector
            .media
            .read(Addr::new(DeviceId(0), zone, start), end - start)
            .ok()?;
        for (index, block) in window.chunks_exact(BLOCK_SIZE).enumerate().rev() {
            let at = start + index as u32;
            let summary = Summary::decode(block, &inspector.key, sequence, at);
            let addr = Addr::new(DeviceId(0), zone, at);
            if let Ok(summary) = inspector.media.decoded(addr, summary) {
                return Some((at, summary));
            }
            if envelope::resembles(block, &inspector.key, Kind::Summary, sequence, at.into()) {
                damaged(addr);
            }
        }
        end = start;
    }
    None
}
