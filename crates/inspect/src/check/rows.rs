//! Stripe sets: whether all that is needed could be read in spite of any one zone that is lost. What one zone of a set has
//! wrong is read otherwise everywhere else, and so it is told here alone.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use persimmon_format::table::Role;
use persimmon_format::{Addr, DeviceId, ZoneId};

use super::owners::Owners;
use super::repair::Plan;
use crate::finding::{Findings, ZONE_ROWS};
use crate::media::Media;
use crate::volume::Inspector;

/// Of each stripe set the first place that is not as it has to be in all of its zones.
pub(crate) struct Rows<'a, 'd> {
    media: &'a Media<'d>,
    uneven: BTreeMap<ZoneId, Addr>,
}

impl<'a, 'd> Rows<'a, 'd> {
    pub(crate) fn new(inspector: &'a Inspector<'d>) -> Rows<'a, 'd> {
        Rows {
            media: &inspector.media,
            uneven: BTreeMap::new(),
        }
    }

    /// Looks at blocks that are needed. One place of a set is enough. Of a set that has failed it is told with the zones.
    pub(crate) fn look(&mut self, addr: Addr, blocks: u32) {
        let media = self.media;
        let zone = media.zone(addr.zone());
        let is_whole = zone.is_some_and(|info| !info.state.is_worn_out());
        if !media.is_striped()
            || !is_whole
            || self.uneven.contains_key(&addr.zone())
            || !media.is_written(addr, blocks.into())
        {
            return;
        }
        let limit = media.geometry().max_transfer_blocks.max(1);
        let mut at = 0;
        while at < blocks {
            let some = (blocks - at).min(limit);
            if !media.rows_agree(addr.offset(at), some) {
                let mut single = (at..at + some).map(|at| addr.offset(at));
                let first = single.find(|addr| !media.rows_agree(*addr, 1));
                self.uneven
                    .insert(addr.zone(), first.unwrap_or(addr.offset(at)));
                return;
            }
            at += some;
        }
    }

    /// Looks at all that is needed but summaries; at file data if `data` says so.
    pub(crate) fn look_at_all(
        &mut self,
        inspector: &Inspector<'_>,
        owners: &Owners,
        data: bool,
        progress: &mut dyn FnMut(u64),
    ) {
        if !self.media.is_striped() {
            return;
        }
        self.look_at_log(inspector);
        for (zone, _) in inspector.media.zones() {
            progress(zone.0.into());
            if !owners.uses(zone.0 as usize) {
                continue;
            }
            self.look(Addr::new(DeviceId(0), zone, 0), 1);
            let is_data = inspector
                .header(zone)
                .is_some_and(|header| header.role == Role::Data);
            if data || !is_data {
                self.look_at_claimed(zone, owners);
            }
        }
    }

    /// The log from where replay starts.
    fn look_at_log(&mut self, inspector: &Inspector<'_>) {
        let Some(checkpoint) = &inspector.checkpoint else {
            return;
        };
        let (log, start) = (&inspector.log, checkpoint.footer.replay.sequence);
        log.scan(
            &inspector.media,
            &inspector.key,
            start,
            &mut |addr, block| {
                if block.is_ok() {
                    self.look(Addr::new(addr.device(), addr.zone(), 0), 1);
                    self.look(addr, 1);
                }
                ControlFlow::Continue(())
            },
        );
    }

    /// Blocks of a zone that belong to something.
    fn look_at_claimed(&mut self, zone: ZoneId, owners: &Owners) {
        let addr = |block| Addr::new(DeviceId(0), zone, block);
        let written = self.media.written(zone);
        let mut start = None;
        for block in 1..=written {
            let has = block < written && owners.has(addr(block));
            match start {
                None if has => start = Some(block),
                Some(from) if !has => {
                    self.look(addr(from), block - from);
                    start = None;
                }
                _ => {}
            }
        }
    }

    /// Tells what was found, and plans to have it written anew elsewhere. The log leaves a zone by itself.
    pub(crate) fn tell(self, owners: &Owners, findings: &mut Findings, plan: &mut Plan) {
        for (zone, addr) in self.uneven {
            findings.add(
                &ZONE_ROWS,
                format_args!("zone {zone}"),
                format_args!("at {addr}"),
            );
            if owners.uses(zone.0 as usize) {
                plan.empty_zone(zone);
            }
        }
    }
}
