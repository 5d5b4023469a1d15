//! Summary blocks: hints, so what is wrong with them is a warning. Each names the one before it;
//! the last one of a zone is searched back from the write pointer, and nothing names it: damaged,
//! it is known by what is left of its header.

use persimmon_format::envelope::{self, Kind};
use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId};

use super::owners::Owners;
use super::rows::Rows;
use crate::finding::{DATA_SUMMARY, Findings};
use crate::summaries::DataZone;
use crate::volume::Inspector;

pub(crate) fn check(
    inspector: &Inspector<'_>,
    owners: &Owners,
    rows: &mut Rows<'_, '_>,
    findings: &mut Findings,
) {
    for (zone, _) in inspector.media.zones() {
        let Some(header) = inspector.header(zone) else {
            continue;
        };
        if header.role == Role::Data && owners.uses(zone.0 as usize) {
            let zone = DataZone {
                inspector,
                zone,
                sequence: header.sequence,
            };
            follow(zone, owners, rows, findings);
        }
    }
}

fn follow(
    zone: DataZone<'_, '_>,
    owners: &Owners,
    rows: &mut Rows<'_, '_>,
    findings: &mut Findings,
) {
    let DataZone {
        inspector,
        sequence,
        ..
    } = zone;
    let mut damaged = |addr: Addr, block: &[u8]| {
        let (key, at) = (&inspector.key, addr.block().into());
        if envelope::resembles(block, key, Kind::Summary, sequence, at) && !owners.has(addr) {
            findings.add(&DATA_SUMMARY, addr, "its header says that it is one");
        }
    };
    let written = inspector.media.written(zone.zone);
    let Some((mut at, mut summary)) = zone.last_below(written, &mut damaged) else {
        return;
    };
    loop {
        rows.look(Addr::new(DeviceId(0), zone.zone, at), 1);
        if summary.previous == 0 {
            return;
        }
        match zone.summary(summary.previous) {
            Ok(before) => (at, summary) = (summary.previous, before),
            Err(error) => {
                let addr = Addr::new(DeviceId(0), zone.zone, summary.previous);
                let detail = format!("{error}; the one at block {at} names it");
                findings.add(&DATA_SUMMARY, addr, detail);
                return;
            }
        }
    }
}
