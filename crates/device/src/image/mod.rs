//! A regular file or an ordinary block device that behaves like a ZNS SSD.
//!
//! Persistence: the image has a volatile cache. Data goes to the host's page cache at once; write
//! pointers are kept in memory and written to the table by a flush, which then makes the file
//! durable by one fdatasync. A record does the first half of that. Reset and finish write their record to the page cache at once. So
//! after the death of the process the image holds the state of the last flush or record, later resets and
//! finishes, and nothing half: a page-cache write of one record is never seen in part.
//!
//! A power cut of the host may moreover keep any part of what no flush covered. What stays true:
//! a record is old or new (two alternating slots in one sector), blocks below a flushed write
//! pointer are there, and a zone that shows the write pointer of before its reset was not written
//! again, for the first write after a reset waits until the reset is durable. A write pointer may
//! be recorded although the data below it is missing (zeros, or blocks of an earlier life of a
//! zone reset with `keep_allocated`): it proves nothing, checksums decide.
//!
//! Small writes that are flushed one by one may have zeros written behind them, beyond the write pointer, so that the
//! next flushes cost the host no change of its own metadata (see [`ahead`]).
//!
//! Locks: each zone has an order lock, held over the I/O of a command that changes the zone. That
//! is the sequential-write rule itself (a second write to the zone has nowhere to go before the
//! first is through), and costs no parallelism, as the host runs buffered writes to one file one
//! after the other. Of more than 1,024 zones some share a lock, for it takes memory. Reads take no lock. The state of all zones is under one lock that is never
//! held over I/O.
//!
//! Write errors: a failed write leaves the write pointer where it was, so a full host filesystem
//! can be cured and the write repeated. After a failed fdatasync the host has forgotten which
//! pages were not written: the image then refuses all writes and flushes until it is opened anew.
//! The host's cache still has those pages then, and takes them for written. So opening syncs, has the
//! host forget its cache, and only then reads: what it finds is what the disk has.

mod ahead;
mod contents;
mod create;
mod find;
mod flush;
mod grow;
mod host;
mod io;
mod memory;
mod open;
mod table;
#[cfg(feature = "testing")]
pub mod testing;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use persimmon_sync::{Mutex, MutexGuard};

use persimmon_format::container::{ContainerGeometry, Layout, Superblock};

use crate::per_zone::{PerZone, ZoneCells};
use crate::zones::ZoneMachine;
use crate::{
    Buffer, Command, Completion, DeviceError, Geometry, Pending, Result, ZoneId, ZoneInfo,
    ZoneKind, ZonedDevice,
};

pub use crate::options::{CreateOptions, OpenOptions};
pub(crate) use create::{Claim, check_new, erase};
pub use grow::Growth;
pub use open::Notice;
pub use persimmon_format::container::ContainerGeometry as ImageGeometry;

use ahead::LastSmall;
use flush::FlushGate;
pub(crate) use host::{Host, HostFile, drop_cached};
use table::Table;

/// Blocks one command may transfer (4 MiB): enough to make the host's cost per call vanish.
const TRANSFER_BLOCKS_MAX: u32 = 1024;

/// An image file or ordinary block device in the role of a ZNS SSD.
pub struct ImageDevice {
    path: PathBuf,
    geometry: Geometry,
    layout: Layout,
    superblock: Mutex<Superblock>,
    read_only: bool,
    notices: Vec<Notice>,
    host: Box<dyn Host>,
    /// It has its space of a filesystem.
    on_file: bool,
    zones: Mutex<Zones>,
    /// Per zone, what a read needs to know, for readers that take no lock: see [`ReadLimit`].
    limits: ZoneCells<AtomicU64>,
    orders: ByZone<Order>,
    table: Table,
    gate: FlushGate,
    /// What is written ahead of write pointers, where that makes a flush faster.
    zeros: Option<Buffer>,
    /// Something was written to the file since the last flush began.
    touched: AtomicBool,
}

/// All zones' state, and which zones' records are behind it.
struct Zones {
    machine: ZoneMachine,
    dirty: Vec<ZoneId>,
    is_dirty: PerZone<bool>,
}

/// What the order lock of some zones guards besides the order.
#[derive(Debug, Default)]
struct Order {
    /// Of zones reset and not written since, the flush generation that makes the reset durable: no write before
    /// it is through.
    resets_durable_at: HashMap<ZoneId, u64>,
    /// Small writes, for zeros ahead of the write pointer.
    small: LastSmall,
}

/// Locks of zones.
const LOCKS_MAX: u32 = 1024;

/// Something for each lock of zones: for each zone, where there are few. A command changes one zone, so nobody
/// holds two.
#[derive(Debug)]
struct ByZone<T> {
    zone_count: u32,
    locks: Box<[Mutex<T>]>,
}

impl<T> ByZone<T> {
    /// For so many zones.
    fn new(zone_count: u32, mut make: impl FnMut() -> T) -> ByZone<T> {
        let locks = 0..zone_count.min(LOCKS_MAX);
        ByZone {
            zone_count,
            locks: locks.map(|_| Mutex::new(make())).collect(),
        }
    }

