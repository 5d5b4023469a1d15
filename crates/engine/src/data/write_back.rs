//! Write-back: sends the staged data of many files to the device as one batch, sorted by file and
//! offset, in large commands, over several open zones.
//!
//! A background batch appends, waits, and is journaled when its data has arrived. A batch for fsync
//! writes at known addresses and sends its record at the same time; both complete together.

use persimmon_sync::{Arc, MutexGuard};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::extent::Extent;
use persimmon_format::inode::FLAG_PREALLOCATED;
use persimmon_format::record::Op;
use persimmon_format::{Ino, Lifetime};

use super::FileData;
use super::compress::{self, Compressible, SYNCED_BLOCKS_MIN, Streams};
use super::dedup::{Duplicate, Piece};
use super::files::File;
use super::growth::Growth;
use super::journal_inline::JOURNAL_INLINE_BLOCKS_MAX;
use super::records::Pending;
use super::staged::{Staged, Times, WriteHint};
use crate::error::{Error, Result};
use crate::faults::{Fault, fault};
use crate::in_flight::InFlight;
use crate::invariant::{invariant, invariant_holds};
use crate::options::FsyncOrder;
use crate::placement::{Places, Placing};
use crate::reclaim::Demand;
use crate::statistics::add;
use crate::store::HeldBase;
use crate::zones::{Life, Placed, Run, Stream};

/// Blocks after which a background batch takes no further file (8 MiB).
const BATCH_BLOCKS: u64 = 2048;
/// Largest file that is kept in the tree.
const INLINE_BYTES_MAX: u64 = 2048;
/// Extents looked at to tell the lifetime of blocks that overwrite them.
const OLD_MAX: usize = 32;

/// How a batch is written and journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In the background: journaled when the data has arrived.
    Background,
    /// For fsync: journaled at the same moment if it has no more blocks than that, else when the data has arrived; and made durable.
    Sync { beside_max: u64 },
    /// For fsync: journaled when the data has arrived, and made durable.
    SyncInOrder,
    /// For who wants it to outlive the process: journaled when the data has arrived, and in the hands of the device.
    Recorded,
    /// As in the background: rewrites what was in a batch for fsync whose data failed. Checkpoints wait for this
    /// batch, so it must not wait for a checkpoint.
    Rewrite,
}

impl Mode {
    /// Whether somebody waits for it, and it may be small: then its record carries content.
    fn is_small(self) -> bool {
        matches!(self, Mode::Sync { .. } | Mode::SyncInOrder | Mode::Recorded)
    }

    /// Whether the record of so many blocks may be sent before they have arrived.
    fn may_go_beside(self, blocks: u64) -> bool {
        matches!(self, Mode::Sync { beside_max } if blocks <= beside_max)
    }
}

/// A file of a write-back batch, with its frozen data.
pub(super) struct BatchFile {
    pub(super) ino: Ino,
    file: Arc<File>,
    /// Size when the data was frozen.
    pub(super) size: u64,
    pub(super) committed_size: u64,
    pub(super) growth: Growth,
    pub(super) times: Option<Times>,
    /// What was told of the frozen data. Without a lifetime the inode's counts.
    pub(super) hint: WriteHint,
    /// What the tree has of the file may not be there: nothing is made of it.
    is_unarrived: bool,
    pub(super) blocks: u64,
    pub(super) frozen: Vec<(u64, Buffer)>,
}

/// Runs of one lifetime are placed together.
type Runs = BTreeMap<Stream, Vec<Run>>;

/// The outcome of a batch whose blocks are where the tree says they are.
pub(super) struct WrittenBack {
    /// Whether it is durable, if it was to be. It is in the history either way: the next sync of
    /// anything asks again.
    pub(super) durable: Result<()>,
}

/// Where one run of a batch's file is mapped to.
pub(super) struct Mapping {
    pub(super) ino: Ino,
    pub(super) block: u64,
    /// One past its last file block.
    pub(super) end: u64,
    pub(super) op: Op,
    /// Of a delta: what it is of stays as it is until it is in the tree.
    pub(super) base: Option<HeldBase>,
}

