//! Reading: staged blocks from memory, the others from the device, every block verified.

use std::convert::Infallible;

use persimmon_device::BLOCK_SIZE;
use persimmon_format::extent::Extent;
use persimmon_format::packed;
use persimmon_format::{Addr, Ino, checksum};
use persimmon_sync::Arc;

use super::FileData;
use super::journal_inline::JOURNAL_INLINE_BLOCKS_MAX;
use super::read_cache::{ALL_BLOCKS, Cached, FileState, StoredAt};
use super::read_plan::{Caches, Frame, Part, Plan, Source, Use, copy_block, deliver, zero_blocks};
use super::{ReadCache, block_of, blocks_in};
use crate::error::{Error, Result};
use crate::invariant::{invariant, invariant_holds};
use crate::meta::extents::{self, MappedExtent};
use crate::meta::{View, deltas};
use crate::options::Deltas;
use crate::statistics::add;
use crate::zones::Pin;

/// Reads sent to the device before the first is waited for: a drive serves them side by side, and what they hold in
/// memory besides the reader's buffer stays below 16 MiB.
const READS_AT_ONCE: usize = 16;

/// Times a block is looked up before it counts as damaged.
const LOOKUPS: usize = 3;

/// Blocks whose extents are looked up together: those of 1 MiB, which is read in one look wherever it begins, and more.
const LOOKED_UP_BLOCKS: u64 = 512;

