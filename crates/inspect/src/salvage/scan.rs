//! What the metadata zones hold, found without the log: every page and every table chunk that is
//! intact, whichever checkpoint wrote it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use persimmon_format::envelope::{self, Kind};
use persimmon_format::page::{PAGE_BLOCKS_MAX, PageView};
use persimmon_format::table::{MatEntry, Role, ZitEntry};
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, Key, PageId, ZoneId};

use crate::tree;
use crate::volume::{Inspector, ZoneUse};

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 256;

/// A page as some checkpoint wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageVersion {
    pub id: PageId,
    /// The checkpoint that wrote it.
    pub checkpoint: u64,
    pub addr: Addr,
    pub blocks: u16,
    pub level: u8,
    /// Its first and its last key; nothing in an empty leaf.
    pub keys: Option<(Key, Key)>,
}

impl PageVersion {
    pub(crate) fn entry(&self) -> MatEntry {
        MatEntry {
            addr: self.addr,
            blocks: self.blocks,
        }
    }
}

/// A table's chunk as some checkpoint wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkVersion {
    /// The checkpoint that wrote it.
    pub checkpoint: u64,
    /// Which attempt at writing a checkpoint it belongs to, counted over the whole scan.
    attempt: u32,
    pub addr: Addr,
}

/// The versions of the chunks of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks {
    /// By number; the versions of each ascending.
    versions: BTreeMap<u64, Vec<ChunkVersion>>,
}

impl Chunks {
    /// The newest version of a chunk that this checkpoint or an earlier one wrote.
    pub(crate) fn at(&self, number: u64, checkpoint: u64) -> Option<ChunkVersion> {
        let versions = self.versions.get(&number)?;
        let older = versions.partition_point(|version| version.checkpoint <= checkpoint);
        versions.get(older.checked_sub(1)?).copied()
    }

    /// The oldest version of a chunk that a checkpoint wrote in a range of checkpoints.
    pub(crate) fn first_of(
        &self,
        number: u64,
        checkpoints: std::ops::RangeInclusive<u64>,
    ) -> Option<ChunkVersion> {
        let versions = self.versions.get(&number)?;
        let older = versions.partition_point(|version| version.checkpoint < *checkpoints.start());
        let first = versions.get(older).copied();
        first.filter(|version| checkpoints.contains(&version.checkpoint))
    }

    /// One more than the largest number.
    pub(crate) fn len(&self) -> usize {
        self.versions
            .last_key_value()
            .map_or(0, |(number, _)| *number as usize + 1)
    }

    fn all(&self) -> impl Iterator<Item = &ChunkVersion> {
        self.versions.values().flatten()
    }
}

/// Everything found. Some 110 bytes of memory for each page version on the device.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// By id, the versions of each in the order in which they were written.
    pages: Vec<PageVersion>,
    /// Which of them lies at an address.
    by_addr: HashMap<Addr, u32>,
    pub mat: Chunks,
    pub zit: Chunks,
    /// Zones that cannot be read at all.
    pub zones_lost: Vec<ZoneId>,
    /// Written blocks that are part of no intact structure, in the order in which they were read.
    pub unknown: Vec<(ZoneId, Range<u32>)>,
}

impl Scan {
    /// Reads all zones that can hold metadata: those whose header says so, and those whose header
    /// is damaged.
    pub(crate) fn read(inspector: &Inspector<'_>, progress: &mut dyn FnMut(u64, u64)) -> Scan {
        let mut zones: Vec<(u64, ZoneId)> = Vec::new();
        let mut scan = Scan::default();
        for ((zone, info), used) in inspector.media.zones().zip(&inspector.zones) {
            let partner = inspector.media.partner(zone);
            if info.state == persimmon_device::ZoneState::Offline {
                scan.zones_lost.push(zone);
                if partner.is_none_or(|partner| inspector.media.is_offline(partner)) {
                    continue;
                }
            }
            // Of a pair both are read as the first.
            if inspector.media.first(zone) != zone {
                continue;
            }
            let used = match (used, partner) {
                (ZoneUse::Header(_), _) | (_, None) => used,
                (_, Some(partner)) => inspector.zones.get(partner.0 as usize).unwrap_or(used),
            };
            match used {
                ZoneUse::Header(header) if header.role == Role::Metadata => {
                    zones.push((header.sequence, zone));
                }
                ZoneUse::Damaged(_) => zones.push((0, zone)),
                _ => {}
            }
        }
        zones.sort_unstable();
        let total = zones.len() as u64;
        let geometry = inspector.media.geometry();
        let mut order = Order {
            pages_max: u64::from(geometry.zone_count) * u64::from(geometry.zone_blocks),
            zones: geometry.zone_count.into(),
            ..Order::default()
        };
        for (done, (_, zone)) in zones.iter().enumerate() {
            progress(done as u64, total);
            scan.read_zone(inspector, *zone, &mut order);
        }
        scan.keep_last_attempts();
        scan
    }

