//! Reads and verifies everything live while the volume is in use, a bounded number of blocks at a time. The
//! caller paces, and may stop at any step: all there is to remember is a small cursor.
//!
//! What does not match is looked up again before it counts: it may have moved, been replaced or
//! not have arrived yet when it was read. Extents are found page by page, not key by key, so that
//! a damaged page hides no more than its own. What moves between pages meanwhile may be missed.

use std::collections::BTreeSet;
use std::sync::Arc;

use persimmon_device::{BLOCK_SIZE, Buffer, ZoneId};
use persimmon_format::delta::{self, block_at, is_delta};
use persimmon_format::envelope::{self, Kind};
use persimmon_format::extent::Extent;
use persimmon_format::inode::{Inode, SHARED};
use persimmon_format::log::LogBlock;
use persimmon_format::name::DirEntry;
use persimmon_format::summary::Summary;
use persimmon_format::table::{MatEntry, Role};
use persimmon_format::xattr::{Piece, Xattr, slot_of};
use persimmon_format::{
    Addr, DeviceId, FormatError, Ino, Key, KeyKind, PageId, SubvolumeId, VersionId, checksum,
};

use crate::data::FileData;
use crate::error::{Error, Result};
use crate::headers::read_header;
use crate::meta::{Page, store};
use crate::store::Store;
use crate::zones::pin::Pin;

/// For so many blocks of file data one smaller thing may be looked at in a step.
const BLOCKS_PER_ITEM: u64 = 4;
/// Looks at something that does not match.
const LOOKS: usize = 3;

/// What a scrub looks at, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ScrubStage {
    /// Headers of zones in use.
    #[default]
    Headers,
    /// The log from where a recovery would start.
    Log,
    /// Chunks of both tables.
    Tables,
    /// Summaries of data zones.
    Summaries,
    /// Metadata pages, and the data that each leaf refers to.
    Pages,
}

/// Where a scrub goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCursor {
    /// What is looked at.
    pub stage: ScrubStage,
    /// Zone, log sequence, chunk or page.
    pub at: u64,
    /// In a leaf: the extent to go on with.
    pub key: Option<(Ino, u64)>,
}

/// What is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Damage {
    /// A zone header.
    Header,
    /// A block of the log.
    Log,
    /// A chunk of the page table.
    MatChunk,
    /// A chunk of the zone table.
    ZitChunk,
    /// A summary. No file is affected.
    Summary,
    /// A metadata page.
    Page,
    /// One of two copies of a block of metadata or of the log: the other is used.
    Copy,
    /// An item of a metadata page: an inode, a directory entry, an attribute, an extent.
    Item,
    /// File data.
    Data,
}

impl Damage {
    /// The number of fsck's finding, see `docs/FSCK.md`.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Damage::Header => 101,
            Damage::Log => 201,
            Damage::MatChunk => 311,
            Damage::ZitChunk => 321,
            Damage::Page => 401,
            Damage::Copy => 407,
            Damage::Item => 502,
            Damage::Data => 801,
            Damage::Summary => 802,
        }
    }
}

/// Something damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// What.
    pub damage: Damage,
    /// Where it is.
    pub addr: Addr,
    /// Blocks.
    pub blocks: u32,
    /// For data: the file, and the first block in it.
    pub file: Option<(Ino, u64)>,
    /// What is wrong.
    pub reason: String,
}

/// What a step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStep {
    blocks_max: u64,
    items_max: u64,
    /// Where to go on; nothing at the end.
    pub next: Option<ScrubCursor>,
    /// Bytes read and verified, or found damaged.
    pub bytes: u64,
    /// What is damaged.
    pub findings: Vec<ScrubFinding>,
}

/// A frame that a leaf refers to; its zone stays as it is while the pin lives.
struct Frame {
    ino: Ino,
    block: u64,
    version: VersionId,
    /// A frame, or a packed extent.
    extent: Extent,
    _pin: Option<Pin>,
}

impl ScrubStep {
    fn read(&mut self, blocks: u64) {
        self.bytes += blocks * BLOCK_SIZE as u64;
    }

    fn found(&mut self, damage: Damage, addr: Addr, blocks: u32, reason: &dyn std::fmt::Display) {
        self.findings.push(ScrubFinding {
            damage,
            addr,
            blocks,
            file: None,
            reason: reason.to_string(),
        });
    }
}