impl Mapping {
    pub(super) fn map(ino: Ino, block: u64, extent: Extent) -> Mapping {
        Mapping {
            ino,
            block,
            end: block + extent.blocks(),
            op: Op::Map { ino, block, extent },
            base: None,
        }
    }

    /// Bytes of it in a record, if it is inline.
    pub(super) fn inline_len(&self) -> usize {
        match &self.op {
            Op::Map {
                extent: Extent::Compressed(bytes),
                ..
            } => bytes.len(),
            _ => 0,
        }
    }
}

impl BatchFile {
    /// The content of one of its blocks.
    pub(super) fn block(&self, block: u64) -> Option<&[u8]> {
        let runs = self.frozen.iter().rev();
        let (first, data) = { runs }.find(|(first, _)| *first <= block)?;
        data.chunks_exact(BLOCK_SIZE).nth((block - first) as usize)
    }

    /// A record with this size is in the history.
    pub(super) fn note_committed(&self, size: u64) {
        self.file.lock().committed_size = size;
    }

    /// The tree has its blocks where they did not arrive.
    pub(super) fn note_unarrived(&self) {
        self.file.lock().is_unarrived = true;
    }
}

impl FileData {
    /// Writes one batch of staged data back to the device. False if nothing was staged.
    pub(crate) fn write_back(&self) -> Result<bool> {
        self.retry_rewrites()?;
        match self.write_back_queued()? {
            0 => Ok(self.placement.pack_ahead()),
            _ => Ok(true),
        }
    }

    /// Writes queued files back in one batch, a large file in a batch of its own. Returns the number of blocks written
    /// plus the number of files.
    pub(super) fn write_back_queued(&self) -> Result<u64> {
        let mut batch = Vec::new();
        let mut blocks = 0;
        // Everything queued now is looked at once at most.
        for _ in 0..self.files.queued() {
            if blocks >= BATCH_BLOCKS {
                break;
            }
            let Some(ino) = self.files.dequeue() else {
                break;
            };
            let Some(file) = self.files.get(ino) else {
                continue;
            };
            let mut staged = file.lock();
            // Small files would have to wait until the large one is written.
            let is_for_itself = !batch.is_empty() && staged.dirty_blocks() > BATCH_BLOCKS;
            if staged.busy || is_for_itself {
                staged.queued = true;
                self.files.enqueue(ino);
                if staged.busy {
                    continue;
                }
                break;
            }
            staged.queued = false;
            if let Some(member) = collect(ino, &file, staged) {
                blocks += member.blocks;
                batch.push(member);
            }
        }
        let written = blocks + batch.len() as u64;
        if !batch.is_empty() {
            let inos: Vec<Ino> = batch.iter().map(|p| p.ino).collect();
            match self.write_back_batch(batch, Mode::Background) {
                // The damaged file is not written back any more. The others are in the next batch.
                Err(Error::ItemDamaged { ino, .. }) if inos.contains(&ino) => {}
                other => other?,
            }
        }
        Ok(written)
    }

    /// Writes a file back, after the batch that it may be in. `None` if nothing was left to write.
    pub(super) fn write_back_file(&self, ino: Ino, mode: Mode) -> Result<Option<()>> {
        let Some(file) = self.files.get(ino) else {
            return Ok(None);
        };
        // Waiting and collecting happen under one acquisition of the lock: no other thread can freeze the
        // data in between. So if nothing is left to write, all of it is in the history.
        let waits = |staged: &Staged| staged.busy && !fault(Fault::WriteBackNotWaitedFor);
        let staged = file.wait_while(file.lock(), waits);
        if let Some(damage) = &staged.damage {
            return Err(damage.clone());
        }
        if staged.is_clean() || staged.busy {
            return Ok(None);
        }
        self.store.check_writable()?;
        let Some(member) = collect(ino, &file, staged) else {
            return Ok(None);
        };
        self.write_back_batch(vec![member], mode).map(Some)
    }