    fn read_zone(&mut self, inspector: &Inspector<'_>, zone: ZoneId, order: &mut Order) {
        let media = &inspector.media;
        let copy = media.partner(zone).map_or(0, |copy| media.written(copy));
        let written = media.written(zone).max(copy);
        order.begin_zone();
        let (mut at, mut filled) = (1, 1);
        while at < written {
            // Windows overlap by what the longest structure needs.
            let blocks = (written - at).min(WINDOW_BLOCKS);
            let window = match inspector
                .media
                .read(Addr::new(DeviceId(0), zone, at), blocks)
            {
                Ok(window) => window,
                Err(_) => {
                    self.read_singly(inspector, zone, at..at + blocks, order);
                    at += blocks;
                    filled = at;
                    continue;
                }
            };
            let last = at + blocks == written;
            let limit = if last {
                blocks
            } else {
                (blocks + 1).saturating_sub(PAGE_BLOCKS_MAX as u32).max(1)
            };
            let mut inside = 0;
            while inside < limit {
                let addr = Addr::new(DeviceId(0), zone, at + inside);
                let bytes = window.get(inside as usize * BLOCK_SIZE..).unwrap_or(&[]);
                let taken = match self.take(inspector, addr, bytes, order) {
                    0 if copy > 0 || media.is_striped() => self.take_singly(inspector, addr, order),
                    taken => taken,
                };
                let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
                let is_blank = taken == 0 && bytes.get(..BLOCK_SIZE).is_some_and(is_zero);
                // Rows of stripe sets are filled up with zeros.
                if taken == 0 && !(is_blank && media.is_striped()) {
                    self.note_unknown(addr);
                }
                if !is_blank {
                    filled = at + inside + taken.max(1);
                }
                inside += taken.max(1);
            }
            at += inside;
        }
        // Zeros up to the write pointer were not written: the zone was finished before.
        if let Some((last, blocks)) = self.unknown.last_mut()
            && *last == zone
        {
            blocks.end = blocks.end.min(filled);
        }
        self.unknown
            .pop_if(|(_, blocks)| blocks.start >= blocks.end);
    }

    fn note_unknown(&mut self, addr: Addr) {
        let (zone, at) = (addr.zone(), addr.block());
        match self.unknown.last_mut() {
            Some((last, blocks)) if *last == zone && blocks.end == at => blocks.end += 1,
            _ => self.unknown.push((zone, at..at + 1)),
        }
    }

    /// A window with an unreadable block: what begins elsewhere is still read.
    fn read_singly(
        &mut self,
        inspector: &Inspector<'_>,
        zone: ZoneId,
        range: Range<u32>,
        order: &mut Order,
    ) {
        let mut at = range.start;
        while at < range.end {
            let addr = Addr::new(DeviceId(0), zone, at);
            let taken = self.take_singly(inspector, addr, order);
            if taken == 0 {
                self.note_unknown(addr);
            }
            at += taken.max(1);
        }
    }

