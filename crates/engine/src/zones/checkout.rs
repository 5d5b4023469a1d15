//! A writer for whoever writes: that of an open zone, or of one that is opened for it.

use persimmon_sync::atomic::Ordering;

use persimmon_device::{BufferMut, ZoneId};
use persimmon_format::DeviceId;
use persimmon_format::table::Role;
use persimmon_format::zone_header::ZoneHeader;

use super::allocation::Reserve;
use super::resets::Keeping;
use super::retry::Tries;
use super::stream::Stream;
use super::table::{NoWriter, Shortage, Zones};
use super::writer::ZoneWriter;
use crate::error::Result;
use crate::media::{Media, wait_all};
use crate::statistics::Class;

impl Zones {
    /// A writer for `stream`, opening a zone where needed and more than `reserve` are free. Waits
    /// while others hold all writers that this stream may use; the caller holds none itself.
    pub(crate) fn checkout(
        &self,
        media: &Media,
        stream: Stream,
        mut reserve: Reserve,
        shortage: Shortage,
    ) -> Result<ZoneWriter, NoWriter> {
        let (wanted, stream) = (stream, self.budget.shared(stream));
        let mut tries = Tries::default();
        let mut host_full = None;
        let mut gave_back = false;
        loop {
            let opened = match (
                self.take_or_open(wanted, reserve, shortage),
                host_full.take(),
            ) {
                (Ok((writer, false)), _) => return Ok(writer),
                (Ok((opened, true)), _) => opened,
                (Err(NoWriter::NeedRoom), Some(error)) => return Err(NoWriter::Failed(error)),
                (Err(error), _) => return Err(error),
            };
            if let Err(error) = media.open(opened.zone) {
                self.put_back(media, opened.zone, Some(stream));
                // It may be free zones that the host keeps its space for.
                if !std::mem::replace(&mut gave_back, true)
                    && self.give_space_back(media, Keeping::Suspected)
                {
                    continue;
                }
                // Those that are open have their space.
                host_full = Some(error.into());
                reserve.zones = None;
                continue;
            }
            let Err(error) = self.write_header(media, &opened) else {
                return Ok(opened);
            };
            let zone = opened.zone;
            self.check_in_failed(media, opened, &error);
            tries.failed(self, zone, error).map_err(NoWriter::Failed)?;
        }
    }

    fn write_header(&self, media: &Media, writer: &ZoneWriter) -> Result<()> {
        let (role, lifetime) = (writer.stream.role(), writer.stream.lifetime());
        let header = |zone| self.header(zone, role, lifetime, writer.sequence, 0);
        self.write_headers(media, Class::Summary, writer.zone, header)?;
        let mut zones = self.pairs.both(writer.zone);
        // A mount that finds it written to, without a header, would take it for a lost end of the log.
        let is_looked_at = zones.any(|zone| self.budget.layout.is_log_place(zone));
        if is_looked_at && self.log_ends.load(Ordering::Acquire) {
            media.flush_headers()
        } else {
            Ok(())
        }
    }

    /// Writes the header of a zone, and the partner's own.
    pub(super) fn write_headers(
        &self,
        media: &Media,
        class: Class,
        zone: ZoneId,
        header: impl Fn(ZoneId) -> persimmon_device::Buffer,
    ) -> Result<()> {
        let write = |zone| media.write_one(class, zone, 0, vec![header(zone)]);
        wait_all(self.pairs.both(zone).flat_map(write).collect::<Vec<_>>())?;
        Ok(())
    }

    pub(super) fn header(
        &self,
        zone: ZoneId,
        role: Role,
        lifetime: u8,
        sequence: u64,
        first_log_sequence: u64,
    ) -> persimmon_device::Buffer {
        let header = ZoneHeader {
            volume: self.identity.clone(),
            device: DeviceId(0),
            zone,
            role,
            lifetime,
            sequence,
            first_log_sequence,
            partner: self.pairs.partner(zone),
        };
        let mut block = BufferMut::zeroed(1);
        block.copy_from_slice(&header.encode());
        block.freeze()
    }
}
