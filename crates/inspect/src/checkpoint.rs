//! The newest checkpoint: its footer, and the two tables it leads to.

use std::ops::ControlFlow;

use persimmon_format::envelope::{self, Kind};
use persimmon_format::footer::Footer;
use persimmon_format::log::Body;
use persimmon_format::table::{MatEntry, ZitEntry};
use persimmon_format::{Addr, PageId, VolumeKey};

use crate::error::{InspectError, Result};
use crate::finding::{FOOTER_FIELDS, Findings, MAT_CHUNK, ZIT_CHUNK};
use crate::log::Log;
use crate::media::Media;

/// A checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pub addr: Addr,
    pub footer: Footer,
    /// By page id.
    pub mat: Vec<MatEntry>,
    /// By zone, with what the footer tells of them.
    pub zit: Vec<ZitEntry>,
    /// A chunk of the MAT is lost: pages may exist that are not in `mat`.
    pub mat_lost: bool,
    /// Which.
    pub mat_chunks_lost: Vec<usize>,
    /// A chunk of the ZIT is lost.
    pub zit_lost: bool,
}

impl Checkpoint {
    /// Where a page is.
    pub(crate) fn page(&self, page: PageId) -> Option<MatEntry> {
        let index = usize::try_from(page.0).ok()?;
        self.mat.get(index).copied().filter(MatEntry::is_used)
    }

    /// All pages and table chunks: kind, id or number, place, and blocks.
    pub(crate) fn metadata(&self) -> impl Iterator<Item = (Kind, usize, Addr, u32)> {
        let pages = self.mat.iter().enumerate();
        let pages = pages
            .filter(|(_, entry)| entry.is_used())
            .map(|(id, entry)| (Kind::Page, id, entry.addr, u32::from(entry.blocks)));
        let tables = [
            (Kind::MatChunk, &self.footer.mat),
            (Kind::ZitChunk, &self.footer.zit),
        ];
        let chunks = tables.into_iter().flat_map(|(kind, list)| {
            let used = list.iter().enumerate().filter(|(_, a)| **a != Addr::ZERO);
            used.map(move |(number, addr)| (kind, number, *addr, 1))
        });
        pages.chain(chunks)
    }
}

/// The newest complete footer: the one the last log block names, or one that follows it.
///
/// # Errors
/// [`InspectError::NoCheckpoint`] if no log block names one and none is there. A footer that is
/// named but damaged is a finding, and the answer nothing.
pub(crate) fn newest(
    media: &Media<'_>,
    key: &VolumeKey,
    log: &Log,
    findings: &mut Findings,
) -> Result<Option<Checkpoint>> {
    let Some(last) = log.newest else {
        return Err(InspectError::NoCheckpoint {
            reason: "there is no intact log block".into(),
        });
    };
    let named = last.state.footer;
    // Before the first footer was durable none is named: the log begins with it. A place that would come
    // after the block that names it is one in a zone that was reset since: this block is of a newer footer.
    let from = log.sequence_at(named).filter(|at| *at <= last.sequence);
    let from = from.unwrap_or(0);
    let footers = footers_from(media, key, log, from);
    let damaged = named != Addr::ZERO && !footers.iter().any(|(addr, _)| *addr == named);
    let newest = footers
        .into_iter()
        .max_by_key(|(_, footer)| footer.checkpoint);
    let Some((addr, footer)) = newest else {
        if damaged {
            let detail = "the footer that the log names is damaged";
            findings.add(&FOOTER_FIELDS, named, detail);
            return Ok(None);
        }
        return Err(InspectError::NoCheckpoint {
            reason: "the log holds no complete footer".into(),
        });
    };
    Ok(Some(load(media, key, addr, footer, findings)))
}

/// The newest complete footer that the log leads to.
pub(crate) fn newest_footer(media: &Media<'_>, key: &VolumeKey, log: &Log) -> Option<Footer> {
    let last = log.newest.as_ref()?;
    let from = log.sequence_at(last.state.footer);
    let from = from.filter(|at| *at <= last.sequence).unwrap_or(0);
    let footers = footers_from(media, key, log, from).into_iter();
    footers
        .map(|(_, footer)| footer)
        .max_by_key(|footer| footer.checkpoint)
}

/// The newest complete footer that is left in the log at all, where the one that the log names is
/// damaged. Zones that it needs may have been reset since.
pub(crate) fn older(
    media: &Media<'_>,
    key: &VolumeKey,
    log: &Log,
    findings: &mut Findings,
) -> Option<Checkpoint> {
    let footers = footers_from(media, key, log, 0);
    let newest = footers
        .into_iter()
        .max_by_key(|(_, footer)| footer.checkpoint);
    let (addr, footer) = newest?;
    Some(load(media, key, addr, footer, findings))
}

