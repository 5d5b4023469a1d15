//! How much the files of a volume have, and what that takes.

use std::ops::ControlFlow;

use persimmon_format::compression::Codec;
use persimmon_format::delta::is_delta;
use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, SHARED};
use persimmon_format::packed::FrameTally;
use persimmon_format::{BLOCK_SIZE, Ino, Key, KeyKind};
use serde::Serialize;

use crate::error::{InspectError, Result};
use crate::volume::Inspector;

/// Some content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContentUsage {
    /// Bytes of the file blocks that are there: holes do not count, and the last block counts whole.
    pub content_bytes: u64,
    /// Bytes that they take, as `st_blocks` counts them.
    pub stored_bytes: u64,
}

impl ContentUsage {
    fn add(&mut self, blocks: u64, sectors: u64) {
        let content = blocks.saturating_mul(BLOCK_SIZE as u64);
        self.content_bytes = self.content_bytes.saturating_add(content);
        self.stored_bytes = self
            .stored_bytes
            .saturating_add(sectors.saturating_mul(512));
    }
}

/// Content by how it is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
}

/// What the files of a volume have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUsage {
    /// Regular files.
    pub files: u64,
    /// All their content.
    pub all: ContentUsage,
    /// The same by how it is stored.
    pub by_storage: UsageByStorage,
}

impl FileUsage {
    fn extent(&mut self, extent: &Extent, sectors: u64) {
        let by = &mut self.by_storage;
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
                    let sectors = tally.extent(key.ino, key.item, &extent).sectors;
                    usage.by_storage.shared.add(0, sectors);
                    usage.all.add(0, sectors);
                }),
                KeyKind::EXTENT if counted == Some(key.ino) => {
                    Extent::decode(value).map(|extent| {
                        let sectors = tally.extent(key.ino, key.item, &extent).sectors;
                        if is_delta(key.item) {
                            usage.by_storage.deltas.add(0, sectors);
                            usage.all.add(0, sectors);
                        } else {
                            usage.extent(&extent, sectors);
                        }
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