    pub(super) fn write_back_batch(&self, mut batch: Vec<BatchFile>, mode: Mode) -> Result<()> {
        batch.sort_by_key(|p| p.ino);
        invariant_holds!(
            self.store.media.alarm,
            batch
                .iter()
                .zip(batch.iter().skip(1))
                .all(|(one, next)| one.ino < next.ino),
            "a file is twice in one batch"
        );
        let blocks: u64 = batch.iter().map(|p| p.blocks).sum();
        let written = catch_unwind(AssertUnwindSafe(|| {
            let _midst = self.store.in_midst();
            self.write_and_map(&batch, mode)
        }));
        let result = written.unwrap_or_else(|panic| {
            // No thread may wait for this batch for ever, or take its data for written.
            for member in &batch {
                let mut staged = member.file.lock();
                self.undo(member, &mut staged);
                self.count_staged(&mut staged);
                staged.busy = false;
                drop(staged);
                member.file.notify();
            }
            resume_unwind(panic)
        });
        for member in &mut batch {
            let mut staged = member.file.lock();
            let mut written = Vec::new();
            invariant_holds!(
                self.store.media.alarm,
                staged.busy,
                "inode {} is not in a batch any more",
                member.ino
            );
            match &result {
                Ok(_) => {
                    let frozen = staged.staged_blocks() - staged.dirty_blocks();
                    invariant_holds!(
                        self.store.media.alarm,
                        frozen == member.blocks,
                        "{frozen} blocks of inode {} are committed, and {} were frozen",
                        member.ino,
                        member.blocks
                    );
                    staged.commit();
                    written = std::mem::take(&mut member.frozen);
                }
                Err(error @ Error::ItemDamaged { ino, .. }) if *ino == member.ino => {
                    tracing::error!(%error, "what was written to a damaged file is given up");
                    self.space.release(staged.undo());
                    self.space.release(staged.give_up(error));
                    self.files.note_cut(&mut staged);
                }
                Err(_) => self.undo(member, &mut staged),
            }
            self.count_staged(&mut staged);
            staged.busy = false;
            drop(staged);
            member.file.notify();
            if result.is_ok() {
                // Who waits for room in the buffer finds memory that is known to the kernel.
                drop(written);
                self.space.release(member.blocks);
            }
        }
        let inos: Vec<Ino> = batch.iter().map(|p| p.ino).collect();
        drop(batch);
        for ino in inos {
            self.files.forget_if_clean(ino);
        }
        let written = result?;
        add(
            &self.store.media.counters.user_bytes,
            blocks * BLOCK_SIZE as u64,
        );
        written.durable
    }

    /// Makes the frozen data of a file dirty again and queues the file.
    fn undo(&self, member: &BatchFile, staged: &mut Staged) {
        let overwritten = staged.undo();
        invariant_holds!(
            self.store.media.alarm,
            overwritten <= member.blocks,
            "{overwritten} blocks of inode {} were overwritten during write-back, of {}",
            member.ino,
            member.blocks
        );
        self.space.release(overwritten);
        if !std::mem::replace(&mut staged.queued, true) {
            self.files.enqueue(member.ino);
        }
    }

    /// What of a batch lies in the tree, and the pieces of all else, in order.
    fn sort_out(&self, batch: &[BatchFile], mode: Mode) -> Result<(Vec<Mapping>, Vec<Piece>)> {
        let mut mappings = Vec::new();
        let mut pieces = Vec::new();
        // The files of a batch may be each other's duplicates, by what the tree has of them.
        let all_arrived = batch.iter().all(|member| !member.is_unarrived);
        for member in batch {
            let inode = self.store.view::<_, Error>(|view| view.inode(member.ino))?;
            let inode = inode.unwrap_or_default();
            // What has space set aside would lose it if it came to lie in the tree.
            let may_lie_in_tree = inode.flags & FLAG_PREALLOCATED == 0;
            let may_inline = may_lie_in_tree && mode.is_small() && !member.is_unarrived;
            let tail = if may_inline {
                self.journal_inline_tail(member)?
            } else {
                None
            };
            if tail.is_none()
                && may_lie_in_tree
                && let Some(inline) = inline(member)
            {
                mappings.push(inline);
                continue;
            }
            let blocks = if may_inline {
                self.journal_inline_blocks(member, tail.as_ref())?
            } else {
                None
            };
            let inlined = tail.as_ref().map(|tail| tail.block);
            mappings.extend(tail);
            if let Some(blocks) = blocks {
                mappings.extend(blocks);
                continue;
            }
            let hint = member.hint.lifetime.or_else(|| inode.lifetime_hint());
            let hint = hint.and_then(Lifetime::class);
            let is_few = mode.is_small() && member.blocks < SYNCED_BLOCKS_MIN;
            // On a full volume whole blocks can always be overwritten, and what a frame spared may be another's by then.
            let may_compress = !is_few || member.blocks > 1 && self.has_room_to_share();
            let may_compress = may_compress && !member.hint.whole_blocks;
            let compression = self.compression_for(&inode).filter(|_| may_compress);
            let is_sought = may_lie_in_tree && !is_few && mode != Mode::Rewrite && all_arrived;
            for (block, data) in &member.frozen {
                let is_inlined = inlined == Some(block + u64::from(data.blocks()) - 1);
                let sent_blocks = data.blocks() as usize - usize::from(is_inlined);
                if sent_blocks > 0 {
                    let ino = member.ino;
                    let (stream, life) = match hint {
                        Some(class) => self.store.zones.hinted(class),
                        None => self.inferred_stream(ino, *block, sent_blocks as u64, mode)?,
                    };
                    pieces.push(Piece {
                        ino,
                        first: *block,
                        data: data.slice(0..sent_blocks),
                        stream,
                        life,
                        compression,
                        must_save_block: is_few,
                        is_sought,
                    });
                }
            }
        }
        Ok((mappings, pieces))
    }

