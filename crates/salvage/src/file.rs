//! The content of one file.

use persimmon_device::BLOCK_SIZE;
use persimmon_engine::Intent;
use persimmon_format::delta::{self, block_at, is_delta, place_of};
use persimmon_format::extent::{Extent, FILE_BLOCKS_END};
use persimmon_format::inode::{FLAG_DELTAS, FLAG_PREALLOCATED, Inode, SIZE_MAX, Timestamp};
use persimmon_format::packed::{self, Packed};
use persimmon_format::{Addr, Ino, Key, KeyKind};
use persimmon_inspect::salvage::StrayBlock;

use crate::copy::Copy;
use crate::loss::{CHANGES_LOST, Lost, blocks_found};
use crate::{Error, Result};

const BLOCK: u64 = BLOCK_SIZE as u64;

/// A file under way.
pub(crate) struct File {
    ino: Ino,
    /// Its size, if its attributes are known; else the end of what was found.
    size: Option<u64>,
    mtime: Timestamp,
    /// Its attributes say that it has deltas.
    has_deltas: bool,
    /// Where what was found so far ends, bytes.
    end: u64,
    /// A damaged range that may go on, bytes.
    bad: Option<(u64, u64)>,
    /// A range whose place in the store of shared blocks is lost, and of which summaries know the blocks, bytes.
    found: Option<(u64, u64)>,
}

impl File {
    /// A file whose attributes are as they were found, if they were.
    pub(crate) fn new(ino: Ino, found: Option<&Inode>, mtime: Timestamp) -> File {
        File {
            ino,
            size: found.map(|inode| inode.size),
            mtime,
            has_deltas: found.is_some_and(|inode| inode.flags & FLAG_DELTAS != 0),
            end: 0,
            bad: None,
            found: None,
        }
    }

    fn limit(&self) -> u64 {
        self.size.unwrap_or(SIZE_MAX)
    }

    /// Copies an extent that begins with file block `block`.
    pub(crate) fn extent(
        &mut self,
        copy: &mut Copy<'_, '_>,
        block: u64,
        value: &[u8],
    ) -> Result<()> {
        let at = block.saturating_mul(BLOCK);
        match Extent::decode(value) {
            Ok(extent) if !extent.fits_at(block) => {
                self.bad_to(copy, at, at.saturating_add(BLOCK));
            }
            Ok(delta) if is_delta(block) => self.tree_delta(copy, block, &delta)?,
            Ok(Extent::Shared {
                at: in_store,
                blocks,
                ..
            }) => self.shared(copy, at, (in_store, blocks.into()))?,
            Ok(Extent::Reserved { blocks }) => {
                let len = u64::from(blocks) * BLOCK;
                copy.to
                    .preallocate(self.ino, at, len, true, self.mtime)
                    .map_err(Error::New)?;
            }
            Ok(extent) => self.content(copy, at, &extent)?,
            Err(_) => {
                let blocks = Extent::peek_blocks(value).unwrap_or(1);
                let len = blocks.clamp(1, 256) * BLOCK;
                self.bad_to(copy, at, at.saturating_add(len));
            }
        }
        Ok(())
    }

    /// A delta that the tree has. A newer one, of the same stored content, counts instead.
    fn tree_delta(&mut self, copy: &mut Copy<'_, '_>, place: u64, delta: &Extent) -> Result<()> {
        if matches!(delta, Extent::Hole { .. }) {
            return Ok(());
        }
        let content = copy.content;
        let newer = content.stray_blocks().get(&(self.ino, place));
        let newer = newer.filter(|stray| stray.later).map(|stray| &stray.extent);
        let mut both = newer.into_iter().chain([delta]);
        let at = block_at(place).saturating_mul(BLOCK);
        match both.find_map(|delta| content.with_delta(self.ino, place, delta)) {
            Some(block) => self.write(copy, at, &block),
            None => {
                self.bad_to(copy, at, at.saturating_add(BLOCK));
                Ok(())
            }
        }
    }

    /// A delta that only summaries know: it counts if it is of the content that was copied, for what was written since is newer.
    fn stray_delta(&mut self, copy: &mut Copy<'_, '_>, place: u64, delta: &Extent) -> Result<()> {
        let Some(bytes) = copy.content.delta_bytes(delta) else {
            return Ok(());
        };
        let at = block_at(place).saturating_mul(BLOCK);
        let mut content = vec![0; BLOCK_SIZE];
        copy.to
            .read(self.ino, at, &mut content)
            .map_err(Error::New)?;
        if delta::apply(&bytes, &mut content) {
            self.write(copy, at, &content)?;
        }
        Ok(())
    }

