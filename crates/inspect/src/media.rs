//! Reading blocks off the device, within what is written.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use persimmon_device::{Buffer, BufferMut, Geometry, ZoneInfo, ZoneState, ZonedDevice};
use persimmon_format::packed::Packed;
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, FormatError, ZoneId, checksum};

use crate::error::{InspectError, Result};

/// The device and its zone report.
pub(crate) struct Media<'d> {
    device: &'d dyn ZonedDevice,
    /// Of the zones that the volume has.
    geometry: Geometry,
    zones: Vec<ZoneInfo>,
    /// Zones that hold the same.
    partners: BTreeMap<ZoneId, ZoneId>,
    /// The first thing found that is not for this program to read.
    unsupported: OnceLock<InspectError>,
}

impl<'d> Media<'d> {
    /// The first so many zones of the device.
    pub(crate) fn new(device: &'d dyn ZonedDevice, zone_count: u32) -> Result<Media<'d>> {
        let geometry = device.geometry().first(zone_count);
        let zones = device.report(0..geometry.zone_count)?;
        Ok(Media {
            device,
            geometry,
            zones,
            partners: BTreeMap::new(),
            unsupported: OnceLock::new(),
        })
    }

    /// Notes if what was decoded is intact and not for this program to read: however little depends on it,
    /// nothing can be told of the volume then. All that is decoded goes through here.
    pub(crate) fn decoded<T>(
        &self,
        addr: Addr,
        result: Result<T, FormatError>,
    ) -> Result<T, FormatError> {
        if let Err(source) = &result
            && source.is_unsupported()
        {
            let source = source.clone();
            let _ = self
                .unsupported
                .set(InspectError::Unsupported { addr, source });
        }
        result
    }

    /// An error if anything was found that is not for this program to read.
    pub(crate) fn check_supported(&self) -> Result<()> {
        self.unsupported.get().cloned().map_or(Ok(()), Err)
    }

    /// From now on two zones stand in for each other.
    pub(crate) fn join(&mut self, one: ZoneId, other: ZoneId) {
        self.partners.insert(one, other);
        self.partners.insert(other, one);
    }

    /// The zone that holds the same.
    pub(crate) fn partner(&self, zone: ZoneId) -> Option<ZoneId> {
        self.partners.get(&zone).copied()
    }

    /// The zone of a pair that addresses name.
    pub(crate) fn first(&self, zone: ZoneId) -> ZoneId {
        self.partner(zone).map_or(zone, |partner| zone.min(partner))
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn zones(&self) -> impl Iterator<Item = (ZoneId, &ZoneInfo)> {
        self.zones
            .iter()
            .enumerate()
            .map(|(index, info)| (ZoneId(index as u32), info))
    }

    pub(crate) fn zone(&self, zone: ZoneId) -> Option<&ZoneInfo> {
        self.zones.get(zone.0 as usize)
    }

    /// The only zones that can hold the log.
    pub(crate) fn log_candidates(&self) -> impl Iterator<Item = ZoneId> {
        self.geometry().log_places().into_iter().map(ZoneId)
    }

    /// Blocks of a zone that can be read. A read-only zone's write pointer means nothing: there
    /// the device is asked.
    pub(crate) fn written(&self, zone: ZoneId) -> u32 {
        match self.zone(zone) {
            None => 0,
            Some(info) => match info.state {
                ZoneState::Offline | ZoneState::Empty => 0,
                ZoneState::ReadOnly | ZoneState::Full => info.capacity,
                _ => info.write_pointer.min(info.capacity),
            },
        }
    }

    /// Whether what a zone holds is lost.
    pub(crate) fn is_offline(&self, zone: ZoneId) -> bool {
        self.zone(zone)
            .is_some_and(|info| info.state == ZoneState::Offline)
    }

    /// Whether the zone's write pointer proves that what is below it arrived, but for the last block, which may have been
    /// torn and padded. Where completed commands can be lost a reset can: then an old write pointer stands over old data.
    pub(crate) fn write_pointer_is_proof(&self, zone: ZoneId) -> bool {
        self.geometry().write_pointer_is_proof
            && !self.geometry().volatile_cache
            && self.zone(zone).is_some_and(|info| info.state.is_active())
    }

    /// Whether the last of these blocks, which are written, is the last of its zone.
    pub(crate) fn is_last_written(&self, addr: Addr, blocks: u64) -> bool {
        u64::from(addr.block()) + blocks == u64::from(self.written(addr.zone()))
    }

    /// Whether `blocks` blocks at `addr` are inside the written part of a zone, or of its partner.
    pub(crate) fn is_written(&self, addr: Addr, blocks: u64) -> bool {
        let copy = self.copy_of(addr);
        self.is_written_here(addr, blocks)
            || copy.is_some_and(|copy| self.is_written_here(copy, blocks))
    }

    /// The same place in the partner of its zone.
    pub(crate) fn copy_of(&self, addr: Addr) -> Option<Addr> {
        let partner = self.partner(addr.zone())?;
        Some(Addr::new(addr.device(), partner, addr.block()))
    }

    /// Reads blocks and makes of them what `parse` does, from wherever they are good: see
    /// [`Media::others`].
    pub(crate) fn read_good<T>(
        &self,
        addr: Addr,
        blocks: u32,
        parse: impl Fn(&Buffer) -> Result<T>,
    ) -> Result<T> {
        let parse = |read: Result<Buffer>| read.and_then(|bytes| parse(&bytes));
        parse(self.read(addr, blocks)).or_else(|error| {
            let mut others = self.others(addr, blocks);
            others.find_map(|read| parse(read).ok()).ok_or(error)
        })
    }

    /// Blocks as they were read, and then in all the ways in which they can be had otherwise.
    pub(crate) fn ways(&self, addr: Addr, blocks: u32) -> impl Iterator<Item = Buffer> {
        let read = std::iter::once_with(move || self.read(addr, blocks));
        read.chain(self.others(addr, blocks)).flatten()
    }

    /// Blocks that are not to be believed as they were read, as they can be had otherwise: from the
    /// partner of their zone, and as what the other zones of a stripe set say. Each is read when it is
    /// asked for.
    pub(crate) fn others(&self, addr: Addr, blocks: u32) -> impl Iterator<Item = Result<Buffer>> {
        let copy = self.copy_of(addr).into_iter();
        let copy = copy.map(move |copy| self.read(copy, blocks));
        copy.chain(self.without(addr, blocks))
    }

    /// The same without the partner, whose header is another one.
    pub(crate) fn without(&self, addr: Addr, blocks: u32) -> impl Iterator<Item = Result<Buffer>> {
        let is_written = self.is_written_here(addr, blocks.into());
        let attempts = (0..).take_while(move |_| is_written);
        attempts.map_while(move |attempt| self.without_one(addr, blocks, attempt))
    }

    fn without_one(&self, addr: Addr, blocks: u32, attempt: u32) -> Option<Result<Buffer>> {
        let without = |at, blocks| {
            let addr = addr.offset(at);
            (self.device).read_without(addr.zone(), addr.block(), blocks, attempt)
        };
        let limit = self.limit();
        let first = without(0, blocks.min(limit))?;
        if blocks <= limit {
            return Some(first.map_err(InspectError::from));
        }
        // Commands end with whole rows: the attempts mean the same zone in each, and the last may have nothing of it.
        let whole = self.in_commands(blocks, |at, blocks| match without(at, blocks) {
            Some(read) => Ok(read?),
            None => self.read(addr.offset(at), blocks),
        });
        Some(whole)
    }

    /// Blocks that a command may read.
    fn limit(&self) -> u32 {
        self.geometry().max_transfer_blocks.max(1)
    }

    /// Reads blocks in as many commands as the device needs, each so many blocks behind the first.
    fn in_commands(
        &self,
        blocks: u32,
        mut read: impl FnMut(u32, u32) -> Result<Buffer>,
    ) -> Result<Buffer> {
        let mut whole = BufferMut::zeroed(blocks as usize);
        let mut done = 0;
        while done < blocks {
            let part = (blocks - done).min(self.limit());
            let buffer = read(done, part)?;
            let at = done as usize * BLOCK_SIZE;
            if let Some(to) = whole.get_mut(at..at + buffer.len()) {
                to.copy_from_slice(&buffer);
            }
            done += part;
        }
        Ok(whole.freeze())
    }

    /// Whether zones are stripe sets.
    pub(crate) fn is_striped(&self) -> bool {
        self.geometry().stripes.is_some()
    }

    /// Whether blocks could be read in spite of any one zone of their stripe set that is lost.
    pub(crate) fn rows_agree(&self, addr: Addr, blocks: u32) -> bool {
        let agree = self.device.rows_agree(addr.zone(), addr.block(), blocks);
        agree.unwrap_or(false)
    }

    /// Blocks of a frame, each from wherever it is as its checksum says; nothing in place of one that is so
    /// nowhere.
    pub(crate) fn read_frame(&self, addr: Addr, crcs: &[u32]) -> Vec<Option<Buffer>> {
        let read = self.read(addr, crcs.len() as u32).ok();
        let blocks = crcs.iter().enumerate();
        blocks
            .map(|(at, crc)| {
                let is_good = |block: &Buffer| checksum::data_block(block) == *crc;
                let block = read.as_ref().map(|read| read.slice(at..at + 1));
                let addr = addr.offset(at as u32);
                block.filter(is_good).or_else(|| match read {
                    Some(_) => self.others(addr, 1).flatten().find(is_good),
                    // One may be unreadable, and not the others.
                    None => self.ways(addr, 1).find(is_good),
                })
            })
            .collect()
    }

    /// What `content` makes of the blocks that a packed extent lies in, from wherever they are good.
    pub(crate) fn read_packed<T>(
        &self,
        packed: &Packed,
        content: impl Fn(&Buffer) -> Option<T>,
    ) -> Option<T> {
        let mut ways = self.ways(packed.addr, packed.span());
        ways.find_map(|blocks| content(&blocks))
    }

    fn is_written_here(&self, addr: Addr, blocks: u64) -> bool {
        addr.device() == DeviceId(0)
            && u64::from(addr.block()) + blocks <= u64::from(self.written(addr.zone()))
    }

    /// Reads blocks that are inside the written part of this very zone.
    pub(crate) fn read(&self, addr: Addr, blocks: u32) -> Result<Buffer> {
        if blocks == 0 || !self.is_written_here(addr, blocks.into()) {
            return Err(InspectError::OutOfBounds { addr, blocks });
        }
        let read = |at, blocks| {
            let block = addr.block() + at;
            Ok(self.device.read(addr.zone(), block, blocks)?)
        };
        match blocks <= self.limit() {
            true => read(0, blocks),
            false => self.in_commands(blocks, read),
        }
    }
}