    /// The runs of pieces, by stream.
    fn runs_of(&self, pieces: Vec<Piece>) -> Runs {
        let mut streams = Streams::new();
        for piece in pieces {
            let Piece {
                ino, first, data, ..
            } = piece;
            let blocks = streams.entry(piece.stream).or_default();
            match piece.compression {
                Some(compression) => blocks.compressible.push(Compressible {
                    ino,
                    first,
                    data,
                    compression,
                    single_compression: self.single_compression(compression),
                    must_save_block: piece.must_save_block,
                    life: piece.life,
                }),
                None => blocks.whole.push(Run::of(ino, first, data, piece.life)),
            }
        }
        let blocks_max = (self.store.frame_blocks_max(), self.store.run_blocks_max());
        let parallel = &*self.store.options.parallel;
        compress::into_runs(streams, parallel, blocks_max)
    }

    /// Places runs, and says where they are.
    fn place_runs(
        &self,
        runs: Runs,
        placing: Placing<'_>,
        places: &mut Places,
    ) -> Result<Vec<Mapping>> {
        for (stream, runs) in runs {
            let (all, before) = (blocks_of(&runs), placed_blocks(places));
            self.reclaimer.place(stream, placing, runs, places)?;
            let placed = placed_blocks(places) - before;
            invariant!(
                self.store.media.alarm,
                placed == all,
                "{placed} blocks of {all} were sent to the device"
            );
        }
        let placed = places.placed.iter().flat_map(Placed::extents);
        let mappings = placed.map(|(ino, block, extent)| Mapping::map(ino, block, extent));
        let mappings = mappings.collect();
        places.placed.clear();
        Ok(mappings)
    }

    /// Writes the blocks of a duplicate after all. Its zones stay as they are while `places` live.
    pub(super) fn write_duplicate(
        &self,
        duplicate: Duplicate,
        mode: Mode,
        places: &mut Places,
    ) -> Result<Vec<Mapping>> {
        let runs = self.runs_of(vec![duplicate.piece]);
        let mut mappings = self.place_runs(runs, Placing::OfUsers(None), places)?;
        mappings.sort_by_key(|mapping| mapping.block);
        if self.store.options.fsync == FsyncOrder::Strict && mode == Mode::SyncInOrder {
            self.store.media.flush()?;
        }
        Ok(mappings)
    }

