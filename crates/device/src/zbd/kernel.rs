//! What the kernel offers for a zoned block device: zone reports and zone management, by ioctl.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};

use crate::linux::Action;
pub(super) use crate::linux::limits::SECTOR_BYTES;
use crate::{BLOCK_SIZE, ZoneId, ZoneInfo, ZoneKind, ZoneState};

pub(super) const BLOCK_SECTORS: u64 = BLOCK_SIZE as u64 / SECTOR_BYTES;

/// Zones asked for at a time: bounds memory whatever the number of zones.
const REPORT_ZONES: usize = 1024;

/// `struct blk_zone_report` of <linux/blkzoned.h>, without the zones behind it.
#[derive(Clone, Copy)]
#[repr(C)]
struct ReportHeader {
    sector: u64,
    nr_zones: u32,
    flags: u32,
}

/// `struct blk_zone`.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct RawZone {
    start: u64,
    len: u64,
    wp: u64,
    kind: u8,
    cond: u8,
    non_seq: u8,
    reset: u8,
    resv: [u8; 4],
    capacity: u64,
    reserved: [u8; 24],
}

#[repr(C)]
struct Report {
    header: ReportHeader,
    zones: [RawZone; REPORT_ZONES],
}

/// `struct blk_zone_range`.
#[repr(C)]
struct Range {
    sector: u64,
    nr_sectors: u64,
}

const _: () = assert!(size_of::<RawZone>() == 64 && size_of::<ReportHeader>() == 16);

const REPORT: Opcode = opcode::read_write::<ReportHeader>(0x12, 130);
const RESET: Opcode = opcode::write::<Range>(0x12, 131);
const OPEN: Opcode = opcode::write::<Range>(0x12, 134);
const CLOSE: Opcode = opcode::write::<Range>(0x12, 135);
const FINISH: Opcode = opcode::write::<Range>(0x12, 136);

/// The report says where each zone's capacity ends (Linux 5.9); before, it is all of the zone.
const REPORTS_CAPACITY: u32 = 1;

/// A zone as the kernel reports it, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub start: u64,
    pub length: u64,
    pub write_pointer: u64,
    pub capacity: u64,
    pub kind: ZoneKind,
    pub state: ZoneState,
}

impl Zone {
    /// In blocks, from the start of the zone. Of a block that is written in part nothing counts.
    pub(super) fn info(&self) -> ZoneInfo {
        let blocks = |sectors: u64| u32::try_from(sectors / BLOCK_SECTORS).unwrap_or(u32::MAX);
        let capacity = blocks(self.capacity);
        let written = self.write_pointer.saturating_sub(self.start);
        ZoneInfo {
            kind: self.kind,
            state: self.state,
            capacity,
            write_pointer: match self.state {
                ZoneState::Full => capacity,
                ZoneState::Empty => 0,
                _ => blocks(written).min(capacity),
            },
        }
    }

    /// Sectors of its last block that are written, if that is not all of them.
    pub(super) fn torn_sectors(&self) -> u64 {
        if !self.state.is_active() {
            return 0;
        }
        self.write_pointer.saturating_sub(self.start) % BLOCK_SECTORS
    }
}

/// All zones from the one at `sector` on, at most `zones`; fewer where the device ends.
pub(crate) fn report(file: &File, sector: u64, zones: u32) -> io::Result<Vec<Zone>> {
    let mut found = Vec::with_capacity(zones as usize);
    let mut at = sector;
    while found.len() < zones as usize {
        let wanted = (zones as usize - found.len()).min(REPORT_ZONES);
        let part = report_part(file, at, wanted)?;
        let Some(last) = part.last() else {
            break;
        };
        at = last.start.saturating_add(last.length);
        found.extend(part);
    }
    found.truncate(zones as usize);
    Ok(found)
}

