//! What users write finds a place: room for it is won where there is none.

use super::Reclaimer;
use crate::error::Result;
use crate::placement::{Lack, Places, Placing, ToPlace};
use crate::zones::{Run, Stream};

impl Reclaimer {
    /// Places runs, and wins room where zones run out, if that may be. After an error some may have found a place.
    pub(crate) fn place(
        &self,
        stream: Stream,
        placing: Placing<'_>,
        runs: Vec<Run>,
        places: &mut Places,
    ) -> Result<()> {
        if placing.makes_room() {
            self.throttle(runs.iter().map(|run| u64::from(run.data.blocks())).sum());
        }
        let mut to_place = ToPlace::new(runs);
        loop {
            match self
                .placement
                .place(stream, placing, &mut to_place, places)?
            {
                Lack::Nothing => return Ok(()),
                Lack::HostSpace(_) if self.free_for_host() => {}
                Lack::HostSpace(error) => return Err(self.placement.why_no_writer(placing, error)),
                Lack::Room => match self.make_room() {
                    Err(error) if error.is_want_of_zones() => to_place.give_up_on_room(),
                    other => other?,
                },
            }
        }
    }
}
