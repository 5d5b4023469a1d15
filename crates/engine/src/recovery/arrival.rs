//! Whether the data of a record above the durable LSN is on the device: by the write pointer
//! where that proves it, else by checksums.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use persimmon_device::per_zone::PerZone;
use persimmon_device::{BLOCK_SIZE, ZoneId, ZoneInfo, ZoneState};
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::record::{Op, Share, mapped_anew};
use persimmon_format::table::{Role, ZitEntry};
use persimmon_format::zone_header::VolumeIdentity;
use persimmon_format::{Addr, Ino, checksum};

use crate::error::Result;
use crate::faults::{Fault, fault};
use crate::headers::read_header;
use crate::media::Media;
use crate::zones::Zones;

/// Something that has arrived in one zone of its stripe set alone, and where a record has it.
pub(crate) struct Thin {
    pub(crate) zone: ZoneId,
    ino: Ino,
    block: u64,
    extent: Extent,
}

impl Thin {
    /// Its file, block and extent.
    pub(crate) fn mapped(&self) -> (Ino, u64, Extent) {
        (self.ino, self.block, self.extent.clone())
    }

    /// What of it two files share from then on: where the store of shared blocks has it.
    fn shared(&self, share: &Share) -> Option<Thin> {
        let start = self.block.max(share.from_block);
        let end = (self.block.saturating_add(self.extent.blocks())).min(share.source_end());
        let length = end.checked_sub(start).filter(|length| *length > 0)?;
        Some(Thin {
            zone: self.zone,
            ino: SHARED,
            block: share.place(start)?,
            extent: self.extent.part(start - self.block, length),
        })
    }
}

/// What a crash left in one zone of a stripe set alone.
#[derive(Default)]
struct AllThin {
    /// By the file that has it.
    of_file: BTreeMap<Ino, Vec<Thin>>,
    /// The blocks in which it lies.
    blocks: BTreeSet<Addr>,
}

impl AllThin {
    fn add(&mut self, thin: Thin) {
        self.of_file.entry(thin.ino).or_default().push(thin);
    }

    fn add_at(&mut self, (addr, blocks): (Addr, u32), thin: Thin) {
        self.blocks.extend((0..blocks).map(|at| addr.offset(at)));
        self.add(thin);
    }

    /// A record may have what is thin at another place of the file, or shared by two files: it is looked for there too.
    fn follow(&mut self, ops: &[Op]) {
        if self.of_file.is_empty() {
            return;
        }
        let mut anew = mapped_anew(ops).peekable();
        for op in ops {
            match op {
                Op::Map { ino, block, extent } => {
                    let is_anew = |(_, _, of): &(Ino, u64, &Extent)| std::ptr::eq(*of, extent);
                    if anew.next_if(is_anew).is_some() {
                        continue;
                    }
                    let Some((addr, blocks)) = extent.place() else {
                        continue;
                    };
                    if self
                        .blocks
                        .range(addr..addr.offset(blocks))
                        .next()
                        .is_some()
                    {
                        self.add(Thin {
                            zone: addr.zone(),
                            ino: ino.plain(),
                            block: *block,
                            extent: extent.clone(),
                        });
                    }
                }
                Op::Move { extent, .. } => {
                    anew.next_if(|(_, _, of)| std::ptr::eq(*of, extent));
                }
                Op::Share(share) => {
                    let of_source = self.of_file.get(&share.from.plain());
                    let shared = of_source.into_iter().flatten();
                    let shared: Vec<Thin> = shared.filter_map(|thin| thin.shared(share)).collect();
                    shared.into_iter().for_each(|thin| self.add(thin));
                }
                _ => {}
            }
        }
    }
}

/// What there is to judge by.
pub(crate) struct Arrival<'a> {
    pub(crate) media: &'a Media,
    identity: &'a VolumeIdentity,
    report: &'a [ZoneInfo],
    /// The zones as the checkpoint tells them.
    zit: &'a PerZone<ZitEntry>,
    /// Zones taken into use after the cut have this sequence or a later one.
    next_sequence: u64,
    /// Zones whose headers were looked at, and whether they are what they must be.
    headers: RefCell<BTreeMap<ZoneId, bool>>,
    /// It is there, but must not stay so.
    thin: RefCell<AllThin>,
}