impl FileData {
    /// Reads from a regular file; returns the bytes read, fewer than asked for at its end.
    ///
    /// It reads again if the file was made shorter meanwhile: a hole that was found may be where
    /// there was no file, and somebody may have made it longer again.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_through(self.cache_for(buf.len()), ino, offset, buf)
    }

    /// The same past [`Options::read_cache_bytes_max`](crate::Options::read_cache_bytes_max): from the device, and not kept, but for
    /// what lies in compressed frames ([`Options::frame_cache_bytes_max`](crate::Options::frame_cache_bytes_max)).
    pub fn read_direct(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read_through(None, ino, offset, buf)
    }

    /// Blocks in memory, for a read of so many bytes.
    fn cache_for(&self, bytes: usize) -> Option<&ReadCache> {
        let cache = self.read_cache.as_ref();
        cache.filter(|_| ReadCache::serves(bytes))
    }

    fn read_through(
        &self,
        cache: Option<&ReadCache>,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        if let Some(read) = self.read_from_memory(cache, ino, offset, buf) {
            return Ok(read);
        }
        let cuts = self.files.cuts();
        let read = self.read_meanwhile(cache, ino, offset, buf);
        if self.files.cuts() == cuts {
            return read;
        }
        // Some file was: who does that to this one tells of it there, as long as it is in the table.
        let file = self.files.get_or_create(ino);
        let read = loop {
            let cuts = file.lock().cuts;
            let read = self.read_meanwhile(cache, ino, offset, buf);
            if file.lock().cuts == cuts {
                break read;
            }
        };
        self.files.forget_if_clean_of(ino, file);
        read
    }

    /// Reads what the cache has of a file that did not change since.
    fn read_from_memory(
        &self,
        cache: Option<&ReadCache>,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<usize> {
        let read = cache?.read(ino, self.store.changes.of(ino), offset, buf)?;
        let blocks = blocks_in(offset + read as u64) - block_of(offset);
        add(&self.store.media.counters.read_cache_hits, blocks);
        Some(read)
    }

    /// Reads by a size, and then by what is staged and mapped.
    fn read_meanwhile(
        &self,
        cache: Option<&ReadCache>,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        let changes = self.store.changes.of(ino);
        let size = self.size_now(ino)?;
        let cached = cache.map(|cache| Cached {
            cache,
            ino,
            state: Some(FileState { size, changes }),
            known: ALL_BLOCKS,
            reads_around: false,
        });
        let len = (buf.len() as u64).min(size.saturating_sub(offset)) as usize;
        let Some(buf) = buf.get_mut(..len) else {
            return Ok(0);
        };
        if len == 0 {
            return Ok(0);
        }
        look_again(|look| {
            self.read_once(cached.map(|cached| cached.at_look(look)), ino, offset, buf)
        })?;
        self.note_read(ino, offset, buf, size);
        Ok(len)
    }

    /// Reads several ranges of a file, each as [`FileData::read`] or [`FileData::read_direct`] does. What lies on the device is asked
    /// for together: a drive serves the ranges side by side.
    pub fn read_batch(
        &self,
        ino: Ino,
        ranges: &mut [(u64, &mut [u8])],
        is_direct: bool,
    ) -> Vec<Result<usize>> {
        let longest = ranges.iter().map(|(_, buf)| buf.len()).max();
        let cache = self.cache_for(longest.unwrap_or(0));
        let cache = cache.filter(|_| !is_direct);
        let hits: Vec<Option<usize>> = ranges
            .iter_mut()
            .map(|(offset, buf)| self.read_from_memory(cache, ino, *offset, buf))
            .collect();
        let missing = ranges.iter_mut().zip(&hits);
        let mut missing: Vec<_> = missing
            .filter_map(|(range, hit)| hit.is_none().then_some(range))
            .collect();
        let mut missed = self.read_missing(cache, ino, &mut missing).into_iter();
        hits.into_iter()
            .filter_map(|hit| hit.map(Ok).or_else(|| missed.next()))
            .collect()
    }

    /// Reads ranges of which not all is known to be in memory.
    fn read_missing(
        &self,
        cache: Option<&ReadCache>,
        ino: Ino,
        ranges: &mut [&mut (u64, &mut [u8])],
    ) -> Vec<Result<usize>> {
        if ranges.is_empty() {
            return Vec::new();
        }
        let cuts = self.files.cuts();
        let changes = self.store.changes.of(ino);
        let together = match self.size_now(ino) {
            Ok(size) => self.read_together(cache, ino, FileState { size, changes }, ranges),
            Err(_) => ranges.iter().map(|_| None).collect(),
        };
        let settled = self.files.cuts() == cuts;
        let each = ranges.iter_mut().zip(together);
        each.map(|((offset, buf), read)| match read {
            Some(len) if settled => Ok(len),
            // What moved, failed or became shorter meanwhile is looked up again by itself.
            _ => self.read_through(cache, ino, *offset, buf),
        })
        .collect()
    }

    /// Reads what of the ranges can be read at the first look; `None` of the others.
    fn read_together(
        &self,
        cache: Option<&ReadCache>,
        ino: Ino,
        state: FileState,
        ranges: &mut [&mut (u64, &mut [u8])],
    ) -> Vec<Option<usize>> {
        let is_staged = self.files.get(ino).is_some();
        let cached = cache.map(|cache| Cached {
            cache,
            ino,
            state: Some(state).filter(|_| !is_staged),
            known: ALL_BLOCKS,
            // Ranges of a batch are often neighbours: each would read the others again.
            reads_around: ranges.len() == 1 && cache.has_room(),
        });
        let mut wanted: Vec<Wanted<'_>> = ranges
            .iter_mut()
            .map(|(offset, buf)| {
                let len = (buf.len() as u64).min(state.size.saturating_sub(*offset)) as usize;
                Wanted {
                    offset: *offset,
                    buf: &mut buf[..len],
                    failed: false,
                }
            })
            .collect();
        let found: Vec<Vec<_>> = wanted
            .iter_mut()
            .map(|range| {
                let holes = self.copy_staged(ino, range.offset, range.buf);
                let looks = holes.into_iter().flat_map(|(from, to)| looks(from, to));
                let found: Result<Vec<_>> = looks
                    .map(|(from, to)| Ok((from, to, self.find(ino, from, to)?)))
                    .collect();
                let has_deltas = |(.., found): &(u64, u64, Found)| !found.deltas.is_empty();
                // What has deltas is read by itself.
                range.failed = found
                    .as_ref()
                    .map_or(true, |found| found.iter().any(has_deltas));
                found.unwrap_or_default()
            })
            .collect();
        let caches = self.caches(ino, cached);
        // A frame of one range may have blocks whose deltas were not looked up.
        let may_have_deltas = found
            .iter()
            .flatten()
            .any(|(.., found)| found.may_have_deltas);
        let caches = match may_have_deltas {
            true => caches.by_place(),
            false => caches,
        };
        let mut plan = Plan::through(caches);
        for (owner, (range, holes)) in wanted.iter_mut().zip(&found).enumerate() {
            plan.owner = owner;
            if range.failed {
                continue;
            }
            for (from, to, found) in holes {
                let (offset, buf) = (range.offset, &mut *range.buf);
                let planned = self.plan(ino, &found.extents, (*from, *to), offset, buf, &mut plan);
                range.failed |= planned.is_err();
            }
        }
        let Ok(()) = self.fetch_planned(&plan, |used, fetched| {
            let range = &mut wanted[used.owner];
            let delivered = fetched.is_ok_and(|data| {
                let delivered = self.dictionary_for(ino, used).and_then(|dictionary| {
                    let to = (range.offset, &mut *range.buf);
                    deliver(ino, caches, used, (data, &dictionary), to)
                });
                delivered.is_ok()
            });
            range.failed |= !delivered;
            Ok::<_, Infallible>(())
        });
        let read = |range: &Wanted<'_>| (!range.failed).then_some(range.buf.len());
        wanted.iter().map(read).collect()
    }

    /// The size of a regular file, with what of it waits to be written.
    pub(super) fn size_now(&self, ino: Ino) -> Result<u64> {
        let file = self.files.get(ino);
        if let Some(size) = file.as_ref().and_then(|f| f.lock().size) {
            return Ok(size);
        }
        let inode = self.store.view::<_, Error>(|v| v.inode(ino))?;
        Ok(inode.ok_or(Error::NotFound(ino))?.size)
    }

    /// Reads all of `buf`, from staging and by the tree. Staging is looked at first: what leaves
    /// it meanwhile is in the tree by then. What was written meanwhile can be in the tree before
    /// it has arrived; then this fails, and staging has it when looked at again.
    fn read_once(
        &self,
        cached: Option<Cached<'_>>,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let is_staged = self.files.get(ino).is_some();
        let cached = cached.map(|cached| Cached {
            state: cached.state.filter(|_| !is_staged),
            ..cached
        });
        let caches = self.caches(ino, cached);
        for (from, to) in self.copy_staged(ino, offset, buf) {
            self.read_tree(caches, ino, (from, to), offset, buf)?;
        }
        Ok(())
    }

    /// Reads bytes that the file has as they are on the device, past all that is in memory of it, but for what waits to be written there.
    pub(super) fn read_past_memory(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<()> {
        look_again(|_| {
            let missing = self.copy_staged(ino, offset, buf);
            let mut missing = missing.into_iter();
            missing.try_for_each(|range| self.read_tree(Caches::NONE, ino, range, offset, buf))
        })
    }

    /// Whether a block of a file can be read from the device; or it waits to be written there.
    pub(crate) fn check_block(&self, ino: Ino, block: u64) -> Result<()> {
        let offset = block.saturating_mul(BLOCK_SIZE as u64);
        self.read_past_memory(ino, offset, &mut [0; BLOCK_SIZE])
    }

    /// Copies what of a range is staged; the ranges of blocks that are not.
    fn copy_staged(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Vec<(u64, u64)> {
        let (first, end) = (block_of(offset), blocks_in(offset + buf.len() as u64));
        let Some(file) = self.files.get(ino) else {
            return vec![(first, end)];
        };
        let staged = file.lock();
        let mut holes = Vec::new();
        let mut start = first;
        for block in first..end {
            if let Some(content) = staged.block(block) {
                copy_block(buf, offset, block, content);
                if start < block {
                    holes.push((start, block));
                }
                start = block + 1;
            }
        }
        if start < end {
            holes.push((start, end));
        }
        holes
    }

    /// One whole block as it is in the history, zeros where nothing is mapped.
    pub(crate) fn read_block(&self, ino: Ino, block: u64) -> Result<Vec<u8>> {
        let mut content = vec![0; BLOCK_SIZE];
        let offset = block * BLOCK_SIZE as u64;
        let caches = self.caches(ino, None);
        look_again(|_| self.read_tree(caches, ino, (block, block + 1), offset, &mut content))?;
        Ok(content)
    }

    /// Reads blocks `from..to` by the tree into `buf`, whose first byte is at `offset`. Of more than is read at once the
    /// extents are looked up piece by piece: a look begins again at each page that it misses.
    fn read_tree(
        &self,
        caches: Caches<'_>,
        ino: Ino,
        (from, to): (u64, u64),
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        for (start, end) in looks(from, to) {
            let found = self.find(ino, start, end)?;
            let caches = match found.may_have_deltas {
                true => self.keeping_bases(caches, ino, end - start),
                false => caches,
            };
            if !found.deltas.is_empty() {
                self.read_with_deltas(caches, ino, &found, (start, end), offset, buf)?;
                continue;
            }
            let caches = match found.may_have_deltas {
                true => caches.of_blocks(start, end),
                false => caches,
            };
            let mut plan = Plan::through(caches);
            self.plan(ino, &found.extents, (start, end), offset, buf, &mut plan)?;
            self.fetch_into(ino, &plan, offset, buf)?;
        }
        Ok(())
    }

    /// Reads blocks of which some have deltas: whole blocks, for a delta is of one.
    fn read_with_deltas(
        &self,
        caches: Caches<'_>,
        ino: Ino,
        found: &Found,
        (from, to): (u64, u64),
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        // What is stored is not what the file has: it is known by its place alone.
        let caches = caches.by_place();
        let start = from * BLOCK_SIZE as u64;
        let mut whole = vec![0; (to - from) as usize * BLOCK_SIZE];
        let mut plan = Plan::through(caches);
        self.plan(
            ino,
            &found.extents,
            (from, to),
            start,
            &mut whole,
            &mut plan,
        )?;
        self.fetch_into(ino, &plan, start, &mut whole)?;
        self.apply_deltas(ino, found, caches, start, &mut whole)?;
        for (block, content) in (from..to).zip(whole.chunks_exact(BLOCK_SIZE)) {
            copy_block(buf, offset, block, content);
        }
        Ok(())
    }

    /// Reads the places of a plan, and copies to `buf`, whose first byte is at `offset`, what they hold for it.
    pub(super) fn fetch_into(
        &self,
        ino: Ino,
        plan: &Plan<'_>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let left = plan.read_in_place(&self.store.media, offset, buf);
        let plan = left.as_ref().unwrap_or(plan);
        self.fetch_planned(plan, |used, fetched| {
            let (block, addr) = (used.block, used.source.addr());
            let data = fetched.map_err(|error| match error {
                Some(error) => self.lost_data(error, ino, block, addr),
                None => Error::DataDamaged { ino, block, addr },
            })?;
            let dictionary = self.dictionary_for(ino, used)?;
            match deliver(ino, plan.caches, used, (data, &dictionary), (offset, buf)) {
                Err(error @ Error::DataDamaged { .. }) => {
                    let mended = used.source.mended(&self.store.media, data).ok_or(error)?;
                    let to = (offset, &mut *buf);
                    deliver(ino, plan.caches, used, (&mended, &dictionary), to)?;
                    tracing::warn!(%ino, block, %addr, "data is damaged, what it is otherwise known to be is used");
                    Ok(())
                }
                delivered => delivered,
            }
        })
    }

    /// What has to be known beside a place to use it. It is looked up when the extents were: if it is gone, the file has been changed
    /// since, and is looked at again.
    fn dictionary_for(&self, ino: Ino, used: &Use<'_>) -> Result<Arc<[u8]>> {
        let Source::Packed(Part { packed, .. }) = used.source else {
            return Ok(Arc::default());
        };
        let dictionary = self.store.dictionary_of(packed);
        let (block, addr) = (used.block, packed.addr);
        dictionary.map_err(|error| match error {
            Error::ItemDamaged { .. } => {
                tracing::debug!(%ino, block, %addr, %error, "no dictionary");
                Error::DataDamaged { ino, block, addr }
            }
            Error::DataDamaged { addr: of, .. } => {
                let damaged = Error::DataDamaged { ino, block, addr };
                self.lost_data(damaged, ino, block, of)
            }
            error => error,
        })
    }

    /// Where a read finds blocks in memory. What lies in a compressed frame is kept whether or not the reader wants blocks kept: the
    /// next read of the frame would decompress all of it again.
    fn caches<'c>(&'c self, ino: Ino, cached: Option<Cached<'c>>) -> Caches<'c> {
        Caches {
            blocks: cached,
            frames: cached.or_else(|| self.kept(ino)),
            past_memory: false,
        }
    }

    /// A database reads a page before it changes some of it: what is stored of so few blocks is kept, for their deltas may be of it.
    fn keeping_bases<'c>(&'c self, caches: Caches<'c>, ino: Ino, blocks: u64) -> Caches<'c> {
        let is_page = blocks <= JOURNAL_INLINE_BLOCKS_MAX && !caches.past_memory;
        let makes_deltas = self.store.options.deltas != Deltas::None;
        let kept = || self.kept(ino).filter(|_| is_page && makes_deltas);
        Caches {
            blocks: caches.blocks.or_else(kept),
            ..caches
        }
    }

    /// What the tree has of blocks `from..to`.
    pub(super) fn find(&self, ino: Ino, from: u64, to: u64) -> Result<Found> {
        self.store.view(|view| self.found(view, ino, from, to))
    }

    /// The same as of one view.
    pub(super) fn found(&self, view: &View<'_>, ino: Ino, from: u64, to: u64) -> Result<Found> {
        let extents = view.find(|meta| extents::resolved(meta, ino, from, to))?;
        let may_have_deltas = view.find(|meta| deltas::may_have(meta, ino))?;
        let deltas = match may_have_deltas {
            true => view.find(|meta| deltas::of_blocks(meta, ino, from, to, usize::MAX))?,
            false => Vec::new(),
        };
        let pinned = |mapped: MappedExtent| {
            let addr = mapped.extent.addr();
            let pin = addr.and_then(|addr| self.store.zones.pin(addr.zone()));
            (mapped, pin)
        };
        Ok(Found {
            extents: extents.into_iter().map(pinned).collect(),
            deltas: deltas.into_iter().map(pinned).collect(),
            may_have_deltas,
        })
    }

    /// Fills in what of blocks `from..to` is in memory, and notes what has to be fetched from the device.
    pub(super) fn plan<'p>(
        &self,
        ino: Ino,
        extents: &'p [(MappedExtent, Option<Pin>)],
        (from, to): (u64, u64),
        offset: u64,
        buf: &mut [u8],
        plan: &mut Plan<'p>,
    ) -> Result<()> {
        let mut done = from;
        for (mapped, pin) in extents {
            let (start, end) = (mapped.block.max(from), mapped.end().min(to));
            zero_blocks(buf, offset, done, start);
            done = end;
            match &mapped.extent {
                Extent::Reserved { .. } | Extent::Hole { .. } => {
                    zero_blocks(buf, offset, start, end);
                }
                Extent::Shared { at, .. } => {
                    let bug = format_args!("block {start}: shared block {at} was not looked up");
                    return Err(Error::item_damaged(ino, bug));
                }
                Extent::Inline(bytes) => {
                    let mut content = [0; BLOCK_SIZE];
                    if let Some(out) = content.get_mut(..bytes.len()) {
                        out.copy_from_slice(bytes);
                    }
                    copy_block(buf, offset, start, &content);
                }
                Extent::Compressed(bytes) => {
                    let content = packed::decompress(bytes).ok_or_else(|| {
                        let what = format_args!("block {start}: compressed content is malformed");
                        Error::item_damaged(ino, what)
                    })?;
                    copy_block(buf, offset, start, &content);
                }
                Extent::Packed(packed) => {
                    let part = Part {
                        packed,
                        first: mapped.block,
                        wanted: (start, end),
                        pin,
                    };
                    self.plan_packed(part, offset, buf, plan);
                }
                Extent::Frame { addr, crcs } => {
                    let skip = (start - mapped.block) as usize;
                    let at = addr.offset(skip as u32);
                    invariant!(
                        self.store.media.alarm,
                        skip < crcs.len(),
                        "block {start} of inode {ino} is {skip} in a frame of {} blocks",
                        crcs.len()
                    );
                    if end == start + 1
                        && !plan.caches.past_memory
                        && let Some(content) = self.tails.block(ino, at)
                        && crcs.get(skip) == Some(&checksum::data_block(&content))
                    {
                        copy_block(buf, offset, start, &content);
                    } else {
                        let frame = Frame {
                            at: *addr,
                            crcs,
                            pin,
                        };
                        self.plan_frame(&frame, mapped.block, (start, end), offset, buf, plan);
                    }
                }
            }
        }
        zero_blocks(buf, offset, done, to);
        Ok(())
    }

    /// Plans the read of blocks of a compressed frame: from memory, or from the device.
    fn plan_packed<'p>(&self, part: Part<'p>, offset: u64, buf: &mut [u8], plan: &mut Plan<'p>) {
        let Part {
            packed,
            wanted: (from, to),
            pin,
            ..
        } = part;
        let in_memory = plan.caches.frames.zip(pin.as_ref());
        let hits = in_memory.map_or(0, |(cached, pin)| {
            let copied = |block: &u64| {
                cached.with(*block, part.stored_at(*block), pin, |content| {
                    copy_block(buf, offset, *block, content)
                })
            };
            (from..to).take_while(copied).count() as u64
        });
        add(&self.store.media.counters.read_cache_hits, hits);
        if hits < to - from {
            let wanted = (from + hits, to);
            let source = Source::Packed(Part { wanted, ..part });
            plan.add(packed.addr, packed.span(), from + hits, source);
        }
    }

    /// The same of blocks `from..to` of a run on the device whose first is block `first` of the file.
    fn plan_frame<'p>(
        &self,
        frame: &Frame<'p>,
        first: u64,
        (from, to): (u64, u64),
        offset: u64,
        buf: &mut [u8],
        plan: &mut Plan<'p>,
    ) {
        let mut missing = from;
        if let Some((cached, pin)) = plan.caches.blocks.zip(frame.pin.as_ref()) {
            let mut hits = 0;
            for block in from..to {
                let addr = frame.at.offset((block - first) as u32);
                if cached.with(block, StoredAt::Block(addr), pin, |content| {
                    copy_block(buf, offset, block, content)
                }) {
                    plan.add_frame(frame, first, (missing, block));
                    missing = block + 1;
                    hits += 1;
                }
            }
            add(&self.store.media.counters.read_cache_hits, hits);
            add(
                &self.store.media.counters.read_cache_misses,
                to - from - hits,
            );
            if hits == 0 {
                let end = first + frame.crcs.len() as u64;
                let (around, until) = cached.around(from, to);
                plan.add_frame(frame, first, (around.max(first), until.min(end)));
                return;
            }
        }
        plan.add_frame(frame, first, (missing, to));
    }

    /// Reads the places of a plan, some at a time, and hands each use what its place holds, or why that cannot be read:
    /// of several uses of a place the first one is told. An error that a use answers ends it.
    pub(super) fn fetch_planned<E>(
        &self,
        plan: &Plan<'_>,
        mut each: impl FnMut(&Use<'_>, Result<&[u8], Option<Error>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut uses = plan.uses.iter().peekable();
        for (group, places) in plan.places.chunks(READS_AT_ONCE).enumerate() {
            let fetched = match places {
                [(addr, blocks)] => vec![self.store.media.read(*addr, *blocks)],
                _ => self.store.media.read_all(places, READS_AT_ONCE),
            };
            invariant_holds!(
                self.store.media.alarm,
                fetched.len() == places.len(),
                "{} places were read of {}",
                fetched.len(),
                places.len()
            );
            for (i, data) in fetched.into_iter().enumerate() {
                let place = group * READS_AT_ONCE + i;
                let mut data = data.map_err(Some);
                while let Some(used) = uses.next_if(|next| next.place == place) {
                    match &mut data {
                        Ok(data) => each(used, Ok(data))?,
                        Err(error) => each(used, Err(error.take()))?,
                    }
                }
            }
        }
        // Who reads would be given what was in the buffer before.
        for used in uses {
            invariant_holds!(
                self.store.media.alarm,
                false,
                "a use of place {} of {}, which was not read",
                used.place,
                plan.places.len()
            );
            each(used, Err(self.store.bug()))?;
        }
        Ok(())
    }

    /// Why data cannot be read: its zone may have failed for good.
    fn lost_data(&self, error: Error, ino: Ino, block: u64, addr: Addr) -> Error {
        self.store.examine();
        if self.store.zones.is_lost(addr.zone()) {
            return Error::DataLost { ino, block, addr };
        }
        error
    }
}

