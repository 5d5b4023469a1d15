//! What of a read is in memory and what is on the device: places that are fetched, and what is made of each.

use std::ops::Range;

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::packed::Packed;
use persimmon_format::{Addr, Ino, checksum};

use super::deltas::apply_one;
use super::read_cache::{Cached, StoredAt};
use crate::error::{Error, Result};
use crate::media::Media;
use crate::zones::Pin;

/// What holds some of a read in memory.
#[derive(Clone, Copy)]
pub(super) struct Caches<'c> {
    /// Whole blocks.
    pub(super) blocks: Option<Cached<'c>>,
    /// What lies in compressed frames.
    pub(super) frames: Option<Cached<'c>>,
    /// What the device holds is to be known: nothing in memory stands for it.
    pub(super) past_memory: bool,
}

impl Caches<'_> {
    pub(super) const NONE: Caches<'static> = Caches {
        blocks: None,
        frames: None,
        past_memory: true,
    };
}

impl<'c> Caches<'c> {
    /// See [`Cached::by_place`].
    pub(super) fn by_place(self) -> Caches<'c> {
        Caches {
            blocks: self.blocks.map(Cached::by_place),
            frames: self.frames.map(Cached::by_place),
            ..self
        }
    }

    /// See [`Cached::of_blocks`].
    pub(super) fn of_blocks(self, from: u64, to: u64) -> Caches<'c> {
        Caches {
            blocks: self.blocks.map(|cached| cached.of_blocks(from, to)),
            frames: self.frames.map(|cached| cached.of_blocks(from, to)),
            ..self
        }
    }
}

/// What of a read is on the device: places, and what is made of each.
pub(super) struct Plan<'p> {
    pub(super) caches: Caches<'p>,
    pub(super) places: Vec<(Addr, u32)>,
    /// By place, in the order of the places.
    pub(super) uses: Vec<Use<'p>>,
    /// Whose uses are added now.
    pub(super) owner: usize,
}

/// What a place holds for a read.
#[derive(Clone, Copy)]
pub(super) struct Use<'p> {
    pub(super) place: usize,
    /// Which of several ranges it is of.
    pub(super) owner: usize,
    /// The first block of the file.
    pub(super) block: u64,
    pub(super) source: Source<'p>,
}

#[derive(Clone, Copy)]
pub(super) enum Source<'p> {
    /// Whole blocks.
    Frame(Frame<'p>),
    /// What the file has of a compressed frame.
    Packed(Part<'p>),
    /// The delta of the block, which is there as it is stored.
    Delta(&'p Packed),
}

/// What a file has of a compressed frame.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) packed: &'p Packed,
    /// The file block that it begins at.
    pub(super) first: u64,
    /// The file blocks of it that are asked for.
    pub(super) wanted: (u64, u64),
    pub(super) pin: &'p Option<Pin>,
}

impl Part<'_> {
    pub(super) fn stored_at(&self, block: u64) -> StoredAt {
        let index = u64::from(self.packed.skip) + (block - self.first);
        StoredAt::InFrame(self.packed.addr, self.packed.unit, index as u8)
    }
}

/// Blocks of a run from one on.
#[derive(Clone, Copy)]
pub(super) struct Frame<'p> {
    pub(super) at: Addr,
    /// A checksum of each.
    pub(super) crcs: &'p [u32],
    pub(super) pin: &'p Option<Pin>,
}

impl Source<'_> {
    pub(super) fn addr(&self) -> Addr {
        match self {
            Source::Frame(frame) => frame.at,
            Source::Packed(part) => part.packed.addr,
            Source::Delta(packed) => packed.addr,
        }
    }
}

impl Source<'_> {
    /// What its place should hold, from elsewhere; `data` is what was read there.
    pub(super) fn mended(&self, media: &Media, data: &[u8]) -> Option<Buffer> {
        match self {
            Source::Frame(frame) => {
                let blocks = data.len() / BLOCK_SIZE;
                Some(media.mended_blocks(frame.at, data, frame.crcs.get(..blocks)?))
            }
            Source::Packed(Part { packed, .. }) | Source::Delta(packed) => {
                media.mended_packed(packed)
            }
        }
    }
}

