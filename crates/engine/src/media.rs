//! The gate: the engine's only way to the device, where everything sent is counted (I6).

use persimmon_sync::{Alarm, Arc, Mutex};
use std::collections::BTreeSet;

use persimmon_device::{BLOCK_SIZE, Buffer, ZoneId, ZoneInfo};
use persimmon_device::{
    BufferMut, Command, Completion, DeviceError, Geometry, Pending, ZonedDevice,
};
use persimmon_format::{Addr, DeviceId};

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::options::Barrier;
use crate::pairs::Pairs;
use crate::statistics::{Class, Counters, add};

/// The device of a volume with its counters.
pub(crate) struct Media {
    device: Arc<dyn ZonedDevice>,
    flushing: Flushing,
    /// A thread panicked in the midst of a change: nothing is sent any more that changes the device.
    pub(crate) alarm: Alarm,
    /// Closed while the volume is frozen.
    pub(crate) gate: Gate,
    pub(crate) counters: Counters,
    /// Zones that are written together, and read in each other's place.
    pub(crate) pairs: Pairs,
    /// Zones that answered with an error: they may have failed.
    suspects: Mutex<BTreeSet<ZoneId>>,
}

/// What a flush asks of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flushing {
    /// Nothing: what has completed stays.
    Needless,
    /// That what has completed outlives the process.
    Recorded,
    /// That it outlives the power.
    Durable,
}

impl Media {
    pub(crate) fn new(device: Arc<dyn ZonedDevice>, barrier: Barrier) -> Media {
        let flushing = match (barrier, device.geometry().volatile_cache) {
            (Barrier::On, _) | (Barrier::Auto, true) => Flushing::Durable,
            (Barrier::Off, true) => Flushing::Recorded,
            (Barrier::Auto | Barrier::Off, false) => Flushing::Needless,
        };
        Media {
            pairs: Pairs::new(device.geometry().zone_count),
            device,
            flushing,
            alarm: Alarm::default(),
            gate: Gate::default(),
            counters: Counters::default(),
            suspects: Mutex::default(),
        }
    }

