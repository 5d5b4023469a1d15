//! A device whose zones are used in stripe sets: each set looks like one zone, and none of its zones can take anything along that
//! was acknowledged. With one column a set is a mirror; with more, one zone holds the parity of the others.
//!
//! Everything above sees ordinary zones that are larger and fewer, and may be read in spite of a zone that is lost. What remains
//! visible of it: a write to a set for data covers whole rows ([`crate::geometry::Stripes::columns`]), there are no appends, and
//! what the checksums above refuse can be asked for as the others of its row have it ([`ZonedDevice::read_without`]).
//!
//! A write is over when it is in all zones of its set. So after a crash what one zone lacks was not acknowledged; opening for
//! writing fills it up ([`level`]). A set of which one zone has failed is read-only: what is in it is moved elsewhere and the set
//! is not used again. A set of which two are lost is lost.

mod grow;
mod label;
mod layout;
mod level;
mod read;
mod state;
mod write;

use std::ops::Range;
use std::sync::Arc;

pub(crate) use grow::{grow, grown};
pub use label::{check_unmarked, create, label, open};

use crate::geometry::Stripes;
use crate::{
    Buffer, Command, Completion, DeviceError, DeviceIdentity, Geometry, Pending, Result, ZoneId,
    ZoneInfo, ZonedDevice,
};
use layout::{Layout, Set};

/// A device in stripe sets.
#[derive(Debug)]
pub struct Striped<D> {
    below: Arc<D>,
    layout: Layout,
    geometry: Geometry,
}

/// What a device looks like in stripe sets.
#[must_use]
pub fn geometry_of(below: &Geometry, stripes: Stripes) -> Geometry {
    Layout::of(stripes, below.zone_count).geometry(below)
}

/// The zones of a set of a device in stripe sets, that with the parity last.
#[must_use]
pub fn zones_of(below: &Geometry, stripes: Stripes, set: ZoneId) -> Option<Range<u32>> {
    let layout = Layout::of(stripes, below.zone_count);
    layout.set(set).map(|set| set.zones())
}

/// Capacity of a set for data whose zones have the capacity `zone_capacity`, both in blocks.
#[must_use]
pub fn capacity_of(zone_capacity: u32, stripes: Stripes) -> u32 {
    layout::blocks_of(zone_capacity, stripes.columns)
}

impl<D: ZonedDevice + 'static> Striped<D> {
    /// Takes a device in stripe sets. `for_writing`: what a crash left uneven is evened.
    ///
    /// # Errors
    /// It has too few zones, or fails.
    pub fn new(below: Arc<D>, stripes: Stripes, for_writing: bool) -> Result<Striped<D>> {
        let zones = below.geometry().zone_count;
        Striped::of_first(below, zones, stripes, for_writing)
    }

    /// The same of the first so many zones, those of the label included.
    ///
    /// # Errors
    /// As of [`Striped::new`].
    pub fn of_first(
        below: Arc<D>,
        zones: u32,
        stripes: Stripes,
        for_writing: bool,
    ) -> Result<Striped<D>> {
        let layout = Layout::of(stripes, zones);
        if layout.sets == 0 {
            return Err(DeviceError::Open {
                path: "the device".to_owned(),
                message: "has too few zones for a stripe set".to_owned(),
                os_error: None,
            });
        }
        let striped = Striped {
            geometry: layout.geometry(below.geometry()),
            layout,
            below,
        };
        if for_writing {
            striped.level()?;
        }
        Ok(striped)
    }

    /// The device below.
    pub fn below(&self) -> &Arc<D> {
        &self.below
    }

    fn level(&self) -> Result<()> {
        let all = self.below.report(0..self.below.geometry().zone_count)?;
        let mut rows = 0;
        for set in self.layout.all() {
            match level::level(&*self.below, set, members(&set, &all, 0)) {
                Ok(of_set) => rows += of_set,
                Err(DeviceError::Gone) => return Err(DeviceError::Gone),
                Err(error) => {
                    // It takes no more, and who looks at its rows sees that they do not agree.
                    tracing::warn!(set = set.zone.0, %error, "a stripe set stays as a crash left it");
                    let finished = self.run(Command::Finish { zone: set.zone });
                    if let Err(DeviceError::Gone) = finished {
                        return Err(DeviceError::Gone);
                    }
                }
            }
        }
        if rows > 0 {
            tracing::info!(rows, "rows that a crash left incomplete are filled up");
            self.below.flush()?;
        }
        Ok(())
    }

    fn set(&self, zone: ZoneId) -> Result<Set> {
        let count = self.layout.sets;
        let set = self.layout.set(zone);
        set.ok_or(DeviceError::NoSuchZone { zone, count })
    }

    /// Sends a command to all zones of a set.
    fn to_all(&self, set: Set, command: impl Fn(ZoneId) -> Command) -> Pending {
        let zones = set.zones().map(ZoneId);
        let pending = zones.map(|zone| self.below.submit(command(zone)));
        write::all(set, pending.collect())
    }

    /// Opens all zones of a set, or none: those that were opened before one that cannot be are closed again.
    fn open(&self, set: Set) -> Result<Completion> {
        for zone in set.zones() {
            let opened = self.below.run(Command::Open { zone: ZoneId(zone) });
            if let Err(error) = opened {
                for zone in (set.zones().start..zone).map(ZoneId) {
                    let _ = self.below.run(Command::Close { zone });
                }
                return Err(of_member(error, set));
            }
        }
        Ok(Completion::Done)
    }

    fn start(&self, command: Command) -> Result<Pending> {
        Ok(match command {
            Command::Read {
                zone,
                block,
                blocks,
            } => {
                let set = self.set(zone)?;
                self.check_read(set, block, blocks)?;
                read::start(&self.below, set, block, blocks)
            }
            Command::Write { zone, block, data } => {
                write::start(&*self.below, self.set(zone)?, block, data)
            }
            Command::Append { zone, .. } => {
                let zone = self.set(zone)?.zone;
                return Err(DeviceError::NoAppends { zone });
            }
            Command::Reset {
                zone,
                keep_allocated,
            } => self.to_all(self.set(zone)?, |zone| Command::Reset {
                zone,
                keep_allocated,
            }),
            Command::Finish { zone } => {
                self.to_all(self.set(zone)?, |zone| Command::Finish { zone })
            }
            Command::Open { zone } => Pending::ready(self.open(self.set(zone)?)),
            Command::Close { zone } => self.to_all(self.set(zone)?, |zone| Command::Close { zone }),
            command @ (Command::Record | Command::Flush) => self.below.submit(command),
        })
    }

    /// Refuses what no set has, whatever is written of it.
    fn check_read(&self, set: Set, block: u32, blocks: u32) -> Result<()> {
        let limit = self.geometry.max_transfer_blocks;
        if !(1..=limit).contains(&blocks) {
            return Err(DeviceError::TransferSize { blocks, limit });
        }
        let end = block.saturating_add(blocks);
        if end > self.geometry.zone_blocks {
            let report = self.report(set.zone.0..set.zone.0 + 1)?;
            let limit = report.first().map_or(0, |zone| zone.write_pointer);
            return Err(DeviceError::ReadPastEnd {
                zone: set.zone,
                block,
                end,
                limit,
            });
        }
        Ok(())
    }
}