impl<'p> Plan<'p> {
    pub(super) fn through(caches: Caches<'p>) -> Plan<'p> {
        Plan {
            caches,
            places: Vec::new(),
            uses: Vec::new(),
            owner: 0,
        }
    }

    /// Adds blocks of a run whose first is block `first` of the file.
    pub(super) fn add_frame(&mut self, frame: &Frame<'p>, first: u64, (from, to): (u64, u64)) {
        if from < to {
            let skip = from - first;
            let frame = Frame {
                at: frame.at.offset(skip as u32),
                crcs: frame.crcs.get(skip as usize..).unwrap_or_default(),
                pin: frame.pin,
            };
            self.add(frame.at, (to - from) as u32, from, Source::Frame(frame));
        }
    }

    /// Adds a use of `blocks` blocks at `addr`. Pieces that are neighbours in a file are mostly neighbours on the device: those of
    /// the same blocks are read once.
    pub(super) fn add(&mut self, addr: Addr, blocks: u32, block: u64, source: Source<'p>) {
        let is_packed = matches!(source, Source::Packed(_) | Source::Delta(_));
        let last = self.places.last();
        let shares = is_packed && last.is_some_and(|(at, count)| *at == addr && *count >= blocks);
        if !shares {
            self.places.push((addr, blocks));
        }
        self.uses.push(Use {
            place: self.places.len() - 1,
            owner: self.owner,
            block,
            source,
        });
    }
}

/// Blocks that are read to where they are wanted in one command, and verified while the processor's cache has them.
const IN_PLACE_BLOCKS: usize = 64;

impl<'p> Plan<'p> {
    /// Reads to where the reader wants them what of the places is whole blocks that no cache keeps, if the device can do that. What is
    /// left is to be fetched: also what is not as it should be, for it may be had otherwise. `None` where a cache keeps all blocks: all is left.
    pub(super) fn read_in_place(
        &self,
        media: &Media,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<Plan<'p>> {
        if self.caches.blocks.is_some() {
            return None;
        }
        let mut left = Plan::through(self.caches);
        let mut last = None;
        let room = (offset, buf.len());
        let runs = || {
            let is_whole = |used: &Use<'p>| self.whole_range(used, room).is_some();
            let goes_on = move |one: &Use<'p>, next: &Use<'p>| {
                self.goes_on(one, next) && is_whole(one) && is_whole(next)
            };
            self.uses.chunk_by(goes_on)
        };
        let is_one = runs().nth(1).is_none();
        for run in runs() {
            if self.read_run(media, run, is_one, offset, buf) {
                continue;
            }
            for used in run {
                let Some((addr, blocks)) = self.places.get(used.place).copied() else {
                    continue;
                };
                if last.replace(used.place) != Some(used.place) {
                    left.places.push((addr, blocks));
                }
                left.uses.push(Use {
                    place: left.places.len() - 1,
                    ..*used
                });
            }
        }
        Some(left)
    }

    /// Blocks at the place of a use, and the frame that they are of, where they are whole.
    fn frame_of<'u>(&self, used: &'u Use<'p>) -> Option<(&'u Frame<'p>, u32)> {
        let Source::Frame(frame) = &used.source else {
            return None;
        };
        let (_, blocks) = self.places.get(used.place)?;
        Some((frame, *blocks))
    }

    /// Where a use lies in a buffer of so many bytes that begins at `offset`, if it has room for all of it.
    fn whole_range(&self, used: &Use<'p>, (offset, bytes): (u64, usize)) -> Option<Range<usize>> {
        let (_, blocks) = self.places.get(used.place)?;
        whole_range(bytes, offset, used.block, *blocks)
    }

    /// Whether one frame goes on in the next, in the file and on the device: one command reads both.
    fn goes_on(&self, one: &Use<'p>, next: &Use<'p>) -> bool {
        let Some(((frame, blocks), (after, _))) = self.frame_of(one).zip(self.frame_of(next))
        else {
            return false;
        };
        let (at, then) = (frame.at, after.at);
        one.owner == next.owner
            && one.block + u64::from(blocks) == next.block
            && (at.device(), at.zone()) == (then.device(), then.zone())
            && at.block().checked_add(blocks) == Some(then.block())
    }

    /// Reads frames of which each goes on in the next. False, and nothing of them is left, if that cannot be or they are not what they
    /// should be.
    fn read_run(
        &self,
        media: &Media,
        run: &[Use<'p>],
        is_all: bool,
        offset: u64,
        buf: &mut [u8],
    ) -> bool {
        let Some((first, (frame, _))) = run
            .first()
            .and_then(|used| Some((used, self.frame_of(used)?)))
        else {
            return false;
        };
        let frames = || run.iter().filter_map(|used| self.frame_of(used));
        let blocks = frames().map(|(_, blocks)| blocks).sum();
        let Some(out) = whole_blocks(buf, offset, first.block, blocks) else {
            return false;
        };
        let beside_others = !is_all || blocks as usize > IN_PLACE_BLOCKS;
        let mut crcs = frames().flat_map(|(frame, blocks)| frame.crcs.iter().take(blocks as usize));
        let pieces = out.chunks_mut(IN_PLACE_BLOCKS * BLOCK_SIZE);
        let is_good = (0..).zip(pieces).all(|(at, piece)| {
            let addr = frame.at.offset((at * IN_PLACE_BLOCKS) as u32);
            media.read_into(addr, piece, beside_others) && is_all_of(&mut crcs, piece)
        });
        if !is_good {
            out.fill(0);
        }
        is_good
    }
}

/// Whether blocks have the next of these checksums.
fn is_all_of<'c>(crcs: &mut impl Iterator<Item = &'c u32>, blocks: &[u8]) -> bool {
    let mut blocks = blocks.chunks_exact(BLOCK_SIZE);
    blocks.all(|block| crcs.next() == Some(&checksum::data_block(block)))
}