/// Extents of a range of blocks; their zones stay as they are while the pins live.
pub(super) struct Found {
    pub(super) extents: Vec<(MappedExtent, Option<Pin>)>,
    /// Deltas of some of the blocks, each at its place.
    pub(super) deltas: Vec<(MappedExtent, Option<Pin>)>,
    /// Other blocks of the file may have some.
    pub(super) may_have_deltas: bool,
}

/// A range of blocks in pieces whose extents are looked up at a time.
fn looks(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = LOOKED_UP_BLOCKS as usize;
    (from..to)
        .step_by(step)
        .map(move |start| (start, to.min(start.saturating_add(LOOKED_UP_BLOCKS))))
}

/// One of several ranges that are read together, as far as the file reaches.
struct Wanted<'b> {
    offset: u64,
    buf: &'b mut [u8],
    /// Some of it could not be read at the first look.
    failed: bool,
}

/// Reads, and reads again what does not match or cannot be read: it may have moved, or have been
/// written meanwhile, and is elsewhere then.
fn look_again(mut read: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let mut result = read(0);
    for look in 1..LOOKUPS {
        if !matches!(
            result,
            Err(Error::DataDamaged { .. } | Error::DataLost { .. } | Error::Device(_))
        ) {
            break;
        }
        result = read(look);
    }
    result
}