impl<'a> Arrival<'a> {
    /// With no zone looked at yet.
    pub(crate) fn new(
        media: &'a Media,
        identity: &'a VolumeIdentity,
        report: &'a [ZoneInfo],
        zit: &'a PerZone<ZitEntry>,
        next_sequence: u64,
    ) -> Arrival<'a> {
        Arrival {
            media,
            identity,
            report,
            zit,
            next_sequence,
            headers: RefCell::default(),
            thin: RefCell::default(),
        }
    }

    /// What hangs on one zone of its stripe set. The sets are not written to any more.
    pub(crate) fn take_thin(self, zones: &Zones) -> Vec<Thin> {
        let thin = self.thin.into_inner().of_file.into_values();
        let thin: Vec<Thin> = thin.flatten().collect();
        for thin in &thin {
            zones.note_lack_of_redundancy(thin.zone);
        }
        thin
    }

    /// Whether all data that a record refers to is there. An error where the device does not let
    /// that be known: to take it for missing would cut off what may have been acknowledged.
    pub(crate) fn of(&self, ops: &[Op]) -> Result<bool> {
        for (ino, block, extent) in mapped_anew(ops) {
            let arrived = match extent {
                Extent::Frame { addr, crcs } => {
                    let is_intact = |bytes: &[u8]| {
                        let mut blocks = bytes.chunks_exact(BLOCK_SIZE).zip(crcs);
                        blocks.all(|(block, crc)| checksum::data_block(block) == *crc)
                    };
                    self.of_blocks(*addr, crcs.len() as u32, is_intact)?
                }
                Extent::Packed(packed) => {
                    let is_intact = |bytes: &[u8]| packed.verified(bytes).is_some();
                    self.of_blocks(packed.addr, packed.span(), is_intact)?
                }
                Extent::Inline(_)
                | Extent::Reserved { .. }
                | Extent::Compressed(_)
                | Extent::Shared { .. }
                | Extent::Hole { .. } => true,
            };
            if !arrived {
                return Ok(false);
            }
            if let Some((addr, blocks)) = extent.place()
                && self.is_thin(addr, blocks)
            {
                let thin = Thin {
                    zone: addr.zone(),
                    // Whatever subvolume it is written in, the block has one place.
                    ino: ino.plain(),
                    block,
                    extent: extent.clone(),
                };
                self.thin.borrow_mut().add_at((addr, blocks), thin);
            }
        }
        self.thin.borrow_mut().follow(ops);
        Ok(true)
    }

    fn of_blocks(
        &self,
        addr: Addr,
        blocks: u32,
        is_intact: impl Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        let Some(info) = self.report.get(addr.zone().0 as usize) else {
            return Ok(false);
        };
        let written = match info.state {
            // Nothing tells whether it had arrived. What is lost now shall not take later changes
            // along, which may have been acknowledged.
            ZoneState::Offline => return Ok(true),
            ZoneState::ReadOnly => info.capacity,
            _ => info.write_pointer,
        };
        let end = u64::from(addr.block()) + u64::from(blocks);
        if end > u64::from(written) && !fault(Fault::NoWritePointerCheck) {
            return Ok(false);
        }
        // Where completed commands can be lost a reset can, and then an old write pointer stands
        // over old data.
        let geometry = self.media.geometry();
        let proves =
            geometry.write_pointer_is_proof && !geometry.volatile_cache && info.state.is_active();
        // The block below the write pointer may have been torn, and padded since.
        if proves && end < u64::from(written) {
            return Ok(true);
        }
        let bytes = self.media.read(addr, blocks)?;
        let is_there = is_intact(&bytes) || {
            let mut others = self.media.others(addr, blocks).flatten();
            others.any(|bytes| is_intact(&bytes))
        };
        Ok(is_there && (proves || self.header_arrived(addr.zone())?))
    }

    /// Whether blocks that are there hang on one zone of their stripe set. Where one has failed it may be that one, and it may go
    /// altogether before the set is emptied.
    fn is_thin(&self, addr: Addr, blocks: u32) -> bool {
        let info = self.report.get(addr.zone().0 as usize);
        let is_there = info.is_some_and(|info| info.state != ZoneState::Offline);
        is_there && !self.media.rows_agree(addr, blocks)
    }

    /// Whether the header of a data zone is there, and of its present life: it can be lost while
    /// blocks behind it arrive.
    fn header_arrived(&self, zone: ZoneId) -> Result<bool> {
        if let Some(known) = self.headers.borrow().get(&zone) {
            return Ok(*known);
        }
        let entry = self.zit.get(zone.0 as usize).copied().unwrap_or_default();
        let least = match entry.role {
            // Not reset since, for there is something in it, or known by its sequence.
            Role::Data if entry.valid > 0 || entry.sequence > 0 => entry.sequence,
            _ => self.next_sequence,
        };
        // It may have held pages of a checkpoint that came to nothing in between.
        let arrived = read_header(self.media, self.identity, zone)?
            .is_some_and(|header| header.role == Role::Data && header.sequence >= least);
        self.headers.borrow_mut().insert(zone, arrived);
        Ok(arrived)
    }
}