/// Where blocks of a file lie in a buffer that begins at `offset`, if it has room for all of them.
fn whole_blocks(buf: &mut [u8], offset: u64, first: u64, blocks: u32) -> Option<&mut [u8]> {
    let range = whole_range(buf.len(), offset, first, blocks)?;
    buf.get_mut(range)
}

fn whole_range(bytes: usize, offset: u64, first: u64, blocks: u32) -> Option<Range<usize>> {
    let start = first.checked_mul(BLOCK_SIZE as u64)?.checked_sub(offset)?;
    let start = usize::try_from(start).ok()?;
    let end = start.checked_add(blocks as usize * BLOCK_SIZE)?;
    (end <= bytes).then_some(start..end)
}

/// Verifies what was read, by the dictionary of a compressed frame that has one, and copies it to where a reader wants it.
pub(super) fn deliver(
    ino: Ino,
    caches: Caches<'_>,
    used: &Use<'_>,
    (data, dictionary): (&[u8], &[u8]),
    (offset, buf): (u64, &mut [u8]),
) -> Result<()> {
    let damaged = |block: u64, addr: Addr| Error::DataDamaged { ino, block, addr };
    match &used.source {
        Source::Packed(part) => {
            let packed = part.packed;
            let whole = packed.frame_content(data, dictionary);
            let content = whole.as_deref().and_then(|whole| packed.of_frame(whole));
            let content = content.ok_or_else(|| damaged(used.block, packed.addr))?;
            let (from, to) = part.wanted;
            // A reader of all of it does not need a copy.
            let is_all = to - from == u64::from(packed.blocks);
            let keeps = caches.frames.filter(|_| !is_all || caches.blocks.is_some());
            for (block, content) in (part.first..).zip(content.chunks_exact(BLOCK_SIZE)) {
                if let Some((cached, pin)) = keeps.zip(part.pin.as_ref()) {
                    cached.insert(block, part.stored_at(block), pin, content);
                }
                if (from..to).contains(&block) {
                    copy_block(buf, offset, block, content);
                }
            }
        }
        Source::Delta(packed) => {
            let delta = packed.verified(data);
            let delta = delta.ok_or_else(|| damaged(used.block, packed.addr))?;
            apply_one(ino, used.block, Some(packed.addr), delta, offset, buf)?;
        }
        Source::Frame(Frame { at, crcs, pin }) => {
            let cached = caches.blocks.zip(pin.as_ref());
            for (i, content) in data.chunks_exact(BLOCK_SIZE).enumerate() {
                let (block, addr) = (used.block + i as u64, at.offset(i as u32));
                if crcs.get(i) != Some(&checksum::data_block(content)) {
                    // Blocks around those that are asked for are for the cache alone.
                    if is_asked_for(buf, offset, block) {
                        return Err(damaged(block, addr));
                    }
                    continue;
                }
                if let Some((cached, pin)) = cached {
                    cached.insert(block, StoredAt::Block(addr), pin, content);
                }
                copy_block(buf, offset, block, content);
            }
        }
    }
    Ok(())
}

/// Where block `block` of the file lies in a buffer that begins at `offset`: the buffer's range,
/// and the first byte of the block that falls into it.
pub(super) fn place(len: usize, offset: u64, block: u64) -> (usize, usize, usize) {
    let start = block * BLOCK_SIZE as u64;
    let skip = offset.saturating_sub(start).min(BLOCK_SIZE as u64) as usize;
    let at = start.saturating_sub(offset).min(len as u64) as usize;
    let count = (BLOCK_SIZE - skip).min(len - at);
    (at, count, skip)
}

pub(super) fn is_asked_for(buf: &[u8], offset: u64, block: u64) -> bool {
    let (_, count, _) = place(buf.len(), offset, block);
    count > 0
}

pub(super) fn copy_block(buf: &mut [u8], offset: u64, block: u64, content: &[u8]) {
    let (at, count, skip) = place(buf.len(), offset, block);
    if let (Some(out), Some(bytes)) = (buf.get_mut(at..at + count), content.get(skip..skip + count))
    {
        out.copy_from_slice(bytes);
    }
}

pub(super) fn zero_blocks(buf: &mut [u8], offset: u64, from: u64, to: u64) {
    if from < to {
        let (start, _, _) = place(buf.len(), offset, from);
        let (last, count, _) = place(buf.len(), offset, to - 1);
        if let Some(out) = buf.get_mut(start..last + count) {
            out.fill(0);
        }
    }
}
