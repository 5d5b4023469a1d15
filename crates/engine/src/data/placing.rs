//! Runs of blocks into zones: which writer a stream gets, and what is done where there is none.

use std::sync::Arc;

use persimmon_device::DeviceError;

use crate::Volume;
use crate::error::{Error, Result};
use crate::in_flight::InFlight;
use crate::invariant::invariant;
use crate::statistics::Class;
use crate::zones::table::{NoWriter, Shortage};
use crate::zones::writer::ZoneWriter;
use crate::zones::{DeviceKind, Pin, Placed, Reserve, Run, Stream, Tries};

/// What is placed: that decides which free zones it leaves alone, and whether it waits for others.
#[derive(Clone, Copy)]
pub(crate) enum Placing<'a> {
    /// What users wrote. Room is made for it by cleaning. It goes out in writes that are added to this, else in appends that are complete on return.
    OfUsers(Option<&'a Arc<InFlight>>),
    /// A rewrite of data that failed. Checkpoints wait for it, so it waits neither for a checkpoint nor for cleaning, which ends in one.
    Rewrite,
    /// Compressed blocks that lie in the tree. They can stay there: no room is made for them.
    Packed,
    /// Live blocks of a victim. Cleaning must not wait for cleaning.
    Moved,
    /// Packed extents of a victim, packed again.
    PackedMoved,
}

impl Placing<'_> {
    fn class(self) -> Class {
        match self {
            Placing::OfUsers(_) | Placing::Rewrite | Placing::Packed => Class::Data,
            Placing::Moved | Placing::PackedMoved => Class::CleanedData,
        }
    }

    fn makes_room(self) -> bool {
        matches!(self, Placing::OfUsers(_))
    }

    /// Whether it is new data, which leaves the last zones of a volume of few large ones to others.
    fn is_new(self) -> bool {
        matches!(self, Placing::OfUsers(_) | Placing::Packed)
    }

    /// Whether it leaves the zone being filled to cleaning, where that has no other.
    fn can_stay(self) -> bool {
        matches!(self, Placing::Packed | Placing::PackedMoved)
    }

    fn in_flight(&self) -> Option<&Arc<InFlight>> {
        match self {
            Placing::OfUsers(in_flight) => *in_flight,
            _ => None,
        }
    }
}

/// Where runs came to lie.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) placed: Vec<Placed>,
    /// The zones stay as they are until the tree names them.
    pins: Vec<Pin>,
}

impl Volume {
    /// Places runs in their order, cleaning where zones run out, if that may be. After an error some may have found a place.
    pub(crate) fn place(
        &self,
        stream: Stream,
        placing: Placing<'_>,
        mut runs: Vec<Run>,
        places: &mut Places,
    ) -> Result<()> {
        let mut tries = Tries::default();
        let mut hopeless = false;
        let (class, in_flight) = (placing.class(), placing.in_flight());
        if placing.makes_room() {
            self.throttle(runs.iter().map(|run| u64::from(run.data.blocks())).sum());
        }
        // Taken from the end, one after the other.
        runs.reverse();
        while !runs.is_empty() {
            let found = self.writer_for(stream, placing, &mut hopeless);
            let found = found.map_err(|error| self.why_no_writer(placing, error))?;
            let Some((mut writer, blocks_max)) = found else {
                continue;
            };
            if !writer.is_ready(in_flight.is_none()) {
                tracing::warn!(
                    zone = writer.zone.0,
                    "a zone is left: earlier data failed in it"
                );
                self.zones.check_in(&self.media, writer);
                continue;
            }
            places.pins.extend(self.zones.pin_filling(writer.zone));
            if writer.write_pointer == 1 {
                self.tell_zone_taken();
            }
            let zone = writer.zone;
            let blocks =
                |runs: &[Run]| -> u64 { runs.iter().map(|run| u64::from(run.data.blocks())).sum() };
            let all = blocks(&runs);
            let later = set_apart(&mut runs, blocks_max);
            invariant!(
                self.media.alarm,
                blocks(&runs) + blocks(&later) == all,
                "{all} blocks are placed, {} now and {} later",
                blocks(&runs),
                blocks(&later)
            );
            let result = writer.place(&self.media, &self.key, class, &mut runs, in_flight);
            runs.splice(0..0, later);
            self.zones.check_in(&self.media, writer);
            match result {
                Ok(placed) => {
                    if !placed.is_empty() {
                        tries.succeeded();
                        // What is under way may fail yet.
                        if in_flight.is_none() {
                            self.zones.note_failing(None);
                        }
                    }
                    places.placed.extend(placed);
                }
                Err(error) => {
                    tracing::warn!(zone = zone.0, %error, "data zone failed");
                    tries.failed(&self.zones, zone, error.into())?;
                }
            }
        }
        Ok(())
    }

