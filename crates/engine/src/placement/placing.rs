//! Runs of blocks into zones: which writer a stream gets, and what is done where there is none.

use std::sync::Arc;

use persimmon_device::DeviceError;

use super::Placement;
use crate::error::{Error, Result};
use crate::in_flight::InFlight;
use crate::invariant::invariant;
use crate::space::Work;
use crate::statistics::Class;
use crate::zones::table::{NoWriter, Shortage};
use crate::zones::writer::ZoneWriter;
use crate::zones::{Pin, Placed, Run, Stream, Tries};

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
}

impl Placing<'_> {
    fn class(self) -> Class {
        match self {
            Placing::OfUsers(_) | Placing::Rewrite | Placing::Packed => Class::Data,
            Placing::Moved => Class::CleanedData,
        }
    }

    pub(crate) fn makes_room(self) -> bool {
        matches!(self, Placing::OfUsers(_))
    }

    /// Whether it is new data, which leaves the last zones of a volume of few large ones to others.
    fn is_new(self) -> bool {
        matches!(self, Placing::OfUsers(_) | Placing::Packed)
    }

    /// Whether it leaves the zone being filled to cleaning, where that has no other.
    fn can_stay(self) -> bool {
        matches!(self, Placing::Packed)
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

/// What keeps runs from being placed, and may be won.
pub(crate) enum Lack {
    /// All of them are placed.
    Nothing,
    /// No zone may be taken for them.
    Room,
    /// The host below the device has no space for one more zone.
    HostSpace(Error),
}

/// Runs that are to be placed, and how that goes.
pub(crate) struct ToPlace {
    /// The next one last.
    runs: Vec<Run>,
    tries: Tries,
    /// No room can be won for them.
    is_hopeless: bool,
}

impl ToPlace {
    pub(crate) fn new(mut runs: Vec<Run>) -> ToPlace {
        runs.reverse();
        ToPlace {
            runs,
            tries: Tries::default(),
            is_hopeless: false,
        }
    }

    /// From now on they take what there is.
    pub(crate) fn give_up_on_room(&mut self) {
        self.is_hopeless = true;
    }
}

impl Placement {
    /// Places runs in their order. Where there is no zone for those that room is made for, it says what they lack, and goes on with the
    /// same runs when called again. After an error some may have found a place.
    pub(crate) fn place(
        &self,
        stream: Stream,
        placing: Placing<'_>,
        to_place: &mut ToPlace,
        places: &mut Places,
    ) -> Result<Lack> {
        let (class, in_flight) = (placing.class(), placing.in_flight());
        while !to_place.runs.is_empty() {
            let found = self.writer_for(stream, placing, to_place.is_hopeless);
            let (mut writer, blocks_max) = match found {
                Ok(Found::Writer(writer, blocks_max)) => (writer, blocks_max),
                Ok(Found::LookAgain) => continue,
                Ok(Found::Lack(lack)) => return Ok(lack),
                Err(error) => return Err(self.why_no_writer(placing, error)),
            };
            let ToPlace { runs, tries, .. } = &mut *to_place;
            if !writer.is_ready(in_flight.is_none()) {
                tracing::warn!(
                    zone = writer.zone.0,
                    "a zone is left: earlier data failed in it"
                );
                self.store.zones.check_in(&self.store.media, writer);
                continue;
            }
            places
                .pins
                .extend(self.store.zones.pin_filling(writer.zone));
            if writer.write_pointer == 1 {
                self.tell_zone_taken();
            }
            let zone = writer.zone;
            let is_new = writer.write_pointer == 1;
            let blocks = |runs: &[Run]| -> u64 { runs.iter().map(Run::file_blocks).sum() };
            let all = blocks(runs);
            let later = set_apart(runs, blocks_max);
            invariant!(
                self.store.media.alarm,
                blocks(runs) + blocks(&later) == all,
                "{all} blocks are placed, {} now and {} later",
                blocks(runs),
                blocks(&later)
            );
            let result = writer.place(&self.store.media, &self.store.key, class, runs, in_flight);
            runs.splice(0..0, later);
            match result {
                Ok(placed) => {
                    self.store.zones.check_in(&self.store.media, writer);
                    if !placed.is_empty() {
                        tries.succeeded();
                        // What is under way may fail yet.
                        if in_flight.is_none() {
                            self.store.zones.note_failing(None);
                            self.store.zones.note_host_has_space();
                        }
                    }
                    places.placed.extend(placed);
                }
                Err(error) => {
                    tracing::warn!(zone = zone.0, %error, "data zone failed");
                    let error = error.into();
                    if is_new && writer.is_ending {
                        // It is pinned once by this call, and by nobody else.
                        places.pins.pop();
                        let zones = &self.store.zones;
                        zones.check_in_failed(&self.store.media, writer, &error);
                    } else {
                        self.store.zones.check_in(&self.store.media, writer);
                    }
                    tries.failed(&self.store.zones, zone, error)?;
                }
            }
        }
        Ok(Lack::Nothing)
    }

    /// Places runs in the zones that there are for them. After an error some may have found a place.
    pub(crate) fn place_now(
        &self,
        stream: Stream,
        placing: Placing<'_>,
        runs: Vec<Run>,
        places: &mut Places,
    ) -> Result<()> {
        match self.place(stream, placing, &mut ToPlace::new(runs), places)? {
            Lack::Nothing => Ok(()),
            Lack::Room => Err(Error::NoSpace),
            Lack::HostSpace(error) => Err(error),
        }
    }

    /// What has room set aside finds none where the device takes no writes: each that fails uses up a zone.
    pub(crate) fn why_no_writer(&self, placing: Placing<'_>, error: Error) -> Error {
        let has_room = matches!(placing, Placing::OfUsers(_) | Placing::Rewrite);
        match error {
            error if has_room && error.is_want_of_zones() => {
                let failing = self.store.zones.failing();
                failing.unwrap_or_else(|| self.store.zones.want_of_zones())
            }
            error => error,
        }
    }

    /// A writer for a stream, and how many blocks may be placed with it. Once winning room is known to be `hopeless` any will do.
    fn writer_for(&self, stream: Stream, placing: Placing<'_>, hopeless: bool) -> Result<Found> {
        let reserve = self.space.leaves(match placing {
            Placing::OfUsers(_) | Placing::Packed => Work::Data,
            Placing::Rewrite => Work::Rewritten,
            Placing::Moved => Work::Moved,
        });
        let shortage = if hopeless || !placing.makes_room() {
            Shortage::Share
        } else {
            Shortage::Tell
        };
        if placing.can_stay() && self.store.zones.leaves_to_cleaning(stream, reserve) {
            return Err(Error::NoSpace);
        }
        let seen = self.store.zones.resets_ended();
        let in_low_space = placing.is_new() && self.store.zones.in_low_space();
        let checked_out = if in_low_space {
            self.store
                .zones
                .checkout_in_low_space(&self.store.media, stream, reserve)
        } else {
            let writer = self
                .store
                .zones
                .checkout(&self.store.media, stream, reserve, shortage);
            writer.map(|writer| (writer, u64::MAX))
        };
        match checked_out {
            Ok((writer, blocks_max)) => return Ok(Found::Writer(writer, blocks_max)),
            Err(NoWriter::Failed(error @ Error::Device(DeviceError::HostFull)))
                if placing.makes_room() =>
            {
                return Ok(Found::Lack(Lack::HostSpace(error)));
            }
            Err(NoWriter::Failed(error)) => return Err(error),
            Err(NoWriter::NeedRoom) => {}
        }
        if matches!(placing, Placing::Rewrite)
            && self.store.zones.complete_a_reset(&self.store.media, seen)
        {
            // It is this or none, and waiting for resets takes the device alone.
            return Ok(Found::LookAgain);
        }
        if !placing.makes_room() {
            return Err(Error::NoSpace);
        }
        if !hopeless {
            return Ok(Found::Lack(Lack::Room));
        }
        if in_low_space {
            return Err(Error::NoSpace);
        }
        // There may be room in zones that are reserved for others.
        let writer = self.store.zones.checkout_any_data().ok_or(Error::NoSpace)?;
        Ok(Found::Writer(writer, u64::MAX))
    }
}

/// What [`Placement::writer_for`] found.
enum Found {
    Writer(ZoneWriter, u64),
    /// Something was done for room.
    LookAgain,
    Lack(Lack),
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
    let is_alone = runs.len() == 1;
    if blocks > blocks_max
        && let Some(run) = runs.first_mut()
    {
        let keeps = u64::from(run.data.blocks()) - (blocks - blocks_max);
        match run.cut_at_most(keeps as u32) {
            // A compressed frame is not cut. It goes behind the others, or alone.
            0 if is_alone => later.extend(run.split_first()),
            0 => later.push(runs.remove(0)),
            keeps => later.push(run.split_off(keeps)),
        }
    }
    later
}
