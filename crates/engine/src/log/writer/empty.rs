//! Blocks of no records: what they say in their headers, and the room that they take.

use persimmon_sync::MutexGuard;

use super::{Inner, Log};
use crate::error::Result;
use crate::invariant::invariant;
use crate::log::cut::Slice;
use crate::media::Media;
use crate::zones::Zones;

impl Log {
    /// Tells the log on the device how far it is durable, by an empty block. From then on damage
    /// to what was acknowledged cannot pass for writes that a crash cut off.
    pub(crate) fn tell_durable(&self, media: &Media, zones: &Zones) -> Result<()> {
        let mut inner = self.wait_for_leader()?;
        invariant!(
            self.alarm,
            inner.durable <= inner.sent,
            "records up to {} are durable, and {} are sent",
            inner.durable,
            inner.sent
        );
        if inner.durable_on_device >= inner.durable {
            return Ok(());
        }
        // A recovery may have begun with less than it found.
        inner.state.durable = inner.durable;
        self.write_empty_block(inner, media, zones)
    }

    /// From the next block on, blocks say that this opening has written them.
    pub(crate) fn begin_opening(&self, number: u32) {
        self.lock().state.opening = number;
    }

    /// Has the log on the device say which opening has the volume, by an empty block.
    pub(crate) fn tell_opening(&self, media: &Media, zones: &Zones) -> Result<()> {
        let inner = self.wait_for_leader()?;
        if inner.opening_on_device == inner.state.opening {
            return Ok(());
        }
        self.write_empty_block(inner, media, zones)
    }

    /// Begins a new epoch: writes a block that invalidates every record of earlier epochs after
    /// `resume_after`, in a fresh zone where the old one cannot be gone on with.
    pub(crate) fn begin_epoch(&self, media: &Media, zones: &Zones) -> Result<()> {
        let inner = self.wait_for_leader()?;
        self.write_empty_block(inner, media, zones)
    }

    /// Leaves the zone that the log goes on in, if there is less room in it: it is filled with empty blocks.
    pub(crate) fn fill_zone(&self, media: &Media, zones: &Zones, room: u32) -> Result<()> {
        let inner = self.wait_for_leader()?;
        if inner.head.is_none_or(|head| head.room() >= room) {
            return Ok(());
        }
        let (state, next_lsn) = (inner.state, inner.next_to_send());
        let (mut inner, result) =
            self.lead(inner, media, zones, |run| run.fill_zone(state, next_lsn));
        result.inspect_err(|error| inner.fail(error))
    }

    /// Writes a block of no records, for the state in its header, and makes it durable.
    fn write_empty_block(
        &self,
        inner: MutexGuard<'_, Inner>,
        media: &Media,
        zones: &Zones,
    ) -> Result<()> {
        let (state, next_lsn) = (inner.state, inner.next_to_send());
        let (mut inner, result) = self.lead(inner, media, zones, |run| {
            run.write_journal(&mut &[Slice::empty(next_lsn)][..], &[], state)?;
            media.flush()
        });
        match &result {
            Ok(()) => {
                (inner.durable_on_device, inner.opening_on_device) = (state.durable, state.opening)
            }
            Err(error) => inner.fail(error),
        }
        result
    }
}
