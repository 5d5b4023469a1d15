//! Metadata written anew, from items that somebody put together outside: what repairs a volume
//! whose pages, tables or log are lost in part. Data stays where it is.
//!
//! Nothing old is needed and nothing old is touched: pages, tables and footer go to free zones,
//! and the log begins in a new zone and a new epoch. The footer makes all of it the volume at
//! once. Only then are the zones reset that it found unused, the old metadata and log among them.

use std::collections::BTreeSet;
use std::sync::Arc;

use persimmon_device::per_zone::PerZone;
use persimmon_device::{FirstZones, ZoneId, ZonedDevice};
use persimmon_format::extent::Extent;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::{Key, KeyKind, PageId};

use crate::empty::{EmptyVolume, RebuildStart};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::headers::read_header;
use crate::media::Media;
use crate::meta::versions::Versions;
use crate::meta::{Meta, extents, mapping, quota, sharing};
use crate::options::Options;
use crate::recovery::check_counters;
use crate::zones::Stream;
use crate::zones::failure::ZoneFailure;
use crate::zones::table::Found;

/// Metadata in the making.
pub struct Rebuild {
    engine: Engine,
    changes_lost: bool,
}

impl Rebuild {
    /// Begins; until [`Rebuild::finish`] the volume stays what it is.
    ///
    /// # Errors
    /// The device fails, or none of its shape can carry a volume.
    pub fn begin(
        device: Arc<dyn ZonedDevice>,
        start: RebuildStart,
        options: Options,
    ) -> Result<Rebuild> {
        // As at a mount, and before anything is changed: what is counted up from here on must have room.
        check_counters(&[
            ("the number of the checkpoint", start.checkpoint),
            ("the last record of the log", start.last_lsn.0),
            ("the log's epoch", u64::from(start.epoch) << 32),
            ("the next log block", start.log_sequence),
            ("the next inode", start.next_ino),
            ("the write clock", start.write_clock),
            ("the next zone's sequence", start.next_zone_sequence),
        ])?;
        let changes_lost = start.changes_lost;
        let device = Arc::new(FirstZones::of(device, start.identity.zone_count));
        let (reserve, copies) = (start.reserve_basis_points, start.identity.copies());
        let empty = EmptyVolume::of(device, reserve, copies, &options)?;
        let (media, report) = (&empty.media, &empty.report);
        let unknown = start.identity.features().unknown_to_write();
        if unknown != 0 {
            return Err(Error::OnlyToRead { unknown });
        }
        let found = found_zones(media, &start, report)?;
        for (zone, info) in (0..).map(ZoneId).zip(report) {
            // None of them takes more writes; the device's slots are needed.
            if info.state.is_active()
                && let Err(error) = media.finish_one(zone)
            {
                tracing::warn!(zone = zone.0, %error, "zone could not be finished");
            }
        }
        let engine = empty.begin(&found, start, options);
        Ok(Rebuild {
            engine,
            changes_lost,
        })
    }

    /// Puts an item. Keys in ascending order are best.
    ///
    /// # Errors
    /// The device fails, or has no room for the metadata.
    pub fn put(&self, key: Key, value: &[u8]) -> Result<()> {
        let store = &self.engine.store;
        let extent = match key.kind {
            KeyKind::EXTENT => Extent::decode(value).ok(),
            _ => None,
        };
        store.apply_unlogged(
            |meta| {
                meta.ensure_stored(&key)?;
                extent
                    .as_ref()
                    .map_or(Ok(()), |extent| beside(meta, &key, extent).map(drop))
            },
            |meta| {
                let beside = match &extent {
                    Some(extent) => beside(meta, &key, extent)?,
                    None => 0,
                };
                let replaced = meta.insert_stored(&key, value);
                if key.kind == KeyKind::INODE && !replaced && !key.is_whiteout(value) {
                    meta.inodes += 1;
                    meta.numbers.made(key.ino);
                }
                if Versions::is_told_by(&key) {
                    meta.versions.change(&key, Some(value))?;
                }
                if quota::is_state(&key) {
                    meta.change_quota(Some(value))?;
                }
                if let Some(extent) = extent.as_ref().filter(|_| !replaced) {
                    mapping::count_in(meta, &store.zones, key.item, extent, beside);
                    sharing::note(meta, &key, extent);
                }
                Ok(())
            },
        )?;
        if store.meta().cache.dirty() >= store.zones.budget.dirty_pages_reserved {
            self.spill()?;
        }
        Ok(())
    }