/// Looks at a volume in use.
pub(crate) struct Scrub<'e> {
    pub(crate) store: &'e Store,
    pub(crate) data: &'e FileData,
}

impl Scrub<'_> {
    /// Bytes that a scrub reads as of now.
    #[must_use]
    pub(crate) fn bytes(&self) -> u64 {
        let zones = self.store.zones.status();
        let valid: u64 = zones.iter().map(|zone| u64::from(zone.entry.valid)).sum();
        let (from, _, to) = self.store.log.live();
        (valid + to.saturating_sub(from)) * BLOCK_SIZE as u64
    }

    /// Verifies about the next `blocks_max` blocks. Begin with the default cursor.
    ///
    /// # Errors
    /// None that stands for damage: those are findings.
    pub(crate) fn step(&self, cursor: ScrubCursor, blocks_max: u64) -> Result<ScrubStep> {
        let mut step = ScrubStep {
            blocks_max: blocks_max.max(1),
            items_max: (blocks_max / BLOCKS_PER_ITEM).max(1),
            ..ScrubStep::default()
        };
        let next = match cursor.stage {
            ScrubStage::Headers => self.scrub_headers(cursor.at, &mut step),
            ScrubStage::Log => self.scrub_log(cursor.at, &mut step),
            ScrubStage::Tables => self.scrub_tables(cursor.at, &mut step),
            ScrubStage::Summaries => self.scrub_summaries(cursor.at, &mut step),
            ScrubStage::Pages => {
                step.next = self.scrub_pages(cursor, &mut step);
                return Ok(step);
            }
        };
        let after = match cursor.stage {
            ScrubStage::Headers => ScrubStage::Log,
            ScrubStage::Log => ScrubStage::Tables,
            ScrubStage::Tables => ScrubStage::Summaries,
            ScrubStage::Summaries | ScrubStage::Pages => ScrubStage::Pages,
        };
        step.next = Some(ScrubCursor {
            stage: if next.is_some() { cursor.stage } else { after },
            at: next.unwrap_or(0),
            key: None,
        });
        Ok(step)
    }

    fn scrub_headers(&self, from: u64, step: &mut ScrubStep) -> Option<u64> {
        let zones = self.store.zones.status();
        let (_, chain, to) = self.store.log.live();
        // The header of the newest one is written once a block behind it is.
        let written = chain.iter().filter(|zone| zone.first_log_sequence < to);
        let logs: BTreeSet<ZoneId> = written.map(|zone| zone.zone).collect();
        for status in zones
            .iter()
            .skip(from as usize)
            .take(step.items_max as usize)
        {
            let zone = status.zone;
            // A header may still be on its way where nothing is valid yet. What is valid in a pair is counted
            // in the first of both.
            let first = self.store.media.pairs.first(zone);
            let holds = zones.get(first.0 as usize);
            let is_written =
                holds.is_some_and(|status| status.entry.valid > 0) || logs.contains(&first);
            if !is_written {
                continue;
            }
            step.read(1);
            let _pin = self.store.zones.pin(zone);
            let good = || {
                read_header(&self.store.media, &self.store.identity, zone)
                    .is_ok_and(|h| h.is_some_and(|h| h.sequence == status.entry.sequence))
            };
            let still = || {
                self.store.zones.entry(zone).is_some_and(|now| {
                    now.sequence == status.entry.sequence && now.role == status.entry.role
                }) && !self.store.zones.is_in_reset(zone)
            };
            if good() {
                self.scrub_rows(Addr::new(DeviceId(0), zone, 0), 1, step);
            } else if still() && !good() {
                let addr = Addr::new(DeviceId(0), zone, 0);
                if self.store.zones.is_offline(zone) && !self.store.zones.is_lost(zone) {
                    // Told once, and not for each block of it.
                    step.found(Damage::Copy, addr, 1, &"the zone is offline")
                } else {
                    step.found(Damage::Header, addr, 1, &"not the header of this use")
                }
            }
        }
        let next = from + step.items_max;
        (next < zones.len() as u64).then_some(next)
    }

    fn scrub_log(&self, at: u64, step: &mut ScrubStep) -> Option<u64> {
        let (from, chain, to) = self.store.log.live();
        let from = at.max(from);
        let end = to.min(from.saturating_add(step.blocks_max));
        for sequence in from..end {
            // A zone that failed was left: the next one went on with its numbers.
            let holds = chain
                .iter()
                .rev()
                .find(|zone| zone.first_log_sequence <= sequence);
            let Some(zone) = holds else {
                continue;
            };
            let block = sequence - zone.first_log_sequence + 1;
            if block >= u64::from(zone.capacity) {
                continue;
            }
            step.read(1);
            let addr = Addr::new(DeviceId(0), zone.zone, block as u32);
            self.scrub_rows(addr, 1, step);
            let mut bad = Vec::new();
            let copies: Vec<Addr> = self.copies(addr).collect();
            for copy in &copies {
                let check = || self.check_log_block(*copy, zone.sequence, sequence);
                if let Err(first) = check() {
                    let (needed, now, _) = self.store.log.live();
                    let same = now.iter().any(|other| other.sequence == zone.sequence);
                    if sequence >= needed && same && check().is_err() {
                        bad.push((*copy, first));
                    }
                }
            }
            let all = bad.len() == copies.len();
            if !all {
                bad.retain(|(copy, _)| !self.store.zones.is_offline(copy.zone()));
            }
            for (copy, error) in bad.iter().take(if all { 1 } else { copies.len() }) {
                let damage = if all { Damage::Log } else { Damage::Copy };
                step.found(damage, *copy, 1, error);
            }
        }
        (end < to).then_some(end)
    }

    fn check_log_block(&self, addr: Addr, zone_sequence: u64, sequence: u64) -> Result<()> {
        let check = |bytes: Buffer| {
            let block = LogBlock::decode(&bytes, &self.store.key, zone_sequence)
                .map_err(Error::damaged(addr))?;
            if block.sequence == sequence {
                return Ok(());
            }
            Err(Error::damaged(addr)(FormatError::Mismatch {
                what: "log block",
                field: "sequence",
                found: block.sequence,
                expected: sequence,
            }))
        };
        let media = &self.store.media;
        match media.pairs.partner(addr.zone()) {
            // The partner is looked at for itself.
            Some(_) => media.read_one(addr, 1).and_then(check),
            None => media.read_good(addr, 1, check),
        }
    }

    fn scrub_tables(&self, from: u64, step: &mut ScrubStep) -> Option<u64> {
        let mut at = from;
        loop {
            let mats = self.store.meta().mat.chunks().len() as u64;
            let total = mats + self.store.on_device().zit_chunks.len() as u64;
            if at >= total {
                return None;
            }
            if at >= from + step.items_max {
                return Some(at);
            }
            let (kind, damage, number) = if at < mats {
                (Kind::MatChunk, Damage::MatChunk, at)
            } else {
                (Kind::ZitChunk, Damage::ZitChunk, at - mats)
            };
            self.scrub_chunk(kind, damage, number, step);
            at += 1;
        }
    }

    /// Where a chunk is; its zone stays as it is while the pin lives.
    fn chunk_place(&self, kind: Kind, number: u64) -> Option<(Addr, Option<Pin>)> {
        let pinned = |addr: Option<&Addr>| {
            let addr = addr.copied().filter(|addr| *addr != Addr::ZERO)?;
            Some((addr, self.store.zones.pin(addr.zone())))
        };
        if kind == Kind::MatChunk {
            pinned(self.store.meta().mat.chunks().get(number as usize))
        } else {
            pinned(self.store.on_device().zit_chunks.get(number as usize))
        }
    }

    fn scrub_chunk(&self, kind: Kind, damage: Damage, number: u64, step: &mut ScrubStep) {
        let mut before = None;
        for _ in 0..LOOKS {
            let Some((addr, _pin)) = self.chunk_place(kind, number) else {
                return;
            };
            step.read(1);
            let read = self.store.media.read_good(addr, 1, |block| {
                envelope::open(&block, &self.store.key, kind, Some(number))
                    .map(drop)
                    .map_err(Error::damaged(addr))
            });
            let Err(error) = read else {
                self.scrub_copies(kind, number, (addr, 1), step);
                return;
            };
            if before.replace(addr) == Some(addr) {
                step.found(damage, addr, 1, &error);
                return;
            }
        }
    }

    /// A block's place, and that of its copy.
    fn copies(&self, addr: Addr) -> impl Iterator<Item = Addr> {
        let zones = self.store.media.pairs.both(addr.zone());
        zones.map(move |zone| Addr::new(addr.device(), zone, addr.block()))
    }

    /// Of something that one copy at least is good of: each copy for itself. Where the zone of one is gone
    /// that is told with the headers.
    fn scrub_copies(
        &self,
        kind: Kind,
        number: u64,
        (addr, blocks): (Addr, u32),
        step: &mut ScrubStep,
    ) {
        if !self.store.zones.is_open(addr.zone()) {
            self.scrub_rows(addr, blocks, step);
        }
        if self.store.media.pairs.partner(addr.zone()).is_none() {
            return;
        }
        let is_gone = |copy: Addr| self.store.zones.is_offline(copy.zone());
        if self.copies(addr).any(is_gone) {
            return;
        }
        for copy in self.copies(addr) {
            step.read(blocks.into());
            let read = self.store.media.read_one(copy, blocks).and_then(|bytes| {
                let opened = envelope::open(&bytes, &self.store.key, kind, Some(number));
                opened.map(drop).map_err(Error::damaged(copy))
            });
            if let Err(error) = read {
                step.found(Damage::Copy, copy, blocks, &error);
            }
        }
    }

    /// Of blocks in a stripe set, that are all written: whether they would be left if any one of its zones was lost. Where one has
    /// failed that is known, and the set is being emptied.
    fn scrub_rows(&self, addr: Addr, blocks: u32, step: &mut ScrubStep) {
        let is_striped = self.store.media.geometry().stripes.is_some();
        if !is_striped
            || self.store.zones.has_failed(addr.zone())
            || self.store.media.rows_agree(addr, blocks)
        {
            return;
        }
        let role = self.store.zones.entry(addr.zone()).map(|entry| entry.role);
        let goes_on = self.store.zones.is_open(addr.zone()) || role == Some(Role::Log);
        let when = if goes_on { " once the set is full" } else { "" };
        let what = "one zone of its stripe set has something else; it is written anew elsewhere";
        step.found(Damage::Copy, addr, blocks, &format_args!("{what}{when}"));
        self.store.zones.note_lack_of_redundancy(addr.zone());
    }

    fn scrub_summaries(&self, from: u64, step: &mut ScrubStep) -> Option<u64> {
        let zones = self.store.zones.status();
        let zone = zones
            .iter()
            .skip(from as usize)
            .find(|zone| zone.entry.role == Role::Data && zone.entry.valid > 0)?;
        let _pin = self.store.zones.pin(zone.zone);
        let mut next = self
            .store
            .last_summary(zone.zone, zone.entry.write_pointer)
            .map(|(_, summary)| summary.previous);
        while let Some(at) = next.filter(|at| *at != 0) {
            step.read(1);
            let addr = Addr::new(DeviceId(0), zone.zone, at);
            let summary = self.store.media.read_good(addr, 1, |block| {
                Summary::decode(&block, &self.store.key, zone.entry.sequence, at)
                    .map_err(Error::damaged(addr))
            });
            next = match summary {
                Ok(summary) => {
                    if !self.store.zones.is_open(zone.zone) {
                        self.scrub_rows(addr, 1, step);
                    }
                    Some(summary.previous)
                }
                Err(error) => {
                    let now = self.store.zones.entry(zone.zone);
                    if now.is_some_and(|now| now.sequence == zone.entry.sequence) {
                        step.found(Damage::Summary, addr, 1, &error);
                    }
                    // Those before it are found as cleaning finds them.
                    let before = self.store.last_summary(zone.zone, at);
                    before.map(|(_, summary)| summary.previous)
                }
            };
        }
        Some(u64::from(zone.zone.0) + 1)
    }

    fn scrub_pages(&self, cursor: ScrubCursor, step: &mut ScrubStep) -> Option<ScrubCursor> {
        let mut id = cursor.at;
        let mut key = cursor.key;
        let mut blocks = 0;
        while blocks < step.blocks_max && id < cursor.at.saturating_add(step.items_max) {
            if id >= self.store.meta().cache.id_limit() {
                return None;
            }
            let page = self.scrub_page(PageId(id), key.is_none(), step);
            if key.is_none() {
                scrub_items(page.as_ref(), step);
            }
            let (frames, rest) = self.frames_of(PageId(id), page, key, step.blocks_max - blocks);
            for frame in &frames {
                blocks += frame.extent.blocks();
                self.scrub_frame(frame, step);
            }
            key = rest;
            if rest.is_none() {
                id += 1;
            }
        }
        Some(ScrubCursor {
            stage: ScrubStage::Pages,
            at: id,
            key,
        })
    }

    /// Verifies a page as it is on the device; answers it, and where it was. `tell`: damage is
    /// told.
    fn scrub_page(
        &self,
        id: PageId,
        tell: bool,
        step: &mut ScrubStep,
    ) -> Option<(MatEntry, Arc<Page>)> {
        let mut before = None;
        for _ in 0..LOOKS {
            let (entry, _pin) = {
                let meta = self.store.meta();
                let entry = meta.mat.get(id)?;
                (entry, self.store.zones.pin(entry.addr.zone()))
            };
            if tell {
                step.read(entry.blocks.into());
            }
            match store::fetch(&self.store.media, &self.store.key, id, entry) {
                Ok(page) => {
                    if tell {
                        let place = (entry.addr, entry.blocks.into());
                        self.scrub_copies(Kind::Page, id.0, place, step);
                    }
                    return Some((entry, page));
                }
                Err(error) if before.replace(entry) == Some(entry) => {
                    if tell {
                        step.found(Damage::Page, entry.addr, entry.blocks.into(), &error);
                    }
                    return None;
                }
                Err(_) => {}
            }
        }
        None
    }

    /// The frames that a leaf refers to, from an extent on: about `limit` blocks of them, and the
    /// extent after those. What is in memory is newer than what was read.
    fn frames_of(
        &self,
        id: PageId,
        read: Option<(MatEntry, Arc<Page>)>,
        from: Option<(Ino, u64)>,
        limit: u64,
    ) -> (Vec<Frame>, Option<(Ino, u64)>) {
        let meta = self.store.meta();
        if !meta.cache.is_allocated(id) {
            return (Vec::new(), None);
        }
        let current = read.filter(|(entry, _)| meta.mat.get(id) == Some(*entry));
        let page = meta.cache.share(id).ok().or(current.map(|(_, page)| page));
        let Some(page) = page.filter(|page| page.level() == 0) else {
            return (Vec::new(), None);
        };
        let (mut frames, mut blocks) = (Vec::new(), 0);
        let start = from.map_or(0, |(ino, block)| {
            let (Ok(index) | Err(index)) = page.search(&Key::extent(ino, block));
            index
        });
        let mut last = None;
        for index in start..page.count() {
            let key = page.key(index);
            if key.kind != KeyKind::EXTENT {
                continue;
            }
            // All versions of a place are looked at together: a place is what the next look goes on from.
            let here = Some((key.ino, key.item));
            if blocks >= limit && here != last {
                return (frames, here);
            }
            last = here;
            if let Ok(extent) = Extent::decode(page.value(index))
                && let Some(addr) = extent.addr()
            {
                blocks += extent.blocks();
                frames.push(Frame {
                    ino: key.ino,
                    block: key.item,
                    version: key.version,
                    extent,
                    _pin: self.store.zones.pin(addr.zone()),
                });
            }
        }
        (frames, None)
    }

    fn scrub_frame(&self, frame: &Frame, step: &mut ScrubStep) {
        if let Some((addr, blocks)) = frame.extent.place()
            && !self.store.zones.is_open(addr.zone())
        {
            self.scrub_rows(addr, blocks, step);
        }
        // Of a compressed frame all blocks are at the first.
        let (addr, apart, bad) = match &frame.extent {
            Extent::Frame { addr, crcs } => {
                step.read(crcs.len() as u64);
                (*addr, 1, self.bad_blocks(*addr, crcs))
            }
            Extent::Packed(packed) => {
                step.read(packed.span().into());
                let blocks = self.store.media.read(packed.addr, packed.span());
                let good = blocks.is_ok_and(|blocks| match is_delta(frame.block) {
                    true => packed.verified(&blocks).is_some_and(delta::is_sound),
                    false => {
                        let dictionary = self.store.dictionary_of(packed);
                        dictionary
                            .is_ok_and(|dictionary| packed.content(&blocks, &dictionary).is_some())
                    }
                });
                let bad = if good { 0 } else { packed.blocks.into() };
                (packed.addr, 0, (0..bad).collect())
            }
            _ => return,
        };
        let mut last: Option<u32> = None;
        for at in bad {
            let block = block_at(frame.block) + u64::from(at);
            let Some((ino, reason)) = self.who_has_damage(frame, block) else {
                continue;
            };
            if let Some(finding) = step.findings.last_mut()
                && last.is_some_and(|last| last + 1 == at)
            {
                finding.blocks += 1;
            } else {
                step.found(Damage::Data, addr.offset(at * apart), 1, &reason);
                if let Some(finding) = step.findings.last_mut() {
                    finding.file = Some((ino, block));
                }
            }
            last = Some(at);
        }
    }

    /// Blocks of a frame that do not match their checksums.
    fn bad_blocks(&self, addr: Addr, crcs: &[u32]) -> Vec<u32> {
        let matches = |block: &[u8], crc: u32| checksum::data_block(block) == crc;
        match self.store.media.read(addr, crcs.len() as u32) {
            Ok(data) => data
                .chunks_exact(BLOCK_SIZE)
                .zip(crcs)
                .zip(0..)
                .filter(|((block, crc), _)| !matches(block, **crc))
                .map(|(_, at)| at)
                .collect(),
            // The good ones among them are found when each is looked up again.
            Err(_) => (0..crcs.len() as u32).collect(),
        }
    }

    /// The file, of the first subvolume that shows the version of a frame, of which a block cannot be read, and why.
    fn who_has_damage(&self, frame: &Frame, block: u64) -> Option<(Ino, Error)> {
        let who: Vec<Ino> = {
            let meta = self.store.meta();
            let shows = |subvolume: &SubvolumeId| {
                let scope = meta.versions.scope(*subvolume);
                scope.is_ok_and(|scope| scope.shows(frame.version))
            };
            match frame.ino == SHARED {
                true => vec![SHARED],
                false => {
                    let subvolumes = meta.versions.all().into_iter().filter(shows);
                    subvolumes.map(|of| frame.ino.of(of)).collect()
                }
            }
        };
        who.into_iter()
            .find_map(|ino| Some((ino, self.is_damaged(ino, block)?)))
    }

    /// Whether a block of a file cannot be read from the device, wherever it is by now. Staging counts: it may be
    /// on its way to where the tree already has it.
    fn is_damaged(&self, ino: Ino, block: u64) -> Option<Error> {
        let damage = |error| match error {
            Error::DataDamaged { .. } | Error::DataLost { .. } | Error::Device(_) => Some(error),
            _ => None,
        };
        self.data.check_block(ino, block).err().and_then(damage)
    }
}