/// All complete footers from `from` on.
fn footers_from(media: &Media<'_>, key: &VolumeKey, log: &Log, from: u64) -> Vec<(Addr, Footer)> {
    let mut found = Vec::new();
    let mut first = Addr::ZERO;
    let mut joined: Vec<u8> = Vec::new();
    let mut next_part = 0;
    log.scan(media, key, from, &mut |addr, block| {
        let Ok(block) = block else {
            next_part = 0;
            return ControlFlow::Continue(());
        };
        let Body::Footer { part, parts, bytes } = block.body else {
            next_part = 0;
            return ControlFlow::Continue(());
        };
        if part == 0 {
            first = addr;
            joined.clear();
        } else if part != next_part || addr.zone() != first.zone() {
            next_part = 0;
            return ControlFlow::Continue(());
        }
        joined.extend_from_slice(bytes);
        next_part = part + 1;
        if next_part == parts {
            if let Ok(footer) = media.decoded(first, Footer::decode(&joined)) {
                found.push((first, footer));
            }
            next_part = 0;
        }
        ControlFlow::Continue(())
    });
    found
}

fn load(
    media: &Media<'_>,
    key: &VolumeKey,
    addr: Addr,
    footer: Footer,
    findings: &mut Findings,
) -> Checkpoint {
    let mut mat = Vec::new();
    let mut mat_chunks_lost = Vec::new();
    for (number, chunk) in footer.mat.iter().enumerate() {
        let at = mat.len();
        if *chunk != Addr::ZERO {
            let read = read_chunk(media, key, &footer, *chunk, Kind::MatChunk, number)
                .and_then(|payload| decode(*chunk, MatEntry::decode_chunk(&payload)));
            match read {
                Ok(entries) => mat.extend(entries.into_iter().take(MatEntry::PER_CHUNK)),
                Err(error) => {
                    mat_chunks_lost.push(number);
                    findings.add(&MAT_CHUNK, format_args!("MAT chunk {number}"), error);
                }
            }
        }
        mat.resize(at + MatEntry::PER_CHUNK, MatEntry::NONE);
    }
    let mut zit = Vec::new();
    let mut zit_lost = false;
    for (number, chunk) in footer.zit.iter().enumerate() {
        let at = zit.len();
        if *chunk != Addr::ZERO {
            let read = read_chunk(media, key, &footer, *chunk, Kind::ZitChunk, number)
                .and_then(|payload| decode(*chunk, ZitEntry::decode_chunk(&payload)));
            match read {
                Ok(entries) => zit.extend(entries.into_iter().take(ZitEntry::PER_CHUNK)),
                Err(error) => {
                    zit_lost = true;
                    findings.add(&ZIT_CHUNK, format_args!("ZIT chunk {number}"), error);
                }
            }
        }
        zit.resize(at + ZitEntry::PER_CHUNK, ZitEntry::default());
    }
    let zones = media.geometry().zone_count as usize;
    if zit.len() < zones && !zit_lost {
        let detail = format!("its ZIT has {} entries for {zones} zones", zit.len());
        findings.add(&FOOTER_FIELDS, addr, detail);
    }
    zit.resize(zones, ZitEntry::default());
    let missing = footer.complete(|zone, change| {
        let entry = zit.get_mut(zone.0 as usize);
        entry.map(|entry| *entry = change(*entry)).is_some()
    });
    for zone in missing {
        findings.add(&FOOTER_FIELDS, addr, format_args!("it names zone {zone}"));
    }
    Checkpoint {
        addr,
        footer,
        mat,
        zit,
        mat_lost: !mat_chunks_lost.is_empty(),
        mat_chunks_lost,
        zit_lost,
    }
}

fn decode<T>(addr: Addr, result: persimmon_format::Result<T>) -> Result<T> {
    result.map_err(|source| InspectError::Block { addr, source })
}

/// The payload of a table chunk.
pub(crate) fn read_chunk(
    media: &Media<'_>,
    key: &VolumeKey,
    footer: &Footer,
    addr: Addr,
    kind: Kind,
    number: usize,
) -> Result<Vec<u8>> {
    let owner = Some(number as u64);
    media.read_good(addr, 1, |block| {
        let (fields, payload) = decode(
            addr,
            media.decoded(addr, envelope::open(block, key, kind, owner)),
        )?;
        if fields.sequence > footer.checkpoint {
            return Err(InspectError::Request(format!(
                "written by checkpoint {}, later than the newest",
                fields.sequence
            )));
        }
        Ok(payload.to_vec())
    })
}
