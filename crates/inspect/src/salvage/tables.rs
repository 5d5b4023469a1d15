//! The two tables as of a checkpoint, put together from what a scan found.

use std::collections::BTreeMap;

use persimmon_format::envelope::{self, Kind};
use persimmon_format::table::{MatEntry, ZitEntry};
use persimmon_format::{Addr, PageId};

use super::scan::{ChunkVersion, PageVersion, Scan};
use crate::checkpoint::Checkpoint;
use crate::error::InspectError;
use crate::volume::Inspector;

/// What decides where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The chunks of the table; pages count only where no chunk is left.
    Chunks,
    /// A page that was written after the newest chunk that is left counts more than that chunk:
    /// for volumes that lost newer chunks.
    Pages,
}

/// Where a chunk of the page table comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The checkpoint itself wrote it: nothing in it can be older.
    Own,
    /// An earlier checkpoint wrote it, and perhaps a later one did, too, whose chunk is lost.
    Earlier,
    /// It is lost: it is as pages tell, or as it was before.
    Lost,
}

/// The page table as of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Mat {
    pub entries: Vec<MatEntry>,
    /// Where each chunk is, or was; [`Addr::ZERO`] where nothing tells.
    pub chunks: Vec<Addr>,
    pub origins: Vec<Origin>,
    /// Chunks taken as they were before, though pages tell that they were written since.
    pub stale: u64,
}

impl Mat {
    /// The table that a checkpoint left.
    pub(crate) fn at(inspector: &Inspector<'_>, scan: &Scan, checkpoint: u64, trust: Trust) -> Mat {
        let by_pages = (scan.id_limit() as usize).div_ceil(MatEntry::PER_CHUNK);
        let count = scan.mat.len().max(by_pages);
        let mut mat = Mat {
            entries: Vec::with_capacity(count * MatEntry::PER_CHUNK),
            chunks: Vec::with_capacity(count),
            origins: Vec::with_capacity(count),
            stale: 0,
        };
        let mut lacking = BTreeMap::new();
        for number in 0..count {
            let (entries, addr) = chunk(inspector, scan, number, checkpoint, trust);
            let version = scan.mat.at(number as u64, checkpoint);
            let own = version.is_some_and(|version| version.checkpoint == checkpoint);
            let known = version.map_or(0, |version| version.checkpoint);
            let mut newer = newer_pages(scan, number, known, checkpoint);
            let is_stale = trust == Trust::Chunks
                && addr != Addr::ZERO
                && newer.any(|(_, page)| {
                    let lacks = lacking.entry(page.checkpoint);
                    *lacks.or_insert_with(|| scan.may_lack_chunks(page.checkpoint))
                });
            mat.stale += u64::from(is_stale);
            mat.entries.extend(entries);
            mat.chunks.push(if is_stale { Addr::ZERO } else { addr });
            mat.origins
                .push(match (addr == Addr::ZERO || is_stale, own) {
                    (true, _) => Origin::Lost,
                    (false, true) => Origin::Own,
                    (false, false) => Origin::Earlier,
                });
        }
        mat
    }
}

/// The newest versions of a chunk's pages that were written after one checkpoint and up to another, each with its place in the chunk.
fn newer_pages(
    scan: &Scan,
    number: usize,
    known: u64,
    checkpoint: u64,
) -> impl Iterator<Item = (usize, &PageVersion)> {
    let first = (number * MatEntry::PER_CHUNK) as u64;
    let newest = move |at: usize| {
        let page = scan.newest(PageId(first + at as u64), checkpoint)?;
        (page.checkpoint > known).then_some((at, page))
    };
    (0..MatEntry::PER_CHUNK).filter_map(newest)
}

/// One chunk of the page table, and where it is if it was read as it is.
pub(crate) fn chunk(
    inspector: &Inspector<'_>,
    scan: &Scan,
    number: usize,
    checkpoint: u64,
    trust: Trust,
) -> (Vec<MatEntry>, Addr) {
    let version = scan.mat.at(number as u64, checkpoint);
    let read = version.and_then(|version| {
        let payload = payload(inspector, version, Kind::MatChunk, number)?;
        MatEntry::decode_chunk(&payload).ok()
    });
    let mut addr = version.map_or(Addr::ZERO, |version| version.addr);
    // Without a chunk all pages are newer than it.
    let known = match (&read, version) {
        (Some(_), Some(version)) => version.checkpoint,
        _ => 0,
    };
    let mut entries = read.unwrap_or_default();
    entries.resize(MatEntry::PER_CHUNK, MatEntry::NONE);
    if known == 0 {
        addr = Addr::ZERO;
    }
    if known < checkpoint && (trust == Trust::Pages || known == 0) {
        for (at, page) in newer_pages(scan, number, known, checkpoint) {
            addr = Addr::ZERO;
            if let Some(entry) = entries.get_mut(at) {
                *entry = page.entry();
            }
        }
    }
    (entries, addr)
}

/// The zone table as of a checkpoint, as far as its chunks are left, and where they are.
pub(crate) fn zit(
    inspector: &Inspector<'_>,
    scan: &Scan,
    checkpoint: u64,
) -> (Vec<Option<ZitEntry>>, Vec<Addr>) {
    let zones = inspector.zones.len();
    let count = zones.div_ceil(ZitEntry::PER_CHUNK);
    let (mut entries, mut chunks) = (Vec::with_capacity(zones), Vec::with_capacity(count));
    for number in 0..count {
        let version = scan.zit.at(number as u64, checkpoint);
        let read = version.and_then(|version| {
            let payload = payload(inspector, version, Kind::ZitChunk, number)?;
            ZitEntry::decode_chunk(&payload).ok()
        });
        let whole = read.is_some();
        entries.extend(read.unwrap_or_default().into_iter().map(Some));
        entries.resize((number + 1) * ZitEntry::PER_CHUNK, None);
        chunks.push(version.filter(|_| whole).map_or(Addr::ZERO, |v| v.addr));
    }
    entries.resize(zones, None);
    (entries, chunks)
}

/// The zone table as of an earlier checkpoint, or, where a chunk of that is not left, as of one after it: what was written by then is so by
/// this, too.
pub(crate) fn zit_since(
    inspector: &Inspector<'_>,
    scan: &Scan,
    since: u64,
    checkpoint: &Checkpoint,
) -> Vec<ZitEntry> {
    let mut entries = checkpoint.zit.clone();
    let checkpoints = since..=checkpoint.footer.checkpoint;
    for (number, entries) in (0..).zip(entries.chunks_mut(ZitEntry::PER_CHUNK)) {
        let version = scan.zit.first_of(number as u64, checkpoints.clone());
        let then = version.and_then(|version| {
            let payload = payload(inspector, version, Kind::ZitChunk, number)?;
            ZitEntry::decode_chunk(&payload).ok()
        });
        for (entry, then) in entries.iter_mut().zip(then.into_iter().flatten()) {
            *entry = then;
        }
    }
    entries
}

fn payload(
    inspector: &Inspector<'_>,
    version: ChunkVersion,
    kind: Kind,
    number: usize,
) -> Option<Vec<u8>> {
    let read = inspector.media.read_good(version.addr, 1, |block| {
        let opened = envelope::open(block, &inspector.key, kind, Some(number as u64));
        let wrong = |source| InspectError::Block {
            addr: version.addr,
            source,
        };
        let opened = inspector.media.decoded(version.addr, opened);
        opened.map(|(_, payload)| payload.to_vec()).map_err(wrong)
    });
    read.ok()
}
