//! What a file may hold after a crash: for every block the values it had since it was last known
//! to be durable, and the sizes that go with them (invariant I4).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use persimmon_device::BLOCK_SIZE;
use xxhash_rust::xxh3::xxh3_64;

use super::quota::Touched;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// One value of a block, and the file size without which it cannot be there.
#[derive(Clone)]
pub(crate) struct Version {
    /// The block's bytes without trailing zeros.
    bytes: Arc<[u8]>,
    hash: u64,
    /// The write that made this value made the file at least so long.
    size_min: u64,
    /// It was made by a change that causes no size: without `size_min` it is there as far as the
    /// file goes.
    causes_none: bool,
    /// Where the writes that caused no size and made this value end within the block: the file is so long if the value is there, and not
    /// the write that had made the file longer before. 0: not within the block.
    ends: u64,
}

impl Version {
    fn new(bytes: &[u8], size_min: u64) -> Version {
        let length = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let bytes = bytes.get(..length).unwrap_or_default();
        Version {
            hash: xxh3_64(bytes),
            bytes: bytes.into(),
            size_min,
            causes_none: false,
            ends: 0,
        }
    }

    fn zeros() -> Version {
        Version::new(&[], 0)
    }

    fn is_plain_zeros(&self) -> bool {
        self.bytes.is_empty() && self.size_min == 0 && !self.causes_none
    }

    fn block(&self) -> [u8; BLOCK_SIZE] {
        let mut block = [0; BLOCK_SIZE];
        if let Some(target) = block.get_mut(..self.bytes.len()) {
            target.copy_from_slice(&self.bytes);
        }
        block
    }

    fn cut(&self, length: usize, size: u64) -> Version {
        Version::new(
            self.bytes.get(..length).unwrap_or(&self.bytes),
            self.size_min.min(size),
        )
    }
}

/// The hash of a block's content as [`FileContent::admits`] wants it: trailing zeros do not count.
#[must_use]
pub fn block_hash(bytes: &[u8]) -> u64 {
    Version::new(bytes, 0).hash
}

/// The content of a regular file. Blocks that are not in the map are zeros.
#[derive(Clone)]
pub struct FileContent {
    /// As a program sees it now.
    size: u64,
    /// Sizes that need no unsynced write to explain them.
    durable_sizes: BTreeSet<u64>,
    /// Values since the last sync, oldest first; never empty.
    blocks: BTreeMap<u64, Arc<Vec<Version>>>,
    touched: Touched,
}

impl Default for FileContent {
    fn default() -> FileContent {
        FileContent {
            size: 0,
            durable_sizes: BTreeSet::from([0]),
            blocks: BTreeMap::new(),
            touched: Touched::default(),
        }
    }
}