impl<D: ZonedDevice + 'static> ZonedDevice for Striped<D> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let (Some(first), Some(last)) = (zones.clone().next(), zones.clone().next_back()) else {
            return Ok(Vec::new());
        };
        let (first, last) = (self.set(ZoneId(first))?, self.set(ZoneId(last))?);
        let start = first.zones().start;
        let below = self.below.report(start..last.zones().end)?;
        let sets = zones.filter_map(|zone| self.layout.set(ZoneId(zone)));
        Ok(sets
            .map(|set| state::of_set(&set, members(&set, &below, start)))
            .collect())
    }

    fn submit(&self, command: Command) -> Pending {
        match self.start(command) {
            Ok(pending) => {
                let (max_open, max_active) = (self.geometry.max_open, self.geometry.max_active);
                pending.map_err(move |error| limited(error, max_open, max_active))
            }
            Err(error) => Pending::ready(Err(error)),
        }
    }

    fn read_without(
        &self,
        zone: ZoneId,
        block: u32,
        blocks: u32,
        attempt: u32,
    ) -> Option<Result<Buffer>> {
        let set = self.layout.set(zone)?;
        read::without(&*self.below, set, block, blocks, attempt)
    }

    fn rows_agree(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<bool> {
        read::rows_agree(&*self.below, self.set(zone)?, block, blocks)
    }

    fn resets_at_once(&self) -> usize {
        self.below.resets_at_once()
    }

    fn space_is_hosts(&self) -> bool {
        self.below.space_is_hosts()
    }

    fn identity(&self) -> Option<DeviceIdentity> {
        self.below.identity()
    }
}

/// What a report that begins with zone `start` says of the zones of a set.
fn members<'r>(set: &Set, report: &'r [ZoneInfo], start: u32) -> &'r [ZoneInfo] {
    let zones = set.zones();
    let places =
        zones.start.saturating_sub(start) as usize..zones.end.saturating_sub(start) as usize;
    report.get(places).unwrap_or_default()
}

/// An error by the limits of the device below, in those of this one.
fn limited(mut error: DeviceError, max_open: Option<u32>, max_active: Option<u32>) -> DeviceError {
    match &mut error {
        DeviceError::TooManyOpen { limit, .. } => *limit = max_open.unwrap_or(*limit),
        DeviceError::TooManyActive { limit, .. } => *limit = max_active.unwrap_or(*limit),
        _ => {}
    }
    error
}

/// An error of a zone of a set, as one of the set.
fn of_member(mut error: DeviceError, set: Set) -> DeviceError {
    match &mut error {
        DeviceError::Io { zone, block, .. } => {
            *zone = set.zone;
            *block = set.blocks(*block);
        }
        DeviceError::NotAtWritePointer {
            zone,
            block,
            write_pointer,
        } => {
            *zone = set.zone;
            (*block, *write_pointer) = (set.blocks(*block), set.blocks(*write_pointer));
        }
        DeviceError::ReadPastEnd {
            zone,
            block,
            end,
            limit,
        } => {
            *zone = set.zone;
            (*block, *end, *limit) = (set.blocks(*block), set.blocks(*end), set.blocks(*limit));
        }
        DeviceError::ZoneFull {
            zone,
            block,
            blocks,
            capacity,
        } => {
            *zone = set.zone;
            (*block, *capacity) = (set.blocks(*block), set.blocks(*capacity));
            *blocks = blocks.saturating_mul(set.columns);
        }
        DeviceError::BadState { zone, .. }
        | DeviceError::TooManyOpen { zone, .. }
        | DeviceError::TooManyActive { zone, .. } => *zone = set.zone,
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests;
