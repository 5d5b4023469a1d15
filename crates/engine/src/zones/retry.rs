//! Going on elsewhere when writing to a zone fails.
//!
//! Whoever holds a zone's writer leaves the zone: it waits for what is under way there, whoever
//! sent it, and finishes the zone, whose slot the device counts until then. Nobody finishes a zone
//! whose writer is another's.

use persimmon_device::{DeviceError, ZoneId};
use persimmon_format::packed::PackUnits;
use persimmon_sync::atomic::Ordering;

use super::trace::ZoneEvent;
use super::writer::ZoneWriter;
use super::{Stream, Zones};
use crate::error::{Error, Result};
use crate::media::Media;

/// Zones tried in a row.
const ZONES_TRIED: u32 = 4;

/// Tries of one zone after the other.
#[derive(Debug, Default)]
pub(crate) struct Tries {
    failures: u32,
}

impl Tries {
    /// A zone was left because of `error`, which comes back if another is not to be tried.
    pub(crate) fn failed(&mut self, zones: &Zones, zone: ZoneId, error: Error) -> Result<()> {
        // On a full host others fare no better.
        if error.passes() {
            zones.note_host(&error);
            return Err(error);
        }
        // A zone that has failed for good says nothing of the others. They are finitely many.
        if zones.has_failed(zone) {
            return Ok(());
        }
        zones.note_failing(Some(&error));
        self.failures += 1;
        if self.failures < ZONES_TRIED {
            Ok(())
        } else {
            Err(error)
        }
    }

    /// A zone took what was written to it.
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }
}

impl Zones {
    /// How the last write to a zone that was not to fail went. Each that fails takes a zone with it until the next
    /// checkpoint: when none is left, the device is why.
    pub(crate) fn note_failing(&self, error: Option<&Error>) {
        if error.is_some() || self.is_failing.load(Ordering::Relaxed) {
            let mut failing = self.failing.lock();
            self.is_failing.store(error.is_some(), Ordering::Relaxed);
            *failing = error.cloned();
        }
        if let Some(error) = error {
            self.note_host(error);
        }
    }

    fn note_host(&self, error: &Error) {
        if matches!(error, Error::Device(DeviceError::HostFull)) {
            self.host_is_full.store(true, Ordering::Relaxed);
        }
    }

    /// The host below the device has had space for file data.
    pub(crate) fn note_host_has_space(&self) {
        if self.host_is_full() {
            self.host_is_full.store(false, Ordering::Relaxed);
        }
    }

    /// Whether something could not be written for want of space on the host, and no file data has been since.
    pub(crate) fn host_is_full(&self) -> bool {
        self.host_is_full.load(Ordering::Relaxed)
    }

    /// Why the device takes no writes, if it does not.
    pub(crate) fn failing(&self) -> Option<Error> {
        self.failing.lock().clone()
    }

    /// Nothing more is written to a zone, and nothing is under way there: the device is to count
    /// it no more. A zone that cannot even be finished is worn out for the device, too.
    pub(crate) fn end(&self, media: &Media, zone: ZoneId) {
        if let Err(error) = media.finish(zone) {
            tracing::warn!(zone = zone.0, %error, "zone could not be finished");
        }
        self.examine(media);
    }

    /// A zone was taken into use, by a writer of a stream or for the log, and the host has no space
    /// for it: it is free again.
    pub(super) fn put_back(&self, media: &Media, zone: ZoneId, stream: Option<Stream>) {
        media.close(zone);
        self.free_again(media, zone, stream, false);
    }

    fn free_again(&self, media: &Media, zone: ZoneId, stream: Option<Stream>, was_reset: bool) {
        let partner = self.pairs.separate(zone);
        let mut table = self.lock();
        if let Some(stream) = stream {
            table.writer_is_back(stream);
        }
        for zone in std::iter::once(zone).chain(partner) {
            table.mark_free(zone, &self.budget, was_reset);
            // The host may have set some of it aside.
            if media.space_is_hosts() && !was_reset {
                table.keep_space(zone);
            }
        }
        if let Some(stream) = stream {
            table.forget_begun(stream);
            table.untake(stream, &self.budget);
        }
        drop(table);
        self.returned.notify_all();
    }

    /// The same where something was sent to the zone that is in no record, and the host has no space for it: it is reset. Else each try
    /// on a full host would use up a zone. False if it cannot be.
    pub(super) fn put_back_reset(
        &self,
        media: &Media,
        zone: ZoneId,
        stream: Option<Stream>,
    ) -> bool {
        let both = || self.pairs.both(zone);
        let is_unused = |zone| {
            self.valid(zone) == PackUnits::ZERO
                && !self.pins.is_filled(zone)
                && !self.has_failed(zone)
        };
        if !both().all(is_unused) || both().any(|zone| media.reset(zone, false).is_err()) {
            return false;
        }
        for zone in both() {
            self.pins.note_reset(zone);
            self.trace.push(ZoneEvent::Reset { zone });
        }
        self.free_again(media, zone, stream, true);
        true
    }

    /// Gives back the writer of a zone in which nothing is but what was just sent to it, which failed with this error and is in no record.
    pub(crate) fn check_in_failed(&self, media: &Media, mut writer: ZoneWriter, error: &Error) {
        let is_full_host = matches!(error, Error::Device(DeviceError::HostFull));
        if is_full_host && self.put_back_reset(media, writer.zone, Some(writer.stream)) {
            return;
        }
        writer.is_ending = true;
        self.check_in(media, writer);
    }

    /// Gives a writer back, and leaves its zone if a write to it is known to have failed.
    pub(crate) fn check_in(&self, media: &Media, mut writer: ZoneWriter) {
        writer.is_ending |= writer.has_failed_writes();
        if writer.is_full() {
            // A zone that nobody writes to has nothing under way, even where a summary filled it: whoever compares what its stripe set
            // holds would take that for missing, and nobody looks at its writer again.
            let _ = writer.complete();
        }
        if writer.is_ending {
            // What is under way came before, or is behind the failed write and fails too: those
            // whose it is find out by themselves.
            let _ = writer.complete();
            // How far it is written the device knows now. Once finished, it tells of blocks that are
            // none, and after a power cut may know nothing of that.
            let written = self.pairs.both(writer.zone).filter_map(|zone| {
                let info = media.report_zone(zone)?;
                (!info.state.is_worn_out()).then_some(info.write_pointer)
            });
            let least = written.min().unwrap_or(u32::MAX);
            writer.write_pointer = writer.write_pointer.min(least);
            self.end(media, writer.zone);
        }
        self.park(writer);
    }

    /// Leaves the zones that nobody writes to at the moment and in which a write has failed. Who
    /// writes to another finds out when giving back its writer, or with the next write.
    pub(crate) fn leave_failed(&self, media: &Media) {
        for writer in self.take_all(ZoneWriter::has_failed_writes) {
            self.check_in(media, writer);
        }
    }

    /// Ends zones that nobody writes to at the moment.
    pub(super) fn end_writers(&self, media: &Media, wanted: impl Fn(&ZoneWriter) -> bool) {
        for mut writer in self.take_all(wanted) {
            writer.is_ending = true;
            self.check_in(media, writer);
        }
    }

    /// Ends those of them that are `wanted`.
    pub(crate) fn leave(&self, media: &Media, wanted: impl Fn(ZoneId) -> bool) {
        self.end_writers(media, |writer| wanted(writer.zone));
    }
}
