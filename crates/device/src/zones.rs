//! The zone state machine: states, write pointers, open and active limits, as the NVMe Zoned
//! Namespace Command Set has them. In memory only, no I/O: a back end asks it before a command and
//! tells it afterwards. Used by every back end that has to play a zoned device in software. The
//! back end runs one command at a time per zone; commands to other zones may come in between.

use std::collections::VecDeque;

use crate::per_zone::PerZone;
use crate::{DeviceError, Result, ZoneId, ZoneInfo, ZoneKind, ZoneState};

/// State of the zones of a device.
#[derive(Debug)]
pub struct ZoneMachine {
    max_open: Option<u32>,
    max_active: Option<u32>,
    zones: PerZone<Zone>,
    open: u32,
    active: u32,
    /// Implicitly open zones, least recently opened first. Kept only where `max_open` is set: it
    /// is what tells which zone to close for another.
    implicit: VecDeque<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Zone {
    state: ZoneState,
    /// Blocks that can be written.
    capacity: u32,
    /// Blocks written. Stays when a zone is finished.
    written: u32,
    /// Blocks written, or to be by appends that are under way.
    claimed: u32,
    resets: u32,
}

/// What a zone held when its device was last used, for [`ZoneMachine::restore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// State; an open one counts as closed.
    pub state: ZoneState,
    /// Blocks written.
    pub written: u32,
    /// Resets so far.
    pub resets: u32,
}

impl ZoneMachine {
    /// `zone_count` empty zones of `capacity` blocks.
    #[must_use]
    pub fn new(
        zone_count: u32,
        capacity: u32,
        max_open: Option<u32>,
        max_active: Option<u32>,
    ) -> ZoneMachine {
        let empty = Zone {
            state: ZoneState::Empty,
            capacity,
            written: 0,
            claimed: 0,
            resets: 0,
        };
        ZoneMachine {
            max_open,
            max_active,
            zones: PerZone::filled(zone_count as usize, empty),
            open: 0,
            active: 0,
            implicit: VecDeque::new(),
        }
    }

    /// Puts a zone into the state it had when the device was last used. Open zones come back
    /// closed; one with nothing written comes back empty, one with all written full.
    pub fn restore(&mut self, zone: ZoneId, snapshot: Snapshot) -> Result<()> {
        let capacity = self.zone(zone)?.capacity;
        let written = snapshot.written.min(capacity);
        let state = match snapshot.state {
            state @ (ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline) => state,
            _ if written == 0 => ZoneState::Empty,
            _ if written == capacity => ZoneState::Full,
            _ => ZoneState::Closed,
        };
        self.set_state(zone, state)?;
        let zone = self.zone_mut(zone)?;
        zone.written = written;
        zone.claimed = written;
        zone.resets = snapshot.resets;
        Ok(())
    }

    /// Takes over what a drive says of a zone. All of a full or read-only one counts as written:
    /// the drive does not tell how much of it was.
    pub fn observe(&mut self, zone: ZoneId, info: &ZoneInfo) -> Result<()> {
        self.set_state(zone, info.state)?;
        let written = match info.state {
            ZoneState::Full | ZoneState::ReadOnly => info.capacity,
            _ => info.write_pointer.min(info.capacity),
        };
        let known = *self.zone(zone)?;
        let now = Zone {
            capacity: info.capacity,
            written,
            claimed: written,
            ..known
        };
        self.zones.set(zone.0 as usize, now);
        Ok(())
    }

    /// Blocks that can be written to a zone.
    pub fn capacity(&self, zone: ZoneId) -> Result<u32> {
        Ok(self.zone(zone)?.capacity)
    }

    /// How many zones there are.
    #[must_use]
    pub fn zone_count(&self) -> u32 {
        self.zones.len() as u32
    }

    /// State and blocks written of a zone. Not the write pointer: a finished zone keeps the count
    /// of what was really written.
    pub fn snapshot(&self, zone: ZoneId) -> Result<Snapshot> {
        let zone = self.zone(zone)?;
        Ok(Snapshot {
            state: zone.state,
            written: zone.written,
            resets: zone.resets,
        })
    }