/// Items of a leaf that do not decode, or are names that no file may have. What is changed in memory is looked at when it
/// is on the device.
fn scrub_items(read: Option<&(MatEntry, Arc<Page>)>, step: &mut ScrubStep) {
    let Some((entry, page)) = read.filter(|(_, page)| page.level() == 0) else {
        return;
    };
    for index in 0..page.count() {
        let (key, value) = (page.key(index), page.value(index));
        // It says that a version hides what others have at the place. The first version hides nothing.
        if key.version != VersionId(0) && !key.is_unversioned() && key.is_whiteout(value) {
            continue;
        }
        let wrong = match key.kind {
            KeyKind::INODE => Inode::decode(value).err().map(|error| error.to_string()),
            KeyKind::EXTENT => Extent::decode(value).err().map(|error| error.to_string()),
            KeyKind::XATTR => match slot_of(&key) {
                Some(_) => Piece::decode(&key, value).err(),
                None => Xattr::decode(value).err(),
            }
            .map(|error| error.to_string()),
            KeyKind::DIR_ENTRY => match DirEntry::decode(value) {
                Ok(entry) => (!entry.has_possible_name()).then(|| {
                    format!(
                        "impossible name \"{}\"",
                        persimmon_format::shown(entry.name)
                    )
                }),
                Err(error) => Some(error.to_string()),
            },
            _ => None,
        };
        if let Some(wrong) = wrong {
            let reason = format!("inode {}, item {:#x}: {wrong}", key.ino, key.item);
            step.found(Damage::Item, entry.addr, entry.blocks.into(), &reason);
        }
    }
}