fn report_part(file: &File, sector: u64, zones: usize) -> io::Result<Vec<Zone>> {
    let mut report = Box::new(Report {
        header: ReportHeader {
            sector,
            nr_zones: zones.min(REPORT_ZONES) as u32,
            flags: 0,
        },
        zones: [bytemuck::Zeroable::zeroed(); REPORT_ZONES],
    });
    // SAFETY: BLKREPORTZONE reads the header and writes it and at most `nr_zones` zones behind it,
    // for which `Report` has room. Any bytes are valid values of its fields.
    #[allow(unsafe_code)]
    let done = unsafe { ioctl(file.as_fd(), Updater::<REPORT, Report>::new(&mut report)) };
    done?;
    let has_capacity = report.header.flags & REPORTS_CAPACITY != 0;
    let count = (report.header.nr_zones as usize).min(zones);
    let raw = report.zones.get(..count).unwrap_or_default();
    Ok(raw.iter().map(|zone| decode(zone, has_capacity)).collect())
}

fn decode(raw: &RawZone, has_capacity: bool) -> Zone {
    Zone {
        start: raw.start,
        length: raw.len,
        write_pointer: raw.wp,
        capacity: if has_capacity { raw.capacity } else { raw.len },
        kind: match raw.kind {
            2 => ZoneKind::Sequential,
            _ => ZoneKind::Conventional,
        },
        // BLK_ZONE_COND_*. What is unknown is not written to.
        state: match raw.cond {
            1 => ZoneState::Empty,
            2 => ZoneState::ImplicitlyOpen,
            3 => ZoneState::ExplicitlyOpen,
            4 => ZoneState::Closed,
            0xe => ZoneState::Full,
            0xf => ZoneState::Offline,
            _ => ZoneState::ReadOnly,
        },
    }
}

/// Does something to the zone of `sectors` sectors at `sector`. Returns when it is done.
pub(super) fn manage(file: &File, action: Action, sector: u64, sectors: u64) -> io::Result<()> {
    let range = Range {
        sector,
        nr_sectors: sectors,
    };
    // SAFETY: each of these reads a `struct blk_zone_range` and nothing else.
    #[allow(unsafe_code)]
    let done = unsafe {
        match action {
            Action::Reset => ioctl(file.as_fd(), Setter::<RESET, Range>::new(range)),
            Action::Finish => ioctl(file.as_fd(), Setter::<FINISH, Range>::new(range)),
            Action::Open => ioctl(file.as_fd(), Setter::<OPEN, Range>::new(range)),
            Action::Close => ioctl(file.as_fd(), Setter::<CLOSE, Range>::new(range)),
        }
    };
    Ok(done?)
}

/// The first sector of a zone.
pub(super) fn zone_sector(zone: ZoneId, zone_blocks: u32, first: u32) -> u64 {
    (u64::from(zone.0) + u64::from(first)) * u64::from(zone_blocks) * BLOCK_SECTORS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(cond: u8, wp: u64) -> RawZone {
        RawZone {
            start: 4096,
            len: 2048,
            wp,
            kind: 2,
            cond,
            capacity: 1600,
            ..bytemuck::Zeroable::zeroed()
        }
    }

    #[test]
    fn zones_are_read_in_blocks() {
        let closed = decode(&raw(4, 4096 + 80), true);
        assert_eq!(closed.torn_sectors(), 0);
        let info = closed.info();
        assert_eq!(
            (info.state, info.capacity, info.write_pointer),
            (ZoneState::Closed, 200, 10)
        );
        // Half a block more is none.
        let torn = decode(&raw(2, 4096 + 84), true);
        assert_eq!((torn.torn_sectors(), torn.info().write_pointer), (4, 10));
        assert_eq!(decode(&raw(1, 4096), false).info().capacity, 256);
        // Drives say all sorts of things about the write pointer of a full zone.
        assert_eq!(decode(&raw(0xe, u64::MAX), true).info().write_pointer, 200);
        assert_eq!(decode(&raw(0xd, 0), true).info().state, ZoneState::ReadOnly);
        assert_eq!(decode(&raw(0xf, 0), true).info().state, ZoneState::Offline);
    }
}