impl FileContent {
    /// A file that was found so: all of it is durable. Blocks come with their numbers.
    #[must_use]
    pub fn found<'a>(size: u64, blocks: impl IntoIterator<Item = (u64, &'a [u8])>) -> FileContent {
        FileContent {
            size,
            durable_sizes: BTreeSet::from([size]),
            blocks: blocks
                .into_iter()
                .map(|(block, bytes)| (block, Arc::new(vec![Version::new(bytes, 0)])))
                .collect(),
            touched: Touched::unknown(),
        }
    }

    /// Size as a program sees it now, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The blocks as programs read them now, zeros left out.
    pub fn blocks_now(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.blocks
            .iter()
            .filter_map(|(block, versions)| Some((*block, versions.last()?.bytes.to_vec())))
            .filter(|(_, bytes)| !bytes.is_empty())
    }

    /// Blocks that may be allocated: all that were written or preallocated, and not truncated or taken out since.
    #[must_use]
    pub(crate) fn touched(&self) -> &BTreeSet<u64> {
        self.touched.blocks()
    }

    /// Whether no others are allocated.
    pub(crate) fn is_all_known(&self) -> bool {
        self.touched.is_all()
    }

    /// Blocks of a range are allocated.
    pub(crate) fn touch(&mut self, offset: u64, length: u64) {
        self.touched.add(offset, length);
    }

    /// Bytes of the blocks that are not zeros.
    #[must_use]
    pub fn bytes_held(&self) -> u64 {
        let zeros = |v: &Version| v.bytes.is_empty() && v.size_min == 0;
        let held = self.blocks.values().filter(|v| !v.iter().all(zeros));
        held.count() as u64 * BLOCK
    }

    /// The bytes from `offset` on, as a program reads them now.
    #[must_use]
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = (offset.saturating_add(length as u64)).min(self.size);
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let within = (at % BLOCK) as usize;
            let take = (BLOCK_SIZE - within).min((end - at) as usize);
            let block = self.latest(at / BLOCK).block();
            bytes.extend_from_slice(block.get(within..within + take).unwrap_or_default());
            at += take as u64;
        }
        bytes
    }

    fn latest(&self, block: u64) -> Version {
        self.blocks
            .get(&block)
            .and_then(|versions| versions.last().cloned())
            .unwrap_or_else(Version::zeros)
    }

    /// A buffered write: each block it touches may have its new value after a crash, or an older.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        self.overlay(offset, data, offset + data.len() as u64 > self.size);
        self.touched.add(offset, data.len() as u64);
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    fn overlay(&mut self, offset: u64, data: &[u8], grows: bool) {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            let within = (at % BLOCK) as usize;
            let take = rest.len().min(BLOCK_SIZE - within);
            let latest = self.latest(at / BLOCK);
            let mut block = latest.block();
            if let Some(target) = block.get_mut(within..within + take) {
                target.copy_from_slice(rest.get(..take).unwrap_or_default());
            }
            let own = if grows { at + take as u64 } else { 0 };
            let mut version = Version::new(&block, latest.size_min.max(own));
            version.causes_none = !grows;
            if !grows && rest.len() == take {
                version.ends = self.end_behind(&latest, at, at + take as u64);
            }
            self.add_version(at / BLOCK, version);
            done += take;
        }
    }

    /// Where a write of `at..end` to a block that caused no size ends the file if it is there alone: at its own end, where the file ended in
    /// this block before. 0: at the block's end.
    fn end_behind(&self, latest: &Version, at: u64, end: u64) -> u64 {
        let is_here = |size: &u64| size / BLOCK == at / BLOCK && !size.is_multiple_of(BLOCK);
        let sizes = self.durable_sizes.iter().chain([&latest.size_min]);
        let ended = sizes.filter(|size| is_here(size)).max().copied();
        let ended = ended.max(Some(latest.ends).filter(|ends| *ends > 0));
        ended.map_or(0, |ended| ended.max(end))
    }

    fn add_version(&mut self, block: u64, version: Version) {
        let versions = self
            .blocks
            .entry(block)
            .or_insert_with(|| Arc::new(vec![Version::zeros()]));
        let known = versions
            .last()
            .is_some_and(|last| last.hash == version.hash && last.size_min == version.size_min);
        if !known {
            Arc::make_mut(versions).push(version);
        } else if version.ends > 0
            && let Some(last) = Arc::make_mut(versions).last_mut()
            && last.causes_none
        {
            last.ends = version.ends;
        } else if version.causes_none
            && let Some(last) = Arc::make_mut(versions).last_mut()
            && last.is_plain_zeros()
        {
            // A hole reads the same, but nothing is mapped there: zeros written into one are a block,
            // as other bytes are, and the file reaches around it when it is there.
            last.causes_none = true;
        }
    }

    /// A change of size that enters the history when it is made. Unsynced writes below the new
    /// size still come with the size they cause: without them the file is as long as before, or
    /// shorter.
    pub fn truncate(&mut self, size: u64) {
        let first_gone = size.div_ceil(BLOCK);
        self.blocks.split_off(&first_gone);
        if size < self.size {
            self.touched.truncate(size);
        }
        let tail = (size % BLOCK) as usize;
        for (block, versions) in &mut self.blocks {
            let is_tail = tail > 0 && *block == size / BLOCK;
            if !is_tail && versions.iter().all(|v| v.size_min <= size) {
                continue;
            }
            let length = if is_tail { tail } else { BLOCK_SIZE };
            for version in Arc::make_mut(versions) {
                *version = version.cut(length, size);
            }
        }
        self.drop_zeros();
        self.size = size;
        if self.blocks.values().any(|versions| versions.len() > 1) {
            self.durable_sizes = self.durable_sizes.iter().map(|s| (*s).min(size)).collect();
        } else {
            self.durable_sizes.clear();
        }
        self.durable_sizes.insert(size);
    }

    /// Makes the whole blocks in `offset..offset + length` read as zeros.
    pub fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        if first < last {
            let gone: Vec<u64> = self.blocks.range(first..last).map(|(b, _)| *b).collect();
            // Sizes that writes explained whose blocks are gone now.
            self.durable_sizes.insert(self.size);
            for block in gone {
                let versions = self.blocks.remove(&block).unwrap_or_default();
                let explained = versions.iter().map(|version| version.size_min);
                self.durable_sizes
                    .extend(explained.filter(|size| *size > 0));
            }
        }
        self.drop_zeros();
    }

    /// Writes zeros to what `offset..offset + length` has of blocks that are not whole in it.
    pub fn zero_edges(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        // Edges past the end of the file are zeros already.
        let end = end.min(self.size.next_multiple_of(BLOCK));
        let head = offset..end.min(first * BLOCK);
        let tail = offset.max(last * BLOCK).max(head.end)..end;
        for edge in [head, tail] {
            if edge.start < edge.end {
                let zeros = [0; BLOCK_SIZE];
                let length = (edge.end - edge.start) as usize;
                self.overlay(edge.start, zeros.get(..length).unwrap_or(&zeros), false);
            }
        }
        self.drop_zeros();
    }

    /// The file is at least so long from now on, without data. Where an unsynced write made it so
    /// long already, that write still brings the size.
    pub fn extend(&mut self, size: u64) {
        if size <= self.size {
            return;
        }
        self.size = self.size.max(size);
        self.durable_sizes = self.durable_sizes.iter().map(|s| (*s).max(size)).collect();
    }

    /// Takes a range of whole blocks out, or puts one in as a hole. All that was written is in the history.
    pub fn shift(&mut self, offset: u64, length: u64, collapses: bool) {
        let (at, by) = (offset / BLOCK, length / BLOCK);
        self.touched.shift((at, by), collapses);
        let behind = self.blocks.split_off(&at);
        let behind = behind.into_iter();
        if collapses {
            let behind = behind.filter(|(block, _)| *block >= at + by);
            self.blocks
                .extend(behind.map(|(block, versions)| (block - by, versions)));
            self.size -= length;
        } else {
            self.blocks
                .extend(behind.map(|(block, versions)| (block + by, versions)));
            self.size += length;
        }
        self.durable_sizes = BTreeSet::from([self.size]);
    }

    /// Everything written so far is in the history.
    pub fn commit(&mut self) {
        for versions in self.blocks.values_mut() {
            keep_last(versions);
        }
        self.drop_zeros();
        self.durable_sizes = BTreeSet::from([self.size]);
    }

    /// A part of what was written is in the history.
    pub fn commit_range(&mut self, offset: u64, length: u64) {
        if length == 0 {
            return;
        }
        let end = offset + length;
        for (_, versions) in self.blocks.range_mut(offset / BLOCK..end.div_ceil(BLOCK)) {
            let needs = versions.last().map_or(0, |last| last.size_min);
            keep_last(versions);
            self.durable_sizes = self.durable_sizes.iter().map(|s| (*s).max(needs)).collect();
        }
        self.drop_zeros();
    }

    fn drop_zeros(&mut self) {
        self.blocks
            .retain(|_, versions| versions.iter().any(|v| !v.is_plain_zeros()));
    }

    /// The same of a file some of whose blocks are lost with the zone they were in: those may have
    /// held anything, and have caused the size.
    pub fn admits_without(
        &self,
        lost: &BTreeSet<u64>,
        size: u64,
        hashes: &BTreeMap<u64, u64>,
    ) -> Result<(), String> {
        if lost.is_empty() {
            return self.admits(size, hashes);
        }
        let mut rest = self.clone();
        rest.blocks.retain(|block, _| !lost.contains(block));
        rest.durable_sizes.insert(size);
        rest.admits(size, hashes)
    }

    /// Whether a file of this size with these blocks (by number, zeros left out) is one that a
    /// crash may leave. Answers what is wrong.
    pub fn admits(&self, size: u64, hashes: &BTreeMap<u64, u64>) -> Result<(), String> {
        let mut explained = self.durable_sizes.contains(&size);
        let durable_min = self.durable_sizes.first().copied().unwrap_or_default();
        let zeros = block_hash(&[]);
        let blocks: BTreeSet<u64> = self.blocks.keys().chain(hashes.keys()).copied().collect();
        for block in blocks {
            let hash = hashes.get(&block).copied().unwrap_or(zeros);
            let beyond = block * BLOCK >= size;
            let Some(versions) = self.blocks.get(&block) else {
                if hash != zeros {
                    return Err(format!("block {block} was never written and is not zeros"));
                }
                continue;
            };
            let mut found = false;
            let length = size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
            for version in versions.iter() {
                if version.size_min <= size && version.hash == hash {
                    found = true;
                    // A block written into a hole may be there before what made the file longer, and so may one
                    // that begins before the end and goes on into a hole. What is durable of the file was not longer.
                    let into_hole = (block + 1) * BLOCK > durable_min;
                    let ends = [(block + 1) * BLOCK, version.ends].contains(&size);
                    let alone = into_hole && ends && size <= self.size;
                    explained |= version.size_min == size || (alone && version.causes_none);
                } else if version.causes_none && version.cut(length, size).hash == hash {
                    found = true;
                }
            }
            // For a block behind the end the size answers.
            if !found && !beyond {
                return Err(format!(
                    "block {block} holds none of the {} values it may hold{}",
                    versions.len(),
                    if versions.iter().any(|v| v.hash == hash) {
                        ", considering the size"
                    } else {
                        ""
                    }
                ));
            }
        }
        if explained {
            Ok(())
        } else {
            let last = size.saturating_sub(1) / BLOCK;
            let hash = hashes.get(&last).copied().unwrap_or(zeros);
            let versions = self.blocks.get(&last).map_or(&[][..], |v| v.as_slice());
            let is_there = versions.iter().map(|v| (v.hash == hash, v.size_min));
            Err(format!(
                "nothing explains a size of {size}; without unsynced writes it is one of {:?}; of block \
                 {last} it has, and the size goes with it: {:?}",
                self.durable_sizes,
                is_there.collect::<Vec<_>>()
            ))
        }
    }
}

fn keep_last(versions: &mut Arc<Vec<Version>>) {
    if let Some(last) = versions.last() {
        let mut last = last.clone();
        last.size_min = 0;
        last.causes_none &= !last.bytes.is_empty();
        last.ends = 0;
        *versions = Arc::new(vec![last]);
    }
}
