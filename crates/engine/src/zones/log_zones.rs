//! Zones of the log: taken into use, left, noted.

use persimmon_device::{DeviceError, ZoneId};
use persimmon_format::table::Role;
use persimmon_sync::atomic::Ordering;

use super::Zones;
use super::allocation::Reserve;
use super::entries::State;
use super::resets::Keeping;
use super::retry::Tries;
use super::trace::{Filled, ZoneEvent};
use crate::error::{Error, Result};
use crate::invariant::invariant_holds;
use crate::media::Media;
use crate::statistics::Class;

/// A zone of the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogZone {
    pub(crate) zone: ZoneId,
    pub(crate) sequence: u64,
    pub(crate) first_log_sequence: u64,
    pub(crate) capacity: u32,
}

impl LogZone {
    /// Which it is, and what fits into it.
    pub(crate) fn extent(&self) -> (ZoneId, u32) {
        (self.zone, self.capacity)
    }
}

impl Zones {
    /// Takes a free zone for the log, with its partner if it is to have one, and writes its header.
    /// Of the candidates, the one whose turn it is.
    pub(crate) fn open_log_zone(
        &self,
        media: &Media,
        first_log_sequence: u64,
    ) -> Result<Option<LogZone>> {
        let mut tries = Tries::default();
        let mut gave_back = false;
        loop {
            let seen = self.resets_ended();
            let opened = {
                let mut table = self.lock();
                let chosen = self.choose_free(&mut table, Role::Log, Reserve::NONE);
                chosen.map(|zones| {
                    let claimed = table.claim(zones, Role::Log, 0, &self.budget, &self.pairs);
                    let (sequence, capacity) = claimed;
                    self.trace.push(ZoneEvent::Opened {
                        zone: zones.0,
                        role: Role::Log,
                        lifetime: 0,
                        free_zones: table.counts.free.total(),
                    });
                    LogZone {
                        zone: zones.0,
                        sequence,
                        first_log_sequence,
                        capacity,
                    }
                })
            };
            let Some(opened) = opened else {
                // What the log left behind may be about to be free.
                if self.complete_a_reset(media, seen) {
                    continue;
                } else {
                    return Ok(None);
                }
            };
            let (zone, sequence) = (opened.zone, opened.sequence);
            if let Err(error) = media.open(zone) {
                self.put_back(media, zone, None);
                if !std::mem::replace(&mut gave_back, true)
                    && self.give_space_back(media, Keeping::Suspected)
                {
                    continue;
                }
                return Err(error.into());
            }
            let header = |zone| self.header(zone, Role::Log, 0, sequence, first_log_sequence);
            let Err(error) = self.write_headers(media, Class::Journal, zone, header) else {
                // No log block is ever behind a header that a power cut can take along: a zone that
                // begins without one and holds none that is good was not of the log, or is damaged.
                if let Err(error) = media.flush_headers() {
                    self.end(media, zone);
                    self.leave_log_zone(zone);
                    return Err(error);
                }
                self.log_ends.store(false, Ordering::Release);
                return Ok(Some(opened));
            };
            let is_full_host = matches!(error, Error::Device(DeviceError::HostFull));
            if is_full_host && self.put_back_reset(media, zone, None) {
                return Err(error);
            }
            self.end(media, zone);
            let again = tries.failed(self, zone, error);
            self.leave_log_zone(zone);
            again?;
        }
    }

    /// The log's zone is about to be full. Before its last block is written the headers of all zones taken into use
    /// are durable, and until the next log zone is begun no candidate is written to behind a header that is not. So
    /// where a log ends at the end of a zone, a candidate that was written to and has no good header is damaged,
    /// and may have been where the log went on.
    pub(crate) fn end_log_zone(&self, media: &Media) -> Result<()> {
        self.log_ends.store(true, Ordering::Release);
        media.flush_headers()
    }

    /// A zone just taken for the log could not be written: it is orphaned until it is reset.
    fn leave_log_zone(&self, zone: ZoneId) {
        let mut table = self.lock();
        let partner = self.pairs.separate(zone);
        for zone in std::iter::once(zone).chain(partner) {
            if let Some(entry) = table.entries.get_mut(zone) {
                entry.role = match entry.failure {
                    Some(_) => Role::Retired,
                    None => Role::Free,
                };
                entry.close();
                table.forget_log_zone();
            }
        }
        self.count_failed(&table);
    }

    /// Records how far a log zone of this capacity is written; `open` while the log goes on in it.
    pub(crate) fn note_log_zone(
        &self,
        (zone, capacity): (ZoneId, u32),
        write_pointer: u32,
        open: bool,
    ) {
        let mut table = self.lock();
        if let Some(entry) = table.entries.get(zone) {
            let place = entry.write_pointer;
            let written = write_pointer.saturating_sub(place);
            if written > 0 {
                let kind = (Role::Log, 0);
                let event = Filled::default().event(zone, kind, (place, written));
                self.trace.push(event);
            }
        }
        self.log_ends.store(!open, Ordering::Release);
        table.counts.log_blocks_left = if open {
            capacity.saturating_sub(write_pointer)
        } else {
            0
        };
        for zone in self.pairs.both(zone) {
            if let Some(entry) = table.entries.get_mut(zone) {
                invariant_holds!(
                    self.alarm,
                    entry.role == Role::Log && !entry.is_in_reset(),
                    "the log is written to zone {zone}, which is {entry:?}"
                );
                invariant_holds!(
                    self.alarm,
                    write_pointer >= entry.write_pointer && write_pointer <= capacity,
                    "the log is written to zone {zone} of {capacity} blocks up to {write_pointer}, and was up to {}",
                    entry.write_pointer
                );
                let written = write_pointer.saturating_sub(entry.write_pointer);
                entry.write_pointer = write_pointer;
                entry.state = if open { State::Open } else { State::Closed };
                table.counts.write_clock = table.counts.write_clock.saturating_add(written.into());
            }
        }
    }
}