    /// What begins at a place, in its zone, in the other one of a pair, or as the others of a stripe set
    /// have it.
    fn take_singly(&mut self, inspector: &Inspector<'_>, addr: Addr, order: &mut Order) -> u32 {
        let media = &inspector.media;
        for first in media.ways(addr, 1) {
            let _ = media.decoded(addr, envelope::check_version(&first, &inspector.key));
            let Ok(fields) = envelope::peek(&first) else {
                continue;
            };
            let blocks = u32::from(fields.blocks).clamp(1, PAGE_BLOCKS_MAX as u32);
            let mut ways = media.ways(addr, blocks);
            let taken = ways.find_map(|bytes| {
                let taken = self.take(inspector, addr, &bytes, order);
                (taken > 0).then_some(taken)
            });
            if let Some(taken) = taken {
                return taken;
            }
        }
        0
    }

    /// Notes the structure that `bytes` begin with; answers its blocks, 0 if there is none.
    fn take(
        &mut self,
        inspector: &Inspector<'_>,
        addr: Addr,
        bytes: &[u8],
        order: &mut Order,
    ) -> u32 {
        let known = envelope::check_version(bytes, &inspector.key);
        let _ = inspector.media.decoded(addr, known);
        let Ok(fields) = envelope::peek(bytes) else {
            return 0;
        };
        let blocks = usize::from(fields.blocks);
        let Some(bytes) = bytes.get(..blocks * BLOCK_SIZE) else {
            return 0;
        };
        let Ok((fields, payload)) = envelope::open(bytes, &inspector.key, fields.kind, None) else {
            return 0;
        };
        match fields.kind {
            Kind::Page => {
                let Ok(image) = tree::image(payload, addr) else {
                    return 0;
                };
                let Ok(view) = PageView::new(&image) else {
                    return 0;
                };
                // Ids are dense: no volume has more pages than its device has blocks.
                if view.id().0 != fields.owner || fields.owner >= order.pages_max {
                    return 0;
                }
                order.page();
                let mut items = view.items().map(|(key, _)| key);
                let first = items.next();
                self.pages.push(PageVersion {
                    id: view.id(),
                    checkpoint: fields.sequence,
                    addr,
                    blocks: fields.blocks,
                    level: view.level(),
                    keys: first.map(|first| (first, items.next_back().unwrap_or(first))),
                });
            }
            Kind::MatChunk | Kind::ZitChunk if order.has_chunk(fields.kind, fields.owner) => {
                let is_zit = fields.kind == Kind::ZitChunk;
                let attempt = order.chunk(fields.sequence, (is_zit, fields.owner));
                let table = if is_zit { &mut self.zit } else { &mut self.mat };
                table
                    .versions
                    .entry(fields.owner)
                    .or_default()
                    .push(ChunkVersion {
                        checkpoint: fields.sequence,
                        attempt,
                        addr,
                    });
            }
            _ => {}
        }
        fields.blocks.into()
    }

    /// Of several attempts at one checkpoint all but the last were broken off: a crash came before
    /// their footer, and the number was given again.
    fn keep_last_attempts(&mut self) {
        let mut last: HashMap<u64, u32> = HashMap::new();
        for version in self.mat.all().chain(self.zit.all()) {
            let attempt = last.entry(version.checkpoint).or_default();
            *attempt = version.attempt.max(*attempt);
        }
        for table in [&mut self.mat, &mut self.zit] {
            for versions in table.versions.values_mut() {
                versions.retain(|v| last.get(&v.checkpoint) == Some(&v.attempt));
                versions.sort_by_key(|v| v.checkpoint);
            }
        }
        // Stable: of versions with the same number the one written later stays behind.
        self.pages.sort_by_key(|page| (page.id, page.checkpoint));
        self.by_addr = self.pages.iter().map(|page| page.addr).zip(0..).collect();
    }

    /// The page at a place, if it is the one that the table means.
    pub(crate) fn page_at(&self, id: PageId, entry: MatEntry) -> Option<&PageVersion> {
        let index = *self.by_addr.get(&entry.addr)?;
        let page = self.pages.get(index as usize)?;
        (page.id == id && page.blocks == entry.blocks).then_some(page)
    }

    /// The versions of a page, oldest first.
    pub(crate) fn versions(&self, id: PageId) -> &[PageVersion] {
        let from = self.pages.partition_point(|page| page.id < id);
        let to = self.pages.partition_point(|page| page.id <= id);
        self.pages.get(from..to).unwrap_or(&[])
    }