    /// The lock of a zone, and which of those it is for the zone is.
    fn get(&self, zone: ZoneId) -> Result<(MutexGuard<'_, T>, usize)> {
        let count = self.zone_count;
        let locks = count.clamp(1, LOCKS_MAX);
        let shared = self.locks.get((zone.0 % locks) as usize);
        match shared.filter(|_| zone.0 < count) {
            Some(shared) => Ok((shared.lock(), (zone.0 / locks) as usize)),
            None => Err(DeviceError::NoSuchZone { zone, count }),
        }
    }
}

/// Blocks readable, and blocks of these that were really written; the others (of a finished zone)
/// read as zeros.
#[derive(Clone, Copy)]
struct ReadLimit {
    readable: u32,
    written: u32,
}

impl ReadLimit {
    fn pack(self) -> u64 {
        (u64::from(self.readable) << 32) | u64::from(self.written)
    }

    fn unpack(packed: u64) -> ReadLimit {
        ReadLimit {
            readable: (packed >> 32) as u32,
            written: packed as u32,
        }
    }
}

impl ImageDevice {
    /// The image file or device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What opening found damaged and could live with.
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// UUID of the volume inside, as recorded for probing.
    #[must_use]
    pub fn uuid(&self) -> uuid::Uuid {
        uuid::Uuid::from_bytes(self.superblock.lock().uuid)
    }

    /// Label of the volume inside, as recorded for probing.
    #[must_use]
    pub fn label(&self) -> String {
        self.superblock.lock().label.clone()
    }

    /// Opened for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Tells readers about the new state of a zone. Under the lock of `zones`, so that the last
    /// change is the one told.
    fn publish(&self, machine: &ZoneMachine, zone: ZoneId) -> Result<()> {
        let written = machine.snapshot(zone)?.written;
        let readable = machine.readable(zone).unwrap_or(0);
        let limit = ReadLimit { readable, written };
        let at = zone.0 as usize;
        // Of a zone in which nothing ever was there is nothing to read, as its limit says that was not made.
        let cell = match limit.pack() {
            0 => self.limits.get(at),
            _ => self.limits.make(at),
        };
        if let Some(cell) = cell {
            cell.store(limit.pack(), Ordering::Release);
        }
        Ok(())
    }

    /// Where a block of a zone is in the file.
    fn offset(&self, zone: ZoneId, block: u32) -> u64 {
        self.layout.data
            + u64::from(zone.0) * self.layout.zone_stride
            + u64::from(block) * crate::BLOCK_SIZE as u64
    }

    /// What the device in a container of this shape is like.
    #[must_use]
    pub fn device_geometry(container: &ContainerGeometry) -> Geometry {
        Geometry {
            zone_count: container.zone_count,
            zone_blocks: container.zone_blocks,
            conventional_zones: 0,
            metadata_zones: Default::default(),
            max_open: container.max_open,
            max_active: container.max_active,
            max_transfer_blocks: TRANSFER_BLOCKS_MAX,
            max_append_blocks: TRANSFER_BLOCKS_MAX,
            volatile_cache: true,
            write_pointer_is_proof: false,
            stripes: None,
        }
    }
}

impl ZonedDevice for ImageDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn report(&self, zones: Range<u32>) -> Result<Vec<ZoneInfo>> {
        let mut report = Vec::with_capacity(zones.len());
        let state = self.zones.lock();
        for zone in zones {
            report.push(state.machine.info(ZoneId(zone), ZoneKind::Sequential)?);
        }
        Ok(report)
    }

    fn space_is_hosts(&self) -> bool {
        self.on_file
    }

    fn identity(&self) -> Option<crate::DeviceIdentity> {
        crate::DeviceIdentity::of(&self.path)
    }

    fn read_into(&self, zone: ZoneId, block: u32, into: &mut [u8], _: bool) -> Option<Result<()>> {
        Some(self.read_blocks_into(zone, block, into))
    }

    fn submit(&self, command: Command) -> Pending {
        let done = |result: Result<()>| result.map(|()| Completion::Done);
        Pending::ready(match command {
            Command::Read {
                zone,
                block,
                blocks,
            } => self
                .read_blocks(zone, block, blocks)
                .map(|buffer| Completion::Read(buffer.freeze())),
            Command::Write { zone, block, data } => {
                done(self.write_blocks(zone, Some(block), &data).map(|_| ()))
            }
            Command::Append { zone, data } => self
                .write_blocks(zone, None, &data)
                .map(Completion::Appended),
            Command::Reset {
                zone,
                keep_allocated,
            } => done(self.reset(zone, keep_allocated)),
            Command::Finish { zone } => done(self.finish(zone)),
            Command::Open { zone } => done(self.open_zone(zone)),
            Command::Close { zone } => done(self.close_zone(zone)),
            Command::Record => done(self.record()),
            Command::Flush => done(self.flush_cache()),
        })
    }
}

impl std::fmt::Debug for ImageDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageDevice")
            .field("path", &self.path)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