    pub(super) fn write_and_map(&self, batch: &[BatchFile], mut mode: Mode) -> Result<WrittenBack> {
        let (mut mappings, pieces) = self.sort_out(batch, mode)?;
        let (pieces, mut duplicates) = self.find_duplicates(pieces);
        let runs = self.runs_of(pieces);
        let is_sync = matches!(mode, Mode::Sync { .. });
        self.send_sizes_first(batch, mode)?;
        let mut places = Places::default();
        let mut in_flight = is_sync.then(Arc::<InFlight>::default);
        let sent = runs.values().flatten().map(|r| u64::from(r.data.blocks()));
        let may_go_beside = mode.may_go_beside(sent.sum());
        let placing = match mode {
            Mode::Rewrite => Placing::Rewrite,
            _ => Placing::OfUsers(in_flight.as_ref()),
        };
        mappings.extend(self.place_runs(runs, placing, &mut places)?);
        mappings.sort_by_key(|l| (l.ino, l.block));
        let written: u64 = batch.iter().map(|member| member.blocks).sum();
        let mapped = mappings.iter().map(|l| (l.ino, l.block, l.end));
        let shared = duplicates
            .iter()
            .map(|d| (d.piece.ino, d.piece.first, d.end()));
        let mut mapped: Vec<(Ino, u64, u64)> = mapped.chain(shared).collect();
        mapped.sort_unstable();
        let blocks: u64 = mapped.iter().map(|(_, block, end)| end - block).sum();
        invariant!(
            self.store.media.alarm,
            blocks == written,
            "{blocks} blocks of {written} in the batch have a place"
        );
        let mut pairs = mapped.iter().zip(mapped.iter().skip(1));
        invariant!(
            self.store.media.alarm,
            pairs.all(|(one, next)| (one.0, one.2) <= (next.0, next.1)),
            "a block of the batch has two places"
        );
        self.note_written(&mut duplicates, &mappings);
        self.keep_tails(batch, &mappings);
        if let [member] = batch
            && mode.is_small()
            && member.blocks <= JOURNAL_INLINE_BLOCKS_MAX
        {
            self.keep_bases(member, &mappings);
        }
        if self.store.options.fsync == FsyncOrder::Strict
            && mode == Mode::SyncInOrder
            && !fault(Fault::UnsafeClassic)
        {
            self.store.media.flush()?;
        }
        // Between two records of a batch it may have to wait for a checkpoint, and checkpoints wait until
        // failed data is written elsewhere: by this very batch. So a record is sent before its data has
        // arrived only if the batch has one record. A large batch does not do so either where other syncs
        // would have to wait for its data. (The data goes to several zones at once in both cases.)
        let ops_max = self.store.transaction_ops_max();
        let changes = mappings.len() + batch.len() - 1;
        let goes_beside = may_go_beside && changes <= ops_max && duplicates.is_empty();
        if let Some(data) = in_flight.take_if(|_| !goes_beside) {
            if let Err(failed) = data.complete() {
                tracing::warn!(%failed, "data to sync did not arrive, writing it elsewhere");
                self.store.zones.note_failing(Some(&failed.clone().into()));
                self.store.zones.leave_failed(&self.store.media);
                drop(places);
                return self.write_and_map(batch, Mode::SyncInOrder);
            }
            mode = Mode::SyncInOrder;
        }
        let pending = Pending::new(mappings, duplicates);
        let lsn = self.journal(batch, pending, in_flight.as_ref(), (mode, ops_max))?;
        let Some(in_flight) = in_flight else {
            let durable = match mode {
                Mode::SyncInOrder => self.history.commit(lsn),
                Mode::Recorded => self.history.record(lsn),
                _ => Ok(()),
            };
            return Ok(WrittenBack { durable });
        };
        let own = Some(&*in_flight);
        let result = self
            .store
            .log
            .commit(&self.store.media, &self.store.zones, lsn, own);
        match in_flight.complete() {
            Ok(()) => {
                let durable = result.and_then(|()| self.reclaimer.serve(Demand::SoundLog));
                Ok(WrittenBack { durable })
            }
            Err(failed) => {
                tracing::warn!(%failed, "synced data did not arrive, writing it elsewhere");
                self.store.zones.note_failing(Some(&failed.clone().into()));
                self.store.zones.leave_failed(&self.store.media);
                self.rewrite_failed(batch, &in_flight, places)
            }
        }
    }

