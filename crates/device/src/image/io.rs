//! The commands of the image, one function each.

use std::io;
use std::sync::atomic::Ordering;

use persimmon_sync::MutexGuard;

use persimmon_format::BLOCK_SIZE;

use super::host::is_full;
use super::{ImageDevice, Order, ReadLimit, Zones};
use crate::faults::{Fault, fault};
use crate::{Buffer, BufferMut, Command, DeviceError, Result, ZoneId, ZoneState};

impl ImageDevice {
    pub(super) fn read_blocks(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<BufferMut> {
        self.check_transfer(blocks, self.geometry.max_transfer_blocks)?;
        let mut buffer = BufferMut::unspecified(blocks as usize);
        self.read_blocks_into(zone, block, &mut buffer)?;
        Ok(buffer)
    }

    /// The same to where they are wanted.
    pub(super) fn read_blocks_into(&self, zone: ZoneId, block: u32, into: &mut [u8]) -> Result<()> {
        let blocks = u32::try_from(into.len() / BLOCK_SIZE).unwrap_or(u32::MAX);
        self.check_transfer(blocks, self.geometry.max_transfer_blocks)?;
        let limit = self.limits.get(zone.0 as usize);
        let limit = ReadLimit::unpack(limit.map_or(0, |limit| limit.load(Ordering::Acquire)));
        let end = block.saturating_add(blocks);
        if end > limit.readable {
            // The exact reason, which may be another state than past the end.
            let limit = self.zones.lock().machine.readable(zone)?;
            return Err(DeviceError::ReadPastEnd {
                zone,
                block,
                end,
                limit,
            });
        }
        let written = limit.written.clamp(block, end) - block;
        let (bytes, rest) = into.split_at_mut(written as usize * BLOCK_SIZE);
        rest.fill(0);
        self.host
            .read_at(bytes, self.offset(zone, block))
            .map_err(|error| io_error("read", zone, block, &error))
    }

    /// Writes at the write pointer, which must be `block` if given. Returns the first block.
    pub(super) fn write_blocks(
        &self,
        zone: ZoneId,
        block: Option<u32>,
        data: &[Buffer],
    ) -> Result<u32> {
        let blocks = Command::data_blocks(data);
        self.check_transfer(blocks, self.geometry.max_transfer_blocks)?;
        let mut order = self.begin_change(zone)?;
        let start = self.zones.lock().machine.begin_write(zone, block, blocks)?;
        if start == 0
            && let Some(generation) = order.resets_durable_at.get(&zone)
        {
            if !self.gate.is_durable(*generation) {
                self.flush_cache()?;
            }
            order.resets_durable_at.remove(&zone);
        }
        self.write_ahead(&mut order.small, zone, start, data)
            .map_err(|error| io_error("write", zone, start, &error))?;
        let mut zones = self.zones.lock();
        zones.machine.end_write(zone, blocks)?;
        zones.mark_dirty(zone);
        self.publish(&zones.machine, zone)?;
        Ok(start)
    }

    pub(super) fn reset(&self, zone: ZoneId, keep_allocated: bool) -> Result<()> {
        let mut order = self.begin_change(zone)?;
        let before = {
            let zones = self.zones.lock();
            zones.machine.check_reset(zone)?;
            zones.machine.snapshot(zone)?
        };
        order.small.forget(zone);
        if before.state != ZoneState::Empty {
            let written = self.write_record(zone, |zones| zones.machine.reset(zone));
            let generation = self.gate.next_generation();
            let resets = &mut order.resets_durable_at;
            if resets.len() == resets.capacity() {
                resets.retain(|_, generation| !self.gate.is_durable(*generation));
            }
            resets.insert(zone, generation);
            written?;
        }
        if !keep_allocated {
            let length = self.layout.zone_stride << u32::from(fault(Fault::PunchTooLong));
            if let Err(error) = self.host.punch(self.offset(zone, 0), length) {
                // The space stays taken, and the zone is reset all the same.
                tracing::warn!(%zone, %error, "host space of a reset zone was not given back");
            }
        }
        Ok(())
    }

    pub(super) fn finish(&self, zone: ZoneId) -> Result<()> {
        let mut order = self.begin_change(zone)?;
        self.zones.lock().machine.check_finish(zone)?;
        order.small.forget(zone);
        self.write_record(zone, |zones| zones.machine.finish(zone))
    }

    /// Opening explicitly reserves the host's space for the whole zone, so that writes to it
    /// cannot fail for want of space and an fdatasync finds nothing to allocate.
    pub(super) fn open_zone(&self, zone: ZoneId) -> Result<()> {
        let _order = self.begin_change(zone)?;
        {
            let mut zones = self.zones.lock();
            zones.machine.open(zone)?;
        }
        let length = self.layout.zone_stride;
        match self.host.allocate(self.offset(zone, 0), length) {
            Err(error) if is_full(&error) => {
                self.zones.lock().machine.close(zone)?;
                Err(DeviceError::HostFull)
            }
            // Not every host can; the zone is open all the same.
            _ => Ok(()),
        }
    }

    pub(super) fn close_zone(&self, zone: ZoneId) -> Result<()> {
        let _order = self.begin_change(zone)?;
        self.zones.lock().machine.close(zone)
    }

    /// The start of every command that changes a zone.
    fn begin_change(&self, zone: ZoneId) -> Result<MutexGuard<'_, Order>> {
        let (order, _) = self.orders.get(zone)?;
        if self.read_only {
            return Err(DeviceError::ReadOnly);
        }
        self.gate.check()?;
        Ok(order)
    }

    /// Changes the state of a zone and writes its record to the host at once. When the writing
    /// fails the change stands in memory and goes out with the next flush.
    fn write_record(
        &self,
        zone: ZoneId,
        change: impl FnOnce(&mut Zones) -> Result<()>,
    ) -> Result<()> {
        {
            let mut zones = self.zones.lock();
            change(&mut zones)?;
            self.publish(&zones.machine, zone)?;
        }
        let written = self.write_entry(zone);
        if written.is_err() {
            self.zones.lock().mark_dirty(zone);
        }
        self.touched.store(true, Ordering::Release);
        written
    }

    /// Writes the record of a zone as it stands now.
    pub(super) fn write_entry(&self, zone: ZoneId) -> Result<()> {
        self.table.write(&*self.host, zone, || {
            self.zones.lock().machine.snapshot(zone)
        })
    }

    fn check_transfer(&self, blocks: u32, limit: u32) -> Result<()> {
        if blocks == 0 || blocks > limit {
            return Err(DeviceError::TransferSize { blocks, limit });
        }
        Ok(())
    }
}

impl Zones {
    pub(super) fn mark_dirty(&mut self, zone: ZoneId) {
        let at = zone.0 as usize;
        if self.is_dirty.get(at) == Some(&false) {
            self.is_dirty.set(at, true);
            self.dirty.push(zone);
        }
    }

    /// The zones whose records are behind. They count as clean from here on.
    pub(super) fn take_dirty(&mut self) -> Vec<ZoneId> {
        let dirty = std::mem::take(&mut self.dirty);
        for zone in &dirty {
            self.is_dirty.set(zone.0 as usize, false);
        }
        dirty
    }
}

pub(super) fn io_error(
    operation: &'static str,
    zone: ZoneId,
    block: u32,
    error: &io::Error,
) -> DeviceError {
    if is_full(error) {
        return DeviceError::HostFull;
    }
    DeviceError::Io {
        operation,
        zone,
        block,
        message: error.to_string(),
    }
}