    /// The report of a zone.
    pub fn info(&self, zone: ZoneId, kind: ZoneKind) -> Result<ZoneInfo> {
        let zone = self.zone(zone)?;
        Ok(ZoneInfo {
            kind,
            state: zone.state,
            capacity: zone.capacity,
            write_pointer: match zone.state {
                ZoneState::Full => zone.capacity,
                _ => zone.written,
            },
        })
    }

    /// Blocks that can be read from the start of the zone.
    pub fn readable(&self, zone: ZoneId) -> Result<u32> {
        let z = self.zone(zone)?;
        match z.state {
            ZoneState::Full => Ok(z.capacity),
            ZoneState::Offline => Err(bad_state(zone, z.state, "read")),
            _ => Ok(z.written),
        }
    }

    /// Before a write of `blocks` blocks at the write pointer, which must be `block` if that is
    /// given: checks it and opens the zone implicitly. Returns the first block to write.
    pub fn begin_write(&mut self, zone: ZoneId, block: Option<u32>, blocks: u32) -> Result<u32> {
        let z = *self.zone(zone)?;
        if !z.state.is_writable() {
            return Err(bad_state(zone, z.state, "write"));
        }
        if let Some(block) = block
            && block != z.written
        {
            return Err(DeviceError::NotAtWritePointer {
                zone,
                block,
                write_pointer: z.written,
            });
        }
        if blocks > z.capacity.saturating_sub(z.written) {
            return Err(DeviceError::ZoneFull {
                zone,
                block: z.written,
                blocks,
                capacity: z.capacity,
            });
        }
        if !z.state.is_open() {
            self.make_room(zone, z.state)?;
            self.set_state(zone, ZoneState::ImplicitlyOpen)?;
        }
        Ok(z.written)
    }

    /// After the write succeeded: moves the write pointer.
    pub fn end_write(&mut self, zone: ZoneId, blocks: u32) -> Result<()> {
        let z = self.zone_mut(zone)?;
        z.written = z.written.saturating_add(blocks).min(z.capacity);
        z.claimed = z.written;
        if z.written == z.capacity {
            self.set_state(zone, ZoneState::Full)?;
        }
        Ok(())
    }

    /// Before an append of `blocks` blocks that the drive places, others being under way: checks
    /// that all of them fit, and opens the zone implicitly. No write is under way beside appends.
    /// Returns the first block that nobody else has claimed.
    pub fn begin_append(&mut self, zone: ZoneId, blocks: u32) -> Result<u32> {
        let z = *self.zone(zone)?;
        if blocks > z.capacity.saturating_sub(z.claimed) && z.state.is_writable() {
            return Err(DeviceError::ZoneFull {
                zone,
                block: z.claimed,
                blocks,
                capacity: z.capacity,
            });
        }
        self.begin_write(zone, None, blocks)?;
        self.zone_mut(zone)?.claimed += blocks;
        Ok(z.claimed)
    }

    /// After an append landed at `block`.
    pub fn end_append(&mut self, zone: ZoneId, block: u32, blocks: u32) -> Result<()> {
        let z = self.zone_mut(zone)?;
        z.written = z.written.max(block.saturating_add(blocks)).min(z.capacity);
        if z.written == z.capacity {
            self.set_state(zone, ZoneState::Full)?;
        }
        Ok(())
    }

    /// Opens the zone explicitly.
    pub fn open(&mut self, zone: ZoneId) -> Result<()> {
        let state = self.zone(zone)?.state;
        match state {
            ZoneState::ExplicitlyOpen => Ok(()),
            ZoneState::ImplicitlyOpen => self.set_state(zone, ZoneState::ExplicitlyOpen),
            ZoneState::Empty | ZoneState::Closed => {
                self.make_room(zone, state)?;
                self.set_state(zone, ZoneState::ExplicitlyOpen)
            }
            _ => Err(bad_state(zone, state, "open")),
        }
    }

    /// Whether [`ZoneMachine::close`] would succeed.
    pub fn check_close(&self, zone: ZoneId) -> Result<()> {
        match self.zone(zone)?.state {
            ZoneState::Closed => Ok(()),
            state if state.is_open() => Ok(()),
            state => Err(bad_state(zone, state, "close")),
        }
    }