    /// The stream for blocks of a file that nothing was told of: by what they overwrite.
    fn inferred_stream(
        &self,
        ino: Ino,
        block: u64,
        blocks: u64,
        mode: Mode,
    ) -> Result<(Stream, Life)> {
        let end = block + blocks;
        let old = match mode {
            Mode::Rewrite => Vec::new(),
            _ => self
                .store
                .view::<_, Error>(|view| view.extents(ino, block, end, OLD_MAX))?,
        };
        let old = old.iter().filter_map(|mapped| {
            let addr = mapped.extent.addr()?;
            let there = mapped.end().min(end) - mapped.block.max(block);
            Some((addr.zone(), there))
        });
        Ok(self.store.zones.infer(old))
    }

    /// Remembers the blocks that the files end in, for later appends.
    fn keep_tails(&self, batch: &[BatchFile], mappings: &[Mapping]) {
        for member in batch {
            let Some((block, content)) = tail(member) else {
                continue;
            };
            let last = mappings
                .iter()
                .rfind(|l| l.ino == member.ino && (l.block..l.end).contains(&block));
            if let Some(Mapping {
                op, block: start, ..
            }) = last
                && let Op::Map {
                    extent: Extent::Frame { addr, .. },
                    ..
                } = op
            {
                let addr = addr.offset((block - start) as u32);
                self.tails.keep(member.ino, addr, content);
            }
        }
    }

    /// For [`Fault::SizeBeforeData`]: makes sizes and times of a batch durable.
    fn send_sizes_first(&self, batch: &[BatchFile], mode: Mode) -> Result<()> {
        if !fault(Fault::SizeBeforeData) || !matches!(mode, Mode::Sync { .. }) {
            return Ok(());
        }
        let ops_max = self.store.transaction_ops_max();
        let pending = Pending::new(Vec::new(), Vec::new());
        let lsn = self.journal(batch, pending, None, (mode, ops_max))?;
        self.history.commit(lsn)
    }
}

fn blocks_of(runs: &[Run]) -> u64 {
    runs.iter().map(Run::file_blocks).sum()
}

fn placed_blocks(places: &Places) -> u64 {
    let placed = places.placed.iter();
    placed.map(|p| p.run.file_blocks()).sum()
}

/// Freezes a file's dirty data for a batch, if there is any. The file is not busy.
pub(super) fn collect(
    ino: Ino,
    file: &Arc<File>,
    mut staged: MutexGuard<'_, Staged>,
) -> Option<BatchFile> {
    if staged.is_clean() || staged.damage.is_some() {
        return None;
    }
    let blocks = staged.freeze();
    let frozen: u64 = staged
        .frozen
        .values()
        .map(|run| u64::from(run.blocks()))
        .sum();
    invariant_holds!(
        staged.alarm(),
        frozen == blocks,
        "{blocks} dirty blocks of inode {ino} are frozen, and {frozen} are in the frozen layer"
    );
    staged.busy = true;
    let member = BatchFile {
        ino,
        size: staged.loaded_size(),
        committed_size: staged.committed_size,
        growth: staged.frozen_growth.clone(),
        times: staged.frozen_times,
        hint: staged.hint,
        is_unarrived: staged.is_unarrived,
        blocks,
        frozen: staged
            .frozen
            .iter()
            .map(|(block, data)| (*block, data.clone()))
            .collect(),
        file: Arc::clone(file),
    };
    Some(member)
}

/// A file small enough to live in the tree.
fn inline(member: &BatchFile) -> Option<Mapping> {
    let [(0, data)] = member.frozen.as_slice() else {
        return None;
    };
    if member.size > INLINE_BYTES_MAX || data.blocks() != 1 {
        return None;
    }
    let used = data.get(..member.size as usize)?;
    let len = used.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    let bytes = used.get(..len)?.to_vec();
    Some(Mapping::map(member.ino, 0, Extent::Inline(bytes)))
}

/// The content of a file's last block, if the file ends inside it and the block is in the batch.
pub(super) fn tail(member: &BatchFile) -> Option<(u64, &[u8])> {
    let block = member.size / BLOCK_SIZE as u64;
    let len = (member.size % BLOCK_SIZE as u64) as usize;
    let (start, data) = member.frozen.last()?;
    let at = usize::try_from(block.checked_sub(*start)?).ok()?;
    if len == 0 || at + 1 != data.blocks() as usize {
        return None;
    }
    let content = data.get(at * BLOCK_SIZE..)?.get(..len)?;
    Some((block, content))
}