    fn suspect<T, E>(&self, zone: ZoneId, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            self.suspects.lock().insert(zone);
        }
        result
    }

    /// Zones that answered with an error since the last call.
    pub(crate) fn take_suspects(&self) -> BTreeSet<ZoneId> {
        let mut suspects = self.suspects.lock();
        std::mem::take(&mut *suspects)
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    /// What the device says of all its zones.
    pub(crate) fn report_all(&self) -> Result<Vec<ZoneInfo>> {
        Ok(self.device.report(0..self.geometry().zone_count)?)
    }

    /// What the device says of a zone; nothing if it cannot.
    pub(crate) fn report_zone(&self, zone: ZoneId) -> Option<ZoneInfo> {
        let report = self.device.report(zone.0..zone.0.checked_add(1)?);
        report.ok()?.first().copied()
    }

    /// See [`ZonedDevice::space_is_hosts`].
    pub(crate) fn space_is_hosts(&self) -> bool {
        self.device.space_is_hosts()
    }

    /// Reads `blocks` blocks, of a pair from the partner if the zone itself cannot be read.
    pub(crate) fn read(&self, addr: Addr, blocks: u32) -> Result<Buffer> {
        self.read_good(addr, blocks, Ok)
    }

    /// Reads blocks and makes of them what `parse` does. What cannot be read or parsed in one zone
    /// of a pair is taken from the other.
    pub(crate) fn read_good<T>(
        &self,
        addr: Addr,
        blocks: u32,
        parse: impl Fn(Buffer) -> Result<T>,
    ) -> Result<T> {
        let error = match self.read_one(addr, blocks).and_then(&parse) {
            Ok(parsed) => return Ok(parsed),
            // The other copy would hide it.
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(error) => error,
        };
        for other in self.others(addr, blocks) {
            match other.and_then(&parse) {
                Ok(parsed) => {
                    tracing::warn!(%addr, %error, "a block is bad, its copy is used");
                    return Ok(parsed);
                }
                Err(newer @ Error::Unsupported { .. }) => return Err(newer),
                Err(_) => {}
            }
        }
        Err(error)
    }

    /// Blocks whose content cannot be believed as it was read, as they can be had otherwise: from the partner of their zone, and
    /// from what the other zones of a stripe set have in their rows. Each is read when it is asked for.
    pub(crate) fn others(&self, addr: Addr, blocks: u32) -> impl Iterator<Item = Result<Buffer>> {
        let partner = self.pairs.partner(addr.zone());
        let copy = partner.map(|partner| Addr::new(addr.device(), partner, addr.block()));
        let copy = copy.into_iter();
        let copy = copy.map(move |copy| self.read_one(copy, blocks));
        let without = (0..).map_while(move |attempt| self.read_without(addr, blocks, attempt));
        copy.chain(without)
    }

    /// Reads blocks as if one zone of their stripe set had something wrong, in as many commands as the device needs: each but the last
    /// is of whole rows, so that `attempt` means the same zone in all of them. Nothing where there is no such zone.
    fn read_without(&self, addr: Addr, blocks: u32, attempt: u32) -> Option<Result<Buffer>> {
        let bytes = u64::from(blocks) * BLOCK_SIZE as u64;
        let limit = self.geometry().max_transfer_blocks;
        let mut whole = BufferMut::with_capacity(blocks as usize);
        let mut done = 0;
        while done < blocks {
            let part = (blocks - done).min(limit);
            let block = addr.block() + done;
            let read = self.device.read_without(addr.zone(), block, part, attempt);
            let read = match read {
                // The rest has nothing in that zone.
                None if done > 0 => self.device.read(addr.zone(), block, part),
                None => return None,
                Some(read) => read,
            };
            add(&self.counters.read_commands, 1);
            match read {
                Ok(buffer) if part == blocks => {
                    add(&self.counters.read_bytes, bytes);
                    return Some(Ok(buffer));
                }
                Ok(buffer) => drop(whole.extend(&buffer)),
                Err(error) => return Some(Err(error.into())),
            }
            done += part;
        }
        add(&self.counters.read_bytes, bytes);
        Some(Ok(whole.freeze()))
    }

    /// Whether blocks could be read in spite of any one zone of their stripe set that is lost.
    pub(crate) fn rows_agree(&self, addr: Addr, blocks: u32) -> bool {
        let agree = self.device.rows_agree(addr.zone(), addr.block(), blocks);
        agree.unwrap_or(false)
    }

    /// Reads from this zone alone, in as many commands as the device needs.
    pub(crate) fn read_one(&self, addr: Addr, blocks: u32) -> Result<Buffer> {
        let read = self.read_commands(addr, blocks);
        self.suspect(addr.zone(), read)
    }

    fn read_commands(&self, addr: Addr, blocks: u32) -> Result<Buffer> {
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

    /// Reads whole blocks to where they are wanted. False where the device does not, or not now: then they are to be read as ever,
    /// which tells why. `beside_others`: more is to be read than this.
    pub(crate) fn read_into(&self, addr: Addr, into: &mut [u8], beside_others: bool) -> bool {
        let is_there = addr.device() == DeviceId(0) && addr.zone().0 < self.geometry().zone_count;
        let (zone, block) = (addr.zone(), addr.block());
        let read = is_there.then(|| self.device.read_into(zone, block, into, beside_others));
        let is_read = matches!(read, Some(Some(Ok(()))));
        if is_read {
            add(&self.counters.read_commands, 1);
            add(&self.counters.read_bytes, into.len() as u64);
        }
        is_read
    }

    /// Reads places that have nothing to do with each other, `at_once` of them at the same time. One that
    /// cannot be read is tried again by itself, and in its partner.
    pub(crate) fn read_all(&self, places: &[(Addr, u32)], at_once: usize) -> Vec<Result<Buffer>> {
        let geometry = self.geometry();
        let start = |(addr, blocks): &(Addr, u32)| {
            let zone = addr.zone();
            let is_one = *blocks <= geometry.max_transfer_blocks
                && addr.device() == DeviceId(0)
                && zone.0 < geometry.zone_count;
            is_one.then(|| {
                add(&self.counters.read_commands, 1);
                let bytes = u64::from(*blocks) * BLOCK_SIZE as u64;
                add(&self.counters.read_bytes, bytes);
                self.device.submit(Command::Read {
                    zone,
                    block: addr.block(),
                    blocks: *blocks,
                })
            })
        };
        let mut read = Vec::with_capacity(places.len());
        for some in places.chunks(at_once.max(1)) {
            let under_way: Vec<Option<Pending>> = some.iter().map(start).collect();
            for ((addr, blocks), pending) in some.iter().zip(under_way) {
                read.push(match pending.map(Pending::wait) {
                    Some(Ok(Completion::Read(buffer))) => Ok(buffer),
                    _ => self.read(*addr, *blocks),
                });
            }
        }
        read
    }

    /// Sends a command that changes the device or makes something durable. All of them go through here.
    fn change(&self, command: Command) -> Pending {
        let passage = self.gate.enter();
        if self.alarm.is_raised() {
            Pending::ready(Err(DeviceError::Stopped))
        } else {
            self.device.submit(command).holding(passage)
        }
    }

    fn change_now(&self, command: Command) -> Result<Completion, DeviceError> {
        self.change(command).wait()
    }

    /// Starts writes of `data` at the write pointer of `zone`, which is `block`, in as many
    /// commands as the device needs, and the same to its partner.
    pub(crate) fn write(
        &self,
        class: Class,
        zone: ZoneId,
        block: u32,
        data: Vec<Buffer>,
    ) -> Vec<Pending> {
        let Some(partner) = self.pairs.partner(zone) else {
            return self.write_one(class, zone, block, data);
        };
        let mut pending = self.write_one(class, zone, block, data.clone());
        pending.extend(self.write_one(class, partner, block, data));
        pending
    }

    /// Starts writes to this zone alone.
    pub(crate) fn write_one(
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
                let pending = self.change(Command::Write {
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
        self.change(Command::Append { zone, data })
    }

    pub(crate) fn reset(&self, zone: ZoneId, keep_allocated: bool) -> Result<()> {
        let done = self.start_reset(zone, keep_allocated).wait();
        self.end_reset(zone, done)
    }

    /// Starts a reset; its end is to be told by [`Media::end_reset`].
    pub(crate) fn start_reset(&self, zone: ZoneId, keep_allocated: bool) -> Pending {
        add(&self.counters.resets, 1);
        self.change(Command::Reset {
            zone,
            keep_allocated,
        })
    }

    /// Starts giving back the space of a zone that was reset and kept it.
    pub(crate) fn discard(&self, zone: ZoneId) -> Pending {
        self.change(Command::Reset {
            zone,
            keep_allocated: false,
        })
    }

    pub(crate) fn end_reset(
        &self,
        zone: ZoneId,
        done: Result<Completion, DeviceError>,
    ) -> Result<()> {
        self.suspect(zone, done)?;
        Ok(())
    }

    /// Resets that the device does at the same time.
    pub(crate) fn resets_at_once(&self) -> usize {
        self.device.resets_at_once()
    }

    /// Opens a zone and its partner before they are written to. A device whose space is a host's sets it aside
    /// then, so that no write to the zone fails for want of it; that there is none is the only
    /// error. A zone that cannot be opened for other reasons shows them when it is written to.
    pub(crate) fn open(&self, zone: ZoneId) -> Result<(), DeviceError> {
        for zone in self.pairs.both(zone) {
            match self.change_now(Command::Open { zone }) {
                Err(DeviceError::HostFull) => return Err(DeviceError::HostFull),
                Err(error) => tracing::debug!(zone = zone.0, %error, "zone not opened"),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Takes that back.
    pub(crate) fn close(&self, zone: ZoneId) {
        for zone in self.pairs.both(zone) {
            // One of them may not have been opened.
            let _ = self.change_now(Command::Close { zone });
        }
    }

    /// Finishes a zone and its partner.
    pub(crate) fn finish(&self, zone: ZoneId) -> Result<()> {
        let finish = |zone| self.finish_one(zone);
        self.pairs.both(zone).map(finish).fold(Ok(()), Result::and)
    }

    /// Finishes this zone alone.
    pub(crate) fn finish_one(&self, zone: ZoneId) -> Result<()> {
        let finished = self.change_now(Command::Finish { zone });
        self.suspect(zone, finished)?;
        Ok(())
    }

    /// Whether a flush does anything: completed commands may be lost without it.
    pub(crate) fn flushes(&self) -> bool {
        self.flushing != Flushing::Needless
    }

    /// Makes what has completed as durable as the user wants it while the volume is in use.
    pub(crate) fn flush(&self) -> Result<()> {
        match self.flushing {
            Flushing::Needless => {}
            Flushing::Recorded => {
                self.change_now(Command::Record)?;
            }
            Flushing::Durable => {
                add(&self.counters.flushes, 1);
                self.change_now(Command::Flush)?;
            }
        }
        Ok(())
    }

    /// Has the device keep what was sent to it before the gate was closed: this passes it, and changes nothing that is kept.
    pub(crate) fn flush_frozen(&self) -> Result<()> {
        if self.alarm.is_raised() {
            return Err(DeviceError::Stopped.into());
        }
        add(&self.counters.flushes, 1);
        self.device.submit(Command::Flush).wait()?;
        Ok(())
    }

    /// Has what has completed outlive the process.
    pub(crate) fn record(&self) -> Result<()> {
        self.change_now(Command::Record)?;
        Ok(())
    }

    /// Makes the headers written so far durable, where a power cut could take one of them along and leave what
    /// is written behind it. On other devices the write pointer proves that a header is there.
    pub(crate) fn flush_headers(&self) -> Result<()> {
        if self.geometry().write_pointer_is_proof {
            Ok(())
        } else {
            self.flush()
        }
    }

    /// Makes durable what flushes so far have left to the power.
    pub(crate) fn flush_in_the_end(&self) -> Result<()> {
        if self.flushing == Flushing::Recorded {
            add(&self.counters.flushes, 1);
            self.change_now(Command::Flush)?;
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