    /// What has room set aside finds none where the device takes no writes: each that fails uses up a zone.
    fn why_no_writer(&self, placing: Placing<'_>, error: Error) -> Error {
        let has_room = matches!(placing, Placing::OfUsers(_) | Placing::Rewrite);
        match error {
            error if has_room && error.is_want_of_zones() => {
                let failing = self.zones.failing();
                failing.unwrap_or_else(|| self.zones.want_of_zones())
            }
            error => error,
        }
    }

    /// A writer for a stream, and how many blocks may be placed with it; nothing if it is worth another look, for something was done
    /// for room. Once cleaning is known to be `hopeless` it is tried no more.
    fn writer_for(
        &self,
        stream: Stream,
        placing: Placing<'_>,
        hopeless: &mut bool,
    ) -> Result<Option<(ZoneWriter, u64)>> {
        let reserve = match placing {
            Placing::OfUsers(_) | Placing::Packed => self.low_watermark(DeviceKind::Data),
            Placing::Rewrite => self.rewrite_reserve(),
            Placing::Moved | Placing::PackedMoved => self.cleaning_reserve(DeviceKind::Data),
        };
        let shortage = if *hopeless || !placing.makes_room() {
            Shortage::Share
        } else {
            Shortage::Tell
        };
        if placing.can_stay() && self.zones.leaves_to_cleaning(stream, reserve) {
            return Err(Error::NoSpace);
        }
        let seen = self.zones.resets_ended();
        let in_low_space = placing.is_new() && self.zones.in_low_space();
        let checked_out = if in_low_space {
            self.zones.checkout_in_low_space(&self.media, stream)
        } else {
            let writer =
                self.zones
                    .checkout(&self.media, stream, Reserve::Zones(reserve), shortage);
            writer.map(|writer| (writer, u64::MAX))
        };
        match checked_out {
            Ok(found) => return Ok(Some(found)),
            Err(NoWriter::Failed(Error::Device(DeviceError::HostFull)))
                if placing.makes_room() && self.free_for_host() =>
            {
                return Ok(None);
            }
            Err(NoWriter::Failed(error)) => return Err(error),
            Err(NoWriter::NeedRoom) => {}
        }
        if matches!(placing, Placing::Rewrite) && self.zones.complete_a_reset(&self.media, seen) {
            // It is this or none, and waiting for resets takes the device alone.
            return Ok(None);
        }
        if !placing.makes_room() {
            return Err(Error::NoSpace);
        }
        if !*hopeless {
            match self.make_room() {
                Err(error) if error.is_want_of_zones() => *hopeless = true,
                other => other?,
            }
            return Ok(None);
        }
        if in_low_space {
            return Err(Error::NoSpace);
        }
        // There may be room in zones that are reserved for others.
        let writer = self.zones.checkout_any_data().ok_or(Error::NoSpace)?;
        Ok(Some((writer, u64::MAX)))
    }
}

/// Takes away all but the first `blocks_max` blocks of runs, which are in reverse order, and more where a run cannot be cut.
fn set_apart(runs: &mut Vec<Run>, blocks_max: u64) -> Vec<Run> {
    let mut blocks = 0;
    let mut at = runs.len();
    while at > 0 && blocks < blocks_max {
        at -= 1;
        blocks += runs.get(at).map_or(0, |run| u64::from(run.data.blocks()));
    }
    let mut later: Vec<Run> = runs.drain(..at).collect();
    if blocks > blocks_max
        && let Some(run) = runs.first_mut().filter(|run| run.packed.is_empty())
    {
        let keeps = u64::from(run.data.blocks()) - (blocks - blocks_max);
        later.push(run.split_off(keeps as u32));
    }
    later
}