    /// An extent that has content of its own; of another one nothing.
    fn content(&mut self, copy: &mut Copy<'_, '_>, at: u64, extent: &Extent) -> Result<()> {
        match extent {
            Extent::Frame { addr, crcs } => self.frame(copy, at, *addr, crcs),
            Extent::Packed(packed) => self.packed(copy, at, packed),
            Extent::Inline(bytes) => self.write(copy, at, bytes),
            Extent::Compressed(bytes) => {
                let content = packed::decompress(bytes);
                self.blocks(copy, at, 1, content.as_ref().map(|block| &block[..]))
            }
            Extent::Reserved { .. } | Extent::Shared { .. } | Extent::Hole { .. } => Ok(()),
        }
    }

    /// Blocks that other files may have too, as far as the store of these has them.
    fn shared(
        &mut self,
        copy: &mut Copy<'_, '_>,
        at: u64,
        (in_store, blocks): (u64, u64),
    ) -> Result<()> {
        let mut older: Option<(u64, (u64, u64))> = None;
        for run in copy.content.shared(in_store, blocks) {
            let from = at.saturating_add(run.start.saturating_mul(BLOCK));
            let to = from.saturating_add(run.blocks.saturating_mul(BLOCK));
            match &run.extent {
                Some(extent) => self.content(copy, from, extent)?,
                None => self.lacks(copy, from, to),
            }
            if let Some(checkpoint) = run.older {
                let start = older.map_or(from, |(_, (start, _))| start);
                older = Some((checkpoint, (start, to)));
            }
        }
        if let Some((checkpoint, range)) = older {
            let path = copy.path(self.ino);
            let detail = format!("as of checkpoint {checkpoint}");
            copy.lose_at(path, self.ino, Lost::Older, range, detail);
        }
        Ok(())
    }

    /// A range whose place in the store is lost. What summaries know of it comes with the other strays, and is told if it is damaged.
    fn lacks(&mut self, copy: &mut Copy<'_, '_>, from: u64, to: u64) {
        let content = copy.content;
        for at in (from..to).step_by(BLOCK_SIZE) {
            let end = at.saturating_add(BLOCK);
            match content.stray_blocks().get(&(self.ino, at / BLOCK)) {
                Some(stray) if self.takes(stray) => self.found_to(copy, at, end),
                _ => self.bad_to(copy, at, end),
            }
        }
    }

    /// Whether a block that only summaries know belongs into the file itself.
    fn takes(&self, stray: &StrayBlock) -> bool {
        self.size.is_none() || !stray.later
    }

    /// A range that summaries know; those that follow each other are told as one.
    fn found_to(&mut self, copy: &mut Copy<'_, '_>, from: u64, to: u64) {
        let to = to.min(self.limit());
        if from >= to {
            return;
        }
        match &mut self.found {
            Some((_, end)) if *end == from => *end = to,
            _ => {
                self.tell_found(copy);
                self.found = Some((from, to));
            }
        }
    }

    /// The blocks were written for the file, but nothing tells that the file did not share other ones there since.
    fn tell_found(&mut self, copy: &mut Copy<'_, '_>) {
        if let Some(range) = self.found.take() {
            let path = copy.path(self.ino);
            copy.lose_at(path, self.ino, Lost::Extents, range, blocks_found(range));
        }
    }

    fn packed(&mut self, copy: &mut Copy<'_, '_>, at: u64, packed: &Packed) -> Result<()> {
        let content = copy.content.read_packed(packed);
        self.blocks(copy, at, packed.blocks.into(), content.as_deref())
    }

    /// Whole blocks, if they are intact.
    fn blocks(
        &mut self,
        copy: &mut Copy<'_, '_>,
        at: u64,
        blocks: u64,
        content: Option<&[u8]>,
    ) -> Result<()> {
        if at >= self.limit() {
            return Ok(());
        }
        match content {
            Some(content) => self.write(copy, at, content)?,
            None => self.bad_to(copy, at, at.saturating_add(blocks * BLOCK)),
        }
        Ok(())
    }

    fn frame(
        &mut self,
        copy: &mut Copy<'_, '_>,
        mut at: u64,
        addr: Addr,
        crcs: &[u32],
    ) -> Result<()> {
        let mut run = Vec::new();
        let mut start = at;
        for block in copy.content.read(addr, crcs) {
            if at >= self.limit() {
                break;
            }
            match block {
                Some(block) => {
                    if run.is_empty() {
                        start = at;
                    }
                    run.extend_from_slice(&block);
                }
                None => {
                    self.write(copy, start, &run)?;
                    run.clear();
                    self.bad_to(copy, at, at + BLOCK);
                }
            }
            at += BLOCK;
        }
        self.write(copy, start, &run)
    }

