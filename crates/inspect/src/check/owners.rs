//! Who owns which block, and how many blocks of each zone are owned.

use std::ops::{Deref, DerefMut};

use persimmon_format::delta::is_delta;
use persimmon_format::envelope::Kind;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{FrameTally, PackUnits};
use persimmon_format::{Addr, Key, KeyKind};

use crate::claims::Claims;
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
    /// Where the shared blocks that there are, or that files name, end.
    pub shared_end: u64,
    pub deltas: u64,
}

impl Usage {
    pub(crate) fn new(inspector: &Inspector<'_>) -> Usage {
        Usage {
            owned: vec![PackUnits::ZERO; inspector.zones.len()],
            metadata: vec![PackUnits::ZERO; inspector.zones.len()],
            frames: FrameTally::default(),
            inodes: 0,
            reserved: 0,
            shared_end: 0,
            deltas: 0,
        }
    }

    /// Counts an item of the tree.
    pub(crate) fn item(&mut self, key: &Key, value: &[u8]) {
        match key.kind {
            KeyKind::INODE if !key.is_whiteout(value) => self.inodes += 1,
            KeyKind::EXTENT => {
                self.data(key, value);
                let Ok(extent) = Extent::decode(value) else {
                    return;
                };
                if let Extent::Reserved { blocks } = extent {
                    self.reserved += u64::from(blocks);
                }
                if is_delta(key.item) && !matches!(extent, Extent::Hole { .. }) {
                    self.deltas += 1;
                }
                let end = match extent {
                    extent if key.ino == SHARED => key.item.saturating_add(extent.blocks()),
                    extent => extent.names().map_or(0, |(_, end)| end),
                };
                self.shared_end = self.shared_end.max(end);
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

/// Blocks in which something was claimed.
pub(crate) struct Owners(Claims);

impl Deref for Owners {
    type Target = Claims;
    fn deref(&self) -> &Claims {
        &self.0
    }
}

impl DerefMut for Owners {
    fn deref_mut(&mut self) -> &mut Claims {
        &mut self.0
    }
}

impl Owners {
    pub(crate) fn new(inspector: &Inspector<'_>) -> Owners {
        let zone_blocks = inspector.media.geometry().zone_blocks;
        Owners(Claims::new(inspector.zones.len(), zone_blocks))
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
