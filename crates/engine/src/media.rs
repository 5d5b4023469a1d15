//! The gate: the engine's only way to the device, where everything sent is counted (I6).

use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Buffer, ZoneId};
use persimmon_device::{
    BufferMut, Command, Completion, DeviceError, Geometry, Pending, ZonedDevice,
};
use persimmon_format::{Addr, DeviceId};

use crate::error::Result;
use crate::options::Barrier;
use crate::statistics::{Class, Counters, add};

/// The device of a volume with its counters.
pub(crate) struct Media {
    device: Arc<dyn ZonedDevice>,
    /// Whether it is flushed.
    flushes: bool,
    pub(crate) counters: Counters,
}

impl Media {
    pub(crate) fn new(device: Arc<dyn ZonedDevice>, barrier: Barrier) -> Media {
        let flushes = match barrier {
            Barrier::Auto => device.geometry().volatile_cache,
            Barrier::On => true,
            Barrier::Off => false,
        };
        Media {
            device,
            flushes,
            counters: Counters::default(),
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    pub(crate) fn device(&self) -> &dyn ZonedDevice {
        &*self.device
    }

    /// Reads `blocks` blocks, in as many commands as the device needs.
    pub(crate) fn read(&self, addr: Addr, blocks: u32) -> Result<Buffer> {
        let zone = addr.zone();
        if addr.device() != DeviceId(0) || zone.0 >= self.geometry().zone_count {
            return Err(DeviceError::NoSuchZone {
                zone,
                count: self.geometry().zone_count,
            }
            .into());
        }
        add(
            &self.counters.read_bytes,
            u64::from(blocks) * BLOCK_SIZE as u64,
        );
        let limit = self.geometry().max_transfer_blocks;
        if blocks <= limit {
            add(&self.counters.read_commands, 1);
            return Ok(self.device.read(zone, addr.block(), blocks)?);
        }
        let mut whole = BufferMut::zeroed(blocks as usize);
        let mut done = 0;
        while done < blocks {
            let part = (blocks - done).min(limit);
            add(&self.counters.read_commands, 1);
            let bytes = self.device.read(zone, addr.block() + done, part)?;
            let at = done as usize * BLOCK_SIZE;
            whole[at..at + bytes.len()].copy_from_slice(&bytes);
            done += part;
        }
        Ok(whole.freeze())
    }

    /// Starts writes of `data` at the write pointer of `zone`, which is `block`, in as many
    /// commands as the device needs.
    pub(crate) fn write(
        &self,
        class: Class,
        zone: ZoneId,
        block: u32,
        data: Vec<Buffer>,
    ) -> Vec<Pending> {
        let limit = self.geometry().max_transfer_blocks;
        let mut at = block;
        split(data, limit)
            .into_iter()
            .map(|data| {
                let blocks = Command::data_blocks(&data);
                self.counters
                    .wrote(class, u64::from(blocks) * BLOCK_SIZE as u64);
                let pending = self.device.submit(Command::Write {
                    zone,
                    block: at,
                    data,
                });
                at += blocks;
                pending
            })
            .collect()
    }

    /// Starts one append; the caller keeps to the device's limit.
    pub(crate) fn append(&self, class: Class, zone: ZoneId, data: Vec<Buffer>) -> Pending {
        let blocks = Command::data_blocks(&data);
        self.counters
            .wrote(class, u64::from(blocks) * BLOCK_SIZE as u64);
        self.device.submit(Command::Append { zone, data })
    }

    pub(crate) fn reset(&self, zone: ZoneId, keep_allocated: bool) -> Result<()> {
        add(&self.counters.resets, 1);
        self.device.run(Command::Reset {
            zone,
            keep_allocated,
        })?;
        Ok(())
    }

    pub(crate) fn finish(&self, zone: ZoneId) -> Result<()> {
        self.device.run(Command::Finish { zone })?;
        Ok(())
    }

    pub(crate) fn flush(&self) -> Result<()> {
        if self.flushes {
            add(&self.counters.flushes, 1);
            self.device.run(Command::Flush)?;
        }
        Ok(())
    }
}

/// Waits for all, and returns the first error.
pub(crate) fn wait_all(pending: impl IntoIterator<Item = Pending>) -> Result<(), DeviceError> {
    let mut result = Ok(());
    for command in pending {
        if let Err(error) = command.wait() {
            result = result.and(Err(error));
        }
    }
    result
}

/// The block an append landed on.
pub(crate) fn appended(pending: Pending) -> Result<u32, DeviceError> {
    match pending.wait()? {
        Completion::Appended(block) => Ok(block),
        other => Err(DeviceError::Protocol {
            expected: "append",
            got: other.name(),
        }),
    }
}

/// Cuts a list of buffers into lists of at most `limit` blocks.
fn split(data: Vec<Buffer>, limit: u32) -> Vec<Vec<Buffer>> {
    if data.is_empty() {
        return Vec::new();
    }
    if Command::data_blocks(&data) <= limit {
        return vec![data];
    }
    let mut commands = Vec::new();
    let mut command = Vec::new();
    let mut room = limit;
    for mut buffer in data {
        while buffer.blocks() > 0 {
            let take = buffer.blocks().min(room);
            command.push(buffer.slice(0..take as usize));
            buffer = buffer.slice(take as usize..buffer.blocks() as usize);
            room -= take;
            if room == 0 {
                commands.push(std::mem::take(&mut command));
                room = limit;
            }
        }
    }
    if !command.is_empty() {
        commands.push(command);
    }
    commands
}
