//! How much the files of a volume have, and what that takes.

use std::ops::ControlFlow;

use persimmon_format::compression::Codec;
use persimmon_format::delta::is_delta;
use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, SHARED};
use persimmon_format::packed::FrameTally;
use persimmon_format::{BLOCK_SIZE, Ino, Key, KeyKind};
use serde::{Deserialize, Serialize};

use crate::error::{InspectError, Result};
use crate::volume::Inspector;

/// Some content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentUsage {
    /// Bytes of the file blocks that are there: holes do not count, and the last block counts whole.
    pub content_bytes: u64,
    /// Bytes that they take, as `st_blocks` counts them.
    pub stored_bytes: u64,
}

impl ContentUsage {
    fn add(&mut self, blocks: u64, sectors: u64) {
        self.take_in(&ContentUsage {
            content_bytes: blocks.saturating_mul(BLOCK_SIZE as u64),
            stored_bytes: sectors.saturating_mul(512),
        });
    }

    fn take_in(&mut self, other: &ContentUsage) {
        self.content_bytes = self.content_bytes.saturating_add(other.content_bytes);
        self.stored_bytes = self.stored_bytes.saturating_add(other.stored_bytes);
    }
}

/// Content by how it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageByStorage {
    /// In blocks as they are.
    pub whole: ContentUsage,
    /// Compressed with LZ4.
    pub lz4: ContentUsage,
    /// Compressed with Zstandard.
    pub zstd: ContentUsage,
    /// In the metadata tree.
    pub inline: ContentUsage,
    /// Preallocated, and not written yet: it takes space and has no content.
    pub reserved: ContentUsage,
    /// Differences of blocks to what is stored for them: these blocks are the content of others here.
    pub deltas: ContentUsage,
    /// Shared: its content in every place of a file that has it, and what is stored of that, once.
    pub shared: ContentUsage,
    /// Waits in memory to be written, and takes no more than this then. Nothing does where a volume is not mounted.
    pub waiting: ContentUsage,
}

/// What files have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUsage {
    /// Regular files.
    pub files: u64,
    /// All their content.
    pub all: ContentUsage,
    /// The same by how it is stored.
    pub by_storage: UsageByStorage,
}

impl FileUsage {
    /// Counts an extent at file block `block` that takes `sectors` sectors. The sectors of a shared extent are ignored here:
    /// [`FileUsage::add_shared`] counts them.
    pub fn add_extent(&mut self, block: u64, extent: &Extent, sectors: u64) {
        let by = &mut self.by_storage;
        if is_delta(block) {
            by.deltas.add(0, sectors);
            return self.all.add(0, sectors);
        }
        let (kind, blocks) = match extent {
            Extent::Frame { .. } => (&mut by.whole, extent.blocks()),
            Extent::Packed(packed) => match packed.frame.codec {
                Codec::Lz4 => (&mut by.lz4, extent.blocks()),
                Codec::Zstd | Codec::ZstdAfter(_) => (&mut by.zstd, extent.blocks()),
            },
            Extent::Inline(_) | Extent::Compressed(_) => (&mut by.inline, extent.blocks()),
            Extent::Reserved { .. } => (&mut by.reserved, 0),
            Extent::Hole { .. } => return,
            // What it takes is counted where it is stored.
            Extent::Shared { .. } => {
                by.shared.add(extent.blocks(), 0);
                return self.all.add(extent.blocks(), 0);
            }
        };
        kind.add(blocks, sectors);
        self.all.add(blocks, sectors);
    }

    /// Counts what an extent of the store of shared blocks takes.
    pub fn add_shared(&mut self, sectors: u64) {
        self.by_storage.shared.add(0, sectors);
        self.all.add(0, sectors);
    }

    /// Counts blocks that wait to be written where nothing is stored.
    pub fn add_waiting(&mut self, blocks: u64) {
        let sectors = blocks.saturating_mul(BLOCK_SIZE as u64 / 512);
        self.by_storage.waiting.add(blocks, sectors);
        self.all.add(blocks, sectors);
    }

    /// Counts what other files have, too.
    pub fn take_in(&mut self, other: &FileUsage) {
        self.files = self.files.saturating_add(other.files);
        self.all.take_in(&other.all);
        let (by, others) = (&mut self.by_storage, &other.by_storage);
        for (kind, of_others) in [
            (&mut by.whole, &others.whole),
            (&mut by.lz4, &others.lz4),
            (&mut by.zstd, &others.zstd),
            (&mut by.inline, &others.inline),
            (&mut by.reserved, &others.reserved),
            (&mut by.deltas, &others.deltas),
            (&mut by.shared, &others.shared),
            (&mut by.waiting, &others.waiting),
        ] {
            kind.take_in(of_others);
        }
    }
}

impl Inspector<'_> {
    /// Counts the content of all files that have a name, as after a mount. Of snapshots it counts what the main subvolume shows too, and
    /// what is in the store of shared blocks.
    ///
    /// # Errors
    /// Metadata is lost or damaged, so that not all files can be counted.
    pub fn file_usage(&self) -> Result<FileUsage> {
        let state = self.state()?;
        if state.tree.lost || self.checkpoint()?.mat_lost {
            return Err(InspectError::Incomplete);
        }
        let mut usage = FileUsage::default();
        let mut tally = FrameTally::default();
        let mut counted: Option<Ino> = None;
        let mut damage = None;
        let first = Key::from_bytes(&[0; Key::LEN]);
        let _ = state.scan_shown(&state.main(), first, &mut |key, value| {
            let item = match key.kind {
                _ if key.ino == Key::GLOBAL => Ok(()),
                KeyKind::INODE => Inode::decode(value).map(|inode| {
                    if inode.is_file() && inode.nlink > 0 {
                        usage.files += 1;
                        counted = Some(key.ino);
                    }
                }),
                KeyKind::EXTENT if key.ino == SHARED => Extent::decode(value).map(|extent| {
                    let stored = tally.extent(key.ino, key.item, &extent);
                    usage.add_shared(stored.sectors);
                }),
                KeyKind::EXTENT if counted == Some(key.ino) => {
                    Extent::decode(value).map(|extent| {
                        let stored = tally.extent(key.ino, key.item, &extent);
                        usage.add_extent(key.item, &extent, stored.sectors);
                    })
                }
                _ => Ok(()),
            };
            match item {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    damage = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        match damage {
            Some(error) => Err(error.into()),
            None => Ok(usage),
        }
    }
}