    fn write(&mut self, copy: &mut Copy<'_, '_>, at: u64, bytes: &[u8]) -> Result<()> {
        let room = usize::try_from(self.limit().saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = bytes.get(..bytes.len().min(room)).unwrap_or(bytes);
        if bytes.is_empty() {
            return Ok(());
        }
        copy.to
            .write(self.ino, at, bytes, self.mtime)
            .map_err(Error::New)?;
        copy.recovered.data_bytes += bytes.len() as u64;
        self.end = self.end.max(at + bytes.len() as u64);
        Ok(())
    }

    /// A damaged range; those that follow each other are told as one.
    fn bad_to(&mut self, copy: &mut Copy<'_, '_>, from: u64, to: u64) {
        let to = to.min(self.limit());
        if from >= to {
            return;
        }
        self.end = self.end.max(to);
        match &mut self.bad {
            Some((_, end)) if *end == from => *end = to,
            _ => {
                self.tell_bad(copy);
                self.bad = Some((from, to));
            }
        }
    }

    fn tell_bad(&mut self, copy: &mut Copy<'_, '_>) {
        if let Some(range) = self.bad.take() {
            let path = copy.path(self.ino);
            copy.lose_at(path, self.ino, Lost::Data, range, String::new());
        }
    }

    /// What the tree has lost of the file, as far as summaries know it.
    pub(crate) fn strays(&mut self, copy: &mut Copy<'_, '_>) -> Result<()> {
        let content = copy.content;
        let mut found = 0u64;
        let range = (self.ino, 0)..=(self.ino, u64::MAX);
        for ((_, block), stray) in content.stray_blocks().range(range) {
            if !self.takes(stray) {
                continue;
            }
            if is_delta(*block) {
                self.stray_delta(copy, *block, &stray.extent)?;
                continue;
            }
            found += 1;
            self.content(copy, *block * BLOCK, &stray.extent)?;
        }
        let blocks = self
            .size
            .map_or(FILE_BLOCKS_END, |size| size.div_ceil(BLOCK));
        let places = [place_of(0), place_of(blocks)].map(|place| Key::extent(self.ino, place));
        let damage = content.damage(places[0], places[1]);
        let damage: Vec<_> = damage.filter(|_| self.has_deltas).collect();
        for part in damage {
            let offset = |key: Key| block_at(key.item).saturating_mul(BLOCK).min(self.limit());
            let range = (offset(part.from), offset(part.to));
            let path = copy.path(self.ino);
            copy.lose_at(path, self.ino, Lost::Older, range, CHANGES_LOST.to_owned());
        }
        // The inode itself may be as of an earlier checkpoint, and what was empty then need not have been so since.
        let keys = (Key::inode(self.ino), Key::extent(self.ino, blocks.max(1)));
        let damage: Vec<_> = content.damage(keys.0, keys.1).collect();
        for part in damage {
            let end = if part.to == keys.1 {
                self.size.unwrap_or(self.end)
            } else {
                offset_of(part.to)
            };
            let range = (offset_of(part.from), end);
            let (lost, detail) = match part.older {
                Some(checkpoint) => (Lost::Older, format!("as of checkpoint {checkpoint}")),
                // There is nothing that says that it had content; that its attributes are lost is told.
                None if self.size.is_none() && range.0 >= range.1 => continue,
                None => (Lost::Extents, format!("{found} blocks of it were found")),
            };
            let path = copy.path(self.ino);
            copy.lose_at(path, self.ino, lost, range, detail);
        }
        Ok(())
    }

    /// Copies the blocks of another file that were written after the checkpoint.
    pub(crate) fn newer(&mut self, copy: &mut Copy<'_, '_>, of: Ino) -> Result<()> {
        let blocks = copy.content.stray_blocks();
        for ((_, block), stray) in blocks.range((of, 0)..=(of, u64::MAX)) {
            if stray.later && !is_delta(*block) {
                self.content(copy, *block * BLOCK, &stray.extent)?;
            }
        }
        Ok(())
    }

    /// Size and attributes, when all data is there.
    pub(crate) fn finish(&mut self, copy: &mut Copy<'_, '_>, inode: &Inode) -> Result<()> {
        self.tell_bad(copy);
        self.tell_found(copy);
        let size = self.size.unwrap_or(self.end);
        copy.to.commit_file(self.ino)?;
        let now = copy.to.attr(self.ino)?.unwrap_or_default();
        if now.size != size {
            copy.to.truncate(self.ino, size, self.mtime)?;
            copy.to.commit_file(self.ino)?;
        }
        copy.to.change_times(self.ino, |_| {
            copy.to
                .update::<(), persimmon_engine::Error>(Intent::Grow, |tx| {
                    if let Some(there) = tx.inode(self.ino)? {
                        let inode = Inode {
                            size,
                            sectors: there.sectors,
                            // What is set aside stays so by this.
                            flags: inode.flags | there.flags & FLAG_PREALLOCATED,
                            ..*inode
                        };
                        tx.put_inode(self.ino, &inode);
                    }
                    Ok(())
                })
        })?;
        Ok(())
    }
}

/// Where a file's block is whose key this is; of what comes before the first block 0.
fn offset_of(key: Key) -> u64 {
    match key.kind {
        KeyKind::EXTENT => key.item.saturating_mul(BLOCK),
        _ => 0,
    }
}
