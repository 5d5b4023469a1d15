//! Whether the data of a record above the durable LSN is on the device: by the write pointer
//! where that proves it, else by checksums.

use std::cell::RefCell;
use std::collections::BTreeMap;

use persimmon_device::{BLOCK_SIZE, ZoneId, ZoneInfo, ZoneState};
use persimmon_format::extent::Extent;
use persimmon_format::record::Op;
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::{VolumeIdentity, ZoneHeader};
use persimmon_format::{Addr, DeviceId, checksum};

use crate::faults::{Fault, fault};
use crate::media::Media;

/// What there is to judge by.
pub(crate) struct Arrival<'a> {
    pub(crate) media: &'a Media,
    pub(crate) identity: &'a VolumeIdentity,
    pub(crate) report: &'a [ZoneInfo],
    /// The zones as the checkpoint tells them.
    pub(crate) zit: &'a [ZitEntry],
    /// Zones taken into use after the cut have this sequence or a later one.
    pub(crate) next_sequence: u64,
    /// Zones whose headers were looked at, and whether they are what they must be.
    pub(crate) headers: RefCell<BTreeMap<ZoneId, bool>>,
}

impl Arrival<'_> {
    /// Whether all data that a record refers to is there.
    pub(crate) fn of(&self, ops: &[Op]) -> bool {
        ops.iter().all(|op| match op {
            Op::Map {
                extent: Extent::Frame { addr, crcs },
                ..
            } => self.of_frame(*addr, crcs),
            _ => true,
        })
    }

    fn of_frame(&self, addr: Addr, crcs: &[u32]) -> bool {
        let Some(info) = self.report.get(addr.zone().0 as usize) else {
            return false;
        };
        let written = match info.state {
            // Nothing tells whether it had arrived. What is lost now shall not take later changes
            // along, which may have been acknowledged.
            ZoneState::Offline => return true,
            ZoneState::ReadOnly => info.capacity,
            _ => info.write_pointer,
        };
        let end = u64::from(addr.block()) + crcs.len() as u64;
        if end > u64::from(written) && !fault(Fault::NoWritePointerCheck) {
            return false;
        }
        // Where completed commands can be lost a reset can, and then an old write pointer stands
        // over old data.
        let geometry = self.media.geometry();
        if geometry.write_pointer_is_proof && !geometry.volatile_cache && info.state.is_active() {
            return true;
        }
        let Ok(bytes) = self.media.read(addr, crcs.len() as u32) else {
            return false;
        };
        self.header_arrived(addr.zone())
            && bytes
                .chunks_exact(BLOCK_SIZE)
                .zip(crcs)
                .all(|(block, crc)| checksum::data_block(block) == *crc)
    }

    /// Whether the header of a data zone is there, and of its present life: it can be lost while
    /// blocks behind it arrive.
    fn header_arrived(&self, zone: ZoneId) -> bool {
        if let Some(known) = self.headers.borrow().get(&zone) {
            return *known;
        }
        let entry = self.zit.get(zone.0 as usize).copied().unwrap_or_default();
        let arrived =
            read_header(self.media, self.identity, zone).is_some_and(|header| match entry.role {
                Role::Data => header.sequence >= entry.sequence,
                _ => header.role == Role::Data && header.sequence >= self.next_sequence,
            });
        self.headers.borrow_mut().insert(zone, arrived);
        arrived
    }
}

/// The header of a zone of this volume.
pub(crate) fn read_header(
    media: &Media,
    identity: &VolumeIdentity,
    zone: ZoneId,
) -> Option<ZoneHeader> {
    let block = media.read(Addr::new(DeviceId(0), zone, 0), 1).ok()?;
    let header = ZoneHeader::decode(&block).ok()?;
    (header.volume.uuid == identity.uuid && header.zone == zone).then_some(header)
}