    /// Closes the zone. One with nothing written is empty again.
    pub fn close(&mut self, zone: ZoneId) -> Result<()> {
        self.check_close(zone)?;
        let z = *self.zone(zone)?;
        match z.state {
            ZoneState::Closed => Ok(()),
            _ => self.set_state(zone, closed(z.written)),
        }
    }

    /// Whether [`ZoneMachine::finish`] would succeed.
    pub fn check_finish(&self, zone: ZoneId) -> Result<()> {
        match self.zone(zone)?.state {
            state @ (ZoneState::ReadOnly | ZoneState::Offline) => {
                Err(bad_state(zone, state, "finish"))
            }
            _ => Ok(()),
        }
    }

    /// Makes the zone full. The count of written blocks stays.
    pub fn finish(&mut self, zone: ZoneId) -> Result<()> {
        self.check_finish(zone)?;
        self.set_state(zone, ZoneState::Full)
    }

    /// Whether [`ZoneMachine::reset`] would succeed.
    pub fn check_reset(&self, zone: ZoneId) -> Result<()> {
        match self.zone(zone)?.state {
            state @ (ZoneState::ReadOnly | ZoneState::Offline) => {
                Err(bad_state(zone, state, "reset"))
            }
            _ => Ok(()),
        }
    }

    /// Empties the zone.
    pub fn reset(&mut self, zone: ZoneId) -> Result<()> {
        self.check_reset(zone)?;
        self.set_state(zone, ZoneState::Empty)?;
        let zone = self.zone_mut(zone)?;
        zone.written = 0;
        zone.claimed = 0;
        zone.resets = zone.resets.saturating_add(1);
        Ok(())
    }

    /// Finds open (and, from empty, active) resources for `zone`, closing the implicitly open zone
    /// that was opened longest ago if need be, as controllers may.
    fn make_room(&mut self, zone: ZoneId, state: ZoneState) -> Result<()> {
        if let Some(limit) = self.max_active
            && state == ZoneState::Empty
            && self.active >= limit
        {
            return Err(DeviceError::TooManyActive { zone, limit });
        }
        if let Some(limit) = self.max_open
            && self.open >= limit
        {
            let Some(victim) = self.implicit.front().copied().map(ZoneId) else {
                return Err(DeviceError::TooManyOpen { zone, limit });
            };
            // Never to empty: its first write may be under way.
            self.set_state(victim, ZoneState::Closed)?;
        }
        Ok(())
    }

    fn set_state(&mut self, zone: ZoneId, to: ZoneState) -> Result<()> {
        let known = *self.zone(zone)?;
        let from = known.state;
        let now = Zone { state: to, ..known };
        self.zones.set(zone.0 as usize, now);
        self.open = self.open + u32::from(to.is_open()) - u32::from(from.is_open());
        self.active = self.active + u32::from(to.is_active()) - u32::from(from.is_active());
        if self.max_open.is_some() {
            if from == ZoneState::ImplicitlyOpen {
                self.implicit.retain(|other| *other != zone.0);
            }
            if to == ZoneState::ImplicitlyOpen {
                self.implicit.push_back(zone.0);
            }
        }
        Ok(())
    }

    fn zone(&self, zone: ZoneId) -> Result<&Zone> {
        self.zones
            .get(zone.0 as usize)
            .ok_or_else(|| no_such_zone(zone, self.zone_count()))
    }

    fn zone_mut(&mut self, zone: ZoneId) -> Result<&mut Zone> {
        let count = self.zone_count();
        self.zones
            .get_mut(zone.0 as usize)
            .ok_or_else(|| no_such_zone(zone, count))
    }
}

fn closed(written: u32) -> ZoneState {
    if written == 0 {
        ZoneState::Empty
    } else {
        ZoneState::Closed
    }
}

fn bad_state(zone: ZoneId, state: ZoneState, operation: &'static str) -> DeviceError {
    DeviceError::BadState {
        zone,
        state,
        operation,
    }
}

fn no_such_zone(zone: ZoneId, count: u32) -> DeviceError {
    DeviceError::NoSuchZone { zone, count }
}