    /// Writes the pages made so far, so that memory stays bounded. No footer leads to them yet.
    fn spill(&self) -> Result<()> {
        let store = &self.engine.store;
        let pages = store.meta_mut().cache.take_dirty();
        let refs: Vec<_> = pages.iter().collect();
        let number = store.on_device().number + 1;
        let written = &mut BTreeSet::new();
        let places = self
            .engine
            .checkpoints
            .write_pages(&refs, number, Stream::Metadata, written);
        let ids = || pages.iter().map(|(id, _)| *id);
        let mut meta = store.meta_mut();
        let places = places.inspect_err(|_| meta.cache.redirty(ids(), Vec::<PageId>::new()))?;
        for (id, entry) in &places {
            let old = meta.mat.set(*id, *entry);
            if old.is_used() {
                store.zones.sub_metadata(old.addr, old.blocks.into());
            }
            store.zones.add_metadata(entry.addr, entry.blocks.into());
        }
        meta.cache.finish_writing(ids());
        let limit = store.options.cache_bytes_max / persimmon_format::page::PAGE_SIZE;
        meta.cache.evict(limit);
        Ok(())
    }

    /// Makes what was put the volume, by a checkpoint. What was there before is reset.
    ///
    /// # Errors
    /// The device fails, or has no room. Then the volume is what it was.
    pub fn finish(self) -> Result<()> {
        if self.changes_lost {
            self.engine.store.meta_mut().numbers.leave_gap();
        }
        self.engine.checkpoints.write()?;
        self.engine.close()
    }
}

/// [`extents::beside`]; nothing where another extent is damaged, which is put back as it is. The repair that follows counts anew.
fn beside(meta: &Meta, key: &Key, extent: &Extent) -> Result<u64> {
    match extents::beside(meta, key.ino, key.version, key.item, extent) {
        Err(Error::ItemDamaged { .. }) => Ok(0),
        counted => counted,
    }
}

/// Data zones as they are; what else was written to is unused from now on.
fn found_zones(
    media: &Media,
    start: &RebuildStart,
    report: &[persimmon_device::ZoneInfo],
) -> Result<PerZone<Found>> {
    let zones = (0..).map(ZoneId).zip(report);
    let found = zones.map(|(zone, info)| {
        let known = start.zit.get(zone.0 as usize).copied().unwrap_or_default();
        let used = info.state != persimmon_device::ZoneState::Empty;
        let header = match read_header(media, &start.identity, zone) {
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            read => read.ok().flatten().filter(|_| used),
        };
        let mut entry = ZitEntry {
            role: Role::Free,
            resets: known.resets,
            last_write: known.last_write,
            ..ZitEntry::default()
        };
        match header {
            Some(header) if header.role == Role::Data => {
                entry.role = Role::Data;
                entry.lifetime = header.lifetime;
                entry.sequence = header.sequence;
            }
            None if used && known.role == Role::Data => {
                entry.role = Role::Data;
                entry.lifetime = known.lifetime;
                entry.sequence = known.sequence;
            }
            // The table may be damaged too, or older than the zone's use: files may have blocks in it. If none has, the
            // first checkpoint frees it.
            None if used && !info.state.is_worn_out() => entry.role = Role::Data,
            _ if info.state.is_worn_out() => entry.role = Role::Retired,
            _ => {}
        }
        entry.write_pointer = if info.state.is_worn_out() {
            known.write_pointer
        } else {
            info.write_pointer.min(info.capacity)
        };
        Ok(Found {
            entry,
            capacity: info.capacity,
            used,
            failure: ZoneFailure::of(info.state),
        })
    });
    found.collect()
}
