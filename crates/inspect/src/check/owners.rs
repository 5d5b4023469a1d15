//! Who owns which block, and how many blocks of each zone are owned.

use std::collections::HashMap;

use persimmon_format::envelope::Kind;
use persimmon_format::extent::Extent;
use persimmon_format::packed::{BLOCK_PACK_UNITS, FrameTally, PackUnits, Packed};
use persimmon_format::{Addr, Key, KeyKind};

use crate::finding::{Findings, MAT_ENTRY, MAT_SHARED};
use crate::volume::Inspector;
use persimmon_format::table::Role;

/// What the checkpoint's tree uses, counted to be compared with what its tables claim.
pub(crate) struct Usage {
    /// What is owned of each zone.
    pub owned: Vec<PackUnits>,
    /// Those of metadata among them.
    metadata: Vec<PackUnits>,
    frames: FrameTally,
    pub inodes: u64,
    pub reserved: u64,
}

impl Usage {
    pub(crate) fn new(inspector: &Inspector<'_>) -> Usage {
        Usage {
            owned: vec![PackUnits::ZERO; inspector.zones.len()],
            metadata: vec![PackUnits::ZERO; inspector.zones.len()],
            frames: FrameTally::default(),
            inodes: 0,
            reserved: 0,
        }
    }

    /// Counts an item of the tree.
    pub(crate) fn item(&mut self, key: &Key, value: &[u8]) {
        match key.kind {
            KeyKind::INODE => self.inodes += 1,
            KeyKind::EXTENT => {
                self.data(key, value);
                if let Ok(Extent::Reserved { blocks }) = Extent::decode(value) {
                    self.reserved += u64::from(blocks);
                }
            }
            _ => {}
        }
    }

    /// Counts what an item has on the device. Items come in the order of their keys.
    pub(crate) fn data(&mut self, key: &Key, value: &[u8]) {
        let extent = match key.kind {
            KeyKind::EXTENT => Extent::decode(value).ok(),
            _ => None,
        };
        if let Some(extent) = extent
            && let Some(addr) = extent.addr()
        {
            let stored = self.frames.extent(key.ino, key.item, &extent);
            self.add(addr, stored.units);
        }
    }

    /// Counts data anew: as of a later record.
    pub(crate) fn forget_data(&mut self) {
        self.frames = FrameTally::default();
        self.owned.clone_from(&self.metadata);
    }

    fn add(&mut self, addr: Addr, units: PackUnits) {
        if let Some(count) = self.owned.get_mut(addr.zone().0 as usize) {
            *count += units;
        }
    }

    pub(crate) fn data_blocks(&self) -> u64 {
        self.owned.iter().copied().sum::<PackUnits>().blocks()
    }
}

/// A bit for each block of the zones in which something was claimed.
pub(crate) struct Owners {
    zones: Vec<Option<Vec<u64>>>,
    /// A bit for each packing unit of the blocks in which packed extents were claimed.
    packed: HashMap<Addr, [u64; BLOCK_PACK_UNITS as usize / 64]>,
    zone_blocks: usize,
}

impl Owners {
    pub(crate) fn new(inspector: &Inspector<'_>) -> Owners {
        Owners {
            zones: vec![None; inspector.zones.len()],
            packed: HashMap::new(),
            zone_blocks: inspector.media.geometry().zone_blocks as usize,
        }
    }

    /// Claims blocks; tells how many of them were claimed before.
    pub(crate) fn claim(&mut self, addr: Addr, blocks: u64) -> u64 {
        let Some(zone) = self.zones.get_mut(addr.zone().0 as usize) else {
            return 0;
        };
        let words = self.zone_blocks.div_ceil(64);
        let bits = zone.get_or_insert_with(|| vec![0; words]);
        let start = u64::from(addr.block());
        let mut taken = 0;
        for block in start..start.saturating_add(blocks) {
            if let Some(word) = bits.get_mut((block / 64) as usize) {
                let bit = 1 << (block % 64);
                taken += u64::from(*word & bit != 0);
                *word |= bit;
            }
        }
        taken
    }

    /// Claims the whole frame of a packed extent; tells how many of its packing units were claimed before.
    pub(crate) fn claim_frame(&mut self, packed: &Packed) -> u64 {
        let start = u64::from(packed.unit);
        let mut taken = 0;
        for unit in start..start + packed.frame.pack_units().0 {
            let block = packed.addr.offset((unit / BLOCK_PACK_UNITS) as u32);
            let unit = unit % BLOCK_PACK_UNITS;
            if !self.packed.contains_key(&block) && self.has(block) {
                // All of it is another's.
                taken += 1;
                continue;
            }
            let bits = self.packed.entry(block).or_default();
            if let Some(word) = bits.get_mut((unit / 64) as usize) {
                let bit = 1 << (unit % 64);
                taken += u64::from(*word & bit != 0);
                *word |= bit;
            }
        }
        for at in 0..packed.span() {
            self.claim(packed.addr.offset(at), 1);
        }
        taken
    }

    /// Whether a block was claimed.
    pub(crate) fn has(&self, addr: Addr) -> bool {
        let (zone, block) = (addr.zone().0 as usize, addr.block() as usize);
        let bits = self.zones.get(zone).and_then(Option::as_ref);
        bits.and_then(|bits| bits.get(block / 64))
            .is_some_and(|word| word & (1 << (block % 64)) != 0)
    }

    /// Whether something in the zone was claimed.
    pub(crate) fn uses(&self, zone: usize) -> bool {
        self.zones.get(zone).is_some_and(Option::is_some)
    }

    /// Claims the blocks of pages and table chunks of the checkpoint and checks where they are.
    pub(crate) fn claim_metadata(
        &mut self,
        inspector: &Inspector<'_>,
        findings: &mut Findings,
        usage: &mut Usage,
    ) {
        let Ok(checkpoint) = inspector.checkpoint() else {
            return;
        };
        for (kind, number, addr, blocks) in checkpoint.metadata() {
            let what = match kind {
                Kind::MatChunk => "MAT chunk",
                Kind::ZitChunk => "ZIT chunk",
                _ => "page",
            };
            let blocks = u64::from(blocks);
            let place = format_args!("{what} {number}").to_string();
            let metadata = inspector
                .header(addr.zone())
                .is_none_or(|header| header.role == Role::Metadata);
            if addr.block() == 0 || !metadata || !inspector.media.is_written(addr, blocks) {
                findings.add(&MAT_ENTRY, place, format_args!("{addr}, {blocks} blocks"));
                continue;
            }
            if kind == Kind::Page && number as u64 >= checkpoint.footer.page_limit {
                let detail = format!("page ids end at {}", checkpoint.footer.page_limit);
                findings.add(&MAT_ENTRY, &place, detail);
            }
            let units = PackUnits::of_blocks(blocks);
            usage.add(addr, units);
            if let Some(count) = usage.metadata.get_mut(addr.zone().0 as usize) {
                *count += units;
            }
            let taken = self.claim(addr, blocks);
            if taken > 0 {
                findings.add(&MAT_SHARED, place, format_args!("{taken} blocks at {addr}"));
            }
        }
    }
}
