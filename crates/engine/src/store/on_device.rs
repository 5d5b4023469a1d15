//! What is on the device as of the last checkpoint, and what cleaning asks the next one to do besides.

use std::collections::HashSet;

use persimmon_device::ZoneId;
use persimmon_device::per_zone::PerZone;
use persimmon_format::footer::Footer;
use persimmon_format::table::ZitEntry;
use persimmon_format::zone_header::{PROPERTIES, Properties, QUOTA, VolumeIdentity};
use persimmon_format::{Addr, PageId};
use persimmon_sync::Alarm;

use super::Store;
use crate::error::Result;
use crate::invariant::invariant;
use crate::meta::Meta;

/// See the module.
pub(crate) struct OnDevice {
    /// Number of the last checkpoint that was begun.
    pub(crate) number: u64,
    /// The ZIT as its chunks on the device have it.
    pub(crate) written_zit: PerZone<ZitEntry>,
    /// Where each ZIT chunk is; [`Addr::ZERO`] for one never written.
    pub(crate) zit_chunks: Vec<Addr>,
    /// Pages that cleaning asked to be moved.
    pub(crate) cold: HashSet<PageId>,
    /// Metadata zones that the next whole checkpoint moves pages out of.
    pub(crate) evacuating: HashSet<ZoneId>,
    /// Blocks written in all at the cut of the last whole checkpoint, or at the mount.
    pub(crate) write_clock: u64,
    /// What footers tell of the volume, where it is no longer what it was made as.
    pub(crate) properties: Option<Properties>,
    /// Footers tell that there may be quota, which zone headers need not.
    pub(crate) has_quota: bool,
    /// The last durable footer; none while pages are written for the next, and if that failed.
    pub(crate) footer: Option<Footer>,
}

impl OnDevice {
    /// After the checkpoint of this footer, whose chunks have this ZIT.
    pub(crate) fn of(
        footer: &Footer,
        identity: &VolumeIdentity,
        written_zit: PerZone<ZitEntry>,
    ) -> OnDevice {
        OnDevice {
            number: footer.checkpoint,
            written_zit,
            zit_chunks: footer.zit.clone(),
            cold: HashSet::new(),
            evacuating: HashSet::new(),
            write_clock: footer.write_clock,
            properties: changed_properties(identity),
            has_quota: identity.incompatible & QUOTA != 0,
            footer: Some(footer.clone()),
        }
    }

    /// The next checkpoint tells of these properties. The zones that they have more follow those of the table, free.
    pub(crate) fn set_properties(&mut self, properties: Properties) {
        let zones = self.written_zit.len();
        let all = properties.zone_count as usize;
        if all > zones {
            let free = std::iter::repeat_n(ZitEntry::default(), all - zones);
            self.written_zit = self.written_zit.iter().copied().chain(free).collect();
            self.zit_chunks
                .resize(all.div_ceil(ZitEntry::PER_CHUNK), Addr::ZERO);
            // An entry that differs has the chunk written that gets longer.
            if let Some(entry) = self.written_zit.get_mut(zones) {
                entry.resets = u32::MAX;
            }
        }
        self.properties = Some(properties);
    }

    /// Gives the table of a cut an entry for each zone that its footer tells of: a volume that grows has more zones than the table.
    pub(crate) fn complete(&self, alarm: &Alarm, zit: &mut PerZone<ZitEntry>) -> Result<()> {
        let (zones, known) = (self.written_zit.len(), zit.len());
        invariant!(
            *alarm,
            known <= zones,
            "a cut has {known} zones, and the footer tells of {zones}"
        );
        if known < zones {
            let free = std::iter::repeat_n(ZitEntry::default(), zones - known);
            *zit = zit.iter().copied().chain(free).collect();
        }
        Ok(())
    }
}

/// The properties of a volume, if its footers tell them.
pub(crate) fn changed_properties(identity: &VolumeIdentity) -> Option<Properties> {
    (identity.incompatible & PROPERTIES != 0).then(|| identity.properties())
}

impl Store {
    /// Asks the next checkpoint to move what lies in a metadata zone: pages, and chunks of the
    /// tables. Returns the pages that must be in memory first.
    pub(crate) fn move_metadata_from(&self, zone: ZoneId) -> Vec<PageId> {
        let mut state = self.on_device();
        for chunk in 0..state.zit_chunks.len() {
            if state.zit_chunks[chunk].zone() == zone && state.zit_chunks[chunk] != Addr::ZERO {
                // An entry that differs makes the chunk be written again.
                let first = chunk * ZitEntry::PER_CHUNK;
                if let Some(entry) = state.written_zit.get_mut(first) {
                    entry.resets = entry.resets.wrapping_sub(1);
                }
            }
        }
        drop(state);
        let mut meta = self.meta_mut();
        let Meta { mat, .. } = &mut *meta;
        for chunk in 0..mat.chunks().len() {
            let addr = mat.chunks()[chunk];
            if addr != Addr::ZERO && addr.zone() == zone {
                mat.touch_chunk(chunk);
            }
        }
        mat.pages_at(|addr| addr.zone() == zone)
    }
}
