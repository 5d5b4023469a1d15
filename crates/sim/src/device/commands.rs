//! What each command does to its zone, and when it is refused.

use persimmon_device::{
    Buffer, Command, Completion, DeviceError, Geometry, Result, ZoneId, ZoneState,
};

use super::medium::Gather;
use super::state::{Answer, State};
use super::zone::{self, Change, Zone};

impl State {
    pub(super) fn carry_out(&mut self, command: &Command, mark: u64) -> Result<Answer> {
        let done = match command {
            Command::Read {
                zone,
                block,
                blocks,
            } => return self.read(*zone, *block, *blocks).map(Answer::Read),
            Command::Write { zone, block, data } => {
                self.write(*zone, Some(*block), data, None)?;
                Completion::Done
            }
            Command::Append { zone, data } => {
                Completion::Appended(self.write(*zone, None, data, None)?)
            }
            Command::Reset {
                zone,
                keep_allocated,
            } => {
                self.reset(*zone, *keep_allocated)?;
                Completion::Done
            }
            Command::Finish { zone } => {
                self.finish(*zone)?;
                Completion::Done
            }
            Command::Open { zone } => {
                self.open(*zone, ZoneState::ExplicitlyOpen, "open")?;
                Completion::Done
            }
            Command::Close { zone } => {
                self.close(*zone)?;
                Completion::Done
            }
            // It is a device, whose zones know how far they are written.
            Command::Record => Completion::Done,
            Command::Flush => {
                for cell in &mut self.zones {
                    if !cell.changes.is_empty() {
                        cell.make_durable(mark);
                    }
                }
                Completion::Done
            }
        };
        Ok(Answer::Other(done))
    }

    fn zone(&self, zone: ZoneId) -> Result<&Zone> {
        self.zones
            .get(zone.0 as usize)
            .map(|cell| cell.now.as_ref())
            .ok_or(DeviceError::NoSuchZone {
                zone,
                count: self.config.geometry.zone_count,
            })
    }

    fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    fn read(&self, zone: ZoneId, block: u32, blocks: u32) -> Result<Gather> {
        let target = self.zone(zone)?;
        transfer_size(blocks, self.geometry().max_transfer_blocks)?;
        if target.state == ZoneState::Offline {
            return bad_state(zone, target.state, "read");
        }
        let limit = target.readable();
        let end = block.saturating_add(blocks);
        if end > limit {
            return Err(DeviceError::ReadPastEnd {
                zone,
                block,
                end,
                limit,
            });
        }
        let written = target.written.clamp(block, end);
        let mut gather = target.medium.gather(block, written - block);
        gather.pad_to(blocks);
        Ok(gather)
    }

    /// Writes the first `arrives` blocks (or all) of `data`; answers where.
    pub(super) fn write(
        &mut self,
        zone: ZoneId,
        block: Option<u32>,
        data: &[Buffer],
        arrives: Option<u32>,
    ) -> Result<u32> {
        let blocks = Command::data_blocks(data);
        let (limit, operation) = match block {
            Some(_) => (self.geometry().max_transfer_blocks, "write"),
            None => (self.geometry().max_append_blocks, "append"),
        };
        let target = self.zone(zone)?;
        transfer_size(blocks, limit)?;
        if !target.state.is_writable() {
            return bad_state(zone, target.state, operation);
        }
        let (write_pointer, capacity) = (target.write_pointer, target.capacity);
        let block = block.unwrap_or(write_pointer);
        if block != write_pointer {
            return Err(DeviceError::NotAtWritePointer {
                zone,
                block,
                write_pointer,
            });
        }
        if blocks > capacity - write_pointer {
            return Err(DeviceError::ZoneFull {
                zone,
                block,
                blocks,
                capacity,
            });
        }
        if !target.state.is_open() {
            self.open(zone, ZoneState::ImplicitlyOpen, operation)?;
        }
        let arrives = arrives.unwrap_or(blocks);
        if arrives > 0 {
            let change = Change::Write {
                block,
                data: data.into(),
            };
            self.change(zone, change, arrives);
        }
        Ok(block)
    }

    fn reset(&mut self, zone: ZoneId, keep_allocated: bool) -> Result<()> {
        let Zone { state, kind, .. } = *self.zone(zone)?;
        if state.is_worn_out() {
            return bad_state(zone, state, "reset");
        }
        let change = zone::reset_of(&self.config, kind, keep_allocated);
        self.change(zone, change, 1);
        Ok(())
    }

    fn finish(&mut self, zone: ZoneId) -> Result<()> {
        let state = self.zone(zone)?.state;
        if state == ZoneState::Full {
            return Ok(());
        }
        if !state.is_writable() {
            return bad_state(zone, state, "finish");
        }
        self.change(zone, Change::Finish, 1);
        Ok(())
    }

    /// Opens a zone; where that is one too many, an implicitly open one is closed for it.
    fn open(&mut self, zone: ZoneId, as_state: ZoneState, operation: &'static str) -> Result<()> {
        let state = self.zone(zone)?.state;
        if !state.is_writable() {
            return bad_state(zone, state, operation);
        }
        if let Some(limit) = self.geometry().max_active
            && !state.is_active()
            && self.active >= limit
        {
            return Err(DeviceError::TooManyActive { zone, limit });
        }
        if let Some(limit) = self.geometry().max_open
            && !state.is_open()
            && self.open >= limit
        {
            let victim = self
                .zones
                .iter()
                .position(|cell| cell.now.state == ZoneState::ImplicitlyOpen)
                .ok_or(DeviceError::TooManyOpen { zone, limit })?;
            self.close(ZoneId(victim as u32))?;
        }
        self.set_state(zone, as_state);
        Ok(())
    }

    fn close(&mut self, zone: ZoneId) -> Result<()> {
        let target = self.zone(zone)?;
        let state = match target.state {
            ZoneState::Closed => return Ok(()),
            state if !state.is_open() => return bad_state(zone, state, "close"),
            _ if target.write_pointer == 0 => ZoneState::Empty,
            _ => ZoneState::Closed,
        };
        self.set_state(zone, state);
        Ok(())
    }
}

fn transfer_size(blocks: u32, limit: u32) -> Result<()> {
    if blocks == 0 || blocks > limit {
        return Err(DeviceError::TransferSize { blocks, limit });
    }
    Ok(())
}

fn bad_state<T>(zone: ZoneId, state: ZoneState, operation: &'static str) -> Result<T> {
    Err(DeviceError::BadState {
        zone,
        state,
        operation,
    })
}