    /// The newest version of a page that this checkpoint or an earlier one wrote.
    pub(crate) fn newest(&self, id: PageId, checkpoint: u64) -> Option<&PageVersion> {
        let mut versions = self.versions(id).iter().rev();
        versions.find(|page| page.checkpoint <= checkpoint)
    }

    /// Whether a checkpoint that is left may have written chunks of the page table that are lost. One of the zones alone writes none, and its
    /// number may be that of an interrupted one, of which pages are left.
    pub(crate) fn may_lack_chunks(&self, checkpoint: u64) -> bool {
        let is_its = |version: &&ChunkVersion| version.checkpoint == checkpoint;
        let first = self.zit.all().find(is_its);
        self.mat.all().any(|version| is_its(&version))
            || first.is_some_and(|first| {
                // They lie before those of the zone table.
                let (zone, block) = (first.addr.zone(), first.addr.block());
                let mut damaged = self.unknown.iter();
                damaged
                    .any(|(of, blocks)| block == 1 || *of == zone && blocks.contains(&(block - 1)))
            })
    }

    /// Zones that hold anything that this checkpoint wrote.
    pub(crate) fn zones_of(&self, checkpoint: u64) -> BTreeSet<ZoneId> {
        let pages = self.pages.iter().map(|page| (page.checkpoint, page.addr));
        let chunks = self.mat.all().chain(self.zit.all());
        pages
            .chain(chunks.map(|chunk| (chunk.checkpoint, chunk.addr)))
            .filter(|(number, _)| *number == checkpoint)
            .map(|(_, addr)| addr.zone())
            .collect()
    }

    /// The newest checkpoint that wrote anything that is left.
    pub(crate) fn newest_checkpoint(&self) -> Option<u64> {
        let pages = self.pages.iter().map(|page| page.checkpoint);
        let chunks = self.mat.all().chain(self.zit.all());
        pages.chain(chunks.map(|chunk| chunk.checkpoint)).max()
    }

    /// One more than the largest page id.
    pub(crate) fn id_limit(&self) -> u64 {
        self.pages.last().map_or(0, |page| page.id.0 + 1)
    }

    /// Checkpoints that came as far as writing the zone table, which is the last thing before the
    /// footer; the newest first. If there is none, the newest that wrote any page.
    pub(crate) fn checkpoints(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.zit.all().map(|version| version.checkpoint).collect();
        if numbers.is_empty() {
            numbers.extend(self.pages.iter().map(|page| page.checkpoint).max());
        }
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        numbers.dedup();
        numbers
    }
}

/// Tells attempts at checkpoints apart by the order in which they write: pages, chunks of the MAT
/// by number, chunks of the ZIT by number.
#[derive(Debug, Default)]
struct Order {
    /// Page ids are below this.
    pages_max: u64,
    zones: u64,
    attempt: u32,
    checkpoint: u64,
    last: Option<(bool, u64)>,
    /// A page was written behind the last chunk, in the same zone.
    page_since: bool,
}

impl Order {
    /// Whether a table of this volume can have a chunk of this number.
    fn has_chunk(&self, table: Kind, number: u64) -> bool {
        let chunks = match table {
            Kind::ZitChunk => self.zones.div_ceil(ZitEntry::PER_CHUNK as u64),
            _ => self.pages_max.div_ceil(MatEntry::PER_CHUNK as u64),
        };
        number < chunks
    }

    /// Pages of another stream may lie in a zone between two of the chunks.
    fn begin_zone(&mut self) {
        self.page_since = false;
    }

    fn page(&mut self) {
        self.page_since = true;
    }

    fn chunk(&mut self, checkpoint: u64, place: (bool, u64)) -> u32 {
        let goes_on = checkpoint == self.checkpoint
            && !self.page_since
            && self.last.is_none_or(|last| last < place);
        if !goes_on {
            self.attempt += 1;
        }
        self.page_since = false;
        self.checkpoint = checkpoint;
        self.last = Some(place);
        self.attempt
    }
}
