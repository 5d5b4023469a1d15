//! How the content of a file is stored: its extents, some at a time, and what they take.

use persimmon_engine::View;
use persimmon_format::extent::Extent;
use persimmon_format::inode::SHARED;
use persimmon_format::packed::{COMPRESSED_BLOCKS_MAX, FrameTally};
use persimmon_format::{BLOCK_SIZE, Ino};

use crate::{FileKind, Result, Vfs};

/// Extents of a file in one look.
const EXTENTS_MAX: usize = 1024;
/// Extents of the store of shared blocks in one look.
const SHARED_MAX: usize = 1024;

const BLOCK_SECTORS: u64 = BLOCK_SIZE as u64 / 512;

/// Some extents of a file.
#[derive(Debug, Default)]
pub struct StorageLook {
    /// Each with its first file block, and the sectors it takes: none for shared ones.
    pub extents: Vec<(u64, Extent, u64)>,
    /// Extents of the store of shared blocks in which these have content: the first block, and the sectors it takes. Other extents, and
    /// other files, may have content in the same ones.
    pub shared: Vec<(u64, u64)>,
    /// Blocks that wait to be written where the file has no extent; told by the first look.
    pub waiting_blocks: u64,
    /// Where the next look begins; `None` at the end.
    pub next: Option<u64>,
}

impl Vfs {
    /// Some extents of a file from the file block `from` on. Nothing of what is no regular file.
    pub fn storage(&self, ino: Ino, from: u64) -> Result<StorageLook> {
        let attr = self.getattr(ino)?;
        if attr.kind() != FileKind::Regular {
            return Ok(StorageLook::default());
        }
        let (mut look, inode) = self.watch(self.volume.view(|view| {
            Ok::<_, persimmon_engine::Error>((look(view, ino, from)?, view.inode(ino)?))
        }))?;
        if from == 0 {
            let stored = inode.map_or(attr.blocks, |inode| inode.sectors);
            // What was written since the attributes were looked at waits no more.
            look.waiting_blocks = attr.blocks.saturating_sub(stored) / BLOCK_SECTORS;
        }
        Ok(look)
    }
}

fn look(view: &View<'_>, ino: Ino, from: u64) -> persimmon_engine::Result<StorageLook> {
    let mut look = StorageLook::default();
    let mut tally = FrameTally::default();
    // A frame may have blocks on both sides of where the look begins: it takes its space once.
    let before = from.saturating_sub(COMPRESSED_BLOCKS_MAX as u64);
    let (extents, _) = view.some_extents(ino, (before, from), EXTENTS_MAX)?;
    for (block, extent) in &extents {
        tally.extent(ino, *block, extent);
    }
    let (extents, next) = view.some_extents(ino, (from, u64::MAX), EXTENTS_MAX)?;
    look.next = next;
    for (block, extent) in extents {
        if let Extent::Shared { at, blocks, .. } = extent {
            // The look before may have ended in the midst of it.
            let skip = from.saturating_sub(block);
            let (at, end) = (at + skip, at + u64::from(blocks));
            let more = add_shared(view, (at, end), &mut look.shared)?;
            let told = more.unwrap_or(end) - at;
            look.extents
                .push((block + skip, extent.part(skip, told), 0));
            if more.is_some() || look.shared.len() == SHARED_MAX {
                look.next = Some(block + skip + told);
                break;
            }
        } else if block >= from {
            let stored = tally.extent(ino, block, &extent);
            look.extents.push((block, extent, stored.sectors));
        }
    }
    Ok(look)
}

/// Adds extents of the store that have some of these blocks, until there are as many as one look tells; where the next ones are if there are more.
fn add_shared(
    view: &View<'_>,
    (from, to): (u64, u64),
    shared: &mut Vec<(u64, u64)>,
) -> persimmon_engine::Result<Option<u64>> {
    let room = SHARED_MAX - shared.len();
    let (extents, next) = view.some_extents(SHARED, (from, to), room)?;
    let mut tally = FrameTally::default();
    shared.extend(extents.into_iter().map(|(block, extent)| {
        let stored = tally.extent(SHARED, block, &extent);
        (block, stored.sectors)
    }));
    Ok(next)
}
